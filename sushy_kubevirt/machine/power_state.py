# SPDX-License-Identifier: Apache-2.0
"""The power state of a VM, and why a VM that was started cannot run.

Reads only; `reset` changes the state.
"""

from __future__ import annotations

from collections import abc
import dataclasses
import datetime
import enum
import time
import typing

from sushy_kubevirt.machine import run_strategy
from sushy_kubevirt.machine import vm_state

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import objects

_Object: typing.TypeAlias = (
    'objects.VirtualMachine | objects.VirtualMachineInstance')


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
    processed a stop, or the end of the guest, yet."""

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
    """Why a VM that was started cannot run, or does not work.

    :param reason: one word, such as ``ErrorUnschedulable`` (KubeVirt's
        ``printableStatus`` where it has one for the problem)
    :param message: KubeVirt's message
    :param since: when an attempt to start failed first, in seconds since the
        epoch; 0 if KubeVirt has repeated the start already
    """

    reason: str
    message: str
    since: float = dataclasses.field(default=0.0, compare=False)


#: Age, in seconds, at which a failed start is a `Problem`. The scheduler
#: repeats a failed attempt after 1 s, then 2 s (podInitialBackoffSeconds), and
#: KubeVirt's controllers after 5 ms, doubled at each attempt: what they
#: resolve by that is a step of a start.
GRACE_SECONDS = 5.0

#: Reasons of the VMI's condition ``Synchronized`` that describe a step of a
#: start that is not finished. All others are failures: virt-controller's
#: (pkg/controller/controller.go, KubeVirt 1.9) and `_SYNC_FAILED`.
_STEPS = ('', 'BackendStorageNotReady', 'PVCNotReady', 'MissingAttachmentPod',
          'UtilityVolumeMigrationPending')

#: Reasons of a pod's condition ``PodScheduled`` for which KubeVirt has no
#: status: an error of the scheduler, and gates that another controller has
#: not removed (k8s.io/api/core/v1/types.go, Kubernetes 1.37). virt-controller
#: keeps the first reason until the pod has a node.
_UNSCHEDULED = 'SchedulerError', 'SchedulingGated'

#: virt-handler's reason for each failed synchronization, for example a guest
#: that libvirt cannot define or start (pkg/virt-handler/vm.go, KubeVirt 1.9).
_SYNC_FAILED = 'Synchronizing with the Domain failed.'

#: `Problem.reason` of these, and that of `sync_failure`.
SYNC_FAILED = 'SyncFailed'

#: `Problem.reason` of a claim that does not exist.
CLAIM_MISSING = 'ErrorPvcNotFound'

#: Reasons of `Problem` by that of the condition, where they differ:
#: printableStatus, or the reason of the Event.
_REASONS = {'FailedPvcNotFound': CLAIM_MISSING,
            'Unschedulable': 'ErrorUnschedulable',
            _SYNC_FAILED: SYNC_FAILED}

#: `Problem.reason`, see `_has_failed_start`.
_START_FAILED = 'StartFailed'

#: Condition of a VM, and `Problem.reason`, see `recovery_required`.
_RECOVERY = 'ManualRecoveryRequired'

#: Values of ``printableStatus`` for a volume that is not ready, which KubeVirt
#: prefers to those of images.
_VOLUME_STEPS = 'Provisioning', 'WaitingForVolumeBinding'

#: `Problem.reason` of a guest that an I/O error of its storage has paused.
IO_ERROR = 'PausedIOError'

#: ``status.reason`` of a VMI whose node does not respond; `Problem.reason`.
NODE_LOST = 'NodeUnresponsive'

#: Values of ``printableStatus`` that only a VM with a VMI in phase ``Running``
#: has.
_OF_A_GUEST = 'Running', 'Paused'

#: Those that only a VM with a VMI has.
_OF_A_VMI = (*_OF_A_GUEST, 'ErrorPvcNotFound', 'ErrorUnschedulable',
             'ErrImagePull', 'ImagePullBackOff')

#: The kubelet alternates between these while it repeats a download.
_IMAGE_FAILURES = ('ErrImagePull', 'ImagePullBackOff')


def of(state: vm_state.VmState) -> PowerState:
    """Return the power state of a VM."""
    vm, vmi = state.vm, state.vmi
    if not vm_state.is_active(vmi):
        if problem(state):
            return PowerState.OFF
        if state.starting():
            return PowerState.POWERING_ON
        if state.stop_pending():
            return PowerState.POWERING_OFF
        # A VM's status may tell of a VMI that the watch has not delivered.
        status = (vm.get('status') or {}).get('printableStatus')
        unknown = vmi is None and not state.vmi_gone
        unseen = status in _OF_A_VMI and unknown and vm_state.vmi_seen(vm)
        starting = status == 'Starting' and (
            vmi is None or vm_state.is_deleting(vmi))
        if ((starting or unseen)
                and run_strategy.of(vm) != run_strategy.HALTED):
            return PowerState.POWERING_ON
        if unseen or status in ('Starting', 'Stopping') and unknown:
            return PowerState.POWERING_OFF
        # The end of a VMI may be delivered before the restart that caused it.
        if (status in _OF_A_GUEST and vm_state.vmi_seen(vm)
                and not vm_state.requests(vm)
                and run_strategy.of(vm) != run_strategy.HALTED):
            return PowerState.POWERING_OFF
        return PowerState.OFF
    if state.stopping():
        return PowerState.POWERING_OFF
    if vm_state.phase(vmi) in ('Running', 'Unknown'):
        # Unknown: its node does not respond; the guest may still run.
        if paused(vmi):
            return PowerState.PAUSED
        return PowerState.ON
    if problem(state):
        return PowerState.OFF
    return PowerState.POWERING_ON


def paused(vmi: objects.VirtualMachineInstance) -> bool:
    """Return whether a guest's vCPUs are paused, by a client or by an error
    of its storage; also while the guest is being stopped.
    """
    return _condition(vmi, 'Paused', 'True') is not None


def node_lost(vmi: objects.VirtualMachineInstance | None
              ) -> typing.TypeGuard[objects.VirtualMachineInstance]:
    """Return whether the node that a guest ran on does not respond.

    KubeVirt's node controller (pkg/virt-controller/watch/node) ends the VMIs
    of such a node with the reason ``NodeUnresponsive``.
    """
    return vmi is not None and (
        vm_state.phase(vmi) == 'Unknown' or
        (vmi.get('status') or {}).get('reason') == NODE_LOST)


def impairment(vmi: objects.VirtualMachineInstance | None) -> Problem | None:
    """Return why a guest that was running does not work.

    Its node does not respond, or virt-handler reports an I/O error that has
    paused it (calculatePausedCondition in pkg/virt-handler/vm.go, KubeVirt
    1.9). KubeVirt takes a guest whose node does not respond for ended, but
    it may still run.
    """
    if node_lost(vmi):
        node = (vmi.get('status') or {}).get('nodeName') or 'of the guest'
        return Problem(NODE_LOST, f'Node {node} did not respond')
    if not vm_state.is_active(vmi):
        return None
    condition = _condition(vmi, 'Paused', 'True') or {}
    if condition.get('reason') != IO_ERROR:
        return None
    return Problem(IO_ERROR, _message(condition, IO_ERROR))


def reconcile_error(vm: objects.VirtualMachine) -> Problem | None:
    """Return why KubeVirt's controller does not do what the VM requests.

    Until it is resolved, stops, restarts and changes of volumes may have no
    effect (sync in pkg/virt-controller/watch/vm/vm.go, KubeVirt 1.9). A guest
    that runs is not affected.

    :returns: None if there is none, or it is younger than `GRACE_SECONDS`
    """
    return after_grace(_reconcile_failure(vm))


def _reconcile_failure(vm: objects.VirtualMachine) -> Problem | None:
    condition = _condition(vm, 'Failure', 'True')
    return _condition_failure(condition, vm) if condition else None


def problem(state: vm_state.VmState) -> Problem | None:
    """Return why a VM that was started cannot run.

    A start that failed is repeated by KubeVirt, and becomes a problem if it
    still fails after `GRACE_SECONDS`.

    :returns: None for a VM that runs, is off or may still start
    """
    return after_grace(_failure(state))


def failures(state: vm_state.VmState) -> tuple[Problem | None, ...]:
    """Return what `problem` and `reconcile_error` return in the end, if the
    VM and its VMI do not change.
    """
    return _failure(state), _reconcile_failure(state.vm)


def after_grace(failure: Problem | None) -> Problem | None:
    """Return a failure that is a problem by now, else None."""
    return failure if failure and _remaining(failure) <= 0 else None


def seconds_until_problem(state: vm_state.VmState
                          ) -> float | None:
    """Return when a failed start will be a `problem`, by time alone.

    :returns: seconds; None if nothing has failed, or it is a problem already
    """
    failure = _failure(state)
    seconds = failure and _remaining(failure)
    return seconds if seconds and seconds > 0 else None


def _remaining(failure: Problem) -> float:
    # By the clock of the cluster's controllers; the difference to this host's
    # clock shortens or prolongs the time.
    return failure.since + GRACE_SECONDS - time.time()


def _failure(state: vm_state.VmState) -> Problem | None:
    """Return why a VM that was started cannot run, from the first failure on.
    """
    vmi = state.vmi
    if vm_state.is_active(vmi):
        if (vm_state.phase(vmi) in ('Running', 'Unknown')
                or state.stopping()):
            return None
        return _vmi_failure(state.vm, vmi)
    if state.starting():
        return _vm_failure(state.vm)
    if vmi is not None and _has_failed_start(state.vm, vmi):
        return Problem(_START_FAILED, _message(
            _condition(vmi, 'Synchronized', 'False') or {
                'message': 'The VMI ended before its guest ran'}, ''))
    return None


def _has_failed_start(vm: objects.VirtualMachine,
                      vmi: objects.VirtualMachineInstance) -> bool:
    """Return True for a VMI that has failed before its guest ran, and that
    KubeVirt keeps without starting another.

    virt-handler's last error is in its condition ``Synchronized``
    (handleSyncError in pkg/virt-handler/vm.go, KubeVirt 1.9).
    """
    return (run_strategy.of(vm) in (run_strategy.MANUAL, run_strategy.ONCE)
            and vm_state.phase(vmi) == 'Failed'
            and not vm_state.has_run(vmi)
            and not vm_state.is_deleting(vmi))


def _vmi_failure(vm: objects.VirtualMachine,
                 vmi: objects.VirtualMachineInstance) -> Problem | None:
    """Return the failure that KubeVirt's ``printableStatus`` prefers.

    The order is that of setPrintableStatus in
    pkg/virt-controller/watch/vm/vm.go, KubeVirt 1.9. Conditions of the VMI
    are read, as the VM's status may still describe the previous VMI.
    """
    synchronized = _condition(vmi, 'Synchronized', 'False') or {}
    reason = synchronized.get('reason') or ''
    if reason == 'FailedPvcNotFound':
        return _condition_failure(synchronized, vmi)
    volume = _volume_failure(vm)
    if volume is not None:
        return volume
    scheduled = _condition(vmi, 'PodScheduled', 'False') or {}
    if (scheduled.get('reason') == 'Unschedulable'
            and not _is_outdated(scheduled, vmi)):
        return _condition_failure(scheduled, vmi)
    status = (vm.get('status') or {}).get('printableStatus')
    if reason not in _STEPS and (reason not in _IMAGE_FAILURES
                                 or status not in _VOLUME_STEPS):
        return _condition_failure(synchronized, vmi)
    if scheduled.get('reason') in _UNSCHEDULED:
        return _condition_failure(scheduled, vmi)
    return None


def sync_failure(vmi: objects.VirtualMachineInstance) -> tuple[str, str]:
    """Return why virt-launcher fails to carry out a change of a running VMI.

    :returns: (reason, virt-launcher's message), each '' if it does not fail
    """
    synchronized = _condition(vmi, 'Synchronized', 'False') or {}
    if synchronized.get('reason') != _SYNC_FAILED:
        return '', ''
    return SYNC_FAILED, synchronized.get('message') or ''


def _is_outdated(scheduled: objects.Condition,
                 vmi: objects.VirtualMachineInstance) -> bool:
    """Return True for an ``Unschedulable`` of a PVC that exists by now.

    virt-controller sets it, without a time, while a PVC is missing, and keeps
    it until there is a pod to schedule. If that is unschedulable, too, the
    condition stays as it is; otherwise virt-controller removes it soon after
    the phase becomes ``Scheduling`` (updateStatus in
    pkg/virt-controller/watch/vmi/lifecycle.go, KubeVirt 1.9).
    """
    return (vm_state.phase(vmi) in ('', 'Pending')
            and scheduled.get('lastTransitionTime', '') is None)


def recovery_required(vm: objects.VirtualMachine) -> Problem | None:
    """Return why KubeVirt creates no VMI of a VM until its volumes are mended.

    The guest ended while its volumes were migrated (syncVolumeMigration in
    pkg/virt-controller/watch/vm/vm.go, KubeVirt 1.9). The reason of the
    condition is a sentence; it has neither a message nor a time.
    """
    condition = _condition(vm, _RECOVERY, 'True')
    if condition is None:
        return None
    return Problem(_RECOVERY, (
        f'{condition.get("reason") or "KubeVirt reports " + _RECOVERY}. Set '
        'the volumes of the VM to their original claims'))


def migrates_volumes(vm: objects.VirtualMachine) -> bool:
    """Return whether the volumes of a running VM are being migrated.

    KubeVirt refuses restarts meanwhile (RestartVMRequestHandler in
    pkg/virt-api/rest/lifecycle.go, KubeVirt 1.9).
    """
    return _condition(vm, 'VolumesChange', 'True') is not None


def _vm_failure(vm: objects.VirtualMachine) -> Problem | None:
    volume = _volume_failure(vm)
    if volume is not None:
        return volume
    recovery = recovery_required(vm)
    if recovery is not None:
        return recovery
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
    return _condition_failure(failure, vm) if failure else None


def _volume_failure(vm: objects.VirtualMachine) -> Problem | None:
    # The only such status without a condition of the VMI.
    status = (vm.get('status') or {}).get('printableStatus')
    if status != 'DataVolumeError':
        return None
    condition = _condition(vm, 'DataVolumesReady', 'False')
    message = _message(condition or {}, status).rstrip('.')
    return Problem(
        status, f'{message}. See the VM\'s virtual media and '
        'kubectl get datavolumes for the volume and the reason')


def _condition_failure(condition: objects.Condition, obj: _Object
                       ) -> Problem:
    """Return the failure that a condition describes.

    :param obj: the VM or VMI that has it
    """
    cause = condition.get('reason') or condition['type']
    reason = _REASONS.get(cause, cause)
    since = None
    if cause not in _IMAGE_FAILURES:
        since = condition.get('lastTransitionTime') or _phase_began(obj)
    since = since or obj['metadata'].get('creationTimestamp')
    return Problem(
        reason, _message(condition, reason),
        datetime.datetime.fromisoformat(since).timestamp() if since else 0.0)


def _phase_began(obj: _Object) -> str | None:
    # A VM has none.
    status: abc.Mapping[str, typing.Any] = obj.get('status') or {}
    for entry in status.get('phaseTransitionTimestamps') or ():
        if entry.get('phase') == status.get('phase'):
            return entry.get('phaseTransitionTimestamp')
    return None


def _condition(obj: _Object, type_: str, status: str
               ) -> objects.Condition | None:
    for condition in (obj.get('status') or {}).get('conditions') or ():
        if (condition.get('type') == type_
                and condition.get('status') == status):
            return condition
    return None


def _message(condition: objects.Condition, reason: str) -> str:
    return condition.get('message') or f'KubeVirt reports {reason}'
