# SPDX-License-Identifier: Apache-2.0

import os
import signal
import subprocess
import sys
import time
import types
from unittest import mock

import fixtures
from oslotest import base

from sushy_kubevirt.kube import errors
from sushy_kubevirt.redfish.services import server_threads


class OneProcessTestCase(base.BaseTestCase):

    class Worker:

        alive = True
        pid = 4711

        def __init__(self, cfg):
            self.cfg = cfg
            self.log = mock.Mock()
            self.notify = mock.Mock()

        def handle_exit(self, signum, frame):
            self.alive = False

    def run_in(self, number, *others):
        """Run in a worker of gunicorn.

        :param number: configured number of workers
        :param others: workers that were started before
        """
        worker = self.Worker(types.SimpleNamespace(workers=number))
        self.useFixture(fixtures.MockPatchObject(
            signal, 'getsignal', lambda signum: worker.handle_exit))
        self.useFixture(fixtures.MonkeyPatch('sys.modules', {
            **sys.modules, 'gunicorn.arbiter': types.SimpleNamespace(
                Arbiter=types.SimpleNamespace(
                    WORKERS={other.pid: other for other in others}))}))
        return worker

    def test_other_servers(self):
        server_threads.require_one_process()

    def test_handler_of_another_server(self):
        worker = self.Worker(None)
        worker.alive = False
        self.useFixture(fixtures.MockPatchObject(
            signal, 'getsignal', lambda signum: worker.handle_exit))
        self.assertFalse(server_threads.stopping())
        self.run_in(1).alive = False
        self.assertTrue(server_threads.stopping())

    def test_one_worker(self):
        earlier = self.run_in(1)
        server_threads.require_one_process()
        # After a reload, which has another configuration.
        self.run_in(1, earlier)
        server_threads.require_one_process()

    def test_first_of_several_workers(self):
        self.run_in(3)
        exc = self.assertRaises(errors.ConfigError,
                                server_threads.require_one_process)
        for words in '3 workers', '--threads', 'sushy-kubevirt-redfish':
            self.assertIn(words, str(exc))

    def wait_beside(self, pid, workers=1):
        """Wait in a worker that is started beside another.

        :param pid: of the other one
        """
        worker = self.run_in(workers)
        first = self.Worker(worker.cfg)
        first.pid = pid
        sys.modules['gunicorn.arbiter'].Arbiter.WORKERS[pid] = first
        self.assertRaises(SystemExit, server_threads.require_one_process)
        return worker

    def test_others_wait_for_their_end(self):
        self.useFixture(fixtures.MockPatchObject(
            time, 'sleep', lambda seconds: signal.getsignal(15)(15, None)))
        worker = self.wait_beside(os.getpid(), 3)
        self.assertFalse(worker.alive)
        worker.notify.assert_called_once_with()
        worker.log.error.assert_not_called()

    def test_added_worker_waits_for_the_end_of_the_first(self):
        with subprocess.Popen(['true']) as ended:
            ended.wait()
        worker = self.wait_beside(ended.pid)
        self.assertTrue(worker.alive)
        [call] = worker.log.error.mock_calls
        self.assertIn('2 workers', call.args[2])

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
