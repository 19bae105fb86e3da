# SPDX-License-Identifier: Apache-2.0
"""A queue whose entries become due at a given time, and threads for them.

The standard library has none: `queue.PriorityQueue` does not wait for a time
and does not merge entries of one key, `sched` does not notice an earlier entry
that is added while it sleeps.
"""

from __future__ import annotations

from collections import abc
import heapq
import logging
import threading
import time
import typing

KeyT = typing.TypeVar('KeyT', bound=abc.Hashable)
ItemT = typing.TypeVar('ItemT')

LOG = logging.getLogger(__name__)


class DelayingQueue(typing.Generic[KeyT, ItemT]):
    """Items that are due now or later, at most one for each key.

    An item that is added again is due at the earlier of both times and is
    returned once.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        # A heap; the number orders items that are due at the same time.
        self._due: list[tuple[float, int, KeyT]] = []
        self._items: dict[KeyT, ItemT] = {}
        self._number = 0
        self._closed = False

    def put(self, key: KeyT, item: ItemT, seconds: float = 0) -> None:
        """Add an item.

        :param key: an item replaces the one that has the same key
        :param seconds: delay after which the item is due at the latest; an
            earlier call for the key may make it due before
        """
        with self._condition:
            self._number += 1
            self._items[key] = item
            heapq.heappush(self._due, (time.monotonic() + seconds,
                                       self._number, key))
            self._condition.notify()

    def next(self) -> ItemT | None:
        """Wait until an item is due and remove it.

        :returns: the item; None once the queue is closed
        """
        with self._condition:
            while not self._closed:
                now = time.monotonic()
                if self._due and self._due[0][0] <= now:
                    item = self._items.pop(
                        heapq.heappop(self._due)[2], None)
                    if item is not None:
                        # Another thread has to wait for the next one.
                        self._condition.notify()
                        return item
                else:
                    self._condition.wait(
                        self._due[0][0] - now if self._due else None)
        return None

    @property
    def pending(self) -> int:
        """Number of items in the queue."""
        with self._condition:
            return len(self._items)

    def close(self) -> None:
        """Make `next` return None in all threads."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()


class Worker:
    """Threads that call functions when they are due.

    :param name: of the threads
    """

    def __init__(self, name: str, threads: int = 1) -> None:
        self._name = name
        self._threads = threads
        self.queue: DelayingQueue[
            abc.Hashable, abc.Callable[[], None]] = DelayingQueue()

    def start(self) -> None:
        """Start the threads."""
        for number in range(self._threads):
            threading.Thread(
                target=self._run, daemon=True, name=self._name
                + (f'-{number}' if self._threads > 1 else '')).start()

    def close(self) -> None:
        """End the threads after the functions that they call now."""
        self.queue.close()

    def _run(self) -> None:
        while (function := self.queue.next()) is not None:
            try:
                function()
            except Exception:
                LOG.exception('A task of thread %s failed', self._name)
