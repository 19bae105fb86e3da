# SPDX-License-Identifier: Apache-2.0
"""The status of a DataVolume: phase and conditions.

Computed from the DataVolume and its claim; writes nothing. As in CDI it also
depends on the previous status.

Source: pkg/controller/datavolume/conditions.go, controller-base.go
(updateStatus, updateConditions), import-controller.go, upload-controller.go
(updateStatusPhase) (CDI 1.65).
"""
from kubevirt_sandbox.api import metadata
from kubevirt_sandbox.api import volumes
from kubevirt_sandbox.cdi import claim_annotations

NORMAL, WARNING = 'Normal', 'Warning'

_WORDS = {
    'Import': {
        'Pending': ('Scheduled', NORMAL, 'Import into {} scheduled'),
        'Running': ('InProgress', NORMAL, 'Import into {} in progress'),
        'Failed': (None, WARNING, 'Failed to import into PVC {}'),
        'Succeeded': ('Succeeded', NORMAL,
                      'Successfully imported into PVC {}')},
    'Clone': {
        'Pending': ('Scheduled', NORMAL, 'Cloning into {} scheduled'),
        'Running': ('InProgress', NORMAL, 'Cloning into {} in progress'),
        'Failed': (None, WARNING, 'Cloning into {} failed'),
        'Succeeded': ('Succeeded', NORMAL, 'Successfully cloned into {}')},
    'Upload': {
        'Pending': ('Scheduled', NORMAL, 'Upload into {} scheduled'),
        'Running': ('Ready', NORMAL, 'Upload into {} ready'),
        'Failed': (None, WARNING, 'Upload into {} failed'),
        'Succeeded': ('Succeeded', NORMAL, 'Successfully uploaded into {}')}}


def update(volume, claim, store):
    """Bring the status up to date with the claim.

    :param volume: the DataVolume, changed in place.
    :param claim: its claim, or None.
    :param store: the store, to look for storage classes.
    :returns: (type, reason, message) of an event that the new phase is
        worth, or None.
    """
    status = volume.setdefault('status', {})
    before, event = status.get('phase', ''), None
    if claim is None:
        if not before:
            status['phase'] = 'Pending'
    elif 'deletionTimestamp' not in claim['metadata']:
        status['claimName'] = claim['metadata']['name']
        event = _set_phase(volume, claim, store)
        restarts = claim_annotations.of(claim).get(
            claim_annotations.RESTARTS, '')
        if restarts.isdigit() and int(restarts):
            status['restartCount'] = int(restarts)
        status.setdefault('progress', 'N/A')
    set_conditions(volume, claim)
    return event if status.get('phase', '') != before else None


def _set_phase(volume, claim, store):
    status = volume['status']
    if not claim_annotations.requires_work(claim, volume):
        status['phase'] = 'Succeeded'
        return None
    bound = (claim.get('status') or {}).get('phase')
    if claim_annotations.of(claim).get(
            claim_annotations.POD_PHASE) == 'Succeeded':
        return _follow_pod(volume, claim)
    if bound == 'Bound':
        if status.get('phase') in ('Pending', 'WaitForFirstConsumer',
                                   'Unknown'):
            status['phase'] = 'PVCBound'
        return _follow_pod(volume, claim)
    if bound == 'Lost':
        status['phase'] = 'Failed'
        return (WARNING, 'ErrClaimLost',
                f'PVC {claim["metadata"]["name"]} lost')
    status['phase'] = ('WaitForFirstConsumer'
                       if volumes.is_late(store, claim) else 'Pending')
    return None


def _follow_pod(volume, claim):
    """Set the phase to that of the pod that fills the claim."""
    found, status = claim_annotations.of(claim), volume['status']
    kind = ('Upload' if claim_annotations.UPLOAD in found
            else 'Clone' if claim_annotations.CLONE in found else 'Import')
    phase = found.get(claim_annotations.POD_PHASE)
    if phase != 'Succeeded' and kind == 'Import' and (
            claim_annotations.IMPORT_POD not in found):
        return None
    if phase == 'Failed':
        if found.get(claim_annotations.FATAL) == 'true':
            status['phase'] = 'Failed'
        return (WARNING, f'{kind}Failed', _WORDS[kind][phase][2].format(
            claim['metadata']['name']))
    status['phase'] = f'{kind}Scheduled'
    if not phase or phase == 'Running' and kind == 'Upload' and found.get(
            claim_annotations.POD_READY) != 'true':
        return None
    word, event, message = _WORDS[kind][phase]
    status['phase'] = word if word == 'Succeeded' else kind + word
    if word == 'Succeeded' and kind != 'Upload':
        status['progress'] = '100.0%'
    return event, kind + word, message.format(claim['metadata']['name'])


