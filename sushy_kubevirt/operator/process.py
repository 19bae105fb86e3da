# SPDX-License-Identifier: Apache-2.0
"""The operator's process: starts and stops its parts in order."""

from __future__ import annotations

import asyncio
from collections import abc
import dataclasses
import functools
import logging
import signal
import typing

from sushy_kubevirt.kube import connection
from sushy_kubevirt.kube import errors
from sushy_kubevirt.operator import api
from sushy_kubevirt.operator import auto_create
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import cluster_hosts
from sushy_kubevirt.operator import command_line
from sushy_kubevirt.operator import controller
from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator import endpoints
from sushy_kubevirt.operator import leader_election
from sushy_kubevirt.operator.metal3 import claim_controller
from sushy_kubevirt.operator.metal3 import host_controller
from sushy_kubevirt.operator import metrics
from sushy_kubevirt.operator import store as stores
from sushy_kubevirt.pod import health

LOG = logging.getLogger(__name__)

#: Seconds between attempts to list BMCs at the start.
DEFINITION_SECONDS = 5

#: Seconds between looks for further hosts of the cluster.
HOSTS_SECONDS = 300

#: Number of looks without a host of the cluster, one after the other, after
#: which BMCs may reach it: the address of a control-plane node is missing
#: while it restarts.
GONE_LOOKS = 12

#: API group that OpenShift serves.
_OPENSHIFT_SECURITY = 'security.openshift.io'

T = typing.TypeVar('T')


class _Ended(Exception):
    """A signal arrived."""


