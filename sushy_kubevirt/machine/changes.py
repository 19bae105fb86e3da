# SPDX-License-Identifier: Apache-2.0
"""Several changes of a VM in one patch, so that a refusal changes nothing.

A change is a function of a `vm_state.VmState` that edits its VM in place. It
raises an `errors.MachineError` to refuse, and returns a
`power_action.WaitCondition` if KubeVirt has to finish an operation first, else
None. It is called again, with a fresh VM, when the patch has to be repeated.
"""

from __future__ import annotations

from collections import abc
import typing

from sushy_kubevirt.kube import json_patch
from sushy_kubevirt.machine import power_action
from sushy_kubevirt.machine import vm_state

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import objects
    from sushy_kubevirt.machine import protocols

Change: typing.TypeAlias = (
    'protocols.Step[power_action.WaitCondition | None]')


def apply(changes: abc.Iterable[Change], state: vm_state.VmState
          ) -> power_action.WaitCondition | None:
    """Make changes of a VM in place.

    :param state: its VM is changed
    :returns: the first wait condition
    :raises: `errors.MachineError` if a change is refused
    """
    for change in changes:
        awaited = change(state)
        if awaited is not None:
            return awaited
    return None


def write(machine: protocols.Machine, changes: abc.Sequence[Change],
          needs_vmi: abc.Callable[
              [objects.VirtualMachine], bool] = lambda vm: True,
          waits: bool = False) -> None:
    """Make all changes by one patch, or none.

    :param needs_vmi: tells whether a change depends on the VMI, which no
        guard covers; else the first attempt uses the cached VM
    :param waits: whether a change may return a wait condition
    :raises: `errors.MachineError` if a change is refused; see
        `machine.Machine.write`
    """
    def step(state: vm_state.VmState) -> power_action.WaitCondition | None:
        edited = state.copy_vm()
        awaited = apply(changes, edited)
        if awaited is None:
            json_patch.send(machine, state.vm, edited.vm)
        return awaited

    def from_cache(state: vm_state.VmState) -> tuple[None] | None:
        if needs_vmi(state.vm):
            return None
        edited = vm_state.VmState(state.vm).copy_vm()
        if apply(changes, edited) is not None or (
                json_patch.send(machine, state.vm, edited.vm) is state.vm):
            return None
        return (None,)

    if waits:
        power_action.run(machine, step)
    else:
        machine.write(step, from_cache)
