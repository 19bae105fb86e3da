# SPDX-License-Identifier: Apache-2.0

import fixtures
from oslotest import base

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine import power_state
from sushy_kubevirt.machine import reset
from sushy_kubevirt.machine import run_strategy
from tests.unit.machine import fakes

R = power_state.ResetType

NOW = {'gracePeriod': 0}
RESTART_NOW = {'gracePeriodSeconds': 0}
REFUSED = 'refused'

#: The states of a VM under each strategy, as arguments of `fakes.vmi`.
RUNNING = dict(phase='Running')
PAUSED = dict(phase='Running',
              conditions=[fakes.condition('Paused', 'True')])
COMING = dict(phase='Scheduling')
GOING = dict(phase='Running', deleting=True)
SUCCEEDED = dict(phase='Succeeded')
FAILED = dict(phase='Failed')
GONE = None

REMEMBER = 'remember'   # a patch of annotations alone
SET = 'set'             # a patch of the run strategy

# (action, strategy, VMI): what is asked of KubeVirt, in order, and the run
# strategy afterwards where it is another one. 'wait' stands for waiting.
TABLE = [
    # On: starts what is off
    (R.ON, 'Halted', GONE, [SET, 'start'], 'RerunOnFailure'),
    (R.ON, 'RerunOnFailure', GONE, ['start']),
    (R.ON, 'Manual', GONE, ['start']),
    (R.ON, 'RerunOnFailure', SUCCEEDED, ['start']),
    (R.ON, 'Manual', SUCCEEDED, ['start']),
    (R.ON, 'Manual', FAILED, ['start']),
    (R.ON, 'Once', SUCCEEDED, ['delete']),
    (R.ON, 'Once', FAILED, ['delete']),
    # On: KubeVirt is at it, or done
    (R.ON, 'Always', GONE, []),
    (R.ON, 'Always', SUCCEEDED, []),
    (R.ON, 'Always', FAILED, []),
    (R.ON, 'Always', GOING, []),
    (R.ON, 'Once', GONE, []),
    (R.ON, 'RerunOnFailure', FAILED, []),
    (R.ON, 'Always', RUNNING, []),
    (R.ON, 'RerunOnFailure', RUNNING, []),
    (R.ON, 'Manual', RUNNING, []),
    (R.ON, 'Once', RUNNING, []),
    (R.ON, 'Always', COMING, []),
    (R.ON, 'Manual', COMING, []),
    # On: wakes what is paused
    (R.ON, 'Always', PAUSED, ['unpause']),
    # On: waits for what is on its way down
    (R.ON, 'RerunOnFailure', GOING, ['wait', 'start']),
    (R.ON, 'Manual', GOING, ['wait', 'start']),
    (R.ON, 'Halted', GOING, ['wait', SET, 'start'],
     'RerunOnFailure'),
    (R.ON, 'Halted', RUNNING, ['wait', SET, 'start'],
     'RerunOnFailure'),
    (R.ON, 'Halted', SUCCEEDED, ['wait', SET, 'start'],
     'RerunOnFailure'),
    (R.ON, 'WaitAsReceiver', GONE, REFUSED),
    (R.ON, 'WaitAsReceiver', COMING, REFUSED),
    (R.ON, 'WaitAsReceiver', RUNNING, []),

    # ForceOff: stops with grace period 0, and remembers what that loses
    (R.FORCE_OFF, 'Always', RUNNING, [REMEMBER, 'stop 0']),
    (R.FORCE_OFF, 'Once', RUNNING, [REMEMBER, 'stop 0']),
    (R.FORCE_OFF, 'RerunOnFailure', RUNNING, ['stop 0']),
    (R.FORCE_OFF, 'Manual', RUNNING, ['stop 0']),
    (R.FORCE_OFF, 'Manual', PAUSED, ['stop 0']),
    (R.FORCE_OFF, 'Always', COMING, [REMEMBER, 'stop 0']),
    (R.FORCE_OFF, 'Manual', COMING, ['stop 0']),
    # ForceOff: pulls the plug of what hangs on its way down
    (R.FORCE_OFF, 'Halted', GOING, ['stop 0']),
    (R.FORCE_OFF, 'RerunOnFailure', GOING, ['stop 0']),
    (R.FORCE_OFF, 'Manual', GOING, ['stop 0']),
    (R.FORCE_OFF, 'Always', GOING, [REMEMBER, 'stop 0']),
    (R.FORCE_OFF, 'Halted', dict(GOING, grace=0), []),
    (R.FORCE_OFF, 'Manual', dict(GOING, grace=0), []),
    # ForceOff: calls a start off
    (R.FORCE_OFF, 'Always', GONE, [SET], 'Halted'),
    (R.FORCE_OFF, 'Always', FAILED, [SET], 'Halted'),
    (R.FORCE_OFF, 'Once', GONE, [SET], 'Halted'),
    (R.FORCE_OFF, 'RerunOnFailure', FAILED, [SET], 'Halted'),
    # ForceOff: nothing to do
    (R.FORCE_OFF, 'Halted', GONE, []),
    (R.FORCE_OFF, 'RerunOnFailure', GONE, []),
    (R.FORCE_OFF, 'RerunOnFailure', SUCCEEDED, []),
    (R.FORCE_OFF, 'Manual', GONE, []),
    (R.FORCE_OFF, 'Manual', FAILED, []),
    (R.FORCE_OFF, 'Once', SUCCEEDED, []),
    (R.FORCE_OFF, 'Halted', SUCCEEDED, []),
    (R.FORCE_OFF, 'WaitAsReceiver', GONE, []),
    (R.FORCE_OFF, 'WaitAsReceiver', RUNNING, REFUSED),

    # GracefulShutdown: the same with the guest's own grace period
    (R.GRACEFUL_SHUTDOWN, 'Always', RUNNING, [REMEMBER, 'stop']),
    (R.GRACEFUL_SHUTDOWN, 'Once', RUNNING, [REMEMBER, 'stop']),
    (R.GRACEFUL_SHUTDOWN, 'RerunOnFailure', RUNNING, ['stop']),
    (R.GRACEFUL_SHUTDOWN, 'Manual', RUNNING, ['stop']),
    (R.GRACEFUL_SHUTDOWN, 'Manual', COMING, ['stop']),
    (R.GRACEFUL_SHUTDOWN, 'Halted', GOING, []),
    (R.GRACEFUL_SHUTDOWN, 'Manual', GOING, []),
    (R.GRACEFUL_SHUTDOWN, 'RerunOnFailure', GOING, []),
    (R.GRACEFUL_SHUTDOWN, 'Always', GOING, [REMEMBER, 'stop']),
    (R.GRACEFUL_SHUTDOWN, 'Always', GONE, [SET], 'Halted'),
    (R.GRACEFUL_SHUTDOWN, 'Halted', GONE, []),
    (R.GRACEFUL_SHUTDOWN, 'Manual', GONE, []),

    # restarts
    (R.FORCE_RESTART, 'Always', RUNNING, ['restart 0']),
    (R.FORCE_RESTART, 'RerunOnFailure', RUNNING, ['restart 0']),
    (R.FORCE_RESTART, 'Manual', RUNNING, ['restart 0']),
    (R.FORCE_RESTART, 'Manual', PAUSED, ['restart 0']),
    (R.FORCE_RESTART, 'Manual', COMING, ['restart 0']),
    (R.FORCE_RESTART, 'Once', RUNNING, [SET, 'restart 0'], 'Always'),
    (R.GRACEFUL_RESTART, 'Always', RUNNING, ['restart']),
    (R.GRACEFUL_RESTART, 'Manual', RUNNING, ['restart']),
    (R.POWER_CYCLE, 'RerunOnFailure', RUNNING, ['restart 0']),
    (R.FORCE_RESTART, 'Always', GONE, []),
    (R.FORCE_RESTART, 'Always', FAILED, []),
    (R.FORCE_RESTART, 'RerunOnFailure', FAILED, []),
    (R.FORCE_RESTART, 'Always', dict(GOING, grace=1), []),
    (R.GRACEFUL_RESTART, 'Always', GOING, []),
    (R.GRACEFUL_RESTART, 'Manual', GOING, REFUSED),
    (R.FORCE_RESTART, 'Manual', GOING, ['stop 0', 'wait', 'start']),
    (R.FORCE_RESTART, 'Always', GOING,
     [REMEMBER, 'stop 0', 'wait', SET], 'Always'),
    (R.FORCE_RESTART, 'WaitAsReceiver', RUNNING, REFUSED),
    *[(action, strategy, GONE, REFUSED)
      for action in (R.FORCE_RESTART, R.GRACEFUL_RESTART, R.POWER_CYCLE)
      for strategy in ('Halted', 'RerunOnFailure', 'Manual')],
    *[(action, strategy, SUCCEEDED, REFUSED)
      for action in (R.FORCE_RESTART, R.GRACEFUL_RESTART, R.POWER_CYCLE)
      for strategy in ('Halted', 'RerunOnFailure', 'Manual', 'Once')],

    # the button
    (R.PUSH_POWER_BUTTON, 'Manual', RUNNING, ['stop']),
    (R.PUSH_POWER_BUTTON, 'Manual', COMING, ['stop']),
    (R.PUSH_POWER_BUTTON, 'Manual', GOING, []),
    (R.PUSH_POWER_BUTTON, 'Manual', GONE, ['start']),
    (R.PUSH_POWER_BUTTON, 'Halted', GONE, [SET, 'start'], 'RerunOnFailure'),

    # pause and resume
    (R.PAUSE, 'Manual', RUNNING, ['pause']),
    (R.PAUSE, 'Manual', PAUSED, []),
    (R.PAUSE, 'Manual', COMING, REFUSED),
    (R.PAUSE, 'Manual', GOING, REFUSED),
    (R.PAUSE, 'Manual', GONE, REFUSED),
    (R.RESUME, 'Manual', PAUSED, ['unpause']),
    (R.RESUME, 'Manual', RUNNING, []),
    (R.RESUME, 'Manual', GONE, REFUSED),
    (R.RESUME, 'Manual', COMING, REFUSED),
]


