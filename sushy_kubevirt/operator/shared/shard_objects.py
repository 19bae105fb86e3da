# SPDX-License-Identifier: Apache-2.0
"""Reads and writes the objects of a shard in the cluster."""

from __future__ import annotations

from collections import abc
import logging
import typing

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import objects
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import executor
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import plan
from sushy_kubevirt.operator import rollout
from sushy_kubevirt.operator.shared import shard_manifests
from sushy_kubevirt.operator import workqueue

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import api_resources
    from sushy_kubevirt.operator import api
    from sushy_kubevirt.operator.shared import shard_state
    from sushy_kubevirt.operator import store

LOG = logging.getLogger(__name__)

#: Maximum number of rounds for one object of a shard.
_MAX_ROUNDS = 8


class Taken(Exception):
    """A foreign object has a name of the shard's."""


class ShardObjects:
    """The objects of all shards."""

    def __init__(self, api: api.Api, store: store.Store) -> None:
        self._api = api
        self._store = store
        self._writer = executor.Writer(api, store)

    def ours(self, resource: api_resources.AnyResource,
             shard: shard_state.Shard,
             name: str | None = None) -> objects.Json | None:
        """Return an object of a shard; None if it does not exist."""
        obj = self._store.get(
            resource, shard.namespace, name or naming.shared(shard.number))
        return obj if obj and naming.shard_of(obj) == shard.number else None

    @staticmethod
    def names(resource: api_resources.AnyResource,
              shard: shard_state.Shard) -> tuple[str, ...]:
        """Return the names that objects of a shard have."""
        if resource in (bmc_resources.ROLE, bmc_resources.BINDING):
            return shard_manifests.access(shard.number)
        name = naming.shared(shard.number)
        if resource == bmc_resources.CONFIG_MAP:
            return (shard_manifests.served(shard.number),
                    shard_manifests.config(shard.number), name)
        return name,

    async def live(self, shard: shard_state.Shard,
                   resource: api_resources.AnyResource,
                   name: str) -> objects.Json | None:
        """Look up an object; read a foreign one, which is not watched.

        :raises: `Taken`
        """
        live = self._store.get(resource, shard.namespace, name)
        if live is None or naming.shard_of(live) == shard.number:
            return live
        try:
            live = await self._api.get(resource, shard.namespace, name)
        except errors.ObjectNotFound:
            self._store.drop(resource, shard.namespace, name)
            return None
        if naming.shard_of(live) != shard.number:
            raise Taken(f'{resource.kind} {name}')
        self._store.put(live)
        return live

    async def ensure(self, shard: shard_state.Shard, wanted: objects.Json,
                     upgrade: bool = False) -> objects.Json:
        """Create or change an object of a shard.

        :param upgrade: whether a change is an upgrade that has a slot
        :raises: `Taken`; `executor.Closed`; `workqueue.Failure` if it is
            changed again and again
        """
        resource, name = bmc_resources.of(wanted), wanted['metadata']['name']
        for _ in range(_MAX_ROUNDS):
            live = await self.live(shard, resource, name)
            steps: abc.Sequence[plan.Change] = (
                [plan.Create(plan.marked(wanted))] if live is None
                else plan.changes(wanted, live, shard.tried))
            if live is not None and not steps:
                return live
            for step in steps:
                await self.execute(
                    shard, rollout.annotated(step) if upgrade else step)
        LOG.warning('Another client repeatedly reverts changes of %s %s: find '
                    'it by its managedFields', resource.kind, name)
        raise workqueue.Failure(workqueue.LONGEST_PAUSE / 4)

    async def execute(self, shard: shard_state.Shard, step: plan.Change
                      ) -> bool:
        """Execute a step.

        :returns: whether the object was as it was known
        """
        try:
            await self._writer.change(step, shard.tried)
        except executor.PlanOutdated:
            return False
        return True

    async def delete(self, shard: shard_state.Shard,
                     resource: api_resources.AnyResource,
                     name: str | None = None) -> None:
        """Delete an object of a shard, if it exists."""
        live = self.ours(resource, shard, name)
        if live is not None and 'deletionTimestamp' not in live['metadata']:
            await self.execute(shard, plan.Delete(
                bmc_resources.ObjectRef(resource.kind, shard.namespace,
                                        live['metadata']['name']),
                live['metadata']['uid']))
