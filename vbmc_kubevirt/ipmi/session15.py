# SPDX-License-Identifier: Apache-2.0
"""IPMI v1.5 session: challenge, MD5 authentication of every packet.

For clients without IPMI v2.0 support (``ipmitool -I lan``). MD5 is the only
authentication type. Packets cannot be forged, changed or replayed, but
anyone on the network path can read them. `server` owns sockets, tables and
timers. Sections 6.12, 13.6 to 13.8 and 22.16 to 22.17.1 of the
specification.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import struct

from vbmc_kubevirt.ipmi import constants
from vbmc_kubevirt.ipmi import packet
from vbmc_kubevirt.ipmi import session20
from vbmc_kubevirt.ipmi import users

#: Size of the key in bytes; a longer password disables IPMI v1.5.
KEY_LENGTH = 16

try:
    hashlib.md5(b'')
    _ALLOWED = True
except ValueError:
    # Disabled by the host's crypto policy (FIPS 140).
    _ALLOWED = False


def login_possible(user: users.User) -> bool:
    """Check whether IPMI v1.5 can authenticate a user."""
    return _ALLOWED and user.enabled and len(user.password) <= KEY_LENGTH


class Session(session20.Client):
    """An IPMI v1.5 session, from Get Session Challenge on.

    :param session_id: id of the challenge and of the session
    :param user: None for an unknown user name. For None, and
        for a user who cannot use IPMI v1.5, the key is random, so that no
        response fits: refusing the challenge would reveal that the user does
        not exist.
    :ivar challenge: 16 bytes
    """

    rmcpp = False
    #: Serial over LAN needs IPMI v2.0.
    sol: None = None

    __slots__ = 'challenge', '_key', '_sent', '_window'

    def __init__(self, address: packet.Address, session_id: int,
                 user: users.User | None) -> None:
        super().__init__(address, session_id)
        self.user = user
        self.challenge = os.urandom(16)
        unusable = os.urandom(KEY_LENGTH)
        self._key = (user.password.ljust(KEY_LENGTH, b'\0')
                     if user is not None and login_possible(user)
                     else unusable)
        self._sent = 0
        self._window = session20.SequenceWindow()

    def check(self, received: packet.Packet) -> bytes:
        """Verify the authentication code of a packet.

        :returns: payload
        :raises: `packet.Malformed`
        """
        if not hmac.compare_digest(self._code(received.signed),
                                   received.trailer):
            raise packet.Malformed()
        return received.payload

    def activate(self, data: bytes) -> tuple[int, bytes]:
        """Process Activate Session (section 22.17) of a verified packet.

        :param data: request data
        :returns: (completion code, response data)
        :raises: `packet.Malformed` if the challenge does not match
        """
        if len(data) < 22:
            return constants.Completion.LENGTH_INVALID, b''
        if not hmac.compare_digest(data[2:18], self.challenge):
            raise packet.Malformed()
        self._sent, = struct.unpack_from('<I', data, 18)
        level = data[1] & 0x0f
        if data[0] & 0x0f != packet.AUTH_MD5 or not level:
            return constants.Completion.INVALID_FIELD, b''
        # Without a user no packet has passed `check`.
        assert self.user is not None
        if level > self.user.limit:
            return constants.Completion.LEVEL_EXCEEDS_USER, b''
        if not self._sent:
            return constants.Completion.SEQUENCE_OUT_OF_RANGE, b''
        self.privilege_limit = level
        self.privilege = min(constants.Privilege.USER, level)
        # Leaves at least half of the number range for this session.
        start = int.from_bytes(os.urandom(4), 'big') >> 1
        self._window = session20.SequenceWindow(start)
        return constants.Completion.OK, struct.pack(
            '<BIIB', packet.AUTH_MD5, self.session_id, start + 1, level)

    def unwrap(self, received: packet.Packet) -> tuple[bytes, bool]:
        """Verify a packet of this session; see `session20.Session.unwrap`."""
        payload = self.check(received)
        return payload, self._window.accept(received.sequence)

    def wrap(self, payload: bytes) -> bytes:
        """Sign an IPMI message.

        :returns: the datagram
        """
        sequence = self._sent
        # Sequence number 0 is for packets outside a session.
        self._sent = sequence % 0xffffffff + 1
        return packet.wrap_v15(
            payload, self.session_id, sequence, self._code(
                packet.signed_v15(self.session_id, sequence, payload)))

    def _code(self, signed: bytes) -> bytes:
        """Authentication code for multi-session channels (22.17.1)."""
        return hashlib.md5(self._key + signed + self._key).digest()
