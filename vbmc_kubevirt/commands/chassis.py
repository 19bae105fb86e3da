# SPDX-License-Identifier: Apache-2.0
"""Chassis commands (section 28) but for boot options."""

from __future__ import annotations

import datetime
import logging
import typing

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import attributes
from sushy_kubevirt.machine import machine
from sushy_kubevirt.machine import power_restore_policy
from sushy_kubevirt.machine import power_state
from vbmc_kubevirt.commands import completion
from vbmc_kubevirt.commands import group
from vbmc_kubevirt.ipmi import channel
from vbmc_kubevirt.ipmi import constants
from vbmc_kubevirt.ipmi import server
from vbmc_kubevirt import restart_cause

LOG = logging.getLogger(__name__)

#: Chassis Control (table 28-4).
CHASSIS_CONTROL = {
    0: power_state.ResetType.FORCE_OFF,
    1: power_state.ResetType.ON,
    2: power_state.ResetType.POWER_CYCLE,
    3: power_state.ResetType.FORCE_RESTART,
    4: power_state.ResetType.NMI,
    5: power_state.ResetType.GRACEFUL_SHUTDOWN,
}

#: States reported as "power is on". A starting VM is not included, because
#: its start may still fail.
POWERED = (power_state.PowerState.ON, power_state.PowerState.PAUSED,
           power_state.PowerState.POWERING_OFF)

# Chassis status, current power state (table 28-3).
_POWER_ON = 0x01
_POWER_CONTROL_FAULT = 0x10
_RESTORE_POLICY_SHIFT = 5
_RESTORE_POLICY_UNKNOWN = 3

#: Power restore policies (tables 28-3 and 28-8).
RESTORE_POLICIES = {
    0: power_restore_policy.Policy.ALWAYS_OFF,
    1: power_restore_policy.Policy.LAST_STATE,
    2: power_restore_policy.Policy.ALWAYS_ON,
}
_POLICIES: dict[power_restore_policy.Policy | None, int] = {
    policy: number for number, policy in RESTORE_POLICIES.items()}
# 3 leaves the policy unchanged (table 28-8).
_LEAVE_POLICY = 3
# Bitmap of supported policies in the response.
_ALL_POLICIES = 0x07

# Miscellaneous chassis state: identify is supported, its states, and a fault
# of a drive (table 28-3).
_DRIVE_FAULT = 0x04
_IDENTIFY_SUPPORTED = 0x40
_IDENTIFY_TIMED, _IDENTIFY_ON = 0x10, 0x20

#: Chassis Identify (28.5): seconds if the request has none, and the bit that
#: forces it on.
IDENTIFY_SECONDS = 15
_FORCE_ON = 0x01

#: Seconds between attempts of what a timer does while the API is unavailable,
#: and their number.
RETRY_SECONDS, ATTEMPTS = 10, 30

#: Get Chassis Capabilities (table 28-2): no intrusion sensor, no lockout; FRU,
#: SDR, SEL and management device are the BMC, which is no bridge.
CAPABILITIES = bytes((0, 0x20, 0x20, 0x20, 0x20))

# Get POH Counter (table 28-13): minutes per count.
_MINUTES_PER_COUNT = 1

_LEVEL = constants.Privilege


def drive_fault(machine: machine.Machine) -> bool:
    """Return whether an I/O error of its storage has paused a guest."""
    impairment = machine.impairment()
    return (impairment is not None
            and impairment.reason == power_state.IO_ERROR)


class _Status(typing.NamedTuple):
    # Response data of Get Chassis Status, and what they are made from.

    machine: machine.Machine
    origin: object
    data: bytes


