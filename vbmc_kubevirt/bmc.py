# SPDX-License-Identifier: Apache-2.0
"""IPMI commands of one BMC, translated to operations on its machine.

Power and boot semantics are implemented by `sushy_kubevirt.machine`, sessions
and privileges by `ipmi.server`. To add a command, add its handler and its
line in `Bmc.commands`. Section and table numbers refer to the IPMI
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

#: Completion code for each error type; the first match applies.
COMPLETION_CODES = (
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
_POLICIES = {policy: number for number, policy in RESTORE_POLICIES.items()}
# 3 leaves the policy unchanged (table 28-8).
_LEAVE_POLICY = 3
# Bitmap of supported policies in the response.
_ALL_POLICIES = 0x07

#: Boot device selector (table 28-14).
BOOT_DEVICES = {
    0: boot.Target.NONE,
    1: boot.Target.PXE,
    2: boot.Target.HDD,
    5: boot.Target.CD,
}
_SELECTORS = {target: number for number, target in BOOT_DEVICES.items()}
# "Remotely connected CD/DVD". Only Redfish can set this override.
_SELECTORS[boot.Target.UEFI_HTTP] = 8

# Boot flags, first byte (table 28-14).
_VALID = 0x80
_PERSISTENT = 0x40
_EFI = 0x20

#: Boot option parameters (table 28-14).
SET_IN_PROGRESS, VALID_BIT_CLEARING, INFO_ACKNOWLEDGE, BOOT_FLAGS = 0, 3, 4, 5
PARAMETER_VERSION = 1

#: BMC boot flag valid bit clearing (table 28-14): every "don't clear" bit is
#: set, because only a boot clears the flags.
_NEVER_CLEARED = 0x1f


class RequestError(Exception):
    """The request itself is invalid.

    :param code: `constants.Completion`
    """

    def __init__(self, code):
        super().__init__(code)
        self.code = code


def completion_code(error):
    """Look up the completion code for an error.

    :param error: an `errors.MachineError`
    :returns: `constants.Completion`
    """
    return next(code for kind, code in COMPLETION_CODES
                if isinstance(error, kind))


class Bmc:
    """IPMI commands of one VM.

    :param name: name for log messages
    :param find: function that returns the `machine.Machine`; may block and
        raise `errors.MachineError`
    :param version: (major, minor) of this program
    :param reset: function of the session, called in the event loop on a cold
        reset
    :ivar last_error: error text of the last command; '' if it succeeded
    """

    def __init__(self, name, find, version, reset):
        self.name = name
        self.last_error = ''
        self._find = find
        self._version = version
        self._reset = reset
        self._guid = bytes(16)
        self._set_in_progress_owner = None

    def guid(self):
        """Return the VM's UUID, 16 bytes; zeros until the VM was found.

        The bytes are in the order of SMBIOS, as most BMCs send them and
        clients expect. The specification (20.8) reverses all 16 bytes.
        """
        return self._guid

    @property
    def commands(self):
        """Commands for `server.Server`, with the privileges of table G-1.

        :returns: dict of (network function, command) to `server.Command`
        """
        level = constants.Privilege
        return {
            (constants.APPLICATION, 0x01): server.Command(
                'Get Device ID',
                self._get_device_id, level.USER, inline=True),
            (constants.APPLICATION, 0x02): server.Command(
                'Cold Reset',
                self._cold_reset, level.ADMINISTRATOR, inline=True),
            (constants.APPLICATION, 0x37): server.Command(
                'Get System GUID',
                self._map_errors(self._get_system_guid), level.USER),
            (constants.APPLICATION, 0x48): server.Command(
                'Activate Payload',
                self._no_payload, level.USER, inline=True),
            (constants.APPLICATION, 0x49): server.Command(
                'Deactivate Payload',
                self._no_payload, level.USER, inline=True),
            (constants.CHASSIS, 0x01): server.Command(
                'Get Chassis Status',
                self._map_errors(self._get_chassis_status), level.USER),
            (constants.CHASSIS, 0x02): server.Command(
                'Chassis Control',
                self._map_errors(self._chassis_control), level.OPERATOR,
                min_length=1, modifies=True),
            (constants.CHASSIS, 0x06): server.Command(
                'Set Power Restore Policy',
                self._map_errors(self._set_restore_policy), level.OPERATOR,
                min_length=1, modifies=True),
            (constants.CHASSIS, 0x08): server.Command(
                'Set System Boot Options',
                self._map_errors(self._set_boot_options), level.OPERATOR,
                min_length=1, modifies=True),
            (constants.CHASSIS, 0x09): server.Command(
                'Get System Boot Options',
                self._map_errors(self._get_boot_options), level.OPERATOR,
                min_length=3),
        }

    def machine(self):
        """Find the machine and store its UUID for `guid`.

        :returns: `machine.Machine`
        :raises: `errors.MachineError`
        """
        machine = self._find()
        self._guid = uuid.UUID(machine.uuid).bytes_le
        return machine

    def record_error(self, error):
        """Store an error, and log it unless it equals the previous one.

        A client that polls would otherwise fill the log.

        :param error: an `errors.MachineError`
        """
        problem = str(error)
        if problem != self.last_error:
            LOG.warning('%s: %s (completion code %02Xh)', self.name, problem,
                        completion_code(error))
        self.last_error = problem

    def _map_errors(self, handle):
        """Wrap a handler so that errors become completion codes."""
        def wrapper(session, data):
            try:
                answer = handle(session, data)
            except RequestError as exc:
                return exc.code, b''
            except errors.MachineError as exc:
                self.record_error(exc)
                return completion_code(exc), b''
            self.last_error = ''
            return constants.Completion.OK, answer or b''
        return wrapper

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
        """End all sessions and release "set in progress" (section 20.2)."""
        self._set_in_progress_owner = None
        self._reset(session)
        return constants.Completion.OK, b''

    def _get_system_guid(self, session, data):
        self.machine()
        return self._guid

    def _no_payload(self, session, data):
        """Refuse Activate and Deactivate Payload (24.1, 24.2): there is no
        serial console."""
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
            raise RequestError(constants.Completion.INVALID_FIELD)
        self.machine().reset(reset_type)
        LOG.info('%s: %s', self.name, reset_type.value)

    def _set_restore_policy(self, session, data):
        """Set Power Restore Policy (section 28.8)."""
        number = data[0] & 0x07
        if number != _LEAVE_POLICY:
            if number not in RESTORE_POLICIES:
                raise RequestError(constants.Completion.INVALID_FIELD)
            policy = RESTORE_POLICIES[number]
            self.machine().set_power_restore_policy(policy)
            LOG.info('%s: power restore policy %s', self.name, policy.value)
        return bytes((_ALL_POLICIES,))

    # Boot options (sections 28.12 to 28.14)

    def _set_boot_options(self, session, data):
        parameter, values = data[0] & 0x7f, data[1:]
        if parameter == SET_IN_PROGRESS:
            self._check_length(values, 1)
            self._set_in_progress(session, values[0] & 3)
        elif parameter == VALID_BIT_CLEARING:
            self._check_length(values, 1)
        elif parameter == INFO_ACKNOWLEDGE:
            # For the system's firmware, which does not use it here.
            self._check_length(values, 2)
        elif parameter == BOOT_FLAGS:
            # A request without data only sets the lock bit (bit 7).
            if values:
                self._check_length(values, 5)
                self._set_boot_flags(values)
        else:
            raise RequestError(constants.Completion.PARAMETER_NOT_SUPPORTED)

    @staticmethod
    def _check_length(values, length):
        if len(values) < length:
            raise RequestError(constants.Completion.LENGTH_INVALID)

    def _set_in_progress(self, session, value):
        """Give "set in progress" to one session, until that session ends."""
        holder = self._set_in_progress_owner and self._set_in_progress_owner()
        if value == 3:
            raise RequestError(constants.Completion.INVALID_FIELD)
        if value == 1 and holder not in (None, session):
            raise RequestError(constants.Completion.SET_IN_PROGRESS)
        if value == 1:
            self._set_in_progress_owner = weakref.ref(session)
        elif value == 0:
            self._set_in_progress_owner = None

    def _set_boot_flags(self, values):
        flags, device = values[0], values[1] >> 2 & 0x0f
        target = BOOT_DEVICES.get(device)
        if target is None:
            raise RequestError(constants.Completion.INVALID_FIELD)
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
            values = bytes(
                (
                    (
                        1
                        if self._set_in_progress_owner
                        and self._set_in_progress_owner()
                        else 0
                    ),
                )
            )
        elif parameter == VALID_BIT_CLEARING:
            values = bytes((_NEVER_CLEARED,))
        elif parameter == INFO_ACKNOWLEDGE:
            values = bytes(2)
        elif parameter == BOOT_FLAGS:
            values = self._boot_flags(self.machine().boot())
        else:
            raise RequestError(constants.Completion.PARAMETER_NOT_SUPPORTED)
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
