# SPDX-License-Identifier: Apache-2.0
from sushy_kubevirt.machine import inventory
from tests.unit.vbmc import bmc_case


class SystemInfoTest(bmc_case.BmcTestCase):

    def read(self, block, parameter=2):
        return self.ask(6, 0x59, 0, parameter, block, 0)

    def test_system_name_in_blocks(self):
        for name in 'lab/vm', 'lab/' + 'n' * 10, 'lab/' + 'n' * 63, 'ü' * 200:
            self.machine.qualified_name = name
            data = b''
            block = 0
            while (answer := self.read(block))[0] == 0:
                self.assertEqual((0x11, block, 18), (
                    *answer[1][:2], len(answer[1])))
                data += answer[1][2:]
                block += 1
            self.assertEqual((0xC9, b''), answer)
            self.assertEqual(1, data[0])
            self.assertEqual(name[:127] if 'ü' in name else name,
                             data[2:2 + data[1]].decode())
            self.assertEqual(b'', data[2 + data[1]:].strip(b'\0'))
            self.assertEqual(-(-(data[1] + 2) // 16), block)

    def test_firmware_version(self):
        self.machine.inventory.return_value = inventory.Inventory(
            inventory.Cpus(1), 0, firmware='efi', kubevirt_version='v1.9.0')
        self.assertEqual((0, b'\x11\0\1\x17UEFI of KubeVi'), self.read(0, 1))
        self.assertEqual((0, b'\x11\1rt v1.9.0' + bytes(7)), self.read(1, 1))

    def test_parameters_are_read_only(self):
        self.assertEqual((0, b'\x11'), self.ask(6, 0x59, 0x80, 2, 0, 0))
        for parameter in 1, 2:
            self.assertEqual((0x82, b''), self.ask(
                6, 0x58, parameter, 0, 1, 1, 97))
        for parameter in {*range(256)} - {0, 1, 2}:
            self.assertEqual((0x80, b''), self.read(0, parameter))
            self.assertEqual((0x80, b''), self.ask(6, 0x58, parameter, 1))

    def test_set_in_progress(self):
        self.assertEqual((0, b'\x11\0'), self.read(0, 0))
        self.assertEqual((0, b''), self.ask(6, 0x58, 0, 1))
        self.assertEqual((0, b'\x11\1'), self.read(0, 0))
        self.assertEqual((0x81, b''), self.ask(
            6, 0x58, 0, 1, session=bmc_case.Session()))
        self.assertEqual((0xC7, b''), self.ask(6, 0x58, 0))
