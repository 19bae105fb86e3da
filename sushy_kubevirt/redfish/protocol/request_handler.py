# SPDX-License-Identifier: Apache-2.0
"""Werkzeug's request handler, with Redfish bodies for errors of its own."""

from __future__ import annotations

import contextlib
import io
import select
import time
import typing

from werkzeug import serving
from werkzeug import urls

from sushy_kubevirt.redfish.protocol import http_framing
from sushy_kubevirt.redfish.protocol import server_errors

if typing.TYPE_CHECKING:
    import socket
    from wsgiref import types

#: Seconds and bytes to wait for the rest of a refused request. To close the
#: connection before it was read could discard the response as well (TCP RST).
_DRAIN_SECONDS = 1.0
_DRAIN_BYTES = 2 ** 20
_PAUSE_SECONDS = 0.1

#: Seconds without data after which a client sends nothing more, as Werkzeug's.
_GAP_SECONDS = 0.01


class _Lines:
    """A stream that remembers the lines that were read."""

    def __init__(self, stream: io.BufferedIOBase) -> None:
        self._stream = stream
        self.lines: list[bytes] = []

    def readline(self, limit: int) -> bytes:
        """See `io.BufferedIOBase.readline`."""
        line = self._stream.readline(limit)
        self.lines.append(line)
        return line


class _Rest:
    """What follows a request, which Werkzeug discards after the response.

    Werkzeug would wait for ten megabytes of it, and log damaged TLS records
    with an exception.

    :param stream: of the connection
    """

    def __init__(self, stream: io.BufferedIOBase, connection: socket.socket
                 ) -> None:
        self._stream = stream
        self._connection = connection

    def read(self, amount: int) -> bytes:
        """Read what arrives.

        :param amount: maximum number of bytes
        :returns: what arrives until the client sends none for a moment or the
            connection fails
        """
        parts = []
        with contextlib.suppress(OSError):
            while amount > 0 and (part := self._stream.read1(amount)):
                parts.append(part)
                amount -= len(part)
                if not select.select([self._connection], [], [],
                                     _GAP_SECONDS)[0]:
                    break
        return b''.join(parts)

    def __getattr__(self, name: str) -> typing.Any:
        return getattr(self._stream, name)


class RequestHandler(serving.WSGIRequestHandler):
    """Reads requests and calls the application, in a thread of each."""

    def parse_request(self) -> bool:
        """Read the header.

        :returns: whether it is valid; if not, an error was sent
        """
        stream = self.rfile
        lines = _Lines(stream)
        self.rfile = typing.cast(io.BufferedIOBase, lines)
        try:
            if not super().parse_request():
                return False
        finally:
            self.rfile = stream
        # `http.server` gives the header to a parser of e-mail.
        if (http_framing.check_lines([self.raw_requestline, *lines.lines])
                and not any(len(self.headers.get_all(name, ())) > 1
                            for name in ('Host', 'Content-Length'))):
            return True
        self.send_error(400)
        return False

    def make_environ(self) -> types.WSGIEnvironment:
        """Make the WSGI environment.

        :raises: ConnectionError, after an error response
        """
        try:
            environ = super().make_environ()
            # Werkzeug would log the request with an exception.
            urls.uri_to_iri(self.path)
        except ValueError:
            # For example an invalid IPv6 address or port in the URL.
            self.reject(400)
        if 'wsgi.input_terminated' in environ:
            # Werkzeug's reads what is no chunked body, too.
            environ['wsgi.input'] = http_framing.ChunkedBody(self.rfile)
        self.rfile = typing.cast(
            io.BufferedIOBase, _Rest(self.rfile, self.connection))
        return environ

    def send_header(self, keyword: str, value: str) -> None:
        """Send a header (`http.server` and Werkzeug call it).

        Werkzeug closes each connection, and says so in a header of its own. Of
        several, Python's `http.client` reads the first.

        :param keyword: its name
        :param value: its value
        """
        if keyword == 'Connection' and value != 'close':
            value += ', close'
        super().send_header(keyword, value)

    def reject(self, code: int) -> typing.NoReturn:
        """Send an error response and end the request.

        :raises: ConnectionError
        """
        self.send_error(code)
        raise ConnectionError('The request was rejected')

    def send_error(self, code: int, message: str | None = None,
                   explain: str | None = None) -> None:
        """Send an error response (`http.server` calls it).

        :param code: HTTP status code
        :param message: what is wrong with the request
        """
        code = int(code)
        self.log_error('code %d, message %s', code, message)
        # Unset after an invalid request line; no headers would be sent.
        self.request_version = 'HTTP/1.1'
        phrase, headers, body = server_errors.response(
            code, message or '',
            'https' if self.server.ssl_context else 'http',
            # Unset as well after an invalid request line.
            getattr(self, 'headers', {}).get('Host'))
        # Not `send_response`, which logs the request line: Werkzeug's does not
        # log an invalid URL.
        self.send_response_only(code, phrase)
        self.send_header('Server', self.version_string())
        self.send_header('Date', self.date_time_string())
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != 'HEAD':
            self.wfile.write(body)
        self.wfile.flush()
        self._drain()

    def _drain(self) -> None:
        end = time.monotonic() + _DRAIN_SECONDS
        left = _DRAIN_BYTES
        self.connection.settimeout(_PAUSE_SECONDS)
        with contextlib.suppress(OSError):
            while left > 0 and time.monotonic() < end:
                piece = self.connection.recv(2 ** 16)
                if not piece:
                    break
                left -= len(piece)
