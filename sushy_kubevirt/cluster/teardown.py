# SPDX-License-Identifier: Apache-2.0
"""Deletes everything that a cluster has in Kubernetes."""

from __future__ import annotations

from sushy_kubevirt.cluster import model
from sushy_kubevirt.cluster import plan


def make(client, name, namespace):
    """Plan the deletion of a cluster; `apply.run` carries it out.

    The cluster's file is not needed.

    :param client: a `client.Client`
    :param name: of the cluster
    :param namespace: of its objects
    :returns: a `plan.Plan`; false if there is no such cluster
    """
    return plan.make(client, model.Cluster(name, namespace), namespace)
