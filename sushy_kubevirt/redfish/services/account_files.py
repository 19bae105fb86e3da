# SPDX-License-Identifier: Apache-2.0
"""Reads accounts from files and mounted Secrets.

Two sources are supported; both are read again when they change:

- a file with a line ``user:digest`` or ``user:digest:role`` per account,
  with a bcrypt digest as written by ``htpasswd -B``;
- a folder with the files ``username``, ``password`` and optionally ``role``,
  as Kubernetes mounts a Secret, or a folder of such folders.

At startup, an invalid account is an error. Later, an invalid account is left
out; if no account is valid, all logins are refused.

No password stays in memory: the password of a Secret is replaced by a keyed
hash, which checks it in microseconds. `authenticator` checks passwords.
"""

from __future__ import annotations

from collections import abc
import dataclasses
import hashlib
import hmac
import logging
import os
import pathlib
import re
import secrets
import threading
import time
import typing

from sushy_kubevirt.bmc import accounts

LOG = logging.getLogger(__name__)

#: Redfish's standard roles with their privileges (DSP0266, "Roles and
#: privileges").
ROLES = {
    'Administrator': ('Login', 'ConfigureManager', 'ConfigureUsers',
                      'ConfigureComponents', 'ConfigureSelf'),
    'Operator': ('Login', 'ConfigureComponents', 'ConfigureSelf'),
    'ReadOnly': ('Login', 'ConfigureSelf'),
}

#: Role of an account without one.
DEFAULT_ROLE = 'Administrator'

#: Largest number of bytes of a user name, and of a password in a Secret.
MAX_NAME_BYTES = 128
MAX_PASSWORD_BYTES = 1024

#: Largest number of bytes of an account file.
_MAX_FILE_BYTES = 2 ** 20

#: Highest bcrypt cost that is accepted in a file: with cost 17, a login would
#: take seven seconds.
_MAX_COST = 16

#: Key of `keyed_hash`, which makes hashes useless outside of this process.
_KEY = secrets.token_bytes(32)

_DIGEST = r'\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{21}[.Oeu][./A-Za-z0-9]{31}'

#: Shortest and longest time in seconds between two checks for changes. A
#: refused login does not wait for the next one.
_PAUSE_SECONDS, _CHECK_SECONDS = 0.1, 1

#: Seconds after its modification time in which a file is treated as
#: changing: the write may be incomplete, or a second write may leave the
#: same modification time.
_SETTLE_SECONDS = 1


#: Result of `os.stat` to be compared; the modification time in ns comes first.
_Stamp: typing.TypeAlias = tuple[int, ...]


class Invalid(ValueError):
    """An account or source is invalid; the text says which and why."""


@dataclasses.dataclass(frozen=True)
class Account:
    """An account.

    :param name: user name
    :param role: key of `ROLES`
    :param digest: bcrypt digest of the password in a file, else a hash that
        changes with the password
    :param password_hash: `keyed_hash` of the password if it is known, which
        makes bcrypt needless; else None
    :param stored_id: id of a stored account (`bmc.accounts`), else None. The
        digest of a stored account is its version instead of a password's.
    :param version: the version of a stored account, else None
    :param change_required: whether the password must be changed first
    :param ipmi: whether IPMI can use the account: its password is known, and
        name and password are not too long
    """

    name: str
    role: str
    digest: bytes = dataclasses.field(repr=False)
    password_hash: bytes | None = dataclasses.field(
        default=None, repr=False, compare=False)
    stored_id: int | None = None
    change_required: bool = False
    ipmi: bool = dataclasses.field(default=False, compare=False)
    version: str | None = None

    @property
    def privileges(self) -> tuple[str, ...]:
        return ROLES[self.role]

    @property
    def signature(self) -> str:
        """Hash that changes with name, role and password; not reversible."""
        return hashlib.sha256(b'\0'.join((
            self.name.encode(), self.role.encode(), self.digest))).hexdigest()


def utf8(data: bytes) -> bytes:
    """Return text in UTF-8.

    :param data: UTF-8, or else Latin-1
    """
    try:
        data.decode()
    except UnicodeDecodeError:
        return data.decode('latin-1').encode()
    return data


def keyed_hash(*parts: bytes) -> bytes:
    """Hash a password, alone or with what it belongs to, by a secret key.

    :returns: to be compared with `hmac.compare_digest`
    """
    return hmac.digest(_KEY, b''.join(
        len(part).to_bytes(4, 'big') + part for part in parts), 'sha256')


def cost(account: Account) -> int:
    """Return the bcrypt cost of checking a password, such as 12.

    :returns: 0 if no bcrypt is needed
    """
    return int(account.digest[4:6]) if account.password_hash is None else 0


def _name(text: str) -> str:
    if not text or len(text.encode()) > MAX_NAME_BYTES:
        raise Invalid(f'a user name has 1 to {MAX_NAME_BYTES} bytes')
    if ':' in text or not text.isprintable():
        raise Invalid('a user name has no colon and no control characters')
    return text


def _role(text: str) -> str:
    if text not in ROLES:
        raise Invalid(f"a role is one of {', '.join(ROLES)}")
    return text


