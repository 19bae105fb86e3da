# SPDX-License-Identifier: Apache-2.0
"""What a thread has to do next, and when."""

import heapq
import threading
import time


class DelayingQueue:
    """Things that are due now or later, each once.

    A item that is put down again is due at the sooner of both times, and
    then done: whoever does it looks what there is to do.
    """

    def __init__(self):
        self._condition = threading.Condition()
        self._due = []              # heap of (time, number, key)
        self._items = {}           # key: item
        self._number = 0
        self._closed = False

    def put(self, key, item, seconds=0):
        """Put something down.

        :param key: what it is known by; of several things of one key, the
            last is done
        :param seconds: from now on
        """
        with self._condition:
            self._number += 1
            self._items[key] = item
            heapq.heappush(self._due, (time.monotonic() + seconds,
                                       self._number, key))
            self._condition.notify()

    def next(self):
        """Wait for what is due.

        :returns: a item; None when this was closed
        """
        with self._condition:
            while not self._closed:
                now = time.monotonic()
                if self._due and self._due[0][0] <= now:
                    item = self._items.pop(
                        heapq.heappop(self._due)[2], None)
                    if item is not None:
                        return item
                else:
                    self._condition.wait(
                        self._due[0][0] - now if self._due else None)
        return None

    @property
    def pending(self):
        """How many things are to be done."""
        with self._condition:
            return len(self._items)

    def close(self):
        with self._condition:
            self._closed = True
            self._condition.notify_all()
