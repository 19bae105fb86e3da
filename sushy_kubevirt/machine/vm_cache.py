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
from collections import abc
import functools
import heapq
import logging
import queue
import re
import threading
import time
import typing
import uuid

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import blocking
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import object_cache
from sushy_kubevirt.kube import objects
from sushy_kubevirt.kube import watcher
from sushy_kubevirt.machine import power_state
from sushy_kubevirt.machine import trim
from sushy_kubevirt.machine import vm_state

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import client
    from sushy_kubevirt.machine import options

    # Variables of `VmCache` have the name of the module `objects`.
    ObjectKey: typing.TypeAlias = objects.ObjectKey
    Vm: typing.TypeAlias = objects.VirtualMachine
    Vmi: typing.TypeAlias = objects.VirtualMachineInstance

_ObjectT = typing.TypeVar('_ObjectT', bound=abc.Mapping[str, typing.Any])
_ResultT = typing.TypeVar('_ResultT')

#: Function of a VM's key and its state, None if it was deleted.
Subscriber: typing.TypeAlias = (
    'abc.Callable[[ObjectKey, vm_state.VmState | None], None]')

LOG = logging.getLogger(__name__)

_UUID = re.compile('[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}')

#: Number of objects kept unpacked: a Redfish or IPMI request reads its machine
#: a dozen times.
_UNPACKED = 16


class Identity(typing.NamedTuple):
    """``metadata.uid`` of a VM, and the UUID that identifies its machine."""

    uid: str
    uuid: str


class Entries(typing.NamedTuple):
    """Entries of a VM and its VMI, each None if there is none."""

    vm: object_cache.Entry[Vm] | None
    vmi: object_cache.Entry[Vmi] | None
    #: Whether the VMI is known to be gone.
    ended: bool


class Version(typing.NamedTuple):
    """A value that changes when a VM, its VMI or UUID does."""

    identity: Identity
    entries: Entries


class _Expectation(typing.NamedTuple):
    """What the watches will show of a VM, and until when (monotonic)."""

    shown: abc.Callable[[vm_state.VmState], bool]
    end: float


class _Notification(typing.NamedTuple):
    key: ObjectKey
    entries: Entries
    subscribers: abc.Sequence[Subscriber]


