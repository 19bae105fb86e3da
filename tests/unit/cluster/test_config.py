# SPDX-License-Identifier: Apache-2.0
import pathlib
import textwrap

from oslotest import base

from sushy_kubevirt.cluster import config
from sushy_kubevirt.cluster import document
from sushy_kubevirt.cluster import fields
from sushy_kubevirt.cluster import identity
from sushy_kubevirt.cluster import model
from sushy_kubevirt.cluster import problems

SAMPLES = pathlib.Path(__file__).parent / 'samples'

TYPES = '''\
node_types:
  a: {vcpus: 1, memory_mb: 1}
  b: {vcpus: 2, memory_mb: 1}
'''


def read(text, path='c.yaml', **options):
    return config.of_document(
        document.parse(textwrap.dedent(text), path), **options)


class TenksExampleTestCase(base.BaseTestCase):
    """Tenks' own example needs no change."""

    def setUp(self):
        super().setUp()
        self.cluster = config.read(SAMPLES / 'tenks-override.yml')

    def test_hardware(self):
        self.assertEqual(
            {'type0': model.NodeType(
                name='type0', vcpus=1, memory_mb=1024,
                volumes=(model.Volume(capacity='2G'),),
                networks=('physnet0',))},
            self.cluster.types)
        self.assertEqual(
            {'physnet0': model.Network(name='physnet0', attachment='brfoo',
                                       switch_info='physnet0')},
            self.cluster.networks)

    def test_nodes(self):
        self.assertEqual(['tk0', 'tk1', 'tk2'],
                         [one.name for one in self.cluster.nodes])
        first = self.cluster.nodes[0]
        self.assertEqual(('tk0vol0',), first.volume_names)
        self.assertEqual(
            (model.Interface('physnet0', self.cluster.networks['physnet0'],
                             identity.mac('tenks-override', 'tk0',
                                          'physnet0')),),
            first.interfaces)
        self.assertEqual(
            model.IronicConfig(resource_class='my_rc',
                               deploy_kernel='ipa.vmlinuz',
                               deploy_ramdisk='ipa.initramfs'),
            first.ironic)

    def test_flavors(self):
        self.assertEqual(
            (model.Flavor('my_rc', 'my_rc', self.cluster.types['type0']),),
            self.cluster.flavors)

    def test_nothing_else(self):
        self.assertEqual('tenks-override', self.cluster.name)
        self.assertIsNone(self.cluster.namespace)
        self.assertEqual((), self.cluster.warnings)


class TenksOptionsTestCase(base.BaseTestCase):
    """Every option of Tenks has an effect, or a warning."""

    def test_every_option(self):
        path = SAMPLES / 'tenks-every-option.yml'
        cluster = config.read(path)
        self.assertEqual(['bm0', 'bm1', 'bm2', 'bm3', 'tk0'],
                         [one.name for one in cluster.nodes])
        self.assertEqual(('bm3volly0', 'bm3volly1'),
                         cluster.nodes[3].volume_names)
        first = cluster.nodes[0]
        self.assertEqual('bios', first.type.boot_mode)
        self.assertTrue(first.type.console_log)
        self.assertEqual(['4Gi', '10'],
                         [one.capacity for one in first.type.volumes])
        self.assertEqual(11, len(first.ironic.interfaces))
        self.assertEqual({'conductor_group': 'conductor_group_foo',
                          'shard': 'hall_bar'}, first.ironic.attributes)
        warned = [one.split('"')[1] for one in cluster.warnings]
        keys = document.read(path).value
        self.assertEqual(
            {one for one in keys if one not in fields.children('')},
            set(warned) - {'format', 'cpu_mode', 'enable_vnc'})
        self.assertEqual(len(set(warned)), len(warned))


class EveryKeyTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.path = SAMPLES / 'every-key.yaml'
        self.cluster = config.read(self.path)
        self.large = self.cluster.types['large']

    def test_the_sample_has_every_key(self):
        paths = set()
        for path in document.read(self.path).marks:
            text = ''
            for one in path:
                if isinstance(one, int):
                    text += '[]'
                elif text in ('node_types', 'networks'):
                    text += '.*'
                else:
                    text += f'.{one}'
                text = text.lstrip('.')
            paths.add(text)
        self.assertEqual([], [
            one.path for one in fields.FIELDS
            if one.origin is not fields.Origin.IGNORED
            and one.path not in paths])

    def test_cluster(self):
        self.assertEqual('lab', self.cluster.name)
        self.assertEqual('bare-metal', self.cluster.namespace)
        self.assertEqual(2, self.cluster.credentials)
        self.assertFalse(self.cluster.wait_for_placement)
        self.assertEqual((), self.cluster.warnings)

    def test_networks(self):
        self.assertEqual(
            {'provision': model.Network(
                'provision', 'networks/provision', None, False,
                '52:54:00:12:34:56', 'leaf-1',
                {'device_type': 'netmiko_ovs_linux', 'port': '22'}),
             'storage': model.Network('storage', switch_info='storage'),
             'mine': model.Network(
                 'mine', 'mine', {'type': 'ovs', 'bridge': 'br1'}, True,
                 switch_info='mine'),
             'made': model.Network(
                 'made', 'lab-made',
                 {'cniVersion': '0.3.1', 'type': 'bridge'},
                 switch_info='made')},
            self.cluster.networks)

    def test_type(self):
        self.assertEqual(
            model.NodeType(
                name='large', vcpus=4, memory_mb=8192,
                volumes=(
                    model.Volume('10Gi', storage_class='fast',
                                 access_mode='ReadWriteMany',
                                 volume_mode='Block', bus='scsi'),
                    model.Volume('10G', 'http',
                                 'https://images.example.org/a.qcow2'),
                    model.Volume('4Gi', 'registry',
                                 'docker://registry.example.org/a:1'),
                    model.Volume(None, 'claim', 'data-{index}'),
                    model.Volume(None, 'clone', 'golden/image'),
                    model.Volume('1Gi', ephemeral=True)),
                networks=('provision', 'mine', 'made', 'storage'),
                driver='ipmi', boot_mode='uefi', secure_boot=True,
                tpm='persistent', console_log=True,
                placement=model.Placement(
                    node_selector={'disk': 'ssd',
                                   'example.org/provision': 'yes'},
                    tolerations=({'key': 'lab', 'operator': 'Exists'},),
                    affinity={'podAntiAffinity': {}},
                    spread='topology.kubernetes.io/zone',
                    spread_required=True, dedicated_cpus=True,
                    huge_pages='2Mi', numa=True),
                vm={'spec': {'template': {'spec': {
                    'hostname': '{{ kept }}'}}}},
                bmc={'service': {'type': 'NodePort'}}),
            self.large)

    def test_type_of_an_instancetype(self):
        self.assertEqual(
            model.NodeType(
                name='shared', driver='redfish', boot_mode='bios',
                instancetype={'name': 'u1.small',
                              'kind': 'VirtualMachineInstancetype'},
                preference={'name': 'linux',
                            'kind': 'VirtualMachinePreference'}),
            self.cluster.types['shared'])

    def test_nodes(self):
        self.assertEqual(
            [('rack-0', 0, 'large'), ('rack-1', 1, 'large'),
             ('s0', 0, 'shared'), ('spare', 0, 'shared')],
            [(one.name, one.index, one.type.name)
             for one in self.cluster.nodes])
        self.assertEqual('rack-1disk5', self.cluster.nodes[1].volume_names[5])
        self.assertEqual(
            ['provision', 'mine', 'made', 'storage'],
            [one.network.name for one in self.cluster.nodes[0].interfaces])
        self.assertIsNone(self.cluster.nodes[2].ironic)

    def test_ironic(self):
        found = self.cluster.nodes[0].ironic
        self.assertEqual(13, len(found.interfaces))
        self.assertEqual('ipxe', found.interfaces['boot_interface'])
        self.assertEqual(
            model.IronicConfig(
                resource_class='gold', traits=('CUSTOM_GOLD',),
                properties={'cpus': 3},
                capabilities={'raid_level': '1', 'boot_mode': 'uefi',
                              'iscsi_boot': 'true'},
                interfaces=found.interfaces,
                attributes={'conductor_group': 'hall', 'shard': 'a',
                            'owner': 'p1', 'lessee': 'p2',
                            'description': 'Virtual', 'extra': {'asset': 7}},
                deploy_kernel='k', deploy_ramdisk='r',
                port_group={'mode': '802.3ad', 'properties': {'miimon': 100}},
                pxe_networks=('provision',), verify=True,
                ca_file='/etc/ironic/ca.pem', inspect=True, provide=False),
            found)

    def test_flavor(self):
        self.assertEqual(
            (model.Flavor('bm.large', 'gold', self.large, ('CUSTOM_GOLD',),
                          ('CUSTOM_OLD',), {'hw:boot_mode': 'uefi',
                                            'quota': '1', 'flag': 'true'}),),
            self.cluster.flavors)


