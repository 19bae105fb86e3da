# SPDX-License-Identifier: Apache-2.0
"""FRU inventory (section 34): device 0, whose asset tag can be written."""

from __future__ import annotations

import logging
import struct
import threading
import time
import typing

from vbmc_kubevirt.commands import completion
from vbmc_kubevirt.commands import fru_image
from vbmc_kubevirt.commands import group
from vbmc_kubevirt.ipmi import channel
from vbmc_kubevirt.ipmi import constants

LOG = logging.getLogger(__name__)

MANUFACTURER = 'KubeVirt'

#: The only FRU device, behind the BMC.
DEVICE = 0

#: Seconds after which a write that was not completed is dropped.
WRITE_SECONDS = 30.0

_LEVEL = constants.Privilege


class _Written(typing.NamedTuple):
    # An incomplete write, the period in which it was received, and its time.
    # A reset begins a new period; it must not wait for the lock, which a write
    # keeps during API calls.

    period: object = None
    time: float = 0.0
    image: bytes = b''


class Fru(group.Group):
    """Commands about the FRU device."""

    netfn = constants.STORAGE

    def __init__(self, bmc: group.Bmc) -> None:
        super().__init__(bmc)
        self._lock = threading.Lock()
        self._period = object()
        self._written = _Written()

    def release(self) -> None:
        """Drop an incomplete write."""
        self._period = object()

    def _image(self) -> bytes:
        machine = self._bmc.machine()
        return fru_image.build(
            MANUFACTURER, machine.name, machine.serial(),
            machine.gates.version or '', machine.asset_tag())

    @staticmethod
    def _check(data: bytes, offset: int = 0) -> None:
        completion.refuse_if(data[0] != DEVICE,
                             constants.Completion.NOT_PRESENT)
        completion.refuse_if(offset > fru_image.SIZE,
                             constants.Completion.OUT_OF_RANGE)

    @group.command(0x10, 'Get FRU Inventory Area Info', _LEVEL.USER, 1)
    def info(self, session: channel.Session, data: bytes) -> bytes:
        """Get FRU Inventory Area Info (34.1): accessed by bytes."""
        self._check(data)
        return struct.pack('<HB', fru_image.SIZE, 0)

    @group.command(0x11, 'Read FRU Data', _LEVEL.USER, 4)
    def read(self, session: channel.Session, data: bytes) -> bytes:
        """Read FRU Data (34.2)."""
        _, offset, count = struct.unpack_from('<BHB', data)
        self._check(data, offset + 1)
        part = self._image()[offset:offset + count]
        return bytes((len(part),)) + part

    @group.command(0x12, 'Write FRU Data', _LEVEL.OPERATOR, 4, modifies=True)
    def write(self, session: channel.Session, data: bytes) -> bytes:
        """Write FRU Data (34.3).

        A client writes an image in several requests, between which it is
        invalid. They are collected until the checksums are right.
        """
        _, offset = struct.unpack_from('<BH', data)
        # The response has the number of bytes written, in one byte.
        values = data[3:][:0xFF]
        self._check(data, offset + len(values))
        with self._lock:
            period = self._period
            present = self._image()
            now = time.monotonic()
            written = self._written
            image = (written.image if written.period is period
                     and now - written.time <= WRITE_SECONDS else present)
            image = image[:offset] + values + image[offset + len(values):]
            self._written = _Written(period, now, image)
            try:
                if fru_image.protected(image) != fru_image.protected(present):
                    raise fru_image.Invalid('a protected field')
                if fru_image.is_complete(image):
                    self._store(fru_image.asset_tag(image),
                                fru_image.asset_tag(present))
                    self._written = _Written()
            except fru_image.Invalid:
                self._written = _Written()
                raise completion.RequestError(
                    constants.Completion.WRITE_PROTECTED) from None
        return bytes((len(values),))

    def _store(self, tag: str, present: str) -> None:
        # A longer tag, which Redfish can set, is not cut by a rewrite.
        if tag != present:
            self._bmc.machine().set_asset_tag(tag)
            LOG.info('%s: asset tag set', self._bmc.name)
