# SPDX-License-Identifier: Apache-2.0
"""Assigns BMCs to the slots of shared pods, and keeps a record of them.

A slot is claimed in memory and is used when the ConfigMap of the shard's
members records it: the record is all that a next operator needs. Many claims
and entries are written at once, so that a thousand new BMCs cost some dozens
of writes. Entries are not stored here but made by the reconciles of their
BMCs; this has their digests only.
"""

from __future__ import annotations

import collections
from collections import abc
import dataclasses
import itertools
import logging
import time
import typing

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import objects
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator import drift
from sushy_kubevirt.operator import executor
from sushy_kubevirt.operator import logs
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import plan
from sushy_kubevirt.operator import rollout
from sushy_kubevirt.operator.shared import entry
from sushy_kubevirt.operator.shared import placement
from sushy_kubevirt.operator.shared import shard_manifests
from sushy_kubevirt.operator.shared import shard_objects
from sushy_kubevirt.operator.shared import shard_state
from sushy_kubevirt.operator import spec
from sushy_kubevirt.operator import workqueue

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import api_resources
    from sushy_kubevirt.operator import api
    from sushy_kubevirt.operator import command_line
    from sushy_kubevirt.operator import metrics
    from sushy_kubevirt.operator import store

LOG = logging.getLogger(__name__)

#: Number of shards that are written at the same time.
WORKERS = 2

#: Seconds that changes of a shard are collected before they are written, and
#: between two writes.
_COLLECT_SECONDS, _PAUSE_SECONDS = 0.05, 0.5

#: Seconds that a pod is given to serve a new entry before the status says that
#: it does not.
RECENT_SECONDS = 3

#: Maximum number of characters of the entries of a shard: a ConfigMap has at
#: most 1 MiB.
_MAX_TEXT = 900 * 1024

#: Longest resourceVersion of a Secret, to estimate the length of an entry.
_VERSION = str(2 ** 64)

#: Seconds that a free slot rests: until then clients may still reach it by the
#: address of the previous BMC, whose Service is deleted or changed after it.
REST_SECONDS = 60

_MAX_MESSAGE_LENGTH = 1024


