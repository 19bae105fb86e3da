# SPDX-License-Identifier: Apache-2.0

import copy

from oslotest import base

from kubevirt_sandbox.kubevirt import conditions
from kubevirt_sandbox.kubevirt import samples
from kubevirt_sandbox.kubevirt import vm_liveupdate
from tests.unit.kubevirt import objects


class LiveUpdateTest(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.config = objects.cluster_config()
        self.vm = samples.sample_vm('one')
        self.spec = self.vm['spec']['template']['spec']
        self.started = copy.deepcopy(self.spec)
        self.vmi = objects.vmi()
        conditions.put(self.vmi, 'LiveMigratable', True)
        self.vmi['spec']['domain']['cpu']['maxSockets'] = 4
        self.vmi['spec']['domain']['memory']['maxGuest'] = '8Gi'
        self.vmi['status'].update(
            memory={'guestAtBoot': '2Gi', 'guestCurrent': '2Gi'},
            volumeStatus=[{'name': 'root'}])
        self.iso = {'name': 'cd', 'persistentVolumeClaim': {
            'claimName': 'iso', 'hotpluggable': True}}

    def _restart(self):
        return vm_liveupdate.check_restart(self.vm, self.vmi, self.started,
                                           self.config)

    def _apply(self):
        vm_liveupdate.carry_out(self.vm, self.vmi, self.config)
        return self.vmi['spec']

    def _message(self):
        return (conditions.find(self.vm, 'RestartRequired') or {}).get(
            'message')

    def test_no_restart_without_change(self):
        self.assertFalse(self._restart())

    def test_changes_that_need_a_restart(self):
        domain = self.spec['domain']
        for change in (
                lambda: domain['cpu'].update(cores=8),
                lambda: domain['devices']['disks'][0].update(bootOrder=5),
                lambda: domain['devices']['interfaces'][0].update(
                    bootOrder=7),
                lambda: domain.update(rebootPolicy='Terminate'),
                lambda: domain['devices']['disks'].pop(),
                lambda: self.spec['volumes'].append(
                    {'name': 'x', 'emptyDisk': {'capacity': '1Gi'}}),
                lambda: self.spec['volumes'][0]['containerDisk'].update(
                    image='other')):
            saved = copy.deepcopy(self.spec)
            change()
            self.assertTrue(self._restart())
            self.spec.clear()
            self.spec.update(saved)
            domain = self.spec['domain']
            self.assertFalse(self._restart())
            self.assertIsNone(self._message())

    def test_changes_that_need_no_restart(self):
        self.spec['domain']['cpu']['sockets'] = 2
        self.spec['domain']['memory']['guest'] = '4Gi'
        self.spec['nodeSelector'] = {'a': 'b'}
        self.spec['volumes'].append(self.iso)
        self.assertFalse(self._restart())
        self.config = objects.cluster_config(vmRolloutStrategy='Stage')
        self.assertTrue(self._restart())

    def test_adds_cpus_and_memory(self):
        self.spec['domain']['cpu']['sockets'] = 2
        self.spec['domain']['memory']['guest'] = '4Gi'
        self.spec['nodeSelector'] = {'a': 'b'}
        spec = self._apply()
        self.assertEqual(2, spec['domain']['cpu']['sockets'])
        self.assertEqual('4Gi', spec['domain']['memory']['guest'])
        self.assertEqual({'a': 'b'}, spec['nodeSelector'])
        self.assertIsNone(self._message())

    def test_invalid_sizes_need_a_restart(self):
        for sockets, guest, words in (
                (5, '2Gi', 'higher than'), (0, '2Gi', 'Reduction'),
                (1, '1Gi', 'lower than'), (1, '9Gi', 'not supported'),
                (1, '4097Mi', 'aligned')):
            self.spec['domain']['cpu']['sockets'] = sockets
            self.spec['domain']['memory']['guest'] = guest
            conditions.drop(self.vm, 'RestartRequired')
            self._apply()
            self.assertIn(words, self._message())

    def test_rejects_concurrent_cpu_changes(self):
        conditions.put(self.vmi, 'HotVCPUChange', True)
        self.spec['domain']['cpu']['sockets'] = 2
        error = self.assertRaises(vm_liveupdate.LiveUpdateError,
                                  self._apply)
        self.assertEqual('HotPlugCPUError', error.args[0])

    def test_inserts_replaces_and_removes_medium(self):
        self.spec['volumes'].append(self.iso)
        vm_liveupdate.plug_volumes(self.vm, self.vmi)
        self.assertEqual(self.iso, self.vmi['spec']['volumes'][1])
        self.vmi['status']['volumeStatus'].append(
            {'name': 'cd', 'hotplugVolume': {}, 'phase': 'Ready'})
        self.spec['volumes'][1] = {'name': 'cd', 'persistentVolumeClaim': {
            'claimName': 'other', 'hotpluggable': True}}
        for _ in range(2):  # removes the old medium first
            vm_liveupdate.plug_volumes(self.vm, self.vmi)
            self.assertEqual(1, len(self.vmi['spec']['volumes']))
        self.vmi['status']['volumeStatus'].pop()
        vm_liveupdate.plug_volumes(self.vm, self.vmi)
        self.assertEqual('other', self.vmi['spec']['volumes'][1][
            'persistentVolumeClaim']['claimName'])
        self.spec['volumes'].pop()
        vm_liveupdate.plug_volumes(self.vm, self.vmi)
        self.assertEqual(1, len(self.vmi['spec']['volumes']))
        self.assertEqual(['root', 'cd'], [
            disk['name'] for disk in
            self.vmi['spec']['domain']['devices']['disks']])

    def test_plugs_and_unplugs_disk_with_its_volume(self):
        disks = self.spec['domain']['devices']['disks']
        disks.append({'name': 'data', 'disk': {'bus': 'scsi'}})
        self.spec['volumes'].append({**self.iso, 'name': 'data'})
        vm_liveupdate.plug_volumes(self.vm, self.vmi)
        found = self.vmi['spec']['domain']['devices']
        self.assertEqual('data', found['disks'][2]['name'])
        disks.pop()
        self.spec['volumes'].pop()
        vm_liveupdate.plug_volumes(self.vm, self.vmi)
        self.assertEqual(2, len(found['disks']))

    def test_plugs_running_vmi_only(self):
        self.vmi['status']['phase'] = 'Scheduled'
        self.spec['volumes'].append(self.iso)
        vm_liveupdate.plug_volumes(self.vm, self.vmi)
        self.assertEqual(1, len(self.vmi['spec']['volumes']))