def halt(machine):
    """What KubeVirt's stop does to the run strategy."""
    if machine.strategy in run_strategy.LOST_BY_STOP:
        machine.vm['spec']['runStrategy'] = 'Halted'
    elif machine.vmi is not None:
        machine.vm['status']['stateChangeRequests'] = [
            {'action': 'Stop', 'uid': machine.vmi['metadata']['uid']}]


def restarted(machine):
    machine.vm['status']['stateChangeRequests'] = [fakes.STOP, fakes.START]


def paused(machine):
    machine.vmi['status']['conditions'] = [
        fakes.condition('Paused', 'True')]


def unpaused(machine):
    machine.vmi['status']['conditions'] = []


def ended(machine):
    machine.writes.append(('wait', None))
    machine.vmi = None
    machine.vm['status'].pop('stateChangeRequests', None)


def asked(machine):
    """What was asked of KubeVirt, in the table's words."""
    words = []
    for name, body in machine.writes:
        if name == 'patch':
            paths = [operation['path'] for operation in body]
            name = SET if '/spec/runStrategy' in paths else REMEMBER
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
                    ('run_strategy', 'write_deadline', 'gates', 'faults')
                    if key in kwargs}
        made = fakes.Machine(
            fakes.vm(strategy, requests=requests, **kwargs), vmi,
            on_wait=[ended], **settings)
        made.effects = {'stop': halt, 'restart': restarted,
                        'pause': paused, 'unpause': unpaused}
        return made


