# SPDX-License-Identifier: Apache-2.0
"""Numbers, order and consumers of events; streams."""

import queue
import threading
from unittest import mock

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
from sushy_kubevirt.redfish.services.events import subscriptions
from sushy_kubevirt.redfish.services import service_threads
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
        self.state = state_secret.StateSecret(self.cluster, ('default', 's'))
        self.addCleanup(self.cluster.closing.set)

    def dispatcher(self, cluster=None, threads=None, **more):
        """Make an event service, and a queue of the records it streams."""
        if threads is None:
            threads = service_threads.ServiceThreads()
            self.addCleanup(threads.close)
        events = dispatcher.EventDispatcher(
            cluster or self.cluster, self.state, threads,
            event_options.EventOptions(log=False, **more))
        self.addCleanup(events.close)
        streamed = queue.Queue()
        events.streams.take = streamed.put
        return events, streamed

    def started(self, **more):
        events, streamed = self.dispatcher(**more)
        events.start()
        self.assertEqual(['ServiceStarted'], self.keys(streamed, 1))
        return events, streamed

    def keys(self, streamed, count):
        return [streamed.get(timeout=30).key for _ in range(count)]

    def record(self, text='x'):
        return event_record.make(
            event_registry.TEST, event_record.OTHER, (text,))


