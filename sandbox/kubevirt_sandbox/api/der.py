# SPDX-License-Identifier: Apache-2.0
"""Writes the DER (X.690) that X.509 certificates need.

``cryptography.x509`` would take as long to import as the HTTP server.
"""
import base64
import datetime


def element(tag: int, *parts: bytes) -> bytes:
    """Return an element with a tag and the parts of its content."""
    content = b''.join(parts)
    length = len(content)
    if length < 128:
        return bytes((tag, length)) + content
    size = length.to_bytes((length.bit_length() + 7) // 8)
    return bytes((tag, 128 | len(size))) + size + content


def sequence(*parts: bytes) -> bytes:
    """Return a SEQUENCE."""
    return element(0x30, *parts)


def integer(value: int) -> bytes:
    """Return an INTEGER that is not negative."""
    return element(2, value.to_bytes(value.bit_length() // 8 + 1))


def octets(content: bytes) -> bytes:
    """Return an OCTET STRING."""
    return element(4, content)


def bits(content: bytes, unused: int = 0) -> bytes:
    """Return a BIT STRING whose last bits are unused."""
    return element(3, bytes((unused,)), content)


def identifier(dotted: str) -> bytes:
    """Return an OBJECT IDENTIFIER, e.g. of ``2.5.4.3``."""
    first, second, *rest = map(int, dotted.split('.'))
    content = bytearray((40 * first + second,))
    for number in rest:
        groups = [number & 127]
        while number := number >> 7:
            groups.append(128 | number & 127)
        content += bytes(reversed(groups))
    return element(6, bytes(content))


def time(when: datetime.datetime) -> bytes:
    """Return a UTCTime, for years before 2050."""
    return element(0x17, when.strftime('%y%m%d%H%M%SZ').encode())


def pem(label: str, content: bytes) -> bytes:
    """Return PEM (RFC 7468)."""
    text = base64.b64encode(content).decode()
    lines = [text[at:at + 64] for at in range(0, len(text), 64)]
    return '\n'.join([f'-----BEGIN {label}-----', *lines,
                      f'-----END {label}-----', '']).encode()
