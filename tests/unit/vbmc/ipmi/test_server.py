# SPDX-License-Identifier: Apache-2.0
import asyncio
from concurrent import futures
import logging
import os
import random
import socket
import struct
import threading
import unittest
from unittest import mock

from tests.unit.vbmc.ipmi import client
from vbmc_kubevirt.ipmi import constants
from vbmc_kubevirt.ipmi import server
from vbmc_kubevirt.ipmi import udp

GUID = bytes(range(16))


class ServerTestCase(unittest.IsolatedAsyncioTestCase):

    async def asyncSetUp(self):
        self.account = b'admin', b'secret'
        self.carried_out = []
        self.go_on = threading.Event()
        self.go_on.set()
        self.commands = {
            (0, 1): server.Command(
                'Read', self.read, constants.Privilege.USER
            ),
            (0, 2): server.Command(
                'Write',
                self.write,
                constants.Privilege.OPERATOR,
                min_length=1,
                modifies=True,
            ),
            (0, 3): server.Command(
                'Faulty', self.faulty, constants.Privilege.USER
            ),
            (6, 1): server.Command(
                'Inline',
                lambda session, data: (0, b'quick'),
                constants.Privilege.USER,
                inline=True,
            ),
        }
        self.readers = futures.ThreadPoolExecutor(2)
        self.writers = futures.ThreadPoolExecutor(2)
        self.addCleanup(self.readers.shutdown)
        self.addCleanup(self.writers.shutdown)
        self.addCleanup(self.go_on.set)
        self.server = server.Server(
            'vm', lambda: self.account, self.commands, lambda: GUID,
            self.readers, self.writers)
        self.socket = client.Socket()
        loop = asyncio.get_running_loop()
        self.now = loop.time()
        for name in 'add_reader', 'remove_reader':
            patch = mock.patch.object(loop, name)
            patch.start()
            self.addCleanup(patch.stop)
        self.server.start(self.socket)
        # Time passes when a test says so.
        self.server._loop = mock.Mock(wraps=loop)
        self.server._loop.time = lambda: self.now
        self.addCleanup(self.server.stop)

    def read(self, session, data):
        self.carried_out.append(('read', data))
        self.go_on.wait(5)
        return 0, b'read'

    def write(self, session, data):
        self.carried_out.append(('write', data))
        self.go_on.wait(5)
        return 0, bytes((len(self.carried_out),))

    def faulty(self, session, data):
        raise RuntimeError('a fault')

    def client(self, **options):
        return client.Client(self.server, self.socket, **options)

    def count(self):
        return [len(table) for table, *_ in self.server._limits]

    def later(self, seconds):
        self.now += seconds
        if self.server._sweep is not None:
            self.server._sweep.cancel()
            self.server._expire()

    async def settle(self):
        async with asyncio.timeout(30):
            while self.server._tasks:
                await asyncio.sleep(0.001)


class OutsideTest(ServerTestCase):

    def ask(self, command, data, rmcpp=False):
        message = client.message(6, command, data)
        packet = (client.payload(0, message) if rmcpp else
                  b'\x06\x00\xff\x07\x00' + bytes(8)
                  + bytes((len(message),)) + message)
        answer, = self.client().send(packet)
        return answer[16 if rmcpp else 14:][6:-1]

    async def test_channel_authentication_capabilities(self):
        for rmcpp in False, True:
            self.assertEqual(
                bytes((0, 1, 0x84, 4, 3, 0, 0, 0, 0)),
                self.ask(0x38, b'\x8e\x04', rmcpp))

    async def test_cipher_suites(self):
        self.assertEqual(b'\0\x01\xc0\x11\x03\x44\x81\xc0\x03\x01\x41\x81',
                         self.ask(0x54, b'\x0e\x00\x80', True))
        self.assertEqual(b'\0\x01', self.ask(0x54, b'\x0e\x00\x81', True))

    async def test_wrong_channel_and_length(self):
        self.assertEqual(b'\xcc', self.ask(0x38, b'\x83\x04'))
        self.assertEqual(b'\xc7', self.ask(0x38, b''))
        self.assertEqual(b'\xcc', self.ask(0x54, b'\x03\x00\x80'))
        self.assertEqual(b'\xc7', self.ask(0x54, b'\x0e'))

    async def test_nothing_else_is_answered(self):
        for netfn, command in (0, 1), (0, 2), (6, 1), (6, 0x3b), (6, 0x37):
            for sent in (client.payload(0, client.message(netfn, command,
                                                          b'\1')),):
                self.assertEqual([], self.client().send(sent))
        self.assertEqual([], self.carried_out)
        self.assertEqual([0, 0, 0], self.count())

    async def test_a_ping(self):
        pong, = self.client().send(bytes.fromhex(
            '0600ff06000011be802a0000'))
        self.assertEqual(bytes.fromhex('402a0010'), pong[8:12])
        self.assertEqual([0, 0, 0], self.count())


