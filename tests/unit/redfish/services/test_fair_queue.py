# SPDX-License-Identifier: Apache-2.0
"""The queue for slow password checks."""

import threading
import time

from oslotest import base

from sushy_kubevirt.redfish.services import fair_queue


class FairQueueTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.queue = fair_queue.FairQueue(1)
        self.order = []
        self.threads = []

    def enter(self, name, failures, room=9, seconds=10):
        """Ask for a slot in a thread, and wait until it is queued."""
        def run():
            try:
                with self.queue.slot(failures, room, seconds):
                    self.order.append(name)
            except fair_queue.Busy:
                self.order.append(f'{name} busy')

        before = len(self.queue._waiting) + len(self.order)
        thread = threading.Thread(target=run)
        self.threads.append(thread)
        thread.start()
        while len(self.queue._waiting) + len(self.order) == before:
            time.sleep(0.001)

    def join(self):
        for thread in self.threads:
            thread.join(10)

    def test_fewest_failures_go_first(self):
        with self.queue.slot(0, 9, 10):
            for name, failures in ('a', 5), ('b', 0), ('c', 16), ('d', 1):
                self.enter(name, failures)
        self.join()
        self.assertEqual(['b', 'd', 'a', 'c'], self.order)

    def test_most_failures_are_sent_away(self):
        with self.queue.slot(0, 2, 10):
            for name, failures in ('a', 5), ('b', 0), ('c', 16), ('d', 1):
                self.enter(name, failures, room=2)
            while len(self.order) < 2:
                time.sleep(0.001)
        self.join()
        self.assertEqual(['c busy', 'a busy', 'b', 'd'], self.order)

    def test_order_of_similar_failures_is_random(self):
        """A late one gets a turn, also among faster and better ones."""
        for _ in range(60):
            self.order.clear()
            with self.queue.slot(0, 2, 10):
                for name, failures in ('a', 4), ('b', 4), ('c', 7):
                    self.enter(name, failures, room=2)
            self.join()
            if 'c' in self.order:
                return
        self.fail('The last one was always sent away')

    def test_waits_for_limited_time(self):
        with self.queue.slot(0, 2, 10):
            self.enter('a', 0, seconds=0.05)
            self.join()
        self.enter('b', 0)
        self.join()
        self.assertEqual(['a busy', 'b'], self.order)

    def test_runs_limited_number(self):
        queue = fair_queue.FairQueue(2)
        with queue.slot(0, 0, 0), queue.slot(0, 0, 0):
            for room in 0, 5:
                with self.assertRaises(fair_queue.Busy):
                    with queue.slot(0, room, 0):
                        self.fail('a third one runs')
        with queue.slot(0, 0, 0), queue.slot(0, 0, 0):
            pass
