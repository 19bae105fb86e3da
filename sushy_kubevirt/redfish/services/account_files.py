# SPDX-License-Identifier: Apache-2.0
"""The accounts there are, as files and mounted Secrets tell.

Two forms, both read again when they change:

- a file with a line ``user:digest`` or ``user:digest:role`` for each
  account, the digest bcrypt's, as ``htpasswd -B`` writes it;
- a folder with the files ``username``, ``password`` and, if wanted, ``role``,
  as Kubernetes mounts a Secret, or a folder of such folders.

At the start, whatever cannot be used is refused. Later on an account that
cannot be read is left out, and when nothing can be read there are no
accounts: nobody can log in, rather than everybody.

No password stays in memory: the one of a Secret is made a bcrypt digest at
once. Whether a password fits is not asked here but in `accounts`.
"""

import base64
import dataclasses
import hashlib
import hmac
import logging
import os
import pathlib
import re
import secrets
import string
import threading
import time

import bcrypt

LOG = logging.getLogger(__name__)

#: Roles that Redfish defines (DSP0266, "Roles and privileges"), and what
#: they may do; the first is that of an account that names none.
ROLES = {
    'Administrator': ('Login', 'ConfigureManager', 'ConfigureUsers',
                      'ConfigureComponents', 'ConfigureSelf'),
    'Operator': ('Login', 'ConfigureComponents', 'ConfigureSelf'),
    'ReadOnly': ('Login', 'ConfigureSelf'),
}
DEFAULT_ROLE = 'Administrator'

#: Bytes of a user name, and of a password in a Secret.
LONGEST_NAME = 128
LONGEST_PASSWORD = 1024

#: Bytes of a file of accounts.
_LONGEST_FILE = 2 ** 20

#: bcrypt's cost for the passwords of Secrets, and the highest of a digest in
#: a file: with one more, a login would take seven seconds.
_COST = 10
_HIGHEST_COST = 16

# bcrypt's digits to base 64 are in an order of their own.
_DIGITS = (string.ascii_uppercase + string.ascii_lowercase
           + string.digits).encode()
_TO_BCRYPT = bytes.maketrans(_DIGITS + b'+/', b'./' + _DIGITS)

_DIGEST = re.compile(
    r'\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{21}[.Oeu][./A-Za-z0-9]{31}')

#: Seconds after which a change is noticed at the latest.
_LATEST = 1

#: Seconds for which what was just written may still be being written, or be
#: written again and leave the same time.
_FRESH = 1


class Invalid(ValueError):
    """Accounts that cannot be read; the text says which and why."""


@dataclasses.dataclass(frozen=True)
class Account:
    """Who may log in.

    :param name: of the user
    :param role: key of `ROLES`
    :param digest: bcrypt's, bytes
    :param hashed: whether the digest is that of `hashed` (password)
    """

    name: str
    role: str
    digest: bytes = dataclasses.field(repr=False)
    hashed: bool = dataclasses.field(default=False, repr=False)

    @property
    def privileges(self):
        return ROLES[self.role]

    @property
    def signature(self):
        """Changes with the password and the role; says nothing of them."""
        return hashlib.sha256(b'\0'.join((
            self.name.encode(), self.role.encode(), self.digest))).hexdigest()


def hashed(password):
    """A password of any length as bcrypt takes it: 44 bytes without a NUL."""
    return base64.b64encode(hashlib.sha256(password).digest())


def cost(account):
    """:returns: bcrypt's cost of an account's digest, such as 12"""
    return int(account.digest[4:6])


def _name(text):
    if not text or len(text.encode()) > LONGEST_NAME:
        raise Invalid('a user name has 1 to %d bytes' % LONGEST_NAME)
    if ':' in text or not text.isprintable():
        raise Invalid('a user name has no colon and no control characters')
    return text


def _role(text):
    if text not in ROLES:
        raise Invalid(f"a role is one of {', '.join(ROLES)}")
    return text


def _line(text):
    """The account of a line.

    :raises: `Invalid`, without anything of the line
    """
    name, _colon, rest = text.partition(':')
    digest, colon, role = rest.partition(':')
    name = _name(name)
    found = _DIGEST.fullmatch(digest)
    if found is None:
        raise Invalid('it has to be user:digest or user:digest:role, with a '
                      'bcrypt digest; make it with: htpasswd -nB USER')
    if not 4 <= int(found[1]) <= _HIGHEST_COST:
        raise Invalid("a digest's cost is 4 to %d; make it with: htpasswd "
                      '-nB -C 10 USER' % _HIGHEST_COST)
    return Account(name, _role(role) if colon else DEFAULT_ROLE,
                   digest.encode())


def _text(data):
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Invalid('it is no text in UTF-8') from None


def _read(path, most):
    try:
        with open(path, 'rb') as stream:
            data = stream.read(most + 1)
    except OSError as exc:
        raise Invalid(f'it cannot be read: {exc.strerror}') from None
    if len(data) > most:
        raise Invalid('it has more than %d bytes' % most)
    return data


