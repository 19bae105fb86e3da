# SPDX-License-Identifier: Apache-2.0
"""FreeIPMI: each of its commands that talks to a BMC over the network.

Where a BMC lacks a command, the tools of FreeIPMI often say "internal IPMI
error" and stop; no command may do that here.
"""

import os
import re
import signal

from kubevirt_sandbox.testing import process
from tests.clients import case
from tests.clients import freeipmi
from tests.fixtures import processes

#: The remaining options that read, or change nothing here; a line is a
#: command.
OPTIONS = {
    'bmc-info': """
        --get-device-guid
        --get-channel-info
        --interpret-oem-data""",
    'bmc-device': """
        --get-sel-time-utc-offset
        --set-sel-time-utc-offset=none
        --set-sel-time=now
        --set-sdr-repository-time=now
        --get-bmc-global-enables
        --rearm-sensor=1""",
    'ipmi-sensors': """
        --sdr-info
        --quiet-readings
        --record-ids=1
        --exclude-record-ids=1
        --sensor-types=Power_Unit
        --exclude-sensor-types=Power_Unit
        --list-sensor-types
        --bridge-sensors
        --shared-sensors
        --interpret-oem-data
        --ignore-not-available-sensors
        --ignore-unrecognized-events
        --output-event-bitmask
        --entity-sensor-names
        --output-sensor-thresholds
        --non-abbreviated-units
        --legacy-output
        --ipmimonitoring-legacy-output
        -vvv""",
    'ipmi-sel': """
        --display=1
        --exclude-display=1
        --display-range=1-65534
        --exclude-display-range=1-65534
        --date-range=01/01/2020-now
        --exclude-date-range=01/01/2020-now
        --sensor-types=Power_Unit
        --exclude-sensor-types=Power_Unit
        --list-sensor-types
        --tail=1
        --system-event-only
        --oem-event-only
        --output-manufacturer-id
        --output-event-state
        --hex-dump
        --interpret-oem-data
        --output-oem-event-strings
        --entity-sensor-names
        --no-sensor-type-output
        --non-abbreviated-units
        --legacy-output
        --utc-to-localtime
        --utc-offset=3600
        -vvv""",
    'ipmi-fru': """
        --device-id=0
        --bridge-fru
        --interpret-oem-data
        -v""",
    'ipmipower': """
        --on-if-off --on
        --pulse""",
}

#: Options for what a VM or this BMC does not have.
REFUSED = {
    'bmc-device': """
        --get-lan-statistics
        --clear-lan-statistics
        --get-mca-auxiliary-log-status
        --get-ssif-interface-capabilities
        --get-kcs-interface-capabilities
        --get-bt-interface-capabilities
        --set-acpi-power-state --set-acpi-system-power-state=S0/G0
        --set-sensor-reading-and-event-status=REQUEST""",
    'ipmi-dcmi': """
        --get-dcmi-sensor-info
        --get-system-power-statistics
        --get-power-limit
        --set-power-limit --power-limit-requested=100
        --activate-deactivate-power-limit=activate""",
    'ipmi-pef-config': """
        --info
        --checkout""",
    'ipmi-config': """
        --category=pef --checkout
        --category=pef --commit --key-pair=Community_String:X=public""",
    'ipmi-pet': """
        --pet-acknowledge TRAP""",
}

#: Words of the lines above that have spaces.
WORDS = {
    '--set-sensor-reading-and-event-status=REQUEST':
    ('--set-sensor-reading-and-event-status=1 0 write 0 nochange 0 nochange '
     '0 0 0 nochange',),
}

# A trap (Platform Management FRU and PET specifications): chassis intrusion.
TRAP = ('356224', *re.findall(
    '..', '44454c4c500010598043b2c04f333358000219e87e26ffff20200420'
    '73180080' '01ff00000000001900' '0002a20100c1'))
WORDS['TRAP'] = TRAP


def commands(table):
    """Yield the program and the options of each line of a table."""
    for program, lines in table.items():
        for line in lines.strip().splitlines():
            yield program, [word for part in line.split()
                            for word in WORDS.get(part, (part,))]


