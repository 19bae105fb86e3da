# SPDX-License-Identifier: Apache-2.0
"""Functions that the server runs later, beside requests."""

import asyncio
import logging
import threading
import time

from tests.unit.vbmc.ipmi import base


class TimerTest(base.ServerTestCase):

    def run_soon(self, function, seconds=0.01):
        """Start a timer from another thread, as handlers do."""
        timers = []
        thread = threading.Thread(target=lambda: timers.append(
            self.server.run_later(seconds, function)))
        thread.start()
        thread.join()
        return timers[0]

    async def test_runs_in_thread_and_after_other_changes(self):
        one = self.client().login()
        one.request(6, 0x3B, b'\4')
        self.unblock.clear()
        one.request(0, 2, b'1')
        done = threading.Event()
        threads = []
        self.run_soon(lambda: (threads.append(threading.current_thread()),
                               done.set()))
        await asyncio.sleep(0.05)
        self.assertFalse(done.is_set())
        self.unblock.set()
        self.assertTrue(await asyncio.to_thread(done.wait, 30))
        self.assertIsNot(threading.main_thread(), threads[0])

    async def test_cancelled_timer_does_not_run(self):
        calls = []
        for seconds in 0, 0.02:
            timer = self.run_soon(lambda: calls.append(1), seconds)
            timer.cancel()
        await asyncio.sleep(0.05)
        self.assertEqual([], calls)

    async def test_nothing_runs_after_stop(self):
        calls = []
        self.run_soon(lambda: calls.append(1))
        self.server.stop()
        await asyncio.sleep(0.05)
        self.assertEqual([], calls)

    async def test_failure_is_logged(self):
        with self.assertLogs('vbmc_kubevirt', logging.ERROR) as logs:
            self.run_soon(self.raises)
            deadline = time.monotonic() + 30
            while not logs.records and time.monotonic() < deadline:
                await asyncio.sleep(0.01)
        self.assertIn('raises failed', logs.output[0])
        self.assertEqual((0, b'read'),
                         await self.client().login().command(0, 1))

    def raises(self):
        raise RuntimeError('a fault')
