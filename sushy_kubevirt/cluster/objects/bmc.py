# SPDX-License-Identifier: Apache-2.0
"""The BMC of a node: VirtualMachineBMC, and Secret with its credentials."""

from __future__ import annotations

from collections import abc
import typing

from sushy_kubevirt.cluster.objects import kinds
from sushy_kubevirt.cluster.objects import merge
from sushy_kubevirt.cluster.objects import stamp
from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.operator import credentials

if typing.TYPE_CHECKING:
    from sushy_kubevirt.cluster import model
    from sushy_kubevirt.kube import objects


def secret_name(node: str) -> str:
    """Return the name of the Secret with the BMC's credentials."""
    return node + '-bmc'


def secret(cluster: model.Cluster, node: model.Node,
           namespace: str) -> stamp.Wanted:
    """Make the Secret without its data, which `with_password` adds."""
    return stamp.wanted(
        api_resources.SECRET, node.name, {'type': 'Opaque'},
        secret_name(node.name), namespace, stamp.labels(cluster, node),
        {'credentials': cluster.credentials})


def with_password(body: objects.Json) -> objects.Json:
    """Return a copy of a Secret with a new random password."""
    return {**body, 'data': {
        credentials.USERNAME: credentials.encoded(
            credentials.DEFAULT_USERNAME),
        credentials.PASSWORD: credentials.encoded(credentials.password())}}


def bmc(cluster: model.Cluster, node: model.Node, namespace: str,
        own_secret: bool = True) -> stamp.Wanted:
    """Make the VirtualMachineBMC.

    :param own_secret: whether its credentials are in the `secret` of the
        cluster; otherwise in one that the operator makes
    """
    spec = {'virtualMachine': {'name': node.name}}
    declared: objects.Json = {'bmc': node.type.bmc}
    if own_secret:
        spec['authSecret'] = {'name': secret_name(node.name)}
    else:
        declared['credentials'] = cluster.credentials
    return stamp.wanted(
        kinds.BMC, node.name, {'spec': merge.merge(spec, node.type.bmc)},
        node.name, namespace, stamp.labels(cluster, node), declared)


def has_operators_secret(live: abc.Mapping[str, typing.Any],
                         cluster: model.Cluster) -> bool:
    """Tell whether the credentials of a BMC are the operator's.

    If the cluster is to have others than when the BMC was declared, they are
    not, as only a Secret of the cluster can be replaced.

    :param live: the VirtualMachineBMC, or its metadata alone
    """
    return stamp.declared(live).get('credentials') == cluster.credentials
