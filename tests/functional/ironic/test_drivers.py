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
        # Whom events are sent to is on this host.
        cls.emulator = cls.share(emulator.Emulator(
            cls.sandbox.bmc_account(),
            {'SUSHY_EMULATOR_KUBEVIRT_EVENT_ALLOW_LOOPBACK': True},
            server='gunicorn', workers=2))
        cls.vbmcd = cls.share(vbmcd.Vbmcd(cls.sandbox.bmc_account()))
        bmc = cls.vbmcd.add(IPMI)
        cls.ironic = cls.share(ironic.Ironic())
        cls.nodes = {
            REDFISH: cls.ironic.enrol(REDFISH, 'redfish', {
                'redfish_address': cls.emulator.url,
                'redfish_system_id': '/redfish/v1/Systems/%s'
                % machines.uuid_of(cls.vms[REDFISH])}),
            IPMI: cls.ironic.enrol(IPMI, 'ipmi', {
                'ipmi_address': bmc.address, 'ipmi_port': bmc.port,
                'ipmi_username': bmc.username,
                'ipmi_password': bmc.password}),
        }

    def power(self, name, target):
        """Ask Ironic for a power state, and wait until it has it."""
        state = 'power off' if target.endswith('off') else 'power on'
        self.ironic.power(self.nodes[name], target, state)

    def boot(self, name, target, boots):
        """Have Ironic start the VM anew.

        :param boots: how many boots the guest has had when it is up again.
        :returns: the record of the boot.
        """
        before = self.sandbox.guest(name)['vmi']
        self.power(name, target)
        boot = self.sandbox.wait_boot(name, boots)
        self.assertNotEqual(before, boot['vmi'])
        self.assertEqual(
            boot['vmi'], self.sandbox.wait_running(name)['metadata']['uid'])
        # No more boots than asked for.
        self.assertEqual(boots, len(self.sandbox.boots(name)))
        return boot

    def turn_off(self, name):
        """Have a VM off.

        :returns: how many boots its guest has had.
        """
        self.ironic.wait(self.nodes[name], lambda node: True)
        self.power(name, 'power off')
        self.sandbox.wait_stopped(name)
        return len(self.sandbox.boots(name))

    def start_over(self, name):
        """Have a VM off, and as it was created.

        :returns: how many boots its guest has had.
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
        """Read what a VM's next VMI is made from."""
        return self.sandbox.vm(name)['spec']['template']['spec']

    # Power

    def _test_power(self, name):
        boots = self.start_over(name)
        self.boot(name, 'power on', boots + 1)
        self.boot(name, 'rebooting', boots + 2)
        self.boot(name, 'soft rebooting', boots + 3)
        self.power(name, 'soft power off')
        stopped = self.sandbox.wait_stopped(name)
        self.assertEqual(boots + 3, len(self.sandbox.boots(name)))
        # As a machine would: what turns itself off later stays off.
        self.assertEqual('RerunOnFailure', stopped['spec']['runStrategy'])
        self.boot(name, 'power on', boots + 4)
        self.power(name, 'power off')
        self.sandbox.wait_stopped(name)
        self.boot(name, 'power on', boots + 5)
        self.sandbox.guest_does(name, 'shutdown')
        self.sandbox.wait_stopped(name)
        # Ironic finds that out by itself.
        self.ironic.wait(self.nodes[name],
                         lambda node: node.power_state == 'power off')
        self.assertEqual(boots + 5, len(self.sandbox.boots(name)))

    def test_power_redfish(self):
        self._test_power(REDFISH)

    def test_power_ipmi(self):
        self._test_power(IPMI)

    # Boot devices

    def _test_once(self, name, firmware):
        boots = self.start_over(name)
        before = self.template(name)
        self.set_boot_device(name, 'cdrom', persistent=False)
        self.assertEqual({'boot_device': 'cdrom', 'persistent': False},
                         self.get_boot_device(name))
        # One in place of another.
        self.set_boot_device(name, 'pxe', persistent=False)
        self.assertEqual({'boot_device': 'pxe', 'persistent': False},
                         self.get_boot_device(name))
        # That alone starts nothing.
        self.assertIsNone(self.sandbox.vmi(name))
        boot = self.boot(name, 'power on', boots + 1)
        self.assertEqual(('Pxe', firmware), (boot['class'], boot['firmware']))
        self.assertNotEqual('pxe', self.get_boot_device(name)['boot_device'])
        self.sandbox.wait('virtualmachines', name, lambda vm:
                          vm['spec']['template']['spec'] == before)
        boot = self.boot(name, 'rebooting', boots + 2)
        self.assertEqual(('Hdd', 'bios'), (boot['class'], boot['firmware']))

    def test_once_redfish(self):
        self._test_once(REDFISH, 'bios')

    def test_once_ipmi(self):
        # Over IPMI Ironic asks for UEFI, unless the node says otherwise.
        self._test_once(IPMI, 'efi')

    def test_once_ipmi_legacy(self):
        self.ironic.baremetal.patch_node(self.nodes[IPMI], [{
            'op': 'add', 'path': '/properties/capabilities',
            'value': 'boot_mode:bios'}])
        self.addCleanup(
            self.ironic.baremetal.patch_node, self.nodes[IPMI],
            [{'op': 'remove', 'path': '/properties/capabilities'}])
        self._test_once(IPMI, 'bios')

    def _test_persistent(self, name):
        boots = self.start_over(name)
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

    def test_persistent_redfish(self):
        self._test_persistent(REDFISH)

    def test_persistent_ipmi(self):
        self._test_persistent(IPMI)

    def test_firmware(self):
        """Boot mode and secure boot, for which IPMI has no words."""
        node = self.nodes[REDFISH]
        boots = self.start_over(REDFISH)
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
        self.boot(REDFISH, 'power on', self.start_over(REDFISH) + 1)
        node = self.ironic.provision(self.nodes[REDFISH], 'inspect',
                                     'manageable')
        # A GiB less than the disk has: Ironic takes one off.
        self.assertEqual(
            {'memory_mb': 1024, 'local_gb': 9, 'cpu_arch': 'x86_64'},
            {name: node.properties.get(name) for name in (
                'memory_mb', 'local_gb', 'cpu_arch')})
        self.assertIn('boot_mode:bios', node.properties['capabilities'])
        # KubeVirt made the MAC address up.
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

    def test_bios(self):
        """The attributes and their registry, as Ironic keeps them."""
        # It read them when the node was enrolled.
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

    def test_events(self):
        boots = self.start_over(REDFISH)
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

    def test_command(self):
        """The command operators type."""
        self.start_over(IPMI)
        self.ironic.command('node', 'boot', 'device', 'set', IPMI, 'pxe')
        self.assertIn('pxe', self.ironic.command(
            'node', 'boot', 'device', 'show', IPMI))
