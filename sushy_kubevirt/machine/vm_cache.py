# SPDX-License-Identifier: Apache-2.0
"""Cache of the VMs of a scope and their VMIs, kept up to date by watches.

Reads make no API call while the watches work; the cache records since when
one does not. Responses to writes are cached at once, so that a process reads
its own writes.

VMIs are watched by namespace and not by the label selector of the VMs, as
they need not have the VMs' labels. A VMI belongs to the VM of the same name
that owns it.
"""

from __future__ import annotations

import collections
import heapq
import logging
import queue
import threading
import time
import uuid

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import blocking
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import object_cache
from sushy_kubevirt.kube import watcher
from sushy_kubevirt.machine import power_state
from sushy_kubevirt.machine import run_strategy
from sushy_kubevirt.machine import trim

LOG = logging.getLogger(__name__)

#: Number of objects kept unpacked: a Redfish or IPMI request reads its machine
#: a dozen times.
_UNPACKED = 16


class VmCache:
    """The VMs and VMIs of one scope. Thread-safe.

    :param client: a `client.Client`
    :param options: an `options.Options`
    :param namespaces: names; empty for all
    :param label_selector: only VMs with these labels
    :param vm: (namespace, name): only this VM, regardless of its labels
    """

    def __init__(self, client, options, namespaces=(),
                 label_selector: str = '',
                 vm=None) -> None:
        self._options = options
        self._lock = threading.RLock()
        self._condition = threading.Condition(self._lock)
        self._vms = object_cache.ObjectCache(trim.vm, firmware_uuid)
        self._vmis = object_cache.ObjectCache(trim.vmi, owner_uid)
        # Keys of VMs whose status counts a VMI that is gone: the watches of
        # VMs and VMIs are not synchronized.
        self._ended = set()
        # uids of VMIs that are cached, and that the status of their VMs has
        # ceased to count: they are gone, and the watch has yet to say it.
        # With the versions of these VMs.
        self._uncounted = {}
        #: Changes when a VM is added or removed, or its `identity` changes.
        self.membership = 0
        self._by_uuid = collections.defaultdict(set)
        self._by_uid = {}
        self._unpacked = collections.OrderedDict()
        self._callbacks = []
        self._callbacks_of = {}     # key: list, of single VMs
        self._notifications = queue.SimpleQueue()
        self._notified = False      # of all objects of the first lists
        self._changes = 0
        self._closed = False
        field = ''
        if vm:
            namespaces, label_selector = (vm[0],), ''
            field = f'metadata.name={vm[1]}'
        self._watchers = [
            watcher.Watcher(client, options, resource, namespace, labels,
                            field, self, streams=not vm)
            for namespace in namespaces or ('',)
            for resource, labels in ((api_resources.VM, label_selector),
                                     (api_resources.VMI, ''))]

    # Start, stop and health

    def start(self) -> None:
        """Start the watches and the notifications. Call it once."""
        threading.Thread(target=self._notify, daemon=True,
                         name='vm-cache-notifications').start()
        for each in self._watchers:
            each.start()

    def close(self) -> None:
        """Stop the watches and end all waiting."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()
        self._notifications.put(None)
        for each in self._watchers:
            each.stop()

    @property
    def listed(self) -> bool:
        """True once all VMs and VMIs have been listed."""
        # A plain loop: each read calls this and `stale` many times.
        for each in self._watchers:
            if not each.listed:
                return False
        return True

    @property
    def stale(self) -> bool:
        """True if a watch has been down for Options.stale_seconds."""
        for each in self._watchers:
            since = each.broken_since
            if since is not None and (
                    since < time.monotonic() - self._options.stale_seconds):
                return True
        return False

    @property
    def age(self):
        """Seconds since a watch stopped working; 0 while all of them work,
        None before all VMs and VMIs have been listed.
        """
        if not self.listed:
            return None
        broken = [since for since in (each.broken_since
                                      for each in self._watchers)
                  if since is not None]
        return max(0.0, time.monotonic() - min(broken)) if broken else 0.0

    @property
    def problem(self) -> str:
        """Why the watches do not work (a sentence); '' while the cache is
        not stale.
        """
        if self.listed and not self.stale:
            return ''
        for each in self._watchers:
            if each.broken_since is not None and each.error is not None:
                return f'Watch of {each.resource} failed: {each.error}'
        waiting = dict.fromkeys(
            str(each.resource) for each in self._watchers
            if each.broken_since is not None or not each.listed)
        return f'Watches not synced: {", ".join(waiting)}'

    def wait(self, timeout):
        """Wait until all VMs and VMIs have been listed.

        :param timeout: seconds
        :raises: `errors.Unavailable`, `errors.AccessDenied`: the error of a
            list, or the timeout
        """
        blocking.check()
        deadline = time.monotonic() + timeout
        with self._condition:
            while not self.listed:
                if self._closed:
                    raise errors.Unavailable('The connection is closed')
                for each in self._watchers:
                    if each.error is not None and not each.listed:
                        raise each.error
                left = deadline - time.monotonic()
                if left <= 0:
                    raise errors.Unavailable(
                        'The API server has not listed the VMs in '
                        f'{timeout:g} s',
                        retry_after=self._options.watch_backoff)
                self._condition.wait(left)

    # Reading

    def keys(self):
        """Return the sorted (namespace, name) of all VMs."""
        with self._lock:
            return sorted(self._vms.keys())

    def find(self, identity):
        """Return the VMs with a UUID, a name or namespace/name.

        :param identity: UUID of the firmware or uid, name, or namespace/name
        :returns: sorted list of (namespace, name)
        """
        with self._lock:
            if '/' in identity:
                key = tuple(identity.split('/', 1))
                return [key] if self._vms.get(key) else []
            wanted = normalized_uuid(identity)
            if wanted:
                # A UUID is never looked up as a name: a tenant could name a
                # VM like another one's UUID and receive its requests.
                if wanted in self._by_uid:
                    return [self._by_uid[wanted]]
                return sorted(self._by_uuid.get(wanted, ()))
            return sorted(
                key for key in self._vms.keys() if key[1] == identity)

    def has_identity(self, key, identity):
        """Tell whether an identity is that of a VM, whatever others have.

        :param key: (namespace, name)
        :param identity: see `find`
        """
        with self._lock:
            entry = self._vms.get(key)
            if entry is None:
                return False
            if '/' in identity:
                return identity == '/'.join(key)
            wanted = normalized_uuid(identity)
            if wanted:
                return wanted in (entry.link, normalized_uuid(entry.uid))
            return identity == key[1]

    def identity(self, key, alone: bool = False):
        """Return the uid of a VM and the UUID that identifies its machine.

        That is the firmware's UUID, or the uid of a VM that has none. A
        tenant chooses the firmware's UUID: where several VMs have the same,
        or it is the uid of another VM, each VM is identified by its uid.

        :param key: (namespace, name)
        :param alone: whether it is the only VM of the service, whatever UUIDs
            others have
        :returns: (uid, UUID); None if there is no such VM
        """
        with self._lock:
            entry = self._vms.get(key)
            if entry is None:
                return None
            if alone or (
                    len(self._by_uuid[entry.link]) == 1
                    and self._by_uid.get(entry.link, key) == key):
                return entry.uid, entry.link
            return entry.uid, normalized_uuid(entry.uid) or entry.link

    def objects(self, key):
        """Return a VM and its VMI. Both are shared and must not be changed.

        For a VMI that is known to be gone see `run_strategy.without_vmi`.

        :param key: (namespace, name)
        :returns: (vm, vmi), each None if there is none
        """
        with self._lock:
            return self._unpack_pair(*self._entries(key))

    def version(self, key, alone: bool = False):
        """Return a value that changes when a VM, its VMI or UUID does.

        :param key: (namespace, name)
        :param alone: see `identity`
        :returns: tuple to be compared; None if there is no such VM
        """
        with self._lock:
            identity = self.identity(key, alone)
            return identity and (*identity, *self._entries(key))

    def _entries(self, key):
        """Return the entries of a VM and its VMI, each None if there is none.

        The caller holds the lock.

        :returns: (vm, vmi, whether the VMI is known to be gone)
        """
        vm = self._vms.get(key)
        vmi = self._vmis.get(key) if vm is not None else None
        if vmi is not None and vmi.link != vm.uid:
            vmi = None
        if vmi is not None and vmi.uid in self._uncounted:
            # It may count the next one already.
            return vm, None, not run_strategy.vmi_seen(self._unpack(vm))
        return vm, vmi, key in self._ended

    def is_older(self, key, version):
        """Return True if the cached VM is older than a version.

        :param key: (namespace, name)
        :param version: resourceVersion as a number; 0 or None if unknown
        """
        if not version:
            return False
        vm = self._vms.get(key)
        return (vm is not None and vm.version is not None
                and vm.version < version)

    def vmi_uid(self, key):
        """Return the uid of the VMI with this name, or None.

        The VMI may belong to another VM than the cached one.
        """
        with self._lock:
            entry = self._vmis.get(key)
            return entry and entry.uid

    def _unpack_pair(self, vm, vmi, ended):
        vm, vmi = vm and self._unpack(vm), vmi and self._unpack(vmi)
        if vm is not None and vmi is None and ended:
            vm = run_strategy.without_vmi(vm)
        return vm, vmi

    def _unpack(self, entry):
        # Keyed by the entry, as each version of an object has its own.
        obj = self._unpacked.get(entry)
        if obj is None:
            obj = self._unpacked[entry] = entry.unpack()
            if len(self._unpacked) > _UNPACKED:
                self._unpacked.popitem(last=False)
        return obj

    # Writing

    def put_vm(self, obj) -> None:
        """Cache the response to a read or write of a VM of this scope."""
        self._put(self._vms, obj)

    def put_vmi(self, obj) -> None:
        """Cache the response to a read of a VMI."""
        self._put(self._vmis, obj)

    def _put(self, objects, obj) -> None:
        with self._lock:
            key = object_cache.object_key(obj)
            before = objects.get(key)
            changed = objects.put(obj)
            if changed and (objects is self._vmis
                            or not run_strategy.vmi_seen(obj)):
                self._ended.discard(key)
            if changed and objects is self._vms:
                self._index(before, objects.get(key))
                self._count_vmi(before, objects.get(key), obj)
            elif (changed and before is not None
                  and before.uid in self._uncounted
                  and object_cache.is_newer(objects.get(key).version,
                                            self._uncounted[before.uid])):
                del self._uncounted[before.uid]
        if changed:
            self._queue_notifications([key])

    def _count_vmi(self, before, vm, obj) -> None:
        """Note whether a VM's status counts the cached VMI.

        What it counts after it has ceased to count a VMI is another one,
        unless that has not run: KubeVirt may have created it just before.

        :param before: entry of the VM until now, or None
        :param vm: entry of the VM
        :param obj: the VM
        """
        vmi = self._vmis.get(vm.key)
        if vmi is None or vmi.link != vm.uid:
            return
        if run_strategy.vmi_seen(obj):
            if not run_strategy.has_run(self._unpack(vmi)):
                self._uncounted.pop(vmi.uid, None)
        elif (before is not None and before.uid == vm.uid
              and run_strategy.vmi_seen(self._unpack(before))
              and object_cache.is_newer(vm.version, vmi.version)):
            self._uncounted[vmi.uid] = vm.version

    def discard_vm(self, key, uid) -> None:
        """Remove a VM that the API no longer has."""
        self._drop(self._vms, self._vms.discard_deleted, key, uid)

    def discard_vmi(self, key, uid) -> None:
        """Remove a VMI that the API no longer has."""
        self._drop(self._vmis, self._vmis.discard_deleted, key, uid)

    def relist(self) -> None:
        """List all VMs and VMIs in the caller's thread.

        :raises: `errors.Unavailable`
        """
        for each in self._watchers:
            self.take_list(each, each.pages())

    # Called by the watchers

    def take_list(self, source, pages):
        """Replace a collection by a complete list, page by page.

        :param source: the `watcher.Watcher` of the collection
        :param pages: iterator of (items, resourceVersion), that of the last
            page is the list's
        :returns: the resourceVersion to watch from
        """
        objects = self._objects_of(source)

        def within(key) -> bool:
            return source.namespace in ('', key[0])

        with self._lock:
            newest = objects.newest
        seen = set()
        for items, version in pages:
            if not seen and (object_cache.version_number(version)
                             or newest) < newest:
                # The API server lost history, as after a restored backup:
                # the cached versions are not comparable.
                self._drop(objects, objects.drop, within)
            for obj in items:
                seen.add(object_cache.object_key(obj))
                self._put(objects, obj)
        self._drop(objects, objects.retain_listed, within, seen, version)
        return version

    def event(self, source, kind, obj) -> None:
        """Apply one event of a watch.

        :param source: the `watcher.Watcher`
        :param kind: type of the event: ``ADDED``, ``MODIFIED``, ``DELETED``
        :param obj: the object
        """
        objects = self._objects_of(source)
        if kind == 'DELETED':
            self._drop(objects, objects.remove, obj)
        else:
            self._put(objects, obj)

    def changed(self) -> None:
        """Note that a watcher has listed, started to work or failed."""
        with self._condition:
            self._condition.notify_all()
            first = self.listed and not self._notified
            self._notified = self._notified or first
        if first:
            self._queue_notifications(self.keys())

    def _objects_of(self, source):
        return self._vms if source.resource is api_resources.VM else self._vmis

    def _drop(self, objects, how, *args) -> None:
        """Remove objects with a method of their `object_cache.ObjectCache`.

        :param how: the method; returns the entries it removed
        """
        with self._lock:
            gone = how(*args)
            if objects is self._vms:
                for entry in gone:
                    self._index(entry, None)
                    self._ended.discard(entry.key)
            else:
                self._ended.update(
                    entry.key for entry in gone
                    if self._uncounted.pop(entry.uid, None) is None
                    and (vm := self._vms.get(entry.key)) is not None
                    and run_strategy.vmi_seen(self._unpack(vm)))
        self._queue_notifications([entry.key for entry in gone],
                                  gone=objects is self._vms)

    def _index(self, before, after) -> None:
        if before is not None and after is not None and (
                before.uid, before.link) == (after.uid, after.link):
            return
        self.membership += 1
        if before is not None:
            keys = self._by_uuid[before.link]
            keys.discard(before.key)
            if not keys:
                del self._by_uuid[before.link]
            self._by_uid.pop(normalized_uuid(before.uid), None)
        if after is not None:
            keys = self._by_uuid[after.link]
            keys.add(after.key)
            self._by_uid[normalized_uuid(after.uid)] = after.key
            if len(keys) > 1 and (before is None
                                  or before.link != after.link):
                LOG.warning(
                    'Several VMs have the firmware UUID %s: %s. Each is '
                    'identified by its metadata.uid until their UUIDs '
                    'differ', after.link,
                    ', '.join(sorted(f'{namespace}/{name}'
                                     for namespace, name in keys)))

    # Notifications

    def subscribe(self, callback, key=None) -> None:
        """Call a function for each VM that exists, then for each change.

        A failed start that becomes a problem with time
        (`power_state.seconds_until_problem`) counts as a change. One thread
        makes all calls, in the order of the changes. Writes of this process
        do not wait for them.

        :param callback: function of (key, vm, vmi), the objects as of that
            change; vm is None when the VM was deleted. It must not block.
        :param key: (namespace, name) of the only VM that it is called for;
            None for all
        """
        with self._lock:
            if key is None:
                self._callbacks.append(callback)
            else:
                self._callbacks_of.setdefault(key, []).append(callback)
            notified = self._notified
        if notified:
            self._queue_notifications(self.keys() if key is None else [key],
                                      callbacks=(callback,))

    def unsubscribe(self, callback, key=None) -> None:
        """End a subscription; calls that are under way are still made."""
        with self._lock:
            callbacks = (self._callbacks if key is None
                         else self._callbacks_of.get(key, []))
            if callback in callbacks:
                callbacks.remove(callback)
            if key is not None and not callbacks:
                self._callbacks_of.pop(key, None)

    @property
    def changes(self):
        """Number of changes so far, for `wait_change`."""
        return self._changes

    def wait_change(self, since, timeout) -> None:
        """Wait for a change.

        :param since: value of `changes` after which a change counts
        :param timeout: seconds
        """
        blocking.check()
        with self._condition:
            if self._changes == since and not self._closed:
                self._condition.wait(timeout)

    def _queue_notifications(self, keys, gone: bool = False,
                             callbacks=None) -> None:
        with self._condition:
            self._changes += 1
            self._condition.notify_all()
            if not self._notified:
                return
            for key in keys:
                entries = self._entries(key)
                called = callbacks or (*self._callbacks,
                                       *self._callbacks_of.get(key, ()))
                if called and (entries[0] is not None or gone):
                    self._notifications.put((key, entries, called))

    def _notify(self) -> None:
        """Call the subscribers. Runs in its own thread."""
        problems = []       # heap of (time.monotonic(), key)
        while True:
            wait = None
            if problems:
                wait = max(problems[0][0] - time.monotonic(), 0.0)
            try:
                notification = self._notifications.get(timeout=wait)
            except queue.Empty:
                self._queue_notifications([heapq.heappop(problems)[1]])
                continue
            if notification is None:
                return
            key, entries, callbacks = notification
            with self._lock:
                vm, vmi = self._unpack_pair(*entries)
            seconds = vm and power_state.seconds_until_problem(vm, vmi)
            if seconds:
                heapq.heappush(problems, (time.monotonic() + seconds, key))
            for callback in callbacks:
                try:
                    callback(key, vm, vmi)
                except Exception:
                    LOG.exception('A subscriber failed to process a change '
                                  'of %s/%s', *key)


def firmware_uuid(vm):
    """Return the UUID a guest reads from its firmware, else the VM's uid."""
    template = vm.get('spec', {}).get('template', {}).get('spec', {})
    firmware = template.get('domain', {}).get('firmware') or {}
    return (normalized_uuid(firmware.get('uuid'))
            or normalized_uuid(vm['metadata'].get('uid')))


def normalized_uuid(text):
    """Return a UUID in lower case with hyphens; None for other text."""
    try:
        return str(uuid.UUID(text))
    except (ValueError, AttributeError, TypeError):
        return None


def owner_uid(vmi):
    """Return the uid of the VM that owns a VMI, or None."""
    for reference in vmi['metadata'].get('ownerReferences') or ():
        if (reference.get('kind') == api_resources.VM.kind
                and reference.get('controller')):
            return reference.get('uid')
    return None
