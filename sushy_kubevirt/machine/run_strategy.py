# SPDX-License-Identifier: Apache-2.0
"""Run strategies, and what KubeVirt does with a VM because of them.

The run strategy determines what starts VMIs: KubeVirt (``Always``, ``Once``,
``RerunOnFailure`` after a failure) or a request (``Manual``). Requests stay
in ``status.stateChangeRequests`` until KubeVirt has carried them out. The
functions here predict what virt-controller does next (``syncRunStrategy`` in
``pkg/virt-controller/watch/vm/vm.go``, KubeVirt 1.9). `reset` contains the
BMC's power actions, `power_state` derives the power state.
"""

from sushy_kubevirt.machine import annotations

ALWAYS = 'Always'
RERUN_ON_FAILURE = 'RerunOnFailure'
MANUAL = 'Manual'
HALTED = 'Halted'
ONCE = 'Once'
WAIT_AS_RECEIVER = 'WaitAsReceiver'

#: Strategies that may replace Halted at power-on.
STARTABLE = (RERUN_ON_FAILURE, ALWAYS, MANUAL)

#: Strategies that KubeVirt's ``stop`` replaces by ``Halted``.
LOST_BY_STOP = (ALWAYS, ONCE)

#: Strategies under which a guest that shuts itself down stays off.
OFF_AFTER_SHUTDOWN = (RERUN_ON_FAILURE, MANUAL)


def of(vm):
    """Return the VM's run strategy.

    The deprecated field ``running`` counts as ``Always`` or ``Halted``.
    """
    spec = vm['spec']
    if spec.get('runStrategy'):
        return spec['runStrategy']
    return ALWAYS if spec.get('running') else HALTED


def uses_running_field(vm):
    """Return True for a VM that has ``running`` and no run strategy."""
    spec = vm['spec']
    return not spec.get('runStrategy') and spec.get('running') is not None


def requests(vm):
    """Return the list of requests that KubeVirt has not carried out yet."""
    return (vm.get('status') or {}).get('stateChangeRequests') or []


def start_requested(vm):
    """Return True if a start is among the `requests`."""
    return any(request.get('action') == 'Start' for request in requests(vm))


def _stop_requested(vm, vmi):
    first = (requests(vm) or [{}])[0]
    return (first.get('action') == 'Stop'
            and first.get('uid') == vmi['metadata']['uid'])


def phase(vmi):
    """Return the VMI's phase, '' while it has none."""
    return (vmi.get('status') or {}).get('phase') or ''


def is_active(vmi):
    """Return True for a VMI that has not ended."""
    return vmi is not None and phase(vmi) not in ('Succeeded', 'Failed')


def is_deleting(obj):
    """Return True for an object that is being deleted."""
    return bool(obj['metadata'].get('deletionTimestamp'))


def stopping(vm, vmi):
    """Return True for an active VMI that is being stopped."""
    return is_active(vmi) and (
        is_deleting(vmi) or is_deleting(vm) or of(vm) == HALTED
        or _stop_requested(vm, vmi))


def starting(vm, vmi):
    """Return True if KubeVirt will create a VMI without a further request.

    :param vm: the VM
    :param vmi: None, or a VMI that has ended or is being stopped: the
        question is then about its successor
    """
    if is_deleting(vm):
        return False
    if start_requested(vm):
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


def starting_without_retry(vm, vmi):
    """Return True if KubeVirt will attempt the coming start only once.

    KubeVirt starts a VM that has just got ``RerunOnFailure`` when it observes
    the change. If that start fails, or has to wait for a DataVolume or for
    KubeVirt to see the previous VMI gone, the change counts as observed
    nevertheless, and the VM stays off. A start request, in contrast, remains
    until it is carried out.

    :param vm: the VM
    :param vmi: see `starting`
    """
    return (vmi is None and of(vm) == RERUN_ON_FAILURE
            and not start_requested(vm) and starting(vm, vmi))


def observed(vm):
    """Return True if KubeVirt has observed the VM's run strategy."""
    status = vm.get('status') or {}
    return status.get('runStrategy', of(vm)) == of(vm)


def vmi_seen(vm):
    """Return True if KubeVirt has noticed that the VM has a VMI.

    Its controller reads from caches. While it does not know of a VMI, it
    treats a request to stop that VMI as carried out and drops it.
    """
    return bool((vm.get('status') or {}).get('created'))


def saved(vm):
    """Return the run strategy to restore, see `annotations`.

    :returns: (run strategy, uid of the VMI it was saved for or None);
        (None, None) if none is saved
    """
    found = annotations.read(vm, annotations.RUN_STRATEGY)
    strategy = found.get('runStrategy')
    if strategy in STARTABLE + (ONCE,):
        return strategy, found.get('vmi')
    return None, None


def save(vm, strategy, vmi_uid=None):
    """Save a run strategy to restore in an annotation of the VM.

    :param vm: a copy of the VM, changed in place
    :param strategy: the run strategy
    :param vmi_uid: uid of the VMI that it is saved for
    """
    annotations.write(vm, annotations.RUN_STRATEGY,
                      {'runStrategy': strategy, 'vmi': vmi_uid})


def clear_saved(vm):
    """Remove the saved run strategy.

    :param vm: a copy of the VM, changed in place
    """
    annotations.write(vm, annotations.RUN_STRATEGY, {})
