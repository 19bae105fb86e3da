# SPDX-License-Identifier: Apache-2.0
import asyncio
import socket
import unittest

from vbmc_kubevirt.ipmi import packet
from vbmc_kubevirt.ipmi import server
from vbmc_kubevirt.ipmi import udp


class PingTest(unittest.IsolatedAsyncioTestCase):

    async def ping(self, address, port, seconds=5):
        return await asyncio.to_thread(
            udp.answers_ping, address, port, seconds
        )

    async def test_true_when_server_answers(self):
        for listens, pinged in (('127.0.0.1', '127.0.0.1'), ('::1', '::1'),
                                ('::', '::'), ('::', '127.0.0.1'),
                                ('0.0.0.0', '0.0.0.0')):
            one = server.Server('vm', None, dict, lambda: b'', None, None,
                                None)
            sock = udp.open_socket(listens, 0)
            one.start(sock)
            self.assertTrue(await self.ping(pinged, sock.getsockname()[1]))
            one.stop()

    async def test_false_when_port_is_closed(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind(('127.0.0.1', 0))
            number = sock.getsockname()[1]
        async with asyncio.timeout(30):
            self.assertFalse(await self.ping('127.0.0.1', number))

    async def test_false_after_timeout(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind(('127.0.0.1', 0))
            self.assertFalse(await self.ping(
                '127.0.0.1', sock.getsockname()[1], 0.05))

    async def test_repeats_lost_ping(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind(('127.0.0.1', 0))
            result = asyncio.create_task(self.ping(
                '127.0.0.1', sock.getsockname()[1], 6))
            for _twice in range(2):
                data, address = await asyncio.to_thread(sock.recvfrom, 100)
            sock.sendto(packet.pong(packet.parse_ping(data)), address)
            self.assertTrue(await result)

    async def test_false_for_other_response(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind(('127.0.0.1', 0))
            result = asyncio.create_task(self.ping(
                '127.0.0.1', sock.getsockname()[1]))
            _data, address = await asyncio.to_thread(sock.recvfrom, 100)
            sock.sendto(b'good morning', address)
            self.assertFalse(await result)
