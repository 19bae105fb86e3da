# SPDX-License-Identifier: Apache-2.0
"""Queues, batches and failures of deliveries, without HTTP."""

import asyncio
import gc
import json
import queue
import threading
import time

import fixtures
from oslotest import base

from sushy_kubevirt.bmc import event_registry
from sushy_kubevirt.redfish.services.events import delivery
from sushy_kubevirt.redfish.services.events import event_record
from sushy_kubevirt.redfish.services.events import filters
from sushy_kubevirt.redfish.services.events import http_push
from sushy_kubevirt.redfish.services.events import service_settings
from sushy_kubevirt.redfish.services.events import subscriptions


class Poster:
    """Fake of `http_push.Poster` that records events and can fail."""

    sent = None
    fails = None

    def __init__(self, place, resolve, verify):
        self.place = place

    async def post(self, body, headers):
        if self.fails:
            failure = self.fails.pop(0)
            if failure is not None:
                raise failure
        self.sent.put((self.place.path, [
            event['MessageArgs'][0] if event['MessageArgs']
            else event['MessageId'].rpartition('.')[2]
            for event in json.loads(body)['Events']]))

    def close(self):
        pass


class Store:

    def __init__(self, stored):
        self.stored = stored
        self.calls = queue.Queue()

    def cached(self):
        return tuple(self.stored)

    def remove(self, id_):
        self.calls.put(('remove', id_))

    def change(self, id_, **fields):
        self.calls.put(('change', id_, fields))

    def addresses(self, url):
        self.calls.put(('addresses', url))
        if isinstance(url, threading.Event):
            url.wait(30)
        return ['192.0.2.1']


class DeliveryTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MonkeyPatch(
            'sushy_kubevirt.redfish.services.events.http_push.Poster', Poster))
        Poster.sent = queue.Queue()
        Poster.fails = []
        self.subscriptions = []
        self.store = Store(self.subscriptions)
        self.number = 0
        self.delivery = delivery.Delivery(
            self.store,
            lambda: service_settings.Settings(attempts=1, interval=0.01))
        self.addCleanup(self.delivery.close)

    def subscribe(self, id_, **more):
        one = subscriptions.Subscription(
            id_, 'http://192.0.2.1/' + id_, created='2026', **more)
        self.subscriptions.append(one)
        return one

    def record(self, text='', key=event_registry.TEST):
        self.number += 1
        made = event_record.make(key, event_record.OTHER, (text,))
        return made._replace(number=self.number)

    def positions(self):
        """Return the ids of all positions, after what was called before."""
        positions = queue.Queue()
        self.delivery._call(
            lambda: positions.put(list(self.delivery._subscribers)))
        return positions.get(timeout=30)

    def suspended(self):
        """Wait until subscription 'a' has been suspended or removed."""
        end = time.monotonic() + 30
        while self.delivery._subscribers['a']._task is not None:
            self.assertLess(time.monotonic(), end)
            self.positions()

    def next_delivery(self):
        return Poster.sent.get(timeout=30)

    def assert_no_delivery(self):
        self.assertRaises(queue.Empty, Poster.sent.get, timeout=0.1)

    def test_delivers_to_matching_active_subscriptions(self):
        self.subscribe('a')
        self.subscribe('b', filter=filters.Filter(registries=('TaskEvent',)))
        self.subscribe('c', suspended=True)
        self.delivery.refresh()
        self.delivery.take(self.record('1'))
        self.assertEqual(('/a', ['1']), self.next_delivery())
        self.assert_no_delivery()

    def test_names_of_one_account_do_not_block_those_of_others(self):
        def look_up(owner, url):
            return asyncio.run_coroutine_threadsafe(
                self.delivery.addresses(owner, url), self.delivery._loop)

        answered = threading.Event()
        self.addCleanup(answered.set)
        many = [look_up(f'operator-{number % 14}', answered)
                for number in range(14 * 20)]
        # Those that are not waited for any more count as well.
        for _ in range(14 * 4):
            self.store.calls.get(timeout=30)
        for one in many[:4]:
            one.cancel()
        self.assertEqual(['192.0.2.1'],
                         look_up('admin', 'url').result(timeout=30))
        self.assertEqual(('addresses', 'url'), self.store.calls.get_nowait())
        self.assertTrue(self.store.calls.empty())
        answered.set()
        for one in many[4:]:
            self.assertEqual(['192.0.2.1'], one.result(timeout=30))
        # Owners without a lookup are forgotten.
        self.delivery._threads.shutdown()
        asyncio.run_coroutine_threadsafe(
            asyncio.sleep(0), self.delivery._loop).result(timeout=30)
        del many, one
        gc.collect()
        self.assertEqual({}, dict(self.delivery._lookups))

    def test_delivers_to_new_subscription(self):
        self.subscribe('a')
        self.delivery.refresh()
        self.delivery.take(self.record('1'))
        self.next_delivery()
        self.subscribe('b')
        self.delivery.refresh()
        self.delivery.take(self.record('2'))
        self.assertEqual({('/a', '2'), ('/b', '2')},
                         {(path, *texts) for path, texts in (
                             self.next_delivery(), self.next_delivery())})

    def test_resumed_subscription_continues_after_last_delivery(self):
        one = self.subscribe('a')
        past = [self.record(str(number)) for number in range(4)]
        self.delivery.refresh(past[:2])
        self.assertEqual(('/a', ['0', '1']), self.next_delivery())
        self.subscriptions[0] = one._replace(suspended=True)
        self.delivery.refresh(past)
        self.assert_no_delivery()
        self.subscriptions[0] = one
        self.delivery.refresh(past)
        self.assertEqual(('/a', ['2', '3']), self.next_delivery())

    def test_restored_subscription_continues_after_last_delivery(self):
        """The Secret with all subscriptions was deleted and made again."""
        subscription = self.subscribe('a')
        past = [self.record(str(number)) for number in range(3)]
        self.delivery.refresh(past[:2])
        self.assertEqual(('/a', ['0', '1']), self.next_delivery())
        self.assert_no_delivery()
        del self.subscriptions[:]
        self.delivery.refresh(past)
        self.positions()
        self.subscriptions.append(subscription)
        self.delivery.refresh(past)
        self.assertEqual(('/a', ['2']), self.next_delivery())

    def test_positions_of_few_deleted_subscriptions_are_kept(self):
        self.useFixture(fixtures.MonkeyPatch(
            'sushy_kubevirt.redfish.services.events.delivery._MAX_GONE', 1))
        for id_ in 'abc':
            self.subscribe(id_)
        self.delivery.refresh()
        self.assertEqual(['a', 'b', 'c'], self.positions())
        del self.subscriptions[:2]
        self.delivery.refresh()
        self.assertEqual(['b', 'c'], self.positions())

    def test_failures_are_counted_until_a_delivery(self):
        Poster.fails = [http_push.Failed('no')] * 2
        self.subscribe('a', policy=subscriptions.Policy.SUSPEND)
        self.delivery.refresh()
        self.assertEqual(0, self.delivery.failures('a'))
        self.delivery.take(self.record('1'))
        self.store.calls.get(timeout=30)
        self.suspended()
        self.assert_no_delivery()
        self.assertEqual(2, self.delivery.failures('a'))
        self.delivery.refresh()
        self.delivery.take(self.record('2'))
        self.next_delivery()
        del self.subscriptions[:]
        self.delivery.refresh()
        self.assert_no_delivery()
        self.assertEqual(0, self.delivery.failures('a'))

    def test_resumed_subscription_has_all_its_tries(self):
        Poster.fails = [http_push.Failed('no')] * 3
        self.subscribe('a', policy=subscriptions.Policy.SUSPEND)
        self.delivery.refresh()
        self.delivery.take(self.record('1'))
        self.store.calls.get(timeout=30)
        self.suspended()
        self.assert_no_delivery()
        self.delivery.refresh()
        self.delivery.take(self.record('2'))
        self.assertEqual(('/a', ['2']), self.next_delivery())

    def test_subscription_that_is_removed_during_its_delivery(self):
        begun, subscriber, closed = queue.Queue(), [], threading.Event()

        class LastPoster(Poster):

            async def post(poster, body, headers):
                await super().post(body, headers)
                subscriber[0].stop()

            def close(poster):
                closed.set()

        self.useFixture(fixtures.MonkeyPatch(
            'sushy_kubevirt.redfish.services.events.http_push.Poster',
            LastPoster))
        self.subscribe('a')
        self.delivery.refresh()
        self.delivery._call(lambda: begun.put(
            self.delivery._subscribers['a']))
        subscriber.append(begun.get(timeout=30))
        self.delivery.take(self.record('1'))
        self.next_delivery()
        self.assertTrue(closed.wait(10))

    def test_skips_events_older_than_subscription(self):
        self.subscribe('a')
        self.subscriptions[0] = subscriptions.Subscription(
            'a', 'http://192.0.2.1/a', created=event_record.now())
        old = self.record('old')._replace(time='2020-01-01')
        self.delivery.refresh([old])
        self.delivery.take(self.record('new'))
        self.assertEqual(('/a', ['new']), self.next_delivery())

    def test_retries_failed_delivery(self):
        Poster.fails = [http_push.Failed('it answered 500'), OSError('gone')]
        self.subscribe('a', policy=subscriptions.Policy.FOREVER)
        self.delivery.refresh()
        self.delivery.take(self.record('1'))
        self.assertEqual(('/a', ['1']), self.next_delivery())
        self.assert_no_delivery()

    def test_retries_with_backoff_after_thousands_of_failures(self):
        self.useFixture(fixtures.MonkeyPatch(
            'sushy_kubevirt.redfish.services.events.delivery'
            '.MAX_PAUSE_SECONDS', 0.01))
        Poster.fails = [http_push.Failed('no')]
        self.subscribe('a', policy=subscriptions.Policy.BACKOFF)
        self.delivery.refresh()
        self.delivery._call(lambda: setattr(
            self.delivery._subscribers['a'], 'failures', 2000))
        self.delivery.take(self.record('1'))
        self.assertEqual(('/a', ['1']), self.next_delivery())

    def test_removes_or_suspends_failing_subscription(self):
        for policy, call in (
                ('TERMINATE', ('remove', 'a')),
                ('SUSPEND', ('change', 'a', {'suspended': True}))):
            del self.subscriptions[:]
            self.delivery.refresh()
            Poster.fails = [http_push.Failed('no')] * 2
            self.subscribe('a', policy=subscriptions.Policy[policy])
            self.delivery.refresh()
            self.delivery.take(self.record('1'))
            self.assertEqual(call, self.store.calls.get(timeout=30))
            self.suspended()
            self.assert_no_delivery()
            self.delivery.take(self.record('2'))
            self.assert_no_delivery()

    def test_delivers_after_suspension_ends(self):
        Poster.fails = [http_push.Failed('no')] * 2
        self.subscribe('a', policy=subscriptions.Policy.SUSPEND)
        self.delivery.refresh()
        self.delivery.take(self.record('1'))
        self.assertEqual('change', self.store.calls.get(timeout=30)[0])
        self.suspended()
        self.assert_no_delivery()
        # The suspension ends before the next refresh, which never sees it.
        self.delivery.refresh()
        self.delivery.take(self.record('2'))
        self.assertEqual(('/a', ['2']), self.next_delivery())

    def test_subscription_that_is_resumed_while_it_is_suspended(self):
        first, second, third = map(self.record, '123')

        def change(_id, **_fields):
            # A client resumes it before the delivery is told.
            self.delivery.refresh([first, second])
            self.delivery.take(second)
            self.delivery.take(third)

        self.store.change = change
        Poster.fails = [http_push.Failed('no')] * 2
        self.subscribe('a', policy=subscriptions.Policy.SUSPEND)
        self.delivery.refresh()
        self.delivery.take(first)
        self.assertEqual(('/a', ['1', '2', '3']), self.next_delivery())
        self.assert_no_delivery()

    def test_batches_events_and_reports_dropped_ones(self):
        self.useFixture(fixtures.MonkeyPatch(
            'sushy_kubevirt.redfish.services.events.delivery.MAX_QUEUE', 100))
        self.subscribe('a', policy=subscriptions.Policy.FOREVER)
        self.delivery.refresh([self.record(str(number))
                               for number in range(120)])
        path, texts = self.next_delivery()
        # The oldest are dropped, which an event reports.
        self.assertEqual(['EventBufferExceeded'] + [
            str(number) for number in range(20, 70)],
            [text or 'EventBufferExceeded' for text in texts])
        self.assertEqual([str(number) for number in range(70, 120)],
                         self.next_delivery()[1])
        self.assert_no_delivery()

    def test_stops_delivery_to_removed_subscription(self):
        self.subscribe('a')
        self.delivery.refresh()
        del self.subscriptions[:]
        self.delivery.refresh()
        self.delivery.take(self.record('1'))
        self.assert_no_delivery()
