# SPDX-License-Identifier: Apache-2.0
"""HTTP boot: fetches an image into a drive for one boot.

A VM's firmware could fetch it only from the guest's network, and KubeVirt has
no way to pass it the URL. So the image is inserted like a virtual medium, into
a drive of its own that the boot override puts first. The drive is removed
with the override (`one_time_boot`), the image when no guest has it any more
(`reconciler`).
"""

from __future__ import annotations

import typing

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine import changes
from sushy_kubevirt.machine.media import insert
from sushy_kubevirt.machine.media import media_annotation
from sushy_kubevirt.machine.media import model
from sushy_kubevirt.machine.media import url_policy

if typing.TYPE_CHECKING:
    from collections import abc

    from sushy_kubevirt.kube import objects
    from sushy_kubevirt.machine.media import manager
    from sushy_kubevirt.machine import vm_state


def uri(vm: objects.VirtualMachine) -> str:
    """Return the HttpBootUri of a VM, '' for none."""
    return media_annotation.read(vm).http_uri


def write(machine: manager.Machine, change: boot.Change,
          others: abc.Sequence[changes.Change] = ()) -> None:
    """Change boot settings, and insert the image if HTTP boot is requested.

    The image, the URI, the override and the other changes are written by one
    patch.

    :param others: further changes
    :raises: see `boot.write` and `machine.Machine.insert_media`
    """
    try:
        _write(machine, change, others)
    except errors.InvalidValue as e:
        if e.property != url_policy.IMAGE:
            raise
        raise errors.InvalidValue('HttpBootUri', e.value,
                                  message=str(e)) from None


def _write(machine: manager.Machine, change: boot.Change,
           others: abc.Sequence[changes.Change]) -> None:
    if change.http_uri:
        source = url_policy.separate_credentials(model.Source(change.http_uri))
        if source.username:
            raise errors.InvalidValue(
                'HttpBootUri', source.url,
                message='HttpBootUri may not contain credentials')
        change.http_uri = source.url
    if (change.http_uri is not None
            or change.target is boot.Target.UEFI_HTTP):
        # Update the cache with what other processes wrote a moment ago.
        machine.write(lambda _state: None)
    state = machine.state().copy_vm()
    everything: abc.Sequence[changes.Change] = (change, *others)
    if not _is_requested(state, change):
        boot.write(change, lambda: changes.write(
            machine, everything, change.needs_vmi, bool(others)))
        return
    changes.apply(everything, state)        # raises before any object exists
    source = model.Source(uri(state.vm))
    boot.write(change, lambda: insert.insert(
        machine, model.HTTP_BOOT, source, everything))


def _is_requested(state: vm_state.VmState, change: boot.Change) -> bool:
    if change.enabled is boot.Enabled.DISABLED:
        return False
    if change.target is None:
        return boot.settings(state).target is boot.Target.UEFI_HTTP
    return change.target is boot.Target.UEFI_HTTP
