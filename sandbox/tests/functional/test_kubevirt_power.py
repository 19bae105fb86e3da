# SPDX-License-Identifier: Apache-2.0
"""KubeVirt: run strategies, power actions and guests that shut down."""

import time

from kubevirt_sandbox.testing import sandbox
from tests.functional import kubevirt

_GONE_OR_DONE = ('Succeeded', 'Failed')


def _over(vmi):
    return vmi is None or vmi['status']['phase'] in _GONE_OR_DONE


class NewMachineTest(kubevirt.KubeVirtTestCase):

    def test_firmware_gets_unique_uuid_and_serial(self):
        names = [self.make(), self.make()]
        seen = set()
        for name in names:
            vm = self.cluster.vm(name)
            firmware = vm['spec']['template']['spec']['domain']['firmware']
            seen |= {firmware['uuid'], firmware['serial'],
                     vm['metadata']['uid']}
        self.assertEqual(6, len(seen))

    def test_given_firmware_uuid_is_kept(self):
        own = '0ca1ab1e-1f1e-4d3c-8f2c-0123456789ab'
        name = self.make(firmware={'uuid': own})
        vm = self.wait_word(name, 'Stopped')
        firmware = vm['spec']['template']['spec']['domain']['firmware']
        self.assertEqual(own, firmware['uuid'])
        self.assertTrue(firmware['serial'])

    def test_halted_vm_is_stopped_and_not_ready(self):
        name = self.make()
        vm = self.wait_word(name, 'Stopped')
        self.assertEqual('False', self.state(vm, 'Ready'))
        self.assertNotIn('created', vm['status'])
        self.assertIsNone(self.cluster.vmi(name))

    def test_vm_has_finalizer_of_its_controller(self):
        self.wait_vm(self.make(), lambda vm: (
            'kubevirt.io/virtualMachineControllerFinalize'
            in vm['metadata'].get('finalizers', ())))

    def test_deletion_of_vm_deletes_vmi(self):
        name, _ = self.make_running()
        self.cluster.delete('virtualmachines', name)
        self.cluster.wait('virtualmachines', name, lambda vm: vm is None)
        self.assertIsNone(self.cluster.vmi(name))


