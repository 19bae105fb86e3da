# SPDX-License-Identifier: Apache-2.0
"""pyghmi's client, which Ansible's IPMI modules use."""

import json

from tests.clients import case
from tests.clients import environment


class PyghmiTestCase(case.ClientTestCase):

    CLIENT = 'pyghmi'

    @classmethod
    def version(cls):
        return environment.version_of(cls.CLIENT)

    @classmethod
    def environment(cls):
        return super().environment() | {'IPMI_PASSWORD': cls.bmc.password}

    def call(self, method, **arguments):
        """Call a method of pyghmi's ``Command`` and return its result."""
        output = self.run_command(
            environment.BIN / 'python',
            environment.SOURCES / 'pyghmi_client.py', self.address, method,
            json.dumps(arguments))
        return json.loads(output.splitlines()[-1])

    def test_power(self):
        self.power('Off')
        for state, reached in (('on', 'on'), ('reset', 'on'),
                               ('boot', 'on'), ('shutdown', 'off'),
                               ('boot', 'on'), ('off', 'off')):
            self.call('set_power', powerstate=state,
                      wait=30 if state != 'reset' else False)
            self.wait_power(reached.capitalize())
            self.assertEqual(reached, self.call('get_power')['powerstate'])
        self.record('set_power', 'get_power')

    def test_boot_device(self):
        self.power('Off')
        count = len(self.boots())
        self.call('set_bootdev', bootdev='network')
        self.assertEqual('network', self.call('get_bootdev')['bootdev'])
        self.power('On')
        self.until(lambda: len(self.boots()) > count)
        self.assertEqual('Pxe', self.boots()[count])
        self.record('set_bootdev', 'get_bootdev')

    def test_firmware(self):
        self.assertIn('BMC Version', json.dumps(self.call('get_firmware')))
        self.record('get_firmware')

    def test_console(self):
        client = self.console(environment.BIN / 'python',
                              environment.SOURCES / 'pyghmi_client.py',
                              self.address, 'console')
        client.wait(b'connected')
        self.check_console(client)
        client.send(b'\x04')
        self.assertEqual(0, client.wait_end(), client.output)
        self.record('console.Console')
