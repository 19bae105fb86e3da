# SPDX-License-Identifier: Apache-2.0
"""Pushes events to subscribers: the work of the one worker that leads.

One thread for all, on asyncio; each subscriber has a task, a connection and a
queue of its own, so one that is slow, dead or hostile keeps no other waiting.
Queues are bounded: who is away for too long is told that events were lost.
An event may come twice (same EventId) when its answer was lost or the leader
died; none is lost by that, as the next one goes on where it was.
"""

import asyncio
import collections
import concurrent.futures
import dataclasses
import json
import logging
import random
import threading

from sushy_kubevirt.kube import errors
from sushy_kubevirt.redfish.services.events import event_record
from sushy_kubevirt.redfish.services.events import http_push
from sushy_kubevirt.redfish.services.events import messages
from sushy_kubevirt.redfish.services.events import subscriptions

LOG = logging.getLogger(__name__)

#: Events in one POST, and events that wait for one subscriber.
BATCH = 50
QUEUE = 500

#: Seconds for a POST, connecting included.
TIMEOUT = 10.0

#: Longest pause between tries, with RetryForeverWithBackoff.
LONGEST_PAUSE = 300.0

#: How often the other workers are told how far the subscribers are.
MARK_SECONDS = 0.1


@dataclasses.dataclass
class Mark:
    """How far a subscriber is.

    :param number: of the last event it was sent, or does not want
    :param failures: tries that failed since the last that did not
    """

    number: int = 0
    failures: int = 0


class Delivery:
    """All subscribers.

    :param wanted: function that returns all `subscriptions.Subscription`
    :param settings: function that returns the `settings.Settings`
    :param store: the `subscriptions.Subscriptions`
    :param marked: function of a dict of id: (number, failures), called now
        and then
    """

    def __init__(self, wanted, settings, store, marked):
        self._wanted = wanted
        self._settings = settings
        self._store = store
        self._marked = marked
        self._lock = threading.Lock()
        self._subscribers = {}
        self._changed = set()
        self._marking = False
        self._contexts = {}
        self._closed = False
        self._loop = asyncio.new_event_loop()
        # For what blocks: looking names up, changing subscriptions.
        self._loop.set_default_executor(
            concurrent.futures.ThreadPoolExecutor(
                8, thread_name_prefix='events-aside'))
        threading.Thread(target=self._run, daemon=True,
                         name='events-push').start()

    # From other threads

    def take(self, record):
        """Hand on a record to whoever wants it."""
        self._call(self._spread, record)

    def refresh(self, history=(), marks=None):
        """The subscriptions have changed, or this begins.

        :param history: records that those may lack that were there before
        :param marks: dict of id: (number, failures), how far each is
        """
        self._call(self._refresh, tuple(history), dict(marks or {}))

    def close(self):
        with self._lock:
            if not self._closed:
                self._closed = True
                self._loop.call_soon_threadsafe(self._loop.stop)

    def _call(self, function, *args):
        with self._lock:
            if not self._closed:
                self._loop.call_soon_threadsafe(function, *args)

    def _run(self):
        loop = self._loop
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            loop.run_until_complete(
                asyncio.gather(*tasks, return_exceptions=True))
            loop.close()

    # In the loop

    def _refresh(self, history, marks):
        wanted = {one.id: one for one in self._wanted()
                  if not one.suspended}
        for id_ in set(self._subscribers) - set(wanted):
            self._subscribers.pop(id_).end()
        for id_, one in wanted.items():
            known = self._subscribers.get(id_)
            if known is not None and known.given_up:
                # Somebody wants it again before this was told it is gone.
                known = None
            if known is not None and known.subscription != one:
                if known.subscription.destination == one.destination and (
                        known.subscription.verify == one.verify):
                    known.subscription = one
                    continue
                known.end()
                known = None
            if known is None:
                self._begin(one, history, marks.get(id_))

    def _begin(self, one, history, mark):
        subscriber = self._subscribers[one.id] = _Subscriber(self, one)
        number, failures = mark or (0, 0)
        subscriber.mark = Mark(number, failures)
        for record in history:
            if record.number > number and record.time >= one.created:
                subscriber.take(record)
        subscriber.start(self._loop)

    def _spread(self, record):
        for subscriber in self._subscribers.values():
            subscriber.take(record)

    def settings(self):
        return self._settings()

    def context(self, verify):
        """The TLS context, one for all."""
        if verify not in self._contexts:
            self._contexts[verify] = http_push.tls(verify)
        return self._contexts[verify]

    def aside(self, function, *args):
        """Run what blocks; awaitable."""
        return self._loop.run_in_executor(None, function, *args)

    def addresses(self, place):
        return self.aside(self._store.addresses, place)

    def changed(self, subscriber):
        """A subscriber has got on, or not."""
        self._changed.add(subscriber.subscription.id)
        if not self._marking:
            self._marking = True
            self._loop.call_later(MARK_SECONDS, self._tell_marks)

    def _tell_marks(self):
        self._marking = False
        marks = {}
        for id_ in self._changed:
            subscriber = self._subscribers.get(id_)
            if subscriber is not None:
                mark = subscriber.mark
                marks[id_] = (mark.number, mark.failures)
        self._changed.clear()
        if marks:
            self.aside(self._marked, marks)

    async def give_up(self, subscriber):
        """After too many failures: do as the subscription says."""
        one = subscriber.subscription
        try:
            if one.policy is subscriptions.Policy.TERMINATE:
                LOG.warning('Subscription %s is deleted: %s takes no events',
                            one.id, _shown(one))
                await self.aside(self._store.remove, one.id)
            else:
                LOG.warning('Subscription %s is suspended: %s takes no '
                            'events', one.id, _shown(one))
                await self.aside(
                    lambda: self._store.change(one.id, suspended=True))
        except errors.MachineError as e:
            LOG.warning('Subscription %s could not be changed: %s', one.id, e)
            return False
        return True


