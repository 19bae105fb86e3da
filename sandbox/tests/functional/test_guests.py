# SPDX-License-Identifier: Apache-2.0
"""Guests of the sandbox: their boots, and failures to start."""

import time

from tests.functional import kubevirt

_ANNOTATION = 'sandbox.sushy-kubevirt/'


def _annotate(**annotations):
    """Return a change that annotates the VMIs of a VM."""
    def change(vm, spec):
        vm['spec']['template']['metadata']['annotations'] = {
            _ANNOTATION + key.replace('_', '-'): value
            for key, value in annotations.items()}
    return change


class SandboxGuestsTestCase(kubevirt.KubeVirtTestCase):

    def setUp(self):
        super().setUp()
        self.need_guests()

    def sync_failure(self, name):
        """Wait until virt-handler fails; return its condition and Events."""
        vmi = self.wait_vmi(name, lambda vmi: self.state(
            vmi, 'Synchronized') == 'False')
        condition = [each for each in vmi['status']['conditions']
                     if each['type'] == 'Synchronized'][0]
        self.assertEqual('Synchronizing with the Domain failed.',
                         condition['reason'])
        events = [event for event in self.cluster.list('events')
                  if event['involvedObject'].get('uid')
                  == vmi['metadata']['uid']
                  and event['reason'] == 'SyncFailed']
        self.assertEqual(['Warning'], [event['type'] for event in events])
        self.assertEqual(condition['message'], events[0]['message'])
        return condition, vmi


