# SPDX-License-Identifier: Apache-2.0
"""The serial port of a machine: what it said, and who listens.

One listener at a time; a new one takes the port over, as in KubeVirt. What
was said while nobody listened is not told later, but the last of it can be
read, as the log that KubeVirt keeps of a guest's console.
"""

import asyncio

_KEPT = 256 * 1024
_CHUNK = 65536
_BEHIND = 256


class Listener:
    """Who hears what a machine says from now on."""

    def __init__(self):
        self._queue = asyncio.Queue(_BEHIND + 1)

    def hear(self, chunk):
        """Be told; whether it can be kept."""
        if self._queue.qsize() >= _BEHIND:
            self.stop()
            return False
        self._queue.put_nowait(chunk)
        return True

    def stop(self):
        """Hear no more."""
        if not self._queue.full():
            self._queue.put_nowait(b'')

    async def next(self):
        """The next bytes; none when there will not be any more."""
        return await self._queue.get()


class Serial:
    """A serial port."""

    def __init__(self):
        self._said = bytearray()
        self._writer = None
        self._listener = None
        self.ended = False

    async def attach(self, sock):
        """Read until the machine ends.

        :param sock: a connected socket, the other end is the machine's.
        """
        reader, self._writer = await asyncio.open_connection(sock=sock)
        try:
            while chunk := await reader.read(_CHUNK):
                self._said += chunk
                del self._said[:-_KEPT]
                if self._listener and not self._listener.hear(chunk):
                    self._listener = None
        except ConnectionError:
            pass  # it was killed
        finally:
            self.ended = True
            self._writer.close()
            self._hand_to(None)

    def _hand_to(self, listener):
        if self._listener is not None:
            self._listener.stop()
        self._listener = listener

    @property
    def said(self):
        """The last of what the machine said, as bytes."""
        return bytes(self._said)

    async def say(self, data):
        """Say something to the machine; returns when it takes it."""
        if self._writer is not None and not self.ended:
            try:
                self._writer.write(data)
                await self._writer.drain()
            except ConnectionError:
                pass  # it was killed

    def listen(self):
        """Hear what the machine says from now on; nobody else does then.

        Ends when the machine does, when somebody else listens, and when it
        is too far behind.

        :returns: a :class:`Listener`, to be given to :meth:`leave` at last.
        """
        listener = Listener()
        if self.ended:
            listener.stop()
        else:
            self._hand_to(listener)
        return listener

    def leave(self, listener):
        """Listen no more."""
        if self._listener is listener:
            self._listener = None