class AccountTest(ServerTestCase):
    """User name and password may be replaced while it serves."""

    async def test_a_session_ends_with_its_password(self):
        one = self.client().login()
        self.assertEqual((0, b'quick'), await one.command(6, 1))
        self.account = b'admin', b'other'
        self.assertEqual([], one.request(6, 1))
        self.assertEqual([], one.request(0, 2, b'1'))
        self.assertEqual([], self.carried_out)
        self.assertEqual(0, self.server.sessions)
        self.account = b'admin', b'secret'
        # It does not come back, whatever does.
        self.assertEqual([], one.request(6, 1))

    async def test_the_new_one_lets_in_and_the_old_one_does_not(self):
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

    async def test_replaced_in_the_middle_of_a_login(self):
        one = self.client()
        one.open()
        one.rakp1()
        self.account = b'admin', b'other'
        self.assertIsNone(one.rakp3())
        self.assertEqual([0, 0, 0], self.count())

    async def test_what_was_begun_is_finished_and_answered_to_nobody(self):
        one = self.client().login()
        one.request(6, 0x3b, b'\4')
        self.go_on.clear()
        self.assertEqual([], one.request(0, 2, b'1'))
        self.account = b'admin', b'other'
        self.assertEqual([], one.request(6, 1))
        mark = len(self.socket.sent)
        self.go_on.set()
        await asyncio.gather(*self.server._tasks)
        self.assertEqual([('write', b'1')], self.carried_out)
        self.assertEqual(mark, len(self.socket.sent))

    async def test_while_there_is_none_nobody_gets_in(self):
        one = self.client().login()
        self.account = None
        self.assertEqual([], one.request(6, 1))
        for name in b'admin', b'':
            two = self.client(username=name, password=b'')
            two.open()
            self.assertEqual(0x0D, two.rakp1()[1])
        self.assertEqual([0, 0, 0], self.count())


class FinishTest(ServerTestCase):

    async def test_what_was_begun_is_answered(self):
        one = self.client().login()
        one.request(6, 0x3b, b'\4')
        self.go_on.clear()
        one.request(0, 2, b'1')
        mark = len(self.socket.sent)
        finish = asyncio.create_task(self.server.finish(5))
        await asyncio.sleep(0)
        # Nothing else is begun, nor is anybody let in.
        self.assertEqual([(0xC0, b'')], one.request(0, 2, b'2'))
        self.assertEqual([(0xC0, b'')], one.request(6, 1))
        self.assertIsNone(self.client().open())
        self.assertFalse(self.socket.closed)
        self.go_on.set()
        async with asyncio.timeout(30):
            while len(self.socket.sent) < mark + 3:
                await asyncio.sleep(0.001)
        self.assertEqual((0, b'\1'),
                         one.reveal(self.socket.sent[-1][0])[:2])
        # It takes its leave.
        self.assertEqual([(0, b'')], one.request(6, 0x3c, one.session_id))
        async with asyncio.timeout(server.CLOSE_SECONDS / 2):
            await finish
        self.assertTrue(self.socket.closed)
        self.assertEqual([('write', b'1')], self.carried_out)

    async def test_nobody_is_waited_for_for_ever(self):
        one = self.client().login()
        self.go_on.clear()
        one.request(0, 1)
        async with asyncio.timeout(30):
            await self.server.finish(0.01)
        self.assertTrue(self.socket.closed)