class Source:
    """A file or a folder of accounts.

    :param path: of it
    :param purpose: text that sets the digests of one emulator's passwords
        apart from those of others; the same in all its workers
    """

    def __init__(self, path, purpose=''):
        self.path = pathlib.Path(path)
        self._purpose = purpose.encode()
        self._key = secrets.token_bytes(32)
        # Keyed hash of a Secret's user and password: the digest, which is
        # dear to make.
        self._digests = {}
        self._first = None

    def stamp(self):
        """What changes when the accounts do.

        :returns: tuple, to compare
        """
        paths = [self.path]
        if self.path.is_dir():
            for folder in (self.path, *_folders(self.path)):
                # The link that Kubernetes turns to a Secret's new content.
                paths += [folder, folder / '..data', *(
                    folder / name for name in ('username', 'password',
                                               'role'))]
        return tuple(map(_stat, paths))

    def read(self):
        """Read the accounts.

        :returns: (list of `Account`, list of texts that say what cannot be
            used)
        """
        if self._first is None:
            self._first = self.stamp()
        try:
            if self.path.is_dir():
                return self._folders()
            return self._lines()
        except Invalid as exc:
            return [], [f'{self.path}: {exc}']

    def _is_changing(self, path):
        """Whether somebody may be writing it just now.

        What is there at the start is taken as it is.
        """
        found = _stat(path)
        return (found is not None and self.stamp() != self._first
                and time.time_ns() - found[0] < _FRESH * 10 ** 9)

    def _lines(self):
        found, problems = [], []
        changing = self._is_changing(self.path)
        lines = _text(_read(self.path, _LONGEST_FILE)).split('\n')
        for number, line in enumerate(lines, 1):
            line = line.strip()
            if not line or line.startswith('#'):
                continue
            try:
                if changing and number == len(lines):
                    # A role may be still to come.
                    raise Invalid('it is being written')
                found.append(_line(line))
            except Invalid as exc:
                problems.append('%s, line %d: %s' % (self.path, number, exc))
        return found, problems

    def _folders(self):
        if any((self.path / name).exists()
               for name in ('username', 'password')):
            folders = [self.path]
        else:
            folders = _folders(self.path)
        found, problems, digests = [], [], {}
        for folder in folders:
            try:
                found.append(self._secret(folder, digests))
            except Invalid as exc:
                problems.append(f'{folder}: {exc}')
        self._digests = digests
        return found, problems

    def _secret(self, folder, digests):
        """The account of one mounted Secret."""
        values = {}
        # All from one state of the Secret, even if it changes meanwhile.
        now = pathlib.Path(os.path.realpath(folder / '..data'))
        where = now if now.is_dir() else folder
        for name in ('username', 'password', 'role'):
            path = where / name
            if name == 'role' and not path.exists():
                continue
            try:
                data = _read(path, LONGEST_PASSWORD)
            except Invalid as exc:
                raise Invalid(f'{name}: {exc}') from None
            # What an editor leaves at the end is none of it.
            ending = b'\r\n' if data.endswith(b'\r\n') else b'\n'
            values[name] = data.removesuffix(ending)
        if ('role' not in values and where is folder
                and self._is_changing(folder)):
            raise Invalid('it is being written')
        if not values['password']:
            raise Invalid('password: it is empty')
        name = _name(_text(values['username']))
        role = _role(_text(values['role'])) \
            if 'role' in values else DEFAULT_ROLE
        key = hmac.digest(self._key, name.encode() + b':'
                          + values['password'], 'sha256')
        digest = self._digests.get(key) or self._digest(
            name, values['password'])
        digests[key] = digest
        return Account(name, role, digest, hashed=True)

    def _digest(self, name, password):
        # All workers have to come to the same one: sessions are bound to it.
        seed = hashlib.sha256(self._purpose + b'\0' + name.encode())
        salt = base64.b64encode(seed.digest()[:16]).rstrip(b'=')
        salt = salt.translate(_TO_BCRYPT)
        return bcrypt.hashpw(hashed(password), b'$2b$%d$' % _COST + salt)


def _folders(path):
    """The folders in one, by name, without those of Kubernetes' own."""
    try:
        return sorted(entry for entry in path.iterdir()
                      if not entry.name.startswith('.') and entry.is_dir())
    except OSError:
        return []


def _stat(path):
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_ctime_ns, found.st_size,
            found.st_ino, found.st_dev)


class Accounts:
    """All accounts, as they are now. Safe for several threads.

    :param sources: `Source`s, at least one
    """

    def __init__(self, sources):
        self._sources = tuple(sources)
        self._lock = threading.Lock()
        self._accounts = {}
        self._stamp = self._problems = None
        self._next = 0

    def require(self):
        """Read them for the first time.

        :raises: `Invalid`, with a line for each thing that cannot be used
        """
        problems = self._load()
        if not problems and not self._accounts:
            problems = [f'{source.path}: it has no account'
                        for source in self._sources]
        if problems:
            raise Invalid('\n'.join(problems))

    def current(self, sure=False):
        """The accounts, read again if they have changed.

        :param sure: whether to look even if that was done just now
        :returns: dict of name to `Account`, not to be changed
        """
        if (sure or time.monotonic() >= self._next) and self._lock.acquire(
                blocking=sure):
            try:
                begin = time.thread_time()
                changed = self._changed()
                # Looking takes microseconds, with many folders more: of all
                # time, no more than a tenth is spent on it.
                spent = time.thread_time() - begin
                self._next = time.monotonic() + min(_LATEST, 10 * spent)
                if changed:
                    self._load()
            finally:
                self._lock.release()
        return self._accounts

    def _changed(self):
        return self._stamp is None or self._stamps() != self._stamp

    def _stamps(self):
        return tuple(source.stamp() for source in self._sources)

    def _load(self):
        """Read all. :returns: list of problems"""
        stamp = self._stamps()
        accounts, problems = {}, []
        for source in self._sources:
            found, wrong = source.read()
            problems += wrong
            for account in found:
                if account.name in accounts:
                    problems.append('%s: user %s is there a second time'
                                    % (source.path, account.name))
                else:
                    accounts[account.name] = account
        if problems != self._problems:
            for text in problems:
                LOG.error('Accounts: %s', text)
        self._accounts, self._problems = accounts, problems
        self._stamp = stamp if _settled(stamp) else None
        return problems


def _settled(stamp):
    newest = max((one[0] for part in stamp for one in part if one),
                 default=0)
    return time.time_ns() - newest > _FRESH * 10 ** 9
