# SPDX-License-Identifier: Apache-2.0

import copy

from oslotest import base

from kubevirt_sandbox.kubevirt.admission import hotplug
from tests.unit.kubevirt import objects


class HotplugTest(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.config = objects.cluster_config()
        self.old = objects.vmi()
        self.old['status']['volumeStatus'] = [{'name': 'root'}]
        self.new = copy.deepcopy(self.old)
        self.devices = self.new['spec']['domain']['devices']
        self.volumes = self.new['spec']['volumes']
        self.iso = {'name': 'cd', 'persistentVolumeClaim': {
            'claimName': 'iso', 'hotpluggable': True}}

    def _check(self):
        return [cause.message for cause in hotplug.check(
            self.old, self.new, self.config)]

    def test_accepts_insert_and_eject(self):
        self.volumes.append(self.iso)
        self.assertEqual([], self._check())
        self.old, self.new = self.new, self.old
        self.old['status']['volumeStatus'].append(
            {'name': 'cd', 'hotplugVolume': {}})
        self.assertEqual([], self._check())

    def test_rejects_volume_that_is_not_hotpluggable(self):
        self.volumes.append({'name': 'cd', 'emptyDisk': {}})
        self.assertEqual(['volume cd is not a PVC or DataVolume'],
                         self._check())

    def test_rejects_disks_without_hotplug_bus(self):
        self.volumes.append({**self.iso, 'name': 'data'})
        for disk, words in (({'disk': {'bus': 'sata'}}, 'requires bus'),
                            ({'lun': {'bus': 'virtio'}}, 'requires bus'),
                            ({'cdrom': {'bus': 'sata'}}, 'diskDevice')):
            self.devices['disks'][2:] = [{'name': 'data', **disk}]
            self.assertIn(words, self._check()[0])
        self.devices['disks'][2:] = [{'name': 'data', 'disk': {
            'bus': 'scsi'}}]
        self.assertEqual([], self._check())

    def test_rejects_change_of_permanent_volume_or_disk(self):
        self.volumes[0]['containerDisk']['image'] = 'another'
        self.assertEqual(['permanent volume root, changed'], self._check())
        self.new = copy.deepcopy(self.old)
        self.new['spec']['domain']['devices']['disks'][0]['serial'] = 'a'
        self.assertEqual(['permanent disk root, changed'], self._check())

    def test_rejects_volume_without_disk(self):
        self.volumes.append({**self.iso, 'name': 'data'})
        self.assertEqual(
            ['mismatch between volumes declared (2) and required (1)'],
            self._check())
