# SPDX-License-Identifier: Apache-2.0
"""Computes the status of a VirtualMachine.

The input is the VM, its VMI and its volumes. The module writes nothing to the
store.

Source: updateStatus and what it calls in pkg/virt-controller/watch/vm/vm.go
(KubeVirt 1.9).
"""

import datetime
import math
import random

from kubevirt_sandbox.kubevirt import claims
from kubevirt_sandbox.kubevirt import conditions
from kubevirt_sandbox.kubevirt import paths
from kubevirt_sandbox.kubevirt import vm_model
from kubevirt_sandbox.kubevirt import vmi_status

GENERATION = 'kubevirt.io/vm-generation'

_OWN_CONDITIONS = ('Ready', 'Failure', vm_model.RESTART_REQUIRED)
_LONGEST_BACK_OFF = 300
_FIRST_BACK_OFF = 10


def update(vm, vmi, strategy, failure, store):
    """Update the status of a VM.

    :param vm: the VM, changed in place.
    :param vmi: its VMI, or None.
    :param strategy: its run strategy, or None when it is invalid.
    :param failure: (reason, message) of a failed reconciliation, or None.
    :param store: the store, to look up claims and DataVolumes.
    """
    status = vm.setdefault('status', {})
    _set(status, 'created', vmi is not None)
    _set(status, 'ready', vmi is not None
         and conditions.is_true(vmi, 'Ready'))
    if vmi is not None:
        generation = (vmi['metadata'].get('annotations') or {}).get(
            GENERATION, '')
        if generation.isdigit():
            status['observedGeneration'] = int(generation)
            status['desiredGeneration'] = vm['metadata']['generation']
    if strategy and (status.get('runStrategy') or vmi is not None):
        status['runStrategy'] = strategy
    if _is_done(vm, vmi):
        status['stateChangeRequests'] = status['stateChangeRequests'][1:]
    if not status.get('stateChangeRequests'):
        status.pop('stateChangeRequests', None)
    _count_failures(vm, vmi, strategy)
    _set_conditions(vm, vmi, failure)
    _set_snapshots(vm)
    status['printableStatus'] = printable(vm, vmi, strategy, store)


def _set(status, key, value):
    if value:
        status[key] = True
    else:
        status.pop(key, None)


def _is_done(vm, vmi):
    """Tell whether the first state change request was carried out."""
    if not vm_model.requests(vm):
        return False
    first = vm_model.requests(vm)[0]
    if first['action'] == vm_model.STOP:
        return vmi is None or first.get('uid') != vmi['metadata']['uid']
    return (vmi is not None and 'deletionTimestamp' not in vmi['metadata']
            and not vmi_status.is_final(vmi))


# -- back-off ------------------------------------------------------------

def seconds_left(vm):
    """Return the seconds until a VM that failed to start is retried."""
    failed = paths.at(vm, 'status', 'startFailure')
    if not failed:
        return 0
    until = datetime.datetime.strptime(
        failed['retryAfterTimestamp'], '%Y-%m-%dT%H:%M:%SZ').replace(
            tzinfo=datetime.timezone.utc)
    return max(0, math.ceil((until - datetime.datetime.now(
        datetime.timezone.utc)).total_seconds()))


