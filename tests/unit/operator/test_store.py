# SPDX-License-Identifier: Apache-2.0
import asyncio
from unittest import mock

from oslotest import base

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import objects
from sushy_kubevirt.operator import api
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import cache
from sushy_kubevirt.operator import command_line
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import store
from tests.unit.operator import bodies
from tests.unit.operator import cluster

A, B = (objects.ObjectKey('lab', name) for name in 'ab')


def service(name, namespace='lab', **more):
    return {'apiVersion': 'v1', 'kind': 'Service', 'metadata': {
        'name': name, 'namespace': namespace, **more}, 'spec': {}}


class KindTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.kube = cluster.Cluster()
        self.changes = []

    def run_with(self, check, **more):
        """Watch a kind until a coroutine has ended."""
        async def run():
            kind = store.Kind(
                self.kube, bmc_resources.SERVICE, (None,),
                cache.Compressed(), **more)
            kind.subscribe(self.changes.append, all_events=True)
            task = asyncio.create_task(kind.run())
            await asyncio.wait_for(kind.listed.wait(), 10)
            try:
                await check(kind)
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        asyncio.run(run())

    def seen(self):
        return [(change.key, change.gone, change.changed)
                for change in self.changes]

    async def until(self, condition):
        for _ in range(500):
            if condition():
                return
            await asyncio.sleep(0.01)
        self.fail('timed out')

    def test_follows_the_cluster(self):
        self.kube.add(service('a', managedFields=[{}]))

        async def check(kind):
            self.assertEqual([A], kind.keys())
            self.assertNotIn('managedFields', kind.get(A)['metadata'])
            self.kube.add(service('b'))
            await self.until(lambda: kind.get(B))
            self.kube.remove('Service', 'lab', 'a')
            await self.until(lambda: not kind.get(A))
            self.assertEqual([(A, False, True), (B, False, True),
                              (A, True, True)], self.seen())
        self.run_with(check)

    def test_answer_of_a_request_is_not_reverted(self):
        self.kube.add(service('a'))

        async def check(kind):
            held = kind.get(A)
            newer = {**held, 'metadata': {
                **held['metadata'], 'resourceVersion': '999', 'labels': {}}}
            self.assertTrue(kind.put(newer))
            self.assertFalse(kind.put(held))
            self.assertEqual('999', kind.get(A)['metadata'][
                'resourceVersion'])
            self.assertTrue(kind.drop(A))
            self.assertFalse(kind.drop(A))
            self.assertEqual(3, len(self.changes))
            self.assertEqual('999', self.changes[-1].obj['metadata'][
                'resourceVersion'])
        self.run_with(check)

    def test_event_of_an_answer_changes_nothing(self):
        self.kube.add(service('a'))

        async def check(kind):
            told = []
            kind.subscribe(told.append)
            obj = self.kube.change('Service', 'lab', 'a', lambda obj: None)
            kind.put(obj)
            await self.until(lambda: len(self.changes) == 3)
            self.assertEqual([(A, False, True)] * 2 + [(A, False, False)],
                             self.seen())
            self.assertEqual(1, len(told))
        self.run_with(check)

    def test_writer_is_not_told_of_its_answers(self):
        async def check(kind):
            told = []
            kind.subscribe(told.append, writer=self)
            kind.put(service('a', resourceVersion='1', uid='u'), self)
            kind.drop(A, self)
            self.assertEqual([], told)
            self.assertEqual(2, len(self.changes))
            kind.put(service('b', resourceVersion='1', uid='v'))
            self.assertEqual(1, len(told))
        self.run_with(check)

    def missing(self, confirms, answer=None):
        """Return the keys that remain after a list without the object."""
        self.kube.add(service('a'))
        watch, get = self.kube.watch, self.kube.get

        async def listing(*args, **more):
            async for kind, content in watch(*args, **more):
                yield kind, content
                if kind == api.LISTED:
                    yield kind, set()

        async def read(*args, **more):
            if answer is not None:
                raise answer
            return await get(*args, **more)
        self.kube.watch, self.kube.get = listing, read
        found = []

        async def check(kind):
            await asyncio.sleep(0)
            found.extend(kind.keys())
        self.run_with(check, confirms=confirms)
        return found

    def test_object_that_a_list_lacks(self):
        self.assertEqual([], self.missing(False))
        self.assertEqual((A, True, True), self.seen()[-1])
        self.assertIsNotNone(self.changes[-1].obj)

    def test_object_that_a_list_lacks_is_read(self):
        self.assertEqual([A], self.missing(True))

    def test_object_that_a_list_lacks_and_that_is_gone(self):
        self.assertEqual([], self.missing(True, errors.ObjectNotFound('x')))

    def test_object_that_a_list_lacks_and_that_cannot_be_read(self):
        self.assertEqual([A], self.missing(True, errors.Unavailable('x')))

    def test_waits_until_it_is_served(self):
        denied, lost = errors.AccessDenied('x'), errors.Unavailable('x')
        self.kube.serves = mock.AsyncMock(
            side_effect=[False, denied, True, True, True])
        # The second namespace is asked about if the first may be listed.
        self.kube.check_readable = mock.AsyncMock(
            side_effect=[denied, None, lost, None, None])
        told = mock.AsyncMock()
        kind = store.Kind(self.kube, bmc_resources.SERVICE, ('lab', 'far'),
                          cache.Compressed())
        with mock.patch.object(asyncio, 'sleep') as sleep:
            asyncio.run(kind.wait_until_served(told))
        self.assertEqual([(None,), (denied,), (denied,), (lost,)],
                         [call.args for call in told.await_args_list])
        self.assertEqual([mock.call(store.SERVED_SECONDS)] * 4,
                         sleep.await_args_list)
        self.assertEqual(['lab', 'lab', 'far', 'lab', 'far'], [
            call.args[1] for call in self.kube.check_readable.mock_calls])

    def test_one_namespace_is_asked_about(self):
        self.kube.serves = mock.AsyncMock(return_value=True)
        self.kube.check_readable = mock.AsyncMock()
        kind = store.Kind(self.kube, bmc_resources.SERVICE, ('lab', 'far'),
                          cache.Compressed())
        asyncio.run(kind.wait_until_served(mock.AsyncMock(), ('far',)))
        self.kube.check_readable.assert_awaited_once_with(
            bmc_resources.SERVICE, 'far')

    def test_cleared(self):
        self.kube.add(service('a'))

        async def check(kind):
            kind.clear()
            self.assertEqual([], kind.keys())
            self.assertFalse(kind.listed.is_set())
            self.assertEqual(1, len(self.changes))
        self.run_with(check)


class StoreTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.store = store.Store(cluster.Cluster(), command_line.Options())
        self.bmcs = self.store.kind(bmc_resources.BMC)
        self.key = objects.ObjectKey('lab', 'node')

    def users(self, vm):
        return self.store.users_of(bmc_resources.VM, 'lab', vm)

    def body(self, version, vm='vm'):
        body = bodies.body()
        body['metadata']['resourceVersion'] = str(version)
        body['spec']['virtualMachine'] = {'name': vm}
        return body

    def test_users_follow_the_spec(self):
        self.bmcs.put(self.body(1))
        self.assertEqual((self.key,), self.users('vm'))
        self.bmcs.put(self.body(2, 'other'))
        self.assertEqual(((), (self.key,)),
                         (self.users('vm'), self.users('other')))
        self.bmcs.drop(self.key)
        self.assertEqual(((), []), (self.users('other'), self.store.bmcs()))

    def test_bmc_without_vm_counts_as_missing(self):
        self.bmcs.put(self.body(1, ''))
        self.assertIsNone(self.store.bmc(self.key))
        self.assertEqual([], self.store.bmcs())
        # Its name is taken nevertheless.
        self.assertIsNotNone(self.bmcs.get(self.key))

    def test_objects_of_a_name_have_one_entry(self):
        self.bmcs.put(self.body(1))
        for resource in (*bmc_resources.OWNED, bmc_resources.ROUTE):
            self.assertEqual((self.key,), self.store.users_of(
                resource, 'lab', 'node-virtbmc'), resource)
        self.assertEqual(((self.key,), ()), tuple(
            self.store.users_of(resource, 'lab', 'node-virtbmc-ca')
            for resource in (bmc_resources.CONFIG_MAP,
                             bmc_resources.SERVICE)))
        # The objects, their CA, two Services, the VM, and three Secrets.
        self.assertEqual(8, len(self.store._users))

    def test_only_foreign_objects_of_a_deleted_bmc_are_dropped(self):
        self.bmcs.put(self.body(1))
        kinds = bmc_resources.DEPLOYMENT, bmc_resources.SERVICE
        names = {'node-virtbmc': {}, 'vm-virtbmc': {},
                 'another': {}, 'node-virtbmc-ca': {
                     naming.MANAGED_BY: naming.OPERATOR}}
        for kind in kinds:
            for name, labels in names.items():
                self.store.put({
                    'apiVersion': kind.api_version, 'kind': kind.kind,
                    'metadata': {'namespace': 'lab', 'name': name,
                                 'uid': name, 'labels': labels}})
        self.bmcs.drop(self.key)
        self.assertEqual(
            [['another', 'node-virtbmc-ca', 'vm-virtbmc'],
             ['another', 'node-virtbmc-ca']],
            [sorted(key.name for key in self.store.kind(kind).keys())
             for kind in kinds])

    def test_secrets_are_listed_through_failures(self):
        listed, answers = [], [
            errors.Unavailable('x'), errors.WatchExpired('y'),
            errors.WatchExpired('y'),
            errors.TooManyRequests('y', retry_after=40), None]

        async def read_all(resource, namespace, label_selector, page_size):
            listed.append(page_size)
            yield {'metadata': {'namespace': 'lab', 'name': 's', 'uid': 'u',
                                'resourceVersion': '1'}}
            answer = answers.pop(0)
            if answer is not None:
                raise answer

        kube = cluster.Cluster()
        kube.read_all = read_all
        found = store.Store(kube, command_line.Options())
        with mock.patch.object(asyncio, 'sleep') as sleep, \
                self.assertLogs(store.LOG, 'WARNING') as logged:
            asyncio.run(found._read_own_secrets(None))
        self.assertEqual([100, 100, 2000, 40000, 40000], listed)
        pauses = [call.args[0] for call in sleep.await_args_list]
        self.assertLess(sum(pauses[:3]), 2)
        self.assertEqual(40, pauses[3])
        # Once for each error, not for each attempt.
        self.assertEqual(2, len(logged.output))
        self.assertEqual([('lab', 's')], found.secrets.keys())

    def test_added_kind_is_shared(self):
        kind = self.store.add(bmc_resources.LEASE)
        self.assertIs(kind, self.store.add(bmc_resources.LEASE, ('far',)))
        self.assertIs(kind, self.store.kind(bmc_resources.LEASE))
