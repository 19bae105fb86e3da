# SPDX-License-Identifier: Apache-2.0
import configparser
import dataclasses

import fixtures
from oslotest import base

from sushy_kubevirt.cluster import model
from sushy_kubevirt.cluster.nova import flavors
from sushy_kubevirt.cluster.nova import placement
from sushy_kubevirt.cluster.nova import switch
from sushy_kubevirt.cluster import problems
from tests.unit.cluster import declared
from tests.unit.cluster import openstack_case

FLAVORS = f'{openstack_case.URL}/compute/v2.1/flavors'
PROVIDERS = f'{openstack_case.URL}/placement/resource_providers'
FLAVOR = model.Flavor(
    'small', 'my-rc.1', model.NodeType(
        'type0', vcpus=2, memory_mb=1024, volumes=(model.Volume('10Gi'),)),
    ('CUSTOM_A',), ('CUSTOM_B',), {'capabilities:boot_mode': 'uefi'})
SPECS = {
    'resources:CUSTOM_MY_RC_1': '1', 'resources:VCPU': '0',
    'resources:MEMORY_MB': '0', 'resources:DISK_GB': '0',
    'trait:CUSTOM_A': 'required', 'trait:CUSTOM_B': 'forbidden',
    'capabilities:boot_mode': 'uefi'}


def existing(**fields):
    return {'id': 'f', 'name': 'small', 'vcpus': 2, 'ram': 1024, 'disk': 10,
            'description': flavors.description(declared.OWNER),
            'extra_specs': SPECS, **fields}


class FlavorsTestCase(openstack_case.OpenStackTestCase):

    def setUp(self):
        super().setUp()
        self.http.post(FLAVORS, json={'flavor': {'id': 'new'}})
        for one in 'new', 'f':
            self.http.post(f'{FLAVORS}/{one}/os-extra_specs',
                           json={'extra_specs': {}})
        self.http.delete(f'{FLAVORS}/f', status_code=202)
        self.http.delete(f'{FLAVORS}/f/os-extra_specs/old')

    def apply(self, *found, declare=(FLAVOR,), sizes=None):
        self.http.get(f'{FLAVORS}/detail', json={'flavors': list(found)})
        changes = flavors.compare(self.cloud, declared.OWNER, declare, sizes)
        flavors.apply(self.cloud, changes)
        return [one.action for one in changes]

    def writes(self):
        return [(one.method, one.path.removeprefix('/compute/v2.1/flavors'),
                 one.text and one.json()) for one in self.http.request_history
                if one.method != 'GET']

    def test_new(self):
        self.assertEqual(['create'], self.apply())
        flavor, specs = self.writes()
        self.assertEqual(('POST', '', {'flavor': {
            'name': 'small', 'vcpus': 2, 'ram': 1024, 'disk': 10,
            'description': flavors.description(declared.OWNER)}}), flavor)
        self.assertEqual(('POST', '/new/os-extra_specs',
                          {'extra_specs': SPECS}), specs)
        listed = next(one for one in self.http.request_history
                      if one.path.endswith('/detail'))
        self.assertEqual({'is_public': ['none']}, listed.qs)
        self.assertEqual('compute 2.61',
                         listed.headers['OpenStack-API-Version'])

    def test_equal(self):
        self.assertEqual(['unchanged'], self.apply(existing()))
        self.assertEqual(['unchanged'], self.apply(
            existing(description='of somebody else')))
        self.assertEqual([], self.writes())

    def test_extra_specs_change_in_place(self):
        specs = {**SPECS, 'old': 'x', 'trait:CUSTOM_A': 'forbidden'}
        self.assertEqual(['change'], self.apply(existing(extra_specs=specs)))
        self.assertEqual([
            ('DELETE', '/f/os-extra_specs/old', None),
            ('POST', '/f/os-extra_specs',
             {'extra_specs': {'trait:CUSTOM_A': 'required'}})], self.writes())

    def test_other_size(self):
        self.assertEqual(['replace'], self.apply(existing(ram=512)))
        self.assertEqual(['/f', '', '/new/os-extra_specs'],
                         [one[1] for one in self.writes()])

    def test_flavors_of_others(self):
        error = self.assertRaises(
            problems.ServiceError, self.apply,
            existing(ram=512, description=None))
        self.assertIn('Nova has another flavor small', str(error))
        self.assertEqual([], self.writes())

    def test_left_the_file(self):
        self.assertEqual(['delete'], self.apply(
            existing(), {**existing(description=None), 'name': 'm1.tiny'},
            declare=()))
        self.assertEqual([('DELETE', '/f', None)], self.writes())

    def test_size_of_instance_types(self):
        flavor = dataclasses.replace(FLAVOR, type=model.NodeType(
            'type1', instancetype={'name': 'u1.small', 'kind': 'x'}))
        self.apply(declare=[flavor], sizes={
            'u1.small': flavors.InstanceSize(4, 2048)})
        body = self.writes()[0][2]['flavor']
        self.assertEqual((4, 2048, 0),
                         (body['vcpus'], body['ram'], body['disk']))

    def test_refusal(self):
        self.http.post(FLAVORS, status_code=403, json={'forbidden': {
            'message': 'Policy does not allow it', 'code': 403}})
        error = self.assertRaises(problems.ServiceError, self.apply)
        self.assertIn('Nova does not create flavor small', str(error))
        self.assertIn('Policy does not allow it', str(error))
        self.assertEqual(403, error.status)

    def test_names_of_resource_classes(self):
        # As os_resource_classes.normalize_name.
        for name, expected in (
                ('my_rc', 'CUSTOM_MY_RC'), ('a--b.c', 'CUSTOM_A_B_C'),
                ('CUSTOM_X', 'CUSTOM_CUSTOM_X')):
            self.assertEqual(expected, flavors.custom_name(name))


