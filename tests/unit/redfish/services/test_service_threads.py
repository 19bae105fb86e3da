# SPDX-License-Identifier: Apache-2.0

import queue
import threading

from oslotest import base

from sushy_kubevirt.redfish.services import service_threads


class ServiceThreadsTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.threads = service_threads.ServiceThreads(
            service_threads.SHARED)
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

    def test_what_waits_is_called_once(self):
        threads = service_threads.ServiceThreads()
        self.addCleanup(threads.close)
        before = set(threading.enumerate())
        calls = queue.Queue()
        running, go_on = threading.Event(), threading.Event()
        self.addCleanup(go_on.set)

        def later():
            calls.put('later')

        threads.run(lambda: (running.set(), go_on.wait(30)))
        self.assertTrue(running.wait(30))
        for _ in range(50):
            threads.run(later)
        self.assertEqual(set(), set(threading.enumerate()) - before)
        threads.run(lambda: calls.put('end'))
        go_on.set()
        self.assertEqual('later', calls.get(timeout=30))
        self.assertEqual('end', calls.get(timeout=30))
