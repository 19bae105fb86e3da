# SPDX-License-Identifier: Apache-2.0

import asyncio

from oslotest import base

from kubevirt_sandbox.kubevirt import workqueue


class WorkQueueTest(base.BaseTestCase):

    def _run(self, scenario):
        async def run():
            self.done = []
            queue = workqueue.WorkQueue(asyncio.get_running_loop(),
                                        self._work, 'test')
            try:
                await scenario(queue)
            finally:
                queue.close()
        asyncio.run(run())

    async def _until(self, condition):
        async with asyncio.timeout(30):
            while not condition():
                await asyncio.sleep(0.01)

    def _work(self, key):
        self.done.append(key)
        if key == 'bad' and self.done.count('bad') < 3:
            raise workqueue.Again('not yet')

    def test_key_added_repeatedly_runs_once(self):
        async def scenario(queue):
            for _ in range(3):
                for key in range(20):
                    queue.add(key)
            await self._until(lambda: len(self.done) >= 20)
        self._run(scenario)
        self.assertEqual(list(range(20)), self.done)

    def test_runs_keys_with_random_delay(self):
        async def scenario(_queue):
            loop = asyncio.get_running_loop()
            queue = workqueue.WorkQueue(loop, self._work, 'late', 1)
            for _ in range(3):
                for key in range(20):
                    queue.add(key)
            for _ in range(5):
                await asyncio.sleep(0)
            self.assertGreater(20, len(self.done))
            await self._until(lambda: len(self.done) >= 20)
            queue.close()
        self._run(scenario)
        self.assertEqual(set(range(20)), set(self.done))
        self.assertEqual(20, len(self.done))

    def test_retries_failed_key(self):
        async def scenario(queue):
            queue.add('bad')
            queue.add('good')
            await self._until(lambda: self.done.count('bad') >= 3)
        self._run(scenario)
        self.assertEqual(['bad', 'good', 'bad', 'bad'], self.done)

    def test_earliest_delay_counts(self):
        async def scenario(queue):
            queue.add_after('a', 60)
            queue.add_after('a', 0.01)
            queue.add_after('a', 60)
            await self._until(lambda: self.done)
        self._run(scenario)
        self.assertEqual(['a'], self.done)

    def test_closed_queue_runs_nothing(self):
        async def scenario(queue):
            queue.add('a')
            queue.add_after('b', 0)
            queue.close()
            queue.add('c')
            await asyncio.sleep(0.01)
        self._run(scenario)
        self.assertEqual([], self.done)
