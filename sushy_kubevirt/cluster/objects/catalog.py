# SPDX-License-Identifier: Apache-2.0
"""All objects of a cluster."""

from __future__ import annotations

from sushy_kubevirt.cluster.objects import bmc
from sushy_kubevirt.cluster.objects import networks
from sushy_kubevirt.cluster.objects import vm


def wanted(cluster, namespace, without_secret=()):
    """Make all objects that a cluster should have.

    :param cluster: a `model.Cluster`
    :param namespace: of its objects
    :param without_secret: names of nodes for whose BMCs the operator makes
        the Secrets
    :returns: list of `stamp.Wanted`, in the order of their creation
    """
    found = networks.definitions(cluster, namespace)
    for node in cluster.nodes:
        own = node.name not in without_secret
        if own:
            found.append(bmc.secret(cluster, node, namespace))
        found += (vm.virtual_machine(cluster, node, namespace),
                  bmc.bmc(cluster, node, namespace, own))
    return found


def manifests(cluster, namespace):
    """Make the objects for a tool that applies them, such as GitOps.

    Passwords do not belong there, so the Secrets are left out, and the
    operator makes one for each BMC. `plan` accepts that.

    :param cluster: a `model.Cluster`
    :param namespace: of its objects
    :returns: list of dicts
    """
    return [one.body for one in wanted(
        cluster, namespace, {node.name for node in cluster.nodes})]
