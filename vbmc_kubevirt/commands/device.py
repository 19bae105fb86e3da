# SPDX-License-Identifier: Apache-2.0
"""Commands about the device (section 20) and its identity (22.14)."""

from __future__ import annotations

import functools
import re

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import power_state
from vbmc_kubevirt.commands import completion
from vbmc_kubevirt.commands import group
from vbmc_kubevirt.commands import sdr
from vbmc_kubevirt.ipmi import channel
from vbmc_kubevirt.ipmi import constants

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


class Device(group.Group):
    """Commands about the device."""

    netfn = constants.APPLICATION

    @group.command(0x01, 'Get Device ID', _LEVEL.USER, inline=True)
    def get_device_id(self, session: channel.Session,
                      data: bytes) -> bytes:
        major, minor, auxiliary = firmware_revision(self._bmc.version)
        return bytes((
            0,                        # device id: unspecified
            0,                        # no device SDRs; device revision 0
            major,                    # normal operation
            minor,
            0x02,                     # IPMI v2.0
            sdr.CAPABILITIES,
            0, 0, 0,                  # manufacturer: unspecified
            0, 0)) + auxiliary        # product: unspecified

    @group.command(0x02, 'Cold Reset', _LEVEL.ADMINISTRATOR, inline=True)
    def cold_reset(self, session: channel.Session, data: bytes) -> None:
        """End all sessions and release "set in progress" (section 20.2)."""
        self._bmc.warm_reset()
        self._bmc.server.end_sessions()

    @group.command(0x03, 'Warm Reset', _LEVEL.ADMINISTRATOR, inline=True)
    def warm_reset(self, session: channel.Session, data: bytes) -> None:
        """Release "set in progress"; sessions continue (section 20.3)."""
        self._bmc.warm_reset()

    @group.command(0x04, 'Get Self Test Results', _LEVEL.USER)
    def get_self_test_results(self, session: channel.Session,
                              data: bytes) -> bytes:
        """Test whether the VM can be read (section 20.4)."""
        try:
            self._bmc.machine()
        except errors.MachineError as exc:
            self._bmc.record_error(exc)
            return _INACCESSIBLE
        return _PASSED

    @group.command(0x06, 'Set ACPI Power State', _LEVEL.ADMINISTRATOR, 2)
    def set_acpi_state(self, session: channel.Session, data: bytes) -> None:
        """Accept "no change" only: KubeVirt tells the state (20.6)."""
        for state in data[:2]:
            completion.refuse_if(state & 0x80 and state & 0x7f != _NO_CHANGE,
                                 constants.Completion.INVALID_FIELD)

    @group.command(0x07, 'Get ACPI Power State', _LEVEL.USER)
    def get_acpi_state(self, session: channel.Session, data: bytes) -> bytes:
        state = self._bmc.machine().power_state()
        return bytes((ACPI_STATES.get(state, _UNKNOWN), _D0))

    @group.command(0x2F, 'Get BMC Global Enables', _LEVEL.USER, inline=True)
    def get_global_enables(self, session: channel.Session,
                           data: bytes) -> bytes:
        return bytes((GLOBAL_ENABLES,))

    @group.command(0x08, 'Get Device GUID', _LEVEL.USER)
    @group.command(0x37, 'Get System GUID', _LEVEL.CALLBACK)
    def get_guid(self, session: channel.Session, data: bytes) -> bytes:
        """Get Device GUID and Get System GUID (20.8, 22.14).

        A BMC belongs to one VM and has the VM's UUID, in Redfish as well.
        """
        self._bmc.machine()
        return self._bmc.guid()
