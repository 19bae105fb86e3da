# SPDX-License-Identifier: Apache-2.0
"""Clusters, and statuses of their objects, for unit tests."""

from sushy_kubevirt.cluster import identity
from sushy_kubevirt.cluster import model

VOLUME = model.Volume('1G')
POD = model.Network('pod')


def cluster(count=2, name='tenks', prefix='tk', networks=(POD,), more=None,
            **kind):
    """Make a cluster of nodes of one type.

    :param more: dict of further attributes of the cluster
    :param kind: attributes of the type
    """
    kind = {'name': 'type0', 'vcpus': 1, 'memory_mb': 256,
            'volumes': (VOLUME,), **kind}
    kind['networks'] = tuple(one.name for one in networks)
    kind = model.NodeType(**kind)
    nodes = []
    for index in range(count):
        node = f'{prefix}{index}'
        nodes.append(model.Node(node, index, kind, tuple(
            model.Interface(one.name, one, identity.mac(name, node, one.name))
            for one in networks), tuple(
            f'{node}vol{number}'
            for number in range(len(kind.volumes)))))
    return model.Cluster(name, 'space', {kind.name: kind},
                         {one.name: one for one in networks}, tuple(nodes),
                         **(more or {}))


def condition(type_, status, reason='', message='', generation=1):
    return {'type': type_, 'status': status, 'reason': reason,
            'message': message, 'observedGeneration': generation}


def ready(obj):
    """Set the status that the controllers set at last."""
    if obj['kind'] == 'VirtualMachine':
        obj['status'] = {'printableStatus': 'Stopped'}
    if obj['kind'] == 'VirtualMachineBMC':
        obj['status'] = {'conditions': [condition(
            'Ready', 'True', generation=obj['metadata']['generation'])]}
