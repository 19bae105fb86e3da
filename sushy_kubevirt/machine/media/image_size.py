# SPDX-License-Identifier: Apache-2.0
"""Determines the size of an image from its server.

CDI needs a size for its claim, and an image that cannot be fetched is refused
at the insert instead of a minute later.
"""

from __future__ import annotations

import logging
import re
import struct
import typing

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine.media import fetch
from sushy_kubevirt.machine.media import url_policy
from sushy_kubevirt.machine import option_hints

if typing.TYPE_CHECKING:
    from sushy_kubevirt.machine.media import model
    from sushy_kubevirt.machine import options

LOG = logging.getLogger(__name__)

#: Maximum size: 2 ** 53, which JSON parsers read exactly.
LARGEST = 2 ** 53

_RANGE = re.compile(r'bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)')


#: Number of first bytes of an image that tell its format. CDI detects it from
#: the same bytes (package ``filefmt``), unpacks and converts the image.
NEEDED = 512

_COMPRESSIONS = {b'\x1f\x8b': 'gz', b'\xfd7zXZ\x00': 'xz',
                 b'\x28\xb5\x2f\xfd': 'zst'}

# Of qcow2, VMDK and VDI: magic number and its offset; offset, struct format
# and unit (bytes) of the disk's size.
_SIZES: tuple[tuple[bytes, int, int, str, int], ...] = (
    (b'QFI\xfb', 0, 24, '>Q', 1),
    (b'KDMV', 0, 12, '<Q', 512),
    (b'\x7f\x10\xda\xbe', 64, 368, '<Q', 1),
)


class Probe(typing.NamedTuple):
    """Size of an image.

    :param bytes: size of the resulting disk
    :param length: length of the file in bytes; None if unknown
    """

    bytes: int
    length: int | None = None


class Format(typing.NamedTuple):
    """Format of an image.

    :param compression: '', ``gz``, ``xz`` or ``zst``
    :param bytes: size of the disk in it; None if that is the file's size (a
        raw image) or not known (a compressed image)
    """

    compression: str = ''
    bytes: int | None = None


def format_of(head: bytes) -> Format:
    """Detect the format of an image.

    :param head: its first `NEEDED` bytes, or all if it has fewer
    """
    for magic, name in _COMPRESSIONS.items():
        if head.startswith(magic):
            return Format(name)
    for magic, offset, place, form, unit in _SIZES:
        if (head[offset:offset + len(magic)] == magic
                and len(head) >= place + 8):
            [size] = struct.unpack_from(form, head, place)
            return Format(bytes=size * unit)
    return Format()


def probe(source: model.Source, options: options.MediaOptions,
          verify: bool = True, certificates: str = '') -> Probe:
    """Determine the size of an image.

    Sends HEAD; if that does not give the length, GET for the first bytes.
    Files not named ``.iso`` are read too, to detect their format.

    :param source: from `url_policy.separate_credentials`
    :param verify: whether the server's certificate is verified
    :param certificates: PEM of the certificates installed for the device
    :raises: `errors.InvalidValue` for a URL that is not allowed,
        `errors.MediaUnreachable`
    """
    try:
        return _probe(fetch.Fetcher(source, options, verify, certificates),
                      options, source.url)
    except errors.MediaUnreachable as e:
        if not options.default_size or not _default_size_allowed(
                e, source.url, options):
            raise
        LOG.info('%s. Its size is assumed to be %d bytes', e,
                 options.default_size)
        return Probe(options.default_size)


