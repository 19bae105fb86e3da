# SPDX-License-Identifier: Apache-2.0
"""All accounts with which one can log in to Redfish.

These are the accounts of files and mounted Secrets (`account_files`), and
those that clients have created (`bmc.accounts`), if these are not disabled.
"""

from __future__ import annotations

import typing

from sushy_kubevirt.redfish.services import account_files

if typing.TYPE_CHECKING:
    from sushy_kubevirt.bmc import accounts

_ByName: typing.TypeAlias = dict[str, account_files.Account]

#: Prefix of the digest of a stored account, which no bcrypt digest has.
_STORED = b'stored '


class LoginAccounts:
    """The accounts. Thread-safe."""

    def __init__(self, files: account_files.Accounts,
                 stored: accounts.Accounts | None = None) -> None:
        self._files = files
        self._stored = stored
        # Accounts of files, stored ones, and what was made of them.
        self._known: tuple[
            _ByName | None, object, _ByName] = None, None, {}

    def files(self) -> _ByName:
        """Return the accounts of files by user name."""
        return self._files.current()

    def current(self, recheck: bool = False, max_age: float | None = None
                ) -> _ByName:
        """Return the accounts that may log in.

        :param recheck: whether to check for changes now, before a login is
            refused
        :param max_age: seconds after which to read stored accounts again even
            if a watch keeps them up to date, which may lag
        :returns: by user name; must not be modified
        """
        files = self._files.current(recheck)
        if self._stored is None:
            return files
        stored = self._stored.all(recheck, max_age)
        known_files, known_stored, merged = self._known
        if known_files is not files or known_stored is not stored:
            merged = {account.name: _login(account) for account in stored
                      if account.usable and account.redfish} | files
            self._known = files, stored, merged
        return merged


def _login(stored: accounts.Account) -> account_files.Account:
    """Convert a stored account that is usable."""
    assert stored.role is not None and stored.password is not None
    return account_files.Account(
        stored.name, stored.role, _STORED + b'%d %s' % (
            stored.id, stored.version.encode()),
        account_files.keyed_hash(stored.password.encode()),
        stored.id, stored.change_required, version=stored.version)
