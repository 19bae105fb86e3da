# SPDX-License-Identifier: Apache-2.0
from tests.unit.vbmc import bmc_case
from vbmc_kubevirt.ipmi import constants


class ChannelTest(bmc_case.BmcTestCase):

    def test_channel_info(self):
        self.bmc.server.active_sessions.side_effect = (
            lambda: 5 * [self.session])
        for number in 1, 0x0E:
            self.assertEqual(
                (0, bytes((1, 4, 1, 0x85, 0xF2, 0x1B, 0, 0, 0))),
                self.ask(6, 0x42, number))
        for number in {*range(16)} - {1, 0x0E}:
            for command, more in ((0x40, (0, 0)), (0x41, (0x40,)),
                                  (0x42, ()), (0x56, (0, 0))):
                self.assertEqual((0xCC, b''),
                                 self.ask(6, command, number, *more))

    def test_channel_access(self):
        for kind in 0x40, 0x80:
            self.assertEqual((0, b'\x22\4'), self.ask(6, 0x41, 1, kind))
        for kind in 0, 0xC0:
            self.assertEqual((0xCC, b''), self.ask(6, 0x41, 1, kind))

    def test_channel_access_cannot_be_changed(self):
        for data, code in (
                ((0, 0), 0),
                # What is set already.
                ((0x62, 0x44), 0), ((0xA2, 0x84), 0),
                # Not to be set.
                ((0x3f, 0x01), 0),
                # Other access modes; alerts; other authentication.
                ((0x60, 0), 0x83), ((0xA3, 0), 0x83), ((0x42, 0), 0x82),
                ((0xB2, 0), 0x82), ((0xAA, 0), 0x82),
                ((0, 0x43), 0x82), ((0, 0x82), 0x82),
                ((0xC0, 0), 0xCC), ((0, 0xC0), 0xCC)):
            self.assertEqual((code, b''), self.ask(6, 0x40, 1, *data), data)

    def test_security_keys_are_locked(self):
        for key in 0, 1:
            self.assertEqual((0, b'\1'), self.ask(6, 0x56, 1, 0, key))
            self.assertEqual((0x80, b''), self.ask(6, 0x56, 1, 1, key,
                                                   *20 * b'k'))
            self.assertEqual((0, b'\1'), self.ask(6, 0x56, 1, 2, key))
        self.assertEqual((0xCC, b''), self.ask(6, 0x56, 1, 3, 0))
        self.assertEqual((0xCC, b''), self.ask(6, 0x56, 1, 0, 2))


class SessionInfoTest(bmc_case.BmcTestCase):

    def setUp(self):
        super().setUp()
        self.other = bmc_case.Session(
            3, 0x0a0b0c0d, 4, constants.Privilege.USER, ('192.0.2.7', 623),
            rmcpp=False)
        self.bmc.server.active_sessions.side_effect = (
            lambda: [self.session, self.other])

    def test_finds_session_by_each_key(self):
        mine = bytes((1, 63, 2, 2, 4, 0x11, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0,
                      0x34, 0x12))
        theirs = bytes((3, 63, 2, 4, 2, 0x01, 192, 0, 2, 7, 0, 0, 0, 0, 0,
                        0, 0x6f, 2))
        for data, expected in (
                ((0,), mine), ((1,), mine), ((2,), theirs),
                ((0xFE, 1), mine), ((0xFE, 3), theirs),
                ((0xFF, 4, 3, 2, 1), mine),
                ((0xFF, 0x0d, 0x0c, 0x0b, 0x0a), theirs)):
            self.assertEqual((0, expected), self.ask(6, 0x3D, *data), data)

    def test_unknown_session_has_no_handle(self):
        for data in (3,), (0xFD,), (0xFE, 2), (0xFF, 1, 2, 3, 4):
            self.assertEqual((0, b'\0\x3f\2'), self.ask(6, 0x3D, *data))

    def test_rejects_short_requests(self):
        for data in (0xFE,), (0xFF,), (0xFF, 4, 3, 2):
            self.assertEqual((0xC7, b''), self.ask(6, 0x3D, *data))

    def test_client_with_ipv6(self):
        for host, shown in (('::ffff:192.0.2.9', b'\xc0\0\2\t'),
                            ('2001:db8::1', bytes(4)),
                            ('fe80::1%eth0', bytes(4))):
            self.session.address = (host, 1, 0, 0)
            self.assertEqual(shown, self.ask(6, 0x3D, 0)[1][6:10])
