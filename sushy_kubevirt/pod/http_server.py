# SPDX-License-Identifier: Apache-2.0
"""The HTTP server of a pod: Werkzeug's, a thread for each connection.

What Werkzeug's lacks for long service is here: an end for clients that are
slow or silent, a limit on their number and on what each may have us keep, TLS
whose certificate changes while it runs, and an end in good order. Its loop
waits for events alone.
"""

import contextlib
from http import client
import io
import logging
import selectors
import socket
import socketserver
import threading
import time

from werkzeug import serving

LOG = logging.getLogger(__name__)

#: Connections at a time. When one more comes, the one that has kept us
#: waiting for longest is hung up on.
MAX_CONNECTIONS = 64

#: Seconds from connecting to the end of the request: handshake, head, body.
REQUEST_SECONDS = 20

#: Seconds to find the answer. Inserting a medium may wait for ten minutes.
ANSWER_SECONDS = 900

#: Seconds for the client to take the answer, unless it is a stream.
SEND_SECONDS = 60

#: Bytes of a body that are read before the application has it. What is
#: longer it refuses unread.
_LONGEST = 2 ** 18

#: Bytes of all lines of a request: those of its head, and those around chunks.
#: `http.server` would keep 100 lines of 64 KiB for each connection, which is
#: more than the whole pod may have.
_LINES = 2 ** 15

#: Digits of a length.
_DIGITS = 18

#: Bytes that are thrown away at a time.
_DISCARD_BYTES = 2 ** 16

#: Seconds that requests have to be done with when the server is to end.
GRACE_SECONDS = 8

#: In whose name probes are made, which are not worth a line in the log.
PROBE_USER_AGENT = 'sushy-kubevirt-probe'


class Server(serving.ThreadedWSGIServer):
    """Serves a WSGI application.

    :param address: to listen on
    :param port: TCP; 0 for a free one, which `port` then is
    :param app: WSGI application
    :param certificate: a `certificate.Certificate`; None for plain HTTP
    """

    def __init__(self, address, port, app, certificate=None):
        super().__init__(address, port, app, _Handler)
        self._certificate = certificate
        self._connections = {}
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_writer.setblocking(False)
        self._stopping = False
        # When the loop looks around next, unless it is rung for.
        self._next_check = None
        if certificate is not None:
            # What Werkzeug tells the application's scheme from.
            self.ssl_context = certificate.context()

    def server_bind(self):
        # Not http.server's, which asks DNS what this host is called. Nobody
        # needs to know, and where nobody answers it takes 20 s.
        socketserver.TCPServer.server_bind(self)

    @property
    def connections(self):
        """How many there are."""
        return len(self._connections)

    def stop(self):
        """Have `serve` come to its end; may be called by a signal."""
        self._stopping = True
        self._wake()

    def _wake(self):
        """Have the loop look around."""
        with contextlib.suppress(OSError):
            self._wake_writer.send(b'.')

    def serve(self):
        """Serve until `stop`, and then until all requests are done with."""
        self.socket.setblocking(False)
        with selectors.DefaultSelector() as selector:
            selector.register(self.socket, selectors.EVENT_READ)
            selector.register(self._wake_reader, selectors.EVENT_READ)
            while not self._stopping:
                for key, _events in selector.select(self._abort_expired()):
                    if key.fileobj is self._wake_reader:
                        self._wake_reader.recv(64)
                    else:
                        self._handle_request_noblock()
        self.server_close()
        self._finish()
        self._wake_reader.close()
        self._wake_writer.close()

    def server_close(self):
        # Not the one that waits for all threads.
        self.socket.close()

    def get_request(self):
        sock, address = self.socket.accept()
        if self._certificate is not None:
            # The handshake is the thread's; who is silent keeps nobody else
            # waiting.
            sock = self._certificate.context().wrap_socket(
                sock, server_side=True, do_handshake_on_connect=False)
        sock.settimeout(SEND_SECONDS)
        with self._lock:
            if len(self._connections) >= MAX_CONNECTIONS:
                slow = min((one for one, connection
                            in self._connections.items()
                            if not connection.server_turn), default=None,
                           key=lambda one: self._connections[one].since)
                if slow is None:
                    sock.close()
                    raise OSError('There are too many connections')
                # It does not count any more; its thread is about to end.
                del self._connections[slow]
                _abort(slow)
            self._connections[sock] = _Connection()
        return sock, address

    def _abort_expired(self):
        """Hang up on those whose time is over.

        :returns: seconds after which to look again; None while there are
            none but streams
        """
        now = time.monotonic()
        with self._lock:
            ends = {sock: connection.end for sock, connection
                    in self._connections.items()
                    if connection.end is not None}
            for sock, end in ends.items():
                if end <= now:
                    self._connections[sock].end = None
                    _abort(sock)
            self._next_check = min(
                (end for end in ends.values() if end > now), default=None)
            return None if self._next_check is None else self._next_check - now

    def shutdown_request(self, request):
        # The thread is done with it.
        super().shutdown_request(request)
        with self._lock:
            self._connections.pop(request, None)
            self._idle.notify_all()

    def set_deadline(self, sock, server_turn, seconds):
        """Whose turn it is.

        :param server_turn: False when the client keeps us waiting
        :param seconds: how long it may take; None if there is no end to it
        """
        with self._lock:
            connection = self._connections.get(sock)
            if connection is None:
                return
            connection.server_turn = server_turn
            connection.since = time.monotonic()
            connection.end = (None if seconds is None
                              else connection.since + seconds)
            sooner = connection.end is not None and (
                self._next_check is None or connection.end < self._next_check)
        if sooner:
            self._wake()

    def _finish(self):
        """Let requests that are being answered be done with."""
        end = time.monotonic() + GRACE_SECONDS
        with self._lock:
            for sock, connection in self._connections.items():
                if not connection.server_turn or connection.end is None:
                    _abort(sock)
            while self._connections and time.monotonic() < end:
                self._idle.wait(end - time.monotonic())
            if self._connections:
                LOG.warning('%d requests were not done with in %d s',
                            len(self._connections), GRACE_SECONDS)

    def handle_error(self, request, client_address):
        LOG.exception('A request of %s failed', client_address[0])


