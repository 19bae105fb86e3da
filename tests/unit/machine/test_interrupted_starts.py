# SPDX-License-Identifier: Apache-2.0
"""Restarts and stops of machines that are starting, or about to."""

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine import power_state
from sushy_kubevirt.machine import reset
from sushy_kubevirt.machine import run_strategy
from sushy_kubevirt.machine import vm_state
from tests.unit.machine import fakes
from tests.unit.machine import reset_case

R = power_state.ResetType
SET = reset_case.SET
NO_VMI = reset_case.NO_VMI
STARTING = reset_case.STARTING
SUCCEEDED = reset_case.SUCCEEDED
FAILED = reset_case.FAILED
STUCK = dict(STARTING, conditions=[fakes.condition(
    'PodScheduled', 'False', 'Unschedulable')])
sent = reset_case.sent
end_vmi = reset_case.end_vmi


class RestartTestCase(reset_case.ResetTestCase):

    RESTARTS = (R.FORCE_RESTART, R.GRACEFUL_RESTART, R.POWER_CYCLE)

    def test_ipmi_restart_of_machine_that_is_off_is_refused(self):
        for action in self.RESTARTS:
            for strategy, state in (
                    ('Halted', NO_VMI), ('RerunOnFailure', NO_VMI),
                    ('Manual', NO_VMI), ('Halted', SUCCEEDED),
                    ('Manual', SUCCEEDED), ('Once', SUCCEEDED)):
                machine = self.machine(strategy, state)
                self.assertRaises(errors.WrongState, reset.reset, machine,
                                  action, restart_powers_on=False)
                self.assertEqual([], machine.writes)

    def test_restart_of_stuck_start(self):
        machine = self.machine('Always', STUCK)
        self.assertRaises(errors.WrongState, reset.reset, machine,
                          R.FORCE_RESTART, restart_powers_on=False)
        reset.reset(machine, R.FORCE_RESTART)
        self.assertEqual([SET, 'restart 0'], sent(machine))

    def test_restart_before_vmi_exists(self):
        # KubeVirt may create the VMI from an earlier state of the VM.
        for generation, expected in (('5', []), ('4', [SET, 'restart 0'])):
            def create_vmi(machine):
                machine.vmi = fakes.vmi(**STARTING)
                machine.vmi['metadata']['annotations'] = {
                    vm_state.VM_GENERATION: generation}

            machine = self.machine('Always', NO_VMI, on_wait=[create_vmi])
            reset.reset(machine, R.FORCE_RESTART)
            self.assertEqual(expected, sent(machine))

    def test_restart_of_starting_machine_records_strategy(self):
        for strategy, running, force in (
                ('Always', None, True), ('RerunOnFailure', None, False),
                ('Once', None, True), (None, True, True)):
            machine = self.machine(strategy, STARTING, running=running)
            reset.reset(machine,
                        R.FORCE_RESTART if force else R.GRACEFUL_RESTART)
            self.assertEqual({'vmi': 'u0', 'force': force,
                              'runStrategy': strategy},
                             run_strategy.restarting(machine.vm))
            self.assertEqual('Manual', machine.strategy)
            self.assertNotIn('running', machine.vm['spec'])

    def test_restart_of_vmi_that_ran_keeps_strategy(self):
        # A VMI whose guest ran before, in phase Failed next.
        machine = self.machine('Always', dict(phase='Scheduled'))
        machine.vmi['status']['phaseTransitionTimestamps'] = [
            {'phase': 'Running'}]
        reset.reset(machine, R.FORCE_RESTART)
        self.assertEqual(['restart 0'], sent(machine))

    def test_one_time_boot_of_starting_machine(self):
        # The reconciler sets Always, after it has restored the strategy.
        machine = self.machine('RerunOnFailure', STARTING)
        fakes.set_boot(machine, boot.Target.PXE, boot.Enabled.ONCE)
        machine.writes.clear()
        reset.reset(machine, R.FORCE_RESTART)
        self.assertEqual([SET, 'restart 0'], sent(machine))

    def test_power_off_drops_restart(self):
        for action, word in ((R.FORCE_OFF, 'stop 0'),
                             (R.GRACEFUL_SHUTDOWN, 'stop')):
            machine = self.machine('Always', STARTING)
            reset.reset(machine, R.FORCE_RESTART)
            machine.writes.clear()
            reset.reset(machine, action)
            self.assertEqual([word], sent(machine))
            self.assertEqual([fakes.STOP], vm_state.requests(machine.vm))
            end_vmi(machine)
            reset.reset(machine, action)
            self.assertEqual('Halted', machine.strategy)
            self.assertEqual('Always', run_strategy.saved(machine.vm)[0])
            self.assertEqual({}, run_strategy.restarting(machine.vm))


