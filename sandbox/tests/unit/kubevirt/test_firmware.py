# SPDX-License-Identifier: Apache-2.0

from oslotest import base

from kubevirt_sandbox.kubevirt import firmware
from tests.unit.kubevirt import objects


class BootTest(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.vmi = objects.vmi()
        devices = self.vmi['spec']['domain']['devices']
        self.root, self.drive = devices['disks']
        self.card = devices['interfaces'][0]

    def _boot(self, unbootable=''):
        self.vmi['metadata']['annotations'][
            'sandbox.sushy-kubevirt/unbootable'] = unbootable
        return firmware.boot(self.vmi)

    def _number(self, **orders):
        for device in (self.root, self.drive, self.card):
            device.pop('bootOrder', None)
            if device['name'] in orders:
                device['bootOrder'] = orders[device['name']]

    def test_boots_lowest_boot_order_first(self):
        boot = self._boot()
        self.assertEqual(('disk:root', 'Hdd', ('disk:root',)),
                         (boot.device, boot.class_, boot.tried))
        self._number(root=3, default=2, cd=1)
        boot = self._boot()
        self.assertEqual('interface:default', boot.device)
        self.assertEqual('Pxe', boot.class_)
        self.assertEqual(('cdrom:cd', 'interface:default'), boot.tried)

    def test_devices_without_boot_order_are_not_tried(self):
        self._number(cd=1)
        boot = self._boot()
        self.assertEqual((None, None, ('cdrom:cd',)),
                         (boot.device, boot.class_, boot.tried))

    def test_boots_first_hard_disk_without_boot_orders(self):
        self._number()
        self.assertEqual('disk:root', self._boot().device)
        boot = self._boot(unbootable='root')
        self.assertEqual((None, ('disk:root',)), (boot.device, boot.tried))

    def test_skips_unbootable_devices(self):
        self.assertEqual('interface:default',
                         self._boot(unbootable='other, root').device)
        self.assertIsNone(self._boot(unbootable='default,root').device)

    def test_boots_hotplugged_medium_when_ready(self):
        self._number(cd=1, root=2)
        self.vmi['spec']['volumes'].append({
            'name': 'cd', 'persistentVolumeClaim': {
                'claimName': 'iso', 'hotpluggable': True}})
        plugging = {'name': 'cd', 'hotplugVolume': {}, 'phase': 'Pending'}
        self.vmi['status']['volumeStatus'] = [plugging]
        self.assertEqual('disk:root', self._boot().device)
        plugging['phase'] = 'Ready'
        boot = self._boot()
        self.assertEqual(('cdrom:cd', 'Cd'), (boot.device, boot.class_))

    def test_firmware_of_bootloader(self):
        for loader, wanted in ((None, 'bios'), ({'bios': {}}, 'bios'),
                               ({'efi': {}}, 'efi-secure'),
                               ({'efi': {'secureBoot': True}}, 'efi-secure'),
                               ({'efi': {'secureBoot': False}}, 'efi')):
            self.vmi['spec']['domain']['firmware'] = {'bootloader': loader}
            self.assertEqual(wanted, self._boot().firmware)
