# SPDX-License-Identifier: Apache-2.0
"""Requests that each power action sends in each state of a VM."""

import copy
import itertools

from oslotest import base

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine import one_time_boot
from sushy_kubevirt.machine import power_state
from sushy_kubevirt.machine import reset
from sushy_kubevirt.machine import run_strategy
from sushy_kubevirt.machine import vm_state
from tests.unit.machine import fakes
from tests.unit.machine import reset_case

R = reset_case.R
RUNNING = reset_case.RUNNING
PAUSED = reset_case.PAUSED
STARTING = reset_case.STARTING
STOPPING = reset_case.STOPPING
SUCCEEDED = reset_case.SUCCEEDED
FAILED = reset_case.FAILED
NO_VMI = reset_case.NO_VMI
SAVE = reset_case.SAVE
SET = reset_case.SET
REPLACE = reset_case.REPLACE
sent = reset_case.sent

REFUSED = 'refused'

# Halts the VM, and waits until KubeVirt has processed that.
CANCEL = ['status', SET, 'wait']

# (action, run strategy, VMI, requests sent to KubeVirt in order or REFUSED,
# run strategy afterwards if it changes). 'wait' stands for a wait.
TABLE = [
    # On: starts a VM that is off
    (R.ON, 'Halted', NO_VMI, [SET, 'start'], 'RerunOnFailure'),
    (R.ON, 'RerunOnFailure', NO_VMI, ['start']),
    (R.ON, 'Manual', NO_VMI, ['start']),
    (R.ON, 'RerunOnFailure', SUCCEEDED, ['start']),
    (R.ON, 'Manual', SUCCEEDED, ['start']),
    (R.ON, 'Manual', FAILED, ['start']),
    (R.ON, 'Once', SUCCEEDED, ['delete']),
    (R.ON, 'Once', FAILED, ['delete']),
    # On: KubeVirt starts the VM already, or it runs
    (R.ON, 'Always', NO_VMI, []),
    (R.ON, 'Always', SUCCEEDED, []),
    (R.ON, 'Always', FAILED, []),
    (R.ON, 'Always', STOPPING, []),
    (R.ON, 'Once', NO_VMI, []),
    (R.ON, 'RerunOnFailure', FAILED, []),
    (R.ON, 'Always', RUNNING, []),
    (R.ON, 'RerunOnFailure', RUNNING, []),
    (R.ON, 'Manual', RUNNING, []),
    (R.ON, 'Once', RUNNING, []),
    (R.ON, 'Always', STARTING, []),
    (R.ON, 'Manual', STARTING, []),
    # On: resumes a paused guest
    (R.ON, 'Always', PAUSED, ['unpause']),
    # On: waits until a stopping VMI has ended
    (R.ON, 'RerunOnFailure', STOPPING, ['wait', 'start']),
    (R.ON, 'Manual', STOPPING, ['wait', 'start']),
    (R.ON, 'Halted', STOPPING, ['wait', SET, 'start'],
     'RerunOnFailure'),
    (R.ON, 'Halted', RUNNING, ['wait', SET, 'start'],
     'RerunOnFailure'),
    (R.ON, 'Halted', SUCCEEDED, ['wait', SET, 'start'],
     'RerunOnFailure'),
    (R.ON, 'RerunOnFailure', dict(FAILED, deleting=True),
     ['wait', 'start']),
    (R.ON, 'WaitAsReceiver', NO_VMI, REFUSED),
    (R.ON, 'WaitAsReceiver', STARTING, REFUSED),
    (R.ON, 'WaitAsReceiver', RUNNING, []),

    # ForceOff: stops with grace period 0; saves a run strategy that
    # KubeVirt replaces by Halted
    (R.FORCE_OFF, 'Always', RUNNING, [SAVE, 'stop 0']),
    (R.FORCE_OFF, 'Once', RUNNING, [SAVE, 'stop 0']),
    (R.FORCE_OFF, 'RerunOnFailure', RUNNING, ['stop 0']),
    (R.FORCE_OFF, 'Manual', RUNNING, ['stop 0']),
    (R.FORCE_OFF, 'Manual', PAUSED, ['stop 0']),
    (R.FORCE_OFF, 'Always', STARTING, [SAVE, 'stop 0']),
    (R.FORCE_OFF, 'Manual', STARTING, ['stop 0']),
    (R.FORCE_OFF, 'Always', PAUSED, [SAVE, 'stop 0']),
    # ForceOff: ends the grace period of a VMI that is stopping
    (R.FORCE_OFF, 'Halted', STOPPING, ['stop 0']),
    (R.FORCE_OFF, 'RerunOnFailure', STOPPING, ['stop 0']),
    (R.FORCE_OFF, 'Manual', STOPPING, ['stop 0']),
    (R.FORCE_OFF, 'Always', STOPPING, [SAVE, 'stop 0']),
    (R.FORCE_OFF, 'Halted', dict(STOPPING, grace=0), []),
    (R.FORCE_OFF, 'Manual', dict(STOPPING, grace=0), []),
    # ForceOff: cancels a start
    (R.FORCE_OFF, 'Always', NO_VMI, CANCEL, 'Halted'),
    (R.FORCE_OFF, 'Always', FAILED, CANCEL, 'Halted'),
    (R.FORCE_OFF, 'Once', NO_VMI, CANCEL, 'Halted'),
    (R.FORCE_OFF, 'RerunOnFailure', FAILED, CANCEL, 'Halted'),
    # ForceOff: nothing to do
    (R.FORCE_OFF, 'Halted', NO_VMI, []),
    (R.FORCE_OFF, 'RerunOnFailure', NO_VMI, []),
    (R.FORCE_OFF, 'RerunOnFailure', SUCCEEDED, []),
    (R.FORCE_OFF, 'Manual', NO_VMI, []),
    (R.FORCE_OFF, 'Manual', FAILED, []),
    (R.FORCE_OFF, 'Once', SUCCEEDED, []),
    (R.FORCE_OFF, 'Halted', SUCCEEDED, []),
    (R.FORCE_OFF, 'WaitAsReceiver', NO_VMI, []),
    (R.FORCE_OFF, 'WaitAsReceiver', RUNNING, REFUSED),

    # GracefulShutdown: the same with the VMI's own grace period
    (R.GRACEFUL_SHUTDOWN, 'Always', RUNNING, [SAVE, 'stop']),
    (R.GRACEFUL_SHUTDOWN, 'Once', RUNNING, [SAVE, 'stop']),
    (R.GRACEFUL_SHUTDOWN, 'RerunOnFailure', RUNNING, ['stop']),
    (R.GRACEFUL_SHUTDOWN, 'Manual', RUNNING, ['stop']),
    (R.GRACEFUL_SHUTDOWN, 'Manual', STARTING, ['stop']),
    # GracefulShutdown: a paused guest can react only if it runs
    (R.GRACEFUL_SHUTDOWN, 'Always', PAUSED, [SAVE, 'stop', 'unpause']),
    (R.GRACEFUL_SHUTDOWN, 'Manual', PAUSED, ['stop', 'unpause']),
    (R.GRACEFUL_SHUTDOWN, 'Manual', dict(PAUSED, deleting=True),
     ['unpause']),
    # GracefulShutdown: virt-api resumes no guest of a lost node
    (R.GRACEFUL_SHUTDOWN, 'Manual', dict(PAUSED, phase='Unknown'), ['stop']),
    (R.GRACEFUL_SHUTDOWN, 'Halted', STOPPING, []),
    (R.GRACEFUL_SHUTDOWN, 'Manual', STOPPING, []),
    (R.GRACEFUL_SHUTDOWN, 'RerunOnFailure', STOPPING, []),
    (R.GRACEFUL_SHUTDOWN, 'Always', STOPPING, [SAVE, 'stop']),
    (R.GRACEFUL_SHUTDOWN, 'Always', NO_VMI, CANCEL, 'Halted'),
    (R.GRACEFUL_SHUTDOWN, 'Halted', NO_VMI, []),
    (R.GRACEFUL_SHUTDOWN, 'Manual', NO_VMI, []),

    # ForceRestart, GracefulRestart, PowerCycle
    (R.FORCE_RESTART, 'Always', RUNNING, ['restart 0']),
    (R.FORCE_RESTART, 'RerunOnFailure', RUNNING, ['restart 0']),
    (R.FORCE_RESTART, 'Manual', RUNNING, ['restart 0']),
    (R.FORCE_RESTART, 'Manual', STARTING, ['restart 0']),
    (R.FORCE_RESTART, 'Once', RUNNING, [SET, 'restart 0'], 'Manual'),
    (R.GRACEFUL_RESTART, 'Always', RUNNING, ['restart']),
    (R.GRACEFUL_RESTART, 'Manual', RUNNING, ['restart']),
    (R.POWER_CYCLE, 'RerunOnFailure', RUNNING, ['restart 0']),
    # ... of a machine that is starting: under Manual, see `restart`
    (R.FORCE_RESTART, 'Always', STARTING, [SET, 'restart 0'], 'Manual'),
    (R.FORCE_RESTART, 'RerunOnFailure', STARTING, [SET, 'restart 0'],
     'Manual'),
    (R.FORCE_RESTART, 'Once', STARTING, [SET, 'restart 0'], 'Manual'),
    (R.GRACEFUL_RESTART, 'RerunOnFailure', STARTING, [SET, 'restart'],
     'Manual'),
    # ... whose VMI does not exist yet
    (R.FORCE_RESTART, 'Always', NO_VMI, ['wait']),
    (R.FORCE_RESTART, 'Always', FAILED, ['wait']),
    (R.FORCE_RESTART, 'RerunOnFailure', FAILED, ['wait', 'start']),
    (R.FORCE_RESTART, 'Always', dict(STOPPING, grace=1), []),
    (R.GRACEFUL_RESTART, 'Always', STOPPING, []),
    (R.GRACEFUL_RESTART, 'Manual', STOPPING, REFUSED),
    # ... that is paused, see `vmi_replacement`
    *[(action, strategy, PAUSED, [SET, 'stop 0', 'wait', 'start'], 'Manual')
      for action in (R.FORCE_RESTART, R.POWER_CYCLE)
      for strategy in ('Always', 'RerunOnFailure', 'Once')],
    (R.FORCE_RESTART, 'Manual', PAUSED, [SAVE, 'stop 0', 'wait', 'start']),
    # ... that hangs while shutting down
    *[(action, strategy, STOPPING, [SET, 'stop 0', *REPLACE], 'Manual')
      for action in (R.FORCE_RESTART, R.POWER_CYCLE)
      for strategy in ('Always', 'RerunOnFailure', 'Once', 'Halted')],
    (R.FORCE_RESTART, 'Manual', STOPPING, [SAVE, 'stop 0', *REPLACE]),
    (R.FORCE_RESTART, 'Halted', dict(PAUSED, deleting=True),
     [SET, 'stop 0', *REPLACE], 'Manual'),
    # ... whose forced restart waits for a paused guest
    (R.FORCE_RESTART, 'Always', dict(PAUSED, deleting=True, grace=1),
     [SET, 'stop 0', *REPLACE], 'Manual'),
    # ... that is paused: the guest can react only if it runs
    (R.GRACEFUL_RESTART, 'Always', PAUSED, ['restart', 'unpause']),
    (R.GRACEFUL_RESTART, 'Manual', PAUSED, ['restart', 'unpause']),
    (R.FORCE_RESTART, 'WaitAsReceiver', RUNNING, REFUSED),
    # ... that is off
    *[(action, strategy, state, ['delete'] if strategy == 'Once' else
       ['start'])
      for action in (R.FORCE_RESTART, R.GRACEFUL_RESTART, R.POWER_CYCLE)
      for strategy, state in (
          ('RerunOnFailure', NO_VMI), ('Manual', NO_VMI),
          ('RerunOnFailure', SUCCEEDED), ('Manual', SUCCEEDED),
          ('Once', SUCCEEDED))],
    *[(action, 'Halted', NO_VMI, [SET, 'start'], 'RerunOnFailure')
      for action in (R.FORCE_RESTART, R.GRACEFUL_RESTART, R.POWER_CYCLE)],
    (R.FORCE_RESTART, 'Halted', SUCCEEDED, ['wait', SET, 'start'],
     'RerunOnFailure'),

    # PushPowerButton
    (R.PUSH_POWER_BUTTON, 'Manual', RUNNING, ['stop']),
    (R.PUSH_POWER_BUTTON, 'Manual', STARTING, ['stop']),
    (R.PUSH_POWER_BUTTON, 'Manual', STOPPING, []),
    (R.PUSH_POWER_BUTTON, 'Manual', NO_VMI, ['start']),
    (R.PUSH_POWER_BUTTON, 'Halted', NO_VMI, [SET, 'start'], 'RerunOnFailure'),

    # Pause and Resume
    (R.PAUSE, 'Manual', RUNNING, ['pause']),
    (R.PAUSE, 'Manual', PAUSED, []),
    (R.PAUSE, 'Manual', STARTING, REFUSED),
    (R.PAUSE, 'Manual', STOPPING, REFUSED),
    (R.PAUSE, 'Manual', NO_VMI, REFUSED),
    (R.RESUME, 'Manual', PAUSED, ['unpause']),
    (R.RESUME, 'Manual', RUNNING, []),
    (R.RESUME, 'Manual', NO_VMI, REFUSED),
    (R.RESUME, 'Manual', STARTING, REFUSED),
]


