# SPDX-License-Identifier: Apache-2.0
"""The process of a pod that serves the BMCs of many VMs of a namespace.

A ConfigMap, which the operator writes, lists the BMCs; a watch of it starts,
changes and stops them one by one. The process reports in a second ConfigMap
which version of each entry it serves, or why it cannot.
"""

from __future__ import annotations

import asyncio
from collections import abc
from concurrent import futures
import contextlib
import hashlib
import json
import logging
import resource
import signal
import typing

from sushy_kubevirt.emulator import plugin
from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import client
from sushy_kubevirt.kube import connection
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import objects
from sushy_kubevirt.kube import watcher
from sushy_kubevirt.machine import cluster
from sushy_kubevirt.machine import options
from sushy_kubevirt.pod import health
from sushy_kubevirt.pod import metrics
from sushy_kubevirt.pod import prometheus
from sushy_kubevirt.pod import redfish_service
from sushy_kubevirt.redfish.services import service_threads
from vbmc_kubevirt import metrics as ipmi_metrics
from vbmc_kubevirt import shared_bmc

LOG = logging.getLogger(__name__)

#: End of the name of the ConfigMap with the report, after that of the list.
REPORT_SUFFIX = '-served'

#: Threads of all BMCs: for IPMI commands that read, of which each BMC has at
#: most `ipmi.server.READS_MAX`, and that change, of which it has one; and for
#: the start of BMCs.
READERS, WRITERS, STARTERS = 32, 16, 8

#: Seconds between two writes of the report.
REPORT_SECONDS = 0.2

#: Seconds between two checks whether another client has changed the report.
CHECK_SECONDS = 60

#: Seconds before a BMC that could not be started is tried again, doubled each
#: time, and the longest pause.
FIRST_PAUSE, LONGEST_PAUSE = 1, 60

#: Seconds until a watch is renewed.
WATCH_SECONDS = 300.0


class Report:
    """Writes the ConfigMap with the report.

    :param where: the ConfigMap
    :param executor: for API calls
    """

    def __init__(self, client: client.Client, where: objects.ObjectKey,
                 executor: futures.Executor) -> None:
        self._client = client
        self._where = where
        self._executor = executor
        self._entries: dict[str, str] = {}
        self._written: dict[str, str] | None = None
        self._changed = asyncio.Event()

    @property
    def replaced(self) -> bool:
        """Whether the report of an earlier process is gone."""
        return self._written is not None

    def set(self, name: str, digest: str, problem: str = '') -> None:
        """Report what is served for a BMC.

        :param digest: of its entry
        :param problem: a sentence
        """
        self._entries[name] = json.dumps(
            {'digest': digest, 'problem': problem}, sort_keys=True)
        self._changed.set()

    def remove(self, name: str) -> None:
        """Report nothing for a BMC."""
        self._entries.pop(name, None)
        self._changed.set()

    async def run(self) -> None:
        """Write changes, until it is cancelled."""
        loop = asyncio.get_running_loop()
        pause = REPORT_SECONDS
        while True:
            wanted = dict(self._entries)
            if wanted != self._written:
                try:
                    await loop.run_in_executor(self._executor, self._write,
                                               wanted)
                except errors.MachineError as exc:
                    LOG.warning('The report in ConfigMap %s/%s cannot be '
                                'written, trying again: %s', *self._where,
                                exc)
                    pause = min(2 * pause, LONGEST_PAUSE)
                    await asyncio.sleep(pause)
                    continue
                self._written, pause = wanted, REPORT_SECONDS
            await asyncio.sleep(REPORT_SECONDS)
            try:
                async with asyncio.timeout(CHECK_SECONDS):
                    await self._changed.wait()
            except TimeoutError:
                self._written = await loop.run_in_executor(
                    self._executor, self._read)
            self._changed.clear()

    def _read(self) -> dict[str, str] | None:
        """Return what is reported."""
        try:
            return self._client.get(api_resources.CONFIG_MAP,
                                    *self._where).get('data') or {}
        except errors.ObjectNotFound:
            # Writing fails until the operator has created it again.
            return {}
        except errors.MachineError as exc:
            LOG.info('The report in ConfigMap %s/%s cannot be read: %s',
                     *self._where, exc)
            return self._written

    def _write(self, wanted: dict[str, str]) -> None:
        if self._written is None:
            # What an earlier process reported is not served any more.
            self._client.patch(api_resources.CONFIG_MAP, *self._where, [
                {'op': 'add', 'path': '/data', 'value': wanted}])
            return
        self._client.patch(api_resources.CONFIG_MAP, *self._where, {'data': {
            **{name: None for name in self._written if name not in wanted},
            **{name: text for name, text in wanted.items()
               if self._written.get(name) != text}}})


