# SPDX-License-Identifier: Apache-2.0
"""Limits how many containers start at the same time.

Hundreds of processes that start at once on a few processors would all take
minutes and be killed by their startup probes. So the number is limited: a
container holds its turn until it has started or ended, but not longer than
:data:`LONGEST`.
"""

import asyncio
import collections
import contextlib
import os

#: Seconds after which a container that has not started frees its turn.
LONGEST = 10


class Turns:
    """Limit of containers that start at the same time.

    :param count: the limit; None: four for each processor, since a part of
        each start is waiting for a probe.
    """

    def __init__(self, count=None):
        self._free = count or 4 * (os.cpu_count() or 1)
        self._waiting = collections.deque()

    @contextlib.asynccontextmanager
    async def one(self):
        """Hold a turn as a context manager that yields a :class:`Turn`."""
        turn = Turn(self._release)
        if self._free:
            self._free -= 1
        else:
            ready = asyncio.get_running_loop().create_future()
            self._waiting.append(ready)
            try:
                await ready
            except asyncio.CancelledError:
                if ready.done() and not ready.cancelled():
                    self._release()
                raise
        turn.begin()
        try:
            yield turn
        finally:
            turn.end()

    def _release(self):
        while self._waiting:
            ready = self._waiting.popleft()
            if not ready.done():
                ready.set_result(None)
                return
        self._free += 1


class Turn:
    """A permission to start; it may end before its context does."""

    def __init__(self, release):
        self._release = release
        self._end = None

    def begin(self):
        """Mark the start, after which other containers may have to wait."""
        self._end = asyncio.get_running_loop().call_later(
            LONGEST, self.end)

    def end(self):
        """End the turn, so that the next container can start."""
        release, self._release = self._release, None
        if release is not None:
            self._end.cancel()
            release()
