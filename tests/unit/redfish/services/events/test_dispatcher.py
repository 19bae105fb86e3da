# SPDX-License-Identifier: Apache-2.0
"""Events of several workers, here in one process, are sent once."""

import queue
import threading
import types

import fixtures
from oslotest import base

from sushy_kubevirt.bmc import event_registry
from sushy_kubevirt.bmc import state_secret
from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import options
from sushy_kubevirt.redfish.services.events import dispatcher
from sushy_kubevirt.redfish.services.events import event_options
from sushy_kubevirt.redfish.services.events import event_record
from sushy_kubevirt.redfish.services.events import filters
from sushy_kubevirt.redfish.services.events import server_sent_events
from sushy_kubevirt.redfish.services.events import turns
from sushy_kubevirt.redfish.services import shared_directory
from sushy_kubevirt.redfish.services import worker_messages
from sushy_kubevirt.redfish.services import workers
from tests.unit.bmc import test_state_secret


class Media:

    def subscribe(self, callback):
        pass


class Cluster(test_state_secret.Cluster):

    options = options.Options(write_deadline=2)
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
        """Start a worker; return it and a queue of the records it streams."""
        folder = shared_directory.SharedDirectory(self.config)
        folder.make()
        self.addCleanup(folder.close)
        line = worker_messages.WorkerMessages(folder.path)
        self.addCleanup(line.close)
        one = dispatcher.EventDispatcher(
            self.cluster, state_secret.StateSecret(
                self.cluster, ('default', 's'), line),
            types.SimpleNamespace(
                messages=line, folder=folder, run=workers.Workers.run,
                turns=None, log_writer=None),
            event_options.EventOptions(log=False, **more))
        self.addCleanup(one.close)
        one.line = line
        streamed = queue.Queue()
        one.streams.take = streamed.put
        line.start()
        one.start()
        return one, streamed

    def wait_for_leader(self, one):
        with fixtures.Timeout(30, gentle=True):
            while not one._is_leader:
                threading.Event().wait(0.01)

    def keys(self, streamed, count):
        return [streamed.get(timeout=30).key for _ in range(count)]

    def record(self, text='x'):
        return event_record.make(
            event_registry.TEST, event_record.OTHER, (text,))


