# SPDX-License-Identifier: Apache-2.0
"""One machine through Redfish and IPMI: each shows what the other has set.

BMCs keep their state in Kubernetes, so any of them can continue an operation
that another began or did not finish because it was killed. The sushy library
speaks Redfish and ipmitool IPMI; the guest's record shows what was booted.
"""

import re

import sushy

from kubevirt_sandbox.testing import machines
from tests.fixtures import bmcs_case


class PowerTestCase(bmcs_case.BmcsTestCase):

    def test_power_on_restores_run_strategy(self):
        """Power-on restores the run strategy."""
        for strategy, off in (('Always', 'Halted'), ('Manual', 'Manual'),
                              ('RerunOnFailure', 'RerunOnFailure')):
            self.make(strategy)
            if strategy != 'Always':
                self.system().reset_system(sushy.RESET_ON)
                self.sandbox.wait_running(self.name)
            self.ipmi('power', 'off')
            stopped = self.sandbox.wait_stopped(self.name)
            self.assertEqual(off, stopped['spec']['runStrategy'])
            self.system().reset_system(sushy.RESET_ON)
            self.sandbox.wait_running(self.name)
            self.assertEqual(strategy, self.sandbox.vm(self.name)['spec'][
                'runStrategy'])

    def test_power_keeps_running_field(self):
        """A VM with the deprecated field ``running`` keeps it."""
        self.make(None, running=False)
        self.ipmi('power', 'on')
        self.sandbox.wait_running(self.name)
        spec = self.sandbox.vm(self.name)['spec']
        self.assertTrue(spec['running'])
        self.assertNotIn('runStrategy', spec)
        self.system().reset_system(sushy.RESET_FORCE_OFF)
        self.sandbox.wait_stopped(self.name)
        self.assertFalse(self.sandbox.vm(self.name)['spec']['running'])

    def test_crashed_guest_restarts(self):
        self.make()
        self.ipmi('power', 'on')
        self.sandbox.wait_running(self.name)
        self.sandbox.guest_does(self.name, 'crash')
        self.sandbox.wait_boot(self.name, 2)
        self.sandbox.wait_running(self.name)
        self.wait_power(sushy.POWER_STATE_ON, 'on')

    def stopped_entries(self):
        """List (Severity, Message) of KubeVirt's entries about stops."""
        return [(entry['Severity'], entry['Message'])
                for entry in self.entries()
                if 'VirtualMachineInstance' in entry['Message']
                and '(Stopped)' in entry['Message']]

    def test_forced_restarts_are_logged_as_no_crash(self):
        """KubeVirt says "crashed" of a guest that it ends after 1 s."""
        crash = '(?i)Stopped .*non-critical'
        self.make()
        self.sandbox.patch('virtualmachines', self.name, {
            'spec': {'template': {'metadata': {'annotations': {
                'sandbox.sushy-kubevirt/ignore-acpi': 'true'}}}}})
        self.ipmi('power', 'on')
        self.sandbox.wait_running(self.name)
        for restart in (
                lambda: self.system().reset_system(sushy.RESET_FORCE_RESTART),
                lambda: self.emulator.reset(
                    machines.uuid_of(self.vm), 'PowerCycle'),
                lambda: self.ipmi('power', 'reset'),
                lambda: self.ipmi('power', 'cycle')):
            uid = self.sandbox.vmi(self.name)['metadata']['uid']
            restart()
            self.sandbox.wait_running(self.name, other_than=uid)
        events = [event for event in self.sandbox.list('events')
                  if event['involvedObject']['name'] == self.name
                  and 'crashed' in event['message']]
        self.assertEqual(['Warning'] * 4, [
            event['type'] for event in events])
        self.until(lambda: len(self.stopped_entries()) == 4)
        for severity, message in self.stopped_entries():
            self.assertEqual('OK', severity)
            self.assertNotIn('crashed', message)
        self.assertNotRegex(self.ipmi('sel', 'elist'), crash)
        self.sandbox.guest_does(self.name, 'crash')
        [(severity, message)] = self.until(lambda: [
            entry for entry in self.stopped_entries()
            if 'crashed' in entry[1]])
        self.assertEqual('Warning', severity)
        self.until(lambda: re.search(crash, self.ipmi('sel', 'elist')),
                   describe=lambda: self.ipmi('sel', 'elist')[-600:])

    def test_ipmi_ends_a_paused_guest(self):
        """At once, and not half a minute after its grace period."""
        self.make()
        self.sandbox.patch('virtualmachines', self.name, {
            'spec': {'template': {'spec': {
                'terminationGracePeriodSeconds': 60}}}})
        self.ipmi('power', 'on')
        self.sandbox.wait_running(self.name)
        for words in ('reset', 'cycle', 'soft', 'off'):
            uid = self.sandbox.vmi(self.name)['metadata']['uid']
            self.emulator.reset(machines.uuid_of(self.vm), 'Pause')
            self.ipmi('power', words)
            if words in ('soft', 'off'):
                self.sandbox.wait_stopped(self.name)
                self.wait_power(sushy.POWER_STATE_OFF, 'off')
                self.ipmi('power', 'on')
            self.sandbox.wait_running(self.name, other_than=uid)
            self.wait_power(sushy.POWER_STATE_ON, 'on')

    def entries(self):
        """Read the system's log."""
        return self.emulator.request(
            'GET', f'/redfish/v1/Systems/{machines.uuid_of(self.vm)}'
            '/LogServices/Events/Entries', expect=200).json()['Members']

    def test_io_error(self):
        """It pauses the guest, which goes on when it is resumed."""
        self.make()
        self.ipmi('power', 'on')
        self.sandbox.wait_running(self.name)
        self.wait_power(sushy.POWER_STATE_ON, 'on')
        self.assertIn('Drive Fault          : false',
                      self.ipmi('chassis', 'status'))
        self.sandbox.guest_does(self.name, 'io-error')

        def system():
            return self.emulator.system(machines.uuid_of(self.vm))

        self.until(lambda: system()['Status']['Health'] == 'Critical')
        self.assertEqual(('Paused', 'Quiesced'), (
            system()['PowerState'], system()['Status']['State']))
        [condition] = system()['Status']['Conditions']
        self.assertIn('PausedIOError', condition['Message'])
        self.until(lambda: 'Drive Fault          : true'
                   in self.ipmi('chassis', 'status'))
        self.assertRegex(self.ipmi('sdr', 'elist'), 'Disks .*Drive Fault')
        self.until(lambda: any(
            entry['MessageId'].endswith('SystemImpaired')
            and entry['Severity'] == 'Critical' for entry in self.entries()))
        self.ipmi('power', 'on')
        self.wait_power(sushy.POWER_STATE_ON, 'on')
        self.assertEqual('OK', system()['Status']['Health'])
        self.until(lambda: 'Drive Fault          : false'
                   in self.ipmi('chassis', 'status'))

    def test_log_says_why_the_launcher_does_not_start(self):
        self.make()
        self.sandbox.patch('virtualmachines', self.name, {
            'spec': {'template': {'spec': {'nodeSelector': {
                'no-node': 'has-this-label'}}}}})
        self.ipmi('power', 'on')
        self.until(lambda: any(
            '(FailedScheduling)' in entry['Message']
            and entry['Severity'] == 'Warning' for entry in self.entries()))
        self.until(lambda: 'FailedScheduling' in self.ipmi('sel', 'elist'))

    def test_paused_is_on_for_ipmi(self):
        self.make()
        self.ipmi('power', 'on')
        self.sandbox.wait_running(self.name)
        self.emulator.reset(machines.uuid_of(self.vm), 'Pause')
        self.until(lambda: self.emulator.system(
            machines.uuid_of(self.vm))['PowerState'] == 'Paused')
        self.until(lambda: self.status().endswith('on'),
                   describe=self.status)
        self.emulator.reset(machines.uuid_of(self.vm), 'Resume')
        self.wait_power(sushy.POWER_STATE_ON, 'on')

    def test_recreated_vm(self):
        self.make()
        self.ipmi('power', 'on')
        self.sandbox.wait_running(self.name)
        self.sandbox.delete('virtualmachines', self.name)
        self.sandbox.wait('virtualmachines', self.name,
                          lambda vm: vm is None)
        self.vm = self.sandbox.create('virtualmachines', machines.vm(
            self.name, 'Halted'))
        self.wait_visible()
        self.wait_power(sushy.POWER_STATE_OFF, 'off')
        self.ipmi('power', 'on')
        self.sandbox.wait_running(self.name)
        self.wait_power(sushy.POWER_STATE_ON, 'on')

    def test_persistent_override_set_by_ipmi_removed_by_redfish(self):
        self.make()
        self.ipmi('chassis', 'bootdev', 'pxe', 'options=persistent')
        self.wait_override(sushy.BOOT_SOURCE_TARGET_PXE,
                           sushy.BOOT_SOURCE_ENABLED_CONTINUOUS)
        self.ipmi('power', 'on')
        self.assertEqual('Pxe', self.sandbox.wait_boot(self.name, 1)['class'])
        self.ipmi('power', 'cycle')
        self.assertEqual('Pxe', self.sandbox.wait_boot(self.name, 2)['class'])
        self.system().set_system_boot_options(
            enabled=sushy.BOOT_SOURCE_ENABLED_DISABLED)
        self.wait_boot_parameter('No override')
        self.ipmi('power', 'cycle')
        self.assertEqual('Hdd', self.sandbox.wait_boot(self.name, 3)['class'])

    def test_reads_make_no_api_call(self):
        self.make()
        self.ipmi('power', 'on')
        self.sandbox.wait_running(self.name)
        path = '/redfish/v1/Systems/' + machines.uuid_of(self.vm)
        paths = [path + part for part in (
            '', '/EthernetInterfaces', '/SimpleStorage', '/Processors',
            '/BIOS', '/SecureBoot')] + ['/redfish/v1/Systems']
        for path in paths:
            self.emulator.request('GET', path, expect=200)
        self.wait_restored()
        self.sandbox.reset_stats()
        for path in paths * 3:
            self.emulator.request('GET', path, expect=200)
        self.ipmi('power', 'status')
        self.boot_parameter()
        self.assertEqual({}, self.sandbox.calls())


