# SPDX-License-Identifier: Apache-2.0
import asyncio
import logging
import os
import random
import struct
from unittest import mock

from tests.unit.vbmc.ipmi import base
from tests.unit.vbmc.ipmi import client
from tests.unit.vbmc.ipmi import client15
from vbmc_kubevirt.ipmi import constants
from vbmc_kubevirt.ipmi import server
from vbmc_kubevirt.ipmi import session15
from vbmc_kubevirt.ipmi import session_tables

UNAVAILABLE = bytes((0, 1, 0, 4, 0, 0, 0, 0, 0))


class Session15TestCase(base.ServerTestCase):

    def v15_client(self, **options):
        return client15.Client(self.server, self.socket, **options)

    async def command(self, one, netfn, command, data=b'', rq=None):
        """Send a command and wait for its response.

        :returns: (completion code, data)
        """
        mark = len(self.socket.sent)
        found = one.request(netfn, command, data, rq)
        if not found:
            await self.wait_for_tasks()
            answer, = self.socket.sent[mark:]
            found = [one.reveal(answer[0])[:2]]
        return found[0]


class AvailabilityTest(Session15TestCase):

    def capabilities(self, request=b'\x0e\x04'):
        code, data = self.v15_client().ask(0x38, request)
        return bytes((code,)) + data

    def assert_unavailable(self):
        self.assertEqual(UNAVAILABLE, self.capabilities())
        self.assertEqual(bytes((0, 1, 0x80, 4, 2, 0, 0, 0, 0)),
                         self.capabilities(b'\x8e\x04'))
        self.assertEqual((0xCC, b''), self.v15_client().greet())
        self.assertEqual([0, 0, 0], self.table_sizes())

    async def test_offers_only_md5(self):
        self.assertEqual(bytes((0, 1, 4, 4, 0, 0, 0, 0, 0)),
                         self.capabilities())
        for kind in 0, 1, 3, 4, 5, 6, 15:
            self.assertEqual((0xCC, b''), self.v15_client().greet(kind))
        self.assertEqual([0, 0, 0], self.table_sizes())

    async def test_accepts_password_of_16_bytes(self):
        self.account = b'admin', b'x' * 16
        one = self.v15_client(password=b'x' * 16).login()
        self.assertEqual([(0, b'quick')], one.request(6, 1))

    async def test_unavailable_with_longer_password(self):
        self.account = b'admin', b'x' * 17
        self.assert_unavailable()
        # Also if the password changes after the challenge.
        self.account = b'admin', b'secret'
        one = self.v15_client()
        one.greet()
        self.account = b'admin', b'secret' + bytes(11)
        self.assertIsNone(one.activate())
        self.assert_unavailable()
        one = self.client(password=b'secret' + bytes(11)).login()
        self.assertEqual([(0, b'quick')], one.request(6, 1))

    async def test_unavailable_without_account(self):
        self.account = None
        self.assert_unavailable()

    async def test_unavailable_on_host_that_forbids_md5(self):
        with mock.patch.object(session15, '_ALLOWED', False):
            self.assert_unavailable()

    async def test_rejects_short_challenge_request(self):
        self.assertEqual((0xC7, b''), self.v15_client().ask(
            0x39, b'\2' + bytes(15)))

    async def test_drops_challenge_request_in_rmcpp(self):
        self.assertEqual([], self.v15_client().send(client.payload(
            0, client.message(6, 0x39, b'\2' + bytes(16)))))

    async def test_no_login_while_finishing(self):
        one, other = self.v15_client(), self.v15_client().login()
        one.greet()
        self.unblock.clear()
        other.request(0, 1)
        finish = asyncio.create_task(self.server.finish(5))
        await asyncio.sleep(0)
        self.assertIsNone(one.activate())
        self.assertIsNone(self.v15_client().greet())
        self.unblock.set()
        await finish


