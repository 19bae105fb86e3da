# SPDX-License-Identifier: Apache-2.0
"""HTTP server of the Redfish of BMC pods: WSGI on uvicorn's protocol.

An event loop reads requests and writes responses, of all connections of all
servers of the process. A response that `find` knows is sent by the loop; for
other requests, the application is called in a thread, once the whole request
was received. So slow clients occupy no thread, and a slow request delays no
other. A long body, an uploaded image, is an exception: the application reads
it while it arrives.

Adds to uvicorn: deadlines for slow clients, limits on the number of
connections and on the size of requests, TLS certificates that are renewed
while it runs, and errors with Redfish's bodies. Between events the loop sleeps
without a timeout. Other servers are compared in
doc/source/reference/http-servers.rst.
"""

import asyncio
from asyncio import sslproto
import collections
from concurrent import futures
import contextlib
import email.utils
import functools
import http
import io
import logging
import re
import socket
import sys
import threading
import time
import types
from urllib import parse

import httptools
import uvicorn
from uvicorn.protocols.http import httptools_impl
from uvicorn import server as uvicorn_server

from sushy_kubevirt.redfish.protocol import server_errors

LOG = logging.getLogger(__name__)

#: Maximum number of connections. One more closes the one whose client has
#: made the server wait longest.
MAX_CONNECTIONS = 64

#: Seconds for a client to send a request: TLS handshake, header, body.
REQUEST_SECONDS = 20

#: Seconds for the application to respond. Inserting a medium may wait for ten
#: minutes.
ANSWER_SECONDS = 900

#: Seconds for the application to respond to a longer body, which it reads
#: while it arrives. CDI may process an image for an hour, see
#: `machine.media.upload_stream`.
_LONG_ANSWER_SECONDS = 3600 + ANSWER_SECONDS

#: Seconds for a client to receive a response, unless it is an event stream,
#: and to send the next request.
SEND_SECONDS = 60

#: Maximum bytes of a body that is read before the application is called. The
#: application rejects a longer one, or reads it while it arrives.
_MAX_BODY_BYTES = 2 ** 18

#: Seconds for a client to send a piece of a longer body.
_PIECE_SECONDS = 60

#: Maximum bytes of all lines of a request: its header, and the lines around
#: chunks; and maximum number of header lines.
_MAX_LINE_BYTES, _MAX_HEADERS = 2 ** 15, 100

#: Seconds to wait for the rest of a refused request. To close the connection
#: before it was read could discard the response as well (TCP RST).
_DRAIN_SECONDS = 1

#: Seconds for a client to confirm the end of a TLS connection.
_TLS_END_SECONDS = 1

#: Seconds to complete running requests when the server stops.
GRACE_SECONDS = 8

#: Seconds to wait when the process has no file descriptor left.
_ACCEPT_PAUSE_SECONDS = 1

_BACKLOG = 128

#: Limits of a server beside which others of the process are served, see
#: `Fairness`.
_SHARE_SECONDS, _PAUSE_SECONDS = 0.0005, 0.001
_ACCEPT_SECONDS, _TURN_SECONDS = 0.004, 0.05

#: User-Agent of `redfish_probe`, whose requests are not logged.
PROBE_USER_AGENT = 'sushy-kubevirt-probe'

#: asyncio allocates a buffer of this size for each TLS connection, by default
#: 256 KiB. A TLS record has 16 KiB.
sslproto.SSLProtocol.max_size = 2 ** 15

#: A request line, with a method of any name (RFC 9110, section 5.6.2).
_REQUEST_LINE = re.compile(rb"[\w!#$%&'*+.^`|~-]+ \S+ HTTP/1\.[01]\r\n")

# Keys of the scope (ASGI).
_PROTOCOL, _ENVIRON = 'sushy_kubevirt.protocol', 'sushy_kubevirt.environ'

