# SPDX-License-Identifier: Apache-2.0
"""Tests for messages between workers, some of them processes."""

import os
import queue
import signal
import socket
import subprocess
import sys
import threading

import fixtures
from oslotest import base

from sushy_kubevirt.redfish.services import worker_messages

# Another worker: prints what it receives, and when it becomes leader.
_WORKER = '''
import os, sys
from sushy_kubevirt.redfish.services import worker_messages
def output(text):
    os.write(1, text.encode() + b'\\n')
one = worker_messages.WorkerMessages(sys.argv[1])
one.subscribe('news', lambda message: output(message['text']))
one.on_elected(lambda: output('leads'))
one.start()
one.acquire_leadership()
output('ready')
for line in sys.stdin:
    one.publish('news', {'text': line.strip()})
'''


class TestWorkerMessages(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        # Longer than a socket address may be.
        self.folder = os.path.join(
            self.useFixture(fixtures.TempDir()).path, 'x' * 120)
        os.mkdir(self.folder)

    def worker(self):
        one = worker_messages.WorkerMessages(self.folder)
        received = queue.Queue()
        one.subscribe('news', lambda message: received.put(message['text']))
        self.addCleanup(one.close)
        return one, received

    def worker_process(self):
        process = subprocess.Popen(
            [sys.executable, '-c', _WORKER, self.folder], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)

        def end():
            process.kill()
            process.communicate()

        self.addCleanup(end)
        return process

    def test_ignores_invalid_messages(self):
        one, received = self.worker()
        one.start()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            for data in (b'', b'x', b'[]', b'[[], {}]', b'[{}, {}]',
                         b'["news", 5]', b'["news", {}]', b'{"a": 1}',
                         b'\xff' * 100, b'[' * 50000):
                sender.sendto(data, one._path(one._name))
        other, _received = self.worker()
        other.start()
        other.publish('news', {'text': 'still here'})
        self.assertEqual('still here', received.get(timeout=10))

    def test_delivers_once_to_every_worker(self):
        one, received_one = self.worker()
        two, received_two = self.worker()
        one.start()
        two.start()
        for number in range(50):
            one.publish('news', {'text': number})
            one.publish('else', {'text': 'not this'})
        for received in (received_one, received_two):
            self.assertEqual(list(range(50)),
                             [received.get(timeout=30) for _ in range(50)])
            self.assertTrue(received.empty())

    def test_delivers_to_itself_before_start(self):
        one, received = self.worker()
        one.publish('news', {'text': 'a'})
        self.assertEqual('a', received.get_nowait())

    def test_elects_successor_of_killed_leader(self):
        other = self.worker_process()
        lines = {other.stdout.readline().strip() for _ in range(2)}
        self.assertEqual({'ready', 'leads'}, lines)
        one, received = self.worker()
        leads = threading.Event()
        one.on_elected(leads.set)
        one.start()
        one.acquire_leadership()
        other.stdin.write('hello\n')
        other.stdin.flush()
        self.assertEqual('hello', received.get(timeout=30))
        self.assertFalse(leads.is_set())
        os.kill(other.pid, signal.SIGKILL)
        self.assertTrue(leads.wait(30))
        self.assertTrue(one.is_leader)
        # Its socket is left behind and removed by the next message.
        other.wait()
        one.publish('news', {'text': 'x'})
        self.assertEqual(1, len([name for name in os.listdir(self.folder)
                                 if name.endswith('.worker')]))

    def test_elects_successor_of_closed_leader(self):
        one, _ = self.worker()
        leads = threading.Event()
        one.on_elected(leads.set)
        one.start()
        one.acquire_leadership()
        self.assertTrue(leads.wait(30))
        other = self.worker_process()
        self.assertEqual('ready', other.stdout.readline().strip())
        one.close()
        self.assertEqual('leads', other.stdout.readline().strip())
        one.close()
        one.publish('news', {'text': 'to no worker'})

    def test_skips_worker_with_full_queue(self):
        self.useFixture(
            fixtures.MonkeyPatch(
                'sushy_kubevirt.redfish.services.worker_messages.SEND_SECONDS',
                0.01,
            )
        )
        other = self.worker_process()
        self.assertTrue(other.stdout.readline())
        os.kill(other.pid, signal.SIGSTOP)
        one, received = self.worker()
        one.start()
        for number in range(300):
            one.publish('news', {'text': number})
        self.assertEqual(300, received.qsize())
        os.kill(other.pid, signal.SIGCONT)

    def test_failing_callback_does_not_affect_others(self):
        one, received = self.worker()
        one._dispatcher._callbacks['news'].insert(
            0, lambda message: 1 / 0)
        one.publish('news', {'text': 'a'})
        self.assertEqual('a', received.get_nowait())

    def test_refuses_too_long_message(self):
        one, _ = self.worker()
        self.assertRaises(ValueError, one.publish, 'news',
                          {'text': 'x' * worker_messages.MAX_BYTES})
