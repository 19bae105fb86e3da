# SPDX-License-Identifier: Apache-2.0
"""Time of the SEL and the SDR repository (sections 31.10, 31.11 and 33.17).

It is the BMC's clock, `sushy_kubevirt.bmc.clock`, as local time. Records have
the time that this clock showed when their events occurred.
"""

from __future__ import annotations

import struct
import time

from sushy_kubevirt.bmc import clock
from vbmc_kubevirt.commands import completion
from vbmc_kubevirt.commands import group
from vbmc_kubevirt.ipmi import channel
from vbmc_kubevirt.ipmi import constants

#: UTC offset "unspecified" (31.11a), taken for none.
_UNSPECIFIED = 0x07FF

_LEVEL = constants.Privilege


class SelClock(group.Group):
    """Commands about the time."""

    netfn = constants.STORAGE

    def _clock(self) -> clock.Clock:
        return self._bmc.log().clocks.of(self._bmc.machine())

    @group.command(0x28, 'Get SDR Repository Time', _LEVEL.USER)
    @group.command(0x48, 'Get SEL Time', _LEVEL.USER)
    def get(self, session: channel.Session, data: bytes) -> bytes:
        """Get SEL Time, Get SDR Repository Time."""
        seconds = int(time.time() + self._clock().local_shift)
        return struct.pack('<I', max(0, min(seconds, clock.MAX_SECONDS)))

    @group.command(0x29, 'Set SDR Repository Time', _LEVEL.OPERATOR, 4,
                   modifies=True)
    @group.command(0x49, 'Set SEL Time', _LEVEL.OPERATOR, 4, modifies=True)
    def set(self, session: channel.Session, data: bytes) -> None:
        """Set SEL Time, Set SDR Repository Time."""
        seconds = struct.unpack_from('<I', data)[0] - 60 * self._clock().offset
        completion.refuse_if(
            not clock.MIN_SECONDS <= seconds <= clock.MAX_SECONDS,
            constants.Completion.INVALID_FIELD)
        self._bmc.log().clocks.set(self._bmc.machine(), seconds=seconds)

    @group.command(0x5C, 'Get SEL Time UTC Offset', _LEVEL.USER)
    def get_utc_offset(self, session: channel.Session, data: bytes) -> bytes:
        """Get SEL Time UTC Offset (31.11a), in minutes."""
        return struct.pack('<h', self._clock().offset)

    @group.command(0x5D, 'Set SEL Time UTC Offset', _LEVEL.OPERATOR, 2,
                   modifies=True)
    def set_utc_offset(self, session: channel.Session, data: bytes) -> None:
        """Set SEL Time UTC Offset (31.11b), in minutes."""
        offset, = struct.unpack_from('<h', data)
        if offset == _UNSPECIFIED:
            offset = 0
        completion.refuse_if(abs(offset) > clock.MAX_OFFSET,
                             constants.Completion.INVALID_FIELD)
        self._bmc.log().clocks.set(self._bmc.machine(), offset=offset)