class TableTestCase(ResetTestCase):

    def test_table(self):
        for action, strategy, state, expected, *after in TABLE:
            machine = self.machine(strategy, state)
            what = (action.value, strategy, state)
            if expected == REFUSED:
                self.assertRaises(errors.WrongState, reset.reset, machine,
                                  action)
                expected = []
            else:
                reset.reset(machine, action)
            self.assertEqual(expected, asked(machine), what)
            if action in (R.FORCE_OFF, R.GRACEFUL_SHUTDOWN) and (
                    machine.strategy == 'Halted' != strategy):
                self.assertEqual(strategy,
                                 run_strategy.saved(machine.vm)[0])
            elif after:
                self.assertEqual(after[0], machine.strategy, what)

    def test_force_on_is_on_and_power_cycle_is_force_restart(self):
        for action, strategy, state, expected, *_ in TABLE:
            twin = {R.ON: R.FORCE_ON, R.FORCE_RESTART: R.POWER_CYCLE}.get(
                action)
            if twin and expected != REFUSED:
                machine = self.machine(strategy, state)
                reset.reset(machine, twin)
                self.assertEqual(expected, asked(machine))

    def test_every_action_is_done_once(self):
        # Each again, in the state that the first one left.
        for action, strategy, state, expected, *_ in TABLE:
            if expected == REFUSED or action is R.PUSH_POWER_BUTTON:
                continue
            machine = self.machine(strategy, state)
            reset.reset(machine, action)
            if machine.actions and machine.actions[-1] in (
                    'start', 'delete'):
                continue        # whose effect the fake does not have
            if asked(machine)[-1:] == ['stop 0']:
                machine.vmi['spec']['terminationGracePeriodSeconds'] = 0
            if 'restart 0' in asked(machine):
                machine.vmi['spec']['terminationGracePeriodSeconds'] = 1
            machine.writes.clear()
            reset.reset(machine, action)
            self.assertEqual([], asked(machine),
                             (action.value, strategy, state))

    def test_nmi_is_not_offered(self):
        machine = self.machine('Always')
        self.assertRaises(errors.Unsupported, reset.reset, machine, R.NMI)
        self.assertNotIn(R.NMI, power_state.OFFERED)
        self.assertEqual(len(R) - 1, len(power_state.OFFERED))

    def test_vm_that_is_deleted(self):
        for action in (R.ON, R.FORCE_RESTART):
            machine = self.machine('Manual', GONE)
            machine.vm['metadata']['deletionTimestamp'] = 'x'
            self.assertRaises(errors.WrongState, reset.reset, machine,
                              action)


