# SPDX-License-Identifier: Apache-2.0
import asyncio
from unittest import mock

from oslotest import base

from sushy_kubevirt.operator import rollout
from sushy_kubevirt.operator import workqueue

A, B, C, D = (('lab', name) for name in 'abcd')


class Work:
    """Records the keys that it processes; each waits for the gate."""

    def __init__(self, results=()):
        self.processed = []
        self.results = list(results)
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, key):
        self.processed.append(key)
        await self.gate.wait()
        result = self.results.pop(0) if self.results else None
        if isinstance(result, Exception):
            raise result
        return result


async def until(condition):
    for _ in range(500):
        if condition():
            return
        await asyncio.sleep(0.002)
    raise AssertionError('condition not met in time')


class QueueTestCase(base.BaseTestCase):

    def run_with(self, scenario, results=(), workers=2):
        async def run():
            work = Work(results)
            queue = workqueue.Queue(work, workers)
            queue.start()
            try:
                await scenario(queue, work)
            finally:
                work.gate.set()
                await queue.close(1)
        asyncio.run(run())

    def test_key_is_processed_once_per_add(self):
        async def scenario(queue, work):
            work.gate.clear()
            for key in (A, B, C, A, C, C):
                queue.add(key)
            await until(lambda: len(work.processed) == 2)
            # A key added while it is processed is processed again, last.
            queue.add(A)
            queue.add(A)
            self.assertEqual(1, len(queue))
            work.gate.set()
            await until(lambda: len(work.processed) == 4)
            await asyncio.sleep(0.01)
            self.assertEqual([A, B, C, A], work.processed)
        self.run_with(scenario)

    def test_failures_are_retried_with_backoff(self):
        pauses = []

        async def scenario(queue, work):
            with mock.patch.object(
                    queue, 'add_later',
                    side_effect=lambda key, seconds: pauses.append(seconds)):
                for number in range(1, 15):
                    queue.add(A)
                    await until(lambda: len(pauses) == number)
        self.run_with(scenario, [workqueue.Failure()] * 14)
        for number, pause in enumerate(pauses):
            longest = min(workqueue.FIRST_PAUSE * 2 ** number,
                          workqueue.LONGEST_PAUSE)
            self.assertLessEqual(longest / 2, pause)
            self.assertLessEqual(pause, longest)

    def test_success_resets_backoff(self):
        async def scenario(queue, work):
            queue.add(A)
            await until(lambda: len(work.processed) == 2)
            self.assertEqual({}, queue._failures)
        with mock.patch.object(workqueue, 'FIRST_PAUSE', 0.01):
            self.run_with(scenario, [workqueue.Failure()])

    def test_retry_after_is_respected(self):
        async def scenario(queue, work):
            self.assertEqual(60, queue._pause(A, 60))
        self.run_with(scenario)

    def test_unexpected_exception_is_logged_and_retried(self):
        async def scenario(queue, work):
            queue.add(A)
            queue.add(B)
            await until(lambda: B in work.processed)
            self.assertIn(A, queue._timers)
        with self.assertLogs(level='ERROR'):
            self.run_with(scenario, [ValueError('a bug')])

    def test_add_replaces_later_reconcile(self):
        async def scenario(queue, work):
            queue.add(A)
            await until(lambda: A in queue._timers)
            queue.add(A)
            self.assertEqual({}, queue._timers)
            await until(lambda: len(work.processed) == 2)
        self.run_with(scenario, [3600])

    def test_earlier_of_two_pauses(self):
        async def scenario(queue, work):
            for seconds in (3600, 0, 7200):
                queue.add_later(A, seconds)
            await until(lambda: work.processed == [A])
            self.assertEqual({}, queue._timers)
        self.run_with(scenario)

    def test_forget_cancels_timer_of_many_years(self):
        async def scenario(queue, work):
            queue.add_later(A, 10 ** 9)
            queue.forget(A)
            self.assertEqual({}, queue._timers)
        self.run_with(scenario)

    def test_close_waits_for_current_key(self):
        finished = []

        async def work(key):
            await asyncio.sleep(0.02)
            finished.append(key)

        async def run():
            queue = workqueue.Queue(work, 1)
            queue.start()
            queue.add(A)
            queue.add(B)
            await asyncio.sleep(0.01)
            await queue.close(5)
        asyncio.run(run())
        self.assertEqual([A], finished)


class RolloutTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.woken = []
        self.rollout = rollout.Rollout(2, self.woken.extend)

    def test_limits_number_of_slots(self):
        self.assertEqual([True, True, False], [
            self.rollout.acquire(key) for key in (A, B, C)])
        # A BMC keeps its slot.
        self.assertTrue(self.rollout.acquire(A))
        # An update during its slot may be older than the slot.
        self.rollout.update(B, False)
        self.assertEqual([], self.woken)
        self.rollout.update(B, True)
        self.rollout.release(B)
        self.assertEqual([], self.woken)
        self.assertFalse(self.rollout.acquire(C))
        self.rollout.update(B, False)
        self.assertEqual([C], self.woken)
        self.assertTrue(self.rollout.acquire(C))

    def test_release_and_withdraw_free_slot(self):
        for end in self.rollout.release, self.rollout.withdraw:
            for key in (A, B, C):
                self.rollout.acquire(key)
            end(A)
            self.assertEqual([C], self.woken)
            self.woken.clear()
            self.assertTrue(self.rollout.acquire(C))
            for key in (A, B, C):
                self.rollout.forget(key)

    def test_forget_frees_slot(self):
        for key in (A, B, C):
            self.rollout.acquire(key)
        self.rollout.forget(C)
        self.rollout.forget(A)
        self.assertEqual([], self.woken)
        self.assertTrue(self.rollout.acquire(C))

    def test_unneeded_slot_goes_to_next(self):
        for end in self.rollout.withdraw, self.rollout.forget:
            for key in (A, B, C, D):
                self.rollout.acquire(key)
            self.rollout.release(A)
            self.assertEqual([C], self.woken)
            end(C)
            self.assertEqual([C, D], self.woken)
            self.woken.clear()
            for key in (A, B, C, D):
                self.rollout.forget(key)
            self.woken.clear()

    def test_update_of_unaffected_bmc_frees_no_slot(self):
        for key in (A, B, C):
            self.rollout.acquire(key)
        self.rollout.update(('lab', 'd'), False)
        self.assertEqual([], self.woken)

    def test_new_leader_counts_stopped_bmcs(self):
        self.rollout.update(A, True)
        self.rollout.update(B, True)
        self.assertFalse(self.rollout.acquire(C))