class OutletsTestCase(base.BaseTestCase):

    FILE = """
        pdu: {address: pdu.example.org, port: 9161, community: lab}
        default_ironic_driver: snmp
        node_types: {small: {vcpus: 1, memory_mb: 512}}
        specs:
        - {type: small, count: %s, ironic_config: {resource_class: rc}}
        """

    def outlets(self, text):
        return [node.outlet for node in read(text).nodes]

    def refused(self, text, *parts):
        message = str(self.assertRaises(problems.InvalidFile, read, text))
        for part in parts:
            self.assertIn(part, message)

    def test_in_the_order_of_the_file(self):
        outlets = self.outlets(self.FILE % 50)
        self.assertEqual(
            [(9161, 1), (9161, 24), (9162, 1), (9163, 2)],
            [(outlets[index].port, outlets[index].number)
             for index in (0, 23, 24, 49)])
        self.assertEqual(('pdu.example.org', 'lab'), (
            outlets[0].address, outlets[0].community))
        self.assertNotIn('lab', str(outlets[0]))

    def test_other_nodes_have_none(self):
        text = self.FILE % 1
        self.assertEqual([None], self.outlets(text.replace('snmp', 'ipmi')))
        self.assertEqual([None], self.outlets(
            text.replace(', ironic_config: {resource_class: rc}', '')))

    def test_problems(self):
        text = self.FILE % 25
        self.refused(text.replace('pdu: {', 'cluster: {name: a} #'),
                     '"address" is missing in "pdu"',
                     '"community" is missing in "pdu"')
        self.refused(text.replace('pdu.example.org', '"2001:db8::1"'),
                     'an IPv4 address')
        self.refused(text.replace('community: lab', 'community: "a b"'),
                     'without blanks')
        self.refused(text.replace('9161', '65535'), 'not enough ports')


class NamesTestCase(base.BaseTestCase):

    def test_name_of_the_cluster(self):
        for options, text, path, name, node in (
                ({}, '', 'dir/My_lab.prod.yaml', 'my-lab', 'tk0'),
                ({}, 'cluster: {name: x}\n', 'lab.yaml', 'x', 'x-0'),
                ({'name': 'y'}, 'cluster: {name: x}\n', 'lab.yaml', 'y',
                 'y-0'),
                ({'name': 'y'}, '', 'lab.yaml', 'y', 'y-0')):
            cluster = read(TYPES + text + 'specs: [{type: a, count: 1}]\n',
                           path, **options)
            self.assertEqual((name, node),
                             (cluster.name, cluster.nodes[0].name))

    def test_long_name_of_a_file_is_not_shortened(self):
        error = self.assertRaises(
            problems.InvalidFile, read, TYPES, f'{"x" * 40}1.yaml')
        self.assertIn('at most 40. Set "name" in "cluster"', str(error))

    def test_namespace(self):
        text = TYPES + 'cluster: {namespace: x}\n'
        self.assertEqual('x', read(text).namespace)
        self.assertEqual('y', read(text, namespace='y').namespace)
        self.assertIsNone(read(TYPES).namespace)

    def test_clusters_of_different_names_share_nothing(self):
        text = (TYPES.replace('}', ', physical_networks: [n]}')
                + 'networks: {n: {}}\nspecs: [{type: a, count: 9}]\n')
        one, other = (read(text, name=name).nodes for name in 'xy')
        self.assertEqual(18, len({node.name for node in one + other}))
        self.assertEqual(18, len({node.interfaces[0].mac
                                  for node in one + other}))

    def test_more_nodes_leave_others_as_they_are(self):
        text = TYPES + 'specs: [{type: a, count: %d}]\n'
        self.assertEqual(read(text % 3).nodes, read(text % 5).nodes[:3])

    def test_specs_with_one_prefix_continue_numbering(self):
        text = TYPES + ('specs: [{type: a, count: 2}, {type: %s, count: 1},'
                        ' {type: b, count: 1, node_name_prefix: x}]\n')
        for kind, warnings in ('a', 0), ('b', 1):
            cluster = read(text % kind)
            self.assertEqual(['tk0', 'tk1', 'tk2', 'x0'],
                             [one.name for one in cluster.nodes])
            self.assertEqual(warnings, len(cluster.warnings))
        self.assertIn('c.yaml:4:30: nodes of this spec share the prefix "tk"',
                      cluster.warnings[0])

    def test_given_names(self):
        nodes = read(TYPES + 'specs: [{type: a, count: 1}, {type: a, count: 2,'
                     ' node_names: [web, db]}, {type: a, count: 1}]\n').nodes
        self.assertEqual(
            [('tk0', 0), ('web', 0), ('db', 1), ('tk1', 1)],
            [(one.name, one.index) for one in nodes])

    def test_addresses_are_unique(self):
        """Among 4,000 interfaces, a collision is likely: 0.4."""
        text = (TYPES.replace('}', ', physical_networks: [n, m]}')
                + 'networks: {n: {}, m: {}}\nspecs: [{type: a, count: 2000}]')
        for name in 'abcdef':
            nodes = read(text, name=name).nodes
            addresses = [one.mac for node in nodes for one in node.interfaces]
            self.assertEqual(4000, len(set(addresses)))
            if len({identity.mac(name, node.name, network)
                    for node in nodes for network in 'nm'}) < 4000:
                break
        else:
            self.fail('no collision was tried')


