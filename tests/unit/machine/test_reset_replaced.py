# SPDX-License-Identifier: Apache-2.0
"""Restarts by the end of a VMI, which the next replaces."""

import copy

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import one_time_boot
from sushy_kubevirt.machine import power_state
from sushy_kubevirt.machine import reset
from sushy_kubevirt.machine import run_strategy
from sushy_kubevirt.machine import vm_state
from tests.unit.machine import fakes
from tests.unit.machine import reset_case

R = reset_case.R
PAUSED = reset_case.PAUSED
STOPPING = reset_case.STOPPING
REPLACE = reset_case.REPLACE
end_vmi = reset_case.end_vmi
sent = reset_case.sent


class ReplacedTestCase(reset_case.ResetTestCase):
    """Forced restarts of guests that are paused or shutting down."""

    def machine(self, *args, **kwargs):
        machine = super().machine(*args, **kwargs)
        machine.on_wait = [self.delete_vmi]
        machine.effects['start'] = self.request_start
        return machine

    def delete_vmi(self, machine):
        machine.vmi['metadata']['deletionTimestamp'] = '2026-01-01T00:00:00Z'

    def request_start(self, machine):
        machine.vm['status']['stateChangeRequests'] = [fakes.START]

    def restart(self, *args, **kwargs):
        machine = self.machine(*args, **kwargs)
        reset.reset(machine, R.FORCE_RESTART)
        return machine

    def state(self, machine):
        return power_state.of(machine.state())

    def test_restart_of_ending_vmi_is_requested(self):
        machine = self.restart('RerunOnFailure', PAUSED)
        self.assertEqual([fakes.STOP, fakes.START],
                         vm_state.requests(machine.vm))
        self.assertIs(power_state.PowerState.POWERING_OFF,
                      self.state(machine))
        machine.vm = one_time_boot.desired_vm(machine.state())
        self.assertFalse(run_strategy.start_pending(machine.vm))
        machine.vmi = None
        self.assertIs(power_state.PowerState.POWERING_ON,
                      self.state(machine))

    def test_strategy_is_restored_with_the_next_vmi(self):
        for strategy, state, kwargs, expected in (
                ('Always', PAUSED, {}, 'Always'),
                ('RerunOnFailure', PAUSED, {}, 'RerunOnFailure'),
                ('Manual', PAUSED, {}, 'Manual'),
                ('Once', STOPPING, {}, 'Once'),
                ('Halted', STOPPING, {}, 'RerunOnFailure'),
                ('Halted', STOPPING, {'run_strategy': 'Always'}, 'Always')):
            machine = self.restart(strategy, state, **kwargs)
            machine.vm['status']['stateChangeRequests'] = []
            edited = one_time_boot.desired_vm(
                vm_state.VmState(machine.vm, fakes.vmi('Pending', uid='u1')))
            self.assertEqual(expected, run_strategy.of(edited), strategy)
            self.assertEqual({'other': 'kept'},
                             edited['metadata']['annotations'])

    def test_vmi_that_ends_before_the_next_is_requested(self):
        machine = self.machine('RerunOnFailure', PAUSED)
        machine.on_wait = [end_vmi]
        reset.reset(machine, R.FORCE_RESTART)
        self.assertEqual([fakes.START], vm_state.requests(machine.vm))

    def test_ended_vmi_that_is_still_there(self):
        """KubeVirt accepts no start while a stop of it is requested."""
        machine = self.machine('RerunOnFailure', PAUSED)

        def end(machine):
            machine.vmi['status']['phase'] = 'Succeeded'

        machine.on_wait = [end]
        reset.reset(machine, R.FORCE_RESTART)
        self.assertEqual(['set', 'stop 0', 'status', 'restart'],
                         sent(machine))
        self.assertEqual([fakes.STOP, fakes.START],
                         vm_state.requests(machine.vm))

    def test_restart_in_progress_that_hangs(self):
        for state in STOPPING, dict(PAUSED, deleting=True, grace=1):
            machine = self.machine('Manual', state,
                                   requests=[fakes.STOP, fakes.START])
            states = []
            patch = machine.patch_status

            def patch_status(*args):
                states.append(copy.deepcopy(machine.state()))
                return patch(*args)

            machine.patch_status = patch_status
            reset.reset(machine, R.FORCE_RESTART)
            self.assertEqual(['save', 'status', 'stop 0', 'status', 'restart'],
                             sent(machine))
            # The start of the earlier restart does not complete this one.
            self.assertTrue(vm_state.start_requested(states[0].vm))
            self.assertIsNone(one_time_boot.desired_vm(states[0]))

    def test_stop_while_it_waits(self):
        """ForceOff, by another process, is not undone."""
        def force_off(machine):
            reset.reset(machine, R.FORCE_OFF)
            machine.writes.clear()
            self.delete_vmi(machine)

        def force_off_and_end(machine):
            force_off(machine)
            end_vmi(machine)
            # The reconciler of the other process.
            machine.vm = one_time_boot.desired_vm(
                vm_state.VmState(machine.vm))

        for strategy in 'Always', 'RerunOnFailure', 'Manual':
            for stop, writes in ((force_off, []),
                                 (force_off_and_end, ['wait'])):
                machine = self.machine(strategy, PAUSED)
                machine.on_wait = [stop]
                reset.reset(machine, R.FORCE_RESTART)
                self.assertEqual(writes, sent(machine))
                self.assertFalse(vm_state.start_requested(machine.vm))

    def test_repeated_after_an_error(self):
        """The second request completes the first."""
        for ended, expected in ((self.delete_vmi, REPLACE),
                                (end_vmi, ['wait', 'start'])):
            machine = self.machine('RerunOnFailure', PAUSED)
            machine.on_wait = []
            self.assertRaises(errors.Unavailable, reset.reset, machine,
                              R.FORCE_RESTART)
            self.assertTrue(run_strategy.start_pending(machine.vm))
            machine.writes.clear()
            machine.on_wait = [ended]
            reset.reset(machine, R.FORCE_RESTART)
            self.assertEqual(expected, sent(machine))

    def test_version_that_ends_paused_guests(self):
        for version, state, expected in (
                ('v1.5.0', PAUSED, ['restart 0']),
                ('v1.8.4', PAUSED, ['restart 0']),
                ('v1.8.4', STOPPING, ['save', 'stop 0', *REPLACE]),
                ('v1.9.0-rc.2', PAUSED, ['save', 'stop 0', *REPLACE]),
                (None, PAUSED, ['save', 'stop 0', *REPLACE])):
            machine = self.machine('Manual', state)
            machine.gates.version = version
            reset.reset(machine, R.FORCE_RESTART)
            self.assertEqual(expected, sent(machine), version)

    def test_next_vmi_is_not_requested_yet(self):
        """The BMC's process, or the next one, does it."""
        machine = self.restart('RerunOnFailure', PAUSED)
        machine.vm['status']['stateChangeRequests'] = []
        machine.vmi = None
        self.assertIsNone(one_time_boot.desired_vm(machine.state()))
        self.assertIs(power_state.PowerState.POWERING_ON,
                      self.state(machine))
        reset.reset(machine, R.FORCE_OFF)
        self.assertIs(power_state.PowerState.OFF, self.state(machine))
        edited = one_time_boot.desired_vm(vm_state.VmState(machine.vm))
        self.assertEqual('Halted', run_strategy.of(edited))
        self.assertEqual('RerunOnFailure', run_strategy.saved(edited)[0])

    def test_running_field(self):
        machine = self.restart(None, PAUSED, running=True)
        machine.vm['status']['stateChangeRequests'] = []
        edited = one_time_boot.desired_vm(
            vm_state.VmState(machine.vm, fakes.vmi('Pending', uid='u1')))
        self.assertEqual((True, None), (edited['spec'].get('running'),
                                        edited['spec'].get('runStrategy')))

    def test_vm_that_is_being_deleted(self):
        machine = self.machine('Always', STOPPING)
        machine.vm['metadata']['deletionTimestamp'] = 'x'
        self.assertRaises(errors.WrongState, reset.reset, machine,
                          R.FORCE_RESTART)
