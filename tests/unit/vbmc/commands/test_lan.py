# SPDX-License-Identifier: Apache-2.0
from unittest import mock

from sushy_kubevirt.bmc import interfaces
from tests.unit.vbmc import bmc_case

INTERFACE = interfaces.Interface(
    address=b'\x0a\0\0\7', mask=b'\xff\xff\0\0', mac=b'\2\0\0\0\0\7',
    gateway=b'\x0a\0\0\1', gateway_mac=b'\2\0\0\0\0\1')

#: Parameters of table 23-4 that have no meaning here: community string,
#: destinations of alerts, secondary port, cipher suites' VLAN tags, IPv6.
UNSUPPORTED = (9, 16, 18, 19, 25, *range(27, 256))


class LanTest(bmc_case.BmcTestCase):

    def setUp(self):
        super().setUp()
        patch = mock.patch.object(interfaces, 'towards',
                                  return_value=INTERFACE)
        self.towards = patch.start()
        self.addCleanup(patch.stop)
        self.bmc.server.v15_login_possible.return_value = True

    def read(self, parameter):
        code, data = self.ask(0x0C, 2, 1, parameter, 0, 0)
        self.assertEqual((0, 0x11), (code, data[0]))
        return data[1:]

    def test_parameters(self):
        self.bmc.client_port = 1623
        for parameter, data in (
                (0, b'\0'), (1, b'\4'), (2, b'\4\4\4\4\0'),
                (3, INTERFACE.address), (4, b'\4'), (5, INTERFACE.mac),
                (6, INTERFACE.mask), (8, b'\x57\6'), (10, b'\2'),
                (11, b'\0'), (12, INTERFACE.gateway),
                (13, INTERFACE.gateway_mac), (14, bytes(4)), (15, bytes(6)),
                (17, b'\0'), (20, b'\0\0'), (21, b'\0'), (22, b'\2'),
                (23, b'\0\x11\3' + bytes(14)), (24, b'\0\x44' + bytes(7)),
                (26, bytes(6))):
            self.assertEqual(data, self.read(parameter), parameter)
        self.towards.assert_called_with(self.session.address)
        # The kernel's defaults may be changed on a host.
        self.assertEqual(3, len(self.read(7)))
        self.assertLess(0, self.read(7)[0])

    def test_authentication_types_without_v15(self):
        self.bmc.server.v15_login_possible.return_value = False
        self.assertEqual(b'\0', self.read(1))
        self.assertEqual(bytes(5), self.read(2))

    def test_unsupported_parameters(self):
        for parameter in UNSUPPORTED:
            self.assertEqual((0x80, b''),
                             self.ask(0x0C, 2, 1, parameter, 0, 0))
            self.assertEqual((0x80, b''), self.ask(0x0C, 1, 1, parameter, 0))

    def test_parameters_are_read_only(self):
        for parameter in {*range(1, 27)} - {*UNSUPPORTED}:
            self.assertEqual((0x82, b''),
                             self.ask(0x0C, 1, 1, parameter, 1, 2, 3, 4))
            self.assertEqual((0x82, b''), self.ask(0x0C, 1, 1, parameter))

    def test_revision_only(self):
        self.assertEqual((0, b'\x11'), self.ask(0x0C, 2, 0x81, 3, 0, 0))

    def test_one_session_holds_set_in_progress(self):
        other = bmc_case.Session()
        self.assertEqual((0, b''), self.ask(0x0C, 1, 1, 0, 1))
        self.assertEqual(b'\1', self.read(0))
        self.assertEqual((0x81, b''),
                         self.ask(0x0C, 1, 1, 0, 1, session=other))
        # That of boot options is another.
        self.assertEqual((0, bytes((1, 0, 0))), self.ask(0, 9, 0, 0, 0))
        self.assertEqual((0, b''), self.ask(0x0C, 1, 1, 0, 0))
        self.assertEqual((0xCC, b''), self.ask(0x0C, 1, 1, 0, 3))
        self.assertEqual((0xC7, b''), self.ask(0x0C, 1, 1, 0))

    def test_rejects_other_channels(self):
        for number in {*range(16)} - {1, 0x0E}:
            self.assertEqual((0xCC, b''), self.ask(0x0C, 2, number, 3, 0, 0))
            self.assertEqual((0xCC, b''), self.ask(0x0C, 1, number, 0, 1))