class EventsTestCase(DispatcherTestCase):

    def test_publishes_event_of_all_workers_once(self):
        one, streamed_one = self.worker()
        self.wait_for_leader(one)
        # Published before the second worker starts.
        self.assertEqual(['ServiceStarted'], self.keys(streamed_one, 1))
        two, streamed_two = self.worker()
        for number in range(5):
            record = self.record(str(number))
            for each in (one, two):
                each._put(record)
        for streamed in (streamed_one, streamed_two):
            self.assertEqual(['TestMessage'] * 5, self.keys(streamed, 5))
            self.assertRaises(queue.Empty, streamed.get, timeout=0.2)
        self.assertEqual([record.id for record in one.history()[-5:]],
                         [record.id for record in two.history()[-5:]])
        numbers = [record.number for record in one.history()]
        self.assertEqual(sorted(set(numbers)), numbers)

    def test_new_leader_publishes_unpublished_event(self):
        one, streamed_one = self.worker()
        self.wait_for_leader(one)
        self.keys(streamed_one, 1)
        two, streamed_two = self.worker()
        # Observed by the second; the first ends without publishing it.
        two._put(self.record())
        self.assertRaises(queue.Empty, streamed_two.get, timeout=0.2)
        one.close()
        one.line.close()
        self.wait_for_leader(two)
        # No second ServiceStarted: this emulator has been running.
        self.assertEqual(['TestMessage'], self.keys(streamed_two, 1))

    def test_leader_publishes_event_it_missed(self):
        self.useFixture(fixtures.MockPatchObject(
            dispatcher, 'REMIND_SECONDS', 0.1))
        one, streamed_one = self.worker()
        self.wait_for_leader(one)
        self.keys(streamed_one, 1)
        two, streamed_two = self.worker()
        three, streamed_three = self.worker()
        record = self.record()
        # The leader did not observe the event.
        for each in (two, three):
            each._put(record)
        for streamed in (streamed_one, streamed_two, streamed_three):
            self.assertEqual(['TestMessage'], self.keys(streamed, 1))
            self.assertRaises(queue.Empty, streamed.get, timeout=0.3)

    def test_waits_before_it_tries_again_to_observe(self):
        """Without an API server each try fails at once."""
        pauses = queue.Queue()
        put = turns.Turns.put

        def put_later(self, turn, seconds=0):
            if seconds:
                pauses.put(seconds)
            put(self, turn, seconds)

        self.useFixture(fixtures.MonkeyPatch(
            turns.__name__ + '.Turns.put', put_later))
        failures = [errors.Unavailable('refused'), errors.AccessDenied('no')]

        def wait_ready(timeout=None):
            if failures:
                raise failures.pop(0)

        self.cluster.options = options.Options(watch_backoff=0.01)
        self.cluster.wait_ready = wait_ready
        self.useFixture(fixtures.MonkeyPatch(
            dispatcher.__name__ + '.MATCH_SECONDS', 0.02))
        self.worker()
        self.assertEqual(0.01, pauses.get(timeout=30))
        self.assertEqual(0.02, pauses.get(timeout=30))

    def test_waits_until_machines_are_observed(self):
        filled = threading.Event()
        self.cluster.wait_ready = lambda timeout=None: filled.wait(30)
        one, _streamed = self.worker()
        self.assertFalse(one.wait_observing(0))
        filled.set()
        self.assertTrue(one.wait_observing(30))

    def test_machines_that_are_not_ready_occupy_no_shared_thread(self):
        process = workers.OneProcess()
        self.addCleanup(process.close)
        tried = threading.Semaphore(0)

        def fail(timeout=None):
            tried.release()
            raise errors.AccessDenied('no')

        def bmc(cluster, name):
            group = process.of(name)
            one = dispatcher.EventDispatcher(
                cluster, state_secret.StateSecret(
                    cluster, ('default', name), group.messages),
                group, event_options.EventOptions(log=False))
            self.addCleanup(one.close)
            one.start()
            return one

        for number in range(workers._THREADS):
            cluster = Cluster()
            cluster.wait_ready = fail
            self.addCleanup(cluster.closing.set)
            bmc(cluster, f'fails-{number}')
        for _ in range(workers._THREADS):
            self.assertTrue(tried.acquire(timeout=30))
        self.wait_for_leader(bmc(self.cluster, 'works'))

    def test_publishes_refused_login(self):
        one, streamed_one = self.worker()
        self.wait_for_leader(one)
        self.keys(streamed_one, 1)
        two, streamed_two = self.worker()
        two.login_failed('me', '192.0.2.1')
        for streamed in (streamed_one, streamed_two):
            self.assertEqual(['LoginFailed'], self.keys(streamed, 1))

    def test_new_worker_receives_history(self):
        one, streamed_one = self.worker()
        self.wait_for_leader(one)
        for number in range(45):
            one.emit(self.record(str(number)))
        self.keys(streamed_one, 46)
        one._positions['sub'] = (7, 1)
        two, streamed_two = self.worker()
        with fixtures.Timeout(30, gentle=True):
            while len(two.history()) < 46:
                threading.Event().wait(0.01)
        self.assertEqual(one.history(), two.history())
        self.assertEqual(1, two.failures('sub'))
        # The history is not streamed again.
        self.assertTrue(streamed_two.empty())

    def test_disabled_service_sends_nothing(self):
        one, streamed = self.worker()
        self.wait_for_leader(one)
        self.keys(streamed, 1)
        one.set(enabled=False)
        one.emit(self.record())
        self.assertRaises(queue.Empty, streamed.get, timeout=0.2)
        one.set(enabled=True)
        one.emit(self.record())
        self.assertEqual(['TestMessage'], self.keys(streamed, 1))