class _Connection:
    """State of a connection.

    :ivar server_turn: whether the server, not the client, must act next
    :ivar since: when that began, `time.monotonic`
    :ivar end: when to disconnect; None for a stream
    """

    def __init__(self):
        self.server_turn = False
        self.since = time.monotonic()
        self.end = self.since + REQUEST_SECONDS


class _Handler(serving.WSGIRequestHandler):

    # Head and body leave together, and at once: else the client's kernel
    # takes its time to acknowledge the one before it is sent the other.
    wbufsize = 16384
    disable_nagle_algorithm = True

    _streams = False

    def setup(self):
        super().setup()
        self.rfile = _BoundedReader(self.rfile)

    def handle(self):
        # Of the first line; any other is answered with 431.
        with contextlib.suppress(client.LineTooLong):
            super().handle()

    def handle_expect_100(self):
        # Werkzeug says it too.
        return True

    def make_environ(self):
        """As Werkzeug does; with the body already here."""
        try:
            environ = super().make_environ()
        except ValueError:
            # Such as an address of IPv6 that is none.
            self._refuse(400)
        length = environ.get('CONTENT_LENGTH', '')
        if environ.get('wsgi.input_terminated'):
            body = self._body(environ, _LONGEST + 1)
        elif not length.isdecimal():
            body = b''
        elif len(length) > _DIGITS:
            # More than Python takes for a number.
            self._refuse(413)
        elif int(length) > _LONGEST:
            # The application refuses it, and does not wait for it either.
            self.rfile = _DiscardReader(self.rfile)
            self.server.set_deadline(self.connection, True, REQUEST_SECONDS)
            return environ
        else:
            body = self._body(environ, int(length))
        environ['wsgi.input'] = io.BytesIO(body)
        # Nothing else is expected, nor waited for when we hang up.
        self.rfile.close()
        self.rfile = io.BytesIO()
        self.server.set_deadline(self.connection, True, ANSWER_SECONDS)
        return environ

    def _body(self, environ, most):
        # With what the client may be waiting for: 100 Continue.
        self.wfile.flush()
        try:
            return environ['wsgi.input'].read(most)
        except (OSError, client.LineTooLong) as exc:
            # Also chunks that are none.
            raise ConnectionError(str(exc)) from None

    def _refuse(self, code):
        self.send_error(code)
        raise ConnectionError('The request was refused')

    def send_header(self, keyword, value):
        if keyword.lower() == 'content-type':
            self._streams = value.startswith('text/event-stream')
        super().send_header(keyword, value)

    def end_headers(self):
        if self._streams:
            self.server.set_deadline(self.connection, True, None)
        else:
            self.server.set_deadline(self.connection, False, SEND_SECONDS)
        super().end_headers()

    def finish(self):
        # What could not be sent cannot be sent now either.
        with contextlib.suppress(OSError, ValueError):
            super().finish()

    def version_string(self):
        return 'sushy-kubevirt'

    def log_request(self, code='-', size='-'):
        code = int(code)
        if (code == 200 and self.command == 'GET'
                and self.headers.get('User-Agent') == PROBE_USER_AGENT):
            return
        LOG.info('%s "%s" %d', self.client_address[0],
                 self.requestline.translate(self._control_char_table), code)

    def log_error(self, format, *args):
        LOG.info('%s: %s', self.client_address[0], (format % args).translate(
            self._control_char_table))


class _BoundedReader:
    """What a client sends, whole, and with an end to its lines.

    :param stream: to read from
    """

    def __init__(self, stream):
        self._stream = stream
        self._left = _LINES

    def readline(self, limit=_LINES):
        """:raises: `client.LineTooLong`"""
        line = self._stream.readline(min(limit, self._left + 1))
        self._left -= len(line)
        if self._left < 0:
            raise client.LineTooLong('head')
        return line

    def read(self, size):
        """As many bytes, or none at all.

        Werkzeug's DechunkedInput takes what is given for as much as it asked
        for, and with it what lies behind in this process' memory.

        :raises: ConnectionError
        """
        found = self._stream.read(size)
        if len(found) < size:
            raise ConnectionError('The request was not sent to its end')
        return found

    def __getattr__(self, name):
        return getattr(self._stream, name)


class _DiscardReader:
    """What a client goes on to send, which Werkzeug reads to throw it away:
    by 10 MB at a time, if it may.

    :param stream: to read from
    """

    def __init__(self, stream):
        self._stream = stream

    def read(self, size):
        """:returns: some bytes; none at the end"""
        return self._stream.read1(min(size, _DISCARD_BYTES))

    def __getattr__(self, name):
        return getattr(self._stream, name)


def _abort(sock):
    """Have the thread that waits for a socket find it at its end.

    Not by the method of a TLS socket, which takes it apart under the
    thread's hands.
    """
    with contextlib.suppress(OSError):
        socket.socket.shutdown(sock, socket.SHUT_RDWR)
