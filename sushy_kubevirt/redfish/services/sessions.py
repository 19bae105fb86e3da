# SPDX-License-Identifier: Apache-2.0
"""Sessions: a login that is valid for many requests.

They end with the process. A session keeps a digest of its token, and a
signature of the account that changes with password and role, so that it ends
when either changes. Id and digest are derived from the token, which has 256
random bits, so no search is needed.
"""

from __future__ import annotations

from collections import abc
import contextlib
import hashlib
import hmac
import secrets
import threading
import time
import typing

from sushy_kubevirt.bmc import shares
from sushy_kubevirt.kube import blocking

if typing.TYPE_CHECKING:
    from sushy_kubevirt.bmc import state_secret
    from sushy_kubevirt.redfish.services import account_files
    from sushy_kubevirt.redfish.services import authenticator

#: Redfish's SessionTimeout, in seconds without a request: lowest and highest
#: value, and the default.
MIN_TIMEOUT, MAX_TIMEOUT, DEFAULT_TIMEOUT = 30, 86400, 1800

#: Largest number of sessions of one account, and of all.
MAX_PER_ACCOUNT, MAX_SESSIONS = 64, 1000

_SECTION = 'sessions'
_TIMEOUT = 'SessionTimeout'

_ID_LENGTH = 16


class Session:
    """A session.

    :param id: text, not secret
    :param user: name of the account; any name the client sent if no
        accounts are configured
    :param source: the IP address that opened it
    :param context: text that the client chose, or None
    :param digest: of the token
    :param signature: of the account, '' if no accounts are configured
    :ivar created: seconds since the epoch
    :ivar used: time of the last use (`time.monotonic`)
    :ivar changing: held by a request of the session that changes its account
    """

    def __init__(self, id: str, user: str, source: str, context: str | None,
                 digest: str, signature: str) -> None:
        self.id = id
        self.user = user
        self.source = source
        self.created = time.time()
        self.context = context
        self.digest = digest
        self.signature = signature
        self.used = time.monotonic()
        self.changing = threading.Lock()


class _State(typing.NamedTuple):
    """What changes of a session, as of its check."""

    signature: str
    used: float


