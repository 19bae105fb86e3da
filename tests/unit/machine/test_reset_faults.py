# SPDX-License-Identifier: Apache-2.0
"""Power actions while KubeVirt lags behind or requests to it fail."""

import copy
import math

from sushy_kubevirt.kube import blocking
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import retry
from sushy_kubevirt.machine import power_state
from sushy_kubevirt.machine import reset
from sushy_kubevirt.machine import restart
from sushy_kubevirt.machine import vm_state
from tests.unit.machine import fakes
from tests.unit.machine import reset_case
from tests.unit.machine import test_reset

R = power_state.ResetType
sent = reset_case.sent


class UnnoticedVmiTestCase(reset_case.ResetTestCase):
    """A VMI that KubeVirt's controller has not noticed yet.

    The controller would treat a request to stop that VMI as carried out.
    """

    ACTIONS = (R.FORCE_OFF, R.GRACEFUL_SHUTDOWN, R.FORCE_RESTART,
               R.GRACEFUL_RESTART)

    def test_waits_until_vmi_is_noticed(self):
        for strategy in ('RerunOnFailure', 'Manual'):
            for action in self.ACTIONS:
                machine = self.machine(strategy, reset_case.STARTING,
                                       created=False)

                def notice(machine):
                    self.assertEqual([], sent(machine))
                    machine.vm['status']['created'] = True

                machine.on_wait = [notice]
                reset.reset(machine, action)
                self.assertEqual(1, len([word for word in sent(machine)
                                         if word != reset_case.SET]))

    def test_unavailable_while_vmi_is_not_noticed(self):
        for action in self.ACTIONS:
            machine = self.machine('Manual', reset_case.STARTING,
                                   created=False)
            machine.on_wait = []
            e = self.assertRaises(errors.Unavailable, reset.reset, machine,
                                  action)
            self.assertIn('observe the VMI', str(e))
            self.assertEqual([], sent(machine))

    def test_stop_under_always_does_not_wait(self):
        machine = self.machine('Always', reset_case.STARTING, created=False)
        reset.reset(machine, R.FORCE_OFF)
        self.assertEqual([reset_case.SAVE, 'stop 0'], sent(machine))

    def test_stops_vmi_created_while_cancelling_start(self):
        for strategy in ('RerunOnFailure', 'Manual'):
            machine = self.machine(strategy, reset_case.NO_VMI,
                                   requests=[fakes.START])
            patch_status = machine.patch_status

            def create_vmi(operations, guard):
                response = patch_status(operations, guard)
                machine.vmi = fakes.vmi(**reset_case.STARTING)
                return response

            machine.patch_status = create_vmi
            reset.reset(machine, R.FORCE_OFF)
            self.assertEqual(['status', 'stop 0'], sent(machine))