class CountTest(ServerTestCase):

    async def test_what_was_answered(self):
        one = self.client().login()
        for _twice in range(2):
            await one.command(0, 1)
        await one.command(0, 2)
        one.request(6, 1)
        for command in range(0x70, 0x78):
            one.request(0x2e, command)
        self.assertEqual(
            {(0, 1, 0): 2, (0, 2, 0xD4): 1, (6, 1, 0): 1,
             # However many a client makes up.
             (None, None, 0xC1): 8}, dict(self.server.responses))

    async def test_a_session(self):
        one = self.client().login()
        self.assertEqual(
            (1, 1, 0),
            (
                self.server.sessions,
                self.server.sessions_opened,
                self.server.sessions_refused,
            ),
        )
        one.request(6, 0x3c, one.session_id)
        self.assertEqual(
            (0, 1), (self.server.sessions, self.server.sessions_opened))
        self.assertEqual(1, self.server.responses[6, 0x3c, 0])


class HandshakeTest(ServerTestCase):

    async def test_both_suites(self):
        for suite in 3, 17:
            one = self.client(suite=suite).login()
            self.assertEqual(GUID, one.guid)
            self.assertEqual((0, b'read'), await one.command(0, 1))

    async def test_wrong_password(self):
        one = self.client(password=b'Secret')
        one.open()
        one.rakp1()
        self.assertFalse(one.trusted)
        self.assertEqual(0x0F, one.rakp3()[1])
        self.assertEqual([0, 0, 0], self.count())
        self.assertEqual([], one.request(0, 1))

    async def test_the_client_gives_up(self):
        one = self.client()
        one.open()
        one.rakp1()
        self.assertIsNone(one.exchange(
            0x14, bytes((9, 0x0F, 0, 0)) + one.session_id))
        self.assertEqual([0, 0, 0], self.count())

    async def test_unknown_users(self):
        for name in b'', b'Admin', b'admin\0', b'\xff\xfe', b'admi':
            one = self.client(username=name)
            one.open()
            self.assertEqual(0x0D, one.rakp1()[1])
        one = self.client(username=b'x' * 17)
        one.open()
        self.assertEqual(0x0C, one.rakp1()[1])
        self.assertEqual([0, 0, 0], self.count())

    async def test_no_code_is_no_code(self):
        for rest in b'', b'\0' * 32, b'\0' * 31:
            one = self.client()
            one.open()
            one.rakp1()
            answer = one.exchange(0x14, bytes((9, 0, 0, 0)) + one.session_id
                                  + rest)
            self.assertEqual(0x0F, answer[1])

    async def test_roles(self):
        for role, status in ((0x10, 0x09), (0x11, 0), (0x12, 0), (0x13, 0),
                             (0x14, 0), (0x15, 0x0A), (0x1f, 0x0A)):
            one = self.client(role=role)
            one.open()
            self.assertEqual(status, one.rakp1()[1], role)
        self.assertEqual(0x09, self.client().open(level=5)[1])

    async def test_suites_that_are_not_served(self):
        for suite in (0, 0, 0), (1, 1, 0), (2, 2, 1), (3, 1, 1), (1, 4, 1):
            with mock.patch.dict(client.SUITES, {
                    17: suite + client.SUITES[17][3:]}):
                self.assertEqual(0x11, self.client().open()[1])
        self.assertEqual([0, 0, 0], self.count())

    async def test_the_choice_of_suite_may_be_the_bmcs(self):
        answer = self.client().exchange(
            0x10, bytes((7, 0, 0, 0)) + b'abcd' + b''.join(
                bytes((kind, 0, 0, 0, 0, 0, 0, 0)) for kind in range(3)))
        self.assertEqual([3, 4, 1], [answer[16 + 8 * n] for n in range(3)])

    async def test_steps_out_of_order(self):
        one = self.client()
        one.session_id = b'\1\2\3\4'
        self.assertIsNone(one.rakp1())
        one.open()
        one.bmc_random = one.guid = bytes(16)
        self.assertIsNone(one.rakp3())
        self.assertEqual([], one.request(0, 1))
        self.assertEqual([1, 0, 0], self.count())

    async def test_another_address_cannot_join_in(self):
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
        await self.settle()
        self.assertEqual(([('read', b'')], sent),
                         (self.carried_out, len(self.socket.sent)))

    async def test_a_lost_rakp4_is_sent_again_until_it_is_used(self):
        one = self.client().login()
        first = one.exchange(0x14, one.rakp3_payload())
        self.assertEqual(0, first[1])
        self.assertEqual((0, b'read'), await one.command(0, 1))
        self.assertIsNone(one.exchange(0x14, one.rakp3_payload()))
        self.assertEqual([0, 0, 1], self.count())

    async def test_a_session_is_not_greeted_again(self):
        one = self.client().login()
        self.assertIsNone(one.rakp1())
        self.assertEqual((0, b'read'), await one.command(0, 1))


