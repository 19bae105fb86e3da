# SPDX-License-Identifier: Apache-2.0
"""Configuration of virtualpdu-kubevirt: the outlets of nodes with ``snmp``.

It listens at ``pdu.address`` of the cluster file. Where that is another's,
such as a Service's, change ``listen_address``.
"""

from __future__ import annotations

import typing

from sushy_kubevirt.cluster import problems

if typing.TYPE_CHECKING:
    from sushy_kubevirt.cluster.ironic import nodes
    from sushy_kubevirt.cluster import model

TEXT = 'configuration of virtualpdu-kubevirt; has the community'


def make(declared: list[nodes.Wanted], owner: str) -> str:
    """Make the file.

    :param owner: the cluster, an `identity.owner`
    :raises: `problems.Unsuitable`
    """
    namespace, cluster, _ = owner.split('/')
    pdus: dict[int, list[tuple[str, model.Outlet]]] = {}
    for node in (wanted.node for wanted in declared):
        if node.outlet:
            pdus.setdefault(node.outlet.port, []).append(
                (node.name, node.outlet))
    if not pdus:
        raise problems.Unsuitable('no node has the ironic_driver snmp')
    text = f'[global]\nkubevirt_namespace = {namespace}\n'
    for port, outlets in pdus.items():
        ports = ','.join(f'{outlet.number}:{name}'
                         for name, outlet in outlets)
        text += (f'\n[{cluster}-{port}]\n'
                 f'listen_address = {outlets[0][1].address}\n'
                 f'listen_port = {port}\n'
                 'snmp_versions = 2c\n'
                 f'community = {outlets[0][1].community}\n'
                 f'ports = {ports}\n')
    return text
