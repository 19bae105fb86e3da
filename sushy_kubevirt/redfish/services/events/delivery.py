# SPDX-License-Identifier: Apache-2.0
"""Pushes events to subscribers.

One thread with asyncio serves all subscribers. Each has its own task,
connection and queue, so a slow, dead or hostile subscriber does not delay
others. Queues are bounded; a subscriber whose queue overflowed is notified of
the loss. Delivery is at least once: a subscriber may receive an event twice,
with the same EventId, after a lost response.
"""

from __future__ import annotations

import asyncio
import collections
from collections import abc
import concurrent.futures
import dataclasses
import json
import logging
import random
import threading
import typing
import weakref

from sushy_kubevirt.bmc import event_registry
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import retry
from sushy_kubevirt.redfish.services.events import event_record
from sushy_kubevirt.redfish.services.events import http_push
from sushy_kubevirt.redfish.services.events import subscriptions

if typing.TYPE_CHECKING:
    import ssl

    from sushy_kubevirt.machine.media import url_policy
    from sushy_kubevirt.redfish.services.events import service_settings

Record: typing.TypeAlias = event_record.Record
Subscription: typing.TypeAlias = subscriptions.Subscription

_ResultT = typing.TypeVar('_ResultT')

LOG = logging.getLogger(__name__)

#: Largest number of events in a POST, and in the queue of a subscriber.
MAX_BATCH = 50
MAX_QUEUE = 500

#: Seconds for a POST, including the connection.
POST_SECONDS = 10.0

#: Longest pause between tries with RetryForeverWithBackoff, in seconds.
MAX_PAUSE_SECONDS = 300.0

#: Maximum number of threads for blocking calls, which are started when they
#: are needed, and how many of them look up names for the subscriptions of one
#: account. A BMC has up to 15 accounts; what is left is for other calls.
_THREADS, _LOOKUPS = 64, 4


@dataclasses.dataclass
class Position:
    """Position of a subscriber.

    :param number: of the last event that was delivered or filtered out
    :param failures: failed tries since the last successful one
    """

    number: int = 0
    failures: int = 0


