# SPDX-License-Identifier: Apache-2.0
"""HTTP/1 messages: strict checks, for all servers (RFC 9112).

What a proxy and a server can understand differently is refused: lines, Host,
Transfer-Encoding, chunks. `check` is for a request of any server;
`check_lines` and `ChunkedBody` are for that of Werkzeug, whose own parser
accepts almost everything; `CheckedBody` is for that of gunicorn.
"""

from __future__ import annotations

import errno
import functools
import io
import ipaddress
import re
import typing

if typing.TYPE_CHECKING:
    from collections import abc
    from wsgiref import types

#: Maximum bytes of the line before a chunk; maximum number of trailer lines.
_MAX_LINE_BYTES, _MAX_TRAILERS = 4096, 100

#: Digits of the largest Content-Length, 2 ** 64 - 1. Python converts no text
#: of more than 4300 to a number.
_MAX_DIGITS = 20

_TOKEN = rb"[\w!#$%&'*+.^`|~-]+"

# Section 3; sections 5 and 6.5; section 7.1. Werkzeug takes a method in lower
# case for that in upper case.
_REQUEST_LINE = re.compile(
    rb"[A-Z0-9!#$%&'*+.^_`|~-]+ [!-~]+ HTTP/1\.\d\r\n", re.ASCII)
_FIELD_LINE = re.compile(
    _TOKEN + rb':[\t -~\x80-\xff]*\r\n', re.ASCII)
_QUOTED = rb'"(?:[\t !#-\[\]-~\x80-\xff]|\\[\t -~\x80-\xff])*"'
_CHUNK_LINE = (
    rb'([0-9A-Fa-f]{1,16})(?:[ \t]*;[ \t]*' + _TOKEN + rb'(?:[ \t]*=[ \t]*(?:'
    + _TOKEN + b'|' + _QUOTED + rb'))?)*\r\n')

_HOST = re.compile(
    r'(?P<name>[\w.~-]+|\[(?P<literal>[0-9A-Fa-f:.]+(%25[\w.~-]+)?)\])'
    r'(?::(?P<port>\d{0,5}))?', re.ASCII)

_ABSOLUTE = re.compile('https?://([^/?#]*)', re.IGNORECASE)


def check(environ: types.WSGIEnvironment) -> int | None:
    """Check Host and the length of the body (sections 3.2, 6.1 and 6.3).

    :param environ: of the request; repeated headers are joined by commas. The
        host of an absolute URI replaces Host.
    :returns: HTTP status code with which to refuse it; None if it is valid
    """
    host = environ.get('HTTP_HOST')
    old = environ['SERVER_PROTOCOL'] == 'HTTP/1.0'
    if not old if host is None else host_name(host) is None:
        return 400
    absolute = _ABSOLUTE.match(environ.get('REQUEST_URI')
                               or environ.get('RAW_URI') or '')
    if absolute is not None:
        if host_name(absolute[1]) is None:
            return 400
        environ['HTTP_HOST'] = absolute[1]
    length = environ.get('CONTENT_LENGTH') or None
    encoding = environ.get('HTTP_TRANSFER_ENCODING')
    if encoding is None:
        return None if length is None or (
            length.isdecimal() and len(length) <= _MAX_DIGITS) else 400
    codings = [coding.strip(' \t').lower() for coding in encoding.split(',')]
    if (old or length is not None or codings[-1] != 'chunked'
            or codings.count('chunked') > 1):
        return 400
    return None if codings == ['chunked'] else 501


@functools.lru_cache(maxsize=64)
def host_name(host: str) -> str | None:
    """Return the name or address in a header Host (RFC 9110, section 7.2).

    :param host: value of the header
    :returns: in lower case, without brackets and zone of an IPv6 address;
        None if the value is invalid
    """
    match = _HOST.fullmatch(host)
    if match is None or int(match['port'] or 0) > 65535:
        return None
    if match['literal'] is None:
        return match['name'].lower()
    try:
        return str(ipaddress.IPv6Address(match['literal'].partition('%')[0]))
    except ValueError:
        return None


def check_lines(lines: abc.Sequence[bytes]) -> bool:
    """Check the lines of a header.

    :param lines: with their ends: the request line, fields, and the empty line
    :returns: whether they are valid
    """
    return (_REQUEST_LINE.fullmatch(lines[0]) is not None
            and lines[-1] == b'\r\n'
            and all(map(_FIELD_LINE.fullmatch, lines[1:-1])))


def lines(headers: abc.Iterable[tuple[str, str]]) -> bytes:
    """Serialize the headers of a response (section 5), as uvicorn does."""
    return ''.join(f'{name.lower()}: {value}\r\n'
                   for name, value in headers).encode('latin-1')


class ChunkedBody(io.RawIOBase):
    """Reads a chunked body (section 7.1); trailers are ignored."""

    def __init__(self, stream: io.BufferedIOBase) -> None:
        super().__init__()
        self._stream = stream
        self._left = 0      # bytes of the chunk
        self._first = True
        self._ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: typing.Any) -> int:
        """Read what is left of a chunk, or a part of it.

        :raises: OSError if the body is invalid or ends early
        """
        if self._ended or not len(buffer):
            return 0
        if not self._left:
            self._next_chunk()
        if self._ended:
            return 0
        data = self._stream.read(min(len(buffer), self._left))
        if not data:
            raise _invalid('a chunk ends early')
        buffer[:len(data)] = data
        self._left -= len(data)
        return len(data)

    def _next_chunk(self) -> None:
        if not self._first and self._stream.read(2) != b'\r\n':
            raise _invalid('a chunk is longer than its size')
        self._first = False
        match = re.fullmatch(_CHUNK_LINE, self._line())
        if match is None:
            raise _invalid('the line before a chunk')
        self._left = int(match[1], 16)
        if not self._left:
            self._ended = True
            self._read_trailers()

    def _read_trailers(self) -> None:
        for _ in range(_MAX_TRAILERS + 1):
            line = self._line()
            if line == b'\r\n':
                return
            if _FIELD_LINE.fullmatch(line) is None:
                break
        raise _invalid('the trailers')

    def _line(self) -> bytes:
        return self._stream.readline(_MAX_LINE_BYTES)


class CheckedBody(io.RawIOBase):
    """Reads a body of gunicorn, whose errors are no OSError.

    :param stream: gunicorn's ``Body``
    """

    def __init__(self, stream: typing.BinaryIO) -> None:
        super().__init__()
        self._stream = stream
        self._failed = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: typing.Any) -> int:
        """Read some bytes.

        :raises: OSError if the body is invalid; also later, where gunicorn
            reports the end
        """
        if self._failed:
            raise _invalid('see the error before')
        try:
            data = self._stream.read(len(buffer))
        except Exception as exc:
            self._failed = True
            if isinstance(exc, OSError):
                raise
            raise _invalid(exc) from None
        buffer[:len(data)] = data
        return len(data)


def _invalid(what: object) -> OSError:
    return OSError(errno.EBADMSG, f'The chunked body is not valid: {what}')