class SessionTest(ServerTestCase):

    async def test_unsecured_packets_are_refused(self):
        one = self.client().login()
        one.request(6, 0x3b, b'\4')
        number, = struct.unpack('<I', one.session_id)
        message = client.message(0, 2, b'\0')
        for kind in 0, 0x40, 0x80, 0xC0:
            self.assertEqual([], one.send(
                client.payload(kind, message, number, 1)))
        for kind in 0x40, 0x80, 0xC1, 0xC2, 0xD0, 0xD4:
            self.assertEqual([], one.send(one.secure(message, kind)))
        await self.settle()
        self.assertEqual([], self.carried_out)

    async def test_a_pad_longer_than_a_block(self):
        one = self.client().login()
        message = client.message(6, 1)
        shortest = 16 - (len(message) + 1) % 16
        for pad, taken in ((shortest, 1), (shortest + 16, 0),
                           (shortest + 160, 0)):
            responses = one.send(one.secure(message, pad=pad))
            self.assertEqual(taken, len(responses), pad)

    async def test_every_changed_bit_is_noticed(self):
        one = self.client().login()
        one.request(6, 0x3b, b'\4')
        good = one.secure(client.message(0, 2, b'\0'))
        for place in range(4, len(good)):
            bad = bytearray(good)
            bad[place] ^= 1 << random.randrange(8)
            self.assertEqual([], one.send(bytes(bad)))
        await self.settle()
        self.assertEqual([], self.carried_out)
        one.send(good)
        await self.settle()
        self.assertEqual([('write', b'\0')], self.carried_out)

    async def test_a_packet_counts_once(self):
        one = self.client().login()
        packet = one.secure(client.message(0, 1))
        one.send(packet)
        await self.settle()
        self.assertEqual([], one.send(packet))
        await self.settle()
        self.assertEqual([('read', b'')], self.carried_out)

    async def test_packets_may_overtake_each_other(self):
        one = self.client().login()
        for sequence, taken in ((5, 1), (3, 1), (4, 1), (3, 0), (5, 0),
                                (40, 1), (26, 1), (24, 0), (0, 0),
                                (0xffffffff, 1), (1, 0)):
            one.rq += 1
            responses = one.send(one.secure(
                client.message(6, 1, b'', one.rq), sequence=sequence))
            self.assertEqual(taken, len(responses), sequence)

    async def test_privilege(self):
        one = self.client().login()
        self.assertEqual([(0xD4, b'')], one.request(0, 2, b'\0'))
        self.assertEqual([(0, b'\2')], one.request(6, 0x3b, b'\0'))
        self.assertEqual([(0, b'\3')], one.request(6, 0x3b, b'\3'))
        self.assertEqual(0, (await one.command(0, 2, b'\0'))[0])
        self.assertEqual([(0xCC, b'')], one.request(6, 0x3b, b'\1'))
        self.assertEqual([(0xCC, b'')], one.request(6, 0x3b, b'\5'))
        self.assertEqual([(0xC7, b'')], one.request(6, 0x3b))

    async def test_privilege_is_limited_by_what_was_asked_for(self):
        for one in (self.client(role=0x12).login(),
                    self.client().login(level=2)):
            self.assertEqual([(0x81, b'')], one.request(6, 0x3b, b'\4'))
            self.assertEqual([(0xD4, b'')], one.request(0, 2, b'\0'))
        one = self.client(role=0x11).login()
        self.assertEqual([(0xD4, b'')], one.request(6, 1))

    async def test_what_is_not_known_or_too_short(self):
        one = self.client().login()
        one.request(6, 0x3b, b'\4')
        self.assertEqual([(0xC1, b'')], one.request(6, 0x99))
        self.assertEqual([(0xC1, b'')], one.request(0x2c, 1))
        self.assertEqual([(0xC7, b'')], one.request(0, 2))

    async def test_a_fault_is_an_answer(self):
        one = self.client().login()
        with self.assertLogs('vbmc_kubevirt', logging.ERROR):
            self.assertEqual((0xFF, b''), await one.command(0, 3))
        self.assertEqual((0, b'read'), await one.command(0, 1))

    async def test_close(self):
        one = self.client().login()
        self.assertEqual([(0x87, b'')], one.request(6, 0x3c, b'\1\2\3\4'))
        self.assertEqual([(0xC7, b'')], one.request(6, 0x3c))
        self.assertEqual([(0, b'')], one.request(6, 0x3c, one.session_id))
        self.assertEqual([0, 0, 0], self.count())
        self.assertEqual([], one.request(6, 1))

    async def test_a_session_ends_when_it_is_idle(self):
        one, other = self.client().login(), self.client().login()
        self.later(59)
        self.assertEqual([(0, b'quick')], other.request(6, 1))
        self.later(2)
        self.assertEqual([], one.request(6, 1))
        self.assertEqual([(0, b'quick')], other.request(6, 1))
        self.later(61)
        self.assertEqual([0, 0, 0], self.count())
        self.assertIsNone(self.server._sweep)

    async def test_handshakes_end_sooner(self):
        one, other = self.client(), self.client()
        one.open()
        other.open()
        other.rakp1()
        self.assertEqual([1, 1, 0], self.count())
        self.later(11)
        self.assertEqual([0, 0, 0], self.count())

    async def test_a_session_lasts_while_a_request_is_worked_on(self):
        one = self.client().login()
        self.go_on.clear()
        one.request(0, 1)
        self.later(100)
        self.go_on.set()
        await self.settle()
        self.assertEqual((0, b'read'),
                         one.reveal(self.socket.sent[-1][0])[:2])
        self.later(61)
        self.assertEqual([0, 0, 0], self.count())


