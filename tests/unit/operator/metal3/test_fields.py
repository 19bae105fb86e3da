# SPDX-License-Identifier: Apache-2.0
import copy

from oslotest import base

from sushy_kubevirt.operator import command_line
from sushy_kubevirt.operator import endpoints
from sushy_kubevirt.operator.metal3 import fields
from sushy_kubevirt.operator import spec

MAC = '52:54:00:00:00:01'
OTHER_MAC = '52:54:00:00:00:02'

BMC = {'metadata': {'name': 'n0', 'namespace': 'lab', 'uid': 'u0',
                    'generation': 1},
       'spec': {'virtualMachine': {'name': 'n0'}}}


def disk(name, bus='virtio', kind='disk', **more):
    return {'name': name, kind: {'bus': bus} if bus else {}, **more}


def vm(disks=(disk('root'),), interfaces=({'name': 'a', 'macAddress': MAC},),
       loader=None, labels=None, **more):
    domain = {'devices': {'disks': list(disks),
                          'interfaces': list(interfaces)}}
    if loader:
        domain['firmware'] = {'bootloader': loader}
    return {'metadata': {'name': 'n0', 'namespace': 'lab', 'uid': 'v0',
                         'labels': labels or {}},
            'spec': {'template': {'spec': {
                'domain': domain, 'volumes': [
                    {'name': one['name'], 'containerDisk': {'image': 'x'}}
                    for one in disks], **more}}}}


def bmc(**more):
    made = copy.deepcopy(BMC)
    made['spec'].update(more)
    return spec.read(made)


def service(ip='10.96.0.9', kind='ClusterIP', redfish=443, ipmi=623,
            balancer=None):
    made = {'spec': {'type': kind, 'clusterIP': ip, 'ports': [
        {'name': 'redfish', 'port': redfish}, {'name': 'ipmi', 'port': ipmi}]}}
    if balancer:
        made['status'] = {'loadBalancer': {'ingress': [{'ip': balancer}]}}
    return made


class AddressTestCase(base.BaseTestCase):

    def test_addresses(self):
        name = 'n0-virtbmc.lab.svc'
        system = '/redfish/v1/Systems/1'
        balanced = {'service': {'type': 'LoadBalancer'}}
        ipmi = {'bareMetalHost': {'protocol': 'IPMI'}}
        for more, at, external, expected in (
                ({}, service(), False, f'+https://{name}{system}'),
                ({}, service(), True, None),
                (ipmi, service(), False, f'ipmi://{name}:623'),
                (ipmi, service(), True, None),
                ({}, service('fd00::9'), False, f'+https://{name}{system}'),
                ({}, service(redfish=8443), False,
                 f'+https://{name}:8443{system}'),
                ({}, service(None), False, None),
                ({'redfish': {'plainHTTP': True}}, service(redfish=80),
                 False, f'+http://{name}{system}'),
                ({**ipmi, 'ipmi': {'enabled': False}}, service(), False, None),
                (balanced, service(kind='LoadBalancer'), False, None),
                (balanced, service(kind='LoadBalancer', balancer='fd00::1'),
                 True, f'+https://[fd00::1]{system}'),
                ({**balanced, **ipmi}, service(
                    kind='LoadBalancer', balancer='192.0.2.1'),
                 True, 'ipmi://192.0.2.1:623')):
            if expected and expected[0] == '+':
                expected = 'redfish-virtualmedia' + expected
            one = bmc(**more)
            with self.subTest(expected=expected, more=more):
                self.assertEqual(expected, fields.address(
                    one, endpoints.status(one, at), external))

    def test_route(self):
        url = 'https://n0.apps.test/redfish/v1/Systems/1'
        status = {'clusterIP': '10.96.0.9', 'endpoints': {
            'redfish': {'url': 'https://10.96.0.9/redfish/v1/Systems/1'},
            'route': {'host': 'n0.apps.test', 'url': url}}}
        self.assertEqual('redfish-virtualmedia+' + url,
                         fields.address(bmc(), status, True))
        self.assertIn('.svc/', fields.address(bmc(), status))


