# SPDX-License-Identifier: Apache-2.0
"""Power operations, verified by the sandbox's record of guests' boots."""

import threading

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import power_state
from tests.fixtures import lagging_controllers
from tests.fixtures import machine_case
from tests.fixtures import power_history

R = power_state.ResetType
ON, OFF = power_state.PowerState.ON, power_state.PowerState.OFF
UP, DOWN = (
    power_state.PowerState.POWERING_ON,
    power_state.PowerState.POWERING_OFF,
)
PAUSED = power_state.PowerState.PAUSED
IGNORES_ACPI = {machine_case.IGNORE_ACPI: 'true'}


class SwitchTestCase(machine_case.MachineTestCase):

    def test_on_and_off_under_every_strategy(self):
        bmc = self.bmc()
        for strategy in machine_case.STRATEGIES:
            after = {'Halted': 'RerunOnFailure'}.get(strategy, strategy)
            machine = self.machine(strategy, bmc)
            for off in (R.GRACEFUL_SHUTDOWN, R.FORCE_OFF):
                before = len(self.sandbox.boots(machine.name))
                machine.reset(R.ON)
                self.assertIn(machine.power_state(), (UP, ON), strategy)
                self.becomes(machine, ON)
                self.sandbox.wait_boot(machine.name, before + 1)
                self.assertEqual(after, self.strategy(machine.name))
                machine.reset(R.ON)
                machine.reset(off)
                self.assertIn(machine.power_state(), (DOWN, OFF), strategy)
                self.becomes(machine, OFF)
                self.assertEqual(before + 1,
                                 len(self.sandbox.boots(machine.name)))
                machine.reset(off)
            self.stays(lambda: machine.power_state() is OFF)
            machine.reset(R.ON)
            self.becomes(machine, ON)
            self.until('no annotations',
                       lambda: not self.annotations(machine.name))
            self.assertEqual(after, self.strategy(machine.name))

    def test_on_and_off_with_running_field(self):
        machine = self.machine(None, running=False)
        for _ in range(2):
            machine.reset(R.ON)
            self.becomes(machine, ON)
            machine.reset(R.ON)
            machine.reset(R.FORCE_OFF)
            self.becomes(machine, OFF)
            machine.reset(R.FORCE_OFF)
        vm = self.sandbox.vm(machine.name)
        self.assertIs(False, vm['spec']['running'])
        self.assertNotIn('runStrategy', vm['spec'])
        self.assertEqual({}, self.annotations(machine.name))

    def test_on_uses_configured_run_strategy(self):
        for strategy in ('Always', 'Manual'):
            machine = self.machine('Halted', self.bmc(run_strategy=strategy))
            machine.reset(R.ON)
            self.becomes(machine, ON)
            self.assertEqual(strategy, self.strategy(machine.name))

    def test_crashed_guest_restarts_and_shut_down_guest_stays_off(self):
        machine = self.machine('Halted')
        machine.reset(R.ON)
        self.becomes(machine, ON)
        self.sandbox.guest_does(machine.name, 'crash')
        self.sandbox.wait_boot(machine.name, 2)
        self.becomes(machine, ON)
        self.sandbox.guest_does(machine.name, 'shutdown')
        self.becomes(machine, OFF)
        self.stays(lambda: machine.power_state() is OFF)
        machine.reset(R.ON)
        self.becomes(machine, ON)
        self.assertEqual(3, len(self.sandbox.boots(machine.name)))

    def test_power_button_toggles(self):
        machine = self.machine('Manual')
        machine.reset(R.PUSH_POWER_BUTTON)
        self.becomes(machine, ON)
        machine.reset(R.PUSH_POWER_BUTTON)
        self.becomes(machine, OFF)

    def test_another_bmc_restores_always(self):
        name = self.machine('Always', off=False).name
        self.bmc().machine(name).reset(R.FORCE_OFF)
        self.sandbox.wait_stopped(name)
        self.assertEqual('Halted', self.strategy(name))
        self.bmc().machine(name).reset(R.ON)
        self.sandbox.wait_running(name)
        self.assertEqual('Always', self.strategy(name))

    def test_strategy_set_by_others_removes_annotations(self):
        machine = self.machine('Always', off=False)
        machine.reset(R.FORCE_OFF)
        self.becomes(machine, OFF)
        self.assertTrue(self.annotations(machine.name))
        self.sandbox.patch('virtualmachines', machine.name,
                           {'spec': {'runStrategy': 'Manual'}})
        self.until('no annotations',
                   lambda: not self.annotations(machine.name))

    def test_reset_of_deleted_vm_raises_not_found(self):
        machine = self.machine('Manual', off=False)
        self.sandbox.delete('virtualmachines', machine.name)
        self.sandbox.wait('virtualmachines', machine.name,
                          lambda vm: vm is None)
        for action in (R.ON, R.FORCE_OFF, R.FORCE_RESTART):
            self.assertRaises(errors.MachineNotFound, machine.reset, action)


