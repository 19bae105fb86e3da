# SPDX-License-Identifier: Apache-2.0
"""KubeVirt's facts of power: run strategies, verbs, guests that go down."""

import time

from kubevirt_sandbox.testing import sandbox
from tests.functional import facts

_GONE_OR_DONE = ('Succeeded', 'Failed')


def _over(vmi):
    return vmi is None or vmi['status']['phase'] in _GONE_OR_DONE


class NewMachineTest(facts.FactsTestCase):

    def test_firmware_has_a_uuid_and_a_serial_of_its_own(self):
        names = [self.make(), self.make()]
        seen = set()
        for name in names:
            vm = self.cluster.vm(name)
            firmware = vm['spec']['template']['spec']['domain']['firmware']
            seen |= {firmware['uuid'], firmware['serial'],
                     vm['metadata']['uid']}
        self.assertEqual(6, len(seen))

    def test_a_firmware_uuid_that_is_given_stays(self):
        own = '0ca1ab1e-1f1e-4d3c-8f2c-0123456789ab'
        name = self.make(firmware={'uuid': own})
        vm = self.wait_word(name, 'Stopped')
        firmware = vm['spec']['template']['spec']['domain']['firmware']
        self.assertEqual(own, firmware['uuid'])
        self.assertTrue(firmware['serial'])

    def test_a_halted_machine_is_stopped_and_not_ready(self):
        name = self.make()
        vm = self.wait_word(name, 'Stopped')
        self.assertEqual('False', self.state(vm, 'Ready'))
        self.assertNotIn('created', vm['status'])
        self.assertIsNone(self.cluster.vmi(name))

    def test_a_finalizer_keeps_a_machine_for_its_controller(self):
        self.wait_vm(self.make(), lambda vm: (
            'kubevirt.io/virtualMachineControllerFinalize'
            in vm['metadata'].get('finalizers', ())))

    def test_a_deleted_machine_takes_its_instance_along(self):
        name, _ = self.make_running()
        self.cluster.delete('virtualmachines', name)
        self.cluster.wait('virtualmachines', name, lambda vm: vm is None)
        self.assertIsNone(self.cluster.vmi(name))


