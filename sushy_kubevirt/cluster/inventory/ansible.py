# SPDX-License-Identifier: Apache-2.0
"""An inventory file of Ansible (its plugin ``yaml`` reads JSON).

Groups are the cluster, node types and resource classes. Of a BMC's
credentials, the inventory has the user and the name of the Secret only.
"""

from __future__ import annotations

import json
import re
import typing

if typing.TYPE_CHECKING:
    from sushy_kubevirt.cluster.ironic import nodes
    from sushy_kubevirt.kube import objects

TEXT = 'inventory file of Ansible'


def make(declared: list[nodes.Wanted], owner: str) -> str:
    """Make the file.

    :param owner: the cluster, an `identity.owner`
    :returns: JSON
    """
    namespace, cluster, _ = owner.split('/')
    groups: objects.Json = {_group(cluster): {'hosts': {}}}
    hosts = {}
    for wanted in declared:
        name = wanted.node.name
        hosts[name] = _host(wanted, namespace)
        for group in (cluster, f'type_{wanted.node.type.name}',
                      f'class_{wanted.ironic.resource_class}'):
            groups.setdefault(_group(group), {'hosts': {}})[
                'hosts'][name] = {}
    return json.dumps({'all': {'hosts': hosts, 'children': groups}},
                      indent=2) + '\n'


def _host(wanted: nodes.Wanted, namespace: str) -> objects.Json:
    node, bmc = wanted.node, wanted.bmc
    return {
        'bmc_address': bmc.address, 'bmc_redfish_port': bmc.redfish_port,
        'bmc_ipmi_port': bmc.ipmi_port, 'bmc_username': bmc.username,
        'bmc_secret': bmc.secret, 'bmc_namespace': namespace,
        'ironic_driver': node.type.driver,
        'macs': {interface.network.name: interface.mac
                 for interface in node.interfaces},
        'vm_uid': wanted.vm}


def _group(name: str) -> str:
    # Ansible warns of other characters in names of groups.
    name = re.sub(r'\W', '_', name, flags=re.ASCII)
    return name if not name[:1].isdigit() else f'_{name}'
