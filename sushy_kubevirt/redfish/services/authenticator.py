# SPDX-License-Identifier: Apache-2.0
"""Checks user names and passwords.

bcrypt takes 50 ms or more by design. It is called once per password; the
result is cached under a keyed hash that is useless outside this process. So a
client can send its password with every request, and a client that keeps
sending an outdated password neither costs time nor counts as guessing.

Unknown users and wrong passwords cannot be told apart, neither by the
response nor by its time.
"""

import collections
import hmac
import logging
import os
import secrets
import threading
import time

import bcrypt

from sushy_kubevirt.redfish.services import account_files
from sushy_kubevirt.redfish.services import login_throttle

LOG = logging.getLogger(__name__)

#: Largest number of bytes that bcrypt takes. A longer password, or one with
#: a NUL, matches no digest of a file; those of Secrets are hashed first.
_MAX_PASSWORD_BYTES = 72

#: Number of wrong passwords in the cache.
_MAX_REJECTED = 4096

#: Seconds until the same wrong password is logged again.
_REPORT_SECONDS = 60

#: Number of passwords that bcrypt checks in parallel, and number that may
#: wait for it. Further ones are refused, so that failed logins cannot occupy
#: all threads of a worker.
_MAX_PARALLEL = max(1, min(2, (os.cpu_count() or 1) // 2))
_MAX_WAITING = 1

#: Longest wait in seconds.
_QUEUE_SECONDS = 2


class LoginRefused(Exception):
    """Unknown user or wrong password; clients are not told which."""


class LoginThrottled(Exception):
    """Too many wrong passwords, or too many simultaneous logins.

    :param retry_after: seconds until the next attempt is admitted
    """

    def __init__(self, retry_after):
        super().__init__(f'Wait {retry_after:.1f} s')
        self.retry_after = retry_after


class Authenticator:
    """Checks user names and passwords. Thread-safe.

    :param accounts: an `account_files.Accounts`; None if no accounts are
        configured and no authentication is required
    """

    def __init__(self, accounts):
        self._accounts = accounts
        self._throttle = login_throttle.Throttle()
        self._key = secrets.token_bytes(32)
        self._lock = threading.Lock()
        self._admitted = threading.BoundedSemaphore(
            _MAX_PARALLEL + _MAX_WAITING)
        self._slots = threading.BoundedSemaphore(_MAX_PARALLEL)
        self._accepted = {}
        self._rejected = collections.OrderedDict()
        # Keyed hash: event that is set when bcrypt has finished.
        self._pending = {}
        # Digest for unknown users; matches no password.
        self._dummy = bcrypt.hashpw(secrets.token_bytes(16).hex().encode(),
                                    bcrypt.gensalt(4))
        #: Functions of (user name or None if unknown, source address),
        #: called when a login was refused; must not block.
        self.refused = []

    @property
    def required(self):
        """Whether authentication is required."""
        return self._accounts is not None

    def accounts(self):
        """Return a list of `account_files.Account`, sorted by name."""
        if self._accounts is None:
            return []
        return sorted(self._accounts.current().values(),
                      key=lambda account: account.name)

    def account(self, name, recheck=False):
        """Return the account with a name.

        :param recheck: see `account_files.Accounts.current`
        :returns: an `account_files.Account` or None
        """
        return self._accounts.current(recheck).get(name)

    def check(self, name, password, source):
        """Authenticate a user.

        :param name: user name
        :param password: bytes
        :param source: text, the client's IP address
        :returns: the user's `account_files.Account`
        :raises: `LoginRefused`, `LoginThrottled`
        """
        accounts = self._accounts.current()
        account = accounts.get(name)
        cache_key = self._cache_key(name, account, password)
        if not self._is_accepted(name, cache_key):
            # The password may have been changed a moment ago.
            accounts = self._accounts.current(recheck=True)
            account = accounts.get(name)
            cache_key = self._cache_key(name, account, password)
        if self._is_rejected(cache_key):
            self._report_refused(cache_key, name, account, source)
            raise LoginRefused()
        wait = self._throttle.admit(name, source)
        if wait > 0:
            raise LoginThrottled(wait)
        if self._is_accepted(name, cache_key) or self._check_with_bcrypt(
                cache_key, source, accounts, name, account, password):
            self._throttle.succeeded(name, source)
            return account
        self._report_refused(cache_key, name, account, source)
        raise LoginRefused()

    def _cache_key(self, name, account, password):
        """Return the keyed hash of a user name, its digest and a password."""
        digest = account.digest if account else b''
        parts = (name.encode(errors='surrogatepass'), digest, password)
        return hmac.digest(self._key, b''.join(
            len(part).to_bytes(4, 'big') + part for part in parts), 'sha256')

    def _is_accepted(self, name, cache_key):
        known = self._accepted.get(name)
        return known is not None and hmac.compare_digest(known, cache_key)

    def _is_rejected(self, cache_key):
        with self._lock:
            if cache_key not in self._rejected:
                return False
            self._rejected.move_to_end(cache_key)
            return True

    def _check_with_bcrypt(self, cache_key, source, accounts,
                           name, account, password):
        """Check a password with bcrypt, or wait for the same check.

        Of simultaneous checks of one wrong password, one is counted as a
        failure.

        :returns: whether the password is right
        :raises: `LoginThrottled`
        """
        end = time.monotonic() + _QUEUE_SECONDS
        while True:
            with self._lock:
                if self._is_accepted(name, cache_key):
                    return True
                if cache_key in self._rejected:
                    return False
                pending = self._pending.get(cache_key)
                if pending is None:
                    pending = self._pending[cache_key] = threading.Event()
                    break
            pending.wait(max(0, end - time.monotonic()))
            if time.monotonic() >= end:
                raise LoginThrottled(1)
        try:
            is_right = self._verify_limited(accounts, name, account, password)
            if not is_right:
                self._throttle.failed(name, source)
            with self._lock:
                if is_right:
                    self._accepted[name] = cache_key
                else:
                    self._rejected[cache_key] = 0
                    while len(self._rejected) > _MAX_REJECTED:
                        self._rejected.popitem(last=False)
            return is_right
        finally:
            with self._lock:
                del self._pending[cache_key]
            pending.set()

    def _verify_limited(self, *args):
        """Call `_verify` once a slot is free.

        :raises: `LoginThrottled` if none becomes free in `_QUEUE_SECONDS`
        """
        if not self._admitted.acquire(blocking=False):
            raise LoginThrottled(1)
        try:
            if not self._slots.acquire(timeout=_QUEUE_SECONDS):
                raise LoginThrottled(1)
            try:
                return self._verify(*args)
            finally:
                self._slots.release()
        finally:
            self._admitted.release()

    def _verify(self, accounts, name, account, password):
        if account is None:
            bcrypt.checkpw(account_files.prehash(password),
                           self._dummy_digest(accounts, name))
            return False
        if account.prehashed:
            return bcrypt.checkpw(account_files.prehash(password),
                                  account.digest)
        if len(password) > _MAX_PASSWORD_BYTES or b'\0' in password:
            bcrypt.checkpw(account_files.prehash(password), account.digest)
            return False
        return bcrypt.checkpw(password, account.digest)

    def _dummy_digest(self, accounts, name):
        """Return a digest for an unknown user.

        Its cost is that of one of the accounts, always the same for a name,
        so that the time reveals nothing.
        """
        costs = sorted(map(account_files.cost, accounts.values())) or [10]
        chosen = hmac.digest(self._key, name.encode(
            errors='surrogatepass'), 'sha256')[0] % len(costs)
        return b'$2b$%02d' % costs[chosen] + self._dummy[6:]

    def _report_refused(self, cache_key, name, account, source):
        """Log a refused login and call `refused`, unless just reported."""
        now = time.monotonic()
        with self._lock:
            reported = self._rejected.get(cache_key)
            if reported and now - reported < _REPORT_SECONDS:
                return
            if reported is not None:
                self._rejected[cache_key] = now
        # An unknown user name may be a password typed into the wrong field.
        known = name if account else None
        LOG.warning('Login refused: %s, from %s', f'user {known}'
                    if known else 'an unknown user', source)
        for each in self.refused:
            each(known, source)