class Delivery:
    """Delivers events to all subscribers.

    :param cached: returns all subscriptions without blocking
    """

    def __init__(self, cached: abc.Callable[[], tuple[Subscription, ...]],
                 settings: abc.Callable[[], service_settings.Settings],
                 store: subscriptions.Subscriptions) -> None:
        self._cached = cached
        self._settings = settings
        self._store = store
        self._lock = threading.Lock()
        # By subscription id; the positions are of suspended ones, too.
        self._subscribers: dict[str, _Subscriber] = {}
        self._positions: dict[str, Position] = {}
        self._contexts: dict[bool, ssl.SSLContext] = {}
        self._closed = False
        self._loop = asyncio.new_event_loop()
        # For blocking calls: name resolution, changes of subscriptions.
        self._threads = concurrent.futures.ThreadPoolExecutor(
            _THREADS, thread_name_prefix='events-blocking')
        # Owner: semaphore, as long as a lookup has it.
        self._lookups: weakref.WeakValueDictionary[
            str, asyncio.Semaphore] = weakref.WeakValueDictionary()
        threading.Thread(target=self._run, daemon=True,
                         name='events-push').start()

    # Called in other threads

    def take(self, record: Record) -> None:
        """Queue a record for all subscribers that select it."""
        self._call(self._distribute, record)

    def refresh(self, history: abc.Iterable[Record] = ()) -> None:
        """Apply changed subscriptions.

        :param history: the last events, for subscriptions that were created
            or resumed meanwhile
        """
        self._call(self._refresh, tuple(history))

    def failures(self, id_: str) -> int:
        """Return the number of failures since the last delivery.

        :param id_: subscription id
        """
        position = self._positions.get(id_)
        return position.failures if position else 0

    def close(self) -> None:
        """Stop the thread; undelivered events are lost."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._loop.call_soon_threadsafe(self._loop.stop)

    def _call(self, function: abc.Callable[..., object],
              *args: typing.Any) -> None:
        with self._lock:
            if not self._closed:
                self._loop.call_soon_threadsafe(function, *args)

    def _run(self) -> None:
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
            self._threads.shutdown(wait=False)
            loop.close()

    # Called in the event loop

    def _refresh(self, history: tuple[Record, ...]) -> None:
        stored = self._cached()
        active = {subscription.id: subscription for subscription in stored
                  if not subscription.suspended}
        for id_ in set(self._positions) - {subscription.id
                                           for subscription in stored}:
            del self._positions[id_]
        for id_ in set(self._subscribers) - set(active):
            self._subscribers.pop(id_).end()
        for id_, subscription in active.items():
            known = self._subscribers.get(id_)
            if known is not None and known.given_up:
                # Resumed before its suspension was seen here.
                known = None
            if known is not None and known.subscription != subscription:
                before = known.subscription
                if (before.destination, before.verify) == (
                        subscription.destination, subscription.verify):
                    known.subscription = subscription
                    continue
                known.end()
                known = None
            if known is None:
                self._begin(subscription, history)

    def _begin(self, subscription: Subscription,
               history: abc.Iterable[Record]) -> None:
        position = self._positions.setdefault(subscription.id, Position())
        position.failures = 0
        subscriber = self._subscribers[subscription.id] = _Subscriber(
            self, subscription, position)
        last = position.number
        for record in history:
            if record.number > last and record.time >= subscription.created:
                subscriber.take(record)
        subscriber.start(self._loop)

    def _distribute(self, record: Record) -> None:
        for subscriber in self._subscribers.values():
            subscriber.take(record)

    def settings(self) -> service_settings.Settings:
        return self._settings()

    def context(self, verify: bool) -> ssl.SSLContext:
        """Return the TLS context shared by all subscribers.

        :param verify: see `http_push.tls`
        """
        if verify not in self._contexts:
            self._contexts[verify] = http_push.tls(verify)
        return self._contexts[verify]

    def run_blocking(self, function: abc.Callable[..., _ResultT],
                     *args: typing.Any) -> asyncio.Future[_ResultT]:
        """Call a blocking function in a thread."""
        return self._loop.run_in_executor(self._threads, function, *args)

    async def addresses(self, owner: str, url: url_policy.ParsedUrl
                        ) -> tuple[str, ...]:
        """See `subscriptions.Subscriptions.addresses`.

        Names that are not answered do not keep other accounts from looking
        up theirs.

        :param owner: of the subscription
        """
        lookups = self._lookups.setdefault(owner, asyncio.Semaphore(_LOOKUPS))
        await lookups.acquire()
        lookup = self._threads.submit(self._store.addresses, url)
        # At its end, not when it is no longer waited for.
        lookup.add_done_callback(lambda _lookup: self._call(lookups.release))
        return await asyncio.wrap_future(lookup)

    async def give_up(self, subscriber: _Subscriber) -> bool:
        """Delete or suspend a subscription, depending on its policy.

        :returns: whether that succeeded
        """
        subscription = subscriber.subscription
        tries = subscriber.position.failures
        try:
            if subscription.policy is subscriptions.Policy.TERMINATE:
                LOG.warning('Subscription %s is deleted after %d failed '
                            'tries to send an event to %s',
                            subscription.id, tries, _shown(subscription))
                await self.run_blocking(self._store.remove, subscription.id)
            else:
                LOG.warning('Subscription %s is suspended after %d failed '
                            'tries to send an event to %s; resume it with '
                            'EventDestination.ResumeSubscription',
                            subscription.id, tries, _shown(subscription))
                await self.run_blocking(lambda: self._store.change(
                    subscription.id, suspended=True))
        except errors.MachineError as e:
            LOG.warning('Subscription %s could not be changed; trying again '
                        'after its next failure: %s', subscription.id, e)
            return False
        return True


class _Subscriber:
    """A queue of events, and a task that sends them to a subscriber."""

    def __init__(self, delivery: Delivery, subscription: Subscription,
                 position: Position) -> None:
        self._delivery = delivery
        self.subscription = subscription
        self.given_up = False
        self.position = position
        self._queue: collections.deque[Record] = collections.deque()
        self._last_number = 0
        self._lost = False
        self._queued = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._task = loop.create_task(self._serve())

    def end(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def take(self, record: Record) -> None:
        if record.number <= self._last_number:
            # It was in the history that a new subscriber begins with.
            return
        self._last_number = record.number
        if not self.subscription.filter.matches(record):
            if not self._queue:
                self.position.number = record.number
            return
        if len(self._queue) >= MAX_QUEUE:
            self._queue.popleft()
            self._lost = True
        self._queue.append(record)
        self._queued.set()

    async def _serve(self) -> None:
        subscription = self.subscription
        try:
            poster = http_push.Poster(
                url := subscriptions.read_url(subscription.destination),
                lambda: self._delivery.addresses(subscription.owner, url),
                self._delivery.context(subscription.verify)
                if url.scheme == 'https' else None)
        except errors.MachineError as e:
            LOG.warning('Subscription %s is invalid and receives no events: '
                        '%s', subscription.id, e)
            return
        try:
            while True:
                await self._queued.wait()
                if not self._queue:
                    self._queued.clear()
                    continue
                if not await self._send(poster):
                    return
        except asyncio.CancelledError:
            pass
        finally:
            poster.close()

    async def _send(self, poster: http_push.Poster) -> bool:
        """Send up to `MAX_BATCH` queued events in subscription POST.

        :returns: whether to continue; False after `Delivery.give_up`
        """
        batch = [self._queue[number]
                 for number in range(min(MAX_BATCH, len(self._queue)))]
        records = list(batch)
        if self._lost:
            records.insert(0, event_record.make(event_registry.BUFFER_EXCEEDED,
                                                event_record.OTHER))
        subscription = self.subscription
        body = json.dumps(event_record.event(
            records, subscription.context, subscription.filter.types)).encode()
        try:
            # `asyncio.wait_for` can miss the end of the subscription.
            async with asyncio.timeout(POST_SECONDS):
                await poster.post(body, subscription.headers)
        except asyncio.CancelledError:
            raise
        except Exception as e:
            return await self._failed(e)
        if self.position.failures:
            LOG.info('Subscription %s: %s accepts events again',
                     subscription.id, _shown(subscription))
        self._lost = False
        last = batch[-1].number
        while self._queue and self._queue[0].number <= last:
            self._queue.popleft()
        self.position.number = max(last, self.position.number)
        self.position.failures = 0
        return True

    async def _failed(self, error: Exception) -> bool:
        """Log a failed try and wait for the next, as the policy demands.

        :returns: whether to continue
        """
        subscription, position = self.subscription, self.position
        position.failures += 1
        log = LOG.warning if position.failures == 1 else LOG.debug
        log('Subscription %s: sending an event to %s failed: %s',
            subscription.id, _shown(subscription),
            str(error) or type(error).__name__)
        settings = self._delivery.settings()
        pause = settings.interval * random.uniform(0.9, 1.1)
        if subscription.policy in (subscriptions.Policy.TERMINATE,
                                   subscriptions.Policy.SUSPEND):
            if position.failures > settings.attempts:
                if await self._delivery.give_up(self):
                    self.given_up = True
                    return False
                pause = MAX_PAUSE_SECONDS
        elif subscription.policy is subscriptions.Policy.BACKOFF:
            # The first retries come sooner, because most failures are short.
            pause = retry.pause(position.failures - 1, settings.interval / 8,
                                MAX_PAUSE_SECONDS)
        await asyncio.sleep(pause)
        return True


def _shown(subscription: Subscription) -> str:
    """Return the destination without its query, which may be a secret."""
    return subscription.destination.partition('?')[0]
