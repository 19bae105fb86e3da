# SPDX-License-Identifier: Apache-2.0
"""Redfish's PowerRestorePolicy, mapped to KubeVirt's run strategies.

A power failure of a VM is the failure of its VMI: the node is lost, QEMU
crashes, the VMI is deleted. The run strategy determines what follows:

===============  ==================  =======================================
Policy           Run strategy        After its VMI failed
===============  ==================  =======================================
``AlwaysOn``     ``Always``          a new VMI, even if the guest had shut
                                     itself down
``LastState``    ``RerunOnFailure``  a new VMI; a guest that shut itself
                                     down stays off
``AlwaysOff``    ``Manual``          none until a start is requested
===============  ==================  =======================================

Setting a policy starts and stops nothing. As a change to ``Always`` or
``RerunOnFailure`` would start a machine that is off, it is set to ``Halted``
instead, and an annotation saves the run strategy for the next power-on (see
`bmc_annotations`, ``run-strategy``). During a one-time boot that runs under
``Always`` (see `one_time_boot`) the annotation saves the strategy for
afterwards.
"""

from __future__ import annotations

import copy
import enum
import typing

from sushy_kubevirt.machine import bmc_annotations
from sushy_kubevirt.machine import boot_overrides
from sushy_kubevirt.machine import changes
from sushy_kubevirt.machine import power_action
from sushy_kubevirt.machine import run_strategy
from sushy_kubevirt.machine import vm_state

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import objects
    from sushy_kubevirt.machine import options
    from sushy_kubevirt.machine import protocols


class Policy(enum.Enum):
    """Redfish's ``PowerRestorePolicy``."""

    ALWAYS_ON = 'AlwaysOn'
    """Power on after a failure, whatever the state was before."""

    ALWAYS_OFF = 'AlwaysOff'
    """Stay off after a failure."""

    LAST_STATE = 'LastState'
    """Restore the state before the failure."""


_STRATEGY = {
    Policy.ALWAYS_ON: run_strategy.ALWAYS,
    Policy.LAST_STATE: run_strategy.RERUN_ON_FAILURE,
    Policy.ALWAYS_OFF: run_strategy.MANUAL,
}
_POLICY = {strategy: policy for policy, strategy in _STRATEGY.items()}
# A VMI that failed is not replaced.
_POLICY[run_strategy.ONCE] = Policy.ALWAYS_OFF


def of(vm: objects.VirtualMachine, options: options.Options) -> Policy | None:
    """Return the policy of a machine.

    :returns: None for the target of a migration, where the
        source decides
    """
    pending = run_strategy.restarting(vm)
    # The strategy to restore; None for ``running: true``, which is Always.
    strategy = (pending['runStrategy'] or run_strategy.ALWAYS
                if pending else run_strategy.of(vm))
    remembered = run_strategy.saved(vm).strategy
    if strategy == run_strategy.HALTED:
        # The strategy of the next power-on.
        strategy = (
            run_strategy.ALWAYS if run_strategy.uses_running_field(vm)
            else run_strategy.of_next_start(vm, options.run_strategy))
    elif strategy == run_strategy.ALWAYS and remembered is not None:
        strategy = remembered
    return _POLICY.get(strategy)


def change(machine: protocols.Machine, policy: Policy) -> changes.Change:
    """Return a change that sets the policy, see `changes`. It may wait.

    :raises: when it is called, `errors.WrongState` for the target of a
        migration
    """
    return lambda state: _change(machine, state, _STRATEGY[policy])


def _change(machine: protocols.Machine, state: vm_state.VmState,
            strategy_to_set: str) -> power_action.WaitCondition | None:
    vm = state.vm
    strategy = run_strategy.of(vm)
    if strategy == run_strategy.WAIT_AS_RECEIVER:
        raise power_action.migration_target_error(machine)
    if run_strategy.restarting(vm):
        return power_action.WaitCondition(
            'it to restart',
            lambda state: not run_strategy.restarting(state.vm))
    before = copy.deepcopy(vm)
    if vm_state.is_active(state.vmi) and not state.stopping():
        _while_on(vm, state.vmi, strategy_to_set)
    elif not state.starting():
        _while_off(state, strategy_to_set)
    elif (strategy_to_set != strategy
            and strategy_to_set in run_strategy.OFF_AFTER_SHUTDOWN
            and run_strategy.saved(vm).strategy != strategy_to_set):
        # KubeVirt might not complete the start under the new strategy.
        return power_action.WaitCondition('it to start', lambda state: (
            vm_state.is_active(state.vmi) and not state.stopping()
            or not state.starting()))
    elif strategy_to_set == run_strategy.ALWAYS:
        _set_strategy(vm, strategy_to_set)
    run_strategy.tell_harvester(before, vm)
    return None


def _while_on(vm: objects.VirtualMachine, vmi: objects.VirtualMachineInstance,
              strategy_to_set: str) -> None:
    remembered, saved_for = run_strategy.saved(vm)
    waits = run_strategy.of(vm) == run_strategy.ALWAYS and remembered not in (
        None, run_strategy.ALWAYS)
    if strategy_to_set in run_strategy.OFF_AFTER_SHUTDOWN and (
            waits or _ends_at_reboot(vmi)):
        _set_strategy(vm, run_strategy.ALWAYS)
        run_strategy.save(
            vm, strategy_to_set,
            saved_for if waits else vmi['metadata']['uid'])
    else:
        _set_strategy(vm, strategy_to_set)


def _ends_at_reboot(vmi: objects.VirtualMachineInstance) -> bool:
    # The VMI of a one-time boot, which KubeVirt has to replace at a reboot.
    domain = vmi['spec'].get('domain') or {}
    return (bmc_annotations.boot_once_id(vmi) is not None
            and domain.get('rebootPolicy') == boot_overrides.TERMINATE)


def _while_off(state: vm_state.VmState, strategy_to_set: str) -> None:
    vm = state.vm
    strategy = run_strategy.of(vm)
    ending = vm_state.is_active(state.vmi)
    if strategy == strategy_to_set or (
            strategy_to_set == run_strategy.MANUAL and not ending):
        # Not Always here: a VM under Always is not off.
        _set_strategy(vm, strategy_to_set)
    else:
        _set_strategy(vm, run_strategy.HALTED)
        run_strategy.save(vm, strategy_to_set)


def _set_strategy(vm: objects.VirtualMachine, strategy: str) -> None:
    vm['spec'].pop('running', None)
    vm['spec']['runStrategy'] = strategy
    run_strategy.clear_saved(vm)
