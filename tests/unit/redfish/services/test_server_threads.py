# SPDX-License-Identifier: Apache-2.0

import signal
import sys
import threading
import types

import fixtures
from oslotest import base

from sushy_kubevirt.kube import errors
from sushy_kubevirt.redfish.services import server_threads


class OneProcessTestCase(base.BaseTestCase):

    class Worker:

        alive = True

        def __init__(self, age, workers):
            self.age = age
            self.cfg = types.SimpleNamespace(workers=workers)

        def handle_exit(self, signum, frame):
            self.alive = False

    def run_in(self, *number):
        """Run in a worker of gunicorn."""
        worker = self.Worker(*number)
        self.useFixture(fixtures.MockPatchObject(
            signal, 'getsignal', lambda signum: worker.handle_exit))
        return worker

    def test_other_servers(self):
        server_threads.require_one_process()

    def test_one_worker(self):
        for age in 1, 2:    # the second replaces the first
            self.run_in(age, 1)
            server_threads.require_one_process()

    def test_several_workers(self):
        for age in 1, 4:
            self.run_in(age, 3)
            exc = self.assertRaises(errors.ConfigError,
                                    server_threads.require_one_process)
            for words in '3 workers', '--threads', 'sushy-kubevirt-redfish':
                self.assertIn(words, str(exc))

    def test_others_wait_for_their_end(self):
        for age in 2, 3, 5:
            worker = self.run_in(age, 3)
            timer = threading.Timer(0.05, worker.handle_exit, (15, None))
            timer.start()
            self.assertRaises(SystemExit, server_threads.require_one_process)
            self.assertFalse(worker.alive)

    def test_arbiter(self):
        self.useFixture(fixtures.MonkeyPatch('sys.modules', {
            **sys.modules, 'gunicorn.arbiter': sys}))
        exc = self.assertRaises(errors.ConfigError,
                                server_threads.require_one_process)
        self.assertIn('--preload', str(exc))


class SlotsTestCase(base.BaseTestCase):

    def threads(self, number):
        """Let the server have a number of threads; no slot is in use."""
        self.useFixture(fixtures.MockPatchObject(
            server_threads, '_threads', lambda: number))
        self.useFixture(fixtures.MockPatchObject(
            server_threads.Slots, '_all_used', 0))
        return server_threads.Slots(3), server_threads.Slots(3)

    def test_maximum_of_each_kind(self):
        for slots in self.threads(None):
            taken = [slots.take('a') for _ in range(3)]
            self.assertNotIn(None, taken)
            self.assertIsNone(slots.take('a'))
            taken[0].close()
            taken[0].close()
            self.assertIsNotNone(slots.take('a'))
            self.assertIsNone(slots.take('a'))

    def test_owner_leaves_slots_to_others(self):
        slots, _ = self.threads(None)
        for owner, number in ('a', 3), ('b', 2), ('c', 1):
            taken = [slots.take(owner) for _ in range(number)]
            self.assertNotIn(None, taken)
            self.assertIsNone(slots.take(owner))
        self.assertIsNone(slots.take('d'))

    def test_all_kinds_take_half_of_the_threads(self):
        for number in 1, 2, 3, 4, 5:
            one, two = self.threads(number)
            taken = [two.take('a') for _ in range(number // 2 - 1)]
            with one.take('a'):
                self.assertNotIn(None, taken)
                self.assertIsNone(one.take('a'))
                self.assertIsNone(two.take('b'))
            self.assertIsNotNone(two.take('b'))
