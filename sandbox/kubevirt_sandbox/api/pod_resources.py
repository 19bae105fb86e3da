# SPDX-License-Identifier: Apache-2.0
"""Resources that pods request.

Amounts are integers: thousandths of CPUs, and whole units of everything else,
rounded up.

Source: PodRequests and PodLimits in component-helpers/resource/helpers.go
(Kubernetes 1.36).
"""

import math

from kubevirt_sandbox.api import quantity


def amounts(resources):
    """Return the amounts of a ResourceList.

    :param resources: dict of name to quantity, or None.
    """
    return {name: math.ceil(quantity.value(value)
                            * (1000 if name == 'cpu' else 1))
            for name, value in (resources or {}).items()}


def requests(spec):
    """Return what a pod requests.

    :param spec: the pod's spec.
    :returns: dict of resource name to amount.
    """
    return _total(spec, lambda resources: {
        **(resources.get('limits') or {}),
        **(resources.get('requests') or {})})


def limits(spec):
    """Return the limits of a pod; see :func:`requests`."""
    return _total(spec, lambda resources: resources.get('limits'))


def _total(spec, read):
    def of(one):
        return amounts(read(one.get('resources') or {}))
    total, most, beside = {}, {}, {}
    for one in spec.get('initContainers') or ():
        if one.get('restartPolicy') == 'Always':
            _add(beside, of(one))
            _raise(most, beside)
        else:
            _raise(most, _add(dict(beside), of(one)))
    for one in spec.get('containers') or ():
        _add(total, of(one))
    _raise(_add(total, beside), most)
    total.update(of(spec))
    return _add(total, amounts(spec.get('overhead')))


def _add(total, more):
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount
    return total


def _raise(total, least):
    for name, amount in least.items():
        total[name] = max(total.get(name, 0), amount)