class VerbsTest(kubevirt.KubeVirtTestCase):

    def test_start_of_halted_vm_sets_always(self):
        name = self.make()
        self.cluster.do(name, 'start')
        self.assertEqual('Always',
                         self.cluster.vm(name)['spec']['runStrategy'])
        vmi = self.cluster.wait_running(name)
        self.assertEqual(
            ['Pending', 'Scheduling', 'Scheduled', 'Running'],
            [at['phase'] for at in
             vmi['status']['phaseTransitionTimestamps']])
        self.wait_word(name, 'Running')
        vm = self.wait_condition(name, 'Ready', 'True')
        self.assertTrue(vm['status']['created'])
        self.assertTrue(vm['status']['ready'])

    def test_start_of_running_vm_conflicts(self):
        name, _ = self.make_running()
        self.assertIn('already running', self.verb(name, 'start', 409))

    def test_stop_of_always_vm_sets_halted(self):
        name, _ = self.make_running()
        self.cluster.do(name, 'stop')
        self.assertEqual('Halted',
                         self.cluster.vm(name)['spec']['runStrategy'])
        self.cluster.wait_stopped(name)

    def test_stop_of_stopped_vm_conflicts(self):
        for run in ('Halted', 'Manual'):
            self.assertIn('not running',
                          self.verb(self.make(run), 'stop', 409))

    def _start_stop_start(self, run):
        name, first = self.make_running(run)
        self.cluster.do(name, 'stop')
        self.wait_vmi(name, _over)
        self.wait_vm(name, lambda vm: not vm['status'].get(
            'stateChangeRequests'))
        self.cluster.do(name, 'start')
        self.uid(name, other_than=first)
        self.assertEqual(run, self.cluster.vm(name)['spec']['runStrategy'])

    def test_start_and_stop_keep_manual(self):
        name = self.make('Manual')
        self.wait_word(name, 'Stopped')
        self.assertIsNone(self.cluster.vmi(name))
        self._start_stop_start('Manual')

    def test_start_and_stop_keep_rerun_on_failure(self):
        self._start_stop_start('RerunOnFailure')

    def test_start_during_stop_fails(self):
        self.need_guests()
        name, _ = self.make_running('Manual', lambda vm, spec: vm['spec'][
            'template']['metadata'].update(annotations={
                'sandbox.sushy-kubevirt/ignore-acpi': 'true'}))
        self.cluster.do(name, 'stop')
        self.assertIn('running', self.verb(name, 'start', 409))
        self.assertIn('stop/start already underway',
                      self.verb(name, 'restart', 500))
        # A stop replaces one in progress, also with a shorter grace period.
        self.cluster.do(name, 'stop', {'gracePeriod': 0})
        self.cluster.wait_stopped(name)

    def test_restart_creates_another_vmi(self):
        name, first = self.make_running()
        self.cluster.do(name, 'restart')
        self.uid(name, other_than=first)
        self.assertEqual('Always',
                         self.cluster.vm(name)['spec']['runStrategy'])

    def test_restart_of_manual_vm(self):
        name, first = self.make_running('Manual')
        self.cluster.do(name, 'restart')
        self.uid(name, other_than=first)
        self.wait_vm(name, lambda vm: not vm['status'].get(
            'stateChangeRequests'))

    def test_restart_of_stopped_vm_conflicts(self):
        for run in ('Halted', 'Manual', 'Once'):
            name = self.make(run)
            if run == 'Once':
                self.uid(name)
            self.verb(name, 'restart', 409)

    def test_restart_grace_period_is_zero_or_default(self):
        name, first = self.make_running()
        self.assertIn('gracePeriod=0', self.verb(
            name, 'restart', 400, {'gracePeriodSeconds': 10}))
        self.verb(name, 'restart', 400, {'gracePeriodSeconds': -1})
        self.verb(name, 'restart', 400, {'gracePeriodSeconds': 'soon'})
        self.assertEqual(first, self.cluster.vmi(name)['metadata']['uid'])
        self.cluster.do(name, 'restart', {'gracePeriodSeconds': 0})
        self.uid(name, other_than=first)

    def test_stop_without_grace_period_is_immediate(self):
        self.need_guests()
        name, _ = self.make_running('RerunOnFailure', lambda vm, spec: vm[
            'spec']['template']['metadata'].update(annotations={
                'sandbox.sushy-kubevirt/ignore-acpi': 'true'}))
        self.assertEqual(30, self.cluster.vmi(name)['spec'][
            'terminationGracePeriodSeconds'])
        self.cluster.do(name, 'stop', {'gracePeriod': 0})
        self.cluster.wait_stopped(name, timeout=10)

    def test_unresponsive_guest_gets_grace_period(self):
        self.need_guests()

        def deaf(vm, spec):
            spec['terminationGracePeriodSeconds'] = 5
            vm['spec']['template']['metadata']['annotations'] = {
                'sandbox.sushy-kubevirt/ignore-acpi': 'true'}
        name, _ = self.make_running('Always', deaf)
        began = time.monotonic()
        self.cluster.do(name, 'stop')
        self.wait_word(name, 'Stopping')
        self.cluster.wait_stopped(name)
        self.assertGreaterEqual(time.monotonic() - began, 4.9)

    def test_dry_run_changes_nothing(self):
        name = self.make()
        self.cluster.do(name, 'start', {'dryRun': ['All']})
        self.assertEqual('Halted',
                         self.cluster.vm(name)['spec']['runStrategy'])

    def test_paused_start_waits_for_unpause(self):
        name = self.make()
        self.cluster.do(name, 'start', {'paused': True})
        self.wait_word(name, 'Paused')
        self.verb(name, 'unpause', 200, vmi=True)
        self.wait_word(name, 'Running')

    def test_run_strategy_by_patch(self):
        name = self.make()
        self.cluster.patch('virtualmachines', name,
                           {'spec': {'runStrategy': 'Always'}})
        self.uid(name)
        self.cluster.patch('virtualmachines', name,
                           {'spec': {'runStrategy': 'Halted'}})
        self.cluster.wait_stopped(name)

    def test_halted_to_rerun_on_failure_starts(self):
        name = self.make()
        self.wait_word(name, 'Stopped')
        self.cluster.patch('virtualmachines', name,
                           {'spec': {'runStrategy': 'RerunOnFailure'}})
        self.uid(name)

    def test_running_instead_of_run_strategy(self):
        def older(vm, spec):
            del vm['spec']['runStrategy']
            vm['spec']['running'] = False
        name = self.make(change=older)
        self.cluster.do(name, 'start')
        self.uid(name)
        spec = self.cluster.vm(name)['spec']
        self.assertIs(True, spec['running'])
        self.assertNotIn('runStrategy', spec)
        self.cluster.do(name, 'stop')
        self.cluster.wait_stopped(name)
        self.assertIs(False, self.cluster.vm(name)['spec']['running'])

    def test_running_and_run_strategy_exclude_each_other(self):
        message = self.rejection(422, lambda vm, spec: vm['spec'].update(
            running=True))
        self.assertIn('mutually exclusive', message)
        self.assertIn('must be specified', self.rejection(
            422, lambda vm, spec: vm['spec'].pop('runStrategy')))

    def test_actions_on_missing_vm_get_404(self):
        for verb in ('start', 'stop', 'restart'):
            self.assertIn('not found', self.verb('nobody', verb, 404))

    def test_deleted_vmi_of_always_vm_is_recreated(self):
        name, first = self.make_running()
        self.cluster.delete('virtualmachineinstances', name)
        self.uid(name, other_than=first)

    def test_deleted_vmi_of_rerun_vm_is_not_recreated(self):
        name, _ = self.make_running('RerunOnFailure')
        self.cluster.delete('virtualmachineinstances', name)
        self.cluster.wait_stopped(name)
        time.sleep(0.5)
        self.assertIsNone(self.cluster.vmi(name))


