# SPDX-License-Identifier: Apache-2.0
"""Watches foreign objects that have a name which a BMC needs.

They lack the label by which the operator's own objects are watched. Each is
watched by name until it is deleted, when the BMC is reconciled.
"""

from __future__ import annotations

import asyncio
from collections import abc
import typing

from sushy_kubevirt.kube import objects
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import cache
from sushy_kubevirt.operator import store as stores

if typing.TYPE_CHECKING:
    from sushy_kubevirt.operator import api

#: Maximum number of watches. Without a watch, a BMC is reconciled when another
#: of its objects changes.
MAX_WATCHES = 64


class _Watch(typing.NamedTuple):
    """A foreign object that a BMC waits for."""

    bmc: objects.ObjectKey
    ref: bmc_resources.ObjectRef


class ForeignObjects:
    """The watches.

    :param wake: queues BMCs
    """

    def __init__(self, client: api.Api, store: stores.Store,
                 wake: abc.Callable[[abc.Iterable[objects.ObjectKey]], None]
                 ) -> None:
        self._api = client
        self._store = store
        self._wake = wake
        self._tasks: dict[_Watch, asyncio.Task[None]] = {}

    def watch(self, key: objects.ObjectKey,
              refs: abc.Collection[bmc_resources.ObjectRef]) -> None:
        """Watch the foreign objects of a BMC, and end its other watches."""
        for watch in [watch for watch in self._tasks if watch.bmc == key]:
            if watch.ref not in refs:
                self._tasks.pop(watch).cancel()
        for watch in [_Watch(key, ref) for ref in refs]:
            if watch not in self._tasks and len(self._tasks) < MAX_WATCHES:
                self._tasks[watch] = asyncio.create_task(
                    self._kind(watch).run())

    def forget(self, key: objects.ObjectKey) -> None:
        """End the watches of a BMC."""
        self.watch(key, ())

    def close(self) -> None:
        """End all watches."""
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()

    def _kind(self, watch: _Watch) -> stores.Kind:
        kind = stores.Kind(
            self._api, watch.ref.resource,
            (watch.ref.namespace,), cache.Compressed(), metadata_only=True,
            field_selector='metadata.name=' + watch.ref.name)

        def end_if_gone(_: object) -> None:
            if not kind.keys() and watch in self._tasks:
                self._store.drop(*watch.ref.target)
                self._tasks.pop(watch).cancel()
                self._wake((watch.bmc,))
        kind.subscribe(end_if_gone, end_if_gone)
        return kind
