# SPDX-License-Identifier: Apache-2.0
"""IPMI v2.0 (RMCP+) session: Open Session, RAKP, signing and encryption.

A session converts between payloads; `server` owns sockets, tables and
timers. Sections 13.17 to 13.32 of the specification.
"""

from __future__ import annotations

import collections
from collections import abc
import hashlib
import hmac
import os
import struct
import typing

from Cryptodome.Cipher import AES

from sushy_kubevirt.bmc import shares
from vbmc_kubevirt.ipmi import constants
from vbmc_kubevirt.ipmi import packet
from vbmc_kubevirt.ipmi import users

if typing.TYPE_CHECKING:
    from vbmc_kubevirt.ipmi import sol

#: Payload type and payload.
Answer: typing.TypeAlias = tuple[int, bytes]


class Suite(typing.NamedTuple):
    """A cipher suite (tables 13-17 to 13-19, 22-20).

    :ivar hash: its name in `hashlib`
    :ivar code_length: bytes of the authentication code of a packet and of
        RAKP message 4
    """

    number: int
    authentication: int
    integrity: int
    confidentiality: int
    hash: str
    code_length: int

    @property
    def algorithms(self) -> tuple[int, int, int]:
        """Numbers of its algorithms, in the order of table 13-9."""
        return self.authentication, self.integrity, self.confidentiality

    @property
    def record(self) -> bytes:
        """Cipher suite record of Get Channel Cipher Suites (table 22-18)."""
        return bytes((0xC0, self.number, self.authentication,
                      0x40 | self.integrity, 0x80 | self.confidentiality))

    def mac(self, key: bytes, data: bytes) -> bytes:
        """Compute the HMAC of its authentication algorithm."""
        return hmac.digest(key, data, self.hash)


#: Supported suites in order of preference; all with AES-CBC-128.
SUITES = (Suite(17, 3, 4, 1, 'sha256', 16),
          Suite(3, 1, 1, 1, 'sha1', 12))


# Confidentiality pad and its length, by length (table 13-20).
_PADS = tuple(bytes((*range(1, length + 1), length)) for length in range(16))

# Integrity pad, its length and next header (table 13-8), of every packet: what
# is signed before them is a header of 12 bytes and blocks of 16.
_TRAILER = bytes((0xff, 0xff, 2, packet.NEXT_HEADER))

# RAKP message 1 (table 13-11): the user is found by name alone, and not by
# name and privilege limit.
_NAME_ONLY = 0x10


class HandshakeRefused(Exception):
    """The BMC refuses the session and answers with a status code.

    :ivar answer: (payload type, payload) to send
    """

    def __init__(self, payload_type: int, tag: int, status: int,
                 console_id: bytes) -> None:
        super().__init__(constants.Status(status).name)
        self.answer: Answer = (
            payload_type, bytes((tag, status, 0, 0)) + console_id)


class HandshakeAborted(Exception):
    """The client aborted RAKP: message 2 does not match its password."""


