# SPDX-License-Identifier: Apache-2.0
"""Users of a BMC and their privilege limits (sections 6.9 and 22.26)."""

from __future__ import annotations

from collections import abc
import typing

from vbmc_kubevirt.ipmi import constants

#: Largest user id that a BMC serves, and the id of the null user, which is
#: reserved (section 6.9.2) and always disabled here.
ID_MAX = 15
NULL_USER = 1

#: Privilege limit of each role of Redfish (DSP0266, "Roles").
LIMITS = {
    'ReadOnly': constants.Privilege.USER,
    'Operator': constants.Privilege.OPERATOR,
    'Administrator': constants.Privilege.ADMINISTRATOR,
}


class User(typing.NamedTuple):
    """A user.

    Sessions hold the user with which they were opened and end when
    `Users.by_name` returns another value: change a user by replacing it.

    :param id: 2 to `ID_MAX`
    :param name: 1 to `constants.USERNAME_MAX` bytes
    :param password: 1 to `constants.PASSWORD_MAX` bytes
    :param limit: maximum of the user's sessions
    :param enabled: False while the user may not log in
    """

    id: int
    name: bytes
    password: bytes
    limit: constants.Privilege = constants.Privilege.ADMINISTRATOR
    enabled: bool = True

    def __repr__(self) -> str:
        return f'User({self.id}, {self.name!r})'        # no password


class Users:
    """The users of a BMC, without the null user.

    :param current: called for every packet and every second; must not block
    """

    def __init__(self, current: abc.Callable[[], abc.Iterable[User]]) -> None:
        self._current = current

    def all(self) -> list[User]:
        """Return the users, ordered by id."""
        return sorted(self._current(), key=lambda user: user.id)

    def by_name(self, name: bytes) -> User | None:
        """Find the user who logs in with a name, if it is enabled."""
        # A plain loop: it runs for every packet.
        for user in self._current():
            if user.name == name and user.enabled:
                return user
        return None