def _count_failures(vm, vmi, strategy):
    status = vm['status']
    ran = vmi is not None and any(
        s['phase'] == vmi_status.RUNNING for s in paths.at(
            vmi, 'status', 'phaseTransitionTimestamps') or ())
    if ran or strategy not in (vm_model.ALWAYS, vm_model.RERUN, vm_model.ONCE):
        status.pop('startFailure', None)
        return
    if vmi is None or not vmi_status.is_final(vmi):
        return
    before = status.get('startFailure') or {}
    uid = vmi['metadata']['uid']
    if before.get('lastFailedVMIUID') == uid:
        return
    count = before.get('consecutiveFailCount', 0) + 1
    delay = _FIRST_BACK_OFF * count ** 2
    delay = min(delay + random.randrange(delay // 2 + 1),  # noqa: S311
                _LONGEST_BACK_OFF)
    retry = datetime.datetime.now(
        datetime.timezone.utc) + datetime.timedelta(seconds=delay)
    status['startFailure'] = {
        'consecutiveFailCount': count, 'lastFailedVMIUID': uid,
        'retryAfterTimestamp': retry.strftime('%Y-%m-%dT%H:%M:%SZ')}


# -- conditions ----------------------------------------------------------

def _set_conditions(vm, vmi, failure):
    ready = conditions.find(vmi, 'Ready')
    if vmi is None:
        conditions.put(vm, 'Ready', False, 'VMINotExists',
                       'VMI does not exist', probed=True)
    elif ready is None:
        conditions.put(vm, 'Ready', False, 'VMIConditionMissing',
                       'VMI is missing the Ready condition', probed=True)
    else:
        conditions.copy(vm, ready)
    if failure:
        conditions.put(vm, 'Failure', True, *failure)
    else:
        conditions.drop(vm, 'Failure')
    if vmi is None:
        return
    there = set()
    for condition in paths.at(vmi, 'status', 'conditions') or ():
        if condition['type'] not in _OWN_CONDITIONS:
            there.add(condition['type'])
            conditions.copy(vm, condition)
    for condition in list(vm['status'].get('conditions') or ()):
        if condition['type'] not in _OWN_CONDITIONS and condition[
                'type'] not in there:
            conditions.drop(vm, condition['type'])


def require_restart(vm, message):
    """Set the condition RestartRequired.

    :param vm: the VM, changed in place.
    :param message: message of the condition.
    """
    conditions.put(vm, vm_model.RESTART_REQUIRED, True, '', message)


def _set_snapshots(vm):
    found = []
    for volume in paths.volumes(paths.at(vm, 'spec', 'template', 'spec')):
        name = volume['name']
        found.append({'name': name, 'enabled': False, 'reason': (
            'No VolumeSnapshotClass: Volume snapshots are not configured for '
            f'this StorageClass [] [{name}]'
            if paths.claim_name(volume) else
            f'Snapshot is not supported for this volumeSource type [{name}]'
        )})
    if found:
        vm['status']['volumeSnapshotStatuses'] = found
    else:
        vm['status'].pop('volumeSnapshotStatuses', None)


# -- printableStatus -----------------------------------------------------

def printable(vm, vmi, strategy, store):
    """Return ``status.printableStatus``: the first state that applies."""
    namespace = vm['metadata']['namespace']
    volumes = paths.volumes(paths.at(vm, 'spec', 'template', 'spec'))
    final = vmi is not None and vmi_status.is_final(vmi)
    phase = vmi_status.phase(vmi)
    trouble = conditions.find(vmi, 'Synchronized') or {}
    trouble = trouble.get('reason') if trouble.get(
        'status') == 'False' else None
    if 'deletionTimestamp' in vm['metadata']:
        return 'Terminating'
    if vmi is not None and not final and (
            'deletionTimestamp' in vmi['metadata']):
        return 'Stopping'
    if phase == vmi_status.RUNNING:
        return 'Paused' if conditions.is_true(vmi, 'Paused') else 'Running'
    if trouble == 'FailedPvcNotFound':
        return 'ErrorPvcNotFound'
    if claims.failing(store, namespace, volumes):
        return 'DataVolumeError'
    if conditions.has(vmi, 'PodScheduled', 'False', 'Unschedulable'):
        return 'ErrorUnschedulable'
    if claims.provisioning(store, namespace, volumes):
        return 'Provisioning'
    if _shall_run(vm, vmi, strategy) and claims.unbound(
            store, namespace, volumes):
        return 'WaitingForVolumeBinding'
    if trouble in ('ErrImagePull', 'ImagePullBackOff'):
        return trouble
    if vmi is not None and not final:
        return 'Starting'
    if paths.at(vm, 'status', 'startFailure') and strategy in (
            vm_model.ALWAYS, vm_model.RERUN, vm_model.ONCE):
        return 'CrashLoopBackOff'
    return 'Stopped'


def _shall_run(vm, vmi, strategy):
    if strategy == vm_model.ALWAYS:
        return True
    if strategy == vm_model.MANUAL:
        return (vm_model.wants_start(vm) if vmi is None
                else not vm_model.wants_stop(vm, vmi))
    if strategy == vm_model.RERUN:
        return (vm_model.reruns(vm, strategy) if vmi is None
                else vmi_status.phase(vmi) != vmi_status.SUCCEEDED)
    return strategy == vm_model.ONCE and vmi is None
