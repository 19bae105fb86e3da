# SPDX-License-Identifier: Apache-2.0
"""Whether the resources of a node suffice.

Source: plugins/noderesources of pkg/scheduler (Kubernetes 1.36).
"""

from kubevirt_sandbox.api import pod_resources

_PODS = 'pods'


def of_pod(spec):
    """Return what a pod takes from a node, with its place among the pods.

    :param spec: the pod's spec.
    :returns: dict of resource name to amount.
    """
    return {**pod_resources.requests(spec), _PODS: 1}


def lacking(wanted, offered, used):
    """Tell what of a request a node lacks.

    :param wanted: amounts that the pod requests.
    :param offered: allocatable amounts of the node.
    :param used: amounts that its pods request.
    :returns: list of reasons, and whether other pods could make room.
    """
    reasons, resolvable = [], True
    for name, amount in wanted.items():
        if not amount or amount <= offered.get(name, 0) - used.get(name, 0):
            continue
        reasons.append('Too many pods' if name == _PODS
                       else f'Insufficient {name}')
        resolvable = resolvable and amount <= offered.get(name, 0)
    return reasons, resolvable


def least_allocated(wanted, offered, used):
    """Rate how much CPU and memory stay free, from 0 to 100."""
    shares = [
        max(0, 1 - (used.get(name, 0) + wanted.get(name, 0)) / offered[name])
        for name in ('cpu', 'memory') if offered.get(name)]
    return 100 * sum(shares) / len(shares) if shares else 0
