# SPDX-License-Identifier: Apache-2.0

import threading

from oslotest import base

from sushy_kubevirt.kube import delaying_queue


class AgendaTestCase(base.BaseTestCase):

    def test_in_time(self):
        made = delaying_queue.DelayingQueue()
        made.put('late', 2, 0.05)
        made.put('now', 1)
        self.assertEqual([1, 2], [made.next(), made.next()])

    def test_sooner_than_it_was(self):
        made = delaying_queue.DelayingQueue()
        made.put('a', 'first', 30)
        made.put('a', 'second')
        made.put('b', 'last', 0.02)
        self.assertEqual(['second', 'last'], [made.next(), made.next()])

    def test_closed(self):
        made = delaying_queue.DelayingQueue()
        made.put('a', 1, 30)
        threading.Timer(0.02, made.close).start()
        self.assertIsNone(made.next())