class Sessions:
    """The sessions of an emulator. Thread-safe.

    :param state: stores the timeout
    :param timeout: timeout in seconds until a client sets one
    """

    def __init__(self, login: authenticator.Authenticator,
                 state: state_secret.StateSecret,
                 timeout: int = DEFAULT_TIMEOUT) -> None:
        self._login = login
        self._state = state
        self._default = timeout
        # Held while sessions are added, renewed and removed.
        self._lock = threading.Lock()
        self._open: dict[str, Session] = {}

    # The timeout

    @property
    def timeout(self) -> int:
        """Seconds without a request after which a session ends."""
        stored = self._state.cached(_SECTION).get(_TIMEOUT)
        if (isinstance(stored, int) and not isinstance(stored, bool)
                and MIN_TIMEOUT <= stored <= MAX_TIMEOUT):
            return stored
        return self._default

    def set_timeout(self, seconds: int) -> None:
        """Set the timeout of all sessions, existing ones included.

        :param seconds: from `MIN_TIMEOUT` to `MAX_TIMEOUT`
        :raises: `errors.MachineError` if it cannot be stored
        """
        self._state.update(_SECTION, lambda section: section.update(
            {_TIMEOUT: seconds}))

    # Opening and closing

    def open(self, user: str, account: account_files.Account | None,
             source: str, context: str | None = None
             ) -> tuple[Session, str]:
        """Create a session.

        :param account: that was authenticated; None if no accounts are
            configured
        :param source: the client's IP address
        :param context: text that the client chose, or None
        :returns: (session, token)
        """
        token = secrets.token_urlsafe(32)
        digest = _digest(token)
        session = Session(
            id=_id(digest), user=user, source=source, context=context,
            digest=digest, signature=_signature(account))
        # Ends what is not valid any more.
        self.all()
        with self._lock:
            self._limit_number(session)
            self._open[session.id] = session
        return session, token

    @contextlib.contextmanager
    def changes_account(self, session: Session | None) -> abc.Iterator[None]:
        """Let other requests of a session wait while it changes its account.

        The session is renewed within this context, or ends.

        :param session: None if there is none to wait for
        """
        if session is None:
            yield
            return
        blocking.check()
        with session.changing:
            yield

    def renew(self, session: Session, account: account_files.Account) -> None:
        """Continue a session after its account was changed.

        A session that was closed meanwhile stays closed.

        :param account: its changed account
        """
        with self._lock:
            session.signature = _signature(account)
            session.used = time.monotonic()

    def close(self, session: Session) -> None:
        """End a session; idempotent."""
        with self._lock:
            self._open.pop(session.id, None)

    def _close_unchanged(self, session: Session, state: _State) -> None:
        """End a session unless it was used or renewed since it was read."""
        with self._lock:
            if (session.signature, session.used) == state:
                self._open.pop(session.id, None)

    def _limit_number(self, newest: Session) -> None:
        """End the least recently used sessions above the limits.

        The caller holds the lock.

        :param newest: session that is being opened
        """
        sessions = sorted(self._open.values(),
                          key=lambda session: session.used) + [newest]
        owner = self._owner(newest)
        for most, candidates in (
                (MAX_PER_ACCOUNT, [session for session in sessions
                                   if self._owner(session) == owner]),
                (MAX_SESSIONS, sessions)):
            while len(candidates) > most:
                ended = shares.surplus(candidates, newest, self._owner,
                                       _network)
                self._open.pop(ended.id, None)
                candidates.remove(ended)
                if candidates is not sessions:
                    sessions.remove(ended)

    def _owner(self, session: Session) -> str:
        """Return to whose share a session belongs, see `shares`."""
        # Without accounts clients choose any name.
        return session.user if self._login.required else _network(session)

    # Looking

    def find(self, token: str) -> Session | None:
        """Find the session of a token and record its use.

        :param token: text, unchecked
        :returns: None if there is none or it has ended
        """
        digest = _digest(token)
        session = self._load(_id(digest))
        if session is None or not hmac.compare_digest(session.digest, digest):
            return None
        session.used = time.monotonic()
        return session

    def get(self, id: str) -> Session | None:
        """Find a session by its Id."""
        return self._load(id)

    def all(self) -> list[Session]:
        """Return the sessions, oldest first."""
        valid = [session for id in tuple(self._open)
                 if (session := self._load(id, wait=False))]
        return sorted(valid, key=lambda session: (session.created, session.id))

    def _load(self, id: str, wait: bool = True) -> Session | None:
        """Find a valid session.

        :param wait: whether to wait for a request of the session that changes
            its account; otherwise it is valid
        """
        before = None
        # It may be used or renewed while it is checked.
        while (session := self._open.get(id)) is not None:
            state = _State(session.signature, session.used)
            if state == before:
                return None
            if self._is_valid(session, state, wait):
                return session
            before = state
        return None

    def _is_valid(self, session: Session, state: _State, wait: bool) -> bool:
        """Check a session; end it if it cannot become valid again.

        :param wait: as in `_load`
        """
        if time.monotonic() - state.used > self.timeout:
            self._close_unchanged(session, state)
            return False
        if not self._login.required:
            return state.signature == _signature(None)
        account = self._login.account(session.user)
        if account is not None and hmac.compare_digest(
                state.signature, account.signature):
            return True
        account = self._login.account(session.user, recheck=True)
        if account is None:
            # The account file may be in the middle of a write, or the account
            # be disabled. If it is gone, the timeout ends the session.
            return False
        if hmac.compare_digest(state.signature, account.signature):
            return True
        # It may be the one that changes the account, and be renewed.
        if wait:
            blocking.check()
        if not session.changing.acquire(blocking=wait):
            return True
        try:
            self._close_unchanged(session, state)
        finally:
            session.changing.release()
        return False


def _network(session: Session) -> str:
    return shares.network(session.source)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode(errors='replace')).hexdigest()


def _id(digest: str) -> str:
    return digest[:_ID_LENGTH]


def _signature(account: account_files.Account | None) -> str:
    return account.signature if account else ''
