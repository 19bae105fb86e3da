# SPDX-License-Identifier: Apache-2.0
"""Contents of a FRU device: board and product information areas.

See the Platform Management FRU Information Storage Definition v1.0, revision
1.3. The image has a fixed size. The product area is the last one, so that an
asset tag of any length fits.
"""

from __future__ import annotations

import typing

from vbmc_kubevirt.commands import parts

#: Type code and data of a field.
Field: typing.TypeAlias = tuple[int, bytes]

#: Size of the image in bytes: room for a header and two areas whose fields
#: are as long as possible.
SIZE = 640

#: Largest length of a field in bytes (section 13).
FIELD_MAX = 63

#: What an empty asset tag looks like: ipmitool cannot edit an empty field, and
#: the length 1 would mark the end of the fields.
EMPTY_TAG = '  '

_FORMAT = 0x01
_ENGLISH = 25
_ASCII = 0xC0
_END = 0xC1

#: Bytes before the fields of a product and of a board area.
_PRODUCT_START, _BOARD_START = 3, 6

#: Position of the asset tag among the fields of a product area.
_ASSET_TAG = 5


class Invalid(ValueError):
    """An image cannot be read."""


def build(manufacturer: str, product: str, serial: str, version: str,
          asset_tag: str) -> bytes:
    """Return the image, `SIZE` bytes. What is too long is cut.

    :param product: name of board and product
    :param serial: serial number of board and product
    :param version: version of the product
    :param asset_tag: asset tag of the product, '' for none
    """
    board_area = _area(
        # Manufacturing date unspecified (section 11).
        bytes((_ENGLISH, 0, 0, 0)), manufacturer, product, serial, '', '')
    product_area = _area(
        bytes((_ENGLISH,)), manufacturer, product, '', version, serial,
        asset_tag or EMPTY_TAG, '')
    header = bytes((_FORMAT, 0, 0, 1, 1 + len(board_area) // 8, 0, 0))
    return (_summed(header) + board_area + product_area).ljust(SIZE, b'\0')


def _area(start: bytes, *fields: str) -> bytes:
    body = start + b''.join(map(_field, fields)) + bytes((_END,))
    # With format version, length and checksum, a multiple of eight bytes.
    size = -(-(len(body) + 3) // 8) * 8
    return _summed(bytes((_FORMAT, size // 8)) + body.ljust(size - 3, b'\0'))


def _field(text: str) -> bytes:
    data = parts.printable(text).encode('latin-1', 'replace')[:FIELD_MAX]
    if len(data) == 1:
        data += b' '
    return bytes((_ASCII | len(data),)) + data


def _summed(data: bytes) -> bytes:
    """Append the checksum: the sum of all bytes is zero."""
    return data + bytes((-sum(data) % 256,))


def is_complete(image: bytes) -> bool:
    """Return whether an image's areas are whole.

    Checksums of a byte are right by chance in one of 256 half written images.
    The product area, where the asset tag is, must have its end mark as well.
    """
    try:
        board, product = _offsets(image)
        areas = image[:8], _area_at(image, board), _area_at(image, product)
    except (Invalid, IndexError):
        return False
    return not any(sum(area) % 256 for area in areas) and _is_ended(areas[-1])


def _is_ended(area: bytes) -> bool:
    offset = _PRODUCT_START
    while offset < len(area) - 1 and area[offset] != _END:
        offset += 1 + (area[offset] & FIELD_MAX)
    return offset < len(area) - 1


def protected(image: bytes) -> tuple[object, ...]:
    """Return what a client must not change: all fields but the asset tag.

    Checksums are not checked.

    :raises: `Invalid` if the image cannot be read
    """
    board, product = _offsets(image)
    ours = image[board + 2:board + _BOARD_START]
    return (ours, _fields(image, board + _BOARD_START, 5),
            image[product + 2:product + _PRODUCT_START],
            _fields(image, product + _PRODUCT_START, _ASSET_TAG))


def asset_tag(image: bytes) -> str:
    """Return the asset tag of an image.

    :raises: `Invalid` if the image cannot be read
    """
    _, product = _offsets(image)
    type_, data = _fields(
        image, product + _PRODUCT_START, _ASSET_TAG + 1)[-1]
    try:
        tag = data.decode()     # as ipmitool writes it
    except UnicodeDecodeError:
        tag = data.decode('latin-1')
    tag = tag.rstrip(' \0')
    if type_ != _ASCII or not tag.isprintable():
        raise Invalid('type of the asset tag, or control characters in it')
    return tag


def _offsets(image: bytes) -> tuple[int, int]:
    # ipmitool 1.8.19 writes a wrong offset of the MultiRecord area, which is
    # therefore ignored.
    if image[0] != _FORMAT or image[1] or image[2]:
        raise Invalid('header')
    return image[3] * 8, image[4] * 8


def _area_at(image: bytes, offset: int) -> bytes:
    area = image[offset:offset + image[offset + 1] * 8]
    if not area or offset + len(area) > len(image):
        raise Invalid('length of an area')
    return area


def _fields(image: bytes, offset: int, count: int) -> tuple[Field, ...]:
    """Return the first fields from an offset on."""
    fields: list[Field] = []
    for _ in range(count):
        if offset >= len(image) or image[offset] == _END:
            raise Invalid('fields')
        length = image[offset] & FIELD_MAX
        fields.append((image[offset] & _ASCII,
                       image[offset + 1:offset + 1 + length]))
        offset += 1 + length
    return tuple(fields)