class TableTestCase(reset_case.ResetTestCase):

    def test_each_action_in_each_state(self):
        for action, strategy, state, expected, *after in TABLE:
            machine = self.machine(strategy, state)
            case = (action.value, strategy, state)
            if expected == REFUSED:
                self.assertRaises(errors.WrongState, reset.reset, machine,
                                  action)
                expected = []
            else:
                reset.reset(machine, action)
            self.assertEqual(expected, sent(machine), case)
            if action in (R.FORCE_OFF, R.GRACEFUL_SHUTDOWN) and (
                    machine.strategy == 'Halted' != strategy):
                self.assertEqual(strategy,
                                 run_strategy.saved(machine.vm)[0])
            elif after:
                self.assertEqual(after[0], machine.strategy, case)

    def test_force_on_is_on_and_power_cycle_is_force_restart(self):
        for action, strategy, state, expected, *_ in TABLE:
            twin = {R.ON: R.FORCE_ON, R.FORCE_RESTART: R.POWER_CYCLE}.get(
                action)
            if twin and expected != REFUSED:
                machine = self.machine(strategy, state)
                reset.reset(machine, twin)
                self.assertEqual(expected, sent(machine))

    def test_repeated_action_sends_nothing(self):
        # Repeat each action in the state that the first one left.
        for action, strategy, state, expected, *_ in TABLE:
            if expected == REFUSED or action is R.PUSH_POWER_BUTTON:
                continue
            machine = self.machine(strategy, state)
            reset.reset(machine, action)
            if machine.actions and machine.actions[-1] in (
                    'start', 'delete'):
                continue        # The fake does not carry these out.
            machine.vm = one_time_boot.desired_vm(
                machine.state()) or machine.vm
            if 'restart 0' in sent(machine):
                machine.vmi['spec']['terminationGracePeriodSeconds'] = 1
            machine.writes.clear()
            reset.reset(machine, action)
            self.assertEqual([], sent(machine),
                             (action.value, strategy, state))

    def test_nmi_is_not_offered(self):
        machine = self.machine('Always')
        self.assertRaises(errors.Unsupported, reset.reset, machine, R.NMI)
        self.assertNotIn(R.NMI, power_state.OFFERED)

    def test_each_offered_type_has_an_action(self):
        self.assertEqual(set(power_state.OFFERED),
                         {*reset._ACTIONS, *reset._RESTARTS})
        self.assertEqual(set(R) - {R.NMI}, set(power_state.OFFERED))

    def test_refuses_to_start_deleting_vm(self):
        for action in (R.ON, R.FORCE_RESTART):
            machine = self.machine('Manual', NO_VMI)
            machine.vm['metadata']['deletionTimestamp'] = 'x'
            self.assertRaises(errors.WrongState, reset.reset, machine,
                              action)

    def test_refuses_what_kubevirt_refuses_for_volumes(self):
        recovery = fakes.condition('ManualRecoveryRequired', 'True', 'why')
        migrating = fakes.condition('VolumesChange', 'True')
        for condition, state, strategies, actions in (
                (recovery, NO_VMI, ('Halted', 'Manual', 'RerunOnFailure',
                                    'Always', 'Once'), (R.ON,)),
                (recovery, SUCCEEDED, ('Once', 'Manual'), (R.ON,)),
                (migrating, RUNNING, ('Manual', 'Always', 'Once'), (
                    R.FORCE_RESTART, R.GRACEFUL_RESTART)),
                (migrating, PAUSED, ('Manual', 'Always', 'Once'), (
                    R.FORCE_RESTART, R.GRACEFUL_RESTART))):
            for strategy, action in itertools.product(strategies, actions):
                machine = self.machine(strategy, state,
                                       conditions=[condition])
                machine.cached = copy.deepcopy(machine.state())
                self.assertRaises(errors.WrongState, reset.reset, machine,
                                  action)
                self.assertEqual([], machine.writes)


