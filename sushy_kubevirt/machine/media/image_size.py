# SPDX-License-Identifier: Apache-2.0
"""Determines the size of an image from its server.

CDI needs a size for its claim, and an image that cannot be fetched is refused
at the insert instead of a minute later.
"""

from __future__ import annotations

import dataclasses
import logging
import re

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine.media import fetch
from sushy_kubevirt.machine.media import image_format
from sushy_kubevirt.machine.media import url_policy
from sushy_kubevirt.machine import option_hints

LOG = logging.getLogger(__name__)

#: Maximum size: 2 ** 53, which JSON parsers read exactly.
LARGEST = 2 ** 53

_RANGE = re.compile(r'bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)')


@dataclasses.dataclass(frozen=True)
class Probe:
    """Size and format of an image.

    :param bytes: size of the resulting disk
    :param length: length of the file in bytes; None if unknown
    :param format: ``raw``, ``qcow2``, ``vmdk`` or ``vdi``
    :param compression: '', ``gz``, ``xz`` or ``zst``
    :param guessed: True if bytes is `MediaOptions.default_size`
    """

    bytes: int
    length: int | None = None
    format: str = 'raw'
    compression: str = ''
    guessed: bool = False


def probe(source, options, verify: bool = True, certificates: str = ''):
    """Determine the size of an image.

    Sends HEAD; if that does not give the length, GET for the first bytes.
    Files not named ``.iso`` are read too, to detect their format.

    :param source: a `model.Source`, from `url_policy.separate_credentials`
    :param options: an `options.MediaOptions`
    :param verify: whether the server's certificate is verified
    :param certificates: PEM of the certificates installed for the device
    :returns: `Probe`
    :raises: `errors.InvalidValue` for a URL that is not allowed,
        `errors.MediaUnreachable`
    """
    try:
        return _probe(fetch.Fetcher(source, options, verify, certificates),
                      options, source.url)
    except errors.MediaUnreachable as e:
        if not _default_size_allowed(e, source.url, options):
            raise
        LOG.info('%s. Its size is assumed to be %d bytes', e,
                 options.default_size)
        return Probe(options.default_size, guessed=True)


def of_upload(name, head, size, length, options):
    """Determine the size of an image that a client uploads.

    :param name: file name
    :param head: its first `image_format.NEEDED` bytes, or all
    :param size: size of the disk according to the client; None if unknown
    :param length: of the file in bytes, or more; None if unknown
    :param options: an `options.MediaOptions`
    :returns: `Probe`
    :raises: `errors.InvalidValue` if the size is not known or too large
    """
    found = image_format.of(head)
    if found.compression and size is not None and size <= (length or 0):
        # Right if the content cannot be compressed, or that of the file.
        size = max(size, options.default_size or 0)
    total = max(found.bytes or 0, size or 0) or (
        not found.compression and length) or options.default_size
    if not total:
        why = (f'it is compressed ({found.compression})' if found.compression
               else 'the request has no Content-Length')
        raise errors.InvalidValue(
            'Size', None, message=f'{name} has no known size: {why}. Send '
            'the number of bytes of the disk as Size in InsertParameters')
    if total > LARGEST:
        raise errors.InvalidValue(
            'Size', total, message=f'{name} is too large: {total} bytes')
    return Probe(total, length, found.name, found.compression)


def _default_size_allowed(error, url, options):
    """Return whether `default_size` may be assumed after an error."""
    if not options.default_size:
        return False
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


def _probe(fetcher, options, url):
    parsed = url_policy.parse(url)
    seconds = options.probe_seconds / 2     # two requests at most
    length = _head(fetcher, seconds)
    found = image_format.Format()
    if length is None:
        length, head = _first_bytes(fetcher, seconds)
        found = image_format.of(head)
    elif not parsed.path.partition('?')[0].lower().endswith('.iso'):
        found = _detect_format(fetcher, seconds)
    size = found.bytes
    if size is None and not found.compression:
        size = length
    if not size:
        why = (f'it is compressed ({found.compression})'
               if found.compression else 'it is empty' if length == 0
               else 'its server does not report one')
        raise errors.MediaUnreachable(
            f'{parsed.shown} has no known size: {why}' + option_hints.hint(
                options, 'default_size',
                '. Set {} to the size to assume for such images'),
            parsed.shown, 'missing' if length == 0 else 'size')
    if size > LARGEST:
        raise errors.MediaUnreachable(
            f'{parsed.shown} is too large: {size} bytes', parsed.shown, 'size')
    return Probe(size, length, found.name, found.compression)


def _head(fetcher, seconds):
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


def _first_bytes(fetcher, seconds):
    """Return (length or None, first bytes) of an image, by GET."""
    headers = {'Range': f'bytes=0-{image_format.NEEDED - 1}'}
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
        head = response.read(image_format.NEEDED) if response.plain else b''
        return length, head


def _detect_format(fetcher, seconds):
    """Return the `image_format.Format` of an image whose length is known."""
    try:
        return image_format.of(_first_bytes(fetcher, seconds)[1])
    except errors.MediaUnreachable as e:
        LOG.debug('GET request failed: %s', e)
        return image_format.Format()
