# SPDX-License-Identifier: Apache-2.0
"""Queue for slow password checks, in which guessers stand behind others."""

from __future__ import annotations

import bisect
from collections import abc
import contextlib
import secrets
import threading


class Busy(Exception):
    """Too many others wait, or the wait took too long."""


class FairQueue:
    """Limits what runs at the same time; who failed least goes first.

    Numbers of failures of the same magnitude, such as 16 to 31, are equal:
    their order is random. So who cannot be told from guessers, as they share
    an address, gets a turn, however fast these come and whatever user names
    they send.

    :param parallel: number that may run at the same time
    """

    def __init__(self, parallel: int) -> None:
        self._free = parallel
        self._condition = threading.Condition()
        # (magnitude of failures, random), first one first
        self._waiting: list[tuple[int, int]] = []

    @contextlib.contextmanager
    def slot(self, failures: int, room: int, seconds: float
             ) -> abc.Iterator[None]:
        """Wait for a slot and hold it in the body of a with statement.

        :param failures: number of earlier failures of the caller; callers
            with fewer go first
        :param room: number of callers that may wait. Of those above it, the
            last one is sent away.
        :param seconds: longest wait
        :raises: `Busy`
        """
        me = failures.bit_length(), secrets.randbits(64)
        with self._condition:
            bisect.insort(self._waiting, me)
            if len(self._waiting) > self._free + room:
                self._waiting.pop()
                self._condition.notify_all()
            self._condition.wait_for(
                lambda: me not in self._waiting
                or self._free and self._waiting[0] == me, seconds)
            if me not in self._waiting:
                raise Busy()
            admitted = self._free and self._waiting[0] == me
            self._waiting.remove(me)
            if not admitted:
                raise Busy()
            self._free -= 1
            self._condition.notify_all()
        try:
            yield
        finally:
            with self._condition:
                self._free += 1
                self._condition.notify_all()