class LoginTest(Session15TestCase):

    async def test_login(self):
        one = self.v15_client().login()
        self.assertEqual(4, one.limit)
        self.assertEqual([0, 0, 1], self.table_sizes())
        self.assertEqual((0, b'read'), await self.command(one, 0, 1))
        self.assertEqual(
            (1, 1, 0),
            (
                self.server.sessions,
                self.server.sessions_opened,
                self.server.sessions_refused,
            ),
        )
        self.assertEqual(1, self.server.responses[6, 0x39, 0])
        self.assertEqual(1, self.server.responses[6, 0x3A, 0])

    async def test_challenges_differ(self):
        seen = set()
        for _number in range(50):
            one = self.v15_client()
            one.greet()
            seen |= {one.challenge, one.session_id}
        self.assertEqual(100, len(seen))

    async def test_rejects_wrong_passwords(self):
        for password in b'Secret', b'', b'secret1', b'x' * 16:
            one = self.v15_client(password=password)
            one.greet()
            self.assertIsNone(one.activate())
            # A challenge is valid for one attempt.
            one.password = b'secret'
            self.assertIsNone(one.activate())
        self.assertEqual([0, 0, 0], self.table_sizes())
        self.assertEqual(
            (0, 4), (self.server.sessions_opened, self.server.sessions_refused)
        )

    async def test_unknown_user_looks_like_wrong_password(self):
        for name in b'root', b'Admin', b'admi', b'adminx', b'', b'\xff' * 16:
            for password in b'secret', b'', b'x':
                one = self.v15_client(username=name, password=password)
                self.assertEqual(0, one.greet()[0])
                self.assertEqual([1, 0, 0], self.table_sizes())
                self.assertIsNone(one.activate())
                self.assertEqual([0, 0, 0], self.table_sizes())

    async def test_rejects_challenge_of_other_client(self):
        one, other = self.v15_client(), self.v15_client()
        one.greet()
        other.greet()
        self.assertIsNone(one.activate(challenge=other.challenge))
        self.assertIsNone(one.activate())
        good = other.activation()
        self.assertEqual(0, other.activate()[0])
        # A used activation cannot be replayed.
        other.request(6, 0x3c, struct.pack('<I', other.session_id))
        self.assertEqual([], other.send(good))
        self.assertEqual([0, 0, 0], self.table_sizes())

    async def test_drops_packets_of_session_from_another_address(self):
        one = self.v15_client()
        one.greet()
        for one.address in ('192.0.2.1', 40001), ('192.0.2.2', 40000):
            self.assertIsNone(one.activate())
        one.address = client.ADDRESS
        self.assertEqual(0, one.activate()[0])
        for one.address in ('192.0.2.1', 40001), ('192.0.2.2', 40000):
            self.assertEqual([], one.request(6, 1))

    async def test_rejects_invalid_activations(self):
        for code, changes, who in (
                (0xC7, {'cut': 21}, {}), (0xC7, {'cut': 0}, {}),
                (0xCC, {'kind': 0}, {}), (0xCC, {'kind': 4}, {}),
                (0xCC, {}, {'level': 0}), (0x86, {}, {'level': 5}),
                (0x86, {}, {'level': 15})):
            one = self.v15_client(**who)
            one.greet()
            if changes.get('cut') is not None:
                one.outbound = 0
            self.assertEqual((code, b''), one.activate(**changes)[:2])
            self.assertEqual([0, 0, 0], self.table_sizes())
        one = self.v15_client()
        one.greet()
        one.outbound = 0
        self.assertEqual((0x84, b''), one.activate()[:2])
        one = self.v15_client()
        one.greet()
        self.assertIsNone(one.activate(command=0x3B))
        self.assertEqual([0, 0, 0], self.table_sizes())
        self.assertEqual(
            (0, 9), (self.server.sessions_opened, self.server.sessions_refused)
        )

    async def test_drops_unauthenticated_activations(self):
        one = self.v15_client()
        one.greet()
        message = one.activation()[30:]
        for bare in (client15.plain(message, 0, one.session_id),
                     client15.plain(message),
                     client.payload(0, message, one.session_id),
                     client.payload(0x40, message, one.session_id)):
            self.assertEqual([], one.send(bare))
        self.assertEqual([1, 0, 0], self.table_sizes())

    async def test_repeats_response_to_repeated_activation(self):
        one = self.v15_client()
        one.greet()
        packet = one.activation()
        first = one.reveal(one.send(packet)[0])
        self.assertEqual(first, one.reveal(one.send(packet)[0]))
        self.assertEqual([0, 0, 1], self.table_sizes())
        self.assertEqual(1, self.server.sessions_opened)

    async def test_challenges_are_no_rmcpp_handshakes(self):
        one = self.v15_client()
        one.greet()
        new = self.client()
        new.session_id = struct.pack('<I', one.session_id)
        new.bmc_random = new.guid = bytes(16)
        # No exception is logged either.
        with self.assertNoLogs('vbmc_kubevirt', logging.ERROR):
            self.assertIsNone(new.rakp1())
            self.assertIsNone(new.rakp3())
            self.assertEqual(0, one.activate()[0])
            self.assertIsNone(new.rakp1())
            self.assertIsNone(new.rakp3())
        new.open()
        old = self.v15_client()
        old.session_id, = struct.unpack('<I', new.session_id)
        old.challenge = bytes(16)
        self.assertIsNone(old.activate())
        new.rakp1()
        self.assertIsNone(old.activate())
        new.rakp3()
        self.assertIsNone(old.activate())
        self.assertEqual([], old.request(6, 1))
        self.assertEqual([(0, b'quick')], new.request(6, 1))

    async def test_challenge_ends_after_ten_seconds(self):
        one = self.v15_client()
        one.greet()
        self.advance_clock(11)
        self.assertEqual([0, 0, 0], self.table_sizes())
        self.assertIsNone(one.activate())

    async def test_challenge_flood_keeps_other_handshakes(self):
        established = self.v15_client().login()
        greeted = self.client()
        greeted.open()
        greeted.rakp1()
        for number in range(3000):
            address = f'198.51.100.{number % 256}', 1024 + number
            self.v15_client(address=address).greet()
        self.assertEqual([session_tables.REQUESTED_MAX, 1, 1],
                         self.table_sizes())
        greeted.rakp3()
        self.assertEqual([(0, b'quick')], established.request(6, 1))
        self.v15_client().login()
        self.advance_clock(11)
        self.assertEqual([0, 0, 3], self.table_sizes())

    async def test_oldest_sessions_are_evicted(self):
        for number in range(100):
            last = self.v15_client(address=('198.51.100.1', 1024 + number))
            last.login()
        self.assertEqual([0, 0, session_tables.ESTABLISHED_MAX],
                         self.table_sizes())
        self.assertEqual([(0, b'quick')], last.request(6, 1))