class RunningFieldTestCase(ResetTestCase):

    def test_keeps_using_it(self):
        for running, state, action, expected in (
                (False, GONE, R.ON, ['start']),
                (True, RUNNING, R.ON, []),
                (True, RUNNING, R.FORCE_OFF, ['stop 0']),
                (True, RUNNING, R.GRACEFUL_SHUTDOWN, ['stop']),
                (True, GONE, R.FORCE_OFF, ['stop']),
                (False, GONE, R.FORCE_OFF, []),
                (True, RUNNING, R.FORCE_RESTART, ['restart 0'])):
            machine = self.machine(None, state, running=running)
            machine.effects = {}
            reset.reset(machine, action)
            self.assertEqual(expected, asked(machine), (running, action))
            self.assertNotIn('runStrategy', machine.vm['spec'])


class StrategyTestCase(ResetTestCase):

    def test_configured_strategy(self):
        for strategy, expected in (('Always', [SET]),
                                   ('RerunOnFailure', [SET, 'start']),
                                   ('Manual', [SET, 'start'])):
            machine = self.machine('Halted', GONE, run_strategy=strategy)
            reset.reset(machine, R.ON)
            self.assertEqual((expected, strategy),
                             (asked(machine), machine.strategy))

    def test_strategy_that_is_new_does_not_make_up_for_a_request(self):
        # KubeVirt tries that start once, and takes the strategy for seen.
        for observed in ('Halted', 'RerunOnFailure'):
            for strategy in ('Halted', 'RerunOnFailure'):
                machine = self.machine(strategy, GONE)
                machine.vm['status']['runStrategy'] = observed
                reset.reset(machine, R.ON)
                self.assertEqual('start', asked(machine)[-1])

    def test_strategy_starts_it_before_the_request_comes(self):
        machine = self.machine('Halted', GONE, faults=[
            None, errors.Conflict('VM is already running')])
        fetch = machine.fetch

        def fetch_more():
            if machine.looks:
                machine.vmi = fakes.vmi(**COMING)
            return fetch()

        machine.fetch = fetch_more
        reset.reset(machine, R.ON)
        self.assertEqual([SET], asked(machine))

    def test_remembered_strategy_comes_back(self):
        for strategy in ('Always', 'Once'):
            machine = self.machine(strategy)
            reset.reset(machine, R.FORCE_OFF)
            self.assertEqual('Halted', machine.strategy)
            machine.vmi = None
            reset.reset(machine, R.ON)
            self.assertEqual(strategy, machine.strategy)
            self.assertEqual((None, None),
                             run_strategy.saved(machine.vm))

    def test_remembered_manual(self):
        machine = self.machine('Halted', GONE)
        run_strategy.save(machine.vm, 'Manual')
        reset.reset(machine, R.ON)
        self.assertEqual([SET, 'start'], asked(machine))


