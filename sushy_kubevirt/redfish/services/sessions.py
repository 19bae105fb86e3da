# SPDX-License-Identifier: Apache-2.0
"""Sessions: a login that is valid for many requests, at every worker.

A session is a file in the folder that the workers of one emulator share
(`shared_directory`), so every worker can check it, and it survives their
restart. The file's name is the session's Id, its modification time the last
use. It contains a digest of the token, and a signature of the account that
changes with password and role, so that a session ends when either changes.

Id and digest are derived from the token, which has 256 random bits, so no
search is needed. The file is read for every request: `stat` does not tell
whether it was replaced, because filesystems use inodes again.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import dataclasses
import fcntl
import hashlib
import hmac
import json
import logging
import os
import secrets
import tempfile
import time
import typing

from sushy_kubevirt.bmc import shares
from sushy_kubevirt.kube import blocking

LOG = logging.getLogger(__name__)

#: Redfish's SessionTimeout, in seconds without a request: lowest and highest
#: value, and the default.
MIN_TIMEOUT, MAX_TIMEOUT, DEFAULT_TIMEOUT = 30, 86400, 1800

#: Largest number of sessions of one account, and of all.
MAX_PER_ACCOUNT, MAX_SESSIONS = 64, 1000

_SECTION = 'sessions'
_TIMEOUT = 'SessionTimeout'

#: Seconds since a file was written in which earlier reads are not trusted.
_SETTLE_SECONDS = 0.2

_FOLDER = 'sessions'
_ID_LENGTH = 16


@dataclasses.dataclass(frozen=True)
class Session:
    """A session.

    :param id: text, not secret
    :param user: name of the account; any name the client sent if no
        accounts are configured
    :param source: the IP address that opened it
    :param created: seconds since the epoch
    :param context: text that the client chose, or None
    :param digest: of the token
    :param signature: of the account, '' if no accounts are configured
    """

    id: str
    user: str
    source: str
    created: float
    context: str | None
    digest: str = dataclasses.field(repr=False)
    signature: str = dataclasses.field(repr=False)


class Sessions:
    """The sessions of an emulator. Thread-safe.

    :param folder: a `shared_directory.SharedDirectory`
    :param login: an `authenticator.Authenticator`
    :param state: a `state_secret.StateSecret`, which stores the timeout
    :param timeout: timeout in seconds until a client sets one
    """

    def __init__(self, folder, login, state, timeout=DEFAULT_TIMEOUT) -> None:
        self._local = folder
        self._login = login
        self._state = state
        self._default = timeout
        self._folder = folder.path / _FOLDER

    # The timeout

    @property
    def timeout(self):
        """Seconds without a request after which a session ends."""
        stored = self._state.cached(_SECTION).get(_TIMEOUT)
        if (isinstance(stored, int) and not isinstance(stored, bool)
                and MIN_TIMEOUT <= stored <= MAX_TIMEOUT):
            return stored
        return self._default

    def set_timeout(self, seconds) -> None:
        """Set the timeout of all sessions, existing ones included.

        :param seconds: from `MIN_TIMEOUT` to `MAX_TIMEOUT`
        :raises: `errors.MachineError` if it cannot be stored
        """
        self._state.update(_SECTION, lambda section: section.update(
            {_TIMEOUT: seconds}))

    # Opening and closing

    def open(self, user, account, source, context=None):
        """Create a session.

        :param user: user name
        :param account: the `account_files.Account` that was authenticated;
            None if no accounts are configured
        :param source: text, the client's IP address
        :param context: text that the client chose, or None
        :returns: (`Session`, token)
        """
        token = secrets.token_urlsafe(32)
        digest = _digest(token)
        session = Session(
            id=_id(digest), user=user, source=source, created=time.time(),
            context=context, digest=digest, signature=_signature(account))
        self._limit_number(session)
        self._local.make()
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._write(session)
        return session, token

    @contextlib.contextmanager
    def changes_account(self, session: Session | None) -> Iterator[None]:
        """Let other requests of a session wait while it changes its account.

        The session is renewed within this context, or ends.

        :param session: a `Session`; None if there is none to wait for
        """
        with contextlib.ExitStack() as stack:
            if session is not None:
                stack.enter_context(self._account_locked(
                    session, fcntl.LOCK_EX))
            yield

    @contextlib.contextmanager
    def _account_locked(self, session: Session, operation: int
                        ) -> Iterator[None]:
        """Lock the account of a session, for requests of this session.

        :param operation: of `fcntl.flock`: ``LOCK_EX`` to change it
        :raises: BlockingIOError, with ``LOCK_NB``, while it is changed
        """
        blocking.check()
        path = self._path(session.id)
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(FileNotFoundError):
                while True:
                    stream = stack.enter_context(open(path))
                    fcntl.flock(stream, operation)
                    # A renewal replaces the file.
                    if os.path.samestat(os.fstat(stream.fileno()),
                                        path.stat()):
                        break
            yield

    def renew(self, session, account) -> None:
        """Continue a session after its account was changed.

        A session that was closed meanwhile stays closed.

        :param session: a `Session`
        :param account: its changed `account_files.Account`
        """
        self._write(dataclasses.replace(
            session, signature=_signature(account)), replace=True)

    def close(self, session) -> None:
        """End a session; idempotent."""
        with contextlib.suppress(FileNotFoundError), self._locked():
            self._path(session.id).unlink()

    def _close_unchanged(self, used, session) -> None:
        """End a session unless it was used or renewed since it was read.

        :param used: time of the last use
        """
        with contextlib.suppress(FileNotFoundError), self._locked():
            if self._read(session.id) == (used, session):
                self._path(session.id).unlink()

    @contextlib.contextmanager
    def _locked(self):
        """Keep all workers from replacing and ending sessions.

        :raises: FileNotFoundError if the folder does not exist
        """
        blocking.check()
        fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def _limit_number(self, newest) -> None:
        """End the least recently used sessions above the limits.

        :param newest: `Session` that is being opened
        """
        sessions = [session for _used, session in sorted(
            self._valid_sessions(), key=lambda one: one[0])] + [newest]
        owner = self._owner(newest)
        for most, entries in (
                (MAX_PER_ACCOUNT, [one for one in sessions
                                   if self._owner(one) == owner]),
                (MAX_SESSIONS, sessions)):
            while len(entries) > most:
                ended = shares.surplus(entries, newest, self._owner, _network)
                self.close(ended)
                entries.remove(ended)
                if entries is not sessions:
                    sessions.remove(ended)

    def _owner(self, session):
        """Return to whose share a session belongs, see `shares`."""
        # Without accounts clients choose any name.
        return session.user if self._login.required else _network(session)

    def _write(self, session, replace: bool = False) -> None:
        """Write a session's file.

        :param replace: whether to write only what exists
        """
        # Renamed when complete, because other workers read it.
        path = self._path(session.id)
        fd, temporary = tempfile.mkstemp(prefix='.', dir=self._folder)
        try:
            with open(fd, 'w') as stream:
                json.dump(dataclasses.asdict(session), stream)
            with self._locked():
                if path.exists() or not replace:
                    os.rename(temporary, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)

    # Looking

    def find(self, token):
        """Find the session of a token and record its use.

        :param token: text, unchecked
        :returns: a `Session`; None if there is none or it has ended
        """
        digest = _digest(token)
        found = self._load(_id(digest))
        if found is None or not hmac.compare_digest(found[1].digest, digest):
            return None
        used, session = found
        if time.time() - used > min(10, self.timeout / 10):
            try:
                os.utime(self._path(session.id))
            except FileNotFoundError:
                return None
        return session

    def get(self, id):
        """Find a session by its Id. :returns: a `Session` or None"""
        if len(id) != _ID_LENGTH or not id.isalnum() or not id.isascii():
            return None
        found = self._load(id)
        return found and found[1]

    def all(self):
        """Return a list of `Session`, oldest first."""
        return sorted((session for _used, session in self._valid_sessions()),
                      key=lambda session: (session.created, session.id))

    def _path(self, id):
        return self._folder / id

    def _valid_sessions(self):
        """Return a list of (time of the last use, `Session`)."""
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            names = []
        return [found for name in names if name[0] != '.'
                and (found := self._load(name, wait=False))]

    def _load(self, id: str, wait: bool = True
              ) -> tuple[float, Session] | None:
        """Find a valid session.

        :param wait: whether to wait for a request of the session that changes
            its account; otherwise it is valid
        :returns: (time of the last use, `Session`) or None
        """
        before = None
        # It may be renewed while it is checked.
        while (stored := self._read(id)) not in (None, before):
            used, session = stored
            if self._is_valid(used, session, wait):
                return stored
            before = stored
        return None

    def _read(self, id):
        """Read a session's file.

        :returns: (time of the last use, `Session`) or None
        """
        path = self._path(id)
        try:
            with open(path) as stream:
                used = os.fstat(stream.fileno()).st_mtime
                session = Session(**json.load(stream))
            if any(not isinstance(getattr(session, name), expected)
                   for name, expected
                   in typing.get_type_hints(Session).items()):
                raise ValueError()
        except (FileNotFoundError, IsADirectoryError):
            return None
        except (TypeError, ValueError, RecursionError):
            LOG.warning('Session file %s is invalid; removed', path)
            path.unlink(missing_ok=True)
            return None
        return used, session

    def _is_valid(self, used: float, session: Session, wait: bool) -> bool:
        """Check a session; end it if it cannot become valid again.

        :param used: time of the last use
        :param wait: as in `_load`
        """
        unused = time.time() - used
        if unused > self.timeout:
            self._close_unchanged(used, session)
            return False
        if not self._login.required:
            return session.signature == _signature(None)
        account = self._login.account(session.user)
        if account is not None and hmac.compare_digest(
                session.signature, account.signature):
            return True
        # Another worker may have read the accounts later than this one.
        account = self._login.account(
            session.user, recheck=True,
            **({'max_age': 0} if unused < _SETTLE_SECONDS else {}))
        if account is None:
            # The account file may be in the middle of a write, or the account
            # be disabled. If it is gone, the timeout ends the session.
            return False
        if hmac.compare_digest(session.signature, account.signature):
            return True
        # It may be the one that changes the account, and be renewed.
        try:
            with self._account_locked(session, fcntl.LOCK_SH | (
                    0 if wait else fcntl.LOCK_NB)):
                self._close_unchanged(used, session)
        except BlockingIOError:
            return True
        return False


def _network(session):
    return shares.network(session.source)


def _digest(token):
    return hashlib.sha256(token.encode(errors='replace')).hexdigest()


def _id(digest):
    return digest[:_ID_LENGTH]


def _signature(account):
    return account.signature if account else ''
