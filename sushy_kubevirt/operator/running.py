# SPDX-License-Identifier: Apache-2.0
"""The operator's process: what begins and ends when.

kopf is run from here and made small: it watches BMCs, calls what `handlers`
registers, and writes nothing itself, neither to a BMC nor Events.
"""

import asyncio
import dataclasses
import logging
import signal
import sys

import kopf

from sushy_kubevirt.kube import errors
from sushy_kubevirt.operator import api as api_
from sushy_kubevirt.operator import automatic
from sushy_kubevirt.operator import handlers
from sushy_kubevirt.operator import kinds
from sushy_kubevirt.operator import leading
from sushy_kubevirt.operator import login
from sushy_kubevirt.operator import metrics as metrics_
from sushy_kubevirt.operator import probes
from sushy_kubevirt.operator import transport as transport_

LOG = logging.getLogger(__name__)

#: Seconds between looks for a definition that is not there.
DEFINITION_SECONDS = 5


#: Seconds between two tries at most, while the API server is away.
LONGEST_PAUSE = 30


#: As deep as the API server takes JSON (apimachinery's ``maxDepth``) anybody
#: may nest managedFields. `answers.parsed` reads what Python does not; of BMCs
#: it is kopf who reads them, and some of its functions go two steps for each.
#: Before Python 3.12 json heeds this; the image has 3.11.
DEEPEST = 4 * 10000


class _Ended(Exception):
    """The process is to end."""


class _All:
    """Holds everything.

    When kopf ends it waits for each task that it does not know to be older
    than itself. None of ours is its affair.
    """

    def __contains__(self, item):
        return True


async def run(options, connection):
    """Run the operator until SIGTERM or SIGINT.

    :param options: `options.Options`
    :param connection: a `connection.Connection`
    :raises: `errors.MachineError`, OSError
    """
    sys.setrecursionlimit(max(sys.getrecursionlimit(), DEEPEST))
    await Operator(options, connection).run()


