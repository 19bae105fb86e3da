# SPDX-License-Identifier: Apache-2.0
"""pyghmi's client, which Ansible's IPMI modules use."""

import json

from tests.clients import case
from tests.clients import environment


class PyghmiTestCase(case.ClientTestCase):

    CLIENT = 'pyghmi'

    @classmethod
    def version(cls):
        return environment.PYTHON.version_of(cls.CLIENT)

    @classmethod
    def environment(cls):
        return super().environment() | {'IPMI_PASSWORD': cls.bmc.password}

    def call(self, method, **arguments):
        """Call a method of pyghmi's ``Command`` and return its result."""
        output = self.run_command(
            environment.PYTHON.bin / 'python',
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

    def test_sensors(self):
        self.power('On')
        names = [one['name'] for one in self.call('get_sensor_data')]
        self.assertLess(3, len(names))
        self.assertEqual(sorted(names), sorted(
            one['name'] for one in self.call('get_sensor_descriptions')))
        self.assertEqual([], self.call('get_health')['badreadings'])
        self.record('get_sensor_data', 'get_health')

    def test_event_log(self):
        self.power('On')
        self.power('Off')
        entries = self.call('get_event_log')
        self.assertLess(1, len(entries))
        for entry in entries:
            self.assertTrue(entry['timestamp'], entry)
        self.call('get_event_log', clear=True)
        self.assertLess(len(self.call('get_event_log')), len(entries))
        self.record('get_event_log')

    def test_inventory(self):
        (_, system), *_ = self.call('get_inventory')
        for text in self.serial, 'KubeVirt':
            self.assertIn(text, json.dumps(system))
        self.record('get_inventory')

    def test_users(self):
        self.assertIn(self.bmc.username, [
            one['name'] for one in self.call('get_users').values()])
        self.call('create_user', uid=5, name='guest', channel=None,
                  password='first-password', privilege_level='operator')
        self.assertEqual('guest', self.call('get_user', uid=5)['name'])
        self.assertTrue(self.ipmi_login(
            'guest', 'first-password', 'OPERATOR'))
        self.call('user_delete', uid=5)
        self.assertNotIn('guest', json.dumps(self.call('get_users')))
        self.record('get_users', 'create_user', 'user_delete')

    def test_network(self):
        found = self.call('get_net_configuration')
        self.assertRegex(found['ipv4_address'], case.POD_ADDRESS)
        self.record('get_net_configuration')

    def test_channel(self):
        self.assertEqual('802.3 LAN', self.call('get_channel_info')[
            'Channel Medium type'])
        self.call('get_channel_access')
        self.record('get_channel_info', 'get_channel_access')

    def test_asset_tag(self):
        # With Python 3, set_asset_tag fails before it sends anything.
        self.ipmi('dcmi', 'set_asset_tag', 'rack 7')
        self.assertEqual('rack 7', self.call('get_asset_tag'))
        self.record('get_asset_tag')

    def test_identify(self):
        self.call('set_identify', on=True)
        self.until(lambda: self.get(case.SYSTEM)['IndicatorLED'] != 'Off')
        self.call('set_identify', on=False)
        self.until(lambda: self.get(case.SYSTEM)['IndicatorLED'] == 'Off')
        self.record('set_identify')

    def test_firmware(self):
        self.assertIn('BMC Version', json.dumps(self.call('get_firmware')))
        self.record('get_firmware')

    def test_console(self):
        client = self.console(environment.PYTHON.bin / 'python',
                              environment.SOURCES / 'pyghmi_client.py',
                              self.address, 'console')
        client.wait(b'connected')
        self.check_console(client)
        client.send(b'\x04')
        self.assertEqual(0, client.wait_end(), client.output)
        self.record('console.Console')