class RunningFieldTestCase(reset_case.ResetTestCase):

    def test_keeps_running_field(self):
        for running, state, action, expected in (
                (False, NO_VMI, R.ON, ['start']),
                (True, RUNNING, R.ON, []),
                (True, RUNNING, R.FORCE_OFF, ['stop 0']),
                (True, RUNNING, R.GRACEFUL_SHUTDOWN, ['stop']),
                (True, NO_VMI, R.FORCE_OFF, ['status', SAVE, 'wait']),
                (False, NO_VMI, R.FORCE_OFF, []),
                (True, RUNNING, R.FORCE_RESTART, ['restart 0'])):
            machine = self.machine(None, state, running=running)
            machine.effects = {}
            reset.reset(machine, action)
            self.assertEqual(expected, sent(machine), (running, action))
            self.assertNotIn('runStrategy', machine.vm['spec'])


class StrategyTestCase(reset_case.ResetTestCase):

    def test_on_uses_configured_strategy(self):
        for strategy, expected in (('Always', [SET]),
                                   ('RerunOnFailure', [SET, 'start']),
                                   ('Manual', [SET, 'start'])):
            machine = self.machine('Halted', NO_VMI, run_strategy=strategy)
            reset.reset(machine, R.ON)
            self.assertEqual((expected, strategy),
                             (sent(machine), machine.strategy))

    def test_sends_start_despite_new_run_strategy(self):
        # KubeVirt attempts that start only once, see
        # `vm_state.starting_without_retry`.
        for observed in ('Halted', 'RerunOnFailure'):
            for strategy in ('Halted', 'RerunOnFailure'):
                machine = self.machine(strategy, NO_VMI)
                machine.vm['status']['runStrategy'] = observed
                reset.reset(machine, R.ON)
                self.assertEqual('start', sent(machine)[-1])

    def test_run_strategy_starts_vm_before_the_request(self):
        machine = self.machine('Halted', NO_VMI, faults=[
            None, errors.Conflict('VM is already running')])

        def begin(machine):
            machine.vmi = fakes.vmi(**STARTING)

        machine.on_wait = [begin]
        reset.reset(machine, R.ON)
        self.assertEqual(([SET], 1),
                         (sent(machine), machine.fetch_count))

    def test_on_restores_saved_strategy(self):
        for strategy in ('Always', 'Once'):
            machine = self.machine(strategy)
            reset.reset(machine, R.FORCE_OFF)
            self.assertEqual('Halted', machine.strategy)
            machine.vmi = None
            reset.reset(machine, R.ON)
            self.assertEqual(strategy, machine.strategy)
            self.assertEqual((None, None),
                             run_strategy.saved(machine.vm))

    def test_on_restores_saved_manual(self):
        machine = self.machine('Halted', NO_VMI)
        run_strategy.save(machine.vm, 'Manual')
        reset.reset(machine, R.ON)
        self.assertEqual([SET, 'start'], sent(machine))


