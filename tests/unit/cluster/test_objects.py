# SPDX-License-Identifier: Apache-2.0
"""Objects that are made of a cluster."""

import json

from oslotest import base

from sushy_kubevirt.cluster import identity
from sushy_kubevirt.cluster import model
from sushy_kubevirt.cluster.objects import bmc
from sushy_kubevirt.cluster.objects import catalog
from sushy_kubevirt.cluster.objects import networks
from sushy_kubevirt.cluster.objects import stamp
from sushy_kubevirt.cluster.objects import vm
from sushy_kubevirt.kube import stored_names
from tests.unit.cluster import nodes


class VirtualMachineTestCase(base.BaseTestCase):

    def make(self, **kind):
        made = nodes.cluster(1, **kind)
        return vm.virtual_machine(made, made.nodes[0], 'space').body

    def domain(self, **kind):
        return self.make(**kind)['spec']['template']['spec']['domain']

    def spec(self, **kind):
        return self.make(**kind)['spec']['template']['spec']

    def test_plain(self):
        made = self.make()
        self.assertEqual('Halted', made['spec']['runStrategy'])
        self.assertEqual('space', made['metadata']['namespace'])
        self.assertEqual({
            stored_names.CLUSTER: 'tenks', stored_names.NODE: 'tk0',
            stored_names.TYPE: 'type0'}, made['metadata']['labels'])
        self.assertEqual(made['metadata']['labels'],
                         made['spec']['template']['metadata']['labels'])
        domain = made['spec']['template']['spec']['domain']
        self.assertEqual({'cores': 1}, domain['cpu'])
        self.assertEqual({'guest': '256Mi'}, domain['memory'])
        self.assertEqual([{'name': 'tk0vol0', 'disk': {}},
                          {'name': 'cd', 'cdrom': {'bus': 'sata'}}],
                         domain['devices']['disks'])
        self.assertEqual({'efi': {'secureBoot': False}},
                         domain['firmware']['bootloader'])
        self.assertNotIn('features', domain)

    def test_boot_order_of_a_machine_without_boot_devices(self):
        devices = self.domain(driver='snmp')['devices']
        self.assertEqual([1], [one['bootOrder']
                               for one in devices['interfaces']])
        self.assertEqual([2, None], [one.get('bootOrder')
                                     for one in devices['disks']])

    def test_driver_is_declared_if_it_determines_the_boot_order(self):
        made = {driver: self.make(driver=driver)
                for driver in ('ipmi', 'redfish', 'snmp')}
        self.assertEqual(stamp.hash_of(made['ipmi']),
                         stamp.hash_of(made['redfish']))
        self.assertEqual(('ironic_driver: none -> snmp',), stamp.changes(
            made['ipmi'], made['snmp']))

    def test_firmware(self):
        domain = self.domain(secure_boot=True, tpm='persistent',
                             console_log=True)
        self.assertEqual({'efi': {'secureBoot': True}},
                         domain['firmware']['bootloader'])
        self.assertEqual({'smm': {'enabled': True}}, domain['features'])
        self.assertEqual({'persistent': True}, domain['devices']['tpm'])
        self.assertIs(True, domain['devices']['logSerialConsole'])
        self.assertEqual({}, self.domain(tpm='ephemeral')['devices']['tpm'])
        self.assertEqual(
            {'bios': {'useSerial': True}},
            self.domain(boot_mode='bios')['firmware']['bootloader'])

    def test_architectures(self):
        for name, mode, loader in (
                ('arm64', 'uefi', {'efi': {'secureBoot': False}}),
                ('s390x', 'bios', None)):
            domain = self.domain(boot_mode=mode, vm={'spec': {'template': {
                'spec': {'architecture': name}}}})
            self.assertEqual({'name': 'cd', 'cdrom': {'bus': 'scsi'}},
                             domain['devices']['disks'][-1])
            self.assertEqual(loader, domain.get('firmware', {}).get(
                'bootloader'))

    def test_instance_type_leaves_out_size(self):
        made = self.make(vcpus=None, memory_mb=None,
                         instancetype={'name': 'u1.small'},
                         preference={'name': 'linux'})
        domain = made['spec']['template']['spec']['domain']
        self.assertNotIn('cpu', domain)
        self.assertNotIn('memory', domain)
        self.assertEqual({'name': 'u1.small'}, made['spec']['instancetype'])
        self.assertEqual({'name': 'linux'}, made['spec']['preference'])

    def test_networks(self):
        lan = model.Network('lan', 'other/lan')
        spec = self.spec(networks=(nodes.POD, lan))
        self.assertEqual(
            [{'name': 'pod', 'pod': {}},
             {'name': 'lan', 'multus': {'networkName': 'other/lan'}}],
            spec['networks'])
        first, second = spec['domain']['devices']['interfaces']
        self.assertEqual({}, first['masquerade'])
        self.assertEqual({}, second['bridge'])
        self.assertEqual(identity.mac('tenks', 'tk0', 'lan'),
                         second['macAddress'])

    def test_no_network(self):
        self.assertIs(False, self.domain(networks=())['devices'][
            'autoattachPodInterface'])

    def test_volumes(self):
        made = self.make(volumes=(
            model.Volume('1G', storage_class='fast', bus='sata',
                         access_mode='ReadWriteMany', volume_mode='Block'),
            model.Volume('2G', 'http', 'http://server/image'),
            model.Volume('3G', 'registry', 'docker://registry/image'),
            model.Volume(None, 'claim', 'disk-{index}-of-{node}'),
            model.Volume(None, 'clone', 'golden'),
            model.Volume(None, 'clone', 'images/golden'),
            model.Volume('4G', ephemeral=True)))
        spec = made['spec']['template']['spec']
        self.assertEqual({'bus': 'sata'},
                         spec['domain']['devices']['disks'][0]['disk'])
        self.assertEqual(
            {'name': 'tk0vol3', 'persistentVolumeClaim': {
                'claimName': 'disk-0-of-tk0'}}, spec['volumes'][3])
        self.assertEqual({'name': 'tk0vol6', 'emptyDisk': {'capacity': '4G'}},
                         spec['volumes'][6])
        templates = {one['metadata']['name']: one['spec']
                     for one in made['spec']['dataVolumeTemplates']}
        self.assertEqual({
            'tk0vol0': {'source': {'blank': {}}, 'storage': {
                'resources': {'requests': {'storage': '1G'}},
                'storageClassName': 'fast', 'volumeMode': 'Block',
                'accessModes': ['ReadWriteMany']}},
            'tk0vol1': {'source': {'http': {'url': 'http://server/image'}},
                        'storage': {'resources': {
                            'requests': {'storage': '2G'}}}},
            'tk0vol2': {'source': {'registry': {
                'url': 'docker://registry/image'}}, 'storage': {'resources': {
                    'requests': {'storage': '3G'}}}},
            'tk0vol4': {'source': {'pvc': {'namespace': 'space',
                                           'name': 'golden'}}, 'storage': {}},
            'tk0vol5': {'source': {'pvc': {'namespace': 'images',
                                           'name': 'golden'}}, 'storage': {}},
        }, templates)

    def test_spread(self):
        [one] = self.spec()['topologySpreadConstraints']
        self.assertEqual({
            'maxSkew': 1, 'topologyKey': 'kubernetes.io/hostname',
            'whenUnsatisfiable': 'ScheduleAnyway', 'labelSelector': {
                'matchLabels': {stored_names.CLUSTER: 'tenks'}}}, one)

    def test_placement(self):
        place = model.Placement(
            {'disk': 'ssd'}, ({'key': 'metal', 'operator': 'Exists'},),
            {'nodeAffinity': {}}, 'topology.kubernetes.io/zone', True, True,
            '2Mi', True)
        spec = self.spec(placement=place)
        self.assertEqual({'disk': 'ssd'}, spec['nodeSelector'])
        self.assertEqual([{'key': 'metal', 'operator': 'Exists'}],
                         spec['tolerations'])
        self.assertEqual({'nodeAffinity': {}}, spec['affinity'])
        [spread] = spec['topologySpreadConstraints']
        self.assertEqual('DoNotSchedule', spread['whenUnsatisfiable'])
        self.assertEqual({'cores': 1, 'dedicatedCpuPlacement': True,
                          'numa': {'guestMappingPassthrough': {}}},
                         spec['domain']['cpu'])
        self.assertEqual({'guest': '256Mi', 'hugepages': {'pageSize': '2Mi'}},
                         spec['domain']['memory'])
        self.assertNotIn('topologySpreadConstraints', self.spec(
            placement=model.Placement(spread=None)))

    def test_raw_fields_are_merged_but_not_over_labels(self):
        made = self.make(vm={
            'metadata': {'labels': {'a': 'b', stored_names.CLUSTER: 'other'}},
            'spec': {'template': {
                'metadata': {'labels': {stored_names.CLUSTER: 'other'}},
                'spec': {'hostname': 'x', 'topologySpreadConstraints': None}
            }}})
        spec = made['spec']['template']['spec']
        self.assertEqual('x', spec['hostname'])
        self.assertNotIn('topologySpreadConstraints', spec)
        self.assertEqual('b', made['metadata']['labels']['a'])
        for labels in (made['metadata']['labels'],
                       made['spec']['template']['metadata']['labels']):
            self.assertEqual('tenks', labels[stored_names.CLUSTER])

    def test_drive_can_be_left_out(self):
        disks = vm.without_drive(self.make())[
            'spec']['template']['spec']['domain']['devices']['disks']
        self.assertEqual(['tk0vol0'], [one['name'] for one in disks])
        self.assertIsNone(vm.without_drive(vm.without_drive(self.make())))


