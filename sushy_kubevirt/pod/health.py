# SPDX-License-Identifier: Apache-2.0
"""A small HTTP server for probes and metrics, in a thread of its own.

Paths after Kubernetes' own components: ``/livez`` whether the process works,
``/readyz`` whether it can do what it is for, and ``/metrics``. Nobody has to
log in, and nothing secret is told. It stands apart from the server whose
health it tells, whatever becomes of that one; and it is a few lines instead
of `http.server`, since there is one in each container of each VM.

One thread serves all; who is slow, silent, or one too many is hung up on, and
keeps nobody waiting.
"""

import contextlib
import logging
import selectors
import socket
import threading
import time

LOG = logging.getLogger(__name__)

#: Connections at a time; one more ends the oldest.
MOST = 32

#: Seconds that one may take from its first byte to our last.
PATIENCE = 5

_LONGEST = 8192

_TEXT = 'text/plain; charset=utf-8'

#: Of Prometheus' text format.
_METRICS = 'text/plain; version=0.0.4; charset=utf-8'

_REASONS = {200: 'OK', 400: 'Bad Request', 404: 'Not Found',
            405: 'Method Not Allowed', 500: 'Internal Server Error',
            503: 'Service Unavailable'}


class Server:
    """Answers ``/livez``, ``/readyz`` and ``/metrics``.

    The functions are called in the server's thread, so they must come back
    soon (a probe waits 5 s); one that raises is an answer of 500.

    :param address: to listen on, of IPv4 or IPv6
    :param port: TCP; 0 for a free one, which `port` then is
    :param live: function; what is wrong with the process, a sentence; '' or
        None if nothing is
    :param ready: the same for what it is there for
    :param metrics: function that returns the metrics, bytes
    """

    def __init__(self, address, port, live, ready, metrics):
        self.address = address
        self.port = port
        self._pages = {'/livez': (_verdict, live),
                       '/readyz': (_verdict, ready),
                       '/metrics': (_metrics, metrics)}
        self._selector = self._thread = self._listener = None

    def start(self):
        """Listen.

        :raises: OSError, with the address and the port in its text
        """
        try:
            self._listener = socket.create_server(
                (self.address, self.port), backlog=MOST,
                family=socket.AF_INET6 if ':' in self.address
                else socket.AF_INET)
        except OSError as exc:
            raise OSError(exc.errno, 'TCP port %s on %s: %s' % (
                self.port, self.address, exc.strerror)) from None
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]
        ours, self._bell = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(ours, selectors.EVENT_READ)
        self._thread = threading.Thread(
            target=self._run, args=(ours,), name='health', daemon=True)
        self._thread.start()

    def close(self):
        """Stop listening, and hang up. Again, it does nothing."""
        if self._thread is None:
            return
        self._bell.close()
        self._thread.join()
        self._thread = None

    def _run(self, bell):
        # By age: all have the same time.
        clients = {}
        with contextlib.closing(self._selector) as selector, \
                contextlib.closing(self._listener), contextlib.closing(bell):
            while True:
                for key, _events in selector.select(_left(clients)):
                    if key.fileobj is bell:
                        _hang_up(selector, clients, list(clients))
                        return
                    if key.fileobj is self._listener:
                        self._accept(selector, clients)
                    elif key.fileobj in clients:
                        self._serve(selector, clients, key.fileobj)
                now = time.monotonic()
                _hang_up(selector, clients, [
                    one for one, client in clients.items()
                    if client.end <= now])

    def _accept(self, selector, clients):
        try:
            sock, _address = self._listener.accept()
        except OSError:
            return      # gone already, or no more files
        sock.setblocking(False)
        if len(clients) >= MOST:
            _hang_up(selector, clients, [next(iter(clients))])
        clients[sock] = _Client()
        selector.register(sock, selectors.EVENT_READ)
        # Mostly the request is there by now.
        self._serve(selector, clients, sock)

    def _serve(self, selector, clients, sock):
        client = clients[sock]
        try:
            if client.answer is None:
                read = sock.recv(_LONGEST)
                client.request += read
                whole = b'\r\n\r\n' in client.request
                if not whole and len(client.request) <= _LONGEST:
                    if not read:
                        _hang_up(selector, clients, [sock])
                    return
                client.answer = memoryview(self._answer(
                    client.request if whole else b''))
                selector.modify(sock, selectors.EVENT_WRITE)
            client.answer = client.answer[sock.send(client.answer):]
        except BlockingIOError:
            return
        except OSError:
            _hang_up(selector, clients, [sock])
            return
        if not client.answer:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_WR)
            _hang_up(selector, clients, [sock])

    def _answer(self, request):
        words = request.partition(b'\r\n')[0].decode('latin-1').split(' ')
        if len(words) != 3:
            return _response(400, 'This is no request of HTTP.\n')
        method, target, _version = words
        make, function = self._pages.get(
            target.partition('?')[0], (None, None))
        if make is None:
            return _response(404, f"There are {', '.join(self._pages)}.\n")
        if method not in ('GET', 'HEAD'):
            return _response(405, 'Only GET.\n')
        try:
            code, text, kind = make(function)
        except Exception:
            LOG.exception('%s failed', target)
            code, text, kind = 500, 'It failed; see the log.\n', _TEXT
        return _response(code, text, kind, method == 'HEAD')


class _Client:
    """A connection: what it has sent, and what it is still to be sent."""

    def __init__(self):
        self.request = b''
        self.answer = None
        self.end = time.monotonic() + PATIENCE


def _left(clients):
    """Seconds until the oldest connection has had its time."""
    for client in clients.values():
        return max(0, client.end - time.monotonic())
    return None


def _hang_up(selector, clients, socks):
    for sock in socks:
        del clients[sock]
        selector.unregister(sock)
        sock.close()


def _verdict(function):
    problem = function()
    if problem:
        return 503, problem + '\n', _TEXT
    return 200, 'ok\n', _TEXT


def _metrics(function):
    return 200, function(), _METRICS


def _response(code, body, kind=_TEXT, head=False):
    if isinstance(body, str):
        body = body.encode()
    return (
        'HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n'
        'Cache-Control: no-store\r\nConnection: close\r\n\r\n' % (
            code, _REASONS[code], kind, len(body))
    ).encode() + (b'' if head else body)
