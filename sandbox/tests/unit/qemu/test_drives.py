# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import tempfile
import unittest
from unittest import mock

from kubevirt_sandbox.cdi import storage
from kubevirt_sandbox.qemu import drives
from tests.unit.kubevirt import objects


def vmi(disks, volumes, cards=(), status=()):
    found = objects.vmi(volumes=volumes, domain={'devices': {
        'disks': disks, 'interfaces': list(cards)}})
    found['status']['volumeStatus'] = list(status)
    return found


ROOT = {'name': 'root', 'disk': {'bus': 'virtio'}, 'serial': 'S1'}
CD = {'name': 'cd', 'cdrom': {'bus': 'sata'}}


class DriveStoreTestCase(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.home = pathlib.Path(folder.name)
        self.image = self.home / 'image,1'
        self.image.write_bytes(b'QFI\xfb' + bytes(508))
        self.store = mock.Mock()
        self.store.find.return_value = {
            'status': {'capacity': {'storage': '3Mi'}}}
        self.storage = storage.Storage(self.home / 'claims')
        self.drive_store = drives.DriveStore(
            self.store, self.storage, {'x/image:1': str(self.image)})

    def test_drives_of_every_kind_of_volume(self):
        found = self.drive_store.drives(vmi(
            [ROOT, {'name': 'a', 'disk': {'bus': 'scsi', 'readonly': True}},
             {'name': 'b', 'lun': {'bus': 'scsi'}}, {'name': 'c'}, CD],
            [{'name': 'root', 'containerDisk': {'image': 'x/image:1'}},
             {'name': 'a', 'dataVolume': {'name': 'dv'}},
             {'name': 'b', 'persistentVolumeClaim': {'claimName': 'pvc'}},
             {'name': 'c', 'emptyDisk': {'capacity': '2Mi'}}]), self.home)
        claim = str(self.storage.path('default', 'dv'))
        self.assertEqual([
            drives.Drive('root', 'virtio', False, drives.Medium(
                'root', str(self.image), 'qcow2', keep=False), 1, True,
                'S1'),
            drives.Drive('a', 'scsi', False, drives.Medium('a', claim),
                         None, False),
            drives.Drive('b', 'scsi', False, drives.Medium(
                'b', str(self.storage.path('default', 'pvc'))), None, True),
            drives.Drive('c', 'sata', False, drives.Medium(
                'c', str(self.home / 'disk-c')), None, True),
            drives.Drive('cd', 'sata', True, None, None, False)], found)
        self.assertEqual(3 << 20, os.path.getsize(claim))
        self.assertEqual(2 << 20, os.path.getsize(self.home / 'disk-c'))

    def test_missing_image_and_unknown_volume(self):
        machine = vmi([ROOT], [{'name': 'root', 'containerDisk': {
            'image': 'x/other:1'}}])
        self.assertEqual('x/other:1', self.drive_store.missing_image(machine))
        self.assertIsNone(self.drive_store.missing_image(vmi([CD], [])))
        with self.assertRaisesRegex(drives.UnknownVolume,
                                    'volume root: .* cloudInitNoCloud'):
            self.drive_store.drives(vmi([ROOT], [{
                'name': 'root', 'cloudInitNoCloud': {'userData': 'x'}}]),
                None)

    def test_without_folder_creates_no_files(self):
        self.drive_store.drives(vmi([ROOT, {'name': 'c'}], [
            {'name': 'root', 'dataVolume': {'name': 'dv'}},
            {'name': 'c', 'emptyDisk': {'capacity': '2Mi'}}]), None)
        self.assertEqual(['claims', 'image,1'],
                         sorted(path.name for path in self.home.iterdir()))
        self.assertFalse(self.storage.path('default', 'dv').exists())

    def test_hotplugged_medium_appears_when_mounted(self):
        """Not before it is mounted in the pod."""
        volumes = [{'name': 'cd', 'dataVolume': {
            'name': 'iso', 'hotpluggable': True}}]
        for phase, there in (('Pending', False), ('AttachedToNode', False),
                             ('MountedToPod', True), ('Ready', True),
                             ('Detaching', False)):
            drive, = self.drive_store.drives(vmi([CD], volumes, status=[
                {'name': 'cd', 'hotplugVolume': {}, 'phase': phase}]), None)
            self.assertEqual(there, drive.medium is not None, phase)
            self.assertTrue(drive.plugged)

    def test_boot_order(self):
        card = {'name': 'net', 'bootOrder': 7}
        for disks, cards, order in (
                ([CD, ROOT], [], {'root': 1}),
                ([CD], [], {}),
                ([dict(CD, bootOrder=2), dict(ROOT, bootOrder=5)], [],
                 {'cd': 2, 'root': 5}),
                ([CD, dict(ROOT, bootOrder=5)], [card], {'root': 5}),
                ([CD, ROOT], [card], {})):
            self.assertEqual(order, drives.boot_order(
                vmi(disks, [], cards)['spec']))
