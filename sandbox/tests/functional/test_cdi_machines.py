# SPDX-License-Identifier: Apache-2.0
"""VMs and their DataVolumes: waiting, media, deletion."""

import os
import time

from kubevirt_sandbox.testing import sandbox
from tests.functional import cdi
from tests.functional import kubevirt

IMAGE = os.urandom(70000)


def _drive(_vm, spec):
    spec['domain']['devices']['disks'].append(
        {'name': 'cd', 'cdrom': {'bus': 'sata'}})


def _medium(name, hotpluggable=True):
    return [{'op': 'add', 'path': kubevirt.VOLUMES + '/-', 'value': {
        'name': 'cd', 'dataVolume': {
            'name': name, **({'hotpluggable': True} if hotpluggable
                             else {})}}}]


EJECT = [{'op': 'remove', 'path': kubevirt.VOLUMES + '/1'}]


class MachineTest(cdi.CdiTestCase):

    def import_one(self, path='/a.iso'):
        return self.create_volume(self.web.put(path, IMAGE))

    def with_disk(self, volume):
        def change(_vm, spec):
            spec['domain']['devices']['disks'].append(
                {'name': 'data', 'disk': {'bus': 'virtio'}})
            spec['volumes'].append(
                {'name': 'data', 'dataVolume': {'name': volume}})
        return change

    def wait_medium(self, name, condition):
        """Wait for the status of the CD-ROM's volume; return it."""
        def find(vmi):
            return next((s for s in vmi['status'].get('volumeStatus', ())
                         if s['name'] == 'cd'), None)
        vmi = self.wait_vmi(name, lambda vmi: vmi and condition(find(vmi)))
        return find(vmi)

    def ready(self, name):
        return self.wait_medium(name, lambda status: status and status.get(
            'phase') == 'Ready')

    def test_start_waits_for_import(self):
        volume = self.import_one('/gate/a.iso')
        name = self.make('Always', change=self.with_disk(volume))
        self.wait_word(name, 'Provisioning')
        self.wait_phase(volume, 'ImportInProgress')
        vmi = self.cluster.vmi(name)
        self.assertIn((vmi or {}).get('status', {}).get('phase'),
                      (None, 'Pending'))
        self.web.gate.set()
        self.uid(name)

    def test_vm_reports_failed_import(self):
        volume = self.create_volume(self.web.url + '/missing.iso')
        name = self.make('Always', change=self.with_disk(volume))
        self.wait_word(name, 'DataVolumeError')
        self.web.put('/missing.iso', IMAGE)
        self.uid(name)

    def test_data_volume_templates(self):
        def change(vm, spec):
            template = self.volume({'blank': {}})
            volume = template['metadata']['name']
            self.with_disk(volume)(vm, spec)
            vm['spec']['dataVolumeTemplates'] = [template]
        name, _ = self.make_running(change=change)
        volume = self.cluster.vm(name)['spec']['dataVolumeTemplates'][0][
            'metadata']['name']
        self.wait_phase(volume, 'Succeeded')
        self._remove(name)
        self.cluster.wait('datavolumes', volume, lambda dv: dv is None)
        self.cluster.wait('persistentvolumeclaims', volume,
                          lambda claim: claim is None)

    def test_inserts_and_ejects_medium_of_running_vm(self):
        volume = self.import_one()
        name, first = self.make_running(change=_drive)
        for _ in range(2):
            self.cluster.patch('virtualmachines', name, _medium(volume))
            status = self.ready(name)
            self.assertEqual(
                ('VolumeReady', 'Successfully attach hotplugged volume cd '
                 'to VM', 'sda', volume),
                (status['reason'], status['message'], status['target'],
                 status['persistentVolumeClaimInfo']['claimName']))
            self.assertTrue(status['hotplugVolume']['attachPodName'])
            self.cluster.patch('virtualmachines', name, EJECT)
            self.wait_medium(name, lambda status: status is None)
        self.assertEqual(first, self.uid(name))
        self.assertIn('cd', [d['name'] for d in
                             self.devices(name)['disks']])

    def test_medium_is_inserted_after_its_import(self):
        volume = self.import_one('/gate/a.iso')
        name, _ = self.make_running(change=_drive)
        self.cluster.patch('virtualmachines', name, _medium(volume))
        status = self.wait_medium(name, lambda status: status
                                  and status.get('phase') == 'Bound')
        self.assertEqual(('PVCNotReady', 'PVC is in phase Bound'),
                         (status['reason'], status['message']))
        self.web.gate.set()
        self.ready(name)

    def test_missing_medium(self):
        name, _ = self.make_running(change=_drive)
        self.cluster.patch('virtualmachines', name, _medium('nothing'))
        status = self.wait_medium(name, lambda status: status
                                  and status.get('phase') == 'Pending')
        self.assertEqual('PVC nothing not found', status['message'])
        self.cluster.patch('virtualmachines', name, EJECT)
        self.wait_medium(name, lambda status: status is None)

    def test_replaces_medium(self):
        first, second = self.import_one(), self.import_one('/b.iso')
        name, uid = self.make_running(change=_drive)
        self.cluster.patch('virtualmachines', name, _medium(first))
        self.ready(name)
        self.cluster.patch('virtualmachines', name, [
            {'op': 'replace', 'path': kubevirt.VOLUMES + '/1/dataVolume/name',
             'value': second}])
        self.wait_medium(name, lambda status: status and status.get(
            'phase') == 'Ready' and status['persistentVolumeClaimInfo'][
                'claimName'] == second)
        self.assertEqual(uid, self.uid(name))

    def test_used_claim_is_protected_until_eject(self):
        volume = self.import_one()
        name, _ = self.make_running(change=_drive)
        self.cluster.patch('virtualmachines', name, _medium(volume))
        self.ready(name)
        self.cluster.delete('datavolumes', volume)
        claim = self.cluster.wait(
            'persistentvolumeclaims', volume,
            lambda claim: 'deletionTimestamp' in claim['metadata'])
        self.assertEqual(['kubernetes.io/pvc-protection'],
                         claim['metadata']['finalizers'])
        self.cluster.patch('virtualmachines', name, EJECT)
        self.cluster.wait('persistentvolumeclaims', volume,
                          lambda claim: claim is None)

    def test_used_claim_is_protected_until_stop(self):
        volume = self.import_one()
        name, _ = self.make_running(change=self.with_disk(volume))
        self.cluster.delete('datavolumes', volume)
        self.cluster.wait(
            'persistentvolumeclaims', volume,
            lambda claim: 'deletionTimestamp' in claim['metadata'])
        self.cluster.do(name, 'stop', {'gracePeriod': 0})
        self.cluster.wait('persistentvolumeclaims', volume,
                          lambda claim: claim is None)


