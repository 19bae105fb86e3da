# SPDX-License-Identifier: Apache-2.0
"""On and off.

Requests are made in an order in which each leaves a VM that is right, or that
the next BMC puts right, should this process be killed between two of them.
"""

import copy

from sushy_kubevirt.kubevirt import changes
from sushy_kubevirt.kubevirt import errors
from sushy_kubevirt.kubevirt import overrides
from sushy_kubevirt.kubevirt import power
from sushy_kubevirt.kubevirt import resources
from sushy_kubevirt.kubevirt import runstrategy
from sushy_kubevirt.kubevirt import steps


def on(machine):
    """Switch a machine on, after what it does now; wake a paused one.

    :param machine: a `machine.Machine`
    :raises: `errors.WrongState` for a VM that is being deleted or received,
        `errors.Unavailable` if it does not end within the write deadline
    """
    steps.through(machine, lambda vm, vmi: _on_step(machine, vm, vmi))


def _on_step(machine, vm, vmi):
    if runstrategy.deleted(vm):
        raise errors.WrongState(
            '%s is being deleted' % machine.qualified_name)
    state = power.state(vm, vmi)
    if runstrategy.of(vm) == runstrategy.WAIT_AS_RECEIVER:
        if state is power.PowerState.ON:
            return None
        raise steps.receiver(machine)
    if state is power.PowerState.PAUSED:
        machine.call('unpause', resource=resources.VMI)
        return None
    if (runstrategy.starting(vm, vmi)
            and not runstrategy.starting_once(vm, vmi)):
        return None         # it comes up, after what it does now
    if not runstrategy.living(vmi):
        return _start(machine, vm, vmi)
    if runstrategy.stopping(vm, vmi):
        # KubeVirt takes a start only when the VMI is gone.
        return steps.gone(vmi)
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
            return steps.gone(vmi)
        if not runstrategy.by_running(vm):
            vm = _unhalt(machine, vm)
            if runstrategy.of(vm) not in runstrategy.STAYS_DOWN:
                return None
    elif overrides.ends_at_reboot(vm):
        keep_up(machine, vm, strategy)
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


def keep_up(machine, vm, strategy):
    """Let KubeVirt start a VM again after its one-time boot.

    Its guest's reboot ends that boot's VMI, and under its own strategy the
    VM would stay off then. The `keeper` brings the strategy back.
    """
    edited = copy.deepcopy(vm)
    runstrategy.remember(edited, strategy)
    edited['spec']['runStrategy'] = runstrategy.ALWAYS
    changes.send(machine, vm, edited)


def force_off(machine):
    """Pull the plug, of a machine that is shutting down too.

    :raises: `errors.WrongState` for a VM that is being received
    """
    steps.through(machine, lambda vm, vmi: _off_step(machine, vm, vmi, True))


def shut_down(machine):
    """Ask the guest to shut down, within its own grace period.

    :raises: `errors.WrongState` for a VM that is being received
    """
    steps.through(machine, lambda vm, vmi: _off_step(machine, vm, vmi, False))


def _off_step(machine, vm, vmi, force):
    if runstrategy.of(vm) == runstrategy.WAIT_AS_RECEIVER:
        if vmi is None:
            return None
        raise steps.receiver(machine)
    if not runstrategy.living(vmi):
        if _call_off(machine, vm, vmi):
            # KubeVirt may have met the request in that moment.
            return steps.Awaited('another look', lambda vm, vmi: True)
        return None
    if (runstrategy.stopping(vm, vmi) and not runstrategy.starting(vm, vmi)
            and (not force or grace(vmi) == 0)):
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
        return vm, steps.Awaited(
            'KubeVirt to take its run strategy in',
            lambda vm, vmi: vmi is None or runstrategy.observed(vm))
    if (strategy in runstrategy.STAYS_DOWN
            and not runstrategy.vmi_seen(vm)):
        return vm, steps.vmi_seen()
    return vm, None


def _call_off(machine, vm, vmi):
    """Stop KubeVirt from starting a VM that has no living VMI.

    :returns: whether a start had been requested
    """
    requested = runstrategy.start_requested(vm)
    if requested:
        # A Halted VM with such a request would start too.
        vm = _drop_requests(machine, vm)
    if not runstrategy.starting(vm, vmi) or runstrategy.deleted(vm):
        return requested
    if runstrategy.by_running(vm):
        machine.call('stop')
        return requested
    edited = copy.deepcopy(vm)
    strategy = runstrategy.of(vm)
    remembered, _ = runstrategy.remembered(vm)
    runstrategy.remember(edited, remembered if strategy == runstrategy.ALWAYS
                         and remembered else strategy)
    edited['spec']['runStrategy'] = runstrategy.HALTED
    # Strictly: a start that is requested meanwhile would win over Halted.
    changes.send(machine, vm, edited, strict=True)
    return requested


def _drop_requests(machine, vm):
    # No action of KubeVirt takes a start back.
    return machine.patch_status([
        {'op': 'remove', 'path': '/status/stateChangeRequests'}], vm)


def grace(vmi):
    """:returns: seconds a VMI has to end in; None for KubeVirt's default"""
    return vmi['spec'].get('terminationGracePeriodSeconds')