class _Hmac:
    """HMAC of many messages with one key (RFC 2104).

    Copies of two hashes take two thirds of the time of copies of `hmac.HMAC`,
    and a third of that of `hmac.digest`, which makes new contexts.

    :param key: at most 64 bytes, the size of a block of the hashes
    :param hash: name of SHA-1 or SHA-256 in `hashlib`
    """

    __slots__ = '_inner', '_outer'

    def __init__(self, key: bytes, hash: str) -> None:
        block = key.ljust(64, b'\0')
        self._inner, self._outer = (
            hashlib.new(hash, bytes(byte ^ pad for byte in block))
            for pad in (0x36, 0x5C))

    def digest(self, message: bytes) -> bytes:
        """Return the HMAC of a message."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(message)
        outer.update(inner.digest())
        return outer.digest()


class SequenceWindow:
    """Sliding window of received sequence numbers (section 6.12.13).

    Rejects replayed packets and accepts packets that overtake each other.

    :param start: number before the first valid one
    """

    __slots__ = '_highest', '_seen'

    #: Accepted distance behind the highest number.
    _SIZE = 15

    def __init__(self, start: int = 0) -> None:
        self._highest = start
        # Bit n is set if the number n below the highest was received.
        # Numbers before the first, including 0, are never valid.
        self._seen = 0xffff

    def accept(self, sequence: int) -> bool:
        """Record the number of an authenticated packet.

        :returns: False if it was received before or is behind the window
        """
        ahead = sequence - self._highest
        if ahead > 0:
            self._seen = ((self._seen << ahead | 1) & 0xffff
                          if ahead <= self._SIZE else 1)
            self._highest = sequence
            return True
        if ahead < -self._SIZE or self._seen >> -ahead & 1:
            return False
        self._seen |= 1 << -ahead
        return True


def _algorithm(data: bytes, kind: int) -> int | None:
    """Parse an algorithm payload (table 13-9) of eight bytes.

    :returns: algorithm number; None if the BMC may choose
    """
    if data[0] != kind:
        raise packet.Malformed()
    if data[3] == 0:
        return None
    if data[3] != 8:
        raise packet.Malformed()
    return data[4] & 0x3f


class Client:
    """What sessions of both versions have.

    :param address: client address; packets from others are rejected
    :param session_id: managed system's session id, not 0
    :ivar network: that of the client, see `shares.network`
    :ivar used: loop time of the last valid packet; maintained by the server
    :ivar user: None before RAKP message 1
    :ivar handle: session handle (22.20), 1 and up once established; maintained
        by the server
    :ivar pending: requests in progress
    :ivar response_cache: loop time and response message by request
    :ivar requester: address or software id of the client in its last request
        (figure 13-4); maintained by the server
    """

    __slots__ = ('address', 'network', 'session_id', 'used', 'user', 'handle',
                 'pending', 'response_cache', 'requester', 'privilege',
                 'privilege_limit', '__weakref__')

    def __init__(self, address: packet.Address, session_id: int) -> None:
        self.address = address
        self.network = shares.network(address[0])
        self.session_id = session_id
        self.used = 0.0
        self.user: users.User | None = None
        self.handle = 0
        self.pending: set[packet.Request] = set()
        self.response_cache: collections.OrderedDict[
            packet.Request, tuple[float, bytes]] = collections.OrderedDict()
        self.requester = 0
        self.privilege = self.privilege_limit = 0


class Session(Client):
    """An IPMI v2.0 session, from the Open Session Request on.

    :param request: payload of the RMCP+ Open Session Request (table 13-9)
    :raises: `HandshakeRefused`, `packet.Malformed`
    :ivar sol: None unless Serial over LAN is active
    """

    __slots__ = ('sol', '_console_id', '_console_number', '_suite', '_role',
                 '_username', '_key', '_guid', '_client_random', '_random',
                 '_rakp3', '_rakp4', '_signer', '_encryptor', '_decryptor',
                 '_sent', '_window')

    #: True for the RMCP+ packet format, False for IPMI v1.5.
    rmcpp = True

    def __init__(self, address: packet.Address, session_id: int,
                 request: bytes) -> None:
        if len(request) != 32:
            raise packet.Malformed()
        super().__init__(address, session_id)
        self.sol: sol.Sol | None = None
        self.privilege = constants.Privilege.USER
        self._console_id = bytes(request[4:8])
        self._console_number, = struct.unpack('<I', self._console_id)
        self._random: bytes | None = None
        self._rakp3: bytes | None = None
        self._rakp4: Answer
        self._sent: int
        tag, level = request[0], request[1] & 0x0f

        requested = [_algorithm(request[8 + 8 * kind:], kind)
                     for kind in range(3)]
        for self._suite in SUITES:
            if all(number in (None, supported) for number, supported
                   in zip(requested, self._suite.algorithms)):
                break
        else:
            self._refuse(constants.Payload.OPEN_SESSION_RESPONSE, tag,
                         constants.Status.NO_CIPHER_SUITE)
        if level > constants.Privilege.ADMINISTRATOR:
            self._refuse(constants.Payload.OPEN_SESSION_RESPONSE, tag,
                         constants.Status.INVALID_ROLE)
        # 0 requests the highest level available.
        self.privilege_limit = level or constants.Privilege.ADMINISTRATOR

    def _refuse(self, payload_type: int, tag: int,
                status: int) -> typing.NoReturn:
        raise HandshakeRefused(payload_type, tag, status, self._console_id)

    def open_response(self, tag: int) -> Answer:
        """Build the RMCP+ Open Session Response (table 13-10)."""
        return constants.Payload.OPEN_SESSION_RESPONSE, (
            bytes((tag, constants.Status.OK, self.privilege_limit, 0))
            + self._console_id + struct.pack('<I', self.session_id)
            + b''.join(bytes((kind, 0, 0, 8, number, 0, 0, 0))
                       for kind, number
                       in enumerate(self._suite.algorithms)))

    def rakp1(self, data: bytes,
              user_by_name: abc.Callable[[bytes], users.User | None],
              guid: bytes) -> Answer:
        """Process RAKP message 1, which names the user (table 13-11).

        :param data: payload of RAKP message 1
        :param guid: GUID of the managed system, 16 bytes
        :returns: RAKP message 2 (table 13-12)
        :raises: `HandshakeRefused`, `packet.Malformed`
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
        # RAKP itself reveals whether a user name exists (table 13-15), so the
        # search need not take constant time.
        user = user_by_name(username)
        if user is None or not role & _NAME_ONLY and level != user.limit:
            self._refuse(constants.Payload.RAKP2, tag,
                         constants.Status.UNAUTHORIZED_NAME)
        if level > user.limit:
            self._refuse(constants.Payload.RAKP2, tag,
                         constants.Status.UNAUTHORIZED_ROLE)
        self.user, self._key = user, user.password
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
    def _user(self) -> bytes:
        return bytes((self._role, len(self._username))) + self._username

    def rakp3(self, data: bytes) -> Answer:
        """Verify RAKP message 3, the proof of the password (table 13-13).

        :param data: payload of RAKP message 3
        :returns: RAKP message 4 (table 13-14)
        :raises: `HandshakeRefused`, `HandshakeAborted`, `packet.Malformed`
        """
        if self._random is None or len(data) < 8:
            raise packet.Malformed()
        if self._rakp3 is not None:
            # The client lost message 4: repeat it until the session is used.
            if self._sent > 1 or not hmac.compare_digest(data, self._rakp3):
                raise packet.Malformed()
            return self._rakp4
        tag = data[0]
        if data[1] != constants.Status.OK:
            raise HandshakeAborted()
        mac = self._suite.mac
        expected = mac(self._key, self._random + self._console_id
                       + self._user)
        if not hmac.compare_digest(bytes(data[8:]), expected):
            self._refuse(constants.Payload.RAKP4, tag,
                         constants.Status.INVALID_CHECK_VALUE)
        integrity = mac(self._key, self._client_random + self._random
                        + self._user)
        self._signer = _Hmac(mac(integrity, b'\x01' * 20), self._suite.hash)
        # Each packet begins with its initialization vector. These contexts
        # chain it to the previous packet, which is of no effect: the BMC's
        # vectors are encrypted random numbers (NIST SP 800-38A, appendix C),
        # and the client's are not decrypted.
        # The package cryptography loads an OpenSSL beside Python's, 8 MiB.
        key = mac(integrity, b'\x02' * 20)[:AES.block_size]
        self._encryptor, self._decryptor = (
            AES.new(key, AES.MODE_CBC, bytes(AES.block_size))
            for _ in range(2))
        self._sent = 1
        self._window = SequenceWindow()
        self.privilege = min(constants.Privilege.USER, self.privilege_limit)
        code = mac(integrity, self._client_random
                   + struct.pack('<I', self.session_id) + self._guid)
        self._rakp3 = bytes(data)
        self._rakp4 = constants.Payload.RAKP4, (
            bytes((tag, constants.Status.OK, 0, 0)) + self._console_id
            + code[:self._suite.code_length])
        return self._rakp4

    def unwrap(self, received: packet.Packet) -> tuple[bytes, bool]:
        """Verify and decrypt a packet of this session.

        :returns: (payload, new); new is False for a duplicate or replayed
            packet
        :raises: `packet.Malformed`
        """
        if not (received.authenticated and received.encrypted):
            raise packet.Malformed()
        trailer, length = received.trailer, self._suite.code_length
        if not hmac.compare_digest(
                self._code(received.signed[:-length]), trailer[-length:]):
            raise packet.Malformed()
        # Before the code are the pad, its length and the next header; no
        # length in a byte is that of a trailer without them.
        pad = len(trailer) - length - 2
        if trailer[pad] != pad or trailer[pad + 1] != packet.NEXT_HEADER:
            raise packet.Malformed()
        payload = received.payload
        if len(payload) < 32 or len(payload) % 16:
            raise packet.Malformed()
        # Initialization vector, message, pad and its length (table 13-20).
        plain = self._decryptor.decrypt(payload)
        pad = plain[-1]
        if pad > 15:
            raise packet.Malformed()
        return plain[16:-1 - pad], self._window.accept(received.sequence)

    def wrap(self, payload: bytes,
             payload_type: int = constants.Payload.IPMI) -> bytes:
        """Encrypt and sign a payload.

        :returns: the datagram
        """
        data = packet.wrap(
            payload_type, self._encryptor.encrypt(
                os.urandom(16) + payload + _PADS[-(len(payload) + 1) % 16]),
            self._console_number, self._sent, secured=True) + _TRAILER
        # Sequence number 0 is for packets outside a session.
        self._sent = self._sent % 0xffffffff + 1
        return data + self._code(data[len(packet.RMCP):])

    def _code(self, signed: bytes) -> bytes:
        """Authentication code of a packet (table 13-8)."""
        return self._signer.digest(signed)[:self._suite.code_length]
