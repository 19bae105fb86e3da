# SPDX-License-Identifier: Apache-2.0
"""Chassis commands (section 28) but for boot options."""

import logging

from sushy_kubevirt.machine import power_restore_policy
from sushy_kubevirt.machine import power_state
from vbmc_kubevirt.commands import completion
from vbmc_kubevirt.ipmi import constants
from vbmc_kubevirt.ipmi import server

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
_POLICIES = {policy: number for number, policy in RESTORE_POLICIES.items()}
# 3 leaves the policy unchanged (table 28-8).
_LEAVE_POLICY = 3
# Bitmap of supported policies in the response.
_ALL_POLICIES = 0x07

_LEVEL = constants.Privilege


def commands(bmc):
    """Return the commands of this module.

    :param bmc: a `bmc.Bmc`
    """
    chassis = _Chassis(bmc)
    return {
        (constants.CHASSIS, 0x01): server.Command(
            'Get Chassis Status',
            bmc.map_errors(chassis.get_chassis_status), _LEVEL.USER),
        (constants.CHASSIS, 0x02): server.Command(
            'Chassis Control',
            bmc.map_errors(chassis.chassis_control), _LEVEL.OPERATOR,
            min_length=1, modifies=True),
        (constants.CHASSIS, 0x06): server.Command(
            'Set Power Restore Policy',
            bmc.map_errors(chassis.set_restore_policy), _LEVEL.OPERATOR,
            min_length=1, modifies=True),
    }


class _Chassis:

    def __init__(self, bmc):
        self._bmc = bmc

    def get_chassis_status(self, session, data):
        machine = self._bmc.machine()
        policy = machine.power_restore_policy()
        state = _POLICIES.get(
            policy, _RESTORE_POLICY_UNKNOWN) << _RESTORE_POLICY_SHIFT
        if machine.power_state() in POWERED:
            state |= _POWER_ON
        if machine.problem() is not None:
            state |= _POWER_CONTROL_FAULT
        return bytes((state, 0, 0))

    def chassis_control(self, session, data):
        reset_type = CHASSIS_CONTROL.get(data[0] & 0x0f)
        if reset_type is None:
            raise completion.RequestError(constants.Completion.INVALID_FIELD)
        self._bmc.machine().reset(reset_type)
        LOG.info('%s: %s', self._bmc.name, reset_type.value)

    def set_restore_policy(self, session, data):
        """Set Power Restore Policy (section 28.8)."""
        number = data[0] & 0x07
        if number != _LEAVE_POLICY:
            if number not in RESTORE_POLICIES:
                raise completion.RequestError(
                    constants.Completion.INVALID_FIELD)
            policy = RESTORE_POLICIES[number]
            self._bmc.machine().set_power_restore_policy(policy)
            LOG.info('%s: power restore policy %s', self._bmc.name,
                     policy.value)
        return bytes((_ALL_POLICIES,))
