# SPDX-License-Identifier: Apache-2.0
"""User of a mounted Secret, read on every access.

Kubernetes mounts a Secret as a directory of symbolic links and replaces
their target atomically. Checking the files on access takes microseconds and
needs no watcher. While the Secret is missing or invalid, no login is possible.
"""

from __future__ import annotations

from collections import abc
import logging
import os
import threading
import time
import typing

from vbmc_kubevirt.ipmi import constants
from vbmc_kubevirt.ipmi import users

if typing.TYPE_CHECKING:
    from sushy_kubevirt.pod import secret_values

LOG = logging.getLogger(__name__)

#: Link that Kubernetes replaces when the Secret changes.
_DATA = '..data'
_NAMES = 'username', 'password', 'role'

#: Role of a Secret without one, as in Redfish.
DEFAULT_ROLE = 'Administrator'

#: Id of the user of the Secret, the first after the null user.
USER_ID = users.NULL_USER + 1

# Maximum bytes of user name and password.
_LIMITS = {'username': constants.USERNAME_MAX,
           'password': constants.PASSWORD_MAX}

#: Maximum number of bytes read from a file.
_MAX_BYTES = 1024

#: Seconds after a modification during which a plain file, not mounted by
#: Kubernetes, may be incomplete. Not applied to the files found at start.
_WRITE_SECONDS = 1


#: What `_stat` tells of a file.
Stamp: typing.TypeAlias = tuple[int, int, int, int] | None

#: A value that changes with the files: the stamp of the target of ``..data``,
#: or one stamp for each file where there is no such link, and whether the
#: files may be incomplete.
Stamps: typing.TypeAlias = list[Stamp | bool]


class InvalidSecret(Exception):
    """The Secret is invalid; the text contains nothing of its values."""


User: typing.TypeAlias = users.User


class MountedAccount:
    """User in a directory. Thread-safe.

    :param folder: path of a directory with the files ``username``,
        ``password`` and optionally ``role``
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._data = os.path.join(folder, _DATA)
        self._lock = threading.Lock()
        self._stamp: Stamps | None = None
        self._first: Stamps | None = None
        self._users: tuple[User, ...] = ()
        self._problem = ''
        self._first = self._stamps()

    def users(self) -> tuple[User, ...]:
        """Return the present user, for `users.Users`.

        :returns: empty if the Secret is missing or invalid; the same object
            until it changes
        """
        with self._lock:
            for _attempt in range(3):
                stamp = self._stamps()
                if stamp == self._stamp:
                    break
                self._load(stamp)
                # If the files changed while being read, user name and
                # password may not belong together: check again.
                self._stamp = stamp
            return self._users

    @property
    def problem(self) -> str:
        """Why no login is possible, a sentence; '' if the Secret is valid."""
        self.users()
        return self._problem

    def _stamps(self) -> Stamps:
        # The name to which the link leads would take half the time, but stays
        # when the folder is removed or a file in it is replaced.
        link = _stat(self._data)
        if link is not None:
            return [link]
        files = [_stat(os.path.join(self.folder, name)) for name in _NAMES]
        stamps: Stamps = [*files]
        if self._first not in (None, stamps):
            # Not mounted by Kubernetes, and changed since the start: the
            # files may be incomplete until they are left unchanged.
            newest = max((stamp[0] for stamp in files if stamp), default=0)
            # abs: ignore modification times in the future.
            stamps.append(
                abs(time.time_ns() - newest) < _WRITE_SECONDS * 10 ** 9)
        return stamps

    def _path(self, name: str) -> str:
        # Kubernetes replaces the target of the link first, and the links of
        # the files in it afterwards.
        folder = self._data if os.path.exists(self._data) else self.folder
        return os.path.join(folder, name)

    def _load(self, stamp: Stamps) -> None:
        try:
            if stamp[-1] is True:
                raise InvalidSecret('its files are being written')
            current: tuple[User, ...] = (_user(self._read),)
        except InvalidSecret as exc:
            current = ()
            problem = f'Secret mounted at {self.folder} is unusable: {exc}'
            if problem != self._problem:
                LOG.error('%s. No login is possible until it is corrected',
                          problem)
        else:
            problem = ''
            if self._stamp is not None and current != self._users:
                LOG.info('User name, password or role in the Secret mounted '
                         'at %s has changed', self.folder)
        self._problem = problem
        self._users = current

    def _read(self, name: str) -> bytes | None:
        path = self._path(name)
        if name == 'role' and not os.path.exists(path):
            return None
        try:
            with open(path, 'rb') as stream:
                return stream.read(_MAX_BYTES)
        except OSError as exc:
            raise InvalidSecret(f'{name}: {exc.strerror}') from None


class _Known(typing.NamedTuple):
    # Values of a Secret, and what follows from them.

    values: abc.Mapping[str, bytes] | None
    users: tuple[User, ...]
    problem: str


class SecretAccount:
    """User of a Secret that was read from the API. Thread-safe.

    It has the methods of `MountedAccount`.

    :param secret: its ``values`` are replaced when it changes
    """

    def __init__(self, secret: secret_values.SecretValues) -> None:
        self._secret = secret
        self._known = _Known(None, (), '')

    def users(self) -> tuple[User, ...]:
        """See `MountedAccount.users`."""
        return self._current().users

    @property
    def problem(self) -> str:
        """See `MountedAccount.problem`."""
        return self._current().problem

    def _current(self) -> _Known:
        known = self._known
        values = self._secret.values
        if known.values is not values:
            try:
                known = _Known(values, (_user(values.get),), '')
            except InvalidSecret as exc:
                known = _Known(
                    values, (), f'Secret {self._secret} is unusable: {exc}')
            self._known = known
        return known


def _user(read: abc.Callable[[str], bytes | None]) -> users.User:
    """Make the user of a Secret.

    :param read: returns the value of a key; None if it is missing
    :raises: `InvalidSecret`
    """
    return users.User(USER_ID, _value('username', read('username')),
                      _value('password', read('password')),
                      _limit(read('role')))


def _limit(data: bytes | None) -> constants.Privilege:
    """Return the privilege limit of the Secret's role."""
    role = DEFAULT_ROLE if data is None else _stripped(data).decode(
        errors='replace')
    if role not in users.LIMITS:
        raise InvalidSecret(
            f"role: must be one of {', '.join(sorted(users.LIMITS))}")
    return users.LIMITS[role]


def _stripped(data: bytes) -> bytes:
    # Ignore the newline that editors append.
    ending = b'\r\n' if data.endswith(b'\r\n') else b'\n'
    return data.removesuffix(ending)


def _value(name: str, data: bytes | None) -> bytes:
    """Check and return a user name or password."""
    if data is None:
        raise InvalidSecret(f'{name}: the key is missing')
    data = _stripped(data)
    if not 0 < len(data) <= _LIMITS[name]:
        raise InvalidSecret(
            f'{name}: must have 1 to {_LIMITS[name]} bytes')
    try:
        printable = data.decode().isprintable()
    except UnicodeDecodeError:
        printable = False
    if not printable:
        raise InvalidSecret(
            f'{name}: must be printable UTF-8 text without control '
            'characters')
    return data


def _stat(path: str) -> Stamp:
    try:
        info = os.stat(path)
    except OSError:
        return None
    return info.st_mtime_ns, info.st_size, info.st_ino, info.st_dev
