# SPDX-License-Identifier: Apache-2.0
"""``portforward`` of pods: connections to ports of a pod, in a WebSocket.

Messages begin with a channel number. A port has two channels: its data, and an
error text, which the client cannot write to. The first message of each is the
port number. Channels cannot be ended one by one: the WebSocket is closed after
the connections of all ports, and ends them.

Source: kubernetes/staging/src/k8s.io/kubelet/pkg/cri/streaming/portforward/
websocket.go (1.36), containerd/internal/cri/server/
sandbox_portforward_linux.go (2.2).
"""

import asyncio
from collections.abc import Callable
import contextlib
import struct

from kubevirt_sandbox.api import core
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import server
from kubevirt_sandbox.api import web
from kubevirt_sandbox.api import websocket
from kubevirt_sandbox.workloads import podstate

PROTOCOL = 'v4.channel.k8s.io'

_CHUNK = 32768
#: Seconds that one direction of a connection may outlast the other.
_LINGER = 1


class Route:
    """The subresource ``portforward`` of pods.

    :param address: function of a pod's uid that returns its address, or None
        when it does not run.
    """

    def __init__(self, address: Callable[[str], str | None]):
        self._address = address

    async def answer(
            self, request: server.SubresourceRequest) -> websocket.WebSocket:
        """Answer ``GET …/pods/NAME/portforward?ports=…``, a WebSocket."""
        pod = request.store.get(core.POD, request.namespace, request.name)
        if not pod['spec'].get('nodeName'):
            raise errors.bad_request(
                f'pod {request.name} does not have a host assigned')
        ports = _ports(request.query.getall('ports', []))
        _check_upgrade(request.http)
        address = self._address(pod['metadata']['uid'])
        if address is None or podstate.has_ended(pod):
            raise errors.internal_error(
                f'pod not found ("{request.name}_{request.namespace}")')
        socket = websocket.WebSocket((PROTOCOL,))
        await socket.prepare(request.http)
        forwards = [_Forward(address, port, 2 * index, socket)
                    for index, port in enumerate(ports)]
        receiving = asyncio.create_task(_receive(socket, forwards))
        try:
            with contextlib.suppress(ConnectionError):
                await asyncio.gather(*(f.run() for f in forwards))
                await socket.close()
        finally:
            receiving.cancel()
            await asyncio.gather(receiving, return_exceptions=True)
        return socket


def _ports(values: list[str]) -> list[int]:
    """Return the ports of the query.

    :raises errors.ApiError: 400.
    """
    if not values:
        raise errors.bad_request('query parameter "port" is required')
    ports = []
    for text in ','.join(values).split(','):
        port = int(text) if text.isascii() and text.isdigit() else 0
        if not 0 < port < 2 ** 16:
            raise errors.bad_request(f'unable to parse {text!r} as a port')
        ports.append(port)
    return ports


def _check_upgrade(http: web.Request) -> None:
    """Refuse what is no WebSocket of the protocol.

    :raises errors.ApiError: 400; 403, a WebSocket of another protocol.
    """
    if http.headers.get('Upgrade', '').lower() != 'websocket':
        raise errors.bad_request(
            'the sandbox has no SPDY: portforward needs a client that uses '
            'WebSockets')
    offered = [name.strip() for header in http.headers.getall(
        'Sec-WebSocket-Protocol', ()) for name in header.split(',')]
    if offered and PROTOCOL not in offered:
        raise errors.ApiError(
            403, 'Forbidden', 'requested protocol(s) are not supported: '
            f'{offered}; supports [{PROTOCOL}]')


class _Forward:
    """A connection to a port.

    :param channel: the number of its data channel; the next is that of errors.
    """

    def __init__(self, address: str, port: int, channel: int,
                 socket: websocket.WebSocket):
        self._where = (address, port)
        self.channel = channel
        self._socket = socket
        #: Takes what the client sends; None at its end.
        self.input: asyncio.Queue[bytes | None] = asyncio.Queue(1)
        self._ended = False

    async def take(self, data: bytes | None) -> None:
        """Take data of the client, and wait while the pod reads slower."""
        if not self._ended:
            await self.input.put(data)

    async def run(self) -> None:
        """Forward until the pod or the client closes the connection.

        :raises ConnectionError: the client is gone.
        """
        port = struct.pack('<H', self._where[1])
        await self._send(0, port)
        await self._send(1, port)
        try:
            reader, writer = await asyncio.open_connection(*self._where)
            try:
                await self._copy(reader, writer)
            finally:
                writer.close()
        except OSError as exc:
            text = f'error forwarding port {self._where[1]} to pod: {exc}'
            await self._send(1, text.encode())
        finally:
            self._ended = True
            while not self.input.empty():
                self.input.get_nowait()  # a client that waits in take()

    async def _send(self, offset: int, data: bytes) -> None:
        await self._socket.send_bytes(
            bytes([self.channel + offset]) + data)

    async def _copy(self, reader: asyncio.StreamReader,
                    writer: asyncio.StreamWriter) -> None:
        """Copy in both directions; one may last a second longer."""
        async def to_client() -> None:
            while data := await reader.read(_CHUNK):
                await self._send(0, data)

        async def to_pod() -> None:
            while (data := await self.input.get()) is not None:
                writer.write(data)
                await writer.drain()

        tasks = [asyncio.create_task(copy()) for copy in (to_client, to_pod)]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait(tasks, timeout=_LINGER)
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _receive(socket: websocket.WebSocket,
                   forwards: list[_Forward]) -> None:
    data = {forward.channel: forward for forward in forwards}
    async for message in socket:
        if message and message[0] in data:
            await data[message[0]].take(message[1:])
    for forward in forwards:
        await forward.take(None)
