# SPDX-License-Identifier: Apache-2.0
"""Watchdog timer (section 27): acts on the VM unless a client resets it.

The timer is in this process: a restarted one has none, which is safer than
one that acts although its client could not reach it.
"""

from __future__ import annotations

from collections import abc
import datetime
import logging
import threading
import time

from sushy_kubevirt.bmc import event_registry
from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import power_state
from vbmc_kubevirt.commands import chassis
from vbmc_kubevirt.commands import completion
from vbmc_kubevirt.commands import group
from vbmc_kubevirt.commands import sel_records
from vbmc_kubevirt.commands import sensor_table
from vbmc_kubevirt.ipmi import channel
from vbmc_kubevirt.ipmi import constants
from vbmc_kubevirt.ipmi import server
from vbmc_kubevirt import restart_cause

LOG = logging.getLogger(__name__)

#: Timer uses (table 27-3), with the texts of log entries.
USES = {1: 'BIOS FRB2', 2: 'BIOS/POST', 3: 'OS Load', 4: 'SMS/OS', 5: 'OEM'}

#: Timeout actions (table 27-3): text, and what happens to the VM. The numbers
#: are also the offsets of the sensor type Watchdog 2 (table 42-3).
ACTIONS = {
    0: ('none', None),
    1: ('hard reset', power_state.ResetType.FORCE_RESTART),
    2: ('power down', power_state.ResetType.FORCE_OFF),
    3: ('power cycle', power_state.ResetType.POWER_CYCLE),
}

# Timer use (table 27-3).
_DO_NOT_LOG, _DO_NOT_STOP, _STARTED = 0x80, 0x40, 0x40

_LEVEL = constants.Privilege
_CODE = constants.Completion