def _line(text: str) -> Account:
    """Parse a line of an account file.

    :raises: `Invalid`; the text quotes nothing of the line
    """
    name, _colon, rest = text.partition(':')
    digest, colon, role = rest.partition(':')
    name = _name(name)
    match = re.fullmatch(_DIGEST, digest)
    if match is None:
        raise Invalid('expected user:digest or user:digest:role with a '
                      'bcrypt digest; make it with: htpasswd -nB USER')
    if not 4 <= int(match[1]) <= _MAX_COST:
        raise Invalid(f"a digest's cost is 4 to {_MAX_COST}; make it "
                      'with: htpasswd -nB -C 10 USER')
    return Account(name, _role(role) if colon else DEFAULT_ROLE,
                   digest.encode())


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Invalid('it is not text in UTF-8') from None


def _read(path: pathlib.Path, most: int) -> bytes:
    try:
        with open(path, 'rb') as stream:
            data = stream.read(most + 1)
    except OSError as exc:
        raise Invalid(f'it cannot be read: {exc.strerror}') from None
    if len(data) > most:
        raise Invalid(f'it has more than {most} bytes')
    return data


def _account(values: abc.Mapping[str, bytes]) -> Account:
    """Make the account of a Secret.

    :param values: of its keys
    :raises: `Invalid`
    """
    if not values['password']:
        raise Invalid('password: it is empty')
    name = _name(_text(values['username']))
    role = _role(_text(values['role'])) if 'role' in values else DEFAULT_ROLE
    # As in the header of HTTP Basic.
    password = utf8(values['password'])
    return Account(
        name, role, keyed_hash(name.encode(), password).hex().encode(),
        keyed_hash(password),
        ipmi=len(name.encode()) <= accounts.MAX_NAME_BYTES and len(
            values['password']) <= accounts.MAX_PASSWORD_BYTES)


def without_line_break(data: bytes) -> bytes:
    """Remove the line break that editors add at the end of a value."""
    return data.removesuffix(b'\r\n' if data.endswith(b'\r\n') else b'\n')


class AccountSource(typing.Protocol):
    """Has accounts, such as `Source` and `SecretSource`."""

    @property
    def path(self) -> object:
        """Where the accounts are, for messages."""

    def stamp(self) -> tuple[object, ...]:
        """Return a value that changes whenever the accounts change."""

    def read(self) -> tuple[list[Account], list[str]]:
        """Read the accounts. :returns: accounts, descriptions of problems"""


class SecretValues(typing.Protocol):
    """A Secret that was read, such as `secret_values.SecretValues`."""

    @property
    def values(self) -> abc.Mapping[str, bytes]:
        """Those of its keys."""

    @property
    def version(self) -> int:
        """Grows when the values change."""


class SecretSource:
    """The account of a Secret that was read from the API. Thread-safe.

    It has the methods of `Source`.
    """

    def __init__(self, secret: SecretValues) -> None:
        self.path = f'Secret {secret}'
        self._secret = secret

    def stamp(self) -> tuple[_Stamp, ...]:
        """See `Source.stamp`."""
        return (0, self._secret.version),

    def read(self) -> tuple[list[Account], list[str]]:
        """See `Source.read`."""
        values = self._secret.values
        try:
            for name in ('username', 'password', 'role'):
                if name not in values and name != 'role':
                    raise Invalid(f'{name}: the key is missing')
                if len(values.get(name, b'')) > MAX_PASSWORD_BYTES:
                    raise Invalid(f'{name}: it has more than '
                                  f'{MAX_PASSWORD_BYTES} bytes')
            return [_account(
                {name: without_line_break(value)
                 for name, value in values.items()})], []
        except Invalid as exc:
            return [], [f'{self.path}: {exc}']


