# SPDX-License-Identifier: Apache-2.0
"""A node's network interfaces, and NetworkAttachmentDefinitions for them.

A definition that clusters share has no owner: its label of the cluster has a
value that no cluster can have as its name, and each cluster that uses it
adds an annotation of its own. The last user deletes it.
"""

from __future__ import annotations

from collections import abc
import json
import typing

from sushy_kubevirt.cluster import identity
from sushy_kubevirt.cluster.objects import kinds
from sushy_kubevirt.cluster.objects import stamp
from sushy_kubevirt.kube import stored_names

if typing.TYPE_CHECKING:
    from sushy_kubevirt.cluster import model
    from sushy_kubevirt.kube import objects

#: Value of the label of the cluster on definitions that clusters share; names
#: of clusters have small letters only.
SHARED = 'SHARED'


def selector(cluster: str) -> str:
    """Return the label selector of own and shared definitions."""
    return f'{stored_names.CLUSTER} in ({cluster},{SHARED})'


def interfaces(node: model.Node) -> list[objects.Json]:
    """Make the interfaces of the domain."""
    return [{'name': interface.name, 'macAddress': interface.mac,
             'masquerade' if interface.network.attachment is None
             else 'bridge': {}} for interface in node.interfaces]


def networks(node: model.Node) -> list[objects.Json]:
    """Make the networks of the VM, of the same names."""
    return [{'name': interface.name, **(
        {'pod': {}} if interface.network.attachment is None else
        {'multus': {'networkName': interface.network.attachment}})}
        for interface in node.interfaces]


def definitions(cluster: model.Cluster, namespace: str) -> list[stamp.Wanted]:
    """Make the definitions that are created with the cluster."""
    return [_definition(cluster, network, network.config, namespace)
            for network in cluster.networks.values()
            if network.config is not None]


def _definition(cluster: model.Cluster, network: model.Network,
                config: objects.Json, namespace: str) -> stamp.Wanted:
    name = (network.attachment or '').rpartition('/')[2]
    labels = {stored_names.CLUSTER: SHARED if network.shared else cluster.name}
    config = dict(config)
    if config.get('type') == 'bridge':
        config.setdefault('bridge', identity.bridge_name(
            namespace, cluster.name, network.name, network.shared))
    definition = stamp.wanted(
        kinds.NETWORK, None,
        {'spec': {'config': json.dumps(config, sort_keys=True)}},
        name, namespace, labels, {'config': config})
    if network.shared:
        definition.body['metadata']['annotations'][
            stored_names.USER + cluster.name] = ''
    return definition


def is_shared(obj: abc.Mapping[str, typing.Any]) -> bool:
    """Return whether a definition is shared by clusters."""
    return stamp.cluster_of(obj) == SHARED


def users(live: abc.Mapping[str, typing.Any]) -> set[str]:
    """Return the names of the clusters that use a shared definition."""
    return {key.removeprefix(stored_names.USER)
            for key in live['metadata'].get('annotations') or ()
            if key.startswith(stored_names.USER)}
