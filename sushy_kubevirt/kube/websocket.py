# SPDX-License-Identifier: Apache-2.0
"""WebSocket connections to the Kubernetes API, for asyncio.

KubeVirt serves the consoles of a VMI as WebSockets, which urllib3 does not
support. Of the libraries that do, ``websockets`` (17.4) fits an event loop
and reads no faster than its caller; it costs 0.6 MiB (PSS) from the first
connection on. ``wsproto`` costs 0.5 MiB and leaves sockets, proxies and flow
control to its caller, ``websocket-client`` 0.2 MiB and a thread for each
connection. `client` imports this module with the first connection.
"""

from __future__ import annotations

import asyncio
import ssl
import typing

# First, as in `redfish.protocol.websocket`: threads that enter the library's
# circular imports at different modules could wait for each other, for which
# CPython raises an error.
from websockets import exceptions
from websockets.asyncio import client  # noqa: H306
from websockets import typing as types

from sushy_kubevirt.kube import api_responses
from sushy_kubevirt.kube import connection as connections
from sushy_kubevirt.kube import errors


#: Seconds between pings, which keep an idle connection open in proxies and
#: load balancers. A missing pong does not end the connection: pongs wait
#: behind data that has not been read. TCP detects a dead peer
#: (`connection.SOCKET_OPTIONS`).
PING_SECONDS = 20

#: Number of messages that are read ahead, and bytes that may wait to be sent
#: before ``send`` waits. A message of KubeVirt has at most 32 KiB (io.Copy).
MESSAGES_AHEAD = 2
WRITE_LIMIT = 4096

#: Seconds for the closing handshake. Without a response to the close frame
#: the connection is cut.
CLOSE_SECONDS = 0.5


async def connect(connection: connections.Connection,
                  call: api_responses.ApiCall, protocol: str,
                  user_agent: str, timeout: float) -> WebSocket:
    """Open a WebSocket.

    :param connection: its credentials are renewed once if the server refuses
        them
    :param protocol: name of the subprotocol
    :param user_agent: sent with the request
    :param timeout: seconds for an attempt
    :raises: `errors.MachineError`
    """
    # Reading and renewing credentials may block.
    access = await asyncio.to_thread(connection.access)
    while True:
        try:
            socket = await _connect(access, call.path, protocol, user_agent,
                                    timeout)
            await _set_options(socket)
            return WebSocket(socket, call)
        except exceptions.InvalidStatus as e:
            response = e.response
            if response.status_code == 401:
                fresh = await asyncio.to_thread(connection.renew, access)
                if fresh is not access:
                    access = fresh
                    continue
            raise api_responses.error_from_response(
                response.status_code, bytes(response.body or b''),
                response.headers, call) from None
        except (exceptions.WebSocketException, OSError) as e:
            if isinstance(e, ssl.SSLError):
                # A certificate may have been replaced: reload it for the
                # next attempt.
                await asyncio.to_thread(connection.renew, access)
            raise errors.Unavailable(
                f'The API server {access.server} does not answer ({call}): '
                f'{e}') from None
        except ImportError as e:
            raise errors.ConfigError(
                f'The proxy of {access.server} cannot be used: {e}') from None


class WebSocket:
    """An open connection.

    :param call: for messages
    """

    def __init__(self, socket: client.ClientConnection,
                 call: api_responses.ApiCall) -> None:
        self._socket = socket
        self._call = call

    async def receive(self) -> bytes | None:
        """Wait for the next message.

        While this is not called, the server is slowed down by TCP.

        :returns: None after the server has ended the connection, with or
            without a close frame
        :raises: `errors.ConnectionLost`
        """
        try:
            return await self._socket.recv(decode=False)
        except exceptions.ConnectionClosed as e:
            if isinstance(e.__cause__, OSError):
                raise errors.ConnectionLost(
                    f'{self._call}: connection lost: {e.__cause__}') from None
            return None

    async def send(self, data: bytes) -> None:
        """Send a binary message; wait while too much is to be sent.

        :raises: `errors.ConnectionLost`
        """
        try:
            await self._socket.send(data)
        except exceptions.ConnectionClosed as e:
            raise errors.ConnectionLost(
                f'{self._call}: connection lost: {e}') from None

    async def close(self) -> None:
        """Close the connection, within `CLOSE_SECONDS`."""
        await self._socket.close()


async def _set_options(socket: client.ClientConnection) -> None:
    """Set `connection.SOCKET_OPTIONS`.

    :raises: OSError if the connection is lost already; the socket is closed
    """
    tcp = socket.transport.get_extra_info('socket')
    try:
        if tcp is None:
            raise ConnectionResetError('connection lost')
        for option in connections.SOCKET_OPTIONS:
            tcp.setsockopt(*option)
    except OSError:
        await socket.close()
        raise


async def _connect(access: connections.Access, path: str, protocol: str,
                   user_agent: str, timeout: float
                   ) -> client.ClientConnection:
    options: dict[str, typing.Any] = {}
    if access.server.startswith('https:'):
        # Reading the system's CA certificates takes a while.
        options['ssl'] = await asyncio.to_thread(access.ssl_context)
        if access.tls_server_name:
            options['server_hostname'] = access.tls_server_name
    return await client.connect(
        access.server.replace('http', 'ws', 1) + path,
        subprotocols=[types.Subprotocol(protocol)],
        additional_headers=access.headers,
        user_agent_header=user_agent, proxy=access.proxy, compression=None,
        open_timeout=timeout, ping_interval=PING_SECONDS, ping_timeout=None,
        close_timeout=CLOSE_SECONDS, max_queue=MESSAGES_AHEAD,
        write_limit=WRITE_LIMIT, **options)
