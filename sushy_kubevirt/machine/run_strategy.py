# SPDX-License-Identifier: Apache-2.0
"""Run strategies, and what KubeVirt does with a VM because of them.

The run strategy determines what starts VMIs: KubeVirt (``Always``, ``Once``,
``RerunOnFailure`` after a failure) or a request (``Manual``). Requests stay
in ``status.stateChangeRequests`` until KubeVirt has carried them out. The
functions here predict what virt-controller does next (``syncRunStrategy`` in
``pkg/virt-controller/watch/vm/vm.go``, KubeVirt 1.9). `reset` contains the
BMC's power actions, `power_state` derives the power state.
"""

from __future__ import annotations

import typing

from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.machine import bmc_annotations

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import objects

ALWAYS = 'Always'
RERUN_ON_FAILURE = 'RerunOnFailure'
MANUAL = 'Manual'
HALTED = 'Halted'
ONCE = 'Once'
WAIT_AS_RECEIVER = 'WaitAsReceiver'

#: Annotation of a VM: the run strategy under which Harvester starts it.
HARVESTER = 'harvesterhci.io/vmRunStrategy'

#: Annotation of a VMI: ``metadata.generation`` of the VM it was created from.
VM_GENERATION = 'kubevirt.io/vm-generation'

#: Strategies that may replace Halted at power-on.
STARTABLE = (RERUN_ON_FAILURE, ALWAYS, MANUAL)

#: Strategies that KubeVirt's ``stop`` replaces by ``Halted``.
LOST_BY_STOP = (ALWAYS, ONCE)

#: Strategies under which a guest that shuts itself down stays off.
OFF_AFTER_SHUTDOWN = (RERUN_ON_FAILURE, MANUAL)


class SavedStrategy(typing.NamedTuple):
    """A run strategy to restore; of None if none is saved."""

    strategy: str | None
    #: uid of the VMI that it was saved for.
    vmi_uid: str | None


def of(vm: objects.VirtualMachine) -> str:
    """Return the VM's run strategy.

    The deprecated field ``running`` counts as ``Always`` or ``Halted``.
    """
    spec = vm['spec']
    if spec.get('runStrategy'):
        return spec['runStrategy']
    return ALWAYS if spec.get('running') else HALTED


def uses_running_field(vm: objects.VirtualMachine) -> bool:
    """Return True for a VM that has ``running`` and no run strategy."""
    spec = vm['spec']
    return not spec.get('runStrategy') and spec.get('running') is not None


def requests(vm: objects.VirtualMachine) -> list[objects.Json]:
    """Return the list of requests that KubeVirt has not carried out yet."""
    return (vm.get('status') or {}).get('stateChangeRequests') or []


def start_requested(vm: objects.VirtualMachine) -> bool:
    """Return True if a start is among the `requests`."""
    return any(request.get('action') == 'Start' for request in requests(vm))


def stop_requested(vm: objects.VirtualMachine) -> bool:
    """Return True if a stop is the first of the `requests`.

    For a VM without a VMI it means that KubeVirt has not processed the stop
    yet. Until then it may create a VMI for a start before the stop.
    """
    return (requests(vm) or [{}])[0].get('action') == 'Stop'


def without_vmi(vm: objects.VirtualMachine) -> objects.VirtualMachine:
    """Return a VM whose VMI is known to be gone, with a status that says so.

    KubeVirt may not have updated the status. It omits the field ``created``
    instead of setting it to false.

    :param vm: the VM, not changed
    """
    return {**vm, 'status': {**(vm.get('status') or {}), 'created': False}}


def vmi_gone(vm: objects.VirtualMachine) -> bool:
    """Return True for a VM from `without_vmi`."""
    return (vm.get('status') or {}).get('created') is False


def stop_pending(vm: objects.VirtualMachine,
                 vmi: objects.VirtualMachineInstance | None) -> bool:
    """Return True if a stop is requested, not of a VMI known to have ended.

    :param vmi: None, or a VMI that has ended
    """
    if not stop_requested(vm):
        return False
    if vmi is not None:
        return not _stop_requested_of(vm, vmi)
    return not (vmi_gone(vm) and requests(vm)[0].get('uid'))


