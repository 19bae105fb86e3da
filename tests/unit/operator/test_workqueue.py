# SPDX-License-Identifier: Apache-2.0
import asyncio
from unittest import mock

from oslotest import base

from sushy_kubevirt.operator import rollout
from sushy_kubevirt.operator import workqueue

A, B, C, D = (('lab', name) for name in 'abcd')


class Work:
    """Notes what it is asked to do; each key waits to be let go."""

    def __init__(self, answers=()):
        self.done = []
        self.answers = list(answers)
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, key):
        self.done.append(key)
        await self.gate.wait()
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer


async def settled(condition):
    for _ in range(500):
        if condition():
            return
        await asyncio.sleep(0.002)
    raise AssertionError('it never came to that')


class QueueTestCase(base.BaseTestCase):

    def run_with(self, story, answers=(), workers=2):
        async def run():
            work = Work(answers)
            queue = workqueue.Queue(work, workers)
            queue.start()
            try:
                await story(queue, work)
            finally:
                work.gate.set()
                await queue.close(1)
        asyncio.run(run())

    def test_each_once(self):
        async def story(queue, work):
            work.gate.clear()
            for key in (A, B, C, A, C, C):
                queue.add(key)
            await settled(lambda: len(work.done) == 2)
            # One that is worked on comes once more, after the others.
            queue.add(A)
            queue.add(A)
            self.assertEqual(1, len(queue))
            work.gate.set()
            await settled(lambda: len(work.done) == 4)
            await asyncio.sleep(0.01)
            self.assertEqual([A, B, C, A], work.done)
        self.run_with(story)

    def test_failures_are_tried_again_later_and_later(self):
        pauses = []

        async def story(queue, work):
            with mock.patch.object(
                    queue, 'add_later',
                    side_effect=lambda key, seconds: pauses.append(seconds)):
                for number in range(1, 15):
                    queue.add(A)
                    await settled(lambda: len(pauses) == number)
        self.run_with(story, [workqueue.Failure()] * 14)
        for number, pause in enumerate(pauses):
            longest = min(workqueue.FIRST_PAUSE * 2 ** number,
                          workqueue.LONGEST_PAUSE)
            self.assertLessEqual(longest / 2, pause)
            self.assertLessEqual(pause, longest)

    def test_after_a_success_patience_is_new(self):
        async def story(queue, work):
            queue.add(A)
            await settled(lambda: len(work.done) == 2)
            self.assertEqual({}, queue._failures)
        with mock.patch.object(workqueue, 'FIRST_PAUSE', 0.01):
            self.run_with(story, [workqueue.Failure()])

    def test_the_server_says_how_long(self):
        async def story(queue, work):
            self.assertEqual(60, queue._pause(A, 60))
        self.run_with(story)

    def test_a_bug_is_told_and_the_others_go_on(self):
        async def story(queue, work):
            queue.add(A)
            queue.add(B)
            await settled(lambda: B in work.done)
            self.assertIn(A, queue._timers)
        with self.assertLogs(level='ERROR'):
            self.run_with(story, [ValueError('a bug')])

    def test_later_and_sooner(self):
        async def story(queue, work):
            queue.add(A)
            await settled(lambda: A in queue._timers)
            queue.add(A)
            self.assertEqual({}, queue._timers)
            await settled(lambda: len(work.done) == 2)
        self.run_with(story, [3600])

    def test_years(self):
        async def story(queue, work):
            queue.add_later(A, 10 ** 9)
            queue.forget(A)
            self.assertEqual({}, queue._timers)
        self.run_with(story)

    def test_what_is_under_way_at_the_end_may_finish(self):
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

    def test_so_many_at_a_time(self):
        self.assertEqual([True, True, False], [
            self.rollout.acquire(key) for key in (A, B, C)])
        # Who was let go may go on.
        self.assertTrue(self.rollout.acquire(A))
        # What is told while it is its turn may be older.
        self.rollout.update(B, False)
        self.assertEqual([], self.woken)
        self.rollout.update(B, True)
        self.rollout.release(B)
        self.assertEqual([], self.woken)
        self.assertFalse(self.rollout.acquire(C))
        self.rollout.update(B, False)
        self.assertEqual([C], self.woken)
        self.assertTrue(self.rollout.acquire(C))

    def test_one_that_had_nothing_to_do_makes_room(self):
        for end in self.rollout.release, self.rollout.withdraw:
            for key in (A, B, C):
                self.rollout.acquire(key)
            end(A)
            self.assertEqual([C], self.woken)
            self.woken.clear()
            self.assertTrue(self.rollout.acquire(C))
            for key in (A, B, C):
                self.rollout.forget(key)

    def test_one_that_is_gone_makes_room(self):
        for key in (A, B, C):
            self.rollout.acquire(key)
        self.rollout.forget(C)
        self.rollout.forget(A)
        self.assertEqual([], self.woken)
        self.assertTrue(self.rollout.acquire(C))

    def test_one_that_needs_its_turn_no_more_passes_it_on(self):
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

    def test_one_that_was_not_stopped_makes_none(self):
        for key in (A, B, C):
            self.rollout.acquire(key)
        self.rollout.update(('lab', 'd'), False)
        self.assertEqual([], self.woken)

    def test_who_takes_over_counts_the_same(self):
        self.rollout.update(A, True)
        self.rollout.update(B, True)
        self.assertFalse(self.rollout.acquire(C))
