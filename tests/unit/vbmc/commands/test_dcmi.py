# SPDX-License-Identifier: Apache-2.0
from sushy_kubevirt.bmc import event_log
from tests.unit.vbmc import bmc_case


class DcmiTestCase(bmc_case.BmcTestCase):

    def setUp(self):
        super().setUp()
        self.machine.qualified_name = 'lab/vm'
        for name in 'asset_tag', 'controller_name':
            setattr(self, name, '')
            getattr(self.machine, name).side_effect = (
                lambda name=name: getattr(self, name))
            getattr(self.machine, 'set_' + name).side_effect = (
                lambda text, name=name: setattr(self, name, text))

    def dcmi(self, command, *data, **options):
        code, answer = self.ask(0x2C, command, 0xDC, *data, **options)
        self.assertEqual(0xDC, answer[0])
        return code, answer[1:]

    def read(self, command):
        """Read a text as ``ipmitool`` does."""
        code, answer = self.dcmi(command, 0, 0)
        self.assertEqual((0, 1), (code, len(answer)))
        text = b''
        while len(text) < answer[0]:
            code, part = self.dcmi(command, len(text), 16)
            self.assertEqual((0, answer[0]), (code, part[0]))
            text += part[1:]
        return text

    def write(self, command, text):
        for start in range(0, len(text), 16):
            part = text[start:start + 16]
            self.assertEqual((0, bytes((start + len(part),))), self.dcmi(
                command, start, len(part), *part))


class CapabilitiesTest(DcmiTestCase):

    def test_capabilities(self):
        most = 0x8000 | event_log.MAX_ENTRIES
        for parameter, data in (
                (1, bytes(3)), (2, most.to_bytes(2, 'little') + b'\4\0\0'),
                (3, bytes(2)), (4, b'\1\xff\xff'), (5, b'\0')):
            self.assertEqual((0, b'\1\5\2' + data), self.dcmi(1, parameter))
        for parameter in 0, 6, 255:
            self.assertEqual((0xCC, b''), self.dcmi(1, parameter))

    def test_rejects_other_group_extensions(self):
        for group in 0, 1, 0x52, 0xDD:
            self.assertEqual((0xC1, bytes((group,))),
                             self.ask(0x2C, 1, group, 1))


class AssetTagTest(DcmiTestCase):

    def test_shares_the_tag_with_redfish(self):
        for text in ('', 'rack 7', 'x' * 16, 'x' * 17, 'x' * 63):
            self.asset_tag = text
            self.assertEqual(text.encode(), self.read(6))
            self.asset_tag = 'old'
            self.write(8, text.encode() or b'')
            self.assertEqual(text or 'old', self.asset_tag)
        # A part of no length at the beginning removes the tag.
        self.assertEqual((0, b'\0'), self.dcmi(8, 0, 0))
        self.assertEqual('', self.asset_tag)
        # So do 63 NULs.
        self.asset_tag = 'old'
        self.write(8, bytes(63))
        self.assertEqual('', self.asset_tag)

    def test_other_characters_have_a_byte_order_mark(self):
        mark = b'\xef\xbb\xbf'
        for text in 'Büro', 12 * 'x' + 'ü' * 24:
            self.asset_tag = ''
            self.write(8, mark + text.encode())
            self.assertEqual(text, self.asset_tag)
            self.assertEqual(mark + text.encode(), self.read(6))

    def test_character_that_a_client_cut_off_is_left_out(self):
        for end in (0xc3,), (0xc3, 0, 0):
            self.asset_tag = ''
            self.assertEqual(0, self.dcmi(8, 0, 1 + len(end), 97, *end)[0])
            self.assertEqual('a', self.asset_tag)

    def test_long_tag_is_cut(self):
        self.asset_tag = 'x' * 255
        self.assertEqual(b'x' * 63, self.read(6))
        self.asset_tag = 'ü' * 255
        self.assertEqual(b'\xef\xbb\xbf' + 'ü'.encode() * 30, self.read(6))

    def test_control_characters_are_replaced(self):
        self.asset_tag = '\x1b[31m\0'
        self.assertEqual(b'?[31m?', self.read(6))

    def test_rejects_invalid_parts(self):
        self.asset_tag = 'abc'
        for data, code in (((0, 17, *bytes(17)), 0xC9), ((63, 1, 97), 0xC9),
                           ((0, 2, 97), 0xC7), ((1, 1, 97), 0xD5),
                           ((0, 1, 7), 0xCC), ((0, 2, 0xff, 97), 0xCC)):
            self.assertEqual((code, b''), self.dcmi(8, *data), data)
        for data in (4, 1), (0, 17), (255, 255):
            self.assertEqual((0xC9, b''), self.dcmi(6, *data))
        self.assertEqual('abc', self.asset_tag)

    def test_parts_belong_to_one_session(self):
        self.assertEqual((0, b'\2'), self.dcmi(8, 0, 2, 97, 98))
        other = bmc_case.Session()
        self.assertEqual((0xD5, b''), self.dcmi(8, 2, 1, 99, session=other))
        self.assertEqual((0xC9, b''), self.dcmi(8, 3, 1, 99))
        self.assertEqual((0, b'\3'), self.dcmi(8, 2, 1, 99))
        self.assertEqual('abc', self.asset_tag)


class IdentifierTest(DcmiTestCase):

    def test_is_the_vm_until_it_is_set(self):
        self.assertEqual(b'lab/vm\0', self.read(9))
        self.write(10, b'controller 7\0')
        self.assertEqual('controller 7', self.controller_name)
        self.assertEqual(b'controller 7\0', self.read(9))

    def test_end_completes_it(self):
        name = 'ü' + 'n' * 61
        self.assertEqual((0, b'\5'), self.dcmi(10, 0, 5, *b'short'))
        self.assertEqual('', self.controller_name)
        self.write(10, name.encode() + b'\0')
        self.assertEqual(name, self.controller_name)
        self.assertEqual(name.encode() + b'\0', self.read(9))

    def test_rejects_text_without_end_or_not_printable(self):
        for start in 0, 16, 32:
            self.assertEqual(0, self.dcmi(10, start, 16, *b'n' * 16)[0])
        self.assertEqual((0xC9, b''), self.dcmi(10, 48, 16, *b'n' * 16))
        self.assertEqual((0xCC, b''), self.dcmi(10, 0, 2, 7, 0))
        self.assertEqual('', self.controller_name)