# Key of the environ, see `redfish.protocol.websocket`, which is imported with
# the first WebSocket.
_UPGRADES = 'sushy_kubevirt.upgrades'

# In place of uvicorn's cycle of a request that needs none.
_ANSWERED = types.SimpleNamespace(response_complete=True,
                                  message_event=threading.Event())


class _Refused(Exception):
    """The request is answered with an error.

    :param code: HTTP status code
    """

    def __init__(self, code):
        super().__init__(http.HTTPStatus(code).phrase)
        self.code = code


class Fairness:
    """Keeps the clients of one BMC from occupying a process of many.

    Its requests take about `_SHARE_SECONDS` of an iteration of the event
    loop; the rest waits for `_PAUSE_SECONDS`. A server accepts a connection
    every `_ACCEPT_SECONDS`, because of the handshake. One thread calls the
    application; another may begin when that has ended, or after
    `_TURN_SECONDS`, as it then probably waits for the Kubernetes API.
    """

    def __init__(self):
        self._used = 0.0
        self._scheduled = False
        self._backlog = collections.deque()
        self._calls = collections.deque()
        self._calling = None

    # Requests in the event loop

    def receive(self, protocol, data):
        """Let a connection process data, now or in a later iteration.

        :param protocol: `_Protocol`
        :param data: bytes
        """
        if self._backlog or self._used >= _SHARE_SECONDS:
            self._backlog.append((protocol, data))
            protocol.transport.pause_reading()
        else:
            self._process(protocol, data)
        if not self._scheduled:
            self._scheduled = True
            protocol.loop.call_soon(self._begin_iteration, protocol.loop)

    def _process(self, protocol, data):
        began = time.perf_counter()
        try:
            protocol.process(data)
        except Exception:
            # The requests of others, which wait behind this one, continue.
            LOG.exception('Connection from %s is closed', protocol.address)
            protocol.abort()
        self._used += time.perf_counter() - began

    def _begin_iteration(self, loop):
        self._used = 0.0
        while self._backlog and self._used < _SHARE_SECONDS:
            protocol, data = self._backlog.popleft()
            self._process(protocol, data)
            if not protocol.lost and not protocol.flow.read_paused:
                protocol.transport.resume_reading()
        self._scheduled = self._used > 0
        if self._backlog:
            # Also leaves time to threads that call applications.
            loop.call_later(_PAUSE_SECONDS, self._begin_iteration, loop)
        elif self._scheduled:
            loop.call_soon(self._begin_iteration, loop)

    # Calls of the application

    async def turn(self, loop):
        """Wait until a thread may call the application.

        :returns: function without parameters, to be called at its end
        """
        while self._calling is not None:
            waiting = loop.create_future()
            self._calls.append(waiting)
            await waiting
        token = self._calling = object()
        end = functools.partial(self._end_turn, token)
        loop.call_later(_TURN_SECONDS, end)
        return end

    def _end_turn(self, token):
        if self._calling is not token:
            return
        self._calling = None
        while self._calls:
            waiting = self._calls.popleft()
            if not waiting.done():
                waiting.set_result(None)
                break


