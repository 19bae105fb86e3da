# SPDX-License-Identifier: Apache-2.0
"""Commands about the device (section 20) and its identity (22.14)."""

from __future__ import annotations

import functools
import re

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import power_state
from vbmc_kubevirt import bmc
from vbmc_kubevirt.commands import completion
from vbmc_kubevirt.commands import sdr
from vbmc_kubevirt.ipmi import channel
from vbmc_kubevirt.ipmi import constants
from vbmc_kubevirt.ipmi import server

_LEVEL = constants.Privilege

#: ACPI system power state of a machine (table 20-6). KubeVirt pauses a VM
#: without the guest's ACPI: "sleeping, cannot differentiate". A VM that
#: starts or stops is in no such state: "unknown".
ACPI_STATES = {
    power_state.PowerState.ON: 0x00,
    power_state.PowerState.PAUSED: 0x08,
    power_state.PowerState.OFF: 0x06,
}
_UNKNOWN, _D0 = 0x2A, 0x00

# Set ACPI Power State, "no change" (table 20-6).
_NO_CHANGE = 0x7F

# Self test results (table 20-4): no error; data or devices inaccessible, with
# the bits for the SEL and for FRU devices.
_PASSED = bytes((0x55, 0))
_INACCESSIBLE = bytes((0x57, 0xA0))

#: Get BMC Global Enables (table 22-3): system event logging. There is no
#: system interface, so that no interrupt and no message buffer is enabled.
GLOBAL_ENABLES = 0x08

_VERSION = re.compile(r'(\d+)(?:\.(\d+))?(?:\.(\d+))?(?:.*?\.dev(\d+))?')


def commands(bmc: bmc.Bmc) -> dict[channel.Code, server.Command]:
    """Return the commands of this module."""
    device = _Device(bmc)
    return {
        (constants.APPLICATION, 0x01): server.Command(
            'Get Device ID', device.get_device_id, _LEVEL.USER, inline=True),
        (constants.APPLICATION, 0x02): server.Command(
            'Cold Reset', device.cold_reset, _LEVEL.ADMINISTRATOR,
            inline=True),
        (constants.APPLICATION, 0x03): server.Command(
            'Warm Reset', device.warm_reset, _LEVEL.ADMINISTRATOR,
            inline=True),
        (constants.APPLICATION, 0x04): server.Command(
            'Get Self Test Results',
            bmc.map_errors(device.get_self_test_results), _LEVEL.USER),
        (constants.APPLICATION, 0x06): server.Command(
            'Set ACPI Power State', bmc.map_errors(device.set_acpi_state),
            _LEVEL.ADMINISTRATOR, min_length=2),
        (constants.APPLICATION, 0x07): server.Command(
            'Get ACPI Power State', bmc.map_errors(device.get_acpi_state),
            _LEVEL.USER),
        (constants.APPLICATION, 0x08): server.Command(
            'Get Device GUID', bmc.map_errors(device.get_guid), _LEVEL.USER),
        (constants.APPLICATION, 0x2F): server.Command(
            'Get BMC Global Enables', device.get_global_enables, _LEVEL.USER,
            inline=True),
        (constants.APPLICATION, 0x37): server.Command(
            'Get System GUID', bmc.map_errors(device.get_guid),
            _LEVEL.CALLBACK),
    }


@functools.cache
def firmware_revision(version: str) -> tuple[int, int, bytes]:
    """Encode a version as Get Device ID does (table 20-2).

    :param version: such as '1.4.2' or '0.0.1.dev859'
    :returns: (major, minor, auxiliary revision: 4 bytes, namely the third
        number, 0, and two bytes with the number of a development version);
        all but the major number in BCD
    """
    match = _VERSION.match(version)
    major, *others = (
        int(number or 0) for number in (match.groups() if match else (0,) * 4))
    minor, patch, development = (
        bytes.fromhex(f'{number % 10 ** digits:0{digits}}')
        for number, digits in zip(others, (2, 2, 4)))
    return major & 0x7f, minor[0], patch + b'\0' + development


class _Device:

    def __init__(self, bmc: bmc.Bmc) -> None:
        self._bmc = bmc

    def get_device_id(self, session: channel.Session,
                      data: bytes) -> channel.Response:
        major, minor, auxiliary = firmware_revision(self._bmc.version)
        return constants.Completion.OK, bytes((
            0,                        # device id: unspecified
            0,                        # no device SDRs; device revision 0
            major,                    # normal operation
            minor,
            0x02,                     # IPMI v2.0
            sdr.CAPABILITIES,
            0, 0, 0,                  # manufacturer: unspecified
            0, 0)) + auxiliary        # product: unspecified

    def cold_reset(self, session: channel.Session,
                   data: bytes) -> channel.Response:
        """End all sessions and release "set in progress" (section 20.2)."""
        self._bmc.reset(session)
        return constants.Completion.OK, b''

    def warm_reset(self, session: channel.Session,
                   data: bytes) -> channel.Response:
        """Release "set in progress"; sessions continue (section 20.3)."""
        self._bmc.warm_reset()
        return constants.Completion.OK, b''

    def get_self_test_results(self, session: channel.Session,
                              data: bytes) -> bytes:
        """Test whether the VM can be read (section 20.4)."""
        try:
            self._bmc.machine()
        except errors.MachineError as exc:
            self._bmc.record_error(exc)
            return _INACCESSIBLE
        return _PASSED

    def set_acpi_state(self, session: channel.Session, data: bytes) -> None:
        """Accept "no change" only: KubeVirt tells the state (20.6)."""
        for state in data[:2]:
            if state & 0x80 and state & 0x7f != _NO_CHANGE:
                raise completion.RequestError(
                    constants.Completion.INVALID_FIELD)

    def get_acpi_state(self, session: channel.Session, data: bytes) -> bytes:
        state = self._bmc.machine().power_state()
        return bytes((ACPI_STATES.get(state, _UNKNOWN), _D0))

    def get_global_enables(self, session: channel.Session,
                           data: bytes) -> channel.Response:
        return constants.Completion.OK, bytes((GLOBAL_ENABLES,))

    def get_guid(self, session: channel.Session, data: bytes) -> bytes:
        """Get Device GUID and Get System GUID (20.8, 22.14).

        A BMC belongs to one VM and has the VM's UUID, in Redfish as well.
        """
        self._bmc.machine()
        return self._bmc.guid()
