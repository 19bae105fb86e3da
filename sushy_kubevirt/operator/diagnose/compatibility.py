# SPDX-License-Identifier: Apache-2.0
"""Versions of Kubernetes, KubeVirt and CDI that this version is made for.

A newer one than was tested is no reason to refuse it: `versions` warns.

doc/source/operator/compatibility.rst has the same table, with what was tested.
"""

from __future__ import annotations

from collections import abc
import typing

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import feature_gates

#: Oldest Kubernetes, and newest that was tested, (major, minor). Validating-
#: AdmissionPolicies are served as v1 from 1.30 on.
KUBERNETES = (1, 30), (1, 37)

#: By KubeVirt version: the oldest and the newest Kubernetes that KubeVirt
#: supports (kubevirt/sig-release, releases/k8s-support-matrix.md, 2026-07), or
#: that it was tested with: 1.9 on 1.37.
KUBEVIRT = {
    (1, 5): ((1, 30), (1, 32)),
    (1, 6): ((1, 31), (1, 33)),
    (1, 7): ((1, 32), (1, 34)),
    (1, 8): ((1, 33), (1, 35)),
    (1, 9): ((1, 34), (1, 37)),
}

#: Oldest and newest CDI.
CDI = (1, 63), (1, 66)


def text(version: feature_gates.Version) -> str:
    """Return ``1.34`` for (1, 34)."""
    return '.'.join(map(str, version))


def span(versions: abc.Sequence[feature_gates.Version]) -> str:
    """Return ``1.30 to 1.37``."""
    return f'{text(versions[0])} to {text(versions[-1])}'
