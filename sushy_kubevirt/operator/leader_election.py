# SPDX-License-Identifier: Apache-2.0
"""Leader election by a Lease: only its holder works.

As in client-go (tools/leaderelection), the holder renews the Lease, and
another replica takes it when it has not changed for its duration, by that
replica's own clock. Unlike in client-go, waiting replicas watch the Lease
instead of polling it.

Two replicas never work at the same time. The Lease is replaced only with the
resourceVersion that was read. The holder measures its time from before the
request and ends before another replica may take the Lease. A thread that does
not depend on the event loop ends it, and after a pause of the whole process
each write is checked first: see `LeaderElector.check_leadership`.

Not `kubernetes.leaderelection` (release 37): it has no such check, compares
times of the wall clock, and sends two requests every 5 s from each replica,
waiting ones included.
"""

from __future__ import annotations

import asyncio
from collections import abc
import datetime
import logging
import os
import random
import threading
import time
import typing

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import objects
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import cache
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import store

if typing.TYPE_CHECKING:
    from sushy_kubevirt.operator import api

LOG = logging.getLogger(__name__)

#: Fractions of the Lease's duration: pause between renewals, pause after a
#: failed renewal, and time without a renewal after which the holder ends. The
#: last third is for requests that it has sent before.
RENEW, RETRY, GIVE_UP = 1 / 3, 1 / 15, 2 / 3

#: Timeout in seconds of a running renewal before the Lease is released, and of
#: the release itself.
LAST_SECONDS = 3

_NOT_RENEWED = 'The Lease could not be renewed in time'


def _now() -> float:
    # Includes the time in which the machine is suspended.
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _end(message: str) -> None:
    LOG.critical('%s; this process ends', message)
    os._exit(1)