class SessionTest(Session15TestCase):

    async def test_drops_unsigned_packets(self):
        one = self.v15_client().login()
        one.request(6, 0x3b, b'\4')
        message = client.message(0, 2, b'\0')
        number = one.session_id
        for packet in (client15.plain(message, one.sequence, number),
                       client15.plain(message),
                       *(client.payload(kind, message, number, one.sequence)
                         for kind in (0, 0x40, 0x80, 0xC0))):
            self.assertEqual([], one.send(packet))
        # Other authentication types: MD2, straight password, OEM.
        for kind in 1, 3, 4, 5, 0x12, 0x42:
            good = bytearray(one.secure(message))
            good[4] = kind
            self.assertEqual([], one.send(bytes(good)))
            good[13:29] = b'secret'.ljust(16, b'\0')
            self.assertEqual([], one.send(bytes(good)))
        await self.wait_for_tasks()
        self.assertEqual([], self.calls)

    async def test_drops_packets_with_a_changed_bit(self):
        one = self.v15_client().login()
        one.request(6, 0x3b, b'\4')
        good = one.secure(client.message(0, 2, b'\0'))
        for place in range(4, len(good)):
            for bit in range(8):
                bad = bytearray(good)
                bad[place] ^= 1 << bit
                self.assertEqual([], one.send(bytes(bad)))
        await self.wait_for_tasks()
        self.assertEqual([], self.calls)
        one.send(good)
        await self.wait_for_tasks()
        self.assertEqual([('write', b'\0')], self.calls)

    async def test_drops_repeated_sequence_number(self):
        one = self.v15_client().login()
        packet = one.secure(client.message(0, 1))
        one.send(packet)
        await self.wait_for_tasks()
        self.assertEqual([], one.send(packet))
        await self.wait_for_tasks()
        self.assertEqual([('read', b'')], self.calls)

    async def test_accepts_reordered_packets_within_window(self):
        one = self.v15_client().login()
        first = one.sequence - 1
        for sequence, taken in ((0, 0), (-1, 0), (5, 1), (3, 1), (4, 1),
                                (3, 0), (5, 0), (40, 1), (26, 1), (24, 0),
                                (1 << 30, 1), (1, 0)):
            one.rq += 1
            responses = one.send(one.secure(
                client.message(6, 1, b'', one.rq), first + sequence))
            self.assertEqual(taken, len(responses), sequence)
        self.assertEqual([], one.send(one.secure(
            client.message(6, 1, b'', 60), 0)))

    async def test_outbound_sequence_numbers_skip_zero(self):
        one = self.v15_client()
        one.greet()
        one.outbound = 0xffffffff
        self.assertEqual(0, one.activate()[0])
        self.assertEqual(1, one.outbound)
        self.assertEqual([(0, b'quick')], one.request(6, 1))

    async def test_accepts_one_byte_of_legacy_pad(self):
        one = self.v15_client().login()
        for pad, taken in (b'\0', 1), (b'\0\0', 0):
            one.rq += 1
            self.assertEqual(taken, len(one.send(one.secure(
                client.message(6, 1, b'', one.rq), pad=pad))))

    async def test_command_needs_its_privilege_level(self):
        one = self.v15_client().login()
        self.assertEqual([(0xD4, b'')], one.request(0, 2, b'\0'))
        self.assertEqual([(0, b'\3')], one.request(6, 0x3b, b'\3'))
        self.assertEqual((0, b'\1'), await self.command(one, 0, 2, b'\0'))

    async def test_privilege_is_limited_to_level_of_activation(self):
        one = self.v15_client(level=2).login()
        self.assertEqual(2, one.limit)
        self.assertEqual([(0x81, b'')], one.request(6, 0x3b, b'\4'))
        self.assertEqual([(0xD4, b'')], one.request(0, 2, b'\0'))
        one = self.v15_client(level=1).login()
        self.assertEqual([(0xD4, b'')], one.request(6, 1))

    async def test_repeated_request_gets_cached_response(self):
        one = self.v15_client().login()
        one.request(6, 0x3b, b'\4')
        self.unblock.clear()
        for _try in range(3):
            self.assertEqual([], one.request(0, 2, b'\3', rq=9))
        self.unblock.set()
        await self.wait_for_tasks()
        one.reveal(self.socket.sent[-1][0])
        self.assertEqual([(0, b'\1')], one.request(0, 2, b'\3', rq=9))
        self.assertEqual([('write', b'\3')], self.calls)

    async def test_response_that_does_not_fit(self):
        self.commands[0, 4] = server.Command(
            'Long', lambda session, data: (0, bytes(data[0])),
            constants.Privilege.USER)
        one = self.v15_client().login()
        for size, code, got in ((247, 0, 247), (248, 0xCA, 0), (255, 0xCA, 0)):
            code_data = await self.command(one, 0, 4, bytes((size,)))
            self.assertEqual((code, bytes(got)), code_data)
        self.assertEqual(2, self.server.responses[0, 4, 0xCA])
        # With IPMI v2.0 it fits.
        new = self.client().login()
        new.request(0, 4, b'\xFF')
        await self.wait_for_tasks()
        self.assertEqual(2, self.server.responses[0, 4, 0])

    async def test_close_session(self):
        one, other = self.v15_client().login(), self.v15_client().login()
        self.assertEqual([(0xD4, b'')], one.request(
            6, 0x3c, struct.pack('<I', other.session_id)))
        self.assertEqual([(0, b'')], one.request(
            6, 0x3c, struct.pack('<I', one.session_id)))
        self.assertEqual([], one.request(6, 1))
        self.assertEqual([(0, b'quick')], other.request(6, 1))
        self.assertEqual([0, 0, 1], self.table_sizes())

    async def test_idle_session_ends(self):
        one = self.v15_client().login()
        self.advance_clock(59)
        self.assertEqual([(0, b'quick')], one.request(6, 1))
        self.advance_clock(61)
        self.assertEqual([], one.request(6, 1))
        self.assertEqual([0, 0, 0], self.table_sizes())

    async def test_session_ends_when_password_changes(self):
        one = self.v15_client().login()
        self.account = b'admin', b'other'
        self.assertEqual([], one.request(6, 1))
        self.assertEqual(0, self.server.sessions)
        self.account = b'admin', b'secret'
        self.assertEqual([], one.request(6, 1))

    async def test_login_fails_if_account_changes_after_challenge(self):
        one = self.v15_client()
        one.greet()
        self.account = b'admin', b'other'
        self.assertIsNone(one.activate())
        self.assertEqual([0, 0, 0], self.table_sizes())


