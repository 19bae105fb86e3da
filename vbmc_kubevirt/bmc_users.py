# SPDX-License-Identifier: Apache-2.0
"""Users of a BMC: the configured one, and accounts that clients create.

The latter are shared with Redfish and stored by `sushy_kubevirt.bmc.accounts`;
their id is the user id.
"""

from __future__ import annotations

from collections import abc
import functools
import typing

from sushy_kubevirt.bmc import accounts
from sushy_kubevirt.bmc import event_log
from sushy_kubevirt.bmc import state_secret
from sushy_kubevirt.kube import errors
from vbmc_kubevirt.ipmi import constants
from vbmc_kubevirt.ipmi import users

_ROLES: dict[int, str] = {limit: role for role, limit in users.LIMITS.items()}


class Slot(typing.NamedTuple):
    """What there is for a user id.

    :param id: 1 to `BmcUsers.id_max`
    :param name: b'' if it has none
    :param limit: a `constants.Privilege`, or `constants.NO_ACCESS`
    :param enabled: whether the user is enabled
    :param messaging: whether the user may use IPMI
    :param fixed: whether clients cannot change it
    :param version: of the account, '' if there is none
    """

    id: int
    name: bytes = b''
    limit: int = constants.NO_ACCESS
    enabled: bool = False
    messaging: bool = True
    fixed: bool = False
    password: bytes | None = None
    version: str = ''

    def __repr__(self) -> str:
        return f'Slot({self.id}, {self.name!r})'        # no password


class BmcUsers(users.Users):
    """The users of a BMC.

    :param configured: returns those that clients cannot change; the same
        object until one has changed
    :param managed: whether clients may create others
    """

    def __init__(self, configured: abc.Callable[[], abc.Iterable[users.User]],
                 managed: bool = False) -> None:
        super().__init__(self._current_users)
        self._configured = configured
        self._accounts: accounts.Accounts | None = None
        # Configured users, accounts, and the users that follow from them.
        self._known: tuple[
            object, object, tuple[users.User, ...]] = None, None, ()
        self.managed = managed

    def attach(self, state: state_secret.StateSecret,
               log: event_log.Log) -> None:
        """Use the accounts in the BMC's state.

        :param log: changes are written to it
        """
        self._accounts = accounts.Accounts(state, lambda: {
            user.name.decode() for user in self._configured()})
        self._accounts.changed.append(functools.partial(_log, log))

    def share(self, stored: accounts.Accounts) -> None:
        """Use the accounts of another protocol of the same BMC.

        :param stored: its changes are logged
        """
        self._accounts = stored

    def _current_users(self) -> abc.Iterable[users.User]:
        if self._accounts is None:
            return self._configured()
        configured, stored = self._configured(), self._accounts.all()
        known = self._known
        if known[0] is not configured or known[1] is not stored:
            # A configured user comes first: its name cannot be taken over.
            known = self._known = configured, stored, (*configured, *(
                _user(account) for account in stored if account.usable
                and account.ipmi and not account.change_required))
        return known[2]

    # For the commands

    @property
    def id_max(self) -> int:
        """The largest user id."""
        return users.ID_MAX if self.managed else users.NULL_USER + 1

    def slot(self, id_: int, newest: bool = False) -> Slot:
        """Return what there is for a user id, which may be nothing.

        :param newest: whether to read the account now; may block
        """
        if id_ == users.NULL_USER:
            return Slot(id_, messaging=False, fixed=True)
        for user in self._configured():
            if user.id == id_:
                return Slot(id_, user.name, user.limit, user.enabled,
                            fixed=True, password=user.password)
        if id_ < accounts.FIRST_ID:
            return Slot(id_, fixed=True)
        account = None
        if self._accounts is not None:
            account = self._accounts.get(
                id_, accounts.NEWEST_SECONDS if newest else None)
        if account is None:
            return Slot(id_)
        return Slot(
            id_, account.name.encode(),
            users.LIMITS.get(account.role or '', constants.NO_ACCESS),
            account.enabled and not account.locked, account.ipmi,
            password=account.password.encode() if account.password else None,
            version=account.version)

    def change(self, slot: Slot, by: users.User,
               **values: typing.Any) -> None:
        """Change the account of a user id, or create it.

        :param slot: as it was read
        :param by: who does it
        :param values: see `accounts.Accounts.change`
        :raises: `accounts.Replaced` if it has changed since it was read;
            `errors.MachineError`
        """
        self._store().change(slot.id, _actor(by), {'version': slot.version},
                             **values)

    def delete(self, slot: Slot, by: users.User) -> None:
        """Delete the account of a user id, if there is one.

        :param slot: see `change`
        :param by: see `change`
        :raises: see `change`
        """
        try:
            self._store().delete(slot.id, _actor(by),
                                 {'version': slot.version})
        except accounts.NotFound:
            pass    # also if another client was faster

    def _store(self) -> accounts.Accounts:
        if self._accounts is None:
            raise errors.Unavailable(
                'Not connected to the Kubernetes API yet')
        return self._accounts


def role_of(limit: int) -> str | None:
    """Convert a privilege limit to a role.

    :returns: None for no access
    :raises: KeyError for a limit without a role
    """
    return None if limit == constants.NO_ACCESS else _ROLES[limit]


def _user(account: accounts.Account) -> users.User:
    # A usable account has a password and a role.
    return users.User(account.id, account.name.encode(),
                      (account.password or '').encode(),
                      users.LIMITS[account.role or ''])


def _log(log: event_log.Log, change: accounts.Change) -> None:
    record = accounts.record_of(change)
    if record is not None:
        log.record(record)


def _actor(user: users.User) -> str:
    return f'{user.name.decode()} over IPMI'
