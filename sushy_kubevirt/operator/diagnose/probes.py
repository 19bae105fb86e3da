# SPDX-License-Identifier: Apache-2.0
"""Requests to a BMC that need no password: is it there, and what is it?

What comes back is limited in size and time and is not trusted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import ssl
import struct
import time

from sushy_kubevirt.operator import endpoints

#: Bytes of a response that are read. The service root has less than 4 KiB.
_MAX_BYTES = 65536

#: RMCP header of class ASF and presence ping (IPMI 2.0, section 13.2.3). The
#: answer, a pong, has type 40h.
_PING = bytes.fromhex('0600ff06') + struct.pack('>IBBBB', 4542, 0x80, 0, 0, 0)
_PONG = 0x40

#: RMCP header of class IPMI, session header without a session (13.6), and
#: the message Get Channel Authentication Capabilities for this channel with
#: data of IPMI 2.0, privilege Administrator (22.13), with both checksums.
_CAPABILITIES = bytes.fromhex(
    '0600ff07' '00' '00000000' '00000000' '09' '2018c8810038' '8e04b5')

#: Place of the completion code in the response, and of its byte with the
#: support of IPMI v2.0 connections (bit 1 of byte 5, table 22-15).
_CODE, _EXTENDED = 20, 24

#: Seconds until a datagram is sent again.
_RESEND_SECONDS = 1


@dataclasses.dataclass(frozen=True)
class Answer:
    """What came of a request.

    :param reached: whether anything came back, if only a refusal
    :param fault: why the answer is not that of a BMC, a sentence without full
        stop; '' if it is
    :param certificate: DER of the server's certificate, or None
    """

    reached: bool
    fault: str = ''
    certificate: bytes | None = None


def redfish(host: str, port: int, tls: bool, seconds: float) -> Answer:
    """Read the Redfish service root.

    :param host: name or address
    :param port: TCP port
    :param tls: whether it serves HTTPS; the certificate is not verified
    :param seconds: time limit
    """
    end = time.monotonic() + seconds
    certificate, reached = None, False
    try:
        with contextlib.ExitStack() as stack:
            sock = stack.enter_context(
                socket.create_connection((host, port), seconds))
            reached = True
            if tls:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
                sock.settimeout(_left(end))
                sock = stack.enter_context(context.wrap_socket(
                    sock, server_hostname=host))
                certificate = sock.getpeercert(True)
            sock.sendall((
                'GET /redfish/v1/ HTTP/1.1\r\n'
                f'Host: {endpoints.bracketed(host)}\r\n'
                'Accept: application/json\r\n'
                'Connection: close\r\n\r\n').encode())
            response = _read(sock, end)
    except TimeoutError:
        return Answer(reached, f'it has not answered in {seconds:.0f} s',
                      certificate)
    except ConnectionRefusedError as e:
        return Answer(True, e.strerror or str(e))
    except OSError as e:
        return Answer(reached, e.strerror or str(e), certificate)
    head, _, body = response.partition(b'\r\n\r\n')
    code = head.partition(b'\r\n')[0].split(b' ')[1:2]
    if code != [b'200'] or b'"RedfishVersion"' not in body:
        line = head.partition(b'\r\n')[0][:80].decode('ascii', 'replace')
        return Answer(True, f'its answer to GET /redfish/v1/ is {line!r} and '
                      'not a Redfish service root', certificate)
    return Answer(True, '', certificate)


def _left(end: float) -> float:
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _read(sock: socket.socket, end: float) -> bytes:
    response = b''
    while len(response) < _MAX_BYTES:
        sock.settimeout(_left(end))
        read = sock.recv(_MAX_BYTES)
        if not read:
            break
        response += read
    return response


def ipmi(host: str, port: int, seconds: float) -> Answer:
    """Send an RMCP presence ping and Get Channel Authentication Capabilities.

    :param host: name or address
    :param port: UDP port
    :param seconds: time limit of each
    """
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as sock:
            # Only datagrams of this address are received then.
            sock.connect(address)
            pong = _exchange(sock, _PING, seconds)
            if pong[:4] != _PING[:4] or pong[8:9] != bytes((_PONG,)):
                return Answer(True, 'its answer to an RMCP ping is none')
            answer = _exchange(sock, _CAPABILITIES, seconds)
    except TimeoutError:
        return Answer(False, f'it has not answered in {seconds:.0f} s')
    except ConnectionRefusedError as e:
        return Answer(True, e.strerror or str(e))
    except OSError as e:
        return Answer(False, e.strerror or str(e))
    if len(answer) <= _EXTENDED or answer[:4] != _CAPABILITIES[:4]:
        return Answer(True, 'its answer to Get Channel Authentication '
                      'Capabilities is none')
    if answer[_CODE]:
        return Answer(True, 'Get Channel Authentication Capabilities has '
                      f'completion code {answer[_CODE]:02X}h')
    if not answer[_EXTENDED] & 2:
        return Answer(True, 'it does not support IPMI 2.0')
    return Answer(True)


def _exchange(sock: socket.socket, request: bytes, seconds: float) -> bytes:
    """Send a datagram until one comes back.

    :raises: TimeoutError, OSError
    """
    end = time.monotonic() + seconds
    while True:
        sock.send(request)
        sock.settimeout(min(_RESEND_SECONDS, _left(end)))
        try:
            return sock.recv(_MAX_BYTES)
        except TimeoutError:
            _left(end)
