# SPDX-License-Identifier: Apache-2.0
"""Nodes in the formats of other tools."""

import base64
import dataclasses
import json
import pathlib
import tempfile

from ironicclient.v1 import create_resources
from oslotest import base
import yaml

from sushy_kubevirt.cluster.inventory import ansible
from sushy_kubevirt.cluster.inventory import bifrost
from sushy_kubevirt.cluster.inventory import devstack
from sushy_kubevirt.cluster.inventory import ironic
from sushy_kubevirt.cluster.inventory import metal3
from sushy_kubevirt.cluster.inventory import metal3_secrets
from sushy_kubevirt.cluster.inventory import virtualpdu
from sushy_kubevirt.cluster.ironic import nodes
from sushy_kubevirt.cluster import problems
from sushy_kubevirt.pdu import config as pdu_config
from tests.unit.cluster import declared

OWNER = declared.OWNER
BMC = dataclasses.replace(declared.BMC, secret='tk0-bmc')


class FakeClient:
    """The part of ironicclient that its "create" command uses."""

    def __init__(self):
        self.made = []
        for kind in 'node', 'port', 'portgroup':
            setattr(self, kind, _Manager(self, kind))


class _Manager:

    def __init__(self, client, kind):
        self._client = client
        self._kind = kind

    def create(self, **body):
        self._client.made.append((self._kind, body))
        return type('Made', (), {'uuid': f'{self._kind}-uuid'})()