class CallOffTestCase(ResetTestCase):

    def test_requested_start(self):
        for strategy in ('Manual', 'RerunOnFailure', 'Halted'):
            machine = self.machine(strategy, GONE, requests=[fakes.START])
            reset.reset(machine, R.FORCE_OFF)
            self.assertEqual(['status'], asked(machine))
            self.assertEqual(strategy, machine.strategy)
            self.assertIs(power_state.PowerState.OFF,
                          power_state.state(*machine.objects()))

    def test_strategy_that_starts_it_too(self):
        machine = self.machine('RerunOnFailure', GONE,
                               requests=[fakes.START])
        machine.vm['status']['runStrategy'] = 'Halted'
        reset.reset(machine, R.FORCE_OFF)
        self.assertEqual(['status', SET], asked(machine))
        self.assertEqual('RerunOnFailure',
                         run_strategy.saved(machine.vm)[0])
        reset.reset(machine, R.ON)
        self.assertEqual('RerunOnFailure', machine.strategy)

    def test_restart_under_way(self):
        machine = self.machine('Manual', GOING,
                               requests=[fakes.STOP, fakes.START])
        reset.reset(machine, R.GRACEFUL_SHUTDOWN)
        self.assertEqual(['stop'], asked(machine))

    def test_stuck_vmi(self):
        stuck = dict(phase='Scheduling', conditions=[fakes.condition(
            'PodScheduled', 'False', 'Unschedulable')])
        machine = self.machine('RerunOnFailure', stuck)
        self.assertRaises(errors.WrongState, reset.reset, machine,
                          R.FORCE_RESTART)
        reset.reset(machine, R.ON)
        self.assertEqual([], asked(machine))
        reset.reset(machine, R.FORCE_OFF)
        self.assertEqual(['stop 0'], asked(machine))


class UnseenTestCase(ResetTestCase):
    """A VMI that KubeVirt's controller has not heard of yet.

    It would take a request to stop that VMI for met.
    """

    ACTIONS = (R.FORCE_OFF, R.GRACEFUL_SHUTDOWN, R.FORCE_RESTART,
               R.GRACEFUL_RESTART)

    def test_waits_until_it_is_seen(self):
        for strategy in ('RerunOnFailure', 'Manual'):
            for action in self.ACTIONS:
                machine = self.machine(strategy, COMING, created=False)

                def see(machine):
                    self.assertEqual([], asked(machine))
                    machine.vm['status']['created'] = True

                machine.on_wait = [see]
                reset.reset(machine, action)
                self.assertEqual(1, len(asked(machine)))

    def test_says_that_it_waits(self):
        for action in self.ACTIONS:
            machine = self.machine('Manual', COMING, created=False)
            machine.on_wait = []
            e = self.assertRaises(errors.Unavailable, reset.reset, machine,
                                  action)
            self.assertIn('notice the VMI', str(e))
            self.assertEqual([], asked(machine))

    def test_halted_is_no_request(self):
        machine = self.machine('Always', COMING, created=False)
        reset.reset(machine, R.FORCE_OFF)
        self.assertEqual([REMEMBER, 'stop 0'], asked(machine))

    def test_start_that_was_met_while_it_was_called_off(self):
        for strategy in ('RerunOnFailure', 'Manual'):
            machine = self.machine(strategy, GONE, requests=[fakes.START])
            patch_status = machine.patch_status

            def met(operations, guard):
                answer = patch_status(operations, guard)
                machine.vmi = fakes.vmi(**COMING)
                return answer

            machine.patch_status = met
            reset.reset(machine, R.FORCE_OFF)
            self.assertEqual(['status', 'stop 0'], asked(machine))


