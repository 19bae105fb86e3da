# SPDX-License-Identifier: Apache-2.0
"""WebSockets as responses of views (DSP0266, "WebSocket inbound access").

A view returns an `Upgrade`. A server that knows `UPGRADES`, that of the pods,
takes it from there and runs it in its event loop. Others let the thread of the
request serve the connection, on the socket that Werkzeug and gunicorn have in
the environ. Imported with the first connection, because of ``websockets``.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
import typing

import flask
from websockets.asyncio import connection
from websockets import datastructures
from websockets import exceptions
from websockets import http11
from websockets import protocol
from websockets import server

from sushy_kubevirt.redfish.protocol import authentication
from sushy_kubevirt.redfish.protocol import error_responses
from sushy_kubevirt.redfish.services import server_threads

if typing.TYPE_CHECKING:
    from collections import abc
    from wsgiref import types

#: Environ key of a list. A server that has it serves what is appended.
UPGRADES = 'sushy_kubevirt.upgrades'

#: The subprotocol that is selected if the client offers it.
SUBPROTOCOL = 'binary'

#: Longest message of a client, in bytes; number of messages read ahead; bytes
#: that wait to be sent before ``send`` waits.
MAX_MESSAGE_BYTES = 2 ** 17
MESSAGES_AHEAD = 2
WRITE_LIMIT = 2 ** 15

#: Seconds between pings, and for the pong. Pongs wait behind data that the
#: client has not read.
PING_SECONDS, PONG_SECONDS = 20, 60

#: Seconds for the closing handshake, before the connection is cut.
CLOSE_SECONDS = 1.0

#: Maximum length of the reason in a close frame, in bytes (RFC 6455, 5.5).
_MAX_REASON_BYTES = 123

# A TLS record has at most 16 KiB: one read leaves none of it in OpenSSL, where
# the event loop would not see it.
_CHUNK = 2 ** 15


class WebSocket(connection.Connection):
    """An open connection, for `asyncio`; a protocol of its transports.

    :param pause: seconds to wait after each message sent
    """

    def __init__(self, pause: float = 0) -> None:
        super().__init__(
            server.ServerProtocol(state=protocol.OPEN,
                                  max_size=MAX_MESSAGE_BYTES),
            ping_interval=PING_SECONDS, ping_timeout=PONG_SECONDS,
            close_timeout=CLOSE_SECONDS, max_queue=MESSAGES_AHEAD,
            write_limit=WRITE_LIMIT)
        self._pause = pause

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.start_keepalive()

    async def receive(self) -> bytes | None:
        """Wait for the next message of the client.

        While this is not called, the client is slowed down by TCP.

        :returns: also for a text message bytes; None at the end
        """
        try:
            return await self.recv(decode=False)
        except exceptions.ConnectionClosed:
            return None

    async def send(self, message: typing.Any,
                   text: bool | None = None) -> None:
        """Send a message; wait while the client does not read.

        :raises: ConnectionError after the end
        """
        try:
            await super().send(message, text=text)
        except exceptions.ConnectionClosed as exc:
            raise ConnectionResetError(str(exc)) from None
        if self._pause:
            await asyncio.sleep(self._pause)

    async def end(self, code: int, reason: str) -> None:
        """Close the connection, within twice `CLOSE_SECONDS`.

        :param code: of the close frame (RFC 6455, 7.4)
        :param reason: of it; a sentence for the user
        """
        text = reason.encode()[:_MAX_REASON_BYTES].decode(errors='ignore')
        with contextlib.suppress(TimeoutError):
            # If the client does not read, the close frame cannot be sent.
            async with asyncio.timeout(2 * CLOSE_SECONDS):
                await self.close(code, text)
        self.transport.abort()
        await self.wait_closed()


class Upgrade(flask.Response):
    """The response that accepts a WebSocket.

    :param run: serves a `WebSocket` and closes it
    :raises: `error_responses.RedfishError` if the request's handshake is not
        valid (400), or this server cannot serve WebSockets (501)
    """

    def __init__(self, run: abc.Callable[
            [WebSocket], abc.Coroutine[typing.Any, typing.Any, None]]) -> None:
        self.run = run
        environ = flask.request.environ
        if UPGRADES not in environ and _socket(environ) is None:
            raise error_responses.general_error(
                501, 'This HTTP server does not support WebSockets.',
                'Use sushy-kubevirt-redfish, the command sushy-emulator, or '
                'gunicorn with its worker class gthread and several threads.')
        super().__init__(status=101, headers=_accept(flask.request))
        del self.headers['Content-Type']

    @staticmethod
    def connect(pause: float = 0) -> WebSocket:
        """Make the `WebSocket` for `run`.

        :param pause: seconds to wait after each message sent
        """
        return WebSocket(pause)

    def __call__(self, environ: types.WSGIEnvironment,
                 start_response: types.StartResponse) -> abc.Iterable[bytes]:
        """Serve the connection, or let the server do it (WSGI)."""
        headers = self.get_wsgi_headers(environ)
        if UPGRADES in environ:
            environ[UPGRADES].append(self)
            start_response(self.status, headers.to_wsgi_list())
            return ()
        head = ''.join([f'HTTP/1.1 {self.status}\r\n', *(
            f'{name}: {value}\r\n' for name, value in headers), '\r\n'])
        sock = _socket(environ)
        assert sock is not None, '__init__ has checked it'
        asyncio.run(self._serve(sock, head.encode('latin-1')))
        # Both servers close a connection without another response or a line
        # in the log if they believe that the client has closed it.
        raise BrokenPipeError(errno.EPIPE, 'The WebSocket is closed')

    async def _serve(self, sock: socket.socket, head: bytes) -> None:
        client = self.connect()
        transport = _Transport(sock, client)
        transport.write(head)
        await self.run(client)


def _socket(environ: types.WSGIEnvironment) -> socket.socket | None:
    """Return the socket of the thread that serves a request."""
    if not server_threads.several(environ):
        return None
    sock = environ.get('gunicorn.socket') or environ.get('werkzeug.socket')
    # Not gevent's or eventlet's, which must not be used with asyncio.
    return sock if type(sock).__module__ in ('socket', 'ssl') else None


def _accept(request: flask.Request) -> dict[str, str]:
    """Check a handshake.

    :returns: headers of the response
    :raises: `error_responses.RedfishError`, mostly 400
    """
    # Without the subprotocols, one of which is a secret that would be repeated
    # in an error.
    response = server.ServerProtocol().accept(http11.Request(
        request.path, datastructures.Headers([
            (name, value) for name, value in request.headers
            if name.lower() != 'sec-websocket-protocol']),
        request.method, request.environ['SERVER_PROTOCOL']))
    if response.status_code != 101:
        raise error_responses.general_error(
            response.status_code, response.body.decode().strip())
    del response.headers['Date']
    headers = dict(response.headers)
    if SUBPROTOCOL in authentication.subprotocols(request.environ):
        headers['Sec-WebSocket-Protocol'] = SUBPROTOCOL
    return headers


class _Transport(asyncio.Transport):
    """A transport on a connected socket, also one with TLS.

    asyncio's own does not accept an `ssl.SSLSocket`.
    """

    def __init__(self, sock: socket.socket, user: asyncio.Protocol) -> None:
        super().__init__({'socket': sock})
        self._sock = sock
        self._protocol = user
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray()
        self._high = self._low = WRITE_LIMIT
        self._waiting = self._closing = self._lost = False
        sock.setblocking(False)
        user.connection_made(self)
        self.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None,
                                low: int | None = None) -> None:
        self._high = WRITE_LIMIT if high is None else high
        self._low = self._high // 4 if low is None else low

    def can_write_eof(self) -> bool:
        return False

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        self._loop.remove_reader(self._sock)

    def resume_reading(self) -> None:
        if not self._closing:
            self._loop.add_reader(self._sock, self._read)

    def _read(self) -> None:
        try:
            data = self._sock.recv(_CHUNK)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except OSError as exc:
            self._lose(exc)
            return
        if data:
            self._protocol.data_received(data)
        else:
            self._protocol.eof_received()
            self._lose(None)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing:
            return
        self._buffer += data
        self._send()
        if len(self._buffer) > self._high and not self._waiting:
            self._waiting = True
            self._protocol.pause_writing()

    def _send(self) -> None:
        try:
            while self._buffer:
                del self._buffer[:self._sock.send(self._buffer)]
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            self._loop.add_writer(self._sock, self._send)
        except OSError as exc:
            self._lose(exc)
            return
        else:
            self._loop.remove_writer(self._sock)
            if self._closing:
                self._lose(None)
                return
        if self._waiting and len(self._buffer) <= self._low:
            self._waiting = False
            self._protocol.resume_writing()

    def close(self) -> None:
        """Close the connection after what is buffered was sent."""
        if not self._closing:
            self.pause_reading()
            self._closing = True
            self._send()

    def abort(self) -> None:
        """Close the connection at once."""
        self._lose(None)

    def _lose(self, exc: Exception | None) -> None:
        if self._lost:
            return
        self._lost = self._closing = True
        self._loop.remove_reader(self._sock)
        self._loop.remove_writer(self._sock)
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        # As the thread expects it.
        self._sock.setblocking(True)
        self._loop.call_soon(self._protocol.connection_lost, exc)
