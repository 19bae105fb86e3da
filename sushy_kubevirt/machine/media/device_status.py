# SPDX-License-Identifier: Apache-2.0
"""Builds the status of a device from cached objects, without an API call.

The VM's media annotation has the inserted URL, the specs of VM and VMI have
the drive, and the DataVolume has the progress. The specs take precedence: a
medium that a user removed from the VM is not shown.
"""

from __future__ import annotations

import json
import typing

from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.machine.media import datavolumes
from sushy_kubevirt.machine.media import drives
from sushy_kubevirt.machine.media import media_annotation
from sushy_kubevirt.machine.media import model
from sushy_kubevirt.machine import power_state
from sushy_kubevirt.machine import vm_state

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import feature_gates
    from sushy_kubevirt.kube import objects
    from sushy_kubevirt.machine.media import import_watcher


def medium(device: model.Device, entry: media_annotation.Entry | None,
           state: vm_state.VmState,
           observed: import_watcher.ObservedVolume | None,
           gates: feature_gates.Gates | None = None) -> model.Medium | None:
    """Build the medium of a device, None for an empty one.

    :param entry: of the device
    :param observed: its DataVolume, None while that is unknown
    :param gates: without them, it is not said why KubeVirt does not plug it
    """
    if entry is None or not drives.holds(state.vm, entry.drive, entry.volume):
        return None
    waits = drives.waits_for_start(state, entry.drive, entry.volume)
    status = _status(entry, observed)
    if status.state is model.State.READY and not waits:
        status = _plugged(entry, state, gates) or status
    return _medium(
        entry, state=status.state, progress=status.progress,
        reason=status.reason, message=status.message, pending_restart=waits,
        restart_cause=drives.restart_cause(
            state, device, entry.drive, gates.why_no_cdrom_hotplug())
        if waits and gates is not None else '',
        task=entry.id)


def ejected(entry: media_annotation.Entry | None,
            vmi: objects.VirtualMachineInstance | None
            ) -> model.Medium | None:
    """Build the medium of a device whose medium was ejected.

    :param entry: of the medium, or None
    :returns: None if the guest has let go of it
    """
    if vmi is None or entry is None or not drives.guest_keeps(
            vmi, entry.drive, entry.volume):
        return None
    reason, message = power_state.sync_failure(vmi)
    return _medium(entry, state=model.State.EJECTING, reason=reason,
                   message=message)


def _medium(entry: media_annotation.Entry, **fields: typing.Any
            ) -> model.Medium:
    return model.Medium(
        url=entry.url, write_protected=entry.write_protected,
        data_volume=entry.volume, since=entry.since, method=entry.method,
        protocol=entry.protocol, verify=entry.verify, **fields)


def _status(entry: media_annotation.Entry,
            observed: import_watcher.ObservedVolume | None
            ) -> datavolumes.Status:
    if entry.reason:
        return datavolumes.Status(model.State.FAILED, None, entry.reason,
                                  entry.message)
    if entry.ready:
        return datavolumes.Status(model.State.READY, 100.0)
    if observed is None:
        return datavolumes.Status(model.State.WAITING)
    status = observed.status
    if entry.upload and status.state is not model.State.READY:
        progress = upload_progress(observed)
        if progress is not None and status.state is not model.State.FAILED:
            return datavolumes.Status(model.State.IMPORTING, progress,
                                      status.reason, status.message)
    return status


def upload_progress(observed: import_watcher.ObservedVolume) -> float | None:
    """Return the progress of an upload in per cent; None before it starts."""
    try:
        text = observed.annotations.get(stored_names.UPLOAD) or '{}'
        return float(json.loads(text)['progress'])
    except (ValueError, KeyError, TypeError):
        return None


def _plugged(entry: media_annotation.Entry, state: vm_state.VmState,
             gates: feature_gates.Gates | None
             ) -> datavolumes.Status | None:
    """Return the status of a complete medium that the guest lacks, or None."""
    vmi = state.vmi
    if vmi is None or vm_state.phase(vmi) != 'Running':
        return None
    source = drives.source_of(state.vm['spec']['template']['spec'],
                              entry.drive)
    if not (source and source.get('hotpluggable')):
        return None
    reason = message = ''
    for volume in vmi['status'].get('volumeStatus') or ():
        if volume.get('name') == entry.drive:
            plugged = volume.get('phase') == 'Ready'
            if plugged and drives.uses(vmi, entry.volume):
                return None
            if not plugged:
                reason = volume.get('reason') or ''
                message = volume.get('message') or ''
    # virt-launcher repeats an exchange that the guest does not allow.
    failure = power_state.sync_failure(vmi)
    if failure[0]:
        reason, message = failure
    elif not message and gates is not None:
        # The gate was disabled after the insert.
        cause = gates.why_no_cdrom_hotplug()
        message = cause and f'{cause[0].upper()}{cause[1:]}.'
    return datavolumes.Status(model.State.IMPORTING, 100.0, reason, message)


def problem(media: dict[str, model.Medium], state: vm_state.VmState
            ) -> power_state.Problem | None:
    """Return why a VM that is being started cannot run because of its media.

    :param media: by device id
    """
    active = state.vmi if vm_state.is_active(state.vmi) else None
    if active and (vm_state.phase(active) in ('Running', 'Unknown')
                   or state.stopping()):
        return None
    if not active and not state.starting():
        return None
    start = power_state.problem(state)
    if (start is not None and start.reason == power_state.CLAIM_MISSING
            and not any(slot in start.message for slot in _slots(state.vm))):
        return None     # KubeVirt, too, prefers it to volumes that wait
    for device_id, inserted in media.items():
        if inserted.state is model.State.FAILED and (
                not active or drives.uses(active, inserted.data_volume)):
            return power_state.Problem('MediaFailed', (
                f'It waits for the image in {device_id}, which cannot be '
                f'fetched ({inserted.reason}): '
                f'{inserted.message or inserted.reason}. '
                'Eject it, or insert another one, and start again'))
    return _ejected_problem(state.vm, active) if active else None


def _slots(vm: objects.VirtualMachine) -> dict[str, str]:
    """Return {name that a medium's DataVolume may have: device id}."""
    return {slot: device.id for device in model.ALL_DEVICES
            for slot in media_annotation.slots(vm['metadata']['name'],
                                               device.id)}


def _ejected_problem(vm: objects.VirtualMachine,
                     vmi: objects.VirtualMachineInstance
                     ) -> power_state.Problem | None:
    """Report a starting VMI that has the volume of an ejected medium."""
    present = {(volume.get('dataVolume') or {}).get('name') for volume in
               vm['spec']['template']['spec'].get('volumes') or ()}
    present |= media_annotation.read(vm).names()
    devices = _slots(vm)
    for volume in vmi['spec'].get('volumes') or ():
        name = (volume.get('dataVolume') or {}).get('name')
        if name in devices and name not in present:
            return power_state.Problem('MediaEjected', (
                f'It waits for DataVolume {name}, which was in '
                f'{devices[name]} at its start and has been ejected since. '
                'Power it off and on again'))
    return None
