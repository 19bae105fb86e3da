# SPDX-License-Identifier: Apache-2.0
import asyncio
from unittest import mock

from tests.unit.vbmc.ipmi import base
from vbmc_kubevirt.ipmi import constants
from vbmc_kubevirt.ipmi import packet
from vbmc_kubevirt.ipmi import session_tables
from vbmc_kubevirt.ipmi import users


class ReadLimitTest(base.ServerTestCase):

    async def test_flood_leaves_time_to_others(self):
        waiting = [(packet.ping(7), ('127.0.0.1', 9))] * 30
        with mock.patch.object(self.socket, 'recvfrom', create=True,
                               side_effect=[*waiting, BlockingIOError]) as at:
            self.server.read_max, self.server.read_pause = 8, 0.001
            self.server._read()
            self.assertEqual(8, at.call_count)
        loop = self.server._loop
        loop.remove_reader.assert_called_once_with(self.socket)
        loop.call_later.assert_called_once_with(
            0.001, self.server._read_again)


class SessionLimitTest(base.ServerTestCase):

    async def test_open_session_flood_keeps_other_handshakes(self):
        honest = self.client()
        honest.open()
        honest.rakp1()
        for number in range(3000):
            address = f'198.51.100.{number % 256}', 1024 + number
            self.client(address=address).open()
        self.assertEqual([session_tables.REQUESTED_MAX, 1, 0],
                         self.table_sizes())
        honest.rakp3()
        self.assertEqual((0, b'read'), await honest.command(0, 1))
        self.client().login()
        self.advance_clock(11)
        self.assertEqual([0, 0, 2],
                         self.table_sizes())

    async def test_incomplete_handshakes_keep_established_sessions(self):
        established = self.client().login()
        for number in range(500):
            one = self.client(address=('198.51.100.1', 1024 + number))
            one.open()
            one.rakp1()
        self.assertEqual([0, session_tables.AUTHENTICATING_MAX, 1],
                         self.table_sizes())
        self.assertEqual([(0, b'quick')], established.request(6, 1))

    async def test_oldest_sessions_are_evicted(self):
        for number in range(300):
            last = self.client(address=('198.51.100.1', 1024 + number))
            last.login()
        self.assertEqual([0, 0, session_tables.ESTABLISHED_MAX],
                         self.table_sizes())
        self.assertEqual([(0, b'quick')], last.request(6, 1))

    async def test_open_session_flood_of_one_address_keeps_others(self):
        honest = self.client()
        honest.open()
        for number in range(3000):
            self.client(address=('198.51.100.1', 1024 + number)).open()
        self.assertEqual([session_tables.REQUESTED_MAX, 0, 0],
                         self.table_sizes())
        self.assertEqual(0, honest.rakp1()[1])
        for number in range(500):
            one = self.client(address=('198.51.100.1', 1024 + number))
            one.open()
            one.rakp1()
        honest.rakp3()
        self.assertEqual((0, b'read'), await honest.command(0, 1))

    async def test_open_session_flood_of_many_networks(self):
        """A client has as much time as the others' packets leave it."""
        for number in range(600):
            self.client(address=(f'2001:db8:0:{number:x}::1', 1024)).open()
        honest = self.client()
        honest.open()
        for number in range(500):
            self.client(address=(f'2001:db8:1:{number:x}::1', 1024)).open()
        self.assertEqual(0, honest.rakp1()[1])

    async def test_user_with_most_sessions_loses_one(self):
        self.others = [users.User(3, b'guest', b'guest',
                                  constants.Privilege.USER)]
        admins = [self.client().login() for _ in range(32)]
        for number in range(100):
            last = self.client(address=('198.51.100.1', 1024 + number),
                               username=b'guest', password=b'guest',
                               role=0x12)
            last.login()
        for one in (*admins, last):
            self.assertEqual([(0, b'quick')], one.request(6, 1))
        # From the same address as the other user.
        for _ in range(50):
            self.client(username=b'guest', password=b'guest',
                        role=0x12).login()
        for one in admins:
            self.assertEqual([(0, b'quick')], one.request(6, 1))

    async def test_address_with_most_sessions_of_a_user_loses_one(self):
        kept = self.client().login()
        for number in range(100):
            last = self.client(address=('198.51.100.1', 1024 + number))
            last.login()
        for one in kept, last:
            self.assertEqual([(0, b'quick')], one.request(6, 1))

    async def test_failure_does_not_stop_the_search_for_timeouts(self):
        self.client().login()
        late = self.client(address=('198.51.100.1', 1024)).login()
        sessions = self.server._sessions
        with mock.patch.object(sessions, '_keep',
                               side_effect=RuntimeError('a fault')), \
                self.assertLogs(session_tables.LOG, 'ERROR') as logged:
            self.advance_clock(1)
        self.assertIn('a fault', logged.output[0])
        self.now += 30
        late.request(6, 1)
        # The first session times out, by the timer of the failed search.
        self.now += 40
        with mock.patch.object(next(iter(sessions.established.values())),
                               'sol') as sol:
            sol.close.side_effect = RuntimeError('a fault')
            with self.assertLogs(session_tables.LOG, 'ERROR'):
                async with asyncio.timeout(10):
                    await sessions._ended.wait()