class FreeipmiTestCase(freeipmi.FreeipmiTestCase):

    CLIENT = 'FreeIPMI'

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
        found = self.fields('bmc-info', '--get-system-info')
        self.assertEqual(f'{case.NAMESPACE}/{case.NAME}', found['System Name'])
        self.assertEqual(self.get(case.SYSTEM)['BiosVersion'],
                         found['System Firmware Version'])
        self.record('bmc-info')

    def test_system_info(self):
        for name in ('System Name', 'Primary Operating System Name',
                     'Operating System Name', 'Present OS Version Number',
                     'BMC URL', 'Base OS/Hypervisor URL'):
            option = '--set-' + re.sub('[ /]', '-', name.lower())
            for text in f'{name} of box', 'x' * 64, '':
                self.freeipmi('bmc-device', f'{option}={text}')
                found = self.fields('bmc-info', '--get-system-info')
                self.assertEqual(text, found[name] if text else '')

    def test_bmc_device(self):
        self.assertIn('No Error', self.freeipmi(
            'bmc-device', '--get-self-test-results'))
        self.assertTrue(self.freeipmi('bmc-device', '--get-acpi-power-state'))
        self.assertTrue(self.freeipmi(
            'bmc-device', '--get-sdr-repository-time'))
        self.assertTrue(self.freeipmi('bmc-device', '--get-sel-time'))
        image = self.home / 'fru.bin'
        for option in '--read-fru=', '--write-fru=':
            self.freeipmi('bmc-device', '--device-id=0', f'{option}{image}')
        self.assertIn(self.serial.encode(), image.read_bytes())
        self.assertIn(self.serial, self.freeipmi(
            'ipmi-fru', '--fru-file', image))
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
        self.write_back('core', 1, 'Read Only Field|Failed to commit '
                        '`Lan_Conf_Security_Keys:K_[RG]')
        self.record('ipmi-config --category core', 'bmc-config')

    def write_back(self, category, code=0, refused=None):
        """Write what was read.

        :param code: exit code.
        :param refused: regular expression of the lines for what is read-only.
        """
        path = self.home / category
        words = '--category', category, '--filename', path
        self.freeipmi('ipmi-config', '--checkout', *words, code=None)
        output = self.freeipmi('ipmi-config', '--commit', *words, code=code)
        self.assertEqual([], [line for line in output.splitlines()
                              if not (refused and re.search(refused, line))])
        self.assertEqual('', self.freeipmi('ipmi-config', '--diff', *words))
        self.assertTrue(self.freeipmi('ipmi-config', '--listsections',
                                      '--category', category))

    def test_config_chassis(self):
        found = self.checkout('--category', 'chassis')
        self.assertEqual(
            {'AlwaysOff': 'Off_State_AC_Apply',
             'AlwaysOn': 'On_State_AC_Apply',
             'LastState': 'Restore_State_AC_Apply'}[
                 self.get(case.SYSTEM)['PowerRestorePolicy']],
            found['Power_Restore_Policy'])
        self.assertEqual('NO-OVERRIDE', found['Boot_Device'])
        self.assertEqual(found, self.checkout(program='ipmi-chassis-config'))
        self.write_back('chassis')
        self.record('ipmi-chassis-config', 'ipmi-config --category chassis')

    def test_config_sensors(self):
        self.assertEqual(*(self.freeipmi(
            *words, '--checkout', '--verbose') for words in (
                ('ipmi-config', '--category', 'sensors'),
                ('ipmi-sensors-config',))))
        self.write_back('sensors')
        self.record('ipmi-config --category sensors', 'ipmi-sensors-config')

    def test_config_dcmi(self):
        tag = 'DCMI_Conf:Asset_Tag='
        for value in 'rack-8', '':
            self.freeipmi('ipmi-config', '--category', 'dcmi', '--commit',
                          '--key-pair', tag + value)
            self.until(lambda value=value: self.get(case.SYSTEM)[
                'AssetTag'] == value)
            # The power limits are missing.
            found = self.checkout('--category', 'dcmi')
            self.assertEqual(value, found.get('Asset_Tag', ''))
            self.write_back('dcmi')
        self.record('ipmi-config --category dcmi')

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
        entries = '/redfish/v1/Systems/1/LogServices/Events/Entries'

        def power_offs():
            return sum(entry['MessageId'].endswith('.ResourcePoweredOff')
                       for entry in self.get(entries)['Members'])

        self.power('On')
        before = power_offs()
        self.power('Off')
        # It is logged in the background; the entries are counted below.
        self.until(lambda: power_offs() > before)
        self.freeipmi('bmc-device',
                      '--platform-event=4 8 1 0x6f assertion 0 0xff 0xff')
        self.until(lambda: 'Presence detected' in self.freeipmi('ipmi-sel'))
        events = self.events()
        self.assertEqual(len(events), int(self.fields(
            'ipmi-sel', '--info')['Number of log entries']))
        added, = [line for line in events if 'Presence detected' in line]
        logged = self.get(entries)['Members@odata.count']
        delete = '--delete=' + added.split(',')[0]
        self.freeipmi('ipmi-sel', delete)
        self.assertNotIn(added, self.events())
        self.until(lambda: self.get(entries)[
            'Members@odata.count'] == logged - 1)
        self.assertIn('not found', self.freeipmi('ipmi-sel', delete, code=1))
        self.assertEqual(len(events) - 1, len(self.events('--post-clear')))
        self.freeipmi('ipmi-sel', '--clear')
        self.assertLessEqual(len(self.events()), 1)
        self.record('ipmi-sel')

    def test_fru(self):
        output = self.freeipmi('ipmi-fru')
        for text in 'KubeVirt', self.serial, case.NAME:
            self.assertIn(text, output)
        self.record('ipmi-fru')

    def test_dcmi(self):
        self.freeipmi('ipmi-dcmi', '--set-asset-tag', 'rack 7')
        self.assertIn('rack 7', self.freeipmi('ipmi-dcmi', '--get-asset-tag'))
        self.until(lambda: self.get(case.SYSTEM)['AssetTag'] == 'rack 7')
        self.assertTrue(self.freeipmi(
            'ipmi-dcmi', '--get-management-controller-identifier-string'))
        for option in ('--set-management-controller-identifier-string=box-7',
                       '--get-enhanced-system-power-statistics'):
            self.freeipmi('ipmi-dcmi', option)
        self.assertIn('box-7', self.freeipmi(
            'ipmi-dcmi', '--get-management-controller-identifier-string'))
        found = self.fields('ipmi-dcmi', '--get-dcmi-capability-info')
        self.assertEqual('Available', found['Asset Tag'])
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

    def test_ipmiconsole_when_the_bmc_ends(self):
        client = self.console('ipmiconsole', '--config-file', self.config,
                              '--hostname', self.address)
        client.wait(rb'\[SOL established\]')
        self.check_console(client)
        [pod] = self.kubectl.get('pods')['items']
        for pid in processes.with_environment(pod['metadata']['uid']):
            if pid in process.running('sushy-kubevirt-bmc'):
                os.kill(pid, signal.SIGTERM)
        # It is told. Its session would end after a minute.
        client.wait(rb'\[closing the connection\]', timeout=20)
        client.wait_end()
        self.until(lambda: all(
            one['ready'] and one['restartCount'] == 1
            for one in self.kubectl.get('pods')['items'][0]['status'][
                'containerStatuses']))

    def test_options(self):
        self.power('On')
        for program, words in commands(OPTIONS):
            self.freeipmi(program, *words)

    def test_trap(self):
        """A trap is explained by the SDR repository."""
        self.assertIn('Chassis Intrusion', self.freeipmi('ipmi-pet', *TRAP))
        self.record('ipmi-pet')

    def test_refused(self):
        """What a VM does not have is refused in so many words."""
        for program, words in commands(REFUSED):
            self.assertRegex(
                self.freeipmi(program, *words, code=1),
                '(?i)invalid command|command invalid or unsupported|'
                'Unable to get Number of Alert Policy Entries')
            # Without the fields of a request
            self.record(f'{program} {re.sub("=.* .*", "", words[0])}',
                        result='refused: unsupported')
        # KubeVirt brings the firmware.
        self.freeipmi('bmc-device', '--set-system-firmware-version=2',
                      code=1)

    def test_commands_of_manufacturers(self):
        """No BMC of theirs, but no internal error either."""
        count, manufacturer = 0, None
        for line in self.run_command('ipmi-oem', '--list').splitlines():
            kind, _, text = line.strip().partition(': ')
            if kind == 'OEM ID':
                manufacturer = text
            # Those without required parameters
            elif kind == 'Command' and not re.search('<|KEY', text):
                self.freeipmi('ipmi-oem', manufacturer, text.split()[0],
                              code=None)
                count += 1
        self.assertLess(50, count)
        self.record('ipmi-oem', result='refused: unsupported')