class Chassis(group.Group):
    """Commands about the chassis."""

    netfn = constants.CHASSIS

    def __init__(self, bmc: group.Bmc) -> None:
        super().__init__(bmc)
        # Ends a timed identify; None before the first one.
        self._identify_timer: server.Timer | None = None
        # Number of the last one.
        self._identified = 0
        # What it was made from, and its bytes.
        self._status: _Status | None = None
        # The uid of the VMI before the last control.
        self._controlled: str | None = None

    @group.command(0x00, 'Get Chassis Capabilities', _LEVEL.USER, inline=True)
    def get_capabilities(self, session: channel.Session, data: bytes) -> bytes:
        return CAPABILITIES

    @group.command(0x05, 'Set Chassis Capabilities', _LEVEL.ADMINISTRATOR, 5,
                   inline=True)
    def set_capabilities(self, session: channel.Session, data: bytes) -> None:
        """Set Chassis Capabilities (28.7): accept only what they are."""
        completion.refuse_if(data[:5] != CAPABILITIES,
                             constants.Completion.INVALID_FIELD)

    @group.command(0x0A, 'Set Front Panel Button Enables',
                   _LEVEL.ADMINISTRATOR, 1, inline=True)
    @group.command(0x0B, 'Set Power Cycle Interval', _LEVEL.ADMINISTRATOR, 1,
                   inline=True)
    def accept_zero(self, session: channel.Session, data: bytes) -> None:
        """Set Front Panel Button Enables, Set Power Cycle Interval (28.6, 9).

        A VM has no buttons to disable, and KubeVirt no interval: only "all
        enabled" and "no interval" are accepted.
        """
        completion.refuse_if(data[0], constants.Completion.INVALID_FIELD)

    @group.command(0x04, 'Chassis Identify', _LEVEL.OPERATOR, modifies=True)
    def identify(self, session: channel.Session, data: bytes) -> None:
        """Chassis Identify (28.5): Redfish's indicator LED."""
        seconds = data[0] if data else IDENTIFY_SECONDS
        forced = data[1:] and data[1] & _FORCE_ON
        state = (attributes.LIT if forced else attributes.BLINKING if seconds
                 else attributes.OFF)
        self._bmc.machine().set_indicator(state)
        # Not before: a timer of an earlier request still has to end it.
        self._stop_identify_timer()
        self._identified += 1
        number = self._identified
        if state == attributes.BLINKING:
            self._identify_timer = self._bmc.server.run_later(
                seconds, lambda: self._end_identify(number))

    def _stop_identify_timer(self) -> None:
        if self._identify_timer is not None:
            self._identify_timer.cancel()
            self._identify_timer = None

    def _end_identify(self, number: int, attempt: int = 1) -> None:
        if number != self._identified:
            # It has expired while a later request was waited for.
            return
        self._identify_timer = None
        try:
            machine = self._bmc.machine()
            # Another client may have changed it.
            if machine.indicator() == attributes.BLINKING:
                machine.set_indicator(attributes.OFF)
        except errors.Unavailable as exc:
            self._bmc.record_error(exc)
            if attempt < ATTEMPTS:
                self._identify_timer = self._bmc.server.run_later(
                    RETRY_SECONDS,
                    lambda: self._end_identify(number, attempt + 1))
        except errors.MachineError as exc:
            self._bmc.record_error(exc)

    def _identify_state(self, machine: machine.Machine) -> int:
        if machine.indicator() == attributes.OFF:
            return 0
        return _IDENTIFY_TIMED if self._identify_timer else _IDENTIFY_ON

    @group.command(0x07, 'Get System Restart Cause', _LEVEL.USER)
    def get_restart_cause(self, session: channel.Session,
                          data: bytes) -> bytes:
        """Get System Restart Cause (28.11)."""
        vmi = self._bmc.machine().state().vmi
        cause = self._bmc.restart_cause.of(vmi)
        return bytes((cause, channel.CHANNEL if cause else 0))

    @group.command(0x0F, 'Get POH Counter', _LEVEL.USER)
    def get_poh_counter(self, session: channel.Session, data: bytes) -> bytes:
        """Get POH Counter (28.14): minutes of the present run.

        KubeVirt keeps no record of earlier ones.
        """
        started = self._bmc.machine().inventory().started
        minutes = 0
        if started:
            now = datetime.datetime.now(datetime.timezone.utc)
            run = now - datetime.datetime.fromisoformat(started)
            minutes = max(int(run.total_seconds()) // 60, 0)
        return bytes((_MINUTES_PER_COUNT,)) + minutes.to_bytes(4, 'little')

    @group.command(0x01, 'Get Chassis Status', _LEVEL.USER)
    def get_chassis_status(self, session: channel.Session,
                           data: bytes) -> bytes:
        """Get Chassis Status (28.2), which clients poll."""
        known = self._status
        if (known is None or known.origin is None
                or known.origin != self._origin(known.machine)):
            machine = self._bmc.machine()
            origin = self._origin(machine)
            known = self._status = _Status(
                machine, origin, self._chassis_status(machine))
        return known.data

    def _origin(self, machine: machine.Machine) -> object:
        """Return what changes when the status of a machine does.

        :returns: None while the status cannot be kept
        """
        version = machine.version()
        return version and (version, self._identify_timer is None)

    def _chassis_status(self, machine: machine.Machine) -> bytes:
        policy = machine.power_restore_policy()
        state = _POLICIES.get(
            policy, _RESTORE_POLICY_UNKNOWN) << _RESTORE_POLICY_SHIFT
        if machine.power_state() in POWERED:
            state |= _POWER_ON
        if machine.problem() is not None:
            state |= _POWER_CONTROL_FAULT
        more = _IDENTIFY_SUPPORTED | self._identify_state(machine)
        if drive_fault(machine):
            more |= _DRIVE_FAULT
        # The last byte: no button is, or can be, disabled.
        return bytes((state, 0, more, 0))

    def control_begun(self, session: channel.Session, data: bytes) -> bool:
        """Return whether the cluster shows the effect of `chassis_control`.

        The response to Chassis Control (28.3) does not wait for the end of
        what it has begun.
        """
        return self._bmc.machine().shows(
            CHASSIS_CONTROL[data[0] & 0x0f], self._controlled)

    @group.command(0x02, 'Chassis Control', _LEVEL.OPERATOR, 1,
                   modifies=True, begun=control_begun)
    def chassis_control(self, session: channel.Session, data: bytes) -> None:
        reset_type = CHASSIS_CONTROL.get(data[0] & 0x0f)
        if reset_type is None:
            raise completion.RequestError(constants.Completion.INVALID_FIELD)
        machine = self._bmc.machine()
        self._controlled = machine.running_uid()
        with self._bmc.restart_cause.request(
                restart_cause.Cause.CHASSIS_CONTROL, machine, reset_type):
            # Power cycle and hard reset have no effect on a chassis that is
            # off (section 28.3).
            machine.reset(reset_type, restart_powers_on=False)
        LOG.info('%s: %s', self._bmc.name, reset_type.value)

    @group.command(0x06, 'Set Power Restore Policy', _LEVEL.OPERATOR, 1,
                   modifies=True)
    def set_restore_policy(self, session: channel.Session,
                           data: bytes) -> bytes:
        """Set Power Restore Policy (section 28.8)."""
        number = data[0] & 0x07
        if number != _LEAVE_POLICY:
            completion.refuse_if(number not in RESTORE_POLICIES,
                                 constants.Completion.INVALID_FIELD)
            policy = RESTORE_POLICIES[number]
            self._bmc.machine().set_power_restore_policy(policy)
            LOG.info('%s: power restore policy %s', self._bmc.name,
                     policy.value)
        return bytes((_ALL_POLICIES,))
