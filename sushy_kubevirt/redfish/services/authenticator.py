# SPDX-License-Identifier: Apache-2.0
"""Whether a user name and a password belong to an account.

bcrypt takes a twentieth of a second or more by design. It is asked once for
each password, right or wrong: what it said is remembered as a keyed hash that
is worth nothing outside this process, so a client may send its password with
every request, and one that goes on with a password that was changed costs
nothing and is no guesser.

Nothing tells a wrong password from an unknown user, neither answer nor time.
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

#: Passwords of more bytes, or with a NUL, fit no digest of bcrypt's; longer
#: ones of Secrets are hashed first.
_LONGEST = 72

#: Wrong passwords that are remembered.
_WRONG = 4096

#: Seconds after which a wrong password that comes again is told again.
_REPORT_SECONDS = 60

#: Passwords that bcrypt looks at at a time, and that wait for it; more are
#: sent away, so that guessers do not have all of a worker's threads.
_AT_ONCE = max(1, min(2, (os.cpu_count() or 1) // 2))
_WAITING = 1

#: Seconds they wait.
_QUEUE_SECONDS = 2


class LoginRefused(Exception):
    """No such user, or not their password; which, nobody is told."""


class LoginThrottled(Exception):
    """Too many wrong passwords, or too many logins at once.

    :param retry_after: seconds
    """

    def __init__(self, retry_after):
        super().__init__(f'Wait {retry_after:.1f} s')
        self.retry_after = retry_after


class Authenticator:
    """Checks names and passwords. Safe for several threads.

    :param accounts: `account_files.Accounts`; None if there are no
        credentials, and everybody may do everything
    """

    def __init__(self, accounts):
        self._accounts = accounts
        self._throttle = login_throttle.Throttle()
        self._key = secrets.token_bytes(32)
        self._lock = threading.Lock()
        self._places = threading.BoundedSemaphore(_AT_ONCE + _WAITING)
        self._slots = threading.BoundedSemaphore(_AT_ONCE)
        self._right = {}
        self._wrong = collections.OrderedDict()
        # Keyed hash: event that is set when bcrypt has said.
        self._asked = {}
        # For users that there are not; fits no password.
        self._dummy = bcrypt.hashpw(secrets.token_bytes(16).hex().encode(),
                                    bcrypt.gensalt(4))
        #: Functions of (user or None if unknown, source), called when
        #: somebody was refused; must not block.
        self.refused = []

    @property
    def required(self):
        """Whether there are credentials at all."""
        return self._accounts is not None

    def accounts(self):
        """:returns: list of `account_files.Account`, by name"""
        if self._accounts is None:
            return []
        return sorted(self._accounts.current().values(),
                      key=lambda account: account.name)

    def account(self, name, sure=False):
        """:returns: `account_files.Account` or None

        :param sure: look whether they have changed in any case
        """
        return self._accounts.current(sure).get(name)

    def check(self, name, password, source):
        """Find the account that a name and a password belong to.

        :param name: text
        :param password: bytes
        :param source: the client's address
        :returns: `account_files.Account`
        :raises: `LoginRefused`, `LoginThrottled`
        """
        accounts = self._accounts.current()
        account = accounts.get(name)
        mark = self._mark(name, account, password)
        if not self._is_right(name, mark):
            # It may have become right just now.
            accounts = self._accounts.current(sure=True)
            account = accounts.get(name)
            mark = self._mark(name, account, password)
        if self._is_wrong(mark):
            self._report_refused(mark, name, account, source)
            raise LoginRefused()
        wait = self._throttle.admit(name, source)
        if wait > 0:
            raise LoginThrottled(wait)
        if self._is_right(name, mark) or self._check_with_bcrypt(
                mark, source, accounts, name, account, password):
            self._throttle.succeeded(name, source)
            return account
        self._report_refused(mark, name, account, source)
        raise LoginRefused()

    def _mark(self, name, account, password):
        """The keyed hash of a name, its digest and a password."""
        digest = account.digest if account else b''
        parts = (name.encode(errors='surrogatepass'), digest, password)
        return hmac.digest(self._key, b''.join(
            len(part).to_bytes(4, 'big') + part for part in parts), 'sha256')

    def _is_right(self, name, mark):
        known = self._right.get(name)
        return known is not None and hmac.compare_digest(known, mark)

    def _is_wrong(self, mark):
        with self._lock:
            if mark not in self._wrong:
                return False
            self._wrong.move_to_end(mark)
            return True

    def _check_with_bcrypt(self, mark, source, accounts,
                           name, account, password):
        """Ask bcrypt, unless somebody asks it the same now.

        That it does not fit is counted once, for who has asked.

        :returns: whether the password fits
        :raises: `LoginThrottled`
        """
        end = time.monotonic() + _QUEUE_SECONDS
        while True:
            with self._lock:
                if self._is_right(name, mark):
                    return True
                if mark in self._wrong:
                    return False
                asked = self._asked.get(mark)
                if asked is None:
                    asked = self._asked[mark] = threading.Event()
                    break
            asked.wait(max(0, end - time.monotonic()))
            if time.monotonic() >= end:
                raise LoginThrottled(1)
        try:
            fits = self._fits_limited(accounts, name, account, password)
            if not fits:
                self._throttle.failed(name, source)
            with self._lock:
                if fits:
                    self._right[name] = mark
                else:
                    self._wrong[mark] = 0
                    while len(self._wrong) > _WRONG:
                        self._wrong.popitem(last=False)
            return fits
        finally:
            with self._lock:
                del self._asked[mark]
            asked.set()

    def _fits_limited(self, *args):
        """`_fits`, when it is its turn.

        :raises: `LoginThrottled`
        """
        if not self._places.acquire(blocking=False):
            raise LoginThrottled(1)
        try:
            if not self._slots.acquire(timeout=_QUEUE_SECONDS):
                raise LoginThrottled(1)
            try:
                return self._fits(*args)
            finally:
                self._slots.release()
        finally:
            self._places.release()

    def _fits(self, accounts, name, account, password):
        if account is None:
            bcrypt.checkpw(account_files.hashed(password),
                           self._dummy_digest(accounts, name))
            return False
        if account.hashed:
            return bcrypt.checkpw(account_files.hashed(password),
                                  account.digest)
        if len(password) > _LONGEST or b'\0' in password:
            bcrypt.checkpw(account_files.hashed(password), account.digest)
            return False
        return bcrypt.checkpw(password, account.digest)

    def _dummy_digest(self, accounts, name):
        """One as dear as those there are; the same each time for a name."""
        costs = sorted(map(account_files.cost, accounts.values())) or [10]
        chosen = hmac.digest(self._key, name.encode(
            errors='surrogatepass'), 'sha256')[0] % len(costs)
        return b'$2b$%02d' % costs[chosen] + self._dummy[6:]

    def _report_refused(self, mark, name, account, source):
        """Tell who may want to know, but not of each of many repetitions."""
        now = time.monotonic()
        with self._lock:
            told = self._wrong.get(mark)
            if told and now - told < _REPORT_SECONDS:
                return
            if told is not None:
                self._wrong[mark] = now
        # A user that is not known may be a password in the wrong place.
        known = name if account else None
        LOG.warning('Login refused: %s, from %s', f'user {known}'
                    if known else 'an unknown user', source)
        for each in self.refused:
            each(known, source)
