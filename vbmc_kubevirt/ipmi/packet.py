# SPDX-License-Identifier: Apache-2.0
"""Parser and builder of RMCP, RMCP+ and IPMI packets.

All network input passes through this module first. A packet that is
incomplete or not well formed raises `Malformed` and is dropped.
"""

from __future__ import annotations

import dataclasses
import struct
import typing

#: Address of a client, as `socket.recvfrom` returns it.
Address: typing.TypeAlias = tuple[typing.Any, ...]

#: RMCP version 1.0, no acknowledgement requested, class IPMI (table 13-1).
RMCP = b'\x06\x00\xff\x07'

# RMCP header of class ASF and the IANA enterprise number of ASF (table 13-6).
_ASF = b'\x06\x00\xff\x06' + struct.pack('>I', 4542)
_PING, _PONG = 0x80, 0x40

# Data of a presence pong (section 13.2.4): IANA enterprise number of ASF, IPMI
# supported, ASF version 1.0, no supported interactions.
_PRESENCE = struct.pack('>IIBB6x', 4542, 0, 0x81, 0)

AUTH_NONE = 0x00
AUTH_MD5 = 0x02
AUTH_RMCPP = 0x06

_ENCRYPTED = 0x80
_AUTHENTICATED = 0x40
_TYPE = 0x3f
_OEM = 0x02

#: Next header of the session trailer (table 13-8).
NEXT_HEADER = 0x07

#: Longest message in a packet of IPMI v1.5, whose header has one byte for its
#: length.
V15_MESSAGE_MAX = 255

#: Bytes of the authentication code of IPMI v1.5 (table 13-8).
_CODE_LENGTH = 16

_V15 = struct.Struct('<II')
_V20 = struct.Struct('<BIIH')

# Of all RMCP+ packets.
_RMCPP = RMCP + bytes((AUTH_RMCPP,))


class Malformed(Exception):
    """The packet is invalid or unsupported; drop it without a response."""


@dataclasses.dataclass(slots=True)
class Packet:
    """A packet without its session wrapper (figure 13-4, table 13-8).

    :ivar rmcpp: False for an IPMI v1.5 wrapper
    :ivar payload_type: see table 13-16
    :ivar session_id: 0 outside a session
    :ivar sequence: session sequence number
    :ivar payload: still encrypted if `encrypted`
    :ivar signed: the bytes the authentication code covers; with v1.5 without
        the key before and behind them
    :ivar trailer: integrity pad, its length, next header and the code; with
        v1.5 the code alone
    """

    rmcpp: bool
    payload_type: int
    encrypted: bool
    authenticated: bool
    session_id: int
    sequence: int
    payload: bytes
    signed: bytes
    trailer: bytes


def parse(data: bytes) -> Packet:
    """Parse an RMCP datagram.

    :raises: `Malformed`
    """
    if not data.startswith(_RMCPP):
        return _parse_v15(data)
    if len(data) < 16:
        raise Malformed()
    kind, session_id, sequence, length = _V20.unpack_from(data, 5)
    payload_type, end = kind & _TYPE, 16 + length
    if payload_type == _OEM or len(data) < end:
        raise Malformed()
    return Packet(True, payload_type, kind & _ENCRYPTED != 0,
                  kind & _AUTHENTICATED != 0, session_id, sequence,
                  data[16:end], data[4:], data[end:])


def _parse_v15(data: bytes) -> Packet:
    if (len(data) < 14 or not data.startswith(RMCP)
            or data[4] not in (AUTH_NONE, AUTH_MD5)):
        raise Malformed()
    sequence, session_id = _V15.unpack_from(data, 5)
    secured = data[4] == AUTH_MD5
    start = 13 + _CODE_LENGTH * secured
    length = data[start] if len(data) > start else 0
    payload = data[start + 1:start + 1 + length]
    # Some clients append one byte, the "legacy pad".
    if (len(payload) != length
            or not 0 <= len(data) - start - 1 - length <= 1):
        raise Malformed()
    if not secured:
        return Packet(False, 0, False, False, session_id, sequence, payload,
                      b'', b'')
    return Packet(False, 0, False, True, session_id, sequence, payload,
                  signed_v15(session_id, sequence, payload), data[13:start])


def signed_v15(session_id: int, sequence: int, payload: bytes) -> bytes:
    """Data covered by the code of an IPMI v1.5 packet (section 22.17.1)."""
    return (struct.pack('<I', session_id) + payload
            + struct.pack('<I', sequence))


def ping(tag: int) -> bytes:
    """Build a presence ping (section 13.2.3).

    :param tag: message tag, 0 to 254; repeated in the pong
    """
    return _ASF + bytes((_PING, tag, 0, 0))


def parse_ping(data: bytes) -> int | None:
    """Parse a presence ping.

    :returns: its message tag; None for any other packet
    """
    # Accept any RMCP sequence number. FFh alone requests no acknowledgement,
    # and clients that request one accept the pong.
    if (data[3:8] == _ASF[3:] and data[:2] == _ASF[:2] and len(data) >= 12
            and data[8] == _PING):
        return data[9]
    return None


def pong(tag: int) -> bytes:
    """Build a presence pong (section 13.2.4)."""
    return _ASF + bytes((_PONG, tag, 0, len(_PRESENCE))) + _PRESENCE


def wrap_v15(payload: bytes, session_id: int = 0, sequence: int = 0,
             code: bytes = b'') -> bytes:
    """Wrap a message in an IPMI v1.5 header.

    :param code: authentication code, 16 bytes; empty outside a session
    """
    return (RMCP + bytes((AUTH_MD5 if code else AUTH_NONE,))
            + _V15.pack(sequence, session_id) + code
            + bytes((len(payload),)) + payload)


def wrap(payload_type: int, payload: bytes, session_id: int = 0,
         sequence: int = 0, secured: bool = False) -> bytes:
    """Wrap a payload in an RMCP+ header.

    :param secured: the payload is encrypted and a session trailer follows
    """
    if secured:
        payload_type |= _ENCRYPTED | _AUTHENTICATED
    return _RMCPP + _V20.pack(
        payload_type, session_id, sequence, len(payload)) + payload


class Request(typing.NamedTuple):
    """An IPMI request message (figure 13-4).

    :ivar netfn: network function, even
    :ivar data: bytes after the command
    """

    responder: int
    netfn: int
    lun: int
    requester: int
    sequence: int
    requester_lun: int
    command: int
    data: bytes


def parse_request(payload: bytes) -> Request:
    """Parse an IPMI request message.

    :raises: `Malformed` if it is too short, has a wrong checksum or is a
        response
    """
    # The sum of a part and its checksum is 0 modulo 256 (section 13.8).
    if (len(payload) < 7 or sum(payload[:3]) & 0xff
            or sum(payload[3:]) & 0xff):
        raise Malformed()
    responder, netfn, _checksum, requester, sequence, command = payload[:6]
    if netfn >> 2 & 1:
        raise Malformed()
    return Request(responder, netfn >> 2, netfn & 3, requester,
                   sequence >> 2, sequence & 3, command, payload[6:-1])


def response(request: Request, code: int, data: bytes = b'') -> bytes:
    """Build the response message to a request (figure 13-4).

    :param code: completion code
    :param data: response data bytes
    """
    requester = request.requester
    netfn = (request.netfn | 1) << 2 | request.requester_lun
    body = bytes((request.responder, request.sequence << 2 | request.lun,
                  request.command, code)) + data
    return bytes((requester, netfn, -(requester + netfn) & 0xff, *body,
                  -sum(body) & 0xff))
