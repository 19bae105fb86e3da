# SPDX-License-Identifier: Apache-2.0
"""FreeIPMI: each of its commands that talks to a BMC over the network.

Where a BMC lacks a command, the tools of FreeIPMI often say "internal IPMI
error" and stop; no command may do that here.
"""

import os
import re
import subprocess

from tests.clients import case

#: Commands that read the SDR repository, and cache it.
READ_SDR = ('bmc-config', 'bmc-device', 'ipmi-config', 'ipmi-fru', 'ipmi-oem',
            'ipmi-pef-config', 'ipmi-sel', 'ipmi-sensors', 'ipmimonitoring')


class FreeipmiTestCase(case.ClientTestCase):

    CLIENT = 'FreeIPMI'

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cache = cls.home / 'sdr-cache'
        cls.cache.mkdir()
        cls.config = cls.home / 'freeipmi.conf'
        cls.config.write_text(
            f'driver-type LAN_2_0\nusername {cls.bmc.username}\n'
            f'password {cls.bmc.password}\n')
        cls.config.chmod(0o600)

    @classmethod
    def version(cls):
        # "bmc-info - 1.6.10"
        return subprocess.run(
            ['bmc-info', '--version'], env=cls.environment(),
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
            check=True).stdout.split()[2]

    @classmethod
    def environment(cls):
        found = super().environment()
        return found | {'PATH': os.pathsep.join((found['PATH'], '/usr/sbin'))}

    def freeipmi(self, program, *words, **options):
        """Run a command of FreeIPMI as the operator's administrator."""
        # Not in the home folder, whatever HOME is.
        cache = (['--sdr-cache-directory', self.cache]
                 if program in READ_SDR else [])
        output = self.run_command(
            program, '--config-file', self.config, '--hostname',
            self.address, *cache, *words, **options)
        self.assertNotIn('internal IPMI error', output)
        return output

    def fields(self, program, *words):
        """Run a command and parse its lines ``Name : value``."""
        return dict(re.findall(r'^\s*(\S.*?)\s*: (.*?)\s*$',
                               self.freeipmi(program, *words), re.MULTILINE))

    def test_ipmipower(self):
        self.power('Off')
        for option, state in (('--on', 'on'), ('--cycle', 'on'),
                              ('--reset', 'on'), ('--soft', 'off'),
                              ('--on', 'on'), ('--off', 'off')):
            self.assertIn('ok', self.freeipmi('ipmipower', option))
            self.wait_power(state.capitalize())
            self.assertEqual(f'{self.address}: {state}', self.freeipmi(
                'ipmipower', '--stat').strip())
        self.freeipmi('ipmipower', '--on', '--wait-until-on')
        self.freeipmi('ipmipower', '--off', '--wait-until-off')
        self.assertEqual('Off', self.power_state())
        self.record('ipmipower')

    def checkout(self, *words):
        """Return the values that ``ipmi-config`` reads, as a dictionary."""
        output = self.freeipmi('ipmi-config', '--checkout', *words)
        return dict(re.findall(r'^\s*(\w+)\s+(\S+)\s*$', output,
                               re.MULTILINE))

    def test_config_chassis(self):
        found = self.checkout('--category', 'chassis')
        self.assertIn('Power_Restore_Policy', found)
        self.assertIn('Boot_Device', found)
        self.record('ipmi-config --category chassis')

    def test_config_boot_device(self):
        self.power('Off')
        count = len(self.boots())
        self.freeipmi('ipmi-config', '--commit', '--category', 'chassis',
                      '--key-pair', 'Chassis_Boot_Flags:Boot_Device=PXE')
        self.power('On')
        self.until(lambda: len(self.boots()) > count)
        self.assertEqual('Pxe', self.boots()[count])
        self.freeipmi('ipmi-config', '--commit', '--category', 'chassis',
                      '--key-pair',
                      'Chassis_Boot_Flags:Boot_Device=NO-OVERRIDE')
        self.record('ipmi-config --commit')

    def events(self, *words):
        lines = self.freeipmi('ipmi-sel', '--comma-separated-output',
                              '--no-header-output', *words)
        return [line for line in lines.splitlines() if line[:1].isdigit()]

    def test_raw_and_ping(self):
        self.assertRegex(self.freeipmi('ipmi-raw', '0', '6', '1'),
                         r'rcvd: 01 00 ')
        for program in 'ipmiping', 'rmcpping':
            self.assertIn('0.0% packet loss', self.run_command(
                program, '-c', '1', self.address))
        self.record('ipmi-raw', 'ipmiping', 'rmcpping')

    def test_ipmiconsole(self):
        client = self.console('ipmiconsole', '--config-file', self.config,
                              '--hostname', self.address)
        client.wait(rb'\[SOL established\]')
        self.check_console(client)
        # A key that KubeVirt's console cannot transmit: a break
        client.send(b'&B')
        client.wait(b'does not transmit a break')
        self.check_console(client)
        # A second one takes it over ("stolen").
        second = self.console('ipmiconsole', '--config-file', self.config,
                              '--hostname', self.address)
        client.wait(rb'\[(error received|closing)[^]]*\]')
        second.wait(rb'\[SOL established\]')
        self.check_console(second)
        second.send(b'&.')
        self.assertEqual(0, second.wait_end())
        self.freeipmi('ipmiconsole', '--deactivate')
        self.record('ipmiconsole')
