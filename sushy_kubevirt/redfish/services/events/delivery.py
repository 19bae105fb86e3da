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
import contextlib
import itertools
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
    from sushy_kubevirt.machine.media import url_policy
    from sushy_kubevirt.redfish.services.events import service_settings

Record: typing.TypeAlias = event_record.Record
Subscription: typing.TypeAlias = subscriptions.Subscription

LOG = logging.getLogger(__name__)

#: Largest number of events in a POST, and in the queue of a subscriber.
MAX_BATCH = 50
MAX_QUEUE = 500

#: Seconds for a POST, including the connection.
POST_SECONDS = 10.0

#: Longest pause between tries with RetryForeverWithBackoff, in seconds.
MAX_PAUSE_SECONDS = 300.0

#: Number of deleted subscriptions whose positions are remembered.
_MAX_GONE = 200

#: Maximum number of threads for blocking calls, which are started when they
#: are needed, and how many of them look up names for the subscriptions of one
#: account. A BMC has up to 15 accounts; what is left is for other calls.
_THREADS, _LOOKUPS = 64, 4


class Delivery:
    """Delivers events to all subscribers.

    :ivar settings: returns the settings of the event service
    :ivar store: the subscriptions
    """

    def __init__(self, store: subscriptions.Subscriptions,
                 settings: abc.Callable[[], service_settings.Settings]
                 ) -> None:
        self.store = store
        self.settings = settings
        # By subscription id; also those that are suspended or deleted.
        self._subscribers: dict[str, _Subscriber] = {}
        self._loop = asyncio.new_event_loop()
        # For blocking calls: name resolution, changes of subscriptions.
        self._threads = concurrent.futures.ThreadPoolExecutor(
            _THREADS, thread_name_prefix='events-blocking')
        self._loop.set_default_executor(self._threads)
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

        :param history: the last events before the next call of `take`, for
            subscriptions that were created or resumed meanwhile
        """
        self._call(self._refresh, history)

    def failures(self, id_: str) -> int:
        """Return the number of failures since the last delivery.

        :param id_: subscription id
        """
        subscriber = self._subscribers.get(id_)
        return subscriber.failures if subscriber else 0

    def close(self) -> None:
        """Stop the thread; undelivered events are lost."""
        self._call(self._loop.stop)

    def _call(self, function: abc.Callable[..., object],
              *args: typing.Any) -> None:
        with contextlib.suppress(RuntimeError):     # the loop has ended
            self._loop.call_soon_threadsafe(function, *args)

    def _run(self) -> None:
        loop = self._loop
        asyncio.set_event_loop(loop)    # for `gather`
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

    def _refresh(self, history: abc.Iterable[Record]) -> None:
        stored = {subscription.id: subscription
                  for subscription in self.store.cached()}
        gone = [id_ for id_ in self._subscribers if id_ not in stored]
        for id_ in gone:
            self._subscribers[id_].stop()
        # The others may come back, with the Secret that stores them.
        for id_ in gone[:-_MAX_GONE]:
            del self._subscribers[id_]
        for id_, subscription in stored.items():
            if id_ not in self._subscribers:
                self._subscribers[id_] = _Subscriber(self, subscription)
            self._subscribers[id_].update(subscription, history)

    def _distribute(self, record: Record) -> None:
        for subscriber in self._subscribers.values():
            subscriber.take(record)

    async def addresses(self, owner: str, url: url_policy.ParsedUrl
                        ) -> tuple[str, ...]:
        """See `subscriptions.Subscriptions.addresses`.

        Names that are not answered do not keep other accounts from looking
        up theirs.

        :param owner: of the subscription
        """
        lookups = self._lookups.setdefault(owner, asyncio.Semaphore(_LOOKUPS))
        await lookups.acquire()
        lookup = self._threads.submit(self.store.addresses, url)
        # At its end, not when it is no longer waited for.
        lookup.add_done_callback(lambda _lookup: self._call(lookups.release))
        return await asyncio.wrap_future(lookup)


class _Subscriber:
    """A queue of events, and a task that sends them to a subscriber.

    :ivar number: of the last event that was delivered or filtered out
    :ivar failures: failed tries since the last successful one
    """

    def __init__(self, delivery: Delivery, subscription: Subscription
                 ) -> None:
        self._delivery = delivery
        self.subscription = subscription
        self.number = self.failures = 0
        self._queue: collections.deque[Record] = collections.deque()
        self._lost = False
        self._queued = asyncio.Event()
        # None while the subscription is suspended, or about to be.
        self._task: asyncio.Task[None] | None = None
        # Of the last refresh that left the task as it was. It may have resumed
        # the subscription while its suspension was being stored.
        self._history: abc.Iterable[Record] | None = None

    def update(self, subscription: Subscription,
               history: abc.Iterable[Record]) -> None:
        """Apply what a client has changed, and begin if nothing is sent yet.

        :param history: see `Delivery.refresh`
        """
        before, self.subscription = self.subscription, subscription
        if subscription.suspended or (
                before.destination, before.verify) != (
                    subscription.destination, subscription.verify):
            self.stop()
        if subscription.suspended or self._task is not None:
            self._history = history
            return
        self.failures = 0
        self._lost = False
        self._queue.clear()
        self._task = asyncio.create_task(self._serve())
        last = self.number
        for record in history:
            if record.number > last and record.time >= subscription.created:
                self.take(record)
                last = record.number

    def stop(self) -> None:
        """Send nothing more."""
        if self._task is not None:
            self._task.cancel()
        self._task = None
        self._queue.clear()

    def take(self, record: Record) -> None:
        """Queue a record if the subscription is active and selects it."""
        if self._task is None:
            return
        if not self.subscription.filter.matches(record):
            if not self._queue:
                self.number = record.number
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
                subscription.verify)
        except errors.MachineError as e:
            LOG.warning('Subscription %s is invalid and receives no events: '
                        '%s', subscription.id, e)
            return
        with contextlib.closing(poster):
            while await self._send(poster):
                pass
            self._task = None
        if self._history is not None:
            self.update(self.subscription, (*self._history, *self._queue))

    async def _send(self, poster: http_push.Poster) -> bool:
        """Send up to `MAX_BATCH` queued events in one POST.

        :returns: whether to continue; False after `_give_up`
        """
        while not self._queue:
            self._queued.clear()
            await self._queued.wait()
        batch = list(itertools.islice(self._queue, MAX_BATCH))
        last = batch[-1].number
        if self._lost:
            batch.insert(0, event_record.make(event_registry.BUFFER_EXCEEDED,
                                              event_record.OTHER))
        subscription = self.subscription
        body = json.dumps(event_record.event(
            batch, subscription.context, subscription.filter.types)).encode()
        try:
            # `asyncio.wait_for` can miss the end of the subscription.
            async with asyncio.timeout(POST_SECONDS):
                await poster.post(body, subscription.headers)
        except Exception as e:
            return await self._failed(e)
        if self.failures:
            LOG.info('Subscription %s: %s accepts events again',
                     subscription.id, _shown(subscription))
        self._lost = False
        while self._queue and self._queue[0].number <= last:
            self._queue.popleft()
        self.number = max(last, self.number)
        self.failures = 0
        return True

    async def _failed(self, error: Exception) -> bool:
        """Log a failed try and wait for the next, as the policy demands.

        :returns: whether to continue
        """
        subscription = self.subscription
        self.failures += 1
        log = LOG.warning if self.failures == 1 else LOG.debug
        log('Subscription %s: sending an event to %s failed: %s',
            subscription.id, _shown(subscription),
            str(error) or type(error).__name__)
        settings = self._delivery.settings()
        pause = settings.interval * random.uniform(0.9, 1.1)
        if subscription.policy in (subscriptions.Policy.TERMINATE,
                                   subscriptions.Policy.SUSPEND):
            if self.failures > settings.attempts:
                if await self._give_up():
                    return False
                pause = MAX_PAUSE_SECONDS
        elif subscription.policy is subscriptions.Policy.BACKOFF:
            # The first retries come sooner, because most failures are short.
            pause = retry.pause(self.failures - 1, settings.interval / 8,
                                MAX_PAUSE_SECONDS)
        await asyncio.sleep(pause)
        return True

    async def _give_up(self) -> bool:
        """Delete or suspend the subscription, depending on its policy.

        :returns: whether that succeeded
        """
        subscription, store = self.subscription, self._delivery.store
        self._history = None
        try:
            if subscription.policy is subscriptions.Policy.TERMINATE:
                LOG.warning('Subscription %s is deleted after %d failed '
                            'tries to send an event to %s', subscription.id,
                            self.failures, _shown(subscription))
                await asyncio.to_thread(store.remove, subscription.id)
            else:
                LOG.warning('Subscription %s is suspended after %d failed '
                            'tries to send an event to %s; resume it with '
                            'EventDestination.ResumeSubscription',
                            subscription.id, self.failures,
                            _shown(subscription))
                await asyncio.to_thread(store.change, subscription.id,
                                        suspended=True)
        except errors.MachineError as e:
            LOG.warning('Subscription %s could not be changed; trying again '
                        'after its next failure: %s', subscription.id, e)
            return False
        return True


def _shown(subscription: Subscription) -> str:
    """Return the destination without its query, which may be a secret."""
    return subscription.destination.partition('?')[0]