class TransitionTestCase(machine_case.MachineTestCase):

    def test_force_off_ends_hanging_shutdown(self):
        bmc = self.bmc()
        for strategy in ('Always', 'RerunOnFailure', 'Manual', 'Once'):
            machine = self.machine(strategy, bmc, off=False, grace=600,
                                   annotations=IGNORES_ACPI)
            machine.reset(R.GRACEFUL_SHUTDOWN)
            self.stays(lambda: machine.power_state() is DOWN, 0.3)
            machine.reset(R.GRACEFUL_SHUTDOWN)
            machine.reset(R.FORCE_OFF)
            self.becomes(machine, OFF)
            machine.reset(R.FORCE_OFF)
            self.stays(lambda: machine.power_state() is OFF)
            self.assertEqual(1, len(self.sandbox.boots(machine.name)))

    def test_force_off_ends_deleted_vmi(self):
        machine = self.machine('Manual', off=False, grace=600,
                               annotations=IGNORES_ACPI)
        self.sandbox.delete('virtualmachineinstances', machine.name)
        self.becomes(machine, DOWN)
        machine.reset(R.FORCE_OFF)
        self.becomes(machine, OFF)

    def test_on_waits_for_end_of_shutdown(self):
        bmc = self.bmc()
        for strategy in ('Always', 'RerunOnFailure', 'Manual', 'Once'):
            machine = self.machine(strategy, bmc, off=False, grace=3,
                                   annotations=IGNORES_ACPI)
            uid = self.uid(machine.name)
            machine.reset(R.GRACEFUL_SHUTDOWN)
            self.assertIs(DOWN, machine.power_state())
            machine.reset(R.ON)
            self.sandbox.wait_running(machine.name, other_than=uid)
            self.becomes(machine, ON)
            self.assertEqual(strategy, self.strategy(machine.name))

    def test_on_raises_unavailable_while_shutdown_hangs(self):
        machine = self.machine('Manual', off=False, grace=600,
                               annotations=IGNORES_ACPI)
        hasty = self.handle(self.bmc(write_deadline=4), machine.name)
        machine.reset(R.GRACEFUL_SHUTDOWN)
        e = self.assertRaises(errors.Unavailable, hasty.reset, R.ON)
        self.assertTrue(e.retry_after)

    def test_off_while_powering_on(self):
        bmc = self.bmc()
        for strategy in ('Always', 'RerunOnFailure', 'Manual', 'Once'):
            machine = self.machine(strategy, bmc)
            before = len(self.sandbox.boots(machine.name))
            machine.reset(R.ON)
            # The guest may have booted before this line runs.
            self.assertIn(machine.power_state(), (UP, ON))
            machine.reset(R.FORCE_OFF)
            self.becomes(machine, OFF)
            self.stays(lambda: machine.power_state() is OFF)
            self.assertIn(len(self.sandbox.boots(machine.name)) - before,
                          (0, 1))

    def test_concurrent_resets_restart_once(self):
        machine = self.machine('RerunOnFailure', off=False)
        others = [self.bmc().machine(machine.name) for _ in range(2)]
        uid = self.uid(machine.name)
        threads = [threading.Thread(target=each.reset,
                                    args=(R.FORCE_RESTART,))
                   for each in others]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.sandbox.wait_running(machine.name, other_than=uid)
        self.stays(lambda: len(self.vmis(machine.name)) == 2)


