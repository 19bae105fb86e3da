# SPDX-License-Identifier: Apache-2.0
"""Virtual media state of one process: cache of import progress, subscribers.

Holds nothing that has to survive the process. Updated by the watches of VMs
and VMIs and, while a medium is not complete, of DataVolumes.
"""

from __future__ import annotations

import datetime
import logging
import threading
import time
import typing

from sushy_kubevirt.kube import objects
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.machine.media import cdi
from sushy_kubevirt.machine.media import datavolume_cleanup
from sushy_kubevirt.machine.media import device_status
from sushy_kubevirt.machine.media import import_watcher
from sushy_kubevirt.machine.media import media_annotation
from sushy_kubevirt.machine.media import model
from sushy_kubevirt.machine.media import reconciler

if typing.TYPE_CHECKING:
    from collections import abc

    from sushy_kubevirt.machine.media import protocols as media_protocols
    from sushy_kubevirt.machine import protocols
    from sushy_kubevirt.machine import shared_cluster
    from sushy_kubevirt.machine import vm_state

LOG = logging.getLogger(__name__)

DEVICES = {device.id: device for device in (
    *model.DEVICES, model.HTTP_BOOT)}


class Manager:
    """The virtual media of one cluster.

    :param namespaces: those in its scope, () for all
    """

    def __init__(self, cluster: protocols.Cluster,
                 namespaces: tuple[str, ...],
                 shared: shared_cluster.SharedCluster | None = None) -> None:
        self.cluster = cluster
        self.volumes = import_watcher.ImportWatcher(
            cluster.client, cluster.options,
            (cluster.vm.namespace,) if cluster.vm else namespaces,
            bool(cluster.vm), self._volume_changed)
        #: Uploads of this process by the ID of the attempt.
        self.uploads: dict[str, media_protocols.Upload] = {}
        #: IDs of the attempts that this process is inserting.
        self.inserting: set[str] = set()
        #: Cache of certificates: {digest: PEM text}
        self.certificates: dict[str, str] = {}
        self._callback_lock = threading.RLock()
        self._condition = threading.Condition()
        self._generation = 0
        self._callbacks: list[media_protocols.Subscriber] = []
        self._machines: dict[objects.ObjectKey, protocols.Machine] = {}
        # By the VM's uid: media by device id, the time (`time.monotonic`) of
        # the first call of `age`, names of DataVolumes.
        self._media: dict[str, dict[str, model.Medium]] = {}
        self._first_seen: dict[str, dict[abc.Hashable, float]] = {}
        self._searched_names: dict[str, set[str]] = {}
        self._cdi = shared.cdi if shared else cdi.Cdi(cluster.client)
        self._started_at = now()
        self._reconciler = reconciler.Reconciler(
            self, shared.media_worker if shared else None)

    def start(self) -> None:
        """Subscribe to the cluster; call it before its cache starts."""
        self.cluster.subscribe(self._update)
        self._reconciler.start()

    def close(self) -> None:
        """Stop the uploads, the reconciler and the watches."""
        for upload in list(self.uploads.values()):
            upload.stop()
        self._reconciler.close()
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
            device, entry, state, self.observed_volume(state.vm, entry)
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
        return {id_: medium for id_, device in DEVICES.items()
                if (medium := self._medium(device, state)) is not None}

    @property
    def changes(self) -> int:
        """Number of changes of media so far."""
        return self._generation

    @property
    def cdi_available(self) -> bool:
        """Whether CDI was found; costs no API call."""
        return self._cdi.served

    def require_cdi(self) -> None:
        """Check that the cluster has CDI; one API call until it has.

        :raises: `errors.Unsupported` if it has not
        """
        self._cdi.require()

    def check_cdi_in_background(self) -> None:
        """Call `require_cdi` in a thread, to set `cdi_available`."""
        self._cdi.check_in_background()

    def age(self, uid: str, what: abc.Hashable) -> float:
        """Return the seconds since this was first called with these arguments.

        Measured with this process's monotonic clock, as the clocks of other
        processes may be wrong.

        :param uid: uid of the VM
        :param what: names a condition
        """
        now = time.monotonic()
        return now - self._first_seen.setdefault(uid, {}).setdefault(what, now)

    def searched_names(self, uid: str) -> set[str]:
        """Return the names that `datavolume_cleanup` searched for."""
        return self._searched_names.setdefault(uid, set())

    # Notifications

    def subscribe(self, callback: media_protocols.Subscriber) -> None:
        """See `media.subscribe`."""
        with self._callback_lock:
            self._callbacks.append(callback)
            for machine in list(self._machines.values()):
                for id_, medium in self._media.get(machine.uid, {}).items():
                    _call(callback, machine, id_, medium, medium)

    def wait(self, ready: abc.Callable[[], bool], timeout: float) -> bool:
        """Wait until a condition holds, checked after every change.

        :param timeout: seconds
        :returns: whether it held before the timeout
        """
        deadline = time.monotonic() + timeout
        while True:
            with self._condition:
                since = self._generation
            if ready():
                return True
            left = deadline - time.monotonic()
            if left <= 0 or self.cluster.closing.is_set():
                return False
            with self._condition:
                if self._generation == since:
                    self._condition.wait(min(left, 1.0))

    def refresh(self, machine: protocols.Machine) -> None:
        """Check a machine again, as after a change."""
        self._update(machine)

    def delete_obsolete(self, machine: protocols.Machine) -> None:
        """Delete the DataVolumes that the record lists, in one attempt.

        Call it after a write of this process, which the cache has. See
        `datavolume_cleanup.clean`.
        """
        cached = machine.cached_state()
        if cached is None or not media_annotation.read(cached.vm).obsolete:
            return
        state = machine.fetch()
        datavolume_cleanup.clean(machine, self, state.vm,
                                 self._reconciler.context(machine, state))

    def _volume_changed(self, namespace: str, name: str) -> None:
        machine = self._machines.get(objects.ObjectKey(namespace, name))
        if machine is not None:
            self._update(machine)

    def _update(self, machine: protocols.Machine,
                _state: vm_state.VmState | None = None) -> None:
        """Process a change; runs in a watch's thread and writes nothing."""
        with self._callback_lock:
            # Read under the lock, so that the last thread to get it uses the
            # latest state.
            state = machine.cached_state()
            if state is None or not has_record(state.vm):
                self._remove_machine(machine, state is None)
                return
            key = objects.ObjectKey(machine.namespace, machine.name)
            self._machines[key] = machine
            record = media_annotation.read(state.vm)
            self.volumes.watch(key, {
                entry.volume for entry in record.media.values()
                if not (entry.ready or entry.reason)})
            self._notify(machine, self.media(state))
        self._reconciler.enqueue_if_needed(machine, state)

    def _remove_machine(self, machine: protocols.Machine,
                        deleted: bool) -> None:
        key = objects.ObjectKey(machine.namespace, machine.name)
        known = self._machines.get(key)
        if known is None or known.uid != machine.uid:
            return
        self._notify(machine, {})
        del self._machines[key]
        self._media.pop(machine.uid, None)
        self._first_seen.pop(machine.uid, None)
        self._searched_names.pop(machine.uid, None)
        self.volumes.watch(key, set())
        if deleted:
            self._stop_uploads(machine)

    def _stop_uploads(self, machine: protocols.Machine) -> None:
        for upload in list(self.uploads.values()):
            if upload.machine.uid == machine.uid:
                upload.stop()

    def _notify(self, machine: protocols.Machine,
                media: dict[str, model.Medium]) -> None:
        before = self._media.get(machine.uid, {})
        self._media[machine.uid] = media
        first = machine.uid not in self._first_seen
        self._first_seen.setdefault(machine.uid, {})
        for id_ in DEVICES:
            old, new = before.get(id_), media.get(id_)
            if old == new:
                continue
            if first and new is not None and new.since < self._started_at:
                old = new       # inserted before this process started
            for callback in tuple(self._callbacks):
                _call(callback, machine, id_, old, new)
        with self._condition:
            self._generation += 1
            self._condition.notify_all()


def now() -> str:
    """Return the present time, ISO 8601 in UTC."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(
        timespec='milliseconds').replace('+00:00', 'Z')


def has_record(vm: objects.VirtualMachine) -> bool:
    """Return whether a VM has the media annotation."""
    return stored_names.MEDIA in (vm['metadata'].get('annotations') or {})


def _call(callback: media_protocols.Subscriber, machine: protocols.Machine,
          device_id: str, old: model.Medium | None, new: model.Medium | None
          ) -> None:
    try:
        callback(machine, device_id, old, new)
    except Exception:
        LOG.exception('A subscriber to virtual media changes failed')
