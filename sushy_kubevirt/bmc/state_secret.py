# SPDX-License-Identifier: Apache-2.0
"""Stores service settings and subscriptions in a Kubernetes Secret.

Settings of the services must survive a restart and be the same in every
process of a BMC. (Settings of a VM are stored with the VM instead.) The Secret
has one key per section, each with a JSON object; the module that owns a
section defines its content. The required permissions are ``get``, ``list``,
``watch`` and ``patch`` of this one Secret. If it does not exist, the first
write creates it, which requires permission to create Secrets in the
namespace.

Reads are served from a cache, which a watch keeps up to date once `start` was
called. Without a watch, or without permission for one, a thread refreshes the
cache after `MAX_AGE_SECONDS`.
"""

from __future__ import annotations

import base64
import binascii
from collections import abc
import copy
import hashlib
import json
import logging
import math
import threading
import time
import typing

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import object_cache
from sushy_kubevirt.kube import objects
from sushy_kubevirt.kube import retry
from sushy_kubevirt.kube import watcher

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import client
    from sushy_kubevirt.machine import cluster

LOG = logging.getLogger(__name__)

#: Name of the Secret of an emulator that serves several VMs.
NAME = 'sushy-kubevirt-state'

_ENDING = '-bmc-state'
_LONGEST_NAME = 253

#: Value of its label app.kubernetes.io/managed-by.
MANAGER = 'sushy-kubevirt'

#: Seconds after which a read refreshes the cache, unless a watch does.
MAX_AGE_SECONDS = 30

#: Seconds between a failed refresh and the next.
RETRY_SECONDS = 2

# Shared, so that callers recognize an absent section as unchanged.
_EMPTY: objects.Json = {}

#: Largest number of bytes of a section, as stored (base64 has a third more
#: than what it stands for), so that no section takes the room of another.
#: Kubernetes limits a Secret to 1 MiB without base64.
MAX_BYTES = 64 * 1024

#: That of larger sections, by name.
LARGE_SECTIONS = {'subscriptions': 450 * 1024, 'log': 500 * 1024}


def name(vm: str) -> str:
    """Return the name of the Secret of an emulator that serves one VM.

    :param vm: name of the VM; a long one is cut and gets a digest
    """
    whole = vm + _ENDING
    if len(whole) <= _LONGEST_NAME:
        return whole
    suffix = '-' + hashlib.sha256(vm.encode()).hexdigest()[:10] + _ENDING
    return vm[:_LONGEST_NAME - len(suffix)].rstrip('-.') + suffix


def location(cluster: cluster.Cluster, configured: str | None = None,
             shared: bool = False) -> objects.ObjectKey:
    """Return namespace and name of the Secret.

    :param configured: 'namespace/name' from the configuration, or None
    :param shared: whether a cluster of one VM uses the Secret of an emulator
        that serves several
    """
    if configured:
        return objects.ObjectKey(*configured.split('/', 1))
    if cluster.vm and not shared:
        return objects.ObjectKey(cluster.vm.namespace, name(cluster.vm.name))
    return objects.ObjectKey(cluster.default_namespace, NAME)


