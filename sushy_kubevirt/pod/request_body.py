# SPDX-License-Identifier: Apache-2.0
"""Bodies of requests that the application reads while they arrive."""

from __future__ import annotations

import asyncio
from concurrent import futures
import io
import typing

from sushy_kubevirt.pod import http_connection

#: Seconds for the application to respond to a longer body, which it reads
#: while it arrives. CDI may process an image for an hour, see
#: `machine.media.upload_stream`.
_LONG_ANSWER_SECONDS = 3600 + http_connection.ANSWER_SECONDS

#: Seconds for a client to send a piece of a longer body.
_PIECE_SECONDS = 60


class RequestBody(io.RawIOBase):
    """A body that the application reads while it arrives.

    uvicorn stops reading from the client while enough was not read here.

    :param loop: of the server
    :param receive: gets a piece
    :param piece: what was received
    :param more: whether more follows
    :param pause: seconds between pieces, for other clients of the process
    """

    def __init__(self, loop: asyncio.AbstractEventLoop,
                 protocol: http_connection.Connection,
                 receive: http_connection.Receive, piece: bytes, more: bool,
                 pause: float) -> None:
        super().__init__()
        self.more = more
        self._loop = loop
        self._protocol = protocol
        self._receive_message = receive
        self._piece = memoryview(piece)
        self._pause = pause

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: typing.Any) -> int:
        """Read what there is, at least a byte unless the body has ended.

        :raises: ConnectionError
        """
        while len(buffer) and not self._piece and self.more:
            receiving = self._receive()
            try:
                self._piece = memoryview(asyncio.run_coroutine_threadsafe(
                    receiving, self._loop).result())
            except (RuntimeError, futures.CancelledError):
                receiving.close()
                raise ConnectionAbortedError('the server stops') from None
        size = min(len(buffer), len(self._piece))
        buffer[:size] = self._piece[:size]
        self._piece = self._piece[size:]
        return size

    async def _receive(self) -> bytes:
        protocol = self._protocol
        protocol.wait_for_client(_PIECE_SECONDS)
        message = await self._receive_message()
        protocol.wait_for_server(_LONG_ANSWER_SECONDS)
        if message['type'] == 'http.disconnect':
            raise ConnectionResetError('the client has disconnected')
        self.more = message['more_body']
        if self._pause:
            await asyncio.sleep(self._pause)
        return message['body']
