# SPDX-License-Identifier: Apache-2.0
"""All objects of a cluster."""

from __future__ import annotations

from collections import abc
import typing

from sushy_kubevirt.cluster.objects import bmc
from sushy_kubevirt.cluster.objects import networks
from sushy_kubevirt.cluster.objects import vm

if typing.TYPE_CHECKING:
    from sushy_kubevirt.cluster import model
    from sushy_kubevirt.cluster.objects import stamp
    from sushy_kubevirt.kube import objects


def wanted(cluster: model.Cluster, namespace: str,
           without_secret: abc.Collection[str] = ()) -> list[stamp.Wanted]:
    """Make all objects that a cluster should have.

    :param without_secret: names of nodes for whose BMCs the operator makes
        the Secrets
    :returns: in the order of their creation
    """
    declared = networks.definitions(cluster, namespace)
    for node in cluster.nodes:
        own = node.name not in without_secret
        if own:
            declared.append(bmc.secret(cluster, node, namespace))
        declared += (vm.virtual_machine(cluster, node, namespace),
                     bmc.bmc(cluster, node, namespace, own))
    return declared


def manifests(cluster: model.Cluster, namespace: str) -> list[objects.Json]:
    """Make the objects for a tool that applies them, such as GitOps.

    Passwords do not belong there, so the Secrets are left out, and the
    operator makes one for each BMC. `plan` accepts that.
    """
    return [declared.body for declared in wanted(
        cluster, namespace, {node.name for node in cluster.nodes})]