class Once:
    """Mixin with tests that pass with and without gate RebootPolicy."""

    def test_override_set_by_redfish_started_by_ipmi(self):
        self.make()
        self.once()
        self.wait_boot_parameter('Boot Flag Valid', 'only next boot',
                                 'Force PXE')
        self.assertIn('bootOrder', self.kubectl(
            'get', 'vm', self.name, '-o', 'yaml'))
        self.ipmi('power', 'on')
        self.assertEqual('Pxe', self.sandbox.wait_boot(self.name, 1)['class'])
        self.wait_restored()
        self.assertNotIn('bootOrder', self.kubectl(
            'get', 'vm', self.name, '-o', 'yaml'))
        self.wait_boot_parameter('No override')
        self.ipmi('power', 'reset')
        self.assertEqual('Hdd', self.sandbox.wait_boot(self.name, 2)['class'])
        self.wait_removed()

    def test_override_set_by_ipmi_started_by_redfish(self):
        self.make()
        self.ipmi('chassis', 'bootdev', 'cdrom', 'options=efiboot')
        boot = self.wait_override(sushy.BOOT_SOURCE_TARGET_CD,
                                  sushy.BOOT_SOURCE_ENABLED_ONCE)
        self.assertEqual(sushy.BOOT_SOURCE_MODE_UEFI, boot.mode)
        self.system().reset_system(sushy.RESET_ON)
        first = self.sandbox.wait_boot(self.name, 1)
        self.assertEqual(('Cd', 'efi'), (first['class'], first['firmware']))
        self.wait_restored()
        self.system().reset_system(sushy.RESET_FORCE_RESTART)
        second = self.sandbox.wait_boot(self.name, 2)
        self.assertEqual(('Hdd', 'bios'),
                         (second['class'], second['firmware']))
        self.wait_removed()

    def test_ipmi_replaces_override_of_redfish(self):
        self.make()
        self.once()
        self.ipmi('chassis', 'bootdev', 'cdrom')
        self.wait_override(sushy.BOOT_SOURCE_TARGET_CD,
                           sushy.BOOT_SOURCE_ENABLED_ONCE)
        self.ipmi('power', 'on')
        self.assertEqual('Cd', self.sandbox.wait_boot(self.name, 1)['class'])
        # The original order is restored, not the first override.
        self.wait_restored()

    def test_override_does_not_change_power_state(self):
        self.make()
        self.once()
        self.ipmi('chassis', 'bootdev', 'cdrom')
        vm = self.sandbox.vm(self.name)
        self.assertEqual('Halted', vm['spec']['runStrategy'])
        self.assertIsNone(self.sandbox.vmi(self.name))
        self.ipmi('power', 'on')
        self.sandbox.wait_boot(self.name, 1)
        self.wait_restored()
        self.ipmi('power', 'off')
        self.sandbox.wait_stopped(self.name)
        self.once()
        # Under RerunOnFailure, too, the override must not start the VM.
        self.assertIsNone(self.sandbox.vmi(self.name))
        self.assertEqual(1, len(self.boots()))

    def test_override_on_running_machine(self):
        self.make()
        self.ipmi('power', 'on')
        before = self.sandbox.wait_running(self.name)
        self.once()
        self.assertEqual(before['metadata']['uid'],
                         self.sandbox.guest(self.name)['vmi'])
        self.ipmi('power', 'cycle')
        self.sandbox.wait_boot(self.name, 2)
        self.sandbox.wait_running(self.name)
        self.ipmi('power', 'cycle')
        self.sandbox.wait_boot(self.name, 3)
        self.wait_removed()
        self.assertEqual(['Hdd', 'Pxe', 'Hdd'], self.boots())

    def test_emulator_killed_before_boot(self):
        """The other BMC restores what the killed one changed."""
        self.make()
        self.once()
        self.emulator.process.kill()
        self.addCleanup(self.restart_emulator)
        self.ipmi('power', 'on')
        self.assertEqual('Pxe', self.sandbox.wait_boot(self.name, 1)['class'])
        self.wait_restored()
        self.ipmi('power', 'reset')
        self.assertEqual('Hdd', self.sandbox.wait_boot(self.name, 2)['class'])

    def test_all_bmcs_killed_before_boot(self):
        """A BMC that starts after the boot restores the original spec."""
        self.make()
        self.once()
        self.emulator.process.kill()
        self.vbmcd.process.cleanUp()
        self.kubectl('patch', 'vm', self.name, '--type=merge', '-p',
                     '{"spec": {"runStrategy": "RerunOnFailure"}}')
        self.assertEqual('Pxe', self.sandbox.wait_boot(
            self.name, 1)['class'])
        # No BMC is running that could restore it.
        self.assertNotEqual(
            self.vm['spec']['template'],
            self.sandbox.vm(self.name)['spec']['template'])
        # The emulator restores it without any request.
        self.restart_emulator()
        self.wait_restored()
        self.vbmcd.process.setUp()
        self.system().reset_system(sushy.RESET_FORCE_RESTART)
        self.assertEqual('Hdd', self.sandbox.wait_boot(
            self.name, 2)['class'])
        self.wait_removed()


