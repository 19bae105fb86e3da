# SPDX-License-Identifier: Apache-2.0
"""Nobody keeps kubelet and Prometheus from their answers."""

import asyncio
import unittest
from unittest import mock

from sushy_kubevirt.operator import probes


class ProbesTestCase(unittest.IsolatedAsyncioTestCase):

    async def asyncSetUp(self):
        self.problem = None
        self.probes = probes.Probes(lambda: b'one 1\n',
                                    lambda: self.problem)
        await self.probes.start('127.0.0.1', 0)
        self.addAsyncCleanup(self.probes.close)

    async def connect(self):
        reader, writer = await asyncio.open_connection(
            '127.0.0.1', self.probes.port)
        self.addCleanup(writer.close)
        return reader, writer

    async def ask(self, path):
        reader, writer = await self.connect()
        writer.write(b'GET %s HTTP/1.1\r\nHost: a\r\n'
                     b'Connection: close\r\n\r\n' % path)
        async with asyncio.timeout(30):
            answer = await reader.read()
        head, _, body = answer.partition(b'\r\n\r\n')
        return int(head.split()[1]), body

    async def closed(self, reader):
        async with asyncio.timeout(30):
            try:
                self.assertEqual(b'', await reader.read())
            except ConnectionError:
                pass

    async def test_answers(self):
        self.assertEqual((200, b'ok\n'), await self.ask(b'/livez'))
        self.assertEqual((200, b'ok\n'), await self.ask(b'/readyz'))
        self.assertEqual((200, b'one 1\n'), await self.ask(b'/metrics'))
        self.problem = 'It begins'
        self.assertEqual((503, b'It begins\n'), await self.ask(b'/readyz'))
        self.assertEqual((200, b'ok\n'), await self.ask(b'/livez'))

    async def test_lines_are_short(self):
        # A scraper's are of some hundred bytes.
        for size, code in ((1000, 200), (4000, 400)):
            self.assertEqual(code, (await self.ask(
                b'/livez HTTP/1.1\r\nX: ' + b'x' * size + b'\r\nY: '))[0])

    async def test_too_many_end_the_oldest(self):
        with mock.patch.multiple(probes, CONNECTIONS=2, SECONDS=600):
            oldest, _ = await self.connect()
            for _ in range(2):
                await self.connect()
            await self.closed(oldest)
            self.assertEqual(200, (await self.ask(b'/livez'))[0])

    async def test_silent_ones_end(self):
        with mock.patch.object(probes, 'SECONDS', 0.05):
            reader, _ = await self.connect()
            await self.closed(reader)
