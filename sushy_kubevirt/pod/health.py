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

import contextlib
import logging
import selectors
import socket
import threading
import time

from sushy_kubevirt.bmc import shares

LOG = logging.getLogger(__name__)

#: Maximum number of connections. One more closes the oldest of the network
#: that has most.
MAX_CONNECTIONS = 32

#: Seconds for a connection from accept to the end of the response.
TIMEOUT_SECONDS = 5

_LONGEST = 8192

_TEXT = 'text/plain; charset=utf-8'

#: Of Prometheus' text format.
_METRICS = 'text/plain; version=0.0.4; charset=utf-8'

_REASONS = {200: 'OK', 400: 'Bad Request', 404: 'Not Found',
            405: 'Method Not Allowed', 500: 'Internal Server Error',
            503: 'Service Unavailable'}


class Server:
    """Serves ``/livez``, ``/readyz`` and ``/metrics``.

    The functions run in the server's thread and must return soon (probes time
    out after 5 s). An exception is answered with status 500.

    :param address: IPv4 or IPv6 address to listen on
    :param port: TCP port; 0 for a free one, then stored in `port`
    :param live: function that returns why the process is not alive; '' or None
        if it is
    :param ready: function that returns why it is not ready, likewise
    :param metrics: function that returns the metrics, bytes
    """

    def __init__(self, address, port, live, ready, metrics) -> None:
        self.address = address
        self.port = port
        self._pages = {'/livez': (self._probe_page, live),
                       '/readyz': (self._probe_page, ready),
                       '/metrics': (_metrics_page, metrics)}
        self._problems = {}
        self._selector = self._thread = self._listener = None

    def start(self):
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

    def _run(self, wake) -> None:
        # Ordered by age, as all have the same timeout.
        clients = {}
        with contextlib.closing(self._selector) as selector, \
                contextlib.closing(self._listener), contextlib.closing(wake):
            while True:
                for key, _events in selector.select(_next_timeout(clients)):
                    if key.fileobj is wake:
                        _close(selector, clients, list(clients))
                        return
                    if key.fileobj is self._listener:
                        self._accept(selector, clients)
                    elif key.fileobj in clients:
                        self._serve(selector, clients, key.fileobj)
                now = time.monotonic()
                _close(selector, clients, [
                    one for one, client in clients.items()
                    if client.end <= now])

    def _accept(self, selector, clients) -> None:
        try:
            sock, address = self._listener.accept()
        except OSError:
            return      # closed by the client, or no file descriptor left
        sock.setblocking(False)
        clients[sock] = _Client(shares.network(address[0]))
        selector.register(sock, selectors.EVENT_READ)
        if len(clients) > MAX_CONNECTIONS:
            _close(selector, clients, [shares.surplus(
                clients, sock, lambda one: clients[one].network)])
        # The request has usually arrived by now.
        self._serve(selector, clients, sock)

    def _serve(self, selector, clients, sock) -> None:
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

    def _answer(self, request):
        words = request.partition(b'\r\n')[0].decode('latin-1').split(' ')
        if len(words) != 3:
            return _response(400, 'Not an HTTP request.\n')
        method, target, _version = words
        target = target.partition('?')[0]
        make, function = self._pages.get(target, (None, None))
        if make is None:
            return _response(404, f"Supported: {', '.join(self._pages)}.\n")
        if method not in ('GET', 'HEAD'):
            return _response(405, 'Method not allowed; use GET or HEAD.\n')
        try:
            code, text, kind = make(target, function)
        except Exception:
            LOG.exception('%s: unexpected error', target)
            code, kind = 500, _TEXT
            text = 'Unexpected error; see the log.\n'
        return _response(code, text, kind, method == 'HEAD')

    def _probe_page(self, path, function):
        problem = function() or ''
        # The kubelet does not report the body of the response.
        if problem != self._problems.get(path, ''):
            self._problems[path] = problem
            if problem:
                LOG.warning('%s fails: %s', path, problem)
            else:
                LOG.info('%s succeeds again', path)
        if problem:
            return 503, problem + '\n', _TEXT
        return 200, 'ok\n', _TEXT


class _Client:
    """State of a connection: received request, remaining response."""

    def __init__(self, network) -> None:
        self.network = network
        self.request = b''
        self.answer = None
        self.end = time.monotonic() + TIMEOUT_SECONDS


def _next_timeout(clients):
    """Seconds until the oldest connection times out; None without any."""
    for client in clients.values():
        return max(0, client.end - time.monotonic())
    return None


def _close(selector, clients, socks) -> None:
    for sock in socks:
        del clients[sock]
        selector.unregister(sock)
        sock.close()


def _metrics_page(_path, function):
    return 200, function(), _METRICS


def _response(code, body, kind=_TEXT, head: bool = False):
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
