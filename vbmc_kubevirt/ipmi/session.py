# SPDX-License-Identifier: Apache-2.0
"""One client's way in: Open Session, RAKP, and what the keys then protect.

A session takes payloads and gives back payloads; sockets, tables and time
are the `server`'s. Sections 13.17 to 13.32 of the specification.
"""

import collections
import hmac
import os
import struct

from cryptography.hazmat.primitives.ciphers import algorithms
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers import modes

from vbmc_kubevirt.ipmi import constants
from vbmc_kubevirt.ipmi import packet
from vbmc_kubevirt.ipmi import sequence_window


class Suite(collections.namedtuple(
        'Suite', 'number authentication integrity confidentiality hash '
                 'code_length')):
    """A cipher suite (tables 13-17 to 13-19, 22-20).

    `hash` names the algorithm of hashlib, `code_length` is the length in
    bytes of the authentication code of a packet and of RAKP 4.
    """

    __slots__ = ()

    @property
    def algorithms(self):
        return self[1:4]

    @property
    def record(self):
        """As Get Channel Cipher Suites tells it (table 22-18)."""
        return bytes((0xC0, self.number, self.authentication,
                      0x40 | self.integrity, 0x80 | self.confidentiality))

    def mac(self, key, data):
        return hmac.digest(key, data, self.hash)


#: The suites offered, the best first; all with AES-CBC-128.
SUITES = (Suite(17, 3, 4, 1, 'sha256', 16),
          Suite(3, 1, 1, 1, 'sha1', 12))


class Refused(Exception):
    """The client is told why, and there is no session.

    :param answer: (payload type, payload) to send
    """

    def __init__(self, payload_type, tag, status, console_id):
        super().__init__(constants.Status(status).name)
        self.answer = (payload_type,
                       bytes((tag, status, 0, 0)) + console_id)


class Abandoned(Exception):
    """The client gave up: what it was sent does not fit its password."""


def _algorithm(data, kind):
    """Read an algorithm payload (table 13-9) of eight bytes.

    :returns: the algorithm's number; None if the choice is the BMC's
    """
    if data[0] != kind:
        raise packet.Malformed()
    if data[3] == 0:
        return None
    if data[3] != 8:
        raise packet.Malformed()
    return data[4] & 0x3f


