# SPDX-License-Identifier: Apache-2.0
"""Process that serves all KubeVirt entries of one Kubernetes connection.

Forked by the daemon, which calls its methods over a pipe. One event loop
serves the UDP ports of all BMCs; threads run the commands that access the
cluster. The process exits when the daemon exits or dies.
"""

from __future__ import annotations

import asyncio
from concurrent import futures
import functools
import logging
from multiprocessing import connection
import os
import typing

from sushy_kubevirt.machine import options
from vbmc_kubevirt import backends
from vbmc_kubevirt import bmc
from vbmc_kubevirt import bmc_users
from vbmc_kubevirt import command_table
from vbmc_kubevirt import entries
from vbmc_kubevirt.ipmi import udp
from vbmc_kubevirt.ipmi import users

LOG = logging.getLogger(__name__)

#: Threads shared by all BMCs. Separate pools, so that writes waiting for the
#: API do not delay reads of the state.
READERS, WRITERS = 4, 8


class BmcProcess:
    """BMCs of one connection, controlled by the daemon.

    :param pipe: to the daemon. A call is a tuple of a method's name and its
        arguments; the response is (True, return value) or (False, error text)
    :param daemon: pidfd of the daemon
    :param kubeconfig: path
    :param context: context name
    :param state_secret: 'namespace/name' of the Secret with the state of all
        BMCs, '' for the default
    """

    def __init__(self, pipe: connection.Connection, daemon: int,
                 kubeconfig: str | None, context: str | None,
                 options: options.Options, state_secret: str) -> None:
        self._pipe = pipe
        self._daemon = daemon
        self._options = options
        self._state_secret = state_secret
        self._connection = backends.SharedConnection(kubeconfig, context)
        self._bmcs: dict[str, bmc.Bmc] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._readers = futures.ThreadPoolExecutor(READERS, 'reader')
        self._writers = futures.ThreadPoolExecutor(WRITERS, 'writer')

    async def serve(self) -> None:
        """Handle calls until the daemon exits."""
        loop = asyncio.get_running_loop()
        calls: asyncio.Queue[tuple[typing.Any, ...]] = asyncio.Queue()

        def receive() -> None:
            try:
                calls.put_nowait(self._pipe.recv())
            except EOFError:
                os._exit(0)

        loop.add_reader(self._daemon, os._exit, 0)
        loop.add_reader(self._pipe.fileno(), receive)
        while True:
            name, *arguments = await calls.get()
            try:
                response = True, await getattr(self, name)(*arguments)
            except Exception as exc:
                # Keep serving the other BMCs.
                LOG.exception('Call %s of the daemon failed', name)
                response = False, f'{type(exc).__name__}: {exc}'
            self._pipe.send(response)

    async def start(self, entry: entries.Entry) -> str | None:
        """Serve an entry; replaces a server of the same name.

        :returns: None, or the reason why the port cannot be opened
        """
        name = entry['domain_name']
        await self.stop(name)
        try:
            sock = udp.open_socket(entry['address'], entry['port'])
        except OSError as exc:
            return exc.strerror
        vm = f"{entry['namespace']}/{name.rpartition('/')[2]}"
        user = users.User(users.NULL_USER + 1, entry['username'].encode(),
                          entry['password'].encode())
        self._bmcs[name] = served = bmc.Bmc(
            command_table.commands,
            functools.partial(
                backends.OwnBackend, self._connection, self._options, vm,
                self._state_secret),
            name, vm, bmc_users.BmcUsers(lambda: (user,)), self._readers,
            self._writers)
        served.start(sock)
        self._tasks[name] = asyncio.create_task(served.watch(self._readers))
        return None

    async def stop(self, name: str) -> None:
        """Stop serving an entry; does nothing for an unknown name."""
        served = self._bmcs.pop(name, None)
        if served is None:
            return
        self._tasks.pop(name).cancel()
        served.server.stop()
        self._writers.submit(served.close)

    async def problems(self) -> dict[str, str]:
        """Return the last error of each entry by name, '' for none."""
        return {name: served.last_error
                for name, served in self._bmcs.items()}


def main(*arguments: typing.Any) -> None:
    """Run the forked process; does not return.

    :param arguments: of `BmcProcess`
    """
    try:
        asyncio.run(BmcProcess(*arguments).serve())
    except Exception:
        LOG.exception('The process that serves KubeVirt BMCs failed and '
                      'exits; the daemon restarts it')
    finally:
        os._exit(1)
