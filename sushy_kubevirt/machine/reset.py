# SPDX-License-Identifier: Apache-2.0
"""What a BMC can do to a machine's power.

The table of actions; what they do is in `power_on_off` and `restart`. Words
and states are in `power_state`, what KubeVirt does by itself in `runstrategy`.
"""

import logging

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import power_on_off
from sushy_kubevirt.machine import power_state
from sushy_kubevirt.machine import restart

LOG = logging.getLogger(__name__)

#: How long a caller waits to read back a pause, which the node reports.
_PAUSE_SECONDS = 3.0


def reset(machine, reset_type):
    """Change a machine's power.

    :param machine: a `machine.Machine`
    :param reset_type: a `power_state.ResetType`
    :raises: `errors.WrongState` where the present state forbids it,
        `errors.Unsupported` for a diagnostic interrupt
    """
    action = _ACTIONS.get(reset_type)
    if action is None:
        raise errors.Unsupported(
            f'KubeVirt cannot do {reset_type.value} to a VM')
    LOG.info('%s of %s', reset_type.value, machine.qualified_name)
    action(machine)


def _push_power_button(machine):
    vm, vmi = machine.write(lambda vm, vmi: (vm, vmi))
    state = power_state.state(vm, vmi)
    if state is power_state.PowerState.OFF:
        power_on_off.on(machine)
    elif state is not power_state.PowerState.POWERING_OFF:
        power_on_off.shut_down(machine)


def _pause(machine):
    _set_paused(
        machine,
        power_state.PowerState.ON,
        'pause',
        power_state.PowerState.PAUSED)


def _resume(machine):
    _set_paused(machine, power_state.PowerState.PAUSED,
                'unpause', power_state.PowerState.ON)


def _set_paused(machine, before, action, after):
    def step(vm, vmi):
        state = power_state.state(vm, vmi)
        if state is after:
            return
        if state is not before:
            raise errors.WrongState(
                '%s is %s; only a machine that is %s can %s' % (
                    machine.qualified_name, state.value, before.value,
                    'be paused' if action == 'pause' else 'be resumed'))
        try:
            machine.call(action, resource=api_resources.VMI)
        except errors.AccessDenied as e:
            # virt-api says Forbidden to a VMI with such a probe too.
            if 'LivenessProbe' in str(e):
                raise errors.Rejected(str(e)) from None
            raise

    machine.write(step)
    machine.wait(lambda vm, vmi: power_state.state(vm, vmi) is not before,
                 _PAUSE_SECONDS)


_ACTIONS = {
    power_state.ResetType.ON: power_on_off.on,
    power_state.ResetType.FORCE_ON: power_on_off.on,
    power_state.ResetType.FORCE_OFF: power_on_off.force_off,
    power_state.ResetType.GRACEFUL_SHUTDOWN: power_on_off.shut_down,
    power_state.ResetType.FORCE_RESTART: restart.restart,
    power_state.ResetType.GRACEFUL_RESTART: restart.restart_gracefully,
    power_state.ResetType.POWER_CYCLE: restart.restart,
    power_state.ResetType.PUSH_POWER_BUTTON: _push_power_button,
    power_state.ResetType.PAUSE: _pause,
    power_state.ResetType.RESUME: _resume,
}
