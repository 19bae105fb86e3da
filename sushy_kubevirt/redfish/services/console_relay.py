# SPDX-License-Identifier: Apache-2.0
"""Relays a console of a VM to the WebSocket of a client.

Binary messages are the bytes of the port. Text messages from the service are
sentences for the user about the state of the connection.
"""

from __future__ import annotations

import asyncio
from collections import abc
import contextlib
import logging
import typing

from sushy_kubevirt.machine import console
from sushy_kubevirt.redfish.services import server_threads

if typing.TYPE_CHECKING:
    from sushy_kubevirt.machine import machine

LOG = logging.getLogger(__name__)

#: Seconds between checks whether the client is still logged in and whether
#: the server stops.
CHECK_SECONDS = 2.0

#: Seconds for the last sentence, if the client does not read.
_LAST_SECONDS = 1.0

# Codes and reasons of close frames (RFC 6455, section 7.4, and IANA's registry
# of WebSocket close codes). The web page connects again by itself after
# all but 1000, 1008 and those from 4000 on.
_CLIENT = 1000, 'The client has disconnected.'
_ENDED = 1012, 'The VM has stopped or restarted, or moved to another node.'
_STOPPING = 1001, 'The BMC is stopping.'
_LOGGED_OUT = 1008, 'The login is no longer valid. Log in again.'
_FAILED = 1011, 'The console failed. See the log of the BMC.'
_TOO_MANY = 1013, ('The maximum number of consoles is open. Close one, or '
                   'try again later.')
_TAKEN = 4000, 'Another client has probably connected. Connect again.'


#: Code and reason of a close frame.
_End: typing.TypeAlias = tuple[int, str]


class Socket(typing.Protocol):
    """The connection of a client, such as a `websocket.WebSocket`."""

    async def send(self, message: bytes | str, /) -> None:
        """Send a message."""

    async def receive(self) -> bytes | None:
        """Return the next message; None at the end."""

    async def end(self, code: int, reason: str) -> None:
        """Close the connection."""


class Relay:
    """Serves one connection.

    :param name: of the console and its client, for the log
    :param find: returns the machine, see `console.Console`
    :param authorized: tells whether the client is still logged in; may block
    :param take: reserves a slot, see `server_threads.Slots`
    """

    def __init__(self, name: str, find: abc.Callable[[], machine.Machine],
                 port: console.Port, authorized: abc.Callable[[], bool],
                 take: abc.Callable[[], contextlib.ExitStack | None]) -> None:
        self._name = name
        self._find = find
        self._port = port
        self._authorized = authorized
        self._take = take

    async def run(self, socket: Socket) -> None:
        """Relay until one side ends, and close the connection.

        A browser hides why a handshake was refused, so a console too many is
        closed here.
        """
        slot = self._take()
        if slot is None:
            LOG.warning('%s: refused: %s', self._name, _TOO_MANY[1])
            await socket.end(*_TOO_MANY)
            return
        LOG.info('%s: opened', self._name)
        with slot:
            await self._relay(socket)

    async def _relay(self, socket: Socket) -> None:
        self._socket = socket
        self._notice = ''
        self._noticed = asyncio.Event()
        self._console = console.Console(self._find, socket.send, self._tell,
                                        self._port)
        tasks: list[asyncio.Task[_End]] = list(map(asyncio.ensure_future, (
            self._connect(), self._forward_input(), self._forward_notices(),
            self._check())))
        end = _STOPPING
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            end = next(task for task in tasks if task.done()).result()
        except ConnectionError:
            end = _CLIENT
        except Exception:
            LOG.exception('%s: failed', self._name)
            end = _FAILED
        finally:
            LOG.info('%s: closed: %s', self._name, end[1])
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._notice:
                with contextlib.suppress(ConnectionError, TimeoutError):
                    async with asyncio.timeout(_LAST_SECONDS):
                        await socket.send(self._notice)
            await socket.end(*end)

    async def _connect(self) -> _End:
        taken = await self._console.run()
        return _TAKEN if taken else _ENDED

    async def _forward_input(self) -> _End:
        while (data := await self._socket.receive()) is not None:
            await self._console.send(data)
        return _CLIENT

    def _tell(self, text: str) -> None:
        # Of several that wait for a slow client, the last one counts.
        self._notice = text
        self._noticed.set()

    async def _forward_notices(self) -> typing.NoReturn:
        while True:
            await self._noticed.wait()
            self._noticed.clear()
            text, self._notice = self._notice, ''
            await self._socket.send(text)

    async def _check(self) -> _End:
        while True:
            if server_threads.stopping():
                return _STOPPING
            if not await asyncio.to_thread(self._authorized):
                return _LOGGED_OUT
            await asyncio.sleep(CHECK_SECONDS)
