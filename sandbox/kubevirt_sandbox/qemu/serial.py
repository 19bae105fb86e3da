# SPDX-License-Identifier: Apache-2.0
"""Serial port of a machine: its output and its one listener.

A new listener replaces the previous one, as in KubeVirt. A listener does not
get earlier output, but the last part of it can be read, like the log that
KubeVirt keeps of a guest's console.
"""

import asyncio

_OUTPUT_LIMIT = 256 * 1024
_CHUNK = 65536
_QUEUE_LIMIT = 256


class Listener:
    """A queue of the output that follows the creation of the listener."""

    def __init__(self):
        self._queue = asyncio.Queue(_QUEUE_LIMIT + 1)

    def put(self, chunk):
        """Add a chunk of output.

        :returns: False when the queue is full; the listener is then stopped.
        """
        if self._queue.qsize() >= _QUEUE_LIMIT:
            self.stop()
            return False
        self._queue.put_nowait(chunk)
        return True

    def stop(self):
        """End the output of this listener."""
        if not self._queue.full():
            self._queue.put_nowait(b'')

    async def next(self):
        """Return the next bytes; empty at the end of the output."""
        return await self._queue.get()


class Serial:
    """A serial port."""

    def __init__(self):
        self._output = bytearray()
        self._writer = None
        self._listener = None
        self.ended = False

    async def attach(self, sock):
        """Read the output until the machine ends.

        :param sock: socket connected to the machine's serial port.
        """
        reader, self._writer = await asyncio.open_connection(sock=sock)
        try:
            while chunk := await reader.read(_CHUNK):
                self._output += chunk
                del self._output[:-_OUTPUT_LIMIT]
                if self._listener and not self._listener.put(chunk):
                    self._listener = None
        except ConnectionError:
            pass  # the machine was killed
        finally:
            self.ended = True
            self._writer.close()
            self._replace_listener(None)

    def _replace_listener(self, listener):
        if self._listener is not None:
            self._listener.stop()
        self._listener = listener

    @property
    def output(self):
        """Return the last part of the machine's output, as bytes."""
        return bytes(self._output)

    async def send(self, data):
        """Send bytes to the machine and wait until they are written."""
        if self._writer is not None and not self.ended:
            try:
                self._writer.write(data)
                await self._writer.drain()
            except ConnectionError:
                pass  # the machine was killed

    def listen(self):
        """Register a listener for later output, replacing the current one.

        The listener's output ends with the machine, when another listener
        replaces it, and when it falls too far behind.

        :returns: a :class:`Listener`; pass it to :meth:`leave` at the end.
        """
        listener = Listener()
        if self.ended:
            listener.stop()
        else:
            self._replace_listener(listener)
        return listener

    def leave(self, listener):
        """Unregister a listener."""
        if self._listener is listener:
            self._listener = None
