# SPDX-License-Identifier: Apache-2.0
"""SEL records (section 32) of the entries of a machine's log.

An entry becomes a system event of a sensor of `sensor_table`. Messages for
which the specification has no code become the severity of an event-only
sensor whose name says what happened. OEM records could hold some text, but
ipmitool 1.8.19 and FreeIPMI 1.6 show them in hexadecimal.
"""

from __future__ import annotations

import hashlib
import struct
import typing

from sushy_kubevirt.bmc import event_log
from sushy_kubevirt.bmc import event_registry as registry
from sushy_kubevirt.machine import power_state
from vbmc_kubevirt.commands import sensor_table as table

#: Record type of system events (table 32-1), and the first OEM type.
SYSTEM_EVENT, OEM_FIRST = 0x02, 0xC0

#: Length of a record in bytes, and the largest record id.
SIZE = 16
ID_MAX = 0xFFFE

#: The BMC as generator (table 32-1): its slave address, LUN 0.
GENERATOR = 0x0020

# Event message format revision of IPMI v1.5 and later (table 29-5).
_REVISION = 0x04
_DEASSERTED = 0x80
_UNSPECIFIED = 0xFF


class State(typing.NamedTuple):
    """A state of a sensor that an entry of the log becomes.

    :param offset: offset of the sensor's event/reading type
    :param deasserted: whether the state ended
    """

    sensor: table.Sensor
    offset: int
    deasserted: bool = False


_SEVERITIES = {'OK': table.INFORMATIONAL, 'Warning': table.NON_CRITICAL,
               'Critical': table.CRITICAL}
_DRIVES = {'Cd': table.CD, 'USBStick': table.USB_STICK}

_EVENTS = {message.id: State(*state) for message, state in (
    (registry.POWERED_ON, (table.POWER, table.POWER_OFF, True)),
    (registry.POWERED_OFF, (table.POWER, table.POWER_OFF, False)),
    (registry.POWERING_ON,
     (table.RESTART, table.INITIATED_BY_POWER_UP, False)),
    (registry.POWERING_OFF, (table.POWER_CHANGE, table.INFORMATIONAL, False)),
    (registry.PAUSED, (table.ACPI, table.G1_SLEEPING, False)),
    (registry.HEALTH_OK, (table.POWER_CHANGE, table.OK, False)),
    (registry.START_FAILED,
     (table.POWER, table.POWER_CONTROL_FAILURE, False)),
    (registry.CREATED, (table.VM, table.PRESENT, False)),
    (registry.REMOVED, (table.VM, table.ABSENT, False)),
    (registry.BOOT_SET, (table.BOOT_SET, table.INFORMATIONAL, False)),
    (registry.BOOT_CONSUMED, (table.BOOT_USED, table.INFORMATIONAL, False)),
    (registry.BOOT_REMOVED,
     (table.BOOT_REMOVED, table.INFORMATIONAL, False)),
    (registry.MEDIA_READY, (table.IMPORTED, table.OK, False)),
    (registry.TASK_STARTED, (table.TASK, table.INFORMATIONAL, False)),
    (registry.TASK_COMPLETED, (table.TASK, table.OK, False)),
    (registry.TASK_ABORTED, (table.TASK, table.CRITICAL, False)),
    (registry.LOGIN_FAILED,
     (table.LOGIN, table.OUT_OF_BAND_PASSWORD, False)),
    (registry.STARTED, (table.BMC, table.INFORMATIONAL, False)),
)}

# Messages about a medium, whose third argument is the device.
_MEDIA = {message.id: event for message, event in (
    (registry.MEDIA_INSERTED, (table.INSTALLED, False)),
    (registry.MEDIA_EJECTED, (table.INSTALLED, True)),
    (registry.MEDIA_FAILED, (table.FAULT, False)),
)}

# Reasons for which a guest does not work, the second argument.
_IMPAIRMENTS = {
    power_state.IO_ERROR: (table.DISKS, table.DRIVE_FAULT),
    power_state.NODE_LOST: (table.NODE, table.ACCESS_DEGRADED),
}