class Operator:
    """One replica."""

    def __init__(self, options: command_line.Options,
                 connection: connection.Connection) -> None:
        self._options = options
        self._connection = connection
        self._stopping = asyncio.Event()
        self._elector: leader_election.LeaderElector | None = None
        self._controller: controller.Controller | None = None
        self._host_gaps: tuple[str, ...] = ()
        # For leader election, which writes without holding the Lease.
        self._lease_api = api.Api(connection)
        self._api = api.Api(connection, self._check_leadership)
        self.metrics = metrics.Metrics(
            lambda: (self._lease_api.calls, self._api.calls))

    async def run(self) -> None:
        """Run the operator until SIGTERM or SIGINT.

        :raises: `errors.MachineError`, OSError
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        options, server = self._options, None
        try:
            if options.listen:
                server = health.Server(
                    *options.listen,
                    functools.partial(health.loop_problem, loop),
                    self._problem,
                    self.metrics.text)
                server.start()
                LOG.info('Metrics and probes are at http://%s:%d',
                         endpoints.bracketed(server.address), server.port)
            if options.leader_election:
                self._elector = leader_election.LeaderElector(
                    self._lease_api, options.system_namespace,
                    options.identity, options.lease_seconds,
                    writers=(self._api,))
                await self._unless_stopped(self._elector.acquire())
            self.metrics.is_leader = True
            await self._work()
        except _Ended:
            pass
        finally:
            self.metrics.is_leader = False
            if self._elector is not None:
                await self._elector.release()
            if server is not None:
                # In a thread: it may be waiting for an answer of this loop.
                await api.in_thread(server.close)
            self._api.close()
            self._lease_api.close()
        LOG.info('The operator has ended')

    def _check_leadership(self) -> None:
        """Check the Lease; called before each write of the controllers."""
        if self._elector is not None:
            self._elector.check_leadership()

    async def _work(self) -> None:
        denied = await self._unless_stopped(self._wait_for_definition())
        self._options = dataclasses.replace(
            self._options, namespaces=tuple(
                namespace for namespace in self._options.namespaces
                if namespace not in denied),
            pod_user=await self._unless_stopped(self._pod_user()),
            cluster_hosts=await self._unless_stopped(self._cluster_hosts()))
        store = stores.Store(self._api, self._options)
        bmcs = self._controller = controller.Controller(
            self._options, self._api, store, self.metrics)
        try:
            await bmcs.start()
            await self._run_tasks(self._tasks(bmcs, store, denied))
        finally:
            await bmcs.close()

    def _tasks(self, bmcs: controller.Controller, store: stores.Store,
               denied: set[str]) -> list[asyncio.Task[None]]:
        """Start the tasks that do not end by themselves.

        :param denied: namespaces that are not served
        """
        tasks = list(bmcs.tasks)
        tasks.append(asyncio.create_task(self._refresh_hosts(bmcs)))
        if self._options.auto_create:
            tasks.append(asyncio.create_task(
                auto_create.AutoCreator(
                    self._options, self._api, store).run()))
        tasks.append(asyncio.create_task(self._host_controller(bmcs, store)))
        if self._options.claim_templates:
            tasks.append(asyncio.create_task(
                claim_controller.ClaimController(
                    self._options, self._api, store).run()))
        return tasks + [asyncio.create_task(_end_when_readable(
            self._api, namespace)) for namespace in sorted(denied)]

    async def _host_controller(self, bmcs: controller.Controller,
                               store: stores.Store) -> None:
        """Run `HostController` for --bare-metal-hosts, and for BMCs that have
        BareMetalHosts from before."""
        if not self._options.bare_metal_hosts:
            await bmcs.has_host.wait()
        await host_controller.HostController(
            self._options, self._api, store).run()

    async def _run_tasks(self, tasks: list[asyncio.Task[None]]) -> None:
        """Run until a signal, or until a task ends.

        :param tasks: without one of them the operator would miss changes
        :raises: what one of them raised
        """
        for task in tasks:
            task.add_done_callback(lambda task: self._stopping.set())
        try:
            await self._stopping.wait()
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _wait_for_definition(self) -> set[str]:
        """Wait until BMCs can be listed.

        This needs their CustomResourceDefinition and the permission to list
        them. A namespace that is deleted loses its RoleBinding, and must not
        stop the operator from serving the other namespaces.

        :returns: the namespaces in which listing was denied twice in a row;
            never all
        """
        namespaces: tuple[str | None, ...] = (
            self._options.namespaces or (None,))
        logged: set[str] = set()
        before: set[str | None] | None = None
        while True:
            problems: dict[str | None, errors.MachineError] = {}
            for namespace in namespaces:
                try:
                    await self._api.check_readable(
                        bmc_resources.BMC, namespace)
                except (errors.Unavailable, errors.AccessDenied) as e:
                    problems[namespace] = e
                    if str(e) not in logged:
                        logged.add(str(e))
                        LOG.warning('BMCs cannot be listed yet; retrying '
                                    'every %d s: %s', DEFINITION_SECONDS, e)
            denied = {namespace for namespace, problem in problems.items()
                      if isinstance(problem, errors.AccessDenied)}
            if len(denied) == len(problems) < len(namespaces) and (
                    denied in (set(), before)):
                unserved = set(filter(None, denied))
                if unserved:
                    LOG.warning(
                        'Namespaces not served, as the operator may not list '
                        'their BMCs: %s. It restarts when it may',
                        ', '.join(sorted(unserved)))
                return unserved
            before = denied
            await asyncio.sleep(DEFINITION_SECONDS)

    async def _pod_user(self) -> int | None:
        """Decide on `command_line.Options.pod_user`.

        OpenShift assigns the ids of a namespace's range to its pods and
        rejects others (SecurityContextConstraints ``restricted-v2``).

        :returns: None if the cluster assigns one
        """
        if not isinstance(self._options.pod_user, str):
            return self._options.pod_user
        openshift = await _answer(
            lambda: self._api.serves_group(_OPENSHIFT_SECURITY),
            'The API groups, by which --pod-user auto is decided, cannot be '
            'read yet; retrying every %d s: %s. With --pod-user none '
            f'(OpenShift) or {deployments.USER} they are not needed')
        if openshift:
            LOG.info('This is OpenShift: the cluster assigns the user ids of '
                     'pods')
        return None if openshift else deployments.USER

    async def _cluster_hosts(self) -> tuple[str, ...]:
        """Find the cluster's hosts, which BMCs may not reach; sorted."""
        hosts, gaps = await _answer(
            lambda: cluster_hosts.find(
                self._api, self._connection.access().server),
            'The networks of Services, which BMCs may not reach, cannot be '
            'read yet; retrying every %d s: %s')
        for gap in gaps:
            if gap not in self._host_gaps:
                LOG.warning('%s', gap)
        self._host_gaps = gaps
        return hosts

    async def _refresh_hosts(self, bmcs: controller.Controller) -> None:
        """Deny BMCs the hosts that the cluster gets later, and no longer
        those that were missing in `GONE_LOOKS` looks."""
        known = self._options.cluster_hosts
        missed = dict.fromkeys(known, 0)
        while True:
            LOG.info('BMCs may not reach: %s', ', '.join(known))
            while (hosts := tuple(sorted(missed))) == known:
                await asyncio.sleep(HOSTS_SECONDS)
                present = await self._cluster_hosts()
                # What cannot be read is not gone.
                looks = int(all(cluster_hosts.UNSERVED in gap
                                for gap in self._host_gaps))
                missed = {
                    host: 0 if host in present else missed[host] + looks
                    for host in {*missed, *present}}
                missed = {host: count for host, count in missed.items()
                          if count < GONE_LOOKS}
            known = hosts
            bmcs.deny(hosts)

    def _problem(self) -> str | None:
        """Tell why this replica is not ready; None if it is."""
        if self._elector is not None and not self._elector.is_leader:
            # A replica that waits for the Lease is ready.
            return None
        if self._controller is None:
            return (f'{bmc_resources.BMC} cannot be listed yet; see the log '
                    'for the reason')
        return self._controller.problem()

    async def _unless_stopped(self, coroutine: abc.Awaitable[T]) -> T:
        """Wait for a coroutine, or for a signal.

        :raises: `_Ended` upon a signal
        """
        doing = asyncio.ensure_future(coroutine)
        stopped = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({doing, stopped},
                               return_when=asyncio.FIRST_COMPLETED)
            if not doing.done():
                raise _Ended
            return doing.result()
        finally:
            for task in doing, stopped:
                task.cancel()
            await asyncio.gather(doing, stopped, return_exceptions=True)


async def _answer(request: abc.Callable[[], abc.Awaitable[T]], message: str
                  ) -> T:
    """Send a request until it is answered.

    :param message: of the log, for the pause and the error
    """
    while True:
        try:
            return await request()
        except (errors.Unavailable, errors.AccessDenied) as e:
            LOG.warning(message, DEFINITION_SECONDS, e)
            await asyncio.sleep(DEFINITION_SECONDS)


async def _end_when_readable(client: api.Api, namespace: str) -> None:
    """End the operator when the BMCs of a namespace can be listed.

    A restart lists all resources again, with those of this namespace.

    :raises: `errors.Unavailable` then
    """
    async for _ in client.watch(bmc_resources.BMC, namespace,
                                metadata_only=True):
        raise errors.Unavailable(
            f'The BMCs of namespace {namespace} may be listed now: this '
            'replica ends, and the next one serves that namespace too')
