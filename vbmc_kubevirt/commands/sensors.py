# SPDX-License-Identifier: Apache-2.0
"""Sensor commands (section 35)."""

from __future__ import annotations

import struct

from vbmc_kubevirt import bmc
from vbmc_kubevirt.commands import completion
from vbmc_kubevirt.commands import sensor_table as table
from vbmc_kubevirt.ipmi import channel
from vbmc_kubevirt.ipmi import constants
from vbmc_kubevirt.ipmi import server

# Event messages and scanning are enabled (35.14 and 35.11).
_ENABLED = 0xC0

# Bit 7 of the second byte of states is reserved, read as 1 (35.14).
_RESERVED = 0x8000

_LEVEL = constants.Privilege


def commands(bmc: bmc.Bmc) -> dict[channel.Code, server.Command]:
    """Return the commands of this module."""
    sensors = _Sensors(bmc)
    return {
        (constants.SENSOR, code): server.Command(
            name, bmc.map_errors(method), level, min_length=length)
        for code, name, method, level, length in (
            (0x23, 'Get Sensor Reading Factors', sensors.not_numeric,
             _LEVEL.USER, 2),
            (0x24, 'Set Sensor Hysteresis', sensors.not_numeric,
             _LEVEL.OPERATOR, 4),
            (0x25, 'Get Sensor Hysteresis', sensors.not_numeric, _LEVEL.USER,
             2),
            (0x26, 'Set Sensor Threshold', sensors.not_numeric,
             _LEVEL.OPERATOR, 8),
            (0x27, 'Get Sensor Threshold', sensors.not_numeric, _LEVEL.USER,
             1),
            (0x28, 'Set Sensor Event Enable', sensors.set_event_enable,
             _LEVEL.OPERATOR, 2),
            (0x29, 'Get Sensor Event Enable', sensors.event_enable,
             _LEVEL.USER, 1),
            (0x2A, 'Re-arm Sensor Events', sensors.rearm, _LEVEL.OPERATOR, 2),
            (0x2B, 'Get Sensor Event Status', sensors.event_status,
             _LEVEL.USER, 1),
            (0x2D, 'Get Sensor Reading', sensors.reading, _LEVEL.USER, 1),
            (0x2E, 'Set Sensor Type', sensors.fixed, _LEVEL.OPERATOR, 3),
            (0x2F, 'Get Sensor Type', sensors.type, _LEVEL.USER, 1))}


class _Sensors:

    def __init__(self, bmc: bmc.Bmc) -> None:
        self._bmc = bmc

    @staticmethod
    def _sensor(data: bytes) -> table.Sensor:
        sensor = table.BY_NUMBER.get(data[0])
        if sensor is None:
            raise completion.RequestError(constants.Completion.NOT_PRESENT)
        return sensor

    def _states(self, data: bytes) -> int:
        read = self._sensor(data).read
        return table.bits(read(self._bmc)) if read else 0

    def reading(self, session: channel.Session, data: bytes) -> bytes:
        """Get Sensor Reading (35.14)."""
        return bytes((0, _ENABLED)) + struct.pack(
            '<H', _RESERVED | self._states(data))

    def event_status(self, session: channel.Session, data: bytes) -> bytes:
        """Get Sensor Event Status (35.13): sensors rearm themselves, so it is
        that of the present states.
        """
        return bytes((_ENABLED,)) + struct.pack(
            '<H', self._states(data)) + bytes(2)

    def type(self, session: channel.Session, data: bytes) -> bytes:
        """Get Sensor Type (35.16)."""
        sensor = self._sensor(data)
        return bytes((sensor.type, sensor.reading_type))

    def event_enable(self, session: channel.Session, data: bytes) -> bytes:
        """Get Sensor Event Enable (35.11): all events."""
        mask = table.bits(self._sensor(data).offsets)
        return bytes((_ENABLED,)) + struct.pack('<HH', mask, mask)

    def set_event_enable(self, session: channel.Session, data: bytes) -> None:
        """Set Sensor Event Enable (35.10): accepted if nothing changes.

        The log is the same for all protocols, so a sensor's entries cannot be
        turned off.
        """
        self._sensor(data)
        # Bits 5 and 4: 00b leaves single events unchanged, 01b enables them.
        if data[1] & _ENABLED != _ENABLED or data[1] >> 4 & 3 > 1:
            raise completion.RequestError(
                constants.Completion.ILLEGAL_FOR_SENSOR)

    def rearm(self, session: channel.Session, data: bytes) -> None:
        """Re-arm Sensor Events (35.12): sensors do it themselves."""
        self._sensor(data)

    def fixed(self, session: channel.Session, data: bytes) -> None:
        """Set Sensor Type (35.15): the types are fixed."""
        self._sensor(data)
        raise completion.RequestError(
            constants.Completion.ILLEGAL_FOR_SENSOR)

    def not_numeric(self, session: channel.Session, data: bytes) -> None:
        """Thresholds, hysteresis and factors: no sensor has a number."""
        self._sensor(data)
        raise completion.RequestError(
            constants.Completion.ILLEGAL_FOR_SENSOR)
