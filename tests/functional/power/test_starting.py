# SPDX-License-Identifier: Apache-2.0
"""Restarts and stops of machines that are starting.

On a real cluster a VM takes tens of seconds to start, here eight. KubeVirt
counts a VMI that ends before its guest runs as a failed start, after which it
delays the next one (``CrashLoopBackOff``).
"""

import unittest

from kubevirt_sandbox.testing import kubectl
from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine import power_state
from tests.fixtures import lagging_controllers
from tests.fixtures import machine_case
from tests.fixtures import power_history

R = power_state.ResetType
ON, OFF = power_state.PowerState.ON, power_state.PowerState.OFF

RESTARTS = (R.FORCE_RESTART, R.GRACEFUL_RESTART, R.POWER_CYCLE)
STRATEGIES = ('Always', 'RerunOnFailure', 'Manual', 'Once')

#: Device class and firmware of a boot with `StartingTestCase.change_settings`.
CHANGED = ('Pxe', 'efi')


class StartingCase(machine_case.MachineTestCase):

    # Longer than a test takes to restart a machine on a busy host.
    BOOT_SECONDS = 8

    def setUp(self):
        super().setUp()
        self.one = self.bmc()
        self.history = power_history.History(self.one)

    def starting(self, strategy, **kwargs):
        """Create a machine that has just got a VMI."""
        machine = self.handle(self.one, self.make(strategy, **kwargs))
        machine.reset(R.ON)
        self.until('VMI', lambda: self.uid(machine.name))
        return machine

    def change_settings(self, machine):
        """Change boot order and firmware; the present VMI has the old ones."""
        machine.set_attributes({'BootMode': 'UEFI'})
        self.sandbox.patch('virtualmachines', machine.name, [{
            'op': 'add', 'value': 1, 'path': '/spec/template/spec/domain/'
            'devices/interfaces/0/bootOrder'}])

    def assert_restarted(self, machine, strategy):
        """Check that a machine boots once, with the changed settings."""
        self.assert_running(machine, strategy)
        self.assertEqual([CHANGED], self.boots(machine))

    def boots(self, machine):
        """List the device class and the firmware of each boot."""
        return [(one['class'], one['firmware'])
                for one in self.sandbox.boots(machine.name)]

    def assert_running(self, machine, strategy):
        """Check that a machine runs, and has not been off since its start."""
        self.sandbox.wait_running(machine.name)
        self.becomes(machine, ON)
        self.assertNotIn('CrashLoopBackOff',
                         self.history.statuses(machine.name))
        self.assertNotIn(OFF, self.history.since_power_on(machine.name))
        self.until('run strategy', lambda: self.strategy(machine.name)
                   == strategy)
        self.until('no annotations',
                   lambda: not self.annotations(machine.name))


