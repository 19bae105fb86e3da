# SPDX-License-Identifier: Apache-2.0
"""``BIFROST_INVENTORY_SOURCE`` of Bifrost's dynamic playbooks (21.1).

The format is that of ``baremetal_json_file``, which Bifrost's role
bifrost-create-vm-nodes writes. Without ``ipv4_address`` a node has DHCP.
"""

from __future__ import annotations

import json
import typing

from sushy_kubevirt.cluster import fields
from sushy_kubevirt.cluster.ironic import nodes
from sushy_kubevirt.machine import architecture

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import objects

TEXT = 'BIFROST_INVENTORY_SOURCE of Bifrost; has passwords'

#: Bifrost enrols the hosts of this group.
_GROUP = 'baremetal'


def make(declared: list[nodes.Wanted], owner: str) -> str:
    """Make the file.

    :param owner: the cluster, an `identity.owner`
    :returns: JSON
    """
    return json.dumps({wanted.node.name: _node(wanted, owner)
                       for wanted in declared}, indent=2) + '\n'


def _node(wanted: nodes.Wanted, owner: str) -> objects.Json:
    node = nodes.creation(wanted, owner, {})
    properties = node['properties']
    sizes = {'ram': properties.get('memory_mb'),
             'cpus': properties.get('cpus'),
             'disk_size': properties.get('local_gb')}
    host = {
        'name': node['name'], 'uuid': wanted.vm, 'driver': node['driver'],
        'driver_info': node['driver_info'],
        'nics': [{'mac': interface.mac}
                 for interface in wanted.node.interfaces],
        'properties': {
            'cpu_arch': properties.get('cpu_arch') or architecture.cpu_arch(
                wanted.node.type.architecture),
            'capabilities': properties['capabilities'],
            **{key: str(value) for key, value in sizes.items() if value}},
        'host_groups': [_GROUP]}
    if node['driver'] == 'redfish':
        host['boot_interface'] = 'redfish-virtual-media'
    host.update({key: value for key, value in node.items()
                 if key in (*fields.INTERFACES, 'resource_class')})
    if wanted.ironic.traits:
        host['traits'] = list(wanted.ironic.traits)
    return host
