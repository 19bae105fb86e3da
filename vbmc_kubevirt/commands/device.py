# SPDX-License-Identifier: Apache-2.0
"""Commands about the device (section 20)."""

from vbmc_kubevirt.ipmi import constants
from vbmc_kubevirt.ipmi import server

_LEVEL = constants.Privilege


def commands(bmc):
    """Return the commands of this module.

    :param bmc: a `bmc.Bmc`
    """
    device = _Device(bmc)
    return {
        (constants.APPLICATION, 0x01): server.Command(
            'Get Device ID', device.get_device_id, _LEVEL.USER, inline=True),
        (constants.APPLICATION, 0x02): server.Command(
            'Cold Reset', device.cold_reset, _LEVEL.ADMINISTRATOR,
            inline=True),
        (constants.APPLICATION, 0x37): server.Command(
            'Get System GUID', bmc.map_errors(device.get_system_guid),
            _LEVEL.USER),
        (constants.APPLICATION, 0x48): server.Command(
            'Activate Payload', device.no_payload, _LEVEL.USER, inline=True),
        (constants.APPLICATION, 0x49): server.Command(
            'Deactivate Payload', device.no_payload, _LEVEL.USER,
            inline=True),
    }


class _Device:

    def __init__(self, bmc):
        self._bmc = bmc

    def get_device_id(self, session, data):
        major, minor = self._bmc.version
        return constants.Completion.OK, bytes((
            0,                        # device id: unspecified
            0,                        # no SDRs; device revision 0
            major & 0x7f,             # normal operation
            minor // 10 % 10 << 4 | minor % 10,
            0x02,                     # IPMI v2.0
            0x80,                     # a chassis device
            0, 0, 0,                  # manufacturer: unspecified
            0, 0))                    # product: unspecified

    def cold_reset(self, session, data):
        """End all sessions and release "set in progress" (section 20.2)."""
        self._bmc.reset(session)
        return constants.Completion.OK, b''

    def get_system_guid(self, session, data):
        self._bmc.machine()
        return self._bmc.guid()

    def no_payload(self, session, data):
        """Refuse Activate and Deactivate Payload (24.1, 24.2): there is no
        serial console."""
        return constants.Completion.PAYLOAD_DISABLED, b''