def _stop_requested_of(vm: objects.VirtualMachine,
                       vmi: objects.VirtualMachineInstance) -> bool:
    return (stop_requested(vm)
            and requests(vm)[0].get('uid') == vmi['metadata']['uid'])


def phase(vmi: objects.VirtualMachineInstance) -> str:
    """Return the VMI's phase, '' while it has none."""
    return (vmi.get('status') or {}).get('phase') or ''


def is_active(vmi: objects.VirtualMachineInstance | None
              ) -> typing.TypeGuard[objects.VirtualMachineInstance]:
    """Return True for a VMI that has not ended."""
    return vmi is not None and phase(vmi) not in ('Succeeded', 'Failed')


def has_run(vmi: objects.VirtualMachineInstance) -> bool:
    """Return True for a VMI that is, or was, in phase ``Running``.

    One that ends before is a failed start for KubeVirt (``startFailure``).
    """
    transitions = (vmi.get('status') or {}).get('phaseTransitionTimestamps')
    return phase(vmi) in ('Running', 'Unknown') or any(
        transition.get('phase') == 'Running'
        for transition in transitions or ())


def is_latest(vm: objects.VirtualMachine, vmi: objects.VirtualMachineInstance
              ) -> bool:
    """Return True for a VMI with the settings that a new one would get.

    KubeVirt records the generation of the VM that a VMI was created from, and
    updates it after changes outside the template.
    """
    recorded = (vmi['metadata'].get('annotations') or {}).get(
        VM_GENERATION)
    return recorded == str(vm['metadata'].get('generation'))


def is_deleting(obj: objects.Object) -> bool:
    """Return True for an object that is being deleted."""
    return bool(obj['metadata'].get('deletionTimestamp'))


def grace_period(vmi: objects.VirtualMachineInstance) -> int | None:
    """Return the VMI's grace period in seconds; None for the default."""
    return vmi['spec'].get('terminationGracePeriodSeconds')


def stopping(vm: objects.VirtualMachine,
             vmi: objects.VirtualMachineInstance | None) -> bool:
    """Return True for an active VMI that is being stopped."""
    return is_active(vmi) and (
        is_deleting(vmi) or is_deleting(vm) or of(vm) == HALTED
        or _stop_requested_of(vm, vmi))


def starting(vm: objects.VirtualMachine,
             vmi: objects.VirtualMachineInstance | None) -> bool:
    """Return True if KubeVirt will create a VMI without a further request.

    :param vmi: None, or a VMI that has ended or is being stopped: the
        question is then about its successor
    """
    if is_deleting(vm):
        return False
    if start_requested(vm) or start_pending(vm):
        return True
    strategy = of(vm)
    if strategy == ALWAYS:
        return True
    if strategy == ONCE:
        # KubeVirt keeps a VMI that has ended and replaces a deleted one.
        return vmi is None or is_deleting(vmi)
    if strategy == RERUN_ON_FAILURE:
        if vmi is None:
            # KubeVirt creates a VMI when it first observes this strategy.
            observed = (vm.get('status') or {}).get('runStrategy')
            return observed != RERUN_ON_FAILURE
        return phase(vmi) == 'Failed' and not is_deleting(vmi)
    return False


def starting_without_retry(vm: objects.VirtualMachine,
                           vmi: objects.VirtualMachineInstance | None) -> bool:
    """Return True if KubeVirt will attempt the coming start only once.

    KubeVirt starts a VM that has just got ``RerunOnFailure`` when it observes
    the change. If that start fails, or has to wait for a DataVolume or for
    KubeVirt to see the previous VMI gone, the change counts as observed
    nevertheless, and the VM stays off. A start request, in contrast, remains
    until it is carried out.

    :param vmi: see `starting`
    """
    return (vmi is None and of(vm) == RERUN_ON_FAILURE
            and not start_requested(vm) and starting(vm, vmi))


def observed(vm: objects.VirtualMachine) -> bool:
    """Return True if KubeVirt has observed the VM's run strategy."""
    status = vm.get('status') or {}
    return status.get('runStrategy', of(vm)) == of(vm)


