# SPDX-License-Identifier: Apache-2.0
"""Threads that call functions at a given time.

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

LOG = logging.getLogger(__name__)


class Worker:
    """Threads that call functions when they are due, one for each key.

    A function that is added again is due at the earlier of both times and is
    called once.

    :param name: of the threads
    """

    def __init__(self, name: str, threads: int = 1) -> None:
        self._name = name
        self._threads = threads
        self._condition = threading.Condition()
        # A heap; the number orders functions that are due at the same time.
        self._due: list[tuple[float, int, abc.Hashable]] = []
        self._functions: dict[abc.Hashable, abc.Callable[[], object]] = {}
        self._number = 0
        self._closed = False

    def start(self) -> None:
        """Start the threads."""
        for number in range(self._threads):
            threading.Thread(
                target=self._run, daemon=True, name=self._name
                + (f'-{number}' if self._threads > 1 else '')).start()

    def put(self, key: abc.Hashable, function: abc.Callable[[], object],
            seconds: float = 0) -> None:
        """Add a function.

        :param key: a function replaces the one that has the same key
        :param seconds: delay after which it is due at the latest; an earlier
            call for the key may make it due before
        """
        with self._condition:
            self._number += 1
            self._functions[key] = function
            heapq.heappush(self._due, (time.monotonic() + seconds,
                                       self._number, key))
            self._condition.notify()

    def close(self) -> None:
        """End the threads after the functions that they call now."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()

    def _next(self) -> abc.Callable[[], object] | None:
        """Wait until a function is due; None once the worker is closed."""
        with self._condition:
            while not self._closed:
                now = time.monotonic()
                if self._due and self._due[0][0] <= now:
                    function = self._functions.pop(
                        heapq.heappop(self._due)[2], None)
                    if function is not None:
                        # Another thread has to wait for the next one.
                        self._condition.notify()
                        return function
                else:
                    self._condition.wait(
                        self._due[0][0] - now if self._due else None)
        return None

    def _run(self) -> None:
        while (function := self._next()) is not None:
            try:
                function()
            except Exception:
                LOG.exception('A task of thread %s failed', self._name)
