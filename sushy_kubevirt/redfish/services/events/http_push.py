# SPDX-License-Identifier: Apache-2.0
"""HTTP/1.1 client that POSTs JSON to a server over a persistent connection.

It runs on asyncio, so that a hundred subscribers need one thread, and
implements only the parts of HTTP that this needs. Redirects are not followed,
because they could lead to hosts that are not allowed.
"""

from __future__ import annotations

import asyncio
from collections import abc
import ssl
import typing

if typing.TYPE_CHECKING:
    from sushy_kubevirt.machine.media import url_policy

#: Largest number of bytes of a response's head and of its body. After a
#: longer body, the connection is closed instead of read to the end.
_MAX_BYTES = 65536

#: Seconds for which an idle connection is reused. Servers close idle
#: connections after 5 seconds or more.
_KEEP_SECONDS = 4.0


class Failed(Exception):
    """A POST failed or was refused; the text has the server as subject."""


def tls(verify: bool) -> ssl.SSLContext:
    """Create a TLS context.

    :param verify: whether to verify the server's certificate, against the
        CAs of this host
    """
    context = ssl.create_default_context()
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class Poster:
    """Client of one server.

    :param resolve: returns the IP addresses to connect to
    :param context: for https
    """

    def __init__(self, url: url_policy.ParsedUrl,
                 resolve: abc.Callable[[], abc.Awaitable[
                     abc.Iterable[str]]],
                 context: ssl.SSLContext | None = None) -> None:
        self._url = url
        self._resolve = resolve
        self._context = context if url.scheme == 'https' else None
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
        :raises: `Failed` unless the code is 2xx; `OSError`,
            `ssl.SSLError`, `asyncio.IncompleteReadError`
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
            code = await self._exchange(data)
        except (OSError, asyncio.IncompleteReadError):
            self.close()
            if not kept:
                raise
            # The server may have closed the idle connection: try a new one.
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
        while True:
            code, headers = await _head(reader)
            if code >= 200:
                break
        if not await _body(reader, code, headers):
            self.close()
        return code

    async def _connect(self) -> tuple[asyncio.StreamReader,
                                      asyncio.StreamWriter]:
        failure: Exception = Failed('it has no address')
        for address in await self._resolve():
            try:
                return await asyncio.open_connection(
                    address, self._url.port, limit=_MAX_BYTES,
                    ssl=self._context, server_hostname=self._url.host
                    if self._context else None)
            except OSError as e:
                failure = e
        raise failure

    def close(self) -> None:
        """Close the connection."""
        if self._streams is not None:
            self._streams[1].close()
        self._streams = None


async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    """Read a response's head. :returns: code, headers in lower case"""
    try:
        head = await reader.readuntil(b'\r\n\r\n')
    except asyncio.LimitOverrunError:
        raise Failed('the head of its response is too long') from None
    first, *lines = head.decode('latin-1').split('\r\n')
    words = first.split(' ', 2)
    if (len(words) < 2 or not words[0].startswith('HTTP/1.')
            or not words[1].isdigit()):
        raise Failed('it does not speak HTTP')
    headers = {}
    for line in lines:
        name, _, value = line.partition(':')
        headers[name.strip().lower()] = value.strip().lower()
    if words[0] == 'HTTP/1.0':
        headers.setdefault('connection', 'close')
    return int(words[1]), headers


async def _body(reader: asyncio.StreamReader, code: int,
                headers: dict[str, str]) -> bool:
    """Read and discard the response body.

    :returns: whether the connection can be used again; not after a long one
    """
    length = headers.get('content-length', '')
    if headers.get('connection') != 'close':
        if code == 204:
            return True
        if ('transfer-encoding' not in headers and length.isdigit()
                and int(length) <= _MAX_BYTES):
            await reader.readexactly(int(length))
            return True
        if headers.get('transfer-encoding') == 'chunked':
            return await _chunks(reader)
    return False


async def _chunks(reader: asyncio.StreamReader) -> bool:
    """Read a chunked body. :returns: whether it was read completely"""
    left = _MAX_BYTES
    while left > 0:
        try:
            line = await reader.readuntil(b'\r\n')
        except asyncio.LimitOverrunError:
            return False
        try:
            size = int(line.split(b';')[0], 16)
        except ValueError:
            return False
        if size == 0:
            # The request allowed no trailers.
            return await reader.readuntil(b'\r\n') == b'\r\n'
        left -= size
        if not 0 < size <= _MAX_BYTES:
            return False
        await reader.readexactly(size + 2)
    return False
