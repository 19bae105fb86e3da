# SPDX-License-Identifier: Apache-2.0
"""Which of the operator's replicas works: the one that holds the Lease.

As client-go's leader election has it (tools/leaderelection): who holds the
Lease renews it; another one takes it when it has seen it unchanged for as
long as the Lease says, by its own clock. Different from there, whoever
waits is told of changes by a watch and asks nothing meanwhile.

That no two work at a time rests on three things. A Lease is only ever
replaced with the resourceVersion that was read. Whoever holds it counts from
before it asked for it, and ends earlier than another one may take it. And it
ends by a thread that nothing in the process can hold up; should all of the
process have been stopped for a while, its writes ask first, see `must_hold`.
"""

import asyncio
import datetime
import logging
import os
import random
import threading
import time

from sushy_kubevirt.kube import errors
from sushy_kubevirt.operator import api as api_
from sushy_kubevirt.operator import kinds
from sushy_kubevirt.operator import naming

LOG = logging.getLogger(__name__)

#: Parts of the Lease's time: how often it is renewed, how often that is
#: tried again when it fails, and when its holder gives up, which leaves the
#: last third for what it has sent by then.
RENEW, RETRY, GIVE_UP = 1 / 3, 1 / 15, 2 / 3

#: Seconds that a renewal has to end when the Lease is to be given back, and
#: that has.
LAST_SECONDS = 3

_TOO_LATE = 'The Lease could not be renewed in time'


def _now():
    # Goes on while the machine sleeps.
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _end(message):
    LOG.critical('%s; this process ends', message)
    os._exit(1)