class StartingTestCase(StartingCase):

    def test_restart_with_every_strategy(self):
        made = []
        for strategy in (*STRATEGIES, None):
            for action in RESTARTS:
                machine = self.starting(
                    strategy, **{} if strategy else {'running': True})
                made.append((machine, strategy))
                self.change_settings(machine)
                machine.reset(action)
                self.assertNotEqual(OFF, machine.power_state())
        for machine, strategy in made:
            self.assert_restarted(machine, strategy)
            if strategy is None:
                self.assertIs(True, self.sandbox.vm(machine.name)['spec'][
                    'running'])

    def test_restart_before_vmi_exists(self):
        machines = []
        for action in RESTARTS:
            machine = self.handle(self.one, self.make('Halted'))
            machines.append(machine)
            machine.reset(R.ON)
            self.change_settings(machine)
            machine.reset(action)
        for machine in machines:
            self.assert_restarted(machine, 'RerunOnFailure')

    def test_second_restart_with_latest_settings(self):
        made = []
        for strategy in STRATEGIES:
            for action in (R.FORCE_RESTART, R.GRACEFUL_RESTART):
                machine = self.starting(strategy)
                machine.reset(action)
                made.append((machine, strategy))
                self.change_settings(machine)
                machine.reset(action)
        for machine, strategy in made:
            self.assert_restarted(machine, strategy)

    def test_power_off_after_restart(self):
        for strategy in STRATEGIES:
            for action in (R.FORCE_OFF, R.GRACEFUL_SHUTDOWN):
                machine = self.starting(strategy)
                machine.reset(R.FORCE_RESTART)
                machine.reset(action)
                self.becomes(machine, OFF)
                self.stays(lambda: machine.power_state() is OFF)
                self.assertIsNone(self.uid(machine.name))
                machine.reset(R.ON)
                self.until('run strategy', lambda: self.strategy(machine.name)
                           == strategy)
                machine.reset(R.FORCE_OFF)

    def test_power_off_leaves_no_back_off(self):
        """Other clients need not wait, either."""
        for strategy in ('Always', 'RerunOnFailure', 'Manual', 'Once'):
            for action in (R.FORCE_OFF, R.GRACEFUL_SHUTDOWN):
                machine = self.starting(strategy)
                machine.reset(action)
                self.becomes(machine, OFF)

                def stopped():
                    status = self.sandbox.vm(machine.name)['status']
                    return ('startFailure' not in status
                            and status['printableStatus'] == 'Stopped')

                self.until('no back-off', stopped)
                self.sandbox.patch('virtualmachines', machine.name, {
                    'spec': {'runStrategy': 'Always'}})
                self.until('VMI', lambda: self.uid(machine.name), 5)
                machine.reset(R.FORCE_OFF)

    def test_start_in_back_off(self):
        made = [(self.handle(self.one, self.make(strategy, annotations={
            machine_case.FAIL_START: 'true'})), action)
            for strategy in ('Always', 'RerunOnFailure')
            for action in (R.ON, R.FORCE_RESTART)]
        for machine, action in made:
            def waits():
                vm = self.sandbox.vm(machine.name)
                return (vm['status']['printableStatus'] == 'CrashLoopBackOff'
                        and self.uid(machine.name) is None)

            self.until('back-off', waits)
            self.becomes(machine, OFF)
            machine.reset(action)
            # KubeVirt itself would wait for at least 10 s.
            self.until('VMI', lambda: self.uid(machine.name), 5)


class KilledTestCase(StartingCase):
    """BMCs that are killed while they restart a machine."""

    # Longer than it takes a process to begin.
    BOOT_SECONDS = 15

    def test_stop_by_another_client_before_restart_is_requested(self):
        for strategy in ('Always', 'RerunOnFailure', 'Once'):
            machine = self.starting(strategy)
            self.assertFalse(self.run_bmc(machine.name, 'reset',
                                          'ForceRestart', writes=1))
            self.assertEqual('Manual', self.strategy(machine.name))
            # As virtctl does.
            self.sandbox.do(machine.name, 'stop')
            self.becomes(machine, OFF)
            self.stays(lambda: machine.power_state() is OFF)
            machine.reset(R.ON)
            self.until('run strategy', lambda: self.strategy(machine.name)
                       == strategy)

    def test_next_bmc_continues_restart_of_killed_one(self):
        made = []
        for strategy in ('Always', 'RerunOnFailure', 'Once'):
            for action, writes in ((R.FORCE_RESTART, 1),
                                   (R.GRACEFUL_RESTART, 1),
                                   (R.POWER_CYCLE, 2)):
                machine = self.starting(strategy)
                self.change_settings(machine)
                # After the record of the restart, and after its request.
                self.assertFalse(self.run_bmc(
                    machine.name, 'reset', action.value, writes=writes))
                made.append((machine, strategy))
        self.bmc(write_deadline=1)
        for machine, strategy in made:
            # The first guest may boot before the next BMC restarts it.
            self.until('boot', lambda: CHANGED in self.boots(machine))
            self.assert_running(machine, strategy)
            self.assertEqual(CHANGED, self.boots(machine)[-1])


