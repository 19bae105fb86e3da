# SPDX-License-Identifier: Apache-2.0
"""What a BMC can do to a machine's power.

Each action is a step, repeated through bad moments (`retry`), that looks at
the VM and its VMI first and makes at most a few requests. The looking is what
keeps it from acting twice: a restart is about one VMI, by its uid, and when
that one is gone or on its way the restart is done, whoever's answer got lost.
Where KubeVirt has to finish one thing before the next can be asked for, the
step says what to wait for.

Requests are made in an order in which each leaves a VM that is right, or that
the next BMC puts right, should this process be killed between two of them.

Words and states are in `power`, what KubeVirt does by itself in `runstrategy`.
"""

import copy
import logging
import time

from sushy_kubevirt.kubevirt import changes
from sushy_kubevirt.kubevirt import errors
from sushy_kubevirt.kubevirt import keeper
from sushy_kubevirt.kubevirt import overrides
from sushy_kubevirt.kubevirt import power
from sushy_kubevirt.kubevirt import resources
from sushy_kubevirt.kubevirt import runstrategy

LOG = logging.getLogger(__name__)

#: virt-api shortens the grace period to this before a forced restart.
_RESTARTED_AT_ONCE = 1

#: How long a caller waits to read back a pause, which the node reports.
_PAUSE_SECONDS = 3.0


def reset(machine, reset_type):
    """Change a machine's power.

    :param machine: a `machine.Machine`
    :param reset_type: a `power.ResetType`
    :raises: `errors.WrongState` where the present state forbids it,
        `errors.Unsupported` for a diagnostic interrupt
    """
    action = _ACTIONS.get(reset_type)
    if action is None:
        raise errors.Unsupported(
            'KubeVirt cannot do %s to a VM' % reset_type.value)
    LOG.info('%s of %s', reset_type.value, machine.qualified_name)
    action(machine)


# On

def _on(machine):
    _through(machine, lambda vm, vmi: _on_step(machine, vm, vmi))


def _on_step(machine, vm, vmi):
    if runstrategy.deleted(vm):
        raise errors.WrongState(
            '%s is being deleted' % machine.qualified_name)
    if runstrategy.of(vm) == runstrategy.WAIT_AS_RECEIVER:
        raise _receiver(machine)
    state = power.state(vm, vmi)
    if state is power.PowerState.PAUSED:
        machine.call('unpause', resource=resources.VMI)
        return None
    if runstrategy.starting(vm, vmi):
        return None         # it comes up, after what it does now
    if not runstrategy.living(vmi):
        return _start(machine, vm, vmi)
    if runstrategy.stopping(vm, vmi):
        # KubeVirt takes a start only when the VMI is gone.
        return _gone(vmi)
    return None


def _start(machine, vm, vmi):
    """Start a VM that is off: no VMI, or one that has ended."""
    strategy = runstrategy.of(vm)
    if strategy == runstrategy.ONCE:
        # It keeps its ended VMI; without, it makes another.
        machine.delete_vmi(vmi['metadata']['uid'])
        return None
    if strategy == runstrategy.HALTED:
        if vmi is not None:
            return _gone(vmi)
        if not runstrategy.by_running(vm):
            vm = _unhalt(machine, vm)
            if runstrategy.starting(vm, None):
                return None
    elif overrides.ends_at_reboot(vm):
        _keep_up(machine, vm, strategy)
        return None
    machine.call('start')
    return None


def _unhalt(machine, vm):
    """Give a Halted VM the strategy it is to run under."""
    edited = copy.deepcopy(vm)
    strategy = (runstrategy.remembered(vm)[0]
                or machine.options.run_strategy)
    runstrategy.forget(edited)
    if (strategy in runstrategy.STAYS_DOWN
            and overrides.ends_at_reboot(vm)):
        runstrategy.remember(edited, strategy)
        strategy = runstrategy.ALWAYS
    edited['spec']['runStrategy'] = strategy
    return changes.send(machine, vm, edited)


def _keep_up(machine, vm, strategy):
    """Let KubeVirt start a VM again after its one-time boot.

    Its guest's reboot ends that boot's VMI, and under its own strategy the
    VM would stay off then. The `keeper` brings the strategy back.
    """
    edited = copy.deepcopy(vm)
    runstrategy.remember(edited, strategy)
    edited['spec']['runStrategy'] = runstrategy.ALWAYS
    changes.send(machine, vm, edited)


# Off

def _force_off(machine):
    _through(machine, lambda vm, vmi: _off_step(machine, vm, vmi, True))


def _shut_down(machine):
    _through(machine, lambda vm, vmi: _off_step(machine, vm, vmi, False))


