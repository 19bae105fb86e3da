# SPDX-License-Identifier: Apache-2.0
"""KubeVirt: boot order, firmware, media and validation of VMs."""

import time

from kubevirt_sandbox.testing import machines
from kubevirt_sandbox.testing import sandbox
from tests.functional import kubevirt


def _with_drive(_vm, spec):
    spec['domain']['devices']['disks'].append(
        {'name': 'cd', 'cdrom': {'bus': 'sata'}})


_NETWORK_FIRST = [
    {'op': 'add', 'path': kubevirt.CARDS + '/0/bootOrder', 'value': 1},
    {'op': 'replace', 'path': kubevirt.DISKS + '/0/bootOrder', 'value': 2}]


class BootOrderTest(kubevirt.KubeVirtTestCase):

    def test_boot_order_of_stopped_vm_applies_to_next_vmi(self):
        name = self.make()
        self.cluster.patch('virtualmachines', name, _NETWORK_FIRST)
        self.cluster.do(name, 'start')
        self.uid(name)
        devices = self.devices(name)
        self.assertEqual(1, devices['interfaces'][0]['bootOrder'])
        self.assertEqual(2, devices['disks'][0]['bootOrder'])

    def test_boot_order_of_running_vm_needs_restart(self):
        name, first = self.make_running()
        self.cluster.patch('virtualmachines', name, _NETWORK_FIRST)
        self.wait_condition(name, 'RestartRequired', 'True')
        self.assertNotIn('bootOrder', self.devices(name)['interfaces'][0])
        self.cluster.do(name, 'restart')
        self.uid(name, other_than=first)
        self.assertEqual(1, self.devices(name)['interfaces'][0]['bootOrder'])
        self.wait_condition(name, 'RestartRequired', None)

    def test_reverted_change_needs_no_restart(self):
        name, _ = self.make_running()
        order = kubevirt.DISKS + '/0/bootOrder'
        self.cluster.patch('virtualmachines', name, [
            {'op': 'replace', 'path': order, 'value': 7}])
        self.wait_condition(name, 'RestartRequired', 'True')
        self.cluster.patch('virtualmachines', name, [
            {'op': 'replace', 'path': order, 'value': 1}])
        self.wait_condition(name, 'RestartRequired', None)

    def test_rejects_boot_order_below_one(self):
        name = self.make()
        order = kubevirt.DISKS + '/0/bootOrder'
        for value, code in ((0, 422), (-1, 400), ('first', 422), (1.5, 422)):
            self.patch_fails(name, [
                {'op': 'replace', 'path': order, 'value': value}], code)

    def test_rejects_duplicate_boot_order(self):
        message = self.patch_fails(self.make(), [
            {'op': 'add', 'path': kubevirt.CARDS + '/0/bootOrder',
             'value': 1}], 422)
        self.assertIn('already set for a different device', message)


class FirmwareTest(kubevirt.KubeVirtTestCase):

    def test_secure_boot_needs_smm(self):
        for efi, features in (({'secureBoot': True},
                               {'smm': {'enabled': False}}),
                              ({}, {}), ({'secureBoot': True}, {})):
            message = self.rejection(
                422, firmware={'bootloader': {'efi': efi}},
                features=features)
            self.assertIn('SecureBoot requires SMM', message)

    def test_secure_boot_with_smm(self):
        name = self.make(firmware={'bootloader': {
            'efi': {'secureBoot': True}}}, features={'smm': {}})
        self.cluster.do(name, 'start')
        domain = self.cluster.wait_running(name)['spec']['domain']
        self.assertIs(True,
                      domain['firmware']['bootloader']['efi']['secureBoot'])
        self.assertEqual({'enabled': True}, domain['features']['smm'])

    def test_efi_without_secure_boot(self):
        name = self.make(firmware={'bootloader': {
            'efi': {'secureBoot': False}}})
        firmware = self.cluster.vm(name)['spec']['template']['spec'][
            'domain']['firmware']
        self.assertIs(False, firmware['bootloader']['efi']['secureBoot'])

    def test_bios_and_efi_exclude_each_other(self):
        message = self.rejection(422, firmware={'bootloader': {
            'bios': {}, 'efi': {'secureBoot': False}}})
        self.assertIn('mutually exclusive', message)