class RestartTestCase(machine_case.MachineTestCase):

    def test_restart_under_every_strategy(self):
        bmc = self.bmc()
        for strategy in ('Always', 'RerunOnFailure', 'Manual', 'Once'):
            machine = self.machine(strategy, bmc, off=False)
            for action in (R.FORCE_RESTART, R.POWER_CYCLE,
                           R.GRACEFUL_RESTART):
                uid = self.uid(machine.name)
                boots = len(self.sandbox.boots(machine.name))
                machine.reset(action)
                self.assertNotEqual(OFF, machine.power_state())
                self.sandbox.wait_running(machine.name, other_than=uid)
                self.becomes(machine, ON)
                self.assertEqual(boots + 1,
                                 len(self.sandbox.boots(machine.name)))
            self.until('original run strategy',
                       lambda: self.strategy(machine.name) == strategy)
            self.until('no annotations',
                       lambda: not self.annotations(machine.name))

    def test_restart_that_is_delivered_after_the_end_of_the_vmi(self):
        """A BMC that only watches, and whose watch of VMs is behind."""
        bmc = self.bmc()
        history = power_history.History(bmc)
        for strategy in 'RerunOnFailure', 'Manual':
            machine = self.machine(strategy, bmc, off=False)
            uid = self.uid(machine.name)
            self.until('status', lambda: machine.state().vm['status'][
                'printableStatus'] == 'Running')
            history.clear()
            self.sandbox.fault('hang', verb='WATCH',
                               where='/virtualmachines$')
            self.sandbox.fault('break', verb='WATCH',
                               where='/virtualmachines$')
            self.until('silent watch', lambda: self.fault_hits()[0])
            self.sandbox.do(machine.name, 'restart')
            self.sandbox.wait_running(machine.name, other_than=uid)
            self.until('next VMI', lambda: machine.running_uid()
                       not in (None, uid))
            self.becomes(machine, ON)
            self.sandbox.clear_faults()
            self.assertEqual([DOWN, UP, ON],
                             history.states(machine.name)[-3:])
            self.assertNotIn(OFF, history.states(machine.name))

    def test_restart_applies_pending_changes(self):
        machine = self.machine('Always', off=False)
        self.sandbox.patch('virtualmachines', machine.name, [{
            'op': 'add', 'value': 1, 'path': '/spec/template/spec/domain/'
            'devices/interfaces/0/bootOrder'}])
        machine.reset(R.FORCE_RESTART)
        self.assertEqual(
            'Pxe', self.sandbox.wait_boot(machine.name, 2)['class'])

    def test_restart_of_machine_that_is_off(self):
        bmc = self.bmc()
        for strategy in machine_case.STRATEGIES:
            machine = self.machine(strategy, bmc)
            boots = len(self.sandbox.boots(machine.name))
            for action in (R.FORCE_RESTART, R.GRACEFUL_RESTART,
                           R.POWER_CYCLE):
                e = self.assertRaises(errors.WrongState, machine.reset,
                                      action, restart_powers_on=False)
                self.assertIn('is off', str(e))
                self.stays(lambda: machine.power_state() is OFF, 0.1)
                machine.reset(action)
                self.becomes(machine, ON)
                boots += 1
                self.assertEqual(boots,
                                 len(self.sandbox.boots(machine.name)))
                machine.reset(R.FORCE_OFF)
                self.becomes(machine, OFF)

    def test_force_restart_ends_hanging_restart(self):
        bmc = self.bmc()
        for strategy in ('Always', 'RerunOnFailure', 'Manual'):
            machine = self.machine(strategy, bmc, off=False, grace=600,
                                   annotations=IGNORES_ACPI)
            uid = self.uid(machine.name)
            machine.reset(R.GRACEFUL_RESTART)
            self.stays(lambda: self.uid(machine.name) == uid, 0.3)
            machine.reset(R.GRACEFUL_RESTART)
            machine.reset(R.FORCE_RESTART)
            self.sandbox.wait_running(machine.name, other_than=uid)
            # It is Manual for the restart.
            self.until('run strategy', lambda: self.strategy(machine.name)
                       == strategy)

    def test_force_restart_ends_hanging_shutdown(self):
        machine = self.machine('Manual', off=False, grace=600,
                               annotations=IGNORES_ACPI)
        uid = self.uid(machine.name)
        machine.reset(R.GRACEFUL_SHUTDOWN)
        self.becomes(machine, DOWN)
        self.assertRaises(errors.WrongState, machine.reset,
                          R.GRACEFUL_RESTART)
        machine.reset(R.FORCE_RESTART)
        self.sandbox.wait_running(machine.name, other_than=uid)

    def test_force_restart_does_not_wait_for_the_end_of_a_vmi(self):
        """After its guest a VMI may take half a minute to go."""
        bmc = self.bmc()
        history = power_history.History(bmc)
        for strategy in ('Always', 'RerunOnFailure', 'Manual'):
            machine = self.machine(strategy, bmc, off=False, grace=600,
                                   annotations=IGNORES_ACPI)
            uid = self.uid(machine.name)
            self.sandbox.patch('virtualmachineinstances', machine.name, [{
                'op': 'add', 'path': '/metadata/finalizers/-',
                'value': 'example.test/hold'}])
            machine.reset(R.GRACEFUL_SHUTDOWN)
            self.becomes(machine, DOWN)
            machine.reset(R.FORCE_RESTART)
            self.assertEqual(uid, self.uid(machine.name))
            self.assertIn(machine.power_state(), (DOWN, UP))
            finalizers = self.sandbox.vmi(machine.name)['metadata'][
                'finalizers']
            self.sandbox.patch('virtualmachineinstances', machine.name, {
                'metadata': {'finalizers': [
                    name for name in finalizers
                    if name != 'example.test/hold']}})
            self.sandbox.wait_running(machine.name, other_than=uid)
            self.becomes(machine, ON)
            states = history.states(machine.name)
            self.assertEqual([DOWN, UP, ON],
                             states[states.index(DOWN):], strategy)
            self.until('run strategy', lambda: self.strategy(machine.name)
                       == strategy)

    def test_force_off_ends_hanging_restart(self):
        machine = self.machine('Always', off=False, grace=600,
                               annotations=IGNORES_ACPI)
        machine.reset(R.GRACEFUL_RESTART)
        self.becomes(machine, DOWN)
        machine.reset(R.FORCE_OFF)
        self.becomes(machine, OFF)
        self.stays(lambda: machine.power_state() is OFF)