def _off_step(machine, vm, vmi, force):
    if runstrategy.of(vm) == runstrategy.WAIT_AS_RECEIVER:
        if vmi is None:
            return None
        raise _receiver(machine)
    if not runstrategy.living(vmi):
        _call_off(machine, vm, vmi)
        return None
    if (runstrategy.stopping(vm, vmi) and not runstrategy.starting(vm, vmi)
            and (not force or _grace(vmi) == 0)):
        return None
    vm, awaited = _ready_to_stop(machine, vm, vmi)
    if awaited is not None:
        return awaited
    if (runstrategy.start_requested(vm)
            and runstrategy.of(vm) not in runstrategy.STAYS_DOWN):
        # The second half of a restart, which a stop leaves under these.
        _drop_requests(machine, vm)
    # Pulling the plug shortens the grace period of a stop under way.
    machine.call('stop', {'gracePeriod': 0} if force else None)
    return None


def _ready_to_stop(machine, vm, vmi):
    """See to it that a stop loses nothing that is to come back.

    :returns: (the VM as it is now, what is to be waited for before the stop
        or None)
    """
    strategy = runstrategy.of(vm)
    remembered, about = runstrategy.remembered(vm)
    uid = vmi['metadata']['uid']
    edited = copy.deepcopy(vm)
    overrides.save(edited, vmi)
    if strategy in runstrategy.LOST_BY_STOP and not runstrategy.by_running(vm):
        if (strategy == runstrategy.ALWAYS
                and remembered not in (None, runstrategy.ALWAYS)):
            # It was kept up for its one-time boot, which ends here. That
            # disturbs no VMI that is there.
            edited['spec']['runStrategy'] = strategy = remembered
            runstrategy.forget(edited)
        elif (remembered, about) != (strategy, uid):
            runstrategy.remember(edited, strategy, uid)
    vm = changes.send(machine, vm, edited)
    if (strategy == runstrategy.RERUN_ON_FAILURE
            and not runstrategy.observed(vm)):
        # Stopped before KubeVirt has seen its strategy, a VM would look like
        # one that has just been given it, and start.
        return vm, _Awaited('KubeVirt to take its run strategy in',
                            lambda vm, vmi: vmi is None
                            or runstrategy.observed(vm))
    return vm, None


def _call_off(machine, vm, vmi):
    """Stop KubeVirt from starting a VM that has no living VMI."""
    if runstrategy.start_requested(vm):
        # A Halted VM with such a request would start too.
        vm = _drop_requests(machine, vm)
    if not runstrategy.starting(vm, vmi) or runstrategy.deleted(vm):
        return
    if runstrategy.by_running(vm):
        machine.call('stop')
        return
    edited = copy.deepcopy(vm)
    strategy = runstrategy.of(vm)
    remembered, _ = runstrategy.remembered(vm)
    runstrategy.remember(edited, remembered if strategy == runstrategy.ALWAYS
                         and remembered else strategy)
    edited['spec']['runStrategy'] = runstrategy.HALTED
    # Strictly: a start that is requested meanwhile would win over Halted.
    changes.send(machine, vm, edited, strict=True)


def _drop_requests(machine, vm):
    # No action of KubeVirt takes a start back.
    return machine.patch_status([
        {'op': 'remove', 'path': '/status/stateChangeRequests'}], vm)


def _grace(vmi):
    return vmi['spec'].get('terminationGracePeriodSeconds')


# Off and on

def _restart(machine):
    _begin_anew(machine, True)


def _restart_gracefully(machine):
    _begin_anew(machine, False)


def _begin_anew(machine, force):
    restart = _Restart(machine, force)
    _through(machine, restart.step)
    if restart.plug:
        _force_off(machine)
        _on(machine)
    elif restart.one_time:
        machine.write(lambda vm, vmi: _keep_up_restarted(machine, vm, vmi))


class _Restart:
    """The restart of the VMI that is there when it is first looked at.

    A VM and its VMI are two objects, read one after the other; in between
    somebody else's restart may have taken one of them further. So what calls
    for a refusal is looked at twice.
    """

    def __init__(self, machine, force):
        self._machine = machine
        self._force = force
        self._uid = None
        self._doubted = False
        #: Whether it takes pulling the plug, and switching on again.
        self.plug = False
        #: Whether a one-time boot begins, which its guest's reboot ends.
        self.one_time = False

    def step(self, vm, vmi):
        uid = vmi['metadata']['uid'] if runstrategy.living(vmi) else None
        coming = uid is None and runstrategy.starting(vm, vmi)
        if self._uid not in (None, uid) and (uid or coming):
            return          # it has been done
        if power.problem(vm, vmi) or uid is None and not coming:
            self._refuse(_off(self._machine, vm))
        if coming:
            return          # the VMI on its way is as new as one could be
        if runstrategy.of(vm) == runstrategy.WAIT_AS_RECEIVER:
            raise _receiver(self._machine)
        if runstrategy.stopping(vm, vmi):
            self._hurry(vm, vmi)
            return
        self._uid = uid
        self.one_time = overrides.ends_at_reboot(vm)
        self._restart(vm, vmi)

    def _hurry(self, vm, vmi):
        """Restart what is on its way down."""
        if runstrategy.starting(vm, vmi):
            # A restart is under way. It may hang, and be forced.
            grace = _grace(vmi)
            self.plug = (self._force and self._uid is None and (
                grace is None or grace > _RESTARTED_AT_ONCE))
        elif self._force and self._uid is None:
            # The reset button of a machine that hangs on its way down.
            self.plug = True
        else:
            self._refuse(errors.WrongState(
                '%s is shutting down and cannot be restarted'
                % self._machine.qualified_name))

    def _restart(self, vm, vmi):
        edited = copy.deepcopy(vm)
        overrides.save(edited, vmi)
        if runstrategy.of(vm) == runstrategy.ONCE:
            # Which KubeVirt does not restart. The keeper brings Once back.
            runstrategy.remember(edited, runstrategy.ONCE, self._uid)
            edited['spec']['runStrategy'] = runstrategy.ALWAYS
        changes.send(self._machine, vm, edited)
        self._machine.call(
            'restart', {'gracePeriodSeconds': 0} if self._force else None)

    def _refuse(self, error):
        if self._doubted:
            raise error
        self._doubted = True
        raise errors.Conflict(str(error))


