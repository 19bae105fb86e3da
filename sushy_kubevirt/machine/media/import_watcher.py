# SPDX-License-Identifier: Apache-2.0
"""Watches the DataVolumes of media that are not complete.

Nothing is watched when all media are complete, which the VM's annotation
records. Otherwise a BMC of one VM watches each DataVolume by its name, as its
access rights name it; others watch all that have the label
`stored_names.MEDIA_LABEL`.
"""

from __future__ import annotations

import dataclasses
import threading
import typing

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import object_cache
from sushy_kubevirt.kube import objects
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.kube import watcher
from sushy_kubevirt.machine.media import claim_problem
from sushy_kubevirt.machine.media import datavolumes
from sushy_kubevirt.machine.media import model

if typing.TYPE_CHECKING:
    from collections import abc

    from sushy_kubevirt.kube import client
    from sushy_kubevirt.machine import options


class ObservedVolume(typing.NamedTuple):
    """What is known of one DataVolume.

    :param version: its resourceVersion; None if it is not a number
    :param vm: uid of the owner VM; None if a VM does not own it
    """

    uid: str
    version: int | None
    vm: str | None
    status: datavolumes.Status
    annotations: dict[str, str]


class ImportWatcher:
    """Cache of DataVolumes, fed by watches.

    :param namespaces: () for all
    :param by_name: whether each DataVolume is watched by its name
    :param notify: function of the uid of the VM, called after each change of
        one of its DataVolumes; must not block
    """

    def __init__(self, client: client.Client, options: options.Options,
                 namespaces: tuple[str, ...], by_name: bool,
                 notify: abc.Callable[[str | None], None]) -> None:
        self._client = client
        self._options = options
        self._namespaces = namespaces or ('',)
        self._by_name = by_name
        self._notify = notify
        self._lock = threading.Lock()
        self._observed: dict[objects.ObjectKey, ObservedVolume] = {}
        self._deleted: dict[str, bool] = {}     # by uid; bounded
        # By what they watch: '' is any namespace, or all that have the label.
        self._watchers: dict[
            objects.ObjectKey, watcher.Watcher[objects.DataVolume]] = {}
        # By the VM's uid.
        self._watched: dict[str, set[objects.ObjectKey]] = {}
        self._closed = False

    def watch(self, uid: str, keys: set[objects.ObjectKey]) -> None:
        """Watch these DataVolumes of a VM and no others.

        :param uid: of the VM
        """
        with self._lock:
            if self._closed or keys == self._watched.get(uid, set()):
                return
            if keys:
                self._watched[uid] = keys
            else:
                del self._watched[uid]
            self._update_watchers()

    def _update_watchers(self) -> None:
        needed = set().union(*self._watched.values())
        if not self._by_name:
            needed = {objects.ObjectKey(namespace, '')
                      for namespace in self._namespaces
                      if any(namespace in ('', key.namespace)
                             for key in needed)}
        for scope in self._watchers.keys() - needed:
            self._watchers.pop(scope).stop()
        for scope in needed - self._watchers.keys():
            self._watchers[scope] = watcher.Watcher(
                self._client, self._options, api_resources.DATA_VOLUME,
                scope.namespace,
                '' if scope.name else stored_names.MEDIA_LABEL,
                'metadata.name=' + scope.name if scope.name else '', self)
            self._watchers[scope].start()
        if not self._watched:
            self._observed.clear()
            self._deleted.clear()

    def get(self, namespace: str, name: str, uid: str = ''
            ) -> ObservedVolume | None:
        """Return what is known of a DataVolume.

        :param uid: its uid, '' for any. For a uid that was deleted, the result
            has the state FAILED
        """
        with self._lock:
            observed = self._observed.get(objects.ObjectKey(namespace, name))
            if observed is not None and uid in ('', observed.uid):
                return observed
            if uid and uid in self._deleted:
                status = datavolumes.Status(
                    model.State.FAILED, None, 'DataVolumeNotFound',
                    f'Its DataVolume {name} was deleted')
                return ObservedVolume(uid, None, None, status, {})
        return None

    def put(self, volume: objects.DataVolume) -> None:
        """Update the cache from an API response or a watch event."""
        key = object_cache.object_key(volume)
        metadata = volume['metadata']
        fresh = ObservedVolume(
            metadata.get('uid', ''),
            object_cache.version_number(metadata.get('resourceVersion')),
            _vm(volume), claim_problem.explained(
                datavolumes.status(volume), self._options.media),
            metadata.get('annotations') or {})
        with self._lock:
            held = self._observed.get(key)
            if fresh.uid in self._deleted or held is not None and (
                    held.uid == fresh.uid and _is_older(fresh, held)):
                return
            if held is not None and held.uid == fresh.uid:
                fresh = fresh._replace(status=_keep_failure(
                    held.status, fresh.status))
            self._observed[key] = fresh
            same = held is not None and (
                held._replace(version=None) == fresh._replace(version=None))
        if not same:
            self._notify(fresh.vm)

    def fail(self, namespace: str, name: str, reason: str, message: str
             ) -> None:
        """Record why the claim of a DataVolume gets no storage.

        Until its import makes progress.
        """
        key = objects.ObjectKey(namespace, name)
        with self._lock:
            held = self._observed.get(key)
            if held is None or not claim_problem.is_pending(held.status):
                return
            self._observed[key] = held._replace(status=dataclasses.replace(
                held.status, state=model.State.FAILED, reason=reason,
                message=message))
        self._notify(held.vm)

    def mark_deleted(self, namespace: str, name: str, uid: str) -> None:
        """Record that a DataVolume was deleted."""
        key = objects.ObjectKey(namespace, name)
        with self._lock:
            held = self._observed.get(key)
            self._deleted[uid] = True
            while len(self._deleted) > 200:
                del self._deleted[next(iter(self._deleted))]
            if held is None or held.uid != uid:
                return
            del self._observed[key]
        self._notify(held.vm)

    def close(self) -> None:
        """Stop all watches."""
        with self._lock:
            self._closed = True
            for watching in self._watchers.values():
                watching.stop()
            self._watchers.clear()

    # Called by the watchers

    def take_list(self, source: watcher.Watcher[objects.DataVolume],
                  pages: abc.Iterator[client.Page[objects.DataVolume]]
                  ) -> str:
        """Update the cache from a complete list, see `watcher.Watcher`."""
        version = ''
        listed = set()
        for items, page_version in pages:
            version = version or page_version
            for volume in items:
                listed.add(volume['metadata'].get('uid'))
                self.put(volume)
        number = object_cache.version_number(version)
        with self._lock:
            scope = next((scope for scope, watching in self._watchers.items()
                          if watching is source), None)
            deleted = [] if scope is None else [
                (*key, observed.uid)
                for key, observed in self._observed.items()
                if observed.uid not in listed
                and scope.namespace in ('', key.namespace)
                and scope.name in ('', key.name)
                and (observed.version or 0) <= (number or 0)]
        for namespace, name, uid in deleted:
            self.mark_deleted(namespace, name, uid)
        return version

    def event(self, _source: watcher.Watcher[objects.DataVolume], kind: str,
              obj: objects.DataVolume) -> None:
        """Update the cache from one watch event, see `watcher.Watcher`."""
        if kind == 'DELETED':
            self.mark_deleted(*object_cache.object_key(obj),
                              obj['metadata'].get('uid', ''))
        else:
            self.put(obj)

    def changed(self) -> None:
        """Ignore that a watch starts or stops working."""


def _vm(volume: objects.DataVolume) -> str | None:
    """Return the uid of the owner VM."""
    return next((
        reference.get('uid')
        for reference in volume['metadata'].get('ownerReferences') or ()
        if reference.get('kind') == api_resources.VM.kind), None)


def _is_older(fresh: ObservedVolume, held: ObservedVolume) -> bool:
    return (fresh.version is not None and held.version is not None
            and fresh.version <= held.version)


def _keep_failure(before: datavolumes.Status, now: datavolumes.Status
                  ) -> datavolumes.Status:
    """Keep the state FAILED until a retry makes progress.

    CDI starts a new pod for each retry, whose conditions hide why the last one
    failed.
    """
    if (before.state is model.State.FAILED
            and now.state in (model.State.WAITING, model.State.IMPORTING)
            and not now.progress):
        return dataclasses.replace(
            now, state=before.state, reason=before.reason,
            message=before.message)
    return now
