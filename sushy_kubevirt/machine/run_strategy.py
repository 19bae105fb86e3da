# SPDX-License-Identifier: Apache-2.0
"""What KubeVirt will do with a VM by itself, read off its run strategy.

The run strategy says who starts VMIs: KubeVirt (``Always``, ``Once``,
``RerunOnFailure`` after a failure) or somebody's request (``Manual``).
Requests wait in ``status.stateChangeRequests`` until they are met. The
functions here predict what virt-controller does next (``syncRunStrategy`` in
``pkg/virt-controller/watch/vm/vm.go``, KubeVirt 1.9); what a BMC does about
it is in `resets`, how it looks from outside in `power`.
"""

from sushy_kubevirt.machine import annotations

ALWAYS = 'Always'
RERUN_ON_FAILURE = 'RerunOnFailure'
MANUAL = 'Manual'
HALTED = 'Halted'
ONCE = 'Once'
WAIT_AS_RECEIVER = 'WaitAsReceiver'

#: What a Halted VM may be given when it is powered on.
STARTABLE = (RERUN_ON_FAILURE, ALWAYS, MANUAL)

#: KubeVirt's ``stop`` replaces these with ``Halted``.
LOST_BY_STOP = (ALWAYS, ONCE)

#: Under these a guest that ends with success stays off.
OFF_AFTER_SHUTDOWN = (RERUN_ON_FAILURE, MANUAL)


def of(vm):
    """:returns: the VM's run strategy; what the deprecated ``running``
    stands for, if it has that instead
    """
    spec = vm['spec']
    if spec.get('runStrategy'):
        return spec['runStrategy']
    return ALWAYS if spec.get('running') else HALTED


def uses_running_field(vm):
    """:returns: True for a VM that has ``running`` and no run strategy"""
    spec = vm['spec']
    return not spec.get('runStrategy') and spec.get('running') is not None


def requests(vm):
    """:returns: list of the requests KubeVirt has not met yet"""
    return (vm.get('status') or {}).get('stateChangeRequests') or []


def start_requested(vm):
    return any(request.get('action') == 'Start' for request in requests(vm))


def _stop_requested(vm, vmi):
    first = (requests(vm) or [{}])[0]
    return (first.get('action') == 'Stop'
            and first.get('uid') == vmi['metadata']['uid'])


def phase(vmi):
    """:returns: the VMI's phase, '' before it has any"""
    return (vmi.get('status') or {}).get('phase') or ''


def is_active(vmi):
    """:returns: True for a VMI that has not ended, running or not yet"""
    return vmi is not None and phase(vmi) not in ('Succeeded', 'Failed')


def is_deleting(obj):
    """:returns: True for an object on its way out"""
    return bool(obj['metadata'].get('deletionTimestamp'))


def stopping(vm, vmi):
    """:returns: True for a living VMI that is being stopped"""
    return is_active(vmi) and (
        is_deleting(vmi) or is_deleting(vm) or of(vm) == HALTED
        or _stop_requested(vm, vmi))


def starting(vm, vmi):
    """Whether a VMI is going to be made, without anybody's doing.

    :param vmi: None, or a VMI that has ended or is being stopped: the one
        after it is meant
    """
    if is_deleting(vm):
        return False
    if start_requested(vm):
        return True
    strategy = of(vm)
    if strategy == ALWAYS:
        return True
    if strategy == ONCE:
        # It keeps a VMI that has ended, and replaces one that was deleted.
        return vmi is None or is_deleting(vmi)
    if strategy == RERUN_ON_FAILURE:
        if vmi is None:
            # Made by a VM that has just got this strategy, and not again.
            observed = (vm.get('status') or {}).get('runStrategy')
            return observed != RERUN_ON_FAILURE
        return phase(vmi) == 'Failed' and not is_deleting(vmi)
    return False


def starting_without_retry(vm, vmi):
    """Whether one try is all that a start will get.

    A VM that has just got ``RerunOnFailure`` is started when KubeVirt notices
    the change. If that fails, or has to wait for a DataVolume or for KubeVirt
    to see the VMI before gone, the change counts as noticed all the same, and
    nothing starts the VM any more. A request waits until it is met.

    :param vmi: see `starting`
    """
    return (vmi is None and of(vm) == RERUN_ON_FAILURE
            and not start_requested(vm) and starting(vm, vmi))


def observed(vm):
    """:returns: True if KubeVirt has taken in the VM's run strategy"""
    status = vm.get('status') or {}
    return status.get('runStrategy', of(vm)) == of(vm)


def vmi_seen(vm):
    """:returns: True if KubeVirt knew, when it last looked at the VM, that it
    has a VMI

    Its controller reads from caches. Before it has heard of a VMI, it takes a
    request to stop that one for met, and drops it.
    """
    return bool((vm.get('status') or {}).get('created'))


def saved(vm):
    """:returns: the run strategy to come back, and the uid of the VMI it was
    remembered about; (None, None) if none is remembered
    """
    memory = annotations.read(vm, annotations.RUN_STRATEGY)
    strategy = memory.get('runStrategy')
    if strategy in STARTABLE + (ONCE,):
        return strategy, memory.get('vmi')
    return None, None


def save(vm, strategy, vmi_uid=None):
    """:param vm: a VM that may be changed"""
    annotations.write(vm, annotations.RUN_STRATEGY,
                      {'runStrategy': strategy, 'vmi': vmi_uid})


def clear_saved(vm):
    """:param vm: a VM that may be changed"""
    annotations.write(vm, annotations.RUN_STRATEGY, {})
