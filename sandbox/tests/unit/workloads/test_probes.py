# SPDX-License-Identifier: Apache-2.0
"""Probe schedules, HTTP probes and the limit of concurrent starts."""

import asyncio
import unittest

from kubevirt_sandbox.testing import timeless
from kubevirt_sandbox.workloads import httpprobe
from kubevirt_sandbox.workloads import probes
from kubevirt_sandbox.workloads import start_limiter


class ClockTestCase(unittest.TestCase):

    def until_next(self, began, container, period, delay=0, nudged=None):
        """Return the seconds until the next probe.

        :param nudged: whether the wait ends at a nudge; None without one
        """
        async def run(loop):
            begin = loop.time()
            clock = probes.Clock(begin + began, begin + container)
            if nudged is not None:
                clock.nudge.set()
            await clock.wait(
                probes.Plan(delay, period, 1, 1, 3), bool(nudged))
            return loop.time() - begin

        return timeless.run(run)

    def test_probe_period_starts_with_the_pod(self):
        self.assertAlmostEqual(0.2, self.until_next(-0.8, 0, 1))
        self.assertAlmostEqual(0.4, self.until_next(-1.6, -1.6, 1))

    def test_no_probe_during_initial_delay(self):
        self.assertAlmostEqual(0.4, self.until_next(0, 0, 0.2, delay=0.3))

    def test_only_readiness_probe_runs_early(self):
        for nudged, seconds in ((True, 0), (False, 0.3)):
            with self.subTest(nudged):
                self.assertAlmostEqual(
                    seconds, self.until_next(0, 0, 0.3, nudged=nudged))


class FollowTestCase(unittest.IsolatedAsyncioTestCase):

    async def follow(self, results, nudged):
        """Follow some results.

        :returns: reported states, reported failures, unused results
        """
        results, states, failures = list(results), [], []
        clock = probes.Clock(0, 0)

        async def once(spec):
            clock.nudge.set()
            if not results:
                raise asyncio.CancelledError
            return results.pop(0)
        try:
            await probes.follow(
                {'periodSeconds': 0.01, 'failureThreshold': 2}, once,
                None, states.append, failures.append, clock, nudged)
        except asyncio.CancelledError:
            pass
        return states, failures, results

    async def test_failed_liveness_is_reported_once(self):
        self.assertEqual(
            ([True, False], ['a', 'b'], ['c']),
            await self.follow(['', 'a', 'b', 'c'], False))

    async def test_readiness_changes_repeatedly(self):
        self.assertEqual(
            ([False, True], ['a', 'b', 'c'], []),
            await self.follow(['a', 'b', 'c', '', ''], True))


class StatusTestCase(unittest.IsolatedAsyncioTestCase):

    async def probe(self, answer, **more):
        """Probe a server; return (status code, request, port)."""
        requests = []

        async def serve(reader, writer):
            requests.append(await reader.readuntil(b'\r\n\r\n'))
            writer.write(answer)
            if not more.get('open'):
                writer.close()
        server = await asyncio.start_server(serve, '127.0.0.1', 0)
        port = server.sockets[0].getsockname()[1]
        try:
            return await asyncio.wait_for(httpprobe.status(
                '127.0.0.1', port, '/x', more.get('headers', []), False),
                5), requests[0].decode(), port
        finally:
            server.close()

    async def test_request_has_headers_of_kubelet(self):
        status, request, port = await self.probe(
            b'HTTP/1.1 204 No Content\r\n\r\n', headers=[
                ('host', 'a.test'), ('X-A', 'b')])
        self.assertEqual(204, status)
        self.assertEqual(
            ['GET /x HTTP/1.1', 'User-Agent: kube-probe/1.36',
             'Accept: */*', 'host: a.test', 'X-A: b', 'Connection: close',
             '', ''], request.split('\r\n'))
        _, request, port = await self.probe(b'HTTP/1.0 200 OK\r\n\r\n')
        self.assertIn(f'\r\nHost: 127.0.0.1:{port}\r\n', request)

    async def test_complete_response_needs_no_close(self):
        status, _, _ = await self.probe(
            b'HTTP/1.1 503 No\r\nContent-Length: 2\r\n\r\nno', open=True)
        self.assertEqual(503, status)

    async def test_invalid_response_is_an_error(self):
        for answer in (b'', b'nonsense\r\n\r\n'):
            with self.subTest(answer), self.assertRaises(OSError):
                await self.probe(answer)

    async def test_rejects_header_with_line_break(self):
        with self.assertRaises(OSError):
            await self.probe(b'', headers=[('a', 'b\r\nc: d')])


class StartLimiterTestCase(unittest.IsolatedAsyncioTestCase):

    async def test_starts_are_serialized(self):
        turns, order = start_limiter.Turns(1), []
        first = asyncio.Event()

        async def run(name, event=None):
            async with turns.one() as turn:
                order.append(name)
                if event:
                    await event.wait()
                turn.end()
                turn.end()
        tasks = [asyncio.create_task(run('a', first)),
                 asyncio.create_task(run('b')),
                 asyncio.create_task(run('c'))]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        self.assertEqual(['a'], order)
        tasks[1].cancel()
        first.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.assertEqual(['a', 'c'], order)
        async with asyncio.timeout(30), turns.one():
            pass

    async def test_slow_start_does_not_block_others(self):
        turns = start_limiter.Turns(1)
        self.addCleanup(
            setattr,
            start_limiter,
            'LONGEST',
            start_limiter.LONGEST)
        start_limiter.LONGEST = 0.05
        async with turns.one():
            async with asyncio.timeout(30), turns.one():
                pass
