# SPDX-License-Identifier: Apache-2.0

from oslotest import base

from kubevirt_sandbox.kubevirt.admission import spec
from kubevirt_sandbox.kubevirt import defaults
from tests.unit.kubevirt import objects


class SpecTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.config = objects.cluster_config()
        self.spec = objects.vmi()['spec']
        self.domain = self.spec['domain']
        self.devices = self.domain['devices']

    def check(self):
        """Return the causes after filling in the defaults."""
        defaults.fill_spec(self.spec, self.config)
        return spec.check('spec', self.spec, self.config)

    def assert_refused(self, field, words='', number=1):
        causes = self.check()
        self.assertEqual(number, len(causes), causes)
        self.assertEqual(field, causes[0].field)
        self.assertIn(words, causes[0].message)


class SampleTest(SpecTestCase):

    def test_accepts_sample_vm(self):
        self.assertEqual([], self.check())


class StorageTest(SpecTestCase):

    DISKS = 'spec.domain.devices.disks'

    def _disk(self, **disk):
        self.devices['disks'][0] = {'name': 'root', **disk}

    def test_rejects_invalid_disks(self):
        for disk, field, words in (
                ({'disk': {'bus': 'ide'}}, '[0].disk.bus', 'IDE'),
                ({'disk': {'bus': 'nvme'}}, '[0].disk.bus',
                 'unrecognized bus nvme'),
                ({'cdrom': {'bus': 'virtio'}}, '[0].cdrom.bus',
                 'invalid for CD-ROM'),
                ({'disk': {'bus': 'sata', 'readonly': True}},
                 '[0].disk.bus', 'read-only'),
                ({'disk': {}, 'cdrom': {}}, '[0]', 'single target'),
                ({'disk': {}, 'bootOrder': 0}, '[0].bootOrder',
                 'boot order > 0'),
                ({'disk': {}, 'serial': 'a b'}, '[0].serial', 'characters'),
                ({'disk': {}, 'serial': 'a' * 257}, '[0].serial', '256'),
                ({'disk': {}, 'cache': 'some'}, '[0].cache', 'some'),
                ({'disk': {}, 'errorPolicy': 'cry'}, '[0].errorPolicy',
                 'cry'),
                ({'disk': {}, 'blockSize': {'custom': {
                    'logical': 4096, 'physical': 512}}},
                 '[0].blockSize.custom.logical', 'same or less'),
                ({'disk': {}, 'blockSize': {'custom': {
                    'logical': 1000, 'physical': 4096}}},
                 '[0].blockSize.custom.logical', 'power of 2')):
            self._disk(**disk)
            self.assert_refused(self.DISKS + field, words)

    def test_rejects_duplicate_and_invalid_names(self):
        self.devices['disks'].append({'name': 'root', 'disk': {}})
        self.assert_refused(self.DISKS + '[2].name', 'same Name')
        self.devices['disks'][2]['name'] = 'Not_Good'
        self.assertIn('RFC 1123', ' '.join(
            cause.message for cause in self.check()))

    def test_rejects_lun_without_claim(self):
        self._disk(lun={'bus': 'scsi'})
        self.assert_refused(self.DISKS + '[0].lun', 'can only be mapped')

    def test_empty_drive_needs_feature_gate(self):
        self.config = objects.cluster_config(
            (), ('DeclarativeHotplugVolumes',))
        self.assert_refused(self.DISKS + '[1].name',
                            'cannot define an empty CD-ROM disk')

    def test_rejects_duplicate_and_zero_boot_orders(self):
        self.devices['interfaces'][0]['bootOrder'] = 1
        self.assert_refused('spec.domain.devices.interfaces[0].bootOrder',
                            'already set')
        self.devices['interfaces'][0]['bootOrder'] = 0
        self.assert_refused('spec[0].bootOrder', 'boot order > 0')

    def test_rejects_invalid_volumes(self):
        for volume, field, words in (
                ({}, '', 'exactly one source'),
                ({'emptyDisk': {'capacity': '1Gi'}, 'secret': {
                    'secretName': 'a'}}, '', 'exactly one source'),
                ({'dataVolume': {'name': ''}}, '.name', 'must be set'),
                ({'configMap': {}}, '.configMap.name', 'required field'),
                ({'cloudInitNoCloud': {}}, '.cloudInitNoCloud',
                 'at least one'),
                ({'cloudInitNoCloud': {'userData': 'a' * 2049}},
                 '.cloudInitNoCloud', '2048'),
                ({'cloudInitConfigDrive': {
                    'userData': 'a', 'userDataBase64': 'YQ=='}},
                 '.cloudInitConfigDrive', 'only one'),
                ({'cloudInitNoCloud': {'userDataBase64': '!'}},
                 '.cloudInitNoCloud.userDataBase64', 'base64'),
                ({'hostDisk': {'path': '/a', 'type': 'Disk'}}, '',
                 'HostDisk feature gate'),
                ({'containerDisk': {'image': 'a', 'path': '/'}},
                 '.containerDisk', 'root'),
                ({'containerDisk': {'image': 'a', 'path': 'a/../b'}},
                 '.containerDisk', 'relative')):
            self.spec['volumes'] = [self.spec['volumes'][0],
                                    {'name': 'more', **volume}]
            self.devices['disks'] = self.devices['disks'][:2]
            self.assert_refused('spec.volumes[1]' + field, words)