class IronicTestCase(base.BaseTestCase):

    def create(self, *wanted):
        """Do what "openstack baremetal create" does with the file."""
        path = pathlib.Path(self.folder()) / 'nodes.json'
        path.write_text(ironic.make(list(wanted), OWNER))
        client = FakeClient()
        create_resources.create_resources(client, [str(path)])
        return client.made

    def folder(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return folder.name

    def test_client_creates_nodes_and_ports(self):
        made = self.create(declared.wanted(networks=('net1', 'net2')))
        self.assertEqual(['node', 'port', 'port'], [kind for kind, _ in made])
        self.assertEqual(
            nodes.creation(declared.wanted(networks=('net1', 'net2')), OWNER,
                           {}), made[0][1])
        self.assertEqual(['net1', 'net2'], [
            body['physical_network'] for _, body in made[1:]])
        self.assertEqual({'node-uuid'},
                         {body['node_uuid'] for _, body in made[1:]})

    def test_client_creates_port_group(self):
        made = self.create(declared.wanted(
            port_group={'mode': '802.3ad'}, networks=('net1', 'net2')))
        self.assertEqual(['node', 'portgroup', 'port', 'port'],
                         [kind for kind, _ in made])
        # A port group is of one physical network.
        self.assertEqual(
            {'net1': 'portgroup-uuid', 'net2': None},
            {body['physical_network']: body.get('portgroup_uuid')
             for kind, body in made if kind == 'port'})


class BifrostTestCase(base.BaseTestCase):

    def test_node(self):
        made = json.loads(bifrost.make([declared.wanted(
            networks=('net1', 'net2'), traits=('CUSTOM_A',))], OWNER))
        node = made.pop('tk0')
        self.assertEqual({}, made)
        self.assertEqual({
            'redfish_address': 'https://10.96.0.7',
            'redfish_system_id': '/redfish/v1/Systems/1',
            'redfish_username': 'admin', 'redfish_password': 's3cret-one',
            'redfish_verify_ca': True}, node.pop('driver_info'))
        self.assertEqual({
            'name': 'tk0', 'uuid': 'vm-uid-0', 'driver': 'redfish',
            'resource_class': 'rc', 'traits': ['CUSTOM_A'],
            'boot_interface': 'redfish-virtual-media',
            'nics': [{'mac': '52:54:00:00:00:00'},
                     {'mac': '52:54:00:00:00:01'}],
            'properties': {'cpu_arch': 'x86_64', 'ram': '1024', 'cpus': '2',
                           'disk_size': '10',
                           'capabilities': 'boot_mode:uefi'},
            'host_groups': ['baremetal']}, node)

    def test_architecture(self):
        for inspect in False, True:     # with and without sizes of Ironic
            made = json.loads(bifrost.make([declared.wanted(
                kind=declared.of_architecture('arm64'), inspect=inspect)],
                OWNER))
            self.assertEqual('aarch64', made['tk0']['properties']['cpu_arch'])

    def test_declared_boot_interface(self):
        made = json.loads(bifrost.make([declared.wanted(
            interfaces={'boot_interface': 'ipxe'})], OWNER))
        self.assertEqual('ipxe', made['tk0']['boot_interface'])

    def test_ipmi_has_no_virtual_media(self):
        made = json.loads(bifrost.make(
            [declared.wanted(kind={'driver': 'ipmi'})], OWNER))
        self.assertNotIn('boot_interface', made['tk0'])
        self.assertEqual(623, made['tk0']['driver_info']['ipmi_port'])


class DevstackTestCase(base.BaseTestCase):

    def test_lines(self):
        self.assertEqual(
            '10.96.0.7 52:54:00:00:00:00;52:54:00:00:00:01 admin s3cret-one '
            '/redfish/v1/Systems/1\n'
            '10.96.0.7 52:54:00:00:00:00 admin s3cret-one '
            '/redfish/v1/Systems/1\n',
            devstack.make([declared.wanted(networks=('net1', 'net2')),
                           declared.wanted('tk1')], OWNER))

    def test_ipmi(self):
        self.assertEqual(
            '10.96.0.7 52:54:00:00:00:00 admin s3cret-one\n',
            devstack.make([declared.wanted(kind={'driver': 'ipmi'})], OWNER))

    def test_refuses_what_the_plugin_cannot_express(self):
        def bmc(**more):
            return dataclasses.replace(declared.BMC, **more)
        for wanted, text in (
                ([declared.wanted(), declared.wanted(
                    kind={'driver': 'ipmi'})], 'one driver'),
                ([declared.wanted(outlet=1)], 'ipmi or redfish'),
                ([declared.wanted(bmc=bmc(redfish_port=8443))],
                 'port 443 only'),
                ([declared.wanted(kind={'driver': 'ipmi'},
                                  bmc=bmc(ipmi_port=30623))],
                 'port 623 only'),
                ([declared.wanted(networks=())], 'MAC address'),
                ([declared.wanted(bmc=bmc(password='two words'))],
                 'blanks')):
            error = self.assertRaises(
                problems.Unsuitable, devstack.make, wanted, OWNER)
            self.assertIn(text, str(error))
            self.assertNotIn('two words', str(error))


class VirtualpduTestCase(base.BaseTestCase):

    def test_is_read_by_the_program(self):
        text = virtualpdu.make(
            [declared.wanted('tk0'), declared.wanted('tk1', outlet=1),
             declared.wanted('tk2', outlet=2)], OWNER)
        with tempfile.NamedTemporaryFile('w') as stream:
            stream.write(text)
            stream.flush()
            parser, mapping = pdu_config.read(stream.name)
        self.assertEqual(OWNER.split('/')[0],
                         parser['global']['kubevirt_namespace'])
        self.assertEqual(
            {('demo-9161', 1): 'tk1', ('demo-9161', 2): 'tk2'}, mapping)
        self.assertEqual(
            {'listen_address': '192.0.2.1', 'listen_port': '9161',
             'snmp_versions': '2c', 'community': 'lab',
             'ports': '1:tk1,2:tk2'}, dict(parser['demo-9161']))

    def test_without_outlets(self):
        self.assertRaises(problems.Unsuitable, virtualpdu.make,
                          [declared.wanted()], OWNER)


class AnsibleTestCase(base.BaseTestCase):

    def test_groups_and_hosts(self):
        text = ansible.make([declared.wanted(bmc=BMC)], 'lab/my-demo/uid')
        made = json.loads(text)['all']
        self.assertEqual({'my_demo', 'type_type0', 'class_rc'},
                         set(made['children']))
        for group in made['children'].values():
            self.assertEqual({'hosts': {'tk0': {}}}, group)
        host = made['hosts']['tk0']
        self.assertEqual(
            ('10.96.0.7', 'tk0-bmc', 'lab', {'net1': '52:54:00:00:00:00'}),
            (host['bmc_address'], host['bmc_secret'], host['bmc_namespace'],
             host['macs']))
        self.assertNotIn('s3cret-one', text)


class Metal3TestCase(base.BaseTestCase):

    def make(self, **more):
        text = metal3.make([declared.wanted(bmc=BMC, **more)], OWNER)
        self.assertNotIn('s3cret-one', text)
        host, = yaml.safe_load_all(text)
        return host

    def test_host(self):
        self.assertEqual({
            'apiVersion': 'metal3.io/v1alpha1', 'kind': 'BareMetalHost',
            'metadata': {'name': 'tk0', 'namespace': 'lab'},
            'spec': {'online': True, 'architecture': 'x86_64',
                     'bootMACAddress': '52:54:00:00:00:00',
                     'bootMode': 'UEFI', 'bmc': {
                         'address': 'redfish-virtualmedia://10.96.0.7'
                                    '/redfish/v1/Systems/1',
                         'credentialsName': 'tk0-host'}}}, self.make())

    def test_hosts_at_outlets(self):
        for inventory in metal3, metal3_secrets:
            error = self.assertRaises(
                problems.Unsuitable, inventory.make,
                [declared.wanted(outlet=1, bmc=dataclasses.replace(
                    BMC, redfish_port=None))], OWNER)
            self.assertIn('tk0 has the ironic_driver snmp', str(error))

    def test_secret_of_host(self):
        made, = yaml.safe_load_all(metal3_secrets.make(
            [declared.wanted(bmc=BMC)], OWNER))
        data = made.pop('data')
        self.assertEqual({
            'apiVersion': 'v1', 'kind': 'Secret', 'type': 'Opaque',
            'metadata': {'name': 'tk0-host', 'namespace': 'lab'}}, made)
        self.assertEqual(
            {'username': BMC.username, 'password': BMC.password},
            {key: base64.b64decode(value).decode()
             for key, value in data.items()})

    def test_variants(self):
        spec = self.make(kind={'secure_boot': True}, verify=False)['spec']
        self.assertEqual('UEFISecureBoot', spec['bootMode'])
        self.assertEqual('aarch64', self.make(kind=declared.of_architecture(
            'arm64'))['spec']['architecture'])
        self.assertTrue(spec['bmc']['disableCertificateVerification'])
        spec = self.make(kind={'driver': 'ipmi', 'boot_mode': 'bios'})['spec']
        self.assertEqual('legacy', spec['bootMode'])
        self.assertEqual('ipmi://10.96.0.7', spec['bmc']['address'])
        spec = self.make(interfaces={'boot_interface': 'ipxe'},
                         networks=('net1', 'net2'),
                         pxe_networks=('net2',))['spec']
        self.assertEqual('redfish://10.96.0.7/redfish/v1/Systems/1',
                         spec['bmc']['address'])
        self.assertEqual('52:54:00:00:00:01', spec['bootMACAddress'])
