# SPDX-License-Identifier: Apache-2.0
"""Controller: watches resources and queues the BMCs that use them.

Each watch updates the cache and adds keys to the work queue; `reconcile`
handles one BMC at a time. BMCs are watched completely, the objects created
for them by label, VMs and Secrets by metadata only.
"""

from __future__ import annotations

import asyncio
import collections
from collections import abc
import logging
import time
import typing

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import objects
from sushy_kubevirt.operator import api
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import cache
from sushy_kubevirt.operator import certificate_authority
from sushy_kubevirt.operator import conditions
from sushy_kubevirt.operator import facts
from sushy_kubevirt.operator import foreign_objects
from sushy_kubevirt.operator import logs
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import orphaned_rbac
from sushy_kubevirt.operator import reconcile
from sushy_kubevirt.operator import rollout
from sushy_kubevirt.operator import routes
from sushy_kubevirt.operator.shared import placement
from sushy_kubevirt.operator.shared import shards
from sushy_kubevirt.operator import spec
from sushy_kubevirt.operator import vm_cleanup
from sushy_kubevirt.operator import workqueue

if typing.TYPE_CHECKING:
    from sushy_kubevirt.operator import command_line
    from sushy_kubevirt.operator import metrics

LOG = logging.getLogger(__name__)

#: Number of BMCs that are reconciled at the same time.
WORKERS = 8

#: Seconds between attempts to list Routes.
ROUTE_SECONDS = 10

#: Seconds that running reconciles have to finish when the process ends.
_CLOSE_SECONDS = 5

#: Counted as the reason of Ready for a BMC without a status.
_NEW = 'New'

_Resource: typing.TypeAlias = api_resources.AnyResource


