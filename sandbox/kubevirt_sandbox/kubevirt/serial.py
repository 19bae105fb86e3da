# SPDX-License-Identifier: Apache-2.0
"""Serial port of a machine: its output and its one listener.

A new listener replaces the previous one, and the machine waits for a slow
listener, as in KubeVirt. Without a listener output is discarded, as QEMU does
with its socket. The last part of the output can be read, like the log that
KubeVirt keeps of a guest's console.
"""

import asyncio

_OUTPUT_LIMIT = 256 * 1024
_CHUNK = 65536
# Chunks that wait for the listener. KubeVirt's buffers are those of sockets.
_QUEUE_LIMIT = 4


class Listener:
    """A queue of the output that follows the creation of the listener."""

    def __init__(self):
        self._queue = asyncio.Queue(_QUEUE_LIMIT)
        self._stopped = asyncio.Event()

    async def put(self, chunk):
        """Add a chunk of output; wait until there is room or `stop`."""
        await self._first(self._queue.put(chunk))

    def stop(self):
        """End the output of this listener, after what it has got."""
        self._stopped.set()

    async def next(self):
        """Return the next bytes; empty at the end of the output."""
        if not self._queue.empty():
            return self._queue.get_nowait()
        return await self._first(self._queue.get()) or b''

    async def _first(self, coroutine):
        """Wait for a coroutine or `stop`, and return the former's result."""
        tasks = [asyncio.ensure_future(one)
                 for one in (coroutine, self._stopped.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return tasks[0].result() if tasks[0].done() else None
        finally:
            for task in tasks:
                task.cancel()


class Serial:
    """A serial port."""

    def __init__(self):
        self._output = bytearray()
        self._writer = None
        self._attached = asyncio.Event()
        self._listener = None
        self.ended = False

    async def attach(self, sock):
        """Read the output until the machine ends.

        :param sock: socket connected to the machine's serial port.
        """
        reader, self._writer = await asyncio.open_connection(sock=sock)
        self._attached.set()
        try:
            while chunk := await reader.read(_CHUNK):
                self._output += chunk
                del self._output[:-_OUTPUT_LIMIT]
                if self._listener:
                    await self._listener.put(chunk)
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
        await self._attached.wait()
        if not self.ended:
            try:
                self._writer.write(data)
                await self._writer.drain()
            except ConnectionError:
                pass  # the machine was killed

    def listen(self):
        """Register a listener for later output, replacing the current one.

        The listener's output ends with the machine, and when another
        listener replaces it.

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
        listener.stop()
        if self._listener is listener:
            self._listener = None
