# SPDX-License-Identifier: Apache-2.0
"""What an image is, by its first bytes.

CDI finds out by itself, from the same bytes (its `filefmt`), and unpacks and
converts; here it only matters how large the disk will be.
"""

import dataclasses
import struct

#: Bytes that are enough to tell.
NEEDED = 512


@dataclasses.dataclass(frozen=True)
class Format:
    """What an image is.

    :param name: ``raw``, ``qcow2``, ``vmdk``, ``vdi``
    :param compression: '', ``gz``, ``xz`` or ``zst``
    :param bytes: size of the disk in it; None where that of the file is it,
        or where nothing tells (all that is compressed)
    """

    name: str = 'raw'
    compression: str = ''
    bytes: int | None = None


_COMPRESSIONS = {b'\x1f\x8b': 'gz', b'\xfd7zXZ\x00': 'xz',
                 b'\x28\xb5\x2f\xfd': 'zst'}

# Magic number, where it stands; where the size stands, its form, its unit.
_SIZES = {
    'qcow2': (b'QFI\xfb', 0, 24, '>Q', 1),
    'vmdk': (b'KDMV', 0, 12, '<Q', 512),
    'vdi': (b'\x7f\x10\xda\xbe', 64, 368, '<Q', 1),
}


def of(head):
    """Tell what an image is.

    :param head: its first `NEEDED` bytes; all of a shorter one
    :returns: `Format`
    """
    for magic, name in _COMPRESSIONS.items():
        if head.startswith(magic):
            return Format(compression=name)
    for name, (magic, where, at, form, unit) in _SIZES.items():
        if head[where:where + len(magic)] == magic and len(head) >= at + 8:
            [size] = struct.unpack_from(form, head, at)
            return Format(name, bytes=size * unit)
    return Format()
