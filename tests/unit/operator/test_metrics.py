# SPDX-License-Identifier: Apache-2.0
"""What Prometheus is told, and by what."""

import asyncio

import aiohttp
import fixtures
from oslotest import base

from sushy_kubevirt.operator import metrics
from sushy_kubevirt.operator import probes

PREFIX = 'sushy_kubevirt_operator_'


def samples(told):
    return dict(line.rsplit(' ', 1)
                for line in told.text().decode().splitlines()
                if line.startswith(PREFIX))


class MetricsTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.metrics = metrics.Metrics()

    def samples(self):
        return {name.removeprefix(PREFIX): float(value)
                for name, value in samples(self.metrics).items()}

    def test_who_waits_tells_nothing_of_bmcs(self):
        self.assertEqual({
            'reconciles_total{result="done"}': 0,
            'reconciles_total{result="failed"}': 0,
            'reconcile_seconds_total': 0, 'leader': 0}, self.samples())

    def test_who_works(self):
        told = self.metrics
        told.leads(True)
        told.reconciled(0.5)
        told.reconciled(0.25, failed=True)
        told.queue(3)
        told.states({'ServiceReady': 7, 'EmulatorStarting': 1})
        told.states({'ServiceReady': 8})
        told.called('GET', 200)
        told.called('GET', 200)
        told.called('PATCH', 0)
        self.assertEqual({
            'reconciles_total{result="done"}': 1,
            'reconciles_total{result="failed"}': 1,
            'reconcile_seconds_total': 0.75, 'queue_length': 3, 'leader': 1,
            'bmcs{reason="ServiceReady"}': 8,
            'api_calls_total{method="GET",code="200"}': 2,
            'api_calls_total{method="PATCH",code="0"}': 1}, self.samples())

    def test_the_process(self):
        self.assertIn(b'\nprocess_resident_memory_bytes ',
                      self.metrics.text())


class ProbesTestCase(base.BaseTestCase):

    def ask(self, *paths, ready=lambda: None, address='127.0.0.1'):
        async def main():
            served = probes.Probes(lambda: b'a 1\n', ready)
            await served.start(address, 0)
            host, port = address, served.port
            found = []
            try:
                async with aiohttp.ClientSession() as session:
                    for path in paths:
                        async with session.get('http://%s:%d%s' % (
                                host, port, path)) as answer:
                            found.append((
                                answer.status, await answer.text(),
                                answer.headers['Content-Type']))
            finally:
                await served.close()
            return found

        return asyncio.run(main())

    def test_it_is_well(self):
        text = 'text/plain; charset=utf-8'
        self.assertEqual([
            (200, 'ok\n', text), (200, 'ok\n', text),
            (200, 'a 1\n', 'text/plain; version=0.0.4; charset=utf-8')],
            self.ask('/livez', '/readyz', '/metrics'))

    def test_it_is_not_ready(self):
        found = self.ask('/livez', '/readyz', ready=lambda: 'It begins')
        self.assertEqual([(200, 'ok\n'), (503, 'It begins\n')],
                         [each[:2] for each in found])

    def test_nothing_else_is_there(self):
        self.assertEqual([404, 404], [
            each[0] for each in self.ask('/', '/debug')])

    def test_a_port_that_is_taken(self):
        async def main():
            first = probes.Probes(bytes, str)
            await first.start('127.0.0.1', 0)
            second = probes.Probes(bytes, str)
            try:
                await second.start('127.0.0.1', first.port)
            finally:
                await second.close()
                await first.close()

        self.assertRaises(OSError, asyncio.run, main())

    def test_silent_clients_keep_nobody_out(self):
        async def main():
            served = probes.Probes(bytes, lambda: None)
            await served.start('127.0.0.1', 0)
            silent = [await asyncio.open_connection('127.0.0.1', served.port)
                      for _ in range(probes.CONNECTIONS + 20)]
            try:
                async with aiohttp.ClientSession() as session:
                    async with session.get('http://127.0.0.1:%d/livez'
                                           % served.port) as answer:
                        self.assertEqual(200, answer.status)
                # The oldest went.
                self.assertEqual(b'', await self.rest(silent[0], 30))
                self.assertIsNone(await self.rest(silent[-1]))
            finally:
                for _, writer in silent:
                    writer.close()
                await served.close()

        asyncio.run(main())

    def test_nobody_stays(self):
        self.useFixture(fixtures.MonkeyPatch(
            'sushy_kubevirt.operator.probes.SECONDS', 0.05))

        async def main():
            served = probes.Probes(bytes, lambda: None)
            await served.start('127.0.0.1', 0)
            reader, writer = await asyncio.open_connection(
                '127.0.0.1', served.port)
            writer.write(b'GET /livez HTTP/1.1')
            try:
                self.assertEqual(b'', await self.rest((reader, writer), 30))
                self.assertEqual(0, len(served._visitors))
            finally:
                writer.close()
                await served.close()

        asyncio.run(main())

    @staticmethod
    async def rest(connection, seconds=0.2):
        """What a server still says; None if the connection stays."""
        try:
            async with asyncio.timeout(seconds):
                return await connection[0].read()
        except ConnectionResetError:
            return b''
        except TimeoutError:
            return None
