# SPDX-License-Identifier: Apache-2.0
"""The serial console of a BMC on stdin and stdout, by Redfish's WebSocket.

It is opened again whenever it ends, until the user ends it. A terminal is in
raw mode only while it is connected, so that Ctrl+C ends all other waiting.
"""

from __future__ import annotations

import asyncio
import atexit
from collections import abc
import contextlib
import os
import selectors
import signal
import sys
import termios
import time
import tty
import typing

from websockets.asyncio import client as websockets
from websockets import exceptions

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import retry
from sushy_kubevirt.remote import wording

if typing.TYPE_CHECKING:
    import socket
    import types

    from sushy_kubevirt.remote import redfish

#: Shortest and longest pause before the next attempt to connect, in seconds.
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0

#: Seconds for the handshake; between pings, and for the pong, which detect a
#: connection that a sleep of the laptop has broken; for the closing handshake.
_OPEN, _PING, _CLOSE = 10, 20, 1

#: Code of a close frame with which the BMC refuses a console too many.
_TOO_MANY = 1013

#: Bytes that are read at once.
_CHUNK = 4096

_STDIN, _STDOUT = 0, 1

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)

_HELP = ('~.  end the console', '~?  show this list',
         '~~  send the character ~', 'at the beginning of a line')


class Escapes:
    """Finds escape sequences in what is typed, as those of ssh(1)."""

    def __init__(self) -> None:
        self._line_begins, self._escaped = True, False

    def read(self, data: bytes) -> tuple[bytes, str]:
        """Split input.

        :returns: what to send, and the commands among ``.`` and ``?``; nothing
            after ``.`` counts
        """
        sent, commands = bytearray(), ''
        for byte in data:
            character = chr(byte)
            if self._escaped:
                self._escaped = False
                if character in '.?':
                    commands += character
                    if character == '.':
                        break
                    continue
                if character != '~':
                    sent += b'~'
            elif self._line_begins and character == '~':
                self._escaped = True
                continue
            sent.append(byte)
            self._line_begins = character in '\r\n'
        return bytes(sent), commands


def run(connect: abc.Callable[[], redfish.Client]) -> int:
    """Serve stdin and stdout with the console until the user ends it.

    Sentences of the BMC and about the connection go to stderr.

    :param connect: returns a client of the BMC with present credentials;
        called for each connection
    :returns: exit status 0
    :raises: SystemExit, with 128 and the number of a signal;
        `errors.MachineError` if the first connection fails, or too many
        consoles are open
    """
    for number in _SIGNALS:
        signal.signal(number, _exit)
    if os.isatty(_STDIN):
        # Beside `_raw_mode`, whose end a signal may interrupt.
        atexit.register(termios.tcsetattr, _STDIN, termios.TCSANOW,
                        termios.tcgetattr(_STDIN))
    _Console().run(connect)
    return 0


def _exit(number: int, _frame: types.FrameType | None) -> typing.NoReturn:
    for other in _SIGNALS:
        signal.signal(other, signal.SIG_IGN)
    raise SystemExit(128 + number)


class _Console:

    def __init__(self) -> None:
        self._terminal = os.isatty(_STDIN)
        self._escapes = Escapes()
        self._opened = self._ended = False
        self._tries = 0
        self._said = ''

    def run(self, connect: abc.Callable[[], redfish.Client]) -> None:
        """Connect until the user ends it."""
        # Other selectors do not accept files, nor macOS' a terminal.
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(
                selectors.SelectSelector())) as runner:
            while True:
                try:
                    client = connect()
                    connection = runner.run(self._relay(
                        client, _path(client), client.dial()))
                except errors.MachineError as error:
                    if not self._opened:
                        raise
                    reason = f'{error}. Trying'
                else:
                    if self._ended:
                        return
                    reason = connection.close_reason or (
                        'The connection is lost.')
                    if connection.close_code == _TOO_MANY:
                        raise errors.MachineError(reason)
                    reason += ' Connecting'
                self._say(f'{reason} again. Ctrl+C ends')
                time.sleep(retry.pause(
                    self._tries, FIRST_PAUSE, LONGEST_PAUSE))
                self._tries += 1

    async def _relay(self, client: redfish.Client, path: str,
                     stream: socket.socket) -> websockets.ClientConnection:
        """Copy in both directions until the connection ends."""
        tls = client.ssl_context
        options: dict[str, typing.Any] = {} if tls is None else {
            'ssl': tls, 'server_hostname': client.server_name}
        scheme = 'ws' if tls is None else 'wss'
        try:
            connection = await websockets.connect(
                f'{scheme}://{client.server_name}{path}', sock=stream,
                proxy=None, compression=None, open_timeout=_OPEN,
                ping_interval=_PING, ping_timeout=_PING, close_timeout=_CLOSE,
                additional_headers=client.headers, **options)
        except (exceptions.WebSocketException, OSError) as error:
            stream.close()
            raise client.error(
                f'its console cannot be opened: {error}') from error
        self._opened = True
        with _raw_mode():
            self._say(f'Connected to the BMC of {client.bmc.namespace}/'
                      f'{client.bmc.name}. "~." ends the console, "~?" lists '
                      'more')
            typed = asyncio.create_task(self._send(connection))
            async with connection:
                with contextlib.suppress(exceptions.ConnectionClosed):
                    async for message in connection:
                        self._tries = 0
                        self._show(message)
                typed.cancel()
        await asyncio.wait((typed,))
        return connection

    async def _send(self, connection: websockets.ClientConnection) -> None:
        with contextlib.suppress(exceptions.ConnectionClosed):
            while True:
                await _readable(_STDIN)
                data = b''
                with contextlib.suppress(OSError):
                    data = os.read(_STDIN, _CHUNK)
                sent, commands = self._escapes.read(data)
                if sent:
                    await connection.send(sent)
                for line in _HELP if '?' in commands else ():
                    self._say(line)
                if '.' in commands or not data and self._terminal:
                    self._ended = True
                    await connection.close()
                elif not data:
                    return

    def _show(self, message: str | bytes) -> None:
        if isinstance(message, str):
            self._say(message)
            return
        while message:
            message = message[os.write(_STDOUT, message):]

    def _say(self, text: str) -> None:
        if text == self._said:
            return
        self._said = text
        # The guest's cursor may be anywhere, and raw mode adds no return.
        begin, end = ('\r\n', '\r\n') if self._terminal else ('', '\n')
        sys.stderr.write(f'{begin}[{wording.printable(text)}]{end}')
        sys.stderr.flush()


def _path(client: redfish.Client) -> str:
    """Return the path of the WebSocket."""
    console = client.get().get('SerialConsole')
    if console is None:
        raise client.error('its VM has no serial port: remove '
                           '"autoattachSerialConsole" from its devices')
    if 'WebSocket' not in console:
        raise client.error(
            'does not serve consoles: "redfish.webPage" is false. "ipmitool '
            'sol activate" may work')
    return str(console['WebSocket']['ConsoleURI'])


async def _readable(descriptor: int) -> None:
    """Wait until a descriptor can be read."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)


@contextlib.contextmanager
def _raw_mode() -> abc.Iterator[None]:
    """Have a terminal on stdin pass on each key, and restore it afterwards."""
    if not os.isatty(_STDIN):
        yield
        return
    before = termios.tcgetattr(_STDIN)
    try:
        tty.setraw(_STDIN)      # discards what was typed before
        yield
    finally:
        # TCSADRAIN would wait for output that a stopped terminal keeps.
        termios.tcsetattr(_STDIN, termios.TCSANOW, before)
        sys.stderr.write('\n')
