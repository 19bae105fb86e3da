# SPDX-License-Identifier: Apache-2.0
"""Connections of `http_server`: uvicorn's protocol, with deadlines.

A response that `Server.find` knows is sent at once, without parsing the
request; other requests go to the application by ASGI.
"""

from __future__ import annotations

import asyncio
from asyncio import sslproto
from collections import abc
import contextlib
import functools
import http
import logging
import re
import socket
import sys
import typing
from urllib import parse

import httptools
from uvicorn.protocols.http import httptools_impl

from sushy_kubevirt.bmc import shares
from sushy_kubevirt.pod import fairness
from sushy_kubevirt.redfish.protocol import http_framing
from sushy_kubevirt.redfish.protocol import response_cache
from sushy_kubevirt.redfish.protocol import routing
from sushy_kubevirt.redfish.protocol import server_errors

if typing.TYPE_CHECKING:
    from wsgiref import types as wsgi

    import uvicorn
    from uvicorn.protocols.http import flow_control
    from uvicorn import server as uvicorn_server

    from sushy_kubevirt.kube import objects
    from sushy_kubevirt.redfish.protocol import websocket

LOG = logging.getLogger(__name__)

#: Seconds for a client to send a request: TLS handshake, header, body.
REQUEST_SECONDS = 20

#: Seconds for the application to respond. Inserting a medium may wait for ten
#: minutes.
ANSWER_SECONDS = 900

#: Seconds for a client to receive a response, unless it is an event stream,
#: and to send the next request.
SEND_SECONDS = 60

#: Maximum bytes of all lines of a request: its header, and the lines around
#: chunks; and maximum number of header lines.
_MAX_LINE_BYTES, _MAX_HEADERS = 2 ** 15, 100

#: Seconds to wait for the rest of a refused request. To close the connection
#: before it was read could discard the response as well (TCP RST).
DRAIN_SECONDS = 1

#: User-Agent of `redfish_probe`, whose requests are not logged.
PROBE_USER_AGENT = 'sushy-kubevirt-probe'

#: asyncio allocates a buffer of this size for each TLS connection, by default
#: 256 KiB. A TLS record has 16 KiB.
sslproto.SSLProtocol.max_size = 2 ** 15

#: End of a request without a body.
_END = b'\r\n\r\n'

#: A request line, with a method of any name (RFC 9110, section 5.6.2).
_REQUEST_LINE = re.compile(rb"[\w!#$%&'*+.^`|~-]+ \S+ HTTP/1\.[01]\r\n")

# Keys of the scope (ASGI).
CONNECTION, ENVIRON = 'sushy_kubevirt.protocol', 'sushy_kubevirt.environ'

#: Functions of ASGI by which an application receives and sends messages.
Receive: typing.TypeAlias = 'abc.Callable[[], abc.Awaitable[objects.Json]]'
Send: typing.TypeAlias = (
    'abc.Callable[[objects.Json], abc.Coroutine[None, None, None]]')


class _Refused(Exception):
    """The request is answered with an error.

    :param code: HTTP status code
    """

    def __init__(self, code: int) -> None:
        super().__init__(http.HTTPStatus(code).phrase)
        self.code = code


class Server(typing.Protocol):
    """What a connection uses of its `http_server.Server`."""

    config: uvicorn.Config
    state: uvicorn_server.ServerState
    fairness: fairness.Fairness | None
    find: abc.Callable[[bytes], response_cache.Response | None]
    count: abc.Callable[[str | None, str | None, int], object]

    @property
    def tls(self) -> bool:
        """Whether it serves HTTPS."""

    @property
    def stopping(self) -> bool:
        """Whether it was told to stop."""

    def lines(self) -> bytes:
        """Return the headers of all responses, serialized."""

    def watch(self, end: float) -> None:
        """Check all deadlines at a time, or before."""

    def forget(self, protocol: Connection) -> None:
        """Remove a closed connection."""