def _keep_up_restarted(machine, vm, vmi):
    # After the restart, not before it: a VM under Always whose restart never
    # came would come back after its guest shut down. Should this never
    # come, the keeper does it.
    strategy = runstrategy.of(vm)
    if (strategy in runstrategy.STAYS_DOWN and overrides.ends_at_reboot(vm)
            and runstrategy.starting(vm, vmi)):
        _keep_up(machine, vm, strategy)


def _push_button(machine):
    vm, vmi = machine.write(lambda vm, vmi: (vm, vmi))
    state = power.state(vm, vmi)
    if state is power.PowerState.OFF:
        _on(machine)
    elif state is not power.PowerState.POWERING_OFF:
        _shut_down(machine)


# Pause and resume

def _pause(machine):
    _stand(machine, power.PowerState.ON, 'pause', power.PowerState.PAUSED)


def _resume(machine):
    _stand(machine, power.PowerState.PAUSED, 'unpause', power.PowerState.ON)


def _stand(machine, before, action, after):
    def step(vm, vmi):
        state = power.state(vm, vmi)
        if state is after:
            return
        if state is not before:
            raise errors.WrongState(
                '%s is %s; only a machine that is %s can %s' % (
                    machine.qualified_name, state.value, before.value,
                    'be paused' if action == 'pause' else 'be resumed'))
        try:
            machine.call(action, resource=resources.VMI)
        except errors.AccessDenied as e:
            # virt-api says Forbidden to a VMI with such a probe too.
            if 'LivenessProbe' in str(e):
                raise errors.Rejected(str(e)) from None
            raise

    machine.write(step)
    machine.wait(lambda vm, vmi: power.state(vm, vmi) is not before,
                 _PAUSE_SECONDS)


# Waiting

class _Awaited:
    """Something KubeVirt has to finish first.

    :param what: its name
    :param met: function of (vm, vmi)
    """

    def __init__(self, what, met):
        self.what = what
        self.met = met


def _gone(vmi):
    uid = vmi['metadata']['uid']
    return _Awaited('the VMI to end', lambda vm, now: (
        now is None or now['metadata']['uid'] != uid))


def _through(machine, step):
    """Repeat a step until it has nothing left to wait for."""
    def put_right_first(vm, vmi):
        # The next VMI is not to have an override that is used up, only
        # because the keeper is slow today.
        edited = keeper.put_right(vm, vmi)
        if edited is not None:
            vm = changes.send(machine, vm, edited)
        return step(vm, vmi)

    deadline = time.monotonic() + machine.options.write_deadline
    while True:
        awaited = machine.write(put_right_first)
        if awaited is None:
            return
        left = deadline - time.monotonic()
        if left <= 0 or not machine.wait(awaited.met, left):
            raise errors.Unavailable(
                '%s still waits for %s; try again later'
                % (machine.qualified_name, awaited.what), retry_after=5)


# Refusals

def _off(machine, vm):
    said = (vm.get('status') or {}).get('printableStatus') or 'nothing'
    return errors.WrongState(
        '%s is off (KubeVirt says %s) and cannot be restarted; switch it on'
        % (machine.qualified_name, said))


def _receiver(machine):
    return errors.WrongState(
        '%s is the target of a migration; its power is decided at the source'
        % machine.qualified_name)


_ACTIONS = {
    power.ResetType.ON: _on,
    power.ResetType.FORCE_ON: _on,
    power.ResetType.FORCE_OFF: _force_off,
    power.ResetType.GRACEFUL_SHUTDOWN: _shut_down,
    power.ResetType.FORCE_RESTART: _restart,
    power.ResetType.GRACEFUL_RESTART: _restart_gracefully,
    power.ResetType.POWER_CYCLE: _restart,
    power.ResetType.PUSH_POWER_BUTTON: _push_button,
    power.ResetType.PAUSE: _pause,
    power.ResetType.RESUME: _resume,
}
