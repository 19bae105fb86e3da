# SPDX-License-Identifier: Apache-2.0
"""Rules about the pods on other nodes: spreading, affinity between pods.

Each rule counts pods for each value of a label of nodes, a topology domain.

Source: plugins podtopologyspread and interpodaffinity of pkg/scheduler
(Kubernetes 1.36).
"""

import collections
import math

from kubevirt_sandbox.api import labels
from kubevirt_sandbox.scheduling import node_rules

SKEWED = "node(s) didn't match pod topology spread constraints"
UNLABELLED = SKEWED + ' (missing required label)'
AFFINITY = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
EXISTING = "node(s) didn't satisfy existing pods anti-affinity rules"

_REQUIRED = 'requiredDuringSchedulingIgnoredDuringExecution'
_PREFERRED = 'preferredDuringSchedulingIgnoredDuringExecution'


def _labels(obj):
    return obj['metadata'].get('labels') or {}


def _selected(selector, has):
    """Tell whether labels are selected; no selector selects nothing."""
    return selector is not None and labels.matches(selector, has)


class Spread:
    """The ``topologySpreadConstraints`` of a pod, of one kind.

    :param pod: the pod.
    :param places: the :class:`scheduler.Place` of every node.
    :param when: ``DoNotSchedule`` or ``ScheduleAnyway``.
    """

    def __init__(self, pod, places, when):
        spec = pod['spec']
        self._constraints = [
            _constraint(one, pod)
            for one in spec.get('topologySpreadConstraints') or ()
            if one.get('whenUnsatisfiable', 'DoNotSchedule') == when]
        self._own = _labels(pod)
        keys = {one['topologyKey'] for one in self._constraints}
        self._counts = [collections.Counter() for _ in self._constraints]
        if not keys:
            return
        namespace = pod['metadata'].get('namespace')
        for place in places:
            has = _labels(place.node)
            if not keys <= has.keys():
                continue
            for one, counts in zip(
                    self._constraints, self._counts, strict=True):
                if _includes(one, spec, place.node):
                    counts[has[one['topologyKey']]] += sum(
                        other.namespace == namespace and not other.ends
                        and _selected(one['labelSelector'], other.labels)
                        for other in place.pods.values())

    def unfit(self, node):
        """Return why a pod would not be spread, or '', for a node."""
        for one, counts in zip(self._constraints, self._counts, strict=True):
            value = _labels(node).get(one['topologyKey'])
            if value is None:
                return UNLABELLED
            least = min(counts.values(), default=math.inf)
            if len(counts) < one.get('minDomains', 1):
                least = 0
            own = _selected(one['labelSelector'], self._own)
            if counts[value] + own - least > one.get('maxSkew', 1):
                return SKEWED
        return ''

    def scores(self, nodes):
        """Rate nodes from 0 to 100, the least filled domain best."""
        costs = [self._cost(node, nodes) for node in nodes]
        rated = [cost for cost in costs if cost is not None]
        most, least = max(rated, default=0), min(rated, default=0)
        return [0 if cost is None else 100 if not most
                else 100 * (most + least - cost) // most for cost in costs]

    def _cost(self, node, nodes):
        has, cost = _labels(node), 0
        for one, counts in zip(self._constraints, self._counts, strict=True):
            key = one['topologyKey']
            if key not in has:
                return None
            domains = {_labels(other).get(key) for other in nodes} - {None}
            cost += counts[has[key]] * math.log(
                len(domains) + 2) + one.get('maxSkew', 1) - 1
        return round(cost)


def _constraint(one, pod):
    """Return a constraint whose selector includes ``matchLabelKeys``."""
    selector, own = one.get('labelSelector'), _labels(pod)
    more = [{'key': key, 'operator': 'In', 'values': [own[key]]}
            for key in one.get('matchLabelKeys') or () if key in own]
    if more:
        selector = {**(selector or {}), 'matchExpressions': [
            *((selector or {}).get('matchExpressions') or ()), *more]}
    return {**one, 'labelSelector': selector}


def _includes(constraint, spec, node):
    """Tell whether a node takes part in spreading."""
    if constraint.get('nodeAffinityPolicy', 'Honor') == 'Honor' and (
            not node_rules.selects(spec, node)):
        return False
    return (constraint.get('nodeTaintsPolicy', 'Ignore') == 'Ignore'
            or node_rules.tolerates_taints(spec, node))


class Affinity:
    """The affinity and anti-affinity of a pod to other pods.

    :param pod: the pod.
    :param places: the :class:`scheduler.Place` of every node.
    :param namespace_labels: function of a namespace's name that returns its
        labels.
    """

    def __init__(self, pod, places, namespace_labels):
        self._namespace_labels = namespace_labels
        self._home = pod['metadata'].get('namespace')
        own = self._home, _labels(pod)
        self._near = terms(pod, 'podAffinity')
        self._far = terms(pod, 'podAntiAffinity')
        self._alone = bool(self._near) and all(
            self._matches(term, self._home, *own) for term in self._near)
        self._weighted = [
            (sign * one.get('weight', 0), one.get('podAffinityTerm') or {})
            for kind, sign in (('podAffinity', 1), ('podAntiAffinity', -1))
            for one in _part(pod, kind).get(_PREFERRED) or ()]
        self._there, self._taken, self._barred = set(), set(), set()
        self._likes = collections.Counter()
        for place in places:
            self._look(place, own)

    def _look(self, place, own):
        """Note the domains of a node by the pods on it."""
        has = _labels(place.node)

        def domain(term):
            key = term.get('topologyKey')
            return {(key, has[key])} if key in has else set()
        cares = self._near or self._far or self._weighted
        for other in place.pods.values():
            for term in other.anti:
                if self._matches(term, other.namespace, *own):
                    self._barred |= domain(term)
            if not cares:
                continue
            facts = other.namespace, other.labels
            if self._near and all(self._matches(term, self._home, *facts)
                                  for term in self._near):
                for term in self._near:
                    self._there |= domain(term)
            for term in self._far:
                if self._matches(term, self._home, *facts):
                    self._taken |= domain(term)
            for weight, term in self._weighted:
                if self._matches(term, self._home, *facts):
                    for pair in domain(term):
                        self._likes[pair] += weight

    def _matches(self, term, home, namespace, has):
        """Tell whether a term of a pod in ``home`` matches another pod."""
        chosen = term.get('namespaceSelector')
        named = term.get('namespaces') or ()
        if not (namespace in named or chosen is not None and _selected(
                chosen, self._namespace_labels(namespace))
                or not named and chosen is None and namespace == home):
            return False
        return _selected(term.get('labelSelector'), has)

    def unfit(self, node):
        """Return why a node breaks a rule, or ''."""
        has = _labels(node)
        pairs = [(term.get('topologyKey'), has.get(term.get('topologyKey')))
                 for term in self._near]
        if any(value is None for _, value in pairs) or (
                not self._there.issuperset(pairs)
                and (self._there or not self._alone)):
            return AFFINITY
        if not self._taken.isdisjoint(has.items()):
            return ANTI_AFFINITY
        return '' if self._barred.isdisjoint(has.items()) else EXISTING

    def scores(self, nodes):
        """Rate nodes from 0 to 100 by the preferred terms."""
        sums = [sum(self._likes[pair] for pair in _labels(node).items())
                for node in nodes]
        return normalized(sums)


def normalized(values):
    """Map numbers to 0 to 100, the largest to 100; equal ones to 0."""
    least, most = min(values, default=0), max(values, default=0)
    return [100 * (value - least) / (most - least) if most > least else 0
            for value in values]


def _part(pod, kind):
    return (pod['spec'].get('affinity') or {}).get(kind) or {}


def terms(pod, kind):
    """Return the required terms of a pod.

    :param kind: ``podAffinity`` or ``podAntiAffinity``.
    """
    return _part(pod, kind).get(_REQUIRED) or ()
