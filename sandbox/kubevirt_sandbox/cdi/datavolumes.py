# SPDX-License-Identifier: Apache-2.0
"""The controller of DataVolumes: a claim for each, and the status.

:mod:`importers` and :mod:`uploads` fill the claim and write their progress
into its annotations.

Source: pkg/controller/datavolume/controller-base.go (CDI 1.65).
"""
from kubevirt_sandbox.api import core
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import json_copy
from kubevirt_sandbox.cdi import claim_annotations
from kubevirt_sandbox.cdi import claimspec
from kubevirt_sandbox.cdi import status
from kubevirt_sandbox.kubevirt import workqueue

_MANAGER = 'cdi-controller'
_COMPONENT = 'datavolume-import-controller'


class Controller:
    """Creates claims for DataVolumes and updates their status.

    :param store: the store.
    :param kind: the Kind of DataVolumes.
    :param recorder: an :class:`kubevirt.events.Recorder`.
    :param loop: the asyncio loop.
    :param progress: function of a claim -> percentage, or None when it is
        unknown.
    :param seconds: interval of reading the progress.
    :param lag: see :class:`kubevirt.workqueue.WorkQueue`.
    """

    def __init__(self, store, kind, recorder, loop, progress, seconds,
                 lag=0):
        self._store = store
        self._kind = kind
        self._recorder = recorder
        self._progress = progress
        self._seconds = seconds
        self._queue = workqueue.WorkQueue(loop, self._sync, 'datavolume',
                                          lag)
        self._ends = [store.subscribe(kind, self._on_event),
                      store.subscribe(core.CLAIM, self._on_event)]
        for volume in store.list(kind):
            self._on_event('ADDED', volume, None)

    def close(self):
        """Stop."""
        for end in self._ends:
            end()
        self._queue.close()

    def _on_event(self, _type, obj, _old):
        # A claim has the name of its DataVolume.
        key = (obj['metadata']['namespace'], obj['metadata']['name'])
        if self._store.find(self._kind, *key) is not None:
            self._queue.add(key)

    def _sync(self, key):
        volume = self._store.find(self._kind, *key)
        if volume is None:
            return
        failure, trouble = None, None
        if 'deletionTimestamp' not in volume['metadata']:
            try:
                self._provide(key, volume)
            except workqueue.Again as exc:
                failure = exc
            except claimspec.ClaimError as exc:
                trouble, failure = ('ErrClaimNotValid', str(exc)), exc
            except errors.ApiError as exc:
                failure = exc
                if 'exceeded quota:' in exc.message:
                    trouble = 'ErrExceededQuota', exc.message
        # The status is written after every failure, too.
        self._update_status(key, trouble)
        if failure is not None:
            raise workqueue.Again(str(failure))

    def _provide(self, key, volume):
        """Make the claim, or see whose the one is that is there."""
        claim = self._store.find(core.CLAIM, *key)
        name = key[1]
        if claim is None:
            self._store.create(core.CLAIM, claimspec.claim(
                self._store, volume), manager=_MANAGER)
            return
        if 'deletionTimestamp' in claim['metadata']:
            self._complain(volume, 'ErrResourceMarkedForDeletion',
                           f'Resource "{name}" marked for deletion')
        owner = claim_annotations.owner(claim)
        if owner is not None and owner['uid'] == volume['metadata']['uid']:
            return
        if claim_annotations.requires_work(claim, volume):
            self._complain(volume, 'ErrResourceExists',
                           f'Resource "{name}" already exists and is not '
                           'managed by DataVolume')
        made = claimspec.claim(self._store, volume)
        self._store.change(
            core.CLAIM, *key, lambda new: new['metadata'].setdefault(
                'ownerReferences', []).extend(
                    made['metadata']['ownerReferences']), manager=_MANAGER)

    def _complain(self, volume, reason, message):
        self._record(volume, status.WARNING, reason, message)
        raise workqueue.Again(message)

    def _update_status(self, key, trouble):
        old = self._store.find(self._kind, *key)
        if old is None:
            return
        new = json_copy.copy(old)
        claim = self._store.find(core.CLAIM, *key)
        if trouble:
            reason, message = trouble
            phase = 'Pending' if reason == 'ErrExceededQuota' else ''
            new.setdefault('status', {})['phase'] = phase
            status.set_conditions(new, None, reason, message)
            event = status.WARNING, reason, message
            if phase == (old.get('status') or {}).get('phase', ''):
                event = None
        else:
            event = status.update(new, claim, self._store)
            self._update_progress(key, new, claim)
        if new.get('status') == old.get('status'):
            return
        self._store.update(self._kind, new, subresource='status',
                           manager=_MANAGER)
        for said in ([event] if event else []) + status.events(new, old):
            self._record(new, *said)

    def _update_progress(self, key, volume, claim):
        if claim is None or volume['status'].get('phase') not in (
                'ImportInProgress', 'CloneInProgress'):
            return
        percent = self._progress(claim)
        if percent is not None:
            volume['status']['progress'] = f'{percent:.2f}%'
        self._queue.add_after(key, self._seconds)

    def _record(self, volume, kind, reason, message):
        self._recorder.event(volume, kind, reason, message, _COMPONENT)
