# SPDX-License-Identifier: Apache-2.0
"""Controller of ReplicaSets.

Source: kubernetes/pkg/controller/replicaset (1.36).
"""

from kubevirt_sandbox.api import core
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import json_copy
from kubevirt_sandbox.api import labels
from kubevirt_sandbox.kubevirt import events
from kubevirt_sandbox.kubevirt import workqueue
from kubevirt_sandbox.workloads import index
from kubevirt_sandbox.workloads import owner_references
from kubevirt_sandbox.workloads import podstate
from kubevirt_sandbox.workloads import workload_kinds

_NAME = 'replicaset-controller'


class Controller:
    """Reconciles ReplicaSets with their pods.

    :param store: the store.
    :param recorder: an :class:`events.Recorder`.
    :param loop: the asyncio loop.
    :param lag: maximum delay of each reconciliation in seconds.
    """

    def __init__(self, store, recorder, loop, lag=0):
        self._store = store
        self._recorder = recorder
        self._queue = workqueue.WorkQueue(loop, self._sync, _NAME, lag)
        self._pods = index.by_owner(store, core.POD)
        self._ends = [
            self._pods.close,
            store.subscribe(workload_kinds.REPLICA_SET, self._on_event),
            store.subscribe(core.POD, self._on_pod)]

    def close(self):
        """Stop the controller."""
        for end in self._ends:
            end()
        self._queue.close()

    def _on_event(self, type_, obj, old):
        if type_ != 'DELETED':
            self._queue.add((obj['metadata']['namespace'],
                             obj['metadata']['name']))

    def _on_pod(self, type_, pod, old):
        for one in (pod, old):
            found = one and owner_references.controller(one)
            if found and found['kind'] == 'ReplicaSet':
                self._queue.add((pod['metadata']['namespace'],
                                 found['name']))

    def _sync(self, key):
        owner = self._store.find(workload_kinds.REPLICA_SET, *key)
        if owner is None:
            return
        pods = self._active_pods(owner)
        if not owner_references.ends(owner):
            self._adjust(owner, pods)
        self._update_status(owner, key)

    def _active_pods(self, owner):
        return [p for p in self._pods.get(owner['metadata']['uid'])
                if not podstate.has_ended(p) and not owner_references.ends(p)]

    def _adjust(self, owner, pods):
        wanted = owner['spec'].get('replicas', 1)
        for _ in range(wanted - len(pods)):
            self._create(owner)
        # First those of which the least is lost.
        for pod in sorted(pods, key=lambda p: (
                bool(p['spec'].get('nodeName')), podstate.ready(p),
                p['metadata']['creationTimestamp']))[
                    :max(0, len(pods) - wanted)]:
            meta = pod['metadata']
            self._store.delete(core.POD, meta['namespace'], meta['name'],
                               uid=meta['uid'])
            self._recorder.event(owner, events.NORMAL, 'SuccessfulDelete',
                                 f'Deleted pod: {meta["name"]}', _NAME)

    def _create(self, owner):
        meta, template = owner['metadata'], owner['spec']['template']
        about = template.get('metadata') or {}
        try:
            pod = self._store.create(core.POD, {
                'metadata': {
                    'generateName': meta['name'] + '-',
                    'namespace': meta['namespace'],
                    'labels': dict(about.get('labels') or {}),
                    'annotations': dict(about.get('annotations') or {}),
                    'ownerReferences': [owner_references.reference(owner)]},
                'spec': json_copy.copy(template['spec'])},
                manager='kube-controller-manager')
        except errors.ApiError as exc:
            text = str(exc)
            self._recorder.event(owner, events.WARNING, 'FailedCreate',
                                 f'Error creating: {text}', _NAME)
            self._store.change(
                workload_kinds.REPLICA_SET, meta['namespace'], meta['name'],
                lambda new: _put_failure(new, text),
                subresource='status', manager='kube-controller-manager')
            raise
        self._recorder.event(
            owner, events.NORMAL, 'SuccessfulCreate',
            f'Created pod: {pod["metadata"]["name"]}', _NAME)

    def _update_status(self, owner, key):
        pods = self._active_pods(owner)
        template = owner['spec']['template'].get('metadata') or {}
        wanted = {'matchLabels': template.get('labels') or {}}
        waits = [podstate.available(
            p, owner['spec'].get('minReadySeconds', 0)) for p in pods]
        counts = {
            'replicas': len(pods),
            'fullyLabeledReplicas': sum(labels.matches(
                wanted, p['metadata'].get('labels')) for p in pods),
            'readyReplicas': sum(podstate.ready(p) for p in pods),
            'availableReplicas': sum(w == 0 for w in waits)}
        later = [w for w in waits if w]
        if later:
            self._queue.add_after(key, min(later))

        def change(new):
            status = new.setdefault('status', {})
            if len(pods) >= owner['spec'].get('replicas', 1):
                _put_failure(new, None)
            for name, value in counts.items():
                if value or name == 'replicas':
                    status[name] = value
                else:
                    status.pop(name, None)
            status['observedGeneration'] = owner['metadata']['generation']
        self._store.change(
            workload_kinds.REPLICA_SET, *key, change, subresource='status',
            manager='kube-controller-manager')


def _put_failure(obj, message):
    status = obj.setdefault('status', {})
    kept = [c for c in status.get('conditions', ())
            if c['type'] != 'ReplicaFailure']
    if message:
        kept.append({'type': 'ReplicaFailure', 'status': 'True',
                     'reason': 'FailedCreate', 'message': message})
    if kept:
        status['conditions'] = kept
    else:
        status.pop('conditions', None)
