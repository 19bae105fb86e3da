# SPDX-License-Identifier: Apache-2.0
"""ipmitool: the commands that users type, against the pod of a BMC.

The functional tests in ``tests/functional/ipmi`` use it too, for details.
"""

import subprocess

from tests.clients import case


class IpmitoolTestCase(case.ClientTestCase):

    CLIENT = 'ipmitool'

    @classmethod
    def version(cls):
        # "ipmitool version 1.8.19"
        return subprocess.run(
            ['ipmitool', '-V'], stdin=subprocess.DEVNULL, check=True,
            capture_output=True, text=True).stdout.split()[2]

    def contains(self, command, *texts):
        """Check that a command succeeds and prints some texts."""
        output = self.ipmi(*command.split())
        for text in texts:
            self.assertIn(text, output)
        self.record(command)

    def test_controller(self):
        self.contains('mc info', 'IPMI Version', '2.0')
        self.contains('mc guid', self.uuid)
        self.contains('mc selftest', 'passed')
        self.contains('mc getenables')

    def test_chassis(self):
        self.power('Off')
        self.contains('chassis status', 'System Power         : off')
        self.contains('chassis poh')
        self.contains('chassis restart_cause')
        self.contains('chassis identify', 'identify interval')
        self.contains('chassis policy list', 'previous')
        self.contains('chassis bootparam get 5', 'Boot Flag')

    def test_power_and_boot_device(self):
        self.power('Off')
        count = len(self.boots())
        self.contains('chassis bootdev pxe')
        self.contains('chassis power on', 'Up/On')
        self.wait_power('On')
        for command in 'cycle', 'reset':
            self.contains('chassis power ' + command)
            self.wait_power('On')
        self.contains('chassis power soft')
        self.wait_power('Off')
        self.assertEqual('Pxe', self.boots()[count])

    @classmethod
    def environment(cls):
        return super().environment() | {'IPMI_PASSWORD': cls.bmc.password}

    def test_console(self):
        def activate():
            return self.console(
                'ipmitool', '-I', 'lanplus', '-H', self.address, '-U',
                self.bmc.username, '-E', 'sol', 'activate')

        self.contains('sol info', 'Payload Port                    : 623')
        client = activate()
        client.wait(b'SOL Session operational')
        self.check_console(client)
        second = activate()
        self.assertNotEqual(0, second.wait_end())
        self.assertIn(b'already active on another session', second.output)
        self.contains('sol deactivate')
        client.wait(b'Deactivated by another session')
        client = activate()
        client.wait(b'SOL Session operational')
        self.check_console(client)
        client.send(b'\r~.')
        self.assertEqual(0, client.wait_end())
        self.record('sol activate')

    def test_sensors(self):
        self.power('On')
        self.contains('sdr list', 'ok')
        self.contains('sdr elist all', 'ok')
        self.contains('sdr type list')
        self.contains('sensor')

    def test_event_log(self):
        self.power('On')
        self.power('Off')
        # It is logged in the background.
        self.until(lambda: 'Power' in self.ipmi('sel', 'list'))
        self.contains('sel info', 'Entries')
        self.contains('sel list', 'Power')
        self.contains('sel elist', 'Power')
        self.contains('sel time get')
        self.contains('sel clear')

    def test_inventory(self):
        self.contains('fru print', 'KubeVirt', self.serial)

    def test_lan(self):
        self.contains('lan print', 'IP Address              : 127.',
                      'Cipher Suite')
        self.contains('channel info', '802.3 LAN')
        self.contains('channel getaccess 1', 'ADMINISTRATOR')
        self.contains('session info active', 'ADMINISTRATOR')

    def test_users(self):
        self.contains('user list', 'admin', 'ADMINISTRATOR')
        self.contains('user summary', 'Maximum IDs')

    def test_watchdog(self):
        self.contains('mc watchdog get', 'Watchdog Timer')

    def test_dcmi(self):
        self.contains('dcmi asset_tag')
        self.contains('dcmi get_mc_id_string')
