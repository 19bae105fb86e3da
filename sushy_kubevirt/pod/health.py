# SPDX-License-Identifier: Apache-2.0
"""HTTP server for ``/livez``, ``/readyz`` and ``/metrics``.

One thread serves all connections; slow and surplus clients are disconnected.
There is no authentication, and responses contain no secrets. It is
independent of the server that it reports on.

Not `http.server`: its import adds 0.4 MiB PSS and 4 ms to a process with IPMI
only (CPython 3.11.7), it has a timeout only for single reads, and needs a
thread for each connection.
"""

from __future__ import annotations

import asyncio
from collections import abc
from concurrent import futures
import contextlib
import logging
import selectors
import socket
import threading
import time
import typing

from sushy_kubevirt.bmc import shares

LOG = logging.getLogger(__name__)

#: Maximum number of connections. One more closes the oldest of the network
#: that has most.
MAX_CONNECTIONS = 32

#: Seconds for a connection from accept to the end of the response.
TIMEOUT_SECONDS = 5

#: Seconds that an event loop has to answer a liveness probe.
LOOP_SECONDS = 3

_LONGEST = 8192

_TEXT = 'text/plain; charset=utf-8'

#: Of Prometheus' text format.
_METRICS = 'text/plain; version=0.0.4; charset=utf-8'

_REASONS = {200: 'OK', 400: 'Bad Request', 404: 'Not Found',
            405: 'Method Not Allowed', 500: 'Internal Server Error',
            503: 'Service Unavailable'}


class _Page(typing.NamedTuple):
    code: int
    body: str | bytes
    kind: str                   # content type


class _Client:
    """State of a connection: received request, remaining response."""

    def __init__(self, network: str) -> None:
        self.network = network
        self.request = b''
        self.answer: memoryview | None = None
        self.end = time.monotonic() + TIMEOUT_SECONDS


_Clients: typing.TypeAlias = dict[socket.socket, _Client]


