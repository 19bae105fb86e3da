# SPDX-License-Identifier: Apache-2.0
import asyncio
import logging
import random
import struct
from unittest import mock

from tests.unit.vbmc.ipmi import base
from tests.unit.vbmc.ipmi import client


class HandshakeTest(base.ServerTestCase):

    async def test_logs_in_with_cipher_suites_3_and_17(self):
        for suite in 3, 17:
            one = self.client(suite=suite).login()
            self.assertEqual(base.GUID, one.guid)
            self.assertEqual((0, b'read'), await one.command(0, 1))

    async def test_rejects_wrong_password(self):
        one = self.client(password=b'Secret')
        one.open()
        one.rakp1()
        self.assertFalse(one.trusted)
        self.assertEqual(0x0F, one.rakp3()[1])
        self.assertEqual([0, 0, 0], self.table_sizes())
        self.assertEqual([], one.request(0, 1))

    async def test_client_aborts_handshake(self):
        one = self.client()
        one.open()
        one.rakp1()
        self.assertIsNone(one.exchange(
            0x14, bytes((9, 0x0F, 0, 0)) + one.session_id))
        self.assertEqual([0, 0, 0], self.table_sizes())

    async def test_rejects_unknown_users(self):
        for name in b'', b'Admin', b'admin\0', b'\xff\xfe', b'admi':
            one = self.client(username=name)
            one.open()
            self.assertEqual(0x0D, one.rakp1()[1])
        one = self.client(username=b'x' * 17)
        one.open()
        self.assertEqual(0x0C, one.rakp1()[1])
        self.assertEqual([0, 0, 0], self.table_sizes())

    async def test_rejects_rakp3_without_valid_authentication_code(self):
        for rest in b'', b'\0' * 32, b'\0' * 31:
            one = self.client()
            one.open()
            one.rakp1()
            answer = one.exchange(0x14, bytes((9, 0, 0, 0)) + one.session_id
                                  + rest)
            self.assertEqual(0x0F, answer[1])

    async def test_rejects_unsupported_roles(self):
        for role, status in ((0x10, 0x09), (0x11, 0), (0x12, 0), (0x13, 0),
                             (0x14, 0), (0x15, 0x0A), (0x1f, 0x0A)):
            one = self.client(role=role)
            one.open()
            self.assertEqual(status, one.rakp1()[1], role)
        self.assertEqual(0x09, self.client().open(level=5)[1])

    async def test_rejects_unsupported_cipher_suites(self):
        for suite in (0, 0, 0), (1, 1, 0), (2, 2, 1), (3, 1, 1), (1, 4, 1):
            with mock.patch.dict(client.SUITES, {
                    17: suite + client.SUITES[17][3:]}):
                self.assertEqual(0x11, self.client().open()[1])
        self.assertEqual([0, 0, 0], self.table_sizes())

    async def test_bmc_chooses_suite_for_wildcard_proposal(self):
        answer = self.client().exchange(
            0x10, bytes((7, 0, 0, 0)) + b'abcd' + b''.join(
                bytes((kind, 0, 0, 0, 0, 0, 0, 0)) for kind in range(3)))
        self.assertEqual([3, 4, 1], [answer[16 + 8 * n] for n in range(3)])

    async def test_drops_handshake_messages_out_of_order(self):
        one = self.client()
        one.session_id = b'\1\2\3\4'
        self.assertIsNone(one.rakp1())
        one.open()
        one.bmc_random = one.guid = bytes(16)
        self.assertIsNone(one.rakp3())
        self.assertEqual([], one.request(0, 1))
        self.assertEqual([1, 0, 0], self.table_sizes())

    async def test_drops_packets_of_session_from_another_address(self):
        one = self.client()
        one.open()
        one.address = ('192.0.2.2', 40000)
        self.assertIsNone(one.rakp1())
        one.address = client.ADDRESS
        one.rakp1()
        one.address = ('192.0.2.1', 40001)
        self.assertIsNone(one.rakp3())
        one.address = client.ADDRESS
        one.rakp3()
        self.assertEqual((0, b'read'), await one.command(0, 1))
        sent = len(self.socket.sent)
        for one.address in ('192.0.2.1', 40001), ('192.0.2.2', 40000):
            one.request(0, 1)
            one.request(6, 1)
        await self.wait_for_tasks()
        self.assertEqual(([('read', b'')], sent),
                         (self.calls, len(self.socket.sent)))

    async def test_repeats_rakp4_until_session_is_used(self):
        one = self.client().login()
        first = one.exchange(0x14, one.rakp3_payload())
        self.assertEqual(0, first[1])
        self.assertEqual((0, b'read'), await one.command(0, 1))
        self.assertIsNone(one.exchange(0x14, one.rakp3_payload()))
        self.assertEqual([0, 0, 1], self.table_sizes())

    async def test_drops_rakp1_for_established_session(self):
        one = self.client().login()
        self.assertIsNone(one.rakp1())
        self.assertEqual((0, b'read'), await one.command(0, 1))


