# SPDX-License-Identifier: Apache-2.0
"""Resets from what the cache shows, and what it shows after them."""

import copy

from oslotest import base

from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine import boot_overrides
from sushy_kubevirt.machine import reset
from sushy_kubevirt.machine import run_strategy
from sushy_kubevirt.machine import vm_state
from tests.unit.machine import fakes
from tests.unit.machine import reset_case

R = reset_case.R
RUNNING = reset_case.RUNNING
NO_VMI = reset_case.NO_VMI
SET = reset_case.SET
end_vmi = reset_case.end_vmi
sent = reset_case.sent


class CachedTestCase(reset_case.ResetTestCase):
    """Actions that begin with the cached VM."""

    def idle(self, strategy, **kwargs):
        """Make a machine that is off, with nothing in progress."""
        machine = self.machine(strategy, NO_VMI, **kwargs)
        machine.vm['status']['printableStatus'] = 'Stopped'
        del machine.vm['status']['created']
        return machine

    def lag(self, machine, change):
        """Change a machine's VM and VMI, which the cache does not have yet.

        :param change: function of (vm), which is changed; returns the VMI
        """
        machine.cached = copy.deepcopy(machine.state())
        machine.vm['metadata']['resourceVersion'] = '11'
        machine.vmi = change(machine.vm)

    def assert_reset(self, machine, kind, expected, reads):
        """Check the requests and the number of reads of an action."""
        reset.reset(machine, kind)
        self.assertEqual((expected, reads),
                         (sent(machine), machine.fetch_count))

    def test_on_reads_no_more_than_guards_do_not_cover(self):
        for strategy, expected, reads in (
                ('Halted', [SET, 'start'], 0), ('Manual', ['start'], 1),
                ('RerunOnFailure', ['start'], 1)):
            self.assert_reset(self.idle(strategy), R.ON, expected, reads)

    def test_saved_always_and_one_time_boots_need_no_read(self):
        machine = self.idle('Halted')
        run_strategy.save(machine.vm, 'Always')
        self.assert_reset(machine, R.ON, [SET], 0)
        self.assertEqual('Always', machine.strategy)
        machine = self.idle('Halted')
        fakes.set_boot(machine, boot.Target.PXE, boot.Enabled.ONCE)
        machine.writes.clear()
        self.assert_reset(machine, R.ON, [SET], 0)
        self.assertEqual(('Always', 'RerunOnFailure'), (
            machine.strategy, run_strategy.saved(machine.vm)[0]))

    def test_started_meanwhile(self):
        def start(vm):
            vm['spec']['runStrategy'] = 'RerunOnFailure'
            return fakes.vmi(**RUNNING)

        machine = self.idle('Halted')
        self.lag(machine, start)
        self.assert_reset(machine, R.ON, [], 1)
        machine = self.idle('Manual')
        self.lag(machine, lambda vm: fakes.vmi(**RUNNING))
        self.assert_reset(machine, R.ON, [], 2)

    def test_halted_meanwhile(self):
        # KubeVirt's start would set Always.
        machine = self.idle('Manual')
        self.lag(machine, lambda vm: vm['spec'].update(runStrategy='Halted'))
        self.assert_reset(machine, R.ON, [SET, 'start'], 2)
        self.assertEqual('RerunOnFailure', machine.strategy)

    def test_start_cancelled_meanwhile(self):
        # The patch would be valid, and the start that follows it dropped with
        # the VMI that KubeVirt may be creating.
        machine = self.idle('Halted', on_wait=[end_vmi])
        self.lag(machine, lambda vm: vm['status'].update(
            stateChangeRequests=[{'action': 'Stop'}]))
        self.assert_reset(machine, R.ON, [SET, 'start'], 1)

    def test_vm_with_something_in_progress_is_read(self):
        for status in ({'created': True},
                       {'stateChangeRequests': [fakes.STOP]},
                       {'startFailure': {'consecutiveFailCount': 1}},
                       {'printableStatus': 'Stopping'}, {}):
            machine = self.idle('Halted')
            machine.vm['status'].update(status)
            self.assertIs(not status, machine.state().is_idle())
        self.assertFalse(
            vm_state.VmState(machine.vm, vmi_gone=True).is_idle())
        machine = self.idle('Halted')
        machine.vm['status']['created'] = True
        self.assert_reset(machine, R.ON, [SET, 'start'], 1)

    def test_actions_that_would_write_nothing_read(self):
        for kind, vm, vmi, expected in (
                (R.ON, 'Manual', fakes.vmi(**RUNNING), ['start']),
                (R.FORCE_OFF, 'Manual', None, ['stop 0'])):
            machine = self.machine(vm, NO_VMI if vmi else RUNNING)
            machine.cached = vm_state.VmState(
                copy.deepcopy(machine.vm), vmi)
            self.assert_reset(machine, kind, expected, 1)

    def test_used_override_is_restored_first(self):
        machine = self.idle('Halted')
        fakes.set_boot(machine, boot.Target.PXE, boot.Enabled.ONCE)
        machine.vm['status']['observedGeneration'] = 100
        machine.writes.clear()
        reset.reset(machine, R.ON)
        self.assertEqual(('patch', 1), (
            machine.actions[0], machine.fetch_count))
        self.assertIsNone(boot_overrides.once(machine.vm))