class Server:
    """Serves ``/livez``, ``/readyz`` and ``/metrics``.

    The functions run in the server's thread and must return soon (probes time
    out after 5 s). An exception is answered with status 500.

    :param address: IPv4 or IPv6 address to listen on
    :param port: TCP port; 0 for a free one, then stored in `port`
    :param live: function that returns why the process is not alive; '' if it
        is
    :param ready: function that returns why it is not ready; '' or None if it
        is
    :param metrics: function that returns the metrics
    """

    # Set by `start`.
    _listener: socket.socket
    _selector: selectors.BaseSelector
    _wake: socket.socket

    def __init__(self, address: str, port: int,
                 live: abc.Callable[[], str],
                 ready: abc.Callable[[], str | None],
                 metrics: abc.Callable[[], bytes]) -> None:
        self.address = address
        self.port = port
        self._pages: dict[str, abc.Callable[[], _Page]] = {
            '/livez': lambda: self._probe_page('/livez', live),
            '/readyz': lambda: self._probe_page('/readyz', ready),
            '/metrics': lambda: _Page(200, metrics(), _METRICS)}
        self._problems: dict[str, str] = {}
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Bind the port and start the thread.

        :raises: OSError whose text contains the address and the port
        """
        try:
            self._listener = socket.create_server(
                (self.address, self.port), backlog=MAX_CONNECTIONS,
                family=socket.AF_INET6 if ':' in self.address
                else socket.AF_INET)
        except OSError as exc:
            raise OSError(
                exc.errno, f'TCP port {self.port} on {self.address}: '
                f'{exc.strerror}') from None
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]
        ours, self._wake = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(ours, selectors.EVENT_READ)
        self._thread = threading.Thread(
            target=self._run, args=(ours,), name='health', daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Base URL."""
        host = f'[{self.address}]' if ':' in self.address else self.address
        return f'http://{host}:{self.port}'

    def close(self) -> None:
        """Close the port and all connections; idempotent."""
        if self._thread is None:
            return
        self._wake.close()
        self._thread.join()
        self._thread = None

    def _run(self, wake: socket.socket) -> None:
        # Ordered by age, as all have the same timeout.
        clients: _Clients = {}
        with contextlib.closing(self._selector) as selector, \
                contextlib.closing(self._listener), contextlib.closing(wake):
            while True:
                for key, _events in selector.select(_next_timeout(clients)):
                    sock = key.fileobj
                    if sock is wake:
                        _close(selector, clients, list(clients))
                        return
                    if sock is self._listener:
                        self._accept(selector, clients)
                    elif isinstance(sock, socket.socket) and sock in clients:
                        self._serve(selector, clients, sock)
                now = time.monotonic()
                _close(selector, clients, [
                    sock for sock, client in clients.items()
                    if client.end <= now])

    def _accept(self, selector: selectors.BaseSelector,
                clients: _Clients) -> None:
        try:
            sock, address = self._listener.accept()
        except OSError:
            return      # closed by the client, or no file descriptor left
        sock.setblocking(False)
        clients[sock] = _Client(shares.network(address[0]))
        selector.register(sock, selectors.EVENT_READ)
        if len(clients) > MAX_CONNECTIONS:
            _close(selector, clients, [shares.surplus(
                clients, sock, lambda client: clients[client].network)])
        # The request has usually arrived by now.
        self._serve(selector, clients, sock)

    def _serve(self, selector: selectors.BaseSelector, clients: _Clients,
               sock: socket.socket) -> None:
        client = clients[sock]
        try:
            if client.answer is None:
                read = sock.recv(_LONGEST)
                client.request += read
                whole = b'\r\n\r\n' in client.request
                if not whole and len(client.request) <= _LONGEST:
                    if not read:
                        _close(selector, clients, [sock])
                    return
                client.answer = memoryview(self._answer(
                    client.request if whole else b''))
                selector.modify(sock, selectors.EVENT_WRITE)
            client.answer = client.answer[sock.send(client.answer):]
        except BlockingIOError:
            return
        except OSError:
            _close(selector, clients, [sock])
            return
        if not client.answer:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_WR)
            _close(selector, clients, [sock])

    def _answer(self, request: bytes) -> bytes:
        words = request.partition(b'\r\n')[0].decode('latin-1').split(' ')
        if len(words) != 3:
            return _response(400, 'Not an HTTP request.\n')
        method, target, _version = words
        target = target.partition('?')[0]
        page = self._pages.get(target)
        if page is None:
            return _response(404, f"Supported: {', '.join(self._pages)}.\n")
        if method not in ('GET', 'HEAD'):
            return _response(405, 'Method not allowed; use GET or HEAD.\n')
        try:
            code, text, kind = page()
        except Exception:
            LOG.exception('%s: unexpected error', target)
            code, kind = 500, _TEXT
            text = 'Unexpected error; see the log.\n'
        return _response(code, text, kind, method == 'HEAD')

    def _probe_page(self, path: str,
                    function: abc.Callable[[], str | None]) -> _Page:
        problem = function() or ''
        # The kubelet does not report the body of the response.
        if problem != self._problems.get(path, ''):
            self._problems[path] = problem
            if problem:
                LOG.warning('%s fails: %s', path, problem)
            else:
                LOG.info('%s succeeds again', path)
        if problem:
            return _Page(503, problem + '\n', _TEXT)
        return _Page(200, 'ok\n', _TEXT)


def first(problems: abc.Iterable[str]) -> str:
    """Return the first problem, '' if there is none."""
    return next(filter(None, problems), '')


def loop_problem(loop: asyncio.AbstractEventLoop) -> str:
    """Return that an event loop does not respond, '' if it does.

    Called in another thread.
    """
    try:
        asyncio.run_coroutine_threadsafe(
            asyncio.sleep(0), loop).result(LOOP_SECONDS)
    except futures.TimeoutError:
        return f'The event loop has not answered for {LOOP_SECONDS} s'
    return ''


def _next_timeout(clients: _Clients) -> float | None:
    """Seconds until the oldest connection times out; None without any."""
    for client in clients.values():
        return max(0, client.end - time.monotonic())
    return None


def _close(selector: selectors.BaseSelector, clients: _Clients,
           socks: abc.Iterable[socket.socket]) -> None:
    for sock in socks:
        del clients[sock]
        selector.unregister(sock)
        sock.close()


def _response(code: int, body: str | bytes, kind: str = _TEXT,
              head: bool = False) -> bytes:
    if isinstance(body, str):
        body = body.encode()
    return (
        f'HTTP/1.1 {code} {_REASONS[code]}\r\n'
        f'Content-Type: {kind}\r\n'
        f'Content-Length: {len(body)}\r\n'
        'Cache-Control: no-store\r\n'
        'Connection: close\r\n'
        '\r\n'
    ).encode() + (b'' if head else body)
