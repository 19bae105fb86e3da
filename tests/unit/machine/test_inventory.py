# SPDX-License-Identifier: Apache-2.0
"""The machine's inventory, as derived from its VM and VMI."""

import copy

from oslotest import base

from sushy_kubevirt.machine import inventory
from sushy_kubevirt.machine import trim
from sushy_kubevirt.machine import vm_state

MIB = 1024 * 1024


def vm(domain=None, **spec):
    template = {'domain': domain or {}, **spec}
    return {'metadata': {'name': 'a'},
            'spec': {'template': {'spec': template}}}


def vmi(of, status=None, domain=None):
    made = {'spec': copy.deepcopy(of['spec']['template']['spec']),
            'status': status or {}}
    made['spec']['domain'].update(domain or {})
    return made


def inventory_of(vm, vmi, *more):
    return inventory.of(vm_state.VmState(vm, vmi), *more)


class CpusTestCase(base.BaseTestCase):

    def cpus(self, domain):
        cpus = inventory_of(vm(domain), None).cpus
        return (cpus.sockets, cpus.cores, cpus.threads, cpus.total)

    def test_topology(self):
        self.assertEqual((2, 3, 2, 12), self.cpus(
            {'cpu': {'sockets': 2, 'cores': 3, 'threads': 2}}))

    def test_missing_topology_values_default_to_one(self):
        self.assertEqual((1, 4, 1, 4), self.cpus({'cpu': {'cores': 4}}))
        self.assertEqual((1, 1, 1, 1), self.cpus({}))

    def test_limits_before_requests_rounded_up(self):
        resources = {'requests': {'cpu': '1500m'}}
        self.assertEqual((2, 1, 1, 2), self.cpus({'resources': resources}))
        resources['limits'] = {'cpu': '3'}
        self.assertEqual((3, 1, 1, 3), self.cpus({'resources': resources}))

    def test_cpus_of_instance_type_are_read_from_vmi(self):
        a = vm()
        cpus = inventory_of(a, vmi(a, domain={'cpu': {
            'sockets': 4, 'model': 'host-model'}})).cpus
        self.assertEqual((4, 'host-model'), (cpus.total, cpus.model))

    def test_hotplugged_cpus(self):
        a = vm({'cpu': {'sockets': 1, 'cores': 2}})
        cpus = inventory_of(a, vmi(a, {'currentCPUTopology': {
            'sockets': 3, 'cores': 2, 'threads': 1}})).cpus
        self.assertEqual(6, cpus.total)


class MemoryTestCase(base.BaseTestCase):

    def memory(self, **domain):
        return inventory_of(vm(domain), None).memory_bytes

    def test_memory(self):
        self.assertEqual(64 * MIB, self.memory(
            memory={'guest': '64Mi'},
            resources={'requests': {'memory': '128Mi'}}))
        self.assertEqual(128 * MIB, self.memory(
            resources={'requests': {'memory': '128Mi'},
                       'limits': {'memory': '1Gi'}}))
        self.assertEqual(1024 * MIB, self.memory(
            resources={'limits': {'memory': '1Gi'}}))
        self.assertEqual(2 * MIB, self.memory(
            memory={'hugepages': {'pageSize': '2Mi'}}))
        self.assertEqual(0, self.memory())

    def test_memory_of_running_vm_is_read_from_vmi(self):
        a = vm({'memory': {'guest': '64Mi'}})
        self.assertEqual(96 * MIB, inventory_of(a, vmi(a, {
            'memory': {'guestCurrent': '96Mi'}})).memory_bytes)


class NicsTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.vm = vm(
            {'devices': {'interfaces': [
                {'name': 'default', 'masquerade': {}},
                {'name': 'lab', 'bridge': {}, 'model': 'e1000',
                 'macAddress': '02-00-00-00-00-0A'}]}},
            networks=[{'name': 'default', 'pod': {}},
                      {'name': 'lab', 'multus': {'networkName': 'x/lab'}}])

    def test_nics_of_stopped_vm(self):
        default, lab = inventory_of(self.vm, None).nics
        self.assertEqual(('default', '', 'virtio', 'pod'), (
            default.name, default.mac, default.model, default.network))
        self.assertEqual(('lab', '02:00:00:00:00:0a', 'e1000', 'x/lab'), (
            lab.name, lab.mac, lab.model, lab.network))

    def test_nic_of_running_vm_with_guest_agent(self):
        default, _ = inventory_of(self.vm, vmi(self.vm, {'interfaces': [
            {'name': 'default', 'mac': '52:54:00:AA:bb:cc',
             'ipAddress': '10.0.0.5', 'linkState': 'up',
             'ipAddresses': ['10.0.0.5', 'fd00::5/64'],
             'interfaceName': 'eth0'},
            {'mac': '02:42:00:00:00:01', 'interfaceName': 'docker0'},
        ]})).nics
        self.assertEqual(
            ('52:54:00:aa:bb:cc', ('10.0.0.5', 'fd00::5'), 'eth0', 'up'),
            (default.mac, default.ips, default.guest_name, default.link))

    def test_default_interface_added_by_kubevirt(self):
        [nic] = inventory_of(vm(), None).nics
        self.assertEqual(('default', 'pod'), (nic.name, nic.network))
        self.assertEqual((), inventory_of(vm({'devices': {
            'autoattachPodInterface': False}}), None).nics)


class DisksTestCase(base.BaseTestCase):

    def disks(self, disks, volumes, status=None, templates=(), **spec):
        a = vm({'devices': {'disks': disks}}, volumes=volumes, **spec)
        a['spec']['dataVolumeTemplates'] = list(templates)
        made = vmi(a, {'volumeStatus': status}) if status else None
        return inventory_of(a, made).disks

    def test_kinds_and_buses(self):
        root, cd, lun, plain = self.disks(
            [{'name': 'root', 'disk': {'bus': 'virtio'}, 'serial': 'S1'},
             {'name': 'cd', 'cdrom': {'bus': 'scsi'}},
             {'name': 'lun', 'lun': {}}, {'name': 'plain'}],
            [{'name': 'root', 'containerDisk': {'image': 'x'}},
             {'name': 'lun', 'persistentVolumeClaim': {'claimName': 'l'}},
             {'name': 'plain', 'emptyDisk': {'capacity': '2Gi'}}])
        self.assertEqual(('disk', 'virtio', 'S1', 'containerDisk', None), (
            root.kind, root.bus, root.serial, root.source,
            root.capacity_bytes))
        self.assertEqual(('cdrom', 'scsi', '', True),
                         (cd.kind, cd.bus, cd.source, cd.read_only))
        self.assertEqual(('lun', 'sata'), (lun.kind, lun.bus))
        self.assertEqual(('disk', 'sata', 2048 * MIB), (
            plain.kind, plain.bus, plain.capacity_bytes))

    def test_volume_without_disk_counts_as_disk(self):
        [disk] = self.disks([], [{'name': 'v', 'containerDisk': {}}],
                            architecture='arm64')
        self.assertEqual(('v', 'disk', 'virtio'),
                         (disk.name, disk.kind, disk.bus))

    def test_capacity_of_running_vm_is_that_of_its_claim(self):
        volume = {'name': 'r', 'persistentVolumeClaim': {'claimName': 'c'}}
        [disk] = self.disks([{'name': 'r', 'disk': {}}], [volume], [
            {'name': 'r', 'persistentVolumeClaimInfo': {
                'capacity': {'storage': '10Gi'},
                'requests': {'storage': '8Gi'}}}])
        self.assertEqual(10240 * MIB, disk.capacity_bytes)

    def test_capacity_requested_in_datavolume_template(self):
        for kind in ('storage', 'pvc'):
            [disk] = self.disks(
                [{'name': 'r', 'disk': {}}],
                [{'name': 'r', 'dataVolume': {'name': 'dv'}}],
                templates=[{'metadata': {'name': 'dv'}, 'spec': {kind: {
                    'resources': {'requests': {'storage': '3Gi'}}}}}])
            self.assertEqual(3072 * MIB, disk.capacity_bytes)


