# SPDX-License-Identifier: Apache-2.0
"""A cluster file with all that Ironic can be told of a node, in a real one."""

import json
import pathlib
import subprocess
import tempfile
from unittest import mock

from kubevirt_sandbox.testing import machines
from kubevirt_sandbox.testing import process
from sushy_kubevirt.cluster import config
from sushy_kubevirt.cluster import document
from sushy_kubevirt.cluster import fields
from sushy_kubevirt.cluster.inventory import ironic as inventory
from sushy_kubevirt.cluster.ironic import client
from sushy_kubevirt.cluster.ironic import nodes
from sushy_kubevirt.cluster.ironic import provision
from sushy_kubevirt.remote import endpoint
from tests.fixtures import base
from tests.fixtures import ironic
from tests.fixtures import redfish_pod

OWNER = 'default/rich/uid'

FILE = """
cluster: {name: rich}
default_ironic_driver: redfish
deploy_kernel: http://192.0.2.1/kernel
deploy_ramdisk: file:///ramdisk
physnet_mappings: {provision: pod, storage: default/storage}
networks:
  provision: {switch_id: "52:54:00:12:34:56", switch_info: leaf-1}
node_types:
  small:
    vcpus: 1
    memory_mb: 256
    physical_networks: [provision, storage]
    volumes: [{capacity: 10GiB}]
specs:
- type: small
  count: 1
  ironic_config:
    resource_class: gold
    traits: [CUSTOM_GOLD, HW_CPU_X86_VMX]
    properties: {rack: 7, capabilities: "boot_option:local"}
    capabilities: {lab: x}
    bios_interface: redfish
    boot_interface: redfish-virtual-media
    console_interface: no-console
    deploy_interface: ramdisk
    firmware_interface: no-firmware
    inspect_interface: redfish
    management_interface: redfish
    network_interface: noop
    power_interface: redfish
    raid_interface: no-raid
    rescue_interface: no-rescue
    storage_interface: noop
    vendor_interface: redfish
    conductor_group: Rack1
    shard: shard-1
    owner: project-1
    lessee: project-2
    description: a node
    extra: {row: 3}
    port_group: {mode: 802.3ad, properties: {miimon: "100"}}
    pxe_networks: [provision]
    inspect: true
    %s
"""


