# SPDX-License-Identifier: Apache-2.0
"""Several changes of a VM in one patch, so that a refusal changes nothing.

A change is a function of (vm, vmi) that edits the VM in place. It raises an
`errors.MachineError` to refuse, and returns a `power_action.WaitCondition` if
KubeVirt has to finish an operation first, else None. It is called again, with
a fresh VM, when the patch has to be repeated.
"""

from __future__ import annotations

from collections import abc
import copy
import typing

from sushy_kubevirt.kube import json_patch
from sushy_kubevirt.machine import power_action

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import objects
    from sushy_kubevirt.machine import protocols

Change: typing.TypeAlias = (
    'protocols.Step[power_action.WaitCondition | None]')


def apply(changes: abc.Iterable[Change], vm: objects.VirtualMachine,
          vmi: objects.VirtualMachineInstance | None
          ) -> power_action.WaitCondition | None:
    """Make changes of a VM in place.

    :param vm: the VM, which is changed
    :returns: the first wait condition
    :raises: `errors.MachineError` if a change is refused
    """
    for change in changes:
        awaited = change(vm, vmi)
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
    def attempt(vm: objects.VirtualMachine,
                vmi: objects.VirtualMachineInstance | None
                ) -> tuple[power_action.WaitCondition | None, bool]:
        """Return (a wait condition or None, whether the VM was patched)."""
        edited = copy.deepcopy(vm)
        awaited = apply(changes, edited, vmi)
        if awaited is not None:
            return awaited, False
        return None, json_patch.send(machine, vm, edited) is not vm

    def step(vm: objects.VirtualMachine,
             vmi: objects.VirtualMachineInstance | None
             ) -> power_action.WaitCondition | None:
        return attempt(vm, vmi)[0]

    if waits:
        power_action.run(machine, step)
    else:
        machine.write(step, lambda vm, vmi: (
            not needs_vmi(vm) and attempt(vm, None)[1]))
