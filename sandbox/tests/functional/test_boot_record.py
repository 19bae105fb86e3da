# SPDX-License-Identifier: Apache-2.0
"""What a VM boots can be told from its VMIs as well as from its guest."""

import uuid

from kubevirt_sandbox.testing import boot_record
from kubevirt_sandbox.testing import case
from kubevirt_sandbox.testing import given_cluster
from kubevirt_sandbox.testing import machines
from kubevirt_sandbox.testing import sandbox

DEVICES = '/spec/template/spec/domain/devices/'


@given_cluster.needs_sandbox("the sandbox's record, which it compares")
class BootRecordTestCase(case.SandboxTestCase):

    VMS = 0

    def setUp(self):
        super().setUp()
        self.name = 'box-' + uuid.uuid4().hex[:8]
        self.sandbox.create('virtualmachines', machines.vm(
            self.name, 'Halted'))
        self.addCleanup(self.sandbox.delete, 'virtualmachines', self.name)
        self.record = self.useFixture(boot_record.BootRecord(
            self.sandbox.request, sandbox.path('virtualmachineinstances')))

    def same(self):
        """Check that both records are the same; return the last boot."""
        theirs = [{key: value for key, value in one.items() if key != 'at'}
                  for one in self.sandbox.boots(self.name)]
        self.assertEqual(theirs, self.record.of(self.name))
        return theirs[-1]

    def test_record_of_starts(self):
        self.assertEqual([], self.record.of(self.name))
        self.sandbox.do(self.name, 'start')
        first = self.record.wait(self.name, 1, 30)
        self.assertEqual(first, self.same())
        self.assertEqual(('Hdd', 'bios'), (first['class'], first['firmware']))
        for count, path, value, class_, firmware in (
                (2, DEVICES + 'interfaces/0/bootOrder', 1, 'Pxe', 'bios'),
                (3, '/spec/template/spec/domain/firmware/bootloader',
                 {'efi': {'secureBoot': False}}, 'Pxe', 'efi'),
                # An empty drive does not boot.
                (4, '/spec/template/spec/volumes/1', None, 'Pxe', 'efi')):
            self.sandbox.patch('virtualmachines', self.name, [
                {'op': 'remove', 'path': path} if value is None
                else {'op': 'add', 'path': path, 'value': value}])
            if count == 4:
                self.sandbox.patch('virtualmachines', self.name, [{
                    'op': 'add', 'path': DEVICES + f'{name}/bootOrder',
                    'value': order} for order, name in enumerate(
                        ('disks/1', 'interfaces/0'), 1)])
            self.sandbox.do(self.name, 'restart')
            self.record.wait(self.name, count, 30)
            last = self.same()
            self.assertEqual((class_, firmware),
                             (last['class'], last['firmware']))
        self.assertEqual(['cdrom:cd', 'interface:default'], last['tried'])

    def test_vmi_that_starts_paused(self):
        self.sandbox.do(self.name, 'start', {'paused': True})
        self.sandbox.wait_running(self.name)
        self.assertEqual([], self.record.of(self.name))
        self.sandbox.request(
            'PUT', '/apis/subresources.kubevirt.io/v1/namespaces/'
            f'{sandbox.NAMESPACE}/virtualmachineinstances/{self.name}'
            '/unpause', {}, expect=200)
        self.record.wait(self.name, 1, 30)

    def test_reboot_within_the_vmi_is_not_recorded(self):
        self.sandbox.do(self.name, 'start')
        self.sandbox.wait_boot(self.name, 1)
        self.sandbox.guest_does(self.name, 'reboot')
        self.sandbox.wait_boot(self.name, 2)
        self.assertEqual(1, len(self.record.of(self.name)))
        self.assertRaisesRegex(AssertionError, '1 VMIs ran', self.record.wait,
                               self.name, 2, 0.1)
