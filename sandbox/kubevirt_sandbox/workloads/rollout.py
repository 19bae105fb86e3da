# SPDX-License-Identifier: Apache-2.0
"""The rules of a rollout: pure functions of numbers and templates.

Source: kubernetes/pkg/controller/deployment/{util,rolling.go,progress.go}
(1.36).
"""

import hashlib
import json
import math

from kubevirt_sandbox.api import json_copy

HASH = 'pod-template-hash'
REVISION = 'deployment.kubernetes.io/revision'

# Kubernetes' alphabet, without vowels to avoid words.
_LETTERS = 'bcdfghjklmnpqrstvwxz2456789'


def share(value, total, up):
    """Return the number of pods for ``3`` or ``25%``.

    :param up: round up, not down.
    """
    if isinstance(value, str) and value.endswith('%'):
        exact = int(value[:-1]) * total / 100
        return math.ceil(exact) if up else math.floor(exact)
    return int(value or 0)


def limits(spec):
    """Return how many pods a rollout may add and leave unavailable.

    :param spec: the Deployment's spec, with defaults.
    :returns: (surge, unavailable); one of them is not 0.
    """
    rolling = (spec.get('strategy') or {}).get('rollingUpdate') or {}
    replicas = spec.get('replicas', 1)
    surge = share(rolling.get('maxSurge', '25%'), replicas, True)
    gone = share(rolling.get('maxUnavailable', '25%'), replicas, False)
    if not surge and not gone:
        gone = 1
    return surge, min(gone, replicas)


def template_hash(template):
    """Return the hash that names a pod template."""
    digest = hashlib.blake2b(json.dumps(
        _full(bare(template)), sort_keys=True).encode(),
        digest_size=10).digest()
    return ''.join(_LETTERS[byte % len(_LETTERS)] for byte in digest)


def _full(value):
    """Remove empty values, which clients write in different ways."""
    if isinstance(value, dict):
        parts = {key: _full(part) for key, part in value.items()}
        return {key: part for key, part in parts.items()
                if part not in (None, {}, [])}
    if isinstance(value, list):
        return [_full(part) for part in value]
    return value


def bare(template):
    """Return a template without its hash label."""
    template = json_copy.copy(template)
    labels = (template.get('metadata') or {}).get('labels')
    if labels:
        labels.pop(HASH, None)
    return template


def step(spec, new, olds):
    """Return the next step of a rollout.

    :param spec: the Deployment's spec.
    :param new: (desired, existing, available) pods of the new ReplicaSet.
    :param olds: the same for each older ReplicaSet, the oldest first.
    :returns: (desired pods of the new one, [those of each older one])
    """
    replicas = spec.get('replicas', 1)
    wanted, _, available = new
    if (spec.get('strategy') or {}).get('type') == 'Recreate':
        if any(o[0] or o[1] for o in olds):
            return wanted, [0] * len(olds)
        return replicas, [0] * len(olds)
    surge, gone = limits(spec)
    total = wanted + sum(o[0] for o in olds)
    if wanted > replicas:
        wanted = replicas
    elif wanted < replicas:
        wanted += max(0, min(replicas + surge - total, replicas - wanted))
    left = [o[0] for o in olds]
    # Remove unavailable pods first, then as many of the others as may be
    # unavailable.
    spare = max(0, total - (replicas - gone) - max(0, new[0] - available))
    for index, (_, _, ready) in enumerate(olds):
        cut = min(max(0, left[index] - ready), spare)
        left[index] -= cut
        spare -= cut
    ready = available + sum(min(left[i], o[2]) for i, o in enumerate(olds))
    spare = min(spare, max(0, ready - (replicas - gone)))
    for index in range(len(olds)):
        cut = min(left[index], spare)
        left[index] -= cut
        spare -= cut
    return wanted, left
