# SPDX-License-Identifier: Apache-2.0
"""Garbage collection: deletes objects whose owners are gone.

Background, foreground and orphaning deletion as in
``kubernetes/pkg/controller/garbagecollector``, driven by events of the store
through a queue.
"""
import collections

from kubevirt_sandbox.api import errors

FOREGROUND, ORPHAN = 'foregroundDeletion', 'orphan'

_MANAGER = 'kube-controller-manager'


class Collector:
    """The garbage collector.

    :param server: a :class:`server.Server`; its ``soon`` runs the work
        after the write that caused it.
    """

    def __init__(self, server):
        self._store = server.store
        self._soon = server.soon
        #: uid of the owner: {(kind, key) of each dependent}
        self._dependents = collections.defaultdict(set)
        #: uid: (kind, key)
        self._known = {}
        server.store.listen(None, self._on_event)

    @staticmethod
    def _owners(record):
        if record is None:
            return set()
        return {r.get('uid') for r in record.obj['metadata'].get(
            'ownerReferences', ())}

    def _on_event(self, event):
        meta = event.record.obj['metadata']
        kind = self._store.kinds.of_object(
            event.record.obj['apiVersion'], event.record.obj['kind'])
        if kind is None:
            return
        place = (kind, event.record.key)
        gone = event.type == 'DELETED'
        before = self._owners(event.previous)
        after = set() if gone else self._owners(event.record)
        for uid in before - after:
            self._dependents[uid].discard(place)
            if not self._dependents[uid]:
                del self._dependents[uid]
        for uid in after - before:
            self._dependents[uid].add(place)
        if gone:
            self._known.pop(meta['uid'], None)
            for dependent in list(self._dependents.get(meta['uid'], ())):
                self._soon(self._collect, *dependent)
        else:
            self._known[meta['uid']] = place
            if after - before:
                self._soon(self._collect, *place)
            if 'deletionTimestamp' in meta:
                self._soon(self._finish, *place)
        for uid in before | after:
            owner = self._known.get(uid)
            if owner is not None:
                self._soon(self._finish, *owner)

    def _collect(self, kind, key):
        """Delete an object whose owners are all gone."""
        obj = self._store.find(kind, *key)
        if obj is None or 'deletionTimestamp' in obj['metadata']:
            return
        references = obj['metadata'].get('ownerReferences', [])
        if not references:
            return
        there = [r for r in references if self._known.get(r.get('uid'))]
        if not there:
            policy = 'Background'
            finalizers = obj['metadata'].get('finalizers', [])
            if ORPHAN in finalizers:
                policy = 'Orphan'
            elif FOREGROUND in finalizers:
                policy = 'Foreground'
            self._delete(kind, key, obj, policy)
        elif len(there) < len(references):
            self._change(kind, key, lambda new: new['metadata'].update(
                ownerReferences=there))

    def _delete(self, kind, key, obj, policy):
        try:
            self._store.delete(kind, *key, propagation=policy,
                               uid=obj['metadata']['uid'])
        except errors.ApiError:
            pass  # Gone, or another now, or its admission keeps it.

    def _change(self, kind, key, change):
        try:
            self._store.change(kind, *key, change, manager=_MANAGER)
        except errors.ApiError:
            pass  # Gone meanwhile.

    def _finish(self, kind, key):
        """Continue the deletion of an object that waits for its dependents."""
        obj = self._store.find(kind, *key)
        if obj is None or 'deletionTimestamp' not in obj['metadata']:
            return
        finalizers = obj['metadata'].get('finalizers', [])
        uid = obj['metadata']['uid']
        dependents = list(self._dependents.get(uid, ()))
        if ORPHAN in finalizers:
            for dependent in dependents:
                self._change(*dependent, lambda new: self._disown(new, uid))
            self._remove(kind, key, ORPHAN)
        elif FOREGROUND in finalizers:
            blocking = False
            for place in dependents:
                dependent = self._store.find(place[0], *place[1])
                if dependent is None:
                    continue
                if any(r.get('uid') == uid and r.get('blockOwnerDeletion')
                       for r in dependent['metadata']['ownerReferences']):
                    blocking = True
                if 'deletionTimestamp' in dependent['metadata']:
                    continue
                if self._has_other_owner(dependent):
                    # As ``attemptToDeleteItem`` in ``garbagecollector.go``.
                    self._change(*place, lambda new: self._disown(new, uid))
                else:
                    self._delete(*place, dependent, 'Foreground')
            if not blocking:
                self._remove(kind, key, FOREGROUND)

    def _has_other_owner(self, obj):
        """Tell whether an owner exists that does not wait for the deletion of
        its dependents."""
        for reference in obj['metadata']['ownerReferences']:
            place = self._known.get(reference.get('uid'))
            owner = place and self._store.find(place[0], *place[1])
            if owner and not (
                    'deletionTimestamp' in owner['metadata'] and FOREGROUND
                    in owner['metadata'].get('finalizers', ())):
                return True
        return False

    @staticmethod
    def _disown(new, uid):
        left = [r for r in new['metadata'].get('ownerReferences', [])
                if r.get('uid') != uid]
        if left:
            new['metadata']['ownerReferences'] = left
        else:
            new['metadata'].pop('ownerReferences', None)

    def _remove(self, kind, key, finalizer):
        def change(new):
            left = [f for f in new['metadata'].get('finalizers', [])
                    if f != finalizer]
            if left:
                new['metadata']['finalizers'] = left
            else:
                new['metadata'].pop('finalizers', None)
        self._change(kind, key, change)
