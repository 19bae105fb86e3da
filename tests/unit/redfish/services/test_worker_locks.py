# SPDX-License-Identifier: Apache-2.0

import os
import signal

import fixtures
from oslotest import base

from sushy_kubevirt.redfish.services import worker_locks


class WorkerLocksTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.locks = worker_locks.WorkerLocks(
            self.useFixture(fixtures.TempDir()).path)

    def in_child(self, number, timeout=0):
        """Acquire a lock in another worker; return whether it could."""
        if not (pid := os.fork()):
            code = 2
            try:
                signal.alarm(20)    # no endless wait
                code = int(not self.locks.acquire(number, timeout))
            finally:
                os._exit(code)
        return os.waitpid(pid, 0)[1] == 0

    def test_workers_exclude_each_other(self):
        self.assertTrue(self.locks.acquire(3, 0))
        self.assertFalse(self.in_child(3))
        self.assertFalse(self.in_child(3, timeout=0.05))
        self.assertTrue(self.in_child(4))
        self.locks.release(3)
        self.assertTrue(self.in_child(3))

    def test_lock_of_ended_worker_is_free(self):
        self.assertTrue(self.in_child(0))
        self.assertTrue(self.locks.acquire(0, 0))