class BmcTestCase(base.BaseTestCase):

    def test_bmc_refers_to_secret(self):
        made = nodes.cluster(1, bmc={'service': {'type': 'NodePort'}})
        found = bmc.bmc(made, made.nodes[0], 'space').body
        self.assertEqual({
            'virtualMachine': {'name': 'tk0'},
            'authSecret': {'name': 'tk0-bmc'},
            'service': {'type': 'NodePort'}}, found['spec'])

    def test_only_generation_of_credentials_changes_secret(self):
        def digest(made):
            return bmc.secret(made, made.nodes[0], 'space').hash
        first = digest(nodes.cluster(1))
        self.assertEqual(first, digest(nodes.cluster(
            1, name='tenks', vcpus=4, **{'driver': 'redfish'})))
        self.assertNotEqual(first, digest(
            nodes.cluster(1, more={'credentials': 1})))

    def test_passwords_differ_and_fit_ipmi(self):
        bodies = [bmc.with_password({})['data'] for _ in range(2)]
        self.assertNotEqual(*bodies)
        # 20 bytes in base64.
        self.assertEqual(28, len(bodies[0]['password']))


class ManifestsTestCase(base.BaseTestCase):

    def test_manifests_have_no_secrets(self):
        made = nodes.cluster(2, networks=(
            nodes.POD, model.Network('lan', 'tenks-lan', {'type': 'bridge'})))
        found = catalog.manifests(made, 'space')
        self.assertEqual(
            ['NetworkAttachmentDefinition']
            + ['VirtualMachine', 'VirtualMachineBMC'] * 2,
            [one['kind'] for one in found])
        self.assertNotIn('authSecret', json.dumps(found))


class NetworksTestCase(base.BaseTestCase):

    def config(self, namespace='space', shared=False, name='tenks', **config):
        made = nodes.cluster(1, name, networks=(model.Network(
            'lan', 'lan', {'type': 'bridge', **config}, shared),))
        [found] = networks.definitions(made, namespace)
        return json.loads(found.body['spec']['config'])

    def test_each_network_has_a_bridge(self):
        self.assertEqual({
            'type': 'bridge', 'bridge': identity.bridge_name(
                'space', 'tenks', 'lan')}, self.config())
        self.assertNotEqual(self.config(), self.config('other'))
        self.assertNotEqual(self.config(), self.config(name='other'))
        self.assertEqual('br0', self.config(bridge='br0')['bridge'])

    def test_clusters_share_the_bridge_of_a_shared_network(self):
        self.assertEqual(self.config(shared=True),
                         self.config(shared=True, name='other'))
