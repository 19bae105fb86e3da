# SPDX-License-Identifier: Apache-2.0
"""DMTF's redfish_utilities: each ``rf_*`` command that fits a BMC."""

import json
import re

from kubevirt_sandbox.testing import webserver
from tests.clients import case
from tests.clients import environment


class RedfishUtilitiesTestCase(case.ClientTestCase):

    CLIENT = 'redfish_utilities'

    @classmethod
    def version(cls):
        return environment.PYTHON.version_of(cls.CLIENT)

    def rf(self, name, *words, **options):
        """Run a command and return its output."""
        return self.run_command(
            environment.PYTHON.bin / f'rf_{name}.py',
            '--user', self.bmc.username,
            '--password', self.bmc.password, '--rhost', self.url, *words,
            **options)

    def test_power_reset(self):
        self.power('Off')
        for reset, state in (('On', 'On'), ('ForceRestart', 'On'),
                             ('GracefulRestart', 'On'), ('PowerCycle', 'On'),
                             ('GracefulShutdown', 'Off'), ('On', 'On'),
                             ('ForceOff', 'Off')):
            self.rf('power_reset', '--type', reset)
            self.wait_power(state)
            self.assertIn(f'Current power state: {state}',
                          self.rf('power_reset', '--info'))
        self.record('rf_power_reset')

    def test_boot_override(self):
        self.power('Off')
        count = len(self.boots())
        self.rf('boot_override', '--target', 'Pxe')
        self.assertIn('Target: Pxe', self.rf('boot_override', '--info'))
        self.power('On')
        self.until(lambda: len(self.boots()) > count)
        self.assertEqual('Pxe', self.boots()[count])
        self.rf('boot_override', '--target', 'Cd')
        self.rf('boot_override', '--target', 'None')
        self.assertIn('Target: None', self.rf('boot_override', '--info'))
        self.record('rf_boot_override')

    def test_virtual_media(self):
        self.power('Off')
        url = self.image()
        self.rf('virtual_media', 'insert', '--image', url)
        self.until(lambda: url in self.rf('virtual_media', 'info'))
        self.rf('virtual_media', 'eject', '--id', 'Cd')
        self.until(lambda: url not in self.rf('virtual_media', 'info'))
        self.record('rf_virtual_media')

    def test_inventory(self):
        output = self.rf('sys_inventory', '--details')
        for text in 'Processor: CPU0', 'Memory: RAM', '10GB':
            self.assertIn(text, output)
        self.record('rf_sys_inventory')

    def test_firmware_inventory(self):
        output = self.rf('firmware_inventory')
        self.assertIn('KubeVirt', output)
        self.assertIn(self.get('/redfish/v1/Managers/1')['FirmwareVersion'],
                      output)
        self.record('rf_firmware_inventory')

    def test_sensors(self):
        output = self.rf('sensor_list')
        self.assertRegex(output, r"Chassis '.*' Status")
        # It shows the state of a sensor without a reading.
        self.assertRegex(output, r'Disks +\| Enabled +\| OK ')
        self.record('rf_sensor_list')

    def test_logs(self):
        self.power('On')
        self.power('Off')
        log = 'logs', '--system', '1'
        self.until(lambda: 'has powered off' in self.rf(*log))
        self.rf(*log, '--clear')
        self.assertNotIn('has powered off', self.rf(*log))
        self.rf('logs', '--manager', '1')
        self.record('rf_logs')

    def test_accounts(self):
        self.addCleanup(self.rf, 'accounts', '--delete', 'guest', code=None)
        self.rf('accounts', '--add', 'guest', 'first-password', 'ReadOnly')
        self.assert_listed('guest +ReadOnly +False +True')
        self.until(lambda: self.ipmi_login('guest', 'first-password'))
        self.rf('accounts', '--setrole', 'guest', 'Operator')
        self.assert_listed('guest +Operator')
        self.rf('accounts', '--setpassword', 'guest', 'second-password')
        self.until(lambda: self.ipmi_login('guest', 'second-password'))
        self.assertFalse(self.ipmi_login('guest', 'first-password'))
        self.rf('accounts', '--disable', 'guest')
        self.assert_listed('guest +Operator +False +False')
        self.rf('accounts', '--enable', 'guest')
        self.rf('accounts', '--delete', 'guest')
        self.assertNotIn('guest', self.rf('accounts'))
        # That of the Secret cannot be deleted.
        self.rf('accounts', '--delete', self.bmc.username, code=1)
        self.record('rf_accounts')

    def assert_listed(self, columns):
        self.assertRegex(self.rf('accounts'), columns.replace(' +', r' +\| '))

    def test_bios_settings(self):
        self.power('Off')
        self.addCleanup(self.rf, 'bios_settings', '--attribute', 'BootMode',
                        'Legacy')
        self.rf('bios_settings', '--attribute', 'BootMode', 'UEFI')
        self.until(lambda: re.search(r'BootMode +\| UEFI',
                                     self.rf('bios_settings')))
        self.record('rf_bios_settings')

    def test_manager(self):
        self.assertIn('ManagerType: BMC', self.rf('manager_config', 'info'))
        output = self.rf('manager_config', 'getprotocol')
        for text in 'HTTPS', '443', 'IPMI', '623':
            self.assertIn(text, output)
        self.assertRegex(self.rf('manager_config', 'getnet'),
                         '(?m)' + case.POD_ADDRESS.replace('^', '^ *'))
        self.record('rf_manager_config')

    def test_event_service(self):
        received = []

        class Handler(webserver.Handler):

            def do_POST(self):
                received.append(json.loads(self.rfile.read(
                    int(self.headers['Content-Length']))))
                self.send_response(200)
                self.send_header('Content-Length', '0')
                self.end_headers()

        server = self.useFixture(webserver.WebServer(
            Handler, address=self.host_address()))
        self.rf('event_service', 'subscribe', '--destination', server.url)
        subscription, = self.get(
            '/redfish/v1/EventService/Subscriptions')['Members']
        name = subscription['@odata.id'].rpartition('/')[2]
        self.power('On')
        self.power('Off')
        self.until(lambda: received)
        self.assertIn(server.url, self.rf('event_service', 'info'))
        self.rf('event_service', 'unsubscribe', '--id', name)
        self.record('rf_event_service')

    def test_raw_request(self):
        self.assertIn(self.uuid, self.rf(
            'raw_request', '--request', case.SYSTEM))
        self.record('rf_raw_request')

    def test_certificates(self):
        self.rf('certificates', 'info')
        self.record('rf_certificates')

    def test_optional_services(self):
        """Commands for services that a BMC of a VM does not have say so."""
        for name, words, text in (
                ('licenses', ('info',), 'does not contain a license service'),
                ('thermal_equipment', ('list',), 'does not contain any'),
                ('power_equipment', ('list',), 'does not contain any'),
                ('diagnostic_data', (), 'does not support'),
                # The log is of type Event: rf_logs shows it.
                ('sel', (), 'No SEL found')):
            self.assertIn(text, self.rf(name, *words, code=None))
            self.record(f'rf_{name}', result='no such service')
