# SPDX-License-Identifier: Apache-2.0

import queue
import threading

from oslotest import base

from sushy_kubevirt.redfish.services import service_threads


class SharedThreadsTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.threads = service_threads.SharedThreads()
        self.addCleanup(self.threads.close)

    def test_runs_what_is_due_at_the_same_time_in_parallel(self):
        barrier = threading.Barrier(service_threads.SHARED + 1)
        for _ in range(service_threads.SHARED):
            self.threads.run(lambda: barrier.wait(30), 0.01)
        barrier.wait(30)

    def test_continues_after_an_error(self):
        results = queue.Queue()
        for _ in range(service_threads.SHARED):
            self.threads.run(lambda: 1 / 0)
        self.threads.run(lambda: results.put('done'), 0.01)
        self.assertEqual('done', results.get(timeout=30))