class FaultTestCase(reset_case.ResetTestCase):

    def lost_response(self):
        return errors.ConnectionLost('gone', maybe_done=True), True

    def test_lost_response_restarts_once(self):
        machine = self.machine('Manual', faults=[self.lost_response()])
        reset.reset(machine, R.FORCE_RESTART)
        self.assertEqual(['restart 0'], sent(machine))

    def test_lost_response_with_new_vmi_present(self):
        machine = self.machine('Manual', faults=[self.lost_response()])

        def renew(machine):
            machine.vmi = fakes.vmi(uid='u1')

        machine.effects['restart'] = renew
        reset.reset(machine, R.FORCE_RESTART)
        self.assertEqual(['restart 0'], sent(machine))

    def test_lost_response_with_new_vmi_stuck(self):
        machine = self.machine('Manual', faults=[self.lost_response()])

        def renew(machine):
            machine.vmi = fakes.vmi('Scheduling', 'u1', conditions=[
                fakes.condition('Synchronized', 'False', 'ErrImagePull')])

        machine.effects['restart'] = renew
        reset.reset(machine, R.FORCE_RESTART)
        self.assertEqual(['restart 0'], sent(machine))

    def test_restart_by_another_client_is_accepted(self):
        # The VM was read before the other client's request, its VMI after.
        machine = self.machine('Manual', reset_case.STOPPING)
        fetch = machine.fetch

        def fetch_more():
            if machine.fetch_count > 0:
                machine.vm['status']['stateChangeRequests'] = [
                    fakes.STOP, fakes.START]
            return fetch()

        machine.fetch = fetch_more
        reset.reset(machine, R.GRACEFUL_RESTART)
        self.assertEqual([], sent(machine))

    def test_lost_response_starts_once(self):
        machine = self.machine('Manual', reset_case.NO_VMI,
                               faults=[self.lost_response()])

        def start(machine):
            machine.vm['status']['stateChangeRequests'] = [fakes.START]

        machine.effects['start'] = start
        reset.reset(machine, R.ON)
        self.assertEqual(['start'], sent(machine))

    def test_vmi_is_reported_before_its_start(self):
        """The cached VM is halted still, as if its VMI were stopped."""
        machine = self.machine('Halted', reset_case.NO_VMI,
                               faults=[self.lost_response()])
        machine.cached = vm_state.VmState(
            copy.deepcopy(machine.vm), fakes.vmi())
        patch = machine.patch

        def patch_and_start(operations):
            machine.vmi = fakes.vmi()
            return patch(operations)

        machine.patch = patch_and_start
        reset.reset(machine, R.ON)
        self.assertEqual([reset_case.SET], sent(machine))

    def test_attempt_with_cached_state_is_not_remembered(self):
        machine = self.machine('Manual', reset_case.NO_VMI)
        step = restart._Restart(machine, True, False).step
        self.assertRaises(blocking.WouldBlock, blocking.attempt, step,
                          machine.state())
        # A VM that is off is read twice before a restart is refused.
        self.assertRaises(errors.Conflict, step, machine.state())
        self.assertRaises(errors.WrongState, step, machine.state())

    def test_restart_without_response_is_shown(self):
        """The cache shows the restart while the API answers no reads."""
        for action in R.FORCE_RESTART, R.GRACEFUL_RESTART:
            machine = self.machine('Manual', faults=[self.lost_response()])
            fetch = machine.fetch

            def fetch_once():
                machine.fetch = self.fail
                return fetch()

            machine.fetch = fetch_once
            machine.effects['restart'] = lambda machine: machine.vm[
                'status'].update(stateChangeRequests=[fakes.STOP, fakes.START])
            reset.reset(machine, action)
            self.assertEqual(1, len(sent(machine)))

    def test_lost_response_stops_once(self):
        for strategy in ('Always', 'Manual'):
            machine = self.machine(strategy)
            machine.faults = [self.lost_response()]
            if strategy == 'Always':
                machine.faults.insert(0, None)

            def stop(machine):
                reset_case.halt(machine)
                machine.vmi['spec']['terminationGracePeriodSeconds'] = 0

            machine.effects['stop'] = stop
            reset.reset(machine, R.FORCE_OFF)
            self.assertEqual(1, sent(machine).count('stop 0'))

    def test_each_write_is_retried(self):
        for fault in (errors.Conflict('x'), errors.TooManyRequests('x'),
                      errors.ServerError('stop/start already underway'),
                      errors.ConnectionLost('x', maybe_done=True)):
            for action, strategy, state, expected, *_ in test_reset.TABLE:
                writes = [each for each in (expected or ())
                          if each != 'wait']
                if expected == test_reset.REFUSED or not writes:
                    continue
                for before in range(len(writes)):
                    machine = self.machine(
                        strategy, state, faults=[None] * before + [fault],
                        write_deadline=60)
                    reset.reset(machine, action)
                    self.assertEqual(writes, [
                        each for each in sent(machine) if each != 'wait'])

    def test_guest_that_cannot_be_resumed_is_stopped(self):
        for action, word in ((R.GRACEFUL_SHUTDOWN, 'stop'),
                             (R.GRACEFUL_RESTART, 'restart')):
            for refusal in (errors.Conflict('snapshot in progress'),
                            errors.AccessDenied('x')):
                machine = self.machine(
                    'Manual', reset_case.PAUSED, write_deadline=0.2,
                    faults=[None, *[refusal] * 50])
                reset.reset(machine, action)
                self.assertEqual([word], sent(machine))

    def test_guest_that_is_not_stopped_stays_paused(self):
        for action in R.GRACEFUL_SHUTDOWN, R.GRACEFUL_RESTART:
            machine = self.machine('Manual', reset_case.PAUSED,
                                   faults=[errors.Rejected('x')])
            self.assertRaises(errors.Rejected, reset.reset, machine, action)
            self.assertTrue(power_state.paused(machine.vmi))

    def test_write_times_out_at_deadline(self):
        machine = self.machine('Manual', write_deadline=0.3)
        machine.faults = [errors.ServerError('x')] * 50
        self.assertRaises(errors.Unavailable, reset.reset, machine,
                          R.FORCE_OFF)

    def test_on_times_out_waiting_for_vmi_to_end(self):
        machine = self.machine('Manual', reset_case.STOPPING)
        machine.on_wait = []
        e = self.assertRaises(errors.Unavailable, reset.reset, machine,
                              R.ON)
        self.assertIn('VMI to end', str(e))
        self.assertTrue(e.retry_after)

    def test_refusals_are_not_retried(self):
        for refusal in (errors.AccessDenied('x'), errors.Rejected('x')):
            machine = self.machine('Manual', faults=[refusal])
            self.assertRaises(type(refusal), reset.reset, machine,
                              R.FORCE_OFF)
            self.assertEqual(1, machine.fetch_count)

    def test_pause_refused_for_liveness_probe_is_rejected(self):
        machine = self.machine('Manual', faults=[errors.AccessDenied(
            'Pausing VMIs with a non-GuestAgentPing LivenessProbe is not '
            'supported')])
        self.assertRaises(errors.Rejected, reset.reset, machine, R.PAUSE)
        machine = self.machine('Manual', faults=[errors.AccessDenied('x')])
        self.assertRaises(errors.AccessDenied, reset.reset, machine,
                          R.PAUSE)

    def test_restart_of_vm_stopped_meanwhile_is_refused(self):
        machine = self.machine('Manual', faults=[errors.ServerError('x')])
        fetch = machine.fetch

        def fetch_stopped():
            if machine.fetch_count > 0:
                machine.vmi = None
            return fetch()

        machine.fetch = fetch_stopped
        self.assertRaises(errors.WrongState, reset.reset, machine,
                          R.FORCE_RESTART, restart_powers_on=False)


class ResumeTestCase(reset_case.ResetTestCase):

    def test_resume_before_a_shutdown_has_a_short_deadline(self):
        for seconds, limit in ((math.inf, 3.0), (2.0, 2.0)):
            machine = self.machine('Manual', reset_case.PAUSED)
            limits = []
            write = machine.write

            def recorded(step, *arguments):
                limits.append(retry.limit())
                return write(step, *arguments)

            machine.write = recorded
            retry.within(seconds, reset.reset, machine, R.GRACEFUL_SHUTDOWN)
            self.assertEqual(['stop', 'unpause'], sent(machine))
            self.assertEqual([seconds, limit], limits)
