# SPDX-License-Identifier: Apache-2.0
"""The objects of a cluster as they are now, by watches.

One watch for each kind, whatever the number of nodes.
"""

from __future__ import annotations

from collections import abc
import threading
import typing

from sushy_kubevirt.cluster import api_server
from sushy_kubevirt.cluster.objects import kinds
from sushy_kubevirt.cluster.objects import stamp
from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import watcher

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import client
    from sushy_kubevirt.kube import objects

#: Kinds that are watched always; DataVolumes are if the cluster has some.
KINDS: tuple[kinds.AnyResource, ...] = (
    api_resources.VM, kinds.BMC, api_resources.SECRET)


class Observed:
    """Live objects of the nodes of a cluster.

    A context manager: the watches end with it.
    """

    def __init__(self, client: client.Client, namespace: str, cluster: str,
                 resources: abc.Iterable[kinds.AnyResource]) -> None:
        self._lock = threading.Condition()
        self._objects: dict[kinds.AnyResource, dict[str, typing.Any]] = {
            resource: {} for resource in resources}
        self._changed: set[str] = set()     # names of nodes
        # No value of a Secret is needed, nor kept in memory.
        self._watchers = [watcher.Watcher(
            client, api_server.OPTIONS, resource, namespace,
            stamp.selector(cluster), '', self,
            resource == api_resources.SECRET) for resource in self._objects]

    def __enter__(self) -> Observed:
        for watch in self._watchers:
            watch.start()
        return self

    def __exit__(self, *error: object) -> None:
        for watch in self._watchers:
            watch.stop()

    def wait_listed(self, seconds: float) -> None:
        """Wait for the first complete lists.

        :raises: the error that prevents a list
        """
        with self._lock:
            self._lock.wait_for(lambda: all(
                watch.listed for watch in self._watchers), seconds)
        for watch in self._watchers:
            if not watch.listed:
                raise watch.error or TimeoutError(
                    f'{watch.resource} were not listed in {seconds:g} s')

    def find(self, resource: api_resources.Resource[objects.ObjectT],
             name: str) -> objects.ObjectT | None:
        """Return an object; None if there is none."""
        with self._lock:
            return self._objects.get(resource, {}).get(name)

    def wait_gone(self, resource: kinds.AnyResource, name: str, uid: str,
                  seconds: float) -> bool:
        """Wait until an object exists no more.

        :returns: whether it is gone
        """
        def is_gone() -> bool:
            obj = self._objects[resource].get(name)
            return obj is None or obj['metadata']['uid'] != uid

        with self._lock:
            return self._lock.wait_for(is_gone, seconds)

    def wait_changes(self, seconds: float) -> set[str]:
        """Wait for changes.

        :returns: names of the nodes whose objects have changed since the last
            call; empty after the longest wait
        """
        with self._lock:
            if not self._changed:
                self._lock.wait(max(seconds, 0))
            changed, self._changed = self._changed, set()
            return changed

    # Called by the watchers, in their threads

    def take_list(self, source: watcher.Watcher[typing.Any],
                  pages: abc.Iterator[client.Page[typing.Any]]) -> str:
        """See `watcher.Sink`."""
        listed: dict[str, objects.Json] = {}
        version = ''
        for items, version in pages:
            listed.update((obj['metadata']['name'], obj) for obj in items)
        with self._lock:
            for obj in (*self._objects[source.resource].values(),
                        *listed.values()):
                self._mark(obj)
            self._objects[source.resource] = listed
            self._lock.notify_all()
        return version

    def event(self, source: watcher.Watcher[typing.Any], kind: str,
              obj: typing.Any) -> None:
        """See `watcher.Sink`."""
        objects = self._objects[source.resource]
        with self._lock:
            if kind == 'DELETED':
                objects.pop(obj['metadata']['name'], None)
            else:
                objects[obj['metadata']['name']] = obj
            self._mark(obj)
            self._lock.notify_all()

    def changed(self) -> None:
        """See `watcher.Sink`."""
        with self._lock:
            self._lock.notify_all()

    def _mark(self, obj: abc.Mapping[str, typing.Any]) -> None:
        self._changed.add(stamp.node_of(obj) or obj['metadata']['name'])