class VerbsTest(facts.FactsTestCase):

    def test_start_of_a_halted_machine_makes_it_run_always(self):
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

    def test_start_of_a_running_machine_conflicts(self):
        name, _ = self.make_running()
        self.assertIn('already running', self.verb(name, 'start', 409))

    def test_stop_of_an_always_machine_halts_it(self):
        name, _ = self.make_running()
        self.cluster.do(name, 'stop')
        self.assertEqual('Halted',
                         self.cluster.vm(name)['spec']['runStrategy'])
        self.cluster.wait_stopped(name)

    def test_stop_of_a_stopped_machine_conflicts(self):
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

    def test_manual_stays_manual(self):
        name = self.make('Manual')
        self.wait_word(name, 'Stopped')
        self.assertIsNone(self.cluster.vmi(name))
        self._start_stop_start('Manual')

    def test_rerun_on_failure_stays(self):
        self._start_stop_start('RerunOnFailure')

    def test_a_start_while_a_stop_is_under_way_fails(self):
        self.need_guests()
        name, _ = self.make_running('Manual', lambda vm, spec: vm['spec'][
            'template']['metadata'].update(annotations={
                'sandbox.sushy-kubevirt/ignore-acpi': 'true'}))
        self.cluster.do(name, 'stop')
        self.assertIn('running', self.verb(name, 'start', 409))
        self.assertIn('stop/start already underway',
                      self.verb(name, 'restart', 500))
        # a stop replaces what is under way, also a shorter one
        self.cluster.do(name, 'stop', {'gracePeriod': 0})
        self.cluster.wait_stopped(name)

    def test_restart_makes_another_instance(self):
        name, first = self.make_running()
        self.cluster.do(name, 'restart')
        self.uid(name, other_than=first)
        self.assertEqual('Always',
                         self.cluster.vm(name)['spec']['runStrategy'])

    def test_restart_of_a_manual_machine(self):
        name, first = self.make_running('Manual')
        self.cluster.do(name, 'restart')
        self.uid(name, other_than=first)
        self.wait_vm(name, lambda vm: not vm['status'].get(
            'stateChangeRequests'))

    def test_restart_of_a_stopped_machine_conflicts(self):
        for run in ('Halted', 'Manual', 'Once'):
            name = self.make(run)
            if run == 'Once':
                self.uid(name)
            self.verb(name, 'restart', 409)

    def test_restart_is_graceful_or_at_once(self):
        name, first = self.make_running()
        self.assertIn('gracePeriod=0', self.verb(
            name, 'restart', 400, {'gracePeriodSeconds': 10}))
        self.verb(name, 'restart', 400, {'gracePeriodSeconds': -1})
        self.verb(name, 'restart', 400, {'gracePeriodSeconds': 'soon'})
        self.assertEqual(first, self.cluster.vmi(name)['metadata']['uid'])
        self.cluster.do(name, 'restart', {'gracePeriodSeconds': 0})
        self.uid(name, other_than=first)

    def test_a_stop_with_no_grace_pulls_the_plug(self):
        self.need_guests()
        name, _ = self.make_running('RerunOnFailure', lambda vm, spec: vm[
            'spec']['template']['metadata'].update(annotations={
                'sandbox.sushy-kubevirt/ignore-acpi': 'true'}))
        self.assertEqual(30, self.cluster.vmi(name)['spec'][
            'terminationGracePeriodSeconds'])
        self.cluster.do(name, 'stop', {'gracePeriod': 0})
        self.cluster.wait_stopped(name, timeout=10)

    def test_a_guest_that_does_not_hear_has_its_grace_period(self):
        self.need_guests()

        def deaf(vm, spec):
            spec['terminationGracePeriodSeconds'] = 2
            vm['spec']['template']['metadata']['annotations'] = {
                'sandbox.sushy-kubevirt/ignore-acpi': 'true'}
        name, _ = self.make_running('Always', deaf)
        began = time.monotonic()
        self.cluster.do(name, 'stop')
        self.wait_word(name, 'Stopping')
        self.cluster.wait_stopped(name)
        self.assertGreaterEqual(time.monotonic() - began, 1.9)

    def test_a_dry_run_changes_nothing(self):
        name = self.make()
        self.cluster.do(name, 'start', {'dryRun': ['All']})
        self.assertEqual('Halted',
                         self.cluster.vm(name)['spec']['runStrategy'])

    def test_a_paused_start_waits_for_unpause(self):
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
        message = self.refused(422, lambda vm, spec: vm['spec'].update(
            running=True))
        self.assertIn('mutually exclusive', message)
        self.assertIn('must be specified', self.refused(
            422, lambda vm, spec: vm['spec'].pop('runStrategy')))

    def test_verbs_need_a_machine(self):
        for verb in ('start', 'stop', 'restart'):
            self.assertIn('not found', self.verb('nobody', verb, 404))

    def test_a_deleted_instance_of_an_always_machine_comes_back(self):
        name, first = self.make_running()
        self.cluster.delete('virtualmachineinstances', name)
        self.uid(name, other_than=first)

    def test_a_deleted_instance_of_a_rerun_machine_does_not(self):
        name, _ = self.make_running('RerunOnFailure')
        self.cluster.delete('virtualmachineinstances', name)
        self.cluster.wait_stopped(name)
        time.sleep(0.5)
        self.assertIsNone(self.cluster.vmi(name))


class InstanceVerbsTest(facts.FactsTestCase):

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

    def test_reset_and_soft_reboot_keep_the_instance(self):
        for verb in ('reset', 'softreboot'):
            name, first = self.make_running()
            self.verb(name, verb, 200, vmi=True)
            time.sleep(0.3)
            self.assertEqual(first, self.uid(name))

    def test_they_need_an_instance(self):
        name = self.make()
        for verb in ('pause', 'reset', 'softreboot'):
            self.verb(name, verb, 404, vmi=True)

    def test_the_spec_of_an_instance_cannot_be_changed(self):
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


class GuestsTest(facts.FactsTestCase):
    """What guests do by themselves, and what comes of it."""

    def setUp(self):
        super().setUp()
        self.need_guests()

    def test_a_reboot_keeps_the_instance(self):
        name, first = self.make_running()
        self.cluster.guest_does(name, 'reboot')
        time.sleep(0.5)
        self.assertEqual(first, self.uid(name))

    def test_a_reboot_ends_the_instance_under_terminate(self):
        name, first = self.make_running(rebootPolicy='Terminate')
        self.cluster.guest_does(name, 'reboot')
        self.uid(name, other_than=first)

    def _goes_down(self, run, action, comes_back):
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

    def test_always_comes_back(self):
        self._goes_down('Always', 'shutdown', True)
        self._goes_down('Always', 'crash', True)

    def test_rerun_on_failure_comes_back_from_a_crash_only(self):
        self._goes_down('RerunOnFailure', 'shutdown', False)
        self._goes_down('RerunOnFailure', 'crash', True)

    def test_manual_stays_down(self):
        self._goes_down('Manual', 'shutdown', False)
        self._goes_down('Manual', 'crash', False)

    def test_once_stays_down(self):
        self._goes_down('Once', 'shutdown', False)

    def test_a_manual_machine_that_went_down_starts_again(self):
        name, first = self.make_running('Manual')
        self.cluster.guest_does(name, 'shutdown')
        self.wait_vmi(name, _over)
        self.cluster.do(name, 'start')
        self.uid(name, other_than=first)
