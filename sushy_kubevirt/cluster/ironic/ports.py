# SPDX-License-Identifier: Apache-2.0
"""The ports and the port group of a node, and how existing ones differ.

Ports are found by their MAC address. Those of a node that this package has
not made, of users or of inspection, are left alone, unless their address is
one of the file.
"""

from __future__ import annotations

import dataclasses

from sushy_kubevirt.cluster.ironic import nodes

PORT_FIELDS = ('uuid', 'address', 'node_uuid', 'physical_network',
               'local_link_connection', 'pxe_enabled', 'portgroup_uuid',
               'extra')
GROUP_FIELDS = ('uuid', 'name', 'address', 'node_uuid', 'mode', 'properties',
                'extra')

#: Attributes of ports that Ironic changes only if the node is not available.
_CONNECTIVITY = ('/physical_network', '/local_link_connection',
                 '/pxe_enabled', '/portgroup_uuid')


@dataclasses.dataclass(frozen=True)
class Change:
    """One request.

    :param verb: ``create``, ``change`` or ``delete``
    :param kind: ``ports`` or ``portgroups``
    :param body: body of a creation, or JSON patch
    :param uuid: of the object to change or delete
    :param label: MAC address or name, for users
    """

    verb: str
    kind: str
    body: object = None
    uuid: str | None = None
    label: str = ''

    @property
    def needs_maintenance(self):
        """Whether Ironic refuses it for an available node."""
        return self.kind == 'ports' and self.verb == 'change' and any(
            one['path'] in _CONNECTIVITY for one in self.body)


def switch_name(network):
    """Return the name of the switch of a network: ``switch_info`` of ports,
    and a section of networking-generic-switch.

    :param network: a `model.Network`
    """
    return network.switch_info or network.name


def group_name(wanted) -> str:
    """:returns: text, the name of the port group of a node"""
    return f'{wanted.node.name}-group'


def group_changes(wanted, node_uuid, owner, existing):
    """Compare the port group of a node with what it shall be.

    It has the ports of the first interface's physical network.

    :param wanted: a `nodes.Wanted`
    :param node_uuid: UUID of the Ironic node
    :param owner: the cluster, an `identity.owner`
    :param existing: iterable of dicts, the node's port groups
    :returns: list of `Change`
    """
    declared = wanted.node.ironic.port_group
    if not declared or not wanted.node.interfaces:
        return []
    name = group_name(wanted)
    body = {'name': name, 'address': wanted.node.interfaces[0].mac,
            **{key: declared[key] for key in ('mode', 'properties')
               if key in declared}}
    for group in existing:
        if group['name'] == name:
            return _change('portgroups', group, body, owner, name)
    return [Change('create', 'portgroups',
                   {**body, 'node_uuid': node_uuid, **_mark(owner)},
                   label=name)]


def changes(wanted, node_uuid, owner, existing, groups):
    """Compare the ports of a node with what they shall be.

    :param existing: iterable of dicts, the node's ports
    :param groups: iterable of dicts, the node's port groups, after
        `group_changes`
    :returns: list of `Change`, in the order to make them
    """
    declared = wanted.node.ironic.port_group
    group = next((one['uuid'] for one in groups
                  if declared and one['name'] == group_name(wanted)), None)
    by_address = {one['address'].lower(): one for one in existing}
    made = []
    for interface in wanted.node.interfaces:
        address = interface.mac.lower()
        body = _body(wanted, interface, group)
        if port := by_address.pop(address, None):
            made += _change('ports', port, body, owner, address)
        else:
            made.append(Change(
                'create', 'ports', {**body, 'address': address,
                                    'node_uuid': node_uuid, **_mark(owner)},
                label=address))
    stale = [Change('delete', 'ports', uuid=port['uuid'], label=address)
             for address, port in by_address.items() if _is_ours(port, owner)]
    stale_groups = [
        Change('delete', 'portgroups', uuid=one['uuid'], label=one['name'])
        for one in groups if _is_ours(one, owner) and one['uuid'] != group]
    return stale + made + stale_groups


def _body(wanted, interface, group):
    ironic, network = wanted.node.ironic, interface.network
    # Ironic: a port group is of one physical network; and a patch has to
    # change it first, as only its first operation is looked at for that
    # (api.controllers.v1.utils.is_path_updated, Ironic 39).
    first = wanted.node.interfaces[0].network.name
    return {'portgroup_uuid': group if network.name == first else None,
            'physical_network': network.name,
            'local_link_connection': {
                'switch_id': network.switch_id,
                'switch_info': switch_name(network),
                'port_id': f'{wanted.node.name}-{interface.name}'},
            'pxe_enabled': (ironic.pxe_networks is None
                            or network.name in ironic.pxe_networks)}


def _mark(owner):
    return {'extra': {nodes.RECORD: {'cluster': owner}}}


def _is_ours(existing, owner):
    return nodes.record_of(existing).get('cluster') == owner


def _change(kind, existing, body, owner, label):
    patch = [{'op': 'add', 'path': f'/{key}', 'value': value}
             for key, value in body.items() if existing[key] != value]
    if not _is_ours(existing, owner):
        patch.append({'op': 'add', 'path': f'/extra/{nodes.RECORD}',
                      'value': {'cluster': owner}})
    return [Change('change', kind, patch, existing['uuid'], label)
            ] if patch else []