class PauseTestCase(machine_case.MachineTestCase):

    def test_pause_and_resume(self):
        machine = self.machine('Manual', off=False)
        machine.reset(R.RESUME)
        machine.reset(R.PAUSE)
        self.assertIs(PAUSED, machine.power_state())
        machine.reset(R.PAUSE)
        machine.reset(R.RESUME)
        self.assertIs(ON, machine.power_state())
        machine.reset(R.PAUSE)
        machine.reset(R.ON)
        self.becomes(machine, ON)
        self.assertEqual(1, len(self.sandbox.boots(machine.name)))

    def test_paused_machine_is_reset(self):
        """A launcher ends a paused guest only 15 s after its grace period.
        """
        bmc = self.bmc()
        history = power_history.History(bmc)
        for strategy in ('Always', 'RerunOnFailure', 'Manual', 'Once'):
            machine = self.machine(strategy, bmc, off=False, grace=20)
            for action, state in (
                    (R.FORCE_OFF, OFF), (R.FORCE_RESTART, ON),
                    (R.POWER_CYCLE, ON), (R.GRACEFUL_RESTART, ON),
                    (R.GRACEFUL_SHUTDOWN, OFF)):
                machine.reset(R.ON)
                self.becomes(machine, ON)
                machine.reset(R.PAUSE)
                uid = self.uid(machine.name)
                history.clear()
                machine.reset(action)
                self.assertTrue(machine.wait(
                    lambda now: power_state.of(now) is state
                    and (now.vmi is None
                         or now.vmi['metadata']['uid'] != uid), 12),
                    (strategy, action, machine.state()))
                if state is ON:
                    self.assertNotIn(OFF, history.states(machine.name))
            self.assertEqual('Halted' if strategy in ('Always', 'Once')
                             else strategy, self.strategy(machine.name))
            machine.reset(R.ON)
            self.becomes(machine, ON)
            self.assertEqual(strategy, self.strategy(machine.name))
            self.until('no annotations',
                       lambda: not self.annotations(machine.name))

    def test_forced_restart_by_another_client_hangs(self):
        """KubeVirt's own restart of a paused machine, and the BMC's."""
        machine = self.machine('RerunOnFailure', off=False, grace=600)
        machine.reset(R.PAUSE)
        uid = self.uid(machine.name)
        self.sandbox.do(machine.name, 'restart', {'gracePeriodSeconds': 0})
        self.assertTrue(machine.wait(lambda state: any(
            condition['type'] == 'Synchronized'
            for condition in state.vmi['status']['conditions']), 15))
        self.assertIs(DOWN, machine.power_state())
        self.assertIsNone(machine.problem())
        machine.reset(R.FORCE_RESTART)
        self.sandbox.wait_running(machine.name, other_than=uid)
        self.becomes(machine, ON)

    def test_pause_of_machine_that_is_off_is_refused(self):
        machine = self.machine('Manual')
        for action in (R.PAUSE, R.RESUME):
            self.assertRaises(errors.WrongState, machine.reset, action)


LateSwitchTestCase = lagging_controllers.lagging(
    SwitchTestCase,
    'test_another_bmc_restores_always',
    'test_reset_of_deleted_vm_raises_not_found')

LateTransitionTestCase = lagging_controllers.lagging(
    TransitionTestCase,
    'test_on_waits_for_end_of_shutdown',
    'test_off_while_powering_on',
    'test_concurrent_resets_restart_once')