class WithoutCdiTest(cdi.CdiTestCase):

    ARGUMENTS = ('--no-cdi',)

    def test_api_has_no_data_volumes(self):
        self.need_sandbox()
        self.assertIn('could not find the requested resource', self.call(
            'POST', cdi.VOLUMES % sandbox.NAMESPACE,
            self.volume(self.web.url), 404))
        groups = self.cluster.request('GET', '/apis').json()['groups']
        self.assertNotIn('cdi.kubevirt.io', [g['name'] for g in groups])
        self.make_running()

    def test_installation_of_cdi(self):
        self.need_sandbox()
        cluster = self.useFixture(sandbox.Sandbox(0, 0.1, self.ARGUMENTS))
        name = 'a-machine'
        body = self.describe()
        body['metadata']['name'] = name
        cluster.create('virtualmachines', body)
        # Longer than a pause between the next calls.
        cluster.request('POST', '/sandbox/cdi', {'seconds': 5}, expect=201)
        cluster.request('POST', '/sandbox/cdi', {}, expect=409)
        verb = ('/apis/subresources.kubevirt.io/v1/namespaces/'
                f'{sandbox.NAMESPACE}/virtualmachines/{name}/start')
        cluster.request('PUT', verb, {}, expect=503)
        response = cluster.request(
            'PATCH', sandbox.path('virtualmachines', name),
            {'spec': {'runStrategy': 'Always'}},
            content_type=sandbox.MERGE_PATCH, expect=500)
        self.assertIn('failed calling webhook', response.json()['message'])
        volume = self.volume({'blank': {}})
        cluster.request('POST', cdi.VOLUMES % sandbox.NAMESPACE, volume,
                        expect=201)
        cluster.wait('datavolumes', volume['metadata']['name'],
                     lambda found: found.get('status', {}).get(
                         'phase') == 'Succeeded')
        deadline = time.monotonic() + 40
        while cluster.request('PUT', verb, {}).status_code == 503:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        cluster.wait_running(name)