class OnceWithRebootPolicyTestCase(Once, bmcs_case.BmcsTestCase):

    GATES = {'on': ['RebootPolicy']}

    def test_guest_reboot_after_one_time_boot(self):
        self.make()
        self.once()
        self.ipmi('power', 'on')
        first = self.sandbox.wait_boot(self.name, 1)
        self.wait_restored()
        self.sandbox.wait_running(self.name)
        self.sandbox.guest_does(self.name, 'reboot')
        second = self.sandbox.wait_boot(self.name, 2)
        self.assertEqual(['Pxe', 'Hdd'], self.boots())
        self.assertNotEqual(first['vmi'], second['vmi'])
        # Policy and run strategy are restored while the guest runs.
        self.wait_removed()
        self.assertEqual(second['vmi'], self.sandbox.guest(self.name)['vmi'])
        # Now a reboot by the guest keeps the VMI again,
        self.sandbox.wait_running(self.name)
        self.sandbox.guest_does(self.name, 'reboot')
        self.assertEqual(second['vmi'],
                         self.sandbox.wait_boot(self.name, 3)['vmi'])
        # and a shutdown leaves the VM off.
        self.sandbox.guest_does(self.name, 'shutdown')
        self.sandbox.wait_stopped(self.name)
        self.assertEqual(3, len(self.boots()))

    def test_power_off_in_one_time_boot(self):
        self.make()
        self.once()
        self.ipmi('power', 'on')
        self.sandbox.wait_boot(self.name, 1)
        self.ipmi('power', 'off')
        self.sandbox.wait_stopped(self.name)
        stopped = self.wait_restored()
        self.assertNotEqual('Always', stopped['spec']['runStrategy'])
        self.system().reset_system(sushy.RESET_ON)
        self.sandbox.wait_boot(self.name, 2)
        self.wait_removed()
        self.assertEqual(['Pxe', 'Hdd'], self.boots())

    def test_guest_shutdown_in_one_time_boot(self):
        """A known cost: the guest is started again, with its own order."""
        self.make()
        self.once()
        self.ipmi('power', 'on')
        self.sandbox.wait_boot(self.name, 1)
        self.wait_restored()
        self.sandbox.wait_running(self.name)
        self.sandbox.guest_does(self.name, 'shutdown')
        self.sandbox.wait_boot(self.name, 2)
        self.assertEqual(['Pxe', 'Hdd'], self.boots())
        self.wait_removed()


