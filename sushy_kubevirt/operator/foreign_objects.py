# SPDX-License-Identifier: Apache-2.0
"""Objects of somebody else that stand in a BMC's way.

They lack the label that ours are watched by. So that a BMC gets on as soon as
one is gone, each is watched by its name for as long as it is in the way.
"""

import asyncio

from sushy_kubevirt.operator import api as api_
from sushy_kubevirt.operator import api_resources

#: Watches at a time. A BMC that gets none is looked at when something else
#: about it changes.
MOST = 64


class Strangers:
    """The watches.

    :param api: an `api.Api`
    :param known: a `cache.Known`
    :param wake: function of keys
    """

    def __init__(self, api, known, wake):
        self._api = api
        self._known = known
        self._wake = wake
        self._tasks = {}

    def follow(self, key, refs):
        """Watch what is in the way of a BMC, and nothing else.

        :param key: of the BMC
        :param refs: list of (kind, namespace, name)
        """
        for known in [one for one in self._tasks if one[0] == key]:
            if known[1] not in refs:
                self._tasks.pop(known).cancel()
        for ref in refs:
            if (key, ref) not in self._tasks and len(self._tasks) < MOST:
                self._tasks[key, ref] = asyncio.create_task(
                    self._watch(key, ref))

    def forget(self, key):
        """A BMC is gone."""
        self.follow(key, ())

    def close(self):
        """End all watches."""
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()

    async def _watch(self, key, ref):
        kind, namespace, name = ref
        resource = api_resources.called(kind)
        async for event, found in self._api.watch(
                resource, namespace, metadata_only=True,
                field_selector='metadata.name=' + name):
            if event == 'DELETED' or (
                    event == api_.LISTED and not found):
                self._known.objects.drop(resource, namespace, name)
                self._tasks.pop((key, ref), None)
                self._wake((key,))
                return