class _Member:
    """A BMC of the list.

    :ivar text: its value in the ConfigMap
    :ivar task: what starts, changes or stops it
    :ivar bmc: what is served
    """

    def __init__(self) -> None:
        self.text: str | None = None
        self.task: asyncio.Task[None] | None = None
        self.bmc: shared_bmc.SharedBmc | None = None


class SharedPod:
    """The BMCs of a list.

    :param where: the ConfigMap with the list
    :param address: the pod's IP address
    :param health_port: TCP port for probes and metrics; 0 for a free one
    """

    def __init__(self, where: objects.ObjectKey, address: str,
                 health_port: int) -> None:
        self._where = where
        self._members: dict[str, _Member] = {}
        self._starters = futures.ThreadPoolExecutor(STARTERS, 'starter')
        link = connection.Connection.from_options(None, None)
        watched = options.Options(watch_seconds=WATCH_SECONDS)
        self._shared = cluster.SharedCluster(
            link, watched, (where.namespace,))
        self._watcher = watcher.Watcher(
            self._shared.client, watched, api_resources.CONFIG_MAP,
            where.namespace, '', f'metadata.name={where.name}', self)
        self._threads = service_threads.ServiceThreads(
            service_threads.SHARED)
        self._requests = metrics.Requests()
        self._common = shared_bmc.Common(
            self._shared, _application(), self._threads,
            futures.ThreadPoolExecutor(READERS, 'reader'),
            futures.ThreadPoolExecutor(WRITERS, 'writer'),
            redfish_service.listen_address(address), self._requests)
        self._health = health.Server(
            address, health_port, self.liveness_problem,
            self.readiness_problem, self.metrics)
        # Set by `serve`.
        self._loop: asyncio.AbstractEventLoop
        self._report: Report
        self._stopping = False

    async def serve(self) -> None:
        """Serve until SIGTERM or SIGINT, then complete what is running.

        :raises: OSError if the port for probes cannot be opened
        """
        _raise_limit_of_files()
        self._loop = asyncio.get_running_loop()
        stop_requested = asyncio.Event()
        for signum in signal.SIGTERM, signal.SIGINT:
            self._loop.add_signal_handler(signum, stop_requested.set)
        self._report = Report(
            self._shared.client, objects.ObjectKey(
                self._where.namespace, self._where.name + REPORT_SUFFIX),
            self._starters)
        self._health.start()
        self._shared.start()
        self._watcher.start()
        LOG.info('BMCs of ConfigMap %s/%s; probes and metrics on %s',
                 *self._where, self._health.url)
        reporting = asyncio.create_task(self._report.run())
        await stop_requested.wait()
        self._stopping = True
        reporting.cancel()
        self._watcher.stop()
        for member in self._members.values():
            if member.task is not None:
                member.task.cancel()
        await asyncio.gather(
            *(member.bmc.stop() for member in self._members.values()
              if member.bmc is not None), return_exceptions=True)
        self._health.close()
        self._shared.close()
        self._threads.close()
        LOG.info('BMCs of ConfigMap %s/%s: stopped', *self._where)

    # The list; called by the watcher

    def take_list(self, source: object,
                  pages: abc.Iterator[client.Page[objects.Json]]) -> str:
        """See `watcher.Watcher`."""
        config_map, version = None, ''
        for items, version in pages:
            config_map = next(iter(items), config_map)
        if config_map is None:
            LOG.warning('There is no ConfigMap %s/%s; what is served stays',
                        *self._where)
        else:
            self._take(config_map)
        return version

    def event(self, source: object, kind: str, obj: objects.Json) -> None:
        """See `watcher.Watcher`."""
        # The operator deletes it with the pod, or makes it again.
        if kind != 'DELETED':
            self._take(obj)

    def changed(self) -> None:
        """See `watcher.Watcher`."""

    def _take(self, config_map: objects.Json) -> None:
        with contextlib.suppress(RuntimeError):     # the loop has ended
            self._loop.call_soon_threadsafe(
                self._apply, config_map.get('data') or {})

    def _apply(self, data: dict[str, str]) -> None:
        """Serve what the list has; runs in the event loop."""
        if self._stopping:
            return
        for name in {*data, *self._members}:
            member = self._members.get(name)
            if member is None:
                member = self._members[name] = _Member()
            text = data.get(name)
            if text != member.text or member.task is None:
                member.text = text
                before = member.task
                member.task = self._loop.create_task(
                    self._change(name, member, before))

    async def _change(self, name: str, member: _Member,
                      before: asyncio.Task[None] | None) -> None:
        """Make a BMC what its entry says.

        :param before: task that did the same for an earlier entry
        """
        if before is not None:
            before.cancel()
            await _ended(before)
        text = member.text
        if text is None or _is_reservation(text):
            await self._end(member)
            self._report.remove(name)
            if member.text is None:
                self._members.pop(name, None)
            return
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        pause = FIRST_PAUSE
        while True:
            problem = ''
            try:
                bmc = await self._serve(name, member, json.loads(text))
                problem = bmc.problem()
            except shared_bmc.Problem as exc:
                problem = str(exc)
            except Exception as exc:
                LOG.exception('%s: cannot be served', name)
                problem = f'Unexpected error: {type(exc).__name__}'
            self._report.set(name, digest, problem)
            if not problem:
                return
            LOG.warning('%s: %s. Next try in %d s', name,
                        problem.removesuffix('.'), pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _serve(self, name: str, member: _Member,
                     entry: objects.Json) -> shared_bmc.SharedBmc:
        """Start a BMC, or renew its Secrets.

        :raises: `shared_bmc.Problem`
        """
        if member.bmc is not None and shared_bmc.differs_by_secrets_only(
                entry, member.bmc.entry):
            await self._in_thread(member.bmc.renew, entry)
            return member.bmc
        await self._end(member)
        bmc = shared_bmc.SharedBmc(self._common, name, entry)
        try:
            await self._in_thread(bmc.prepare)
            bmc.start()
        except BaseException:
            await self._discard(bmc)
            raise
        member.bmc = bmc
        return bmc

    async def _end(self, member: _Member) -> None:
        if member.bmc is not None:
            ended, member.bmc = member.bmc, None
            await self._discard(ended)

    async def _discard(self, bmc: shared_bmc.SharedBmc) -> None:
        """Stop a BMC, to the end: the next one may have the same ports."""
        stopping = self._loop.create_task(self._stop(bmc))
        await _ended(stopping)
        stopping.result()

    async def _stop(self, bmc: shared_bmc.SharedBmc) -> None:
        await bmc.stop()
        await self._in_thread(bmc.close)

    async def _in_thread(self, function: abc.Callable[..., None],
                         *arguments: typing.Any) -> None:
        await self._loop.run_in_executor(
            self._starters, function, *arguments)

    # Probes and metrics; called in the thread of `health`

    def liveness_problem(self) -> str:
        """Return why the process must be restarted; '' if it is healthy."""
        return health.loop_problem(self._loop)

    def readiness_problem(self) -> str:
        """Return why no BMC can be served, a sentence; '' if they can."""
        problem = self.liveness_problem() or self._shared.cache.problem
        if not problem and not self._watcher.listed:
            problem = (f'ConfigMap {"/".join(self._where)} was not read yet: '
                       f'{self._watcher.error or "no answer"}')
        if not problem and not self._report.replaced:
            # The operator would believe that of the earlier process.
            problem = 'The report was not written yet'
        return problem

    def metrics(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        bmcs = [member.bmc for member in tuple(self._members.values())
                if member.bmc is not None]
        servers = [bmc.ipmi for bmc in bmcs if bmc.ipmi is not None]
        return prometheus.text([
            prometheus.Gauge('virtbmc_bmcs', 'BMCs that are served.',
                             lambda: len(bmcs)),
            self._requests,
            *metrics.gauges(
                [bmc.services for bmc in bmcs if bmc.services is not None],
                lambda: sum(bmc.connections for bmc in bmcs)),
            *ipmi_metrics.of(servers),
            *prometheus.cluster(self._shared.client.calls,
                                self._shared.cache.age),
            *prometheus.process()])


async def _ended(task: asyncio.Task[typing.Any]) -> None:
    """Wait for the end of a task, even if the caller is cancelled meanwhile.

    :raises: `asyncio.CancelledError` at the end, if the caller was
    """
    cancelled = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as exc:
            cancelled = exc
    if cancelled is not None:
        raise cancelled


def _is_reservation(text: str) -> bool:
    """Tell whether a value in the ConfigMap only reserves a BMC's slot."""
    try:
        return 'vm' not in json.loads(text)
    except (TypeError, ValueError, RecursionError):
        # `SharedPod._change` reports it.
        return False


def _application() -> metrics.Application:
    """Create sushy-emulator's application, the template of all BMCs."""
    plugin.enable()
    from sushy_tools.emulator import main as emulator
    plugin.prepare(emulator.app)
    return emulator.app


def _raise_limit_of_files() -> None:
    """Allow as many descriptors as the container may have."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