class VmCache:
    """The VMs and VMIs of one scope. Thread-safe.

    :param namespaces: names; empty for all
    :param label_selector: only VMs with these labels
    :param vm: only this VM, regardless of its labels
    """

    def __init__(self, client: client.Client, options: options.Options,
                 namespaces: abc.Sequence[str] = (),
                 label_selector: str = '',
                 vm: ObjectKey | None = None) -> None:
        self._options = options
        self._lock = threading.RLock()
        self._condition = threading.Condition(self._lock)
        self._vms: object_cache.ObjectCache[Vm] = object_cache.ObjectCache(
            trim.vm, firmware_uuid)
        self._vmis: object_cache.ObjectCache[Vmi] = object_cache.ObjectCache(
            trim.vmi, owner_uid)
        # Keys of VMs whose status counts a VMI that is gone: the watches of
        # VMs and VMIs are not synchronized.
        self._ended: set[ObjectKey] = set()
        # uids of VMIs that are cached, and that the status of their VMs has
        # ceased to count: they are gone, and the watch has yet to say it.
        # With the versions of these VMs.
        self._uncounted: dict[str, int | None] = {}
        self._expected: dict[ObjectKey, _Expectation] = {}
        #: Changes when a VM is added or removed, or its `identity` changes.
        self.membership = 0
        self._by_uuid: dict[str | None, set[ObjectKey]] = (
            collections.defaultdict(set))
        self._by_uid: dict[str | None, ObjectKey] = {}
        # Keyed by the entry, as each version of an object has its own.
        self._unpack: abc.Callable[[object_cache.Entry[_ObjectT]], _ObjectT]
        self._unpack = functools.lru_cache(_UNPACKED)(
            object_cache.Entry.unpack)
        # By the VM's key; None for those of all VMs.
        self._callbacks: dict[ObjectKey | None, list[Subscriber]] = {}
        self._notifications: queue.SimpleQueue[_Notification | None] = (
            queue.SimpleQueue())
        self._notified = False      # of all objects of the first lists
        self._changes = 0
        self._closed = False
        field = ''
        if vm:
            namespaces, label_selector = (vm.namespace,), ''
            field = f'metadata.name={vm.name}'
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
        for watch in self._watchers:
            watch.start()

    def close(self) -> None:
        """Stop the watches and end all waiting."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()
        self._notifications.put(None)
        for watch in self._watchers:
            watch.stop()

    @property
    def listed(self) -> bool:
        """True once all VMs and VMIs have been listed."""
        # A plain loop: each read calls this and `stale` many times.
        for watch in self._watchers:
            if not watch.listed:
                return False
        return True

    @property
    def stale(self) -> bool:
        """True if a watch has been down for Options.stale_seconds."""
        for watch in self._watchers:
            since = watch.broken_since
            if since is not None and (
                    since < time.monotonic() - self._options.stale_seconds):
                return True
        return False

    @property
    def age(self) -> float | None:
        """Seconds since a watch stopped working; 0 while all of them work,
        None before all VMs and VMIs have been listed.
        """
        if not self.listed:
            return None
        broken = [since for since in (watch.broken_since
                                      for watch in self._watchers)
                  if since is not None]
        return max(0.0, time.monotonic() - min(broken)) if broken else 0.0

    @property
    def problem(self) -> str:
        """Why the watches do not work (a sentence); '' while the cache is
        not stale.
        """
        if self.listed and not self.stale:
            return ''
        for watch in self._watchers:
            if watch.broken_since is not None and watch.error is not None:
                return f'Watch of {watch.resource} failed: {watch.error}'
        waiting = dict.fromkeys(
            str(watch.resource) for watch in self._watchers
            if watch.broken_since is not None or not watch.listed)
        return f'Watches not synced: {", ".join(waiting)}'

    def wait(self, timeout: float) -> None:
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
                for watch in self._watchers:
                    if watch.error is not None and not watch.listed:
                        raise watch.error
                left = deadline - time.monotonic()
                if left <= 0:
                    raise errors.Unavailable(
                        'The API server has not listed the VMs in '
                        f'{timeout:g} s',
                        retry_after=self._options.watch_backoff)
                self._condition.wait(left)

    # Reading

    def keys(self) -> list[ObjectKey]:
        """Return the sorted keys of all VMs."""
        with self._lock:
            return sorted(self._vms.keys())

    def find(self, identity: str) -> list[ObjectKey]:
        """Return the sorted keys of the VMs with an identity.

        :param identity: UUID of the firmware or uid, name, or namespace/name
        """
        with self._lock:
            if '/' in identity:
                key = objects.ObjectKey(*identity.split('/', 1))
                return [key] if self._vms.get(key) else []
            wanted = normalized_uuid(identity)
            if wanted:
                # A UUID is never looked up as a name: a tenant could name a
                # VM like another one's UUID and receive its requests.
                if wanted in self._by_uid:
                    return [self._by_uid[wanted]]
                return sorted(self._by_uuid.get(wanted, ()))
            return sorted(
                key for key in self._vms.keys() if key.name == identity)

    def has_identity(self, key: ObjectKey, identity: str) -> bool:
        """Tell whether an identity is that of a VM, whatever others have.

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
            return identity == key.name

    def identity(self, key: ObjectKey, alone: bool = False
                 ) -> Identity | None:
        """Return the uid of a VM and the UUID that identifies its machine.

        That is the firmware's UUID, or the uid of a VM that has none. A
        tenant chooses the firmware's UUID: where several VMs have the same,
        or it is the uid of another VM, each VM is identified by its uid.

        :param alone: whether it is the only VM of the service, whatever UUIDs
            others have
        :returns: None if there is no such VM
        """
        with self._lock:
            entry = self._vms.get(key)
            if entry is None:
                return None
            if alone or (
                    len(self._by_uuid[entry.link]) == 1
                    and self._by_uid.get(entry.link, key) == key):
                return Identity(entry.uid, entry.link or '')
            return Identity(entry.uid, normalized_uuid(entry.uid)
                            or entry.link or '')

    def state(self, key: ObjectKey) -> vm_state.VmState | None:
        """Return a VM and its VMI, None if there is no such VM."""
        with self._lock:
            return self._state(self._entries(key))

    def version(self, key: ObjectKey, alone: bool = False) -> Version | None:
        """Return a value that changes when a VM, its VMI or UUID does.

        :param alone: see `identity`
        :returns: None if there is no such VM, or `catch_up` would wait
        """
        if key in self._expected:
            return None
        with self._lock:
            identity = self.identity(key, alone)
            return identity and Version(identity, self._entries(key))

    def _entries(self, key: ObjectKey) -> Entries:
        """Return the entries of a VM and its VMI.

        The caller holds the lock.
        """
        vm, vmi = self._vms.get(key), self._vmis.get(key)
        if vm is None or vmi is None or vmi.link != vm.uid:
            return Entries(vm, None, key in self._ended)
        if vmi.uid in self._uncounted:
            # It may count the next one already.
            return Entries(vm, None,
                           not vm_state.vmi_seen(self._unpack(vm)))
        return Entries(vm, vmi, key in self._ended)

    def vmi_uid(self, key: ObjectKey) -> str | None:
        """Return the uid of the VMI with this name, or None.

        The VMI may belong to another VM than the cached one.
        """
        with self._lock:
            entry = self._vmis.get(key)
            return entry.uid if entry is not None else None

    def _state(self, entries: Entries) -> vm_state.VmState | None:
        if entries.vm is None:
            return None
        vm = self._unpack(entries.vm)
        if entries.vmi is None:
            return vm_state.VmState(vm, None, entries.ended)
        return vm_state.VmState(vm, self._unpack(entries.vmi))

    # Waiting for effects of actions

    def expect(self, key: ObjectKey,
               shown: abc.Callable[[vm_state.VmState], bool],
               seconds: float) -> None:
        """Have `catch_up` wait for the effect of an action on a VM.

        :param shown: returns whether a state shows it; must not block
        :param seconds: time in which it is expected
        """
        with self._lock:
            self._expected[key] = _Expectation(
                shown, time.monotonic() + seconds)
            self._check_expected(key)

    def catch_up(self, key: ObjectKey, closing: threading.Event,
                 read: abc.Callable[[], object]) -> None:
        """Wait until the cache shows what is expected of a VM.

        :param closing: see `wait_until`
        :param read: called if the time is over, to read the VM; nothing is
            expected any more then
        """
        expected = self._expected.get(key)
        if expected is None or self.wait_until(
                lambda: self._expected.get(key) is not expected,
                expected.end - time.monotonic(), closing):
            return
        blocking.check()
        try:
            read()
        finally:
            # Not before: it would be valid for other readers meanwhile.
            with self._lock:
                if self._expected.get(key) is expected:
                    del self._expected[key]

    def _check_expected(self, key: ObjectKey) -> None:
        """Expect nothing any more of a VM if the cache shows it.

        The caller holds the lock.
        """
        state = self._state(self._entries(key))
        if state is None or self._expected[key].shown(state):
            del self._expected[key]

    # Writing

    def put_vm(self, obj: Vm) -> None:
        """Cache the response to a read or write of a VM of this scope."""
        self._put(self._vms, obj)

    def put_vmi(self, obj: Vmi) -> None:
        """Cache the response to a read of a VMI."""
        self._put(self._vmis, obj)

    def _put(self, objects: object_cache.ObjectCache[typing.Any],
             obj: typing.Any) -> None:
        with self._lock:
            key = object_cache.object_key(obj)
            before = objects.get(key)
            changed = objects.put(obj)
            if changed and (objects is self._vmis
                            or not vm_state.vmi_seen(obj)):
                self._ended.discard(key)
            entry = objects.get(key)
            if changed and entry is not None and objects is self._vms:
                self._index(before, entry)
                self._count_vmi(before, entry, obj)
            elif (changed and entry is not None and before is not None
                  and before.uid in self._uncounted
                  and object_cache.is_newer(entry.version,
                                            self._uncounted[before.uid])):
                del self._uncounted[before.uid]
        if changed:
            self._queue_notifications([key])

    def _count_vmi(self, before: object_cache.Entry[Vm] | None,
                   vm: object_cache.Entry[Vm], obj: Vm) -> None:
        """Note that a VM's status has ceased to count the cached VMI.

        Not of a VMI that has not run: virt-controller creates one, writes the
        VM's status as it was before that, and counts it in its next turn. What
        was counted until now may be the one before.

        :param before: entry of the VM until now
        :param vm: entry of ``obj``
        """
        vmi = self._vmis.get(vm.key)
        if (vmi is not None and vmi.link == vm.uid
                and before is not None and before.uid == vm.uid
                and not vm_state.vmi_seen(obj)
                and vm_state.vmi_seen(self._unpack(before))
                and vm_state.has_run(self._unpack(vmi))
                and object_cache.is_newer(vm.version, vmi.version)):
            self._uncounted[vmi.uid] = vm.version

    def discard_vm(self, key: ObjectKey, uid: str) -> None:
        """Remove a VM that the API no longer has."""
        self._drop(self._vms, self._vms.discard_deleted, key, uid)

    def discard_vmi(self, key: ObjectKey, uid: str) -> None:
        """Remove a VMI that the API no longer has."""
        self._drop(self._vmis, self._vmis.discard_deleted, key, uid)

    def relist(self) -> None:
        """List all VMs and VMIs in the caller's thread.

        :raises: `errors.Unavailable`
        """
        for watch in self._watchers:
            self.take_list(watch, watch.pages())

    # Called by the watchers

    def take_list(self, source: watcher.Watcher[typing.Any],
                  pages: abc.Iterator[client.Page[typing.Any]]) -> str:
        """Replace a collection by a complete list, page by page.

        :param pages: the version of the last one is the list's
        :returns: the resourceVersion to watch from
        """
        objects = self._objects_of(source)

        def within(key: ObjectKey) -> bool:
            return source.namespace in ('', key.namespace)

        with self._lock:
            newest = objects.newest
        seen: set[ObjectKey] = set()
        version = ''
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

    def event(self, source: watcher.Watcher[typing.Any], kind: str,
              obj: typing.Any) -> None:
        """Apply one event of a watch.

        :param kind: type of the event: ``ADDED``, ``MODIFIED``, ``DELETED``
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

    def _objects_of(self, source: watcher.Watcher[typing.Any]
                    ) -> object_cache.ObjectCache[typing.Any]:
        return self._vms if source.resource is api_resources.VM else self._vmis

    def _drop(self, objects: object_cache.ObjectCache[typing.Any],
              remove: abc.Callable[
                  ..., list[object_cache.Entry[typing.Any]]],
              *args: typing.Any) -> None:
        """Remove objects with a method of their `object_cache.ObjectCache`.

        :param remove: the method; returns the entries it removed
        """
        with self._lock:
            gone = remove(*args)
            if objects is self._vms:
                for entry in gone:
                    self._index(entry, None)
                    self._ended.discard(entry.key)
            else:
                self._ended.update(
                    entry.key for entry in gone
                    if self._uncounted.pop(entry.uid, None) is None
                    and (vm := self._vms.get(entry.key)) is not None
                    and vm_state.vmi_seen(self._unpack(vm)))
        self._queue_notifications([entry.key for entry in gone],
                                  gone=objects is self._vms)

    def _index(self, before: object_cache.Entry[Vm] | None,
               after: object_cache.Entry[Vm] | None) -> None:
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

    def subscribe(self, callback: Subscriber,
                  key: ObjectKey | None = None) -> None:
        """Call a function for each VM that exists, then for each change.

        A failed start that becomes a problem with time
        (`power_state.seconds_until_problem`) counts as a change. One thread
        makes all calls, in the order of the changes. Writes of this process
        do not wait for them.

        :param callback: called with the state as of that change; it must
            not block
        :param key: of the only VM that it is called for; None for all
        """
        with self._lock:
            self._callbacks.setdefault(key, []).append(callback)
            notified = self._notified
        if notified:
            self._queue_notifications(self.keys() if key is None else [key],
                                      callbacks=(callback,))

    def unsubscribe(self, callback: Subscriber,
                    key: ObjectKey | None = None) -> None:
        """End a subscription; calls that are under way are still made."""
        with self._lock:
            callbacks = self._callbacks.get(key, [])
            if callback in callbacks:
                callbacks.remove(callback)
            if not callbacks:
                self._callbacks.pop(key, None)

    def wait_until(self, check: abc.Callable[[], _ResultT], timeout: float,
                   closing: threading.Event) -> _ResultT:
        """Call a function now and after each change, until it returns a true
        value, the time is over or the cache or the event's owner is closed.

        :param timeout: seconds
        :returns: what it returned last
        """
        deadline = time.monotonic() + timeout
        while True:
            seen = self._changes
            result = check()
            left = deadline - time.monotonic()
            if result or left <= 0 or closing.is_set() or self._closed:
                return result
            blocking.check()
            with self._condition:
                if self._changes == seen:
                    # At most 1 s, as the function may call the API while a
                    # watch is down.
                    self._condition.wait(min(left, 1.0))

    def _queue_notifications(
            self, keys: abc.Collection[ObjectKey], gone: bool = False,
            callbacks: tuple[Subscriber, ...] = ()) -> None:
        with self._condition:
            self._changes += 1
            for key in self._expected.keys() & keys:
                self._check_expected(key)
            self._condition.notify_all()
            if not self._notified:
                return
            for key in keys:
                entries = self._entries(key)
                called = callbacks or (*self._callbacks.get(None, ()),
                                       *self._callbacks.get(key, ()))
                if called and (entries.vm is not None or gone):
                    self._notifications.put(
                        _Notification(key, entries, called))

    def _notify(self) -> None:
        """Call the subscribers. Runs in its own thread."""
        # Heap of (time.monotonic(), key).
        problems: list[tuple[float, ObjectKey]] = []
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
                state = self._state(entries)
            seconds = state and power_state.seconds_until_problem(state)
            if seconds:
                heapq.heappush(problems, (time.monotonic() + seconds, key))
            for callback in callbacks:
                try:
                    callback(key, state)
                except Exception:
                    LOG.exception('A subscriber failed to process a change '
                                  'of %s/%s', *key)


def firmware_uuid(vm: objects.VirtualMachine) -> str | None:
    """Return the UUID a guest reads from its firmware, else the VM's uid."""
    template = vm.get('spec', {}).get('template', {}).get('spec', {})
    firmware = template.get('domain', {}).get('firmware') or {}
    return (normalized_uuid(firmware.get('uuid'))
            or normalized_uuid(vm['metadata'].get('uid')))


def normalized_uuid(text: typing.Any) -> str | None:
    """Return a UUID in lower case with hyphens; None for other text."""
    if isinstance(text, str) and _UUID.fullmatch(text):
        return text
    try:
        return str(uuid.UUID(text))
    except (ValueError, AttributeError, TypeError):
        return None


def owner_uid(vmi: objects.VirtualMachineInstance) -> str | None:
    """Return the uid of the VM that owns a VMI, or None."""
    for reference in vmi['metadata'].get('ownerReferences') or ():
        if (reference.get('kind') == api_resources.VM.kind
                and reference.get('controller')):
            return reference.get('uid')
    return None