class Source:
    """A file or folder with accounts."""

    def __init__(self, path: str | pathlib.Path) -> None:
        self.path = pathlib.Path(path)
        self._first: tuple[_Stamp | None, ...] | None = None

    def stamp(self) -> tuple[_Stamp | None, ...]:
        """Return a value that changes whenever the accounts change."""
        paths = [self.path]
        if self.path.is_dir():
            for folder in (self.path, *_folders(self.path)):
                # Kubernetes updates a mounted Secret by moving this link.
                paths += [folder, folder / '..data', *(
                    folder / name for name in ('username', 'password',
                                               'role'))]
        return tuple(map(_stat, paths))

    def read(self) -> tuple[list[Account], list[str]]:
        """Read the accounts. :returns: accounts, descriptions of problems"""
        if self._first is None:
            self._first = self.stamp()
        try:
            if self.path.is_dir():
                return self._folders()
            return self._lines()
        except Invalid as exc:
            return [], [f'{self.path}: {exc}']

    def _is_changing(self, path: pathlib.Path) -> bool:
        """Check whether a path may be in the middle of a write.

        The content found at startup is always read.
        """
        stamp = _stat(path)
        return (stamp is not None and self.stamp() != self._first
                and time.time_ns() - stamp[0] < _SETTLE_SECONDS * 10 ** 9)

    def _lines(self) -> tuple[list[Account], list[str]]:
        accounts: list[Account] = []
        problems: list[str] = []
        changing = self._is_changing(self.path)
        lines = _text(_read(self.path, _MAX_FILE_BYTES)).split('\n')
        for number, line in enumerate(lines, 1):
            line = line.strip()
            if not line or line.startswith('#'):
                continue
            try:
                if changing and number == len(lines):
                    # The role may not have been written yet.
                    raise Invalid('it is being written')
                accounts.append(_line(line))
            except Invalid as exc:
                problems.append(f'{self.path}, line {number}: {exc}')
        return accounts, problems

    def _folders(self) -> tuple[list[Account], list[str]]:
        if any((self.path / name).exists()
               for name in ('username', 'password')):
            folders = [self.path]
        else:
            folders = _folders(self.path)
        accounts: list[Account] = []
        problems: list[str] = []
        for folder in folders:
            try:
                accounts.append(self._secret(folder))
            except Invalid as exc:
                problems.append(f'{folder}: {exc}')
        return accounts, problems

    def _secret(self, folder: pathlib.Path) -> Account:
        """Read the account of one mounted Secret.

        :param folder: where it is mounted
        :raises: `Invalid`
        """
        values = {}
        # Read all files from one version, even if Kubernetes updates the
        # mount meanwhile.
        now = pathlib.Path(os.path.realpath(folder / '..data'))
        where = now if now.is_dir() else folder
        for name in ('username', 'password', 'role'):
            path = where / name
            if name == 'role' and not path.exists():
                continue
            try:
                data = _read(path, MAX_PASSWORD_BYTES)
            except Invalid as exc:
                raise Invalid(f'{name}: {exc}') from None
            values[name] = without_line_break(data)
        if ('role' not in values and where is folder
                and self._is_changing(folder)):
            raise Invalid('it is being written')
        return _account(values)


def _folders(path: pathlib.Path) -> list[pathlib.Path]:
    """List the folders in one, sorted, without Kubernetes' hidden ones."""
    try:
        return sorted(entry for entry in path.iterdir()
                      if not entry.name.startswith('.') and entry.is_dir())
    except OSError:
        return []


def _stat(path: pathlib.Path) -> _Stamp | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_ctime_ns, status.st_size,
            status.st_ino, status.st_dev)


class Accounts:
    """The accounts of all sources, kept up to date. Thread-safe.

    :param sources: at least one
    """

    def __init__(self, sources: abc.Iterable[AccountSource]) -> None:
        self._sources = tuple(sources)
        self._lock = threading.Lock()
        self._accounts: dict[str, Account] = {}
        self._stamp: tuple[object, ...] | None = None
        self._problems: list[str] | None = None
        self._next = 0.0    # time.monotonic() of the next check

    def require(self) -> None:
        """Read the accounts for the first time.

        :raises: `Invalid`, with a line for each problem
        """
        problems = self._load()
        if not problems and not self._accounts:
            problems = [f'{source.path}: it has no account'
                        for source in self._sources]
        if problems:
            raise Invalid('\n'.join(problems))

    def current(self, recheck: bool = False) -> dict[str, Account]:
        """Return the accounts, after reading changed sources again.

        :param recheck: whether to check for changes even if the last check was
            less than `_CHECK_SECONDS` ago
        :returns: by user name; must not be modified
        """
        if (recheck or time.monotonic() >= self._next) and self._lock.acquire(
                blocking=recheck):
            try:
                begin = time.thread_time()
                changed = self._changed()
                # A check takes microseconds, with many folders more: spend
                # at most a tenth of all time on it.
                spent = time.thread_time() - begin
                self._next = time.monotonic() + min(
                    _CHECK_SECONDS, max(_PAUSE_SECONDS, 10 * spent))
                if changed:
                    self._load()
            finally:
                self._lock.release()
        return self._accounts

    def _changed(self) -> bool:
        return self._stamp is None or self._stamps() != self._stamp

    def _stamps(self) -> tuple[tuple[typing.Any, ...], ...]:
        return tuple(source.stamp() for source in self._sources)

    def _load(self) -> list[str]:
        """Read all sources. :returns: descriptions of problems"""
        stamp = self._stamps()
        accounts: dict[str, Account] = {}
        problems: list[str] = []
        for source in self._sources:
            members, wrong = source.read()
            problems += wrong
            for account in members:
                if account.name in accounts:
                    problems.append(f'{source.path}: user {account.name} is '
                                    'defined twice')
                else:
                    accounts[account.name] = account
        if problems != self._problems:
            for text in problems:
                LOG.error('Accounts: %s', text)
        self._accounts, self._problems = accounts, problems
        self._stamp = stamp if _settled(stamp) else None
        return problems


def _settled(stamp: tuple[tuple[_Stamp | None, ...], ...]) -> bool:
    """Check that no file was modified in the last `_SETTLE_SECONDS`."""
    newest = max((status[0] for source in stamp for status in source
                  if status), default=0)
    return time.time_ns() - newest > _SETTLE_SECONDS * 10 ** 9