class Controller:
    """The work of the replica that holds the Lease.

    ``listed`` is set when all resources were listed once, ``has_host`` when a
    BMC has a BareMetalHost, or a condition that says why not.
    """

    def __init__(self, options: command_line.Options, client: api.Api,
                 metrics: metrics.Metrics) -> None:
        self._api = client
        self._metrics = metrics
        self._namespaces: tuple[str | None, ...] = (
            options.namespaces or (None,))
        self._system = options.system_namespace
        self._cache = cache.Cache(client)
        self._vm_cleanup = vm_cleanup.VmCleanup(client, self._cache)
        self._orphaned_rbac = orphaned_rbac.OrphanedRbac(
            client, self._cache, self._namespaces)
        self._authority = certificate_authority.CertificateAuthority(
            client, options.system_namespace)
        self._rollout = rollout.Rollout(options.max_unavailable,
                                        self._wake_stopped)
        self._foreign_objects = foreign_objects.ForeignObjects(
            client, self._cache, self._wake)
        self._shards = shards.Shards(
            options, client, self._cache, self._rollout, self._wake,
            metrics.set_shards)
        self._reconciler = reconcile.Reconciler(
            options, client, self._cache, self._authority, self._rollout,
            self._foreign_objects, self._shards)
        self._queue = workqueue.Queue(self._reconcile, WORKERS)
        self._reasons: dict[objects.ObjectKey, str] = {}
        self._counts: collections.Counter[str] = collections.Counter()
        self._without_vm: set[objects.ObjectKey] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._unlisted: set[tuple[_Resource, str | None]] = set()
        self._wants_route = asyncio.Event()
        self.has_host = asyncio.Event()
        self.listed = asyncio.Event()

    async def start(self) -> None:
        """Start the watches; reconciles begin when all resources are listed.
        """
        for namespace in self._namespaces:
            for resource in bmc_resources.OWNED:
                self._start(self._watch_owned, resource, namespace)
            # Another server than Kubernetes' serves Routes: BMCs without
            # `spec.route` do not wait for it.
            self._cache.route_problems[namespace] = routes.UNLISTED
            self._tasks.append(asyncio.create_task(
                self._watch_routes(bmc_resources.ROUTE, namespace)))
            self._start(self._watch_vms, bmc_resources.VM, namespace)
            self._start(self._watch_secrets, bmc_resources.SECRET, namespace)
            self._start(self._watch_bmcs, bmc_resources.BMC, namespace)
        self._tasks.append(asyncio.create_task(self._watch_authority()))

    async def close(self) -> None:
        """End the watches, and let running reconciles finish."""
        self._foreign_objects.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._vm_cleanup.close()
        await self._orphaned_rbac.close()
        await self._shards.close(_CLOSE_SECONDS)
        await self._queue.close(_CLOSE_SECONDS)

    def deny(self, hosts: tuple[str, ...]) -> None:
        """Replace the cluster's hosts, and have all BMCs reconciled.

        :param hosts: see `config_map.Denied`
        """
        self._reconciler.deny(hosts)
        self._shards.deny(hosts)
        self._wake(self._cache.bmcs())

    def problem(self) -> str | None:
        """Tell why this replica is not ready.

        :returns: a sentence without full stop; None if it is ready
        """
        if self._unlisted:
            # Read in another thread; the copy is atomic.
            names = {str(resource) for resource, _ in tuple(self._unlisted)}
            return f'not listed yet: {", ".join(sorted(names))}'
        return None

    @property
    def tasks(self) -> tuple[asyncio.Task[None], ...]:
        """Tasks of the watches. If one ends, the operator must end too, as it
        would miss changes."""
        return tuple(self._tasks)

    def _start(self, watch: abc.Callable[[_Resource, str | None],
                                         abc.Coroutine[None, None, None]],
               resource: _Resource, namespace: str | None) -> None:
        self._unlisted.add((resource, namespace))
        self._tasks.append(asyncio.create_task(watch(resource, namespace)))

    def _set_listed(self, resource: _Resource, namespace: str | None) -> None:
        """Note that a collection was listed; start when it was the last."""
        self._unlisted.discard((resource, namespace))
        if self._unlisted or self.listed.is_set():
            return
        self.listed.set()
        self._shards.start()
        self._shards.load()
        for key in self._cache.bmcs():
            self._rollout.update(
                key, rollout.is_stopped(
                    self._cache.objects.get(
                        bmc_resources.DEPLOYMENT, key.namespace,
                        naming.base(key.name))))
            self._queue.add(key)
        self._queue.start()
        self._vm_cleanup.enqueue_all()
        self._orphaned_rbac.enqueue_all()

    # The watches

    async def _watch_bmcs(self, resource: _Resource, namespace: str | None
                          ) -> None:
        async for kind, content in self._api.watch(resource, namespace):
            if kind == api.LISTED:
                for key in self._cache.bmcs():
                    if key not in content and namespace in (
                            None, key.namespace):
                        await self._check_unlisted_bmc(key)
                if self.listed.is_set():
                    self._orphaned_rbac.enqueue_all()
                self._set_listed(resource, namespace)
            elif kind == 'DELETED':
                self._delete_bmc(content)
            else:
                self._put_bmc(content)

    def _put_bmc(self, body: objects.VirtualMachineBMC) -> None:
        metadata = body['metadata']
        key = objects.ObjectKey(metadata['namespace'], metadata['name'])
        bmc = spec.read(body)
        if not bmc.vm.name:
            if key not in self._without_vm:
                self._without_vm.add(key)
                LOG.warning(
                    '%s %s/%s has no spec.virtualMachineRef.name and is '
                    'ignored; set it, or delete the BMC',
                    bmc_resources.BMC.kind, *key)
            return
        if naming.HOST_FINALIZER in (metadata.get('finalizers') or ()) or any(
                condition['type'] == conditions.HOST for condition in (
                    body.get('status') or {}).get('conditions') or ()):
            self.has_host.set()
        if bmc.route:
            self._wants_route.set()
        known = self._cache.bmc(key) is not None
        if self._cache.put_bmc(body):
            self._count(key)
            self._wake((key, *(() if known else self._users_of(
                bmc_resources.BMC, body))))

    async def _check_unlisted_bmc(self, key: objects.ObjectKey) -> None:
        """Drop a BMC that is missing in a list, unless it is newer."""
        try:
            await self._api.get(bmc_resources.BMC, *key, metadata_only=True)
        except errors.ObjectNotFound:
            self._drop_bmc(key)
        except errors.MachineError as e:
            # A reconcile reads it before it writes anything.
            LOG.info('%s %s/%s was not listed and could not be read: %s',
                     bmc_resources.BMC.kind, *key, e)

    def _delete_bmc(self, deleted: objects.VirtualMachineBMC) -> None:
        metadata = deleted['metadata']
        key = objects.ObjectKey(metadata['namespace'], metadata['name'])
        body = self._cache.bmc(key)
        is_cached = body is not None and (
            body['metadata']['uid'] == metadata['uid'])
        if self.listed.is_set() and not is_cached:
            # A reconcile has dropped it already: its VM is unknown, so check
            # all VMs.
            self._vm_cleanup.enqueue_all()
            self._orphaned_rbac.enqueue_all()
        if body is None or is_cached:
            self._drop_bmc(key)
            self._cache.objects.deleted(bmc_resources.BMC, deleted)

    def _drop_bmc(self, key: objects.ObjectKey) -> None:
        body = self._cache.bmc(key)
        self._cache.drop_bmc(key)
        if body:
            bmc = spec.read(body)
            self._vm_cleanup.enqueue(bmc.vm.namespace, bmc.vm.name)
            for resource, namespace, name in facts.object_refs(bmc):
                if resource in orphaned_rbac.KINDS:
                    self._orphaned_rbac.enqueue(namespace, name)
        self._without_vm.discard(key)
        self._queue.forget(key)
        self._wake(self._cache.users_of(bmc_resources.BMC, *key))
        self._count(key)
        self._forget(key)

    def _forget(self, key: objects.ObjectKey) -> None:
        self._shards.release(key)
        self._reconciler.forget(key)
        self._rollout.forget(key)
        self._foreign_objects.forget(key)

    async def _watch_owned(self, resource: _Resource, namespace: str | None
                           ) -> None:
        owned = self._cache.objects
        async for kind, content in self._api.watch(
                resource, namespace, label_selector=naming.OURS):
            if kind == api.LISTED:
                for key in self._drop_unlisted(
                        resource, namespace, content, owned.names(resource),
                        owned.drop):
                    self._shards.seen(resource, *key)
                if resource == bmc_resources.ROUTE:
                    self._set_route_problem(namespace, None)
                if self.listed.is_set():
                    self._vm_cleanup.enqueue_all()
                self._set_listed(resource, namespace)
                continue
            is_gone = kind == 'DELETED'
            changed = (owned.deleted if is_gone else owned.put)(
                resource, content)
            metadata = content['metadata']
            if resource == bmc_resources.ROLE:
                self._vm_cleanup.role_changed(metadata['namespace'])
            if not changed:
                continue
            if resource in orphaned_rbac.KINDS and not is_gone:
                self._orphaned_rbac.enqueue(metadata['namespace'],
                                            metadata['name'])
            self._shards.seen(resource, metadata['namespace'],
                              metadata['name'], content if is_gone else None)
            keys = self._users_of(resource, content)
            if resource == bmc_resources.DEPLOYMENT:
                for key in keys:
                    self._rollout.update(key, rollout.is_stopped(
                        None if is_gone else content))
            self._wake(keys)

    async def _watch_routes(self, resource: _Resource, namespace: str | None
                            ) -> None:
        """Watch Routes as soon as there are any.

        Where they do not exist, the API server is asked for them only after a
        BMC has asked for one.
        """
        while True:
            try:
                problem = await self._route_problem(resource, namespace)
            except errors.Unavailable as e:
                LOG.warning('Routes cannot be listed yet, and BMCs with '
                            'spec.route wait; retrying every %d s: %s',
                            ROUTE_SECONDS, e)
                await asyncio.sleep(ROUTE_SECONDS)
                continue
            if problem is None:
                break
            self._set_route_problem(namespace, problem)
            await self._wants_route.wait()
            await asyncio.sleep(ROUTE_SECONDS)
        await self._watch_owned(resource, namespace)

    def _set_route_problem(self, namespace: str | None, problem: str | None
                           ) -> None:
        if self._cache.route_problems[namespace] != problem:
            self._cache.route_problems[namespace] = problem
            self._wake(self._cache.bmcs())

    async def _route_problem(self, resource: _Resource, namespace: str | None
                             ) -> str | None:
        """Find why there are no Routes.

        :returns: `routes.MISSING`, `routes.FORBIDDEN`, or None
        :raises: `errors.Unavailable`
        """
        try:
            if not await self._api.serves_group(resource.group):
                return routes.MISSING
            await self._api.check_readable(resource, namespace)
        except errors.AccessDenied:
            return routes.FORBIDDEN
        return None

    async def _watch_vms(self, resource: _Resource, namespace: str | None
                         ) -> None:
        await self._watch_metadata(resource, namespace, self._cache.machines,
                                   self._see_vm)

    def _see_vm(self, namespace: str | None, kind: str, content: typing.Any
                ) -> None:
        if kind != api.LISTED:
            self._vm_cleanup.enqueue(content['metadata']['namespace'],
                                     content['metadata']['name'])

    async def _watch_secrets(self, resource: _Resource, namespace: str | None
                             ) -> None:
        # Read the Secrets that were created for BMCs with one list; later,
        # each is read by name.
        async for kind, content in self._api.watch(
                resource, namespace, label_selector=naming.OURS):
            if kind == api.LISTED:
                break
            self._cache.secrets.take(content)
        await self._watch_metadata(resource, namespace, self._cache.secrets,
                                   self._vm_cleanup.see_secret)

    async def _watch_metadata(
            self, resource: _Resource, namespace: str | None,
            cached: cache.VirtualMachines | cache.Secrets,
            see: abc.Callable[[str | None, str, typing.Any], None]) -> None:
        """Watch the metadata of a kind.

        :param see: takes the namespace, and type and content of each event
        """
        async for kind, content in self._api.watch(
                resource, namespace, metadata_only=True):
            see(namespace, kind, content)
            if kind == api.LISTED:
                self._drop_unlisted(resource, namespace, content,
                                    cached.names(),
                                    lambda _, *key: cached.drop(*key))
                self._set_listed(resource, namespace)
                continue
            if (cached.deleted if kind == 'DELETED' else cached.put)(content):
                self._wake(self._users_of(resource, content))

    async def _watch_authority(self) -> None:
        """Have the certificate authority read again when it changes."""
        first = True
        async for kind, _ in self._api.watch(
                bmc_resources.SECRET, self._system, metadata_only=True,
                field_selector='metadata.name=' + naming.AUTHORITY):
            self._authority.invalidate()
            if not first:
                # After later lists too: it may have been deleted in between.
                self._wake(self._cache.bmcs())
            elif kind == api.LISTED:
                first = False

    def _drop_unlisted(
            self, resource: _Resource, namespace: str | None,
            listed: set[objects.ObjectKey], cached: list[objects.ObjectKey],
            drop: abc.Callable[[_Resource, str, str], bool]
    ) -> list[objects.ObjectKey]:
        """Drop what a list does not have any more; return its keys."""
        gone = [key for key in cached if key not in listed
                and namespace in (None, key.namespace)]
        for key in gone:
            drop(resource, *key)
            self._wake(self._cache.users_of(resource, *key))
        return gone

    def _users_of(self, resource: _Resource, obj: objects.Object
                  ) -> tuple[objects.ObjectKey, ...]:
        metadata = obj['metadata']
        return self._cache.users_of(resource, metadata['namespace'],
                                    metadata['name'])

    def _wake(self, keys: abc.Iterable[objects.ObjectKey]) -> None:
        if not self.listed.is_set():
            # All BMCs are queued when all resources are listed.
            return
        for key in keys:
            self._queue.add(key)
        self._metrics.set_queue_length(len(self._queue))

    def _wake_stopped(
            self, keys: abc.Iterable[objects.ObjectKey | placement.ShardKey]
    ) -> None:
        """Wake the BMCs and shards for which there is a slot of the rollout.
        """
        for key in keys:
            if isinstance(key, placement.ShardKey):
                self._shards.wake(key)
            else:
                self._wake((key,))

    # Reconciling

    async def _reconcile(self, key: objects.ObjectKey) -> float | None:
        began, failed = time.monotonic(), True
        self._metrics.set_queue_length(len(self._queue))
        try:
            with logs.about(*key):
                later = await self._reconciler.reconcile(key)
            failed = False
            return later
        finally:
            self._metrics.count_reconcile(time.monotonic() - began, failed)
            self._count(key)
            if self._cache.bmc(key) is None:
                # The reconcile may have found that the BMC is deleted before
                # the watch did, or have stored state after the deletion.
                self._forget(key)

    def _count(self, key: objects.ObjectKey) -> None:
        """Count the BMCs by the reason of their condition Ready."""
        before = self._reasons.pop(key, None)
        if before is not None:
            self._counts[before] -= 1
        body = self._cache.bmc(key)
        if body is not None:
            self._reasons[key] = conditions.ready_reason(
                body.get('status') or {}) or _NEW
            self._counts[self._reasons[key]] += 1
        self._metrics.set_bmcs(+self._counts)