class OneTimeBootTestCase(ResetTestCase):
    """With a one-time override that waits, and RebootPolicy."""

    def machine(self, *args, **kwargs):
        made = super().machine(*args, **kwargs)
        boot.set(made, boot.Target.PXE, boot.Enabled.ONCE)
        made.writes.clear()
        return made

    def remembers(self, machine, strategy, uid=None):
        self.assertEqual((strategy, uid),
                         run_strategy.saved(machine.vm))

    def test_on(self):
        for strategy, comes_back in (('Halted', 'RerunOnFailure'),
                                     ('RerunOnFailure', 'RerunOnFailure'),
                                     ('Manual', 'Manual')):
            machine = self.machine(strategy, GONE)
            reset.reset(machine, R.ON)
            self.assertEqual([SET], asked(machine))
            self.assertEqual('Always', machine.strategy)
            self.remembers(machine, comes_back)

    def test_on_without_the_gate(self):
        for strategy, expected in (('Halted', [SET, 'start']),
                                   ('RerunOnFailure', ['start']),
                                   ('Manual', ['start'])):
            machine = self.machine(strategy, GONE, gates=())
            reset.reset(machine, R.ON)
            self.assertEqual(expected, asked(machine))
            self.assertNotEqual('Always', machine.strategy)

    def test_on_what_comes_back_as_always_anyway(self):
        machine = self.machine('Halted', GONE, run_strategy='Always')
        reset.reset(machine, R.ON)
        self.assertEqual('Always', machine.strategy)
        self.remembers(machine, None)

    def test_restart(self):
        for strategy in ('RerunOnFailure', 'Manual'):
            machine = self.machine(strategy)
            reset.reset(machine, R.FORCE_RESTART)
            # The restart first: see `reset`.
            self.assertEqual(['restart 0', SET], asked(machine))
            self.assertEqual('Always', machine.strategy)
            self.remembers(machine, strategy)

    def test_restart_of_always(self):
        machine = self.machine('Always')
        reset.reset(machine, R.FORCE_RESTART)
        self.assertEqual(['restart 0'], asked(machine))
        self.remembers(machine, None)

    def test_off_in_that_boot_puts_the_strategy_back_first(self):
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
                                 asked(machine))
                self.assertEqual(strategy, machine.strategy)
                self.remembers(machine, None)

    def test_off_before_that_boot_has_a_vmi(self):
        machine = self.machine('RerunOnFailure', GONE)
        reset.reset(machine, R.ON)
        reset.reset(machine, R.FORCE_OFF)
        self.assertEqual([SET, SET], asked(machine))
        self.assertEqual('Halted', machine.strategy)
        self.remembers(machine, 'RerunOnFailure')
        reset.reset(machine, R.ON)
        self.assertEqual('Always', machine.strategy)
        self.remembers(machine, 'RerunOnFailure')


