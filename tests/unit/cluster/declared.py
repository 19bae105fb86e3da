# SPDX-License-Identifier: Apache-2.0
"""Declared nodes, and Ironic's representation of nodes, for tests."""

import copy
import dataclasses
import threading

import jsonpatch

from sushy_kubevirt.cluster.ironic import nodes
from sushy_kubevirt.cluster import model
from sushy_kubevirt.cluster import problems
from sushy_kubevirt.remote import endpoint

OWNER = 'lab/demo/ns-uid'

BMC = endpoint.Bmc('10.96.0.7', username='admin', password='s3cret-one',
                   revision='uid/1')


def wanted(name='tk0', bmc=BMC, vm='vm-uid-0', kind=None, networks=('net1',),
           outlet=None, **ironic):
    """Make a `nodes.Wanted`.

    :param outlet: number of its outlet; it then has the driver ``snmp``
    """
    if outlet:
        kind = {**(kind or {}), 'driver': 'snmp'}
    kind = {'vcpus': 2, 'memory_mb': 1024, 'driver': 'redfish',
            'volumes': (model.Volume('10Gi'),), **(kind or {})}
    interfaces = tuple(
        model.Interface(one, model.Network(one, switch_info=one),
                        f'52:54:00:00:00:0{index}')
        for index, one in enumerate(networks))
    return nodes.Wanted(
        model.Node(name, 0, model.NodeType('type0', **kind), interfaces,
                   ironic=model.IronicConfig(
                       **{'resource_class': 'rc', **ironic}),
                   outlet=model.Outlet('192.0.2.1', 9161, 'lab', outlet)
                   if outlet else None), bmc, vm)


def of_architecture(name):
    """Return changes of a node type that give it this architecture."""
    return {'vm': {'spec': {'template': {'spec': {'architecture': name}}}}}


def rotated(bmc=BMC):
    """Return the BMC with other credentials."""
    return dataclasses.replace(bmc, password='s3cret-two', revision='uid/2')


def existing(body, uuid='node-uuid', state='available', **fields):
    """Make a dict as Ironic has it of a node that was created."""
    node = dict.fromkeys(nodes.FIELDS)
    node.update(traits=[], conductor_group='', maintenance=False,
                uuid=uuid, provision_state=state)
    node.update(copy.deepcopy(body))
    node.update(fields)
    for key in node['driver_info']:
        if 'password' in key:
            node['driver_info'][key] = '******'
    return node


class FakeIronic:
    """A `client.Client` whose Ironic does in memory what is asked.

    Thread-safe, as commands enrol several nodes at the same time.

    :ivar writes: list of the requests that are no reads
    :ivar errors: dict of (name of the node, verb) to ``last_error``
    """

    def __init__(self, *found):
        self.objects = {'nodes': {}, 'ports': {}, 'portgroups': {}}
        for node in found:
            self.objects['nodes'][node['uuid']] = node
        self.writes = []
        self.errors = {}
        self._lock = threading.Lock()

    def list(self, kind, fields, node=None):
        with self._lock:
            return [{key: copy.deepcopy(one.get(key)) for key in fields}
                    for one in self.objects[kind].values()
                    if node in (None, one.get('node_uuid'))]

    def node(self, uuid, fields):
        node = self.objects['nodes'][uuid]
        return {key: copy.deepcopy(node.get(key)) for key in fields}

    def create(self, kind, body):
        self.writes.append(('create', kind, body.get('name')
                            or body.get('address')))
        with self._lock:
            number = len(self.objects[kind])
            if kind == 'nodes':
                made = existing(body, f'uuid-{number}', 'enroll')
            else:
                made = {'uuid': f'{kind}-{number}', **body}
            self.objects[kind][made['uuid']] = made
        return copy.deepcopy(made)

    def change(self, kind, uuid, patch, reset_interfaces=False):
        self.writes.append(('change', kind, uuid, sorted(
            one['path'] for one in patch)))
        self.objects[kind][uuid] = jsonpatch.apply_patch(
            self.objects[kind][uuid], patch)
        return self.objects[kind][uuid]

    def delete(self, kind, uuid):
        self.writes.append(('delete', kind, uuid))
        with self._lock:
            del self.objects[kind][uuid]

    def set_traits(self, uuid, traits):
        self.writes.append(('traits', uuid, sorted(traits)))
        self.objects['nodes'][uuid]['traits'] = sorted(traits)

    def set_maintenance(self, uuid, reason):
        self.writes.append(('maintenance', uuid, bool(reason)))
        self.objects['nodes'][uuid].update(
            maintenance=bool(reason), maintenance_reason=reason)

    def provision(self, uuid, verb):
        self.writes.append(('provision', uuid, verb))
        with self._lock:
            self._provision(uuid, verb)

    def _provision(self, uuid, verb):
        node = self.objects['nodes'][uuid]
        error = self.errors.get((node['name'], verb))
        if isinstance(error, problems.ServiceError):
            raise error
        node['last_error'] = error
        if not error:
            node['provision_state'] = {
                'manage': 'manageable', 'inspect': 'manageable',
                'provide': 'available', 'deleted': 'available'}[verb]
        if verb == 'inspect':
            node['inspection_finished_at'] = '2026-01-01T00:00:00'
            node['properties']['memory_mb'] = '960'
            for port in self.objects['ports'].values():
                port['pxe_enabled'] = False
        if verb == 'deleted' and not error:
            node['instance_uuid'] = None