class LeaderElector:
    """Leader election of one replica.

    :param client: may write without the Lease
    :param namespace: of the Lease
    :param identity: unique name of this replica
    :param seconds: duration of the Lease
    :param now: a clock, in seconds
    :param end: ends the process at once; gets the reason, a sentence
    :param writers: those whose writes the Lease permits
    """

    def __init__(self, client: api.Api, namespace: str, identity: str,
                 seconds: float, now: abc.Callable[[], float] = _now,
                 end: abc.Callable[[str], object] = _end,
                 writers: abc.Iterable[api.Api] = ()) -> None:
        self._api = client
        self._namespace = namespace
        self._identity = identity
        self._seconds = seconds
        self._now = now
        self._end = end
        self._writers = writers
        self._changed = asyncio.Event()
        # {} if there is none.
        self._lease: objects.Json = {}
        # Time at which the Lease of another replica expires; None while
        # unknown.
        self._others_expiry: float | None = None
        # Time until which this process may work; None if it may not.
        self._own_deadline: float | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._renewing = asyncio.Lock()
        self._watchdog_wakes = threading.Event()

    def check_leadership(self) -> None:
        """Check that this process may write now. Thread-safe.

        :raises: `errors.Unavailable` if not
        """
        until = self._own_deadline
        if until is None or self._now() >= until:
            raise errors.Unavailable(
                'This replica does not hold the Lease, or not any more')

    @property
    def is_leader(self) -> bool:
        """Whether this replica has taken the Lease and not released it."""
        return self._own_deadline is not None

    async def acquire(self) -> None:
        """Wait for the Lease and take it.

        It is renewed from then on, until `release`; if that fails, the
        process ends.

        :raises: `errors.MachineError` if the Lease can never be taken
        """
        watch = asyncio.create_task(
            self._kind().watch(self._namespace), name='lease')
        self._tasks.append(watch)
        # If it ends, the loop below raises its exception.
        watch.add_done_callback(lambda task: self._changed.set())
        logged = None
        while True:
            self._changed.clear()
            if watch.done():
                watch.result()
            wait = None
            if self._others_expiry is not None:
                wait = self._others_expiry - self._now()
                if wait <= 0:
                    try:
                        await self._acquire_lease()
                        break
                    except errors.Conflict:
                        # Another replica was faster; the watch shows it.
                        wait = self._seconds * RETRY
                    except errors.Unavailable as e:
                        if str(e) != logged:
                            logged = str(e)
                            LOG.warning('The Lease is free, but could not be '
                                        'taken; tried again: %s', e)
                        wait = self._seconds * RETRY
                else:
                    logged = self._log_holder(logged)
            try:
                async with asyncio.timeout(wait):
                    await self._changed.wait()
            except TimeoutError:
                pass
        LOG.info('This replica holds the Lease now, as %s', self._identity)
        threading.Thread(target=self._run_watchdog, name='lease',
                         daemon=True).start()
        self._tasks.append(asyncio.create_task(self._renew(), name='renewal'))

    async def release(self) -> None:
        """Release the Lease, if this replica holds it, so that another one
        need not wait until it expires."""
        try:
            async with asyncio.timeout(LAST_SECONDS):
                # It cannot be replaced while it is being renewed.
                await self._renewing.acquire()
        except TimeoutError:
            pass
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._own_deadline is None:
            return
        # Write nothing from here on, even if the release fails.
        self._own_deadline = None
        self._watchdog_wakes.set()
        for writer in self._writers:
            if not await writer.wait_for_writes(LAST_SECONDS):
                LOG.warning('A write has not ended: the Lease is not '
                            'released, another replica takes it in %d s',
                            self._seconds)
                return
        spec = {**_spec(self._lease), 'holderIdentity': '',
                'leaseDurationSeconds': 1, 'renewTime': _time()}
        try:
            async with asyncio.timeout(LAST_SECONDS):
                await self._replace(spec)
        except (errors.MachineError, TimeoutError) as e:
            LOG.warning('The Lease could not be released, another replica '
                        'takes it in %d s: %s', self._seconds,
                        str(e) or 'no answer')

    def _kind(self) -> store.Kind:
        """Make the watch of the Lease."""
        leases = store.Kind(
            self._api, bmc_resources.LEASE, (self._namespace,),
            cache.Compressed(),
            field_selector=f'metadata.name={naming.OPERATOR}')

        def listed(_: str | None) -> None:
            if self._others_expiry is None and not leases.keys():
                self._observe(None)
        leases.subscribe(lambda change: self._observe(
            None if change.gone else change.obj), listed, all_events=True)
        return leases

    def _observe(self, lease: objects.Json | None) -> None:
        if self._own_deadline is not None:
            self._check(lease)
            return
        before, self._lease = self._lease, lease or {}
        if lease is None:
            if not before and self._others_expiry is None:
                self._others_expiry = self._now()
            # Otherwise it was deleted, which its holder may not know yet: wait
            # until it expires.
        elif not before or _spec(before) != _spec(lease):
            self._others_expiry = self._now()
            # The Lease is this replica's own if the response was lost.
            if _holder(lease) not in ('', self._identity):
                self._others_expiry += (
                    _spec(lease).get('leaseDurationSeconds')
                    or self._seconds)
        self._changed.set()

    def _check(self, lease: objects.Json | None) -> None:
        """Check the Lease that this process holds."""
        if lease is None:
            self._end('The Lease was deleted')
        elif _holder(lease) != self._identity:
            if _version(lease) >= _version(self._lease):
                self._end(f'The Lease was taken by {_holder(lease)}')
        elif _version(lease) > _version(self._lease):
            # Changed by another client elsewhere, for example in its labels.
            self._lease = lease

    def _log_holder(self, logged: str | None) -> str | None:
        holder = _holder(self._lease)
        if holder and holder != logged:
            LOG.info('%s holds the Lease; this replica waits', holder)
        return holder or logged

    async def _acquire_lease(self) -> None:
        until = self._now() + self._seconds * GIVE_UP
        spec: objects.Json = {
            'holderIdentity': self._identity,
            'leaseDurationSeconds': int(self._seconds),
            'acquireTime': _time(), 'renewTime': _time()}
        if not self._lease:
            spec['leaseTransitions'] = 0
            lease = await self._create(spec)
        else:
            spec['leaseTransitions'] = 1 + (
                _spec(self._lease).get('leaseTransitions') or 0)
            lease = await self._replace(spec)
        self._lease, self._own_deadline = lease, until

    async def _create(self, spec: objects.Json) -> objects.Json:
        try:
            return await self._api.create(
                bmc_resources.LEASE, self._namespace, {
                    'apiVersion': bmc_resources.LEASE.api_version,
                    'kind': bmc_resources.LEASE.kind,
                    'metadata': {'name': naming.OPERATOR,
                                 'namespace': self._namespace},
                    'spec': spec})
        except errors.ObjectNotFound as e:
            raise errors.ConfigError(
                f'There is no namespace {self._namespace} for the Lease: '
                'create it, or name another one with --system-namespace '
                f'({e})') from None

    async def _replace(self, spec: objects.Json) -> objects.Json:
        meta = self._lease['metadata']
        kept = {key: meta[key] for key in (
            'name', 'namespace', 'uid', 'resourceVersion', 'labels',
            'annotations') if key in meta}
        return await self._api.replace(
            bmc_resources.LEASE, self._namespace, naming.OPERATOR, {
                'apiVersion': bmc_resources.LEASE.api_version,
                'kind': bmc_resources.LEASE.kind, 'metadata': kept,
                'spec': spec})

    async def _renew(self) -> None:
        """Renew the Lease, without end."""
        pause = self._seconds * RENEW
        while True:
            await asyncio.sleep(pause)
            deadline = self._own_deadline
            if deadline is None or self._now() >= deadline:
                self._end(_NOT_RENEWED)
                return
            until = self._now() + self._seconds * GIVE_UP
            try:
                async with (self._renewing,
                            asyncio.timeout(deadline - self._now())):
                    lease = await self._replace(
                        {**_spec(self._lease), 'renewTime': _time()})
                    self._lease, self._own_deadline = lease, until
            except errors.Conflict as e:
                # A response was lost, or another client changed the Lease: the
                # watch reports it.
                LOG.debug('%s', e)
            except errors.ObjectNotFound:
                self._end('The Lease was deleted')
            except (errors.MachineError, TimeoutError) as e:
                LOG.warning('The Lease was not renewed; tried again: %s',
                            str(e) or 'no answer')
            else:
                self._watchdog_wakes.set()
                pause = self._seconds * RENEW
                continue
            pause = self._seconds * RETRY * random.uniform(0.5, 1)

    def _run_watchdog(self) -> None:
        """End the process after its deadline; runs in a thread."""
        while (until := self._own_deadline) is not None:
            left = until - self._now()
            if left <= 0:
                self._end(_NOT_RENEWED)
                return
            self._watchdog_wakes.wait(left)
            self._watchdog_wakes.clear()


def _spec(lease: objects.Json) -> objects.Json:
    # A Lease may have no spec.
    return lease.get('spec') or {}


def _holder(lease: objects.Json) -> str:
    return _spec(lease).get('holderIdentity') or ''


def _version(lease: objects.Json) -> int:
    # Versions within a collection are increasing integers (Kubernetes 1.35,
    # API concepts, Resource versions).
    return int(lease['metadata']['resourceVersion'])


def _time() -> str:
    return datetime.datetime.now(datetime.timezone.utc).strftime(
        '%Y-%m-%dT%H:%M:%S.%fZ')
