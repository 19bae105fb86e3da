# SPDX-License-Identifier: Apache-2.0
"""All accounts with which one can log in to Redfish.

These are the accounts of files and mounted Secrets (`account_files`), and
those that clients have created (`bmc.accounts`), if these are not disabled.
"""

from __future__ import annotations

from sushy_kubevirt.redfish.services import account_files

#: Prefix of the digest of a stored account, which no bcrypt digest has.
_STORED = b'stored '


class LoginAccounts:
    """The accounts. Thread-safe.

    :param files: an `account_files.Accounts`
    :param stored: an `accounts.Accounts`, or None
    """

    def __init__(self, files, stored=None) -> None:
        self._files = files
        self._stored = stored
        self._known = None, None, {}

    def files(self):
        """Return dict of user name to `account_files.Account` of files."""
        return self._files.current()

    def current(self, recheck: bool = False, max_age=None):
        """Return the accounts that may log in.

        :param recheck: whether to check for changes now, before a login is
            refused
        :param max_age: seconds after which to read stored accounts again even
            if a watch keeps them up to date, which may lag
        :returns: dict of user name to `account_files.Account`; must not be
            modified
        """
        files = self._files.current(recheck)
        if self._stored is None:
            return files
        stored = self._stored.all(recheck, max_age)
        known_files, known_stored, found = self._known
        if known_files is not files or known_stored is not stored:
            found = {one.name: _login(one) for one in stored
                     if one.usable and one.redfish} | files
            self._known = files, stored, found
        return found


def _login(stored):
    """Convert an `accounts.Account`."""
    return account_files.Account(
        stored.name, stored.role, _STORED + b'%d %s' % (
            stored.id, stored.version.encode()),
        account_files.keyed_hash(stored.password.encode()),
        stored.id, stored.change_required, version=stored.version)
