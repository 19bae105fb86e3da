# SPDX-License-Identifier: Apache-2.0
"""IPMI commands, sent by ``ipmitool`` to the BMCs of the installed ``vbmc``.

The guest's boot record decides whether a boot step worked.
"""

import time

from kubevirt_sandbox.testing import given_cluster
from tests.fixtures import ipmi_case
from tests.fixtures import sandbox
from tests.fixtures import vbmcd

# A guest with the QEMU guest agent.
AGENT = {'sandbox.sushy-kubevirt/guest-agent': 'true'}


class IpmiTestCase(ipmi_case.IpmiTestCase):

    def flags(self):
        """Return the first byte of the boot flags and the device selector."""
        for line in self.ipmi('chassis', 'bootparam', 'get',
                              '5').splitlines():
            if 'parameter data' in line:
                data = bytes.fromhex(line.split()[-1])
                self.assertEqual(5, len(data))
                return data[0], data[1] >> 2


class PowerTest(IpmiTestCase):

    def test_power_on_and_off_are_idempotent(self):
        name = self.bmc()
        self.wait_power('off')
        for _ in range(2):
            self.assertEqual('Chassis Power Control: Up/On',
                             self.ipmi('power', 'on'))
        self.wait_power('on')
        self.sandbox.wait_boot(name, 1)
        self.assertEqual('RerunOnFailure',
                         self.sandbox.vm(name)['spec']['runStrategy'])
        for _ in range(2):
            self.assertEqual('Chassis Power Control: Down/Off',
                             self.ipmi('power', 'off'))
        self.wait_power('off')
        self.sandbox.wait_stopped(name)
        self.assertEqual(1, len(self.sandbox.boots(name)))

    def test_power_soft(self):
        name = self.bmc('RerunOnFailure')
        self.wait_power('on')
        self.assertEqual('Chassis Power Control: Soft',
                         self.ipmi('power', 'soft'))
        self.wait_power('off')
        self.sandbox.wait_stopped(name)
        self.assertEqual('Chassis Power Control: Soft',
                         self.ipmi('power', 'soft'))

    def test_cycle_and_reset_start_new_vmi(self):
        name = self.bmc('RerunOnFailure')
        for count, (word, answer) in enumerate(
                (('cycle', 'Cycle'), ('reset', 'Reset')), 2):
            before = self.sandbox.vmi(name)['metadata']['uid']
            self.assertEqual(f'Chassis Power Control: {answer}',
                             self.ipmi('power', word))
            self.sandbox.wait_running(name, other_than=before)
            self.sandbox.wait_boot(name, count)
            self.wait_power('on')
        self.assertEqual(3, len(self.sandbox.boots(name)))

    def test_cycle_and_reset_fail_while_off(self):
        name = self.bmc()
        for word in 'cycle', 'reset':
            self.assertIn('not supported in present state',
                          self.refused('power', word))
        self.assertEqual([], self.sandbox.boots(name))
        self.wait_power('off')

    def test_diagnostic_interrupt_is_disabled(self):
        self.bmc('RerunOnFailure')
        self.assertIn('command disabled', self.refused('power', 'diag'))

    def test_chassis_status(self):
        self.bmc()
        status = self.ipmi('chassis', 'status')
        self.assertRegex(status, r'System Power +: off')
        self.assertRegex(status, r'Power Control Fault +: false')
        self.assertRegex(status, r'Power Restore Policy +: previous')

    def test_power_status_follows_guest_shutdown(self):
        name = self.bmc('RerunOnFailure')
        self.sandbox.guest_does(name, 'shutdown')
        self.wait_power('off')
        self.ipmi('power', 'on')
        self.wait_power('on')


