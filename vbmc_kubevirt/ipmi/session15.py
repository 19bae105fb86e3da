# SPDX-License-Identifier: Apache-2.0
"""Sessions of IPMI v1.5: a challenge, MD5 over every packet, no encryption.

For clients that know nothing else (``ipmitool -I lan``). Of the ways of
proving who one is there is MD5 alone, and each packet is authenticated:
what is sent can be read on its way, but not forged, changed or sent again.
As in `session`, sockets, tables and time are the `server`'s. Sections 6.12,
13.6 to 13.8 and 22.16 to 22.17.1 of the specification.
"""

import collections
import hashlib
import hmac
import os
import struct

from vbmc_kubevirt.ipmi import constants
from vbmc_kubevirt.ipmi import packet
from vbmc_kubevirt.ipmi import sequence_window

#: Bytes of the key; a password that is longer has no place in it.
KEY_LENGTH = 16

try:
    hashlib.md5(b'')
    _ALLOWED = True
except ValueError:
    # By the host's policy (FIPS 140).
    _ALLOWED = False


def way_in(account):
    """Whether somebody could log in at all.

    :param account: (user name, password), or None if nobody may
    """
    return (_ALLOWED and account is not None
            and len(account[1]) <= KEY_LENGTH)


class Session:
    """A challenge, and then a session.

    :param address: where its packets come from, and may come from only
    :param session_id: of the challenge and of the session, not 0
    :param account: (user name, password) of the one who may log in, for
        whom there is a `way_in`; kept, as the server asks for it
    :param username: 16 bytes, who the client says it is. Whoever is somebody
        else is given a challenge that nothing answers: who gets none would
        know that there is no such user.
    :ivar challenge: 16 bytes
    :ivar used: see `session.Session`, and so for the others
    """

    rmcpp = False

    __slots__ = ('address', 'session_id', 'used', 'account', 'pending',
                 'answered', 'privilege', 'privilege_limit', 'challenge',
                 '_key', '_sent', '_window', '__weakref__')

    def __init__(self, address, session_id, account, username):
        self.address = address
        self.session_id = session_id
        self.used = 0.0
        self.account = account
        self.pending = set()
        self.answered = collections.OrderedDict()
        self.privilege = self.privilege_limit = 0
        self.challenge = os.urandom(16)
        name, key = (part.ljust(16, b'\0') for part in account)
        nobody = os.urandom(KEY_LENGTH)
        self._key = key if hmac.compare_digest(name, username) else nobody
        self._sent = 0
        self._window = sequence_window.Window()

    def check(self, received):
        """Check the code of a packet.

        :param received: `packet.Packet`
        :returns: its payload
        :raises: `packet.Malformed`
        """
        if not hmac.compare_digest(self._code(received.signed),
                                   received.trailer):
            raise packet.Malformed()
        return received.payload

    def activate(self, data):
        """Activate Session (section 22.17), of a packet that was checked.

        :param data: bytes behind the command
        :returns: (completion code, bytes behind it)
        :raises: `packet.Malformed`: the challenge is another
        """
        if len(data) < 22:
            return constants.Completion.LENGTH_INVALID, b''
        if not hmac.compare_digest(data[2:18], self.challenge):
            raise packet.Malformed()
        self._sent, = struct.unpack_from('<I', data, 18)
        level = data[1] & 0x0f
        if data[0] & 0x0f != packet.AUTH_MD5 or not level:
            return constants.Completion.INVALID_FIELD, b''
        if level > constants.Privilege.ADMINISTRATOR:
            return constants.Completion.LEVEL_EXCEEDS_USER, b''
        if not self._sent:
            return constants.Completion.SEQUENCE_OUT_OF_RANGE, b''
        self.privilege_limit = level
        self.privilege = min(constants.Privilege.USER, level)
        # Half of the numbers at least are left; a session will not need them.
        start = int.from_bytes(os.urandom(4), 'big') >> 1
        self._window = sequence_window.Window(start)
        return constants.Completion.OK, struct.pack(
            '<BIIB', packet.AUTH_MD5, self.session_id, start + 1, level)

    def unwrap(self, received):
        """Check a packet of this session; see `session.Session.unwrap`."""
        payload = self.check(received)
        return payload, self._window.accept(received.sequence)

    def wrap(self, payload):
        """Sign an IPMI message.

        :returns: the datagram
        """
        sequence = self._sent
        # 0 is for what is outside a session.
        self._sent = sequence % 0xffffffff + 1
        return packet.wrap_v15(
            payload, self.session_id, sequence, self._code(
                packet.signed_v15(self.session_id, sequence, payload)))

    def _code(self, signed):
        """The code of a packet, for channels of many sessions (22.17.1)."""
        return hashlib.md5(self._key + signed + self._key).digest()
