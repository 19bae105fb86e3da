# SPDX-License-Identifier: Apache-2.0
"""The power actions on, force off and shut down.

The order of the requests makes them safe against the end of this process:
after each of them the VM is consistent, or the one-time boot reconciler of
the next BMC process can repair it.
"""

from __future__ import annotations

import copy
import functools
import logging
import typing

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import json_patch
from sushy_kubevirt.kube import retry
from sushy_kubevirt.machine import boot_overrides
from sushy_kubevirt.machine import one_time_boot
from sushy_kubevirt.machine import power_action
from sushy_kubevirt.machine import power_state
from sushy_kubevirt.machine import run_strategy
from sushy_kubevirt.machine import vm_state

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import objects
    from sushy_kubevirt.machine import protocols

LOG = logging.getLogger(__name__)

#: Longest wait, in seconds, for the VMI of a start that KubeVirt has begun.
_BEGUN_SECONDS = 0.5

#: Longest wait, in seconds, for virt-api to resume a guest that is asked to
#: shut down.
_RESUME_SECONDS = 3.0


def on(machine: protocols.Machine) -> None:
    """Power on a machine; resume a paused one.

    A machine that is shutting down is started when its VMI has ended.

    :raises: `errors.WrongState` for a VM that is being deleted, is the target
        of a migration, or needs `power_state.recovery_required`;
        `errors.Unavailable` if a VMI that is shutting down does not end
        within the write deadline
    """
    power_action.run(machine, functools.partial(_on_step, machine),
                     functools.partial(_start_cached, machine))


def _start_cached(machine: protocols.Machine, state: vm_state.VmState
                  ) -> tuple[None] | None:
    """Start a VM that is off in the cache, see `machine.Machine.write`.

    All depends on the VM being as it was cached: then it has no VMI
    (`vm_state.VmState.is_idle`). The patch that replaces ``Halted`` is refused
    otherwise. KubeVirt's ``start`` has no guard, and sets ``Always`` if the
    VM has become ``Halted``. So the VM is read before.
    """
    vm = state.vm
    if (not state.is_idle()
            or power_state.recovery_required(vm)
            or one_time_boot.desired_vm(state) is not None):
        return None
    if (run_strategy.of(vm) != run_strategy.HALTED
            or run_strategy.uses_running_field(vm)):
        if (machine.fetch_vm()['metadata']['resourceVersion']
                != vm['metadata']['resourceVersion']):
            return None
    _start(machine, state)
    return (None,)


def _on_step(machine: protocols.Machine, state: vm_state.VmState
             ) -> power_action.WaitCondition | None:
    vm, vmi = state.vm, state.vmi
    if vm_state.is_deleting(vm):
        raise errors.WrongState(
            f'{machine.qualified_name} is being deleted')
    power = power_state.of(state)
    if run_strategy.of(vm) == run_strategy.WAIT_AS_RECEIVER:
        if power is power_state.PowerState.ON:
            return None
        raise power_action.migration_target_error(machine)
    recovery = power_state.recovery_required(vm)
    if recovery is not None and not vm_state.is_active(vmi):
        raise errors.WrongState(
            f'{machine.qualified_name} cannot be started: {recovery.message}')
    if power is power_state.PowerState.PAUSED:
        machine.call('unpause', resource=api_resources.VMI)
        return None
    if state.starting() and not state.starting_without_retry():
        # KubeVirt starts it without a request.
        return _end_back_off(machine, state)
    if not vm_state.is_active(vmi):
        return _start(machine, state)
    if state.stopping():
        # KubeVirt accepts a start only when the VMI is gone.
        return power_action.vmi_stopped(vmi)
    return None


def _end_back_off(machine: protocols.Machine, state: vm_state.VmState
                  ) -> power_action.WaitCondition | None:
    """Let KubeVirt start a VM at once that failed to start before.

    virt-controller delays the start until the time in ``startFailure``
    (startFailureBackoffTimeLeft in pkg/virt-controller/watch/vm/vm.go), and
    sets that field again while it sees the failed VMI.
    """
    vm, vmi = state.vm, state.vmi
    if (not vm_state.is_active(vmi)
            and (vm.get('status') or {}).get('startFailure')):
        if vmi is not None:
            return power_action.vmi_ended(vmi)
        machine.patch_status([
            {'op': 'remove', 'path': '/status/startFailure'}], vm)
    return None


