# SPDX-License-Identifier: Apache-2.0
"""Sensor commands (section 35)."""

from __future__ import annotations

import struct

from vbmc_kubevirt.commands import completion
from vbmc_kubevirt.commands import group
from vbmc_kubevirt.commands import sensor_table as table
from vbmc_kubevirt.ipmi import channel
from vbmc_kubevirt.ipmi import constants

# Event messages and scanning are enabled (35.14 and 35.11).
_ENABLED = 0xC0

# Bit 7 of the second byte of states is reserved, read as 1 (35.14).
_RESERVED = 0x8000

_LEVEL = constants.Privilege


class Sensors(group.Group):
    """Commands about sensors."""

    netfn = constants.SENSOR

    @staticmethod
    def _sensor(data: bytes) -> table.Sensor:
        sensor = table.BY_NUMBER.get(data[0])
        if sensor is None:
            raise completion.RequestError(constants.Completion.NOT_PRESENT)
        return sensor

    def _states(self, data: bytes) -> int:
        read = self._sensor(data).read
        return table.bits(read(self._bmc)) if read else 0

    @group.command(0x2D, 'Get Sensor Reading', _LEVEL.USER, 1)
    def reading(self, session: channel.Session, data: bytes) -> bytes:
        """Get Sensor Reading (35.14)."""
        return bytes((0, _ENABLED)) + struct.pack(
            '<H', _RESERVED | self._states(data))

    @group.command(0x2B, 'Get Sensor Event Status', _LEVEL.USER, 1)
    def event_status(self, session: channel.Session, data: bytes) -> bytes:
        """Get Sensor Event Status (35.13): sensors rearm themselves, so it is
        that of the present states.
        """
        return bytes((_ENABLED,)) + struct.pack(
            '<H', self._states(data)) + bytes(2)

    @group.command(0x2F, 'Get Sensor Type', _LEVEL.USER, 1)
    def type(self, session: channel.Session, data: bytes) -> bytes:
        """Get Sensor Type (35.16)."""
        sensor = self._sensor(data)
        return bytes((sensor.type, sensor.reading_type))

    @group.command(0x29, 'Get Sensor Event Enable', _LEVEL.USER, 1)
    def event_enable(self, session: channel.Session, data: bytes) -> bytes:
        """Get Sensor Event Enable (35.11): all events."""
        mask = table.bits(self._sensor(data).offsets)
        return bytes((_ENABLED,)) + struct.pack('<HH', mask, mask)

    @group.command(0x28, 'Set Sensor Event Enable', _LEVEL.OPERATOR, 2)
    def set_event_enable(self, session: channel.Session, data: bytes) -> None:
        """Set Sensor Event Enable (35.10): accepted if nothing changes.

        The log is the same for all protocols, so a sensor's entries cannot be
        turned off.
        """
        self._sensor(data)
        # Bits 5 and 4: 00b leaves single events unchanged, 01b enables them.
        completion.refuse_if(
            data[1] & _ENABLED != _ENABLED or data[1] >> 4 & 3 > 1,
            constants.Completion.ILLEGAL_FOR_SENSOR)

    @group.command(0x2A, 'Re-arm Sensor Events', _LEVEL.OPERATOR, 2)
    def rearm(self, session: channel.Session, data: bytes) -> None:
        """Re-arm Sensor Events (35.12): sensors do it themselves."""
        self._sensor(data)

    @group.command(0x23, 'Get Sensor Reading Factors', _LEVEL.USER, 2)
    @group.command(0x24, 'Set Sensor Hysteresis', _LEVEL.OPERATOR, 4)
    @group.command(0x25, 'Get Sensor Hysteresis', _LEVEL.USER, 2)
    @group.command(0x26, 'Set Sensor Threshold', _LEVEL.OPERATOR, 8)
    @group.command(0x27, 'Get Sensor Threshold', _LEVEL.USER, 1)
    @group.command(0x2E, 'Set Sensor Type', _LEVEL.OPERATOR, 3)
    def refuse(self, session: channel.Session, data: bytes) -> None:
        """No sensor has a number or thresholds, and the types are fixed."""
        self._sensor(data)
        raise completion.RequestError(
            constants.Completion.ILLEGAL_FOR_SENSOR)