class _Subscriber:
    """One of them: a queue, and a task that empties it."""

    def __init__(self, delivery, subscription):
        self._delivery = delivery
        self.subscription = subscription
        self.given_up = False
        self.mark = Mark()
        self._queue = collections.deque()
        self._lost = False
        self._news = asyncio.Event()
        self._task = None

    def start(self, loop):
        self._task = loop.create_task(self._serve())

    def end(self):
        self._task.cancel()

    def take(self, record):
        if not self.subscription.filter.matches(record):
            if not self._queue:
                self.mark.number = record.number
            return
        if len(self._queue) >= QUEUE:
            self._queue.popleft()
            self._lost = True
        self._queue.append(record)
        self._news.set()

    async def _serve(self):
        one = self.subscription
        try:
            poster = http_push.Poster(
                place := subscriptions.read_url(one.destination),
                lambda: self._delivery.addresses(place),
                self._delivery.context(one.verify)
                if place.scheme == 'https' else None)
        except errors.MachineError as e:
            LOG.warning('Subscription %s cannot be served: %s', one.id, e)
            return
        try:
            while True:
                await self._news.wait()
                if not self._queue:
                    self._news.clear()
                    continue
                if not await self._send(poster):
                    return
        except asyncio.CancelledError:
            pass
        finally:
            poster.close()

    async def _send(self, poster):
        """Send what waits, as far as it fits into one POST.

        :returns: whether to go on
        """
        batch = [self._queue[number]
                 for number in range(min(BATCH, len(self._queue)))]
        told = list(batch)
        if self._lost:
            told.insert(0, event_record.make(messages.BUFFER_EXCEEDED,
                                             event_record.OTHER))
        one = self.subscription
        body = json.dumps(event_record.event(
            told, one.context, one.filter.types)).encode()
        try:
            await asyncio.wait_for(poster.post(body, one.headers), TIMEOUT)
        except asyncio.CancelledError:
            raise
        except Exception as e:
            return await self._failed(e)
        if self.mark.failures:
            LOG.info('Subscription %s: %s takes events again', one.id,
                     _shown(one))
        self._lost = False
        last = batch[-1].number
        while self._queue and self._queue[0].number <= last:
            self._queue.popleft()
        self.mark = Mark(max(last, self.mark.number), 0)
        self._delivery.changed(self)
        return True

    async def _failed(self, error):
        one, mark = self.subscription, self.mark
        mark.failures += 1
        self._delivery.changed(self)
        log = LOG.warning if mark.failures == 1 else LOG.debug
        log('Subscription %s: %s did not take an event: %s', one.id,
            _shown(one), str(error) or type(error).__name__)
        settings = self._delivery.settings()
        pause = settings.interval * random.uniform(0.9, 1.1)
        if one.policy in (subscriptions.Policy.TERMINATE,
                          subscriptions.Policy.SUSPEND):
            if mark.failures > settings.attempts:
                if await self._delivery.give_up(self):
                    self.given_up = True
                    return False
                pause = LONGEST_PAUSE
        elif one.policy is subscriptions.Policy.BACKOFF:
            # The first tries come sooner: most failures are over soon.
            pause = min(settings.interval * 2.0 ** (mark.failures - 4),
                        LONGEST_PAUSE) * random.uniform(0.5, 1.0)
        await asyncio.sleep(pause)
        return True


def _shown(one):
    """The destination, without what a URL may hold for its server alone."""
    return one.destination.partition('?')[0]
