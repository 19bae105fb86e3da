# SPDX-License-Identifier: Apache-2.0
import logging

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import retry
from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine import power_restore_policy
from sushy_kubevirt.machine import power_state
from tests.unit.vbmc import bmc_case
from vbmc_kubevirt.commands import completion
from vbmc_kubevirt.ipmi import constants


class ChassisTest(bmc_case.BmcTestCase):

    def test_chassis_status_has_power_state(self):
        on = {power_state.PowerState.ON, power_state.PowerState.PAUSED,
              power_state.PowerState.POWERING_OFF}
        for state in power_state.PowerState:
            self.machine.power_state.return_value = state
            self.assertEqual(
                (0, bytes((0x60 | (state in on), 0, 0x40, 0))), self.ask(0, 1))

    def test_chassis_status_is_kept_while_version_is_the_same(self):
        on, off = power_state.PowerState.ON, power_state.PowerState.OFF
        for version, state, shown in ((1, on, 1), (1, off, 1), (2, off, 0),
                                      (None, on, 1), (None, off, 0)):
            self.machine.version.return_value = version
            self.machine.power_state.return_value = state
            self.assertEqual((0, bytes((0x60 | shown, 0, 0x40, 0))),
                             self.ask(0, 1))

    def test_chassis_status_of_a_vm_that_is_gone(self):
        self.machine.version.return_value = 1
        self.machine.power_state.return_value = power_state.PowerState.ON
        self.ask(0, 1)
        self.find.side_effect = errors.MachineNotFound('vm')
        self.assertEqual(0, self.ask(0, 1)[0])
        # As it is without the VM.
        self.machine.version.return_value = None
        self.assertEqual((0xCB, b''), self.ask(0, 1))

    def test_power_restore_policy(self):
        self.machine.power_state.return_value = power_state.PowerState.OFF
        for number, name in enumerate(('AlwaysOff', 'LastState',
                                       'AlwaysOn')):
            policy = power_restore_policy.Policy(name)
            self.machine.power_restore_policy.return_value = policy
            self.assertEqual((0, bytes((number << 5, 0, 0x40, 0))),
                             self.ask(0, 1))
            self.assertEqual((0, b'\7'), self.ask(0, 6, number))
            self.machine.set_power_restore_policy.assert_called_with(policy)
        self.machine.set_power_restore_policy.reset_mock()
        # 3 reads the supported policies without a change.
        self.assertEqual((0, b'\7'), self.ask(0, 6, 3))
        for number in range(4, 8):
            self.assertEqual((0xCC, b''), self.ask(0, 6, number))
        self.machine.set_power_restore_policy.assert_not_called()

    def test_start_failure_is_a_power_control_fault(self):
        self.machine.power_state.return_value = power_state.PowerState.OFF
        self.machine.problem.return_value = power_state.Problem(
            'ErrorUnschedulable', 'no node')
        self.assertEqual((0, bytes((0x70, 0, 0x40, 0))), self.ask(0, 1))

    def test_io_error_is_a_drive_fault(self):
        self.machine.power_state.return_value = power_state.PowerState.PAUSED
        for reason, state in ('PausedIOError', 0x44), ('NodeUnresponsive',
                                                       0x40):
            self.machine.impairment.return_value = power_state.Problem(
                reason, 'this is why')
            self.assertEqual((0, bytes((0x61, 0, state, 0))), self.ask(0, 1))

    def test_chassis_control(self):
        for number, value in enumerate((
                'ForceOff', 'On', 'PowerCycle', 'ForceRestart', 'Nmi',
                'GracefulShutdown')):
            self.assertEqual((0, b''), self.ask(0, 2, number))
            self.machine.reset.assert_called_with(
                power_state.ResetType(value), restart_powers_on=False)

    def test_rejects_reserved_chassis_controls(self):
        for number in range(6, 16):
            self.assertEqual((0xCC, b''), self.ask(0, 2, number))
        self.machine.reset.assert_not_called()

    def test_maps_errors_to_completion_codes(self):
        for error, code in (
                (errors.MachineNotFound('vm'), 0xCB),
                (errors.AmbiguousName('vm', ('a/vm', 'b/vm')), 0xCB),
                (errors.WrongState('off'), 0xD5),
                (errors.Rejected('no'), 0xD5),
                (errors.Unsupported('no'), 0xD6),
                (errors.InvalidValue('a', 'b'), 0xCC),
                (errors.AccessDenied('no'), 0xD4),
                (errors.Unavailable('away'), 0xC0),
                (errors.Conflict('again'), 0xC0),
                (errors.ConfigError('no'), 0xCE),
                (errors.ObjectNotFound('what'), 0xFF)):
            self.machine.reset.side_effect = error
            self.assertEqual((code, b''), self.ask(0, 2, 3))
            self.assertEqual(str(error), self.bmc.last_error)
        self.machine.reset.side_effect = None
        self.ask(0, 2, 3)
        self.assertEqual('', self.bmc.last_error)

    def test_every_error_class_has_a_completion_code(self):
        def below(kind):
            yield kind
            for each in kind.__subclasses__():
                yield from below(each)

        for kind in below(errors.MachineError):
            error = kind.__new__(kind)
            self.assertIsInstance(
                completion.code_of(error),
                constants.Completion)

    def test_limits_the_deadlines_of_a_command(self):
        limits = []
        self.machine.reset.side_effect = lambda *_args, **_options: (
            limits.append(retry.limit()))
        self.bmc.write_deadline = 7.0
        self.assertEqual((0, b''), self.ask(0, 2, 3))
        self.assertEqual([7.0], limits)

    def test_logs_repeated_error_once(self):
        self.find.side_effect = errors.Unavailable('away')
        with self.assertLogs('vbmc_kubevirt.bmc', logging.WARNING) as logs:
            for _number in range(5):
                self.assertEqual((0xC0, b''), self.ask(0, 1))
        self.assertEqual(1, len(logs.records))


