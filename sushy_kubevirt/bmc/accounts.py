# SPDX-License-Identifier: Apache-2.0
"""Accounts that clients create, for every protocol.

They are stored in the Secret with the BMC's state (`state_secret`), one entry
per id. The Secret contains the passwords, because IPMI needs them: they are
the keys of its sessions. Passwords are never logged and never returned to
clients.

The limits are those that both protocols can meet: user names and passwords of
IPMI have at most 16 and 20 bytes (IPMI 2.0, sections 22.28 and 22.30). IPMI
reserves id 1, and id 2 is the account of the mounted Secret, which is not
stored here.

An entry that IPMI creates may lack name, password or role at first. The last
changes, and who made them, are recorded beside the accounts, so that every
process of the BMC can report them.
"""

from __future__ import annotations

from collections import abc
import datetime
import logging
import secrets
import time
import typing

from sushy_kubevirt.bmc import event_registry
from sushy_kubevirt.bmc import log_record
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import objects

if typing.TYPE_CHECKING:
    from sushy_kubevirt.bmc import state_secret

LOG = logging.getLogger(__name__)

#: Ids of stored accounts.
FIRST_ID, LAST_ID = 3, 15

#: Redfish's standard roles (DSP0266, "Roles").
ROLES = ('Administrator', 'Operator', 'ReadOnly')

#: Limits in bytes.
MAX_NAME_BYTES = 16
MIN_PASSWORD_BYTES, MAX_PASSWORD_BYTES = 8, 20

#: Number of changes that are remembered.
_MAX_CHANGES = 20

#: Seconds after its last change in which an account without a name is not
#: replaced: a client may still be creating it, with several commands of IPMI.
_CREATION_SECONDS = 300

_SECTION = 'accounts'
_CHANGES = 'changes'

#: Seconds after which accounts are read again before a login is refused, where
#: the Secret is not watched, and before a session is ended.
_MAX_AGE_SECONDS, NEWEST_SECONDS = 1, 0.1


class NotFound(errors.MachineError):
    """There is no account with this id."""


class Replaced(errors.MachineError):
    """The account is no longer the one that was meant."""


class Full(errors.MachineError):
    """Every id is in use."""


class NameTaken(errors.InvalidValue):
    """Another account has this user name."""


class Account(typing.NamedTuple):
    """A stored account.

    :param id: from `FIRST_ID` to `LAST_ID`
    :param version: text that changes with every change of the account
    :param name: user name, '' if none was given yet
    :param password: None if none was given yet
    :param role: one of `ROLES`; None for no access
    :param enabled: whether the account may be used
    :param locked: whether an administrator has locked it
    :param change_required: whether the password has to be changed first
    :param redfish: whether the account may use Redfish
    :param ipmi: whether it may use IPMI
    """

    id: int
    version: str = ''
    name: str = ''
    password: str | None = None
    role: str | None = None
    enabled: bool = False
    locked: bool = False
    change_required: bool = False
    redfish: bool = True
    ipmi: bool = True

    def __repr__(self) -> str:
        return f'Account({self.id}, {self.name!r})'     # no password

    @property
    def usable(self) -> bool:
        """Whether one can log in."""
        return bool(self.name and self.password and self.role
                    and self.enabled and not self.locked)


#: Names of the fields that can be changed.
_FIELDS = tuple(field for field in Account._fields
                if field not in ('id', 'version'))


class Change(typing.NamedTuple):
    """A change of an account.

    :param id: text, unique
    :param account: id of the account
    :param name: user name after the change, or before the deletion
    :param action: ``created``, ``changed`` or ``deleted``
    :param fields: names of the changed fields, comma-separated
    :param by: who changed it, such as ``admin over Redfish``
    :param time: seconds since the epoch
    """

    id: str
    account: int
    name: str
    action: str
    fields: str
    by: str
    time: int


_MESSAGES = {
    'created': event_registry.ACCOUNT_CREATED,
    'changed': event_registry.ACCOUNT_CHANGED,
    'deleted': event_registry.ACCOUNT_DELETED,
}


def record_of(change: Change) -> log_record.Record | None:
    """Make the event of a change; None for an unknown action.

    The process that changes an account writes the event into the VM's log; the
    Redfish service sends it to subscribers, and writes it too. The event's id
    is that of the change, so the log has it once.
    """
    message = _MESSAGES.get(change.action)
    if message is None:
        return None
    return log_record.make(
        message, (change.name or '(none)', change.account, change.by,
                  change.fields)[:len(message.arguments)],
        id=log_record.id_of(change.id),
        time=datetime.datetime.fromtimestamp(
            change.time, datetime.timezone.utc).isoformat(
                timespec='milliseconds'),
        origin=f'/redfish/v1/AccountService/Accounts/{change.account}')


_TYPES = {kind: typing.get_type_hints(kind) for kind in (Account, Change)}

