# SPDX-License-Identifier: Apache-2.0
"""What becomes of a machine whose power fails.

A VM's power fails when its VMI does: the node is lost, QEMU crashes, somebody
deletes the VMI. What KubeVirt does then is the run strategy's matter:

===============  ==================  =======================================
Policy           Run strategy        After its VMI failed
===============  ==================  =======================================
``AlwaysOn``     ``Always``          another one, even if the guest had shut
                                     itself down
``LastState``    ``RerunOnFailure``  another one; a guest that shut itself
                                     down stays off
``AlwaysOff``    ``Manual``          none, until somebody starts it
===============  ==================  =======================================

Setting a policy starts and stops nothing. A machine that is off would be
started by the change to ``Always`` or ``RerunOnFailure``; it is halted
instead and remembers what to run under when it is powered on (see
`annotations`, ``run-strategy``). In the boot of a one-time override KubeVirt
has to start the VM again (see `keeper`): the policy is remembered for
afterwards.
"""

import copy
import enum

from sushy_kubevirt.kube import json_patch
from sushy_kubevirt.machine import annotations
from sushy_kubevirt.machine import boot_overrides
from sushy_kubevirt.machine import power_action
from sushy_kubevirt.machine import run_strategy


class Policy(enum.Enum):
    """Redfish's ``PowerRestorePolicy``."""

    ALWAYS_ON = 'AlwaysOn'
    """It comes back whatever it was."""

    ALWAYS_OFF = 'AlwaysOff'
    """It stays off."""

    LAST_STATE = 'LastState'
    """It is what it was."""


_STRATEGY = {
    Policy.ALWAYS_ON: run_strategy.ALWAYS,
    Policy.LAST_STATE: run_strategy.RERUN_ON_FAILURE,
    Policy.ALWAYS_OFF: run_strategy.MANUAL,
}
_POLICY = {strategy: policy for policy, strategy in _STRATEGY.items()}
# One VMI and no more.
_POLICY[run_strategy.ONCE] = Policy.ALWAYS_OFF


def of(vm, options):
    """The policy of a machine.

    :param options: an `options.Options`
    :returns: a `Policy`; None for a VM that is being received, whose source
        decides
    """
    strategy = run_strategy.of(vm)
    remembered, _ = run_strategy.saved(vm)
    if strategy == run_strategy.HALTED:
        # What it will be powered on with.
        strategy = (run_strategy.ALWAYS if run_strategy.uses_running_field(vm)
                    else remembered or options.run_strategy)
    elif strategy == run_strategy.ALWAYS and remembered is not None:
        strategy = remembered
    return _POLICY.get(strategy)


def set(machine, policy):
    """Choose a policy.

    :param machine: a `machine.Machine`
    :param policy: a `Policy`
    :raises: `errors.WrongState` for a VM that is being received,
        `errors.Unavailable` if a start that is under way does not come to
        a VMI within the write deadline
    """
    strategy_to_set = _STRATEGY[policy]
    power_action.run(
        machine, lambda vm, vmi: _step(
            machine, vm, vmi, strategy_to_set))


def _step(machine, vm, vmi, strategy_to_set):
    strategy = run_strategy.of(vm)
    if strategy == run_strategy.WAIT_AS_RECEIVER:
        raise power_action.migration_target_error(machine)
    edited = copy.deepcopy(vm)
    there = (run_strategy.is_active(vmi)
             and not run_strategy.stopping(vm, vmi))
    if there:
        _while_on(edited, vmi, strategy_to_set)
    elif not run_strategy.starting(vm, vmi):
        _while_off(edited, vmi, strategy_to_set)
    elif (
        strategy_to_set != strategy
        and strategy_to_set in run_strategy.OFF_AFTER_SHUTDOWN
        and run_strategy.saved(vm)[0] != strategy_to_set
    ):
        # With that strategy KubeVirt might not go on with the start.
        return power_action.WaitCondition('its start', lambda vm, vmi: (
            run_strategy.is_active(vmi) and not run_strategy.stopping(vm, vmi)
            or not run_strategy.starting(vm, vmi)))
    elif strategy_to_set == run_strategy.ALWAYS:
        _set_strategy(edited, strategy_to_set)
    json_patch.send(machine, vm, edited)
    return None


def _while_on(vm, vmi, strategy_to_set):
    remembered, about = run_strategy.saved(vm)
    waits = run_strategy.of(vm) == run_strategy.ALWAYS and remembered not in (
        None, run_strategy.ALWAYS)
    if strategy_to_set in run_strategy.OFF_AFTER_SHUTDOWN and (
            waits or _ends_at_reboot(vmi)):
        _set_strategy(vm, run_strategy.ALWAYS)
        run_strategy.save(
            vm, strategy_to_set, about if waits else vmi['metadata']['uid'])
    else:
        _set_strategy(vm, strategy_to_set)


def _ends_at_reboot(vmi):
    # The boot of an override, after which there has to be another.
    domain = vmi['spec'].get('domain') or {}
    return (annotations.boot_once_id(vmi) is not None
            and domain.get('rebootPolicy') == boot_overrides.TERMINATE)


def _while_off(vm, vmi, strategy_to_set):
    strategy = run_strategy.of(vm)
    ending = run_strategy.is_active(vmi)
    if strategy == strategy_to_set or (
            strategy_to_set == run_strategy.MANUAL and not ending):
        # Always would not be off.
        _set_strategy(vm, strategy_to_set)
    else:
        _set_strategy(vm, run_strategy.HALTED)
        run_strategy.save(vm, strategy_to_set)


def _set_strategy(vm, strategy):
    vm['spec'].pop('running', None)
    vm['spec']['runStrategy'] = strategy
    run_strategy.clear_saved(vm)
