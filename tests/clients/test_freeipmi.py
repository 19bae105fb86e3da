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

    def test_bmc_info(self):
        found = self.fields('bmc-info', '--get-device-id')
        self.assertEqual('2.0', found['IPMI Version'])
        for device in 'SDR Repository', 'SEL', 'FRU Inventory', 'Chassis':
            self.assertEqual('supported', found[device + ' Device'])
        self.assertRegex(self.freeipmi('bmc-info'), r'Channel Number +: 1\n'
                         r'Medium Type +: 802\.3 LAN\n')
        self.assertEqual(self.uuid, self.freeipmi(
            'bmc-info', '--get-system-guid').split()[-1])
        self.record('bmc-info')

    def test_bmc_device(self):
        self.assertIn('No Error', self.freeipmi(
            'bmc-device', '--get-self-test-results'))
        self.assertTrue(self.freeipmi('bmc-device', '--get-acpi-power-state'))
        self.assertTrue(self.freeipmi(
            'bmc-device', '--get-sdr-repository-time'))
        self.assertTrue(self.freeipmi('bmc-device', '--get-sel-time'))
        self.freeipmi('bmc-device', '--warm-reset')
        self.freeipmi('bmc-device', '--cold-reset')
        self.until(lambda: self.freeipmi('bmc-info', code=None).startswith(
            'Device ID'))
        self.record('bmc-device')

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

    def test_chassis(self):
        self.power('Off')
        self.freeipmi('ipmi-chassis', '--chassis-control', 'POWER-UP')
        self.wait_power('On')
        found = self.fields('ipmi-chassis', '--get-chassis-status')
        self.assertEqual('on', found['System Power'])
        self.freeipmi('ipmi-chassis', '--chassis-identify', 'FORCE')
        self.until(lambda: self.get(case.SYSTEM)['IndicatorLED'] != 'Off')
        self.freeipmi('ipmi-chassis', '--chassis-identify', 'TURN-OFF')
        for word, shown, policy in (
                ('always-off', 'Always off', 'AlwaysOff'),
                ('always-on', 'Always on', 'AlwaysOn'),
                ('restore', 'Restore', 'LastState')):
            self.freeipmi('ipmi-chassis',
                          '--set-power-restore-policy=' + word)
            self.assertEqual(shown, self.fields(
                'ipmi-chassis', '--get-chassis-status')[
                    'Power restore policy'])
            self.until(lambda policy=policy: self.get(case.SYSTEM)[
                'PowerRestorePolicy'] == policy)
        for option in ('--get-chassis-capabilities',
                       '--get-system-restart-cause',
                       '--get-power-on-hours-counter'):
            self.assertTrue(self.freeipmi('ipmi-chassis', option).strip())
        self.record('ipmi-chassis')

    def checkout(self, *words, program='ipmi-config'):
        """Return the values that ``ipmi-config`` reads, as a dictionary."""
        # The exit code is 1 if there is any setting that a BMC lacks, such as
        # one of the 15 cipher suites.
        output = self.freeipmi(program, '--checkout', *words, code=None)
        return dict(re.findall(r'^\s*(\w+)\s+(\S+)\s*$', output,
                               re.MULTILINE))

    def test_config_core(self):
        found = self.checkout('--category', 'core')
        self.assertEqual(self.bmc.username, found['Username'])
        self.assertRegex(found['IP_Address'], case.POD_ADDRESS)
        self.assertEqual('Yes', found['Admin_Enable_Auth_Type_MD5'])
        self.assertEqual('Yes', found['Enable_SOL'])
        # The older name of the same: all its values, not one of them unread.
        self.assertLess(50, len(found))
        self.assertEqual(found, self.checkout(program='bmc-config'))
        self.record('ipmi-config --category core', 'bmc-config')

    def test_config_chassis(self):
        found = self.checkout('--category', 'chassis')
        self.assertEqual(
            {'AlwaysOff': 'Off_State_AC_Apply',
             'AlwaysOn': 'On_State_AC_Apply',
             'LastState': 'Restore_State_AC_Apply'}[
                 self.get(case.SYSTEM)['PowerRestorePolicy']],
            found['Power_Restore_Policy'])
        self.assertEqual('NO-OVERRIDE', found['Boot_Device'])
        self.record('ipmi-config --category chassis')

    def test_config_sensors(self):
        self.freeipmi('ipmi-config', '--checkout', '--category', 'sensors')
        self.record('ipmi-config --category sensors')

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
        # The cluster sets the address.
        self.assertIn('IP_Address', self.freeipmi(
            'ipmi-config', '--commit', '--category', 'core', '--key-pair',
            'Lan_Conf:IP_Address=192.0.2.7', code=1))
        self.record('ipmi-config --commit')

    def test_sensors(self):
        self.power('On')
        lines = self.freeipmi('ipmi-sensors', '--comma-separated-output',
                              '--no-header-output', '--output-sensor-state')
        rows = [line.split(',') for line in lines.splitlines()
                if line[:1].isdigit()]
        self.assertLess(3, len(rows), lines)
        self.assertEqual([], [row for row in rows if row[3] == 'Critical'])
        self.assertIn('S0/G0', lines)
        self.freeipmi('ipmimonitoring')
        self.record('ipmi-sensors', 'ipmimonitoring')

    def events(self, *words):
        lines = self.freeipmi('ipmi-sel', '--comma-separated-output',
                              '--no-header-output', *words)
        return [line for line in lines.splitlines() if line[:1].isdigit()]

    def test_event_log(self):
        self.power('On')
        self.power('Off')
        self.until(lambda: len(self.events()) > 1)
        self.assertEqual(len(self.events()), int(self.fields(
            'ipmi-sel', '--info')['Number of log entries']))
        self.freeipmi('ipmi-sel', '--clear')
        self.assertLessEqual(len(self.events()), 1)
        self.record('ipmi-sel')

    def test_fru(self):
        output = self.freeipmi('ipmi-fru')
        for text in 'KubeVirt', self.uuid, case.NAME:
            self.assertIn(text, output)
        self.record('ipmi-fru')

    def test_dcmi(self):
        self.freeipmi('ipmi-dcmi', '--set-asset-tag', 'rack 7')
        self.assertIn('rack 7', self.freeipmi('ipmi-dcmi', '--get-asset-tag'))
        self.until(lambda: self.get(case.SYSTEM)['AssetTag'] == 'rack 7')
        self.assertTrue(self.freeipmi(
            'ipmi-dcmi', '--get-management-controller-identifier-string'))
        self.freeipmi('ipmi-dcmi', '--get-dcmi-capability-info')
        self.record('ipmi-dcmi')

    def test_raw_and_ping(self):
        self.assertRegex(self.freeipmi('ipmi-raw', '0', '6', '1'),
                         r'rcvd: 01 00 ')
        for program in 'ipmiping', 'rmcpping':
            self.assertIn('0.0% packet loss', self.run_command(
                program, '-c', '1', self.address))
        self.record('ipmi-raw', 'ipmiping', 'rmcpping')

    def test_config_sol(self):
        section = '--category', 'core', '--section', 'SOL_Conf'
        found = self.checkout(*section)
        self.assertEqual(('Yes', 'Operator', 'Yes', '7', '50'), tuple(
            found[name] for name in (
                'Enable_SOL', 'SOL_Privilege_Level',
                'Force_SOL_Payload_Encryption', 'SOL_Retry_Count',
                'SOL_Retry_Interval')))
        for value in '3', '7':
            self.freeipmi('ipmi-config', '--commit', '--category', 'core',
                          '--key-pair', 'SOL_Conf:SOL_Retry_Count=' + value)
            self.assertEqual(value,
                             self.checkout(*section)['SOL_Retry_Count'])

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

    def test_unsupported(self):
        """What a VM does not have is refused in so many words."""
        for program, words in (
                ('ipmi-oem', ('supermicro', 'get-bmc-services-status')),
                ('ipmi-pef-config', ('--info',)),
                ('ipmi-dcmi', ('--get-system-power-statistics',))):
            self.assertRegex(
                self.freeipmi(program, *words, code=1), '(?i)invalid command|'
                'command invalid or unsupported|Unable to get Number of Alert')
            self.record(' '.join((program, words[0])),
                        result='refused: unsupported')
