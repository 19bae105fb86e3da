# SPDX-License-Identifier: Apache-2.0
"""One VM of a `vm_cache.VmCache` that several BMCs share.

It has the methods of the cache, and neither shows nor changes another VM.
"""

from __future__ import annotations

import contextlib
import threading
import typing

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import client
    from sushy_kubevirt.kube import objects
    from sushy_kubevirt.machine import vm_cache

    # A method of `VmView` has the name of a module.
    ObjectKey: typing.TypeAlias = objects.ObjectKey
    Vm: typing.TypeAlias = objects.VirtualMachine
    Vmi: typing.TypeAlias = objects.VirtualMachineInstance


class VmView:
    """The VM and VMI of one name. Thread-safe.

    :param cache: started by its owner
    """

    def __init__(self, cache: vm_cache.VmCache, client: client.Client,
                 key: ObjectKey) -> None:
        self._cache = cache
        self._client = client
        self._key = key
        self._callbacks: list[vm_cache.Subscriber] = []
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

    @property
    def listed(self) -> bool:
        """See `vm_cache.VmCache.listed`."""
        return self._cache.listed

    @property
    def stale(self) -> bool:
        """See `vm_cache.VmCache.stale`."""
        return self._cache.stale

    @property
    def age(self) -> float | None:
        """See `vm_cache.VmCache.age`."""
        return self._cache.age

    @property
    def problem(self) -> str:
        """See `vm_cache.VmCache.problem`."""
        return self._cache.problem

    def wait(self, timeout: float) -> None:
        """See `vm_cache.VmCache.wait`."""
        self._cache.wait(timeout)

    # Reading

    @property
    def membership(self) -> int:
        """See `vm_cache.VmCache.membership`."""
        return self._cache.membership

    @property
    def changes(self) -> int:
        """See `vm_cache.VmCache.changes`."""
        return self._cache.changes

    def wait_change(self, since: int, timeout: float) -> None:
        """See `vm_cache.VmCache.wait_change`."""
        self._cache.wait_change(since, timeout)

    def keys(self) -> list[ObjectKey]:
        """Return the key in a list, which is empty without the VM."""
        return [] if self.identity(self._key) is None else [self._key]

    def find(self, identity: str) -> list[ObjectKey]:
        """See `vm_cache.VmCache.find`."""
        return [self._key] if self._cache.has_identity(
            self._key, identity) else []

    def identity(self, key: ObjectKey) -> vm_cache.Identity | None:
        """See `vm_cache.VmCache.identity`; no other VM affects the UUID."""
        return self._cache.identity(key, alone=True) if (
            key == self._key) else None

    def objects(self, key: ObjectKey) -> tuple[Vm | None, Vmi | None]:
        """See `vm_cache.VmCache.objects`."""
        return self._cache.objects(key) if key == self._key else (None, None)

    def version(self, key: ObjectKey) -> vm_cache.Version | None:
        """See `vm_cache.VmCache.version`."""
        return self._cache.version(key, alone=True) if (
            key == self._key) else None

    def vmi_uid(self, key: ObjectKey) -> str | None:
        """See `vm_cache.VmCache.vmi_uid`."""
        return self._cache.vmi_uid(key) if key == self._key else None

    # Writing: responses to requests about this VM

    def put_vm(self, obj: Vm) -> None:
        """See `vm_cache.VmCache.put_vm`."""
        self._cache.put_vm(obj)

    def put_vmi(self, obj: Vmi) -> None:
        """See `vm_cache.VmCache.put_vmi`."""
        self._cache.put_vmi(obj)

    def discard_vm(self, key: ObjectKey, uid: str) -> None:
        """See `vm_cache.VmCache.discard_vm`."""
        self._cache.discard_vm(key, uid)

    def discard_vmi(self, key: ObjectKey, uid: str) -> None:
        """See `vm_cache.VmCache.discard_vmi`."""
        self._cache.discard_vmi(key, uid)

    def relist(self) -> None:
        """Read the VM and its VMI from the API.

        :raises: `errors.Unavailable`
        """
        with contextlib.suppress(errors.ObjectNotFound):
            self.put_vm(self._client.get(api_resources.VM, *self._key))
        with contextlib.suppress(errors.ObjectNotFound):
            self.put_vmi(self._client.get(api_resources.VMI, *self._key))

    # Notifications

    def subscribe(self, callback: vm_cache.Subscriber) -> None:
        """See `vm_cache.VmCache.subscribe`; of no effect after `close`."""
        with self._lock:
            if not self._closed:
                self._callbacks.append(callback)
                self._cache.subscribe(callback, self._key)

    def unsubscribe(self, callback: vm_cache.Subscriber) -> None:
        """See `vm_cache.VmCache.unsubscribe`."""
        with self._lock:
            if callback in self._callbacks:
                self._callbacks.remove(callback)
                self._cache.unsubscribe(callback, self._key)
