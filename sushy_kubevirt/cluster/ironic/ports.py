# SPDX-License-Identifier: Apache-2.0
"""The ports and the port group of a node, and how existing ones differ.

Ports are found by their MAC address. Those of a node that this package has
not made, of users or of inspection, are left alone, unless their address is
one of the file.
"""

from __future__ import annotations

from collections import abc
import dataclasses
import typing

from sushy_kubevirt.cluster.ironic import nodes

if typing.TYPE_CHECKING:
    from sushy_kubevirt.cluster import model
    from sushy_kubevirt.kube import objects

#: Fields to read of each, by kind.
FIELDS = {
    'ports': ('uuid', 'address', 'node_uuid', 'physical_network',
              'local_link_connection', 'pxe_enabled', 'portgroup_uuid',
              'extra'),
    'portgroups': ('uuid', 'name', 'address', 'node_uuid', 'mode',
                   'properties', 'extra')}

#: Attributes of ports that Ironic changes only if the node is not available.
_CONNECTIVITY = ('/physical_network', '/local_link_connection',
                 '/pxe_enabled', '/portgroup_uuid')


@dataclasses.dataclass(frozen=True)
class Change:
    """One request.

    :param verb: ``create``, ``change`` or ``delete``
    :param kind: ``ports`` or ``portgroups``
    :param body: of what is created
    :param patch: of what is changed
    :param uuid: of the object to change or delete
    :param label: MAC address or name, for users
    """

    verb: str
    kind: str
    body: objects.Json = dataclasses.field(default_factory=dict)
    patch: objects.JsonPatch = dataclasses.field(default_factory=list)
    uuid: str = ''
    label: str = ''

    @property
    def needs_maintenance(self) -> bool:
        """Whether Ironic refuses it for an available node."""
        return self.kind == 'ports' and any(
            operation['path'] in _CONNECTIVITY for operation in self.patch)


def group_name(wanted: nodes.Wanted) -> str:
    """Return the name of the port group of a node."""
    return f'{wanted.node.name}-group'


def group_changes(wanted: nodes.Wanted, node_uuid: str | None, owner: str,
                  existing: abc.Iterable[objects.Json]) -> list[Change]:
    """Compare the port group of a node with what it shall be.

    It has the ports of the first interface's physical network.

    :param node_uuid: UUID of the Ironic node; None if it does not exist
    :param owner: the cluster, an `identity.owner`
    :param existing: the node's port groups
    """
    declared = wanted.ironic.port_group
    if not declared or not wanted.node.interfaces:
        return []
    name = group_name(wanted)
    body: objects.Json = {
        'name': name, 'address': wanted.node.interfaces[0].mac,
        **{key: declared[key] for key in ('mode', 'properties')
           if key in declared}}
    for group in existing:
        if group['name'] == name:
            return _change('portgroups', group, body, owner, name)
    return [Change('create', 'portgroups',
                   {**body, 'node_uuid': node_uuid, **_mark(owner)},
                   label=name)]


def changes(wanted: nodes.Wanted, node_uuid: str | None, owner: str,
            existing: abc.Iterable[objects.Json],
            groups: abc.Collection[objects.Json]) -> list[Change]:
    """Compare the ports of a node with what they shall be.

    :param existing: the node's ports
    :param groups: the node's port groups, after `group_changes`
    :returns: in the order to make them
    """
    declared = wanted.ironic.port_group
    wanted_group = next((
        group['uuid'] for group in groups
        if declared and group['name'] == group_name(wanted)), None)
    by_address = {port['address'].lower(): port for port in existing}
    present: list[Change] = []
    for interface in wanted.node.interfaces:
        address = interface.mac.lower()
        body = _body(wanted, interface, wanted_group)
        if port := by_address.pop(address, None):
            present += _change('ports', port, body, owner, address)
        else:
            present.append(Change(
                'create', 'ports', {**body, 'address': address,
                                    'node_uuid': node_uuid, **_mark(owner)},
                label=address))
    stale = [Change('delete', 'ports', uuid=port['uuid'], label=address)
             for address, port in by_address.items() if _is_ours(port, owner)]
    stale_groups = [
        Change('delete', 'portgroups', uuid=group['uuid'], label=group['name'])
        for group in groups
        if _is_ours(group, owner) and group['uuid'] != wanted_group]
    return stale + present + stale_groups


def _body(wanted: nodes.Wanted, interface: model.Interface,
          group: str | None) -> objects.Json:
    ironic, network = wanted.ironic, interface.network
    # Ironic: a port group is of one physical network; and a patch has to
    # change it first, as only its first operation is looked at for that
    # (api.controllers.v1.utils.is_path_updated, Ironic 39).
    first = wanted.node.interfaces[0].network.name
    return {'portgroup_uuid': group if network.name == first else None,
            'physical_network': network.name,
            'local_link_connection': {
                'switch_id': network.switch_id,
                'switch_info': network.switch_info,
                'port_id': f'{wanted.node.name}-{interface.name}'},
            'pxe_enabled': (ironic.pxe_networks is None
                            or network.name in ironic.pxe_networks)}


def _mark(owner: str) -> objects.Json:
    return {'extra': {nodes.RECORD: {'cluster': owner}}}


def _is_ours(existing: objects.Json, owner: str) -> bool:
    return nodes.record_of(existing).get('cluster') == owner


def _change(kind: str, existing: objects.Json, body: objects.Json,
            owner: str, label: str) -> list[Change]:
    patch = [{'op': 'add', 'path': f'/{key}', 'value': value}
             for key, value in body.items() if existing[key] != value]
    if not _is_ours(existing, owner):
        patch.append({'op': 'add', 'path': f'/extra/{nodes.RECORD}',
                      'value': {'cluster': owner}})
    return [Change('change', kind, patch=patch, uuid=existing['uuid'],
                   label=label)] if patch else []