class EffectTestCase(base.BaseTestCase):

    def test_effects_of_actions(self):
        off, on = (fakes.vm('Manual'), None), (
            fakes.vm('Manual'), fakes.vmi(**RUNNING))
        stopping = fakes.vm('Manual', requests=[fakes.STOP]), on[1]
        halted = fakes.vm('Halted'), on[1]
        restarted = on[0], fakes.vmi(uid='u1')
        asked = fakes.vm('Manual', requests=[fakes.STOP, fakes.START]), on[1]
        started = fakes.vm('Manual', requests=[fakes.START]), None
        for action, before, after in (
                ('start', off, started), ('start', off, on),
                ('start', off, (fakes.vm(None, running=True), None)),
                ('stop', on, stopping), ('stop', on, halted),
                ('stop', on, off), ('restart', on, asked),
                ('restart', on, restarted), ('restart', on, off)):
            self.assertEqual([False, True], [
                vm_state.VmState(*each).shows(action, before[1] and 'u0')
                for each in (before, after)])


class OneTimeBootTestCase(reset_case.ResetTestCase):
    """A pending one-time override, with the gate RebootPolicy."""

    def machine(self, *args, **kwargs):
        made = super().machine(*args, **kwargs)
        fakes.set_boot(made, boot.Target.PXE, boot.Enabled.ONCE)
        made.writes.clear()
        return made

    def assert_saved(self, machine, strategy, uid=None):
        self.assertEqual((strategy, uid),
                         run_strategy.saved(machine.vm))

    def test_on_runs_under_always(self):
        for strategy, saved in (('Halted', 'RerunOnFailure'),
                                ('RerunOnFailure', 'RerunOnFailure'),
                                ('Manual', 'Manual')):
            machine = self.machine(strategy, NO_VMI)
            reset.reset(machine, R.ON)
            self.assertEqual([SET], sent(machine))
            self.assertEqual('Always', machine.strategy)
            self.assert_saved(machine, saved)

    def test_on_without_reboot_policy_gate(self):
        for strategy, expected in (('Halted', [SET, 'start']),
                                   ('RerunOnFailure', ['start']),
                                   ('Manual', ['start'])):
            machine = self.machine(strategy, NO_VMI, gates=())
            reset.reset(machine, R.ON)
            self.assertEqual(expected, sent(machine))
            self.assertNotEqual('Always', machine.strategy)

    def test_on_with_default_always_saves_nothing(self):
        machine = self.machine('Halted', NO_VMI, run_strategy='Always')
        reset.reset(machine, R.ON)
        self.assertEqual('Always', machine.strategy)
        self.assert_saved(machine, None)

    def test_restart_runs_under_always(self):
        for strategy in ('RerunOnFailure', 'Manual'):
            machine = self.machine(strategy)
            reset.reset(machine, R.FORCE_RESTART)
            # The restart first: see `reset`.
            self.assertEqual(['restart 0', SET], sent(machine))
            self.assertEqual('Always', machine.strategy)
            self.assert_saved(machine, strategy)

    def test_restart_under_always_saves_nothing(self):
        machine = self.machine('Always')
        reset.reset(machine, R.FORCE_RESTART)
        self.assertEqual(['restart 0'], sent(machine))
        self.assert_saved(machine, None)

    def test_off_in_one_time_boot_restores_strategy_first(self):
        for strategy, waits in (('RerunOnFailure', True), ('Manual', False)):
            for action in (R.FORCE_OFF, R.GRACEFUL_SHUTDOWN):
                machine = self.machine('Always')
                run_strategy.save(machine.vm, strategy, 'u0')

                def observe(machine):
                    machine.writes.append(('wait', None))
                    machine.vm['status']['runStrategy'] = strategy

                machine.on_wait = [observe]
                reset.reset(machine, action)
                stop = 'stop 0' if action is R.FORCE_OFF else 'stop'
                self.assertEqual([SET] + ['wait'] * waits + [stop],
                                 sent(machine))
                self.assertEqual(strategy, machine.strategy)
                self.assert_saved(machine, None)

    def test_off_before_vmi_of_one_time_boot_exists(self):
        machine = self.machine('RerunOnFailure', NO_VMI)
        reset.reset(machine, R.ON)
        reset.reset(machine, R.FORCE_OFF)
        self.assertEqual([SET, *CANCEL], sent(machine))
        self.assertEqual('Halted', machine.strategy)
        self.assert_saved(machine, 'RerunOnFailure')
        reset.reset(machine, R.ON)
        self.assertEqual('Always', machine.strategy)
        self.assert_saved(machine, 'RerunOnFailure')
