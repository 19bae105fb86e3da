# SPDX-License-Identifier: Apache-2.0

import threading

from oslotest import base

from sushy_kubevirt.kube import delaying_queue


class DelayingQueueTestCase(base.BaseTestCase):

    def test_returns_items_when_due(self):
        queue = delaying_queue.DelayingQueue()
        queue.put('late', 2, 0.05)
        queue.put('now', 1)
        self.assertEqual([1, 2], [queue.next(), queue.next()])

    def test_earlier_put_replaces_later(self):
        queue = delaying_queue.DelayingQueue()
        queue.put('a', 'first', 30)
        queue.put('a', 'second')
        queue.put('b', 'last', 0.02)
        self.assertEqual(['second', 'last'], [queue.next(), queue.next()])

    def test_close_wakes_next(self):
        queue = delaying_queue.DelayingQueue()
        queue.put('a', 1, 30)
        threading.Timer(0.02, queue.close).start()
        self.assertIsNone(queue.next())
