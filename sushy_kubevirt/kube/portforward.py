# SPDX-License-Identifier: Apache-2.0
"""Connections to ports of pods through the API server.

Subprotocol ``v4.channel.k8s.io`` of ``pods/portforward``, as kubelet and the
container runtimes serve it (k8s.io/kubelet 1.36,
``pkg/cri/streaming/portforward/websocket.go``): the first byte of a message is
its channel, 0 for data and 1 for an error text. The first message of each
channel has the port, little endian. A WebSocket carries one connection.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import typing

from websockets import exceptions
from websockets.sync import client

from sushy_kubevirt.kube import api_responses
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import websocket

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import connection as connections

PROTOCOL = 'v4.channel.k8s.io'

_DATA, _ERROR = 0, 1

#: Bytes of a message that is sent: the API server and kubelet copy as many.
_CHUNK = 32 << 10

#: Bytes of the port in the first message of a channel.
_PORT_LENGTH = 2


class Connection:
    """A connection to a port of a pod.

    Threads copy between `socket` and the WebSocket until either is closed.

    :param tunnel: the WebSocket
    :ivar socket: a stream, which the caller closes
    :ivar error: why the node could not connect to the port; '' if it could
    """

    def __init__(self, tunnel: client.ClientConnection) -> None:
        self.socket, self._inner = socket.socketpair()
        self.error = ''
        self._tunnel = tunnel
        for copy in self._receive, self._send:
            threading.Thread(target=copy, daemon=True).start()

    def _receive(self) -> None:
        begun = set()
        with contextlib.suppress(exceptions.ConnectionClosed, OSError):
            for message in self._tunnel:
                channel, data = message[0], typing.cast(bytes, message[1:])
                if channel not in begun:
                    begun.add(channel)
                    data = data[_PORT_LENGTH:]
                if channel == _DATA:
                    self._inner.sendall(data)
                elif channel == _ERROR and data:
                    self.error += data.decode(errors='replace').strip()
                    break       # the node closes neither
        # Also ends a wait in `_send`.
        with contextlib.suppress(OSError):
            self._inner.shutdown(socket.SHUT_RDWR)

    def _send(self) -> None:
        with contextlib.suppress(exceptions.ConnectionClosed, OSError):
            while data := self._inner.recv(_CHUNK):
                self._tunnel.send(bytes([_DATA]) + data)
        self._tunnel.close()
        self._inner.close()


def connect(connection: connections.Connection, call: api_responses.ApiCall,
            user_agent: str, timeout: float) -> Connection:
    """Open a connection.

    :param call: its path has the port
    :param user_agent: sent with the request
    :param timeout: seconds
    :raises: `errors.MachineError`
    """
    access = connection.access()
    try:
        return Connection(client.connect(
            **websocket.arguments(access, call.path, PROTOCOL, user_agent,
                                  timeout), max_size=None))
    except exceptions.InvalidStatus as e:
        raise api_responses.error_from_response(
            e.response.status_code, bytes(e.response.body or b''),
            e.response.headers, call) from None
    except (exceptions.WebSocketException, OSError) as e:
        raise errors.Unavailable(
            f'The API server {access.server} does not answer ({call}): {e}'
        ) from None
    except ImportError as e:
        raise errors.ConfigError(
            f'The proxy of {access.server} cannot be used: {e}') from None