class BootTest(IpmiTestCase):

    def test_bootdev_applies_once(self):
        name = self.bmc()
        self.assertEqual((0, 0), self.flags())
        for device, number, kind in (('pxe', 1, 'Pxe'), ('cdrom', 5, 'Cd'),
                                     ('disk', 2, 'Hdd')):
            count = len(self.sandbox.boots(name))
            self.assertEqual(f'Set Boot Device to {device}',
                             self.ipmi('chassis', 'bootdev', device))
            self.assertEqual((0x80, number), self.flags())
            self.ipmi('power', 'cycle' if count else 'on')
            boot = self.sandbox.wait_boot(name, count + 1)
            self.assertEqual(kind, boot['class'])
            self.wait_flags(0, 0)
            self.wait_power('on')
        self.ipmi('power', 'cycle')
        self.assertEqual('Hdd', self.sandbox.wait_boot(name, 4)['class'])

    def wait_flags(self, flags, device):
        self.until(lambda: self.flags() == (flags, device))

    def test_persistent_bootdev_lasts(self):
        name = self.bmc()
        self.ipmi('chassis', 'bootdev', 'pxe', 'options=persistent')
        self.assertEqual((0xC0, 1), self.flags())
        for count in 1, 2:
            self.ipmi('power', 'on' if count == 1 else 'cycle')
            self.assertEqual('Pxe',
                             self.sandbox.wait_boot(name, count)['class'])
            self.assertEqual((0xC0, 1), self.flags())
            self.wait_power('on')
        self.ipmi('chassis', 'bootdev', 'none')
        self.assertEqual((0, 0), self.flags())
        self.ipmi('power', 'cycle')
        self.assertEqual('Hdd', self.sandbox.wait_boot(name, 3)['class'])

    def test_persistent_efi_boot(self):
        name = self.bmc()
        self.ipmi('chassis', 'bootdev', 'disk', 'options=persistent,efiboot')
        self.assertEqual((0xE0, 2), self.flags())
        self.ipmi('power', 'on')
        boot = self.sandbox.wait_boot(name, 1)
        self.assertEqual(('efi', 'Hdd'), (boot['firmware'], boot['class']))
        # Without the EFI bit the firmware is not changed.
        self.ipmi('chassis', 'bootdev', 'cdrom', 'options=persistent')
        self.assertEqual((0xE0, 5), self.flags())

    def test_one_time_efi_boot(self):
        name = self.bmc()
        self.ipmi('chassis', 'bootdev', 'pxe', 'options=efiboot')
        self.assertEqual((0xA0, 1), self.flags())
        self.ipmi('power', 'on')
        boot = self.sandbox.wait_boot(name, 1)
        self.assertEqual(('efi', 'Pxe'), (boot['firmware'], boot['class']))
        self.wait_flags(0, 0)

    def test_raw_boot_flags_of_ironic(self):
        self.bmc()
        self.ipmi('raw', '0x00', '0x08', '0x03', '0x08')
        self.ipmi('raw', '0x00', '0x08', '0x05', '0xe0', '0x04', '0x00',
                  '0x00', '0x00')
        self.assertEqual((0xE0, 1), self.flags())

    def test_cleared_valid_bit_removes_override(self):
        self.bmc()
        self.ipmi('chassis', 'bootdev', 'pxe')
        self.ipmi('raw', '0x00', '0x08', '0x05', '0x00', '0x00', '0x00',
                  '0x00', '0x00')
        self.assertEqual((0, 0), self.flags())

    def test_unsupported_devices_are_refused(self):
        self.bmc()
        for device in 'safe', 'diag', 'bios':
            self.assertIn('Invalid data field in request',
                          self.refused('chassis', 'bootdev', device))
        self.assertEqual((0, 0), self.flags())

    def test_floppy_is_the_usb_stick(self):
        self.bmc()
        self.ipmi('chassis', 'bootdev', 'floppy')
        self.assertEqual((0x80, 15), self.flags())

    def test_missing_device_is_refused(self):
        name = self.bmc()
        spec = '/spec/template/spec/'
        self.sandbox.patch('virtualmachines', name, [
            {'op': 'remove', 'path': spec + 'domain/devices/interfaces'},
            {'op': 'remove', 'path': spec + 'networks'},
            {'op': 'add', 'path': spec + 'domain/devices/'
             'autoattachPodInterface', 'value': False}])
        self.assertIn('Invalid data field in request',
                      self.refused('chassis', 'bootdev', 'pxe'))

    def test_other_boot_parameters(self):
        self.bmc()
        self.assertIn('set complete',
                      self.ipmi('chassis', 'bootparam', 'get', '0'))
        self.assertIn("Don't clear valid bit",
                      self.ipmi('chassis', 'bootparam', 'get', '3'))
        self.assertIn('Boot parameter 4 is valid',
                      self.ipmi('chassis', 'bootparam', 'get', '4'))
        self.assertIn('Unsupported parameter',
                      self.refused('chassis', 'bootparam', 'get', '7'))