class BootsTest(SandboxGuestsTestCase):

    def _devices(self, name):
        return [boot['device'] for boot in self.cluster.boots(name)]

    def test_records_boot_with_its_vmi(self):
        name, uid = self.make_running()
        record = self.cluster.guest(name)
        self.assertEqual((uid, True), (record['vmi'], record['running']))
        boot = record['boots'][0]
        boot.pop('at')
        self.assertEqual({
            'device': 'disk:root', 'class': 'Hdd', 'firmware': 'bios',
            'vmi': uid, 'cause': 'start', 'tried': ['disk:root']}, boot)

    def test_boots_first_bootable_device(self):
        def change(vm, spec):
            _annotate(unbootable='root')(vm, spec)
            devices = spec['domain']['devices']
            devices['disks'] = [
                {'name': 'root', 'bootOrder': 2, 'disk': {'bus': 'virtio'}},
                {'name': 'cd', 'bootOrder': 1, 'cdrom': {'bus': 'sata'}},
                {'name': 'spare', 'disk': {'bus': 'virtio'}}]
            devices['interfaces'][0]['bootOrder'] = 3
            spec['volumes'].append({'name': 'spare', 'emptyDisk': {
                'capacity': '1Gi'}})
        name, _ = self.make_running(change=change)
        boot = self.cluster.boots(name)[0]
        self.assertEqual(('interface:default', 'Pxe'),
                         (boot['device'], boot['class']))
        self.assertEqual(['cdrom:cd', 'disk:root', 'interface:default'],
                         boot['tried'])

    def test_guest_without_boot_device_ignores_power_button(self):
        def change(vm, spec):
            _annotate(unbootable='root')(vm, spec)
            spec['terminationGracePeriodSeconds'] = 1
        name, _ = self.make_running(change=change)
        boot = self.cluster.boots(name)[0]
        self.assertEqual((None, None, ['disk:root']), (
            boot['device'], boot['class'], boot['tried']))
        began = time.monotonic()
        self.cluster.do(name, 'stop')
        self.cluster.wait_stopped(name)
        self.assertGreaterEqual(time.monotonic() - began, 0.9)

    def test_records_firmware(self):
        for loader, smm, wanted in (
                ({'bios': {}}, False, 'bios'),
                ({'efi': {'secureBoot': False}}, False, 'efi'),
                ({'efi': {}}, True, 'efi-secure')):
            name, _ = self.make_running(
                firmware={'bootloader': loader},
                features={'smm': {'enabled': smm}})
            self.assertEqual(wanted, self.cluster.boots(name)[0]['firmware'])

    def test_boot_order_of_vmi_counts_until_restart(self):
        name, first = self.make_running()
        self.cluster.patch('virtualmachines', name, [
            {'op': 'add', 'path': kubevirt.CARDS + '/0/bootOrder', 'value': 1},
            {'op': 'replace', 'path': kubevirt.DISKS + '/0/bootOrder',
             'value': 2}])
        self.wait_condition(name, 'RestartRequired', 'True')
        for verb in ('reset', 'softreboot'):
            self.verb(name, verb, 200, vmi=True)
            self.cluster.wait_boot(name, 2 if verb == 'reset' else 3)
        self.cluster.guest_does(name, 'reboot')
        self.assertEqual(['disk:root'] * 4, self._devices(name))
        self.assertEqual(['start', 'reset', 'softreboot', 'reboot'], [
            boot['cause'] for boot in self.cluster.boots(name)])
        self.cluster.do(name, 'restart')
        self.uid(name, other_than=first)
        boots = self.cluster.boots(name)
        self.assertEqual('interface:default', boots[-1]['device'])
        self.assertNotEqual(first, boots[-1]['vmi'])

    def test_next_boot_sees_inserted_medium(self):
        def change(vm, spec):
            spec['domain']['devices']['disks'].append(
                {'name': 'cd', 'bootOrder': 2, 'cdrom': {'bus': 'sata'}})
            spec['domain']['devices']['disks'][0]['bootOrder'] = 3
            _annotate(unbootable='nothing')(vm, spec)
        name, _ = self.make_running(change=change)
        self.cluster.create('persistentvolumeclaims', {
            'apiVersion': 'v1', 'kind': 'PersistentVolumeClaim',
            'metadata': {'name': name}, 'spec': {
                'accessModes': ['ReadWriteOnce'],
                'resources': {'requests': {'storage': '1Gi'}}}})
        self.cluster.patch('virtualmachines', name, [{
            'op': 'add', 'path': kubevirt.VOLUMES + '/-', 'value': {
                'name': 'cd', 'persistentVolumeClaim': {
                    'claimName': name, 'hotpluggable': True}}}])
        self.wait_vmi(name, lambda vmi: any(
            status['name'] == 'cd' and status.get('phase') == 'Ready'
            for status in vmi['status']['volumeStatus']))
        self.cluster.guest_does(name, 'reboot')
        self.cluster.patch('virtualmachines', name, [
            {'op': 'remove', 'path': kubevirt.VOLUMES + '/1'}])
        self.wait_vmi(name, lambda vmi: all(
            status['name'] != 'cd'
            for status in vmi['status']['volumeStatus']))
        self.cluster.guest_does(name, 'reboot')
        self.assertEqual(['disk:root', 'cdrom:cd', 'disk:root'],
                         self._devices(name))

    def test_reset_and_soft_reboot_end_vmi_with_policy_terminate(self):
        for verb in ('reset', 'softreboot'):
            name, first = self.make_running(rebootPolicy='Terminate')
            self.verb(name, verb, 200, vmi=True)
            self.uid(name, other_than=first)

    def test_paused_guest_cannot_shut_down(self):
        name, _ = self.make_running()
        self.verb(name, 'pause', 200, vmi=True)
        self.wait_word(name, 'Paused')
        response = self.cluster.request(
            'POST', f'/sandbox/guests/default/{name}/shutdown')
        self.assertEqual(409, response.status_code)
        self.verb(name, 'unpause', 200, vmi=True)
        self.wait_word(name, 'Running')

    def test_forced_restart_of_paused_guest(self):
        name, uid = self.make_running()
        self.verb(name, 'pause', 200, vmi=True)
        self.wait_word(name, 'Paused')
        self.cluster.do(name, 'restart', {'gracePeriodSeconds': 0})
        condition, vmi = self.sync_failure(name)
        self.assertIn('command Shutdown failed', condition['message'])
        self.assertIn('domain is not running', condition['message'])
        self.assertEqual('Running', vmi['status']['phase'])
        self.assertEqual('True', self.state(vmi, 'Paused'))
        self.assertEqual(1, vmi['spec']['terminationGracePeriodSeconds'])
        self.verb(name, 'unpause', 200, vmi=True)
        self.assertNotEqual(uid, self.uid(name, other_than=uid))

    def test_forced_stop_of_paused_guest(self):
        name, _ = self.make_running()
        self.verb(name, 'pause', 200, vmi=True)
        self.wait_word(name, 'Paused')
        began = time.monotonic()
        self.cluster.do(name, 'stop', {'gracePeriod': 0})
        self.cluster.wait_stopped(name)
        self.assertLess(time.monotonic() - began, 10)

    def test_launcher_ends_paused_guest(self):
        def change(vm, spec):
            spec['terminationGracePeriodSeconds'] = 1
        name, _ = self.make_running(change=change)
        self.verb(name, 'pause', 200, vmi=True)
        self.wait_word(name, 'Paused')
        began = time.monotonic()
        self.cluster.do(name, 'stop')
        self.cluster.wait_stopped(name, timeout=40)
        self.assertGreaterEqual(time.monotonic() - began, 15)

    def test_unknown_guest_has_no_record(self):
        self.cluster.request('GET', '/sandbox/guests/default/nobody',
                             expect=404)
        self.cluster.request('POST', '/sandbox/guests/default/nobody/crash',
                             expect=409)
        name = self.make()
        self.assertEqual({'vmi': None, 'running': False, 'boots': []},
                         self.cluster.guest(name))