def vmi_seen(vm: objects.VirtualMachine) -> bool:
    """Return True if KubeVirt has noticed that the VM has a VMI.

    Its controller reads from caches. While it does not know of a VMI, it
    treats a request to stop that VMI as carried out and drops it.
    """
    return bool((vm.get('status') or {}).get('created'))


def is_idle(vm: objects.VirtualMachine,
            vmi: objects.VirtualMachineInstance | None) -> bool:
    """Return True for a VM that is off, with nothing in progress.

    KubeVirt does nothing with it until the VM changes: it has processed all
    requests and counts no VMI. So as long as the VM has this version, no VMI
    comes into existence, and no old one is being stopped.
    """
    status = vm.get('status') or {}
    return (vmi is None and not is_deleting(vm)
            and of(vm) in (HALTED, *OFF_AFTER_SHUTDOWN)
            and not starting(vm, None) and observed(vm)
            and status.get('printableStatus') == 'Stopped'
            # None and not False: see `without_vmi`.
            and status.get('created') is None
            and not any(status.get(field) for field in (
                'stateChangeRequests', 'startFailure')))


def shows(action: str, vm: objects.VirtualMachine,
          vmi: objects.VirtualMachineInstance | None, before: str | None
          ) -> bool:
    """Return True for objects that show the effect of an action of KubeVirt.

    :param action: ``start``, ``stop`` or ``restart``
    :param before: uid of the VMI that existed before, or None
    """
    if action == 'start':
        return is_active(vmi) or start_requested(vm) or of(vm) == ALWAYS
    return (not is_active(vmi) or vmi['metadata']['uid'] != before
            or stopping(vm, vmi))


def saved(vm: objects.VirtualMachine) -> SavedStrategy:
    """Return the run strategy to restore, see `bmc_annotations`."""
    record = bmc_annotations.read(vm, stored_names.RUN_STRATEGY)
    strategy = record.get('runStrategy')
    if strategy in STARTABLE + (ONCE,):
        return SavedStrategy(strategy, record.get('vmi'))
    return SavedStrategy(None, None)


def save(vm: objects.VirtualMachine, strategy: str,
         vmi_uid: str | None = None) -> None:
    """Save a run strategy to restore in an annotation of the VM.

    :param vm: a copy of the VM, changed in place
    :param vmi_uid: uid of the VMI that it is saved for
    """
    bmc_annotations.write(vm, stored_names.RUN_STRATEGY,
                          {'runStrategy': strategy, 'vmi': vmi_uid})


def clear_saved(vm: objects.VirtualMachine) -> None:
    """Remove the saved run strategy.

    :param vm: a copy of the VM, changed in place
    """
    bmc_annotations.write(vm, stored_names.RUN_STRATEGY, {})


def of_next_start(vm: objects.VirtualMachine, default: str) -> str:
    """Return the run strategy with which a power-on replaces ``Halted``.

    :param default: the strategy of a VM for which none is known
    """
    harvesters = _annotations(vm).get(HARVESTER)
    return saved(vm).strategy or (
        harvesters if harvesters in STARTABLE + (ONCE,) else default)


def tell_harvester(vm: objects.VirtualMachine, edited: objects.VirtualMachine
                   ) -> None:
    """Keep Harvester from replacing a run strategy by another one.

    When ``Halted`` is replaced, Harvester's webhook sets the strategy in its
    own annotation instead of the requested one, ``RerunOnFailure`` without
    that annotation; so ``Manual`` would become a start. A controller writes
    each strategy but ``Halted`` into the annotation, and a start in the user
    interface uses it (patchRunStrategy in
    pkg/webhook/resources/virtualmachine/mutator.go, StoreRunStrategy in
    pkg/controller/master/virtualmachine/vm_controller.go of Harvester 1.9).

    Call it for each change that may set or replace ``Halted``. It changes
    nothing for VMs without annotations and labels of Harvester.

    :param edited: a copy of the VM, changed in place
    """
    strategy: str | None = of(edited)
    if HALTED not in (of(vm), strategy) or uses_running_field(edited):
        return
    if strategy == HALTED:
        strategy = saved(edited).strategy
    if strategy and any(
            name.partition('/')[0].endswith('harvesterhci.io')
            for name in (*_annotations(edited),
                         *(edited['metadata'].get('labels') or ()))):
        edited['metadata'].setdefault('annotations', {})[HARVESTER] = strategy


