# SPDX-License-Identifier: Apache-2.0
"""BMCs that the operator creates automatically for VMs."""

from tests.fixtures import operator

LABEL = 'bmc.kubevirt.io/auto-created=true'


class AutomaticTestCase(operator.OperatorTestCase):

    FOLDER = operator.MANIFESTS / 'overlays' / 'auto-create'
    ARGUMENTS = ('--auto-create', 'bmc in (auto, always)')
    SANDBOX = ('--pods', 'pretended')

    def setUp(self):
        super().setUp()
        self.mark = self.operator.process.mark()

    def tearDown(self):
        self.quiet(self.mark)
        super().tearDown()

    def label(self, name, value='auto'):
        self.kubectl('label', '--overwrite', 'vm', name, 'bmc=' + value)

    def made(self):
        return self.kubectl.names('vmbmc', '-l', LABEL)

    def all(self):
        return self.kubectl.names('vmbmc')

    def is_made(self, *names):
        self.until('made', self.made, sorted(
            'virtualmachinebmc.bmc.kubevirt.io/' + name for name in names))

    def test_with_the_vm(self):
        self.vm('other')
        for name, value in (('a', 'auto'), ('b', 'always'), ('c', 'never')):
            self.vm(name)
            self.label(name, value)
        self.is_made('a', 'b')
        self.kubectl.wait('vmbmc/a', 'condition=Ready')
        bmc = operator.Bmc(self.kubectl, 'a', 'admin', None)
        self.assertEqual('a-virtbmc-auth', bmc.status['authSecret'])
        self.assertEqual(
            [('VirtualMachine', 'a')], [
                (one['kind'], one['name']) for one in
                bmc.resource['metadata']['ownerReferences']])
        # The VM goes, and its BMC with it.
        self.kubectl('delete', 'vm', 'a')
        self.is_made('b')
        self.until('nothing left', lambda: self.owned('a'), [])
        # It comes back.
        self.vm('a')
        self.label('a')
        self.is_made('a', 'b')
        # One that is deleted by hand is made again, as long as it is wanted.
        self.kubectl('delete', 'vmbmc', 'b')
        self.is_made('a', 'b')
        # No longer wanted.
        self.label('b', 'never')
        self.is_made('a')
        self.kubectl('label', 'vm', 'a', 'bmc-')
        self.is_made()
        self.until('nothing left', self.owned, [])

    def test_what_users_made_is_theirs(self):
        # A BMC for the VM, by another name.
        mine = self.bmc('mine', 'box')
        self.label('box')
        # A BMC of the VM's name, for another VM.
        self.vm('twin')
        self.bmc('twin', 'box')
        before = [mine.resource['spec'], self.all()]
        self.label('twin')
        # Something to wait for.
        self.vm('last')
        self.label('last')
        self.is_made('last')
        self.assertEqual(
            before[1] + [], [one for one in self.all()
                             if not one.endswith('/last')])
        # The user's goes: now the VM needs one.
        self.kubectl('delete', 'vmbmc', 'mine', 'twin')
        self.is_made('box', 'last', 'twin')
        # One that a user takes over, by taking the label away, stays.
        self.kubectl('label', 'vmbmc', 'box', LABEL.partition('=')[0] + '-')
        self.label('box', 'never')
        self.label('last', 'never')
        self.is_made('twin')
        self.assertIn('virtualmachinebmc.bmc.kubevirt.io/box', self.all())

    def test_while_the_operator_is_away(self):
        for name in ('a', 'b'):
            self.vm(name)
            self.label(name)
        self.is_made('a', 'b')
        self.operator.process.send(15)
        self.assertEqual(0, self.operator.process.wait())
        self.vm('c')
        self.label('c')
        self.label('a', 'never')
        self.operator.process.restart()
        self.is_made('b', 'c')