class Lead:
    """The Lease, from the side of one replica.

    :param api: an `api.Api` that may always write
    :param namespace: where the Lease is
    :param identity: what this replica is called, unlike any other
    :param seconds: how long the Lease holds
    :param now: function; seconds
    :param end: function of a sentence; ends the process at once
    """

    def __init__(self, api, namespace, identity, seconds, now=_now,
                 end=_end):
        self._api = api
        self._namespace = namespace
        self._identity = identity
        self._seconds = seconds
        self._now = now
        self._end = end
        self._changed = asyncio.Event()
        self._lease = None
        # Until when others' Lease must be respected; None while unknown.
        self._theirs = None
        # Until when this process may work; None while it may not.
        self._until = None
        self._tasks = []
        self._renewing = asyncio.Lock()
        self._watchdog_wakes = threading.Event()

    def must_hold(self):
        """Whether this process may write now.

        :raises: `errors.Unavailable` if not
        """
        if self._until is None or self._now() >= self._until:
            raise errors.Unavailable(
                'This replica does not hold the Lease (any more)')

    @property
    def holds(self):
        """Whether this process works."""
        return self._until is not None

    async def acquire(self):
        """Wait until this is the one that works.

        From then on the Lease is renewed, until `release`; if that fails,
        the process ends.

        :raises: `errors.MachineError` if the Lease can never be had
        """
        follower = asyncio.create_task(self._follow(), name='lease')
        self._tasks.append(follower)
        # It never ends by itself.
        follower.add_done_callback(lambda task: self._changed.set())
        told = None
        while True:
            self._changed.clear()
            if follower.done():
                follower.result()
            wait = None
            if self._theirs is not None:
                wait = self._theirs - self._now()
                if wait <= 0:
                    try:
                        await self._take()
                        break
                    except errors.Conflict:
                        # Another one was faster; the watch tells.
                        wait = self._seconds * RETRY
                    except errors.Unavailable as e:
                        if str(e) != told:
                            told = str(e)
                            LOG.warning('The Lease is free, but: %s', e)
                        wait = self._seconds * RETRY
                else:
                    told = self._tell(told)
            try:
                async with asyncio.timeout(wait):
                    await self._changed.wait()
            except TimeoutError:
                pass
        LOG.info('This replica holds the Lease now, as %s', self._identity)
        threading.Thread(target=self._watch_over, name='lease',
                         daemon=True).start()
        self._tasks.append(asyncio.create_task(self._keep(), name='renewal'))

    async def release(self):
        """Give the Lease back, so that another one need not wait for its
        end; what was not had is not given."""
        try:
            async with asyncio.timeout(LAST_SECONDS):
                # One that is just being renewed could not be replaced.
                await self._renewing.acquire()
        except TimeoutError:
            pass
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._until is None:
            return
        # From here on nothing is written, whatever comes of it.
        self._until = None
        self._watchdog_wakes.set()
        spec = {**_spec(self._lease), 'holderIdentity': '',
                'leaseDurationSeconds': 1, 'renewTime': _time()}
        try:
            async with asyncio.timeout(LAST_SECONDS):
                await self._replace(spec)
        except (errors.MachineError, TimeoutError) as e:
            LOG.warning('The Lease could not be given back, another replica '
                        'takes it in %d s: %s', self._seconds,
                        str(e) or 'there is no answer')

    async def _follow(self):
        """Know what the Lease is like."""
        async for kind, found in self._api.watch(
                kinds.LEASE, self._namespace,
                field_selector=f'metadata.name={naming.OPERATOR}'):
            if kind == api_.LISTED:
                if not found:
                    self._observe(None)
            else:
                self._observe(None if kind == 'DELETED' else found)

    def _observe(self, lease):
        if self._until is not None:
            self._check(lease)
            return
        before, self._lease = self._lease, lease
        if lease is None:
            if before is None and self._theirs is None:
                self._theirs = self._now()
            # Else somebody took it away from whoever held it, who may not
            # know: it is respected to its end.
        elif before is None or _spec(before) != _spec(lease):
            self._theirs = self._now()
            # Its own it can have had by an answer that was lost only.
            if _holder(lease) not in ('', self._identity):
                self._theirs += (
                    _spec(lease).get('leaseDurationSeconds')
                    or self._seconds)
        self._changed.set()

    def _check(self, lease):
        """Look at a Lease that this process is to have."""
        if lease is None:
            self._end('The Lease was deleted')
        elif _holder(lease) != self._identity:
            if _version(lease) >= _version(self._lease):
                self._end(f'The Lease was taken by {_holder(lease)}')
        elif _version(lease) > _version(self._lease):
            # Labels, say.
            self._lease = lease

    def _tell(self, told):
        holder = _holder(self._lease) if self._lease else None
        if holder and holder != told:
            LOG.info('%s holds the Lease; this replica waits', holder)
        return holder or told

    async def _take(self):
        until = self._now() + self._seconds * GIVE_UP
        spec = {'holderIdentity': self._identity,
                'leaseDurationSeconds': int(self._seconds),
                'acquireTime': _time(), 'renewTime': _time()}
        if self._lease is None:
            spec['leaseTransitions'] = 0
            lease = await self._create(spec)
        else:
            spec['leaseTransitions'] = 1 + (
                _spec(self._lease).get('leaseTransitions') or 0)
            lease = await self._replace(spec)
        self._lease, self._until = lease, until

    async def _create(self, spec):
        try:
            return await self._api.create(
                kinds.LEASE, self._namespace, {
                    'apiVersion': kinds.LEASE.api_version,
                    'kind': kinds.LEASE.kind,
                    'metadata': {'name': naming.OPERATOR,
                                 'namespace': self._namespace},
                    'spec': spec})
        except errors.ObjectNotFound as e:
            raise errors.ConfigError(
                'There is no namespace %s for the Lease: create it, or name '
                'another one with --system-namespace (%s)'
                % (self._namespace, e)) from None

    async def _replace(self, spec):
        meta = self._lease['metadata']
        kept = {key: meta[key] for key in (
            'name', 'namespace', 'uid', 'resourceVersion', 'labels',
            'annotations') if key in meta}
        return await self._api.replace(
            kinds.LEASE, self._namespace, naming.OPERATOR, {
                'apiVersion': kinds.LEASE.api_version,
                'kind': kinds.LEASE.kind, 'metadata': kept, 'spec': spec})

    async def _keep(self):
        """Renew the Lease."""
        pause = self._seconds * RENEW
        while True:
            await asyncio.sleep(pause)
            if self._now() >= self._until:
                return self._end(_TOO_LATE)
            until = self._now() + self._seconds * GIVE_UP
            try:
                async with (self._renewing,
                            asyncio.timeout(self._until - self._now())):
                    lease = await self._replace(
                        {**_spec(self._lease), 'renewTime': _time()})
                    self._lease, self._until = lease, until
            except errors.Conflict as e:
                # An answer was lost, or somebody touched it: the watch
                # tells.
                LOG.debug('%s', e)
            except errors.ObjectNotFound:
                self._end('The Lease was deleted')
            except (errors.MachineError, TimeoutError) as e:
                LOG.warning('The Lease was not renewed: %s',
                            str(e) or 'there is no answer')
            else:
                self._watchdog_wakes.set()
                pause = self._seconds * RENEW
                continue
            pause = self._seconds * RETRY * random.uniform(0.5, 1)

    def _watch_over(self):
        """End the process when its time is over. In a thread of its own."""
        while (until := self._until) is not None:
            left = until - self._now()
            if left <= 0:
                return self._end(_TOO_LATE)
            self._watchdog_wakes.wait(left)
            self._watchdog_wakes.clear()


def _spec(lease):
    # A Lease may have none.
    return lease.get('spec') or {}


def _holder(lease):
    return _spec(lease).get('holderIdentity') or ''


def _version(lease):
    # Leases of one collection may be compared (Kubernetes 1.35, API
    # concepts, Resource versions: they are growing whole numbers).
    return int(lease['metadata']['resourceVersion'])


def _time():
    return datetime.datetime.now(datetime.timezone.utc).strftime(
        '%Y-%m-%dT%H:%M:%S.%fZ')