class NetworkTest(SpecTestCase):

    CARD = 'spec.domain.devices.interfaces[0]'

    def test_rejects_invalid_interfaces(self):
        for card, field, words in (
                ({'bridge': {}}, '', 'exactly one binding'),
                ({'model': 'ne1'}, '.model', 'not supported'),
                ({'macAddress': 'aa:bb'}, '.macAddress', 'malformed'),
                ({'macAddress': '00:11:22:33:44:55:66:77'}, '.macAddress',
                 'too long'),
                ({'macAddress': '02:00:00:00:00:00'}, '.macAddress',
                 'reserved'),
                ({'pciAddress': '1'}, '.pciAddress', 'malformed'),
                ({'state': 'sideways'}, '.state', 'unsupported'),
                ({'ports': [{'port': 0}]}, '.ports[0].port', 'mandatory'),
                ({'ports': [{'port': 1, 'name': 'BAD'}]}, '.ports[0].name',
                 'Invalid name'),
                ({'ports': [{'port': 1, 'protocol': 'ICMP'}]},
                 '.ports[0].protocol', 'TCP or UDP'),
                ({'dhcpOptions': {'ntpServers': ['::1']}},
                 '.dhcpOptions.ntpServers[0]', 'IPv4')):
            self.devices['interfaces'] = [
                {'name': 'default', 'masquerade': {}, **card}]
            self.assert_refused(self.CARD + field, words)

    def test_rejects_interface_without_network(self):
        self.devices['interfaces'].append({'name': 'more', 'bridge': {}})
        self.assert_refused('spec.domain.devices.interfaces[1].name',
                            "'more' not found")

    def test_rejects_network_without_interface(self):
        self.spec['networks'].append({'name': 'more', 'multus': {
            'networkName': 'a'}})
        self.assert_refused('spec.networks[1].name', "'more' not found")

    def test_rejects_invalid_network_sources(self):
        for network, words in (({}, 'should have a network type'),
                               ({'pod': {}, 'multus': {'networkName': 'a'}},
                                'only one network type')):
            self.devices['interfaces'] = [{'name': 'default', 'bridge': {}}]
            self.spec['networks'] = [{'name': 'default', **network}]
            self.assert_refused('spec.networks[0]', words)

    def test_rejects_second_pod_network(self):
        self.devices['interfaces'].append({'name': 'more', 'masquerade': {}})
        self.spec['networks'].append({'name': 'more', 'pod': {}})
        self.assert_refused('spec.interfaces', 'more than one interface')

    def test_masquerade_needs_pod_network(self):
        self.spec['networks'] = [{'name': 'default', 'multus': {
            'networkName': 'a'}}]
        self.assert_refused(self.CARD + '.name', 'pod network')

    def test_adds_default_interface(self):
        del self.spec['networks'], self.devices['interfaces']
        self.assertEqual([], self.check())
        self.assertEqual([{'name': 'default', 'bridge': {}}],
                         self.devices['interfaces'])


