# SPDX-License-Identifier: Apache-2.0
"""The power state of a VM, and why a VM that was started cannot run.

Reads only; `reset` changes the state.
"""

import dataclasses
import enum

from sushy_kubevirt.machine import run_strategy


class PowerState(enum.Enum):
    """Values of Redfish's ``PowerState``."""

    ON = 'On'
    """The guest is running."""

    OFF = 'Off'
    """No guest is running, and none is starting or its start failed."""

    POWERING_ON = 'PoweringOn'
    """A VMI is starting or will be created."""

    POWERING_OFF = 'PoweringOff'
    """The VMI is being stopped, possibly for a restart, or KubeVirt has not
    processed a stop yet."""

    PAUSED = 'Paused'
    """The guest's vCPUs are paused."""


class ResetType(enum.Enum):
    """Values of Redfish's ``ResetType``."""

    ON = 'On'
    """Power on, or resume a paused guest."""

    FORCE_ON = 'ForceOn'
    """The same as ``On``."""

    FORCE_OFF = 'ForceOff'
    """Stop the guest with grace period 0."""

    GRACEFUL_SHUTDOWN = 'GracefulShutdown'
    """Ask the guest to shut down, within its own grace period."""

    FORCE_RESTART = 'ForceRestart'
    """Replace the VMI at once; applies pending boot and firmware settings."""

    GRACEFUL_RESTART = 'GracefulRestart'
    """Ask the guest to shut down, then start a new VMI."""

    POWER_CYCLE = 'PowerCycle'
    """The same as ``ForceRestart``."""

    PUSH_POWER_BUTTON = 'PushPowerButton'
    """``GracefulShutdown`` of a machine that is on, ``On`` of one that is off.
    """

    PAUSE = 'Pause'
    """Pause the guest's vCPUs."""

    RESUME = 'Resume'
    """Resume the guest's vCPUs."""

    NMI = 'Nmi'
    """A diagnostic interrupt, which KubeVirt does not support."""


#: The ResetTypes that KubeVirt supports.
OFFERED = tuple(item for item in ResetType if item is not ResetType.NMI)


@dataclasses.dataclass(frozen=True)
class Problem:
    """Why a VM that was started cannot run.

    :param reason: one word, such as ``ErrorUnschedulable`` (KubeVirt's
        ``printableStatus`` where it has one for the problem)
    :param message: KubeVirt's message
    """

    reason: str
    message: str


# printableStatus of a VM whose VMI cannot start, and the condition of the VMI
# that it is derived from: type and reason (setPrintableStatus in
# pkg/virt-controller/watch/vm/vm.go, KubeVirt 1.9). The VMI's condition is
# read, as the VM's printableStatus may still describe the previous VMI.
_STUCK = {
    'ErrorUnschedulable': ('PodScheduled', 'Unschedulable'),
    'ErrImagePull': ('Synchronized', 'ErrImagePull'),
    'ImagePullBackOff': ('Synchronized', 'ImagePullBackOff'),
    'ErrorPvcNotFound': ('Synchronized', 'FailedPvcNotFound'),
}


def state(vm, vmi):
    """Return the power state of a VM.

    :param vm: the VM
    :param vmi: its VMI, or None
    :returns: a `PowerState`
    """
    if not run_strategy.is_active(vmi):
        if problem(vm, vmi):
            return PowerState.OFF
        if run_strategy.starting(vm, vmi):
            return PowerState.POWERING_ON
        if run_strategy.stop_pending(vm, vmi):
            return PowerState.POWERING_OFF
        # A VM's status may tell of a VMI that the watch has not delivered.
        status = (vm.get('status') or {}).get('printableStatus')
        unseen = (status == 'Running' and vmi is None
                  and run_strategy.vmi_seen(vm))
        if ((status == 'Starting' or unseen)
                and run_strategy.of(vm) != run_strategy.HALTED):
            return PowerState.POWERING_ON
        if unseen or (status in ('Starting', 'Stopping') and vmi is None
                      and not run_strategy.vmi_gone(vm)):
            return PowerState.POWERING_OFF
        return PowerState.OFF
    if run_strategy.stopping(vm, vmi):
        return PowerState.POWERING_OFF
    if run_strategy.phase(vmi) in ('Running', 'Unknown'):
        # Unknown: its node does not respond; the guest may still run.
        if _condition(vmi, 'Paused', 'True'):
            return PowerState.PAUSED
        return PowerState.ON
    if problem(vm, vmi):
        return PowerState.OFF
    return PowerState.POWERING_ON


def node_lost(vmi):
    """Return whether the node that a guest ran on does not respond.

    KubeVirt's node controller (pkg/virt-controller/watch/node) ends the VMIs
    of such a node with the reason ``NodeUnresponsive``.

    :param vmi: the VMI, or None
    """
    return vmi is not None and (
        run_strategy.phase(vmi) == 'Unknown' or
        (vmi.get('status') or {}).get('reason') == 'NodeUnresponsive')


def problem(vm, vmi):
    """Return why a VM that was started cannot run.

    :param vm: the VM
    :param vmi: its VMI, or None
    :returns: a `Problem`; None for a VM that runs, is off or may still start
    """
    if run_strategy.is_active(vmi):
        if (run_strategy.phase(vmi) in ('Running', 'Unknown')
                or run_strategy.stopping(vm, vmi)):
            return None
        return _vmi_problem(vm, vmi)
    if not run_strategy.starting(vm, vmi):
        return None
    return _vm_problem(vm)


def _vmi_problem(vm, vmi):
    for reason, (type_, cause) in _STUCK.items():
        condition = _condition(vmi, type_, 'False')
        if condition and condition.get('reason') == cause:
            return Problem(reason, _message(condition, reason))
    condition = _condition(vmi, 'Synchronized', 'False')
    if condition and (condition.get('reason') or '').startswith('Failed'):
        # Other reasons describe steps of a start that are not finished.
        return Problem(condition['reason'],
                       _message(condition, condition['reason']))
    return _volume_problem(vm)


def _vm_problem(vm):
    failure = _condition(vm, 'Failure', 'True')
    status = vm.get('status') or {}
    failures = status.get('startFailure')
    if failures and status.get('printableStatus') == 'CrashLoopBackOff':
        count = failures.get('consecutiveFailCount', 1)
        message = ('It failed to start, and KubeVirt will try again '
                   f'(consecutive failures: {count})')
        if failure:
            message += ': ' + _message(failure, 'Failure')
        return Problem('CrashLoopBackOff', message)
    if failure:
        reason = failure.get('reason') or 'Failure'
        return Problem(reason, _message(failure, reason))
    return _volume_problem(vm)


def _volume_problem(vm):
    # The only such status without a condition of the VMI.
    status = (vm.get('status') or {}).get('printableStatus')
    if status != 'DataVolumeError':
        return None
    condition = _condition(vm, 'DataVolumesReady', 'False')
    message = _message(condition or {}, status).rstrip('.')
    return Problem(status, f'{message}. See the VM\'s virtual media and '
                   'kubectl get datavolumes for the volume and the reason')


def _condition(obj, type_, status):
    for condition in (obj.get('status') or {}).get('conditions') or ():
        if (condition.get('type') == type_
                and condition.get('status') == status):
            return condition
    return None


def _message(condition, reason):
    return condition.get('message') or f'KubeVirt reports {reason}'
