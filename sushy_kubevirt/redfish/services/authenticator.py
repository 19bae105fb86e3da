# SPDX-License-Identifier: Apache-2.0
"""Checks user names and passwords.

Correct credentials are accepted at once, whatever other requests do. Where
the password is known (mounted Secrets, stored accounts), a keyed hash checks
it in microseconds. Digests of files need bcrypt, which takes 50 ms or more by
design: it is called once per password, the result is cached under a keyed
hash, and of the logins that wait for it, those from addresses with the fewest
failures come first. So a client can send its password with every request.

The answer to a wrong password is delayed (`login_throttle`), which occupies a
thread of the server. Their number is limited: when it is reached, answers to
further wrong passwords are not delayed. A client that keeps
sending an outdated password is not delayed and does not count as guessing.

Unknown users and wrong passwords cannot be told apart, neither by the
response nor by its time.
"""

from __future__ import annotations

import collections
from collections import abc
import hmac
import logging
import os
import secrets
import threading
import time
import typing

import bcrypt

from sushy_kubevirt.bmc import accounts as stored_accounts
from sushy_kubevirt.redfish.services import account_files
from sushy_kubevirt.redfish.services import fair_queue
from sushy_kubevirt.redfish.services import login_throttle
from sushy_kubevirt.redfish.services import server_threads

if typing.TYPE_CHECKING:
    from sushy_kubevirt.redfish.services import login_accounts

Account: typing.TypeAlias = account_files.Account

LOG = logging.getLogger(__name__)

#: Largest number of bytes that bcrypt takes. A longer password, or one with
#: a NUL, matches no digest of a file.
_MAX_PASSWORD_BYTES = 72

#: Number of wrong passwords in the cache.
_MAX_REJECTED = 4096

#: Seconds until the same wrong password is logged again.
_REPORT_SECONDS = 60