def of_upload(name: str, head: bytes, size: int | None, length: int | None,
              options: options.MediaOptions) -> Probe:
    """Determine the size of an image that a client uploads.

    :param name: file name
    :param head: its first `NEEDED` bytes, or all
    :param size: size of the disk according to the client; None if unknown
    :param length: of the file in bytes, or more; None if unknown
    :raises: `errors.InvalidValue` if the size is not known or too large
    """
    format_ = format_of(head)
    compression = format_.compression
    if compression and size is not None and size <= (length or 0):
        # Right if the content cannot be compressed, or that of the file.
        size = max(size, options.default_size or 0)
    total = max(format_.bytes or 0, size or 0) or (
        not compression and length) or options.default_size
    if not total:
        why = (f'it is compressed ({compression})' if compression
               else 'the request has no Content-Length')
        raise errors.InvalidValue(
            'Size', None, message=f'{name} has no known size: {why}. Send '
            'the number of bytes of the disk as Size in InsertParameters')
    if total > LARGEST:
        raise errors.InvalidValue(
            'Size', total, message=f'{name} is too large: {total} bytes')
    return Probe(total, length)


def _default_size_allowed(error: errors.MediaUnreachable, url: str,
                          options: options.MediaOptions) -> bool:
    """Return whether `default_size` may be assumed after an error."""
    if error.kind == 'size':
        return True
    if error.kind != 'unreachable':
        return False
    # CDI may reach what the BMC cannot. A host that cannot be resolved here
    # cannot be checked, so `allowed_hosts` has to list its name.
    try:
        url_policy.check(url, options)
    except errors.MediaUnreachable:
        return url_policy.is_allowed_name(url, options)
    return True


def _probe(fetcher: fetch.Fetcher, options: options.MediaOptions, url: str
           ) -> Probe:
    parsed = url_policy.parse(url)
    seconds = options.probe_seconds / 2     # two requests at most
    length = _head(fetcher, seconds)
    format_ = Format()
    if length is None:
        length, head = _first_bytes(fetcher, seconds)
        format_ = format_of(head)
    elif not parsed.path.partition('?')[0].lower().endswith('.iso'):
        format_ = _detect_format(fetcher, seconds)
    size = format_.bytes
    if size is None and not format_.compression:
        size = length
    if not size:
        why = (f'it is compressed ({format_.compression})'
               if format_.compression else 'it is empty' if length == 0
               else 'its server does not report one')
        raise errors.MediaUnreachable(
            f'{parsed.shown} has no known size: {why}' + option_hints.hint(
                options, 'default_size',
                '. Set {} to the size to assume for such images'),
            parsed.shown, 'missing' if length == 0 else 'size')
    if size > LARGEST:
        raise errors.MediaUnreachable(
            f'{parsed.shown} is too large: {size} bytes', parsed.shown, 'size')
    return Probe(size, length)


def _head(fetcher: fetch.Fetcher, seconds: float) -> int | None:
    """Return the length in bytes from a HEAD request; None if unknown."""
    try:
        with fetcher.request('HEAD', seconds=seconds) as response:
            if response.status == 200:
                return response.length() or None
    except errors.MediaUnreachable as e:
        if e.kind == 'tls':
            raise
        # Some servers reject HEAD; GET reports other problems.
        LOG.debug('HEAD request failed: %s', e)
    return None


def _first_bytes(fetcher: fetch.Fetcher, seconds: float
                 ) -> tuple[int | None, bytes]:
    """Return the length, if known, and first bytes of an image, by GET."""
    headers = {'Range': f'bytes=0-{NEEDED - 1}'}
    with fetcher.request('GET', headers, seconds=seconds) as response:
        if response.status == 206:
            match = _RANGE.fullmatch(
                response.headers.get('Content-Range', '').strip())
            if not match or match[1] != '0':
                # Not the range that was requested.
                return None, b''
            length = None if match[3] == '*' else int(match[3])
        elif response.status == 200:
            length = response.length()
        elif response.status == 416:
            # The image is empty.
            return 0, b''
        else:
            raise fetch.status_error(response)
        head = response.read(NEEDED) if response.plain else b''
        return length, head


def _detect_format(fetcher: fetch.Fetcher, seconds: float
                   ) -> Format:
    """Return the format of an image whose length is known."""
    try:
        return format_of(_first_bytes(fetcher, seconds)[1])
    except errors.MediaUnreachable as e:
        LOG.debug('GET request failed: %s', e)
        return Format()
