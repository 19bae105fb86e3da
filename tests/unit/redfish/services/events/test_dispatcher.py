# SPDX-License-Identifier: Apache-2.0
"""Several workers in one process: what one notices, all tell once."""

import queue
import threading

import fixtures
from oslotest import base

from sushy_kubevirt.machine import options as cluster_options
from sushy_kubevirt.redfish.services.events import dispatcher
from sushy_kubevirt.redfish.services.events import event_options
from sushy_kubevirt.redfish.services.events import event_record
from sushy_kubevirt.redfish.services.events import filters
from sushy_kubevirt.redfish.services.events import messages
from sushy_kubevirt.redfish.services.events import server_sent_events
from sushy_kubevirt.redfish.services import shared_directory
from sushy_kubevirt.redfish.services import state_secret
from sushy_kubevirt.redfish.services import worker_messages
from tests.unit.redfish.services import test_state_secret


class Media:

    def subscribe(self, callback):
        pass


class Cluster(test_state_secret.Cluster):

    options = cluster_options.Options(write_deadline=2)
    default_namespace = 'default'

    def __init__(self):
        super().__init__()
        self.media = Media()

    def wait_ready(self, timeout=None):
        pass

    def machines(self):
        return []

    def subscribe(self, callback):
        pass


class DispatcherTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.cluster = Cluster()
        self.config = {'SUSHY_EMULATOR_STATE_DIR': self.useFixture(
            fixtures.TempDir()).path}
        self.addCleanup(self.cluster.closing.set)

    def worker(self, **more):
        """A worker, and a queue of what its streams are given."""
        folder = shared_directory.SharedDirectory(self.config)
        folder.make()
        self.addCleanup(folder.close)
        line = worker_messages.WorkerMessages(folder.path)
        self.addCleanup(line.close)
        one = dispatcher.EventDispatcher(
            self.cluster, state_secret.StateSecret(
                self.cluster, ('default', 's'), line),
            line, folder, event_options.EventOptions(log=False, **more))
        self.addCleanup(one.close)
        one.line = line
        told = queue.Queue()
        one.streams.take = told.put
        line.start()
        one.start()
        return one, told

    def leads(self, one):
        with fixtures.Timeout(30, gentle=True):
            while not one._is_leader:
                threading.Event().wait(0.01)

    def keys(self, told, count):
        return [told.get(timeout=30).key for _ in range(count)]

    def record(self, text='x'):
        return event_record.make(messages.TEST, event_record.OTHER, (text,))


class TestEvents(DispatcherTestCase):

    def test_what_all_notice_is_told_once(self):
        one, told_one = self.worker()
        self.leads(one)
        # Before the other is there, who would be told of it too.
        self.assertEqual(['ServiceStarted'], self.keys(told_one, 1))
        two, told_two = self.worker()
        for number in range(5):
            record = self.record(str(number))
            for each in (one, two):
                each._queue.put(record)
        for told in (told_one, told_two):
            self.assertEqual(['TestMessage'] * 5, self.keys(told, 5))
            self.assertRaises(queue.Empty, told.get, timeout=0.2)
        self.assertEqual([record.id for record in one.history()[-5:]],
                         [record.id for record in two.history()[-5:]])
        numbers = [record.number for record in one.history()]
        self.assertEqual(sorted(set(numbers)), numbers)

    def test_what_a_dead_leader_did_not_tell(self):
        one, told_one = self.worker()
        self.leads(one)
        self.keys(told_one, 1)
        two, told_two = self.worker()
        # Noticed by the second before the first has died without a word.
        two._queue.put(self.record())
        self.assertRaises(queue.Empty, told_two.get, timeout=0.2)
        one.close()
        one.line.close()
        self.leads(two)
        # No worker of this emulator has just been started.
        self.assertEqual(['TestMessage'], self.keys(told_two, 1))

    def test_what_the_leader_missed(self):
        self.useFixture(fixtures.MonkeyPatch(
            'sushy_kubevirt.redfish.services.events.dispatcher.LATE', 0.1))
        one, told_one = self.worker()
        self.leads(one)
        self.keys(told_one, 1)
        two, told_two = self.worker()
        three, told_three = self.worker()
        record = self.record()
        # It was not there yet when the others noticed.
        for each in (two, three):
            each._queue.put(record)
        for told in (told_one, told_two, told_three):
            self.assertEqual(['TestMessage'], self.keys(told, 1))
            self.assertRaises(queue.Empty, told.get, timeout=0.3)

    def test_a_login(self):
        one, told_one = self.worker()
        self.leads(one)
        self.keys(told_one, 1)
        two, told_two = self.worker()
        two.login_failed('me', '192.0.2.1')
        for told in (told_one, told_two):
            self.assertEqual(['LoginFailed'], self.keys(told, 1))

    def test_the_past(self):
        one, told_one = self.worker()
        self.leads(one)
        for number in range(45):
            one.emit(self.record(str(number)))
        self.keys(told_one, 46)
        one._marks['sub'] = (7, 1)
        two, told_two = self.worker()
        with fixtures.Timeout(30, gentle=True):
            while len(two.history()) < 46:
                threading.Event().wait(0.01)
        self.assertEqual(one.history(), two.history())
        self.assertEqual(1, two.failures('sub'))
        # It was told of, and is no news.
        self.assertTrue(told_two.empty())

    def test_switched_off(self):
        one, told = self.worker()
        self.leads(one)
        self.keys(told, 1)
        one.set(enabled=False)
        one.emit(self.record())
        self.assertRaises(queue.Empty, told.get, timeout=0.2)
        one.set(enabled=True)
        one.emit(self.record())
        self.assertEqual(['TestMessage'], self.keys(told, 1))


