# SPDX-License-Identifier: Apache-2.0
"""Replacement of a VMI with grace period 0.

KubeVirt's forced restart has grace period 1: from KubeVirt 1.9 on it asks the
guest to shut down and ends it a second later. Both need a guest that runs and
that is not shutting down already. KubeVirt has no action for a stop with
grace period 0 that a start follows, and refuses both a start and a restart
while a stop is requested. So the BMC stops the VMI, removes that request when
KubeVirt has carried it out, and requests a restart of the VMI that is ending.
The VM runs under ``Manual`` meanwhile, see `run_strategy.begin_restart`.
"""

from __future__ import annotations

import typing

from sushy_kubevirt.machine import vm_state

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import objects
    from sushy_kubevirt.machine import protocols


def carry_on(machine: protocols.Machine, state: vm_state.VmState) -> bool:
    """Send the next requests of a replacement that is recorded in the VM.

    :param state: its VMI is the one to replace, or None if that is gone
    :returns: False if it has to be called again when `is_ending` is True;
        True if KubeVirt completes the replacement without further requests
    """
    if is_requested(state):
        return True
    if not is_ending(state):
        if not (state.vmi is not None and state.stopping()
                and vm_state.grace_period(state.vmi) == 0):
            if vm_state.start_requested(state.vm):
                # By an earlier restart. The stop replaces it, but ends the
                # grace period before: the start would seem to be that of
                # this restart.
                _remove_requests(machine, state.vm)
            machine.call('stop', {'gracePeriod': 0})
        return False
    if vm_state.requests(state.vm):
        _remove_requests(machine, state.vm)
    machine.call('start' if state.vmi is None else 'restart')
    return True


def _remove_requests(machine: protocols.Machine, vm: objects.VirtualMachine
                     ) -> None:
    machine.patch_status([
        {'op': 'remove', 'path': '/status/stateChangeRequests'}], vm)


def is_requested(state: vm_state.VmState) -> bool:
    """Return True if the start of the next VMI is requested.

    A start that is requested while the VMI is not ending is that of an
    earlier restart.
    """
    return is_ending(state) and vm_state.start_requested(state.vm)


def is_ending(state: vm_state.VmState) -> bool:
    """Return True if KubeVirt has carried out the stop of a VMI."""
    return not vm_state.is_active(state.vmi) or (
        vm_state.is_deleting(state.vmi)
        and vm_state.grace_period(state.vmi) == 0)