class OnceWithoutRebootPolicyTestCase(Once, bmcs_case.BmcsTestCase):

    GATES = {'off': ['RebootPolicy']}

    def test_guest_reboot_after_one_time_boot(self):
        self.make()
        self.once()
        self.ipmi('power', 'on')
        first = self.sandbox.wait_boot(self.name, 1)
        self.wait_restored()
        self.sandbox.wait_running(self.name)
        self.sandbox.guest_does(self.name, 'reboot')
        # The VMI stays, and with it its boot order.
        self.assertEqual(first['vmi'],
                         self.sandbox.wait_boot(self.name, 2)['vmi'])
        self.ipmi('power', 'cycle')
        self.sandbox.wait_boot(self.name, 3)
        self.assertEqual(['Pxe', 'Pxe', 'Hdd'], self.boots())

    def test_guest_shutdown_in_one_time_boot(self):
        self.make()
        self.once()
        self.ipmi('power', 'on')
        self.sandbox.wait_boot(self.name, 1)
        self.sandbox.wait_running(self.name)
        self.sandbox.guest_does(self.name, 'shutdown')
        self.sandbox.wait_stopped(self.name)
        self.wait_removed()
        self.assertEqual(['Pxe'], self.boots())


class IdentityTestCase(bmcs_case.BmcsTestCase):

    def test_serial_number(self):
        """Redfish and the FRU have the serial number of the guest's SMBIOS."""
        self.make()
        firmware = self.vm['spec']['template']['spec']['domain']['firmware']
        self.assertNotEqual(firmware['uuid'], firmware['serial'])
        body = self.emulator.system(machines.uuid_of(self.vm))
        chassis = self.emulator.request(
            'GET', body['Links']['Chassis'][0]['@odata.id'],
            expect=200).json()
        self.assertEqual([firmware['serial']] * 2, [
            body['SerialNumber'], chassis['SerialNumber']])
        fru = self.ipmi('fru', 'print')
        for field in 'Board Serial', 'Product Serial':
            self.assertRegex(fru, f"{field} *: {firmware['serial']}\n")
