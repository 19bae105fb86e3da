# SPDX-License-Identifier: Apache-2.0

import queue
import threading
import time
from unittest import mock

from oslotest import base

from sushy_kubevirt.kube import delaying_queue


class WorkerTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.worker = delaying_queue.Worker('test')
        self.addCleanup(self.worker.close)
        self.calls = queue.Queue()

    def put(self, key, value, seconds=0):
        self.worker.put(key, lambda: self.calls.put(value), seconds)

    def called(self, number):
        return [self.calls.get(timeout=30) for _ in range(number)]

    def test_calls_functions_when_due(self):
        with mock.patch.object(delaying_queue.time, 'monotonic',
                               return_value=time.monotonic()):
            self.put('late', 2, 0.05)
            self.put('now', 1)
        self.worker.start()
        self.assertEqual([1, 2], self.called(2))

    def test_earlier_put_replaces_later(self):
        self.put('a', 'first', 30)
        self.put('a', 'second')
        self.put('b', 'last', 0.02)
        self.worker.start()
        self.assertEqual(['second', 'last'], self.called(2))

    def test_close_ends_threads(self):
        thread = threading.Thread(target=self.worker._run)
        thread.start()
        self.put('a', 1, 30)
        self.worker.close()
        thread.join(30)
        self.assertFalse(thread.is_alive())
        self.assertTrue(self.calls.empty())

    def test_failure_does_not_end_a_thread(self):
        self.worker.put('a', lambda: 1 / 0)
        self.put('b', 'next', 0.01)
        self.worker.start()
        self.assertEqual(['next'], self.called(1))