class SessionTest(base.ServerTestCase):

    async def test_drops_unsigned_or_unencrypted_packets(self):
        one = self.client().login()
        one.request(6, 0x3b, b'\4')
        number, = struct.unpack('<I', one.session_id)
        message = client.message(0, 2, b'\0')
        for kind in 0, 0x40, 0x80, 0xC0:
            self.assertEqual([], one.send(
                client.payload(kind, message, number, 1)))
        with self.assertNoLogs('vbmc_kubevirt'):
            for kind in 0x40, 0x80, 0xC1, 0xC2, 0xD0, 0xD4:
                self.assertEqual([], one.send(one.secure(message, kind)))
        await self.wait_for_tasks()
        self.assertEqual([], self.calls)

    async def test_drops_confidentiality_pad_longer_than_a_block(self):
        one = self.client().login()
        # With the length of the pad it is a block.
        message = client.message(6, 1, bytes(8))
        for pad, taken in ((0, 1), (16, 0), (32, 0), (160, 0)):
            responses = one.send(one.secure(message, pad=pad))
            self.assertEqual(taken, len(responses), pad)

    async def test_drops_signed_packets_with_malformed_parts(self):
        one = self.client().login()
        good = one.secure(client.message(6, 1, bytes(16)))
        number, = struct.unpack('<I', one.session_id)
        encrypted, trailer = good[16:-20], good[-20:-16]
        self.assertEqual(b'\xff\xff\2\7', trailer)
        with self.assertNoLogs('vbmc_kubevirt'):
            for body, end, taken in (
                    *((encrypted, end, 0) for end in (
                        b'', b'\7', b'\0\7\7', b'\xff\xff\1\7',
                        b'\xff\xff\3\7', b'\xff\xff\2\6')),
                    *((encrypted[:length], trailer, 0)
                      for length in (0, 1, 15, 16, len(encrypted) - 1)),
                    (encrypted, trailer, 1), (encrypted, b'\0\7', 1)):
                one.sequence += 1
                packet = client.payload(0xC0, body, number, one.sequence) + end
                packet += one.mac(one.k1, packet[4:])[:16]
                self.assertEqual(taken, len(one.send(packet)), (body, end))

    async def test_sequence_numbers_of_responses_go_round(self):
        one = self.client().login()
        session, = self.server._sessions.established.values()
        session._sent = 0xfffffffe
        numbers = []
        for _number in range(4):
            answer, = one.send(one.secure(client.message(6, 1)))
            numbers += struct.unpack_from('<I', answer, 10)
        # 0 is for packets outside a session.
        self.assertEqual([0xfffffffe, 0xffffffff, 1, 2], numbers)

    async def test_drops_packets_with_a_changed_bit(self):
        one = self.client().login()
        one.request(6, 0x3b, b'\4')
        good = one.secure(client.message(0, 2, b'\0'))
        for place in range(4, len(good)):
            bad = bytearray(good)
            bad[place] ^= 1 << random.randrange(8)
            self.assertEqual([], one.send(bytes(bad)))
        await self.wait_for_tasks()
        self.assertEqual([], self.calls)
        one.send(good)
        await self.wait_for_tasks()
        self.assertEqual([('write', b'\0')], self.calls)

    async def test_every_packet_has_another_initialization_vector(self):
        one = self.client().login()
        seen = set()
        for _number in range(50):
            packet, = one.send(one.secure(client.message(6, 1)))
            self.assertEqual((0, b'quick'), one.reveal(packet)[:2])
            seen.add(packet[16:32])
        self.assertEqual(50, len(seen))

    async def test_drops_repeated_sequence_number(self):
        one = self.client().login()
        packet = one.secure(client.message(0, 1))
        one.send(packet)
        await self.wait_for_tasks()
        self.assertEqual([], one.send(packet))
        await self.wait_for_tasks()
        self.assertEqual([('read', b'')], self.calls)

    async def test_accepts_reordered_packets_within_window(self):
        one = self.client().login()
        for sequence, taken in ((5, 1), (3, 1), (4, 1), (3, 0), (5, 0),
                                (40, 1), (26, 1), (24, 0), (0, 0),
                                (0xffffffff, 1), (1, 0)):
            one.rq += 1
            responses = one.send(one.secure(
                client.message(6, 1, b'', one.rq), sequence=sequence))
            self.assertEqual(taken, len(responses), sequence)

    async def test_command_needs_its_privilege_level(self):
        one = self.client().login()
        self.assertEqual([(0xD4, b'')], one.request(0, 2, b'\0'))
        self.assertEqual([(0, b'\2')], one.request(6, 0x3b, b'\0'))
        self.assertEqual([(0, b'\3')], one.request(6, 0x3b, b'\3'))
        self.assertEqual(0, (await one.command(0, 2, b'\0'))[0])
        self.assertEqual([(0xCC, b'')], one.request(6, 0x3b, b'\1'))
        self.assertEqual([(0xCC, b'')], one.request(6, 0x3b, b'\5'))
        self.assertEqual([(0xC7, b'')], one.request(6, 0x3b))

    async def test_privilege_is_limited_to_level_of_session_request(self):
        for one in (self.client(role=0x12).login(),
                    self.client().login(level=2)):
            self.assertEqual([(0x81, b'')], one.request(6, 0x3b, b'\4'))
            self.assertEqual([(0xD4, b'')], one.request(0, 2, b'\0'))
        one = self.client(role=0x11).login()
        self.assertEqual([(0xD4, b'')], one.request(6, 1))

    async def test_rejects_unknown_commands_and_short_requests(self):
        one = self.client().login()
        one.request(6, 0x3b, b'\4')
        self.assertEqual([(0xC1, b'')], one.request(6, 0x99))
        self.assertEqual([(0xC1, b'')], one.request(0x2c, 1))
        self.assertEqual([(0xC7, b'')], one.request(0, 2))

    async def test_rejects_other_lun(self):
        one = self.client().login()
        message = bytearray(client.message(6, 1))
        message[1] += 1
        message[2] -= 1
        answer, = one.send(one.secure(bytes(message)))
        self.assertEqual((0xC2, b''), one.reveal(answer)[:2])
        self.assertEqual([(0, b'quick')], one.request(6, 1))

    async def test_exception_in_handler_gives_unspecified_error(self):
        one = self.client().login()
        with self.assertLogs('vbmc_kubevirt', logging.ERROR):
            self.assertEqual((0xFF, b''), await one.command(0, 3))
        self.assertEqual((0, b'read'), await one.command(0, 1))

    async def test_close_session(self):
        one = self.client().login()
        self.assertEqual([(0x87, b'')], one.request(6, 0x3c, b'\1\2\3\4'))
        self.assertEqual([(0xC7, b'')], one.request(6, 0x3c))
        self.assertEqual([(0, b'')], one.request(6, 0x3c, one.session_id))
        self.assertEqual([0, 0, 0], self.table_sizes())
        self.assertEqual([], one.request(6, 1))

    async def test_idle_session_ends(self):
        one, other = self.client().login(), self.client().login()
        self.advance_clock(59)
        self.assertEqual([(0, b'quick')], other.request(6, 1))
        self.advance_clock(2)
        self.assertEqual([], one.request(6, 1))
        self.assertEqual([(0, b'quick')], other.request(6, 1))
        self.advance_clock(61)
        self.assertEqual([0, 0, 0], self.table_sizes())
        self.assertIsNone(self.server._sessions._sweep)

    async def test_incomplete_handshakes_end_after_ten_seconds(self):
        one, other = self.client(), self.client()
        one.open()
        other.open()
        other.rakp1()
        self.assertEqual([1, 1, 0], self.table_sizes())
        self.advance_clock(11)
        self.assertEqual([0, 0, 0], self.table_sizes())

    async def test_session_does_not_expire_during_a_command(self):
        one = self.client().login()
        self.unblock.clear()
        one.request(0, 1)
        self.advance_clock(100)
        self.unblock.set()
        await self.wait_for_tasks()
        self.assertEqual((0, b'read'),
                         one.reveal(self.socket.sent[-1][0])[:2])
        self.advance_clock(61)
        self.assertEqual([0, 0, 0], self.table_sizes())