class Session:
    """A session in the making, and then a session.

    :param address: where its packets come from, and may come from only
    :param session_id: the managed system's number for it, not 0
    :param request: payload of the RMCP+ Open Session Request (table 13-9)
    :raises: `Refused`, `packet.Malformed`
    :ivar used: time of the last good packet; the server's to keep
    :ivar account: what it was opened with; the server's to keep
    :ivar pending: requests that are being worked on
    :ivar answered: responses to requests that must not be carried out twice
    """

    __slots__ = ('address', 'session_id', 'used', 'account', 'pending',
                 'answered',
                 'privilege', 'privilege_limit', '_console_id', '_suite',
                 '_role', '_username', '_key', '_guid', '_client_random',
                 '_random', '_rakp3', '_rakp4', '_k1', '_aes', '_sent',
                 '_window', '__weakref__')

    #: The format of its packets; False is IPMI v1.5.
    rmcpp = True

    def __init__(self, address, session_id, request):
        if len(request) != 32:
            raise packet.Malformed()
        self.address = address
        self.session_id = session_id
        self.used = 0.0
        self.account = None
        self.pending = set()
        self.answered = collections.OrderedDict()
        self.privilege = constants.Privilege.USER
        self._console_id = bytes(request[4:8])
        self._random = self._rakp3 = None
        tag, level = request[0], request[1] & 0x0f

        wanted = [_algorithm(request[8 + 8 * kind:], kind)
                  for kind in range(3)]
        for self._suite in SUITES:
            if all(want in (None, have) for want, have
                   in zip(wanted, self._suite.algorithms)):
                break
        else:
            self._refuse(constants.Payload.OPEN_SESSION_RESPONSE, tag,
                         constants.Status.NO_CIPHER_SUITE)
        if level > constants.Privilege.ADMINISTRATOR:
            self._refuse(constants.Payload.OPEN_SESSION_RESPONSE, tag,
                         constants.Status.INVALID_ROLE)
        # 0 asks for the highest there is.
        self.privilege_limit = level or constants.Privilege.ADMINISTRATOR

    def _refuse(self, payload_type, tag, status):
        raise Refused(payload_type, tag, status, self._console_id)

    def open_response(self, tag):
        """:returns: (payload type, payload) of table 13-10"""
        return constants.Payload.OPEN_SESSION_RESPONSE, (
            bytes((tag, constants.Status.OK, self.privilege_limit, 0))
            + self._console_id + struct.pack('<I', self.session_id)
            + b''.join(bytes((kind, 0, 0, 8, number, 0, 0, 0))
                       for kind, number
                       in enumerate(self._suite.algorithms)))

    def rakp1(self, data, password_of, guid):
        """The client says who it is (table 13-11).

        :param data: payload of RAKP message 1
        :param password_of: function of a user name (bytes) that returns the
            password (bytes) or None
        :param guid: 16 bytes, the GUID of the managed system
        :returns: (payload type, payload) of RAKP message 2
        :raises: `Refused`, `packet.Malformed`
        """
        if len(data) < 28:
            raise packet.Malformed()
        tag, role, length = data[0], data[24], data[27]
        username = bytes(data[28:])
        if length > constants.USERNAME_MAX:
            self._refuse(constants.Payload.RAKP2, tag,
                         constants.Status.INVALID_NAME_LENGTH)
        if len(username) != length:
            raise packet.Malformed()
        level = role & 0x0f
        if not constants.Privilege.CALLBACK <= level:
            self._refuse(constants.Payload.RAKP2, tag,
                         constants.Status.INVALID_ROLE)
        if level > constants.Privilege.ADMINISTRATOR:
            self._refuse(constants.Payload.RAKP2, tag,
                         constants.Status.UNAUTHORIZED_ROLE)
        self._key = password_of(username)
        if self._key is None:
            self._refuse(constants.Payload.RAKP2, tag,
                         constants.Status.UNAUTHORIZED_NAME)
        self.privilege_limit = min(self.privilege_limit, level)
        self._role, self._username, self._guid = role, username, guid
        self._client_random = bytes(data[8:24])
        self._random = os.urandom(16)
        code = self._suite.mac(
            self._key, self._console_id + struct.pack('<I', self.session_id)
            + self._client_random + self._random + guid + self._user)
        return constants.Payload.RAKP2, (
            bytes((tag, constants.Status.OK, 0, 0)) + self._console_id
            + self._random + guid + code)

    @property
    def _user(self):
        return bytes((self._role, len(self._username))) + self._username

    def rakp3(self, data):
        """The client proves that it knows the password (table 13-13).

        :param data: payload of RAKP message 3
        :returns: (payload type, payload) of RAKP message 4
        :raises: `Refused`, `Abandoned`, `packet.Malformed`
        """
        if self._random is None or len(data) < 8:
            raise packet.Malformed()
        if self._rakp3 is not None:
            # The answer was lost; it is given once more, until it is used.
            if self._sent > 1 or not hmac.compare_digest(data, self._rakp3):
                raise packet.Malformed()
            return self._rakp4
        tag = data[0]
        if data[1] != constants.Status.OK:
            raise Abandoned()
        mac = self._suite.mac
        expected = mac(self._key, self._random + self._console_id
                       + self._user)
        if not hmac.compare_digest(bytes(data[8:]), expected):
            self._refuse(constants.Payload.RAKP4, tag,
                         constants.Status.INVALID_CHECK_VALUE)
        integrity = mac(self._key, self._client_random + self._random
                        + self._user)
        self._k1 = mac(integrity, b'\x01' * 20)
        self._aes = algorithms.AES(mac(integrity, b'\x02' * 20)[:16])
        self._sent = 1
        self._window = sequence_window.Window()
        self.privilege = min(constants.Privilege.USER, self.privilege_limit)
        code = mac(integrity, self._client_random
                   + struct.pack('<I', self.session_id) + self._guid)
        self._rakp3 = bytes(data)
        self._rakp4 = constants.Payload.RAKP4, (
            bytes((tag, constants.Status.OK, 0, 0)) + self._console_id
            + code[:self._suite.code_length])
        return self._rakp4

    def unwrap(self, received):
        """Check and decrypt a packet of this session.

        :param received: `packet.Packet`
        :returns: (payload, new); new is False for a packet that was here
            before: a network, or somebody listening, sent it again
        :raises: `packet.Malformed`
        """
        length = self._suite.code_length
        if not (received.authenticated and received.encrypted):
            raise packet.Malformed()
        trailer, code = received.trailer[:-length], received.trailer[-length:]
        signed = received.signed[:-length]
        if (len(trailer) < 2 or len(code) != length or not
                hmac.compare_digest(self._suite.mac(self._k1, signed)[:length],
                                    code)):
            raise packet.Malformed()
        if (trailer[-1] != packet.NEXT_HEADER
                or trailer[-2] != len(trailer) - 2):
            raise packet.Malformed()
        payload = received.payload
        if len(payload) < 32 or len(payload) % 16:
            raise packet.Malformed()
        decryptor = Cipher(self._aes, modes.CBC(payload[:16])).decryptor()
        plain = decryptor.update(payload[16:]) + decryptor.finalize()
        # Confidentiality pad and its length (table 13-20).
        if plain[-1] >= len(plain) or plain[-1] > 15:
            raise packet.Malformed()
        return plain[:-1 - plain[-1]], self._window.accept(
            received.sequence)

    def wrap(self, payload):
        """Encrypt and sign an IPMI message.

        :returns: the datagram
        """
        pad = -(len(payload) + 1) % 16
        plain = payload + bytes(range(1, pad + 1)) + bytes((pad,))
        vector = os.urandom(16)
        encryptor = Cipher(self._aes, modes.CBC(vector)).encryptor()
        data = packet.wrap(
            constants.Payload.IPMI,
            vector + encryptor.update(plain) + encryptor.finalize(),
            struct.unpack('<I', self._console_id)[0], self._sent,
            secured=True)
        # 0 is for what is outside a session.
        self._sent = self._sent % 0xffffffff + 1
        pad = -(len(data) - len(packet.RMCP) + 2) % 4
        data += b'\xff' * pad + bytes((pad, packet.NEXT_HEADER))
        return data + self._suite.mac(
            self._k1, data[len(packet.RMCP):])[:self._suite.code_length]
