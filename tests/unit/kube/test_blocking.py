# SPDX-License-Identifier: Apache-2.0
import threading

from oslotest import base

from sushy_kubevirt.kube import blocking


class BlockingTest(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.lock = threading.Lock()

    def hold(self):
        with blocking.hold(self.lock):
            return self.lock.locked()

    def in_thread(self, function):
        """Call a function in another thread, and return what it returns."""
        found = []
        thread = threading.Thread(target=lambda: found.append(function()))
        thread.start()
        thread.join(30)
        return found[0]

    def test_attempt_returns_result(self):
        self.assertEqual(5, blocking.attempt(lambda a, b: a + b, 2, 3))

    def test_check_ends_attempt(self):
        self.assertRaises(blocking.WouldBlock, blocking.attempt,
                          blocking.check)

    def test_check_is_of_no_effect_outside_of_an_attempt(self):
        for error in (blocking.WouldBlock, ZeroDivisionError):
            def fail():
                raise error()

            blocking.check()
            self.assertRaises(error, blocking.attempt, fail)
            blocking.check()

    def test_other_threads_may_block_during_an_attempt(self):
        self.assertIsNone(blocking.attempt(self.in_thread, blocking.check))

    def test_attempt_ends_at_lock_of_another_thread(self):
        with self.lock:
            self.assertRaises(blocking.WouldBlock, blocking.attempt,
                              self.hold)
        self.assertTrue(blocking.attempt(self.hold))
        self.assertFalse(self.lock.locked())

    def test_waits_for_lock_outside_of_an_attempt(self):
        self.lock.acquire()
        timer = threading.Timer(0.05, self.lock.release)
        timer.start()
        self.assertTrue(self.hold())
        timer.join()
        self.assertFalse(self.lock.locked())
