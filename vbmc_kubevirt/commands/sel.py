# SPDX-License-Identifier: Apache-2.0
"""System event log (section 31): the log of the machine as SEL records.

Get SEL Info and the first Get SEL Entry read the log. The entries that follow
come from the records made then, so a listing is consistent and makes as many
API calls for a thousand entries as for one.
"""

from __future__ import annotations

import math
import struct
import threading
import time
import typing

from sushy_kubevirt.bmc import event_log
from sushy_kubevirt.bmc import event_registry
from sushy_kubevirt.kube import blocking
from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import machine
from vbmc_kubevirt.commands import completion
from vbmc_kubevirt.commands import group
from vbmc_kubevirt.commands import reservation
from vbmc_kubevirt.commands import sel_records
from vbmc_kubevirt.ipmi import channel
from vbmc_kubevirt.ipmi import constants

#: Version of the SEL command set: IPMI v1.5 and later (31.2).
VERSION = 0x51

#: Seconds for which Get SEL Info and a first Get SEL Entry use records that
#: were read before, and for which a client can continue to list them.
FRESH_SECONDS = 1.0
LISTING_SECONDS = 60.0

# Delete SEL Entry, Reserve SEL and Get SEL Allocation Info are supported.
_OPERATIONS = 0x0B

_FIRST, _LAST = 0x0000, 0xFFFF

# Clear SEL (31.9): actions, and erasure progress.
_INITIATE, _GET_STATUS = 0xAA, 0x00
_COMPLETED = 0x01

# Position of the channel number in a generator id (table 32-1).
_CHANNEL_SHIFT = 12

_LEVEL = constants.Privilege


class _Records(typing.NamedTuple):
    """The SEL as it was read.

    :param read_at: seconds of `time.monotonic`
    :param order: the record ids, in the order of the log
    :param ids: positions by record id
    :param keys: record ids by `sel_records.key`
    :param data: all records, 16 bytes each
    :param added: time of the newest entry, with `clock.Clock.local_shift`
    :param erased: when the log was cleared or an entry was deleted, likewise
    """

    read_at: float
    order: tuple[int, ...]
    ids: dict[int, int]
    keys: dict[str, int]
    data: bytes
    added: float
    erased: float


class _Known(typing.NamedTuple):
    # Records, and the period in which they were read. A clear or a reset
    # begins a new period without a wait for a reader.

    period: object = None
    records: _Records | None = None


