# SPDX-License-Identifier: Apache-2.0
"""``IRONIC_HWINFO_FILE`` of Ironic's DevStack plugin (``devstack/lib/ironic``
of Ironic 39).

A line has address, MAC addresses, user and password of a BMC, and for
``redfish`` the path of the system. The plugin has one driver for all nodes,
and no ports.
"""

from __future__ import annotations

from sushy_kubevirt.cluster.ironic import nodes
from sushy_kubevirt.cluster import problems

TEXT = "IRONIC_HWINFO_FILE of DevStack's Ironic plugin; has passwords"

#: Ports that the plugin cannot change, and attributes of `nodes.Bmc`.
_PORTS = {'redfish': ('redfish_port', 443), 'ipmi': ('ipmi_port', 623)}


def make(wanted, owner):
    """Make the file.

    :param wanted: list of `nodes.Wanted`
    :param owner: not used
    :returns: text
    :raises: `problems.Unsuitable`
    """
    drivers = {one.node.type.driver for one in wanted}
    if len(drivers) > 1:
        raise problems.Unsuitable(
            'DevStack has one driver for all nodes. Give all node types the '
            'same ironic_driver')
    return ''.join(_line(one) + '\n' for one in wanted)


def _line(wanted):
    node, bmc = wanted.node, wanted.bmc
    attribute, expected = _PORTS[node.type.driver]
    if getattr(bmc, attribute) != expected:
        raise problems.Unsuitable(
            f'BMC of {node.name}: DevStack knows port {expected} only, not '
            f'{getattr(bmc, attribute)}')
    if not node.interfaces:
        raise problems.Unsuitable(
            f'{node.name} has no network: DevStack needs a MAC address')
    words = [bmc.address, ';'.join(one.mac for one in node.interfaces),
             bmc.username, bmc.password]
    if node.type.driver == 'redfish':
        words.append(nodes.SYSTEM_ID)
    if any(len(one.split()) != 1 for one in words):
        raise problems.Unsuitable(
            f'BMC of {node.name}: DevStack separates user and password by '
            'blanks, so that they may not contain any')
    return ' '.join(words)
