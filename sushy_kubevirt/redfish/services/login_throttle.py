# SPDX-License-Identifier: Apache-2.0
"""Throttling of failed logins.

After several wrong passwords, further attempts are refused for a time that
doubles with each failure. Early attempts are refused at once, so no thread
waits. Failures are counted per

- account and source address;
- source address, against a client that tries many user names;
- account, against a client with many addresses. Addresses from which the
  account has logged in before are exempt.

No account is ever locked: a lock would let anyone deny its owner access.
Counts belong to one process and are lost when it ends.

The ``limits`` library (as used by Flask-Limiter) is not used: measured in
this project, it adds 12.3 MiB (PSS) to each process and 238 ms of import
time, where the limit for an idle BMC pod is 64 MiB.
"""

import collections
import dataclasses
import hashlib
import ipaddress
import threading
import time

#: Seconds after the last failure when a count is reset.
FORGET_SECONDS = 900

#: Seconds after a login for which its source address is exempt from the
#: limit per account.
TRUST_SECONDS = 86400

#: Largest number of counts, and of exempt addresses. The least recently used
#: ones are dropped first.
MAX_ENTRIES = 10000

#: Characters of a user name; longer names are stored as a digest.
_MAX_NAME = 64


@dataclasses.dataclass(frozen=True)
class Limit:
    """Limit of one kind of count.

    :param free: failures before attempts have to wait
    :param max_wait: longest wait in seconds. The first wait is one second,
        each further one twice the one before.
    """

    free: int
    max_wait: float


PAIR = Limit(5, 60)
SOURCE = Limit(20, 60)
#: The longest wait is short, because it also delays the account's owner at
#: an address that is not exempt.
ACCOUNT = Limit(50, 5)


def network(source):
    """Map an address to the network that is counted as one source.

    :param source: text, an IP address
    :returns: text: the IPv4 address or the IPv6 /64; ``source`` itself if it
        is not an IP address
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
    """Failures of one key; times are those of the throttle's clock."""

    failures: int = 0
    last_failure: float = 0
    blocked_until: float = 0


class Throttle:
    """Counts failed logins. Thread-safe.

    :param clock: function that returns seconds
    """

    def __init__(self, clock=time.monotonic):
        self._clock = clock
        self._lock = threading.Lock()
        self._counts = collections.OrderedDict()
        # (account, source): time of the last login
        self._trusted = collections.OrderedDict()

    def _keys(self, account, source):
        account = _short(account)
        yield PAIR, (account, source)
        yield SOURCE, (None, source)
        if (account, source) not in self._trusted:
            yield ACCOUNT, (account, None)

    def _count(self, key, now):
        """Return the count of a key, a new one if it is absent or expired."""
        count = self._counts.get(key)
        if count is None or now - count.last_failure > FORGET_SECONDS:
            return _Count()
        return count

    def admit(self, account, source):
        """Ask whether a password may be checked now.

        Once a limit is reached, an admitted attempt delays further ones as
        if it had failed, until `succeeded` is called.

        :param account: user name
        :param source: text, the client's IP address
        :returns: 0 if it may, else seconds until the next attempt
        """
        source = network(source)
        now = self._clock()
        with self._lock:
            pair = _short(account), source
            last_login = self._trusted.get(pair)
            if last_login is not None and now - last_login > TRUST_SECONDS:
                del self._trusted[pair]
            counts = [(limit, self._count(key, now))
                      for limit, key in self._keys(account, source)]
            wait = max(count.blocked_until - now for _limit, count in counts)
            if wait > 0:
                return wait
            for limit, count in counts:
                if count.failures >= limit.free:
                    # Other attempts may arrive before the result is known.
                    count.blocked_until = now + _wait(limit, count.failures)
        return 0

    def failed(self, account, source):
        """Count a wrong password.

        :param account: user name
        :param source: text, the client's IP address
        """
        source = network(source)
        now = self._clock()
        with self._lock:
            for limit, key in self._keys(account, source):
                count = self._counts[key] = self._count(key, now)
                count.failures += 1
                count.last_failure = now
                if count.failures >= limit.free:
                    count.blocked_until = now + _wait(limit, count.failures)
                self._counts.move_to_end(key)
            while len(self._counts) > MAX_ENTRIES:
                self._counts.popitem(last=False)

    def succeeded(self, account, source):
        """Record a login: reset its count and trust its source address.

        :param account: user name
        :param source: text, the client's IP address
        """
        account, source = _short(account), network(source)
        with self._lock:
            self._counts.pop((account, source), None)
            for key in ((None, source), (account, None)):
                # Undo the wait that `admit` set for this attempt.
                if key in self._counts:
                    self._counts[key].blocked_until = 0
            self._trusted[account, source] = self._clock()
            self._trusted.move_to_end((account, source))
            while len(self._trusted) > MAX_ENTRIES:
                self._trusted.popitem(last=False)


def _short(account):
    """Replace a long name by its digest; clients may send any length."""
    if len(account) <= _MAX_NAME:
        return account
    return hashlib.sha256(account.encode(errors='surrogatepass')).digest()


def _wait(limit, failures):
    return min(limit.max_wait, 2.0 ** min(failures - limit.free, 30))
