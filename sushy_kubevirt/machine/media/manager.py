# SPDX-License-Identifier: Apache-2.0
"""Virtual media state of one process: cache of import progress, subscribers.

Holds nothing that has to survive the process. Updated by the watches of VMs
and VMIs and, while a medium is not complete, of DataVolumes. A thread carries
out what `reconciler` decides, where `options.Options.reconcile` is true.
"""

from __future__ import annotations

import datetime
import logging
import threading
import time
import typing

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import json_patch
from sushy_kubevirt.kube import objects
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.machine.media import claim_problem
from sushy_kubevirt.machine.media import datavolume_cleanup
from sushy_kubevirt.machine.media import device_status
from sushy_kubevirt.machine.media import import_watcher
from sushy_kubevirt.machine.media import media_annotation
from sushy_kubevirt.machine.media import model
from sushy_kubevirt.machine.media import reconciler
from sushy_kubevirt.machine import protocols
from sushy_kubevirt.machine import reconcile_loop

if typing.TYPE_CHECKING:
    from collections import abc

    from sushy_kubevirt.kube import delaying_queue
    from sushy_kubevirt.machine.media import cdi
    from sushy_kubevirt.machine import vm_state

LOG = logging.getLogger(__name__)


#: Function of a machine, the id of a device, and the medium in it before and
#: after a change, None for none.
Subscriber: typing.TypeAlias = (
    'abc.Callable[[typing.Any, str, model.Medium | None, '
    'model.Medium | None], None]')

# Seconds that the process which inserted or ejected has for its own deletions
# before the others make them.
_EJECT_SECONDS = 0.5


class Cluster(protocols.Cluster, typing.Protocol):
    """Of `cluster.Cluster`, which imports this module."""

    @property
    def media(self) -> Manager:
        ...


class Machine(protocols.Machine, typing.Protocol):
    """Of `machine.Machine`."""

    @property
    def cluster(self) -> Cluster:
        ...


class Upload(typing.Protocol):
    """Of `upload.Upload`."""

    @property
    def machine(self) -> protocols.Machine:
        ...

    def stop(self) -> None:
        ...


class _Vm:
    """What is known of one VM.

    :ivar media: by device id
    :ivar first_seen: time (`time.monotonic`) by condition, see `Manager.age`
    :ivar searched: see `reconciler.Context`
    """

    def __init__(self, machine: protocols.Machine) -> None:
        self.machine = machine
        self.media: dict[str, model.Medium] = {}
        self.first_seen: dict[abc.Hashable, float] = {}
        self.searched: set[str] = set()


