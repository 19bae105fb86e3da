# SPDX-License-Identifier: Apache-2.0
"""The serial console of a BMC on stdin and stdout, by Redfish's WebSocket.

It is opened again whenever it ends, until the user ends it. Blocking calls
have daemon threads: a terminal that is stopped, or a BMC that does not answer,
must not keep the process from ending.
"""

from __future__ import annotations

import asyncio
from collections import abc
import contextlib
import os
import signal
import sys
import termios
import threading
import tty
import typing

from websockets.asyncio import client as websockets
from websockets import exceptions

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import retry
from sushy_kubevirt.remote import endpoint
from sushy_kubevirt.remote import redfish
from sushy_kubevirt.remote import wording

#: Shortest and longest pause before the next attempt to connect, in seconds.
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0

#: Seconds for the handshake; between pings, and for the pong, which detect a
#: connection that a sleep of the laptop has broken; for the closing handshake.
_OPEN, _PING, _CLOSE = 10, 20, 1

#: Code of a close frame with which the BMC refuses a console too many.
_TOO_MANY = 1013

#: Bytes that are read at once, and reads that wait to be sent.
_CHUNK, _AHEAD = 4096, 64

_STDIN, _STDOUT = 0, 1

_HELP = ('~.  end the console', '~?  show this list',
         '~~  send the character ~', 'at the beginning of a line')

