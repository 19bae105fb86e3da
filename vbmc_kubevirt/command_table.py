# SPDX-License-Identifier: Apache-2.0
"""All IPMI commands of a BMC."""

from __future__ import annotations

from vbmc_kubevirt import bmc
from vbmc_kubevirt.commands import boot_options
from vbmc_kubevirt.commands import channels
from vbmc_kubevirt.commands import chassis
from vbmc_kubevirt.commands import dcmi
from vbmc_kubevirt.commands import device
from vbmc_kubevirt.commands import fru
from vbmc_kubevirt.commands import lan
from vbmc_kubevirt.commands import payload
from vbmc_kubevirt.commands import sdr
from vbmc_kubevirt.commands import sel
from vbmc_kubevirt.commands import sel_clock
from vbmc_kubevirt.commands import sensors
from vbmc_kubevirt.commands import sol_configuration
from vbmc_kubevirt.commands import system_info
from vbmc_kubevirt.commands import system_interface
from vbmc_kubevirt.commands import users
from vbmc_kubevirt.commands import watchdog
from vbmc_kubevirt.ipmi import channel
from vbmc_kubevirt.ipmi import server

GROUPS = (
    device.Device, channels.Channels, lan.Lan, chassis.Chassis,
    boot_options.BootOptions, system_info.SystemInfo, dcmi.Dcmi, users.Users,
    payload.Payload, sol_configuration.SolConfiguration,
    system_interface.SystemInterface, sdr.Repository, sensors.Sensors,
    sel.Sel, sel_clock.SelClock, fru.Fru, watchdog.Watchdog)


def commands(bmc: bmc.Bmc) -> dict[channel.Code, server.Command]:
    """Make the commands, with the privileges of table G-1."""
    groups = [group(bmc) for group in GROUPS]
    bmc.on_reset += [group.release for group in groups]
    return {code: command for group in groups
            for code, command in group.commands().items()}
