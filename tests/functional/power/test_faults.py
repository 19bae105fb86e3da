# SPDX-License-Identifier: Apache-2.0
"""Power actions while requests fail, or the BMC ends."""

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import power_state
from tests.fixtures import machine_case

R = power_state.ResetType
ON, OFF = power_state.PowerState.ON, power_state.PowerState.OFF


class FaultTestCase(machine_case.MachineTestCase):
    """Each write succeeds in spite of a fault and takes effect once."""

    #: Reset type, run strategy, whether the machine is off before, number of
    #: boots that follow, and HTTP methods of the writes.
    CASES = [
        (R.ON, 'Halted', True, 1, ('PATCH', 'PUT')),
        (R.ON, 'Manual', True, 1, ('PUT',)),
        (R.ON, 'RerunOnFailure', True, 1, ('PUT',)),
        (R.FORCE_OFF, 'Always', False, 0, ('PATCH', 'PUT')),
        (R.FORCE_OFF, 'Manual', False, 0, ('PUT',)),
        (R.GRACEFUL_SHUTDOWN, 'RerunOnFailure', False, 0, ('PUT',)),
        (R.FORCE_RESTART, 'Always', False, 1, ('PUT',)),
        (R.FORCE_RESTART, 'Manual', False, 1, ('PUT',)),
        (R.GRACEFUL_RESTART, 'RerunOnFailure', False, 1, ('PUT',)),
        (R.FORCE_RESTART, 'Once', False, 1, ('PATCH', 'PUT')),
    ]

    def test_each_write_survives_each_fault(self):
        bmc = self.bmc()
        for action, strategy, off, boots, verbs in self.CASES:
            machine = self.machine(strategy, bmc, off=off)
            for fault in machine_case.WRITE_FAULTS:
                for verb in verbs:
                    self.sandbox.fault(
                        fault, verb=verb,
                        where=f'virtualmachines/{machine.name}')
                    self.reset_once(machine, action, boots, fault)
                    self.assertEqual([1], self.fault_hits())
                    self.sandbox.clear_faults()
                    self.restore(machine, strategy, off)

    def reset_once(self, machine, action, boots, fault):
        """Reset a machine and check the number of boots that follow."""
        before = len(self.sandbox.boots(machine.name))
        uid = self.uid(machine.name)
        machine.reset(action)
        if action in (R.FORCE_OFF, R.GRACEFUL_SHUTDOWN):
            self.becomes(machine, OFF)
        else:
            self.sandbox.wait_running(machine.name, other_than=uid)
            self.becomes(machine, ON)
        # A repeated reset would show soon after the first.
        self.stays(lambda: len(self.sandbox.boots(machine.name))
                   == before + boots, 0.3 if fault == 'drop-after' else 0.1)

    def restore(self, machine, strategy, off):
        if off:
            machine.reset(R.FORCE_OFF)
            self.becomes(machine, OFF)
        else:
            machine.reset(R.ON)
            self.becomes(machine, ON)
        if strategy == 'Halted':
            self.sandbox.patch('virtualmachines', machine.name,
                               {'spec': {'runStrategy': strategy}})
            self.sandbox.wait('virtualmachines', machine.name, lambda vm: vm[
                'status'].get('runStrategy') == strategy)
        self.until('run strategy', lambda: self.strategy(machine.name)
                   == strategy)

    def test_reset_survives_short_outage(self):
        machine = self.machine('Manual')
        self.sandbox.outage(1)
        machine.reset(R.ON)
        self.becomes(machine, ON)
        self.assertEqual(1, len(self.sandbox.boots(machine.name)))

    def test_reset_raises_unavailable_in_long_outage(self):
        machine = self.machine('Manual', self.bmc(write_deadline=0.5))
        self.sandbox.outage(8)
        self.addCleanup(self.until, 'the API', self.sandbox.is_available)
        # Without the deadline, reset would succeed after 8 s.
        self.assertRaises(errors.Unavailable, machine.reset, R.ON)


class KilledTestCase(machine_case.MachineTestCase):
    """A process is killed after each write; the next one continues."""

    def test_next_bmc_finishes_reset_of_killed_one(self):
        bmc = self.bmc()
        for action, strategy, off, state in (
                (R.FORCE_OFF, 'Always', False, OFF),
                (R.FORCE_RESTART, 'Once', False, ON),
                (R.FORCE_RESTART, 'Always', False, ON),
                (R.ON, 'Halted', True, ON)):
            for writes in (1, 2, 3):
                machine = self.machine(strategy, bmc, off=off)
                finished = self.run_bmc(machine.name, 'reset', action.value,
                                        writes=writes)
                if not finished or action is not R.FORCE_RESTART:
                    try:
                        machine.reset(action)
                    except errors.WrongState:
                        self.assertIs(R.FORCE_RESTART, action)
                self.becomes(machine, state)
                machine.reset(R.ON)
                self.becomes(machine, ON)
                after = {'Halted': 'RerunOnFailure'}.get(strategy, strategy)
                self.until('run strategy', lambda: self.strategy(
                    machine.name) == after)
                self.until('no annotations',
                           lambda: not self.annotations(machine.name))
                if finished:
                    break

    def test_unfinished_force_off_leaves_machine_on(self):
        # Killed between the annotation and the stop: the machine stays on,
        # and its next VMI makes the annotation stale.
        machine = self.machine('Always', off=False)
        self.assertFalse(self.run_bmc(machine.name, 'reset', 'ForceOff',
                                      writes=1))
        self.stays(lambda: machine.power_state() is ON)
        self.sandbox.do(machine.name, 'restart')
        self.until('no annotations',
                   lambda: not self.annotations(machine.name))
        self.assertEqual('Always', self.strategy(machine.name))