class VmTestCase(base.BaseTestCase):

    def test_boot_mac(self):
        first = {'name': 'a'}
        second = {'name': 'b', 'macAddress': OTHER_MAC.upper()}
        numbered = {**second, 'bootOrder': 1}
        third = {'name': 'c', 'macAddress': MAC}
        for interfaces, expected in (
                ([], None), ([first], None), ([first, second], OTHER_MAC),
                ([third, second], MAC), ([third, numbered], OTHER_MAC)):
            with self.subTest(interfaces=interfaces):
                self.assertEqual(
                    expected, fields.boot_mac(vm(interfaces=interfaces)))

    def test_boot_mode(self):
        for loader, expected in (
                (None, 'legacy'), ({'bios': {}}, 'legacy'),
                ({'efi': {'secureBoot': False}}, 'UEFI'),
                ({'efi': {}}, 'UEFISecureBoot')):
            self.assertEqual(expected, fields.boot_mode(vm(loader=loader)))
        self.assertEqual('UEFI', fields.boot_mode(vm(architecture='arm64')))

    def test_root_device(self):
        cd = disk('cd', 'sata', 'cdrom')
        for disks, expected in (
                ([], None), ([cd], None),
                ([disk('r')], {'deviceName': '/dev/vda'}),
                ([disk('r', 'sata')], {'deviceName': '/dev/sda'}),
                # KubeVirt's default
                ([disk('r', None)], {'deviceName': '/dev/sda'}),
                ([cd, disk('r', 'scsi')], {'deviceName': '/dev/sda'}),
                ([disk('d'), disk('r', bootOrder=1)],
                 {'deviceName': '/dev/vdb'}),
                ([disk('d', 'sata'), disk('r', bootOrder=1)],
                 {'deviceName': '/dev/vda'}),
                ([disk('d', 'sata'), disk('r', 'scsi', bootOrder=1)],
                 {'deviceName': '/dev/sdb'}),
                ([disk(f'd{index}') for index in range(27)] + [
                    disk('r', bootOrder=1)], {'deviceName': '/dev/vdab'}),
                ([disk('r', serial='S1')], {'serialNumber': 'S1'}),
                ([disk('r', serial='x' * 36)], {'serialNumber': 'x' * 20}),
                ([disk('r', 'sata', serial='x' * 36)],
                 {'serialNumber': 'x' * 36})):
            with self.subTest(disks=disks):
                self.assertEqual(expected, fields.root_device(vm(disks)))

    def test_volume_without_a_disk(self):
        found = vm([disk('a')])
        found['spec']['template']['spec']['domain']['devices']['disks'] = []
        self.assertEqual({'deviceName': '/dev/sda'},
                         fields.root_device(found))


class HostTestCase(base.BaseTestCase):

    def test_fields(self):
        options = command_line.Options(
            host_labels=('rack', 'lab.test/*'))
        one = bmc()
        made = fields.host(one, vm(labels={
            'rack': 'r1', 'lab.test/row': '7', 'other': 'x',
            'topology.kubernetes.io/zone': 'z'}), 'ipmi://b', MAC, options)
        self.assertEqual({
            'apiVersion': 'metal3.io/v1alpha1', 'kind': 'BareMetalHost',
            'metadata': {'name': 'n0', 'namespace': 'lab', 'labels': {
                'rack': 'r1', 'lab.test/row': '7',
                'infrastructure.cluster.x-k8s.io/failure-domain': 'z',
                'bmc.kubevirt.io/virtual': 'true',
                'bmc.kubevirt.io/bmc-uid': 'u0',
                'kubevirt.io/virtualmachinebmc-name': 'n0',
                'app.kubernetes.io/managed-by': 'sushy-kubevirt-operator'}},
            'spec': {
                'bmc': {'address': 'ipmi://b',
                        'credentialsName': 'n0-virtbmc-host'},
                'bootMACAddress': MAC, 'bootMode': 'legacy',
                'inspectionMode': 'fast', 'online': False,
                'architecture': 'x86_64',
                'automatedCleaningMode': 'disabled',
                'rootDeviceHints': {'deviceName': '/dev/vda'}}}, made)
        self.assertTrue(fields.is_ours(one, made))
        self.assertNotIn('ownerReferences', made['metadata'])

    def test_without_verification_and_disks(self):
        made = fields.host(bmc(), vm([]), 'a', MAC,
                           command_line.Options(host_verify=False))['spec']
        self.assertIs(True, made['bmc']['disableCertificateVerification'])
        self.assertNotIn('rootDeviceHints', made)

    def test_labels_of_a_vm_do_not_replace_ours(self):
        found = fields.merged_labels({}, bmc(), vm(labels={
            'bmc.kubevirt.io/bmc-uid': 'x'}), command_line.Options(
                host_labels=('bmc.kubevirt.io/*',)))
        self.assertEqual('u0', found['bmc.kubevirt.io/bmc-uid'])

    def test_foreign_objects(self):
        for labels in (None, {}, {'bmc.kubevirt.io/bmc-uid': 'u0'},
                       {**fields.link(bmc()), 'bmc.kubevirt.io/bmc-uid': ''}):
            self.assertFalse(fields.is_ours(
                bmc(), {'metadata': {'labels': labels}}))