class InstanceVerbsTest(kubevirt.KubeVirtTestCase):

    def test_pause_and_unpause(self):
        name, _ = self.make_running()
        self.verb(name, 'pause', 200, vmi=True)
        self.wait_vmi(name, lambda vmi: self.state(vmi, 'Paused') == 'True')
        vm = self.wait_word(name, 'Paused')
        self.assertEqual('True', self.state(vm, 'Paused'))
        self.verb(name, 'pause', 409, vmi=True)
        self.verb(name, 'softreboot', 409, vmi=True)
        self.verb(name, 'unpause', 200, vmi=True)
        self.wait_word(name, 'Running')
        self.verb(name, 'unpause', 409, vmi=True)

    def test_reset_and_soft_reboot_keep_vmi(self):
        for verb in ('reset', 'softreboot'):
            name, first = self.make_running()
            self.verb(name, verb, 200, vmi=True)
            time.sleep(0.3)
            self.assertEqual(first, self.uid(name))

    def test_actions_on_missing_vmi_get_404(self):
        name = self.make()
        for verb in ('pause', 'reset', 'softreboot'):
            self.verb(name, verb, 404, vmi=True)

    def test_spec_of_vmi_cannot_be_changed(self):
        name, _ = self.make_running()
        message = self.call(
            'PATCH', sandbox.path('virtualmachineinstances', name),
            {'spec': {'domain': {'memory': {'guest': '128Mi'}}}}, 422,
            content_type=sandbox.MERGE_PATCH)
        self.assertIn('restricted', message)
        self.cluster.patch('virtualmachineinstances', name, {
            'metadata': {'labels': {'mine': 'yes'}},
            'status': {'phase': 'Failed'}})
        vmi = self.cluster.vmi(name)
        self.assertEqual('yes', vmi['metadata']['labels']['mine'])
        self.assertEqual('Running', vmi['status']['phase'])


class GuestsTest(kubevirt.KubeVirtTestCase):
    """Effects of reboots, shutdowns and crashes that guests initiate."""

    def setUp(self):
        super().setUp()
        self.need_guests()

    def test_reboot_keeps_vmi(self):
        name, first = self.make_running()
        self.cluster.guest_does(name, 'reboot')
        time.sleep(0.5)
        self.assertEqual(first, self.uid(name))

    def test_reboot_ends_vmi_with_policy_terminate(self):
        name, first = self.make_running(rebootPolicy='Terminate')
        self.cluster.guest_does(name, 'reboot')
        self.uid(name, other_than=first)

    def _act(self, run, action, comes_back):
        name, first = self.make_running(run)
        self.cluster.guest_does(name, action)
        if comes_back:
            self.uid(name, other_than=first)
            return
        over = self.wait_vmi(name, _over)
        time.sleep(0.5)
        vmi = self.cluster.vmi(name)
        self.assertTrue(over is None or vmi is None
                        or vmi['metadata']['uid'] == first)
        self.wait_word(name, 'Stopped')

    def test_always_restarts_after_shutdown_and_crash(self):
        self._act('Always', 'shutdown', True)
        self._act('Always', 'crash', True)

    def test_rerun_on_failure_restarts_after_crash_only(self):
        self._act('RerunOnFailure', 'shutdown', False)
        self._act('RerunOnFailure', 'crash', True)

    def test_manual_does_not_restart(self):
        self._act('Manual', 'shutdown', False)
        self._act('Manual', 'crash', False)

    def test_once_does_not_restart(self):
        self._act('Once', 'shutdown', False)

    def test_manual_vm_starts_again_after_shutdown(self):
        name, first = self.make_running('Manual')
        self.cluster.guest_does(name, 'shutdown')
        self.wait_vmi(name, _over)
        self.cluster.do(name, 'start')
        self.uid(name, other_than=first)