class StateSecret:
    """The Secret. Thread-safe.

    :param cluster: if it is restricted to one VM, the VM is made the owner of
        the Secret, so that they are deleted together
    :param key: of the Secret
    :param shared: whether it has the state of several VMs, and no owner, even
        if the cluster is restricted to one
    """

    def __init__(self, cluster: cluster.Cluster, key: objects.ObjectKey,
                 shared: bool = False) -> None:
        self._cluster = cluster
        self._shared = shared
        self._key = key
        self._callbacks: list[abc.Callable[[], None]] = []
        self._warned = False
        self._lock = threading.Lock()
        self._refreshing = threading.Lock()     # held by the thread
        self._cache: dict[str, objects.Json] | None = None
        self._version: int | None = None
        self._cached_at = self._refreshed_at = self._retry_at = 0.0
        self._watcher: watcher.Watcher[objects.Json] | None = None

    def start(self) -> None:
        """Watch the Secret; idempotent."""
        with self._lock:
            if self._watcher is not None:
                return
            namespace, name = self._key
            self._watcher = watcher.Watcher(
                self._cluster.client, self._cluster.options,
                api_resources.SECRET, namespace, '', f'metadata.name={name}',
                self)
        self._watcher.start()

    def close(self) -> None:
        """Stop the watch."""
        if self._watcher is not None:
            self._watcher.stop()

    def __str__(self) -> str:
        return f"Secret {'/'.join(self._key)}"

    # Reading

    def read(self, section: str, fresh: bool = False) -> objects.Json:
        """Return a section; call the API if it is not cached.

        :param section: its name
        :param fresh: whether to call the API even if it is cached
        :returns: {} if absent; shared, must not be modified
        :raises: `errors.MachineError` if the API call fails
        """
        if fresh or self._cache is None:
            self._read()
        return self.cached(section)

    def cached(self, section: str) -> objects.Json:
        """Return a section from the cache, without blocking or failing.

        :param section: its name
        :returns: {} if absent or not cached yet; shared, must not be
            modified; the same object until it changes
        """
        now = time.monotonic()
        if not self._watched and now >= self._retry_at and (
                self._cache is None
                or now - self._refreshed_at > MAX_AGE_SECONDS) and (
                    self._refreshing.acquire(blocking=False)):
            threading.Thread(target=self._refresh, daemon=True,
                             name='state').start()
        return (self._cache or {}).get(section) or _EMPTY

    def catch_up(self) -> None:
        """Read the Secret if it is not cached.

        Calls the functions of `subscribe`, so that no lock of theirs may be
        held. After a failure nothing is read for `RETRY_SECONDS`.
        """
        if self._cache is None and time.monotonic() >= self._retry_at:
            self.refresh(0, trust_watch=False)

    def refresh(self, max_age: float, trust_watch: bool = True) -> None:
        """Read the Secret unless the cache is up to date; does not fail.

        :param max_age: seconds after which the cache is outdated
        :param trust_watch: whether a watch keeps it up to date
        """
        if self._cache is not None and (
                trust_watch and self._watched
                or time.monotonic() - self._refreshed_at < max_age):
            return
        try:
            self._read()
        except errors.MachineError as e:
            LOG.info('%s could not be read; cached values remain in use: %s',
                     self, e)
            self._retry_at = time.monotonic() + RETRY_SECONDS

    @property
    def _watched(self) -> bool:
        """Whether a watch keeps the cache up to date, or is about to."""
        source = self._watcher
        if source is None or source.error is not None:
            return False
        since = source.broken_since
        return since is None or time.monotonic() - since < MAX_AGE_SECONDS

    def subscribe(self, callback: abc.Callable[[], None]) -> None:
        """Register a function to be called after the cache has changed.

        :param callback: called in any thread
        """
        self._callbacks.append(callback)

    # Writing

    def update(self, section: str, edit: abc.Callable[[objects.Json], object]
               ) -> objects.Json:
        """Change a section; retried when another writer was faster.

        :param section: its name, of letters, digits, ``-``, ``_`` and ``.``
        :param edit: function that receives the section and modifies it. It may
            be called several times, also with its own earlier changes, when
            the response to a write was lost.
        :returns: the section after the change; shared, must not be modified
        :raises: `errors.MachineError`, and exceptions of ``edit``
        """
        secret = retry.run(
            lambda: self._update(section, edit),
            self._cluster.options.write_deadline, self._cluster.closing,
            lambda seconds: self._shown(section, edit, seconds))
        if secret is not None:
            self._store(secret, time.monotonic(), in_order=False)
        return self.cached(section)

    def _shown(self, section: str, edit: abc.Callable[[objects.Json], object],
               seconds: float) -> tuple[None] | None:
        """Wait, and return what `_update` would if the watch shows the edit.

        :returns: (None,), or None if it does not show
        """
        self._cluster.closing.wait(seconds)
        if not self._watched:
            return None
        before = self.cached(section)
        after = copy.deepcopy(before)
        edit(after)
        return (None,) if after == before else None

    def _update(self, section: str, edit: abc.Callable[[objects.Json], object]
                ) -> objects.Json | None:
        """Try `update` once. :returns: the Secret"""
        owner = self._owner()
        requested_at = time.monotonic()
        secret = self._get()
        if secret is not None:
            # So that the cache is not older than what the edit is of.
            self._store(secret, requested_at)
        sections = self._sections(secret, owner)
        before = sections.get(section) or {}
        after = copy.deepcopy(before)
        edit(after)
        if after == before and secret is not None:
            return secret
        sections[section] = after
        data = {name: _encode(value) for name, value in sections.items()}
        if len(data[section]) > max(LARGE_SECTIONS.get(section, MAX_BYTES),
                                    len(_encode(before))):
            raise errors.Rejected(
                f'{self} has no room for more {section}; delete some first')
        if secret is None:
            return self._create(data, owner)
        return self._patch(secret, data, owner)

    def _create(self, data: dict[str, str],
                owner: objects.OwnerReference | None) -> objects.Json:
        namespace, name = self._key
        metadata: objects.ObjectMeta = {
            'name': name, 'namespace': namespace, 'labels': {
                'app.kubernetes.io/managed-by': MANAGER}}
        if owner:
            metadata['ownerReferences'] = [owner]
        try:
            return self._cluster.client.create(
                api_resources.SECRET, namespace, {
                    'apiVersion': api_resources.SECRET.api_version,
                    'kind': api_resources.SECRET.kind, 'type': 'Opaque',
                    'metadata': metadata, 'data': data})
        except errors.AccessDenied as e:
            try:
                self._cluster.client.get(api_resources.SECRET, *self._key)
            except errors.ObjectNotFound:
                pass
            else:
                raise errors.Conflict(
                    f'{self} was created meanwhile') from None
            # With these permissions, the operator creates the Secret soon;
            # elsewhere the administrator has to.
            raise errors.Unavailable(
                f'{self} does not exist, and this account may not create '
                f'it: create a Secret of type Opaque ({e})') from None

    def _patch(self, secret: objects.Json, data: dict[str, str],
               owner: objects.OwnerReference | None) -> objects.Json:
        operations: objects.JsonPatch = [
            {'op': 'test', 'path': '/metadata/resourceVersion',
             'value': secret['metadata']['resourceVersion']},
            {'op': 'add', 'path': '/data', 'value': data}]
        if owner:
            operations.append({'op': 'add', 'value': [owner],
                               'path': '/metadata/ownerReferences'})
        try:
            return self._cluster.client.patch(
                api_resources.SECRET, *self._key, operations)
        except errors.ObjectNotFound as e:
            raise errors.Conflict(str(e)) from None

    # Access to the Secret, and the cache

    def _owner(self) -> objects.OwnerReference | None:
        """Return the owner reference for the Secret.

        :returns: None if the Secret has the state of several VMs
        :raises: `errors.MachineNotFound`
        """
        if self._shared or not self._cluster.vm:
            return None
        machine = self._cluster.machine('/'.join(self._cluster.vm))
        return {'apiVersion': api_resources.VM.api_version,
                'kind': api_resources.VM.kind, 'name': machine.name,
                'uid': machine.uid}

    def _get(self) -> objects.Json | None:
        """Return the Secret; None if absent or not readable."""
        try:
            return self._cluster.client.get(api_resources.SECRET, *self._key)
        except errors.ObjectNotFound:
            return None
        except errors.AccessDenied as e:
            # Nothing can have been stored with these permissions. A write
            # raises the error.
            if not self._warned:
                self._warned = True
                LOG.warning('Service settings and subscriptions cannot be '
                            'stored: %s', e)
            return None

    def _sections(self, secret: objects.Json | None,
                  owner: objects.OwnerReference | None
                  ) -> dict[str, objects.Json]:
        """Decode a Secret.

        :param owner: see `_owner`
        :returns: sections by name
        """
        if secret is None:
            return {}
        owners = secret['metadata'].get('ownerReferences') or ()
        if owner and not any(reference.get('uid') == owner['uid']
                             for reference in owners):
            # It belongs to a deleted VM of the same name.
            return {}
        return {name: _decode(text, name, self)
                for name, text in (secret.get('data') or {}).items()}

    def _read(self) -> None:
        requested_at = time.monotonic()
        self._store(self._get(), requested_at)

    # The watch; called by `watcher.Watcher`

    def take_list(self, source: watcher.Watcher[objects.Json],
                  pages: abc.Iterator[client.Page[objects.Json]]) -> str:
        """Cache the Secret of a list. :returns: the list's version"""
        requested_at = time.monotonic()
        secret, version = None, ''
        for items, version in pages:
            secret = next(iter(items), secret)
        self._store(secret, requested_at)
        return version

    def event(self, source: watcher.Watcher[objects.Json], kind: str,
              secret: objects.Json) -> None:
        """Cache what a watch event shows."""
        self._store(None if kind == 'DELETED' else secret, time.monotonic(),
                    in_order=False)

    def changed(self) -> None:
        """Stop a watch that the API denies."""
        source = self._watcher
        if source is not None and isinstance(source.error,
                                             errors.AccessDenied):
            LOG.warning('%s is read every %d s while it is in use, as this '
                        'account may not list and watch it', self,
                        MAX_AGE_SECONDS)
            source.stop()

    def _store(self, secret: objects.Json | None, requested_at: float,
               in_order: bool = True) -> None:
        """Cache a Secret unless a later state is cached already.

        :param requested_at: time (`time.monotonic`) of the request
        :param in_order: False for responses to writes and for events, which
            may arrive after those of later writes
        """
        try:
            owner = self._owner()
        except errors.MachineNotFound:
            secret = owner = None
        sections = self._sections(secret, owner)
        version = object_cache.version_number(
            secret['metadata'].get('resourceVersion')) if secret else None
        with self._lock:
            # An event that arrived since the request may be one of an older
            # state than the response.
            newer = (version or 0) > (self._version or math.inf)
            older = (version or math.inf) < (self._version or 0)
            if (not newer and requested_at < self._cached_at
                    or older and not in_order):
                return
            changed = sections != self._cache
            self._cache = sections
            self._version = version
            self._cached_at = max(requested_at, self._cached_at)
            self._refreshed_at = requested_at
        if changed:
            for callback in tuple(self._callbacks):
                callback()

    def _refresh(self) -> None:
        """Read the Secret, in a thread."""
        try:
            self.refresh(0, trust_watch=False)
        finally:
            self._refreshing.release()


def _encode(section: objects.Json) -> str:
    text = json.dumps(section, separators=(',', ':'), sort_keys=True)
    return base64.b64encode(text.encode()).decode()


def _decode(text: str, name: str, state: StateSecret) -> objects.Json:
    try:
        section = json.loads(base64.b64decode(text))
    except (binascii.Error, ValueError, RecursionError):
        section = None
    if not isinstance(section, dict):
        LOG.warning('Key %s of %s is not a JSON object; ignored', name, state)
        return {}
    return section
