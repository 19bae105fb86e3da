# SPDX-License-Identifier: Apache-2.0
"""The clock of each BMC, which clients can set.

It is that of the host, until a client sets another time or UTC offset. What
differs is kept in the state Secret, so that all processes and protocols show
the same. No other time depends on it: log entries and sessions have the
host's.
"""

from __future__ import annotations

import datetime
import time
import typing

if typing.TYPE_CHECKING:
    from sushy_kubevirt.bmc import state_secret
    from sushy_kubevirt.kube import objects
    from sushy_kubevirt.machine import machine

#: Name of the section of the Secret: {uid of the VM: `Clock` as a dict}.
SECTION = 'clock'

#: Largest number of machines in the section, which have room in it
#: (`state_secret.MAX_BYTES`). Beyond it those that were set first are dropped.
MAX_MACHINES = 400

#: Seconds of difference from the host's clock below which a clock is the
#: host's: a client sets whole seconds.
_SAME_SECONDS = 1

#: Times that can be set, in seconds since the epoch: those of IPMI.
MIN_SECONDS, MAX_SECONDS = 0, 0xFFFFFFFE

#: Offsets that can be set, in minutes: ±19:59, those of Redfish's pattern.
MAX_OFFSET = 19 * 60 + 59


class Clock(typing.NamedTuple):
    """How a clock differs from that of the host.

    :param shift: seconds by which it is ahead
    :param offset: minutes from UTC to the time that it shows
    :param set_at: when it was set, in seconds since the epoch
    """

    shift: float = 0.0
    offset: int = 0
    set_at: float = 0.0

    def now(self) -> datetime.datetime:
        """Return the time that it shows."""
        return datetime.datetime.fromtimestamp(
            time.time() + self.shift, datetime.timezone(
                datetime.timedelta(minutes=self.offset)))

    @property
    def local_shift(self) -> float:
        """Seconds by which the local time is ahead of the host's in UTC."""
        return self.shift + 60 * self.offset


class Clocks:
    """The section of a state Secret."""

    def __init__(self, state: state_secret.StateSecret) -> None:
        self._state = state

    def of(self, machine: machine.Machine) -> Clock:
        """Return the clock of a machine; from the cache, if that is new."""
        self._state.catch_up()
        return _decode(self._state.cached(SECTION).get(machine.uid))

    def set(self, machine: machine.Machine, seconds: float | None = None,
            offset: int | None = None) -> None:
        """Set the clock of a machine.

        :param seconds: the time now, in seconds since the epoch; None to keep
            it
        :param offset: minutes from UTC; None to keep it
        :raises: `errors.MachineError`
        """
        now = time.time()

        def edit(section: objects.Json) -> None:
            clock = _decode(section.get(machine.uid))
            if seconds is not None:
                shift = seconds - now
                clock = clock._replace(
                    shift=shift if abs(shift) >= _SAME_SECONDS else 0.0)
            if offset is not None:
                clock = clock._replace(offset=offset)
            if clock.shift or clock.offset:
                section[machine.uid] = clock._replace(set_at=now)._asdict()
            else:
                section.pop(machine.uid, None)
            for uid in sorted(section, key=lambda uid: _decode(
                    section[uid]).set_at)[:-MAX_MACHINES]:
                del section[uid]

        self._state.update(SECTION, edit)


def _decode(stored: typing.Any) -> Clock:
    try:
        return Clock(float(stored['shift']), int(stored['offset']),
                     float(stored['set_at']))
    except (KeyError, TypeError, ValueError):
        return Clock()