class Operator:
    """One replica.

    :param options: `options.Options`
    :param connection: a `connection.Connection`
    """

    def __init__(self, options, connection):
        self._options = options
        self._stopping = asyncio.Event()
        self.metrics = metrics_.Metrics()
        self._transport = transport_.Transport(
            connection, self.metrics.called)
        self._lead = None
        self._work = None

    async def run(self):
        """Run until a signal; see `run`."""
        self._heed_signals()
        options = self._options
        served = probes.Probes(self.metrics.text, self._problem)
        always = api_.Api(self._transport)
        try:
            if options.listen:
                await served.start(*options.listen)
            if options.leader_election:
                self._lead = leading.Lead(
                    always, options.system_namespace, options.identity,
                    options.lease_seconds)
                await self._unless_stopped(self._lead.acquire())
            self.metrics.leads(True)
            await self._work_on()
        except _Ended:
            pass
        finally:
            self.metrics.leads(False)
            if self._lead is not None:
                await self._lead.release()
            await served.close()
            await always.close()
        LOG.info('The end')
        # kopf leaves generators behind that fail when asyncio closes them.
        asyncio.get_running_loop().set_exception_handler(_left_over)

    async def _work_on(self):
        api = api_.Api(self._transport,
                       self._lead.must_hold if self._lead else _may)
        try:
            denied = await self._unless_stopped(self._definition(api))
            self._options = dataclasses.replace(
                self._options, namespaces=tuple(
                    one for one in self._options.namespaces
                    if one not in denied))
            self._work = handlers.Work(
                self._options, api, self.metrics)
            try:
                await self._work.start()
                await self._run_kopf(self._endless(api, denied))
            finally:
                await self._work.close()
        finally:
            await api.close()

    def _endless(self, api, denied):
        """What goes on beside kopf, and never ends by itself.

        :param denied: namespaces that are left out
        :returns: list of tasks
        """
        tasks = list(self._work.tasks)
        if self._options.auto_create:
            tasks.append(asyncio.create_task(
                automatic.Automatic(self._options, api).run()))
        return tasks + [asyncio.create_task(_readable(api, one))
                        for one in sorted(denied)]

    async def _run_kopf(self, beside):
        """Run kopf until the process is to end.

        :param beside: list of tasks; when one ends, all is over
        :raises: what one of them raised
        """
        announcing = asyncio.create_task(self._announce())
        for task in beside:
            task.add_done_callback(lambda task: self._stopping.set())
        try:
            for seconds in _pauses():
                await self._run_kopf_once()
                if not self._stopping.is_set():
                    await self._rest(seconds)
                if self._stopping.is_set():
                    break
            for task in beside:
                if task.done():
                    task.result()
        finally:
            for task in (announcing, *beside):
                task.cancel()
            await asyncio.gather(announcing, *beside, return_exceptions=True)

    async def _run_kopf_once(self):
        """Run kopf until the process is to end, or kopf gives up.

        It does so when its watch meets an answer that it does not know;
        what else there is goes on, and it can begin anew.
        """
        registry = kopf.OperatorRegistry()
        login.register(registry, self._transport)
        self._work.register(registry)
        try:
            tasks = await kopf.spawn_tasks(
                registry=registry, settings=_settings(), standalone=True,
                # Else it asks for the name of the user, and fails: nobody's
                # number has none in an image.
                identity=self._options.identity,
                namespaces=self._options.namespaces,
                clusterwide=not self._options.namespaces,
                stop_flag=self._stopping)
            # kopf has put its own handlers in their place.
            self._heed_signals()
            await kopf.run_tasks(tasks, ignored=_All())
        except Exception as e:
            LOG.warning('The watch of %s gave up and begins anew: %s',
                        kinds.BMC, e.args[0] if e.args else repr(e))

    async def _rest(self, seconds):
        """Wait, unless the process is to end."""
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            pass

    async def _announce(self):
        await self._work.listed.wait()
        LOG.info('ready')

    async def _definition(self, api):
        """Wait for the definition of BMCs, which kopf needs to be there, and
        for the right to read them.

        A namespace that is deleted takes that right with it, and is not to
        keep the others from being looked after.

        :returns: set of the namespaces in which it is denied, for some time
            already; never all
        """
        namespaces = self._options.namespaces or (None,)
        told, before = set(), None
        while True:
            denied, away = set(), False
            for namespace in namespaces:
                try:
                    await api.served(kinds.BMC, namespace)
                except (errors.Unavailable, errors.AccessDenied) as e:
                    if isinstance(e, errors.AccessDenied):
                        denied.add(namespace)
                    else:
                        away = True
                    if str(e) not in told:
                        told.add(str(e))
                        LOG.warning('%s', e)
            if not away and denied in (set(), before) and (
                    denied < set(namespaces)):
                if denied:
                    LOG.warning('Not looked after until they can be read: %s',
                                ', '.join(sorted(denied)))
                return denied
            before = denied
            await asyncio.sleep(DEFINITION_SECONDS)

    def _problem(self):
        """What keeps this replica from being ready, or None."""
        if self._lead is not None and not self._lead.holds:
            # It waits, which is all that it is to do.
            return None
        if self._work is None:
            return 'It begins'
        return self._work.ready()

    async def _unless_stopped(self, what):
        """Do something that may take for ever.

        :raises: `_Ended` when the process is to end
        """
        doing = asyncio.ensure_future(what)
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

    def _heed_signals(self):
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)


async def _readable(api, namespace):
    """Wait for the right to read the BMCs of a namespace.

    :raises: `errors.Unavailable` then: all that there is has to be listed
    """
    async for _ in api.watch(kinds.BMC, namespace, metadata_only=True):
        raise errors.Unavailable(
            'Namespace %s can be read now: this replica ends, and whoever '
            'begins looks after it too' % namespace)


def _left_over(loop, context):
    """Take note of what fails after the end."""
    LOG.debug('%s', context.get('message'), exc_info=context.get('exception'))


def _may():
    """Nobody else is asked."""


class _Patience:
    """Pauses without an end. kopf asks for an iterator each time."""

    def __iter__(self):
        return _pauses()


def _pauses():
    """Seconds to wait, longer and longer."""
    seconds = 1
    while True:
        yield seconds
        seconds = min(seconds * 2, LONGEST_PAUSE)


def _settings():
    settings = kopf.OperatorSettings()
    # Neither definitions nor namespaces are watched, which would need
    # rights in the whole cluster: both are there when it begins.
    settings.scanning.disabled = True
    # Events are our own affair.
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.watching.server_timeout = api_.WATCH_SECONDS
    settings.watching.inactivity_timeout = api_.SILENT_SECONDS
    settings.watching.connect_timeout = api_.CONNECT_SECONDS
    settings.watching.chunk_size = api_.PAGE
    settings.networking.request_timeout = api_.PATIENCE
    # It is patient, however long the API server is away, and is run again
    # should it give up all the same: it is not to end the process.
    settings.networking.error_backoffs = _Patience()
    settings.process.ultimate_exiting_timeout = None
    # A handler only notes what there is: no worker need wait for more.
    settings.queueing.idle_timeout = 0.1
    return settings