_EntryT = typing.TypeVar('_EntryT', Account, Change)


class Accounts:
    """The stored accounts. Thread-safe.

    :param reserved: function that returns user names of other accounts, which
        a stored account cannot have
    """

    def __init__(self, state: state_secret.StateSecret,
                 reserved: abc.Callable[[], abc.Container[str]] = tuple
                 ) -> None:
        self._state = state
        self._reserved = reserved
        # The section, and what it contains.
        self._known: tuple[objects.Json | None, tuple[Account, ...]] = None, ()
        #: Called after this process made a change; must not block.
        self.changed: list[abc.Callable[[Change], None]] = []

    # Reading

    def all(self, recheck: bool = False,
            max_age: float | None = None) -> tuple[Account, ...]:
        """Return the accounts.

        :param recheck: whether to read them if no watch keeps them up to date
        :param max_age: seconds after which to read them even if one does
        :returns: by id; the same object until one changes
        """
        if max_age is not None:
            self._state.refresh(max_age, trust_watch=False)
        elif recheck:
            self._state.refresh(_MAX_AGE_SECONDS)
        section = self._state.cached(_SECTION)
        known, accounts = self._known
        if known is not section:
            current = tuple(filter(None, _by_id(section).values()))
            if current != accounts:
                accounts = current
            self._known = section, accounts
        return accounts

    def get(self, id_: int, max_age: float | None = None) -> Account | None:
        """Return the account with an id, or None.

        :param max_age: see `all`
        """
        return next((account for account in self.all(max_age=max_age)
                     if account.id == id_), None)

    def changes(self) -> list[Change]:
        """Return the last changes, oldest first."""
        return _changes(self._state.cached(_SECTION))

    # Writing

    def create(self, by: str, **values: typing.Any) -> Account:
        """Create an account with the first free id.

        If every id is in use, an account without a name is replaced, such as
        one that IPMI has begun to create and did not finish.

        :param by: who does it, such as ``admin over Redfish``
        :param values: fields of `Account`
        :raises: `errors.InvalidValue`, `NameTaken`, `Full`,
            `errors.MachineError`
        """
        return self._write(None, by, {'enabled': True, **values})

    def change(self, id_: int, by: str,
               expected: abc.Mapping[str, object] | None = None,
               **values: typing.Any) -> Account:
        """Change an account.

        :param id_: from `FIRST_ID` to `LAST_ID`
        :param by: see `create`
        :param expected: fields of `Account` that it must have when it
            is written, as ids are used again: what was checked before may
            have been another account. An id without an account has the
            defaults of `Account`. An account that does not exist is created
            with None, or if the defaults are expected.
        :param values: fields of `Account`. A new password clears
            ``change_required`` unless that is given; it must then differ
            from the present one.
        :raises: see `create`, and `NotFound`, `Replaced`
        """
        return self._write(id_, by, values, expected)

    def delete(self, id_: int, by: str,
               expected: abc.Mapping[str, object] | None = None) -> None:
        """Delete an account.

        :param expected: see `change`
        :raises: `NotFound`, `Replaced`, `errors.MachineError`
        """
        if self.get(id_) is None:
            raise NotFound(f'There is no account {id_}')
        change_id = secrets.token_hex(8)
        deletions: list[Change] = []        # of each try

        def edit(section: objects.Json) -> None:
            entry = section.get(str(id_))
            if entry is not None:
                if expected:
                    _require(id_, _account(id_, entry), expected)
                del section[str(id_)]
                change = Change(change_id, id_, str(entry.get('name') or ''),
                                'deleted', '', by, int(time.time()))
                _record(section, change)
                deletions.append(change)

        self._update(edit)
        self._report(deletions[-1] if deletions else None)

    def _update(self, edit: abc.Callable[[objects.Json], None]) -> None:
        try:
            self._state.update(_SECTION, edit)
        except (NotFound, Replaced):
            # What is cached is outdated.
            self._state.refresh(0, trust_watch=False)
            raise

    def _report(self, change: Change | None) -> None:
        """Log a change, and call `changed`.

        :param change: None if another process was faster
        """
        if change is None:
            return
        LOG.info('Account %d (%s) %s by %s%s', change.account,
                 change.name or 'no name', change.action, change.by,
                 f': {change.fields}' if change.fields else '')
        for callback in self.changed:
            callback(change)

    def _write(self, id_: int | None, by: str, values: objects.Json,
               expected: abc.Mapping[str, object] | None = None) -> Account:
        _check(values)
        version = secrets.token_hex(8)
        name = values.get('name')
        if name and name in self._reserved():
            raise _name_taken(name)
        outcomes: list[tuple[Change | None, Account]] = []      # of each try

        def edit(section: objects.Json) -> None:
            accounts = _by_id(section)
            for number, account in accounts.items():
                if account is None:
                    continue
                if account.version == version:
                    return      # the response to an earlier try was lost
                if name and account.name == name and number != id_:
                    raise _name_taken(name)
            number = id_ or _free_id(accounts, section)
            before = accounts[number] if id_ else None
            if expected is not None:
                _require(number, before, expected)
            after = (before or Account(number))._replace(**values)
            if 'password' in values and 'change_required' not in values:
                after = _changed_as_required(before, after)
            fields = [field for field in _FIELDS if before is None
                      or getattr(before, field) != getattr(after, field)]
            if not fields:
                outcomes.append((None, after))
                return
            after = after._replace(version=version)
            entry = after._asdict()
            del entry['id']
            section[str(number)] = entry
            action = 'changed' if before else 'created'
            change = Change(version, number, after.name, action,
                            ', '.join(fields) if before else '', by,
                            int(time.time()))
            _record(section, change)
            outcomes.append((change, after))

        self._update(edit)
        change, account = outcomes[-1]
        self._report(change)
        return account


