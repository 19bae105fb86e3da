# SPDX-License-Identifier: Apache-2.0
"""Fixture with a web server; the caller provides its request handler."""

import functools
import http.server
import socket
import threading

import fixtures


class Handler(http.server.BaseHTTPRequestHandler):
    """A request handler with persistent connections and without logging."""

    protocol_version = 'HTTP/1.1'

    def log_message(self, *_args):
        """Write no log."""
        pass


def own_address():
    """Return a non-loopback IPv4 address of this host, or None."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            # Sends nothing; connecting a UDP socket selects the source
            # address.
            one.connect(('192.0.2.1', 9))
        except OSError:
            return None
        return one.getsockname()[0]


class WebServer(fixtures.Fixture):
    """A web server with a thread for each connection.

    ``port`` is the port it listens on, ``url`` its URL without a trailing
    slash.

    :param handler: subclass of `http.server.BaseHTTPRequestHandler`, or a
        function that returns an instance.
    :param context: an ``ssl.SSLContext`` for HTTPS, or None for HTTP.
    :param address: IP address to listen on.
    """

    def __init__(self, handler, context=None, address='127.0.0.1'):
        super().__init__()
        self._handler = handler
        self._context = context
        self._address = address

    def _setUp(self):

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *_args):
                """Ignore errors of clients that disconnect or are killed."""

        server = Server((self._address, 0), self._handler)
        scheme = 'http'
        if self._context is not None:
            scheme = 'https'
            # Do the TLS handshake in the connection's thread, so that a slow
            # client does not delay others.
            server.socket = self._context.wrap_socket(
                server.socket, server_side=True,
                do_handshake_on_connect=False)
        self.port = server.server_port
        self.url = f'{scheme}://{self._address}:{self.port}'
        thread = threading.Thread(target=server.serve_forever, daemon=True,
                                  kwargs={'poll_interval': 0.02})
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)


class _Files(http.server.SimpleHTTPRequestHandler):

    def log_message(self, *_args):
        pass


def files(folder):
    """Return a `WebServer` for the files of a folder, not yet started."""
    return WebServer(functools.partial(_Files, directory=folder))
