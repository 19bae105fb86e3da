# SPDX-License-Identifier: Apache-2.0
import asyncio
from concurrent import futures
from unittest import mock

from tests.unit.vbmc.ipmi import base
from tests.unit.vbmc.ipmi import client
from vbmc_kubevirt.ipmi import server
from vbmc_kubevirt.ipmi import users


class RequestTest(base.ServerTestCase):

    async def asyncSetUp(self):
        await super().asyncSetUp()
        self.one = self.client().login()
        self.one.request(6, 0x3b, b'\4')

    async def test_repeated_request_joins_running_command(self):
        self.unblock.clear()
        for _try in range(4):
            self.assertEqual([], self.one.request(0, 2, b'\3', rq=9))
        self.unblock.set()
        await self.wait_for_tasks()
        self.assertEqual([('write', b'\3')], self.calls)
        self.assertEqual((0, b'\1', 9),
                         self.one.reveal(self.socket.sent[-1][0]))

    async def test_repeated_request_gets_cached_response(self):
        first = await self.one.command(0, 2, b'\3', rq=9)
        self.assertEqual([first], self.one.request(0, 2, b'\3', rq=9))
        self.assertEqual([('write', b'\3')], self.calls)

    async def test_repeated_packet_gets_cached_response_for_30_seconds(self):
        packet = self.one.secure(client.message(0, 2, b'\3', 9))
        self.one.send(packet)
        await self.wait_for_tasks()
        answer, = self.one.send(packet)
        self.assertEqual((0, b'\1', 9), self.one.reveal(answer))
        self.assertEqual([('write', b'\3')], self.calls)
        self.advance_clock(31)
        self.assertEqual([], self.one.send(packet))
        self.assertEqual([('write', b'\3')], self.calls)

    async def test_runs_request_with_other_sequence_or_data(self):
        await self.one.command(0, 2, b'\3', rq=9)
        await self.one.command(0, 2, b'\3', rq=10)
        await self.one.command(0, 2, b'\2', rq=9)
        self.advance_clock(31)
        await self.one.command(0, 2, b'\3', rq=9)
        self.assertEqual(4, len(self.calls))

    async def test_sessions_do_not_share_cached_responses(self):
        other = self.client().login()
        other.request(6, 0x3b, b'\4')
        await self.one.command(0, 2, b'\3', rq=9)
        await other.command(0, 2, b'\3', rq=9)
        self.assertEqual(2, len(self.calls))

    async def test_session_is_worth_nothing_at_another_server(self):
        other = server.Server(
            'other', users.Users(self.users), lambda: self.commands,
            lambda: base.GUID, self.readers, self.writers, self.attempt)
        other.start(self.socket)
        self.addCleanup(other.stop)
        own = client.Client(other, self.socket).login()
        packet = self.one.secure(client.message(0, 1, b'', 9))
        mark = len(self.socket.sent)
        for _sent_again in range(2):
            other.receive(packet, self.one.address)
        await self.wait_for_tasks()
        self.assertEqual((mark, []), (len(self.socket.sent), self.calls))
        # It was valid, and both sessions still are.
        self.assertEqual([(0, b'read', 9)], [
            self.one.reveal(one) for one in self.one.send(packet)])
        self.assertEqual([(0, b'read')], own.request(0, 1))

    async def test_runs_repeated_reads_again(self):
        await self.one.command(0, 1, rq=9)
        await self.one.command(0, 1, rq=9)
        self.assertEqual(2, len(self.calls))

    async def test_runs_modifying_commands_one_at_a_time(self):
        self.unblock.clear()
        self.one.request(0, 2, b'\1')
        self.one.request(0, 2, b'\2')
        self.one.request(0, 1)
        async with asyncio.timeout(30):
            while len(self.calls) < 2:
                await asyncio.sleep(0.001)
        self.assertEqual({('write', b'\1'), ('read', b'')},
                         set(self.calls))
        self.unblock.set()
        await self.wait_for_tasks()
        self.assertEqual(('write', b'\2'), self.calls[-1])

    async def test_slow_command_does_not_block_inline_commands(self):
        self.unblock.clear()
        self.one.request(0, 2, b'\1')
        self.assertEqual([(0, b'quick')], self.one.request(6, 1))
        self.client().login()

    async def test_read_is_answered_without_a_thread(self):
        self.assertEqual([(0, b'read')], self.one.request(0, 1))
        self.assertEqual([self.read], self.attempted)
        self.assertFalse(self.server._tasks)

    async def test_read_that_would_block_runs_in_a_thread(self):
        self.unblock.clear()
        self.assertEqual([], self.one.request(0, 1))
        self.assertEqual([self.read], self.attempted)
        other = self.client().login()
        self.assertEqual([(0, b'quick')], other.request(6, 1))
        mark = len(self.socket.sent)
        self.unblock.set()
        await self.wait_for_tasks()
        self.assertEqual((0, b'read'), self.one.reveal(
            self.socket.sent[mark][0])[:2])
        self.assertEqual([('read', b'')], self.calls)

    async def read_often(self):
        """Send twice as many commands that block as may have a thread."""
        self.unblock.clear()
        self.server._readers = futures.ThreadPoolExecutor(
            server.READS_MAX + 1)
        self.addCleanup(self.server._readers.shutdown)
        sessions = [self.client().login()
                    for _ in range(2 * server.READS_MAX // server.PENDING_MAX)]
        for one in sessions:
            for _ in range(server.PENDING_MAX):
                self.assertEqual([], one.request(0, 1))

    async def test_reads_leave_threads_to_other_bmcs(self):
        await self.read_often()
        async with asyncio.timeout(30):
            while len(self.calls) < server.READS_MAX:
                await asyncio.sleep(0.001)
            await asyncio.get_running_loop().run_in_executor(
                self.server._readers, lambda: None)
        self.assertEqual(server.READS_MAX, len(self.calls))
        self.unblock.set()
        await self.wait_for_tasks()
        self.assertEqual(2 * server.READS_MAX, len(self.calls))

    async def test_read_that_was_given_up_is_not_run(self):
        with mock.patch.object(server, 'RESPONSE_SECONDS', 0.05):
            await self.read_often()
            async with asyncio.timeout(30):
                while self.server.responses[0, 1, 0xc3] < (
                        2 * server.READS_MAX):
                    await asyncio.sleep(0.001)
        self.unblock.set()
        await self.wait_for_tasks()
        self.assertEqual(server.READS_MAX, len(self.calls))

    async def test_only_reads_are_attempted(self):
        self.assertEqual((0, b'\1'), await self.one.command(0, 2, b'\3'))
        self.one.request(6, 1)
        self.assertEqual([], self.attempted)

    async def test_failed_attempt_is_repeated_and_logged(self):
        with self.assertLogs('vbmc_kubevirt.ipmi.server') as logs:
            self.assertEqual((0xFF, b''), await self.one.command(0, 3))
        self.assertEqual(1, len(logs.records))
        self.assertEqual([self.faulty], self.attempted)

    async def test_slow_command_gets_timeout_code_and_continues(self):
        self.set_response_timeout(0.05)
        self.unblock.clear()
        answer = await self.one.command(0, 2, b'\1', rq=9)
        self.assertEqual((0xC3, b''), answer)
        # The next command waits for the running one, with the same timeout.
        self.assertEqual((0xC3, b''), await self.one.command(0, 2, b'\2'))
        self.assertEqual([answer], self.one.request(0, 2, b'\1', rq=9))
        self.assertEqual([('write', b'\1')], self.calls)
        self.unblock.set()
        await self.wait_for_tasks()
        self.assertEqual([('write', b'\1'), ('write', b'\2')],
                         self.calls)

    async def test_late_result_is_kept_for_repetitions(self):
        self.set_response_timeout(0.05)
        self.unblock.clear()
        self.assertEqual((0xC3, b''), await self.one.command(
            0, 2, b'\1', rq=9))
        self.unblock.set()
        await self.wait_for_tasks()
        self.assertEqual([(0, b'\1')], self.one.request(0, 2, b'\1', rq=9))
        self.assertEqual([('write', b'\1')], self.calls)

    async def test_slow_command_whose_effect_shows_has_succeeded(self):
        shown = []
        command = self.commands[0, 2]
        self.commands[0, 2] = command._replace(
            begun=lambda session, data: shown.append(data) or data == b'\1')
        self.server._attempt = lambda handler, *args: handler(*args)
        self.set_response_timeout(0.05)
        self.unblock.clear()
        self.assertEqual((0, b''), await self.one.command(0, 2, b'\1', rq=9))
        # This one has not begun: it waits for the first.
        self.assertEqual((0xC3, b''), await self.one.command(0, 2, b'\1'))
        self.unblock.set()
        await self.wait_for_tasks()
        self.assertEqual([(0, b'')], self.one.request(0, 2, b'\1', rq=9))
        self.unblock.clear()
        self.assertEqual((0xC3, b''), await self.one.command(0, 2, b'\2'))
        self.assertEqual([b'\1', b'\2'], shown)

    def set_response_timeout(self, seconds):
        patch = mock.patch.object(server, 'RESPONSE_SECONDS', seconds)
        patch.start()
        self.addCleanup(patch.stop)

    async def test_rejects_requests_beyond_pending_limit(self):
        self.unblock.clear()
        for number in range(server.PENDING_MAX):
            self.assertEqual([], self.one.request(0, 2, bytes((number,))))
        self.assertEqual([(0xC0, b'')], self.one.request(0, 2, b'\x09'))
        self.assertEqual([(0xC0, b'')], self.one.request(0, 1))
        # It needs no thread now, so it is not one of those that wait.
        self.server._attempt = lambda *_arguments: (0, b'now')
        self.assertEqual([(0, b'now')], self.one.request(0, 1))
        self.assertEqual([(0xC0, b'')], self.one.request(0, 2, b'\x0A'))

    async def test_requests_of_one_user_leave_room_to_others(self):
        self.others = [users.User(3, b'other', b'other')]
        self.unblock.clear()
        for _ in range(server.USER_PENDING_MAX // server.PENDING_MAX):
            one = self.client().login()
            for _ in range(server.PENDING_MAX):
                self.assertEqual([], one.request(0, 1))
        self.assertEqual([(0xC0, b'')], self.one.request(0, 1))
        other = self.client(username=b'other', password=b'other').login()
        self.assertEqual([], other.request(0, 1))

    async def test_limits_cached_responses(self):
        for number in range(40):
            await self.one.command(0, 2, bytes((number,)))
        session, = self.server._sessions.established.values()
        self.assertEqual(
            server.CACHED_RESPONSES_MAX, len(
                session.response_cache))
        self.assertEqual(set(), session.pending)
