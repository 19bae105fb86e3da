# SPDX-License-Identifier: Apache-2.0
"""IPMI's commands, said to a machine: power, boot options, identity.

A translation and no more: what power and boot mean is the machine's, who may
ask is the server's. Section and table numbers are those of the IPMI
specification, second generation v2.0, revision 1.1.
"""

import logging
import uuid
import weakref

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine import power_restore_policy
from sushy_kubevirt.machine import power_state
from vbmc_kubevirt.ipmi import constants
from vbmc_kubevirt.ipmi import server

LOG = logging.getLogger(__name__)

#: Completion code for each way a machine can fail; the first that fits.
COMPLETIONS = (
    (errors.MachineNotFound, constants.Completion.NOT_PRESENT),
    (errors.AmbiguousName, constants.Completion.NOT_PRESENT),
    (errors.WrongState, constants.Completion.WRONG_STATE),
    (errors.Rejected, constants.Completion.WRONG_STATE),
    (errors.Unsupported, constants.Completion.UNAVAILABLE),
    (errors.InvalidValue, constants.Completion.INVALID_FIELD),
    (errors.AccessDenied, constants.Completion.ACCESS_DENIED),
    (errors.Unavailable, constants.Completion.NODE_BUSY),
    (errors.ConfigError, constants.Completion.NO_RESPONSE),
    (errors.MachineError, constants.Completion.UNSPECIFIED),
)

#: Chassis Control (table 28-4).
CHASSIS_CONTROL = {
    0: power_state.ResetType.FORCE_OFF,
    1: power_state.ResetType.ON,
    2: power_state.ResetType.POWER_CYCLE,
    3: power_state.ResetType.FORCE_RESTART,
    4: power_state.ResetType.NMI,
    5: power_state.ResetType.GRACEFUL_SHUTDOWN,
}

#: States in which a guest, or what is left of it, is on. One that is on its
#: way is not there yet, and may never be.
POWERED = (power_state.PowerState.ON, power_state.PowerState.PAUSED,
           power_state.PowerState.POWERING_OFF)

# Chassis status, current power state (table 28-3).
_POWER_ON = 0x01
_POWER_CONTROL_FAULT = 0x10
_RESTORE_POLICY_SHIFT = 5
_RESTORE_POLICY_UNKNOWN = 3

#: Power restore policies (tables 28-3 and 28-8); 3 leaves it as it is.
RESTORE_POLICIES = {
    0: power_restore_policy.Policy.ALWAYS_OFF,
    1: power_restore_policy.Policy.LAST_STATE,
    2: power_restore_policy.Policy.ALWAYS_ON,
}
_POLICIES = {policy: number for number, policy in RESTORE_POLICIES.items()}
_LEAVE_POLICY = 3
_ALL_POLICIES = 0x07

#: Boot device selector (table 28-14).
BOOT_DEVICES = {
    0: boot.Target.NONE,
    1: boot.Target.PXE,
    2: boot.Target.HDD,
    5: boot.Target.CD,
}
_SELECTORS = {target: number for number, target in BOOT_DEVICES.items()}
# A remotely connected CD, in the words of IPMI; Redfish alone can set it.
_SELECTORS[boot.Target.UEFI_HTTP] = 8

# Boot flags, first byte (table 28-14).
_VALID = 0x80
_PERSISTENT = 0x40
_EFI = 0x20

#: Boot option parameters (table 28-14).
SET_IN_PROGRESS, VALID_BIT_CLEARING, INFO_ACKNOWLEDGE, BOOT_FLAGS = 0, 3, 4, 5
PARAMETER_VERSION = 1

#: All reasons for which other BMCs clear the boot flags by themselves, each
#: with "don't". Here they last until they were used.
_NEVER_CLEARED = 0x1f


class Failure(Exception):
    """A request that is wrong in itself. :param code: completion code"""

    def __init__(self, code):
        super().__init__(code)
        self.code = code


def completion(error):
    """:returns: the `constants.Completion` for an `errors.MachineError`"""
    return next(code for kind, code in COMPLETIONS
                if isinstance(error, kind))