class DeviceTest(IpmiTestCase):

    def test_mc_info_and_guid(self):
        self.bmc()
        self.assertRegex(self.ipmi('mc', 'info'),
                         r'(?s)IPMI Version +: 2\.0.*Chassis Device')
        firmware = self.vm['spec']['template']['spec']['domain']['firmware']
        self.assertRegex(self.ipmi('mc', 'guid'),
                         f"System GUID +: {firmware['uuid']}")

    @given_cluster.needs_sandbox('a guest agent')
    def test_system_info(self):
        """Each name that ipmitool reads, known, written and too long."""
        name = self.bmc('RerunOnFailure', AGENT)
        known = {'system_name': f'{sandbox.NAMESPACE}/{name}',
                 'primary_os_name': 'Debian GNU/Linux 13 (trixie)',
                 'os_name': 'Debian GNU/Linux 13 (trixie)'}
        for parameter, text in known.items():
            self.until(lambda: self.ipmi('mc', 'getsysinfo', parameter)
                       == text)
            # ipmitool writes at most 62 bytes.
            for written in 'node-7', 'n' * 14, 'n' * 15, 'n' * 62:
                self.ipmi('mc', 'setsysinfo', parameter, written)
                self.assertEqual(written, self.ipmi(
                    'mc', 'getsysinfo', parameter))
        self.assertRegex(self.ipmi('mc', 'getsysinfo', 'system_fw_version'),
                         r'^BIOS of KubeVirt')
        # The exit code is 0 even so.
        self.assertIn('parameter not supported', self.ipmi(
            'mc', 'getsysinfo', 'delloem_url'))
        # Names last, the name of the running system does not.
        self.ipmi('power', 'off')
        self.sandbox.wait_stopped(name)
        self.wait_power('off')
        self.assertEqual(['n' * 62, 'n' * 62, ''], [
            self.ipmi('mc', 'getsysinfo', parameter) for parameter in known])
        self.ipmi('mc', 'setsysinfo', 'system_name', '')
        self.assertEqual(known['system_name'], self.ipmi(
            'mc', 'getsysinfo', 'system_name'))

    def test_cold_reset(self):
        self.bmc('RerunOnFailure')
        self.ipmi('mc', 'reset', 'cold')
        self.wait_power('on')

    def test_power_restore_policy(self):
        name = self.bmc('Halted')
        self.assertIn('always-off always-on previous',
                      self.ipmi('chassis', 'policy', 'list'))
        for policy, words in (('always-on', 'always-on'),
                              ('always-off', 'always-off'),
                              ('previous', 'previous')):
            self.ipmi('chassis', 'policy', policy)
            self.assertRegex(self.ipmi('chassis', 'status'),
                             'Power Restore Policy : ' + words)
            self.wait_power('off')
        self.ipmi('chassis', 'policy', 'always-on')
        self.ipmi('power', 'on')
        self.sandbox.wait_running(name)
        self.assertEqual('Always', self.sandbox.vm(name)['spec'][
            'runStrategy'])

    def test_unsupported_commands_are_invalid(self):
        self.bmc()
        # Chassis Reset, Get DCMI Sensor Info, a command of an OEM.
        for words in (('0x00', '0x03'), ('0x2c', '0x07', '0xdc'),
                      ('0x30', '0x01')):
            self.assertIn('Invalid command', self.refused('raw', *words))

    def test_deleted_vm_is_reported(self):
        name = self.bmc()
        self.sandbox.delete('virtualmachines', name)
        self.sandbox.wait('virtualmachines', name, lambda vm: vm is None)
        deadline = time.monotonic() + 40
        while time.monotonic() < deadline:
            done = vbmcd.ipmitool(self.vbmcd.bmcs[name], 'power', 'status')
            if done.returncode:
                break
        self.assertIn('record not found', done.stdout)
        self.assertIn('no VirtualMachine',
                      self.vbmcd.vbmc('show', name).stdout)


