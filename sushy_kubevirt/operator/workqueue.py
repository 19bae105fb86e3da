# SPDX-License-Identifier: Apache-2.0
"""A work queue for coroutines, after client-go's: each key once at a time.

A key that is added while it is worked on is worked on once more afterwards.
A key that fails is tried again after a pause that doubles; adding it ends
the pause. `delaying_queue`, which the BMC processes use, is for threads and
has neither several workers nor pauses after failures; no package in the
requirements has such a queue for asyncio.
"""

import asyncio
import collections
import logging

from sushy_kubevirt.kube import retry

LOG = logging.getLogger(__name__)

#: Seconds before a key that failed is tried again, twice as long each time,
#: and at most.
FIRST_PAUSE = 0.2
LONGEST_PAUSE = 120

_DAY = 86400


class Queue:
    """Keys, in the order in which they were added.

    :param work: coroutine function of a key; returns the seconds after which
        the key is to be worked on again, or None. An exception is a failure.
    :param workers: number of keys that are worked on at a time
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

    @property
    def started(self):
        """Whether `start` was called."""
        return bool(self._tasks)

    def start(self):
        """Start the workers. Keys may have been added before."""
        self._tasks = [asyncio.create_task(self._run())
                       for _ in range(self._workers)]

    async def close(self, seconds):
        """End the workers; what is being worked on may finish.

        :param seconds: time for that
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
        """Have a key worked on as soon as possible."""
        self._cancel(key)
        if key in self._working:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting[key] = None
            self._wake.set()

    def add_later(self, key, seconds):
        """Have a key worked on after a pause, unless it is added before."""
        self._cancel(key)
        self._timers[key] = asyncio.get_running_loop().call_later(
            min(seconds, _DAY), self.add, key)

    def forget(self, key):
        """Take a key out, with its timer and its failures."""
        self._cancel(key)
        self._waiting.pop(key, None)
        self._again.discard(key)
        self._failures.pop(key, None)

    def failures(self, key):
        """:returns: how often a key has failed since it last succeeded"""
        return self._failures.get(key, 0)

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
                LOG.exception('%s/%s: unexpected error, which is a bug of the '
                              'operator; it is tried again', *key)
                later = self._pause(key, 0)
            finally:
                self._working.discard(key)
            if key in self._again:
                self._again.discard(key)
                self.add(key)
            elif later is not None:
                self.add_later(key, later)

    def _pause(self, key, least):
        failures = self.failures(key)
        self._failures[key] = failures + 1
        return retry.pause(failures, FIRST_PAUSE, LONGEST_PAUSE, least)


class Failure(Exception):
    """A key could not be worked on and is to be tried again.

    :param seconds: shortest pause before that, or None
    """

    def __init__(self, seconds=None):
        super().__init__()
        self.seconds = seconds