class EventsTestCase(DispatcherTestCase):

    def test_numbers_events_in_the_order_of_all_consumers(self):
        events, streamed = self.started()
        threads = [threading.Thread(target=lambda: [
            events.emit(self.record()) for _ in range(50)])
            for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        numbers = [streamed.get(timeout=30).number for _ in range(200)]
        self.assertEqual(list(range(2, 202)), numbers)
        self.assertEqual([1, *numbers],
                         [record.number for record in events.history()])

    def test_publishes_nothing_before_the_start_and_after_the_end(self):
        events, streamed = self.dispatcher()
        events.emit(self.record())
        events.start()
        self.assertEqual(['ServiceStarted'], self.keys(streamed, 1))
        events.close()
        events.emit(self.record())
        self.assertTrue(streamed.empty())

    def test_start_is_announced_once(self):
        events, streamed = self.started()
        events.start()
        self.assertRaises(queue.Empty, streamed.get, timeout=0.1)

    def test_waits_before_it_tries_again_to_observe(self):
        """Without an API server each try fails at once."""
        failures = [errors.Unavailable('refused'), errors.AccessDenied('no')]

        def wait_ready(timeout=None):
            if failures:
                raise failures.pop(0)

        self.cluster.options = options.Options(watch_backoff=0.01)
        self.cluster.wait_ready = wait_ready
        self.useFixture(fixtures.MonkeyPatch(
            dispatcher.__name__ + '.READY_SECONDS', 0.02))
        threads = service_threads.ServiceThreads()
        with mock.patch.object(threads, 'run', wraps=threads.run) as run:
            events, streamed = self.dispatcher(threads=threads)
            events.start()
            self.assertTrue(events.wait_observing(30))
        self.assertEqual([(), (0.01,), (0.02,)],
                         [call.args[1:] for call in run.call_args_list])
        # Without machines there are events, too.
        self.assertEqual(['ServiceStarted'], self.keys(streamed, 1))
        self.assertTrue(streamed.empty())

    def test_waits_until_machines_are_observed(self):
        filled = threading.Event()
        self.cluster.wait_ready = lambda timeout=None: filled.wait(30)
        events, _streamed = self.dispatcher()
        events.start()
        self.assertFalse(events.wait_observing(0))
        filled.set()
        self.assertTrue(events.wait_observing(30))

    def test_machines_that_are_not_ready_occupy_no_shared_thread(self):
        threads = service_threads.ServiceThreads(service_threads.SHARED)
        self.addCleanup(threads.close)
        tried = threading.Semaphore(0)

        def fail(timeout=None):
            tried.release()
            raise errors.AccessDenied('no')

        for _ in range(service_threads.SHARED):
            cluster = Cluster()
            cluster.wait_ready = fail
            self.addCleanup(cluster.closing.set)
            self.dispatcher(cluster, threads)[0].start()
        for _ in range(service_threads.SHARED):
            self.assertTrue(tried.acquire(timeout=30))
        events, _streamed = self.dispatcher(threads=threads)
        events.start()
        self.assertTrue(events.wait_observing(30))

    def test_publishes_refused_login(self):
        events, streamed = self.started()
        events.login_failed('me', '192.0.2.1')
        self.assertEqual(['LoginFailed'], self.keys(streamed, 1))

    def test_disabled_service_sends_nothing(self):
        events, streamed = self.started()
        events.set(enabled=False)
        events.emit(self.record())
        self.assertTrue(streamed.empty())
        events.set(enabled=True)
        events.emit(self.record())
        self.assertEqual(['TestMessage'], self.keys(streamed, 1))

    def refreshes(self, events):
        """Replace the delivery; return the histories it is given."""
        given = queue.Queue()
        events._delivery = mock.Mock()
        events._delivery.refresh = given.put
        return given

    def test_new_subscription_gets_events_since_its_creation(self):
        events, _streamed = self.started()
        given = self.refreshes(events)
        events.emit(self.record())
        events.subscriptions.add('http://192.0.2.1/')
        self.assertEqual(events.history(), given.get(timeout=30))
        events.set(enabled=False)
        given.get(timeout=30)
        events.subscriptions.add('http://192.0.2.1/')
        self.assertEqual((), given.get(timeout=30))

    def test_subscriptions_that_were_read_before_the_start(self):
        events, streamed = self.dispatcher()
        given = self.refreshes(events)
        taken = queue.Queue()
        events._delivery.take = taken.put
        events.subscriptions.add('http://192.0.2.1/')
        self.assertTrue(given.empty())
        events.start()
        self.assertEqual([], given.get(timeout=30))
        self.keys(streamed, 1)
        self.assertEqual(events.history(), [taken.get(timeout=30)])
        self.assertTrue(taken.empty())

    def test_delivery_starts_with_the_first_subscription(self):
        events, _streamed = self.started()
        self.assertIsNone(events._delivery)
        self.assertEqual(0, events.failures('a'))
        [subscription] = [events.subscriptions.add('http://192.0.2.1/')]
        self.assertIsInstance(subscription, subscriptions.Subscription)
        self.assertEqual(0, events.failures(subscription.id))
        self.assertIsNotNone(events._delivery)


class StreamsTestCase(base.BaseTestCase):

    def streams(self, **more):
        return server_sent_events.Streams(
            lambda: [], event_options.EventOptions(**more))

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
        self.assertEqual('192.0.2.1:5', all_.get(one.id).client)
        one.close()
        self.assertIsNone(all_.get(one.id))
        self.assertRaises(StopIteration, next, one)

    def test_removed_stream_ends(self):
        all_ = self.streams()
        one = self.open(all_)
        self.assertEqual((one,), all_.all())
        next(one)
        one.terminate()
        self.assertRaises(StopIteration, next, one)
        one.close()
        self.assertEqual((), all_.all())

    def test_limits_number_of_streams(self):
        all_ = self.streams(streams=2)
        first = self.open(all_)
        self.open(all_)
        self.assertRaises(server_sent_events.TooMany, self.open, all_)
        first.close()
        self.open(all_)

    def test_streams_of_one_account_leave_some_to_others(self):
        all_ = self.streams(streams=2)
        for _ in range(2):
            self.open(all_)
        self.assertRaises(server_sent_events.TooMany, self.open, all_)
        for owner in 'bob', 'eve':
            self.open(all_, owner=owner)
        self.assertRaises(server_sent_events.TooMany, self.open, all_,
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
        one.terminate()
        with mock.patch('threading.Timer') as timer:
            three.terminate()
        three.close()
        for _ in range(server_sent_events.MAX_QUEUE + 1):
            two.take(event_record.make(
                event_registry.TEST, event_record.OTHER))
        self.assertTrue(stuck.wait(10))
        self.assertTrue(full.wait(10))
        timer.call_args.args[1]()
        self.assertFalse(done.is_set())

    def test_ends_when_queue_is_full(self):
        all_ = self.streams()
        one = self.open(all_)
        next(one)
        for _ in range(server_sent_events.MAX_QUEUE + 1):
            all_.take(event_record.make(
                event_registry.TEST, event_record.OTHER))
        self.assertEqual(server_sent_events.MAX_QUEUE, len(list(one)))