def _start(machine: protocols.Machine, state: vm_state.VmState
           ) -> power_action.WaitCondition | None:
    """Start a VM that is off: no VMI, or one that has ended."""
    vm, vmi = state.vm, state.vmi
    strategy = run_strategy.of(vm)
    if strategy == run_strategy.ONCE:
        # KubeVirt keeps the ended VMI and creates another if it is deleted.
        # Without a VMI it starts the VM by itself.
        assert vmi is not None
        machine.delete_vmi(vmi['metadata']['uid'])
        return None
    if vmi is not None and (
            strategy == run_strategy.HALTED
            or strategy == run_strategy.RERUN_ON_FAILURE
            and vm_state.phase(vmi) == 'Failed'):
        # KubeVirt does not start it before.
        return power_action.vmi_ended(vmi)
    if strategy == run_strategy.HALTED:
        if not run_strategy.uses_running_field(vm):
            # Strict, as the VM may come from the cache.
            vm = json_patch.send(machine, vm, _unhalted(
                vm, machine.options.run_strategy), strict=True)
            if run_strategy.of(vm) in run_strategy.OFF_AFTER_SHUTDOWN:
                _request_start(machine)
            return None
    elif boot_overrides.ends_at_reboot(vm):
        run_under_always(machine, vm, strategy)
        return None
    machine.call('start')
    return None


def _request_start(machine: protocols.Machine) -> None:
    """Request the start of a VM whose ``Halted`` was just replaced."""
    try:
        machine.call('start')
    except errors.Conflict:
        # Refused if KubeVirt has created the VMI because of the new strategy.
        if not machine.wait(
                lambda state: (vm_state.is_active(state.vmi)
                               and not state.stopping()),
                _BEGUN_SECONDS):
            raise


def _unhalted(vm: objects.VirtualMachine, default: str
              ) -> objects.VirtualMachine:
    """Return a copy with the run strategy to start with for ``Halted``.

    :param default: see `run_strategy.of_next_start`
    """
    edited = copy.deepcopy(vm)
    strategy = run_strategy.of_next_start(vm, default)
    run_strategy.clear_saved(edited)
    if (strategy in run_strategy.OFF_AFTER_SHUTDOWN
            and boot_overrides.ends_at_reboot(vm)):
        run_strategy.save(edited, strategy)
        strategy = run_strategy.ALWAYS
    edited['spec']['runStrategy'] = strategy
    run_strategy.tell_harvester(vm, edited)
    return edited


def run_under_always(machine: protocols.Machine, vm: objects.VirtualMachine,
                     strategy: str) -> None:
    """Set ``Always`` for a one-time boot and save the VM's own strategy.

    A reboot of the guest ends the VMI of the one-time boot; under its own
    strategy the VM would then stay off. `one_time_boot` restores the
    strategy.

    :param strategy: the run strategy to restore
    """
    edited = copy.deepcopy(vm)
    run_strategy.save(edited, strategy)
    edited['spec']['runStrategy'] = run_strategy.ALWAYS
    json_patch.send(machine, vm, edited)


def force_off(machine: protocols.Machine) -> None:
    """Stop a machine with grace period 0, also while it is shutting down.

    :raises: `errors.WrongState` for the target of a migration,
        `errors.Unavailable` if KubeVirt does not confirm within the write
        deadline that it has cancelled a start
    """
    power_action.run(machine, _Off(machine, True).step)


def shut_down(machine: protocols.Machine) -> None:
    """Ask the guest to shut down within its own grace period.

    A paused guest is resumed for it.

    :raises: see `force_off`
    """
    power_action.run(machine, _Off(machine, False).step)


class _Off:
    """A stop, or the cancellation of a start."""

    def __init__(self, machine: protocols.Machine, force: bool) -> None:
        self._machine = machine
        self._force = force
        self._unconfirmed = False

    def step(self, state: vm_state.VmState
             ) -> power_action.WaitCondition | None:
        machine = self._machine
        if run_strategy.start_pending(state.vm):
            edited = copy.deepcopy(state.vm)
            run_strategy.cancel_pending_start(edited)
            state = state.with_vm(json_patch.send(machine, state.vm, edited))
        vm, vmi = state.vm, state.vmi
        if run_strategy.of(vm) == run_strategy.WAIT_AS_RECEIVER:
            if vmi is None:
                return None
            raise power_action.migration_target_error(machine)
        if not vm_state.is_active(vmi):
            return self._cancel_start(state)
        if (state.stopping() and not state.starting()
                and (not self._force or vm_state.grace_period(vmi) == 0)):
            self._resume(vmi)
            return None
        vm, awaited = _prepare_stop(machine, vm, vmi)
        if awaited is not None:
            return awaited
        if (vm_state.start_requested(vm)
                and run_strategy.of(vm)
                not in run_strategy.OFF_AFTER_SHUTDOWN):
            # The start of a pending restart, which a stop does not remove
            # under these strategies.
            _replace_requests(machine, vm)
        # A forced stop shortens the grace period of a stop in progress.
        machine.call('stop', {'gracePeriod': 0} if self._force else None)
        self._resume(vmi)
        return None

    def _resume(self, vmi: objects.VirtualMachineInstance | None) -> None:
        if not self._force:
            resume(self._machine, vmi)

    def _cancel_start(self, state: vm_state.VmState
                      ) -> power_action.WaitCondition | None:
        """Cancel the start of a VM that has no active VMI.

        KubeVirt may be creating a VMI for the start meanwhile. It removes the
        stop request that is written here when it has processed the VM as it
        is now, and after that creates none.

        :returns: the condition for that; None when there is nothing left to
            cancel
        """
        vm, machine = state.vm, self._machine
        starting = state.starting()
        if vm_state.start_requested(vm) or starting and not (
                self._unconfirmed or vm_state.stop_requested(vm)):
            # Before Halted, so that the machine is not Off in between. Also
            # a Halted VM with a start request would start, which KubeVirt has
            # no action to cancel.
            vm = _replace_requests(machine, vm)
        self._unconfirmed |= starting
        if state.with_vm(vm).starting():
            vm = _halt(machine, vm)
        if self._unconfirmed and not vm_state.stop_requested(vm):
            vm = _replace_requests(machine, vm)
        if not vm_state.stop_requested(vm):
            return None
        self._unconfirmed = False
        return power_action.WaitCondition(
            'KubeVirt to cancel its start',
            lambda state: (vm_state.is_active(state.vmi)
                           or not vm_state.stop_requested(state.vm)))