class MalformedPacketTest(Session15TestCase):

    async def test_invalid_packets_create_no_session_or_response(self):
        seed = int.from_bytes(os.urandom(4), 'big')
        some = random.Random(seed)
        waiting, inside = self.v15_client(), self.v15_client().login()
        inside.request(6, 0x3b, b'\4')
        waiting.greet()
        good = inside.secure(client.message(0, 2, b'\0'))
        sessions = dict(self.server._sessions.established)
        ids = [struct.pack('<I', one.session_id)
               for one in (waiting, inside)] + [bytes(4)]
        with self.assertNoLogs('vbmc_kubevirt', logging.WARNING):
            for length in range(len(good)):
                self.server.receive(good[:length], client.ADDRESS)
            for _number in range(6000):
                packet = (b'\x06\x00\xff\x07\x02' + some.randbytes(4)
                          + some.choice(ids)
                          + some.randbytes(some.randrange(60)))
                if some.randrange(2):
                    # Half of the packets have a valid length.
                    text = some.randbytes(some.randrange(40))
                    packet = (packet[:13] + some.randbytes(16)
                              + bytes((len(text),)) + text)
                self.server.receive(packet, client.ADDRESS)
            # An authenticated client may send invalid requests.
            for _number in range(2000):
                text = some.randbytes(some.randrange(40))
                for answer in inside.send(inside.secure(text)):
                    inside.reveal(answer)
            for text in b'', b'\x20', bytes(255):
                waiting.greet()
                self.assertEqual([], waiting.send(waiting.secure(text, 0)))
        self.assertEqual(
            sessions, dict(self.server._sessions.established), seed)
        self.assertEqual([], self.calls)
        self.assertEqual([(0, b'quick')], inside.request(6, 1))
