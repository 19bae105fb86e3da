# SPDX-License-Identifier: Apache-2.0
"""Ejects a medium in any state.

One patch removes it from its drive and lists its DataVolume as obsolete; then
the DataVolume is deleted. A running guest loses the medium at once where
KubeVirt can unplug it, unless it has locked the tray; then the device shows
the medium until the guest has let go of it. Where KubeVirt cannot, it sets
RestartRequired and the next guest is without it. A concurrent insert finds its
reservation gone and undoes its steps.
"""

from __future__ import annotations

import logging
import typing

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import json_patch
from sushy_kubevirt.machine import changes as vm_changes
from sushy_kubevirt.machine.media import drives
from sushy_kubevirt.machine.media import insert
from sushy_kubevirt.machine.media import media_annotation

if typing.TYPE_CHECKING:
    from collections import abc

    from sushy_kubevirt.machine.media import manager
    from sushy_kubevirt.machine.media import model
    from sushy_kubevirt.machine import vm_state

LOG = logging.getLogger(__name__)

#: Seconds that an eject waits for the guest to let go of the medium.
GUEST_SECONDS = 5.0


def eject(machine: manager.Machine, device: model.Device,
          changes: abc.Sequence[vm_changes.Change] = ()) -> None:
    """Eject a medium, see `machine.Machine.eject_media`.

    :param changes: of the VM, to be made in the same patch
    """
    media = machine.cluster.media
    ejected: list[media_annotation.Entry] = []

    def step(state: vm_state.VmState) -> None:
        record = media_annotation.read(state.vm)
        entry = record.media.pop(device.id, None)
        reserved = record.reservations.pop(device.id, None)
        if entry is None and reserved is None and not changes:
            return
        record.discard(reserved)
        record.discard(entry)
        if entry is not None and drives.guest_keeps(state.vmi, entry.drive,
                                                    entry.volume):
            # What an earlier eject could not take out is still there.
            record.ejecting.setdefault(device.id, entry)
        keep = machine.gates.enabled(drives.GATE)
        try:
            _patch_vm(machine, device, state, entry, record, keep,
                      changes=changes)
        except errors.Rejected as e:
            # The feature gate was disabled: drives may not be empty.
            if drives.GATE not in str(e):
                raise
            _patch_vm(machine, device, state, entry, record, False, True,
                      changes)
        ejected.extend(filter(None, (entry, reserved)))

    machine.write(step)
    for entry in ejected:
        upload = media.uploads.get(entry.id)
        if upload is not None:
            upload.stop()
        LOG.info('%s: DataVolume %s ejected from %s',
                 machine.qualified_name, entry.volume, device.id)
    media.refresh(machine)
    insert.delete_obsolete(machine)
    if ejected:
        # A guest lets go at once unless it has locked the tray.
        media.wait(lambda: media.medium(machine, device) is None,
                   GUEST_SECONDS)


def _patch_vm(machine: manager.Machine, device: model.Device,
              state: vm_state.VmState, entry: media_annotation.Entry | None,
              record: media_annotation.Record, keep: bool,
              any_drive: bool = False,
              changes: abc.Sequence[vm_changes.Change] = ()) -> None:
    """Remove a medium from its drive and write the media record.

    :param keep: whether a drive may be empty
    :param any_drive: True to remove the drive even if the VM's owner added it
    :param changes: see `eject`
    """
    edited_state = state.copy_vm()
    edited = edited_state.vm

    def change() -> None:
        if entry is not None:
            drives.empty(edited, device, entry.drive, entry.volume, keep)
            if any_drive and not drives.source_of(
                    edited['spec']['template']['spec'], entry.drive):
                drives.remove(edited, entry.drive)
        media_annotation.write(edited, record)

    drives.edit(edited_state, change)
    vm_changes.apply(changes, edited_state)
    json_patch.send(machine, state.vm, edited)
