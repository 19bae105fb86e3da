# SPDX-License-Identifier: Apache-2.0
"""Commands about the channel and the session they come by (section 22).

Each takes the session, None outside of one, and the bytes behind the
command, and returns the completion code and the bytes behind that.
"""

import functools
import struct

from vbmc_kubevirt.ipmi import constants
from vbmc_kubevirt.ipmi import packet
from vbmc_kubevirt.ipmi import session as session_

#: The channel there is, and the number that stands for the one in use.
CHANNEL, THIS_CHANNEL = 1, 0x0E

# Authentication type support (table 22-15).
_MD5 = 1 << packet.AUTH_MD5


def authentication_capabilities(v15, session, data):
    """Get Channel Authentication Capabilities (section 22.13).

    :param v15: function: whether there is a way in by IPMI v1.5 now
    """
    if len(data) < 2:
        return constants.Completion.LENGTH_INVALID, b''
    if data[0] & 0x0f not in (CHANNEL, THIS_CHANNEL):
        return constants.Completion.INVALID_FIELD, b''
    # Each message and each user is authenticated, and none is without name.
    extended, served = data[0] & 0x80, int(v15())
    return constants.Completion.OK, bytes((
        CHANNEL, extended | _MD5 * served, 0x04,
        0x02 | served if extended else 0, 0, 0, 0, 0))


def session_challenge(data):
    """Read a Get Session Challenge (section 22.16).

    :returns: completion code, and the user name, 16 bytes with zeros behind
    """
    if len(data) < 17:
        return constants.Completion.LENGTH_INVALID, b''
    if data[0] & 0x0f != packet.AUTH_MD5:
        return constants.Completion.INVALID_FIELD, b''
    return constants.Completion.OK, data[1:17]


def cipher_suites(session, data):
    """Get Channel Cipher Suites (section 22.15.1)."""
    if len(data) < 3:
        return constants.Completion.LENGTH_INVALID, b''
    if data[0] & 0x0f not in (CHANNEL, THIS_CHANNEL):
        return constants.Completion.INVALID_FIELD, b''
    if data[1] & 0x3f != constants.Payload.IPMI:
        return constants.Completion.OK, bytes((CHANNEL,))
    records = b''.join(suite.record for suite in session_.SUITES)
    first = 16 * (data[2] & 0x3f)
    return constants.Completion.OK, bytes(
        (CHANNEL,)) + records[first:first + 16]


def set_session_privilege_level(session, data):
    """Set Session Privilege Level (section 22.18)."""
    if not data:
        return constants.Completion.LENGTH_INVALID, b''
    level = data[0] & 0x0f
    if level == 1 or level > constants.Privilege.ADMINISTRATOR:
        return constants.Completion.INVALID_FIELD, b''
    if level > session.privilege_limit:
        return constants.Completion.LEVEL_EXCEEDS_LIMIT, b''
    # 0 only asks.
    session.privilege = level or session.privilege
    return constants.Completion.OK, bytes((session.privilege,))


def close_session(session, data):
    """Close Session (section 22.19): the one it comes by, and no other."""
    if len(data) < 4:
        return constants.Completion.LENGTH_INVALID, b''
    if struct.unpack_from('<I', data)[0] != session.session_id:
        return constants.Completion.INVALID_SESSION_ID, b''
    return constants.Completion.OK, b''


#: What makes a session of IPMI v1.5; both are the server's.
CHALLENGE, ACTIVATE = (constants.APPLICATION,
                       0x39), (constants.APPLICATION, 0x3A)

CLOSE = (constants.APPLICATION, 0x3C)


def outside(v15):
    """What needs no session (appendix G).

    :param v15: see `authentication_capabilities`
    :returns: dict of functions by network function and command
    """
    return {
        (constants.APPLICATION, 0x38): functools.partial(
            authentication_capabilities, v15),
        (constants.APPLICATION, 0x54): cipher_suites,
    }


def inside(v15):
    """What is served in every session, whatever its privilege level.

    :returns: as `outside`
    """
    return outside(v15) | {
        (constants.APPLICATION, 0x3B): set_session_privilege_level,
        CLOSE: close_session,
    }