class ResourcesTest(SpecTestCase):

    RESOURCES = 'spec.domain.resources.'

    def test_rejects_invalid_resources(self):
        for resources, field, words in (
                ({'requests': {'memory': '-1'}}, 'requests.memory',
                 'greater than or equal to 0'),
                ({'requests': {'memory': '10k'}}, 'requests.memory', '1M'),
                ({'requests': {'memory': '2Gi'},
                  'limits': {'memory': '1Gi'}}, 'requests.memory',
                 'is greater than'),
                ({'requests': {'cpu': '-1'}}, 'requests.cpu',
                 'greater than or equal to 0'),
                ({'requests': {'cpu': '2'}, 'limits': {'cpu': '1'}},
                 'requests.cpu', 'is greater than')):
            self.domain['resources'] = resources
            self.assert_refused(self.RESOURCES + field, words)

    def test_rejects_invalid_hugepages(self):
        self.domain['memory'] = {'guest': '3Mi', 'hugepages': {
            'pageSize': '2Mi'}}
        self.assert_refused(self.RESOURCES + 'requests.memory',
                            'not a multiple')
        self.domain['memory']['hugepages']['pageSize'] = 'big'
        self.assert_refused('spec.domain.memory.hugepages.pageSize')

    def test_dedicated_cpus_need_whole_requests(self):
        self.domain['cpu'] = {'cores': 2, 'dedicatedCpuPlacement': True}
        self.domain['resources'] = {'requests': {'cpu': '1500m'}}
        self.assertEqual(
            {self.RESOURCES + 'requests.cpu',
             'spec.domain.cpu.dedicatedCpuPlacement'},
            {cause.field for cause in self.check()})

    def test_rejects_more_sockets_than_maximum(self):
        self.domain['cpu'] = {'sockets': 4, 'maxSockets': 2}
        self.assert_refused('spec.domain.cpu.sockets', 'maximum sockets')

    def test_rejects_unsupported_machine_types(self):
        for kind, good in (('q35', True), ('pc-q35-rhel9', True),
                           ('pc-i440fx', False)):
            self.domain['machine'] = {'type': kind}
            if good:
                self.assertEqual([], self.check())
            else:
                self.assert_refused('spec.domain.machine.type',
                                    'not supported')


class DevicesTest(SpecTestCase):

    def test_rejects_invalid_firmware(self):
        for firmware, features, field, words in (
                ({'bootloader': {'efi': {}}}, {}, 'spec.domain', 'SMM'),
                ({'bootloader': {'efi': {}}}, {'smm': {'enabled': False}},
                 'spec.domain', 'SMM'),
                ({'bootloader': {'efi': {'secureBoot': False}, 'bios': {}}},
                 {}, 'spec.domain.firmware.bootloader', 'exclusive'),
                ({'kernelBoot': {'kernelArgs': 'a'}}, {},
                 'spec.domain.firmware.kernelBoot.kernelArgs', 'kernel'),
                ({'acpi': {}}, {}, 'spec.acpi', 'SLIC'),
                ({'acpi': {'slicNameRef': 'root'}}, {},
                 'spec.acpi.slicNameRef', 'unsupported type')):
            self.domain['firmware'] = firmware
            self.domain['features'] = features
            self.assert_refused(field, words)
        self.domain['firmware'] = {'bootloader': {'efi': {}}}
        self.domain['features'] = {'smm': {}}
        self.assertEqual([], self.check())

    def test_reboot_policy_needs_feature_gate(self):
        self.domain['rebootPolicy'] = 'Terminate'
        self.assertEqual([], self.check())
        self.config = objects.cluster_config(
            ('DeclarativeHotplugVolumes',), ('RebootPolicy',))
        self.assert_refused('spec.domain.rebootPolicy', 'not enabled')

    def test_rejects_invalid_devices(self):
        for change, field in (
                ({'inputs': [{'name': 'a', 'type': 'mouse'}]},
                 'spec.domain.devices.inputs[0].type'),
                ({'inputs': [{'name': 'a', 'type': 'tablet',
                              'bus': 'ps2'}]},
                 'spec.domain.devices.inputs[0].bus'),
                ({'sound': {'name': 'a', 'model': 'sb16'}}, 'spec.Sound'),
                ({'autoattachVSOCK': True},
                 'spec.domain.devices.autoattachVSOCK'),
                ({'video': {}, 'autoattachGraphicsDevice': False},
                 'spec.video')):
            saved = dict(self.devices)
            self.devices.update(change)
            self.assert_refused(field)
            self.devices.clear()
            self.devices.update(saved)


class PodTest(SpecTestCase):

    def test_rejects_invalid_pod_fields(self):
        for change, field, words in (
                ({'hostname': 'a.b'}, 'spec.hostname', 'DNS_LABEL'),
                ({'subdomain': 'A'}, 'spec.subdomain', 'DNS_SUBDOMAIN'),
                ({'startStrategy': 'Later'}, 'spec.startStrategy', 'Later'),
                ({'readinessProbe': {}}, 'spec.readinessProbe', 'either'),
                ({'livenessProbe': {'exec': {}, 'tcpSocket': {}}},
                 'spec.livenessProbe', 'exactly one'),
                ({'evictionStrategy': 'Run'}, 'spec.evictionStrategy',
                 'Run'),
                ({'dnsPolicy': 'None'}, 'spec.dnsConfig', 'dnsConfig'),
                ({'dnsConfig': {'nameservers': ['a']}}, 'nameservers',
                 'valid IP'),
                ({'accessCredentials': [{}]}, 'spec.accessCredentials[0]',
                 'exactly one access credential')):
            saved = dict(self.spec)
            self.spec.update(change)
            self.assert_refused(field, words)
            self.spec.clear()
            self.spec.update(saved)
