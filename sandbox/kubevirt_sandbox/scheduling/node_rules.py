# SPDX-License-Identifier: Apache-2.0
"""Rules about a node alone: cordon, selectors, affinity, taints.

Source: plugins nodeunschedulable, nodeaffinity and tainttoleration of
pkg/scheduler (Kubernetes 1.36).
"""

from kubevirt_sandbox.api import labels

_CORDON = {'key': 'node.kubernetes.io/unschedulable',
           'effect': 'NoSchedule'}


def unfit(node, spec):
    """Describe why a pod cannot be on a node, or return ''.

    :param node: the node.
    :param spec: the pod's spec.
    """
    about = node.get('spec') or {}
    if about.get('unschedulable') and not _tolerated(spec, _CORDON):
        return 'node(s) were unschedulable'
    if any(not _tolerated(spec, taint) for taint in about.get('taints') or ()
           if taint.get('effect') != 'PreferNoSchedule'):
        return 'node(s) had untolerated taint(s)'
    if not selects(spec, node):
        return "node(s) didn't match Pod's node affinity/selector"
    return ''


def tolerates_taints(spec, node):
    """Tell whether a pod tolerates the taints of a node."""
    return all(_tolerated(spec, taint)
               for taint in (node.get('spec') or {}).get('taints') or ()
               if taint.get('effect') != 'PreferNoSchedule')


def disliked(spec, node):
    """Count the ``PreferNoSchedule`` taints that a pod does not tolerate."""
    return sum(taint.get('effect') == 'PreferNoSchedule'
               and not _tolerated(spec, taint)
               for taint in (node.get('spec') or {}).get('taints') or ())


def _tolerated(spec, taint):
    return any(tolerates(one, taint) for one in spec.get('tolerations') or ())


def tolerates(toleration, taint):
    """Tell whether a toleration matches a taint."""
    if toleration.get('effect') not in (None, '', taint.get('effect')):
        return False
    if toleration.get('operator') == 'Exists':
        return toleration.get('key') in (None, '', taint.get('key'))
    return (toleration.get('key') == taint.get('key')
            and toleration.get('value', '') == taint.get('value', ''))


def selects(spec, node):
    """Tell whether selector and required node affinity allow a node."""
    has = node['metadata'].get('labels') or {}
    if not (spec.get('nodeSelector') or {}).items() <= has.items():
        return False
    required = _affinity(spec).get(
        'requiredDuringSchedulingIgnoredDuringExecution')
    return required is None or any(
        _matches(term, node) for term in required.get(
            'nodeSelectorTerms') or ())


def preference(spec, node):
    """Sum the weights of the preferred node affinity that a node meets."""
    return sum(one.get('weight', 0) for one in _affinity(spec).get(
        'preferredDuringSchedulingIgnoredDuringExecution') or ()
        if _matches(one.get('preference') or {}, node))


def _affinity(spec):
    return (spec.get('affinity') or {}).get('nodeAffinity') or {}


def _matches(term, node):
    """Tell whether a node matches a term; an empty term matches none."""
    meta = node['metadata']
    pairs = [(one, meta.get('labels') or {})
             for one in term.get('matchExpressions') or ()]
    pairs += [(one, {'metadata.name': meta['name']})
              for one in term.get('matchFields') or ()]
    return bool(pairs) and all(_holds(one, has) for one, has in pairs)


def _holds(requirement, has):
    operator = requirement.get('operator')
    if operator not in ('Gt', 'Lt'):
        return labels.matches({'matchExpressions': [requirement]}, has)
    try:
        value = int(has[requirement.get('key')])
        bound = int(requirement['values'][0])
    except (KeyError, IndexError, TypeError, ValueError):
        return False
    return value > bound if operator == 'Gt' else value < bound
