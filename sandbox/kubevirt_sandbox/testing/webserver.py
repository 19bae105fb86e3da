# SPDX-License-Identifier: Apache-2.0
"""A web server as a fixture; what it answers, others say."""

import functools
import http.server
import socket
import threading

import fixtures


class Handler(http.server.BaseHTTPRequestHandler):
    """A handler that keeps connections and is quiet."""

    protocol_version = 'HTTP/1.1'

    def log_message(self, *_args):
        pass


def own_address():
    """An IPv4 address of this machine that is not loopback, or None."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            # Nothing is sent: it is only said by which address it would go.
            one.connect(('192.0.2.1', 9))
        except OSError:
            return None
        return one.getsockname()[0]


class WebServer(fixtures.Fixture):
    """A web server with a thread for each connection.

    ``port`` is where it listens, ``url`` its address without a slash at the
    end.

    :param handler: class of `http.server.BaseHTTPRequestHandler`, or a
        function that makes one.
    :param context: an ``ssl.SSLContext``, for HTTPS.
    :param address: to listen on.
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
                """Clients that hang up, or are killed, are no news."""

        server = Server((self._address, 0), self._handler)
        scheme = 'http'
        if self._context is not None:
            scheme = 'https'
            # A client that is slow to say hello keeps no other waiting.
            server.socket = self._context.wrap_socket(
                server.socket, server_side=True,
                do_handshake_on_connect=False)
        self.port = server.server_port
        self.url = '%s://%s:%d' % (scheme, self._address, self.port)
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
    """A web server for the files of a folder, not started yet."""
    return WebServer(functools.partial(_Files, directory=folder))
