# SPDX-License-Identifier: Apache-2.0
import asyncio
import socket
import unittest
from unittest import mock

from tests.unit.vbmc.ipmi import base
from tests.unit.vbmc.ipmi import client
from vbmc_kubevirt.ipmi import server
from vbmc_kubevirt.ipmi import udp
from vbmc_kubevirt.ipmi import users


class SessionlessTest(base.ServerTestCase):

    def ask(self, command, data, rmcpp=False):
        message = client.message(6, command, data)
        packet = (client.payload(0, message) if rmcpp else
                  b'\x06\x00\xff\x07\x00' + bytes(8)
                  + bytes((len(message),)) + message)
        answer, = self.client().send(packet)
        return answer[16 if rmcpp else 14:][6:-1]

    async def test_get_channel_authentication_capabilities(self):
        for rmcpp in False, True:
            self.assertEqual(
                bytes((0, 1, 0x84, 4, 3, 0, 0, 0, 0)),
                self.ask(0x38, b'\x8e\x04', rmcpp))

    async def test_get_channel_cipher_suites(self):
        self.assertEqual(b'\0\x01\xc0\x11\x03\x44\x81\xc0\x03\x01\x41\x81',
                         self.ask(0x54, b'\x0e\x00\x80', True))
        self.assertEqual(b'\0\x01', self.ask(0x54, b'\x0e\x00\x81', True))

    async def test_rejects_wrong_channel_or_length(self):
        self.assertEqual(b'\xcc', self.ask(0x38, b'\x83\x04'))
        self.assertEqual(b'\xc7', self.ask(0x38, b''))
        self.assertEqual(b'\xcc', self.ask(0x54, b'\x03\x00\x80'))
        self.assertEqual(b'\xc7', self.ask(0x54, b'\x0e'))

    async def test_drops_other_commands_without_session(self):
        for netfn, command in (0, 1), (0, 2), (6, 1), (6, 0x3b), (6, 8):
            for sent in (client.payload(0, client.message(netfn, command,
                                                          b'\1')),):
                self.assertEqual([], self.client().send(sent))
        self.assertEqual([], self.calls)
        self.assertEqual([0, 0, 0], self.table_sizes())

    async def test_answers_asf_ping_without_session(self):
        pong, = self.client().send(bytes.fromhex(
            '0600ff06000011be802a0000'))
        self.assertEqual(bytes.fromhex('402a0010'), pong[8:12])
        self.assertEqual([0, 0, 0], self.table_sizes())


class FinishTest(base.ServerTestCase):

    async def test_completes_running_command_and_rejects_new_ones(self):
        patch = mock.patch.object(server, 'CLOSE_SECONDS', 3600)
        patch.start()
        self.addCleanup(patch.stop)
        one = self.client().login()
        one.request(6, 0x3b, b'\4')
        self.unblock.clear()
        one.request(0, 2, b'1')
        mark = len(self.socket.sent)
        finish = asyncio.create_task(self.server.finish(30))
        await asyncio.sleep(0)
        # New commands are rejected, and no login is possible.
        self.assertEqual([(0xC0, b'')], one.request(0, 2, b'2'))
        self.assertEqual([(0xC0, b'')], one.request(6, 1))
        self.assertIsNone(self.client().open())
        self.assertFalse(self.socket.closed)
        self.unblock.set()
        async with asyncio.timeout(30):
            while len(self.socket.sent) < mark + 3:
                await asyncio.sleep(0.001)
        self.assertEqual((0, b'\1'),
                         one.reveal(self.socket.sent[-1][0])[:2])
        # The client closes its session.
        self.assertEqual([(0, b'')], one.request(6, 0x3c, one.session_id))
        async with asyncio.timeout(30):
            await finish
        self.assertTrue(self.socket.closed)
        self.assertEqual([('write', b'1')], self.calls)

    async def test_stops_waiting_for_command_after_timeout(self):
        one = self.client().login()
        self.unblock.clear()
        one.request(0, 1)
        async with asyncio.timeout(30):
            await self.server.finish(0.01)
        self.assertTrue(self.socket.closed)


class MetricsTest(base.ServerTestCase):

    async def test_counts_responses_by_command_and_code(self):
        one = self.client().login()
        for _twice in range(2):
            await one.command(0, 1)
        await one.command(0, 2)
        one.request(6, 1)
        for command in range(0x70, 0x78):
            one.request(0x2e, command)
        self.assertEqual(
            {(0, 1, 0): 2, (0, 2, 0xD4): 1, (6, 1, 0): 1,
             # Unsupported commands share one counter.
             (None, None, 0xC1): 8}, dict(self.server.responses))

    async def test_counts_sessions(self):
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


class SocketTest(unittest.IsolatedAsyncioTestCase):

    async def test_serves_udp_socket_after_noise_and_icmp_errors(self):
        one = server.Server('vm', users.Users(lambda: ()), dict,
                            lambda: base.GUID, None, None, None)
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
            # Responses to a closed port come back as ICMP errors.
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

    def test_error_names_port_in_use(self):
        with udp.open_socket('127.0.0.1', 0) as first:
            port = first.getsockname()[1]
            with self.assertRaisesRegex(
                    OSError, f'UDP port {port} on 127.0.0.1: .*in use'):
                udp.open_socket('127.0.0.1', port)

    def test_error_names_invalid_address(self):
        with self.assertRaisesRegex(OSError, 'UDP port 1623 on 999.1.1.1: '):
            udp.open_socket('999.1.1.1', 1623)
