# SPDX-License-Identifier: Apache-2.0
"""Workers are processes here: what counts is what a dead one leaves."""

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

# Another worker: says what it hears, leads if it can.
_WORKER = '''
import os, sys
from sushy_kubevirt.redfish.services import worker_messages
def say(text):
    os.write(1, text.encode() + b'\\n')
one = worker_messages.WorkerMessages(sys.argv[1])
one.subscribe('news', lambda message: say(message['text']))
one.on_elected(lambda: say('leads'))
one.start()
one.campaign()
say('ready')
for line in sys.stdin:
    one.publish('news', {'text': line.strip()})
'''


class TestBus(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        # Longer than the path of a socket may be.
        self.folder = os.path.join(
            self.useFixture(fixtures.TempDir()).path, 'x' * 120)
        os.mkdir(self.folder)

    def bus(self):
        one = worker_messages.WorkerMessages(self.folder)
        heard = queue.Queue()
        one.subscribe('news', lambda message: heard.put(message['text']))
        self.addCleanup(one.close)
        return one, heard

    def worker(self):
        process = subprocess.Popen(
            [sys.executable, '-c', _WORKER, self.folder], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)

        def end():
            process.kill()
            process.communicate()

        self.addCleanup(end)
        return process

    def test_what_is_no_message_is_passed_over(self):
        one, heard = self.bus()
        one.start()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
            for data in (b'', b'x', b'[]', b'[[], {}]', b'[{}, {}]',
                         b'["news", 5]', b'["news", {}]', b'{"a": 1}',
                         b'\xff' * 100, b'[' * 50000):
                stranger.sendto(data, one._path(one._name))
        other, _heard = self.bus()
        other.start()
        other.publish('news', {'text': 'still here'})
        self.assertEqual('still here', heard.get(timeout=10))

    def test_all_hear_it_once(self):
        one, heard_one = self.bus()
        two, heard_two = self.bus()
        one.start()
        two.start()
        for number in range(50):
            one.publish('news', {'text': number})
            one.publish('else', {'text': 'not this'})
        for heard in (heard_one, heard_two):
            self.assertEqual(list(range(50)),
                             [heard.get(timeout=30) for _ in range(50)])
            self.assertTrue(heard.empty())

    def test_before_the_start_it_is_alone(self):
        one, heard = self.bus()
        one.publish('news', {'text': 'a'})
        self.assertEqual('a', heard.get_nowait())

    def test_a_successor_leads_when_the_leader_is_killed(self):
        other = self.worker()
        said = {other.stdout.readline().strip() for _ in range(2)}
        self.assertEqual({'ready', 'leads'}, said)
        one, heard = self.bus()
        leads = threading.Event()
        one.on_elected(leads.set)
        one.start()
        one.campaign()
        other.stdin.write('hello\n')
        other.stdin.flush()
        self.assertEqual('hello', heard.get(timeout=30))
        self.assertFalse(leads.is_set())
        os.kill(other.pid, signal.SIGKILL)
        self.assertTrue(leads.wait(30))
        self.assertTrue(one.is_leader)
        # Its socket is still there, and in nobody's way.
        other.wait()
        one.publish('news', {'text': 'x'})
        self.assertEqual(1, len([name for name in os.listdir(self.folder)
                                 if name.endswith('.worker')]))

    def test_one_that_closes_hands_the_lead_on(self):
        one, _ = self.bus()
        leads = threading.Event()
        one.on_elected(leads.set)
        one.start()
        one.campaign()
        self.assertTrue(leads.wait(30))
        other = self.worker()
        self.assertEqual('ready', other.stdout.readline().strip())
        one.close()
        self.assertEqual('leads', other.stdout.readline().strip())
        one.close()
        one.publish('news', {'text': 'to nobody'})

    def test_one_that_does_not_listen_is_passed_over(self):
        self.useFixture(
            fixtures.MonkeyPatch(
                'sushy_kubevirt.redfish.services.worker_messages.SEND_SECONDS',
                0.01,
            )
        )
        other = self.worker()
        self.assertTrue(other.stdout.readline())
        os.kill(other.pid, signal.SIGSTOP)
        one, heard = self.bus()
        one.start()
        for number in range(300):
            one.publish('news', {'text': number})
        self.assertEqual(300, heard.qsize())
        os.kill(other.pid, signal.SIGCONT)

    def test_a_callback_that_fails_disturbs_no_other(self):
        one, heard = self.bus()
        one._callbacks['news'].insert(0, lambda message: 1 / 0)
        one.publish('news', {'text': 'a'})
        self.assertEqual('a', heard.get_nowait())

    def test_too_long(self):
        one, _ = self.bus()
        self.assertRaises(ValueError, one.publish, 'news',
                          {'text': 'x' * worker_messages.LONGEST})
