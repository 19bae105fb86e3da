# SPDX-License-Identifier: Apache-2.0
"""Deletes everything that a cluster has in Kubernetes."""

from __future__ import annotations

import typing

from sushy_kubevirt.cluster import model
from sushy_kubevirt.cluster import plan

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import client


def make(client: client.Client, name: str, namespace: str) -> plan.Plan:
    """Plan the deletion of a cluster; `apply.run` carries it out.

    The cluster's file is not needed.

    :param name: of the cluster
    :param namespace: of its objects
    :returns: false if there is no such cluster
    """
    return plan.make(client, model.Cluster(name, namespace), namespace)
