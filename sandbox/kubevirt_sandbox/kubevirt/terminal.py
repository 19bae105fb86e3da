# SPDX-License-Identifier: Apache-2.0
"""The software of a simulated guest, as far as its serial port shows it.

The firmware prints a line at each boot, and a shell echoes its input:

=============== =========================================================
``print N``     prints N bytes, lines of 64 bytes that begin with their number
``sleep N``     reads no input for N seconds
``reboot``      restarts the guest, ``poweroff`` shuts it down
=============== =========================================================

Everything else is only echoed.
"""

import asyncio
import contextlib
import socket

from kubevirt_sandbox.kubevirt import serial

PROMPT = b'# '
_LINE = 64
_CHUNK = 1024 * _LINE


def numbered(first, count):
    """Return lines of 64 bytes, each with its number.

    :param first: number of the first line.
    :param count: number of lines.
    """
    return b''.join(b'%010d %s\r\n' % (number, b'.' * (_LINE - 13))
                    for number in range(first, first + count))


class Terminal:
    """A simulated guest's serial port and its software.

    :param act: function of an action, 'reboot' or 'shutdown', of the guest.
    """

    def __init__(self, act):
        self.serial = serial.Serial()
        self._act = act
        ours, theirs = socket.socketpair()
        for one in ours, theirs:
            one.setblocking(False)
        loop = asyncio.get_running_loop()
        self._guest = theirs
        self._tasks = [loop.create_task(self.serial.attach(ours)),
                       loop.create_task(self._shell())]

    def boot(self, text):
        """Print the firmware's line of a boot.

        :param text: what has booted.
        """
        with contextlib.suppress(OSError):
            self._guest.send(f'\r\n{text}\r\n'.encode() + PROMPT)

    async def _shell(self):
        loop = asyncio.get_running_loop()
        line = b''
        with self._guest, contextlib.suppress(OSError):
            while data := await loop.sock_recv(self._guest, 16):
                for number in data:
                    byte = bytes((number,))
                    if byte not in b'\r\n':
                        line += byte
                        await loop.sock_sendall(self._guest, byte)
                        continue
                    await loop.sock_sendall(self._guest, b'\r\n')
                    await self._execute(loop, *line.split()[:2])
                    line = b''
                    await loop.sock_sendall(self._guest, PROMPT)

    async def _execute(self, loop, word=b'', value=b''):
        if word == b'print' and value.isdigit():
            for start in range(0, int(value), _CHUNK):
                chunk = numbered(start // _LINE, _CHUNK // _LINE)
                await loop.sock_sendall(
                    self._guest, chunk[:int(value) - start])
        elif word == b'sleep' and value.isdigit():
            await asyncio.sleep(int(value))
        elif word in (b'reboot', b'poweroff'):
            self._act('reboot' if word == b'reboot' else 'shutdown')

    def close(self):
        """End the output: the machine has ended."""
        with contextlib.suppress(OSError):
            self._guest.shutdown(socket.SHUT_RDWR)
        self._tasks[1].cancel()
