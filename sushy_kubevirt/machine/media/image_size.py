# SPDX-License-Identifier: Apache-2.0
"""Determines the size of an image from its server.

CDI needs a size for its claim, and an image that cannot be fetched is refused
at the insert instead of a minute later.
"""

import dataclasses
import logging
import re

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine.media import fetch
from sushy_kubevirt.machine.media import image_format
from sushy_kubevirt.machine.media import url_policy

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


def probe(source, options, verify=True, certificates=''):
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
        return _asked(fetch.Fetcher(source, options, verify, certificates),
                      options.probe_seconds, source.url)
    except errors.MediaUnreachable as e:
        if not _may_guess(e, source.url, options):
            raise
        LOG.info('%s. Its size is taken to be %d bytes', e,
                 options.default_size)
        return Probe(options.default_size, guessed=True)


def _may_guess(error, url, options):
    if not options.default_size:
        return False
    if error.kind == 'size':
        return True
    if error.kind != 'unreachable':
        return False
    # CDI may reach what the BMC cannot. A host that cannot be resolved here
    # cannot be checked, so MEDIA_ALLOWED_HOSTS has to list its name.
    try:
        url_policy.check(url, options)
    except errors.MediaUnreachable:
        return url_policy.is_allowed_name(url, options)
    return True


def _asked(fetcher, seconds, url):
    place = url_policy.parse(url)
    seconds /= 2        # two requests at most
    length = _head(fetcher, seconds)
    found = image_format.Format()
    if length is None:
        length, head = _first_bytes(fetcher, seconds)
        found = image_format.of(head)
    elif not place.path.partition('?')[0].lower().endswith('.iso'):
        found = _look(fetcher, seconds)
    size = found.bytes
    if size is None and not found.compression:
        size = length
    if not size:
        what = (f'is compressed ({found.compression})'
                if found.compression else 'is empty' if length == 0
                else 'has a server that does not tell its size')
        raise errors.MediaUnreachable(
            '%s %s; MEDIA_DEFAULT_SIZE can say how large such images are'
            % (place.shown, what), place.shown,
            'missing' if length == 0 else 'size')
    if size > LARGEST:
        raise errors.MediaUnreachable(
            '%s claims to be of %d bytes' % (place.shown, size), place.shown,
            'size')
    return Probe(size, length, found.name, found.compression)


def _head(fetcher, seconds):
    """Return the length in bytes from a HEAD request; None if unknown."""
    try:
        with fetcher.ask('HEAD', seconds=seconds) as answer:
            if answer.status == 200:
                return answer.length() or None
    except errors.MediaUnreachable as e:
        if e.kind == 'tls':
            raise
        # Some servers reject HEAD; GET reports other problems.
        LOG.debug('HEAD: %s', e)
    return None


def _first_bytes(fetcher, seconds):
    """Return (length or None, first bytes) of an image, by GET."""
    with fetcher.ask(
        'GET',
        {'Range': 'bytes=0-%d' % (image_format.NEEDED - 1)},
        seconds=seconds,
    ) as answer:
        if answer.status == 206:
            match = _RANGE.fullmatch(
                answer.headers.get('Content-Range', '').strip())
            if not match or match[1] != '0':
                # Not the range that was requested.
                return None, b''
            length = None if match[3] == '*' else int(match[3])
        elif answer.status == 200:
            length = answer.length()
        elif answer.status == 416:
            # The image is empty.
            return 0, b''
        else:
            raise fetch.refused(answer)
        head = answer.read(image_format.NEEDED) if answer.plain else b''
        return length, head


def _look(fetcher, seconds):
    """Return the `image_format.Format` of an image whose length is known."""
    try:
        return image_format.of(_first_bytes(fetcher, seconds)[1])
    except errors.MediaUnreachable as e:
        LOG.debug('GET: %s', e)
        return image_format.Format()