class RepetitionTest(ServerTestCase):

    async def asyncSetUp(self):
        await super().asyncSetUp()
        self.one = self.client().login()
        self.one.request(6, 0x3b, b'\4')

    async def test_while_it_is_worked_on(self):
        self.go_on.clear()
        for _try in range(4):
            self.assertEqual([], self.one.request(0, 2, b'\3', rq=9))
        self.go_on.set()
        await self.settle()
        self.assertEqual([('write', b'\3')], self.carried_out)
        self.assertEqual((0, b'\1', 9),
                         self.one.reveal(self.socket.sent[-1][0]))

    async def test_afterwards_the_answer_is_the_same(self):
        first = await self.one.command(0, 2, b'\3', rq=9)
        self.assertEqual([first], self.one.request(0, 2, b'\3', rq=9))
        self.assertEqual([('write', b'\3')], self.carried_out)

    async def test_the_very_packet(self):
        packet = self.one.secure(client.message(0, 2, b'\3', 9))
        self.one.send(packet)
        await self.settle()
        answer, = self.one.send(packet)
        self.assertEqual((0, b'\1', 9), self.one.reveal(answer))
        self.assertEqual([('write', b'\3')], self.carried_out)
        self.later(31)
        self.assertEqual([], self.one.send(packet))
        self.assertEqual([('write', b'\3')], self.carried_out)

    async def test_another_request_is_carried_out(self):
        await self.one.command(0, 2, b'\3', rq=9)
        await self.one.command(0, 2, b'\3', rq=10)
        await self.one.command(0, 2, b'\2', rq=9)
        self.later(31)
        await self.one.command(0, 2, b'\3', rq=9)
        self.assertEqual(4, len(self.carried_out))

    async def test_another_session_is_another_request(self):
        other = self.client().login()
        other.request(6, 0x3b, b'\4')
        await self.one.command(0, 2, b'\3', rq=9)
        await other.command(0, 2, b'\3', rq=9)
        self.assertEqual(2, len(self.carried_out))

    async def test_reads_are_carried_out_again(self):
        await self.one.command(0, 1, rq=9)
        await self.one.command(0, 1, rq=9)
        self.assertEqual(2, len(self.carried_out))

    async def test_changes_are_made_one_at_a_time(self):
        self.go_on.clear()
        self.one.request(0, 2, b'\1')
        self.one.request(0, 2, b'\2')
        self.one.request(0, 1)
        async with asyncio.timeout(30):
            while len(self.carried_out) < 2:
                await asyncio.sleep(0.001)
        self.assertEqual({('write', b'\1'), ('read', b'')},
                         set(self.carried_out))
        self.go_on.set()
        await self.settle()
        self.assertEqual(('write', b'\2'), self.carried_out[-1])

    async def test_a_slow_one_does_not_stop_others(self):
        self.go_on.clear()
        self.one.request(0, 2, b'\1')
        self.assertEqual([(0, b'quick')], self.one.request(6, 1))
        self.client().login()

    async def test_an_answer_comes_in_time(self):
        self.useTimeout(0.05)
        self.go_on.clear()
        answer = await self.one.command(0, 2, b'\1', rq=9)
        self.assertEqual((0xC3, b''), answer)
        # Another one waits for what is still being done, and as long.
        self.assertEqual((0xC3, b''), await self.one.command(0, 2, b'\2'))
        self.assertEqual([answer], self.one.request(0, 2, b'\1', rq=9))
        self.assertEqual([('write', b'\1')], self.carried_out)
        self.go_on.set()
        await self.settle()
        self.assertEqual([('write', b'\1'), ('write', b'\2')],
                         self.carried_out)

    def useTimeout(self, seconds):
        patch = mock.patch.object(server, 'RESPONSE_SECONDS', seconds)
        patch.start()
        self.addCleanup(patch.stop)

    async def test_requests_do_not_pile_up(self):
        self.go_on.clear()
        for number in range(server.PENDING_MAX):
            self.assertEqual([], self.one.request(0, 2, bytes((number,))))
        self.assertEqual([(0xC0, b'')], self.one.request(0, 2, b'\x09'))

    async def test_answers_do_not_pile_up(self):
        for number in range(40):
            await self.one.command(0, 2, bytes((number,)))
        session, = self.server._established.values()
        self.assertEqual(
            server.CACHED_RESPONSES_MAX, len(
                session.response_cache))
        self.assertEqual(set(), session.pending)