class MediaTest(kubevirt.KubeVirtTestCase):

    def test_empty_drive(self):
        name, _ = self.make_running(change=_with_drive)
        self.assertEqual(['root', 'cd'], [
            disk['name'] for disk in self.devices(name)['disks']])

    def test_rejects_disk_without_volume(self):
        message = self.rejection(422, lambda vm, spec: spec['domain'][
            'devices']['disks'].append({'name': 'x', 'disk': {}}))
        self.assertIn('not found', message)

    def test_empty_drive_needs_feature_gate(self):
        self.need_guests()
        gates = ('RebootPolicy', 'DeclarativeHotplugVolumes')
        self.addCleanup(self.cluster.set_gates, gates)
        self.cluster.set_gates(off=gates)
        self.assertIn('DeclarativeHotplugVolumes feature gate not enabled',
                      self.rejection(422, _with_drive))
        self.assertIn('RebootPolicy feature gate is not enabled',
                      self.rejection(422, rebootPolicy='Terminate'))
        self.cluster.set_gates()  # beta: enabled by default
        self.make(change=_with_drive)
        self.make(rebootPolicy='Terminate')

    def test_volume_without_disk(self):
        name, _ = self.make_running(change=lambda vm, spec: spec[
            'volumes'].append({'name': 'more', 'emptyDisk': {
                'capacity': '1Gi'}}))
        self.assertEqual(['root', 'more'], [
            disk['name'] for disk in self.devices(name)['disks']])

    def test_rejects_duplicate_volume_names(self):
        message = self.rejection(422, lambda vm, spec: spec['volumes'].append(
            dict(spec['volumes'][0])))
        self.assertIn('must not have the same Name', message)

    def test_rejects_volume_without_exactly_one_source(self):
        for source in ({}, {'emptyDisk': {'capacity': '1Gi'},
                            'containerDisk': {'image': 'a/b:1'}}):
            self.assertIn('exactly one source', self.rejection(
                422, lambda vm, spec, source=source: spec['volumes'].append(
                    {'name': 'odd', **source})))

    def test_inserts_and_ejects_medium_of_running_vm(self):
        name, first = self.make_running(change=_with_drive)
        self.cluster.patch('virtualmachines', name, [{
            'op': 'add', 'path': kubevirt.VOLUMES + '/-', 'value': {
                'name': 'cd', 'persistentVolumeClaim': {
                    'claimName': 'some-iso', 'hotpluggable': True}}}])
        self.wait_vmi(name, lambda vmi: 'cd' in _volumes(vmi))
        time.sleep(0.3)
        self.assertIsNone(self.state(self.cluster.vm(name),
                                     'RestartRequired'))
        self.cluster.patch('virtualmachines', name, [{
            'op': 'remove', 'path': kubevirt.VOLUMES + '/1'}])
        vmi = self.wait_vmi(name, lambda vmi: 'cd' not in _volumes(vmi))
        self.assertEqual(first, vmi['metadata']['uid'])
        self.assertEqual(['root', 'cd'], [
            disk['name'] for disk in self.devices(name)['disks']])
        self.assertIsNone(self.state(self.cluster.vm(name),
                                     'RestartRequired'))

    def test_replaces_medium(self):
        self.need_guests()
        name, _ = self.make_running(change=_with_drive)
        for claim in ('one', 'two'):
            claim = f'{name}-{claim}'
            self.cluster.create('persistentvolumeclaims', {
                'apiVersion': 'v1', 'kind': 'PersistentVolumeClaim',
                'metadata': {'name': claim}, 'spec': {
                    'accessModes': ['ReadWriteOnce'], 'resources': {
                        'requests': {'storage': '1Gi'}}}})
            self.cluster.patch('virtualmachines', name, {'spec': {
                'template': {'spec': {'volumes': [
                    {'name': 'root', 'containerDisk': {
                        'image': machines.MEDIUM}},
                    {'name': 'cd', 'persistentVolumeClaim': {
                        'claimName': claim, 'hotpluggable': True}}]}}}})
            vmi = self.wait_vmi(name, lambda vmi, claim=claim: _plugged(
                vmi, claim))
            self.assertEqual('1Gi', _plugged(vmi, claim)[
                'persistentVolumeClaimInfo']['capacity']['storage'])

    def test_medium_that_is_not_hotpluggable_needs_restart(self):
        name, _ = self.make_running(change=_with_drive)
        self.cluster.patch('virtualmachines', name, [{
            'op': 'add', 'path': kubevirt.VOLUMES + '/-', 'value': {
                'name': 'cd', 'containerDisk': {'image': 'a/iso:1'}}}])
        self.wait_condition(name, 'RestartRequired', 'True')

    def test_start_waits_for_missing_volume(self):
        def lost(vm, spec):
            _with_drive(vm, spec)
            spec['volumes'].append({'name': 'cd', 'dataVolume': {
                'name': 'no-such-volume'}})
        name = self.make('Always', lost)
        self.wait_word(name, 'ErrorPvcNotFound', 'Provisioning', 'Starting',
                       'ErrorDataVolumeNotFound', 'WaitingForVolumeBinding')
        time.sleep(0.5)
        vmi = self.cluster.vmi(name)
        self.assertTrue(vmi is None or vmi['status']['phase'] in (
            'Pending', ''))


