# SPDX-License-Identifier: Apache-2.0
"""HTTP/1.1 client that POSTs JSON to a server over a persistent connection.

It runs on asyncio, so that a hundred subscribers need one thread, and parses
responses with uvicorn's parser. Redirects are not followed, because they could
lead to hosts that are not allowed.
"""

from __future__ import annotations

import asyncio
from collections import abc
import functools
import re
import ssl
import typing

import httptools

if typing.TYPE_CHECKING:
    from sushy_kubevirt.machine.media import url_policy

#: Largest number of bytes of a response. After a longer one, the connection is
#: closed instead of read to the end.
_MAX_BYTES = 65536

_STATUS = re.compile(rb'HTTP/1[.]\d ([2-5]\d\d)')

#: Seconds for which an idle connection is reused. Servers close idle
#: connections after 5 seconds or more.
_KEEP_SECONDS = 4.0


class Failed(Exception):
    """A POST failed or was refused; the text has the server as subject."""


@functools.cache
def tls(verify: bool) -> ssl.SSLContext:
    """Return the TLS context of all clients.

    :param verify: whether to verify the server's certificate, against the
        CAs of this host
    """
    context = ssl.create_default_context()
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class _Response:
    """A response, and the callbacks of its parser.

    :ivar code: status code; 0 until the head is complete
    :ivar complete: whether there is nothing more to read
    :ivar reusable: whether the connection can be used again
    """

    def __init__(self) -> None:
        self.code = 0
        self.complete = self.reusable = False
        self._length = 0
        self.parser = httptools.HttpResponseParser(self)

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b'content-length':
            self._length = int(value)

    def on_headers_complete(self) -> None:
        code = self.parser.get_status_code()
        self.code = code if code >= 200 else 0      # another one follows
        # Else the end of the body is that of the connection, or far away.
        self.complete = bool(self.code) and not (
            self.parser.should_keep_alive() and self._length <= _MAX_BYTES)

    def on_message_complete(self) -> None:
        self.complete = bool(self.code)
        self.reusable = self.complete and self.parser.should_keep_alive()

    def fail(self, received: bytes) -> None:
        """Take the code if anything else of the response is invalid."""
        if not self.code:
            status = _STATUS.match(received)
            if status is None:
                raise Failed('it does not speak HTTP')
            self.code = int(status[1])
        self.complete, self.reusable = True, False


class Poster:
    """Client of one server.

    :param resolve: returns the IP addresses to connect to
    :param verify: see `tls`
    """

    def __init__(self, url: url_policy.ParsedUrl,
                 resolve: abc.Callable[[], abc.Awaitable[
                     abc.Iterable[str]]], verify: bool = False) -> None:
        self._url = url
        self._resolve = resolve
        self._context = tls(verify) if url.scheme == 'https' else None
        self._streams: tuple[asyncio.StreamReader,
                             asyncio.StreamWriter] | None = None
        self._used = 0.0    # time of the event loop
        shown = f'[{url.host}]' if ':' in url.host else url.host
        self._host = shown if url.port in (80, 443) else (
            f'{shown}:{url.port}')

    async def post(self, body: bytes, headers: abc.Iterable[
            tuple[str, str]]) -> None:
        """POST a body and check the response's status code.

        :param body: JSON
        :param headers: (name, value), sent in addition
        :raises: `Failed` unless the code is 2xx; `OSError`
        """
        head = [f'POST {self._url.path} HTTP/1.1',
                'Host: ' + self._host, 'User-Agent: sushy-kubevirt',
                'Accept: */*', 'Content-Type: application/json',
                'OData-Version: 4.0', f'Content-Length: {len(body)}']
        head += [f'{name}: {value}' for name, value in headers]
        data = '\r\n'.join([*head, '', '']).encode('latin-1') + body
        now = asyncio.get_running_loop().time()
        if self._streams is not None and (
                now - self._used > _KEEP_SECONDS
                or self._streams[0].at_eof()):
            self.close()
        kept = self._streams is not None
        try:
            try:
                code = await self._exchange(data)
            except OSError:
                self.close()
                if not kept:
                    raise
                # The server may have closed the idle connection: try a new
                # one.
                code = await self._exchange(data)
        except BaseException:
            self.close()
            raise
        self._used = asyncio.get_running_loop().time()
        if not 200 <= code < 300:
            raise Failed(f'it answered {code}')

    async def _exchange(self, data: bytes) -> int:
        if self._streams is None:
            self._streams = await self._connect()
        reader, writer = self._streams
        writer.write(data)
        await writer.drain()
        response, received = _Response(), b''
        while not response.complete:
            more = await reader.read(_MAX_BYTES - len(received))
            received += more
            try:
                response.parser.feed_data(more)
            except httptools.HttpParserError:
                response.fail(received)
            if not more or len(received) == _MAX_BYTES:
                break
        if not response.code and more:
            raise Failed('the head of its response is too long')
        if not response.code:
            raise ConnectionResetError('it has closed the connection')
        if not response.reusable:
            self.close()
        return response.code

    async def _connect(self) -> tuple[asyncio.StreamReader,
                                      asyncio.StreamWriter]:
        failure: Exception = Failed('it has no address')
        for address in await self._resolve():
            try:
                return await asyncio.open_connection(
                    address, self._url.port, ssl=self._context,
                    server_hostname=self._url.host if self._context
                    else None)
            except OSError as e:
                failure = e
        raise failure

    def close(self) -> None:
        """Close the connection."""
        if self._streams is not None:
            self._streams[1].close()
        self._streams = None
