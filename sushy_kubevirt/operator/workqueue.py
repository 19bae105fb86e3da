# SPDX-License-Identifier: Apache-2.0
"""What has to be looked at, each at most once at a time.

A key that is added again while it is worked on is worked on once more
afterwards. One that fails is tried again later and later; one that is added
meanwhile is not made to wait.
"""

import asyncio
import collections
import logging
import random

LOG = logging.getLogger(__name__)

#: Seconds before another try, twice as long each time, and at most.
FIRST_PAUSE = 0.2
LONGEST_PAUSE = 120

_DAY = 86400


class Queue:
    """Keys, in the order they came.

    :param work: coroutine function of a key; returns seconds after which it
        wants to look again, or None. What it raises is a failure.
    :param workers: how many are worked on at a time
    """

    def __init__(self, work, workers):
        self._work = work
        self._workers = workers
        self._waiting = collections.OrderedDict()
        self._working = set()
        self._again = set()
        self._failures = {}
        self._timers = {}
        self._tasks = []
        self._wake = asyncio.Event()

    def __len__(self):
        return len(self._waiting)

    def start(self):
        """Begin to work."""
        self._tasks = [asyncio.create_task(self._run())
                       for _ in range(self._workers)]

    async def close(self, seconds):
        """End: what is under way may finish.

        :param seconds: that it has for that
        """
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._waiting.clear()
        idle = asyncio.create_task(self._idle())
        await asyncio.wait({idle}, timeout=seconds)
        for task in (idle, *self._tasks):
            task.cancel()
        await asyncio.gather(idle, *self._tasks, return_exceptions=True)

    def add(self, key):
        """Have a key worked on, now."""
        self._cancel(key)
        if key in self._working:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting[key] = None
            self._wake.set()

    def add_later(self, key, seconds):
        """Have a key worked on in so many seconds, unless it is before."""
        self._cancel(key)
        self._timers[key] = asyncio.get_running_loop().call_later(
            min(seconds, _DAY), self.add, key)

    def forget(self, key):
        """Work no more on a key."""
        self._cancel(key)
        self._waiting.pop(key, None)
        self._again.discard(key)
        self._failures.pop(key, None)

    def _cancel(self, key):
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    async def _idle(self):
        while self._working:
            await asyncio.sleep(0.01)

    async def _run(self):
        while True:
            while not self._waiting:
                self._wake.clear()
                await self._wake.wait()
            key, _ = self._waiting.popitem(last=False)
            self._working.add(key)
            try:
                later = await self._work(key)
                self._failures.pop(key, None)
            except Failure as e:
                later = self._pause(key, e.seconds)
            except Exception:
                LOG.exception('%s/%s: this should not happen', *key)
                later = self._pause(key, 0)
            finally:
                self._working.discard(key)
            if key in self._again:
                self._again.discard(key)
                self.add(key)
            elif later is not None:
                self.add_later(key, later)

    def _pause(self, key, least):
        tries = self._failures[key] = self._failures.get(key, 0) + 1
        pause = min(FIRST_PAUSE * 2 ** min(tries - 1, 20), LONGEST_PAUSE)
        return max(pause * random.uniform(0.5, 1), least or 0)


class Failure(Exception):
    """It did not work, and may later.

    :param seconds: that it should wait at least, or None
    """

    def __init__(self, seconds=None):
        super().__init__()
        self.seconds = seconds
