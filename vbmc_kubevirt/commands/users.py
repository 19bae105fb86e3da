# SPDX-License-Identifier: Apache-2.0
"""Commands about users (sections 22.26 to 22.30).

Users 1 and 2 are fixed: a command that would change them is refused with D5h,
one that changes nothing succeeds, so that clients can write back what they
have read. Setting an empty name deletes a user.

A command changes the user that it has read: if another client changes or
replaces the user meanwhile, the command is refused with D5h.
"""

from __future__ import annotations

import hmac
import typing

from vbmc_kubevirt import bmc_users
from vbmc_kubevirt.commands import completion
from vbmc_kubevirt.commands import group
from vbmc_kubevirt.ipmi import channel
from vbmc_kubevirt.ipmi import constants

_LEVEL = constants.Privilege

#: Size of a user name; of passwords without and with bit 7 of the user id.
_NAME_SIZE, _PASSWORD_SIZES = constants.USERNAME_MAX, (16, 20)

#: Operations of Set User Password.
_DISABLE, _ENABLE, _SET, _TEST = range(4)


class Users(group.Group):
    """Commands about users."""

    netfn = constants.APPLICATION

    @property
    def _users(self) -> bmc_users.BmcUsers:
        return self._bmc.users

    def _slot(self, data: int, newest: bool = False) -> bmc_users.Slot:
        """Return what a byte with a user id names.

        :param newest: for commands that may change it
        """
        id_ = data & 0x3f
        completion.refuse_if(not 1 <= id_ <= self._users.id_max,
                             constants.Completion.INVALID_FIELD)
        return self._users.slot(id_, newest)

    def _change(self, session: channel.Session, slot: bmc_users.Slot,
                **values: typing.Any) -> None:
        completion.refuse_if(slot.fixed, constants.Completion.WRONG_STATE)
        self._users.change(slot, channel.user(session), **values)

    @group.command(0x44, 'Get User Access', _LEVEL.OPERATOR, 2)
    def get_access(self, session: channel.Session, data: bytes) -> bytes:
        completion.check_channel(data[0])
        slot = self._slot(data[1])
        slots = [self._users.slot(id_)
                 for id_ in range(1, self._users.id_max + 1)]
        return bytes((
            self._users.id_max,
            (0x40 if slot.enabled else 0x80)
            | sum(other.enabled for other in slots),
            sum(other.fixed for other in slots),
            slot.messaging << 4 | slot.limit))

    @group.command(0x43, 'Set User Access', _LEVEL.ADMINISTRATOR, 3,
                   modifies=True)
    def set_access(self, session: channel.Session, data: bytes) -> None:
        """Set User Access.

        Link authentication and the session limit of the optional fourth byte
        do not exist on a LAN channel; the former is ignored, as clients set it
        together with messaging.
        """
        completion.check_channel(data[0])
        slot = self._slot(data[1], newest=True)
        values: dict[str, typing.Any] = {}
        limit = data[2] & 0x0f
        try:
            role = bmc_users.role_of(limit)
        except KeyError:
            raise completion.RequestError(
                constants.Completion.INVALID_FIELD) from None
        if limit != slot.limit:
            values['role'] = role
        if data[0] & 0x80:
            if data[0] & 0x40:
                # Restricted to callback, which a LAN channel does not have.
                raise completion.RequestError(
                    constants.Completion.INVALID_FIELD)
            messaging = bool(data[0] & 0x10)
            if messaging != slot.messaging:
                values['ipmi'] = messaging
        completion.refuse_if(data[3:4] > b'\0',
                             constants.Completion.INVALID_FIELD)
        if values:
            self._change(session, slot, **values)

    @group.command(0x46, 'Get User Name', _LEVEL.OPERATOR, 1)
    def get_name(self, session: channel.Session, data: bytes) -> bytes:
        return self._slot(data[0]).name.ljust(_NAME_SIZE, b'\0')

    @group.command(0x45, 'Set User Name', _LEVEL.ADMINISTRATOR, 1 + _NAME_SIZE,
                   modifies=True)
    def set_name(self, session: channel.Session, data: bytes) -> None:
        slot = self._slot(data[0], newest=True)
        name = data[1:].partition(b'\0')[0]
        if not name and not slot.fixed:
            # Also one that has no name yet.
            self._users.delete(slot, channel.user(session))
        elif name != slot.name:
            self._change(session, slot, name=_text(name))

    @group.command(0x47, 'Set User Password', _LEVEL.ADMINISTRATOR, 2,
                   modifies=True)
    def set_password(self, session: channel.Session, data: bytes) -> None:
        slot, operation = self._slot(data[0], newest=True), data[1] & 0x03
        size = _PASSWORD_SIZES[data[0] >> 7]
        if operation in (_DISABLE, _ENABLE):
            if slot.enabled != (operation == _ENABLE):
                self._change(session, slot, locked=False,
                             enabled=operation == _ENABLE)
            return
        completion.refuse_if(len(data) != 2 + size,
                             constants.Completion.LENGTH_INVALID)
        password = data[2:].rstrip(b'\0')
        matches = slot.password is not None and hmac.compare_digest(
            slot.password, password)
        if operation == _SET:
            if not matches:
                self._change(session, slot, password=_text(password))
        elif not matches:
            wrong_size = len(slot.password or b'') > size
            raise completion.RequestError(
                constants.Completion.WRONG_PASSWORD_SIZE if wrong_size
                else constants.Completion.WRONG_PASSWORD)


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise completion.RequestError(
            constants.Completion.INVALID_FIELD) from None
