# SPDX-License-Identifier: Apache-2.0
"""What Prometheus is told, and by what."""

import asyncio

import aiohttp
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
            host, port = served._runner.addresses[0][:2]
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
                await second.start('127.0.0.1',
                                   first._runner.addresses[0][1])
            finally:
                await second.close()
                await first.close()

        self.assertRaises(OSError, asyncio.run, main())
