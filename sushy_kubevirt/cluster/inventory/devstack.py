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

#: Ports that the plugin cannot change, and attributes of `endpoint.Bmc`.
_PORTS = {'redfish': ('redfish_port', 443), 'ipmi': ('ipmi_port', 623)}


def make(declared: list[nodes.Wanted], owner: str) -> str:
    """Make the file.

    :param owner: not used
    :raises: `problems.Unsuitable`
    """
    drivers = {wanted.node.type.driver for wanted in declared}
    if len(drivers) > 1:
        raise problems.Unsuitable(
            'DevStack has one driver for all nodes. Give all node types the '
            'same ironic_driver')
    if not drivers <= _PORTS.keys():
        raise problems.Unsuitable(
            'DevStack enrols nodes with the ironic_driver '
            + ' or '.join(sorted(_PORTS)))
    return ''.join(_line(wanted) + '\n' for wanted in declared)


def _line(wanted: nodes.Wanted) -> str:
    node, bmc = wanted.node, wanted.bmc
    attribute, expected = _PORTS[node.type.driver]
    if getattr(bmc, attribute) != expected:
        raise problems.Unsuitable(
            f'BMC of {node.name}: DevStack knows port {expected} only, not '
            f'{getattr(bmc, attribute)}')
    if not node.interfaces:
        raise problems.Unsuitable(
            f'{node.name} has no network: DevStack needs a MAC address')
    words = [bmc.address,
             ';'.join(interface.mac for interface in node.interfaces),
             bmc.username, bmc.password]
    if node.type.driver == 'redfish':
        words.append(nodes.SYSTEM_ID)
    if any(len(word.split()) != 1 for word in words):
        raise problems.Unsuitable(
            f'BMC of {node.name}: DevStack separates user and password by '
            'blanks, so that they may not contain any')
    return ' '.join(words)
