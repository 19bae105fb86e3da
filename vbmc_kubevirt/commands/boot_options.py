# SPDX-License-Identifier: Apache-2.0
"""Boot options (sections 28.12 to 28.14)."""

from __future__ import annotations

import logging

from sushy_kubevirt.machine import boot
from vbmc_kubevirt.commands import completion
from vbmc_kubevirt.commands import group
from vbmc_kubevirt.commands import set_in_progress
from vbmc_kubevirt.ipmi import channel
from vbmc_kubevirt.ipmi import constants

LOG = logging.getLogger(__name__)

#: Boot device selector (table 28-14). Virtual media are what it calls
#: remotely connected.
BOOT_DEVICES = {
    0: boot.Target.NONE,
    1: boot.Target.PXE,
    2: boot.Target.HDD,
    5: boot.Target.CD,
    7: boot.Target.USB,
    8: boot.Target.CD,
    15: boot.Target.USB,
}
_SELECTORS = {
    boot.Target.NONE: 0,
    boot.Target.PXE: 1,
    boot.Target.HDD: 2,
    boot.Target.CD: 5,
    boot.Target.USB: 15,
    # Only Redfish can set this override.
    boot.Target.UEFI_HTTP: 8,
}

# Boot flags, first byte (table 28-14).
_VALID = 0x80
_PERSISTENT = 0x40
_EFI = 0x20

#: Boot option parameters (table 28-14).
VALID_BIT_CLEARING, INFO_ACKNOWLEDGE, BOOT_FLAGS = 3, 4, 5
PARAMETER_VERSION = 1

#: BMC boot flag valid bit clearing (table 28-14): every "don't clear" bit is
#: set, because only a boot clears the flags.
_NEVER_CLEARED = 0x1f

_LEVEL = constants.Privilege


class BootOptions(set_in_progress.Parameters):
    """Commands about boot options."""

    netfn = constants.CHASSIS

    @group.command(0x08, 'Set System Boot Options', _LEVEL.OPERATOR, 1,
                   modifies=True)
    def set_boot_options(self, session: channel.Session, data: bytes) -> None:
        parameter, values = data[0] & 0x7f, data[1:]
        too_short = constants.Completion.LENGTH_INVALID
        if parameter == set_in_progress.PARAMETER:
            completion.refuse_if(len(values) < 1, too_short)
            self.set_progress(session, values[0])
        elif parameter == VALID_BIT_CLEARING:
            completion.refuse_if(len(values) < 1, too_short)
        elif parameter == INFO_ACKNOWLEDGE:
            # For the system's firmware, which does not use it here.
            completion.refuse_if(len(values) < 2, too_short)
        elif parameter == BOOT_FLAGS:
            # A request without data only sets the lock bit (bit 7).
            if values:
                completion.refuse_if(len(values) < 5, too_short)
                self._set_boot_flags(values)
        else:
            raise completion.RequestError(
                constants.Completion.PARAMETER_NOT_SUPPORTED)

    def _set_boot_flags(self, values: bytes) -> None:
        flags, device = values[0], values[1] >> 2 & 0x0f
        target = BOOT_DEVICES.get(device)
        if target is None:
            raise completion.RequestError(constants.Completion.INVALID_FIELD)
        if not flags & _VALID:
            target = boot.Target.NONE
        if target is boot.Target.NONE:
            enabled = boot.Enabled.DISABLED
        elif flags & _PERSISTENT:
            enabled = boot.Enabled.CONTINUOUS
        else:
            enabled = boot.Enabled.ONCE
        mode = boot.Mode.UEFI if flags & _VALID and flags & _EFI else None
        self._bmc.machine().set_boot(target=target, enabled=enabled, mode=mode)
        LOG.info('%s: boot %s, %s%s', self._bmc.name, target.value,
                 enabled.value, f', {mode.value}' if mode else '')

    @group.command(0x09, 'Get System Boot Options', _LEVEL.OPERATOR, 3)
    def get_boot_options(self, session: channel.Session, data: bytes) -> bytes:
        parameter = data[0] & 0x7f
        if parameter == set_in_progress.PARAMETER:
            values = self.progress()
        elif parameter == VALID_BIT_CLEARING:
            values = bytes((_NEVER_CLEARED,))
        elif parameter == INFO_ACKNOWLEDGE:
            values = bytes(2)
        elif parameter == BOOT_FLAGS:
            values = self._boot_flags(self._bmc.machine().boot())
        else:
            raise completion.RequestError(
                constants.Completion.PARAMETER_NOT_SUPPORTED)
        return bytes((PARAMETER_VERSION, parameter)) + values

    @staticmethod
    def _boot_flags(state: boot.BootState) -> bytes:
        flags = _EFI if state.mode is boot.Mode.UEFI else 0
        device = 0
        if state.enabled is not boot.Enabled.DISABLED:
            flags |= _VALID
            device = _SELECTORS[state.target] << 2
        if state.enabled is boot.Enabled.CONTINUOUS:
            flags |= _PERSISTENT
        return bytes((flags, device, 0, 0, 0))
