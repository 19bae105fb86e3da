# SPDX-License-Identifier: Apache-2.0
import uuid

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import power_state
from tests.unit.vbmc import bmc_case
from vbmc_kubevirt.commands import device


class DeviceTest(bmc_case.BmcTestCase):

    def test_device_id_has_version(self):
        self.assertEqual(
            (0, bytes((0, 0, 3, 0x14, 2, 0x8F, 0, 0, 0, 0, 0,
                       2, 0, 0x08, 0x59))),
            self.ask(6, 1))

    def test_version_is_encoded_in_decimal_digits(self):
        for version, expected in (
                ('1.4.2', (1, 0x04, '02000000')),
                ('0.0.1.dev859', (0, 0x00, '01000859')),
                ('12.34', (12, 0x34, '00000000')),
                ('2', (2, 0x00, '00000000')),
                ('1.2.3.0rc1.dev7', (1, 0x02, '03000007')),
                ('1.2.3rc1', (1, 0x02, '03000000')),
                ('130.100.100.dev10000', (2, 0x00, '00000000'))):
            with self.subTest(version):
                major, minor, auxiliary = device.firmware_revision(version)
                self.assertEqual(expected, (major, minor, auxiliary.hex()))

    def test_guid_is_uuid_of_vm_reversed(self):
        self.assertEqual(bytes(16), self.bmc.guid())
        for command in 0x08, 0x37:
            code, data = self.ask(6, command)
            self.assertEqual((0, uuid.UUID(bmc_case.UUID)),
                             (code, uuid.UUID(bytes=data[::-1])))
            self.assertEqual(data, self.bmc.guid())

    def test_resets_clear_set_in_progress(self):
        for command in 3, 2:
            self.ask(0, 8, 0, 1)
            self.ask(0x0C, 1, 1, 0, 1)
            self.assertEqual((0, b'\x11\1'), self.ask(0x0C, 2, 1, 0, 0, 0))
            self.bmc.server.end_sessions.assert_not_called()
            self.assertEqual((0, b''), self.ask(6, command))
            self.assertEqual((0, bytes((1, 0, 0))), self.ask(0, 9, 0, 0, 0))
            self.assertEqual((0, b'\x11\0'), self.ask(0x0C, 2, 1, 0, 0, 0))
        # Only the cold reset ends sessions.
        self.bmc.server.end_sessions.assert_called_once_with()

    def test_self_test_tells_whether_the_vm_can_be_read(self):
        self.assertEqual((0, b'\x55\0'), self.ask(6, 4))
        self.find.side_effect = errors.Unavailable('away')
        self.assertEqual((0, b'\x57\xa0'), self.ask(6, 4))

    def test_acpi_power_state(self):
        states = {power_state.PowerState.ON: 0x00,
                  power_state.PowerState.PAUSED: 0x08,
                  power_state.PowerState.OFF: 0x06}
        for state in power_state.PowerState:
            self.machine.power_state.return_value = state
            self.assertEqual((0, bytes((states.get(state, 0x2A), 0))),
                             self.ask(6, 7))

    def test_acpi_power_state_cannot_be_set(self):
        for data, code in (((0xFF, 0xFF), 0), ((0x7F, 0x7F), 0),
                           # Bit 7 says whether to set a state.
                           ((0x06, 0x00), 0), ((0x86, 0xFF), 0xCC),
                           ((0xFF, 0x80), 0xCC)):
            self.assertEqual((code, b''), self.ask(6, 6, *data))

    def test_global_enables_have_the_log_only(self):
        self.assertEqual((0, b'\x08'), self.ask(6, 0x2F))
