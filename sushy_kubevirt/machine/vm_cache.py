# SPDX-License-Identifier: Apache-2.0
"""The VMs of a scope and their VMIs, kept up to date by watches.

Reads cost no API call while the watches work; the cache knows since when one
does not. Answers to writes are put in at once, so that a process reads what
it has written.

VMIs are followed by namespace, not by the VMs' labels, which they need not
have, and belong to the VM of the same name that owns them.
"""

import collections
import logging
import queue
import threading
import time
import uuid

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import object_cache
from sushy_kubevirt.kube import watcher
from sushy_kubevirt.machine import trim

LOG = logging.getLogger(__name__)

#: Objects unpacked for the last readers: a protocol's request looks at its
#: machine a dozen times.
_UNPACKED = 16


class VmCache:
    """What is known of one scope. Safe to use from several threads.

    :param client: a `client.Client`
    :param options: an `options.Options`
    :param namespaces: names; empty for all
    :param label_selector: of VMs
    :param vm: (namespace, name): this VM alone
    """

    def __init__(self, client, options, namespaces=(), label_selector='',
                 vm=None):
        self._options = options
        self._lock = threading.RLock()
        self._condition = threading.Condition(self._lock)
        self._vms = object_cache.ObjectCache(trim.vm, firmware_uuid)
        self._vmis = object_cache.ObjectCache(trim.vmi, owner_uid)
        self._by_uuid = collections.defaultdict(set)
        self._by_uid = {}
        self._unpacked = collections.OrderedDict()
        self._callbacks = []
        self._notifications = queue.SimpleQueue()
        self._notified = False      # the callbacks of all there was at first
        self._changes = 0
        self._closed = False
        field = ''
        if vm:
            namespaces, label_selector = (vm[0],), ''
            field = f'metadata.name={vm[1]}'
        self._watchers = [
            watcher.Watcher(client, options, resource, namespace, labels,
                            field, self)
            for namespace in namespaces or ('',)
            for resource, labels in ((api_resources.VM, label_selector),
                                     (api_resources.VMI, ''))]

    # Its life

    def start(self):
        """Start the watches and the notifications. Call it once."""
        threading.Thread(target=self._notify, daemon=True,
                         name='vm-cache-notifications').start()
        for each in self._watchers:
            each.start()

    def close(self):
        with self._condition:
            self._closed = True
            self._condition.notify_all()
        self._notifications.put(None)
        for each in self._watchers:
            each.stop()

    @property
    def listed(self):
        """Whether everything was listed once."""
        # Asked many times for each read, as is `stale`.
        for each in self._watchers:
            if not each.listed:
                return False
        return True

    @property
    def stale(self):
        """Whether a watch has not worked for Options.stale_seconds."""
        for each in self._watchers:
            since = each.broken_since
            if since is not None and (
                    since < time.monotonic() - self._options.stale_seconds):
                return True
        return False

    @property
    def age(self):
        """For how many seconds nothing has been heard; 0 while all watches
        work, None before everything was listed once.
        """
        if not self.listed:
            return None
        broken = [since for since in (each.broken_since
                                      for each in self._watchers)
                  if since is not None]
        return max(0.0, time.monotonic() - min(broken)) if broken else 0.0

    @property
    def problem(self):
        """Why the watches do not work, for people; '' while they do, or
        broke a moment ago.
        """
        if self.listed and not self.stale:
            return ''
        for each in self._watchers:
            if each.broken_since is not None and each.error is not None:
                return f'Following {each.resource}: {each.error}'
        return 'The watches of the VMs do not work (yet)'

    def wait(self, timeout):
        """Wait until everything was listed once.

        :raises: `errors.Unavailable`, `errors.AccessDenied`
        """
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
                        'The API server has not listed the VMs in %g s'
                        % timeout, retry_after=self._options.watch_backoff)
                self._condition.wait(left)

    # Reading

    def keys(self):
        """:returns: sorted (namespace, name) of all VMs"""
        with self._lock:
            return sorted(self._vms.keys())

    def find(self, identity):
        """The VMs that answer to a UUID, a name or namespace/name.

        :returns: sorted keys
        """
        with self._lock:
            wanted = normalized_uuid(identity)
            if wanted:
                # Never a name: somebody could give a VM the UUID of another
                # one for a name, and get what is meant for that.
                if wanted in self._by_uid:
                    return [self._by_uid[wanted]]
                return sorted(self._by_uuid.get(wanted, ()))
            if '/' in identity:
                key = tuple(identity.split('/', 1))
                return [key] if self._vms.get(key) else []
            return sorted(
                key for key in self._vms.keys() if key[1] == identity)

    def identity(self, key):
        """What a VM is known by: its firmware's UUID, its uid without one.

        A tenant chooses the first. One that several VMs have, or that is
        the uid of another, tells nobody apart, so each goes by its own uid.

        :returns: (uid, UUID) of a VM; None if there is none
        """
        with self._lock:
            entry = self._vms.get(key)
            if entry is None:
                return None
            if (len(self._by_uuid[entry.link]) == 1
                    and self._by_uid.get(entry.link, key) == key):
                return entry.uid, entry.link
            return entry.uid, normalized_uuid(entry.uid) or entry.link

    def objects(self, key):
        """A VM and its VMI, which are shared: not to be changed.

        :returns: (vm, vmi), each None if there is none
        """
        with self._lock:
            vm, vmi = self._entries(key)
            return vm and self._unpack(vm), vmi and self._unpack(vmi)

    def _entries(self, key):
        """Return the entries of a VM and its VMI, each None if there is none.

        The caller holds the lock.
        """
        vm = self._vms.get(key)
        vmi = self._vmis.get(key) if vm is not None else None
        if vmi is not None and vmi.link != vm.uid:
            vmi = None
        return vm, vmi

    def is_older(self, key, version):
        """Whether the VM held is older than a version.

        :param version: a number
        """
        if not version:
            return False
        vm = self._vms.get(key)
        return (vm is not None and vm.version is not None
                and vm.version < version)

    def vmi_uid(self, key):
        """:returns: uid of the VMI at a key, whosever it is; or None"""
        with self._lock:
            entry = self._vmis.get(key)
            return entry and entry.uid

    def _unpack(self, entry):
        # Keyed by the entry, of which there is one for each version.
        obj = self._unpacked.get(entry)
        if obj is None:
            obj = self._unpacked[entry] = entry.unpack()
            if len(self._unpacked) > _UNPACKED:
                self._unpacked.popitem(last=False)
        return obj

    # Writing

    def put_vm(self, obj):
        """Take in the answer to a read or write of a VM of this scope."""
        self._put(self._vms, obj)

    def put_vmi(self, obj):
        self._put(self._vmis, obj)

    def _put(self, objects, obj):
        with self._lock:
            key = object_cache.object_key(obj)
            before = objects.get(key)
            changed = objects.put(obj)
            if changed and objects is self._vms:
                self._index(before, objects.get(key))
        if changed:
            self._queue_notifications([key])

    def discard_vm(self, key, uid):
        """Take out a VM that the API does not have any more."""
        self._drop(self._vms, self._vms.discard_deleted, key, uid)

    def discard_vmi(self, key, uid):
        self._drop(self._vmis, self._vmis.discard_deleted, key, uid)

    def relist(self):
        """List everything now, from the caller's thread."""
        for each in self._watchers:
            try:
                self.take_list(each, each.pages())
            except errors.WatchExpired as e:
                raise errors.Unavailable(str(e)) from None

    # Told by the watchers

    def take_list(self, source, pages):
        """Take in a complete list, a page at a time.

        :param source: the `watcher.Watcher` whose collection it is
        :param pages: iterator of (items, version)
        :returns: the version to watch from
        """
        objects = self._objects_of(source)

        def within(key):
            return source.namespace in ('', key[0])

        with self._lock:
            newest = objects.newest
        seen = set()
        version = None
        for items, page_version in pages:
            if version is None:
                version = page_version
                if (object_cache.version_number(version) or newest) < newest:
                    # The API server lost some of its history, as after a
                    # restored backup: old versions are worth nothing now.
                    self._drop(objects, objects.drop, within)
            for obj in items:
                seen.add(object_cache.object_key(obj))
                self._put(objects, obj)
        self._drop(objects, objects.retain_listed, within, seen, version)
        return version

    def event(self, source, kind, obj):
        """Take in one event of a watch."""
        objects = self._objects_of(source)
        if kind == 'DELETED':
            self._drop(objects, objects.remove, obj)
        else:
            self._put(objects, obj)

    def changed(self):
        """A watcher has listed, or begins or ceases to work."""
        with self._condition:
            self._condition.notify_all()
            first = self.listed and not self._notified
            self._notified = self._notified or first
        if first:
            self._queue_notifications(self.keys())

    def _objects_of(self, source):
        return self._vms if source.resource is api_resources.VM else self._vmis

    def _drop(self, objects, how, *args):
        """Take objects out, by a method of their store."""
        with self._lock:
            gone = how(*args)
            if objects is self._vms:
                for entry in gone:
                    self._index(entry, None)
        self._queue_notifications([entry.key for entry in gone],
                                  gone=objects is self._vms)

    def _index(self, before, after):
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
                    ', '.join(sorted('%s/%s' % key for key in keys)))

    # Notifications

    def subscribe(self, callback):
        """Call a function for each VM that exists, then for each change.

        The calls are made by one thread, one at a time and in the order of
        the changes. A write of this process does not wait for them.

        :param callback: function of (key, vm, vmi), the objects as they were
            at that change; vm is None when the VM is gone. It must not block.
        """
        with self._lock:
            self._callbacks.append(callback)
            notified = self._notified
        if notified:
            self._queue_notifications(self.keys(), callbacks=(callback,))

    @property
    def changes(self):
        """How many changes were taken in, for `wait_change`."""
        return self._changes

    def wait_change(self, since, timeout):
        """Wait for a change.

        :param since: the `changes` seen before
        :param timeout: seconds
        """
        with self._condition:
            if self._changes == since and not self._closed:
                self._condition.wait(timeout)

    def _queue_notifications(self, keys, gone=False, callbacks=None):
        with self._condition:
            self._changes += 1
            self._condition.notify_all()
            if not self._notified or not self._callbacks:
                return
            callbacks = callbacks or tuple(self._callbacks)
            for key in keys:
                vm, vmi = self._entries(key)
                if vm is not None or gone:
                    self._notifications.put((key, vm, vmi, callbacks))

    def _notify(self):
        """Make the calls of `subscribe`, in a thread of its own."""
        while (notification := self._notifications.get()) is not None:
            key, vm, vmi, callbacks = notification
            with self._lock:
                vm = vm and self._unpack(vm)
                vmi = vmi and self._unpack(vmi)
            for callback in callbacks:
                try:
                    callback(key, vm, vmi)
                except Exception:
                    LOG.exception('Notification of %s/%s failed', *key)


def firmware_uuid(vm):
    """The UUID a guest reads from its firmware, else the VM's own uid."""
    template = vm.get('spec', {}).get('template', {}).get('spec', {})
    firmware = template.get('domain', {}).get('firmware') or {}
    return (normalized_uuid(firmware.get('uuid'))
            or normalized_uuid(vm['metadata'].get('uid')))


def normalized_uuid(text):
    """A UUID in lower case with hyphens; None if it is none."""
    try:
        return str(uuid.UUID(text))
    except (ValueError, AttributeError, TypeError):
        return None


def owner_uid(vmi):
    """The uid of the VM that a VMI belongs to, or None."""
    for reference in vmi['metadata'].get('ownerReferences') or ():
        if (reference.get('kind') == api_resources.VM.kind
                and reference.get('controller')):
            return reference.get('uid')
    return None
