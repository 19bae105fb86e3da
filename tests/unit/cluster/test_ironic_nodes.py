# SPDX-License-Identifier: Apache-2.0
import dataclasses

from oslotest import base

from sushy_kubevirt.cluster.ironic import nodes
from sushy_kubevirt.cluster import problems
from tests.unit.cluster import declared


def compare(node, wanted, images=()):
    return nodes.difference(node, wanted, declared.OWNER, dict(images))


def created(wanted, images=()):
    return nodes.creation(wanted, declared.OWNER, dict(images))


class CreationTestCase(base.BaseTestCase):

    def test_redfish(self):
        body = created(declared.wanted(
            kind={'secure_boot': True}, properties={'vendor': 'x'},
            capabilities={'hw': 'true'}, interfaces={'boot_interface': 'b'},
            attributes={'owner': 'o', 'conductor_group': 'Rack1',
                        'extra': {'row': 7}}))
        record = body['extra'].pop('sushy_kubevirt')
        self.assertEqual({
            'name': 'tk0', 'driver': 'redfish', 'resource_class': 'rc',
            'boot_interface': 'b', 'conductor_group': 'rack1',
            'extra': {'row': 7},
            'driver_info': {
                'redfish_address': 'https://10.96.0.7',
                'redfish_system_id': '/redfish/v1/Systems/1',
                'redfish_username': 'admin',
                'redfish_password': 's3cret-one',
                'redfish_verify_ca': True},
            'properties': {
                'cpu_arch': 'x86_64', 'cpus': 2, 'memory_mb': 1024,
                'local_gb': 10, 'vendor': 'x',
                'capabilities': 'boot_mode:uefi,hw:true,secure_boot:true'},
        }, body)
        self.assertEqual((declared.OWNER, 'vm-uid-0', 'uid/1'), (
            record['cluster'], record['vm'], record['credentials']))
        self.assertIn('/properties/capabilities/hw', record['managed'])
        self.assertIn('/owner', record['managed'])
        self.assertNotIn('s3cret', str(record))

    def test_snmp(self):
        body = created(declared.wanted(outlet=3))
        self.assertEqual(
            {'snmp_driver': 'apc_rackpdu', 'snmp_address': '192.0.2.1',
             'snmp_port': 9161, 'snmp_version': '2c',
             'snmp_community': 'lab', 'snmp_outlet': 3}, body['driver_info'])
        self.assertEqual(('snmp', 'snmp', 'noop'), (
            body['driver'], body['power_interface'],
            body['management_interface']))
        self.assertEqual('fake', created(declared.wanted(outlet=3, interfaces={
            'management_interface': 'fake'}))['management_interface'])

    def test_ipmi(self):
        wanted = declared.wanted(
            kind={'driver': 'ipmi'}, bmc=dataclasses.replace(
                declared.BMC, ipmi_port=30623), deploy_kernel='kernel',
            deploy_ramdisk='http://example/ramdisk')
        self.assertEqual({
            'ipmi_address': '10.96.0.7', 'ipmi_port': 30623,
            'ipmi_username': 'admin', 'ipmi_password': 's3cret-one',
            'deploy_kernel': 'uuid-of-kernel',
            'deploy_ramdisk': 'http://example/ramdisk',
        }, created(wanted, {'kernel': 'uuid-of-kernel'})['driver_info'])
        self.assertEqual({'kernel'}, nodes.image_names([wanted]))

    def test_architecture(self):
        for name, cpu_arch in (('arm64', 'aarch64'), ('amd64', 'x86_64'),
                               ('s390x', 's390x'), ('ppc64le', 'ppc64le')):
            body = created(declared.wanted(
                kind=declared.of_architecture(name)))
            self.assertEqual(cpu_arch, body['properties']['cpu_arch'])

    def test_addresses_and_certificates(self):
        for change, config, address, verify in (
                ({'address': 'fd00::7'}, {}, 'https://[fd00::7]', True),
                ({'redfish_port': 8443}, {'ca_file': '/ca.pem'},
                 'https://10.96.0.7:8443', '/ca.pem'),
                ({'address': 'bmc.lab'}, {'verify': False, 'ca_file': '/c'},
                 'https://bmc.lab', False)):
            info = created(declared.wanted(
                bmc=dataclasses.replace(declared.BMC, **change),
                **config))['driver_info']
            self.assertEqual((address, verify), (
                info['redfish_address'], info['redfish_verify_ca']))

    def test_inspection_finds_sizes(self):
        self.assertEqual(
            {'capabilities': 'boot_mode:bios'},
            created(declared.wanted(kind={'boot_mode': 'bios'},
                                    inspect=True))['properties'])

    def test_size_of_disks_is_in_gib(self):
        for capacity, expected in (
                ('1G', 1), ('10Gi', 10), ('10G', 9), (None, 0)):
            self.assertEqual(expected, nodes.disk_gb(dataclasses.replace(
                declared.wanted().node.type, volumes=(
                    declared.model.Volume(capacity),))))

    def test_passwords_are_not_shown(self):
        wanted = declared.wanted()
        self.assertNotIn('s3cret', repr(wanted))
        self.assertNotIn('s3cret', repr(compare(
            declared.existing(created(wanted)),
            dataclasses.replace(wanted, bmc=declared.rotated()))))


class DifferenceTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.wanted = declared.wanted(
            traits=('CUSTOM_A',), properties={'vendor': 'x'},
            capabilities={'hw': 'y'}, attributes={'description': 'd'})
        self.node = declared.existing(created(self.wanted),
                                      traits=['CUSTOM_A'])

    def test_equal(self):
        self.node['properties'].update(cpus='2', found_by='inspection')
        self.node['properties']['capabilities'] += ',disk_label:gpt'
        self.node['extra']['users'] = 'own'
        difference = compare(self.node, self.wanted)
        self.assertEqual(([], None, (), ()), dataclasses.astuple(difference))
        self.assertFalse(difference)

    def test_changed_values(self):
        wanted = declared.wanted(
            traits=('CUSTOM_B',), properties={'vendor': 'z'},
            capabilities={'hw': 'n'}, attributes={'description': 'd'},
            interfaces={'deploy_interface': 'ramdisk'},
            resource_class='other')
        difference = compare(self.node, wanted)
        self.assertEqual(
            ('deploy_interface', 'hw', 'resource_class', 'traits', 'vendor'),
            difference.changed)
        self.assertEqual({'CUSTOM_B'}, difference.traits)
        self.assertEqual([
            {'op': 'add', 'path': '/deploy_interface', 'value': 'ramdisk'},
            {'op': 'add', 'path': '/properties/capabilities',
             'value': 'boot_mode:uefi,hw:n'},
            {'op': 'add', 'path': '/properties/vendor', 'value': 'z'},
            {'op': 'add', 'path': '/resource_class', 'value': 'other'},
        ], sorted((one for one in difference.patch
                   if 'sushy_kubevirt' not in one['path']),
                  key=lambda one: one['path']))

    def test_values_that_left_the_file_are_removed(self):
        self.node['properties']['capabilities'] += ',disk_label:gpt'
        self.node['properties']['found_by'] = 'inspection'
        difference = compare(self.node, declared.wanted())
        changed = declared.jsonpatch.apply_patch(self.node, difference.patch)
        self.assertEqual('boot_mode:uefi,disk_label:gpt',
                         changed['properties']['capabilities'])
        self.assertNotIn('vendor', changed['properties'])
        self.assertEqual('inspection', changed['properties']['found_by'])
        self.assertNotIn('description', changed)
        self.assertEqual(frozenset(), difference.traits)
        changed['traits'], changed['description'] = [], None
        self.assertFalse(compare(changed, declared.wanted()))

    def test_conductor_group_that_left_the_file_is_empty(self):
        node = declared.existing(created(declared.wanted(
            attributes={'conductor_group': 'rack1'})))
        difference = compare(node, declared.wanted())
        self.assertIn({'op': 'add', 'path': '/conductor_group', 'value': ''},
                      difference.patch)
        changed = declared.jsonpatch.apply_patch(node, difference.patch)
        self.assertFalse(compare(changed, declared.wanted()))

    def test_rotated_credentials(self):
        wanted = dataclasses.replace(self.wanted, bmc=declared.rotated())
        for state in 'available', 'active':
            self.node['provision_state'] = state
            difference = compare(self.node, wanted)
            self.assertEqual(('redfish_password',), difference.changed)
            self.assertIn({'op': 'add', 'value': 's3cret-two',
                           'path': '/driver_info/redfish_password'},
                          difference.patch)
            self.assertEqual((), difference.deferred)

    def test_changed_driver(self):
        difference = compare(self.node, dataclasses.replace(
            self.wanted, node=dataclasses.replace(
                self.wanted.node, type=dataclasses.replace(
                    self.wanted.node.type, driver='ipmi'))))
        changed = declared.jsonpatch.apply_patch(self.node, difference.patch)
        self.assertEqual('ipmi', changed['driver'])
        self.assertEqual(
            ['ipmi_address', 'ipmi_password', 'ipmi_port', 'ipmi_username'],
            sorted(changed['driver_info']))

    def test_nodes_in_use_change_harmlessly_only(self):
        self.node.update(provision_state='active', instance_uuid='i')
        wanted = declared.wanted(
            attributes={'description': 'new'}, properties={'vendor': 'z'},
            deploy_kernel='http://k', bmc=declared.rotated())
        difference = compare(self.node, wanted)
        self.assertEqual(('description', 'redfish_password'),
                         difference.changed)
        self.assertEqual(('deploy_kernel', 'hw', 'traits', 'vendor'),
                         difference.deferred)
        self.assertIsNone(difference.traits)
        changed = declared.existing(declared.jsonpatch.apply_patch(
            self.node, difference.patch), state='active', instance_uuid='i')
        self.assertEqual('x', changed['properties']['vendor'])
        again = compare(changed, wanted)
        self.assertFalse(again)
        self.assertEqual(difference.deferred, again.deferred)
        # Once the instance is gone, the rest follows.
        changed.update(provision_state='available', instance_uuid=None)
        after = compare(changed, wanted)
        self.assertEqual(difference.deferred, after.changed)
        final = declared.jsonpatch.apply_patch(changed, after.patch)
        self.assertEqual('boot_mode:uefi',
                         final['properties']['capabilities'])

    def test_driver_of_a_node_in_use(self):
        self.node.update(provision_state='active', instance_uuid='i')
        wanted = dataclasses.replace(
            declared.wanted(kind={'driver': 'ipmi'}), bmc=declared.rotated())
        difference = compare(self.node, wanted)
        self.assertFalse([one for one in difference.patch
                          if one['path'].startswith('/driver')])
        self.assertIn('driver', difference.deferred)
        changed = declared.jsonpatch.apply_patch(self.node, difference.patch)
        self.assertEqual('uid/1', nodes.record_of(changed)['credentials'])


