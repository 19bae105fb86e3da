# SPDX-License-Identifier: Apache-2.0
"""Ironic with the BMCs that the operator makes.

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
            # The BMC is given the URL as it is.
            'deploy': {'ramdisk_image_download_source': 'http'},
            # While it has the old password, it fails to ask.
            'conductor': {'power_state_sync_max_retries': 1000}}))

    def make(self):
        """Make a VM with an empty CD-ROM drive, and its BMC."""
        vm = machines.vm('box', 'Halted', self.namespace)
        media_case.drop_medium(vm['spec']['template']['spec'])
        self.sandbox.create('virtualmachines', vm, self.namespace)
        self.one = self.bmc().ready()

    def redfish(self):
        """Where the BMC is, for a node of driver ``redfish``."""
        url = parse.urlsplit(self.one.url())
        self.assertEqual('https', url.scheme)
        return {'redfish_address': f'{url.scheme}://{url.netloc}',
                'redfish_system_id': url.path,
                'redfish_username': self.one.username,
                'redfish_password': self.one.password,
                'redfish_verify_ca': str(self.one.trust())}

    def ipmi(self):
        """Where the BMC is, for a node of driver ``ipmi``."""
        told = self.one.status['endpoints']['ipmi']
        return {'ipmi_address': told['host'], 'ipmi_port': told['port'],
                'ipmi_username': self.one.username,
                'ipmi_password': self.one.password}

    def enrol(self, driver):
        self.node = self.ironic.enrol(self.namespace, driver,
                                      getattr(self, driver)())
        self.driver = driver

    def rotate(self):
        """Change the password: in the Secret, and then in Ironic."""
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

    def booted(self, count, class_):
        boot = self.sandbox.wait_boot('box', count, self.namespace)
        self.assertEqual(class_, boot['class'])

    def template(self):
        return self.sandbox.vm('box', self.namespace)['spec']['template']

    def nothing_is_wrong(self):
        self.quiet()
        self.assertEqual({}, self.sandbox.stats()['refused'])

    def test_redfish_deploys_an_iso(self):
        here = webserver.own_address()
        if here is None:
            self.skipTest('only loopback: a BMC takes nothing from there')
        images = self.useFixture(image_server.ImageServer(here))
        self.make()
        before = self.template()
        self.enrol('redfish')
        self.ironic.provision(self.node, 'provide', 'available')
        self.ironic.baremetal.update_node(self.node, instance_info={
            'boot_iso': images.url + '/it.iso'})
        self.ironic.provision(self.node, 'active', 'active')
        self.booted(1, 'Cd')
        self.rotate()
        self.power('rebooting')
        # Ironic lets a ramdisk boot for ever.
        self.booted(2, 'Cd')
        self.ironic.provision(self.node, 'deleted', 'available')
        self.sandbox.wait_stopped('box', self.namespace)
        self.until('volumes', lambda: self.sandbox.list(
            'datavolumes', self.namespace), [])
        # What Ironic leaves is its boot device.
        self.one.curl(None, '-X', 'PATCH', '-H',
                      'Content-Type: application/json', '-d',
                      '{"Boot": {"BootSourceOverrideEnabled": "Disabled"}}')
        self.assertEqual(before, self.template())
        self.nothing_is_wrong()

    def test_commands_of_the_recipes(self):
        """They enrol nodes that Ironic can read the power state of."""
        self.make()
        commands = [text for title, text, _ in documents.blocks(
            documents.RECIPES.read_text()) if title == 'Ironic']
        self.assertEqual(2, len(commands))
        for number, text in enumerate(commands):
            name = '%s-%d' % (self.namespace, number)
            for old, new in (('--name node-0', '--name ' + name),
                             ('/path/to/ca.crt', str(self.one.trust())),
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
        self.nothing_is_wrong()

    def test_ipmi(self):
        self.make()
        before = self.template()
        self.enrol('ipmi')
        self.ironic.baremetal.set_node_boot_device(
            self.node, 'pxe', persistent=False)
        self.power('power on')
        self.booted(1, 'Pxe')
        self.until('template', self.template, before)
        self.rotate()
        self.power('rebooting')
        self.booted(2, 'Hdd')
        self.ironic.baremetal.set_node_boot_device(
            self.node, 'pxe', persistent=True)
        self.assertEqual(
            {'boot_device': 'pxe', 'persistent': True},
            self.ironic.baremetal.get_node_boot_device(self.node))
        self.power('power off')
        self.sandbox.wait_stopped('box', self.namespace)
        for count in 3, 4:
            self.power('power on' if count == 3 else 'rebooting')
            self.booted(count, 'Pxe')
        self.nothing_is_wrong()
