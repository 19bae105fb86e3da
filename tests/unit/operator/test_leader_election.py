# SPDX-License-Identifier: Apache-2.0
"""Leader election: one replica works at a time."""

import asyncio
import copy
import threading
import time

from oslotest import base

from sushy_kubevirt.kube import errors
from sushy_kubevirt.operator import api
from sushy_kubevirt.operator import leader_election
from tests.unit.operator import timeless

SECONDS = 15


class Cluster:
    """An API server that has one Lease, and watches of it."""

    def __init__(self):
        self.lease = None
        self.version = 10
        self.watches = []
        self.writes = []
        self.problem = None
        self.lost = False

    def change(self, holder=None, seconds=SECONDS, **more):
        """Change the Lease as another client."""
        lease = copy.deepcopy(self.lease or {'metadata': {'name': 'x'}})
        if holder is not None:
            lease['spec'] = {'holderIdentity': holder,
                             'leaseDurationSeconds': seconds,
                             'renewTime': 'at %d' % self.version}
        lease['metadata'].update(more)
        self._put(lease)

    def delete(self):
        self.lease['metadata']['resourceVersion'] = str(self.version)
        self._tell('DELETED', self.lease)
        self.lease = None

    def _put(self, lease):
        self.version += 1
        lease['metadata']['resourceVersion'] = str(self.version)
        kind = 'ADDED' if self.lease is None else 'MODIFIED'
        self.lease = lease
        self._tell(kind, lease)

    def _tell(self, kind, lease):
        for queue in self.watches:
            queue.put_nowait((kind, copy.deepcopy(lease)))

    # What an api.Api can do

    async def watch(self, resource, namespace, field_selector):
        assert (namespace, field_selector) == (
            'system', 'metadata.name=sushy-kubevirt-operator')
        queue = asyncio.Queue()
        self.watches.append(queue)
        if self.lease:
            yield 'ADDED', copy.deepcopy(self.lease)
        yield api.LISTED, {('system', 'x')} if self.lease else set()
        while True:
            yield await queue.get()

    async def create(self, resource, namespace, body):
        if self.problem:
            raise self.problem
        if self.lease is not None:
            raise errors.Conflict('there is one')
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
        if self.lost:
            self.lost = False
            raise errors.ConnectionLost('no answer', maybe_done=True)
        return copy.deepcopy(self.lease)

    @property
    def holder(self):
        return self.lease['spec']['holderIdentity']


class LeadTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.cluster = Cluster()
        self.ends = []

    def lead(self, loop, name='me'):
        def end(message):
            # The thread that watches over it may say the same: here nobody
            # has ended before that.
            if (name, message) not in self.ends:
                self.ends.append((name, message))
        return leader_election.LeaderElector(
            self.cluster, 'system', name, SECONDS, now=loop.time, end=end)

    def run_in(self, seconds, what=None, name='me'):
        """Have a replica want the Lease for some seconds.

        :param what: function of (loop, lead); a coroutine that goes on
            meanwhile
        :returns: (the lead, when it had it or None)
        """
        async def main(loop):
            lead = self.lead(loop, name)
            had = []

            async def acquire():
                await lead.acquire()
                had.append(loop.time())

            tasks = [asyncio.ensure_future(acquire())]
            if what:
                tasks.append(asyncio.ensure_future(what(loop, lead)))
            await asyncio.sleep(seconds)
            for task in tasks:
                if task.done():
                    task.result()
            self.lead_holds = self.may(lead)
            return lead, round(had[0], 2) if had else None

        return timeless.run(main)

    def may(self, lead):
        try:
            lead.check_leadership()
        except errors.Unavailable:
            return False
        return True

    def test_nobody_has_it(self):
        lead, when = self.run_in(1)
        self.assertEqual(0, when)
        self.assertTrue(lead.is_leader)
        self.assertEqual('me', self.cluster.holder)
        spec = self.cluster.lease['spec']
        self.assertEqual((0, SECONDS), (spec['leaseTransitions'],
                                        spec['leaseDurationSeconds']))
        self.assertRegex(spec['renewTime'],
                         r'^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$')

    def test_it_is_renewed_and_not_more(self):
        self.run_in(60.1)
        self.assertEqual(1 + 12, len(self.cluster.writes))
        self.assertEqual(1, len(
            {spec['acquireTime'] for spec in self.cluster.writes}))
        self.assertTrue(self.lead_holds)
        self.assertEqual([], self.ends)

    def test_it_was_given_back(self):
        self.cluster.change('', 1, labels={'a': 'b'})
        _, when = self.run_in(1)
        self.assertEqual(0, when)
        self.assertEqual({'a': 'b'}, self.cluster.lease['metadata']['labels'])

    def test_a_lease_without_anything(self):
        self.cluster.change()
        self.assertEqual(0, self.run_in(1)[1])

    def test_another_one_has_it_and_is_dead(self):
        self.cluster.change('other')
        lead, when = self.run_in(20)
        self.assertEqual(SECONDS, when)
        self.assertEqual(1, self.cluster.lease['spec']['leaseTransitions'])

    def test_its_holder_says_how_long_it_holds(self):
        self.cluster.change('other', 40)
        self.assertEqual(40, self.run_in(60)[1])

    def test_another_one_has_it_and_lives(self):
        async def live(loop, lead):
            while loop.time() < 100:
                await asyncio.sleep(5)
                self.cluster.change('other')

        self.cluster.change('other')
        _, when = self.run_in(200, live)
        self.assertEqual(100 + SECONDS, when)

    def test_another_one_gives_it_back(self):
        async def live(loop, lead):
            await asyncio.sleep(3)
            self.cluster.change('', 1)

        self.cluster.change('other')
        self.assertEqual(3, self.run_in(4, live)[1])

    def test_the_lease_of_another_one_is_deleted(self):
        # That one may not know.
        async def live(loop, lead):
            await asyncio.sleep(3)
            self.cluster.delete()

        self.cluster.change('other')
        self.assertEqual(SECONDS, self.run_in(20, live)[1])

    def test_what_changes_no_spec_is_no_sign_of_life(self):
        async def label(loop, lead):
            for number in range(10):
                await asyncio.sleep(2)
                self.cluster.change(labels={'n': str(number)})

        self.cluster.change('other')
        self.assertEqual(SECONDS, self.run_in(20, label)[1])

    def test_many_want_it(self):
        async def main(loop):
            leads = [self.lead(loop, str(number)) for number in range(5)]
            tasks = [asyncio.ensure_future(lead.acquire())
                     for lead in leads]
            order = []
            for _ in leads:
                await asyncio.sleep(30)
                working = [lead for lead in leads if self.may(lead)]
                self.assertEqual(1, len(working))
                order.append(working[0])
                await working[0].release()
                await asyncio.sleep(1)
            self.assertEqual(5, len(set(order)))
            for task in tasks:
                task.result()

        timeless.run(main)
        self.assertEqual([], self.ends)

    def test_another_one_was_faster(self):
        async def main(loop):
            self.cluster.change('dead')
            lead = self.lead(loop)
            real = self.cluster.replace

            async def slow(*args):
                self.cluster.change('fast')
                self.cluster.replace = real
                return await real(*args)

            self.cluster.replace = slow
            task = asyncio.ensure_future(lead.acquire())
            await asyncio.sleep(SECONDS + 1)
            self.assertFalse(lead.is_leader)
            self.assertEqual('fast', self.cluster.holder)
            await asyncio.sleep(SECONDS)
            self.assertTrue(lead.is_leader)
            task.result()

        timeless.run(main)

    def test_the_server_is_away_when_it_is_free(self):
        async def away(loop, lead):
            self.cluster.problem = errors.Unavailable('away')
            await asyncio.sleep(50)
            self.cluster.problem = None

        _, when = self.run_in(60, away)
        self.assertTrue(50 <= when <= 51, when)

    def test_it_can_never_be_had(self):
        for error, raised in (
                (errors.ObjectNotFound('not found'), errors.ConfigError),
                (errors.AccessDenied('no'), errors.AccessDenied)):
            self.cluster.problem = error
            self.assertRaises(raised, self.run_in, 1)

    def test_the_server_is_away_for_a_while(self):
        async def away(loop, lead):
            await asyncio.sleep(20.1)
            self.cluster.problem = errors.Unavailable('away')
            await asyncio.sleep(9)
            self.assertTrue(self.may(lead))
            self.cluster.problem = None

        self.run_in(60, away)
        self.assertTrue(self.lead_holds)
        self.assertEqual([], self.ends)

    def test_the_server_is_away_for_too_long(self):
        async def away(loop, lead):
            await asyncio.sleep(20.1)
            self.cluster.problem = errors.Unavailable('away')
            await asyncio.sleep(9.8)
            self.assertTrue(self.may(lead))
            await asyncio.sleep(0.2)
            # A third of its time before another one may take it.
            self.assertFalse(self.may(lead))

        self.run_in(35, away)
        self.assertEqual(
            [('me', 'The Lease could not be renewed in time')], self.ends)

    def test_the_server_says_nothing(self):
        async def hang(*args):
            await asyncio.sleep(1000)

        async def away(loop, lead):
            await asyncio.sleep(12)
            self.cluster.replace = hang
            await asyncio.sleep(20)
            self.assertFalse(self.may(lead))

        self.run_in(40, away)

    def test_an_answer_is_lost(self):
        async def lose(loop, lead):
            await asyncio.sleep(12)
            self.cluster.lost = True

        self.run_in(60, lose)
        self.assertFalse(self.cluster.lost)
        self.assertTrue(self.lead_holds)
        self.assertEqual([], self.ends)

    def test_the_first_answer_is_lost(self):
        self.cluster.change('', 1)
        self.cluster.lost = True
        self.assertLess(self.run_in(10)[1], 2)
        self.assertEqual('me', self.cluster.holder)

    def test_somebody_labels_it(self):
        async def label(loop, lead):
            await asyncio.sleep(7)
            self.cluster.change(labels={'a': 'b'})

        self.run_in(60, label)
        self.assertTrue(self.lead_holds)
        self.assertEqual({'a': 'b'}, self.cluster.lease['metadata']['labels'])
        self.assertEqual([], self.ends)

    def test_it_is_taken(self):
        async def take(loop, lead):
            await asyncio.sleep(7)
            self.cluster.change('thief')
            await asyncio.sleep(0.01)
            self.assertEqual(
                [('me', 'The Lease was taken by thief')], self.ends)

        self.run_in(8, take)

    def test_it_is_taken_and_the_watch_is_slow(self):
        async def take(loop, lead):
            await asyncio.sleep(7)
            self.cluster.watches.clear()
            self.cluster.change('thief')
            await asyncio.sleep(5 + 10 - 7)
            # By its clock; nobody else but a thief could have it yet.
            self.assertFalse(self.may(lead))
            self.assertEqual('thief', self.cluster.holder)

        self.run_in(20, take)

    def test_it_is_deleted(self):
        async def delete(loop, lead):
            await asyncio.sleep(7)
            self.cluster.delete()
            await asyncio.sleep(0.01)
            self.assertEqual([('me', 'The Lease was deleted')], self.ends)

        self.run_in(7.5, delete)

    def test_an_old_event_is_no_news(self):
        async def late(loop, lead):
            await asyncio.sleep(7)
            old = copy.deepcopy(self.cluster.lease)
            old['spec']['holderIdentity'] = 'before me'
            old['metadata']['resourceVersion'] = '3'
            self.cluster._tell('MODIFIED', old)

        self.run_in(8, late)
        self.assertEqual([], self.ends)

    def test_it_is_given_back(self):
        async def release(loop, lead):
            await asyncio.sleep(7)
            await lead.release()
            self.assertFalse(self.may(lead))
            self.assertFalse(lead.is_leader)

        self.run_in(30, release)
        spec = self.cluster.writes[-1]
        self.assertEqual(('', 1), (spec['holderIdentity'],
                                   spec['leaseDurationSeconds']))
        # And not had again.
        self.assertEqual('', self.cluster.holder)
        self.assertEqual([], self.ends)

    def test_it_is_given_back_while_it_is_renewed(self):
        async def release(loop, lead):
            real = self.cluster.replace

            async def slow(*args):
                await asyncio.sleep(0.1)
                found = await real(*args)
                await asyncio.sleep(0.4)
                return found

            self.cluster.replace = slow
            await asyncio.sleep(5.2)
            await lead.release()

        self.run_in(30, release)
        self.assertEqual('', self.cluster.holder)
        self.assertEqual(3, len(self.cluster.writes))

    def test_it_cannot_be_given_back(self):
        async def release(loop, lead):
            await asyncio.sleep(7)
            self.cluster.problem = errors.Unavailable('away')
            await lead.release()
            self.assertFalse(self.may(lead))

        self.run_in(10, release)

    def test_nobody_answers_when_it_is_given_back(self):
        async def hang(*args):
            await asyncio.sleep(1000)

        async def release(loop, lead):
            await asyncio.sleep(7)
            self.cluster.replace = hang
            await lead.release()
            self.assertLess(loop.time(), 11)

        self.run_in(12, release)

    def test_what_was_not_had_is_not_given_back(self):
        async def main(loop):
            lead = self.lead(loop)
            waiting = asyncio.ensure_future(lead.acquire())
            await asyncio.sleep(1)
            waiting.cancel()
            await lead.release()
            await asyncio.sleep(100)

        self.cluster.change('other')
        timeless.run(main)
        self.assertEqual([], self.cluster.writes)

    def test_its_process_ends_though_its_loop_hangs(self):
        ended = threading.Event()

        async def main():
            lead = leader_election.LeaderElector(
                self.cluster, 'system', 'me', 0.5,
                end=lambda message: ended.set())
            await lead.acquire()
            before = time.monotonic()
            # The loop hangs.
            self.assertTrue(ended.wait(20))
            self.assertTrue(time.monotonic() - before < 10)
            self.assertFalse(self.may(lead))

        asyncio.run(main())
