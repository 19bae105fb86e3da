# SPDX-License-Identifier: Apache-2.0
from sushy_kubevirt.machine import inventory
from sushy_kubevirt.machine import vm_state
from tests.unit.vbmc import bmc_case

BLOCKS = 17


class SystemInfoTest(bmc_case.BmcTestCase):

    def setUp(self):
        super().setUp()
        self.written = {}
        self.machine.system_info.side_effect = (
            lambda name: self.written.get(name, ''))
        self.machine.set_system_info.side_effect = self.written.__setitem__
        self.machine.qualified_name = 'lab/vm'
        self.run_of('run-1')

    def run_of(self, uid, **guest):
        """Let the VM run as another VMI."""
        self.machine.state.return_value = vm_state.VmState(
            {}, {'metadata': {'uid': uid}})
        self.machine.inventory.return_value = inventory.Inventory(
            inventory.Cpus(1), 0, firmware='efi', kubevirt_version='v1.9.0',
            **guest)

    def read(self, block, parameter=2):
        return self.ask(6, 0x59, 0, parameter, block, 0)

    def string(self, parameter=2):
        """Return encoding and text of a parameter, from all its blocks."""
        data = b''
        for block in range(BLOCKS):
            code, answer = self.read(block, parameter)
            self.assertEqual((0, 0x11, block, 18), (
                code, *answer[:2], len(answer)))
            data += answer[2:]
        self.assertEqual((0xC9, b''), self.read(BLOCKS, parameter))
        self.assertEqual(b'', data[2 + data[1]:].strip(b'\0'))
        return data[0], data[2:2 + data[1]].decode()

    def write(self, text, parameter=2, encoding=0, session=None):
        """Write a parameter as ipmitool does.

        :returns: the completion codes of its blocks
        """
        data = bytes((encoding, len(text))) + text
        return [self.ask(6, 0x58, parameter, start // 16,
                         *data[start:start + 16].ljust(16, b'\0'),
                         session=session)[0]
                for start in range(0, len(data), 16)]

    def test_system_name_in_blocks(self):
        for name in '', 'lab/vm', 'lab/' + 'n' * 10, 'lab/' + 'n' * 251:
            self.machine.qualified_name = name
            self.assertEqual((0, name), self.string())
        self.machine.qualified_name = 'ü' * 200
        self.assertEqual((1, 'ü' * 127), self.string())

    def test_firmware_version(self):
        self.assertEqual((0, b'\x11\0\0\x17UEFI of KubeVi'), self.read(0, 1))
        self.assertEqual((0, b'\x11\1rt v1.9.0' + bytes(7)), self.read(1, 1))

    def test_guest_agent_knows_the_operating_system(self):
        self.assertEqual([(0, '')] * 3, [
            self.string(parameter) for parameter in (3, 4, 5)])
        self.run_of('run-1', os_name='Debian\x1b[2J 13', os_version='13')
        self.assertEqual(
            [(0, 'Debian?[2J 13'), (0, 'Debian?[2J 13'), (0, '13')],
            [self.string(parameter) for parameter in (3, 4, 5)])

    def test_written(self):
        for parameter in 2, 3, 4, 5, 6, 7:
            before = self.string(parameter)
            for text in (b'node-7', b'n' * 14, b'n' * 15, b'n' * 255):
                self.assertEqual({0}, {*self.write(text, parameter)})
                self.assertEqual((0, text.decode()), self.string(parameter))
            self.assertEqual([0], self.write(b'', parameter))
            self.assertEqual(before, self.string(parameter))
        self.assertEqual([0], self.write('\xfc'.encode('latin-1')))
        self.assertEqual((1, 'ü'), self.string())
        self.assertEqual([0], self.write('日本'.encode(), encoding=1))
        self.assertEqual((1, '日本'), self.string())
        self.assertEqual([0], self.write('日'.encode('utf-16-le'), encoding=2))
        self.assertEqual((1, '日'), self.string())

    def test_volatile_until_the_next_run(self):
        for parameter in 4, 5:
            self.write(b'Plan 9', parameter)
        self.run_of('run-2', os_name='Debian 13', os_version='13')
        self.assertEqual((0, 'Debian 13'), self.string(4))
        self.assertEqual((0, '13'), self.string(5))
        self.assertEqual({}, self.written)

    def test_short_last_block(self):
        # As bmc-device of FreeIPMI 1.6.10 sends it.
        self.assertEqual((0, b''), self.ask(
            6, 0x58, 6, 0, 0, 16, *b'https://bmc.ex'))
        self.assertEqual({}, self.written)
        self.assertEqual((0, b''), self.ask(6, 0x58, 6, 1, *b'am'))
        self.assertEqual((0, 'https://bmc.exam'), self.string(6))

    def test_refused(self):
        self.assertEqual([0xCC], self.write(b'a\nb'))
        self.assertEqual([0xCC], self.write(b'\xff', encoding=1))
        self.assertEqual([0xCC], self.write(b'a', encoding=3))
        # A block without those before it, or of another session.
        self.assertEqual((0xD5, b''), self.ask(6, 0x58, 7, 1, *b'ab'))
        self.assertEqual((0, b''), self.ask(
            6, 0x58, 7, 0, 0, 60, *b'n' * 14))
        self.assertEqual((0xC9, b''), self.ask(6, 0x58, 7, 2, *b'ab'))
        self.assertEqual((0xD5, b''), self.ask(
            6, 0x58, 7, 1, *b'ab', session=bmc_case.Session()))
        self.assertEqual((0xC9, b''), self.ask(6, 0x58, 7, BLOCKS, *b'ab'))
        for data in (7,), (7, 0), (7, 0, 0), (7, 1):
            self.assertEqual((0xC7, b''), self.ask(6, 0x58, *data))
        self.assertEqual({}, self.written)

    def test_unknown_and_read_only(self):
        self.assertEqual((0, b'\x11'), self.ask(6, 0x59, 0x80, 2, 0, 0))
        self.assertEqual((0x82, b''), self.ask(6, 0x58, 1, 0, 0, 1, 97))
        for parameter in {*range(256)} - {*range(8)}:
            self.assertEqual((0x80, b''), self.read(0, parameter))
            self.assertEqual((0x80, b''), self.ask(6, 0x58, parameter, 1))

    def test_set_in_progress(self):
        self.assertEqual((0, b'\x11\0'), self.read(0, 0))
        self.assertEqual((0, b''), self.ask(6, 0x58, 0, 1))
        self.assertEqual((0, b'\x11\1'), self.read(0, 0))
        self.assertEqual((0x81, b''), self.ask(
            6, 0x58, 0, 1, session=bmc_case.Session()))
        self.assertEqual((0xC7, b''), self.ask(6, 0x58, 0))
