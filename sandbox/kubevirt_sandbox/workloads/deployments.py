# SPDX-License-Identifier: Apache-2.0
"""Deployments: from one ReplicaSet to the next.

:mod:`rollout` decides on the next step; the controller takes it and updates
the status that ``kubectl rollout status`` reads.

Source: kubernetes/pkg/controller/deployment (1.36).
"""

import datetime

from kubevirt_sandbox.api import core
from kubevirt_sandbox.api import json_copy
from kubevirt_sandbox.api import metadata
from kubevirt_sandbox.kubevirt import events
from kubevirt_sandbox.kubevirt import workqueue
from kubevirt_sandbox.workloads import index
from kubevirt_sandbox.workloads import owner_references
from kubevirt_sandbox.workloads import podstate
from kubevirt_sandbox.workloads import rollout
from kubevirt_sandbox.workloads import workload_kinds

_NAME = 'deployment-controller'
_MANAGER = 'kube-controller-manager'


class Controller:
    """Reconciles Deployments with their ReplicaSets.

    :param store: the store.
    :param recorder: an :class:`events.Recorder`.
    :param loop: the asyncio loop.
    :param lag: maximum delay of each reconciliation in seconds.
    """

    def __init__(self, store, recorder, loop, lag=0):
        self._store = store
        self._recorder = recorder
        self._queue = workqueue.WorkQueue(loop, self._sync, _NAME, lag)
        self._sets = index.by_owner(store, workload_kinds.REPLICA_SET)
        self._pods = index.by_owner(store, core.POD)
        self._ends = [
            self._sets.close, self._pods.close,
            store.subscribe(workload_kinds.DEPLOYMENT, self._on_event),
            store.subscribe(workload_kinds.REPLICA_SET, self._on_set),
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

    def _on_set(self, type_, obj, old):
        found = owner_references.controller(obj)
        if found and found['kind'] == 'Deployment':
            self._queue.add((obj['metadata']['namespace'], found['name']))

    def _on_pod(self, type_, pod, old):
        # Recreate waits until the last pod is really gone.
        found = owner_references.controller(pod)
        if type_ == 'DELETED' and found and found['kind'] == 'ReplicaSet':
            owner = self._store.find(
                workload_kinds.REPLICA_SET, pod['metadata']['namespace'],
                found['name'])
            if owner is not None:
                self._on_set(type_, owner, None)

    # -- reconciliation ---------------------------------------------------

    def _sync(self, key):
        deployment = self._store.find(workload_kinds.DEPLOYMENT, *key)
        if deployment is None:
            return
        sets = sorted(self._sets.get(deployment['metadata']['uid']),
                      key=_revision)
        if owner_references.ends(deployment):
            return
        name = rollout.template_hash(deployment['spec']['template'])
        new = next((s for s in sets if s['metadata']['labels'].get(
            rollout.HASH) == name), None)
        paused = deployment['spec'].get('paused', False)
        made = False
        if new is None and not paused:
            new = self._create(deployment, name, sets)
            made = new is not None
        elif new is not None and new is not sets[-1]:
            new = self._number(new, _revision(sets[-1]) + 1)
        olds = [s for s in sets if new is None
                or s['metadata']['name'] != new['metadata']['name']]
        if new is not None:
            self._set_revision(deployment, new)
            if not paused:
                self._continue_rollout(deployment, new, olds)
            elif new['spec']['replicas'] != deployment['spec'].get(
                    'replicas', 1) and not any(
                        o['spec']['replicas'] for o in olds):
                self._scale(deployment, new,
                            deployment['spec'].get('replicas', 1))
        self._update_status(deployment, key, new, made)
        if not paused:
            self._forget(deployment, key)

    def _create(self, deployment, name, sets):
        meta, spec = deployment['metadata'], deployment['spec']
        template = json_copy.copy(spec['template'])
        about = template.setdefault('metadata', {})
        about.setdefault('labels', {})[rollout.HASH] = name
        selector = json_copy.copy(spec['selector'])
        selector.setdefault('matchLabels', {})[rollout.HASH] = name
        number = max((_revision(s) for s in sets), default=0) + 1
        return self._store.create(workload_kinds.REPLICA_SET, {
            'metadata': {
                'name': f'{meta["name"]}-{name}',
                'namespace': meta['namespace'],
                'labels': dict(about['labels']),
                'annotations': {rollout.REVISION: str(number)},
                'ownerReferences': [owner_references.reference(deployment)]},
            'spec': {'replicas': 0, 'selector': selector,
                     'template': template,
                     'minReadySeconds': spec.get('minReadySeconds', 0)}},
            manager=_MANAGER)

    def _number(self, new, number):
        meta = new['metadata']
        return self._store.change(
            workload_kinds.REPLICA_SET, meta['namespace'], meta['name'],
            lambda one: one['metadata'].setdefault('annotations', {}).update(
                {rollout.REVISION: str(number)}), manager=_MANAGER)

    def _set_revision(self, deployment, new):
        """Set the revision of a Deployment to that of its newest ReplicaSet.
        """
        number = str(_revision(new))
        meta = deployment['metadata']
        if (meta.get('annotations') or {}).get(rollout.REVISION) != number:
            self._store.change(
                workload_kinds.DEPLOYMENT, meta['namespace'], meta['name'],
                lambda one: one['metadata'].setdefault(
                    'annotations', {}).update({rollout.REVISION: number}),
                manager=_MANAGER)

    def _continue_rollout(self, deployment, new, olds):
        def numbers(one):
            pods = len(self._active_pods(one))
            return (one['spec']['replicas'], pods,
                    one.get('status', {}).get('availableReplicas', 0))
        wanted, left = rollout.step(
            deployment['spec'], numbers(new), [numbers(o) for o in olds])
        self._scale(deployment, new, wanted)
        for old, count in zip(olds, left, strict=True):
            self._scale(deployment, old, count)

    def _active_pods(self, owner):
        """List the pods of a ReplicaSet that have not ended."""
        return [p for p in self._pods.get(owner['metadata']['uid'])
                if not podstate.has_ended(p)]

    def _scale(self, deployment, one, count):
        was = one['spec']['replicas']
        if was == count:
            return
        meta = one['metadata']
        self._store.change(
            workload_kinds.REPLICA_SET, meta['namespace'], meta['name'],
            lambda new: new['spec'].update(replicas=count), manager=_MANAGER)
        self._recorder.event(
            deployment, events.NORMAL, 'ScalingReplicaSet',
            f'Scaled {"up" if count > was else "down"} replica set '
            f'{meta["name"]} from {was} to {count}', _NAME)

    def _forget(self, deployment, key):
        """Delete old ReplicaSets beyond the revision history limit."""
        limit = deployment['spec'].get('revisionHistoryLimit', 10)
        name = rollout.template_hash(deployment['spec']['template'])
        idle = sorted((
            s for s in self._sets.get(deployment['metadata']['uid'])
            if s['metadata']['labels'].get(rollout.HASH) != name
            and not owner_references.ends(s) and not s['spec']['replicas']
            and not s.get('status', {}).get('replicas')), key=_revision)
        for one in idle[:max(0, len(idle) - limit)]:
            self._store.delete(workload_kinds.REPLICA_SET, key[0],
                               one['metadata']['name'])

    # -- status -----------------------------------------------------------

    def _update_status(self, deployment, key, new, made):
        sets = self._sets.get(deployment['metadata']['uid'])

        def total(name, of=sets):
            return sum(s.get('status', {}).get(name, 0) for s in of)
        newest = [s for s in sets if new is not None and s['metadata'][
            'name'] == new['metadata']['name']]
        wanted = deployment['spec'].get('replicas', 1)
        counts = {
            'replicas': total('replicas'),
            'updatedReplicas': total('replicas', newest),
            'readyReplicas': total('readyReplicas'),
            'availableReplicas': total('availableReplicas'),
            'unavailableReplicas': max(
                0, max(total('replicas'), wanted)
                - total('availableReplicas'))}
        _, missing = rollout.limits(deployment['spec'])
        if deployment['spec']['strategy']['type'] == 'Recreate':
            missing = 0
        enough = counts['availableReplicas'] >= wanted - missing
        complete = new is not None and (
            counts['updatedReplicas'] == counts['replicas'] == counts[
                'availableReplicas'] == wanted)
        limit = deployment['spec'].get('progressDeadlineSeconds', 600)

        def change(one):
            status = one.setdefault('status', {})
            before = {name: status.get(name, 0) for name in counts}
            for name, value in counts.items():
                if value:
                    status[name] = value
                else:
                    status.pop(name, None)
            status['observedGeneration'] = one['metadata']['generation']
            _put(status, 'Available', enough, *(
                ('MinimumReplicasAvailable',
                 'Deployment has minimum availability.') if enough else
                ('MinimumReplicasUnavailable',
                 'Deployment does not have minimum availability.')))
            self._set_progressing(one, key, new, made, complete,
                                  before != counts, limit)
            _put_failure(status, (*newest, *sets))
        self._store.change(workload_kinds.DEPLOYMENT, *key, change,
                           subresource='status', manager=_MANAGER)

    def _set_progressing(self, one, key, new, made, complete, moved, limit):
        status = one['status']
        if new is None:
            _put(status, 'Progressing', 'Unknown', 'DeploymentPaused',
                 'Deployment is paused')
            return
        name = new['metadata']['name']
        old = podstate.condition(one, 'Progressing') or {}
        if complete:
            if old.get('reason') != 'NewReplicaSetAvailable' or (
                    f'"{name}"' not in old.get('message', '')):
                _put(status, 'Progressing', True, 'NewReplicaSetAvailable',
                     f'ReplicaSet "{name}" has successfully progressed.',
                     True)
        elif made:
            _put(status, 'Progressing', True, 'NewReplicaSetCreated',
                 f'Created new replica set "{name}"', True)
        elif moved and old.get('reason') != 'NewReplicaSetAvailable' or (
                f'"{name}"' not in old.get('message', '')):
            _put(status, 'Progressing', True, 'ReplicaSetUpdated',
                 f'ReplicaSet "{name}" is progressing.', True)
        elif old.get('reason') in ('NewReplicaSetCreated',
                                   'ReplicaSetUpdated'):
            since = datetime.datetime.fromisoformat(old['lastUpdateTime'])
            left = limit - (datetime.datetime.now(datetime.UTC)
                            - since).total_seconds()
            if left <= 0:
                _put(status, 'Progressing', False,
                     'ProgressDeadlineExceeded', f'ReplicaSet "{name}" has '
                     'timed out progressing.')
                return
        if not complete:
            self._queue.add_after(key, limit)


def _put_failure(status, sets):
    """Copy the condition of the first ReplicaSet that cannot create pods."""
    found = next(filter(None, (
        podstate.condition(one, 'ReplicaFailure') for one in sets)), None)
    if found is None:
        status['conditions'] = [one for one in status['conditions']
                                if one['type'] != 'ReplicaFailure']
    else:
        _put(status, 'ReplicaFailure', found['status'], found['reason'],
             found['message'])


def _revision(obj):
    try:
        return int((obj['metadata'].get('annotations') or {}).get(
            rollout.REVISION, 0))
    except ValueError:
        return 0


def _put(status, kind, value, reason, message, news=False):
    """Set a condition.

    :param news: the time of its update moves, whether or not it changed.
    """
    if isinstance(value, bool):
        value = 'True' if value else 'False'
    conditions = status.setdefault('conditions', [])
    now = metadata.now()
    made = {'type': kind, 'status': value, 'reason': reason,
            'message': message, 'lastUpdateTime': now,
            'lastTransitionTime': now}
    for at, old in enumerate(conditions):
        if old['type'] == kind:
            if old['status'] == value:
                made['lastTransitionTime'] = old['lastTransitionTime']
                if not news and (old['reason'], old['message']) == (
                        reason, message):
                    return
            conditions[at] = made
            return
    conditions.append(made)
