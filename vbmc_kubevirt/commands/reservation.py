# SPDX-License-Identifier: Apache-2.0
"""Reservations of the SEL and the SDR repository (31.4 and 33.11)."""

from __future__ import annotations

import operator
import struct
import threading
import typing

from sushy_kubevirt.bmc import shares
from vbmc_kubevirt.commands import completion
from vbmc_kubevirt.ipmi import channel
from vbmc_kubevirt.ipmi import constants

#: Maximum number of valid reservations.
MAX = 64

_user, _network = operator.attrgetter('user'), operator.attrgetter('network')


class Reservation(typing.NamedTuple):
    """A reservation.

    :param user: name of the user
    :param network: see `shares.network`
    """

    id: int
    user: bytes
    network: str


class Reservations:
    """Reservation ids.

    A reservation is cancelled when another client clears the records, but not
    by the reservation of another client, so several can read at the same time.
    Of too many, the user with most loses the oldest.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # The oldest first.
        self._valid: list[Reservation] = []
        self._last = 0

    def reserve(self, session: channel.Session) -> bytes:
        """Make a reservation.

        :returns: its id, two bytes
        """
        with self._lock:
            self._last = self._last % 0xFFFF + 1
            newest = Reservation(
                self._last, channel.user(session).name, session.network)
            valid = [*self._valid, newest]
            if len(valid) > MAX:
                valid.remove(shares.surplus(valid, newest, _user, _network))
            self._valid = valid
            return struct.pack('<H', self._last)

    def cancel(self, but: int | None = None) -> None:
        """Cancel all reservations.

        :param but: id of one that remains valid
        """
        with self._lock:
            self._valid = [valid for valid in self._valid if valid.id == but]

    def check(self, number: int) -> None:
        """Check a reservation id of a request.

        :raises: `completion.RequestError` if it is not valid
        """
        completion.refuse_if(all(number != valid.id for valid in self._valid),
                             constants.Completion.RESERVATION_CANCELED)


def part(record: bytes, offset: int, count: int) -> bytes:
    """Return the part of a record that a request asks for.

    :param offset: offset of the request
    :param count: number of bytes; FFh for the rest of the record
    :raises: `completion.RequestError` if the offset is beyond the record
    """
    completion.refuse_if(offset >= len(record),
                         constants.Completion.OUT_OF_RANGE)
    return record[offset:] if count == 0xFF else record[offset:offset + count]