class BackOffTestCase(reset_case.ResetTestCase):
    """A machine that KubeVirt starts again later, as its start failed."""

    def test_on_ends_back_off(self):
        for strategy, requests in (('Always', ()),
                                   ('RerunOnFailure', [fakes.START])):
            machine = self.machine(
                strategy, NO_VMI, requests,
                startFailure={'consecutiveFailCount': 1},
                printableStatus='CrashLoopBackOff')
            self.assertIs(power_state.PowerState.OFF,
                          power_state.of(machine.state()))
            for action in (R.ON, R.FORCE_RESTART):
                machine.vm['status']['startFailure'] = {}
                machine.vm['status']['startFailure']['consecutive'] = 1
                reset.reset(machine, action)
                self.assertNotIn('startFailure', machine.vm['status'])
            self.assertEqual(['status'] * 2, sent(machine))
            self.assertIs(power_state.PowerState.POWERING_ON,
                          power_state.of(machine.state()))

    def test_on_waits_for_failed_vmi_first(self):
        machine = self.machine('Always', FAILED,
                               startFailure={'consecutiveFailCount': 1})
        reset.reset(machine, R.ON)
        self.assertEqual(['wait', 'status'], sent(machine))

    def test_on_does_not_disturb_next_attempt(self):
        machine = self.machine('Always', STARTING,
                               startFailure={'consecutiveFailCount': 1})
        reset.reset(machine, R.ON)
        self.assertEqual([], sent(machine))


class CancelledStartTestCase(reset_case.ResetTestCase):
    """A stop before KubeVirt has created the VMI of a requested start."""

    def test_removes_start_request(self):
        for strategy in ('Manual', 'RerunOnFailure', 'Halted'):
            machine = self.machine(strategy, NO_VMI, [fakes.START])
            reset.reset(machine, R.FORCE_OFF)
            self.assertEqual(['status', 'wait'], sent(machine))
            self.assertEqual(strategy, machine.strategy)

    def test_on_restores_strategy_that_was_halted(self):
        machine = self.machine('RerunOnFailure', NO_VMI, [fakes.START])
        machine.vm['status']['runStrategy'] = 'Halted'
        reset.reset(machine, R.FORCE_OFF)
        self.assertEqual('Halted', machine.strategy)
        reset.reset(machine, R.ON)
        self.assertEqual('RerunOnFailure', machine.strategy)

    def test_shutdown_cancels_restart(self):
        machine = self.machine('Manual', reset_case.STOPPING,
                               [fakes.STOP, fakes.START])
        reset.reset(machine, R.GRACEFUL_SHUTDOWN)
        self.assertEqual(['stop'], sent(machine))

    def test_stuck_vmi_counts_as_off_until_forced_off(self):
        machine = self.machine('RerunOnFailure', STUCK)
        reset.reset(machine, R.ON)
        self.assertEqual([], sent(machine))
        reset.reset(machine, R.FORCE_OFF)
        self.assertEqual(['stop 0'], sent(machine))

    def test_waits_until_kubevirt_has_processed_the_stop(self):
        for strategy, observed, expected in (
                ('RerunOnFailure', 'RerunOnFailure', ['status', 'wait']),
                ('Manual', 'Manual', ['status', 'wait']),
                ('RerunOnFailure', 'Halted', ['status', SET, 'wait'])):
            machine = self.machine(strategy, NO_VMI, [fakes.START])
            machine.vm['status']['runStrategy'] = observed
            seen = []

            def process(machine):
                seen.append(power_state.of(machine.state()))
                end_vmi(machine)

            machine.on_wait = [process]
            reset.reset(machine, R.FORCE_OFF)
            self.assertEqual(expected, sent(machine))
            self.assertEqual([power_state.PowerState.POWERING_OFF], seen)
            self.assertIs(power_state.PowerState.OFF,
                          power_state.of(machine.state()))

    def test_late_vmi_is_stopped(self):
        machine = self.machine('Manual', NO_VMI, [fakes.START])

        def create_vmi(machine):
            machine.vm['status'].pop('stateChangeRequests')
            machine.vmi = fakes.vmi(**STARTING)

        machine.on_wait = [create_vmi]
        reset.reset(machine, R.FORCE_OFF)
        self.assertEqual(['status', 'stop 0'], sent(machine))

    def test_kubevirt_processes_first_request_before_halted(self):
        machine = self.machine('RerunOnFailure', NO_VMI, [fakes.START])
        machine.vm['status']['runStrategy'] = 'Halted'
        patch_status = machine.patch_status

        def process(operations, guard):
            patch_status(operations, guard)
            machine.patch_status = patch_status
            machine.vm['status'].pop('stateChangeRequests')
            machine.vm['metadata']['resourceVersion'] += '1'
            return machine.vm

        machine.patch_status = process
        reset.reset(machine, R.FORCE_OFF)
        self.assertEqual(['status', SET, 'status', 'wait'], sent(machine))

    def test_unavailable_if_kubevirt_does_not_process_it(self):
        machine = self.machine('Manual', NO_VMI, [fakes.START], on_wait=())
        self.assertRaises(errors.Unavailable, reset.reset, machine,
                          R.FORCE_OFF)
        self.assertIs(power_state.PowerState.POWERING_OFF,
                      power_state.of(machine.state()))