class Connection(httptools_impl.HttpToolsProtocol):
    """A connection.

    :param sock: its socket, for `abort` during the TLS handshake
    :param address: of the client, as from `socket.accept`
    :ivar client_turn: whether the client, not the server, must act next
    :ivar since: when that began, `loop.time`
    :ivar end: when to disconnect; None for a stream
    :ivar opened: when it was accepted, `loop.time`
    :ivar local_port: TCP port of a client in this pod; 0 for others
    :ivar network: network of the client, see `shares.network`
    :ivar account: name of the account that has sent a request last, or ''
    :ivar lost: whether the connection was closed
    :ivar serving: task that serves it as a WebSocket, or None
    """

    def __init__(self, server: Server, sock: socket.socket,
                 address: tuple[typing.Any, ...]) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(server.config, server.state, {}, loop)
        self._server = server
        self._sock = sock
        self.address: str = address[0]
        self._peer = address
        self.local_port = (
            address[1] if address[0] == sock.getsockname()[0] else 0)
        self.network = shares.network(self.address)
        self.account = ''
        self.opened = loop.time()
        self.lost = False
        self._receiving = True
        self._refused = False
        self._lines = 0
        self._completed = False
        # Whether the parser is within a request.
        self._parsing = False
        # See `response_cache.digest`; None for what may be no whole request.
        self._digest: bytes | None = None
        self.serving: asyncio.Task[None] | None = None
        self._websocket: websocket.WebSocket | None = None
        # What follows a request with the header Upgrade.
        self._behind: bytes | None = None
        self.wait_for_client(REQUEST_SECONDS)

    # Deadlines

    def wait_for_client(self, seconds: float) -> None:
        """Start to wait for the client.

        :param seconds: time limit
        """
        self.client_turn = True
        self._wait(seconds)

    def wait_for_server(self, seconds: float | None) -> None:
        """Start to wait for the application.

        :param seconds: time limit; None for an event stream
        """
        self.client_turn = False
        self._wait(seconds)

    def _wait(self, seconds: float | None) -> None:
        self.since = self.loop.time()
        self.end = None if seconds is None else self.since + seconds
        if self.end is not None:
            self._server.watch(self.end)

    def abort(self) -> None:
        """Close the connection at once."""
        if self.lost:
            # uvicorn has closed the transport of TLS, maybe again, and CPython
            # 3.11.8 to 3.12 fails to abort it then.
            return
        if self.transport is not None:
            self.transport.abort()
        else:
            # The TLS handshake ends when it reads the end of the stream.
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)

    # asyncio.Protocol

    def connection_made(  # type: ignore[override]  # as uvicorn's
            self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        if self._server.tls:
            self.scheme = 'https'

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        super().connection_lost(exc)
        self._server.forget(self)
        if self._websocket is not None:
            self._websocket.connection_lost(exc)

    def eof_received(self) -> None:
        if self._websocket is not None:
            self._websocket.eof_received()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._websocket is not None:
            self._websocket.pause_writing()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._websocket is not None:
            self._websocket.resume_writing()

    def data_received(self, data: bytes) -> None:
        if self._server.fairness is None:
            self.process(data)
        else:
            self._server.fairness.receive(self, data)

    def process(self, data: bytes) -> None:
        """Process what was received."""
        if self._refused or self.lost:
            return
        if self._websocket is not None:
            self._websocket.data_received(data)
            return
        if self._behind is not None:
            self._behind += data
            if len(self._behind) > _MAX_LINE_BYTES:
                self.abort()
            return
        if self._answer(data):
            return
        if not self._receiving and self.client_turn:
            # The first bytes of the next request.
            self._receiving = True
            self.wait_for_client(REQUEST_SECONDS)
        self._completed = False
        try:
            self.parser.feed_data(data)
            if not self._completed:
                self._lines += len(data)
                self._check_lines()
        except httptools.HttpParserUpgrade as exc:
            # Unless `upgrade` follows, answered as if the header was not
            # there.
            if self.cycle is not None:
                self.cycle.keep_alive = False
                self._behind = data[exc.args[0]:]
        except httptools.HttpParserCallbackError as exc:
            if not isinstance(exc.__context__, _Refused):
                raise
            self._refuse(exc.__context__.code)
        except httptools.HttpParserInvalidMethodError:
            # The parser knows the registered methods only.
            self._refuse(501 if _REQUEST_LINE.match(data) else 400)
        except httptools.HttpParserError as exc:
            self._refuse(413 if 'overflow' in str(exc) else 400)
        except _Refused as exc:
            self._refuse(exc.code)

    async def upgrade(self, environ: wsgi.WSGIEnvironment, status: str,
                      headers: list[tuple[str, str]],
                      upgrade: websocket.Upgrade) -> None:
        """Serve the connection as a WebSocket until it is closed.

        :param status: status line of the response
        """
        if self.lost or self._server.stopping:
            self.abort()
            return
        self.wait_for_server(None)
        code = int(status[:3])
        self.record(environ, code)
        self.transport.write(self._head(code, http_framing.lines(headers)))
        client = self._websocket = upgrade.connect(
            0 if self._server.fairness is None else fairness.PAUSE_SECONDS)
        client.connection_made(typing.cast(asyncio.Transport, _Transport(
            self.transport, self.flow, self.abort)))
        client.data_received(self._behind or b'')
        self.serving = self.loop.create_task(upgrade.run(client))
        await asyncio.wait([self.serving])

    def _check_lines(self) -> None:
        if self._lines > _MAX_LINE_BYTES or len(
                self.headers or ()) > _MAX_HEADERS:
            raise _Refused(414 if len(self.url) > _MAX_LINE_BYTES // 2
                           else 431)

    def _refuse(self, code: int) -> None:
        """Answer an invalid request and close the connection."""
        LOG.info('%s: refused with status %d', self.address, code)
        self._refused = True
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            if not cycle.more_body:
                # Behind a request, which is answered first.
                cycle.keep_alive = False
                return
            if self.pipeline or cycle.response_started:
                self.abort()
                return
            # Ends the application, if it was called already.
            cycle.disconnected = True
            cycle.message_event.set()
        host = dict(self.headers or ()).get(b'host')
        self._server.count(None, None, code)
        _, headers, body = server_errors.response(
            code, scheme=self.scheme or 'http',
            host=None if host is None else host.decode('latin-1'))
        self.transport.write(self._head(
            code, http_framing.lines(headers.items())) + body)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.wait_for_client(DRAIN_SECONDS)

    def _head(self, code: int, lines: bytes) -> bytes:
        """Return status line and headers of a response, as uvicorn's.

        :param code: HTTP status code
        :param lines: its own headers, serialized
        """
        return b''.join((httptools_impl.STATUS_LINE[code],
                         self._server.lines(), lines, b'\r\n'))

    # Callbacks of the parser

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._parsing = True
        self._lines = 0

    def on_headers_complete(self) -> None:
        version = self.parser.get_http_version()
        if version not in ('1.0', '1.1'):
            raise _Refused(400 if version < '1' else 505)
        self._lines = len(self.url) + sum(
            len(name) + len(value) + 4 for name, value in self.headers)
        self._check_lines()
        self._lines = 0
        environ = self._environ(version)
        code = http_framing.check(environ)
        if code is not None:
            raise _Refused(code)
        if (self._digest is not None and version == '1.1'
                and self.parser.should_keep_alive()
                # The parser reads nothing after such a request.
                and not self.parser.should_upgrade()
                # uvicorn sends an interim response first.
                and not self.expect_100_continue):
            environ[response_cache.DIGEST] = self._digest
        self._server.lines()        # sets the date
        scope = typing.cast(dict[str, typing.Any], self.scope)
        scope[CONNECTION], scope[ENVIRON] = self, environ
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._lines -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._check_lines()     # with the trailers
        self._receiving = self._parsing = False
        self._completed = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._unset_keepalive_if_required()
        if not self.pipeline:
            self.wait_for_client(SEND_SECONDS)

    def _answer(self, data: bytes) -> bool:
        """Send the cached response to a request, if there is one.

        Only to a request without others before, behind or beside it. Not while
        the client leaves responses unread: the application's wait until they
        are sent, and no further request is read.

        :param data: what was received
        :returns: whether a response was sent
        """
        self._digest = None
        if (self._parsing or data.find(_END) != len(data) - len(_END)
                or self.flow.write_paused
                # The last request, so there is none in the pipeline either.
                or self.cycle is not None
                and not self.cycle.response_complete):
            return False
        self._digest = response_cache.digest(self.scheme or '', data)
        response = self._server.find(self._digest)
        if response is None:
            return False
        if response.conditions.account is not None:
            self.account = response.conditions.account.name
        code = int(response.status[:3])
        self._server.count(response.rule, response.environ['REQUEST_METHOD'],
                           code)
        self.transport.write(
            self._head(code, response.lines) + response.body)
        # Written while the client reads the response.
        self.log(response.environ, code)
        self._receiving = False
        self.wait_for_client(SEND_SECONDS)
        return True

    def record(self, environ: wsgi.WSGIEnvironment, code: int) -> None:
        """Log a response of the application, and count it if it is sent.

        It is not if the connection was closed, or the rest of the request was
        refused.
        """
        self.log(environ, code)
        if not self.cycle.disconnected:
            self._server.count(environ.get(routing.RULE),
                               environ['REQUEST_METHOD'], code)

    def log(self, environ: wsgi.WSGIEnvironment, code: int) -> None:
        """Log a request, unless it is a successful probe."""
        if code == 200 and environ.get('HTTP_USER_AGENT') == PROBE_USER_AGENT:
            return
        LOG.info('%s "%s %s %s" %d', self.address, environ['REQUEST_METHOD'],
                 environ['REQUEST_URI'], environ['SERVER_PROTOCOL'], code)

    def _environ(self, version: str) -> wsgi.WSGIEnvironment:
        """Make the WSGI environ of a request, without its body."""
        try:
            url = httptools.parse_url(self.url)
        except httptools.HttpParserInvalidURLError:
            raise _Refused(400) from None
        if url.path is None:
            raise _Refused(400)
        path = url.path if b'%' not in url.path else parse.unquote_to_bytes(
            url.path)
        target = self.url.decode('latin-1')
        host, port = self.server or ('', None)
        environ: wsgi.WSGIEnvironment = {
            'REQUEST_METHOD': self.parser.get_method().decode(),
            'SCRIPT_NAME': '',
            'PATH_INFO': path.decode('latin-1'),
            'QUERY_STRING': (url.query or b'').decode('latin-1'),
            'REQUEST_URI': target,
            'RAW_URI': target,
            'SERVER_PROTOCOL': f'HTTP/{version}',
            'SERVER_NAME': host,
            'SERVER_PORT': str(port),
            'REMOTE_ADDR': self.address,
            'REMOTE_PORT': str(self._peer[1]),
            'wsgi.version': (1, 0),
            'wsgi.url_scheme': self.scheme,
            'wsgi.errors': sys.stderr,
            'wsgi.input_terminated': True,
            'wsgi.multithread': True,
            'wsgi.multiprocess': False,
            'wsgi.run_once': False,
            'sushy_kubevirt.socket': self._sock,
        }
        for name, value in self.headers:
            key = _key(name)
            if key is None:
                continue
            text = value.decode('latin-1')
            before = environ.get(key)
            environ[key] = text if before is None else f'{before},{text}'
        return environ


class _Transport:
    """The transport of a WebSocket, whose pauses `Fairness` knows.

    :param abort: `Connection.abort`
    """

    def __init__(self, transport: asyncio.Transport,
                 flow: flow_control.FlowControl,
                 abort: abc.Callable[[], None]) -> None:
        self._transport = transport
        self.pause_reading = flow.pause_reading
        self.resume_reading = flow.resume_reading
        self.abort = abort

    def __getattr__(self, name: str) -> typing.Any:
        return getattr(self._transport, name)


@functools.lru_cache(maxsize=256)
def _key(name: bytes) -> str | None:
    """Return the environ key of a header.

    :returns: None for a name that could be taken for another
    """
    if b'_' in name:
        return None
    key = name.decode('latin-1').upper().replace('-', '_')
    return key if key in ('CONTENT_TYPE', 'CONTENT_LENGTH') else 'HTTP_' + key
