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

from __future__ import annotations

import _thread
import asyncio
from collections import abc
import contextlib
import email.utils
import functools
import io
import logging
import operator
import socket
import time
import typing

import uvicorn
from uvicorn import server as uvicorn_server

from sushy_kubevirt.bmc import shares
from sushy_kubevirt.pod import fairness
from sushy_kubevirt.pod import http_connection
from sushy_kubevirt.pod import request_body
from sushy_kubevirt.redfish.protocol import authentication
from sushy_kubevirt.redfish.protocol import http_framing
from sushy_kubevirt.redfish.protocol import server_errors
from sushy_kubevirt.redfish.services import server_threads

if typing.TYPE_CHECKING:
    from wsgiref import types

    from sushy_kubevirt.kube import objects
    from sushy_kubevirt.pod import certificate
    from sushy_kubevirt.redfish.protocol import response_cache
    from sushy_kubevirt.redfish.protocol import websocket

LOG = logging.getLogger(__name__)

#: Maximum number of connections. One more closes another, see
#: `Server._make_room`.
MAX_CONNECTIONS = 64

#: Maximum bytes of a body that is read before the application is called. The
#: application rejects a longer one, or reads it while it arrives.
_MAX_BODY_BYTES = 2 ** 18

#: Seconds for a client to confirm the end of a TLS connection.
_TLS_END_SECONDS = 1

#: Seconds to complete running requests when the server stops.
GRACE_SECONDS = 8

#: Seconds to wait when the process has no file descriptor left.
_ACCEPT_PAUSE_SECONDS = 1

_BACKLOG = 128

# Key of the environ, see `redfish.protocol.websocket`, which is imported with
# the first WebSocket.
_UPGRADES = 'sushy_kubevirt.upgrades'


class _Answer(typing.NamedTuple):
    status: str
    headers: list[tuple[str, str]]
    body: bytes


