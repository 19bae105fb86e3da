# SPDX-License-Identifier: Apache-2.0
"""The BMC of a node: VirtualMachineBMC, and Secret with its credentials."""

from __future__ import annotations

import base64

from sushy_kubevirt.cluster.objects import kinds
from sushy_kubevirt.cluster.objects import merge
from sushy_kubevirt.cluster.objects import stamp
from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.operator import credentials


def secret_name(node):
    """Return the name of the Secret with the BMC's credentials.

    :param node: name of the node
    """
    return node + '-bmc'


def secret(cluster, node, namespace):
    """Make the Secret without its data, which `with_password` adds.

    :param cluster: a `model.Cluster`
    :param node: a `model.Node`
    :param namespace: of its objects
    :returns: a `stamp.Wanted`
    """
    return stamp.wanted(
        api_resources.SECRET, node.name, {'type': 'Opaque'},
        secret_name(node.name), namespace, stamp.labels(cluster, node),
        {'credentials': cluster.credentials})


def with_password(body):
    """Return a Secret with a new random password.

    :param body: dict, the Secret; is not changed
    """
    return {**body, 'data': {
        credentials.USERNAME: _encoded(credentials.DEFAULT_USERNAME),
        credentials.PASSWORD: _encoded(credentials.password())}}


def bmc(cluster, node, namespace, own_secret: bool = True):
    """Make the VirtualMachineBMC.

    :param cluster: a `model.Cluster`
    :param node: a `model.Node`
    :param namespace: of its objects
    :param own_secret: whether its credentials are in the `secret` of the
        cluster; otherwise in one that the operator makes
    :returns: a `stamp.Wanted`
    """
    spec = {'virtualMachine': {'name': node.name}}
    declared = {'bmc': node.type.bmc}
    if own_secret:
        spec['authSecret'] = {'name': secret_name(node.name)}
    else:
        declared['credentials'] = cluster.credentials
    return stamp.wanted(
        kinds.BMC, node.name, {'spec': merge.merge(spec, node.type.bmc)},
        node.name, namespace, stamp.labels(cluster, node), declared)


def has_operators_secret(live, cluster):
    """Tell whether the credentials of a BMC are the operator's.

    If the cluster is to have others than when the BMC was declared, they are
    not, as only a Secret of the cluster can be replaced.

    :param live: dict, the VirtualMachineBMC or its metadata
    :param cluster: a `model.Cluster`
    """
    return stamp.declared(live).get('credentials') == cluster.credentials


def _encoded(text):
    return base64.b64encode(text.encode()).decode()