class FloodTest(ServerTestCase):

    async def test_open_requests_from_everywhere(self):
        honest = self.client()
        honest.open()
        honest.rakp1()
        for number in range(3000):
            self.client(address=('198.51.100.%d' % (number % 256),
                                 1024 + number)).open()
        self.assertEqual([server.REQUESTED_MAX, 1, 0], self.count())
        honest.rakp3()
        self.assertEqual((0, b'read'), await honest.command(0, 1))
        self.client().login()
        self.later(11)
        self.assertEqual([0, 0, 2], self.count())

    async def test_handshakes_that_are_not_finished(self):
        established = self.client().login()
        for number in range(500):
            one = self.client(address=('198.51.100.1', 1024 + number))
            one.open()
            one.rakp1()
        self.assertEqual([0, server.AUTHENTICATING_MAX, 1], self.count())
        self.assertEqual([(0, b'quick')], established.request(6, 1))

    async def test_sessions_that_are_not_closed(self):
        for number in range(300):
            last = self.client(address=('198.51.100.1', 1024 + number))
            last.login()
        self.assertEqual([0, 0, server.ESTABLISHED_MAX], self.count())
        self.assertEqual([(0, b'quick')], last.request(6, 1))


class GarbageTest(ServerTestCase):
    """Nothing that comes makes a session, an answer or a traceback."""

    async def asyncSetUp(self):
        await super().asyncSetUp()
        seed = int.from_bytes(os.urandom(4), 'big')
        self.random = random.Random(seed)
        self.seed = seed
        self.one = self.client()
        self.one.open()
        self.one.rakp1()
        self.good = [
            client.payload(0, client.message(6, 0x38, b'\x8e\x04')),
            client.payload(0x10, bytes((7, 0, 0, 0)) + b'abcd' + b''.join(
                bytes((k, 0, 0, 8, v, 0, 0, 0))
                for k, v in enumerate((3, 4, 1)))),
            client.payload(0x12, bytes((8, 0, 0, 0)) + self.one.session_id
                           + bytes(16) + bytes((0x14, 0, 0, 5)) + b'admin'),
            client.payload(0x14, self.one.rakp3_payload()),
        ]
        self.inside = self.client().login()
        self.inside.request(6, 0x3b, b'\4')
        self.good.append(self.inside.secure(client.message(0, 2, b'\0')))

    def bombard(self, packets):
        sessions = dict(self.server._established)
        with self.assertNoLogs('vbmc_kubevirt', logging.WARNING):
            for packet in packets:
                self.server.receive(packet, client.ADDRESS)
        self.assertEqual(sessions, dict(self.server._established),
                         self.seed)
        self.assertEqual([], self.carried_out)

    async def test_noise(self):
        self.bombard(self.random.randbytes(self.random.randrange(80))
                     for _number in range(3000))
        self.bombard(b'\x06\x00\xff\x07'
                     + self.random.randbytes(self.random.randrange(80))
                     for _number in range(6000))
        self.bombard(b'\x06\x00\xff\x07\x06'
                     + bytes((self.random.choice((
                         0, 1, 2, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x40,
                         0x80, 0xC0, 0xC1)),))
                     + self.random.choice((bytes(4), self.one.session_id,
                                           self.inside.session_id))
                     + self.random.randbytes(self.random.randrange(80))
                     for _number in range(6000))

    async def test_truncated(self):
        for packet in self.good:
            self.bombard(packet[:length] for length in range(len(packet)))

    async def test_payloads_of_every_length(self):
        for packet in self.good[:4]:
            for length in range(len(packet) - 16):
                # RAKP 3 as it should be is no garbage.
                self.bombard([client.payload(
                    packet[5], packet[16:16 + length])])

    async def test_changed(self):
        for packet in self.good[-1], self.good[3]:
            for _number in range(2000):
                bad = bytearray(packet)
                for _change in range(self.random.randrange(1, 4)):
                    bad[self.random.randrange(len(bad))] ^= (
                        1 << self.random.randrange(8))
                # A message tag proves nothing: any will do in RAKP 3.
                if bad[20:] != packet[20:]:
                    self.bombard([bytes(bad)])

    async def test_in_a_session(self):
        """Whoever knows the password may still send nonsense."""
        with self.assertNoLogs('vbmc_kubevirt', logging.WARNING):
            for _number in range(2000):
                text = self.random.randbytes(self.random.randrange(40))
                for answer in self.inside.send(self.inside.secure(text)):
                    self.inside.reveal(answer)
            for plain in b'', b'\xff' * 15, b'\xff' * 31:
                self.inside.send(self.inside.secure(plain))
        self.assertEqual([(0, b'quick')], self.inside.request(6, 1))

    async def test_a_fault_is_told_once(self):
        with mock.patch.object(server.packet, 'parse', side_effect=KeyError):
            with self.assertLogs('vbmc_kubevirt', logging.ERROR) as logs:
                for _number in range(100):
                    self.server.receive(b'x', client.ADDRESS)
        self.assertEqual(1, len(logs.records))