class KilledPausedTestCase(machine_case.MachineTestCase):
    """BMCs that are killed while they restart a paused machine."""

    def test_next_bmc_continues_restart_of_killed_one(self):
        one = self.bmc()
        history = power_history.History(one)
        for strategy in ('Always', 'RerunOnFailure', 'Manual', 'Once'):
            # After the record of the restart, the stop, and the request to
            # start.
            for writes in (1, 2, 3):
                machine = self.machine(strategy, one, off=False, grace=1)
                machine.reset(R.PAUSE)
                uid = self.uid(machine.name)
                history.clear()
                self.assertFalse(self.run_bmc(
                    machine.name, 'reset', 'ForceRestart', writes=writes))
                following = self.bmc(write_deadline=1)
                self.sandbox.wait_running(machine.name, other_than=uid)
                self.becomes(machine, ON)
                self.assertNotIn(OFF, history.states(machine.name))
                self.until('run strategy', lambda: self.strategy(machine.name)
                           == strategy)
                self.until('no annotations',
                           lambda: not self.annotations(machine.name))
                following.close()


class KilledHangingTestCase(machine_case.MachineTestCase):
    """BMCs that are killed while they end a restart that hangs."""

    def test_next_bmc_continues_restart_of_killed_one(self):
        one = self.bmc()
        for strategy in ('Always', 'RerunOnFailure', 'Manual'):
            # After the record of the restart, the removal of the earlier
            # start, and the stop.
            for writes in (1, 2, 3):
                machine = self.machine(
                    strategy, one, off=False, grace=600,
                    annotations={machine_case.IGNORE_ACPI: 'true'})
                uid = self.uid(machine.name)
                machine.reset(R.GRACEFUL_RESTART)
                self.assertFalse(self.run_bmc(
                    machine.name, 'reset', 'ForceRestart', writes=writes))
                following = self.bmc(write_deadline=1)
                self.sandbox.wait_running(machine.name, other_than=uid)
                self.until('run strategy', lambda: self.strategy(machine.name)
                           == strategy)
                self.until('no annotations',
                           lambda: not self.annotations(machine.name))
                following.close()


class OffTestCase(machine_case.MachineTestCase):

    def test_machine_that_is_off_stays_off(self):
        one = self.bmc()
        history = power_history.History(one)
        for strategy in ('Halted', 'RerunOnFailure', 'Manual', 'Always'):
            machine = self.machine(strategy, one)
            for _ in range(4):
                history.clear()
                machine.reset(R.ON)
                machine.reset(R.FORCE_OFF)
                self.becomes(machine, OFF)
                self.stays(lambda: machine.power_state() is OFF, 0.5)
                states = history.since_power_on(machine.name)
                self.assertEqual(1, states.count(OFF), (strategy, states))
                self.assertIs(OFF, states[-1])


class ObservedGenerationTestCase(machine_case.MachineTestCase):

    @unittest.skipUnless(kubectl.KUBECTL, 'kubectl is not installed')
    def test_kubectl_wait_after_one_time_boot(self):
        command = kubectl.Kubectl(self.sandbox.kubeconfig)
        for strategy in STRATEGIES:
            machine = self.machine(strategy)
            for start in (R.ON, R.FORCE_RESTART):
                boots = len(self.sandbox.boots(machine.name))
                machine.set_boot(boot.Target.PXE, boot.Enabled.ONCE)
                machine.reset(start)
                # Only then is there an override to be removed.
                self.sandbox.wait_boot(machine.name, boots + 1)
                self.wait_override_removed(machine.name)
                command.wait('vm/' + machine.name, 'condition=Ready')
                status = self.sandbox.vm(machine.name)['status']
                self.assertEqual(status['desiredGeneration'],
                                 status['observedGeneration'])


LateStartingTestCase = lagging_controllers.lagging(
    StartingTestCase, 'test_restart_with_every_strategy',
    'test_restart_before_vmi_exists',
    'test_second_restart_with_latest_settings',
    'test_power_off_after_restart')
LateOffTestCase = lagging_controllers.lagging(
    OffTestCase, 'test_machine_that_is_off_stays_off')
