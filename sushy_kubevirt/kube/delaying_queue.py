# SPDX-License-Identifier: Apache-2.0
"""What a thread has to do next, and when."""

import heapq
import threading
import time


class Agenda:
    """Things that are due now or later, each once.

    A thing that is put down again is due at the sooner of both times, and
    then done: whoever does it looks what there is to do.
    """

    def __init__(self):
        self._news = threading.Condition()
        self._due = []              # heap of (time, number, key)
        self._things = {}           # key: thing
        self._number = 0
        self._closed = False

    def put(self, key, thing, seconds=0):
        """Put something down.

        :param key: what it is known by; of several things of one key, the
            last is done
        :param seconds: from now on
        """
        with self._news:
            self._number += 1
            self._things[key] = thing
            heapq.heappush(self._due, (time.monotonic() + seconds,
                                       self._number, key))
            self._news.notify()

    def next(self):
        """Wait for what is due.

        :returns: a thing; None when this was closed
        """
        with self._news:
            while not self._closed:
                now = time.monotonic()
                if self._due and self._due[0][0] <= now:
                    thing = self._things.pop(
                        heapq.heappop(self._due)[2], None)
                    if thing is not None:
                        return thing
                else:
                    self._news.wait(
                        self._due[0][0] - now if self._due else None)
        return None

    @property
    def pending(self):
        """How many things are to be done."""
        with self._news:
            return len(self._things)

    def close(self):
        with self._news:
            self._closed = True
            self._news.notify_all()
