# SPDX-License-Identifier: Apache-2.0
"""Controller: queues the BMCs that use an object which has changed.

The `store` reports changes; their keys go into the work queue, and `reconcile`
handles one BMC at a time.
"""

from __future__ import annotations

import asyncio
import collections
from collections import abc
import functools
import logging
import time
import typing

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import objects
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.operator import bmc_resources
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
from sushy_kubevirt.operator import store as stores
from sushy_kubevirt.operator import vm_cleanup
from sushy_kubevirt.operator import workqueue

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import api_resources
    from sushy_kubevirt.operator import api
    from sushy_kubevirt.operator import command_line
    from sushy_kubevirt.operator import metrics

LOG = logging.getLogger(__name__)

#: Number of BMCs that are reconciled at the same time.
WORKERS = 8

#: Seconds that running reconciles have to finish when the process ends.
_CLOSE_SECONDS = 5

#: Counted as the reason of Ready for a BMC without a status.
_NEW = 'New'

#: Kinds that are listed before the first BMC is reconciled. Routes, which
#: another server than Kubernetes' serves, delay only the BMCs with one.
_REQUIRED = (*bmc_resources.OWNED, bmc_resources.VM, bmc_resources.SECRET,
             bmc_resources.BMC)


class Controller:
    """The work of the replica that holds the Lease.

    ``listed`` is set when all resources were listed once, ``has_host`` when a
    BMC has a BareMetalHost, or a condition that says why not.
    """

    def __init__(self, options: command_line.Options, client: api.Api,
                 store: stores.Store, metrics: metrics.Metrics) -> None:
        self._metrics = metrics
        self._store = store
        self._system = options.system_namespace
        self._vm_cleanup = vm_cleanup.VmCleanup(client, store)
        self._orphaned_rbac = orphaned_rbac.OrphanedRbac(client, store)
        self._authority = certificate_authority.CertificateAuthority(
            client, options.system_namespace)
        self._rollout = rollout.Rollout(options.max_unavailable,
                                        self._wake_stopped)
        self._foreign_objects = foreign_objects.ForeignObjects(
            client, store, self._wake)
        self._shards = shards.Shards(
            options, client, store, self._rollout, self._wake,
            metrics)
        self._reconciler = reconcile.Reconciler(
            options, client, store, self._authority, self._rollout,
            self._foreign_objects, self._shards)
        self._queue = workqueue.Queue(self._reconcile, WORKERS)
        self._reasons: dict[objects.ObjectKey, str] = {}
        self._counts: collections.Counter[str] = collections.Counter()
        self._without_vm: set[objects.ObjectKey] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._wants_route = asyncio.Event()
        self.has_host = asyncio.Event()
        self.listed = asyncio.Event()
        self._subscribe()

    def _subscribe(self) -> None:
        kind, cleanup = self._store.kind, self._vm_cleanup
        kind(bmc_resources.BMC).subscribe(
            self._bmc_changed, self._bmcs_listed, all_events=True,
            writer=self._store)
        kind(bmc_resources.BMC).subscribe(self._count)
        kind(bmc_resources.ROLE).subscribe(
            lambda change: cleanup.role_changed(change.key.namespace),
            all_events=True)
        for resource in (*bmc_resources.OWNED, bmc_resources.ROUTE):
            kind(resource).subscribe(
                functools.partial(self._owned_changed, resource),
                functools.partial(self._owned_listed, resource))
        kind(bmc_resources.VM).subscribe(
            lambda change: cleanup.enqueue(*change.key), all_events=True)
        kind(bmc_resources.SECRET).subscribe(
            cleanup.see_secret, lambda namespace: cleanup.forget_unlisted())
        for used in kind(bmc_resources.VM), kind(bmc_resources.SECRET):
            used.subscribe(
                functools.partial(self._wake_users, used.resource),
                lambda namespace: self._begin())

    async def start(self) -> None:
        """Start the watches; reconciles begin when all resources are listed.
        """
        for namespace in self._store.namespaces:
            self._tasks += [
                asyncio.create_task(self._store.kind(resource).watch(
                    namespace)) for resource in _REQUIRED]
            self._store.route_problems[namespace] = routes.UNLISTED
            self._tasks.append(asyncio.create_task(
                self._watch_routes(namespace)))
        secrets = self._store.kind(bmc_resources.SECRET)
        if {None, self._system}.isdisjoint(self._store.namespaces):
            secrets = self._authority.own_watch()
            self._tasks.append(asyncio.create_task(secrets.run()))
        self._authority.follow(secrets, self._wake_all)

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
        self._wake_all()

    def problem(self) -> str | None:
        """Tell why this replica is not ready.

        :returns: a sentence without full stop; None if it is ready
        """
        # Called in another thread.
        names = sorted(str(resource) for resource in _REQUIRED
                       if not self._store.kind(resource).listed.is_set())
        return f'not listed yet: {", ".join(names)}' if names else None

    @property
    def tasks(self) -> tuple[asyncio.Task[None], ...]:
        """Tasks of the watches. If one ends, the operator must end too, as it
        would miss changes."""
        return tuple(self._tasks)

    def _begin(self) -> None:
        """Start the work when all resources were listed."""
        if self.listed.is_set() or not all(
                self._store.kind(resource).listed.is_set()
                for resource in _REQUIRED):
            return
        self.listed.set()
        self._shards.start()
        self._shards.load()
        for key in self._store.bmcs():
            self._rollout.update(
                key, rollout.is_stopped(
                    self._store.get(
                        bmc_resources.DEPLOYMENT, key.namespace,
                        naming.base(key.name))))
            self._queue.add(key)
        self._queue.start()
        self._vm_cleanup.enqueue_all()
        self._orphaned_rbac.enqueue_all()
        LOG.info('All resources are listed; this replica is ready')

    # Changes

    def _bmc_changed(self, change: stores.Change) -> None:
        if change.gone:
            self._bmc_gone(change)
            return
        key, body = change.key, change.obj
        metadata = body['metadata']
        bmc = spec.read(body)
        if not bmc.vm.name:
            if key not in self._without_vm:
                self._without_vm.add(key)
                LOG.warning(
                    '%s %s/%s has no spec.virtualMachineRef.name and is '
                    'ignored; set it, or delete the BMC',
                    bmc_resources.BMC.kind, *key)
            return
        if stored_names.HOST_FINALIZER in (metadata.get(
            'finalizers') or ()) or any(
                condition['type'] == conditions.HOST for condition in (
                    body.get('status') or {}).get('conditions') or ()):
            self.has_host.set()
        if bmc.route:
            self._wants_route.set()
        if change.changed and not self._reconciler.is_writing(body):
            # One that needs the name of its Service.
            users = () if key in self._reasons else self._store.users_of(
                bmc_resources.BMC, *key)
            self._wake((key, *users))

    def _bmcs_listed(self, namespace: str | None) -> None:
        if self.listed.is_set():
            self._orphaned_rbac.enqueue_all()
        self._begin()

    def _bmc_gone(self, change: stores.Change) -> None:
        bmc = spec.read(change.obj)
        self._vm_cleanup.enqueue(bmc.vm.namespace, bmc.vm.name)
        for ref in facts.object_refs(bmc):
            if ref.resource in orphaned_rbac.KINDS:
                self._orphaned_rbac.enqueue(ref.namespace, ref.name)
        if self._store.has_bmc(change.key):
            # Another one of that name.
            return
        self._without_vm.discard(change.key)
        self._queue.forget(change.key)
        self._wake(self._store.users_of(bmc_resources.BMC, *change.key))
        self._forget(change.key)

    def _forget(self, key: objects.ObjectKey) -> None:
        self._shards.release(key)
        self._reconciler.forget(key)
        self._rollout.forget(key)
        self._foreign_objects.forget(key)

    def _owned_changed(self, resource: api_resources.AnyResource,
                       change: stores.Change) -> None:
        key = change.key
        if resource in orphaned_rbac.KINDS and not change.gone:
            self._orphaned_rbac.enqueue(*key)
        self._shards.seen(resource, *key, change.obj if change.gone else None)
        users = self._store.users_of(resource, *key)
        if resource == bmc_resources.DEPLOYMENT:
            for user in users:
                self._rollout.update(user, rollout.is_stopped(
                    None if change.gone else change.obj))
        self._wake(users)

    def _owned_listed(self, resource: api_resources.AnyResource,
                      namespace: str | None) -> None:
        if resource == bmc_resources.ROUTE:
            self._set_route_problem(namespace, None)
        if self.listed.is_set():
            self._vm_cleanup.enqueue_all()
        self._begin()

    def _wake_users(self, resource: api_resources.AnyResource,
                    change: stores.Change) -> None:
        self._wake(self._store.users_of(resource, *change.key))

    async def _watch_routes(self, namespace: str | None) -> None:
        """Watch Routes as soon as there are any.

        Where they do not exist, the API server is asked for them only after a
        BMC has asked for one.
        """
        async def tell(problem: errors.MachineError | None) -> None:
            if problem and not isinstance(problem, errors.AccessDenied):
                LOG.warning('Routes cannot be listed yet, and BMCs with '
                            'spec.route wait; retrying every %d s: %s',
                            stores.SERVED_SECONDS, problem)
                return
            self._set_route_problem(
                namespace, routes.FORBIDDEN if problem else routes.MISSING)
            await self._wants_route.wait()

        kind = self._store.kind(bmc_resources.ROUTE)
        await kind.wait_until_served(tell, (namespace,))
        await kind.watch(namespace)

    def _set_route_problem(self, namespace: str | None, problem: str | None
                           ) -> None:
        if self._store.route_problems[namespace] != problem:
            self._store.route_problems[namespace] = problem
            self._wake_all()

    def _wake_all(self) -> None:
        self._wake(self._store.bmcs())

    def _wake(self, keys: abc.Iterable[objects.ObjectKey]) -> None:
        if not self.listed.is_set():
            # All BMCs are queued when all resources are listed.
            return
        for key in keys:
            self._queue.add(key)
        self._metrics.queue_length = len(self._queue)

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
        self._metrics.queue_length = len(self._queue)
        try:
            with logs.about(*key):
                later = await self._reconciler.reconcile(key)
            failed = False
            return later
        finally:
            self._metrics.count_reconcile(time.monotonic() - began, failed)
            if not self._store.has_bmc(key):
                # The reconcile may have found that the BMC is deleted before
                # the watch did, or have stored state after the deletion.
                self._forget(key)

    def _count(self, change: stores.Change) -> None:
        """Count the BMCs by the reason of their condition Ready."""
        key, there = change.key, self._store.has_bmc(change.key)
        if change.gone and there:
            # Another one of that name, which is counted.
            return
        before = self._reasons.pop(key, None)
        if before is not None:
            self._counts[before] -= 1
        if there:
            body: objects.VirtualMachineBMC = change.obj
            self._reasons[key] = conditions.ready_reason(
                body.get('status') or {}) or _NEW
            self._counts[self._reasons[key]] += 1
        self._metrics.bmcs = +self._counts