class FaultTestCase(ResetTestCase):

    def lost(self):
        return errors.ConnectionLost('gone', maybe_done=True), True

    def test_lost_answer_of_a_restart_restarts_once(self):
        machine = self.machine('Manual', faults=[self.lost()])
        reset.reset(machine, R.FORCE_RESTART)
        self.assertEqual(['restart 0'], asked(machine))

    def test_lost_answer_and_the_new_vmi_is_there_already(self):
        machine = self.machine('Manual', faults=[self.lost()])

        def renew(machine):
            machine.vmi = fakes.vmi(uid='u1')

        machine.effects['restart'] = renew
        reset.reset(machine, R.FORCE_RESTART)
        self.assertEqual(['restart 0'], asked(machine))

    def test_lost_answer_and_the_new_vmi_is_stuck(self):
        machine = self.machine('Manual', faults=[self.lost()])

        def renew(machine):
            machine.vmi = fakes.vmi('Scheduling', 'u1', conditions=[
                fakes.condition('Synchronized', 'False', 'ErrImagePull')])

        machine.effects['restart'] = renew
        reset.reset(machine, R.FORCE_RESTART)
        self.assertEqual(['restart 0'], asked(machine))

    def test_half_of_a_restart_by_somebody_else_is_no_refusal(self):
        # The VM was read before, its VMI after that restart was asked for.
        machine = self.machine('Manual', GOING)
        fetch = machine.fetch

        def fetch_more():
            if machine.looks > 0:
                machine.vm['status']['stateChangeRequests'] = [
                    fakes.STOP, fakes.START]
            return fetch()

        machine.fetch = fetch_more
        reset.reset(machine, R.GRACEFUL_RESTART)
        self.assertEqual([], asked(machine))

    def test_lost_answer_of_a_start(self):
        machine = self.machine('Manual', GONE, faults=[self.lost()])

        def start(machine):
            machine.vm['status']['stateChangeRequests'] = [fakes.START]

        machine.effects['start'] = start
        reset.reset(machine, R.ON)
        self.assertEqual(['start'], asked(machine))

    def test_lost_answer_of_a_stop(self):
        for strategy in ('Always', 'Manual'):
            machine = self.machine(strategy)
            machine.faults = [None, self.lost()] if strategy == 'Always' else [
                self.lost()]

            def stop(machine):
                halt(machine)
                machine.vmi['spec']['terminationGracePeriodSeconds'] = 0

            machine.effects['stop'] = stop
            reset.reset(machine, R.FORCE_OFF)
            self.assertEqual(1, asked(machine).count('stop 0'))

    def test_each_write_survives_bad_moments(self):
        for fault in (errors.Conflict('x'), errors.TooManyRequests('x'),
                      errors.ServerError('stop/start already underway'),
                      errors.ConnectionLost('x', maybe_done=True)):
            for action, strategy, state, expected, *_ in TABLE:
                writes = [each for each in (expected or ())
                          if each != 'wait']
                if expected == REFUSED or not writes:
                    continue
                for before in range(len(writes)):
                    machine = self.machine(
                        strategy, state, faults=[None] * before + [fault])
                    reset.reset(machine, action)
                    self.assertEqual(expected, asked(machine))

    def test_gives_up_at_the_deadline(self):
        machine = self.machine('Manual', write_deadline=0.3)
        machine.faults = [errors.ServerError('x')] * 50
        self.assertRaises(errors.Unavailable, reset.reset, machine,
                          R.FORCE_OFF)

    def test_on_gives_up_waiting_for_the_end(self):
        machine = self.machine('Manual', GOING)
        machine.on_wait = []
        e = self.assertRaises(errors.Unavailable, reset.reset, machine,
                              R.ON)
        self.assertIn('VMI to end', str(e))
        self.assertTrue(e.retry_after)

    def test_refusals_are_told_at_once(self):
        for refusal in (errors.AccessDenied('x'), errors.Rejected('x')):
            machine = self.machine('Manual', faults=[refusal])
            self.assertRaises(type(refusal), reset.reset, machine,
                              R.FORCE_OFF)
            self.assertEqual(1, machine.looks)

    def test_pause_that_a_probe_forbids_is_no_lack_of_rights(self):
        machine = self.machine('Manual', faults=[errors.AccessDenied(
            'Pausing VMIs with a non-GuestAgentPing LivenessProbe is not '
            'supported')])
        self.assertRaises(errors.Rejected, reset.reset, machine, R.PAUSE)
        machine = self.machine('Manual', faults=[errors.AccessDenied('x')])
        self.assertRaises(errors.AccessDenied, reset.reset, machine,
                          R.PAUSE)

    def test_restart_whose_vm_was_stopped_meanwhile(self):
        machine = self.machine('Manual', faults=[errors.ServerError('x')])
        fetch = machine.fetch

        def fetch_stopped():
            if machine.looks > 0:
                machine.vmi = None
            return fetch()

        machine.fetch = fetch_stopped
        self.assertRaises(errors.WrongState, reset.reset, machine,
                          R.FORCE_RESTART)