class FailuresTest(SandboxGuestsTestCase):

    def test_missing_image(self):
        name = self.make('Always', lambda vm, spec: spec['volumes'][
            0].update(containerDisk={'image': 'example.test/missing:1'}))
        self.wait_word(name, 'ErrImagePull', 'ImagePullBackOff')
        vm = self.wait_word(name, 'ImagePullBackOff')
        self.assertEqual('False', self.state(vm, 'Synchronized'))
        self.assertEqual('Scheduling',
                         self.cluster.vmi(name)['status']['phase'])
        self.cluster.do(name, 'stop')
        self.cluster.wait_stopped(name)

    def test_guest_that_launcher_cannot_start(self):
        name = self.make('Always', _annotate(refuse_start='no "q35" here'))
        condition, vmi = self.sync_failure(name)
        self.assertEqual('server error. command SyncVMI failed: '
                         '"no \\"q35\\" here"', condition['message'])
        self.assertEqual('Scheduled', vmi['status']['phase'])
        self.assertEqual('Starting', self.cluster.vm(name)['status'][
            'printableStatus'])
        self.cluster.patch('virtualmachineinstances', name, {'metadata': {
            'annotations': {_ANNOTATION + 'refuse-start': None}}})
        self.cluster.wait_running(name)
        self.assertIsNone(self.state(self.cluster.vmi(name), 'Synchronized'))

    def test_missing_claim(self):
        """KubeVirt keeps PodScheduled until the pod has a node."""
        def change(vm, spec):
            spec['volumes'].append({'name': 'data', 'persistentVolumeClaim': {
                'claimName': vm['metadata']['name']}})
            spec['domain']['devices']['disks'].append(
                {'name': 'data', 'disk': {}})
        name = self.make('Always', change)
        self.wait_word(name, 'ErrorPvcNotFound')
        found = {each['type']: each for each in self.cluster.vmi(name)[
            'status']['conditions']}
        self.assertEqual('FailedPvcNotFound', found['Synchronized']['reason'])
        self.assertEqual('Unschedulable', found['PodScheduled']['reason'])
        self.assertIsNone(found['PodScheduled']['lastTransitionTime'])
        self.cluster.create('persistentvolumeclaims', {
            'apiVersion': 'v1', 'kind': 'PersistentVolumeClaim',
            'metadata': {'name': name}, 'spec': {
                'accessModes': ['ReadWriteOnce'],
                'resources': {'requests': {'storage': '1Gi'}}}})
        self.cluster.wait_running(name)
        self.assertIsNone(self.state(self.cluster.vmi(name), 'PodScheduled'))

    def test_unschedulable(self):
        for change in (
                lambda vm, spec: spec.update(nodeSelector={'disk': 'gold'}),
                lambda vm, spec: spec['domain']['memory'].update(
                    guest='900Ti')):
            name = self.make('Always', change)
            vm = self.wait_word(name, 'ErrorUnschedulable')
            condition = [c for c in vm['status']['conditions']
                         if c['type'] == 'PodScheduled'][0]
            self.assertEqual('Unschedulable', condition['reason'])
            self.assertIn('nodes are available', condition['message'])
            self.cluster.do(name, 'stop')
            self.cluster.wait_stopped(name)

    def test_failed_launcher_is_retried_with_back_off(self):
        name = self.make('Always', _annotate(fail_start='true'))
        vm = self.wait_word(name, 'CrashLoopBackOff')
        self.assertEqual(
            1, vm['status']['startFailure']['consecutiveFailCount'])
        self.cluster.do(name, 'stop')
        self.cluster.wait_stopped(name)
        self.assertNotIn('startFailure',
                         self.cluster.vm(name)['status'])

    def test_disabled_feature_gate_prevents_start(self):
        gates = ('RebootPolicy', 'DeclarativeHotplugVolumes')
        name = self.make('Manual', rebootPolicy='Terminate')
        self.addCleanup(self.cluster.set_gates, gates)
        self.cluster.set_gates(off=gates)
        self.cluster.do(name, 'start')
        vm = self.wait_condition(name, 'Failure', 'True')
        failure = [c for c in vm['status']['conditions']
                   if c['type'] == 'Failure'][0]
        self.assertEqual('FailedCreate', failure['reason'])
        self.assertIn('RebootPolicy', failure['message'])
        self.cluster.set_gates(gates)
        self.uid(name)
        self.wait_condition(name, 'Failure', None)