#: Number of passwords that bcrypt checks in parallel.
_MAX_PARALLEL = max(1, min(2, (os.cpu_count() or 1) // 2))

#: Number of delayed answers, and of logins that wait for bcrypt, on a server
#: with a thread for each connection; else a share of its threads.
_MAX_HELD, _HELD_SHARE = 16, 0.25
_MAX_WAITING, _WAITING_SHARE = 8, 0.5

#: Longest wait for bcrypt in seconds, and how long a client that is sent away
#: should wait.
_QUEUE_SECONDS, RETRY_SECONDS = 5, 1


class LoginRefused(Exception):
    """Unknown user or wrong password; clients are not told which."""


class LoginThrottled(Exception):
    """Not checked: too many logins need bcrypt."""


class Authenticator:
    """Checks user names and passwords. Thread-safe.

    :param accounts: None if no accounts are configured and no authentication
        is required
    """

    def __init__(self, accounts: login_accounts.LoginAccounts | None) -> None:
        self._accounts = accounts
        self._throttle = login_throttle.Throttle()
        self._lock = threading.Lock()
        self._queue = fair_queue.FairQueue(_MAX_PARALLEL)
        self._held = 0
        self._closing = threading.Event()
        # User name: keyed hash
        self._accepted: dict[str, bytes] = {}
        # Keyed hash: time of the last report, user name if it is known,
        # client's address
        self._rejected: collections.OrderedDict[
            bytes, tuple[float, str | None, str]] = collections.OrderedDict()
        # Keyed hash: event that is set when bcrypt has finished
        self._pending: dict[bytes, threading.Event] = {}
        # Digest for unknown users; matches no password.
        self._dummy = bcrypt.hashpw(secrets.token_bytes(16).hex().encode(),
                                    bcrypt.gensalt(4))
        #: Functions of (user name or None if unknown, source address),
        #: called when a login was refused; must not block.
        self.refused: list[abc.Callable[[str | None, str], None]] = []

    @property
    def required(self) -> bool:
        """Whether authentication is required."""
        return self._accounts is not None

    def configured(self) -> list[Account]:
        """Return the accounts of files and Secrets, sorted by name."""
        if self._accounts is None:
            return []
        return sorted(self._accounts.files().values(),
                      key=lambda account: account.name)

    def account(self, name: str, recheck: bool = False) -> Account | None:
        """Return the account with a name that may log in.

        :param recheck: whether to check for changes that were made just now
        """
        assert self._accounts is not None
        return self._accounts.current(
            recheck, stored_accounts.NEWEST_SECONDS if recheck else None
        ).get(name)

    def check(self, name: str, password: bytes, source: str) -> Account:
        """Authenticate a user.

        :param source: the client's IP address
        :raises: `LoginRefused`, `LoginThrottled`
        """
        assert self._accounts is not None
        accounts = self._accounts.current()
        account = accounts.get(name)
        if account is not None and self._is_accepted(name, account, password):
            return account
        # The password may have been changed a moment ago.
        accounts = self._accounts.current(recheck=True)
        account = accounts.get(name)
        if account is not None and self._is_accepted(name, account, password):
            return account
        cache_key = _cache_key(name, account, password)
        if self._is_rejected(cache_key):
            raise LoginRefused()
        if account is None or account.password_hash is None:
            known = self._wait_for_result(name, account, password, cache_key)
            if known is None:
                known = self._check_with_bcrypt(
                    cache_key, source, accounts, name, account, password)
                if not known:
                    self._delay(name, account, source)
            if known and account is not None:
                return account
        else:
            self._reject(cache_key, name, account, source)
            self._delay(name, account, source)
        raise LoginRefused()

    def close(self) -> None:
        """End all delays."""
        self._closing.set()

    def _is_accepted(self, name: str, account: Account | None,
                     password: bytes) -> bool:
        """Check a password without bcrypt.

        :returns: False also if only bcrypt can tell
        """
        if account is None:
            return False
        if account.password_hash is not None:
            return hmac.compare_digest(account.password_hash,
                                       account_files.keyed_hash(password))
        known = self._accepted.get(name)
        return known is not None and hmac.compare_digest(
            known, _cache_key(name, account, password))

    def _is_rejected(self, cache_key: bytes) -> bool:
        """Check whether a password is known to be wrong; log it sometimes."""
        now = time.monotonic()
        with self._lock:
            rejected = self._rejected.get(cache_key)
            if rejected is None:
                return False
            self._rejected.move_to_end(cache_key)
            report = (now - rejected[0] > _REPORT_SECONDS
                      and self._throttle.may_report(rejected[-1]))
            if report:
                self._rejected[cache_key] = now, *rejected[1:]
        if report:
            self._report(*rejected[1:])
        return True

    def _reject(self, cache_key: bytes, name: str, account: Account | None,
                source: str) -> None:
        # An unknown user name may be a password typed into the wrong field.
        known = name if account else None
        with self._lock:
            self._rejected[cache_key] = time.monotonic(), known, source
            while len(self._rejected) > _MAX_REJECTED:
                self._rejected.popitem(last=False)

    def _delay(self, name: str, account: Account | None, source: str) -> None:
        """Count a wrong password, and delay the answer.

        It is not delayed if too many others are delayed already.
        """
        seconds, report = self._throttle.failed(name, source)
        if report:
            self._report(name if account else None, source)
        with self._lock:
            hold = self._held < server_threads.limit(_MAX_HELD, _HELD_SHARE)
            self._held += hold
        if hold:
            try:
                self._closing.wait(seconds)
            finally:
                with self._lock:
                    self._held -= 1

    def _wait_for_result(self, name: str, account: Account | None,
                         password: bytes, cache_key: bytes) -> bool | None:
        """Wait while another thread checks the same password.

        :returns: the result; None if the caller has to check it, which it
            must do with `_check_with_bcrypt`
        :raises: `LoginThrottled`
        """
        end = time.monotonic() + _QUEUE_SECONDS
        while True:
            with self._lock:
                if self._is_accepted(name, account, password):
                    return True
                if cache_key in self._rejected:
                    return False
                pending = self._pending.get(cache_key)
                if pending is None:
                    self._pending[cache_key] = threading.Event()
                    return None
            pending.wait(max(0, end - time.monotonic()))
            if time.monotonic() >= end:
                raise LoginThrottled()

    def _check_with_bcrypt(self, cache_key: bytes, source: str,
                           accounts: dict[str, Account], name: str,
                           account: Account | None, password: bytes) -> bool:
        """Check a password with bcrypt, and cache the result.

        :returns: whether the password is right
        :raises: `LoginThrottled`
        """
        try:
            room = server_threads.limit(_MAX_WAITING, _WAITING_SHARE)
            with self._queue.slot(self._throttle.failures(source), room,
                                  _QUEUE_SECONDS):
                is_right = self._verify(accounts, name, account, password)
            if is_right:
                self._accepted[name] = cache_key
            else:
                self._reject(cache_key, name, account, source)
            return is_right
        except fair_queue.Busy:
            raise LoginThrottled() from None
        finally:
            with self._lock:
                self._pending.pop(cache_key).set()

    def _verify(self, accounts: dict[str, Account], name: str,
                account: Account | None, password: bytes) -> bool:
        if (account is not None and b'\0' not in password
                and len(password) <= _MAX_PASSWORD_BYTES):
            return bcrypt.checkpw(password, account.digest)
        digest = account.digest if account else self._dummy_digest(
            accounts, name)
        if digest is not None:
            # It takes the same time for each password.
            bcrypt.checkpw(b'', digest)
        return False

    def _dummy_digest(self, accounts: dict[str, Account], name: str
                      ) -> bytes | None:
        """Return a digest for an unknown user.

        Its cost is that of one of the accounts, always the same for a name,
        so that the time reveals nothing.

        :returns: None if checking that account's password needs no bcrypt
        """
        costs = sorted(map(account_files.cost, accounts.values())) or [0]
        chosen = costs[account_files.keyed_hash(name.encode(
            errors='surrogatepass'))[0] % len(costs)]
        return b'$2b$%02d' % chosen + self._dummy[6:] if chosen else None

    def _report(self, known: str | None, source: str) -> None:
        """Log a refused login and call `refused`.

        :param known: the user's name; None for an unknown user
        """
        LOG.warning('Login refused: %s, from %s', 'an unknown user'
                    if known is None else f'user {known}', source)
        for callback in self.refused:
            callback(known, source)


def _cache_key(name: str, account: Account | None, password: bytes) -> bytes:
    """Return the keyed hash of a user name, its digest and a password."""
    return account_files.keyed_hash(
        name.encode(errors='surrogatepass'),
        account.digest if account else b'', password)
