# SPDX-License-Identifier: Apache-2.0
"""Power actions of a machine, by Redfish ResetType.

`power_on_off` and `restart` implement them. `power_state` defines states and
ResetTypes, `vm_state` predicts what KubeVirt does without a request.
"""

from __future__ import annotations

import functools
import logging
import typing

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import power_on_off
from sushy_kubevirt.machine import power_state
from sushy_kubevirt.machine import restart
from sushy_kubevirt.machine import run_strategy
from sushy_kubevirt.machine import vm_state

if typing.TYPE_CHECKING:
    from collections import abc

    from sushy_kubevirt.machine import protocols

LOG = logging.getLogger(__name__)

#: Longest wait, in seconds, until the node has reported a pause or resume.
_PAUSE_SECONDS = 3.0


def reset(machine: protocols.Machine, reset_type: power_state.ResetType,
          restart_powers_on: bool = True) -> None:
    """Carry out a power action.

    :param restart_powers_on: whether the types that restart a machine power
        on one that is off, as in Redfish; False to refuse them, as in IPMI
    :raises: `errors.WrongState` if the present power state does not allow
        it, `errors.Unsupported` for a diagnostic interrupt
    """
    if reset_type not in power_state.OFFERED:
        raise errors.Unsupported(
            f'KubeVirt VMs do not support the ResetType {reset_type.value}')
    LOG.info('%s: ResetType %s', machine.qualified_name, reset_type.value)
    if reset_type in _RESTARTS:
        restart.restart(machine, _RESTARTS[reset_type], restart_powers_on)
    else:
        _ACTIONS[reset_type](machine)


def shows(reset_type: power_state.ResetType, before: str | None,
          state: vm_state.VmState) -> bool:
    """Return whether the objects of a machine show the effect of `reset`.

    :param reset_type: one of IPMI's Chassis Control
    :param before: uid of the active VMI before it was requested, or None
    """
    vmi = state.vmi
    uid = vmi['metadata']['uid'] if vm_state.is_active(vmi) else None
    if reset_type in _RESTARTS:
        return (vm_state.start_requested(state.vm)
                or run_strategy.start_pending(state.vm)
                or uid not in (None, before))
    if reset_type in _STOPS:
        return not state.starting() and (
            vmi is None or uid is None or state.stopping() and (
                not _STOPS[reset_type]
                # It may have been shutting down before.
                or vm_state.grace_period(vmi) == 0))
    return (reset_type is power_state.ResetType.ON
            and power_state.of(state) in _STARTED)


def _push_power_button(machine: protocols.Machine) -> None:
    power = machine.write(power_state.of)
    if power is power_state.PowerState.OFF:
        power_on_off.on(machine)
    elif power is not power_state.PowerState.POWERING_OFF:
        power_on_off.shut_down(machine)


def _set_paused(machine: protocols.Machine, before: power_state.PowerState,
                action: str, after: power_state.PowerState) -> None:
    def step(state: vm_state.VmState) -> None:
        power = power_state.of(state)
        if power is after:
            return
        if power is not before:
            done = 'paused' if action == 'pause' else 'resumed'
            raise errors.WrongState(
                f'{machine.qualified_name} is {power.value}; only a machine '
                f'that is {before.value} can be {done}')
        try:
            machine.call(action, resource=api_resources.VMI)
        except errors.AccessDenied as e:
            # virt-api also responds Forbidden for a VMI with a livenessProbe.
            if 'LivenessProbe' in str(e):
                raise errors.Rejected(str(e)) from None
            raise

    machine.write(step)
    machine.wait(lambda state: power_state.of(state) is not before,
                 _PAUSE_SECONDS)


_ACTIONS: dict[power_state.ResetType,
               abc.Callable[[protocols.Machine], None]] = {
    power_state.ResetType.ON: power_on_off.on,
    power_state.ResetType.FORCE_ON: power_on_off.on,
    power_state.ResetType.FORCE_OFF: power_on_off.force_off,
    power_state.ResetType.GRACEFUL_SHUTDOWN: power_on_off.shut_down,
    power_state.ResetType.PUSH_POWER_BUTTON: _push_power_button,
    power_state.ResetType.PAUSE: functools.partial(
        _set_paused, before=power_state.PowerState.ON, action='pause',
        after=power_state.PowerState.PAUSED),
    power_state.ResetType.RESUME: functools.partial(
        _set_paused, before=power_state.PowerState.PAUSED, action='unpause',
        after=power_state.PowerState.ON),
}

# States of a machine whose start has begun.
_STARTED = power_state.PowerState.POWERING_ON, power_state.PowerState.ON

# Types that stop a machine: whether at once.
_STOPS = {
    power_state.ResetType.FORCE_OFF: True,
    power_state.ResetType.GRACEFUL_SHUTDOWN: False,
}

# Types that restart a machine: whether at once.
_RESTARTS = {
    power_state.ResetType.FORCE_RESTART: True,
    power_state.ResetType.GRACEFUL_RESTART: False,
    power_state.ResetType.POWER_CYCLE: True,
}
