# SPDX-License-Identifier: Apache-2.0
"""HTTP/1.1 server: connections, requests and responses.

Parsed by ``httptools``. A request is complete when its handler is called:
bodies are small. Handlers are cancelled when the client disconnects.
:mod:`websocket` takes over connections that are upgraded.
"""
import asyncio
import collections
from collections.abc import Awaitable
from collections.abc import Callable
import functools
import http
import json
import logging
import socket
import ssl
import time
import urllib.parse

import httptools
import multidict

LOG = logging.getLogger(__name__)

#: Requests of a connection that wait for the one before.
_PIPELINED = 8

_CONTINUE = b'HTTP/1.1 100 Continue\r\n\r\n'


class BodyTooLargeError(Exception):
    """The body of a request exceeds the limit."""


class Request:
    """A request.

    :param raw_path: the path as it was sent, percent-encoded.
    :param headers: a :class:`multidict.CIMultiDict`.
    :param body: None when it was too large.
    """

    def __init__(self, connection: '_Connection', method: str, raw_path: str,
                 query: str, headers: multidict.CIMultiDict,
                 body: bytes | None, version: str, keep_alive: bool):
        self.connection = connection
        self.method = method
        self.raw_path = raw_path
        self.headers = headers
        self.version = version
        self.keep_alive = keep_alive
        #: Parts of the path that a route names.
        self.match_info = {}
        #: The response whose head was sent by its handler.
        self.begun = None
        self._query = query
        self._body = body

    @functools.cached_property
    def path(self) -> str:
        """Return the decoded path."""
        return urllib.parse.unquote(self.raw_path)

    @functools.cached_property
    def query(self) -> multidict.MultiDict:
        """Return the parameters of the query."""
        return multidict.MultiDict(urllib.parse.parse_qsl(
            self._query, keep_blank_values=True) if self._query else ())

    @property
    def transport(self) -> asyncio.Transport | None:
        """Return the connection's transport, None when it is closed."""
        return self.connection.transport

    async def read(self) -> bytes:
        """Return the body.

        :raises BodyTooLargeError: it exceeds the limit.
        """
        if self._body is None:
            raise BodyTooLargeError
        return self._body


class Response:
    """A response whose body is known.

    :param text: instead of ``body``.
    """

    def __init__(self, *, body: bytes = b'', text: str | None = None,
                 status: int = 200, content_type: str | None = None,
                 headers=()):
        self.status = status
        self.body = body if text is None else text.encode()
        self.headers = multidict.CIMultiDict(headers)
        self.closes = False
        if text is not None:
            content_type = content_type or 'text/plain; charset=utf-8'
        if content_type:
            self.headers['Content-Type'] = content_type

    def force_close(self) -> None:
        """Close the connection after the response."""
        self.closes = True

    async def send(self, request: Request) -> None:
        """Send the response."""
        bare = self.status in (204, 304)
        if not bare:
            self.headers['Content-Length'] = str(len(self.body))
        if self.closes:
            request.keep_alive = False
        head = _head(request, self.status, self.headers)
        if bare or request.method == 'HEAD':
            await request.connection.write(head)
        else:
            await request.connection.write(head + self.body)


class StreamResponse:
    """A response whose body is written piece by piece."""

    def __init__(self, headers=()):
        self.headers = multidict.CIMultiDict(headers)
        self._request = None
        self._chunked = False
        self._ended = False

    async def prepare(self, request: Request) -> None:
        """Send the head."""
        self._request = request
        request.begun = self
        self._chunked = request.version != '1.0'
        if self._chunked:
            self.headers['Transfer-Encoding'] = 'chunked'
        else:
            request.keep_alive = False
        await request.connection.write(_head(request, 200, self.headers))

    async def write(self, data: bytes) -> None:
        """Send a piece, and wait while the client reads slower.

        :raises ConnectionError: the client is gone.
        """
        if data:
            if self._chunked:
                data = b'%x\r\n%b\r\n' % (len(data), data)
            await self._request.connection.write(data)

    async def write_eof(self) -> None:
        """End the body."""
        if self._chunked and not self._ended:
            self._ended = True
            await self._request.connection.write(b'0\r\n\r\n')

    async def send(self, request: Request) -> None:
        """End the response."""
        await self.write_eof()


def json_response(data, status: int = 200) -> Response:
    """Return a response with JSON."""
    return Response(body=json.dumps(data).encode(), status=status,
                    content_type='application/json; charset=utf-8')


@functools.cache
def _status_line(status):
    return f'HTTP/1.1 {status} {http.HTTPStatus(status).phrase}\r\n'


@functools.lru_cache(1)
def _date(second):
    return time.strftime('%a, %d %b %Y %H:%M:%S GMT', time.gmtime(second))


def _head(request, status, headers):
    lines = [f'{name}: {value}\r\n' for name, value in headers.items()]
    if not request.keep_alive:
        lines.append('Connection: close\r\n')
    elif request.version == '1.0':
        lines.append('Connection: keep-alive\r\n')
    return (f'{_status_line(status)}{"".join(lines)}Date: '
            f'{_date(int(time.time()))}\r\n\r\n').encode(
                'utf-8', 'surrogateescape')


Handler = Callable[[Request], Awaitable[Response]]