class PlacementTestCase(openstack_case.OpenStackTestCase):

    NODES = [{'uuid': 'u0', 'name': 'tk0', 'resource_class': 'rc',
              'traits': ['CUSTOM_B', 'CUSTOM_A']},
             {'uuid': 'u1', 'name': 'tk1', 'resource_class': 'rc',
              'traits': ['CUSTOM_A', 'CUSTOM_B']}]

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MockPatchObject(
            placement, '_INTERVAL', 0.001))
        self.reports = []

    def wait(self, *answers, **options):
        self.http.get(PROVIDERS, list(answers))
        placement.wait(self.cloud, self.NODES, report=self.reports.append,
                       **options)

    @staticmethod
    def offer(*uuids):
        return {'json': {'resource_providers': [
            {'uuid': one} for one in uuids]}}

    def test_waits_for_all(self):
        self.wait({'status_code': 400, 'text': 'No such trait'},
                  self.offer('u0'), self.offer('x'), self.offer('u1', 'x'))
        self.assertEqual([['tk0', 'tk1'], ['tk1']], self.reports)
        query = self.http.last_request
        self.assertEqual({'resources': ['custom_rc:1'],
                          'required': ['custom_a,custom_b']}, query.qs)
        self.assertEqual('placement 1.18',
                         query.headers['OpenStack-API-Version'])

    def test_time_is_limited(self):
        error = self.assertRaises(
            problems.ServiceError, self.wait, self.offer('u0'), timeout=0)
        self.assertIn('does not offer 1 nodes after 0 s: tk1', str(error))

    def test_refusal(self):
        error = self.assertRaises(problems.ServiceError, self.wait, {
            'status_code': 403, 'text': 'admin only'})
        self.assertIn('admin only', str(error))


class SwitchTestCase(base.BaseTestCase):

    def read(self, *networks):
        parser = configparser.ConfigParser()
        parser.read_string(switch.configuration(networks))
        return {name: dict(parser[name]) for name in parser.sections()}

    def test_fake(self):
        sections = self.read(model.Network(
            'net2', switch_info='net2'), model.Network(
                'net1', switch_info='leaf1', switch_id='00:00:00:00:00:0A',
            switch_options={'ngs_port_default_vlan': '7'}))
        self.assertEqual(
            ['genericswitch:leaf1', 'genericswitch:net2'], list(sections))
        self.assertEqual({
            'device_type': 'netmiko_fake',
            'ngs_mac_address': '00:00:00:00:00:0a',
            'ngs_physical_networks': 'net1', 'ip': '127.0.0.1',
            'username': 'unused', 'password': 'unused',
            'ngs_port_default_vlan': '7',
        }, sections['genericswitch:leaf1'])

    def test_default_mac_address_names_no_switch(self):
        # Each cluster's switches would have the same one.
        section, = self.read(model.Network('a', switch_info='a')).values()
        self.assertNotIn('ngs_mac_address', section)

    def test_networks_of_one_switch(self):
        section, = self.read(
            *(model.Network(one, switch_info='s', switch_id='aa:' * 5 + 'aa',
                            switch_options={'device_type': 'ovs',
                                            'ip': '192.0.2.1'})
              for one in 'ba')).values()
        self.assertEqual({
            'device_type': 'ovs', 'ip': '192.0.2.1',
            'ngs_mac_address': 'aa:aa:aa:aa:aa:aa',
            'ngs_physical_networks': 'a,b'}, section)

    def test_what_cannot_be_written(self):
        for networks, reason in (
                ([model.Network('a', switch_info='s',
                                switch_options={'ip': one})
                  for one in '12'], 'two values of ip: 1 and 2'),
                ([model.Network('a,b', switch_info='a')],
                 "'a,b' cannot be written"),
                ([model.Network('a', switch_info=']\n[x')],
                 'without brackets')):
            error = self.assertRaises(
                problems.Unsuitable, switch.configuration, networks)
            self.assertIn(reason, str(error))