class FindTestCase(base.BaseTestCase):

    def find(self, *existing):
        return nodes.find(existing, declared.OWNER, [declared.wanted()])

    def test_by_name_or_vm(self):
        node = declared.existing(created(declared.wanted()))
        self.assertEqual({'tk0': node}, self.find(node))
        renamed = {**node, 'name': 'other'}
        self.assertEqual({'tk0': renamed}, self.find(renamed))
        self.assertEqual(('name',), compare(
            renamed, declared.wanted()).changed)
        self.assertEqual({}, self.find())

    def test_nodes_of_others_are_refused(self):
        node = declared.existing(created(declared.wanted()))
        node['extra']['sushy_kubevirt']['cluster'] = 'lab/other/uid'
        for one, text in ((node, 'belongs to the cluster lab/other'),
                          ({**node, 'extra': {}}, 'was not enrolled by')):
            error = self.find(one)['tk0']
            self.assertIsInstance(error, problems.NodeFailed)
            self.assertIn(text, str(error))
        self.assertEqual([], nodes.owned([node], declared.OWNER))

    def test_nodes_of_another_kubernetes_cluster(self):
        """Its cluster may have the same namespace and name."""
        node = declared.existing(created(declared.wanted()))
        node['extra']['sushy_kubevirt']['cluster'] = 'lab/demo/other-uid'
        self.assertIn('of another Kubernetes cluster',
                      str(self.find(node)['tk0']))
        self.assertEqual([], nodes.owned([node], declared.OWNER))
