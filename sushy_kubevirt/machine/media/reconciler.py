# SPDX-License-Identifier: Apache-2.0
"""Decides how interrupted inserts and ejects are completed or cleaned up.

Every BMC process does it (`manager`). The decisions depend only on the VM's
media annotation, the VM and its VMI; the writes are guarded patches and
deletions by uid. Several processes may do the same work: one succeeds, the
others find nothing left to do.

An insert that is not complete after `options.MediaOptions.lapse_seconds`
counts as abandoned: no other process has the password that it may need, and
its client has received no response. The objects that it may have created are
deleted by their reserved names.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import typing

from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.machine import boot_overrides
from sushy_kubevirt.machine.media import claim_problem
from sushy_kubevirt.machine.media import drives
from sushy_kubevirt.machine.media import media_annotation
from sushy_kubevirt.machine.media import model
from sushy_kubevirt.machine import vm_state

if typing.TYPE_CHECKING:
    from collections import abc

    from sushy_kubevirt.kube import objects
    from sushy_kubevirt.machine.media import import_watcher

# Seconds without a watch event after which a DataVolume is read.
_UNOBSERVED_SECONDS = 3.0

#: Seconds without a heartbeat after which an upload counts as interrupted.
UPLOAD_SECONDS = 30.0


@dataclasses.dataclass
class Context:
    """What one process knows about the media of one VM.

    :param observed: returns what is known of the DataVolume of an entry
    :param age: returns the seconds since its argument was first passed
    :param lapse: seconds after which an insert counts as abandoned
    :param uploading: IDs of the attempts that this process uploads
    :param inserting: IDs of the attempts that this process is inserting
    :param searched: names of DataVolumes without a recorded uid that were
        searched for and deleted if found; is added to
    :ivar revisit_seconds: until the VM has to be checked again; None for not
        needed
    :ivar unobserved: entries whose DataVolume no watch has reported
    :ivar pending: entries whose claim has got no storage for some time
    """

    observed: abc.Callable[[media_annotation.Entry],
                           import_watcher.ObservedVolume | None]
    age: abc.Callable[[abc.Hashable], float]
    lapse: float
    uploading: abc.Container[str] = ()
    inserting: abc.Container[str] = ()
    searched: set[str] = dataclasses.field(default_factory=set)
    revisit_seconds: float | None = None
    unobserved: list[media_annotation.Entry] = dataclasses.field(
        default_factory=list)
    pending: list[media_annotation.Entry] = dataclasses.field(
        default_factory=list)

    def due(self, what: abc.Hashable, seconds: float) -> bool:
        """Return whether a condition has lasted long enough.

        If not, plan a revisit: lower `revisit_seconds`.

        :param what: names the condition
        :param seconds: how long it has to last
        """
        left = seconds - self.age(what)
        if left <= 0:
            return True
        if self.revisit_seconds is None or left < self.revisit_seconds:
            self.revisit_seconds = left
        return False


def desired_vm(state: vm_state.VmState, context: Context
               ) -> objects.VirtualMachine | None:
    """Compute what the VM has to be changed to.

    :param context: its `revisit_seconds`, `unobserved` and `pending` are set
    :returns: an edited copy of the VM; None if nothing has to change
    """
    vm, vmi = state.vm, state.vmi
    if vm_state.is_deleting(vm):
        return None
    record = media_annotation.read(vm)
    edited = copy.deepcopy(vm)
    for id_, entry in list(record.reservations.items()):
        if entry.id not in context.inserting and context.due(
                ('next', entry.id), context.lapse):
            record.discard(record.reservations.pop(id_))
    for id_, entry in list(record.media.items()):
        if not drives.holds(vm, entry.drive, entry.volume):
            # A user removed it from the VM. A running guest that has it keeps
            # it until it ends.
            if not drives.uses(vmi, entry.volume):
                record.discard(record.media.pop(id_))
            continue
        if (id_ == model.HTTP_BOOT.id and not _http_boot_requested(vm)
                and context.due(('http', entry.id), context.lapse)):
            drives.edit(state.with_vm(edited), functools.partial(
                drives.empty, edited, model.HTTP_BOOT, entry.drive,
                entry.volume, False))
            continue
        source = drives.source_of(vm['spec']['template']['spec'],
                                  entry.drive)
        if (source and source.get('hotpluggable')
                and vm_state.is_active(vmi)
                and not drives.has_drive(vmi['spec'], entry.drive)):
            # The VMI was created before the drive was added, and KubeVirt
            # adds no drive to a running guest.
            drives.disable_hotplug(edited, entry.drive)
        record.media[id_] = _updated_entry(entry, context)
    record.ejecting = {
        id_: entry for id_, entry in record.ejecting.items()
        if drives.guest_keeps(vmi, entry.drive, entry.volume)}
    media_annotation.write(edited, record)
    return None if edited == vm else edited


def _http_boot_requested(vm: objects.VirtualMachine) -> bool:
    return any((layer or {}).get('target') == 'UefiHttp' for layer in (
        boot_overrides.once(vm), boot_overrides.continuous(vm)))


def _updated_entry(entry: media_annotation.Entry, context: Context
                   ) -> media_annotation.Entry:
    """Return an entry with the outcome of its import or upload, if known."""
    if entry.ready or entry.reason:
        return entry
    observed = context.observed(entry)
    if observed is None:
        if context.due(('unseen', entry.id), _UNOBSERVED_SECONDS):
            context.unobserved.append(entry)
        return entry
    if observed.status.state is model.State.READY:
        return entry._replace(ready=True)
    if claim_problem.is_pending(observed.status) and context.due(
            ('pending', entry.id), claim_problem.SECONDS):
        context.pending.append(entry)
    if entry.upload and entry.id not in context.uploading:
        beat = observed.annotations.get(stored_names.UPLOAD)
        if context.due(('beat', entry.id, beat), UPLOAD_SECONDS):
            return entry._replace(
                reason='UploadInterrupted', message='The BMC that '
                'uploaded the image has stopped; ' + (
                    'upload' if entry.url.startswith(model.UPLOAD)
                    else 'insert') + ' it again')
    return entry
