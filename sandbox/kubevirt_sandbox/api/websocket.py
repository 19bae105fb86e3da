# SPDX-License-Identifier: Apache-2.0
"""WebSockets of the server, for binary messages (RFC 6455).

``websockets`` reads and makes the frames.
"""
import asyncio
import collections
from collections.abc import AsyncIterator
import logging

from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import web

#: Largest message that is accepted, bytes.
_LARGEST = 4 * 2 ** 20

#: Bytes that may wait for the handler before the client has to.
_BACKLOG = 2 ** 20

#: Seconds in which the client should answer the closing frame.
_CLOSING = 10


class WebSocket:
    """A connection that a request upgrades.

    :param protocols: subprotocols that the handler supports.
    """

    def __init__(self, protocols: tuple[str, ...]):
        self._protocols = protocols
        self._connection = None
        self._frames = None
        self._messages = collections.deque()
        self._size = 0
        self._parts = None
        self._news = asyncio.Event()
        self._over = False

    async def prepare(self, request: web.Request) -> None:
        """Answer the handshake.

        :raises errors.ApiError: 400, it is none.
        """
        # The library is imported by the first client that needs it.
        from websockets import frames
        from websockets import protocol
        from websockets import utils
        headers = request.headers
        key = headers.get('Sec-WebSocket-Key', '')
        if not key or headers.get('Sec-WebSocket-Version') != '13':
            raise errors.bad_request('websocket: not a handshake of RFC 6455')
        lines = ['HTTP/1.1 101 Switching Protocols', 'Upgrade: websocket',
                 'Connection: upgrade',
                 'Sec-WebSocket-Accept: ' + utils.accept_key(key)]
        wanted = [name.strip() for header in headers.getall(
            'Sec-WebSocket-Protocol', ()) for name in header.split(',')]
        chosen = next((n for n in wanted if n in self._protocols), None)
        if chosen:
            lines.append('Sec-WebSocket-Protocol: ' + chosen)
        connection = self._connection = request.connection
        request.begun = self
        logger = logging.getLogger('websockets')
        self._frames = protocol.Protocol(
            protocol.SERVER, state=protocol.State.OPEN, max_size=_LARGEST,
            logger=logger)
        self._codes = frames.Opcode
        await connection.write('\r\n'.join([*lines, '', '']).encode())
        connection.upgraded = self
        if connection.rest:
            self.received(connection.rest)
        connection.transport.resume_reading()

    # -- the connection ---------------------------------------------------

    def received(self, data: bytes) -> None:
        """Take data of the client."""
        self._frames.receive_data(data)
        for frame in self._frames.events_received():
            if frame.opcode == self._codes.CLOSE:
                self._over = True
            elif frame.opcode < self._codes.CLOSE:
                self._add(frame)
        self._flush()
        self._news.set()
        if self._size > _BACKLOG:
            self._connection.transport.pause_reading()

    def lost(self) -> None:
        """Note that the connection is closed."""
        self._over = True
        self._news.set()

    def _add(self, frame):
        if frame.opcode != self._codes.CONT:
            self._parts = [] if frame.opcode == self._codes.BINARY else None
        if self._parts is None:
            return  # text, which no handler knows
        self._parts.append(frame.data)
        if frame.fin:
            message = b''.join(self._parts)
            self._messages.append(message)
            self._size += len(message)
            self._parts = None

    def _flush(self):
        transport = self._connection.transport
        for data in self._frames.data_to_send():
            if transport is None:
                return
            if data:
                transport.write(data)
            else:
                self._over = True
                transport.close()

    # -- the handler ------------------------------------------------------

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the binary messages until one side closes."""
        while True:
            while self._messages:
                message = self._messages.popleft()
                self._size -= len(message)
                if self._size <= _BACKLOG and (
                        self._connection.transport is not None):
                    self._connection.transport.resume_reading()
                yield message
            if self._over:
                return
            self._news.clear()
            await self._news.wait()

    async def send_bytes(self, data: bytes) -> None:
        """Send a binary message, and wait while the client reads slower.

        :raises ConnectionError: the connection is closed.
        """
        if self._over:
            raise ConnectionResetError('the WebSocket is closed')
        self._frames.send_binary(data)
        for frame in self._frames.data_to_send():
            await self._connection.write(frame)

    async def close(self) -> None:
        """Send the closing frame and wait for the client's."""
        if not self._over:
            self._frames.send_close(1000)
            self._flush()
        try:
            async with asyncio.timeout(_CLOSING):
                while not self._over:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            pass

    async def send(self, request: web.Request) -> None:
        """Close the connection after the handler has returned."""
        request.keep_alive = False
