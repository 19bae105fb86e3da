# SPDX-License-Identifier: Apache-2.0
"""Forwards connections to service ports to one of the addresses.

A port without backends is not open, so connections are refused immediately, as
in a cluster.
"""

import asyncio
import contextlib
import itertools
import logging
import socket

LOG = logging.getLogger(__name__)

_CHUNK = 65536
_CONNECT = 5.0  # seconds
#: Seconds after which an idle sender is forgotten.
IDLE = 120.0


class Tcp:
    """A port for TCP.

    :param address: address to listen on.
    :param port: likewise.
    """

    def __init__(self, address, port):
        self._where = (address, port)
        self._backends = []
        self._turn = itertools.count()
        self._server = None
        self._open = {}

    async def serve(self, backends):
        """Open the port, or replace its backends.

        :param backends: list of (address, port).
        :raises OSError: the port cannot be opened.
        """
        gone = set(self._backends) - set(backends)
        self._backends = list(backends)
        # Close connections to pods that are no longer backends.
        for task, backend in list(self._open.items()):
            if backend in gone:
                task.cancel()
        if backends and self._server is None:
            self._server = await asyncio.start_server(
                self._accept, *self._where)
        elif not backends and self._server is not None:
            self._server.close()
            self._server = None

    async def close(self):
        """Close the port and all connections."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _accept(self, reader, writer):
        task = asyncio.current_task()
        first = next(self._turn)
        try:
            for offset in range(len(self._backends)):
                backend = self._backends[
                    (first + offset) % len(self._backends)]
                try:
                    async with asyncio.timeout(_CONNECT):
                        there = await asyncio.open_connection(*backend)
                    break
                except (OSError, TimeoutError):
                    continue
            else:
                writer.transport.abort()
                return
            self._open[task] = backend
            try:
                await both(reader, writer, *there)
            finally:
                there[1].transport.abort()
        except asyncio.CancelledError:
            pass  # the port was closed or the pod is gone
        finally:
            self._open.pop(task, None)
            writer.transport.abort()


async def both(reader, writer, there_reader, there_writer):
    """Forward in both directions until one side closes the connection."""
    async with asyncio.TaskGroup() as group:
        group.create_task(_one_way(reader, there_writer))
        group.create_task(_one_way(there_reader, writer))
    # What was written is sent before the connection goes.
    for one in (writer, there_writer):
        one.close()
    for one in (writer, there_writer):
        with contextlib.suppress(OSError):
            await one.wait_closed()


async def _one_way(reader, writer):
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError):
        if writer.can_write_eof():
            writer.write_eof()
        else:
            # TLS has no half-closed connections.
            writer.close()


class _Flow(asyncio.DatagramProtocol):
    """The datagrams between one sender and one backend."""

    def __init__(self, answer, backend):
        self.backend = backend
        self.transport = None
        self.handle = None
        self._answer = answer
        self._early = []

    def connection_made(self, transport):
        self.transport = transport
        for data in self._early:
            transport.sendto(data)
        self._early.clear()

    def send(self, data):
        if self.transport is None:
            self._early.append(data)
        else:
            self.transport.sendto(data)

    def datagram_received(self, data, addr):
        self._answer(data)

    def error_received(self, exc):
        pass  # no listener at present; the sender will retry


class Udp(asyncio.DatagramProtocol):
    """A port for UDP; see :class:`Tcp`."""

    def __init__(self, address, port):
        self._where = (address, port)
        self._backends = []
        self._turn = itertools.count()
        self._transport = None
        self._flows = {}
        self._tasks = set()
        self._loop = asyncio.get_running_loop()

    async def serve(self, backends):
        """Open the port, or replace its backends; see :meth:`Tcp.serve`."""
        self._backends = list(backends)
        for sender, flow in list(self._flows.items()):
            if flow.backend not in self._backends:
                self._end(sender)
        if backends and self._transport is None:
            self._transport, _ = await self._loop.create_datagram_endpoint(
                lambda: self, self._where)
        elif not backends:
            await self._close_socket()

    async def close(self):
        """Close the port and forget all senders."""
        await self._close_socket()
        for sender in list(self._flows):
            self._end(sender)

    async def _close_socket(self):
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
            # The socket is closed in the loop's next iteration; another
            # server may be waiting for the port.
            await asyncio.sleep(0)

    def connection_lost(self, exc):
        """Ignore the end of the socket; only :meth:`close` closes it."""

    def datagram_received(self, data, sender):
        """Forward a datagram to the backend of its sender."""
        if not self._backends:
            return
        flow = self._flows.get(sender)
        if flow is None:
            backend = self._backends[next(self._turn) % len(self._backends)]
            flow = self._flows[sender] = _Flow(
                lambda answer: self._answer(sender, answer), backend)
            task = self._loop.create_task(self._connect(flow))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._extend(sender, flow)
        flow.send(data)

    def error_received(self, exc):
        """Ignore that a sender no longer accepts replies."""

    async def _connect(self, flow):
        try:
            await self._loop.create_datagram_endpoint(
                lambda: flow, remote_addr=flow.backend)
        except OSError as exc:
            LOG.warning('Cannot forward datagrams to %s:%s: %s',
                        *flow.backend, exc)

    def _answer(self, sender, data):
        if self._transport is not None and sender in self._flows:
            self._extend(sender, self._flows[sender])
            self._transport.sendto(data, sender)

    def _extend(self, sender, flow):
        if flow.handle is not None:
            flow.handle.cancel()
        flow.handle = self._loop.call_later(IDLE, self._end, sender)

    def _end(self, sender):
        flow = self._flows.pop(sender, None)
        if flow is None:
            return
        if flow.handle is not None:
            flow.handle.cancel()
        if flow.transport is not None:
            flow.transport.abort()


def free(address, port, protocol):
    """Tell whether a port can be opened."""
    kind = socket.SOCK_DGRAM if protocol == 'UDP' else socket.SOCK_STREAM
    with socket.socket(socket.AF_INET, kind) as sock:
        try:
            sock.bind((address, port))
        except OSError:
            return False
    return True