class SocketTest(unittest.IsolatedAsyncioTestCase):

    async def test_a_real_one(self):
        one = server.Server('vm', lambda: (b'admin', b'secret'), {},
                            lambda: GUID, None, None)
        loop = asyncio.get_running_loop()
        sock = udp.open_socket('127.0.0.1', 0)
        port = sock.getsockname()[1]
        one.start(sock)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            other.setblocking(False)
            other.connect(('127.0.0.1', port))
            ask = client.payload(0, client.message(6, 0x38, b'\x8e\x04'))
            for _number in range(3 * server.READ_MAX):
                other.send(b'noise')
            other.send(bytes(60000))
            other.send(ask)
            async with asyncio.timeout(30):
                answer = await loop.sock_recv(other, 100)
            self.assertEqual(0x38, answer[21])
            # Its responses come back as errors when nobody is there any more.
            for _number in range(3):
                with socket.socket(socket.AF_INET,
                                   socket.SOCK_DGRAM) as gone:
                    gone.sendto(ask, ('127.0.0.1', port))
                await asyncio.sleep(0.01)
            other.send(ask)
            async with asyncio.timeout(30):
                await loop.sock_recv(other, 100)
        one.stop()
        udp.open_socket('127.0.0.1', port).close()

    def test_a_port_that_is_taken(self):
        with udp.open_socket('127.0.0.1', 0) as first:
            port = first.getsockname()[1]
            with self.assertRaisesRegex(
                    OSError, 'UDP port %d on 127.0.0.1: .*in use' % port):
                udp.open_socket('127.0.0.1', port)

    def test_an_address_that_is_none(self):
        with self.assertRaisesRegex(OSError, 'UDP port 1623 on 999.1.1.1: '):
            udp.open_socket('999.1.1.1', 1623)