class Sel(group.Group):
    """Commands about the SEL."""

    netfn = constants.STORAGE

    def __init__(self, bmc: group.Bmc) -> None:
        super().__init__(bmc)
        self._reservations = reservation.Reservations()
        self._lock = threading.Lock()
        self._period = object()
        self._known = _Known()
        # When records were erased, as far as reservations are concerned.
        self._erasing = threading.Lock()
        self._erased: float | None = None

    def release(self) -> None:
        self._reservations.cancel()
        self._period = object()

    def _read(self, seconds: float) -> _Records:
        """Return records that are at most some seconds old."""
        with blocking.hold(self._lock):
            period = self._period
            records = (self._known.records if self._known.period is period
                       else None)
            if records is None or (
                    time.monotonic() - records.read_at > seconds):
                machine = self._bmc.machine()
                log = self._bmc.log()
                entries = log.entries(machine, fresh_seconds=0)
                # Their age begins here: a listing begins with two commands
                # that want fresh ones, and reading may take longer.
                records = _records(
                    entries, records, time.monotonic(),
                    log.erased_at(machine), log.clocks.of(machine).local_shift)
                self._known = _Known(period, records)
                self._notice_erasure(machine)
            return records

    def _notice_erasure(self, machine: machine.Machine) -> None:
        """Cancel all reservations if another process erased records."""
        with blocking.hold(self._erasing):
            erased = self._bmc.log().erased_at(machine)
            if erased != self._erased:
                self._erased = erased
                self._reservations.cancel()

    @group.command(0x40, 'Get SEL Info', _LEVEL.USER)
    def info(self, session: channel.Session, data: bytes) -> bytes:
        """Get SEL Info (31.2)."""
        records = self._read(FRESH_SECONDS)
        free = event_log.MAX_ENTRIES - len(records.ids)
        return struct.pack(
            '<BHH4s4sB', VERSION, len(records.ids), free * sel_records.SIZE,
            sel_records.timestamp(records.added),
            sel_records.timestamp(records.erased), _OPERATIONS)

    @group.command(0x41, 'Get SEL Allocation Info', _LEVEL.USER)
    def allocation(self, session: channel.Session, data: bytes) -> bytes:
        """Get SEL Allocation Info (31.3), in units of a record."""
        free = event_log.MAX_ENTRIES - len(self._read(FRESH_SECONDS).ids)
        return struct.pack('<HHHHB', event_log.MAX_ENTRIES, sel_records.SIZE,
                           free, free, 1)

    @group.command(0x42, 'Reserve SEL', _LEVEL.USER)
    def reserve(self, session: channel.Session, data: bytes) -> bytes:
        """Reserve SEL (31.4)."""
        # Only a later erasure cancels it.
        self._notice_erasure(self._bmc.machine())
        return self._reservations.reserve(session)

    @group.command(0x43, 'Get SEL Entry', _LEVEL.USER, 6)
    def get(self, session: channel.Session, data: bytes) -> bytes:
        """Get SEL Entry (31.5)."""
        reserved, number, offset, count = struct.unpack_from('<HHBB', data)
        if offset:
            self._reservations.check(reserved)
        records, number = self._find(number)
        ids, position = records.order, records.ids[number]
        following = ids[position + 1] if position + 1 < len(ids) else _LAST
        start = position * sel_records.SIZE
        return struct.pack('<H', following) + reservation.part(
            records.data[start:start + sel_records.SIZE], offset, count)

    def _find(self, number: int) -> tuple[_Records, int]:
        """Find the record that a request asks for.

        :param number: its id; 0000h for the first, FFFFh for the last
        :returns: the records, and its id
        :raises: `completion.RequestError` if there is none
        """
        records = self._read(FRESH_SECONDS if number in (_FIRST, _LAST)
                             else LISTING_SECONDS)
        if number in (_FIRST, _LAST) and records.ids:
            number = records.order[0 if number == _FIRST else -1]
        completion.refuse_if(number not in records.ids,
                             constants.Completion.NOT_PRESENT)
        return records, number

    @group.command(0x44, 'Add SEL Entry', _LEVEL.OPERATOR, sel_records.SIZE,
                   modifies=True)
    def add(self, session: channel.Session, data: bytes) -> bytes:
        """Add SEL Entry (31.6)."""
        raw = data[:sel_records.SIZE]
        completion.refuse_if(
            raw[2] != sel_records.SYSTEM_EVENT
            and raw[2] < sel_records.OEM_FIRST,
            constants.Completion.INVALID_FIELD)
        name = self._add(raw)
        try:
            keys = self._read(0).keys
        except errors.Unavailable as exc:
            # The entry exists; its id is known but for a collision.
            self._bmc.record_error(exc)
            keys = {}
        key = f'{name}/1'
        return struct.pack('<H', keys.get(key) or sel_records.id_of(key))

    @group.command(0x02, 'Platform Event', _LEVEL.OPERATOR, 7,
                   constants.SENSOR, modifies=True)
    def platform_event(self, session: channel.Session, data: bytes) -> None:
        """Platform Event (29.3): log an event of the client's.

        Its generator (table 32-1) is the address from which the client sends,
        such as 81h, the software id of a remote console (table 5-4), and the
        channel by which the event came.
        """
        self._add(sel_records.raw_system_event(
            data[1:7], generator=(
                channel.CHANNEL << _CHANNEL_SHIFT | session.requester)))

    def _add(self, raw: bytes) -> str:
        """Log a record; return the id of the log's entry."""
        machine = self._bmc.machine()
        name = self._bmc.log().add(
            machine, event_registry.SEL_ENTRY,
            (machine.qualified_name, raw[2:].hex()), raw)
        self._expire()
        return name

    def _expire(self) -> None:
        """Have the log read again by the next command that needs it."""
        with self._lock:
            period, records = self._known
            if records is not None:
                self._known = _Known(period, records._replace(
                    read_at=-math.inf))

    @group.command(0x46, 'Delete SEL Entry', _LEVEL.OPERATOR, 4, modifies=True)
    def delete(self, session: channel.Session, data: bytes) -> bytes:
        """Delete SEL Entry (31.8)."""
        reserved, number = struct.unpack_from('<HH', data)
        machine = self._bmc.machine()
        self._notice_erasure(machine)
        self._reservations.check(reserved)
        records, number = self._find(number)
        key = next(key for key, record_id in records.keys.items()
                   if record_id == number)
        with self._erasing:
            log = self._bmc.log()
            log.delete(machine, sel_records.entry_id(key))
            self._erased = log.erased_at(machine)
            self._reservations.cancel(but=reserved)
        # The other records keep their ids.
        self._expire()
        return struct.pack('<H', number)

    @group.command(0x47, 'Clear SEL', _LEVEL.OPERATOR, 6, modifies=True)
    def clear(self, session: channel.Session, data: bytes) -> bytes:
        """Clear SEL (31.9)."""
        reserved, word, action = struct.unpack_from('<H3sB', data)
        machine = self._bmc.machine()
        self._notice_erasure(machine)
        self._reservations.check(reserved)
        completion.refuse_if(
            word != b'CLR' or action not in (_INITIATE, _GET_STATUS),
            constants.Completion.INVALID_FIELD)
        if action == _INITIATE:
            with self._erasing:
                log = self._bmc.log()
                log.clear(machine)
                self._erased = log.erased_at(machine)
                self._reservations.cancel(but=reserved)
            self._period = object()
        return bytes((_COMPLETED,))


def _records(entries: tuple[event_log.Entry, ...], previous: _Records | None,
             now: float, erased: float, shift: float) -> _Records:
    """Make the records of a log.

    An entry keeps its record id as long as this process runs; otherwise it
    gets the one that follows from its name, or the next that is free.

    :param previous: those made before
    :param erased: 0 for never
    :param shift: `clock.Clock.local_shift`
    """
    known = previous.keys if previous else {}
    keys = {sel_records.key(entry): entry for entry in entries}
    numbers = {key: known[key] for key in keys if key in known}
    used = set(numbers.values())
    for key, entry in keys.items():
        if key not in numbers:
            number = sel_records.first_id(entry)
            while number in used:
                number = number % sel_records.ID_MAX + 1
            used.add(number)
            numbers[key] = number
    ids = tuple(numbers[key] for key in keys)
    return _Records(
        now, ids, {number: position for position, number in enumerate(ids)},
        numbers,
        b''.join(sel_records.of(entry, number, shift)
                 for entry, number in zip(keys.values(), ids)),
        entries[-1].seconds + shift if entries else 0,
        erased + shift if erased else 0)
