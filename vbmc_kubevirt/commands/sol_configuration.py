# SPDX-License-Identifier: Apache-2.0
"""Commands for the SOL configuration parameters (section 26)."""

from __future__ import annotations

from vbmc_kubevirt.commands import completion
from vbmc_kubevirt.commands import group
from vbmc_kubevirt.commands import set_in_progress
from vbmc_kubevirt.ipmi import channel
from vbmc_kubevirt.ipmi import constants

#: Parameters (table 26-5).
(ENABLE, AUTHENTICATION, ACCUMULATE, RETRY, BIT_RATE, VOLATILE_BIT_RATE,
 PAYLOAD_CHANNEL, PAYLOAD_PORT) = range(1, 9)

#: Revision of the parameters: oldest and present revision are 1.
_REVISION = 0x11
_REVISION_ONLY = 0x80

#: SOL authentication: encryption and authentication are always forced.
_FORCED = 0xC0

#: Privilege levels that can be required.
_LEVELS = (constants.Privilege.USER, constants.Privilege.OPERATOR,
           constants.Privilege.ADMINISTRATOR)

#: Bit rates (table 26-5): that of the serial port, 9.6 to 115.2 kbit/s.
_BIT_RATES = (0, *range(6, 11))

#: Units of the parameters in seconds.
_ACCUMULATE_UNIT, _RETRY_UNIT = 0.005, 0.01


class SolConfiguration(set_in_progress.Parameters):
    """The parameters of one BMC. They last until its process ends.

    A VM's serial port has no bit rate; those parameters have no effect.
    """

    netfn = constants.TRANSPORT
    inline = True

    def __init__(self, bmc: group.Bmc) -> None:
        super().__init__(bmc)
        self._bit_rates = {BIT_RATE: 0, VOLATILE_BIT_RATE: 0}

    @group.command(0x22, 'Get SOL Configuration Parameters',
                   constants.Privilege.USER, 4)
    def get(self, session: channel.Session, data: bytes) -> bytes:
        """Get SOL Configuration Parameters (section 26.3)."""
        completion.check_channel(data[0])
        if data[0] & _REVISION_ONLY:
            return bytes((_REVISION,))
        settings, timing = self._bmc.sol, self._bmc.sol.timing
        values = {
            set_in_progress.PARAMETER: self.progress(),
            ENABLE: bytes((settings.enabled,)),
            AUTHENTICATION: bytes((_FORCED | settings.privilege,)),
            ACCUMULATE: bytes((
                round(timing.accumulate_seconds / _ACCUMULATE_UNIT),
                timing.send_threshold)),
            RETRY: bytes((timing.retry_count,
                          round(timing.retry_seconds / _RETRY_UNIT))),
            **{rate: bytes((value,))
               for rate, value in self._bit_rates.items()},
            PAYLOAD_CHANNEL: bytes((channel.CHANNEL,)),
            PAYLOAD_PORT: self._bmc.client_port.to_bytes(2, 'little')}
        completion.refuse_if(data[1] not in values,
                             constants.Completion.PARAMETER_NOT_SUPPORTED)
        return bytes((_REVISION,)) + values[data[1]]

    @group.command(0x21, 'Set SOL Configuration Parameters',
                   constants.Privilege.ADMINISTRATOR, 2)
    def set(self, session: channel.Session, data: bytes) -> None:
        """Set SOL Configuration Parameters (section 26.2)."""
        completion.check_channel(data[0])
        settings, parameter, values = self._bmc.sol, data[1], data[2:]
        completion.refuse_if(parameter in (PAYLOAD_CHANNEL, PAYLOAD_PORT),
                             constants.Completion.READ_ONLY)
        completion.refuse_if(parameter > PAYLOAD_PORT,
                             constants.Completion.PARAMETER_NOT_SUPPORTED)
        completion.refuse_if(
            len(values) < (2 if parameter in (ACCUMULATE, RETRY) else 1),
            constants.Completion.LENGTH_INVALID)
        if parameter == set_in_progress.PARAMETER:
            self.set_progress(session, values[0])
        elif parameter == ENABLE:
            settings.enabled = bool(values[0] & 1)
        elif parameter == AUTHENTICATION:
            completion.refuse_if(values[0] & _FORCED != _FORCED
                                 or values[0] & 0x0f not in _LEVELS,
                                 constants.Completion.INVALID_FIELD)
            settings.privilege = constants.Privilege(values[0] & 0x0f)
        elif parameter == ACCUMULATE:
            completion.refuse_if(not values[0] or not values[1],
                                 constants.Completion.INVALID_FIELD)
            settings.timing.accumulate_seconds = values[0] * _ACCUMULATE_UNIT
            settings.timing.send_threshold = values[1]
        elif parameter == RETRY:
            settings.timing.retry_count = values[0] & 0x07
            settings.timing.retry_seconds = values[1] * _RETRY_UNIT
        else:
            completion.refuse_if(values[0] & 0x0f not in _BIT_RATES,
                                 constants.Completion.INVALID_FIELD)
            self._bit_rates[parameter] = values[0] & 0x0f