class ShownTestCase(base.BaseTestCase):

    def assert_shown(self, cases):
        for kind, before, vm, vmi, shown in cases:
            self.assertIs(shown, reset.shows(
                kind, before, vm_state.VmState(vm, vmi)), (kind, vm, vmi))

    def test_effect_of_a_reset(self):
        vm = fakes.vm('Manual')
        restarted = fakes.vm('Manual', requests=[fakes.STOP, fakes.START])
        running, stopping = fakes.vmi(), fakes.vmi(deleting=True)
        killed = fakes.vmi(deleting=True, grace=0)
        ended = fakes.vmi('Succeeded')
        self.assert_shown((
            (R.ON, None, vm, None, False), (R.ON, None, vm, running, True),
            (R.ON, 'u0', vm, stopping, False),
            (R.FORCE_OFF, 'u0', vm, running, False),
            (R.FORCE_OFF, 'u0', vm, stopping, False),
            (R.FORCE_OFF, 'u0', vm, killed, True),
            (R.FORCE_OFF, 'u0', vm, ended, True),
            (R.FORCE_OFF, 'u0', vm, None, True),
            (R.GRACEFUL_SHUTDOWN, 'u0', vm, running, False),
            (R.GRACEFUL_SHUTDOWN, 'u0', vm, stopping, True),
            (R.FORCE_RESTART, 'u0', vm, running, False),
            (R.FORCE_RESTART, 'u0', restarted, stopping, True),
            (R.POWER_CYCLE, 'u9', vm, running, True),
            (R.NMI, 'u0', vm, running, False)))

    def test_stop_of_a_machine_that_starts(self):
        """Off is the state of a start that failed, too."""
        stuck = fakes.vmi('Scheduling', conditions=[fakes.condition(
            'PodScheduled', 'False', 'Unschedulable')])
        requested = fakes.vm('Manual', requests=[fakes.START])
        cancelled = fakes.vm('Manual', requests=[{'action': 'Stop'}])
        for kind in R.FORCE_OFF, R.GRACEFUL_SHUTDOWN:
            self.assert_shown((
                (kind, 'u0', fakes.vm('Always'), stuck, False),
                (kind, None, fakes.vm('Always'), None, False),
                (kind, None, requested, None, False),
                (kind, None, cancelled, None, True),
                (kind, 'u0', fakes.vm('Halted'), fakes.vmi(
                    'Scheduling', grace=0), True)))

    def test_guest_that_is_shutting_down_before(self):
        replaced = fakes.vm('Always')
        run_strategy.begin_restart(replaced, 'u0', True, start_pending=True)
        killed = fakes.vmi(deleting=True, grace=0)
        self.assert_shown((
            (R.POWER_CYCLE, 'u0', fakes.vm('Manual'), fakes.vmi(
                deleting=True), False),
            (R.POWER_CYCLE, 'u0', fakes.vm('Manual'), None, False),
            (R.POWER_CYCLE, 'u0', replaced, fakes.vmi(), True),
            (R.FORCE_OFF, 'u0', replaced, killed, False),
            (R.GRACEFUL_SHUTDOWN, 'u0', replaced, killed, False)))