class Server:
    """Serves a WSGI application.

    :param address: IP address to listen on
    :param port: TCP port; 0 for a free one, then stored in `port`
    :param app: WSGI application
    :param certificate: a `certificate.Certificate`; None for plain HTTP
    :param max_connections: default: `MAX_CONNECTIONS`
    :param find: function of the WSGI environ that returns a
        `response_cache.Response`, or None to call the application; must not
        block
    :param fairness: `Fairness`, if other servers of the process have other
        clients
    """

    def __init__(self, address, port, app, certificate=None,
                 max_connections=None, find=lambda environ: None,
                 fairness=None):
        self.socket = socket.socket(
            socket.AF_INET6 if ':' in address else socket.AF_INET)
        try:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # Connections inherit it. asyncio sets it only for sockets that
            # name their protocol; without it the body of a response waits
            # for the client's delayed acknowledgement of the header, 40 ms.
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.socket.bind((address, port))
            self.socket.listen(_BACKLOG)
        except OSError:
            self.socket.close()
            raise
        self.socket.setblocking(False)
        self.port = self.socket.getsockname()[1]
        self.find = find
        self.fairness = fairness
        self._app = app
        self._certificate = certificate
        self._max_connections = max_connections
        self._connections = set()
        self._stopping = False
        self._loop = self._stopped = self._idle = None
        self._timer = None
        self._date = None
        self.config = uvicorn.Config(
            self._respond, http=_Protocol, ws='none', lifespan='off',
            interface='asgi3', log_config=None, access_log=False,
            proxy_headers=False)
        self.config.load()
        self.state = uvicorn_server.ServerState()

    @property
    def tls(self):
        """Whether it serves HTTPS."""
        return self._certificate is not None

    @property
    def stopping(self):
        """Whether `stop` was called."""
        return self._stopping

    @property
    def connections(self):
        """Number of open connections."""
        return len(self._connections)

    def stop(self):
        """Make `run` return; may be called in any thread or signal handler."""
        self._stopping = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):     # the loop has ended
                self._loop.call_soon_threadsafe(self._stopped.set)

    async def run(self):
        """Serve until `stop`, then complete running requests."""
        self._stopped, self._idle = asyncio.Event(), asyncio.Event()
        self._loop = asyncio.get_running_loop()
        if self._stopping:
            self._stopped.set()
        self._loop.add_reader(self.socket, self._accept)
        await self._stopped.wait()
        self._loop.remove_reader(self.socket)
        self.socket.close()
        await self._drain()

    def headers(self):
        """Return the headers of all responses.

        :returns: list of (name, value), bytes
        """
        now = int(time.time())
        if now != self._date:
            self._date = now
            self.state.default_headers = [
                (b'server', b'sushy-kubevirt'),
                (b'date', email.utils.formatdate(now, usegmt=True).encode())]
        return self.state.default_headers

    # Connections

    def _accept(self):
        try:
            sock, address = self.socket.accept()
        except (BlockingIOError, ConnectionError):
            return
        except OSError as exc:
            LOG.error('No connection can be accepted: %s', exc.strerror)
            self._loop.remove_reader(self.socket)
            self._loop.call_later(_ACCEPT_PAUSE_SECONDS, self._accept_again)
            return
        if len(self._connections) >= (
                self._max_connections or MAX_CONNECTIONS):
            waiting = [one for one in self._connections if one.client_turn]
            if not waiting:
                sock.close()
                return
            # Those that have sent no request yet come first.
            slowest = min(waiting, key=lambda one: (one.served, one.since))
            self._connections.discard(slowest)
            slowest.abort()
        if self.fairness is not None and self.tls:
            self._loop.remove_reader(self.socket)
            self._loop.call_later(_ACCEPT_SECONDS, self._accept_again)
        sock.setblocking(False)
        protocol = _Protocol(self, sock, address)
        self._connections.add(protocol)
        options = {} if self._certificate is None else {
            'ssl': self._certificate.context(),
            'ssl_shutdown_timeout': _TLS_END_SECONDS}
        task = self._loop.create_task(self._loop.connect_accepted_socket(
            lambda: protocol, sock, **options))
        # The loop itself has only weak references to tasks.
        self.state.tasks.add(task)
        task.add_done_callback(functools.partial(self._connected, protocol))

    def _accept_again(self):
        if not self._stopped.is_set():
            self._loop.add_reader(self.socket, self._accept)

    def _connected(self, protocol, task):
        self.state.tasks.discard(task)
        if task.cancelled() or task.exception() is not None:
            # The TLS handshake has failed.
            self.forget(protocol)

    def forget(self, protocol):
        """Remove a closed connection."""
        self._connections.discard(protocol)
        if not self._connections:
            self._idle.set()

    def watch(self, end):
        """Check all deadlines at a time, or before.

        :param end: `loop.time`
        """
        if self._timer is not None:
            if self._timer.when() <= end:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(end, self._abort_expired)

    def _abort_expired(self):
        self._timer = None
        now = self._loop.time()
        ends = []
        for one in tuple(self._connections):
            if one.end is not None:
                if one.end <= now:
                    one.end = None
                    one.abort()
                else:
                    ends.append(one.end)
        if ends:
            self.watch(min(ends))

    async def _drain(self):
        """Wait up to GRACE_SECONDS for running requests."""
        for one in tuple(self._connections):
            if one.serving is not None:
                one.serving.cancel()
            elif one.client_turn or one.end is None:
                one.abort()
            else:
                one.shutdown()
        if self._connections:
            self._idle.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._idle.wait(), GRACE_SECONDS)
        if self._connections:
            LOG.warning('%d requests were not completed within %d s and are '
                        'dropped', len(self._connections), GRACE_SECONDS)
            for one in tuple(self._connections):
                one.abort()
        # Let the aborted connections report their end.
        await asyncio.sleep(0)
        if self._timer is not None:
            self._timer.cancel()

    # Requests that need the application

    async def _respond(self, scope, receive, send):
        """Serve a request (ASGI)."""
        protocol, environ = scope[_PROTOCOL], scope[_ENVIRON]
        body, more = b'', True
        while more and max(len(body), _length(environ)) <= _MAX_BODY_BYTES:
            message = await receive()
            if message['type'] == 'http.disconnect':
                return
            body += message['body']
            more = message['more_body']
        rest = _Body(self._loop, protocol, receive, body, more,
                     0 if self.fairness is None else _PAUSE_SECONDS)
        environ['wsgi.input'] = rest if more else io.BytesIO(body)
        upgrades = environ[_UPGRADES] = []
        protocol.wait_for_server(ANSWER_SECONDS)
        if self.fairness is not None:
            end = await self.fairness.turn(self._loop)
        done = self._loop.create_future()
        threading.Thread(
            target=self._call, args=(environ, protocol, send, done),
            daemon=True, name='request').start()
        try:
            answer = await done
        except asyncio.CancelledError:
            answer = None       # the server has stopped
        finally:
            if self.fairness is not None:
                end()
        if answer is None:
            return      # or a stream, which was sent
        status, headers, body = answer
        protocol.log(environ, int(status[:3]))
        if upgrades:
            await protocol.upgrade(status, headers, upgrades[0])
            return
        protocol.wait_for_client(SEND_SECONDS)
        await send(_start(status, headers))
        if rest.more:
            await send({'type': 'http.response.body', 'body': body,
                        'more_body': True})
            try:
                await asyncio.wait_for(_discard(receive), _DRAIN_SECONDS)
            except asyncio.TimeoutError:
                protocol.cycle.keep_alive = False
            body = b''
        await send({'type': 'http.response.body', 'body': body})

    def _call(self, environ, protocol, send, done):
        """Call the application; runs in a thread of its own.

        :param done: future that gets (status line, headers, body), or None if
            an event stream was sent
        """
        head = []

        def start_response(status, headers, exc_info=None):
            head[:] = status, headers

        try:
            answer = self._app(environ, start_response)
            try:
                if _streams(head[1]):
                    self._stream(environ, protocol, send, head, answer)
                    result = None
                else:
                    result = *head, b''.join(answer)
            finally:
                if hasattr(answer, 'close'):
                    answer.close()
        except Exception:
            if not protocol.lost:
                LOG.exception('Request from %s failed', protocol.address)
            phrase, headers, body = server_errors.response(500)
            result = f'500 {phrase}', list(headers.items()), body
        with contextlib.suppress(RuntimeError):     # the loop has ended
            self._loop.call_soon_threadsafe(
                lambda: done.done() or done.set_result(result))

    def _stream(self, environ, protocol, send, head, chunks):
        """Send a response piece by piece.

        :param head: (status line, headers)
        """
        def wait(message):
            sending = send(message)
            try:
                asyncio.run_coroutine_threadsafe(
                    sending, self._loop).result()
            except RuntimeError:
                sending.close()     # the loop has ended
                raise

        protocol.wait_for_server(None)
        protocol.log(environ, int(head[0][:3]))
        wait(_start(*head))
        for chunk in chunks:
            if protocol.lost:
                return
            wait({'type': 'http.response.body', 'body': chunk,
                  'more_body': True})
        wait({'type': 'http.response.body'})


