# SPDX-License-Identifier: Apache-2.0
"""SDR repository (section 33): one record for each sensor, the BMC, the FRU.

The records are the same for all VMs and change with the version of this
program only, so that clients can keep a copy.
"""

from __future__ import annotations

import functools
import struct

from vbmc_kubevirt.commands import completion
from vbmc_kubevirt.commands import group
from vbmc_kubevirt.commands import reservation
from vbmc_kubevirt.commands import sensor_table as table
from vbmc_kubevirt.ipmi import channel
from vbmc_kubevirt.ipmi import constants

#: Version of the SDR command set: IPMI v1.5 and later (33.9).
VERSION = 0x51

#: Time of the last change of `table`, which clients compare with that of
#: their copy; to be set with each change.
CHANGED = 1795870800    # 2026-11-28

#: Slave address of the BMC.
ADDRESS = 0x20

#: Device capabilities (tables 20-2 and 43-9): a chassis device with FRU, SEL,
#: SDR repository and sensors.
CAPABILITIES = 0x8F

# Record types (section 43).
_COMPACT, _EVENT_ONLY, _FRU_LOCATOR, _MC_LOCATOR = 0x02, 0x03, 0x11, 0x12

# Reserve and Get SDR Repository Allocation Info are supported.
_OPERATIONS = 0x03

# Sensor initialization: events and scanning are enabled at power-up.
_INITIALIZATION = 0x03

# Sensor capabilities: rearms itself; events can be disabled globally only.
_CAPABILITIES = 0x42

# Sensor units 1: no analog reading.
_DISCRETE = 0xC0

_LEVEL = constants.Privilege


@functools.cache
def records() -> tuple[bytes, ...]:
    """Return all records; the id of the first is 1."""
    bodies = [_sensor(sensor) for sensor in table.READABLE]
    bodies.append((_MC_LOCATOR, bytes((
        ADDRESS, 0, 0, CAPABILITIES, 0, 0, 0, 0x06, 1, 0)) + _name('BMC')))
    # A logical FRU device of the BMC, number 0: of the type IPMI FRU
    # inventory (table 43-12).
    bodies.append((_FRU_LOCATOR, bytes((
        ADDRESS, 0, 0x80, 0, 0, 0x10, 0, 0x07, 1, 0)) + _name('VM')))
    bodies += [_event_only(sensor) for sensor in table.EVENT_ONLY]
    return tuple(
        struct.pack('<HBBB', number, VERSION, type_, len(body)) + body
        for number, (type_, body) in enumerate(bodies, 1))


def _name(text: str) -> bytes:
    """Return a type/length byte and an 8-bit ASCII text (43.15)."""
    return bytes((0xC0 | len(text),)) + text.encode('ascii')


def _sensor(sensor: table.Sensor) -> tuple[int, bytes]:
    """Return type and body of a compact sensor record (43.2)."""
    mask = table.bits(sensor.offsets)
    return _COMPACT, struct.pack(
        '<9B3H', ADDRESS, 0, sensor.number, sensor.entity, 1,
        _INITIALIZATION, _CAPABILITIES, sensor.type, sensor.reading_type,
        # Events of assertion and deassertion, and states that are read.
        mask, mask, mask) + bytes((
            _DISCRETE, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0)) + _name(sensor.name)


def _event_only(sensor: table.Sensor) -> tuple[int, bytes]:
    """Return type and body of an event-only record (43.3)."""
    return _EVENT_ONLY, bytes((
        ADDRESS, 0, sensor.number, sensor.entity, 1, sensor.type,
        sensor.reading_type, 1, 0, 0, 0)) + _name(sensor.name)


class Repository(group.Group):
    """Commands about the SDR repository."""

    netfn = constants.STORAGE

    def __init__(self, bmc: group.Bmc) -> None:
        super().__init__(bmc)
        self._reservations = reservation.Reservations()

    @group.command(0x20, 'Get SDR Repository Info', _LEVEL.USER)
    def info(self, session: channel.Session, data: bytes) -> bytes:
        """Get SDR Repository Info (33.9): full, as nothing can be added."""
        return struct.pack('<BHHIIB', VERSION, len(records()), 0, CHANGED,
                           CHANGED, _OPERATIONS)

    @group.command(0x21, 'Get SDR Repository Allocation Info', _LEVEL.USER)
    def allocation(self, session: channel.Session, data: bytes) -> bytes:
        """Get SDR Repository Allocation Info (33.10)."""
        return struct.pack('<HHHHB', len(records()), 64, 0, 0, 1)

    @group.command(0x22, 'Reserve SDR Repository', _LEVEL.USER)
    def reserve(self, session: channel.Session, data: bytes) -> bytes:
        """Reserve SDR Repository (33.11)."""
        return self._reservations.reserve(session)

    @group.command(0x23, 'Get SDR', _LEVEL.USER, 6)
    def get(self, session: channel.Session, data: bytes) -> bytes:
        """Get SDR (33.12)."""
        reserved, number, offset, count = struct.unpack_from('<HHBB', data)
        if offset:
            self._reservations.check(reserved)
        known = records()
        number = {0: 1, 0xFFFF: len(known)}.get(number, number)
        completion.refuse_if(number > len(known),
                             constants.Completion.NOT_PRESENT)
        following = number + 1 if number < len(known) else 0xFFFF
        return struct.pack('<H', following) + reservation.part(
            known[number - 1], offset, count)

    @group.command(0x2C, 'Run Initialization Agent', _LEVEL.OPERATOR, 1)
    def run_initialization(self, session: channel.Session,
                           data: bytes) -> bytes:
        """Run Initialization Agent (33.21): always completed."""
        return b'\x01'
