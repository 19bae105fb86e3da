# SPDX-License-Identifier: Apache-2.0
"""Watches foreign objects that have a name which a BMC needs.

They lack the label by which the operator's own objects are watched. Each is
watched by name until it is deleted, when the BMC is reconciled.
"""

from __future__ import annotations

import asyncio

from sushy_kubevirt.operator import api
from sushy_kubevirt.operator import bmc_resources

#: Maximum number of watches. Without a watch, a BMC is reconciled when another
#: of its objects changes.
MAX_WATCHES = 64


class ForeignObjects:
    """The watches.

    :param client: an `api.Api`
    :param cache: a `cache.Cache`
    :param wake: function of keys of BMCs, which queues them
    """

    def __init__(self, client, cache, wake) -> None:
        self._api = client
        self._cache = cache
        self._wake = wake
        self._tasks = {}

    def watch(self, key, refs) -> None:
        """Watch the foreign objects of a BMC, and end its other watches.

        :param key: of the BMC
        :param refs: list of (kind, namespace, name)
        """
        for watched in [one for one in self._tasks if one[0] == key]:
            if watched[1] not in refs:
                self._tasks.pop(watched).cancel()
        for ref in refs:
            if (key, ref) not in self._tasks and len(
                    self._tasks) < MAX_WATCHES:
                self._tasks[key, ref] = asyncio.create_task(
                    self._watch(key, ref))

    def forget(self, key) -> None:
        """End the watches of a BMC."""
        self.watch(key, ())

    def close(self) -> None:
        """End all watches."""
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()

    async def _watch(self, key, ref) -> None:
        kind, namespace, name = ref
        resource = bmc_resources.of_kind(kind)
        async for event, found in self._api.watch(
                resource, namespace, metadata_only=True,
                field_selector='metadata.name=' + name):
            if event == 'DELETED' or (
                    event == api.LISTED and not found):
                self._cache.objects.drop(resource, namespace, name)
                self._tasks.pop((key, ref), None)
                self._wake((key,))
                return
