# SPDX-License-Identifier: Apache-2.0
"""A node's network interfaces, and NetworkAttachmentDefinitions for them.

A definition that clusters share has no owner: its label of the cluster has a
value that no cluster can have as its name, and each cluster that uses it
adds an annotation of its own. The last user deletes it.
"""

from __future__ import annotations

import json

from sushy_kubevirt.cluster import identity
from sushy_kubevirt.cluster.objects import kinds
from sushy_kubevirt.cluster.objects import stamp

#: Value of the label of the cluster on definitions that clusters share; names
#: of clusters have small letters only.
SHARED = 'SHARED'

#: Start of the annotations of a shared definition that name its users.
USER = identity.GROUP + '/user.'


def selector(cluster) -> str:
    """Return the label selector of own and shared definitions.

    :param cluster: name of the cluster
    """
    return f'{identity.CLUSTER} in ({cluster},{SHARED})'


def interfaces(node):
    """Make the interfaces of the domain.

    :param node: a `model.Node`
    :returns: list of dicts
    """
    return [{'name': one.name, 'macAddress': one.mac,
             'masquerade' if one.network.attachment is None else 'bridge': {}}
            for one in node.interfaces]


def networks(node):
    """Make the networks of the VM, of the same names.

    :param node: a `model.Node`
    :returns: list of dicts
    """
    return [{'name': one.name, **(
        {'pod': {}} if one.network.attachment is None else
        {'multus': {'networkName': one.network.attachment}})}
        for one in node.interfaces]


def definitions(cluster, namespace):
    """Make the definitions that are created with the cluster.

    :param cluster: a `model.Cluster`
    :param namespace: of its objects
    :returns: list of `stamp.Wanted`
    """
    return [_definition(cluster, network, namespace)
            for network in cluster.networks.values()
            if network.config is not None]


def _definition(cluster, network, namespace):
    name = network.attachment.rpartition('/')[2]
    labels = {identity.CLUSTER: SHARED if network.shared else cluster.name}
    config = dict(network.config)
    if config.get('type') == 'bridge':
        config.setdefault('bridge', identity.bridge_name(
            namespace, cluster.name, network.name, network.shared))
    made = stamp.wanted(
        kinds.NETWORK, None,
        {'spec': {'config': json.dumps(config, sort_keys=True)}},
        name, namespace, labels, {'config': config})
    if network.shared:
        made.body['metadata']['annotations'][USER + cluster.name] = ''
    return made


def is_shared(obj):
    """Return whether a definition is shared by clusters."""
    return stamp.cluster_of(obj) == SHARED


def users(live):
    """Return the names of the clusters that use a shared definition.

    :param live: dict, the definition
    :returns: set of text
    """
    return {key.removeprefix(USER)
            for key in live['metadata'].get('annotations') or ()
            if key.startswith(USER)}
