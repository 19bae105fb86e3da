# SPDX-License-Identifier: Apache-2.0
"""POSTs JSON to one server, over a connection that is kept.

As much of HTTP/1.1 as that takes, on asyncio: a hundred subscribers take one
thread. Redirects are not followed, as they could lead where none may go.
"""

import asyncio
import ssl

#: Bytes of an answer's head and of a body that is read to keep the
#: connection; what is longer ends it.
_LONGEST = 65536

#: Seconds that a connection is kept without use. Servers close them after 5
#: or more.
_KEEP = 4.0


class Failed(Exception):
    """It did not get there, or was not taken."""


def tls(verify):
    """A context for HTTPS.

    :param verify: whether certificates are checked, against the CAs of this
        host
    """
    context = ssl.create_default_context()
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class Poster:
    """A way to one server.

    :param place: an `addresses.Place`
    :param resolve: coroutine function that returns the addresses to connect
        to
    :param context: an `ssl.SSLContext`, for https
    """

    def __init__(self, place, resolve, context=None):
        self._place = place
        self._resolve = resolve
        self._context = context if place.scheme == 'https' else None
        self._reader = self._writer = None
        self._used_at = 0
        shown = f'[{place.host}]' if ':' in place.host else place.host
        self._host = shown if place.port in (80, 443) else (
            '%s:%d' % (shown, place.port))

    async def post(self, body, headers):
        """Send a body and read the answer's code.

        :param body: bytes
        :param headers: sequence of (name, value)
        :raises: `Failed` unless it was a success; `OSError`,
            `ssl.SSLError`, `asyncio.IncompleteReadError`
        """
        head = [f'POST {self._place.path} HTTP/1.1',
                'Host: ' + self._host, 'User-Agent: sushy-kubevirt',
                'Accept: */*', 'Content-Type: application/json',
                'OData-Version: 4.0', f'Content-Length: {len(body)}']
        head += ['%s: %s' % pair for pair in headers]
        data = '\r\n'.join([*head, '', '']).encode('latin-1') + body
        kept = self._writer is not None
        now = asyncio.get_running_loop().time()
        if kept and (now - self._used_at > _KEEP or self._reader.at_eof()):
            self.close()
            kept = False
        try:
            code = await self._exchange(data)
        except (OSError, asyncio.IncompleteReadError):
            self.close()
            if not kept:
                raise
            # The server has closed what was kept, as it may.
            code = await self._exchange(data)
        except BaseException:
            self.close()
            raise
        self._used_at = asyncio.get_running_loop().time()
        if not 200 <= code < 300:
            raise Failed('it answered %d' % code)

    async def _exchange(self, data):
        if self._writer is None:
            await self._connect()
        self._writer.write(data)
        await self._writer.drain()
        while True:
            code, headers = await self._head()
            if code >= 200:
                break
        await self._body(code, headers)
        return code

    async def _connect(self):
        failure = Failed('it has no address')
        for address in await self._resolve():
            try:
                self._reader, self._writer = await asyncio.open_connection(
                    address, self._place.port, limit=_LONGEST,
                    ssl=self._context, server_hostname=self._place.host
                    if self._context else None)
                return
            except OSError as e:
                failure = e
        raise failure

    async def _head(self):
        try:
            head = await self._reader.readuntil(b'\r\n\r\n')
        except asyncio.LimitOverrunError:
            raise Failed('its answer has no end') from None
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

    async def _body(self, code, headers):
        """Read what is to be thrown away, if that is short."""
        length = headers.get('content-length', '')
        if headers.get('connection') != 'close':
            if code == 204:
                return
            if ('transfer-encoding' not in headers and length.isdigit()
                    and int(length) <= _LONGEST):
                await self._reader.readexactly(int(length))
                return
            if headers.get('transfer-encoding') == 'chunked':
                if await self._chunks():
                    return
        self.close()

    async def _chunks(self):
        """:returns: whether they ended"""
        left = _LONGEST
        while left > 0:
            try:
                line = await self._reader.readuntil(b'\r\n')
            except asyncio.LimitOverrunError:
                return False
            try:
                size = int(line.split(b';')[0], 16)
            except ValueError:
                return False
            if size == 0:
                # No trailers were asked for.
                return await self._reader.readuntil(b'\r\n') == b'\r\n'
            left -= size
            if not 0 < size <= _LONGEST:
                return False
            await self._reader.readexactly(size + 2)
        return False

    def close(self):
        """Let go of the connection."""
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None