class StreamsTestCase(DispatcherTestCase):

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
        return all_.open(more.pop('owner', 'admin'), filters.Expression(''),
                         '192.0.2.1:5', **more)

    def test_stream(self):
        all_ = self.streams()
        one = self.open(all_)
        self.assertTrue(next(one).startswith(b':'))
        record = event_record.make(event_registry.TEST, event_record.OTHER)
        all_.take(record)
        text = next(one).decode()
        self.assertTrue(text.startswith(f'id: {record.id}\ndata: {{'))
        self.assertTrue(text.endswith('}\n\n'))
        self.assertEqual('192.0.2.1:5', all_.get(one.info.id).client)
        one.close()
        self.assertIsNone(all_.get(one.info.id))
        self.assertRaises(StopIteration, next, one)

    def test_streams_of_other_workers_are_visible(self):
        here, there = self.streams(), self.streams()
        one = self.open(here)
        self.assertEqual((one.info,), there.all())
        next(one)
        self.assertTrue(there.remove(one.info.id))
        self.assertRaises(StopIteration, next, one)
        one.close()
        self.assertFalse(there.remove(one.info.id))

    def test_limits_number_of_streams(self):
        all_ = self.streams(streams=2)
        first = self.open(all_)
        self.open(all_)
        self.assertRaises(server_sent_events.TooMany, self.open, all_)
        first.close()
        self.open(all_)

    def test_streams_of_one_account_leave_some_to_others(self):
        # Those of another worker count as well.
        here, there = self.streams(streams=2), self.streams(streams=2)
        for all_ in here, there:
            self.open(all_)
        self.assertRaises(server_sent_events.TooMany, self.open, here)
        for owner in 'bob', 'eve':
            self.open(here, owner=owner)
        self.assertRaises(server_sent_events.TooMany, self.open, here,
                          owner='mallory')

    def test_ends_for_disconnected_or_unauthorized_client(self):
        self.useFixture(
            fixtures.MonkeyPatch(
                'sushy_kubevirt.redfish.services.events'
                '.server_sent_events.KEEP_ALIVE_SECONDS',
                0.05,
            )
        )
        all_ = self.streams()
        for more in ({'connected': lambda: False},
                     {'authorized': lambda: False}):
            one = self.open(all_, **more)
            next(one)
            self.assertRaises(StopIteration, next, one)
            one.close()
        one = self.open(all_)
        next(one)
        self.assertTrue(next(one).startswith(b':'))

    def test_ends_after_logout_even_if_events_wait(self):
        all_ = self.streams()
        answers = [True, False]
        one = self.open(all_, authorized=lambda: answers.pop(0))
        next(one)
        for _ in range(2):
            all_.take(event_record.make(
                event_registry.TEST, event_record.OTHER))
        # With both in the queue there is no idle time between them.
        self.assertTrue(next(one).startswith(b'id: '))
        self.assertRaises(StopIteration, next, one)

    def test_disconnects_client_that_reads_nothing(self):
        self.useFixture(
            fixtures.MonkeyPatch(
                'sushy_kubevirt.redfish.services.events'
                '.server_sent_events.GRACE_SECONDS',
                0.05,
            )
        )
        all_ = self.streams()
        stuck, full, done = (threading.Event() for _ in range(3))
        one = self.open(all_, disconnect=stuck.set)
        two = self.open(all_, disconnect=full.set)
        three = self.open(all_, disconnect=done.set)
        self.assertTrue(all_.remove(one.info.id))
        self.assertTrue(all_.remove(three.info.id))
        three.close()
        for _ in range(server_sent_events.MAX_QUEUE + 1):
            two.take(event_record.make(
                event_registry.TEST, event_record.OTHER))
        self.assertTrue(stuck.wait(10))
        self.assertTrue(full.wait(10))
        self.assertFalse(done.is_set())

    def test_ends_when_queue_is_full(self):
        all_ = self.streams()
        one = self.open(all_)
        next(one)
        for _ in range(server_sent_events.MAX_QUEUE + 1):
            all_.take(event_record.make(
                event_registry.TEST, event_record.OTHER))
        self.assertEqual(server_sent_events.MAX_QUEUE, len(list(one)))
