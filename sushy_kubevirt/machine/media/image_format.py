# SPDX-License-Identifier: Apache-2.0
"""Detects the format of an image from its first bytes.

CDI detects it from the same bytes (package ``filefmt``), unpacks and converts
the image. Here only the size of the resulting disk is needed.
"""

from __future__ import annotations

import dataclasses
import struct

#: Number of bytes needed for the detection.
NEEDED = 512


@dataclasses.dataclass(frozen=True)
class Format:
    """Format of an image.

    :param name: ``raw``, ``qcow2``, ``vmdk``, ``vdi``
    :param compression: '', ``gz``, ``xz`` or ``zst``
    :param bytes: size of the disk in it; None if that is the file's size (a
        raw image) or not known (a compressed image)
    """

    name: str = 'raw'
    compression: str = ''
    bytes: int | None = None


_COMPRESSIONS = {b'\x1f\x8b': 'gz', b'\xfd7zXZ\x00': 'xz',
                 b'\x28\xb5\x2f\xfd': 'zst'}

# Magic number and its offset; offset, struct format and unit (bytes) of the
# disk's size.
_SIZES: dict[str, tuple[bytes, int, int, str, int]] = {
    'qcow2': (b'QFI\xfb', 0, 24, '>Q', 1),
    'vmdk': (b'KDMV', 0, 12, '<Q', 512),
    'vdi': (b'\x7f\x10\xda\xbe', 64, 368, '<Q', 1),
}


def of(head: bytes) -> Format:
    """Detect the format of an image.

    :param head: its first `NEEDED` bytes, or all if it has fewer
    """
    for magic, name in _COMPRESSIONS.items():
        if head.startswith(magic):
            return Format(compression=name)
    for name, (magic, offset, place, form, unit) in _SIZES.items():
        if (head[offset:offset + len(magic)] == magic
                and len(head) >= place + 8):
            [size] = struct.unpack_from(form, head, place)
            return Format(name, bytes=size * unit)
    return Format()