# -- conditions ----------------------------------------------------------

def find(volume, kind):
    """Return the condition of a type, or None."""
    for condition in (volume.get('status') or {}).get('conditions') or ():
        if condition['type'] == kind:
            return condition
    return None


def set_conditions(volume, claim, reason='', message=''):
    """Bring the conditions up to date with phase and claim.

    :param reason: reason why there is no claim, or ''.
    :param message: message for the reason.
    """
    phase = volume['status'].get('phase')
    ready = {'Succeeded': 'True', 'Unknown': 'Unknown'}.get(phase, 'False')
    _set_bound(volume, claim, reason, message)
    _put(volume, 'Ready', ready, reason, message)
    _set_running(volume, claim_annotations.of(claim) if claim else {})


def _set_bound(volume, claim, reason, message):
    if claim is None:
        _put(volume, 'Bound', 'False', reason or 'NotFound',
             message or 'No PVC found')
        return
    name = claim['metadata']['name']
    phase = (claim.get('status') or {}).get('phase')
    if phase == 'Bound':
        _put(volume, 'Bound', 'True', 'Bound', f'PVC {name} Bound')
    elif phase == 'Pending':
        _put(volume, 'Bound', 'False', 'Pending', f'PVC {name} Pending')
    elif phase == 'Lost':
        _put(volume, 'Bound', 'False', 'ClaimLost', 'Claim Lost')
    else:
        _put(volume, 'Bound', 'False', '', '')


def _set_running(volume, found):
    running = found.get(claim_annotations.RUNNING)
    reason = found.get(claim_annotations.RUNNING_REASON, '')
    message = found.get(claim_annotations.RUNNING_MESSAGE, '')
    if found.get(claim_annotations.SCHEDULABLE) == 'false':
        _put(volume, 'Running', 'False', 'Unschedulable',
             'Importer pod cannot be scheduled')
    elif running == 'true':
        _put(volume, 'Running', 'True', reason, message)
        _put(volume, 'Ready', 'False', 'TransferRunning', '')
    else:
        _put(volume, 'Running', 'False', reason, message)


def _put(volume, kind, status, reason, message):
    conditions = volume['status'].setdefault('conditions', [])
    condition = find(volume, kind)
    if condition is None:
        condition = {'type': kind, 'status': ''}
        conditions.append(condition)
    now = metadata.now()
    if condition['status'] != status:
        condition['lastTransitionTime'] = now
    elif (condition.get('reason', ''), condition.get('message', '')) == (
            reason, message):
        return
    condition.update(status=status, lastHeartbeatTime=now)
    for name, text in (('reason', reason), ('message', message)):
        if text:
            condition[name] = text
        else:
            condition.pop(name, None)


def events(volume, old):
    """List the events to record for new conditions.

    :param volume: the DataVolume after the change.
    :param old: the DataVolume before the change.
    :returns: a list of (type, reason, message).
    """
    found = []
    bound, was = find(volume, 'Bound'), find(old, 'Bound')
    if bound and (was is None or _said(bound) != _said(was)):
        found.append((NORMAL, bound.get('reason', ''),
                      bound.get('message', '')))
    ready, running = find(volume, 'Ready'), find(volume, 'Running')
    was = find(old, 'Running') or {}
    if (ready and running and bound and ready['status'] == 'False'
            and running['status'] == 'False' and bound['status'] == 'True'
            and running.get('message') and running['message']
            != was.get('message')):
        found.append((WARNING, running.get('reason', ''),
                      running['message']))
    return found


def _said(condition):
    return (condition['status'], condition.get('reason'),
            condition.get('message'))