class Server:
    """Serves a WSGI application.

    :param address: IP address to listen on
    :param port: TCP port; 0 for a free one, then stored in `port`
    :param certificate: None for plain HTTP
    :param max_connections: default: `MAX_CONNECTIONS`
    :param find: see `response_cache.ResponseCache.find`
    :param count: called for each response, with the URL rule of the route, the
        method, each None if there is none, and the status code
    :param fairness: if other servers of the process have other clients
    """

    # Set by `run`.
    _loop: asyncio.AbstractEventLoop

    # Set by `lines`.
    _lines: bytes

    def __init__(
            self, address: str, port: int, app: types.WSGIApplication,
            certificate: certificate.Certificate
            | certificate.CertificateInMemory | None = None,
            max_connections: int | None = None,
            find: abc.Callable[[bytes], response_cache.Response | None
                               ] = lambda digest: None,
            count: abc.Callable[[str | None, str | None, int], object
                                ] = lambda rule, method, code: None,
            fairness: fairness.Fairness | None = None) -> None:
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
        self.port: int = self.socket.getsockname()[1]
        self.find = find
        self.count = count
        self.fairness = fairness
        #: TCP port from which `redfish_probe` connects, whose connection does
        #: not count.
        self.probe_port: int | None = None
        self._app = app
        self._certificate = certificate
        self._max_connections = max_connections
        self._connections: set[http_connection.Connection] = set()
        self._accepting: set[asyncio.Task[typing.Any]] = set()
        self._requests = server_threads.Slots(
            max_connections or MAX_CONNECTIONS)
        self._running = self._stopping = False
        self._stopped, self._idle = asyncio.Event(), asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._date: int | None = None
        self.config = uvicorn.Config(
            self._respond, http=http_connection.Connection, ws='none',
            lifespan='off', interface='asgi3', log_config=None,
            access_log=False, proxy_headers=False)
        self.config.load()
        self.state = uvicorn_server.ServerState()

    @property
    def tls(self) -> bool:
        """Whether it serves HTTPS."""
        return self._certificate is not None

    @property
    def stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._stopping

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return len(self._connections)

    def stop(self) -> None:
        """Make `run` return; may be called in any thread or signal handler."""
        self._stopping = True
        if self._running:
            with contextlib.suppress(RuntimeError):     # the loop has ended
                self._loop.call_soon_threadsafe(self._stopped.set)

    async def run(self) -> None:
        """Serve until `stop`, then complete running requests."""
        self._loop = asyncio.get_running_loop()
        self._running = True
        if self._stopping:
            self._stopped.set()
        self._loop.add_reader(self.socket, self._accept)
        await self._stopped.wait()
        self._loop.remove_reader(self.socket)
        self.socket.close()
        await self._drain()

    def lines(self) -> bytes:
        """Return the headers of all responses, serialized."""
        now = int(time.time())
        if now != self._date:
            self._date = now
            headers = [('server', 'sushy-kubevirt'),
                       ('date', email.utils.formatdate(now, usegmt=True))]
            self._lines = http_framing.lines(headers)
            # uvicorn's.
            self.state.default_headers = [
                (name.encode(), value.encode()) for name, value in headers]
        return self._lines

    # Connections

    def _accept(self) -> None:
        try:
            sock, address = self.socket.accept()
        except (BlockingIOError, ConnectionError):
            return
        except OSError as exc:
            LOG.error('No connection can be accepted: %s', exc.strerror)
            self._loop.remove_reader(self.socket)
            self._loop.call_later(_ACCEPT_PAUSE_SECONDS, self._accept_again)
            return
        protocol = http_connection.Connection(self, sock, address)
        self._connections.add(protocol)
        if not self._make_room(protocol):
            self._connections.discard(protocol)
            sock.close()
            return
        if self.fairness is not None and self.tls:
            self._loop.remove_reader(self.socket)
            self._loop.call_later(fairness.ACCEPT_SECONDS, self._accept_again)
        sock.setblocking(False)
        options: dict[str, typing.Any] = {} if self._certificate is None else {
            'ssl': self._certificate.context(),
            'ssl_shutdown_timeout': _TLS_END_SECONDS}
        task = self._loop.create_task(self._loop.connect_accepted_socket(
            lambda: protocol, sock, **options))
        # The loop itself has only weak references to tasks.
        self._accepting.add(task)
        task.add_done_callback(functools.partial(self._connected, protocol))

    def _make_room(self, newcomer: http_connection.Connection) -> bool:
        """Close a connection if there are too many.

        Clients that are logged in have half of the connections, those that
        are not the other half; either may use what the other does not. Of
        the former, the account with most connections loses one, of the
        latter the network; of these first one that waits for its client: of
        an account's the one that waits longest, else the oldest, so that
        requests do not keep a connection alive, and a new one has time to
        log in.

        :returns: whether the newcomer may stay
        """
        most = self._max_connections or MAX_CONNECTIONS
        clients = [connection for connection in self._connections
                   if connection.local_port != self.probe_port]
        if len(clients) <= most:
            return True
        guests = [client for client in clients if not client.account]
        if len(guests) > most // 2:
            guests.sort(key=lambda guest: (not guest.client_turn,
                                           guest.opened))
            closed = shares.surplus(guests, newcomer, _network)
        else:
            known = [client for client in clients if client.account]
            known.sort(key=lambda client: (not client.client_turn,
                                           client.since))
            closed = shares.surplus(known, newcomer, _account, _network)
        if closed is not newcomer:
            self._connections.discard(closed)
            closed.abort()
        return closed is not newcomer

    def _accept_again(self) -> None:
        if not self._stopped.is_set():
            self._loop.add_reader(self.socket, self._accept)

    def _connected(self, protocol: http_connection.Connection,
                   task: asyncio.Task[typing.Any]) -> None:
        self._accepting.discard(task)
        if task.cancelled() or task.exception() is not None:
            # The TLS handshake has failed.
            self.forget(protocol)

    def forget(self, protocol: http_connection.Connection) -> None:
        """Remove a closed connection."""
        self._connections.discard(protocol)
        if not self._connections:
            self._idle.set()

    def watch(self, end: float) -> None:
        """Check all deadlines at a time, or before.

        :param end: `loop.time`
        """
        if self._timer is not None:
            if self._timer.when() <= end:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(end, self._abort_expired)

    def _abort_expired(self) -> None:
        self._timer = None
        now = self._loop.time()
        ends = []
        for connection in tuple(self._connections):
            if connection.end is not None:
                if connection.end <= now:
                    connection.end = None
                    connection.abort()
                else:
                    ends.append(connection.end)
        if ends:
            self.watch(min(ends))

    async def _drain(self) -> None:
        """Wait up to GRACE_SECONDS for running requests."""
        for connection in tuple(self._connections):
            if connection.serving is not None:
                connection.serving.cancel()
            elif connection.client_turn or connection.end is None:
                connection.abort()
            else:
                connection.shutdown()
        if self._connections:
            self._idle.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._idle.wait(), GRACE_SECONDS)
        if self._connections:
            LOG.warning('%d requests were not completed within %d s and are '
                        'dropped', len(self._connections), GRACE_SECONDS)
            for connection in tuple(self._connections):
                connection.abort()
        # Let the aborted connections report their end.
        await asyncio.sleep(0)
        if self._timer is not None:
            self._timer.cancel()

    # Requests that need the application

    async def _respond(self, scope: objects.Json,
                       receive: http_connection.Receive,
                       send: http_connection.Send) -> None:
        """Serve a request (ASGI)."""
        protocol: http_connection.Connection = scope[
            http_connection.CONNECTION]
        environ: types.WSGIEnvironment = scope[http_connection.ENVIRON]
        body, more = b'', True
        while more and max(len(body), _length(environ)) <= _MAX_BODY_BYTES:
            message = await receive()
            if message['type'] == 'http.disconnect':
                return
            body += message['body']
            more = message['more_body']
        rest = request_body.RequestBody(
            self._loop, protocol, receive, body, more,
            0 if self.fairness is None else fairness.PAUSE_SECONDS)
        environ['wsgi.input'] = rest if more else io.BytesIO(body)
        upgrades: list[websocket.Upgrade] = []
        environ[_UPGRADES] = upgrades
        protocol.wait_for_server(http_connection.ANSWER_SECONDS)
        owner = protocol.account or protocol.network
        slot = self._requests.take(owner)
        answer: _Answer | None
        if slot is None:
            answer = _refusal(
                environ, 'too many requests of this client are in progress')
            protocol.cycle.keep_alive = False
        else:
            answer = await self._answer(environ, protocol, send, owner, [slot])
        if answer is None:
            return      # or a stream, which was sent or has failed
        status, headers, body = answer
        if upgrades:
            await protocol.upgrade(environ, status, headers, upgrades[0])
            return
        protocol.record(environ, int(status[:3]))
        protocol.wait_for_client(http_connection.SEND_SECONDS)
        await send(_start(status, headers))
        if rest.more:
            await send({'type': 'http.response.body', 'body': body,
                        'more_body': True})
            try:
                await asyncio.wait_for(_discard(receive),
                                       http_connection.DRAIN_SECONDS)
            except asyncio.TimeoutError:
                protocol.cycle.keep_alive = False
            body = b''
        await send({'type': 'http.response.body', 'body': body})

    async def _answer(self, environ: types.WSGIEnvironment,
                      protocol: http_connection.Connection,
                      send: http_connection.Send, owner: str,
                      slots: list[contextlib.ExitStack]) -> _Answer | None:
        """Let a thread call the application.

        :param owner: to whose share the request belongs, see `shares`
        :param slots: list with its slot
        :returns: see `_call`
        """
        environ[authentication.IDENTIFY] = functools.partial(
            self._identify, protocol, slots)
        if self.fairness is not None:
            end = await self.fairness.turn(self._loop, owner)
        done: asyncio.Future[_Answer | None] = self._loop.create_future()
        # `threading.Thread.start` would wait until the thread runs: the loop,
        # and with it all other clients, for a fifth of the processor time of
        # a small response.
        try:
            _thread.start_new_thread(
                self._call, (environ, protocol, send, slots, done))
            return await done
        except RuntimeError as exc:
            # The limit of processes, or memory; `done` raises nothing.
            LOG.error('No thread for a request from %s: %s',
                      protocol.address, exc)
            slots.pop().close()
            return _refusal(environ, 'too many requests are in progress')
        except asyncio.CancelledError:
            return None         # the server has stopped
        finally:
            if self.fairness is not None:
                end()

    def _identify(self, protocol: http_connection.Connection,
                  slots: list[contextlib.ExitStack], account: str) -> bool:
        """Note whose connection and request it is.

        :param slots: list with the request's slot, which is replaced
        :param account: name of the account that has sent it
        :returns: whether the account has a slot left
        """
        protocol.account = account
        slots.pop().close()
        slot = self._requests.take(account)
        slots.append(slot or contextlib.ExitStack())
        return slot is not None

    def _call(self, environ: types.WSGIEnvironment,
              protocol: http_connection.Connection,
              send: http_connection.Send, slots: list[contextlib.ExitStack],
              done: asyncio.Future[_Answer | None]) -> None:
        """Call the application; runs in a thread of its own.

        :param slots: list with the slot of the request, released at its end
        :param done: gets None if an event stream was sent or has failed
        """
        heads: list[_Answer] = []

        def start_response(status: str, headers: list[tuple[str, str]],
                           exc_info: object = None) -> typing.Any:
            # Flask does not use the function that WSGI wants returned.
            heads[:] = [_Answer(status, headers, b'')]

        result: _Answer | None = None
        streams = False
        try:
            answer = self._app(environ, start_response)
            try:
                head = heads[0]
                streams = _streams(head.headers)
                if streams:
                    self._stream(environ, protocol, send, head, answer)
                else:
                    result = head._replace(body=b''.join(answer))
            finally:
                if hasattr(answer, 'close'):
                    answer.close()
        except Exception:
            if not protocol.lost:
                LOG.exception('Request from %s failed', protocol.address)
            if not streams:
                phrase, headers, body = server_errors.response_to(environ, 500)
                result = _Answer(f'500 {phrase}', list(headers.items()), body)
        slots.pop().close()

        def report() -> None:
            if not done.done():
                done.set_result(result)

        with contextlib.suppress(RuntimeError):     # the loop has ended
            self._loop.call_soon_threadsafe(report)

    def _stream(self, environ: types.WSGIEnvironment,
                protocol: http_connection.Connection,
                send: http_connection.Send, head: _Answer,
                chunks: abc.Iterable[bytes]) -> None:
        """Send a response piece by piece."""
        def wait(message: objects.Json) -> None:
            sending = send(message)
            try:
                asyncio.run_coroutine_threadsafe(
                    sending, self._loop).result()
            except RuntimeError:
                sending.close()     # the loop has ended
                raise

        protocol.wait_for_server(None)
        protocol.record(environ, int(head.status[:3]))
        wait(_start(head.status, head.headers))
        for chunk in chunks:
            if protocol.lost:
                return
            wait({'type': 'http.response.body', 'body': chunk,
                  'more_body': True})
        wait({'type': 'http.response.body'})


_account = operator.attrgetter('account')
_network = operator.attrgetter('network')


def _refusal(environ: types.WSGIEnvironment, why: str) -> _Answer:
    """Return the answer to one request too many."""
    phrase, headers, body = server_errors.response_to(environ, 503, why)
    headers['Retry-After'] = '1'
    return _Answer(f'503 {phrase}', list(headers.items()), body)


def _length(environ: types.WSGIEnvironment) -> int:
    """Return the declared length of a body; 0 if it is not known."""
    return int(environ.get('CONTENT_LENGTH') or 0)


def _streams(headers: abc.Iterable[tuple[str, str]]) -> bool:
    return any(name.lower() == 'content-type'
               and value.startswith('text/event-stream')
               for name, value in headers)


def _start(status: str,
           headers: abc.Iterable[tuple[str, str]]) -> objects.Json:
    """Make the ASGI message that starts a response."""
    return {'type': 'http.response.start', 'status': int(status[:3]),
            'headers': [(name.encode('latin-1'), value.encode('latin-1'))
                        for name, value in headers]}


async def _discard(receive: http_connection.Receive) -> None:
    """Read and discard the rest of a request."""
    while True:
        message = await receive()
        if message['type'] == 'http.disconnect' or not message['more_body']:
            return
