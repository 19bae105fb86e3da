# SPDX-License-Identifier: Apache-2.0
"""Commands about the channel and the session they come by (section 22).

Each takes the session, None outside of one, and the bytes behind the
command, and returns the completion code and the bytes behind that.
"""

import struct

from vbmc_kubevirt.ipmi import codes
from vbmc_kubevirt.ipmi import session as session_

#: The channel there is, and the number that stands for the one in use.
CHANNEL, THIS_CHANNEL = 1, 0x0E


def authentication_capabilities(session, data):
    """Get Channel Authentication Capabilities (section 22.13)."""
    if len(data) < 2:
        return codes.Completion.LENGTH_INVALID, b''
    if data[0] & 0x0f not in (CHANNEL, THIS_CHANNEL):
        return codes.Completion.INVALID_FIELD, b''
    # Extended: only IPMI v2.0. Plain, for a client of v1.5: no way in.
    extended = data[0] & 0x80
    return codes.Completion.OK, bytes((
        CHANNEL, extended, 0x04, 0x02 if extended else 0, 0, 0, 0, 0))


def cipher_suites(session, data):
    """Get Channel Cipher Suites (section 22.15.1)."""
    if len(data) < 3:
        return codes.Completion.LENGTH_INVALID, b''
    if data[0] & 0x0f not in (CHANNEL, THIS_CHANNEL):
        return codes.Completion.INVALID_FIELD, b''
    if data[1] & 0x3f != codes.Payload.IPMI:
        return codes.Completion.OK, bytes((CHANNEL,))
    records = b''.join(suite.record for suite in session_.SUITES)
    first = 16 * (data[2] & 0x3f)
    return codes.Completion.OK, bytes((CHANNEL,)) + records[first:first + 16]


def set_session_privilege_level(session, data):
    """Set Session Privilege Level (section 22.18)."""
    if not data:
        return codes.Completion.LENGTH_INVALID, b''
    level = data[0] & 0x0f
    if level == 1 or level > codes.Privilege.ADMINISTRATOR:
        return codes.Completion.INVALID_FIELD, b''
    if level > session.privilege_limit:
        return codes.Completion.LEVEL_EXCEEDS_LIMIT, b''
    # 0 only asks.
    session.privilege = level or session.privilege
    return codes.Completion.OK, bytes((session.privilege,))


def close_session(session, data):
    """Close Session (section 22.19): the one it comes by, and no other."""
    if len(data) < 4:
        return codes.Completion.LENGTH_INVALID, b''
    if struct.unpack_from('<I', data)[0] != session.session_id:
        return codes.Completion.INVALID_SESSION_ID, b''
    return codes.Completion.OK, b''


CLOSE = (codes.APPLICATION, 0x3C)

#: By network function and command: what needs no session (appendix G).
OUTSIDE = {
    (codes.APPLICATION, 0x38): authentication_capabilities,
    (codes.APPLICATION, 0x54): cipher_suites,
}

#: What is served in every session, whatever its privilege level.
INSIDE = OUTSIDE | {
    (codes.APPLICATION, 0x3B): set_session_privilege_level,
    CLOSE: close_session,
}