class Manager:
    """The virtual media of one cluster.

    :param namespaces: those in its scope, () for all
    :param worker: whose thread runs the reconciler
    """

    def __init__(self, cluster: protocols.Cluster,
                 namespaces: tuple[str, ...],
                 cdi: cdi.Cdi, worker: delaying_queue.Worker) -> None:
        self.cluster = cluster
        self.volumes = import_watcher.ImportWatcher(
            cluster.client, cluster.options,
            (cluster.vm.namespace,) if cluster.vm else namespaces,
            bool(cluster.vm), self._volume_changed)
        self.cdi = cdi
        #: Uploads of this process by the ID of the attempt.
        self.uploads: dict[str, Upload] = {}
        #: IDs of the attempts that this process is inserting.
        self.inserting: set[str] = set()
        #: Cache of certificates: {digest: PEM text}
        self.certificates: dict[str, str] = {}
        #: Number of changes of media so far.
        self.changes = 0
        self._callback_lock = threading.RLock()
        self._condition = threading.Condition()
        self._callbacks: list[Subscriber] = []
        self._vms: dict[str, _Vm] = {}      # by uid
        self._started_at = now()
        self._loop: reconcile_loop.ReconcileLoop[protocols.Machine] = (
            reconcile_loop.ReconcileLoop(
                'virtual media', self._reconcile, worker))

    def start(self) -> None:
        """Subscribe to the cluster; call it before its cache starts."""
        self.cluster.subscribe(self.refresh)

    def close(self) -> None:
        """Stop the uploads, the reconciler and the watches."""
        for upload in list(self.uploads.values()):
            upload.stop()
        self._loop.close()
        self.volumes.close()

    # Reading

    def medium(self, machine: protocols.Machine, device: model.Device
               ) -> model.Medium | None:
        """Return the medium in a device of a machine."""
        return self._medium(device, machine.state())

    def _medium(self, device: model.Device, state: vm_state.VmState
                ) -> model.Medium | None:
        record = media_annotation.read(state.vm)
        entry = record.media.get(device.id)
        return device_status.medium(
            device, entry, state, self.observed_volume(state.vm, entry),
            self.cluster.gates
        ) or device_status.ejected(record.ejecting.get(device.id), state.vmi)

    def observed_volume(self, vm: objects.VirtualMachine,
                        entry: media_annotation.Entry | None
                        ) -> import_watcher.ObservedVolume | None:
        """Return what is known of the DataVolume of an entry."""
        if entry is None:
            return None
        return self.volumes.get(vm['metadata'].get('namespace', ''),
                                entry.volume, entry.uid)

    def media(self, state: vm_state.VmState) -> dict[str, model.Medium]:
        """Return the media by device id, without empty devices."""
        if not has_record(state.vm):
            return {}
        return {device.id: medium for device in model.ALL_DEVICES
                if (medium := self._medium(device, state)) is not None}

    # Notifications

    def subscribe(self, callback: Subscriber) -> None:
        """Call a function on each change of a medium, in this process.

        A medium that was inserted before this process started is reported
        once, with old equal to new.

        :param callback: called one at a time in the thread of a watch, so it
            must not block
        """
        with self._callback_lock:
            self._callbacks.append(callback)
            for vm in list(self._vms.values()):
                for id_, medium in vm.media.items():
                    _call(callback, vm.machine, id_, medium, medium)

    def wait(self, ready: abc.Callable[[], bool], timeout: float) -> bool:
        """Wait until a condition holds, checked after every change.

        :param timeout: seconds
        :returns: whether it held before the timeout
        """
        deadline = time.monotonic() + timeout
        while True:
            with self._condition:
                since = self.changes
            if ready():
                return True
            left = deadline - time.monotonic()
            if left <= 0 or self.cluster.closing.is_set():
                return False
            with self._condition:
                if self.changes == since:
                    self._condition.wait(min(left, 1.0))

    def _volume_changed(self, uid: str | None) -> None:
        vm = self._vms.get(uid or '')
        if vm is not None:
            self.refresh(vm.machine)

    def refresh(self, machine: protocols.Machine,
                _state: vm_state.VmState | None = None) -> None:
        """Process a change; runs in a watch's thread and writes nothing."""
        with self._callback_lock:
            # Read under the lock, so that the last thread to get it uses the
            # latest state.
            state = machine.cached_state()
            if state is None or not has_record(state.vm):
                self._remove_machine(machine, state is None)
                return
            if machine.uid not in self._vms:
                self._forget_predecessor(machine)
            record = media_annotation.read(state.vm)
            self.volumes.watch(machine.uid, {
                objects.ObjectKey(machine.namespace, entry.volume)
                for entry in record.media.values()
                if not (entry.ready or entry.reason)})
            self._notify(machine, self.media(state))
        if self.cluster.options.reconcile:
            self._enqueue_if_needed(machine, state)

    def _forget_predecessor(self, machine: protocols.Machine) -> None:
        """Forget a VM of this name that was deleted while no watch worked."""
        for uid, vm in list(self._vms.items()):
            if vm.machine.qualified_name == machine.qualified_name:
                del self._vms[uid]
                self.volumes.watch(uid, set())

    def _remove_machine(self, machine: protocols.Machine,
                        deleted: bool) -> None:
        if machine.uid not in self._vms:
            return
        self._notify(machine, {})
        del self._vms[machine.uid]
        self.volumes.watch(machine.uid, set())
        if deleted:
            for upload in list(self.uploads.values()):
                if upload.machine.uid == machine.uid:
                    upload.stop()

    def _notify(self, machine: protocols.Machine,
                media: dict[str, model.Medium]) -> None:
        first = machine.uid not in self._vms
        vm = self._vms.setdefault(machine.uid, _Vm(machine))
        vm.machine, before, vm.media = machine, vm.media, media
        for device in model.ALL_DEVICES:
            old, new = before.get(device.id), media.get(device.id)
            if old == new:
                continue
            if first and new is not None and new.since < self._started_at:
                old = new       # inserted before this process started
            for callback in tuple(self._callbacks):
                _call(callback, machine, device.id, old, new)
        with self._condition:
            self.changes += 1
            self._condition.notify_all()

    # Reconciling

    def context(self, machine: protocols.Machine, state: vm_state.VmState
                ) -> reconciler.Context:
        """Return what is known of the media of a machine."""
        vm = self._vms.setdefault(machine.uid, _Vm(machine))

        def age(what: abc.Hashable) -> float:
            # By this process's clock, as those of others may be wrong.
            now = time.monotonic()
            return now - vm.first_seen.setdefault(what, now)

        return reconciler.Context(
            lambda entry: self.observed_volume(state.vm, entry), age,
            machine.options.media.lapse_seconds, self.uploads,
            self.inserting, vm.searched)

    def delete_obsolete(self, machine: protocols.Machine) -> None:
        """Delete the DataVolumes that the record lists, in one attempt.

        Call it after a write of this process, which the cache has. See
        `datavolume_cleanup.clean`.
        """
        cached = machine.cached_state()
        if cached is None or not media_annotation.read(cached.vm).obsolete:
            return
        state = machine.fetch()
        datavolume_cleanup.clean(machine, self.volumes, state,
                                 self.context(machine, state))

    def _enqueue_if_needed(self, machine: protocols.Machine,
                           state: vm_state.VmState) -> None:
        """Check a machine without blocking; queue it if there is work."""
        context = self.context(machine, state)
        if (reconciler.desired_vm(state, context) is not None
                or context.unobserved or context.pending):
            self._loop.add(machine)
        if datavolume_cleanup.due(state, context):
            # The process that made this record deletes first.
            self._loop.add(machine, _EJECT_SECONDS)
        self._revisit(machine, context)

    def _revisit(self, machine: protocols.Machine,
                 context: reconciler.Context) -> None:
        if context.revisit_seconds is not None:
            self._loop.add(machine, context.revisit_seconds + 0.01,
                           (machine.uid, 'revisit'))

    def _reconcile(self, machine: protocols.Machine,
                   state: vm_state.VmState) -> None:
        context = self.context(machine, state)
        edited = reconciler.desired_vm(state, context)
        for entry in context.unobserved:
            self._read_volume(machine, entry)
        if edited is not None:
            state = state.with_vm(json_patch.send(machine, state.vm, edited))
            LOG.info('%s: virtual media reconciled', machine.qualified_name)
        datavolume_cleanup.clean(machine, self.volumes, state, context)
        for entry in context.pending:
            self._explain(machine, entry)
        self._revisit(machine, context)

    def _read_volume(self, machine: protocols.Machine,
                     entry: media_annotation.Entry) -> None:
        """Read a DataVolume that no watch has reported into the cache."""
        try:
            self.volumes.put(self.cluster.client.get(
                api_resources.DATA_VOLUME, machine.namespace, entry.volume))
        except errors.ObjectNotFound:
            self.volumes.mark_deleted(
                machine.namespace, entry.volume, entry.uid)
            self.refresh(machine)

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
        self.volumes.fail(machine.namespace, entry.volume, *problem)


def now() -> str:
    """Return the present time, ISO 8601 in UTC."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(
        timespec='milliseconds').replace('+00:00', 'Z')


def has_record(vm: objects.VirtualMachine) -> bool:
    """Return whether a VM has the media annotation."""
    return stored_names.MEDIA in (vm['metadata'].get('annotations') or {})


def _call(callback: Subscriber, machine: protocols.Machine,
          device_id: str, old: model.Medium | None, new: model.Medium | None
          ) -> None:
    try:
        callback(machine, device_id, old, new)
    except Exception:
        LOG.exception('A subscriber to virtual media changes failed')
