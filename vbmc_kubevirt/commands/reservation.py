# SPDX-License-Identifier: Apache-2.0
"""Reservations of the SEL and the SDR repository (31.4 and 33.11)."""

import struct
import threading

from vbmc_kubevirt.commands import completion
from vbmc_kubevirt.ipmi import constants


class Reservations:
    """Reservation ids.

    A reservation is cancelled when another client clears the records, but not
    by the reservation of another client, so several can read at the same time.
    """

    def __init__(self):
        self._lock = threading.Lock()
        self._valid = []
        self._last = 0

    def reserve(self):
        """Make a reservation. :returns: its id, two bytes"""
        with self._lock:
            self._last = self._last % 0xFFFF + 1
            self._valid = [*self._valid, self._last][-64:]
            return struct.pack('<H', self._last)

    def cancel(self, but=None):
        """Cancel all reservations.

        :param but: id of one that remains valid
        """
        with self._lock:
            self._valid = [one for one in self._valid if one == but]

    def check(self, number):
        """Check a reservation id of a request.

        :raises: `completion.RequestError` if it is not valid
        """
        if number not in self._valid:
            raise completion.RequestError(
                constants.Completion.RESERVATION_CANCELED)


def part(record, offset, count):
    """Return the part of a record that a request asks for.

    :param record: bytes
    :param offset: offset of the request
    :param count: number of bytes; FFh for the rest of the record
    :raises: `completion.RequestError` if the offset is beyond the record
    """
    if offset >= len(record):
        raise completion.RequestError(constants.Completion.OUT_OF_RANGE)
    return record[offset:] if count == 0xFF else record[offset:offset + count]