class Watchdog(group.Group):
    """The watchdog timer of a BMC. Thread-safe.

    :param now: returns a monotonic time in seconds
    """

    netfn = constants.APPLICATION
    inline = True

    def __init__(self, bmc: group.Bmc,
                 now: abc.Callable[[], float] = time.monotonic) -> None:
        super().__init__(bmc)
        bmc.watchdog_events = self.events
        self._now = now
        self._lock = threading.RLock()
        # Data of the last Set Watchdog Timer; b'' before the first.
        self._settings = b''
        # Time of expiry; None while the timer is stopped.
        self._deadline: float | None = None
        self._timer: server.Timer | None = None
        # Changes with each start and stop.
        self._generation = 0
        # Generations that have expired and wait for their action.
        self._expired: set[int] = set()
        self._flags = 0
        self._expired_action: int | None = None

    # Commands (27.5 to 27.7)

    @group.command(0x22, 'Reset Watchdog Timer', _LEVEL.OPERATOR)
    def reset(self, session: channel.Session, data: bytes) -> None:
        """Reset Watchdog Timer: start it, from the beginning."""
        with self._lock:
            completion.refuse_if(not self._settings, _CODE.WATCHDOG_NOT_SET)
            self._notice_expiry()
            self._start()

    @group.command(0x24, 'Set Watchdog Timer', _LEVEL.OPERATOR, 6)
    def set(self, session: channel.Session, data: bytes) -> None:
        """Set Watchdog Timer. There are no pre-timeout interrupts."""
        use, action, interrupt = data[0] & 7, data[1] & 7, data[1] >> 4 & 7
        completion.refuse_if(
            use not in USES or action not in ACTIONS or interrupt,
            _CODE.INVALID_FIELD)
        with self._lock:
            self._notice_expiry()
            running = self._deadline is not None
            self.release()
            self._settings = data[:6]
            self._flags &= ~data[3]
            if not self._flags:
                self._expired_action = None
            if running and data[0] & _DO_NOT_STOP:
                self._start()

    @group.command(0x25, 'Get Watchdog Timer', _LEVEL.USER)
    def get(self, session: channel.Session, data: bytes) -> bytes:
        """Get Watchdog Timer."""
        with self._lock:
            self._notice_expiry()
            settings = self._settings or bytes(6)
            left = settings[4:6]
            if self._deadline is not None:
                tenths = round((self._deadline - self._now()) * 10)
                left = max(tenths, 0).to_bytes(2, 'little')
            started = _STARTED if self._deadline is not None else 0
            return bytes((
                settings[0] & ~_DO_NOT_STOP | started, settings[1],
                settings[2], self._flags)) + settings[4:6] + left

    def release(self) -> None:
        """Stop the timer without an action."""
        with self._lock:
            self._deadline = None
            self._generation += 1
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def events(self) -> tuple[int, ...]:
        """Return the state of the sensor Watchdog 2.

        :returns: offsets of table 42-3: of the action that was taken, until
            its expiration flag is cleared
        """
        with self._lock:
            self._notice_expiry()
            return () if self._expired_action is None else (
                self._expired_action,)

    # Expiry

    def _start(self) -> None:
        self.release()
        seconds = int.from_bytes(self._settings[4:6], 'little') / 10
        self._deadline = self._now() + seconds
        generation, settings = self._generation, self._settings
        self._timer = self._bmc.server.run_later(
            seconds, lambda: self._expire(generation, settings))

    def _notice_expiry(self) -> None:
        """Set the flag as soon as the time is over, before the action."""
        if self._deadline is not None and self._now() >= self._deadline:
            self._deadline = None
            # No stop cancels the action any more.
            self._timer = None
            self._expired.add(self._generation)
            self._flags |= 1 << (self._settings[0] & 7)
            self._expired_action = self._settings[1] & 7

    def _expire(self, generation: int, settings: bytes) -> None:
        with self._lock:
            if generation == self._generation and self._deadline is not None:
                # The timer may be early by a fraction of a millisecond.
                self._deadline = self._now()
                self._notice_expiry()
            if generation not in self._expired:
                return
            self._expired.discard(generation)
        use, action = USES[settings[0] & 7], settings[1] & 7
        LOG.warning('%s: the watchdog timer (%s) has expired; action: %s',
                    self._bmc.name, use, ACTIONS[action][0])
        when = datetime.datetime.now(datetime.timezone.utc)
        # First, as the API may not accept the entry, and take its time.
        self._act(action, generation)
        if not settings[0] & _DO_NOT_LOG:
            self._log(settings, when)

    def _log(self, settings: bytes, when: datetime.datetime) -> None:
        use, action = settings[0] & 7, settings[1] & 7
        event = sel_records.system_event(
            sensor_table.WATCHDOG, action, data2=use)
        try:
            machine = self._bmc.machine()
            self._bmc.log().add(
                machine, event_registry.WATCHDOG_EXPIRED,
                (machine.qualified_name, USES[use], ACTIONS[action][0]),
                sel_records.raw_system_event(event), when)
        except errors.MachineError as exc:
            self._bmc.record_error(exc)

    def _act(self, action: int, generation: int, attempt: int = 1) -> None:
        reset_type = ACTIONS[action][1]
        # What has expired is done whatever a client sets meanwhile; only the
        # attempts that follow end then.
        if reset_type is None or (
                attempt > 1 and generation != self._generation):
            return
        try:
            machine = self._bmc.machine()
            if machine.power_state() not in chassis.POWERED:
                return
            with self._bmc.restart_cause.request(
                    restart_cause.Cause.WATCHDOG, machine, reset_type):
                machine.reset(reset_type, restart_powers_on=False)
        except errors.Unavailable as exc:
            self._bmc.record_error(exc)
            with self._lock:
                if (attempt < chassis.ATTEMPTS
                        and generation == self._generation):
                    self._timer = self._bmc.server.run_later(
                        chassis.RETRY_SECONDS,
                        lambda: self._act(action, generation, attempt + 1))
        except errors.MachineError as exc:
            self._bmc.record_error(exc)
