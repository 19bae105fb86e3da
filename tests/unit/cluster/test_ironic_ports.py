# SPDX-License-Identifier: Apache-2.0
from oslotest import base

from sushy_kubevirt.cluster.ironic import ports
from tests.unit.cluster import declared

MAC = '52:54:00:00:00:00'
LACP = {'mode': '802.3ad', 'properties': {'miimon': '100'}}
MARK = {'sushy_kubevirt': {'cluster': declared.OWNER}}


def compare(wanted, existing=(), groups=()):
    return ports.changes(wanted, 'node-uuid', declared.OWNER, existing,
                         groups)


class PortsTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        change, = compare(declared.wanted())
        self.body = change.body
        self.port = {'uuid': 'port-uuid', **self.body}

    def test_new(self):
        self.assertEqual({
            'address': MAC, 'node_uuid': 'node-uuid',
            'physical_network': 'net1', 'pxe_enabled': True,
            'portgroup_uuid': None, 'extra': MARK,
            'local_link_connection': {
                'switch_id': '00:00:00:00:00:00', 'switch_info': 'net1',
                'port_id': 'tk0-net1'}}, self.body)

    def test_equal(self):
        self.assertEqual([], compare(declared.wanted(), [self.port]))

    def test_changed(self):
        change, = compare(declared.wanted(pxe_networks=()), [self.port])
        self.assertEqual([{'op': 'add', 'path': '/pxe_enabled',
                           'value': False}], change.patch)
        self.assertTrue(change.needs_maintenance)

    def test_found_by_inspection(self):
        change, = compare(declared.wanted(), [{
            **self.port, 'address': MAC.upper(), 'extra': {}}])
        self.assertEqual(['/extra/sushy_kubevirt'],
                         [one['path'] for one in change.patch])
        self.assertFalse(change.needs_maintenance)

    def test_left_networks(self):
        foreign = {'uuid': 'users', 'address': '52:54:00:ff:ff:ff',
                   'extra': {}}
        removal, creation = compare(
            declared.wanted(networks=()), [self.port, foreign]) + compare(
                declared.wanted(), [foreign])
        self.assertEqual(('delete', 'port-uuid', MAC),
                         (removal.verb, removal.uuid, removal.label))
        self.assertEqual('create', creation.verb)


class GroupsTestCase(base.BaseTestCase):

    def groups(self, wanted, existing=()):
        return ports.group_changes(wanted, 'node-uuid', declared.OWNER,
                                   existing)

    def test_life(self):
        wanted = declared.wanted(networks=('net1', 'net2'), port_group=LACP)
        change, = self.groups(wanted)
        self.assertEqual({
            'name': 'tk0-group', 'address': MAC, 'node_uuid': 'node-uuid',
            'extra': MARK, **LACP}, change.body)
        group = {'uuid': 'group-uuid', **change.body}
        self.assertEqual([], self.groups(wanted, [group]))
        made = compare(wanted, (), [group])
        self.assertEqual(['group-uuid', None],
                         [one.body['portgroup_uuid'] for one in made])
        existing = [{'uuid': one.label, **one.body} for one in made]
        self.assertEqual([], compare(wanted, existing, [group]))
        other = declared.wanted(port_group={**LACP, 'mode': 'balance-rr'})
        change, = self.groups(other, [group])
        self.assertEqual([{'op': 'add', 'path': '/mode',
                           'value': 'balance-rr'}], change.patch)
        # Ports leave a group before it is deleted.
        without = compare(
            declared.wanted(networks=('net1', 'net2'), pxe_networks=('net2',)),
            existing, [group])
        self.assertEqual(['change', 'delete'],
                         [one.verb for one in without])
        self.assertEqual([{'op': 'add', 'path': '/portgroup_uuid',
                           'value': None}], without[0].patch[:1])
