# SPDX-License-Identifier: Apache-2.0
"""HTTP server of the Redfish container, derived from Werkzeug's.

One thread serves each connection. Adds to Werkzeug's server: deadlines for
slow clients, limits on the number of connections and on the size of requests,
TLS certificates that are renewed while it runs, and a graceful shutdown.
Between events it sleeps without a timeout.

Not cheroot 11.1: it does the TLS handshake in the thread that accepts
connections, so that one silent client stops all others for its timeout (10 s);
that timeout is for each read, so a client that sends a byte every 9 s keeps
one of the pool's threads for ever, and each event stream keeps one too; the
certificate is read once. Not gunicorn 27 (gthread): after the first byte,
reading a request has no timeout. A Flask application with one route takes
22 MiB PSS with this server, which uses modules that Flask has imported, 23 MiB
with cheroot and 33 MiB with gunicorn, in two processes (CPython 3.11.7, after
50 requests).
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

from sushy_kubevirt.redfish.protocol import request_handler

LOG = logging.getLogger(__name__)

#: Maximum number of connections. One more closes the one whose client has
#: made the server wait longest.
MAX_CONNECTIONS = 64

#: Seconds for a client to send a request: TLS handshake, header, body.
REQUEST_SECONDS = 20

#: Seconds for the application to respond. Inserting a medium may wait for ten
#: minutes.
ANSWER_SECONDS = 900

#: Seconds for a client to receive a response, unless it is an event stream.
SEND_SECONDS = 60

#: Maximum bytes of a body that is read before the application is called. The
#: application rejects a longer one without reading it.
_MAX_BODY_BYTES = 2 ** 18

#: Maximum bytes of all lines of a request: its header, and the lines around
#: chunks. `http.server` would keep 100 lines of 64 KiB for each connection,
#: which exceeds the pod's memory limit.
_MAX_LINE_BYTES = 2 ** 15

#: Maximum digits of Content-Length.
_MAX_LENGTH_DIGITS = 18

#: Bytes read at a time of a body that is discarded.
_DISCARD_BYTES = 2 ** 16

#: Seconds to complete running requests when the server stops.
GRACE_SECONDS = 8

#: User-Agent of `redfish_probe`, whose requests are not logged.
PROBE_USER_AGENT = 'sushy-kubevirt-probe'


class Server(serving.ThreadedWSGIServer):
    """Serves a WSGI application.

    :param address: IP address to listen on
    :param port: TCP port; 0 for a free one, then stored in `port`
    :param app: WSGI application
    :param certificate: a `certificate.Certificate`; None for plain HTTP
    :param max_connections: default: `MAX_CONNECTIONS`
    """

    def __init__(self, address, port, app, certificate=None,
                 max_connections=None):
        super().__init__(address, port, app, _Handler)
        self._max_connections = max_connections or MAX_CONNECTIONS
        self._certificate = certificate
        self._connections = {}
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_writer.setblocking(False)
        self._stopping = False
        # Monotonic time at which the accept loop wakes up by itself; None if
        # it waits for events only.
        self._next_check = None
        if certificate is not None:
            # Werkzeug derives wsgi.url_scheme from it.
            self.ssl_context = certificate.context()

    def server_bind(self):
        # `http.server` looks up this host's name in DNS, which is not needed
        # and takes 20 s without a DNS server.
        socketserver.TCPServer.server_bind(self)

    @property
    def connections(self):
        """Number of open connections."""
        return len(self._connections)

    def stop(self):
        """Make `serve` return; may be called in a signal handler."""
        self._stopping = True
        self._wake()

    def _wake(self):
        """Wake up the accept loop, which then checks deadlines."""
        with contextlib.suppress(OSError):
            self._wake_writer.send(b'.')

    def serve(self):
        """Serve until `stop`, then complete running requests."""
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
        self._drain()
        self._wake_reader.close()
        self._wake_writer.close()

    def server_close(self):
        # `socketserver.ThreadingMixIn` would wait for all threads.
        self.socket.close()

    def get_request(self):
        sock, address = self.socket.accept()
        if self._certificate is not None:
            # The connection's thread does the handshake, so that a silent
            # client does not block others.
            sock = self._certificate.context().wrap_socket(
                sock, server_side=True, do_handshake_on_connect=False)
        sock.settimeout(SEND_SECONDS)
        with self._lock:
            if len(self._connections) >= self._max_connections:
                slowest = min((one for one, connection
                               in self._connections.items()
                               if not connection.server_turn), default=None,
                              key=lambda one: self._connections[one].since)
                if slowest is None:
                    sock.close()
                    raise OSError('Too many connections')
                # Its thread ends soon; do not count it any more.
                del self._connections[slowest]
                _abort(slowest)
            self._connections[sock] = _Connection()
        return sock, address

    def _abort_expired(self):
        """Close connections that have passed their deadline.

        :returns: seconds until the next deadline; None without one, as with
            event streams only
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
        # Called when the connection's thread ends.
        super().shutdown_request(request)
        with self._lock:
            self._connections.pop(request, None)
            self._idle.notify_all()

    def set_deadline(self, sock, server_turn, seconds):
        """Start the next phase of a connection.

        :param sock: its socket
        :param server_turn: whether the server must act next; False if the
            client must
        :param seconds: time limit; None for an event stream
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

    def _drain(self):
        """Wait up to GRACE_SECONDS for running requests."""
        end = time.monotonic() + GRACE_SECONDS
        with self._lock:
            for sock, connection in self._connections.items():
                if not connection.server_turn or connection.end is None:
                    _abort(sock)
            while self._connections and time.monotonic() < end:
                self._idle.wait(end - time.monotonic())
            if self._connections:
                LOG.warning('%d requests were not completed within %d s and '
                            'are dropped', len(self._connections),
                            GRACE_SECONDS)

    def handle_error(self, request, client_address):
        LOG.exception('Request from %s failed', client_address[0])


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


class _Handler(request_handler.RequestHandler):

    # Send header and body in one segment, without Nagle's algorithm, which
    # would hold back the body until the client's delayed acknowledgement.
    wbufsize = 16384
    disable_nagle_algorithm = True

    _streams = False

    def setup(self):
        super().setup()
        self.rfile = _BoundedReader(self.rfile)

    def handle(self):
        try:
            super().handle()
        except client.LineTooLong:
            # The request line; `http.server` answers a long header line.
            self.requestline = self.command = ''
            self.send_error(414)

    def handle_expect_100(self):
        # Werkzeug sends 100 Continue itself.
        return True

    def make_environ(self):
        """Make the WSGI environment, with the body already read."""
        environ = super().make_environ()
        length = environ.get('CONTENT_LENGTH', '')
        if environ.get('wsgi.input_terminated'):
            body = self._read_body(environ, _MAX_BODY_BYTES + 1)
        elif not length.isdecimal():
            body = b''
        elif len(length) > _MAX_LENGTH_DIGITS:
            # int() raises ValueError above 4300 digits.
            self.reject(413)
        elif int(length) > _MAX_BODY_BYTES:
            # The application rejects it without reading it.
            self.rfile = _DiscardReader(self.rfile)
            self.server.set_deadline(self.connection, True, REQUEST_SECONDS)
            return environ
        else:
            body = self._read_body(environ, int(length))
        environ['wsgi.input'] = io.BytesIO(body)
        # Do not wait for further data when the connection is closed.
        self.rfile.close()
        self.rfile = io.BytesIO()
        self.server.set_deadline(self.connection, True, ANSWER_SECONDS)
        return environ

    def _read_body(self, environ, limit):
        # Send 100 Continue, for which the client may wait.
        self.wfile.flush()
        try:
            return environ['wsgi.input'].read(limit)
        except (OSError, client.LineTooLong) as exc:
            # OSError is also raised for invalid chunks.
            raise ConnectionError(str(exc)) from None

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
        # Flushing fails if the client has disconnected.
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
    """Input stream with a limit on lines, which returns no partial reads.

    :param stream: binary file of the connection
    """

    def __init__(self, stream):
        self._stream = stream
        self._left = _MAX_LINE_BYTES

    def readline(self, limit=_MAX_LINE_BYTES):
        """Read a line.

        :raises: `client.LineTooLong` when all lines of the request together
            exceed the limit
        """
        line = self._stream.readline(min(limit, self._left + 1))
        self._left -= len(line)
        if self._left < 0:
            raise client.LineTooLong('header line')
        return line

    def read(self, size):
        """Read exactly `size` bytes.

        After a short read Werkzeug's DechunkedInput would report more bytes
        than it received, and so return other memory of this process.

        :raises: ConnectionError if the client sent fewer
        """
        found = self._stream.read(size)
        if len(found) < size:
            raise ConnectionError('The client sent an incomplete request')
        return found

    def __getattr__(self, name):
        return getattr(self._stream, name)


class _DiscardReader:
    """Input stream of a rejected body, which Werkzeug reads and discards.

    Werkzeug asks for 10 MB at a time; this stream returns less.

    :param stream: binary file of the connection
    """

    def __init__(self, stream):
        self._stream = stream

    def read(self, size):
        """:returns: at most `size` bytes; empty at the end"""
        return self._stream.read1(min(size, _DISCARD_BYTES))

    def __getattr__(self, name):
        return getattr(self._stream, name)


def _abort(sock):
    """Shut a socket down, so that the thread that waits for it gets EOF.

    `ssl.SSLSocket.shutdown` would also drop the TLS state that the thread
    still uses.
    """
    with contextlib.suppress(OSError):
        socket.socket.shutdown(sock, socket.SHUT_RDWR)