class _Body(io.RawIOBase):
    """A body that the application reads while it arrives.

    uvicorn stops reading from the client while enough was not read here.

    :param loop: event loop of the server
    :param protocol: `_Protocol`
    :param receive: function of ASGI that gets a piece
    :param piece: what was received
    :param more: whether more follows
    :param pause: seconds between pieces, for other clients of the process
    """

    def __init__(self, loop, protocol, receive, piece, more, pause):
        super().__init__()
        self.more = more
        self._loop = loop
        self._protocol = protocol
        self._receive_message = receive
        self._piece = memoryview(piece)
        self._pause = pause

    def readable(self):
        return True

    def readinto(self, buffer):
        """Read what there is, at least a byte unless the body has ended.

        :raises: ConnectionError
        """
        while len(buffer) and not self._piece and self.more:
            receiving = self._receive()
            try:
                self._piece = memoryview(asyncio.run_coroutine_threadsafe(
                    receiving, self._loop).result())
            except (RuntimeError, futures.CancelledError):
                receiving.close()
                raise ConnectionAbortedError('the server stops') from None
        size = min(len(buffer), len(self._piece))
        buffer[:size] = self._piece[:size]
        self._piece = self._piece[size:]
        return size

    async def _receive(self):
        protocol = self._protocol
        # The application accepts the request: other connections make way.
        protocol.served = True
        protocol.wait_for_client(_PIECE_SECONDS)
        message = await self._receive_message()
        protocol.wait_for_server(_LONG_ANSWER_SECONDS)
        if message['type'] == 'http.disconnect':
            raise ConnectionResetError('the client has disconnected')
        self.more = message['more_body']
        if self._pause:
            await asyncio.sleep(self._pause)
        return message['body']


