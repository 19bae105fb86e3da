# SPDX-License-Identifier: Apache-2.0
"""Rate-limited work queue for coroutines, as in client-go.

A key is processed by one worker at a time. A key that is added meanwhile is
processed again afterwards. A key that fails is retried after a pause that
doubles each time; adding it ends the pause. `delaying_queue`, which the BMC
processes use, is for threads and has neither several workers nor pauses after
failures; no package in the requirements has such a queue for asyncio.
"""

from __future__ import annotations

import asyncio
import collections
from collections import abc
import contextlib
import contextvars
import logging
import typing

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import retry

LOG = logging.getLogger(__name__)

#: Seconds before a failed key is retried: the first pause, which doubles each
#: time, and the maximum.
FIRST_PAUSE = 0.2
LONGEST_PAUSE = 120

_DAY = 86400

#: Of all timers, which would keep a copy of the worker's.
_CONTEXT = contextvars.Context()


#: What a key is: its first two parts name an object in the log.
KeyT = typing.TypeVar('KeyT', bound=tuple[object, ...])


class Queue(typing.Generic[KeyT]):
    """Keys, in the order in which they were added.

    :param work: returns the seconds after which the key is processed again,
        or None. An exception is a failure.
    :param workers: number of keys that are processed at the same time
    """

    def __init__(self, work: abc.Callable[[KeyT], abc.Awaitable[float | None]],
                 workers: int) -> None:
        self._work = work
        self._workers = workers
        self._waiting: collections.OrderedDict[KeyT, None] = (
            collections.OrderedDict())
        self._working: set[KeyT] = set()
        self._again: set[KeyT] = set()
        self._failures: dict[KeyT, int] = {}
        self._timers: dict[KeyT, asyncio.TimerHandle] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def started(self) -> bool:
        """Whether `start` was called."""
        return bool(self._tasks)

    def start(self) -> None:
        """Start the workers. Keys may have been added before."""
        self._tasks = [asyncio.create_task(self._run())
                       for _ in range(self._workers)]

    async def close(self, seconds: float) -> None:
        """Stop the workers after they have finished their present key.

        :param seconds: timeout
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

    def add(self, key: KeyT) -> None:
        """Process a key as soon as possible."""
        self._cancel(key)
        if key in self._working:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting[key] = None
            self._wake.set()

    def add_later(self, key: KeyT, seconds: float) -> None:
        """Process a key after a pause, unless it is processed before."""
        loop, seconds = asyncio.get_running_loop(), min(seconds, _DAY)
        timer = self._timers.get(key)
        if timer is None or timer.when() > loop.time() + seconds:
            self._cancel(key)
            self._timers[key] = loop.call_later(
                seconds, self.add, key, context=_CONTEXT)

    def forget(self, key: KeyT) -> None:
        """Remove a key, with its timer and its failures."""
        self._cancel(key)
        self._waiting.pop(key, None)
        self._again.discard(key)
        self._failures.pop(key, None)

    def failures(self, key: KeyT) -> int:
        """Return the number of failures of a key since its last success."""
        return self._failures.get(key, 0)

    def _cancel(self, key: KeyT) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    async def _idle(self) -> None:
        while self._working:
            await asyncio.sleep(0.01)

    async def _run(self) -> None:
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
                LOG.exception('%s/%s: unexpected error, a bug in the '
                              'operator; retrying later', *key)
                later = self._pause(key, 0)
            finally:
                self._working.discard(key)
            if key in self._again:
                self._again.discard(key)
                self.add(key)
            elif later is not None:
                self.add_later(key, later)

    def _pause(self, key: KeyT, least: float | None) -> float:
        failures = self.failures(key)
        self._failures[key] = failures + 1
        return retry.pause(failures, FIRST_PAUSE, LONGEST_PAUSE, least)


class Failure(Exception):
    """Processing a key failed; it is retried.

    :param seconds: minimum pause before that, or None
    """

    def __init__(self, seconds: float | None = None) -> None:
        super().__init__()
        self.seconds = seconds


@contextlib.contextmanager
def retried(message: str = '%s', *args: object) -> abc.Iterator[None]:
    """Context manager: logs a request that failed, and raises `Failure`.

    :param message: of the log, for ``args`` and the error
    """
    try:
        yield
    except errors.MachineError as e:
        passes = isinstance(e, (errors.Conflict, errors.ObjectNotFound,
                                errors.NamespaceTerminating))
        LOG.log(logging.INFO if passes else logging.WARNING, message, *args, e)
        raise Failure(getattr(e, 'retry_after', None)) from None
