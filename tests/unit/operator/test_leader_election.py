# SPDX-License-Identifier: Apache-2.0
"""Leader election: one replica works at a time."""

import asyncio
import copy
import threading
import time

from oslotest import base

from kubevirt_sandbox.testing import timeless
from sushy_kubevirt.kube import errors
from sushy_kubevirt.operator import api
from sushy_kubevirt.operator import leader_election

SECONDS = 15


class Cluster:
    """A fake API with one Lease and watches of it."""

    def __init__(self):
        self.lease = None
        self.version = 10
        self.watches = []
        self.writes = []
        self.problem = None
        self.lose_response = False

    def change(self, holder=None, seconds=SECONDS, **more):
        """Change the Lease as another client."""
        lease = copy.deepcopy(self.lease or {'metadata': {'name': 'x'}})
        if holder is not None:
            lease['spec'] = {'holderIdentity': holder,
                             'leaseDurationSeconds': seconds,
                             'renewTime': f'at {self.version}'}
        lease['metadata'].update(more)
        self._put(lease)

    def delete(self):
        self.lease['metadata']['resourceVersion'] = str(self.version)
        self._publish('DELETED', self.lease)
        self.lease = None

    def _put(self, lease):
        self.version += 1
        lease['metadata']['resourceVersion'] = str(self.version)
        kind = 'ADDED' if self.lease is None else 'MODIFIED'
        self.lease = lease
        self._publish(kind, lease)

    def _publish(self, kind, lease):
        for queue in self.watches:
            queue.put_nowait((kind, copy.deepcopy(lease)))

    # Requests, as `api.Api` has them

    async def watch(self, resource, namespace, label_selector, field_selector,
                    metadata_only, failed):
        assert (namespace, field_selector) == (
            'system', 'metadata.name=sushy-kubevirt-operator')
        queue = asyncio.Queue()
        self.watches.append(queue)
        if self.lease:
            yield 'ADDED', copy.deepcopy(self.lease)
        yield api.LISTED, {
            ('system', 'sushy-kubevirt-operator')} if self.lease else set()
        while True:
            yield await queue.get()

    async def create(self, resource, namespace, body):
        if self.problem:
            raise self.problem
        if self.lease is not None:
            raise errors.Conflict('already exists')
        return self._write(body)

    async def replace(self, resource, namespace, name, body):
        if self.problem:
            raise self.problem
        if self.lease is None:
            raise errors.ObjectNotFound('gone')
        if (body['metadata']['resourceVersion']
                != self.lease['metadata']['resourceVersion']):
            raise errors.Conflict('changed')
        return self._write(body)

    def _write(self, body):
        self.writes.append(body['spec'])
        self._put(copy.deepcopy(body))
        if self.lose_response:
            self.lose_response = False
            raise errors.ConnectionLost('no answer', maybe_done=True)
        return copy.deepcopy(self.lease)

    @property
    def holder(self):
        return self.lease['spec']['holderIdentity']


class LeaderElectionTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.cluster = Cluster()
        self.terminations = []

    def elector(self, loop, name='me'):
        def end(message):
            # The watchdog thread may report the same, because the process
            # does not end in a test.
            if (name, message) not in self.terminations:
                self.terminations.append((name, message))
        return leader_election.LeaderElector(
            self.cluster, 'system', name, SECONDS, now=loop.time, end=end)

    def run_in(self, seconds, client=None, name='me'):
        """Run a candidate for the Lease for some seconds.

        :param client: coroutine function of (loop, elector) that runs
            meanwhile
        :returns: (the elector, time at which it acquired the Lease or None)
        """
        async def main(loop):
            elector = self.elector(loop, name)
            acquired = []

            async def acquire():
                await elector.acquire()
                acquired.append(loop.time())

            tasks = [asyncio.ensure_future(acquire())]
            if client:
                tasks.append(asyncio.ensure_future(client(loop, elector)))
            await asyncio.sleep(seconds)
            for task in tasks:
                if task.done():
                    task.result()
            self.still_leader = self.may_write(elector)
            return elector, round(acquired[0], 2) if acquired else None

        return timeless.run(main)

    def may_write(self, elector):
        try:
            elector.check_leadership()
        except errors.Unavailable:
            return False
        return True

    def test_acquires_free_lease(self):
        elector, acquired_at = self.run_in(1)
        self.assertEqual(0, acquired_at)
        self.assertTrue(elector.is_leader)
        self.assertEqual('me', self.cluster.holder)
        spec = self.cluster.lease['spec']
        self.assertEqual((0, SECONDS), (spec['leaseTransitions'],
                                        spec['leaseDurationSeconds']))
        self.assertRegex(spec['renewTime'],
                         r'^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$')

    def test_renews_at_fixed_interval(self):
        self.run_in(60.1)
        self.assertEqual(1 + 12, len(self.cluster.writes))
        self.assertEqual(1, len(
            {spec['acquireTime'] for spec in self.cluster.writes}))
        self.assertTrue(self.still_leader)
        self.assertEqual([], self.terminations)

    def test_acquires_released_lease(self):
        self.cluster.change('', 1, labels={'a': 'b'})
        _, acquired_at = self.run_in(1)
        self.assertEqual(0, acquired_at)
        self.assertEqual({'a': 'b'}, self.cluster.lease['metadata']['labels'])

    def test_acquires_lease_without_spec(self):
        self.cluster.change()
        self.assertEqual(0, self.run_in(1)[1])

    def test_acquires_expired_lease(self):
        self.cluster.change('other')
        elector, acquired_at = self.run_in(20)
        self.assertEqual(SECONDS, acquired_at)
        self.assertEqual(1, self.cluster.lease['spec']['leaseTransitions'])

    def test_respects_lease_duration_of_holder(self):
        self.cluster.change('other', 40)
        self.assertEqual(40, self.run_in(60)[1])

    def test_waits_while_holder_renews(self):
        async def renew(loop, elector):
            while loop.time() < 100:
                await asyncio.sleep(5)
                self.cluster.change('other')

        self.cluster.change('other')
        _, acquired_at = self.run_in(200, renew)
        self.assertEqual(100 + SECONDS, acquired_at)

    def test_acquires_at_once_when_released(self):
        async def renew(loop, elector):
            await asyncio.sleep(3)
            self.cluster.change('', 1)

        self.cluster.change('other')
        self.assertEqual(3, self.run_in(4, renew)[1])

    def test_waits_after_lease_of_another_is_deleted(self):
        # The holder may not have noticed yet.
        async def renew(loop, elector):
            await asyncio.sleep(3)
            self.cluster.delete()

        self.cluster.change('other')
        self.assertEqual(SECONDS, self.run_in(20, renew)[1])

    def test_change_of_labels_is_no_renewal(self):
        async def label(loop, elector):
            for number in range(10):
                await asyncio.sleep(2)
                self.cluster.change(labels={'n': str(number)})

        self.cluster.change('other')
        self.assertEqual(SECONDS, self.run_in(20, label)[1])

    def test_only_one_of_many_candidates_leads(self):
        async def main(loop):
            electors = [self.elector(loop, str(number)) for number in range(5)]
            tasks = [asyncio.ensure_future(elector.acquire())
                     for elector in electors]
            order = []
            for _ in electors:
                await asyncio.sleep(30)
                working = [elector for elector in electors
                           if self.may_write(elector)]
                self.assertEqual(1, len(working))
                order.append(working[0])
                await working[0].release()
                await asyncio.sleep(1)
            self.assertEqual(5, len(set(order)))
            for task in tasks:
                task.result()

        timeless.run(main)
        self.assertEqual([], self.terminations)

    def test_another_candidate_was_faster(self):
        async def main(loop):
            self.cluster.change('dead')
            elector = self.elector(loop)
            real = self.cluster.replace

            async def slow(*args):
                self.cluster.change('fast')
                self.cluster.replace = real
                return await real(*args)

            self.cluster.replace = slow
            task = asyncio.ensure_future(elector.acquire())
            await asyncio.sleep(SECONDS + 1)
            self.assertFalse(elector.is_leader)
            self.assertEqual('fast', self.cluster.holder)
            await asyncio.sleep(SECONDS)
            self.assertTrue(elector.is_leader)
            task.result()

        timeless.run(main)

    def test_acquires_after_api_outage(self):
        async def fail(loop, elector):
            self.cluster.problem = errors.Unavailable('away')
            await asyncio.sleep(50)
            self.cluster.problem = None

        _, acquired_at = self.run_in(60, fail)
        self.assertTrue(50 <= acquired_at <= 51, acquired_at)

    def test_permanent_errors_are_raised(self):
        for error, raised in (
                (errors.ObjectNotFound('not found'), errors.ConfigError),
                (errors.AccessDenied('no'), errors.AccessDenied)):
            self.cluster.problem = error
            self.assertRaises(raised, self.run_in, 1)

    def test_keeps_lease_through_short_api_outage(self):
        async def fail(loop, elector):
            await asyncio.sleep(20.1)
            self.cluster.problem = errors.Unavailable('away')
            # The last attempt before the deadline, at 30 s, is within a
            # second of it.
            await asyncio.sleep(8.8)
            self.assertTrue(self.may_write(elector))
            self.cluster.problem = None

        self.run_in(60, fail)
        self.assertTrue(self.still_leader)
        self.assertEqual([], self.terminations)

    def test_terminates_after_long_api_outage(self):
        async def fail(loop, elector):
            await asyncio.sleep(20.1)
            self.cluster.problem = errors.Unavailable('away')
            await asyncio.sleep(9.8)
            self.assertTrue(self.may_write(elector))
            await asyncio.sleep(0.2)
            # A third of the lease duration before another replica may take
            # the Lease.
            self.assertFalse(self.may_write(elector))

        self.run_in(35, fail)
        self.assertEqual(
            [('me', 'The Lease could not be renewed in time')],
            self.terminations)

    def test_hanging_renewal_ends_leadership(self):
        async def hang(*args):
            await asyncio.sleep(1000)

        async def fail(loop, elector):
            await asyncio.sleep(12)
            self.cluster.replace = hang
            await asyncio.sleep(20)
            self.assertFalse(self.may_write(elector))

        self.run_in(40, fail)

    def test_keeps_lease_after_lost_response_to_renewal(self):
        async def lose(loop, elector):
            await asyncio.sleep(12)
            self.cluster.lose_response = True

        self.run_in(60, lose)
        self.assertFalse(self.cluster.lose_response)
        self.assertTrue(self.still_leader)
        self.assertEqual([], self.terminations)

    def test_acquires_despite_lost_response(self):
        self.cluster.change('', 1)
        self.cluster.lose_response = True
        self.assertLess(self.run_in(10)[1], 2)
        self.assertEqual('me', self.cluster.holder)

    def test_keeps_lease_that_was_labeled(self):
        async def label(loop, elector):
            await asyncio.sleep(7)
            self.cluster.change(labels={'a': 'b'})

        self.run_in(60, label)
        self.assertTrue(self.still_leader)
        self.assertEqual({'a': 'b'}, self.cluster.lease['metadata']['labels'])
        self.assertEqual([], self.terminations)

    def test_terminates_when_lease_is_taken(self):
        async def take(loop, elector):
            await asyncio.sleep(7)
            self.cluster.change('thief')
            await asyncio.sleep(0.01)
            self.assertEqual(
                [('me', 'The Lease was taken by thief')], self.terminations)

        self.run_in(8, take)

    def test_stops_writing_when_lease_was_taken_unseen(self):
        async def take(loop, elector):
            await asyncio.sleep(7)
            self.cluster.watches.clear()
            self.cluster.change('thief')
            await asyncio.sleep(5 + 10 - 7)
            # Its own deadline has passed; no other replica would have
            # taken the Lease yet.
            self.assertFalse(self.may_write(elector))
            self.assertEqual('thief', self.cluster.holder)

        self.run_in(20, take)

    def test_terminates_when_lease_is_deleted(self):
        async def delete(loop, elector):
            await asyncio.sleep(7)
            self.cluster.delete()
            await asyncio.sleep(0.01)
            self.assertEqual([('me', 'The Lease was deleted')],
                             self.terminations)

        self.run_in(7.5, delete)

    def test_old_event_is_ignored(self):
        async def late(loop, elector):
            await asyncio.sleep(7)
            old = copy.deepcopy(self.cluster.lease)
            old['spec']['holderIdentity'] = 'before me'
            old['metadata']['resourceVersion'] = '3'
            self.cluster._publish('MODIFIED', old)

        self.run_in(8, late)
        self.assertEqual([], self.terminations)

    def test_releases_lease(self):
        async def release(loop, elector):
            await asyncio.sleep(7)
            await elector.release()
            self.assertFalse(self.may_write(elector))
            self.assertFalse(elector.is_leader)

        self.run_in(30, release)
        spec = self.cluster.writes[-1]
        self.assertEqual(('', 1), (spec['holderIdentity'],
                                   spec['leaseDurationSeconds']))
        # It is not acquired again.
        self.assertEqual('', self.cluster.holder)
        self.assertEqual([], self.terminations)

    def test_releases_lease_during_renewal(self):
        async def release(loop, elector):
            real = self.cluster.replace

            async def slow(*args):
                await asyncio.sleep(0.1)
                found = await real(*args)
                await asyncio.sleep(0.4)
                return found

            self.cluster.replace = slow
            await asyncio.sleep(5.2)
            await elector.release()

        self.run_in(30, release)
        self.assertEqual('', self.cluster.holder)
        self.assertEqual(3, len(self.cluster.writes))

    def test_release_tolerates_api_error(self):
        async def release(loop, elector):
            await asyncio.sleep(7)
            self.cluster.problem = errors.Unavailable('away')
            await elector.release()
            self.assertFalse(self.may_write(elector))

        self.run_in(10, release)

    def test_release_tolerates_hanging_api(self):
        async def hang(*args):
            await asyncio.sleep(1000)

        async def release(loop, elector):
            await asyncio.sleep(7)
            self.cluster.replace = hang
            await elector.release()
            self.assertLess(loop.time(), 11)

        self.run_in(12, release)

    def test_keeps_lease_while_writes_last(self):
        class Writer:
            async def wait_for_writes(self, seconds):
                await asyncio.sleep(seconds)
                return False

        async def release(loop, elector):
            await asyncio.sleep(7)
            elector._writers = (Writer(),)
            await elector.release()
            self.assertFalse(self.may_write(elector))

        self.run_in(30, release)
        self.assertEqual('me', self.cluster.holder)

    def test_check_tolerates_concurrent_release(self):
        def release_now():
            elector._own_deadline = None
            return 0

        elector = leader_election.LeaderElector(
            self.cluster, 'system', 'me', SECONDS, now=release_now)
        elector._own_deadline = 1
        elector.check_leadership()
        self.assertRaises(errors.Unavailable, elector.check_leadership)

    def test_candidate_releases_nothing(self):
        async def main(loop):
            elector = self.elector(loop)
            waiting = asyncio.ensure_future(elector.acquire())
            await asyncio.sleep(1)
            waiting.cancel()
            await elector.release()
            await asyncio.sleep(100)

        self.cluster.change('other')
        timeless.run(main)
        self.assertEqual([], self.cluster.writes)

    def test_terminates_process_if_event_loop_hangs(self):
        ended = threading.Event()

        async def main():
            elector = leader_election.LeaderElector(
                self.cluster, 'system', 'me', 0.5,
                end=lambda message: ended.set())
            await elector.acquire()
            before = time.monotonic()
            # The loop hangs.
            self.assertTrue(ended.wait(20))
            self.assertTrue(time.monotonic() - before < 10)
            self.assertFalse(self.may_write(elector))

        asyncio.run(main())
