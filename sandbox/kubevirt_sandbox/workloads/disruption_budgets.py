# SPDX-License-Identifier: Apache-2.0
"""PodDisruptionBudgets and evictions of pods.

``kubectl drain`` requests the eviction of each pod; a PodDisruptionBudget
refuses it when too few pods would be left.

Source: kubernetes/pkg/controller/disruption and
pkg/registry/core/pod/storage/eviction.go (1.36).
"""

from kubevirt_sandbox.api import core
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import labels
from kubevirt_sandbox.api import metadata
from kubevirt_sandbox.kubevirt import workqueue
from kubevirt_sandbox.workloads import owner_references
from kubevirt_sandbox.workloads import podstate
from kubevirt_sandbox.workloads import rollout
from kubevirt_sandbox.workloads import workload_kinds

_MANAGER = 'kube-controller-manager'


def numbers(spec, pods, expected):
    """Compute the status of a budget.

    :param spec: the budget's spec.
    :param pods: the pods that it selects.
    :param expected: number of pods that their controllers want.
    :returns: dict, the numbers of its status.
    """
    healthy = sum(podstate.ready(pod) and not owner_references.ends(pod)
                  for pod in pods)
    if spec.get('maxUnavailable') is not None:
        desired = max(0, expected - rollout.share(
            spec['maxUnavailable'], expected, True))
    else:
        least = spec.get('minAvailable', 1)
        if isinstance(least, int):
            expected, desired = len(pods), least
        else:
            desired = rollout.share(least, expected, True)
    return {'expectedPods': expected, 'currentHealthy': healthy,
            'desiredHealthy': desired, 'disruptionsAllowed':
                max(0, healthy - desired) if expected else 0}


class Controller:
    """Updates the status of budgets and handles evictions.

    :param store: the store.
    :param loop: the asyncio loop.
    :param lag: maximum delay of each reconciliation in seconds.
    """

    def __init__(self, store, loop, lag=0):
        self._store = store
        self._queue = workqueue.WorkQueue(loop, self._sync, 'disruption', lag)
        self._ends = [
            store.subscribe(workload_kinds.DISRUPTION_BUDGET, self._on_event),
            store.subscribe(core.POD, self._on_pod),
        ]

    def close(self):
        """Stop the controller."""
        for end in self._ends:
            end()
        self._queue.close()

    def _on_event(self, type_, budget, old):
        self._queue.add((budget['metadata']['namespace'],
                         budget['metadata']['name']))

    def _on_pod(self, type_, pod, old):
        for budget in self._about(pod):
            self._on_event(type_, budget, None)

    def _about(self, pod):
        """List the budgets that select a pod."""
        return [budget for budget in self._store.list(
            workload_kinds.DISRUPTION_BUDGET, pod['metadata']['namespace'])
            if labels.matches(budget['spec'].get('selector') or {},
                              pod['metadata'].get('labels'))]

    def _numbers(self, budget):
        meta, spec = budget['metadata'], budget['spec']
        pods = [pod for pod in self._store.list(core.POD, meta['namespace'])
                if not podstate.has_ended(pod) and labels.matches(
                    spec.get('selector') or {}, pod['metadata'].get(
                        'labels'))]
        owners = {}
        for pod in pods:
            found = owner_references.controller(pod) or {}
            owner = self._store.find(
                workload_kinds.REPLICA_SET,
                meta['namespace'],
                found.get('name', ''),
            )
            if owner is not None:
                owners[found['uid']] = owner['spec'].get('replicas', 1)
        return numbers(spec, pods, sum(owners.values()))

    def _sync(self, key):
        budget = self._store.find(workload_kinds.DISRUPTION_BUDGET, *key)
        if budget is None or owner_references.ends(budget):
            return
        found = self._numbers(budget)
        enough = found['disruptionsAllowed'] > 0

        def change(new):
            status = new.setdefault('status', {})
            old = podstate.condition(new, 'DisruptionAllowed') or {}
            value = 'True' if enough else 'False'
            status.update(found, observedGeneration=new['metadata'].get(
                'generation', 0), conditions=[{
                    'type': 'DisruptionAllowed', 'status': value,
                    'reason': 'SufficientPods' if enough
                    else 'InsufficientPods', 'message': '',
                    'observedGeneration': new['metadata'].get(
                        'generation', 0),
                    'lastTransitionTime': old['lastTransitionTime']
                    if old.get('status') == value else metadata.now()}])
        self._store.change(workload_kinds.DISRUPTION_BUDGET, *key, change,
                           subresource='status', manager=_MANAGER)

    async def evict(self, request):
        """Handle ``POST …/pods/NAME/eviction``."""
        pod = request.store.get(core.POD, request.namespace, request.name)
        name = (request.body.get('metadata') or {}).get('name')
        if name and name != request.name:
            raise errors.bad_request(
                f'name in URL does not match name in Eviction object: {name}')
        wanted = request.body.get('deleteOptions') or {}
        budgets = self._about(pod) if podstate.ready(pod) else []
        if len(budgets) > 1:
            raise errors.internal_error(
                'This pod has more than one PodDisruptionBudget, which the '
                'eviction subresource does not support.')
        for budget in budgets:
            found = self._numbers(budget)
            if not found['disruptionsAllowed']:
                raise errors.ApiError(
                    429, 'TooManyRequests', 'Cannot evict pod as it would '
                    'violate the pod\'s disruption budget.', {'causes': [{
                        'reason': 'DisruptionBudget', 'message':
                            'The disruption budget '
                            f'{budget["metadata"]["name"]} needs '
                            f'{found["desiredHealthy"]} healthy pods and '
                            f'has {found["currentHealthy"]} currently'}]})
        if not wanted.get('dryRun'):
            request.store.delete(
                core.POD, request.namespace, request.name,
                grace=wanted.get('gracePeriodSeconds'),
                uid=(wanted.get('preconditions') or {}).get('uid'))
        return 201, {'kind': 'Status', 'apiVersion': 'v1', 'metadata': {},
                     'status': 'Success'}
