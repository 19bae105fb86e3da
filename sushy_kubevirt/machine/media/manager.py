# SPDX-License-Identifier: Apache-2.0
"""What one process knows about the media of a cluster's machines.

Nothing that has to last: how far imports are, who wants to be told, what has
been looked at since when. Fed by the watches of VMs, VMIs and, while a
medium is not complete, DataVolumes.
"""

import datetime
import logging
import threading
import time

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import annotations
from sushy_kubevirt.machine.media import datavolume_cleanup
from sushy_kubevirt.machine.media import device_status
from sushy_kubevirt.machine.media import import_watcher
from sushy_kubevirt.machine.media import media_annotation
from sushy_kubevirt.machine.media import model
from sushy_kubevirt.machine.media import reconciler

LOG = logging.getLogger(__name__)

DEVICES = {device.id: device for device in (
    *model.DEVICES, model.HTTP_BOOT)}


class Manager:
    """The media of one cluster.

    :param cluster: a `cluster.Cluster`
    :param namespaces: of its scope, () for all
    """

    def __init__(self, cluster, namespaces):
        self.cluster = cluster
        self.volumes = import_watcher.ImportWatcher(
            cluster.client, cluster.options,
            (cluster.vm[0],) if cluster.vm else namespaces,
            bool(cluster.vm), self._volume_changed)
        #: What this process uploads: {attempt: `upload.Upload`}
        self.uploads = {}
        #: Attempts that this process is inserting.
        self.inserting = set()
        #: PEM of certificates: {digest: text}
        self.certificates = {}
        self._callback_lock = threading.RLock()
        self._condition = threading.Condition()
        self._generation = 0
        self._callbacks = []
        self._machines = {}         # (namespace, name): machine
        self._media = {}            # VM's uid: {device id: Medium}
        self._first_seen = {}  # VM's uid: {what: when first observed_volume}
        self._searched_names = {}            # VM's uid: names of DataVolumes
        self._cdi_served = False
        self._started_at = now()
        self._reconciler = reconciler.Reconciler(self)

    # Its life

    def start(self):
        """Begin to watch. Before the cluster's cache starts."""
        self.cluster.subscribe(self._update)
        self._reconciler.start()

    def close(self):
        for upload in list(self.uploads.values()):
            upload.stop()
        self._reconciler.close()
        self.volumes.close()

    # Reading

    def medium(self, machine, device):
        """:returns: the `model.Medium` in a device of a machine, or None"""
        return self._medium(device, *machine.objects())

    def _medium(self, device, vm, vmi):
        entry = media_annotation.read(vm).media.get(device.id)
        return device_status.medium(
            device, entry, vm, vmi, self.observed_volume(vm, entry))

    def observed_volume(self, vm, entry):
        """:returns: `import_watcher.ObservedVolume` of an entry, or None"""
        if entry is None:
            return None
        return self.volumes.get(vm['metadata'].get('namespace', ''),
                                entry.volume, entry.uid)

    def media(self, vm, vmi):
        """:returns: {device id: `model.Medium`} of what is in the devices"""
        if not has_record(vm):
            return {}
        found = {id_: self._medium(device, vm, vmi)
                 for id_, device in DEVICES.items()}
        return {id_: each for id_, each in found.items()
                if each is not None}

    @property
    def cdi_available(self):
        """Whether CDI is known to be there; costs no call."""
        return self._cdi_served

    def require_cdi(self):
        """See to it that CDI is there.

        :raises: `errors.Unsupported`
        """
        if self._cdi_served:
            return
        self._cdi_served = self.cluster.client.served(
            api_resources.DATA_VOLUME.group)
        if not self._cdi_served:
            raise errors.Unsupported(
                'Virtual media need CDI, the Containerized Data Importer, '
                'which this cluster does not have; install it: '
                'https://kubevirt.io/user-guide/storage/'
                'containerized_data_importer/')

    def check_cdi_in_background(self):
        """Find out whether CDI is there, in a thread of its own."""
        def ask():
            try:
                self.require_cdi()
            except errors.MachineError as e:
                LOG.debug('Virtual media: %s', e)

        threading.Thread(target=ask, daemon=True, name='media-cdi').start()

    def age(self, uid, what):
        """Since when a VM is known to be so.

        By this process's own clock: those of others may go wrong.

        :param uid: of the VM
        :param what: anything hashable
        :returns: seconds
        """
        now = time.monotonic()
        return now - self._first_seen.setdefault(uid, {}).setdefault(what, now)

    def searched_names(self, uid):
        """:returns: names that `datavolume_cleanup` has looked for"""
        return self._searched_names.setdefault(uid, set())

    # Telling others

    def subscribe(self, callback):
        """See `media.subscribe`."""
        with self._callback_lock:
            self._callbacks.append(callback)
            for machine in list(self._machines.values()):
                for id_, found in self._media.get(machine.uid, {}).items():
                    _call(callback, machine, id_, found, found)

    def wait(self, ready, timeout):
        """Wait until something is so.

        :param ready: function without arguments
        :returns: whether it came to be so
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

    def refresh(self, machine):
        """Look at a machine again, and have done what is to be done."""
        self._update(machine)

    def delete_obsolete(self, machine):
        """Delete what is to go. One try, see `datavolume_cleanup.clean`.

        Call it after a write of this process, which the cache has.
        """
        vm, _ = self.cluster.known(machine)
        if vm is None or not media_annotation.read(vm).gone:
            return
        vm, vmi = machine.fetch()
        datavolume_cleanup.clean(machine, self, vm,
                                 self._reconciler.context(machine, vm, vmi))

    def _volume_changed(self, namespace, name):
        machine = self._machines.get((namespace, name))
        if machine is not None:
            self._update(machine)

    def _update(self, machine, _vm=None, _vmi=None):
        """Called in a watch's thread: looks, and leaves the writing."""
        with self._callback_lock:
            # Read here, so that the last call always has the last state,
            # whichever watch's thread makes it.
            vm, vmi = self.cluster.known(machine)
            if vm is None or not has_record(vm):
                self._remove_machine(machine, vm is None)
                return
            key = (machine.namespace, machine.name)
            self._machines[key] = machine
            found = media_annotation.read(vm)
            self.volumes.watch(key, {
                entry.volume for entry in found.media.values()
                if not (entry.ready or entry.reason)})
            self._notify(machine, self.media(vm, vmi))
        self._reconciler.enqueue_if_needed(machine, vm, vmi)

    def _remove_machine(self, machine, deleted):
        key = (machine.namespace, machine.name)
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

    def _stop_uploads(self, machine):
        for upload in list(self.uploads.values()):
            if upload.machine.uid == machine.uid:
                upload.stop()

    def _notify(self, machine, found):
        before = self._media.get(machine.uid, {})
        self._media[machine.uid] = found
        first = machine.uid not in self._first_seen
        self._first_seen.setdefault(machine.uid, {})
        for id_ in DEVICES:
            old, new = before.get(id_), found.get(id_)
            if old == new:
                continue
            if first and new.since < self._started_at:
                old = new       # it was there before this process
            for callback in tuple(self._callbacks):
                _call(callback, machine, id_, old, new)
        with self._condition:
            self._generation += 1
            self._condition.notify_all()


def now():
    """:returns: the present time, ISO 8601 in UTC"""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(
        timespec='milliseconds').replace('+00:00', 'Z')


def has_record(vm):
    """:returns: whether a BMC remembers anything about media of a VM"""
    return annotations.MEDIA in (vm['metadata'].get('annotations') or {})


def _call(callback, *args):
    try:
        callback(*args)
    except Exception:
        LOG.exception('Telling of virtual media failed')