def run(*servers):
    """Serve until all servers were stopped."""
    async def serve():
        await asyncio.gather(*(one.run() for one in servers))

    asyncio.run(serve())


class _Protocol(httptools_impl.HttpToolsProtocol):
    """A connection.

    :param server: the `Server`
    :param sock: its socket, for `abort` during the TLS handshake
    :param address: of the client, as from `socket.accept`
    :ivar client_turn: whether the client, not the server, must act next
    :ivar since: when that began, `loop.time`
    :ivar end: when to disconnect; None for a stream
    :ivar served: whether a request was answered
    :ivar lost: whether the connection was closed
    :ivar serving: task that serves it as a WebSocket, or None
    """

    def __init__(self, server, sock, address):
        loop = asyncio.get_running_loop()
        super().__init__(server.config, server.state, {}, loop)
        self._server = server
        self._sock = sock
        self.address = address[0]
        self._peer = address
        self.served = self.lost = False
        self._receiving = True
        self._refused = False
        self._lines = 0
        self._completed = False
        self.serving = self._websocket = None
        # What follows a request with the header Upgrade.
        self._behind = None
        self.wait_for_client(REQUEST_SECONDS)

    # Deadlines

    def wait_for_client(self, seconds):
        """Start to wait for the client.

        :param seconds: time limit
        """
        self.client_turn = True
        self._wait(seconds)

    def wait_for_server(self, seconds):
        """Start to wait for the application.

        :param seconds: time limit; None for an event stream
        """
        self.client_turn = False
        self._wait(seconds)

    def _wait(self, seconds):
        self.since = self.loop.time()
        self.end = None if seconds is None else self.since + seconds
        if self.end is not None:
            self._server.watch(self.end)

    def abort(self):
        """Close the connection at once."""
        if self.transport is not None:
            self.transport.abort()
        else:
            # The TLS handshake ends when it reads the end of the stream.
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)

    # asyncio.Protocol

    def connection_made(self, transport):
        super().connection_made(transport)
        if self._server.tls:
            self.scheme = 'https'

    def connection_lost(self, exc):
        self.lost = True
        super().connection_lost(exc)
        self._server.forget(self)
        if self._websocket is not None:
            self._websocket.connection_lost(exc)

    def eof_received(self):
        if self._websocket is not None:
            self._websocket.eof_received()

    def pause_writing(self):
        super().pause_writing()
        if self._websocket is not None:
            self._websocket.pause_writing()

    def resume_writing(self):
        super().resume_writing()
        if self._websocket is not None:
            self._websocket.resume_writing()

    def data_received(self, data):
        if self._server.fairness is None:
            self.process(data)
        else:
            self._server.fairness.receive(self, data)

    def process(self, data):
        """Process what was received.

        :param data: bytes
        """
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

    async def upgrade(self, status, headers, upgrade):
        """Serve the connection as a WebSocket until it is closed.

        :param status: status line of the response
        :param headers: list of (name, value)
        :param upgrade: `websocket.Upgrade`
        """
        if self.lost or self._server.stopping:
            self.abort()
            return
        self.wait_for_server(None)
        self.transport.write(_head(status, self._server.headers(), headers))
        self._websocket = upgrade.connect(
            0 if self._server.fairness is None else _PAUSE_SECONDS)
        self._websocket.connection_made(_Transport(self.transport, self.flow))
        self._websocket.data_received(self._behind)
        self.serving = self.loop.create_task(upgrade.run(self._websocket))
        await asyncio.wait([self.serving])

    def _check_lines(self):
        if self._lines > _MAX_LINE_BYTES or len(
                self.headers or ()) > _MAX_HEADERS:
            raise _Refused(414 if len(self.url) > _MAX_LINE_BYTES // 2
                           else 431)

    def _refuse(self, code):
        """Answer an invalid request and close the connection."""
        LOG.info('%s: refused with status %d', self.address, code)
        self._refused = True
        if self.cycle is not None and not self.cycle.response_complete:
            if self.cycle.more_body:
                self.abort()
            else:
                # Behind a request, which is answered first.
                self.cycle.keep_alive = False
            return
        phrase, headers, body = server_errors.response(code)
        self.transport.write(_head(
            f'{code} {phrase}', self._server.headers(), headers.items())
            + body)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.wait_for_client(_DRAIN_SECONDS)

    # Callbacks of the parser

    def on_message_begin(self):
        super().on_message_begin()
        self._lines = 0

    def on_headers_complete(self):
        version = self.parser.get_http_version()
        if version not in ('1.0', '1.1'):
            raise _Refused(400 if version < '1' else 505)
        self._lines = len(self.url) + sum(
            len(name) + len(value) + 4 for name, value in self.headers)
        self._check_lines()
        self._lines = 0
        environ = self._environ(version)
        # Not while the client leaves responses unread: the application's
        # wait until they are sent, and no further request is read.
        if not self.flow.write_paused and not self.pipeline and (
                self.cycle is None or self.cycle.response_complete):
            found = self._server.find(environ)
            if found is not None:
                self._answer(environ, found, version)
                return
        self._server.headers()      # sets the date
        self.scope[_PROTOCOL], self.scope[_ENVIRON] = self, environ
        super().on_headers_complete()

    def on_body(self, body):
        self._lines -= len(body)
        super().on_body(body)

    def on_message_complete(self):
        self._receiving = False
        self._completed = True
        super().on_message_complete()

    def on_response_complete(self):
        super().on_response_complete()
        self._unset_keepalive_if_required()
        self._wait_for_request()

    def _wait_for_request(self):
        self.served = True
        if not self.pipeline:
            self.wait_for_client(SEND_SECONDS)

    def _answer(self, environ, found, version):
        """Send a cached response."""
        keep_alive = (version == '1.1' and self.parser.should_keep_alive()
                      # The parser reads nothing after such a request.
                      and not self.parser.should_upgrade())
        self.log(environ, int(found.status[:3]))
        self.transport.write(_head(
            found.status, self._server.headers(), found.headers,
            b'' if keep_alive else b'connection: close\r\n') + found.body)
        self.cycle = _ANSWERED
        if not keep_alive:
            self.transport.close()
        self._wait_for_request()

    def log(self, environ, code):
        """Log a request, unless it is a successful probe."""
        if code == 200 and environ.get('HTTP_USER_AGENT') == PROBE_USER_AGENT:
            return
        LOG.info('%s "%s %s %s" %d', self.address, environ['REQUEST_METHOD'],
                 environ['REQUEST_URI'], environ['SERVER_PROTOCOL'], code)

    def _environ(self, version):
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
        environ = {
            'REQUEST_METHOD': self.parser.get_method().decode(),
            'SCRIPT_NAME': '',
            'PATH_INFO': path.decode('latin-1'),
            'QUERY_STRING': (url.query or b'').decode('latin-1'),
            'REQUEST_URI': target,
            'RAW_URI': target,
            'SERVER_PROTOCOL': f'HTTP/{version}',
            'SERVER_NAME': self.server[0],
            'SERVER_PORT': str(self.server[1]),
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
            value = value.decode('latin-1')
            before = environ.get(key)
            environ[key] = value if before is None else f'{before},{value}'
        return environ


class _Transport:
    """The transport of a WebSocket, whose pauses `Fairness` knows.

    :param transport: `asyncio.Transport`
    :param flow: uvicorn's ``FlowControl`` of it
    """

    def __init__(self, transport, flow):
        self._transport = transport
        self.pause_reading = flow.pause_reading
        self.resume_reading = flow.resume_reading

    def __getattr__(self, name):
        return getattr(self._transport, name)


@functools.lru_cache(maxsize=256)
def _key(name):
    """Return the environ key of a header.

    :returns: str; None for a name that could be taken for another
    """
    if b'_' in name:
        return None
    key = name.decode('latin-1').upper().replace('-', '_')
    return key if key in ('CONTENT_TYPE', 'CONTENT_LENGTH') else 'HTTP_' + key


def _length(environ):
    """Return the declared length of a body; 0 if it is not known."""
    return int(environ.get('CONTENT_LENGTH') or 0)


def _streams(headers):
    return any(name.lower() == 'content-type'
               and value.startswith('text/event-stream')
               for name, value in headers)


def _head(status, *parts):
    """Serialize status line and headers.

    :param parts: lists of (name, value), bytes or str; or bytes
    """
    lines = [b'HTTP/1.1 ', status.encode(), b'\r\n']
    for part in parts:
        if isinstance(part, bytes):
            lines.append(part)
            continue
        for name, value in part:
            if isinstance(name, str):
                name, value = name.encode('latin-1'), value.encode('latin-1')
            lines += [name, b': ', value, b'\r\n']
    lines.append(b'\r\n')
    return b''.join(lines)


def _start(status, headers):
    """Make the ASGI message that starts a response."""
    return {'type': 'http.response.start', 'status': int(status[:3]),
            'headers': [(name.encode('latin-1'), value.encode('latin-1'))
                        for name, value in headers]}


async def _discard(receive):
    """Read and discard the rest of a request."""
    while True:
        message = await receive()
        if message['type'] == 'http.disconnect' or not message['more_body']:
            return
