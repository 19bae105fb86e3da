# SPDX-License-Identifier: Apache-2.0
"""What a BMC can do to a machine's power.

The table of actions; what they do is in `switching` and `restarting`. Words
and states are in `power`, what KubeVirt does by itself in `runstrategy`.
"""

import logging

from sushy_kubevirt.kubevirt import errors
from sushy_kubevirt.kubevirt import power
from sushy_kubevirt.kubevirt import resources
from sushy_kubevirt.kubevirt import restarting
from sushy_kubevirt.kubevirt import switching

LOG = logging.getLogger(__name__)

#: How long a caller waits to read back a pause, which the node reports.
_PAUSE_SECONDS = 3.0


def reset(machine, reset_type):
    """Change a machine's power.

    :param machine: a `machine.Machine`
    :param reset_type: a `power.ResetType`
    :raises: `errors.WrongState` where the present state forbids it,
        `errors.Unsupported` for a diagnostic interrupt
    """
    action = _ACTIONS.get(reset_type)
    if action is None:
        raise errors.Unsupported(
            'KubeVirt cannot do %s to a VM' % reset_type.value)
    LOG.info('%s of %s', reset_type.value, machine.qualified_name)
    action(machine)


def _push_button(machine):
    vm, vmi = machine.write(lambda vm, vmi: (vm, vmi))
    state = power.state(vm, vmi)
    if state is power.PowerState.OFF:
        switching.on(machine)
    elif state is not power.PowerState.POWERING_OFF:
        switching.shut_down(machine)


def _pause(machine):
    _stand(machine, power.PowerState.ON, 'pause', power.PowerState.PAUSED)


def _resume(machine):
    _stand(machine, power.PowerState.PAUSED, 'unpause', power.PowerState.ON)


def _stand(machine, before, action, after):
    def step(vm, vmi):
        state = power.state(vm, vmi)
        if state is after:
            return
        if state is not before:
            raise errors.WrongState(
                '%s is %s; only a machine that is %s can %s' % (
                    machine.qualified_name, state.value, before.value,
                    'be paused' if action == 'pause' else 'be resumed'))
        try:
            machine.call(action, resource=resources.VMI)
        except errors.AccessDenied as e:
            # virt-api says Forbidden to a VMI with such a probe too.
            if 'LivenessProbe' in str(e):
                raise errors.Rejected(str(e)) from None
            raise

    machine.write(step)
    machine.wait(lambda vm, vmi: power.state(vm, vmi) is not before,
                 _PAUSE_SECONDS)


_ACTIONS = {
    power.ResetType.ON: switching.on,
    power.ResetType.FORCE_ON: switching.on,
    power.ResetType.FORCE_OFF: switching.force_off,
    power.ResetType.GRACEFUL_SHUTDOWN: switching.shut_down,
    power.ResetType.FORCE_RESTART: restarting.restart,
    power.ResetType.GRACEFUL_RESTART: restarting.restart_gracefully,
    power.ResetType.POWER_CYCLE: restarting.restart,
    power.ResetType.PUSH_POWER_BUTTON: _push_button,
    power.ResetType.PAUSE: _pause,
    power.ResetType.RESUME: _resume,
}