class RichTestCase(base.SandboxTestCase):

    VMS = 0

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        vm = machines.vm('rich-0', 'Halted')
        spec = vm['spec']['template']['spec']
        spec['domain']['devices']['interfaces'] = [
            {'name': 'default', 'masquerade': {},
             'macAddress': '52:54:00:12:34:56'}]
        spec['networks'] = [{'name': 'default', 'pod': {}}]
        cls.sandbox.create('virtualmachines', vm)
        cls.pod = cls.share(redfish_pod.RedfishPod(cls.sandbox, 'rich-0'))
        cls.ironic = cls.share(ironic.Ironic({
            'conductor': {'conductor_group': 'rack1',
                          **ironic.WITHOUT_SYNC['conductor']}}))

    def setUp(self):
        super().setUp()
        self.addCleanup(self.clean)
        self.client = client.Client(
            mock.Mock(baremetal=self.ironic.baremetal))

    def clean(self):
        for node in self.ironic.baremetal.nodes():
            self.ironic.baremetal.set_node_maintenance(node)
            self.ironic.baremetal.delete_node(node)

    def wanted(self, more):
        cluster = config.of_document(document.parse(FILE % more, 'rich.yaml'))
        node, = cluster.nodes
        return nodes.Wanted(node, endpoint.Bmc(
            '127.0.0.1', redfish_port=self.pod.port,
            username=redfish_pod.USER, password=self.pod.password,
            revision='1'), 'vm-uid')

    def enrol(self, wanted):
        return provision.Enrolment(self.client, OWNER, [wanted]).apply()[0]

    def ready(self, wanted, action):
        result = self.enrol(wanted)
        self.assertEqual(
            (action, 'available', None),
            (result.action, result.state, result.error), result.changed)

    def test_every_key(self):
        wanted = self.wanted(f'ca_file: {self.pod.ca}')
        self.ready(wanted, 'create')
        node = self.ironic.baremetal.get_node('rich-0')
        for key, value in wanted.node.ironic.interfaces.items():
            self.assertEqual(value, node[key], key)
        self.assertEqual(set(fields.INTERFACES),
                         set(wanted.node.ironic.interfaces))
        self.assertEqual(
            ('redfish', 'gold', 'rack1', 'shard-1', 'project-1', 'project-2',
             'a node', 3, 7), (
                node.driver, node.resource_class, node.conductor_group,
                node.shard, node.owner, node.lessee, node.description,
                node.extra['row'], node.properties['rack']))
        self.assertEqual({'CUSTOM_GOLD', 'HW_CPU_X86_VMX'}, set(node.traits))
        capabilities = dict(
            one.split(':') for one in
            node.properties['capabilities'].split(','))
        self.assertEqual(
            ('uefi', 'local', 'x'),
            tuple(capabilities[key]
                  for key in ('boot_mode', 'boot_option', 'lab')))
        # Inspection has found these.
        self.assertTrue(self.client.node(
            node.id, nodes.FIELDS)['inspection_finished_at'])
        self.assertEqual('x86_64', node.properties['cpu_arch'])
        self.assertTrue(node.properties['memory_mb'])
        self.assertEqual(
            ('http://192.0.2.1/kernel', 'file:///ramdisk', str(self.pod.ca)),
            tuple(node.driver_info[key] for key in (
                'deploy_kernel', 'deploy_ramdisk', 'redfish_verify_ca')))
        self.assert_ports(node)
        self.ready(wanted, 'unchanged')

    def assert_ports(self, node):
        found = {one.physical_network: one for one in
                 self.ironic.baremetal.ports(node=node.id, details=True)
                 if one.physical_network}
        self.assertEqual({'provision': True, 'storage': False},
                         {name: one.is_pxe_enabled
                          for name, one in found.items()})
        link = found['provision'].local_link_connection
        self.assertEqual(('52:54:00:12:34:56', 'leaf-1'),
                         (link['switch_id'], link['switch_info']))
        group, = self.ironic.baremetal.port_groups(
            node=node.id, details=True)
        self.assertEqual(('802.3ad', {'miimon': '100'}),
                         (group.mode, group.properties))
        self.assertEqual(group.id, found['provision'].port_group_id)

    def test_other_ways(self):
        """No verification; a failure says what to do; no ``provide``."""
        failed = self.enrol(self.wanted('verify_ca: true'))
        self.assertIn('CERTIFICATE_VERIFY_FAILED', failed.error)
        self.assertIn('name it in "ca_file"', failed.error)
        wanted = self.wanted('verify_ca: false\n    provide: false')
        result = self.enrol(wanted)
        self.assertEqual(('manageable', None), (result.state, result.error))
        self.assertEqual(('unchanged', ()), (
            (again := self.enrol(wanted)).action, again.changed))
        self.ready(self.wanted('verify_ca: false'), 'provide')

    def test_openstack_baremetal_create(self):
        """python-ironicclient creates what ``inventory`` prints."""
        wanted = self.wanted(f'ca_file: {self.pod.ca}')
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / 'nodes.json'
            path.write_text(inventory.make([wanted], OWNER))
            subprocess.run(
                [process.BIN / 'baremetal', 'create', path],
                env=self.ironic.env, check=True, stdin=subprocess.DEVNULL,
                capture_output=True, timeout=60)
            self.assertEqual('rich-0', json.loads(
                path.read_text())['nodes'][0]['name'])
        node = self.ironic.baremetal.get_node('rich-0')
        self.assertEqual('enroll', node.provision_state)
        self.assert_ports(node)
        self.assertEqual(('rack1', 'gold'),
                         (node.conductor_group, node.resource_class))
        # "enrol" knows the node as its own.
        self.ready(wanted, 'change')
        self.assertEqual({'CUSTOM_GOLD', 'HW_CPU_X86_VMX'}, set(
            self.ironic.baremetal.get_node('rich-0').traits))