class FactsTestCase(base.BaseTestCase):

    def test_facts(self):
        a = vm({'firmware': {'serial': 'abc', 'bootloader': {'efi': {}}}})
        facts = inventory_of(a, vmi(a, {
            'nodeName': 'n1', 'machine': {'type': 'pc-q35-9'},
        }), 'v1.9.0')
        self.assertEqual(
            ('abc', 'efi', 'n1', 'pc-q35-9', 'a', 'v1.9.0'),
            (facts.serial, facts.firmware, facts.node,
             facts.machine_type, facts.hostname, facts.kubevirt_version))
        facts = inventory_of(vm(), None)
        self.assertEqual(('bios', '', ''), (
            facts.firmware, facts.node, facts.kubevirt_version))

    def test_firmware_of_architecture(self):
        """Without a bootloader, a guest has that of its architecture."""
        for architecture, type_ in (('arm64', 'UEFI'), ('s390x', 'BIOS'),
                                    ('amd64', 'BIOS')):
            machine = vm()
            machine['spec']['template']['spec']['architecture'] = architecture
            self.assertEqual(type_, inventory_of(machine, None).firmware_type)
        encrypted = vm({'launchSecurity': {'sev': {}}})
        self.assertEqual('UEFI', inventory_of(encrypted, None).firmware_type)


class MachineTestCase(base.BaseTestCase):

    def test_chassis_and_consoles(self):
        facts = inventory_of(vm(), None)
        self.assertEqual(inventory.Chassis(), facts.chassis)
        self.assertTrue(facts.graphics and facts.serial_console)
        self.assertEqual(('', '', ''),
                         (facts.tpm, facts.started, facts.booted))
        facts = inventory_of(vm({
            'chassis': {'serial': 's', 'asset': 'a', 'manufacturer': 'm'},
            'devices': {'autoattachGraphicsDevice': False,
                        'autoattachSerialConsole': False,
                        'tpm': {'persistent': True}}}), None)
        self.assertEqual(('m', 's', 'a'), (
            facts.chassis.manufacturer, facts.chassis.serial,
            facts.chassis.asset))
        self.assertFalse(facts.graphics or facts.serial_console)
        self.assertEqual('Persistent', facts.tpm)

    def test_start_and_boot_times_of_running_vm(self):
        a = vm()
        status = {'phase': 'Running', 'phaseTransitionTimestamps': [
            {'phase': 'Pending', 'phaseTransitionTimestamp': 'p'},
            {'phase': 'Running', 'phaseTransitionTimestamp': 'r'}],
            'conditions': [{'type': 'AgentConnected', 'status': 'True',
                            'lastTransitionTime': 'a'}]}
        made = trim.vmi(dict(vmi(a, status), metadata={}))
        facts = inventory_of(a, made)
        self.assertEqual(('r', 'a'), (facts.started, facts.booted))
        made['status']['phase'] = 'Succeeded'
        facts = inventory_of(a, made)
        self.assertEqual(('', ''), (facts.started, facts.booted))

    def test_operating_system_of_guest(self):
        a = vm()
        for info, expected in (
                (None, ('', '')), ({}, ('', '')),
                ({'prettyName': 'Debian 13', 'version': '13 (trixie)',
                  'name': 'Debian', 'kernelVersion': '#1'},
                 ('Debian 13', '13 (trixie)'))):
            cached = trim.vmi(dict(vmi(a, {'guestOSInfo': info}),
                                   metadata={}))
            self.assertNotIn('kernelVersion', str(cached))
            facts = inventory_of(a, cached)
            self.assertEqual(expected, (facts.os_name, facts.os_version))

    def test_mac_in_guest_and_link_state(self):
        a = vm({'devices': {'interfaces': [
            {'name': 'default', 'macAddress': '02-00-00-00-00-AA',
             'state': 'down'}]}})
        [nic] = inventory_of(a, vmi(a, {'interfaces': [
            {'name': 'default', 'mac': '02:00:00:00:00:bb'}]})).nics
        self.assertEqual(('02:00:00:00:00:aa', '02:00:00:00:00:bb', False),
                         (nic.mac, nic.guest_mac, nic.plugged))