class TestStreams(DispatcherTestCase):

    def streams(self, **more):
        folder = shared_directory.SharedDirectory(self.config)
        folder.make()
        self.addCleanup(folder.close)
        line = worker_messages.WorkerMessages(folder.path)
        self.addCleanup(line.close)
        line.start()
        return server_sent_events.Streams(line, folder.make, lambda: [],
                                          event_options.EventOptions(**more))

    def open(self, all_, **more):
        return all_.open(filters.Expression(''), '192.0.2.1:5', **more)

    def test_one(self):
        all_ = self.streams()
        one = self.open(all_)
        self.assertTrue(next(one).startswith(b':'))
        record = event_record.make(messages.TEST, event_record.OTHER)
        all_.take(record)
        text = next(one).decode()
        self.assertTrue(text.startswith('id: %s\ndata: {' % record.id))
        self.assertTrue(text.endswith('}\n\n'))
        self.assertEqual('192.0.2.1:5', all_.get(one.shown.id).client)
        one.close()
        self.assertIsNone(all_.get(one.shown.id))
        self.assertRaises(StopIteration, next, one)

    def test_other_workers_know(self):
        here, there = self.streams(), self.streams()
        one = self.open(here)
        self.assertEqual((one.shown,), there.all())
        next(one)
        self.assertTrue(there.remove(one.shown.id))
        self.assertRaises(StopIteration, next, one)
        one.close()
        self.assertFalse(there.remove(one.shown.id))

    def test_limit(self):
        all_ = self.streams(streams=2)
        first = self.open(all_)
        self.open(all_)
        self.assertRaises(server_sent_events.TooMany, self.open, all_)
        first.close()
        self.open(all_)

    def test_who_left_or_may_not_stay(self):
        self.useFixture(
            fixtures.MonkeyPatch(
                'sushy_kubevirt.redfish.services.events'
                '.server_sent_events.KEEP_ALIVE',
                0.05,
            )
        )
        all_ = self.streams()
        for more in ({'connected': lambda: False},
                     {'welcome': lambda: False}):
            one = self.open(all_, **more)
            next(one)
            self.assertRaises(StopIteration, next, one)
            one.close()
        one = self.open(all_)
        next(one)
        self.assertTrue(next(one).startswith(b':'))

    def test_who_has_logged_out_is_told_nothing_more(self):
        all_ = self.streams()
        answers = [True, False]
        one = self.open(all_, welcome=lambda: answers.pop(0))
        next(one)
        for _ in range(2):
            all_.take(event_record.make(messages.TEST, event_record.OTHER))
        # Both are there at once: it is never silent.
        self.assertTrue(next(one).startswith(b'id: '))
        self.assertRaises(StopIteration, next, one)

    def test_one_that_reads_nothing_is_cut(self):
        self.useFixture(
            fixtures.MonkeyPatch(
                'sushy_kubevirt.redfish.services.events'
                '.server_sent_events.GRACE',
                0.05,
            )
        )
        all_ = self.streams()
        stuck, full, done = (threading.Event() for _ in range(3))
        one = self.open(all_, cut=stuck.set)
        two = self.open(all_, cut=full.set)
        three = self.open(all_, cut=done.set)
        self.assertTrue(all_.remove(one.shown.id))
        self.assertTrue(all_.remove(three.shown.id))
        three.close()
        for _ in range(server_sent_events.QUEUE + 1):
            two.take(event_record.make(messages.TEST, event_record.OTHER))
        self.assertTrue(stuck.wait(10))
        self.assertTrue(full.wait(10))
        self.assertFalse(done.is_set())

    def test_one_that_does_not_keep_up(self):
        all_ = self.streams()
        one = self.open(all_)
        next(one)
        for _ in range(server_sent_events.QUEUE + 1):
            all_.take(event_record.make(messages.TEST, event_record.OTHER))
        self.assertEqual(server_sent_events.QUEUE, len(list(one)))