class AccountTest(base.ServerTestCase):
    """User name and password may change while the server runs."""

    async def test_session_ends_when_password_changes(self):
        one = self.client().login()
        self.assertEqual((0, b'quick'), await one.command(6, 1))
        self.account = b'admin', b'other'
        self.assertEqual([], one.request(6, 1))
        self.assertEqual([], one.request(0, 2, b'1'))
        self.assertEqual([], self.calls)
        self.assertEqual(0, self.server.sessions)
        self.account = b'admin', b'secret'
        # Restoring the password does not restore the session.
        self.assertEqual([], one.request(6, 1))

    async def test_login_needs_the_new_account(self):
        self.account = b'root', b'other'
        one = self.client()
        one.open()
        self.assertEqual(0x0D, one.rakp1()[1])
        one = self.client(username=b'root')
        one.open()
        one.rakp1()
        self.assertEqual(0x0F, one.rakp3()[1])
        self.client(username=b'root', password=b'other').login()
        self.assertEqual(1, self.server.sessions)
        self.assertEqual(
            (1, 2), (self.server.sessions_opened, self.server.sessions_refused)
        )

    async def test_login_fails_if_account_changes_during_handshake(self):
        one = self.client()
        one.open()
        one.rakp1()
        self.account = b'admin', b'other'
        self.assertIsNone(one.rakp3())
        self.assertEqual([0, 0, 0], self.table_sizes())

    async def test_account_change_suppresses_response_of_running_command(self):
        one = self.client().login()
        one.request(6, 0x3b, b'\4')
        self.unblock.clear()
        self.assertEqual([], one.request(0, 2, b'1'))
        self.account = b'admin', b'other'
        self.assertEqual([], one.request(6, 1))
        mark = len(self.socket.sent)
        self.unblock.set()
        await asyncio.gather(*self.server._tasks)
        self.assertEqual([('write', b'1')], self.calls)
        self.assertEqual(mark, len(self.socket.sent))

    async def test_no_login_without_account(self):
        one = self.client().login()
        self.account = None
        self.assertEqual([], one.request(6, 1))
        for name in b'admin', b'':
            two = self.client(username=name, password=b'')
            two.open()
            self.assertEqual(0x0D, two.rakp1()[1])
        self.assertEqual([0, 0, 0], self.table_sizes())
