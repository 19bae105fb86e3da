# SPDX-License-Identifier: Apache-2.0
"""BMCs that the operator creates automatically for VMs."""

from tests.fixtures import operator

LABEL = 'bmc.kubevirt.io/auto-created=true'


@operator.other_platforms
class AutoCreateTestCase(operator.OperatorTestCase):

    FOLDER = operator.MANIFESTS / 'overlays' / 'auto-create'
    ARGUMENTS = ('--auto-create', 'bmc in (auto, always)')
    SANDBOX = ('--pods', 'pretended')

    def setUp(self):
        super().setUp()
        self.mark = self.operator.process.mark()

    def tearDown(self):
        self.assert_no_warnings(self.mark)
        super().tearDown()

    def label(self, name, value='auto'):
        self.kubectl('label', '--overwrite', 'vm', name, 'bmc=' + value)

    def made(self):
        return self.kubectl.names('vmbmc', '-l', LABEL)

    def all(self):
        return self.kubectl.names('vmbmc')

    def wait_made(self, *names):
        self.until('automatic BMCs', self.made, sorted(
            'virtualmachinebmc.bmc.kubevirt.io/' + name for name in names))

    def wait_seen(self, bmc):
        """Wait until the operator has seen a BMC, and what was changed in
        BMCs before. It may see a change of a VM earlier."""
        self.until('condition', lambda: bmc.condition() is not None)

    def test_bmcs_follow_labels_of_vms(self):
        self.vm('other')
        for name, value in (('a', 'auto'), ('b', 'always'), ('c', 'never')):
            self.vm(name)
            self.label(name, value)
        self.wait_made('a', 'b')
        self.kubectl.wait('vmbmc/a', 'condition=Ready')
        bmc = operator.Bmc(self.kubectl, 'a', 'admin', None)
        self.assertEqual('a-virtbmc-auth', bmc.status['authSecret'])
        self.assertEqual(
            [('VirtualMachine', 'a')], [
                (one['kind'], one['name']) for one in
                bmc.resource['metadata']['ownerReferences']])
        # The BMC is deleted with its VM.
        self.kubectl('delete', 'vm', 'a')
        self.wait_made('b')
        self.until('nothing left', lambda: self.owned('a'), [])
        # A new VM of the same name gets a BMC again.
        self.vm('a')
        self.label('a')
        self.wait_made('a', 'b')
        # A BMC that a user deletes is created again while the label matches.
        self.kubectl('delete', 'vmbmc', 'b')
        self.wait_made('a', 'b')
        # BMCs are deleted when the label does not match any more.
        self.label('b', 'never')
        self.wait_made('a')
        self.kubectl('label', 'vm', 'a', 'bmc-')
        self.wait_made()
        self.until('nothing left', self.owned, [])

    def test_bmcs_of_users_stay(self):
        # A BMC for the VM, by another name.
        own = self.bmc('mine', 'box')
        self.wait_seen(own)
        self.label('box')
        # A BMC of the VM's name, for another VM.
        self.vm('twin')
        self.bmc('twin', 'box')
        before = [own.resource['spec'], self.all()]
        self.label('twin')
        # This BMC is created after the others were considered.
        self.vm('last')
        self.label('last')
        self.wait_made('last')
        self.assertEqual(
            before[1] + [], [one for one in self.all()
                             if not one.endswith('/last')])
        # Without the users' BMCs, the VMs get automatic ones.
        self.kubectl('delete', 'vmbmc', 'mine', 'twin')
        self.wait_made('box', 'last', 'twin')
        # A BMC whose label a user removed stays.
        self.kubectl('label', 'vmbmc', 'box', LABEL.partition('=')[0] + '-')
        self.wait_seen(self.bmc('later', 'later'))
        self.label('box', 'never')
        self.label('last', 'never')
        self.wait_made('twin')
        self.assertIn('virtualmachinebmc.bmc.kubevirt.io/box', self.all())

    def test_catches_up_after_restart(self):
        for name in ('a', 'b'):
            self.vm(name)
            self.label(name)
        self.wait_made('a', 'b')
        self.operator.process.send(15)
        self.assertEqual(0, self.operator.process.wait())
        self.vm('c')
        self.label('c')
        self.label('a', 'never')
        self.operator.process.restart()
        self.wait_made('b', 'c')