class Bmc:
    """The commands of one VM's BMC.

    :param name: of the VM, for the log
    :param find: function that returns the `machine.Machine`, or raises an
        `errors.MachineError`; it may block
    :param version: (major, minor) of this program
    :param reset: function called on a cold reset, in the event loop
    :ivar problem: what the last command failed of, for people; '' if it did
        not
    """

    def __init__(self, name, find, version, reset):
        self.name = name
        self.problem = ''
        self._find = find
        self._version = version
        self._reset = reset
        self._guid = bytes(16)
        self._setter = None

    def guid(self):
        """The VM's UUID as SMBIOS writes it; zeros until it is known.

        The specification (20.8) has it backwards from end to end. What most
        BMCs send, and clients take it for when both could be, is this.
        """
        return self._guid

    @property
    def commands(self):
        """:returns: dict for `server.Server`

        Privilege levels are those of table G-1.
        """
        level = constants.Privilege
        return {
            (constants.APPLICATION, 0x01): server.Command(
                self._get_device_id, level.USER, quick=True),
            (constants.APPLICATION, 0x02): server.Command(
                self._cold_reset, level.ADMINISTRATOR, quick=True),
            (constants.APPLICATION, 0x37): server.Command(
                self._guard(self._get_system_guid), level.USER),
            (constants.APPLICATION, 0x48): server.Command(
                self._no_payload, level.USER, quick=True),
            (constants.APPLICATION, 0x49): server.Command(
                self._no_payload, level.USER, quick=True),
            (constants.CHASSIS, 0x01): server.Command(
                self._guard(self._get_chassis_status), level.USER),
            (constants.CHASSIS, 0x02): server.Command(
                self._guard(self._chassis_control), level.OPERATOR,
                length=1, changes=True),
            (constants.CHASSIS, 0x06): server.Command(
                self._guard(self._set_restore_policy), level.OPERATOR,
                length=1, changes=True),
            (constants.CHASSIS, 0x08): server.Command(
                self._guard(self._set_boot_options), level.OPERATOR,
                length=1, changes=True),
            (constants.CHASSIS, 0x09): server.Command(
                self._guard(self._get_boot_options), level.OPERATOR,
                length=3),
        }

    def machine(self):
        """Find the machine, and note which it is."""
        machine = self._find()
        self._guid = uuid.UUID(machine.uuid).bytes_le
        return machine

    def note(self, error):
        """Keep what something failed of, and log it when it is new: a client
        that polls would repeat it for as long as it lasts.

        :param error: an `errors.MachineError`
        """
        problem = str(error)
        if problem != self.problem:
            LOG.warning('%s: %s (completion code %02Xh)', self.name, problem,
                        completion(error))
        self.problem = problem

    def _guard(self, handle):
        """Turn a handler's errors into completion codes."""
        def guarded(session, data):
            try:
                answer = handle(session, data)
            except Failure as exc:
                return exc.code, b''
            except errors.MachineError as exc:
                self.note(exc)
                return completion(exc), b''
            self.problem = ''
            return constants.Completion.OK, answer or b''
        return guarded

    # Device (section 20)

    def _get_device_id(self, session, data):
        major, minor = self._version
        return constants.Completion.OK, bytes((
            0,                        # device id: unspecified
            0,                        # no SDRs; device revision 0
            major & 0x7f,             # normal operation
            minor // 10 % 10 << 4 | minor % 10,
            0x02,                     # IPMI v2.0
            0x80,                     # a chassis device
            0, 0, 0,                  # manufacturer: unspecified
            0, 0))                    # product: unspecified

    def _cold_reset(self, session, data):
        """Forget what is not the VM's: sessions, and boot options half set."""
        self._setter = None
        self._reset(session)
        return constants.Completion.OK, b''

    def _get_system_guid(self, session, data):
        self.machine()
        return self._guid

    def _no_payload(self, session, data):
        """Activate and Deactivate Payload (section 24): there is no serial
        console to carry."""
        return constants.Completion.PAYLOAD_DISABLED, b''

    # Chassis (section 28)

    def _get_chassis_status(self, session, data):
        machine = self.machine()
        policy = machine.power_restore_policy()
        state = _POLICIES.get(
            policy, _RESTORE_POLICY_UNKNOWN) << _RESTORE_POLICY_SHIFT
        if machine.power_state() in POWERED:
            state |= _POWER_ON
        if machine.problem() is not None:
            state |= _POWER_CONTROL_FAULT
        return bytes((state, 0, 0))

    def _chassis_control(self, session, data):
        reset_type = CHASSIS_CONTROL.get(data[0] & 0x0f)
        if reset_type is None:
            raise Failure(constants.Completion.INVALID_FIELD)
        self.machine().reset(reset_type)
        LOG.info('%s: %s', self.name, reset_type.value)

    def _set_restore_policy(self, session, data):
        """Set Power Restore Policy (section 28.8)."""
        number = data[0] & 0x07
        if number != _LEAVE_POLICY:
            if number not in RESTORE_POLICIES:
                raise Failure(constants.Completion.INVALID_FIELD)
            policy = RESTORE_POLICIES[number]
            self.machine().set_power_restore_policy(policy)
            LOG.info('%s: power restore policy %s', self.name, policy.value)
        return bytes((_ALL_POLICIES,))

    # Boot options (sections 28.12 to 28.14)

    def _set_boot_options(self, session, data):
        parameter, values = data[0] & 0x7f, data[1:]
        if parameter == SET_IN_PROGRESS:
            self._need(values, 1)
            self._set_in_progress(session, values[0] & 3)
        elif parameter == VALID_BIT_CLEARING:
            self._need(values, 1)
        elif parameter == INFO_ACKNOWLEDGE:
            # For firmware, which here never asks.
            self._need(values, 2)
        elif parameter == BOOT_FLAGS:
            # Bit 7 marks the parameter locked; nothing else comes with it.
            if values:
                self._need(values, 5)
                self._set_boot_flags(values)
        else:
            raise Failure(constants.Completion.PARAMETER_NOT_SUPPORTED)

    @staticmethod
    def _need(values, length):
        if len(values) < length:
            raise Failure(constants.Completion.LENGTH_INVALID)

    def _set_in_progress(self, session, value):
        """One client at a time, and not longer than its session lasts."""
        holder = self._setter and self._setter()
        if value == 3:
            raise Failure(constants.Completion.INVALID_FIELD)
        if value == 1 and holder not in (None, session):
            raise Failure(constants.Completion.SET_IN_PROGRESS)
        if value == 1:
            self._setter = weakref.ref(session)
        elif value == 0:
            self._setter = None

    def _set_boot_flags(self, values):
        flags, device = values[0], values[1] >> 2 & 0x0f
        target = BOOT_DEVICES.get(device)
        if target is None:
            raise Failure(constants.Completion.INVALID_FIELD)
        if not flags & _VALID:
            target = boot.Target.NONE
        if target is boot.Target.NONE:
            enabled = boot.Enabled.DISABLED
        elif flags & _PERSISTENT:
            enabled = boot.Enabled.CONTINUOUS
        else:
            enabled = boot.Enabled.ONCE
        mode = boot.Mode.UEFI if flags & _VALID and flags & _EFI else None
        self.machine().set_boot(target=target, enabled=enabled, mode=mode)
        LOG.info('%s: boot %s, %s%s', self.name, target.value, enabled.value,
                 f', {mode.value}' if mode else '')

    def _get_boot_options(self, session, data):
        parameter = data[0] & 0x7f
        if parameter == SET_IN_PROGRESS:
            values = bytes((1 if self._setter and self._setter() else 0,))
        elif parameter == VALID_BIT_CLEARING:
            values = bytes((_NEVER_CLEARED,))
        elif parameter == INFO_ACKNOWLEDGE:
            values = bytes(2)
        elif parameter == BOOT_FLAGS:
            values = self._boot_flags(self.machine().boot())
        else:
            raise Failure(constants.Completion.PARAMETER_NOT_SUPPORTED)
        return bytes((PARAMETER_VERSION, parameter)) + values

    @staticmethod
    def _boot_flags(state):
        flags = _EFI if state.mode is boot.Mode.UEFI else 0
        device = 0
        if state.enabled is not boot.Enabled.DISABLED:
            flags |= _VALID
            device = _SELECTORS[state.target] << 2
        if state.enabled is boot.Enabled.CONTINUOUS:
            flags |= _PERSISTENT
        return bytes((flags, device, 0, 0, 0))
