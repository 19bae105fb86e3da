# SPDX-License-Identifier: Apache-2.0
"""The objects of a cluster as they are now, by watches.

One watch for each kind, whatever the number of nodes.
"""

from __future__ import annotations

import threading
import time

from sushy_kubevirt.cluster.objects import kinds
from sushy_kubevirt.cluster.objects import stamp
from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import watcher

#: Kinds that are watched always; DataVolumes are if the cluster has some.
KINDS = api_resources.VM, kinds.BMC, api_resources.SECRET


class Observed:
    """Live objects of the nodes of a cluster.

    A context manager: the watches end with it.

    :param client: a `client.Client`
    :param options: `options.Options` of the client
    :param namespace: of the objects
    :param cluster: name of the cluster
    :param resources: tuple of kinds
    """

    def __init__(self, client, options, namespace, cluster, resources) -> None:
        self._lock = threading.Condition()
        self._objects = {one: {} for one in resources}
        self._changed = set()
        # No value of a Secret is needed, nor kept in memory.
        self._watchers = [watcher.Watcher(
            client, options, one, namespace, stamp.selector(cluster), '',
            self, one == api_resources.SECRET) for one in resources]

    def __enter__(self):
        for one in self._watchers:
            one.start()
        return self

    def __exit__(self, *error) -> None:
        for one in self._watchers:
            one.stop()

    def wait_listed(self, seconds):
        """Wait for the first complete lists.

        :param seconds: longest wait
        :raises: the error that prevents a list
        """
        end = time.monotonic() + seconds
        with self._lock:
            while not all(one.listed for one in self._watchers):
                left = end - time.monotonic()
                if left <= 0:
                    break
                self._lock.wait(min(left, 1))
        for one in self._watchers:
            if not one.listed:
                raise one.error or TimeoutError(
                    f'{one.resource} were not listed in {seconds:g} s')

    def find(self, resource, name):
        """Return an object.

        :param resource: an `api_resources.Resource`
        :param name: of the object
        :returns: dict; None if there is none
        """
        with self._lock:
            return self._objects.get(resource, {}).get(name)

    def wait_gone(self, resource, name, uid, seconds) -> bool:
        """Wait until an object exists no more.

        :param resource: an `api_resources.Resource`
        :param name: of the object
        :param uid: of the object
        :param seconds: longest wait
        :returns: whether it is gone
        """
        end = time.monotonic() + seconds
        with self._lock:
            while True:
                obj = self._objects[resource].get(name)
                if obj is None or obj['metadata']['uid'] != uid:
                    return True
                left = end - time.monotonic()
                if left <= 0:
                    return False
                self._lock.wait(left)

    def wait_changes(self, seconds):
        """Wait for changes.

        :param seconds: longest wait
        :returns: set of the names of the nodes whose objects have changed
            since the last call; empty after the longest wait
        """
        with self._lock:
            if not self._changed:
                self._lock.wait(max(seconds, 0))
            changed, self._changed = self._changed, set()
            return changed

    # Called by the watchers, in their threads

    def take_list(self, source, pages):
        """See `watcher.Watcher`."""
        found, version = {}, None
        for items, version in pages:
            found.update((one['metadata']['name'], _complete(source, one))
                         for one in items)
        with self._lock:
            for one in (*self._objects[source.resource].values(),
                        *found.values()):
                self._mark(one)
            self._objects[source.resource] = found
            self._lock.notify_all()
        return version

    def event(self, source, kind, obj) -> None:
        """See `watcher.Watcher`."""
        objects = self._objects[source.resource]
        with self._lock:
            if kind == 'DELETED':
                objects.pop(obj['metadata']['name'], None)
            else:
                objects[obj['metadata']['name']] = _complete(source, obj)
            self._mark(obj)
            self._lock.notify_all()

    def changed(self) -> None:
        """See `watcher.Watcher`."""
        with self._lock:
            self._lock.notify_all()

    def _mark(self, obj) -> None:
        self._changed.add(stamp.node_of(obj) or obj['metadata']['name'])


def _complete(source, obj):
    # Items of a list have no kind.
    obj.setdefault('kind', source.resource.kind)
    return obj
