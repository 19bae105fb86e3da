# SPDX-License-Identifier: Apache-2.0
"""Connections to ports of pods through the API server.

Subprotocol ``v4.channel.k8s.io`` of ``pods/portforward``, as kubelet and the
container runtimes serve it (k8s.io/kubelet 1.36,
``pkg/cri/streaming/portforward/websocket.go``): the first byte of a message is
its channel, 0 for data and 1 for an error text. The first message of each
channel has the port, little endian. A WebSocket carries one connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import threading
import typing

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import websocket

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import api_responses
    from sushy_kubevirt.kube import connection as connections

PROTOCOL = 'v4.channel.k8s.io'

_DATA, _ERROR = 0, 1

#: Bytes of a message that is sent: the API server and kubelet copy as many.
_CHUNK = 32 << 10

#: Bytes of the port in the first message of a channel.
_PORT_LENGTH = 2


class Connection:
    """A connection to a port of a pod.

    :ivar socket: a stream, which the caller closes
    :ivar error: why the node could not connect to the port; '' if it could
    """

    def __init__(self) -> None:
        self.socket, self._inner = socket.socketpair()
        self._inner.setblocking(False)
        self.error = ''

    async def copy(self, tunnel: websocket.WebSocket) -> None:
        """Copy between `socket` and a WebSocket until either is closed."""
        sending = asyncio.create_task(self._send(tunnel))
        with contextlib.suppress(errors.ConnectionLost):
            await self._receive(tunnel)
        # The sender ends after what is left to read.
        with contextlib.suppress(OSError):
            self._inner.shutdown(socket.SHUT_RDWR)
        await tunnel.close()
        await sending
        self._inner.close()

    async def _receive(self, tunnel: websocket.WebSocket) -> None:
        begun = set()
        while message := await tunnel.receive():    # none is empty
            channel, data = message[0], message[1:]
            if channel not in begun:
                begun.add(channel)
                data = data[_PORT_LENGTH:]
            if channel == _DATA:
                # The caller may have closed, while what it sent is on its way.
                with contextlib.suppress(OSError):
                    await asyncio.get_running_loop().sock_sendall(
                        self._inner, data)
            elif channel == _ERROR and data:
                self.error = data.decode(errors='replace').strip()
                return      # the node closes neither

    async def _send(self, tunnel: websocket.WebSocket) -> None:
        receive = asyncio.get_running_loop().sock_recv
        with contextlib.suppress(errors.ConnectionLost, OSError):
            while data := await receive(self._inner, _CHUNK):
                await tunnel.send(bytes([_DATA]) + data)
        await tunnel.close()


def connect(connection: connections.Connection, call: api_responses.ApiCall,
            user_agent: str, timeout: float) -> Connection:
    """Open a connection.

    :param call: its path has the port
    :param user_agent: sent with the request
    :param timeout: seconds
    :raises: `errors.MachineError`
    """
    tunnel = asyncio.run_coroutine_threadsafe(websocket.connect(
        connection, call, PROTOCOL, user_agent, timeout), _loop()).result()
    opened = Connection()
    asyncio.run_coroutine_threadsafe(opened.copy(tunnel), _loop())
    return opened


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    """Return an event loop, in a thread that ends with the process.

    Reading and writing TLS in two threads is unsafe before CPython 3.13
    (gh-124984).
    """
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return loop
