# SPDX-License-Identifier: Apache-2.0
"""One VM of a `vm_cache.VmCache` that several BMCs share.

It has the methods of the cache, and neither shows nor changes another VM.
"""

from __future__ import annotations

import threading

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors


class VmView:
    """The VM and VMI of one name. Thread-safe.

    :param cache: the `vm_cache.VmCache`, started by its owner
    :param client: a `client.Client`
    :param key: (namespace, name)
    """

    def __init__(self, cache, client, key) -> None:
        self._cache = cache
        self._client = client
        self._key = key
        self._callbacks = []
        self._lock = threading.Lock()
        self._closed = False

    def start(self) -> None:
        """Do nothing: the cache has an owner."""

    def close(self) -> None:
        """End all subscriptions."""
        with self._lock:
            self._closed = True
        for callback in tuple(self._callbacks):
            self.unsubscribe(callback)

    # Health

    listed = property(lambda self: self._cache.listed)
    stale = property(lambda self: self._cache.stale)
    age = property(lambda self: self._cache.age)
    problem = property(lambda self: self._cache.problem)

    def wait(self, timeout) -> None:
        """See `vm_cache.VmCache.wait`."""
        self._cache.wait(timeout)

    # Reading

    membership = property(lambda self: self._cache.membership)
    changes = property(lambda self: self._cache.changes)

    def wait_change(self, since, timeout) -> None:
        """See `vm_cache.VmCache.wait_change`."""
        self._cache.wait_change(since, timeout)

    def keys(self):
        """Return a list of the (namespace, name), empty without the VM."""
        return [] if self.identity(self._key) is None else [self._key]

    def find(self, identity):
        """See `vm_cache.VmCache.find`."""
        return [self._key] if self._cache.has_identity(
            self._key, identity) else []

    def identity(self, key):
        """See `vm_cache.VmCache.identity`; no other VM affects the UUID."""
        return self._cache.identity(key, alone=True) if (
            key == self._key) else None

    def objects(self, key):
        """See `vm_cache.VmCache.objects`."""
        return self._cache.objects(key) if key == self._key else (None, None)

    def version(self, key):
        """See `vm_cache.VmCache.version`."""
        return self._cache.version(key, alone=True) if (
            key == self._key) else None

    def is_older(self, key, version):
        """See `vm_cache.VmCache.is_older`."""
        return key == self._key and self._cache.is_older(key, version)

    def vmi_uid(self, key):
        """See `vm_cache.VmCache.vmi_uid`."""
        return self._cache.vmi_uid(key) if key == self._key else None

    # Writing: responses to requests about this VM

    def put_vm(self, obj) -> None:
        """See `vm_cache.VmCache.put_vm`."""
        self._cache.put_vm(obj)

    def put_vmi(self, obj) -> None:
        """See `vm_cache.VmCache.put_vmi`."""
        self._cache.put_vmi(obj)

    def discard_vm(self, key, uid) -> None:
        """See `vm_cache.VmCache.discard_vm`."""
        self._cache.discard_vm(key, uid)

    def discard_vmi(self, key, uid) -> None:
        """See `vm_cache.VmCache.discard_vmi`."""
        self._cache.discard_vmi(key, uid)

    def relist(self) -> None:
        """Read the VM and its VMI from the API.

        :raises: `errors.Unavailable`
        """
        for resource, put in ((api_resources.VM, self.put_vm),
                              (api_resources.VMI, self.put_vmi)):
            try:
                put(self._client.get(resource, *self._key))
            except errors.ObjectNotFound:
                pass

    # Notifications

    def subscribe(self, callback) -> None:
        """See `vm_cache.VmCache.subscribe`; of no effect after `close`."""
        with self._lock:
            if not self._closed:
                self._callbacks.append(callback)
                self._cache.subscribe(callback, self._key)

    def unsubscribe(self, callback) -> None:
        """See `vm_cache.VmCache.unsubscribe`."""
        with self._lock:
            if callback in self._callbacks:
                self._callbacks.remove(callback)
                self._cache.unsubscribe(callback, self._key)