class FaultTest(IpmiTestCase):

    def test_cycle_survives_each_fault_and_happens_once(self):
        name = self.bmc('RerunOnFailure')
        for count, action in enumerate(
                ('409', '429', '500', '503', 'reset', 'drop-after'), 2):
            self.sandbox.fault(action, verb='PUT', where='restart')
            self.ipmi('power', 'cycle')
            self.sandbox.wait_boot(name, count)
            self.wait_power('on')
            self.sandbox.clear_faults()
        self.assertEqual(7, len(self.sandbox.boots(name)))

    def test_outage_gets_node_busy(self):
        self.bmc('RerunOnFailure')
        self.sandbox.outage(12)
        # A response after the outage would be a success.
        self.assertIn('Node busy', self.refused('power', 'off'))
        # Commands that need no API call succeed; power commands do so again
        # after the outage.
        self.ipmi('mc', 'info')
        deadline = time.monotonic() + 40
        while vbmcd.ipmitool(self.vbmcd.bmcs[self.name],
                             'power', 'off').returncode:
            self.assertLess(time.monotonic(), deadline)
        self.wait_power('off')

    def test_slow_write_happens_once(self):
        """ipmitool repeats its request each second; the BMC executes one."""
        name = self.bmc('RerunOnFailure')
        self.sandbox.fault('delay', verb='PUT', where='restart', delay=3)
        self.ipmi('power', 'cycle', options=('-N', '1', '-R', '9'))
        self.sandbox.wait_boot(name, 2)
        self.wait_power('on')
        self.assertEqual(2, len(self.sandbox.boots(name)))

    def test_hanging_api_gets_response(self):
        """The client gets a response before its own timeout."""
        name = self.bmc('RerunOnFailure')
        self.sandbox.fault('hang', verb='PUT', where='stop', count=9)
        self.assertRegex(self.refused('power', 'off'), 'Node busy|Timeout')
        self.sandbox.clear_faults()
        self.ipmi('power', 'off')
        self.sandbox.wait_stopped(name)

    def assert_power_fault(self) -> None:
        """Wait for the power fault of a VM that cannot start."""
        deadline = time.monotonic() + 40
        while 'Power Control Fault  : true' not in (
                status := self.ipmi('chassis', 'status')):
            self.assertLess(time.monotonic(), deadline, status)
        self.assertIn('System Power         : off', status)

    def test_unschedulable_vm_is_power_fault(self):
        self.bmc()
        self.sandbox.patch('virtualmachines', self.name, {
            'spec': {'template': {'spec': {
                'nodeSelector': {'no': 'such-node'}}}}})
        self.ipmi('power', 'on')
        self.assert_power_fault()

    def test_guest_that_the_launcher_cannot_start_is_power_fault(self):
        self.bmc()
        self.sandbox.patch('virtualmachines', self.name, {
            'spec': {'template': {'metadata': {'annotations': {
                'sandbox.sushy-kubevirt/refuse-start': 'no such CPU'}}}}})
        self.ipmi('power', 'on')
        self.assert_power_fault()
        self.assertIn('[Soft-power control failure]',
                      self.ipmi('sensor', 'get', 'Power'))

    def test_cached_reads_make_no_api_call(self):
        self.bmc('RerunOnFailure')
        self.wait_power('on')
        self.sandbox.reset_stats()
        for _ in range(20):
            self.ipmi('power', 'status')
            self.ipmi('chassis', 'bootparam', 'get', '5')
        self.assertEqual({}, self.sandbox.calls())
