# SPDX-License-Identifier: Apache-2.0
"""Channel and session commands of IPMI (section 22).

A handler takes the session (None outside of one) and the request data, and
returns (completion code, response data).
"""

from __future__ import annotations

from collections import abc
import struct
import typing

from vbmc_kubevirt.ipmi import constants
from vbmc_kubevirt.ipmi import packet
from vbmc_kubevirt.ipmi import session15
from vbmc_kubevirt.ipmi import session20
from vbmc_kubevirt.ipmi import users

#: A session of either version, and a response: completion code, data.
Session: typing.TypeAlias = session15.Session | session20.Session
Response: typing.TypeAlias = tuple[int, bytes]

#: What handles a command; the session is None outside of one.
Sessionless: typing.TypeAlias = abc.Callable[[Session | None, bytes], Response]
Handler: typing.TypeAlias = abc.Callable[[Session, bytes], Response]

#: Network function and command.
Code: typing.TypeAlias = tuple[int, int]

#: The LAN channel, and the number that stands for the channel in use.
CHANNEL, THIS_CHANNEL = 1, 0x0E

# Authentication type support (table 22-15).
_MD5 = 1 << packet.AUTH_MD5


def authentication_capabilities(
        v15_enabled: abc.Callable[[], bool], session: Session | None,
        data: bytes) -> Response:
    """Get Channel Authentication Capabilities (section 22.13).

    :param v15_enabled: returns whether IPMI v1.5 login is
        possible now
    """
    if len(data) < 2:
        return constants.Completion.LENGTH_INVALID, b''
    if data[0] & 0x0f not in (CHANNEL, THIS_CHANNEL):
        return constants.Completion.INVALID_FIELD, b''
    # Per-message and user-level authentication are on, anonymous login off.
    extended, served = data[0] & 0x80, int(v15_enabled())
    return constants.Completion.OK, bytes((
        CHANNEL, extended | _MD5 * served, 0x04,
        0x02 | served if extended else 0, 0, 0, 0, 0))


def session_challenge(data: bytes) -> Response:
    """Parse Get Session Challenge (section 22.16).

    :returns: (completion code, user name padded with zeros to 16 bytes)
    """
    if len(data) < 17:
        return constants.Completion.LENGTH_INVALID, b''
    if data[0] & 0x0f != packet.AUTH_MD5:
        return constants.Completion.INVALID_FIELD, b''
    return constants.Completion.OK, data[1:17]


def cipher_suites(session: Session | None, data: bytes) -> Response:
    """Get Channel Cipher Suites (section 22.15.1)."""
    if len(data) < 3:
        return constants.Completion.LENGTH_INVALID, b''
    if data[0] & 0x0f not in (CHANNEL, THIS_CHANNEL):
        return constants.Completion.INVALID_FIELD, b''
    if data[1] & 0x3f != constants.Payload.IPMI:
        return constants.Completion.OK, bytes((CHANNEL,))
    records = b''.join(suite.record for suite in session20.SUITES)
    first = 16 * (data[2] & 0x3f)
    return constants.Completion.OK, bytes(
        (CHANNEL,)) + records[first:first + 16]


def set_session_privilege_level(session: Session, data: bytes) -> Response:
    """Set Session Privilege Level (section 22.18)."""
    if not data:
        return constants.Completion.LENGTH_INVALID, b''
    level = data[0] & 0x0f
    if level == 1 or level > constants.Privilege.ADMINISTRATOR:
        return constants.Completion.INVALID_FIELD, b''
    if level > session.privilege_limit:
        return constants.Completion.LEVEL_EXCEEDS_LIMIT, b''
    # 0 queries the present level.
    session.privilege = level or session.privilege
    return constants.Completion.OK, bytes((session.privilege,))


def close_session(active: abc.Iterable[Session], session: Session,
                  data: bytes) -> tuple[int, Session | None]:
    """Parse Close Session (section 22.19).

    Only an administrator may close sessions of others.

    :param active: the established sessions
    :param session: the session that sent the request
    :returns: (completion code, session to end or None)
    """
    if len(data) < 4:
        return constants.Completion.LENGTH_INVALID, None
    number, = struct.unpack_from('<I', data)
    if number:
        targets = [other for other in active if other.session_id == number]
        unknown = constants.Completion.INVALID_SESSION_ID
    else:
        targets = [other for other in active
                   if data[4:5] == bytes((other.handle,))]
        unknown = constants.Completion.INVALID_SESSION_HANDLE
    if not targets:
        return unknown, None
    if (targets[0] is not session
            and session.privilege < constants.Privilege.ADMINISTRATOR):
        return constants.Completion.ACCESS_DENIED, None
    return constants.Completion.OK, targets[0]


#: Served alike in and outside of a session.
CAPABILITIES = (constants.APPLICATION, 0x38)
CIPHER_SUITES = (constants.APPLICATION, 0x54)

#: Commands that establish an IPMI v1.5 session; handled by `server`.
CHALLENGE = (constants.APPLICATION, 0x39)
ACTIVATE = (constants.APPLICATION, 0x3A)

#: In a session it is a command of the BMC.
SYSTEM_GUID = (constants.APPLICATION, 0x37)

SET_PRIVILEGE = (constants.APPLICATION, 0x3B)
CLOSE = (constants.APPLICATION, 0x3C)

#: Needs no session (appendix G), and is not served.
PET_ACKNOWLEDGE = (constants.SENSOR, 0x17)

#: Names of the commands of this module (appendix G).
NAMES = {
    CAPABILITIES: 'Get Channel Authentication Capabilities',
    CHALLENGE: 'Get Session Challenge',
    ACTIVATE: 'Activate Session',
    SET_PRIVILEGE: 'Set Session Privilege Level',
    CLOSE: 'Close Session',
    CIPHER_SUITES: 'Get Channel Cipher Suites',
}


def user(session: Session) -> users.User:
    """Return the user of an established session, which always has one."""
    assert session.user is not None
    return session.user


def system_guid(guid: abc.Callable[[], bytes], session: Session | None,
                data: bytes) -> Response:
    """Get System GUID (section 22.14) outside of a session.

    :param guid: returns 16 bytes, zeros while it is unknown
    """
    known = guid()
    if not any(known):
        return constants.Completion.NODE_BUSY, b''
    return constants.Completion.OK, known
