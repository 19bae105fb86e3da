# SPDX-License-Identifier: Apache-2.0
"""An inventory file of Ansible (its plugin ``yaml`` reads JSON).

Groups are the cluster, node types and resource classes. Of a BMC's
credentials, the inventory has the user and the name of the Secret only.
"""

from __future__ import annotations

import json
import re

TEXT = 'inventory file of Ansible'


def make(wanted, owner):
    """Make the file.

    :param wanted: list of `nodes.Wanted`
    :param owner: the cluster, an `identity.owner`
    :returns: text, JSON
    """
    namespace, cluster, _ = owner.split('/')
    groups = {_group(cluster): {'hosts': {}}}
    hosts = {}
    for one in wanted:
        name = one.node.name
        hosts[name] = _host(one, namespace)
        for group in (cluster, f'type_{one.node.type.name}',
                      f'class_{one.node.ironic.resource_class}'):
            groups.setdefault(_group(group), {'hosts': {}})[
                'hosts'][name] = {}
    return json.dumps({'all': {'hosts': hosts, 'children': groups}},
                      indent=2) + '\n'


def _host(wanted, namespace):
    node, at = wanted.node, wanted.bmc
    return {
        'bmc_address': at.address, 'bmc_redfish_port': at.redfish_port,
        'bmc_ipmi_port': at.ipmi_port, 'bmc_username': at.username,
        'bmc_secret': at.secret, 'bmc_namespace': namespace,
        'ironic_driver': node.type.driver,
        'macs': {one.network.name: one.mac for one in node.interfaces},
        'vm_uid': wanted.vm}


def _group(name):
    # Ansible warns of other characters in names of groups.
    name = re.sub(r'\W', '_', name, flags=re.ASCII)
    return name if not name[:1].isdigit() else f'_{name}'