class Server:
    """An HTTP server.

    :param handler: coroutine function of a :class:`Request` that returns the
        response, e.g. a :class:`Response`.
    :param limit: largest body of a request, bytes.
    """

    def __init__(self, handler: Handler, limit: int):
        self.handler = handler
        self.limit = limit
        self.connections = set()
        self._listener = None

    async def listen(self, sock: socket.socket,
                     ssl_context: ssl.SSLContext | None = None) -> None:
        """Accept connections on a bound socket."""
        self._listener = await asyncio.get_running_loop().create_server(
            lambda: _Connection(self), sock=sock, ssl=ssl_context,
            backlog=1024)

    def close(self) -> None:
        """Accept no more connections."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    async def stop(self, seconds: float = 1) -> None:
        """Close the listener and all connections.

        :param seconds: time for running handlers to end.
        """
        self.close()
        tasks = [connection.task for connection in self.connections
                 if connection.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)
        for connection in list(self.connections):
            connection.end()
        tasks = [task for task in tasks if not task.done()]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)


class _Connection(asyncio.Protocol):
    """A connection of a client."""

    def __init__(self, server):
        self._server = server
        self._loop = asyncio.get_running_loop()
        self.transport = None
        #: The task that answers requests, None when there is none.
        self.task = None
        #: Takes the data of an upgraded connection: has ``received(data)``
        #: and ``lost()``.
        self.upgraded = None
        #: Data after a request for an upgrade, None before one.
        self.rest = None
        self._parser = httptools.HttpRequestParser(self)
        self._waiting = collections.deque()
        self._writable = None
        self._paused = False

    # -- asyncio ----------------------------------------------------------

    def connection_made(self, transport):
        self.transport = transport
        self._server.connections.add(self)

    def connection_lost(self, exc):
        self._server.connections.discard(self)
        self.transport = None
        self._waiting.clear()
        if self.upgraded is not None:
            self.upgraded.lost()
        self.resume_writing()
        if self.task is not None:
            self.task.cancel()

    def data_received(self, data):
        if self.upgraded is not None:
            self.upgraded.received(data)
            return
        if self.rest is not None:
            self.rest += data
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as exc:
            self.rest = data[exc.args[0]:]
            self._waiting[-1].keep_alive = False
            self.transport.pause_reading()
        except httptools.HttpParserError as exc:
            LOG.debug('Invalid request: %s', exc)
            if self.task is None:
                self.transport.write(
                    b'HTTP/1.1 400 Bad Request\r\nConnection: close\r\n'
                    b'Content-Length: 0\r\n\r\n')
            self.transport.close()
            return
        if self.task is None and self._waiting:
            self.task = self._loop.create_task(self._answer())
        elif len(self._waiting) > _PIPELINED:
            self._paused = True
            self.transport.pause_reading()

    def pause_writing(self):
        self._writable = self._loop.create_future()

    def resume_writing(self):
        if self._writable is not None:
            if not self._writable.done():
                self._writable.set_result(None)
            self._writable = None

    # -- httptools --------------------------------------------------------

    def on_message_begin(self):
        self._url = b''
        self._headers = multidict.CIMultiDict()
        self._body = []
        self._size = 0

    def on_url(self, url):
        self._url += url

    def on_header(self, name, value):
        self._headers.add(name.decode('latin-1'),
                          value.decode('utf-8', 'surrogateescape'))

    def on_headers_complete(self):
        if self._headers.get('Expect', '').lower() == '100-continue':
            self.transport.write(_CONTINUE)

    def on_body(self, data):
        self._size += len(data)
        if self._size <= self._server.limit:
            self._body.append(data)

    def on_message_complete(self):
        parser = self._parser
        url = self._url.decode('utf-8', 'surrogateescape')
        if url[:1] != '/':
            parts = urllib.parse.urlsplit(url)
            url = f'{parts.path or "/"}?{parts.query}'
        path, _, query = url.partition('#')[0].partition('?')
        self._waiting.append(Request(
            self, parser.get_method().decode(), path, query, self._headers,
            b''.join(self._body) if self._size <= self._server.limit
            else None, parser.get_http_version(),
            parser.should_keep_alive()))
        self._body = []

    # -- responses --------------------------------------------------------

    async def _answer(self):
        try:
            while self._waiting:
                request = self._waiting.popleft()
                response = await self._respond(request)
                if request.begun not in (None, response):
                    raise ConnectionAbortedError('the response has failed')
                await response.send(request)
                if self.transport is None:
                    return
                if not request.keep_alive:
                    self.transport.close()
                    return
                if self._paused:
                    self._paused = False
                    self.transport.resume_reading()
        except ConnectionError:
            if self.transport is not None:
                self.transport.abort()
        finally:
            self.task = None

    async def _respond(self, request):
        try:
            return await self._server.handler(request)
        except ConnectionError:
            raise
        except Exception:
            LOG.exception('%s %s failed', request.method, request.path)
            return Response(status=500, text='Internal Server Error')

    async def write(self, data: bytes) -> None:
        """Send data, and wait while the client reads slower.

        :raises ConnectionError: the client is gone.
        """
        if self.transport is None:
            raise ConnectionResetError('the client is gone')
        self.transport.write(data)
        if self._writable is not None:
            await asyncio.shield(self._writable)
            if self.transport is None:
                raise ConnectionResetError('the client is gone')

    def end(self) -> None:
        """Cancel the handler and close the connection."""
        if self.task is not None:
            self.task.cancel()
        if self.transport is not None:
            self.transport.close()