class BootTest(bmc_case.BmcTestCase):

    def set_flags(self, *data):
        self.machine.set_boot.reset_mock()
        answer = self.ask(0, 8, 5, *data)
        self.assertEqual(b'', answer[1])
        return answer[0]

    def assert_boot_set(self, target, enabled, mode=None):
        self.machine.set_boot.assert_called_once_with(
            target=boot.Target(target), enabled=boot.Enabled(enabled),
            mode=mode and boot.Mode(mode))

    def test_sets_boot_devices(self):
        for device, target in ((1, 'Pxe'), (2, 'Hdd'), (5, 'Cd'), (8, 'Cd'),
                               (7, 'Usb'), (15, 'Usb')):
            self.assertEqual(0, self.set_flags(0x80, device << 2, 0, 0, 0))
            self.assert_boot_set(target, 'Once')
            self.assertEqual(0, self.set_flags(0xC0, device << 2, 0, 0, 0))
            self.assert_boot_set(target, 'Continuous')
            self.assertEqual(0, self.set_flags(0xA0, device << 2, 0, 0, 0))
            self.assert_boot_set(target, 'Once', 'UEFI')
            self.assertEqual(0, self.set_flags(0xE0, device << 2, 0, 0, 0))
            self.assert_boot_set(target, 'Continuous', 'UEFI')

    def test_clears_boot_flags(self):
        for flags, device in ((0x80, 0), (0xC0, 0), (0, 0), (0, 4),
                              (0x60, 4)):
            self.assertEqual(0, self.set_flags(flags, device, 0, 0, 0))
            self.assert_boot_set('None', 'Disabled')

    def test_rejects_other_boot_devices(self):
        for device in set(range(16)) - {0, 1, 2, 5, 7, 8, 15}:
            self.assertEqual(0xCC, self.set_flags(0x80, device << 2, 0, 0, 0))
            self.machine.set_boot.assert_not_called()

    def test_rejects_short_requests(self):
        for length in range(1, 5):
            self.assertEqual(0xC7, self.set_flags(*(0x80, 4, 0, 0)[:length]))
        self.assertEqual((0xC7, b''), self.ask(0, 8, 0))
        self.assertEqual((0xC7, b''), self.ask(0, 8, 3))
        self.assertEqual((0xC7, b''), self.ask(0, 8, 4, 1))
        self.machine.set_boot.assert_not_called()

    def test_rejects_device_that_the_vm_lacks(self):
        self.machine.set_boot.side_effect = errors.InvalidValue(
            'BootSourceOverrideTarget', 'Cd')
        self.assertEqual(0xCC, self.set_flags(0x80, 5 << 2, 0, 0, 0))

    def test_reads_boot_flags(self):
        for target, enabled, mode, flags, device in (
                ('None', 'Disabled', 'Legacy', 0x00, 0),
                ('None', 'Disabled', 'UEFI', 0x20, 0),
                ('Pxe', 'Once', 'Legacy', 0x80, 1),
                ('Hdd', 'Continuous', 'UEFI', 0xE0, 2),
                ('Cd', 'Continuous', 'Legacy', 0xC0, 5),
                ('Usb', 'Once', 'Legacy', 0x80, 15),
                # Set by Redfish: a remotely connected CD.
                ('UefiHttp', 'Once', 'UEFI', 0xA0, 8)):
            self.machine.boot.return_value = boot.BootState(
                boot.Target(target), boot.Enabled(enabled), boot.Mode(mode))
            self.assertEqual(
                (0, bytes((1, 5, flags, device << 2, 0, 0, 0))),
                self.ask(0, 9, 5, 0, 0))

    def test_other_boot_option_parameters(self):
        self.assertEqual((0, b''), self.ask(0, 8, 3, 8))
        self.assertEqual((0, bytes((1, 3, 0x1f))), self.ask(0, 9, 3, 0, 0))
        self.assertEqual((0, b''), self.ask(0, 8, 4, 1, 1))
        self.assertEqual((0, bytes((1, 4, 0, 0))), self.ask(0, 9, 4, 0, 0))
        for parameter in 1, 2, 6, 7, 0x60:
            self.assertEqual((0x80, b''), self.ask(0, 8, parameter, 0, 0))
            self.assertEqual((0x80, b''), self.ask(0, 9, parameter, 0, 0))

    def test_one_client_holds_set_in_progress(self):
        other = bmc_case.Session()
        self.assertEqual((0, b''), self.ask(0, 8, 0, 1))
        self.assertEqual((0, bytes((1, 0, 1))), self.ask(0, 9, 0, 0, 0))
        self.assertEqual((0x81, b''), self.ask(0, 8, 0, 1, session=other))
        self.assertEqual((0, b''), self.ask(0, 8, 0, 2))
        self.assertEqual((0, b''), self.ask(0, 8, 0, 0))
        self.assertEqual((0, b''), self.ask(0, 8, 0, 1, session=other))
        self.assertEqual((0xCC, b''), self.ask(0, 8, 0, 3))

    def test_set_in_progress_ends_with_the_session(self):
        self.ask(0, 8, 0, 1)
        self.session = bmc_case.Session()
        self.assertEqual((0, bytes((1, 0, 0))), self.ask(0, 9, 0, 0, 0))
        self.assertEqual((0, b''), self.ask(0, 8, 0, 1))