def system_event(sensor: table.Sensor, offset: int, deasserted: bool = False,
                 data2: int | None = None, data3: int | None = None) -> bytes:
    """Return bytes 11 to 16 of a system event's record.

    :param offset: offset of the sensor's event/reading type
    :param deasserted: whether the state ended
    :param data2: event data 2 as the sensor type defines it, or None
    :param data3: event data 3 likewise
    """
    # Table 29-6: 11b is a sensor-specific event extension code.
    flags = (0xC0 if data2 is not None else 0) | (
        0x30 if data3 is not None else 0)
    return bytes((
        sensor.type, sensor.number,
        sensor.reading_type | (_DEASSERTED if deasserted else 0),
        flags | offset, _UNSPECIFIED if data2 is None else data2,
        _UNSPECIFIED if data3 is None else data3))


def raw_system_event(event: bytes, generator: int = GENERATOR) -> bytes:
    """Return a record without id and time, see `stamped`.

    :param event: from `system_event`, or of a Platform Event Message
    :param generator: generator id
    """
    return bytes(2) + struct.pack(
        '<BIHB', SYSTEM_EVENT, 0, generator, _REVISION) + event


def is_timestamped(raw: bytes) -> bool:
    """Return whether a record's type has a timestamp (table 32-1)."""
    return raw[2] == SYSTEM_EVENT or OEM_FIRST <= raw[2] < 0xE0


def stamped(raw: bytes, record_id: int, seconds: float) -> bytes:
    """Return a record with its id and, if its type has one, its time.

    :param raw: 16 bytes
    :param seconds: seconds since the epoch
    """
    raw = struct.pack('<H', record_id) + raw[2:]
    if is_timestamped(raw):
        raw = raw[:3] + timestamp(seconds) + raw[7:]
    return raw


def timestamp(seconds: float) -> bytes:
    """Return a time as four bytes; FFFFFFFFh if it is none."""
    return struct.pack('<I', int(seconds) if 0 < seconds < 0xFFFFFFFF
                       else 0xFFFFFFFF)


def of(entry: event_log.Entry, record_id: int, shift: float = 0.0) -> bytes:
    """Return the 16 bytes of an entry's record.

    :param shift: `clock.Clock.local_shift`
    """
    raw = entry.raw
    if len(raw) != SIZE:
        raw = raw_system_event(_event(entry))
    return stamped(raw, record_id, entry.seconds + shift)


def _event(entry: event_log.Entry) -> bytes:
    severity = _SEVERITIES[entry.severity]
    if entry.message_id == registry.KUBERNETES.id:
        return system_event(
            table.REASONS.get(entry.reason, table.KUBERNETES), severity)
    if entry.message_id in _MEDIA and len(entry.args) > 2:
        drive = _DRIVES.get(entry.args[2], table.HTTP_BOOT)
        return system_event(drive, *_MEDIA[entry.message_id])
    if entry.message_id == registry.IMPAIRED.id and (
            entry.args[1:2] and entry.args[1] in _IMPAIRMENTS):
        return system_event(*_IMPAIRMENTS[entry.args[1]])
    if (entry.message_id == registry.BOOT_CONSUMED.id
            and entry.args[1:2] == ('Pxe',)):
        return system_event(table.RESTART, table.REQUESTED_PXE_BOOT)
    return system_event(*_EVENTS.get(
        entry.message_id, (table.EVENT, severity, False)))


def first_id(entry: event_log.Entry) -> int:
    """Return the record id that an entry gets unless another one has it.

    It depends on the Event and its count alone, so a restarted BMC, and
    another one beside it, give the same.
    """
    return id_of(key(entry))


def id_of(text: str) -> int:
    """Return the record id that follows from a `key`."""
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:2]) % ID_MAX + 1


def key(entry: event_log.Entry) -> str:
    """Return what identifies an occurrence of an entry."""
    return f'{entry.id}/{entry.occurrences}'


def entry_id(entry_key: str) -> str:
    """Return the id of the entry that a `key` belongs to."""
    return entry_key.rpartition('/')[0]
