# SPDX-License-Identifier: Apache-2.0
"""Finds the node of a pod, and says why there is none.

Source: pkg/scheduler/schedule_one.go, framework/types.go (FitError) and
plugins/defaultpreemption (Kubernetes 1.36).
"""

import asyncio
import collections
import dataclasses

from kubevirt_sandbox.api import core
from kubevirt_sandbox.api import pod_resources
from kubevirt_sandbox.scheduling import demand
from kubevirt_sandbox.scheduling import node_rules
from kubevirt_sandbox.scheduling import pod_rules

COMPONENT = 'default-scheduler'

_RETRY_SECONDS = 0.2
_RESOLVABLE = pod_rules.SKEWED, pod_rules.ANTI_AFFINITY, pod_rules.EXISTING


@dataclasses.dataclass
class _Pod:
    """A pod on a node: what others are compared with."""

    namespace: str
    labels: dict
    node: str
    demand: dict
    anti: tuple
    ends: bool


@dataclasses.dataclass
class Place:
    """A node with its pods.

    :param node: the node.
    :param pods: dict of uid to pod.
    :param used: amounts that the pods request.
    """

    node: dict
    pods: dict
    used: dict

    @property
    def name(self):
        """Return the name of the node."""
        return self.node['metadata']['name']

    @property
    def offered(self):
        """Return allocatable amounts, or None before they are known."""
        found = (self.node.get('status') or {}).get('allocatable')
        return None if found is None else pod_resources.amounts(found)


class Scheduler:
    """Knows where pods are and finds nodes for more.

    Pods of the API are known by their objects; others, the launchers of VMs,
    by :meth:`assume` and :meth:`forget`.

    :param store: the store.
    """

    def __init__(self, store):
        self._store = store
        self._pods = {}
        self._on_node = collections.defaultdict(dict)
        self._used = collections.defaultdict(collections.Counter)
        self._waiting = []
        self._retry = None
        store.subscribe(core.POD, self._on_pod)
        store.subscribe(core.NODE, lambda *_: self._notify())

    # -- what is where ----------------------------------------------------

    def call_when_changed(self, callback):
        """Call a function when a pod without a node may find one.

        :param callback: function without parameters.
        :returns: a function that removes the callback.
        """
        self._waiting.append(callback)
        return lambda: self._waiting.remove(callback)

    def assume(self, pod, node):
        """Note that a pod is on a node.

        :param pod: the pod, with ``metadata.uid``.
        :param node: name of the node.
        """
        meta = pod['metadata']
        self._drop(meta['uid'])
        made = self._pods[meta['uid']] = _Pod(
            meta.get('namespace'), meta.get('labels') or {}, node,
            demand.of_pod(pod['spec']),
            pod_rules.terms(pod, 'podAntiAffinity'),
            'deletionTimestamp' in meta)
        self._on_node[node][meta['uid']] = made
        self._used[node].update(made.demand)

    def forget(self, uid, retry=True):
        """Note that a pod has left its node.

        :param uid: uid of the pod.
        :param retry: whether waiting pods may have its place.
        """
        if self._drop(uid) and retry and self._retry is None:
            # Many pods may leave at a time.
            self._retry = asyncio.get_running_loop().call_later(
                _RETRY_SECONDS, self._notify)

    def _drop(self, uid):
        pod = self._pods.pop(uid, None)
        if pod is None:
            return False
        del self._on_node[pod.node][uid]
        self._used[pod.node].subtract(pod.demand)
        return True

    def _on_pod(self, type_, pod, old):
        uid, node = pod['metadata']['uid'], pod['spec'].get('nodeName')
        ended = (pod.get('status') or {}).get('phase') in (
            'Succeeded', 'Failed')
        if type_ == 'DELETED' or ended or not node:
            self.forget(uid)
        elif old is None or uid not in self._pods or any(
                old['metadata'].get(key) != pod['metadata'].get(key)
                for key in ('labels', 'deletionTimestamp')):
            self.assume(pod, node)

    def _notify(self):
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        for callback in list(self._waiting):
            callback()

    # -- finding a node ---------------------------------------------------

    def find(self, pod):
        """Find the node of a pod.

        :param pod: the pod; its ``metadata`` needs a namespace and labels.
        :returns: (name of the node, '') or (None, why there is none).
        """
        places = [Place(node, self._on_node[node['metadata']['name']],
                        self._used[node['metadata']['name']])
                  for node in self._store.list(core.NODE)]
        if not places:
            return None, 'no nodes available to schedule pods'
        wanted = demand.of_pod(pod['spec'])
        spread = pod_rules.Spread(pod, places, 'DoNotSchedule')
        affinity = pod_rules.Affinity(pod, places, self._namespace_labels)
        fitting, reasons, helped = [], collections.Counter(), 0
        for place in places:
            found, resolvable = _unfit(pod, place, wanted, spread, affinity)
            if found:
                reasons.update(found)
                helped += resolvable
            else:
                fitting.append(place)
        if not fitting:
            return None, _text(len(places), reasons, helped)
        return _best(pod, fitting, places, wanted, affinity), ''

    def no_node(self, reason):
        """Describe that no node will do for one reason about the pod."""
        total = len(self._store.list(core.NODE))
        return _text(total, {}, 0, reason)

    def _namespace_labels(self, name):
        found = self._store.find(core.NAMESPACE, '', name) or {}
        return (found.get('metadata') or {}).get('labels') or {}


def of(server):
    """Return the scheduler of an API server; make it at the first call.

    :param server: the :class:`api.server.Server`.
    """
    if server.scheduler is None:
        server.scheduler = Scheduler(server.store)
    return server.scheduler


def _unfit(pod, place, wanted, spread, affinity):
    """Return why a node does not fit, and whether preemption might help."""
    why = node_rules.unfit(place.node, pod['spec'])
    if why:
        return [why], False
    if place.offered is not None:
        found, resolvable = demand.lacking(wanted, place.offered, place.used)
        if found:
            return found, resolvable
    why = spread.unfit(place.node) or affinity.unfit(place.node)
    return [why] if why else [], why in _RESOLVABLE


def _text(total, reasons, helped, about_pod=''):
    head = f'0/{total} nodes are available: '
    others = {'No preemption victims found for incoming pod': helped,
              'Preemption is not helpful for scheduling': total - helped}
    return (f'{head}{about_pod or _list(reasons)}. no new claims to '
            f'deallocate, preemption: {head}{_list(others)}.')


def _list(counts):
    return ', '.join(sorted(f'{count} {what}'
                            for what, count in counts.items() if count))


def _best(pod, fitting, places, wanted, affinity):
    """Return the name of the best node; the weights are Kubernetes'."""
    if len(fitting) == 1:
        return fitting[0].name
    spec, nodes = pod['spec'], [place.node for place in fitting]
    rated = (
        (3, pod_rules.normalized(
            [-node_rules.disliked(spec, node) for node in nodes])),
        (2, pod_rules.normalized(
            [node_rules.preference(spec, node) for node in nodes])),
        (2, pod_rules.Spread(pod, places, 'ScheduleAnyway').scores(nodes)),
        (2, affinity.scores(nodes)),
        (1, [demand.least_allocated(wanted, place.offered or {}, place.used)
             for place in fitting]))
    sums = [sum(weight * scores[at] for weight, scores in rated)
            for at in range(len(fitting))]
    # Kubernetes chooses one of the best by chance; here, the emptiest.
    at = min(range(len(fitting)), key=lambda at: (
        -round(sums[at]), len(fitting[at].pods), fitting[at].name))
    return fitting[at].name
