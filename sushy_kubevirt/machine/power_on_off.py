# SPDX-License-Identifier: Apache-2.0
"""On and off.

Requests are made in an order in which each leaves a VM that is right, or that
the next BMC puts right, should this process be killed between two of them.
"""

import copy

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import json_patch
from sushy_kubevirt.machine import boot_overrides
from sushy_kubevirt.machine import power_action
from sushy_kubevirt.machine import power_state
from sushy_kubevirt.machine import run_strategy


def on(machine):
    """Switch a machine on, after what it does now; wake a paused one.

    :param machine: a `machine.Machine`
    :raises: `errors.WrongState` for a VM that is being deleted or received,
        `errors.Unavailable` if it does not end within the write deadline
    """
    power_action.run(machine, lambda vm, vmi: _on_step(machine, vm, vmi))


def _on_step(machine, vm, vmi):
    if run_strategy.is_deleting(vm):
        raise errors.WrongState(
            f'{machine.qualified_name} is being deleted')
    state = power_state.state(vm, vmi)
    if run_strategy.of(vm) == run_strategy.WAIT_AS_RECEIVER:
        if state is power_state.PowerState.ON:
            return None
        raise power_action.migration_target_error(machine)
    if state is power_state.PowerState.PAUSED:
        machine.call('unpause', resource=api_resources.VMI)
        return None
    if (run_strategy.starting(vm, vmi)
            and not run_strategy.starting_without_retry(vm, vmi)):
        return None         # it comes up, after what it does now
    if not run_strategy.is_active(vmi):
        return _start(machine, vm, vmi)
    if run_strategy.stopping(vm, vmi):
        # KubeVirt takes a start only when the VMI is gone.
        return power_action.vmi_ended(vmi)
    return None


def _start(machine, vm, vmi):
    """Start a VM that is off: no VMI, or one that has ended."""
    strategy = run_strategy.of(vm)
    if strategy == run_strategy.ONCE:
        # It keeps its ended VMI; without, it makes another.
        machine.delete_vmi(vmi['metadata']['uid'])
        return None
    if strategy == run_strategy.HALTED:
        if vmi is not None:
            return power_action.vmi_ended(vmi)
        if not run_strategy.uses_running_field(vm):
            vm = _unhalt(machine, vm)
            if run_strategy.of(vm) not in run_strategy.OFF_AFTER_SHUTDOWN:
                return None
    elif boot_overrides.ends_at_reboot(vm):
        run_under_always(machine, vm, strategy)
        return None
    machine.call('start')
    return None


def _unhalt(machine, vm):
    """Give a Halted VM the strategy it is to run under."""
    edited = copy.deepcopy(vm)
    strategy = (run_strategy.saved(vm)[0]
                or machine.options.run_strategy)
    run_strategy.clear_saved(edited)
    if (strategy in run_strategy.OFF_AFTER_SHUTDOWN
            and boot_overrides.ends_at_reboot(vm)):
        run_strategy.save(edited, strategy)
        strategy = run_strategy.ALWAYS
    edited['spec']['runStrategy'] = strategy
    return json_patch.send(machine, vm, edited)


def run_under_always(machine, vm, strategy):
    """Let KubeVirt start a VM again after its one-time boot.

    Its guest's reboot ends that boot's VMI, and under its own strategy the
    VM would stay off then. The `keeper` brings the strategy back.
    """
    edited = copy.deepcopy(vm)
    run_strategy.save(edited, strategy)
    edited['spec']['runStrategy'] = run_strategy.ALWAYS
    json_patch.send(machine, vm, edited)


def force_off(machine):
    """Pull the plug, of a machine that is shutting down too.

    :raises: `errors.WrongState` for a VM that is being received
    """
    power_action.run(
        machine, lambda vm, vmi: _off_step(
            machine, vm, vmi, True))


def shut_down(machine):
    """Ask the guest to shut down, within its own grace period.

    :raises: `errors.WrongState` for a VM that is being received
    """
    power_action.run(
        machine, lambda vm, vmi: _off_step(
            machine, vm, vmi, False))


