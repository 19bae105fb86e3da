# SPDX-License-Identifier: Apache-2.0
"""Guessing passwords, slowed.

Who has guessed wrong several times has to wait before the next guess is
looked at, longer each time. Guesses that come too early are refused at once:
nothing waits in a thread. It is counted for

- an account and a source together: the guesser's own;
- a source, for one that tries many names;
- an account, for a guesser with many sources; those from which its owner
  has logged in before are let through.

No account is ever locked, since that would let anybody lock its owner out.
The counts are those of one process, and forgotten with it.
"""

import collections
import dataclasses
import hashlib
import ipaddress
import threading
import time

#: Seconds without a guess after which all is forgotten.
FORGET = 900

#: Seconds for which a source is one that its owner has logged in from.
TRUST = 86400

#: Things that are counted at most; those longest unused go first.
MOST = 10000

#: Characters of a name that is kept as it is.
_LONGEST = 64


@dataclasses.dataclass(frozen=True)
class Limit:
    """How much is put up with.

    :param free: wrong guesses before there is a wait
    :param most: longest wait, in seconds; the first is one second, each
        after that twice the one before
    """

    free: int
    most: float


PAIR = Limit(5, 60)
SOURCE = Limit(20, 60)
#: The wait is short: the owner, at a new place, stands in the same line.
ACCOUNT = Limit(50, 5)


def network(source):
    """What is taken to be one source: an IPv4 address or an IPv6 /64.

    :param source: text
    """
    try:
        address = ipaddress.ip_address(source.partition('%')[0])
    except ValueError:
        return source
    address = getattr(address, 'ipv4_mapped', None) or address
    if address.version == 6:
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)


@dataclasses.dataclass
class _Count:
    wrong: int = 0
    used: float = 0
    until: float = 0


class Throttle:
    """The counts. Safe for several threads.

    :param clock: function that returns seconds
    """

    def __init__(self, clock=time.monotonic):
        self._clock = clock
        self._lock = threading.Lock()
        self._counts = collections.OrderedDict()
        self._known = collections.OrderedDict()

    def _keys(self, account, source):
        account = _short(account)
        yield PAIR, (account, source)
        yield SOURCE, (None, source)
        if (account, source) not in self._known:
            yield ACCOUNT, (account, None)

    def _count(self, key, now):
        """What is counted; a new one if there is none, or it is too old."""
        count = self._counts.get(key)
        if count is None or now - count.used > FORGET:
            return _Count()
        return count

    def admit(self, account, source):
        """Ask whether a guess is to be looked at, and book it if so.

        :param account: name of the user
        :param source: address
        :returns: 0, or the seconds to wait before the next
        """
        source = network(source)
        now = self._clock()
        with self._lock:
            known = _short(account), source
            trusted = self._known.get(known)
            if trusted is not None and now - trusted > TRUST:
                del self._known[known]
            found = [(limit, self._count(key, now))
                     for limit, key in self._keys(account, source)]
            wait = max(count.until - now for _limit, count in found)
            if wait > 0:
                return wait
            for limit, count in found:
                if count.wrong >= limit.free:
                    # Others may come before it turns out to be wrong.
                    count.until = now + _wait(limit, count.wrong)
        return 0

    def wrong(self, account, source):
        """Count a wrong guess."""
        source = network(source)
        now = self._clock()
        with self._lock:
            for limit, key in self._keys(account, source):
                count = self._counts[key] = self._count(key, now)
                count.wrong += 1
                count.used = now
                if count.wrong >= limit.free:
                    count.until = now + _wait(limit, count.wrong)
                self._counts.move_to_end(key)
            while len(self._counts) > MOST:
                self._counts.popitem(last=False)

    def right(self, account, source):
        """The owner has logged in from there."""
        account, source = _short(account), network(source)
        with self._lock:
            self._counts.pop((account, source), None)
            for key in ((None, source), (account, None)):
                # What was booked for it is given back.
                if key in self._counts:
                    self._counts[key].until = 0
            self._known[account, source] = self._clock()
            self._known.move_to_end((account, source))
            while len(self._known) > MOST:
                self._known.popitem(last=False)


def _short(account):
    """What stands for a name, of which anybody may make up long ones."""
    if len(account) <= _LONGEST:
        return account
    return hashlib.sha256(account.encode(errors='surrogatepass')).digest()


def _wait(limit, wrong):
    return min(limit.most, 2.0 ** min(wrong - limit.free, 30))
