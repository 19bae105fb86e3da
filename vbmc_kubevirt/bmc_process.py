# SPDX-License-Identifier: Apache-2.0
"""The process that serves all KubeVirt entries of one connection.

Forked by the daemon, told by it over a pipe what to serve. One event loop
has the ports of all BMCs; a few threads carry out what asks the cluster.
It ends with the daemon, however that ends.
"""

import asyncio
from concurrent import futures
import logging
import os

from vbmc_kubevirt import bmc_server
from vbmc_kubevirt.ipmi import udp_port

LOG = logging.getLogger(__name__)

#: Threads, for all BMCs together. Apart, so that a write that waits for the
#: API keeps nobody from asking for the state.
READERS, WRITERS = 4, 8


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
        self._link = bmc_server.Link(kubeconfig, context)
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
                answer = False, f'{type(exc).__name__}: {exc}'
            self._pipe.send(answer)

    async def start(self, entry):
        """Serve an entry.

        :returns: why it cannot be served, or None
        """
        name = entry['domain_name']
        await self.stop(name)
        try:
            sock = udp_port.open_socket(entry['address'], entry['port'])
        except OSError as exc:
            return exc.strerror
        vm = f"{entry['namespace']}/{name.rpartition('/')[2]}"
        credentials = entry['username'].encode(), entry['password'].encode()
        self._entries[name] = one = bmc_server.Entry(
            self._link, self._options, name, vm, lambda: credentials)
        one.start(sock, self._readers, self._writers)
        self._tasks[name] = asyncio.create_task(one.watch(self._readers))

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
