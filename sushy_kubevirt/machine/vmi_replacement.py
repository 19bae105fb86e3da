# SPDX-License-Identifier: Apache-2.0
"""Replacement of a VMI with grace period 0.

KubeVirt's forced restart has grace period 1: from KubeVirt 1.9 on it asks the
guest to shut down and ends it a second later. Both need a guest that runs and
that is not shutting down already. KubeVirt has no action for a stop with
grace period 0 that a start follows, and refuses both a start and a restart
while a stop is requested. So the BMC stops the VMI, removes that request when
KubeVirt has carried it out, and requests a restart of the VMI that is ending.
The VM runs under ``Manual`` meanwhile, see `restart_record.begin_restart`.
"""

from __future__ import annotations

import typing

from sushy_kubevirt.machine import vm_state

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import objects
    from sushy_kubevirt.machine import protocols


def carry_on(machine: protocols.Machine, vm: objects.VirtualMachine,
             vmi: objects.VirtualMachineInstance | None) -> bool:
    """Send the next requests of a replacement that is recorded in the VM.

    :param vmi: the VMI to replace, or None if it is gone
    :returns: False if it has to be called again when `is_ending` is True;
        True if KubeVirt completes the replacement without further requests
    """
    if is_complete(vm, vmi):
        return True
    if not is_ending(vm, vmi):
        if not (vmi is not None and vm_state.stopping(vm, vmi)
                and vm_state.grace_period(vmi) == 0):
            machine.call('stop', {'gracePeriod': 0})
        return False
    if vm_state.requests(vm):
        machine.patch_status([
            {'op': 'remove', 'path': '/status/stateChangeRequests'}], vm)
    machine.call('start' if vmi is None else 'restart')
    return True


def is_complete(vm: objects.VirtualMachine,
                vmi: objects.VirtualMachineInstance | None) -> bool:
    """Return True if no further requests are needed."""
    return vm_state.start_requested(vm) and is_ending(vm, vmi)


def is_ending(vm: objects.VirtualMachine,
              vmi: objects.VirtualMachineInstance | None) -> bool:
    """Return True if KubeVirt has carried out the stop of a VMI."""
    return not vm_state.is_active(vmi) or (
        vm_state.is_deleting(vmi)
        and vm_state.grace_period(vmi) == 0)
