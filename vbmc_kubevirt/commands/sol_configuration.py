# SPDX-License-Identifier: Apache-2.0
"""Commands for the SOL configuration parameters (section 26)."""

from __future__ import annotations

from vbmc_kubevirt import bmc
from vbmc_kubevirt.commands import completion
from vbmc_kubevirt.ipmi import channel
from vbmc_kubevirt.ipmi import constants
from vbmc_kubevirt.ipmi import server

_LEVEL = constants.Privilege


def commands(bmc: bmc.Bmc) -> dict[channel.Code, server.Command]:
    """Return the commands of this module."""
    parameters = bmc.sol
    bmc.on_reset.append(parameters.set_in_progress.release)
    return {
        (constants.TRANSPORT, 0x21): server.Command(
            'Set SOL Configuration Parameters',
            completion.without_machine(parameters.set), _LEVEL.ADMINISTRATOR,
            min_length=2, inline=True),
        (constants.TRANSPORT, 0x22): server.Command(
            'Get SOL Configuration Parameters',
            completion.without_machine(parameters.get), _LEVEL.USER,
            min_length=4, inline=True),
    }