def _halt(machine: protocols.Machine, vm: objects.VirtualMachine
          ) -> objects.VirtualMachine:
    """Halt a VM without a VMI and save its run strategy."""
    edited = copy.deepcopy(vm)
    if not run_strategy.uses_running_field(vm):
        strategy = run_strategy.of(vm)
        remembered = run_strategy.saved(vm).strategy
        run_strategy.save(edited, remembered if remembered and strategy
                          == run_strategy.ALWAYS else strategy)
    run_strategy.halt(edited)
    # Strict, as a start requested in the meantime has priority over Halted.
    return json_patch.send(machine, vm, edited, strict=True)


def _replace_requests(machine: protocols.Machine, vm: objects.VirtualMachine
                      ) -> objects.VirtualMachine:
    """Replace all requests by a stop that applies to no VMI."""
    return machine.patch_status([{
        'op': 'add', 'path': '/status/stateChangeRequests',
        'value': [{'action': 'Stop'}]}], vm)


def _prepare_stop(machine: protocols.Machine, vm: objects.VirtualMachine,
                  vmi: objects.VirtualMachineInstance) -> tuple[
                      objects.VirtualMachine,
                      power_action.WaitCondition | None]:
    """Save the overrides and the run strategy that a stop would lose.

    :returns: (the VM as changed, the condition to meet before the stop)
    """
    strategy = run_strategy.of(vm)
    remembered, saved_for = run_strategy.saved(vm)
    uid = vmi['metadata']['uid']
    edited = copy.deepcopy(vm)
    boot_overrides.preserve_once(edited, vmi)
    if (strategy in run_strategy.LOST_BY_STOP
            and not run_strategy.uses_running_field(vm)):
        if (strategy == run_strategy.ALWAYS
                and remembered not in (None, run_strategy.ALWAYS)):
            # Always was set for the one-time boot, which ends here. The
            # change of strategy does not affect an existing VMI.
            edited['spec']['runStrategy'] = strategy = remembered
            run_strategy.clear_saved(edited)
        elif (remembered, saved_for) != (strategy, uid):
            run_strategy.save(edited, strategy, uid)
    vm = json_patch.send(machine, vm, edited)
    if (strategy == run_strategy.RERUN_ON_FAILURE
            and not vm_state.observed(vm)):
        # A VM stopped before KubeVirt has observed this strategy looks like
        # one that was just given it, and would be started.
        return vm, power_action.WaitCondition(
            'KubeVirt to observe its run strategy',
            lambda state: state.vmi is None or vm_state.observed(state.vm))
    if (strategy in run_strategy.OFF_AFTER_SHUTDOWN
            and not vm_state.vmi_seen(vm)):
        return vm, power_action.vmi_seen()
    return vm, None


def resume(machine: protocols.Machine,
           vmi: objects.VirtualMachineInstance | None) -> None:
    """Resume a paused guest that is being asked to shut down.

    A request to shut down fails while a guest is paused, its grace period
    does not begin, and the launcher ends it only after its own one, half a
    minute longer (SignalShutdownVMI in pkg/virt-launcher/virtwrap/manager.go,
    hasGracePeriodExpired in pkg/virt-handler/vm.go, KubeVirt 1.9).
    virt-handler repeats a request that failed. virt-api may refuse to resume
    the guest, for example during a snapshot; it is stopped nevertheless.
    """
    def step(state: vm_state.VmState) -> None:
        if _can_be_resumed(state.vmi):
            machine.call('unpause', resource=api_resources.VMI)

    if _can_be_resumed(vmi):
        try:
            retry.within(min(_RESUME_SECONDS, retry.limit()), machine.write,
                         step)
        except errors.MachineError as e:
            LOG.warning('%s is paused and cannot shut down before its grace '
                        'period ends: %s', machine.qualified_name, e)


def _can_be_resumed(vmi: objects.VirtualMachineInstance | None) -> bool:
    return (vmi is not None and vm_state.phase(vmi) == 'Running'
            and power_state.paused(vmi))