def _off_step(machine, vm, vmi, force):
    if run_strategy.of(vm) == run_strategy.WAIT_AS_RECEIVER:
        if vmi is None:
            return None
        raise power_action.migration_target_error(machine)
    if not run_strategy.is_active(vmi):
        if _cancel_start(machine, vm, vmi):
            # KubeVirt may have met the request in that moment.
            return power_action.WaitCondition(
                'another look', lambda vm, vmi: True)
        return None
    if (run_strategy.stopping(vm, vmi) and not run_strategy.starting(vm, vmi)
            and (not force or grace_period(vmi) == 0)):
        return None
    vm, awaited = _prepare_stop(machine, vm, vmi)
    if awaited is not None:
        return awaited
    if (run_strategy.start_requested(vm)
            and run_strategy.of(vm) not in run_strategy.OFF_AFTER_SHUTDOWN):
        # The second half of a restart, which a stop leaves under these.
        _drop_requests(machine, vm)
    # Pulling the plug shortens the grace period of a stop under way.
    machine.call('stop', {'gracePeriod': 0} if force else None)
    return None


def _prepare_stop(machine, vm, vmi):
    """See to it that a stop loses nothing that is to come back.

    :returns: (the VM as it is now, what is to be waited for before the stop
        or None)
    """
    strategy = run_strategy.of(vm)
    remembered, about = run_strategy.saved(vm)
    uid = vmi['metadata']['uid']
    edited = copy.deepcopy(vm)
    boot_overrides.preserve_once(edited, vmi)
    if (
        strategy in run_strategy.LOST_BY_STOP
        and not run_strategy.uses_running_field(vm)
    ):
        if (strategy == run_strategy.ALWAYS
                and remembered not in (None, run_strategy.ALWAYS)):
            # It was kept up for its one-time boot, which ends here. That
            # disturbs no VMI that is there.
            edited['spec']['runStrategy'] = strategy = remembered
            run_strategy.clear_saved(edited)
        elif (remembered, about) != (strategy, uid):
            run_strategy.save(edited, strategy, uid)
    vm = json_patch.send(machine, vm, edited)
    if (strategy == run_strategy.RERUN_ON_FAILURE
            and not run_strategy.observed(vm)):
        # Stopped before KubeVirt has seen its strategy, a VM would look like
        # one that has just been given it, and start.
        return vm, power_action.WaitCondition(
            'KubeVirt to take its run strategy in',
            lambda vm, vmi: vmi is None or run_strategy.observed(vm))
    if (strategy in run_strategy.OFF_AFTER_SHUTDOWN
            and not run_strategy.vmi_seen(vm)):
        return vm, power_action.vmi_seen()
    return vm, None


def _cancel_start(machine, vm, vmi):
    """Stop KubeVirt from starting a VM that has no living VMI.

    :returns: whether a start had been requested
    """
    requested = run_strategy.start_requested(vm)
    if requested:
        # A Halted VM with such a request would start too.
        vm = _drop_requests(machine, vm)
    if not run_strategy.starting(vm, vmi) or run_strategy.is_deleting(vm):
        return requested
    if run_strategy.uses_running_field(vm):
        machine.call('stop')
        return requested
    edited = copy.deepcopy(vm)
    strategy = run_strategy.of(vm)
    remembered, _ = run_strategy.saved(vm)
    run_strategy.save(edited, remembered if strategy == run_strategy.ALWAYS
                      and remembered else strategy)
    edited['spec']['runStrategy'] = run_strategy.HALTED
    # Strictly: a start that is requested meanwhile would win over Halted.
    json_patch.send(machine, vm, edited, strict=True)
    return requested


def _drop_requests(machine, vm):
    # No action of KubeVirt takes a start back.
    return machine.patch_status([
        {'op': 'remove', 'path': '/status/stateChangeRequests'}], vm)


def grace_period(vmi):
    """:returns: seconds a VMI has to end in; None for KubeVirt's default"""
    return vmi['spec'].get('terminationGracePeriodSeconds')
