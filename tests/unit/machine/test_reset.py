# SPDX-License-Identifier: Apache-2.0
"""Requests that each power action sends in each state of a VM."""

import copy
import itertools

import fixtures
from oslotest import base

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine import boot_overrides
from sushy_kubevirt.machine import one_time_boot
from sushy_kubevirt.machine import power_state
from sushy_kubevirt.machine import reset
from sushy_kubevirt.machine import run_strategy
from sushy_kubevirt.machine import vm_state
from tests.unit.machine import fakes

R = power_state.ResetType

NOW = {'gracePeriod': 0}
RESTART_NOW = {'gracePeriodSeconds': 0}
REFUSED = 'refused'

#: The states of a VM under each strategy, as arguments of `fakes.vmi`.
RUNNING = dict(phase='Running')
PAUSED = dict(phase='Running',
              conditions=[fakes.condition('Paused', 'True')])
STARTING = dict(phase='Scheduling')
STOPPING = dict(phase='Running', deleting=True)
SUCCEEDED = dict(phase='Succeeded')
FAILED = dict(phase='Failed')
NO_VMI = None

SAVE = 'save'       # a patch of annotations alone
SET = 'set'         # a patch of the run strategy

# Halts the VM, and waits until KubeVirt has processed that.
CANCEL = ['status', SET, 'wait']

# Requests a restart of a VMI that ends.
REPLACE = ['status', 'restart']

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


def halt(machine):
    """Have the effect of KubeVirt's stop on the VM."""
    if machine.strategy in run_strategy.LOST_BY_STOP:
        machine.vm['spec']['runStrategy'] = 'Halted'
    elif machine.vmi is not None:
        machine.vm['status']['stateChangeRequests'] = [
            {'action': 'Stop', 'uid': machine.vmi['metadata']['uid']}]


def request_restart(machine):
    machine.vm['status']['stateChangeRequests'] = [fakes.STOP, fakes.START]


def set_paused(machine):
    machine.vmi['status']['conditions'] = [
        fakes.condition('Paused', 'True')]


def clear_paused(machine):
    machine.vmi['status']['conditions'] = []


def end_vmi(machine):
    machine.writes.append(('wait', None))
    machine.vmi = None
    machine.vm['status'].pop('stateChangeRequests', None)


def sent(machine):
    """Return the requests sent to KubeVirt, in the words of TABLE."""
    words = []
    for name, body in machine.writes:
        if name == 'patch':
            paths = [operation['path'] for operation in body]
            name = SET if '/spec/runStrategy' in paths else SAVE
        elif body in (NOW, RESTART_NOW):
            name += ' 0'
        words.append(name)
    return words


class ResetTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MonkeyPatch(
            'sushy_kubevirt.kube.retry.FIRST_PAUSE', 0.001))

    def machine(self, strategy, state=RUNNING, requests=(), **kwargs):
        vmi = fakes.vmi(**state) if isinstance(state, dict) else state
        settings = {key: kwargs.pop(key) for key in
                    ('run_strategy', 'write_deadline', 'gates', 'faults',
                     'on_wait') if key in kwargs}
        made = fakes.Machine(
            fakes.vm(strategy, requests=requests, **kwargs), vmi,
            **{'on_wait': [end_vmi], **settings})
        made.effects = {'stop': halt, 'restart': request_restart,
                        'pause': set_paused, 'unpause': clear_paused}
        return made


class TableTestCase(ResetTestCase):

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


class ReplacedTestCase(ResetTestCase):
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


class RunningFieldTestCase(ResetTestCase):

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


class StrategyTestCase(ResetTestCase):

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


class CachedTestCase(ResetTestCase):
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


class OneTimeBootTestCase(ResetTestCase):
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