class Shards:
    """All shards.

    :param wake: queues BMCs
    """

    def __init__(
            self, options: command_line.Options, api: api.Api,
            store: store.Store, upgrade_slots: rollout.Rollout,
            wake: abc.Callable[[abc.Iterable[objects.ObjectKey]], None],
            metrics: metrics.Metrics) -> None:
        self._default = options.default_placement
        self._bmcs_per_pod = options.bmcs_per_pod
        self._defaults = options.pod_defaults()
        self._api = api
        self._store = store
        self._upgrade_slots = upgrade_slots
        self._wake = wake
        self._metrics = metrics
        self._cluster = shard_objects.ShardObjects(api, store)
        # By namespace and number.
        self._shards: dict[str, dict[int, shard_state.Shard]] = (
            collections.defaultdict(dict))
        # By the BMC's key.
        self._of: dict[objects.ObjectKey, shard_state.Shard] = {}
        # Times until which slots rest.
        self._resting: dict[placement.ShardKey, dict[int, float]] = (
            collections.defaultdict(dict))
        self._queue = workqueue.Queue(self.reconcile, WORKERS)

    # What BMCs need

    def placement_of(self, bmc: spec.Bmc) -> placement.Placement:
        """Find the placement of a BMC."""
        state = placement.Placement(
            placement.is_shared(bmc, self._default) and not bmc.deleting)
        place = self._find(bmc)
        if place is None:
            return state
        shard, member = place
        digest, problem = entry.report(member.report)
        is_ready = (shard.deployment is not None
                    and deployments.is_ready(shard.deployment))
        is_current = digest == member.digest != ''
        return dataclasses.replace(
            state, claimed=True, slot=placement.Slot(
                shard.number, member.slot) if member.recorded else None,
            digest=member.digest, policy=member.policy,
            vm=member.rights.vm,
            served=is_ready and is_current and not problem,
            problem=problem if is_current else '',
            recent=time.monotonic() - member.since < RECENT_SECONDS,
            deployment=shard.deployment, taken=shard.taken,
            refused=shard.refused, waiting=shard.waiting)

    def claim(self, bmc: spec.Bmc) -> None:
        """Give a BMC a slot: the lowest free one of the first shard with room,
        with BMCs that have a NetworkPolicy or with others.
        """
        key = bmc.key
        self.release(key)
        size = _size(bmc, entry.entry(bmc, placement.SLOTS, _VERSION, _VERSION,
                                      self._defaults.proxy,
                                      self._defaults.denied))
        shards, closed = (self._shards[bmc.namespace],
                          bmc.network_policy.enabled)
        number = next(
            (number for number, shard in sorted(shards.items())
             if len(shard.members) < self._bmcs_per_pod
             and (shard.closed == closed or not shard.members)
             and shard.size + size <= _MAX_TEXT), None)
        if number is None:
            number = _lowest_free(shards)
        shard = self._shard(bmc.namespace, number)
        shard.closed = closed
        slot = self._free_slot(shard)
        shard.members[bmc.name] = shard_state.Member(
            bmc.uid, slot, pending=entry.reservation(bmc.uid, slot),
            policy=bmc.network_policy, size=size)
        self._of[key] = shard
        self._changed(shard)

    def enter(self, bmc: spec.Bmc, text: str) -> None:
        """Set the entry of a BMC that has a slot, and the rights to its VM.

        :param text: of `entry.entry`
        """
        place = self._find(bmc)
        if place is None:
            return
        shard, member = place
        size, closed = _size(bmc, text), bmc.network_policy.enabled
        # The API server would refuse a longer record of all its BMCs.
        if len(shard.members) > 1 and (
                shard.closed != closed
                or shard.size - member.size + size > _MAX_TEXT):
            self.claim(bmc)
            return
        shard.closed = closed
        digest = entry.digest(text)
        if digest != member.digest:
            member.since = time.monotonic()
        member.digest, member.pending = digest, text
        member.policy, member.rights = bmc.network_policy, entry.rights(bmc)
        member.size = size
        self._changed(shard)

    def revoke(self, bmc: spec.Bmc) -> None:
        """Take the rights to the VM of a BMC from its pod."""
        place = self._find(bmc)
        if place is not None:
            shard, member = place
            member.rights = member.rights._replace(vm='')
            self._changed(shard)

    def release(self, key: objects.ObjectKey) -> None:
        """Free the slot of a BMC."""
        shard = self._of.pop(key, None)
        if shard is not None:
            _, name = key
            member = shard.members.pop(name)
            if member.recorded:
                self._rest(shard, member.slot)
            self._changed(shard)

    def _rest(self, shard: shard_state.Shard, slot: int) -> None:
        self._resting[shard.key][slot] = time.monotonic() + REST_SECONDS

    def _free_slot(self, shard: shard_state.Shard) -> int:
        """Return the lowest slot that is free and does not rest."""
        used = {member.slot for member in shard.members.values()}
        now = time.monotonic()
        resting = {slot: until for slot, until in self._resting.pop(
            shard.key, {}).items() if until > now}
        if resting:
            self._resting[shard.key] = resting
        slot = _lowest_free(used | resting.keys())
        return slot if slot < placement.SLOTS else _lowest_free(used)

    def _find(self, bmc: spec.Bmc
              ) -> tuple[shard_state.Shard, shard_state.Member] | None:
        """Find the shard of a BMC and its place there."""
        key = bmc.key
        shard = self._of.get(key)
        if shard is None:
            return None
        member = shard.members[bmc.name]
        if member.uid != bmc.uid:
            # Of a deleted BMC of that name.
            self.release(key)
            return None
        return shard, member

    def _shard(self, namespace: str, number: int) -> shard_state.Shard:
        shards = self._shards[namespace]
        if number not in shards:
            shards[number] = shard_state.Shard(
                placement.ShardKey(namespace, number), self._bmcs_per_pod)
        return shards[number]

    # What the cluster has

    def load(self) -> None:
        """Read the record, when all resources were listed once."""
        keys: set[placement.ShardKey] = set()
        for resource in shard_manifests.KINDS:
            for namespace, name in self._store.kind(resource).keys():
                if not name.startswith(naming.SHARED_PREFIX):
                    continue
                obj = self._store.get(resource, namespace, name)
                number = naming.shard_of(obj) if obj else None
                if number is not None:
                    keys.add(placement.ShardKey(namespace, number))
        for key in sorted(keys):
            shard = self._shard(*key)
            record = self._cluster.ours(bmc_resources.CONFIG_MAP, shard)
            if record is not None:
                self._load_members(shard, record.get('data') or {})
            # It stays as it is while the operator runs: another number would
            # replace the pod. More than the option is what was a higher one.
            shard.room *= max(1, -(-len(shard.members) // shard.room))
            shard.deployment = self._cluster.ours(
                bmc_resources.DEPLOYMENT, shard)
            self._set_stopped(shard)
            self._read_reports(shard)
            self._changed(shard)

    def _load_members(self, shard: shard_state.Shard,
                      data: abc.Mapping[str, str]) -> None:
        taken: set[int] = set()
        roles = [self._cluster.ours(bmc_resources.ROLE, shard, name)
                 for name in self._cluster.names(bmc_resources.ROLE, shard)]
        vms, secrets, authorities = (
            frozenset[str]().union(*(shard_manifests.granted(role, plural)
                                     for role in roles))
            for plural in (bmc_resources.VM.plural, 'secrets', 'configmaps'))
        for name, text in sorted(data.items()):
            key = objects.ObjectKey(shard.namespace, name)
            recorded, body = entry.recorded(text), self._store.bmc(key)
            if recorded is None:
                # Removed by the next write, as are others.
                continue
            uid, slot, rights = recorded
            if (body is None or key in self._of
                    or body['metadata']['uid'] != uid
                    or slot in taken or slot >= placement.SLOTS):
                self._rest(shard, slot)
                continue
            taken.add(slot)
            bmc = spec.read(body)
            vm = entry.vm(bmc)
            shard.members[name] = shard_state.Member(
                uid, slot, entry.digest(text), recorded=True,
                policy=bmc.network_policy, size=_size(bmc, text),
                # Those that the pod has, until the BMC is entered.
                rights=rights._replace(
                    secrets=tuple(filter(
                        secrets.__contains__, rights.secrets)),
                    authorities=tuple(filter(
                        authorities.__contains__, rights.authorities)),
                    vm=vm if vm in vms else ''))
            self._of[key] = shard
        members = shard.members.values()
        # A pod that is closed stays so until the BMCs that differ have moved.
        shard.closed = self._cluster.ours(
            bmc_resources.POLICY, shard) is not None or 2 * sum(
                member.policy.enabled for member in members) > len(members)
        for member in members:
            if member.policy.enabled != shard.closed:
                # It has changed meanwhile, and moves when it is entered.
                member.policy = spec.NetworkPolicy(shard.closed)

    def deny(self, hosts: tuple[str, ...]) -> None:
        """Replace the cluster's hosts, and write all shards.

        :param hosts: see `config_map.Denied`
        """
        self._defaults = deployments.with_cluster_hosts(self._defaults, hosts)
        for shards in self._shards.values():
            for shard in shards.values():
                self._changed(shard)

    def start(self) -> None:
        """Start writing."""
        self._queue.start()

    async def close(self, seconds: float) -> None:
        """Stop.

        :param seconds: that a write has to finish
        """
        await self._queue.close(seconds)

    def seen(self, resource: api_resources.AnyResource, namespace: str,
             name: str, gone: objects.Json | None = None) -> None:
        """Note that an object of a shard has changed, or is gone.

        :param name: of any object; others are ignored
        :param gone: the last state of an object that was deleted; None if it
            is unknown
        """
        number = naming.shard_number(name)
        if number is None:
            return
        shard = self._shards[namespace].get(number)
        if shard is None:
            if self._queue.started and self._store.get(
                    resource, namespace, name):
                # Left over, or made by another client with our label.
                self._changed(self._shard(namespace, number))
            return
        if resource == bmc_resources.DEPLOYMENT:
            self._read_deployment(shard)
        if (gone and resource == bmc_resources.CONFIG_MAP
                and name == naming.shared(number)):
            self._keep_entries(shard, gone.get('data') or {})
        if (resource == bmc_resources.CONFIG_MAP
                and name == shard_manifests.served(number)):
            self._read_reports(shard)
            if self._cluster.ours(resource, shard, name) is not None:
                return
        self._changed(shard)

    @staticmethod
    def _keep_entries(shard: shard_state.Shard,
                      data: abc.Mapping[str, str]) -> None:
        """Have the entries of a record that was deleted written again, as the
        pod goes on serving them.

        :param data: of the record
        """
        for name, member in shard.members.items():
            if member.pending is None and entry.digest(
                    data.get(name, '')) == member.digest:
                member.pending = data[name]

    def wake(self, key: placement.ShardKey) -> None:
        """Write a shard whose upgrade has waited."""
        shard = self._shards[key.namespace].get(key.number)
        if shard is not None:
            self._changed(shard)

    def _read_deployment(self, shard: shard_state.Shard) -> None:
        before = shard.deployment
        shard.deployment = self._cluster.ours(bmc_resources.DEPLOYMENT, shard)
        self._set_stopped(shard)
        if _state(before) != _state(shard.deployment):
            self._wake_members(shard)

    def _set_stopped(self, shard: shard_state.Shard) -> None:
        self._upgrade_slots.update(
            shard.key, rollout.is_stopped(shard.deployment))

    def _read_reports(self, shard: shard_state.Shard) -> None:
        reports = self._cluster.ours(bmc_resources.CONFIG_MAP, shard,
                                     shard_manifests.served(shard.number))
        data = (reports or {}).get('data') or {}
        changed = []
        for name, member in shard.members.items():
            report = data.get(name, '')
            if report != member.report:
                member.report = report
                changed.append(objects.ObjectKey(shard.namespace, name))
        self._wake(changed)

    def _wake_members(self, shard: shard_state.Shard) -> None:
        self._wake([objects.ObjectKey(shard.namespace, name)
                    for name in shard.members])

    # Writing

    def _changed(self, shard: shard_state.Shard) -> None:
        """Write a shard soon, together with what changes until then."""
        if self._queue.started:
            self._queue.add_later(shard.key, max(
                shard.written + _PAUSE_SECONDS - time.monotonic(),
                _COLLECT_SECONDS))

    async def reconcile(self, key: placement.ShardKey) -> None:
        """Write one shard.

        :raises: `workqueue.Failure`
        """
        namespace, number = key
        shard = self._shards[namespace].get(number)
        if shard is None:
            return
        with logs.about(namespace, naming.shared(number)):
            try:
                if shard.members:
                    await self._write(shard)
                else:
                    await self._remove(shard)
            except shard_objects.Taken as e:
                self._report(shard, str(e), None)
                raise workqueue.Failure from None
            except (errors.Rejected, errors.AccessDenied) as e:
                if isinstance(e, errors.NamespaceTerminating):
                    raise workqueue.Failure from None
                LOG.warning('%s', e)
                self._report(shard, '', (
                    f'{bmc_resources.DEPLOYMENT.kind} '
                    f'{naming.shared(shard.number)} or an object that it '
                    'needs', str(e)[:_MAX_MESSAGE_LENGTH]))
                raise workqueue.Failure from None
            except errors.MachineError as e:
                LOG.info('%s', e)
                raise workqueue.Failure(
                    getattr(e, 'retry_after', None)) from None
            finally:
                shard.written = time.monotonic()
                self._metrics.shards = {
                    shard.key: len(shard.members)
                    for shards in self._shards.values()
                    for shard in shards.values()}
            self._report(shard, '', None)

    def _report(self, shard: shard_state.Shard, taken: str,
                refused: tuple[str, str] | None) -> None:
        if (shard.taken, shard.refused) != (taken, refused):
            shard.taken, shard.refused = taken, refused
            if taken:
                LOG.warning('%s exists already and was not created for shared '
                            'BMCs: they wait until it is deleted', taken)
            self._wake_members(shard)

    async def _write(self, shard: shard_state.Shard) -> None:
        key = shard.key
        account = await self._cluster.ensure(
            shard, shard_manifests.account(*key))
        texts = {name: member.pending
                 for name, member in shard.members.items()}
        # Before the entries: a pod reads the Secrets of new ones at once, and
        # clients connect.
        rejection: executor.Closed | None = None
        if shard.closed:
            try:
                await self._cluster.ensure(shard, shard_manifests.policy(
                    *key, {member.slot: member.policy
                           for member in shard.members.values()}))
            except executor.Closed as e:
                rejection = e
        roles = shard_manifests.roles(
            *key, shard.members.values(), bool(self._defaults.proxy))
        for role in roles:
            await self._cluster.ensure(shard, role)
            await self._cluster.ensure(shard, shard_manifests.binding(role))
        unneeded = (set(self._cluster.names(bmc_resources.ROLE, shard))
                    - {role['metadata']['name'] for role in roles})
        for name in sorted(unneeded):
            await self._cluster.delete(shard, bmc_resources.BINDING, name)
            await self._cluster.delete(shard, bmc_resources.ROLE, name)
        await self._write_members(shard, texts)
        reports, *config = shard_manifests.config_maps(*key, self._defaults)
        if self._cluster.ours(bmc_resources.CONFIG_MAP, shard,
                              reports['metadata']['name']) is None:
            # Its content is the pod's.
            await self._cluster.ensure(shard, reports)
        for obj in config:
            await self._cluster.ensure(shard, obj)
        if not shard.closed:
            await self._cluster.delete(shard, bmc_resources.POLICY)
        await self._ensure_deployment(shard, shard_manifests.deployment(
            *key, self._defaults, shard.room, account['metadata']['uid']))
        if rejection is not None:
            raise rejection

    async def _write_members(self, shard: shard_state.Shard,
                             texts: abc.Mapping[str, str | None]) -> None:
        """Make the record equal to the members.

        :param texts: pending entries, by the members' names, for which the
            pod has the rights; others are left to the next write
        """
        resource = bmc_resources.CONFIG_MAP
        record = naming.shared(shard.number)
        live = await self._cluster.live(shard, resource, record)
        data = (live or {}).get('data') or {}
        change: dict[str, str | None] = {
            name: None for name in data if name not in shard.members}
        lost: list[objects.ObjectKey] = []
        written = {}
        for name, member in shard.members.items():
            text = member.pending
            if member.digest and text != texts.get(name):
                continue
            if text is None:
                if member.digest == entry.digest(data.get(name, '')):
                    continue
                text = entry.reservation(member.uid, member.slot)
                if not member.digest and data.get(name) == text:
                    continue
                # Another client has changed it: have it made again.
                member.digest = ''
                lost.append(objects.ObjectKey(shard.namespace, name))
            written[name] = member, text
            if data.get(name) != text:
                change[name] = text
        if live is None:
            if not await self._cluster.execute(shard, plan.Create({
                    'apiVersion': 'v1', 'kind': 'ConfigMap',
                    'metadata': shard_manifests.metadata(*shard.key),
                    'data': change})):
                # Created by the previous leader, after this one has listed.
                raise workqueue.Failure
        elif change:
            try:
                self._store.put(await self._api.patch(
                    resource, shard.namespace, record, {
                        'metadata': {'uid': live['metadata']['uid']},
                        'data': change}))
            except errors.ObjectNotFound:
                self._store.drop(resource, shard.namespace, record)
                raise
        for name, (member, text) in written.items():
            if not member.recorded:
                member.recorded = True
                lost.append(objects.ObjectKey(shard.namespace, name))
            if member.pending == text:
                member.pending = None
        self._wake(lost)
        if any(member.digest for member, _ in written.values()):
            # A BMC that has left and is back may be reported already.
            self._read_reports(shard)

    async def _ensure_deployment(self, shard: shard_state.Shard,
                                 wanted: objects.Json) -> None:
        """Create or change the Deployment, as the rollout of an upgrade lets.

        Everything in it comes from the operator's version and options.
        """
        live = await self._cluster.live(
            shard, bmc_resources.DEPLOYMENT, wanted['metadata']['name'])
        waits = upgrade = False
        if live is not None:
            stopped = stored_names.UPGRADING in objects.annotations_of(live)
            ready = deployments.is_ready(live)
            upgrades = (drift.applied_digest(live) != drift.digest(wanted)
                        and (ready or stopped))
            if upgrades and deployments.account(
                    live) == deployments.account(wanted):
                upgrade = self._upgrade_slots.acquire(shard.key)
                waits = not upgrade
            else:
                self._upgrade_slots.withdraw(shard.key)
            if stopped and ready and not upgrades:
                self._store.put(
                    await self._api.patch(
                        bmc_resources.DEPLOYMENT, shard.namespace,
                        live['metadata']['name'], {'metadata': {
                            'uid': live['metadata']['uid'],
                            'annotations': {stored_names.UPGRADING: None}}}))
        try:
            if not waits:
                await self._cluster.ensure(shard, wanted, upgrade)
        finally:
            self._read_deployment(shard)
            if not waits:
                self._upgrade_slots.release(shard.key)
        if shard.waiting != waits:
            shard.waiting = waits
            self._wake_members(shard)

    async def _remove(self, shard: shard_state.Shard) -> None:
        """Delete the objects of a shard without members."""
        for resource in shard_manifests.KINDS:
            for name in self._cluster.names(resource, shard):
                if shard.members:
                    return
                await self._cluster.delete(shard, resource, name)
                if resource == bmc_resources.DEPLOYMENT:
                    self._read_deployment(shard)
        self._upgrade_slots.forget(shard.key)
        if not shard.members:
            self._shards[shard.namespace].pop(shard.number, None)


def _size(bmc: spec.Bmc, text: str) -> int:
    """Return the number of characters that a BMC needs in the record and in
    the NetworkPolicy.
    """
    return len(bmc.name) + len(text) + len(repr(bmc.network_policy))


def _lowest_free(used: abc.Container[int]) -> int:
    return next(
        number for number in itertools.count() if number not in used)


def _state(
        deployment: objects.Json | None) -> tuple[bool, bool, str] | None:
    """Return what conditions depend on."""
    if deployment is None:
        return None
    return (deployments.is_ready(deployment),
            deployments.is_progressing(deployment),
            deployments.failure_message(deployment.get('status') or {}))