def _changed_as_required(before: Account | None, after: Account) -> Account:
    """Clear ``change_required`` of an account with a new password.

    :raises: `errors.InvalidValue` if the password is not new
    """
    if after.change_required and before and before.password == after.password:
        raise errors.InvalidValue('password', '…', message=(
            'The password must be changed; use another one'))
    return after._replace(change_required=False)


def _free_id(accounts: abc.Mapping[int, Account | None],
             section: objects.Json) -> int:
    """Return the id of a new account.

    :param section: with the last changes; the id of a change is the
        version of the account after it
    :raises: `Full`
    """
    now = time.time()
    recent = {change.id for change in _changes(section)
              if abs(now - change.time) < _CREATION_SECONDS}
    free = [number for number, account in accounts.items() if account is None]
    abandoned = [number for number, account in accounts.items() if account
                 and not account.name and account.version not in recent]
    if free or abandoned:
        return (free or abandoned)[0]
    raise Full(f'There are {LAST_ID - FIRST_ID + 1} accounts; delete one '
               'first')


def _require(id_: int, account: Account | None,
             expected: abc.Mapping[str, object]) -> None:
    """Check that an account is the one that is meant.

    :param expected: its fields
    :raises: `NotFound`, `Replaced`
    """
    if all(getattr(account or Account(id_), field) == value
           for field, value in expected.items()):
        return
    if account is None:
        raise NotFound(f'There is no account {id_}')
    raise Replaced(f'Account {id_} was changed or replaced meanwhile')


def _name_taken(name: str) -> NameTaken:
    return NameTaken('name', name, message=f'There is a user {name!r} already')


def _check(values: objects.Json) -> None:
    """Check the fields of an account.

    :raises: `errors.InvalidValue`, which contains no password
    """
    name = values.get('name')
    if name and (len(name.encode(errors='replace')) > MAX_NAME_BYTES
                 or not name.isprintable() or ':' in name
                 or name != name.strip()):
        raise errors.InvalidValue('name', name, message=(
            f'A user name has 1 to {MAX_NAME_BYTES} bytes, no colon, no '
            'control characters, and no space at its ends'))
    password = values.get('password')
    if password is not None and (
            not MIN_PASSWORD_BYTES <= len(password.encode(errors='replace'))
            <= MAX_PASSWORD_BYTES or not password.isprintable()):
        raise errors.InvalidValue('password', '…', message=(
            f'A password has {MIN_PASSWORD_BYTES} to {MAX_PASSWORD_BYTES} '
            'bytes and no control characters'))
    role = values.get('role')
    if role is not None and role not in ROLES:
        raise errors.InvalidValue('role', role, ROLES)


def _record(section: objects.Json, change: Change) -> None:
    changes = section.setdefault(_CHANGES, [])
    changes.append(change._asdict())
    del changes[:-_MAX_CHANGES]


def _by_id(section: objects.Json) -> dict[int, Account | None]:
    """Read the accounts; None for an id that has no valid one.

    Another client may have written an invalid one.
    """
    entries = {id_: section.get(str(id_))
               for id_ in range(FIRST_ID, LAST_ID + 1)}
    return {id_: _account(id_, entry) for id_, entry in entries.items()}


def _account(id_: int, entry: object) -> Account | None:
    return _read(Account, {**entry, 'id': id_}) if isinstance(
        entry, dict) else None


def _changes(section: objects.Json) -> list[Change]:
    """Return the valid changes of a section, oldest first."""
    entries = section.get(_CHANGES)
    return list(filter(None, (
        _read(Change, entry) for entry in entries or ()
        if isinstance(entry, dict))))


def _read(kind: type[_EntryT], entry: objects.Json) -> _EntryT | None:
    try:
        value = kind(**entry)
    except TypeError:
        return None
    if any(not isinstance(getattr(value, name), type_)
           for name, type_ in _TYPES[kind].items()):
        return None
    return value
