# SPDX-License-Identifier: Apache-2.0
"""The process that serves all KubeVirt entries of one connection.

Forked by the daemon, told by it over a pipe what to serve. One event loop
has the ports of all BMCs; a few threads carry out what asks the cluster.
It ends with the daemon, however that ends.
"""

import asyncio
from concurrent import futures
import functools
from importlib import metadata
import logging
import os
import re
import threading
import time

from sushy_kubevirt.kubevirt import cluster
from sushy_kubevirt.kubevirt import connection
from sushy_kubevirt.kubevirt import errors
from vbmc_kubevirt import bmc
from vbmc_kubevirt.ipmi import port
from vbmc_kubevirt.ipmi import server

LOG = logging.getLogger(__name__)

#: Threads, for all BMCs together. Apart, so that a write that waits for the
#: API keeps nobody from asking for the state.
READERS, WRITERS = 4, 8

#: A connection that cannot be described is not tried more often than this.
RETRY_SECONDS = 10


class Link:
    """The connection that all entries share, made when first needed.

    :param kubeconfig: path, or None
    :param context: name, or None
    """

    def __init__(self, kubeconfig, context):
        self._make = functools.partial(
            connection.Connection.from_options, kubeconfig, context)
        self._lock = threading.Lock()
        self._connection = None
        self._failure = None
        self._failed_at = 0.0

    def get(self):
        """:raises: `errors.ConfigError`"""
        with self._lock:
            if self._connection is None:
                # To read a kubeconfig takes a process of its own.
                if (self._failure is not None and
                        time.monotonic() < self._failed_at + RETRY_SECONDS):
                    raise self._failure
                try:
                    self._connection = self._make()
                except errors.ConfigError as exc:
                    self._failure = exc.with_traceback(None)
                    self._failed_at = time.monotonic()
                    raise
            return self._connection


class Entry:
    """One VM and its BMC.

    :param link: `Link`
    :param options: `options.Options`
    :param entry: dict, with ``namespace``
    """

    def __init__(self, link, options, entry):
        self.name = entry['domain_name']
        self.address, self.port = entry['address'], entry['port']
        self._credentials = (entry['username'].encode(),
                             entry['password'].encode())
        self._vm = '%s/%s' % (entry['namespace'],
                              self.name.rpartition('/')[2])
        self._link = link
        self._options = options
        self._lock = threading.Lock()
        self._cluster = None
        self._closed = False
        self._server = None
        self.bmc = bmc.Bmc(self.name, self._find, version(), self._reset)

    def _find(self):
        with self._lock:
            if self._cluster is None:
                if self._closed:
                    raise errors.Unavailable('This BMC was stopped')
                # Its own, and of this VM alone: access rights may name it.
                self._cluster = cluster.Cluster(
                    self._link.get(), options=self._options, vm=self._vm)
        return self._cluster.machine(self._vm)

    def start(self, sock, readers, writers):
        self._server = server.Server(
            self.name, *self._credentials, self.bmc.commands, self.bmc.guid,
            readers, writers)
        self._server.start(sock)

    def _reset(self, session):
        # After the answer is on its way.
        asyncio.get_running_loop().call_soon(self._server.end_sessions)

    def stop(self):
        self._server.stop()

    def close(self):
        """Let go of the cluster. May block."""
        with self._lock:
            self._closed = True
            if self._cluster is not None:
                self._cluster.close()


class Host:
    """The entries of one connection, and the daemon's orders about them.

    :param pipe: `multiprocessing.connection.Connection` to the daemon. Each
        order is a tuple of a method's name and its arguments, and is
        answered by (True, what the method returned) or (False, a text).
    :param daemon: descriptor of the daemon's process
    """

    def __init__(self, pipe, daemon, kubeconfig, context, options):
        self._pipe = pipe
        self._daemon = daemon
        self._options = options
        self._link = Link(kubeconfig, context)
        self._entries = {}
        self._tasks = {}
        self._readers = futures.ThreadPoolExecutor(READERS, 'reader')
        self._writers = futures.ThreadPoolExecutor(WRITERS, 'writer')

    async def serve(self):
        """Carry out orders until the daemon ends."""
        loop = asyncio.get_running_loop()
        orders = asyncio.Queue()

        def receive():
            try:
                orders.put_nowait(self._pipe.recv())
            except EOFError:
                os._exit(0)

        loop.add_reader(self._daemon, os._exit, 0)
        loop.add_reader(self._pipe.fileno(), receive)
        while True:
            name, *arguments = await orders.get()
            try:
                answer = True, await getattr(self, name)(*arguments)
            except Exception as exc:
                # The other BMCs go on.
                LOG.exception('Order %s was not carried out', name)
                answer = False, '%s: %s' % (type(exc).__name__, exc)
            self._pipe.send(answer)

    async def start(self, entry):
        """Serve an entry.

        :returns: why it cannot be served, or None
        """
        name = entry['domain_name']
        await self.stop(name)
        try:
            sock = port.open_socket(entry['address'], entry['port'])
        except OSError as exc:
            return exc.strerror
        self._entries[name] = one = Entry(self._link, self._options, entry)
        one.start(sock, self._readers, self._writers)
        self._tasks[name] = asyncio.create_task(self._watch(one))

    async def _watch(self, entry):
        """See to it that a BMC is watching its VM also if nobody asks: what
        a one-time boot changed is put back by who watches."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                await loop.run_in_executor(self._readers, entry.bmc.machine)
                return
            except errors.ConfigError as exc:
                entry.bmc.note(exc)
            except errors.MachineError as exc:
                entry.bmc.note(exc)
                # It watches, or tries to.
                return
            await asyncio.sleep(RETRY_SECONDS)

    async def stop(self, name):
        """Do not serve an entry any more, and disturb no other."""
        entry = self._entries.pop(name, None)
        if entry is None:
            return
        self._tasks.pop(name).cancel()
        entry.stop()
        self._writers.submit(entry.close)

    async def problems(self):
        """:returns: dict of entries and what they last failed of"""
        return {name: entry.bmc.problem
                for name, entry in self._entries.items()}


@functools.cache
def version():
    """:returns: (major, minor) of this program"""
    try:
        numbers = re.findall(r'\d+', metadata.version('sushy-kubevirt'))
    except metadata.PackageNotFoundError:
        return 0, 0
    return int(numbers[0]), int(numbers[1])


def main(*arguments):
    """What the forked process runs; does not return.

    :param arguments: of `Host`
    """
    try:
        asyncio.run(Host(*arguments).serve())
    except Exception:
        LOG.exception('The host of BMCs failed')
    finally:
        os._exit(1)
