# SPDX-License-Identifier: Apache-2.0
"""Ironic with the BMCs that the operator creates.

A node is enrolled with the contents of the BMC's status alone: address,
system, the operator's CA and the Secret. The test uses both drivers and
changes the credentials in between.
"""

import subprocess
from urllib import parse

from kubevirt_sandbox.testing import machines
from kubevirt_sandbox.testing import process
from kubevirt_sandbox.testing import webserver
from tests.fixtures import documents
from tests.fixtures import image_server
from tests.fixtures import ironic
from tests.fixtures import media_case
from tests.fixtures import operator


class IronicTestCase(operator.OperatorTestCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.ironic = cls.share(ironic.Ironic({
            # Ironic passes the URL to the BMC unchanged.
            'deploy': {'ramdisk_image_download_source': 'http'},
            # Power state reads fail until it has the new password.
            'conductor': {'power_state_sync_max_retries': 1000}}))

    def make(self):
        """Create a VM with an empty CD-ROM drive, and its BMC."""
        vm = machines.vm('box', 'Halted', self.namespace)
        media_case.drop_medium(vm['spec']['template']['spec'])
        self.sandbox.create('virtualmachines', vm, self.namespace)
        self.one = self.bmc().ready()

    def redfish(self):
        """Return ``driver_info`` for a node of driver ``redfish``."""
        url = parse.urlsplit(self.one.url())
        self.assertEqual('https', url.scheme)
        return {'redfish_address': f'{url.scheme}://{url.netloc}',
                'redfish_system_id': url.path,
                'redfish_username': self.one.username,
                'redfish_password': self.one.password,
                'redfish_verify_ca': str(self.one.ca_file())}

    def ipmi(self):
        """Return ``driver_info`` for a node of driver ``ipmi``."""
        endpoint = self.one.status['endpoints']['ipmi']
        return {'ipmi_address': endpoint['host'],
                'ipmi_port': endpoint['port'],
                'ipmi_username': self.one.username,
                'ipmi_password': self.one.password}

    def enrol(self, driver):
        self.node = self.ironic.enrol(self.namespace, driver,
                                      getattr(self, driver)())
        self.driver = driver

    def rotate(self):
        """Change the password in the Secret, then in Ironic."""
        pods = self.one.processes()
        old, self.one.password = self.one.password, self.secret()
        self.until('the new password', lambda: self.one.curl().code, 200)
        self.assertEqual(401, self.one.curl(password=old).code)
        self.assertIn('Unable to establish', self.one.ipmitool(
            'power', 'status', password=old,
            options=('-N', '1', '-R', '1')).stdout)
        self.ironic.wait(self.node, lambda node: True)
        self.ironic.baremetal.update_node(
            self.node, driver_info=getattr(self, self.driver)())
        self.assertEqual(pods, self.one.processes())

    def power(self, target):
        self.ironic.power(
            self.node, target,
            'power off' if target.endswith('off') else 'power on')

    def assert_boot(self, count, class_):
        boot = self.sandbox.wait_boot('box', count, self.namespace)
        self.assertEqual(class_, boot['class'])

    def template(self):
        return self.sandbox.vm('box', self.namespace)['spec']['template']

    def assert_no_errors(self):
        self.assert_no_warnings()
        self.assertEqual({}, self.sandbox.stats()['refused'])

    def test_redfish_deploys_iso(self):
        address = webserver.own_address()
        if address is None:
            self.skipTest('this host has loopback only, which a BMC refuses')
        images = self.useFixture(image_server.ImageServer(address))
        self.make()
        before = self.template()
        self.enrol('redfish')
        self.ironic.provision(self.node, 'provide', 'available')
        self.ironic.baremetal.update_node(self.node, instance_info={
            'boot_iso': images.url + '/it.iso'})
        self.ironic.provision(self.node, 'active', 'active')
        self.assert_boot(1, 'Cd')
        self.rotate()
        self.power('rebooting')
        # Ironic's ramdisk deployment boots the ISO at each start.
        self.assert_boot(2, 'Cd')
        self.ironic.provision(self.node, 'deleted', 'available')
        self.sandbox.wait_stopped('box', self.namespace)
        self.until('volumes', lambda: self.sandbox.list(
            'datavolumes', self.namespace), [])
        # Ironic does not remove its persistent boot device.
        self.one.curl(None, '-X', 'PATCH', '-H',
                      'Content-Type: application/json', '-d',
                      '{"Boot": {"BootSourceOverrideEnabled": "Disabled"}}')
        self.assertEqual(before, self.template())
        self.assert_no_errors()

    def test_commands_of_recipes_enrol_nodes(self):
        """Ironic can read the power state of nodes that they enrol."""
        self.make()
        commands = [text for title, text, _ in documents.blocks(
            documents.RECIPES.read_text()) if title == 'Ironic']
        self.assertEqual(2, len(commands))
        for number, text in enumerate(commands):
            name = f'{self.namespace}-{number}'
            for old, new in (('--name node-0', '--name ' + name),
                             ('/path/to/ca.crt', str(self.one.ca_file())),
                             ('correct-horse', self.one.password)):
                text = text.replace(old, new)
            done = subprocess.run(
                ['bash', '-c', text], env={
                    **self.ironic.env, 'IP': self.one.status['serviceIP'],
                    'PATH': f'{process.BIN}:/usr/bin:/bin'},
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True, timeout=60)
            self.assertEqual(0, done.returncode, done.stdout)
            node = self.ironic.baremetal.find_node(name)
            self.assertIsNotNone(node, done.stdout)
            self.ironic.provision(node, 'manage', 'manageable')
            self.ironic.wait(
                node, lambda node: node.power_state == 'power off')
        self.assert_no_errors()

    def test_ipmi_boots_pxe_and_disk(self):
        self.make()
        before = self.template()
        self.enrol('ipmi')
        self.ironic.baremetal.set_node_boot_device(
            self.node, 'pxe', persistent=False)
        self.power('power on')
        self.assert_boot(1, 'Pxe')
        self.until('template', self.template, before)
        self.rotate()
        self.power('rebooting')
        self.assert_boot(2, 'Hdd')
        self.ironic.baremetal.set_node_boot_device(
            self.node, 'pxe', persistent=True)
        self.assertEqual(
            {'boot_device': 'pxe', 'persistent': True},
            self.ironic.baremetal.get_node_boot_device(self.node))
        self.power('power off')
        self.sandbox.wait_stopped('box', self.namespace)
        for count in 3, 4:
            self.power('power on' if count == 3 else 'rebooting')
            self.assert_boot(count, 'Pxe')
        self.assert_no_errors()
