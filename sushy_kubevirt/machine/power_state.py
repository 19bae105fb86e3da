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
    """The guest runs."""

    OFF = 'Off'
    """No guest runs and none is on its way, or none that can come."""

    POWERING_ON = 'PoweringOn'
    """A VMI is on its way."""

    POWERING_OFF = 'PoweringOff'
    """The VMI is ending. Another one may follow."""

    PAUSED = 'Paused'
    """The guest is there and its vCPUs stand still."""


class ResetType(enum.Enum):
    """Values of Redfish's ``ResetType``."""

    ON = 'On'
    """Switch on."""

    FORCE_ON = 'ForceOn'
    """Switch on; the same here."""

    FORCE_OFF = 'ForceOff'
    """Pull the plug."""

    GRACEFUL_SHUTDOWN = 'GracefulShutdown'
    """Ask the guest to shut down, within its own grace period."""

    FORCE_RESTART = 'ForceRestart'
    """Begin anew at once, with pending changes of boot and firmware."""

    GRACEFUL_RESTART = 'GracefulRestart'
    """Ask the guest to shut down, then start."""

    POWER_CYCLE = 'PowerCycle'
    """Off at once, then on."""

    PUSH_POWER_BUTTON = 'PushPowerButton'
    """Ask a guest to shut down, or switch on."""

    PAUSE = 'Pause'
    """Let the vCPUs stand still."""

    RESUME = 'Resume'
    """Let them go on."""

    NMI = 'Nmi'
    """A diagnostic interrupt, which KubeVirt has no way to give."""


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
        if run_strategy.starting(vm, vmi) or _just_made(vm, vmi):
            return PowerState.POWERING_ON
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


def _just_made(vm, vmi):
    # The VM's status reports a VMI that the watch has not delivered yet.
    said = (vm.get('status') or {}).get('printableStatus')
    return (vmi is None and said == 'Starting'
            and run_strategy.of(vm) != run_strategy.HALTED)


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
        return _of_vmi(vm, vmi)
    if not run_strategy.starting(vm, vmi):
        return None
    return _of_vm(vm)


def _of_vmi(vm, vmi):
    for reason, (type_, cause) in _STUCK.items():
        condition = _condition(vmi, type_, 'False')
        if condition and condition.get('reason') == cause:
            return Problem(reason, _sentence(condition, reason))
    condition = _condition(vmi, 'Synchronized', 'False')
    if condition and (condition.get('reason') or '').startswith('Failed'):
        # Other reasons describe steps of a start that are not finished.
        return Problem(condition['reason'],
                       _sentence(condition, condition['reason']))
    return _of_volumes(vm)


def _of_vm(vm):
    failure = _condition(vm, 'Failure', 'True')
    status = vm.get('status') or {}
    failures = status.get('startFailure')
    if failures and status.get('printableStatus') == 'CrashLoopBackOff':
        message = ('It failed to start and is tried again later '
                   '(failures in a row: %s)'
                   % failures.get('consecutiveFailCount', 1))
        if failure:
            message += ': ' + _sentence(failure, 'Failure')
        return Problem('CrashLoopBackOff', message)
    if failure:
        reason = failure.get('reason') or 'Failure'
        return Problem(reason, _sentence(failure, reason))
    return _of_volumes(vm)


def _of_volumes(vm):
    # The only such status without a condition of the VMI.
    said = (vm.get('status') or {}).get('printableStatus')
    if said != 'DataVolumeError':
        return None
    condition = _condition(vm, 'DataVolumesReady', 'False')
    return Problem(said, '%s. The VM\'s virtual media, or kubectl get '
                   'datavolumes, tell which and why'
                   % _sentence(condition or {}, said).rstrip('.'))


def _condition(obj, type_, status):
    for condition in (obj.get('status') or {}).get('conditions') or ():
        if (condition.get('type') == type_
                and condition.get('status') == status):
            return condition
    return None


def _sentence(condition, reason):
    return condition.get('message') or f'KubeVirt says {reason}'
