# SPDX-License-Identifier: Apache-2.0
"""Completes or cleans up interrupted inserts and ejects.

Every BMC process runs one `Reconciler`. Its decisions depend only on the VM's
media annotation, the VM and its VMI; its writes are guarded patches and
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
import logging
import typing

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import json_patch
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.machine import boot_overrides
from sushy_kubevirt.machine.media import claim_problem
from sushy_kubevirt.machine.media import datavolume_cleanup
from sushy_kubevirt.machine.media import drives
from sushy_kubevirt.machine.media import media_annotation
from sushy_kubevirt.machine.media import model
from sushy_kubevirt.machine import reconcile_loop
from sushy_kubevirt.machine import vm_state

if typing.TYPE_CHECKING:
    from collections import abc

    from sushy_kubevirt.kube import delaying_queue
    from sushy_kubevirt.kube import objects
    from sushy_kubevirt.machine.media import import_watcher
    from sushy_kubevirt.machine.media import protocols as media_protocols
    from sushy_kubevirt.machine import protocols

LOG = logging.getLogger(__name__)

# Seconds that the process which inserted or ejected has for its own deletions
# before the others make them.
_EJECT_SECONDS = 0.5

# Seconds without a watch event after which a DataVolume is read.
_UNOBSERVED_SECONDS = 3.0

#: Seconds without a heartbeat after which an upload counts as interrupted.
UPLOAD_SECONDS = 30.0


class Context:
    """What one process knows about the media of one VM.

    :param observed: returns what is known of the DataVolume of an entry
    :param age: returns the seconds since its argument was first passed
    :param lapse: seconds after which an insert counts as abandoned
    :param uploading: IDs of the attempts that this process uploads
    :param inserting: IDs of the attempts that this process is inserting
    :param searched: names of DataVolumes without a recorded uid that were
        searched for and deleted if found; is added to
    :param in_use: tells whether a guest has the DataVolume of this name until
        it ends
    """

    def __init__(self,
                 observed: abc.Callable[[media_annotation.Entry],
                                        import_watcher.ObservedVolume | None],
                 age: abc.Callable[[abc.Hashable], float], lapse: float,
                 uploading: abc.Container[str] = (),
                 inserting: abc.Container[str] = (),
                 searched: set[str] | None = None,
                 in_use: abc.Callable[[str], bool] = lambda name: False
                 ) -> None:
        self.observed = observed
        self.age = age
        self.lapse = lapse
        self.uploading = uploading
        self.inserting = inserting
        self.searched: set[str] = set() if searched is None else searched
        self.in_use = in_use
        #: Seconds until the VM has to be checked again; None for not needed.
        self.revisit_seconds: float | None = None
        #: Entries whose DataVolume no watch has reported.
        self.unobserved: list[media_annotation.Entry] = []
        #: Entries whose claim has got no storage for some time.
        self.pending: list[media_annotation.Entry] = []

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
        return dataclasses.replace(entry, ready=True)
    if claim_problem.is_pending(observed.status) and context.due(
            ('pending', entry.id), claim_problem.SECONDS):
        context.pending.append(entry)
    if entry.upload and entry.id not in context.uploading:
        beat = observed.annotations.get(stored_names.UPLOAD)
        if context.due(('beat', entry.id, beat), UPLOAD_SECONDS):
            return dataclasses.replace(
                entry, reason='UploadInterrupted', message='The BMC that '
                'uploaded the image has stopped; ' + (
                    'upload' if entry.url.startswith(model.UPLOAD)
                    else 'insert') + ' it again')
    return entry


class Reconciler:
    """Reconciles the media of all machines of a cluster, in one thread.

    It runs only where `options.Options.reconcile` is true.

    :param worker: None for one of its own
    """

    def __init__(self, media: media_protocols.Media,
                 worker: delaying_queue.Worker | None = None) -> None:
        self._media = media
        self._loop = reconcile_loop.ReconcileLoop(
            'media', 'virtual media', self._reconcile, worker)
        self._active = media.cluster.options.reconcile

    def start(self) -> None:
        """Start the thread, unless the option disables it."""
        if self._active:
            self._loop.start()

    def close(self) -> None:
        """Stop the thread."""
        self._loop.close()

    def enqueue_if_needed(self, machine: protocols.Machine,
                          state: vm_state.VmState) -> None:
        """Check a machine without blocking; queue it if there is work."""
        if not self._active:
            return
        context = self.context(machine, state)
        if (desired_vm(state, context) is not None or context.unobserved
                or context.pending):
            self._loop.add(machine)
        if datavolume_cleanup.due(state.vm, context):
            # The process that made this record deletes first.
            self._loop.add(machine, _EJECT_SECONDS)
        if context.revisit_seconds is not None:
            self._loop.add(machine, context.revisit_seconds + 0.01,
                           (machine.uid, 'revisit'))

    def context(self, machine: protocols.Machine, state: vm_state.VmState
                ) -> Context:
        """Return what is known of the media of a machine."""
        media = self._media
        return Context(
            lambda entry: media.observed_volume(state.vm, entry),
            lambda what: media.age(machine.uid, what),
            machine.options.media.lapse_seconds, media.uploads,
            media.inserting, media.searched_names(machine.uid),
            lambda name: drives.is_held(state.vmi, name))

    def _reconcile(self, machine: protocols.Machine,
                   state: vm_state.VmState) -> None:
        vm = state.vm
        context = self.context(machine, state)
        edited = desired_vm(state, context)
        for entry in context.unobserved:
            datavolume_cleanup.read(machine, self._media, entry)
        if edited is not None:
            vm = json_patch.send(machine, vm, edited)
            LOG.info('%s: virtual media reconciled', machine.qualified_name)
        datavolume_cleanup.clean(machine, self._media, vm, context)
        for entry in context.pending:
            self._explain(machine, entry)
        if context.revisit_seconds is not None:
            self._loop.add(machine, context.revisit_seconds + 0.01,
                           (machine.uid, 'revisit'))

    def _explain(self, machine: protocols.Machine,
                 entry: media_annotation.Entry) -> None:
        """Find out why a claim gets no storage; look again if it is unclear.
        """
        try:
            problem = claim_problem.find(machine, entry.volume)
        except errors.AccessDenied as e:
            LOG.debug('%s: the claim of DataVolume %s cannot be examined: %s',
                      machine.qualified_name, entry.volume, e)
            problem = None
        if problem is None:
            self._loop.add(machine, claim_problem.AGAIN_SECONDS,
                           (machine.uid, 'pending'))
            return
        LOG.warning('%s: the image in DataVolume %s gets no storage: %s',
                    machine.qualified_name, entry.volume, problem[1])
        self._media.volumes.fail(machine.namespace, entry.volume, *problem)
