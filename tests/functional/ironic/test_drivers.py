# SPDX-License-Identifier: Apache-2.0
"""Ironic manages VMs through both BMCs.

One ``redfish`` node and one ``ipmi`` node, each with its own VM. Ironic's
API only shows what Ironic believes; the guests' boot records and the cluster
decide whether a step worked.
"""

from kubevirt_sandbox.testing import machines
from tests.fixtures import base
from tests.fixtures import emulator
from tests.fixtures import event_listener
from tests.fixtures import ironic
from tests.fixtures import vbmcd

REDFISH = 'by-redfish'
IPMI = 'by-ipmi'


class IronicTestCase(base.SandboxTestCase):

    VMS = 0

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.vms = {name: cls.sandbox.create('virtualmachines', machines.vm(
            name, 'Halted')) for name in (REDFISH, IPMI)}
        # The subscriber of events is on this host.
        cls.emulator = cls.share(emulator.Emulator(
            cls.sandbox.bmc_account(),
            {'SUSHY_EMULATOR_KUBEVIRT_EVENT_ALLOW_LOOPBACK': True},
            server='gunicorn'))
        cls.vbmcd = cls.share(vbmcd.Vbmcd(cls.sandbox.bmc_account()))
        bmc = cls.vbmcd.add(IPMI)
        cls.ironic = cls.share(ironic.Ironic())
        cls.nodes = {
            REDFISH: cls.ironic.enrol(REDFISH, 'redfish', {
                'redfish_address': cls.emulator.url,
                'redfish_system_id': '/redfish/v1/Systems/'
                + machines.uuid_of(cls.vms[REDFISH])}),
            IPMI: cls.ironic.enrol(IPMI, 'ipmi', {
                'ipmi_address': bmc.address, 'ipmi_port': bmc.port,
                'ipmi_username': bmc.username,
                'ipmi_password': bmc.password}),
        }

    def power(self, name, target):
        """Set a power state through Ironic and wait for it."""
        state = 'power off' if target.endswith('off') else 'power on'
        self.ironic.power(self.nodes[name], target, state)

    def boot(self, name, target, boots):
        """Start or restart the VM through Ironic.

        :param boots: expected total number of boots afterwards.
        :returns: the record of the boot.
        """
        before = self.sandbox.guest(name)['vmi']
        self.power(name, target)
        boot = self.sandbox.wait_boot(name, boots)
        self.assertNotEqual(before, boot['vmi'])
        self.assertEqual(
            boot['vmi'], self.sandbox.wait_running(name)['metadata']['uid'])
        # It booted no more often than requested.
        self.assertEqual(boots, len(self.sandbox.boots(name)))
        return boot

    def turn_off(self, name):
        """Switch a VM off.

        :returns: number of boots of its guest.
        """
        self.ironic.wait(self.nodes[name], lambda node: True)
        self.power(name, 'power off')
        self.sandbox.wait_stopped(name)
        return len(self.sandbox.boots(name))

    def reset_vm(self, name):
        """Switch a VM off and restore its original spec.

        :returns: number of boots of its guest.
        """
        boots = self.turn_off(name)
        made = self.vms[name]
        annotations = self.sandbox.vm(name)['metadata'].get('annotations', {})
        self.sandbox.patch('virtualmachines', name, {
            'metadata': {'annotations': dict.fromkeys(annotations)}})
        self.sandbox.patch('virtualmachines', name, [
            {'op': 'replace', 'path': '/spec', 'value': made['spec']}])
        return boots

    def set_boot_device(self, name, device, persistent):
        self.ironic.wait(self.nodes[name], lambda node: True)
        self.ironic.baremetal.set_node_boot_device(
            self.nodes[name], device, persistent=persistent)

    def get_boot_device(self, name):
        return self.ironic.baremetal.get_node_boot_device(self.nodes[name])

    def template(self, name):
        """Read the spec of a VM's template."""
        return self.sandbox.vm(name)['spec']['template']['spec']

    # Power

    def _test_power(self, name):
        boots = self.reset_vm(name)
        self.boot(name, 'power on', boots + 1)
        self.boot(name, 'rebooting', boots + 2)
        self.boot(name, 'soft rebooting', boots + 3)
        self.power(name, 'soft power off')
        stopped = self.sandbox.wait_stopped(name)
        self.assertEqual(boots + 3, len(self.sandbox.boots(name)))
        # A guest that shuts down later stays off, as a physical machine.
        self.assertEqual('RerunOnFailure', stopped['spec']['runStrategy'])
        self.boot(name, 'power on', boots + 4)
        self.power(name, 'power off')
        self.sandbox.wait_stopped(name)
        self.boot(name, 'power on', boots + 5)
        self.sandbox.guest_does(name, 'shutdown')
        self.sandbox.wait_stopped(name)
        # Ironic's power synchronization detects it.
        self.ironic.wait(self.nodes[name],
                         lambda node: node.power_state == 'power off')
        self.assertEqual(boots + 5, len(self.sandbox.boots(name)))

    def test_power_redfish(self):
        self._test_power(REDFISH)

    def test_power_ipmi(self):
        self._test_power(IPMI)

    # Boot devices

    def _test_one_time(self, name, firmware):
        boots = self.reset_vm(name)
        before = self.template(name)
        self.set_boot_device(name, 'cdrom', persistent=False)
        self.assertEqual({'boot_device': 'cdrom', 'persistent': False},
                         self.get_boot_device(name))
        # One device replaces another.
        self.set_boot_device(name, 'pxe', persistent=False)
        self.assertEqual({'boot_device': 'pxe', 'persistent': False},
                         self.get_boot_device(name))
        # Setting a boot device does not start the VM.
        self.assertIsNone(self.sandbox.vmi(name))
        boot = self.boot(name, 'power on', boots + 1)
        self.assertEqual(('Pxe', firmware), (boot['class'], boot['firmware']))
        self.assertNotEqual('pxe', self.get_boot_device(name)['boot_device'])
        self.sandbox.wait('virtualmachines', name, lambda vm:
                          vm['spec']['template']['spec'] == before)
        boot = self.boot(name, 'rebooting', boots + 2)
        self.assertEqual(('Hdd', 'bios'), (boot['class'], boot['firmware']))

    def test_one_time_boot_device_redfish(self):
        self._test_one_time(REDFISH, 'bios')

    def test_one_time_boot_device_ipmi(self):
        # Over IPMI Ironic requests UEFI unless the node's boot_mode differs.
        self._test_one_time(IPMI, 'efi')

    def test_one_time_boot_device_ipmi_legacy(self):
        self.ironic.baremetal.patch_node(self.nodes[IPMI], [{
            'op': 'add', 'path': '/properties/capabilities',
            'value': 'boot_mode:bios'}])
        self.addCleanup(
            self.ironic.baremetal.patch_node, self.nodes[IPMI],
            [{'op': 'remove', 'path': '/properties/capabilities'}])
        self._test_one_time(IPMI, 'bios')

    def _test_persistent(self, name):
        boots = self.reset_vm(name)
        self.set_boot_device(name, 'cdrom', persistent=True)
        self.assertEqual({'boot_device': 'cdrom', 'persistent': True},
                         self.get_boot_device(name))
        for number, target in enumerate(('power on', 'rebooting'), 1):
            self.assertEqual('Cd', self.boot(name, target, boots + number)[
                'class'])
        self.assertEqual({'boot_device': 'cdrom', 'persistent': True},
                         self.get_boot_device(name))
        self.set_boot_device(name, 'disk', persistent=True)
        self.assertEqual({'boot_device': 'disk', 'persistent': True},
                         self.get_boot_device(name))
        self.assertEqual('Hdd', self.boot(name, 'rebooting', boots + 3)[
            'class'])

    def test_persistent_boot_device_redfish(self):
        self._test_persistent(REDFISH)

    def test_persistent_boot_device_ipmi(self):
        self._test_persistent(IPMI)

    def test_boot_mode_and_secure_boot(self):
        """Boot mode and secure boot, which IPMI has no commands for."""
        node = self.nodes[REDFISH]
        boots = self.reset_vm(REDFISH)
        baremetal = self.ironic.baremetal
        baremetal.set_node_boot_mode(node, 'uefi')
        self.ironic.wait(node, lambda now: now.boot_mode == 'uefi')
        self.assertEqual('efi', self.boot(REDFISH, 'power on', boots + 1)[
            'firmware'])
        self.turn_off(REDFISH)
        baremetal.set_node_secure_boot(node, True)
        self.ironic.wait(node, lambda now: now.is_secure_boot)
        self.assertEqual('efi-secure', self.boot(
            REDFISH, 'power on', boots + 2)['firmware'])

    # Inventory

    def test_inspection(self):
        self.boot(REDFISH, 'power on', self.reset_vm(REDFISH) + 1)
        node = self.ironic.provision(self.nodes[REDFISH], 'inspect',
                                     'manageable')
        # Ironic reports one GiB less than the size of the disk.
        self.assertEqual(
            {'memory_mb': 1024, 'local_gb': 9, 'cpu_arch': 'x86_64'},
            {name: node.properties.get(name) for name in (
                'memory_mb', 'local_gb', 'cpu_arch')})
        self.assertIn('boot_mode:bios', node.properties['capabilities'])
        # KubeVirt generated the MAC address.
        macs = [nic['mac'] for nic in
                self.sandbox.vmi(REDFISH)['status']['interfaces']]
        self.assertEqual(macs, [
            port.address for port in self.ironic.baremetal.ports(
                node=node.id)])
        inventory = self.ironic.baremetal.get_node_inventory(
            node.id)['inventory']
        self.assertEqual(2, inventory['cpu']['count'])
        self.assertEqual(macs, [nic['mac_address'] for nic in
                                inventory['interfaces']])
        self.assertEqual(
            machines.uuid_of(self.vms[REDFISH]),
            inventory['system_vendor']['system_uuid'].lower())

    def test_bios_attributes(self):
        """The attributes and their registry, as Ironic keeps them."""
        # Ironic read them when the node was enrolled.
        node = self.nodes[REDFISH]
        found = self.ironic.baremetal.get(
            f'/nodes/{node.id}/bios?detail=True',
            microversion='1.74').json()['bios']
        settings = {each['name']: each for each in found}
        mode = settings['BootMode']
        self.assertEqual(('Legacy', 'Enumeration', ['UEFI', 'Legacy'], False),
                         (mode['value'], mode['attribute_type'],
                          mode['allowable_values'], mode['read_only']))
        self.assertTrue(settings['Tpm']['read_only'])

    # Events

    def passthru(self, verb, method, body=None):
        """Call a method of Ironic's vendor interface for redfish."""
        self.ironic.wait(self.nodes[REDFISH], lambda node: True)
        return self.ironic.baremetal.call_node_vendor_passthru(
            self.nodes[REDFISH], method, verb, body)

    def test_event_subscriptions(self):
        boots = self.reset_vm(REDFISH)
        one = self.useFixture(event_listener.Listener())
        made = self.passthru('create_subscription', 'POST', {
            'Destination': one.url, 'Context': 'node',
            'HttpHeaders': [{'X-Token': 'for-me'}]}).json()
        self.assertEqual(
            {'Context': 'node', 'Destination': one.url, 'Protocol': 'Redfish',
             'EventTypes': ['Alert'], 'Id': made['Id']}, made)
        self.assertEqual(made, self.passthru(
            'get_subscription', 'GET', {'id': made['Id']}).json())
        [member] = self.passthru(
            'get_all_subscriptions', 'GET').json()['Members']
        self.assertTrue(member['@odata.id'].endswith('/' + made['Id']))
        self.boot(REDFISH, 'power on', boots + 1)
        origin = f'/redfish/v1/Systems/{machines.uuid_of(self.vms[REDFISH])}'
        event = one.wait('ResourcePoweredOn', origin=origin)
        self.assertEqual('Alert', event['EventType'])
        self.assertEqual('for-me', one.posts[-1][0]['X-Token'])
        self.passthru('delete_subscription', 'DELETE', {'id': made['Id']})
        self.assertEqual([], self.passthru(
            'get_all_subscriptions', 'GET').json()['Members'])

    def test_openstack_command(self):
        """The command line client that operators use."""
        self.reset_vm(IPMI)
        self.ironic.command('node', 'boot', 'device', 'set', IPMI, 'pxe')
        self.assertIn('pxe', self.ironic.command(
            'node', 'boot', 'device', 'show', IPMI))
