# SPDX-License-Identifier: Apache-2.0
"""Client of QMP, QEMU's monitor protocol: lines of JSON over a socket.

Source: docs/interop/qmp-spec.txt (QEMU 7.2).
"""

import asyncio
import itertools
import json

_LIMIT = 16 * 2 ** 20


class QmpError(Exception):
    """QEMU refused a command or has ended."""


class Client:
    """A connection to QEMU's monitor.

    :param sock: a connected socket.
    :param on_event: function (name, data) called for each event.
    """

    def __init__(self, sock, on_event):
        self._sock = sock
        self._on_event = on_event
        self._numbers = itertools.count()
        self._waiting = {}
        self._writer = None
        self._ready = asyncio.Event()
        self._closed = False

    async def run(self):
        """Read until QEMU closes the connection."""
        reader, self._writer = await asyncio.open_connection(
            sock=self._sock, limit=_LIMIT)
        try:
            self._send({'execute': 'qmp_capabilities', 'id': None})
            while line := await reader.readline():
                self._take(json.loads(line))
        except ConnectionError:
            pass  # QEMU was killed
        finally:
            self._closed = True
            self._ready.set()
            self._writer.close()
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(QmpError('QEMU has ended'))

    def _take(self, message):
        if 'event' in message:
            self._on_event(message['event'], message.get('data') or {})
        elif 'QMP' not in message:
            if message.get('id') is None:
                self._ready.set()
                return
            future = self._waiting.pop(message['id'], None)
            if future is None or future.done():
                return
            if 'error' in message:
                future.set_exception(QmpError(message['error']['desc']))
            else:
                future.set_result(message['return'])

    def _send(self, message):
        self._writer.write(json.dumps(message).encode() + b'\n')

    async def execute(self, command, /, **arguments):
        """Execute a command.

        :param command: name of the command.
        :param arguments: its arguments; ``_`` in a name stands for ``-``.
        :returns: the ``return`` value of QEMU's response.
        :raises QmpError: QEMU refused the command or has ended.
        """
        await self._ready.wait()
        if self._closed:
            raise QmpError('QEMU has ended')
        number = next(self._numbers)
        future = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        self._send({'execute': command, 'id': number, 'arguments': {
            name.replace('_', '-'): value
            for name, value in arguments.items()}})
        return await future
