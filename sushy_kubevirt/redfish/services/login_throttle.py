# SPDX-License-Identifier: Apache-2.0
"""Slows down the guessing of passwords.

Only answers to wrong passwords are delayed, so nothing that a guesser does
delays correct credentials, whatever address they come from. The delay grows
with the number of wrong passwords, which are counted per

- account and source address;
- source address, against a client that tries many user names;
- account, against a client with many addresses.

No account is ever locked: a lock would let anyone deny its owner access.
Counts belong to one process and are lost when it ends.

The ``limits`` library (as used by Flask-Limiter) is not used: measured in
this project, it adds 12.3 MiB (PSS) to each process and 238 ms of import
time, where the limit for an idle BMC pod is 64 MiB.
"""

from __future__ import annotations

import collections
from collections import abc
import hashlib
import threading
import time
import typing

from sushy_kubevirt.bmc import shares

#: Seconds after the last failure when a count is reset.
FORGET_SECONDS = 900

#: Seconds by which an answer is delayed: the shortest delay, which each
#: failure beyond `PAIR` and so on doubles, and the longest. A longer one would
#: exceed the timeouts of clients with a mistyped password.
SHORTEST_DELAY, LONGEST_DELAY = 0.25, 5.0

#: Largest number of counts. The least recently used ones are dropped first.
MAX_ENTRIES = 10000

#: Characters of a user name; longer names are stored as a digest.
_MAX_NAME = 64

#: Reports of failures that may come at once, and seconds until another one.
_REPORTS, _REPORT_SECONDS = 20, 5


#: Account, its digest if it is long, or None; network of the client, or None.
_Key: typing.TypeAlias = tuple[str | bytes | None, str | None]


#: Failures until the delay begins to grow: of an account from a source, of a
#: source, and of an account.
PAIR, SOURCE, ACCOUNT = 3, 20, 50


class _Count:
    """Failures of one key; the time is that of the throttle's clock."""

    failures = 0
    last_failure = 0.0


class Throttle:
    """Counts failed logins. Thread-safe.

    :param clock: returns seconds
    """

    def __init__(self, clock: abc.Callable[[], float] = time.monotonic
                 ) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._counts: collections.OrderedDict[
            _Key, _Count] = collections.OrderedDict()
        self._reports, self._reported_at = _REPORTS, clock()
        # Reports of each source since there were _REPORTS left.
        self._reported: collections.Counter[str] = collections.Counter()

    def _count(self, key: _Key, now: float) -> _Count:
        """Return the count of a key, a new one if it is absent or expired."""
        count = self._counts.get(key)
        if count is None or now - count.last_failure > FORGET_SECONDS:
            return _Count()
        return count

    def failures(self, source: str) -> int:
        """Return the number of earlier failures from a source.

        :param source: the client's IP address
        """
        with self._lock:
            return self._count((None, shares.network(source)),
                               self._clock()).failures

    def failed(self, account: str, source: str) -> tuple[float, bool]:
        """Count a wrong password.

        :param account: user name
        :param source: the client's IP address
        :returns: (seconds by which the answer has to be delayed, whether the
            failure should be reported). Of the failures of an account from a
            source, the first, second, fourth and so on are reported, unless
            there were too many reports.
        """
        short, source = _short(account), shares.network(source)
        keys: tuple[tuple[int, _Key], ...] = (
            (PAIR, (short, source)), (SOURCE, (None, source)),
            (ACCOUNT, (short, None)))
        now = self._clock()
        delay = 0.0
        with self._lock:
            for free, key in keys:
                count = self._counts[key] = self._count(key, now)
                count.failures += 1
                count.last_failure = now
                delay = max(delay, _delay(free, count.failures))
                self._counts.move_to_end(key)
            while len(self._counts) > MAX_ENTRIES:
                self._counts.popitem(last=False)
            pair = self._counts[short, source].failures
        return delay, pair & pair - 1 == 0 and self.may_report(source)

    def may_report(self, source: str) -> bool:
        """Ask whether a failure may be logged and sent as an event now.

        :param source: the client's IP address or network
        """
        source = shares.network(source)
        with self._lock:
            regained = int((self._clock() - self._reported_at)
                           // _REPORT_SECONDS)
            self._reported_at += regained * _REPORT_SECONDS
            self._reports = min(_REPORTS, self._reports + regained)
            if self._reports == _REPORTS:
                self._reported.clear()
            if not shares.fits(self._reported[source],
                               _REPORTS - self._reports, _REPORTS):
                return False
            self._reports -= 1
            self._reported[source] += 1
            return True


def _short(account: str) -> str | bytes:
    """Replace a long name by its digest; clients may send any length."""
    if len(account) <= _MAX_NAME:
        return account
    return hashlib.sha256(account.encode(errors='surrogatepass')).digest()


def _delay(free: int, failures: int) -> float:
    doubled = max(0, min(failures - free, 30))
    return min(LONGEST_DELAY, SHORTEST_DELAY * 2.0 ** doubled)