ResultT = typing.TypeVar('ResultT')


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

    A terminal is in raw mode meanwhile. Sentences of the BMC and about the
    connection go to stderr.

    :param connect: returns a client of the BMC with present credentials;
        called for each connection
    :returns: exit status: 0, or 128 and the number of a signal
    :raises: `errors.MachineError` if the first connection fails, or too many
        consoles are open
    """
    return asyncio.run(_run(connect))


async def _run(connect: abc.Callable[[], redfish.Client]) -> int:
    return await _Console(connect).run()


class _Console:

    def __init__(self, connect: abc.Callable[[], redfish.Client]) -> None:
        self._connect_bmc = connect
        self._terminal = os.isatty(_STDIN)
        self._loop = asyncio.get_running_loop()
        self._status: asyncio.Future[int] = self._loop.create_future()
        self._typed: asyncio.Queue[bytes] = asyncio.Queue(_AHEAD)
        self._connected = False
        self._said = ''

    async def run(self) -> int:
        for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
            self._loop.add_signal_handler(number, self._end, 128 + number)
        with contextlib.ExitStack() as stack:
            serving = asyncio.create_task(self._serve(stack))
            await asyncio.wait((serving, self._status),
                               return_when=asyncio.FIRST_COMPLETED)
            if not self._status.done():
                serving.result()        # raises its error
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
        return self._status.result()

    def _end(self, status: int) -> None:
        if not self._status.done():
            self._status.set_result(status)

    def _say(self, text: str) -> None:
        if text == self._said:
            return
        self._said = text
        # The guest's cursor may be anywhere, and raw mode adds no return.
        begin, end = ('\r\n', '\r\n') if self._terminal else ('', '\n')
        sys.stderr.write(f'{begin}[{wording.printable(text)}]{end}')
        sys.stderr.flush()

    async def _serve(self, stack: contextlib.ExitStack) -> typing.NoReturn:
        """Connect again and again.

        :param stack: takes what restores the terminal
        """
        tries, begun = 0, False
        while True:
            try:
                socket, bmc = await self._connect()
            except errors.MachineError as error:
                if not begun:
                    raise
                self._say(f'{error}. Trying again')
            else:
                if not begun:
                    begun = True
                    stack.enter_context(_raw_mode(_STDIN))
                    threading.Thread(target=self._read, daemon=True).start()
                self._say(f'Connected to the BMC of {bmc.namespace}/'
                          f'{bmc.name}. "~." ends the console, "~?" lists '
                          'more')
                if await self._relay(socket):
                    tries = 0
                self._said = ''
                self._say(f'{_reason(socket)} Connecting again.')
            await asyncio.sleep(retry.pause(tries, FIRST_PAUSE, LONGEST_PAUSE))
            tries += 1

    async def _connect(self) -> tuple[websockets.ClientConnection,
                                      endpoint.Bmc]:
        client, path, stream = await _in_thread(_dial, self._connect_bmc)
        tls = client.ssl_context
        options: dict[str, typing.Any] = {} if tls is None else {
            'ssl': tls, 'server_hostname': client.server_name}
        scheme = 'ws' if tls is None else 'wss'
        try:
            return await websockets.connect(
                f'{scheme}://{client.server_name}{path}', sock=stream,
                proxy=None, compression=None, open_timeout=_OPEN,
                ping_interval=_PING, ping_timeout=_PING, close_timeout=_CLOSE,
                additional_headers=client.headers, **options), client.bmc
        except (exceptions.WebSocketException, OSError) as error:
            stream.close()
            raise endpoint.BmcUnavailable(
                client.bmc.name, f'its console cannot be opened: {error}'
            ) from error

    async def _relay(self, socket: websockets.ClientConnection) -> bool:
        """Copy in both directions until the connection ends.

        :returns: whether anything was received
        """
        received = False
        sending = asyncio.create_task(self._send(socket))
        self._connected = True
        try:
            async for message in socket:
                received = True
                if isinstance(message, str):
                    self._say(message)
                else:
                    await _in_thread(_write, message)
        except exceptions.ConnectionClosed:
            pass
        finally:
            self._connected = False
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            await socket.close()
        return received

    async def _send(self, socket: websockets.ClientConnection) -> None:
        while True:
            await socket.send(await self._typed.get())

    def _read(self) -> None:
        """Read stdin, in a thread of its own."""
        escapes = Escapes()
        with contextlib.suppress(OSError, RuntimeError):
            while data := os.read(_STDIN, _CHUNK):
                sent, commands = escapes.read(data)
                # What is typed without a connection is lost, as on the guest;
                # what is piped waits for it.
                if sent and (self._connected or not self._terminal):
                    asyncio.run_coroutine_threadsafe(
                        self._typed.put(sent), self._loop).result()
                for command in commands:
                    self._loop.call_soon_threadsafe(self._obey, command)
            if self._terminal:
                self._loop.call_soon_threadsafe(self._end, 0)

    def _obey(self, command: str) -> None:
        if command == '.':
            self._end(0)
        for line in _HELP if command == '?' else ():
            self._say(line)


def _dial(connect: abc.Callable[[], redfish.Client]) -> tuple[
        redfish.Client, str, typing.Any]:
    """Connect to a BMC.

    :returns: its client, the path of the WebSocket, and a socket
    """
    client = connect()
    console = client.get().get('SerialConsole')
    if console is None:
        raise endpoint.BmcUnavailable(
            client.bmc.name, 'its VM has no serial port: remove '
            '"autoattachSerialConsole" from its devices')
    if 'WebSocket' not in console:
        raise endpoint.BmcUnavailable(
            client.bmc.name, 'does not serve consoles: "redfish.webPage" is '
            'false. "ipmitool sol activate" may work')
    return client, console['WebSocket']['ConsoleURI'], client.dial()


def _reason(socket: websockets.ClientConnection) -> str:
    """Say why a connection has ended.

    :raises: `errors.MachineError` if there is no use in another attempt
    """
    if socket.close_code == _TOO_MANY:
        raise errors.MachineError(str(socket.close_reason))
    return socket.close_reason or 'The connection is lost.'


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(_STDOUT, data):]


@contextlib.contextmanager
def _raw_mode(descriptor: int) -> abc.Iterator[None]:
    """Have a terminal pass on each key, and restore it afterwards."""
    if not os.isatty(descriptor):
        yield
        return
    before = termios.tcgetattr(descriptor)
    try:
        tty.setraw(descriptor)
        yield
    finally:
        # Not when its output has been read: nobody may read it.
        termios.tcsetattr(descriptor, termios.TCSANOW, before)
        sys.stderr.write('\n')


async def _in_thread(function: abc.Callable[..., ResultT],
                     *arguments: typing.Any) -> ResultT:
    """Call a function in a daemon thread, and wait for its result."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[ResultT] = loop.create_future()

    def settle(result: ResultT | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(typing.cast(ResultT, result))
        else:
            future.set_exception(error)

    def call() -> None:
        result, failure = None, None
        try:
            result = function(*arguments)
        except BaseException as error:
            failure = error
        with contextlib.suppress(RuntimeError):     # the loop has ended
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=call, daemon=True).start()
    return await future