class AgentTest(SandboxGuestsTestCase):

    def test_guest_agent_reports_guest(self):
        name, _ = self.make_running(change=_annotate(guest_agent='true'))
        vmi = self.wait_vmi(name, lambda vmi: self.state(
            vmi, 'AgentConnected') == 'True')
        self.assertTrue(vmi['status']['guestOSInfo']['name'])
        self.assertIn('guest-agent', vmi['status']['interfaces'][0][
            'infoSource'])

    def test_without_an_agent(self):
        name, _ = self.make_running()
        vmi = self.cluster.vmi(name)
        self.assertIsNone(self.state(vmi, 'AgentConnected'))
        self.assertEqual({}, vmi['status']['guestOSInfo'])
        card = vmi['status']['interfaces'][0]
        self.assertEqual('domain', card['infoSource'])
        self.assertRegex(card['mac'], '^52:54:00(:[0-9a-f]{2}){3}$')
        self.assertTrue(card['ipAddress'])


class ChangesTest(SandboxGuestsTestCase):
    """Live updates of a running VM."""

    def test_adds_sockets(self):
        name, _ = self.make_running(cpu={'sockets': 1, 'cores': 2})
        self.cluster.patch('virtualmachines', name, {'spec': {'template': {
            'spec': {'domain': {'cpu': {'sockets': 2}}}}}})
        self.wait_vmi(name, lambda vmi: vmi['spec']['domain']['cpu'][
            'sockets'] == 2)
        self.assertIsNone(self.state(self.cluster.vm(name),
                                     'RestartRequired'))

    def test_more_cores_need_a_restart(self):
        name, _ = self.make_running(cpu={'sockets': 1, 'cores': 2})
        self.cluster.patch('virtualmachines', name, {'spec': {'template': {
            'spec': {'domain': {'cpu': {'cores': 4}}}}}})
        self.wait_condition(name, 'RestartRequired', 'True')

    def test_adds_memory(self):
        def grow(name, guest):
            self.cluster.patch('virtualmachines', name, {'spec': {
                'template': {'spec': {'domain': {'memory': {
                    'guest': guest}}}}}})
        name, _ = self.make_running()  # too small for memory hotplug
        self.assertNotIn('maxGuest', self.cluster.vmi(name)['spec'][
            'domain']['memory'])
        grow(name, '128Mi')
        self.wait_condition(name, 'RestartRequired', 'True')
        name, _ = self.make_running(memory={'guest': '1Gi'})
        self.assertEqual('4Gi', self.cluster.vmi(name)['spec']['domain'][
            'memory']['maxGuest'])
        grow(name, '2Gi')
        self.wait_vmi(name, lambda vmi: vmi['spec']['domain']['memory'][
            'guest'] == '2Gi')
        self.assertIsNone(self.state(self.cluster.vm(name),
                                     'RestartRequired'))

    def test_plugs_and_unplugs_network_interface(self):
        name, first = self.make_running()
        template = '/spec/template/spec/'
        self.cluster.patch('virtualmachines', name, [
            {'op': 'add', 'path': template + 'networks/-', 'value': {
                'name': 'more', 'multus': {'networkName': 'blue'}}},
            {'op': 'add', 'path': kubevirt.CARDS + '/-', 'value': {
                'name': 'more', 'bridge': {}}}])
        self.wait_vmi(name, lambda vmi: len(
            vmi['status']['interfaces']) == 2)
        self.assertIsNone(self.state(self.cluster.vm(name),
                                     'RestartRequired'))
        self.cluster.patch('virtualmachines', name, [
            {'op': 'add', 'path': kubevirt.CARDS + '/1/state',
             'value': 'absent'}])
        self.wait_vm(name, lambda vm: len(
            vm['spec']['template']['spec']['networks']) == 1)
        vmi = self.cluster.vmi(name)
        self.assertEqual(1, len(vmi['spec']['networks']))
        self.assertEqual(first, vmi['metadata']['uid'])
        self.assertIsNone(self.state(self.cluster.vm(name),
                                     'RestartRequired'))

    def test_addvolume_and_removevolume(self):
        name, _ = self.make_running()
        self.verb(name, 'addvolume', 400, {'name': 'more'})
        self.verb(name, 'addvolume', 202, {
            'name': 'more', 'disk': {'disk': {'bus': 'scsi'}},
            'volumeSource': {'persistentVolumeClaim': {
                'claimName': 'more'}}})
        self.wait_vmi(name, lambda vmi: len(vmi['spec']['volumes']) == 2)
        self.verb(name, 'addvolume', 409, {
            'name': 'more', 'disk': {'disk': {'bus': 'scsi'}},
            'volumeSource': {'persistentVolumeClaim': {
                'claimName': 'other'}}})
        self.verb(name, 'removevolume', 409, {'name': 'root'})
        self.verb(name, 'removevolume', 202, {'name': 'more'})
        self.wait_vmi(name, lambda vmi: len(vmi['spec']['volumes']) == 1)