def _volumes(vmi):
    return [v['name'] for v in vmi['spec']['volumes']]


def _plugged(vmi, claim):
    """Return the status of the volume with a claim, or None if not ready."""
    for volume in vmi['spec']['volumes']:
        source = volume.get('persistentVolumeClaim') or {}
        for status in vmi['status'].get('volumeStatus', ()):
            if (source.get('claimName') == claim
                    and status['name'] == volume['name']
                    and status.get('phase') == 'Ready'):
                return status
    return None


class AdmissionTest(kubevirt.KubeVirtTestCase):

    def test_rejects_unknown_run_strategy(self):
        self.assertIn('Invalid RunStrategy (Sometimes)',
                      self.rejection(422, run='Sometimes'))

    def test_rejects_existing_name(self):
        vm = self.describe()
        self.cluster.create('virtualmachines', vm)
        self.addCleanup(self._remove, vm['metadata']['name'])
        response = self.cluster.request(
            'POST', sandbox.path('virtualmachines'), vm, expect=409).json()
        self.assertEqual('AlreadyExists', response['reason'])
        self.assertEqual('Status', response['kind'])

    def test_rejects_invalid_quantities(self):
        self.assertIn('quantities must match', self.rejection(
            400, memory={'guest': 'plenty'}))
        self.rejection(422, memory='64Mi')
        self.assertIn('1M', self.rejection(422, resources={
            'requests': {'memory': '10k'}}))

    def test_rejects_mismatched_interfaces_and_networks(self):
        for change in (
                lambda vm, spec: spec['networks'].clear(),
                lambda vm, spec: spec['networks'].append(
                    {'name': 'more', 'pod': {}}),
                lambda vm, spec: spec['domain']['devices'][
                    'interfaces'].append({'name': 'x', 'bridge': {}}),
                lambda vm, spec: spec['domain']['devices']['interfaces'][
                    0].update(bridge={}),
                lambda vm, spec: spec['domain']['devices']['interfaces'][
                    0].update(macAddress='nonsense'),
                lambda vm, spec: spec['domain']['devices']['interfaces'][
                    0].update(model='ne9999')):
            self.rejection(422, change)

    def test_rejects_unsuitable_buses(self):
        for disk in ({'cdrom': {'bus': 'virtio'}}, {'disk': {'bus': 'ide'}},
                     {'disk': {}, 'cdrom': {}}):
            self.rejection(422, lambda vm, spec, disk=disk: spec['domain'][
                'devices'].update(disks=[{'name': 'root', **disk}]))

    def test_causes_name_their_fields(self):
        response = self.cluster.request(
            'POST', sandbox.path('virtualmachines'), self.describe(
                machine={'type': 'abacus'}), expect=422).json()
        self.assertEqual('Invalid', response['reason'])
        self.assertEqual(
            ['spec.template.spec.domain.machine.type'],
            [cause['field'] for cause in response['details']['causes']])
        self.assertTrue(response['message'].startswith(
            'admission webhook "virtualmachine-validator.kubevirt.io" denied '
            'the request: '), response['message'])

    def test_rejects_gate_that_is_both_enabled_and_disabled(self):
        self.need_guests()
        where = sandbox.path('kubevirts', 'kubevirt', 'kubevirt')
        self.call('PATCH', where, {'spec': {'configuration': {
            'developerConfiguration': {
                'featureGates': ['RebootPolicy'],
                'disabledFeatureGates': ['RebootPolicy']}}}}, 422,
            content_type=sandbox.MERGE_PATCH)