class BootModeTestCase(base.BaseTestCase):

    def test_precedence(self):
        for default, kind, capability, expected in (
                ('', '', '', 'uefi'),
                ('default_boot_mode: bios', '', '', 'bios'),
                ('default_boot_mode: bios', ', boot_mode: uefi', '', 'uefi'),
                ('', ', boot_mode: uefi', 'boot_mode:bios', 'bios')):
            cluster = read(f'''\
                {default}
                node_types: {{a: {{vcpus: 1, memory_mb: 1 {kind}}}}}
                specs:
                - type: a
                  count: 1
                  ironic_config:
                    resource_class: x
                    properties: {{capabilities: "{capability}"}}
                ''')
            self.assertEqual(expected, cluster.nodes[0].type.boot_mode)


class PropertiesTestCase(base.BaseTestCase):

    def test_null_counts_as_missing(self):
        """Ironic cannot have such a property, so it would always differ."""
        cluster = read(TYPES + '''\
            specs:
            - type: a
              count: 1
              ironic_config:
                resource_class: x
                properties: {cpus: , other: , cpu_arch: arm64}
            '''.replace(' ' * 12, ''))
        self.assertEqual({'cpu_arch': 'arm64'},
                         cluster.nodes[0].ironic.properties)


class WarningsTestCase(base.BaseTestCase):

    def test_options_of_libvirt_have_no_effect(self):
        """Values of Tenks' group_vars, with expressions of Ansible."""
        cluster = read('''\
            cmd: deploy
            state_file_path: >-
              {{ '/'.join([(playbook_dir | dirname), 'state.yml']) }}
            virtualenv_path: "{{ '/'.join([ansible_env['HOME'], 'venv']) }}"
            bmc_emulators: {ipmi: virtualbmc}
            bridge_type: openvswitch
            veth_node_peer_suffix: '-ovs'
            ipmi_port_range_start: 6230
            ipmi_password: hunter2
            libvirt_pool_capacity:
            log_directory: /var/log/tenks/
            node_types:
              a:
                vcpus: 1
                memory_mb: 1
                machine: q35
                volumes: [{capacity: 1GB, pool: x, dev: /dev/sda}]
            ''')
        self.assertEqual(13, len(cluster.warnings))
        self.assertEqual('c.yaml:1:1: "cmd" has no effect here. The '
                         'subcommand says what to do.', cluster.warnings[0])
        self.assertIn('c.yaml:2:1: "state_file_path"', cluster.warnings[1])
        self.assertNotIn('hunter2', ''.join(cluster.warnings))
        lines = [int(one.split(':')[1]) for one in cluster.warnings]
        self.assertEqual(sorted(lines), lines)
        self.assertEqual(model.Volume('1G'),
                         cluster.types['a'].volumes[0])