def _annotations(vm: objects.VirtualMachine) -> dict[str, str]:
    return vm['metadata'].get('annotations') or {}


def halt(vm: objects.VirtualMachine) -> None:
    """Set ``Halted``, or ``running: false``.

    :param vm: a copy of the VM, changed in place
    """
    if uses_running_field(vm):
        vm['spec']['running'] = False
    else:
        vm['spec']['runStrategy'] = HALTED


def restart_options(force: bool | None) -> objects.Json | None:
    """Return the body of KubeVirt's ``restart`` action; None for no body.

    :param force: whether with grace period 0
    """
    return {'gracePeriodSeconds': 0} if force else None


# Restarts under Manual, see `restart`

def restarting(vm: objects.VirtualMachine) -> objects.Json:
    """Return the restart that has not been completed, see `bmc_annotations`.

    :returns: ``vmi``, ``force``, ``runStrategy`` and, if it is true,
        ``startPending``; {} if there is none
    """
    record = bmc_annotations.read(vm, stored_names.RESTART)
    if of(vm) != MANUAL or record.get('runStrategy') not in (
            None, ALWAYS, RERUN_ON_FAILURE, MANUAL, ONCE):
        return {}
    return record


def start_pending(vm: objects.VirtualMachine) -> bool:
    """Return True if a BMC stops the VMI for a restart and is about to
    request the next one, see `vmi_replacement`.
    """
    return bool(restarting(vm).get('startPending'))


def cancel_pending_start(vm: objects.VirtualMachine) -> None:
    """Keep the BMC that restarts a VM, or its successor, from starting it.

    :param vm: a copy of the VM, changed in place
    """
    restart = restarting(vm)
    restart.pop('startPending', None)
    bmc_annotations.write(vm, stored_names.RESTART, restart)


def begin_restart(vm: objects.VirtualMachine, uid: str, force: bool,
                  start_pending: bool = False) -> None:
    """Set ``Manual`` for a restart and record the run strategy to restore:
    the present one, or that of a restart which is not complete.

    :param vm: a copy of the VM, changed in place
    :param uid: uid of the VMI to restart
    :param force: whether with grace period 0
    :param start_pending: see `start_pending`
    """
    bmc_annotations.write(vm, stored_names.RESTART, {
        'vmi': uid, 'force': force,
        'runStrategy': (restarting(vm) or vm['spec']).get('runStrategy'),
        **({'startPending': True} if start_pending else {})})
    vm['spec'].pop('running', None)
    vm['spec']['runStrategy'] = MANUAL


def end_restart(vm: objects.VirtualMachine,
                vmi: objects.VirtualMachineInstance | None,
                abandon: bool = False) -> None:
    """Restore the run strategy of a VM whose restart is complete.

    It is complete when the next VMI exists or has ended, or none will come
    because another client has stopped the VM. A VM that was stopped, or that
    KubeVirt would not start again after its VMI has ended, is halted. A stop
    cannot be told from a deleted VMI.

    :param vm: a copy of the VM, changed in place
    :param abandon: whether to restore it also if the restart has not been
        requested yet
    """
    restart = restarting(vm)
    if not restart:
        # None was begun, or another client has set a run strategy since.
        bmc_annotations.write(vm, stored_names.RESTART, {})
        return
    off = not is_active(vmi)
    other = (is_active(vmi)
             and vmi['metadata']['uid'] != restart.get('vmi'))
    if start_pending(vm) and not (other or abandon):
        if start_requested(vm):
            cancel_pending_start(vm)
        return
    due = off or other
    if off and requests(vm) or not (due or abandon and not requests(vm)):
        return
    strategy = restart['runStrategy']
    del vm['spec']['runStrategy']
    if strategy is None:
        vm['spec']['running'] = True
    else:
        vm['spec']['runStrategy'] = strategy
    if off and (vmi is None or is_deleting(vmi) or not starting(vm, vmi)):
        halt(vm)
        if strategy is not None and saved(vm).strategy is None:
            save(vm, strategy)
    bmc_annotations.write(vm, stored_names.RESTART, {})
