# SPDX-License-Identifier: Apache-2.0
"""The operator's API requests and its endless watches."""

import asyncio
import contextlib
import dataclasses
import threading
import unittest
from unittest import mock

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import connection
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import retry
from sushy_kubevirt.kube import watcher
from sushy_kubevirt.operator import api
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import logs
from tests.unit.machine import api as fake_api

VM = '/virtualmachines/a'


class ApiTestCase(unittest.IsolatedAsyncioTestCase):

    async def asyncSetUp(self):
        self.server = fake_api.Api()
        self.server.start()
        self.addCleanup(self.server.stop)
        self.vm = self.server.put('virtualmachines', fake_api.vm('a'))
        self.api = self.new_api()
        self.addCleanup(self.api.close)
        patch = mock.patch.object(watcher, 'FIRST_PAUSE', 0.01)
        patch.start()
        self.addCleanup(patch.stop)

    def new_api(self, before_write=lambda: None, **options):
        return api.Api(self.server.connection(), before_write,
                       dataclasses.replace(api.CLIENT_OPTIONS, **options))

    def answers(self, method, path=VM, code=200, body=None):
        self.server.rule(method, path, (
            code, {} if body is None else body, None))

    @property
    def last(self):
        return self.server.requests[-1]

    # One request

    async def test_get(self):
        found = await self.api.get(api_resources.VM, 'default', 'a')
        self.assertEqual('a', found['metadata']['name'])
        self.assertEqual('application/json, */*', self.last[3]['Accept'])
        await self.api.get(api_resources.VM, 'default', 'a',
                           metadata_only=True)
        self.assertIn('as=PartialObjectMetadata;', self.last[3]['Accept'])

    async def test_create(self):
        self.answers('POST', 'roles', 201, {'metadata': {'name': 'x'}})
        made = await self.api.create(bmc_resources.ROLE, 'lab', {
            'metadata': {'name': 'x'}})
        self.assertEqual({'metadata': {'name': 'x'}}, made)
        method, path, query, headers, body = self.last
        self.assertEqual(('POST', '/apis/rbac.authorization.k8s.io/v1/'
                          'namespaces/lab/roles', {}), (method, path, query))
        self.assertEqual('application/json', headers['Content-Type'])

    async def test_apply(self):
        self.answers('PATCH', 'services/x')
        await self.api.apply(bmc_resources.SERVICE, 'lab', 'x',
                             {'kind': 'Service'})
        _, path, query, headers, body = self.last
        self.assertEqual('/api/v1/namespaces/lab/services/x', path)
        self.assertEqual({'fieldManager': 'sushy-kubevirt-operator',
                          'force': 'true'}, query)
        self.assertEqual('application/apply-patch+yaml',
                         headers['Content-Type'])
        self.assertEqual({'kind': 'Service'}, body)

    async def test_patches(self):
        for body, kind in (({'a': 1}, 'merge'), ([{'op': 'test'}], 'json')):
            self.answers('PATCH', 'virtualmachinebmcs/x')
            await self.api.patch(bmc_resources.BMC, 'lab', 'x', body, 'status')
            self.assertTrue(self.last[1].endswith('/x/status'))
            self.assertEqual(f'application/{kind}-patch+json',
                             self.last[3]['Content-Type'])

    async def test_replace(self):
        self.answers('PUT', 'leases/x')
        await self.api.replace(bmc_resources.LEASE, 'lab', 'x', {'a': 1})
        self.assertEqual({'a': 1}, self.last[4])

    async def test_delete(self):
        for uid, wanted in ((None, {}), ('u', {'preconditions': {
                'uid': 'u'}})):
            self.answers('DELETE', 'services/x')
            await self.api.delete(bmc_resources.SERVICE, 'lab', 'x', uid)
            self.assertEqual({'propagationPolicy': 'Background', **wanted},
                             self.last[4])

    async def test_check_readable(self):
        await self.api.check_readable(api_resources.VM)
        self.answers('GET', 'virtualmachinebmcs$', 404,
                     {'message': 'the server could not find it'})
        with self.assertRaises(errors.Unavailable) as caught:
            await self.api.check_readable(bmc_resources.BMC)
        self.assertIn('install its CustomResourceDefinition',
                      str(caught.exception))

    async def test_refusals(self):
        for code, message, error in (
                (401, 'Unauthorized', errors.AccessDenied),
                (403, 'forbidden', errors.AccessDenied),
                (403, 'exceeded quota: q', errors.Rejected),
                (403, 'a is forbidden: unable to create new content in '
                 'namespace n because it is being terminated',
                 errors.NamespaceTerminating),
                (404, 'namespaces "lab" not found', errors.ObjectNotFound),
                (409, 'exists', errors.Conflict),
                (422, 'invalid', errors.Rejected),
                (429, 'later', errors.TooManyRequests),
                (500, 'oh', errors.ServerError)):
            self.answers('POST', 'roles', code, {'message': message})
            with self.assertRaises(error) as caught:
                await self.api.create(bmc_resources.ROLE, 'lab', {
                    'metadata': {'name': 'x'}})
            self.assertIn(message, str(caught.exception))
        self.server.rule('GET', VM, (429, {}, {'Retry-After': '7'}))
        with self.assertRaises(errors.TooManyRequests) as caught:
            await self.api.get(api_resources.VM, 'default', 'a')
        self.assertEqual(7, caught.exception.retry_after)

    async def test_no_answer(self):
        self.server.rule('PATCH', VM, 'reset')
        with self.assertRaises(errors.ConnectionLost) as caught:
            await self.api.patch(api_resources.VM, 'default', 'a', {})
        self.assertTrue(caught.exception.maybe_done)
        self.answers('GET', body=b'no JSON')
        with self.assertRaises(errors.Unavailable):
            await self.api.get(api_resources.VM, 'default', 'a')
        self.server.stop()
        self.api.close()
        with self.assertRaises(errors.Unavailable) as caught:
            await self.api.patch(api_resources.VM, 'default', 'a', {})
        self.assertFalse(caught.exception.maybe_done)
        self.server.start()

    async def test_no_redirect_is_followed(self):
        # It would take the token along.
        self.server.rule('GET', VM, (302, {}, {
            'Location': 'http://127.0.0.1:1/'}))
        with self.assertRaises(errors.MachineError):
            await self.api.get(api_resources.VM, 'default', 'a')

    async def test_who_may_not_write_does_not(self):
        def refuse():
            raise errors.Unavailable('not now')

        self.api = self.new_api(refuse)
        self.addCleanup(self.api.close)
        await self.api.get(api_resources.VM, 'default', 'a')
        before = len(self.server.requests)
        body = {'metadata': {'name': 'x'}}
        for call in (self.api.create(bmc_resources.ROLE, 'lab', body),
                     self.api.apply(bmc_resources.ROLE, 'lab', 'x', body),
                     self.api.patch(bmc_resources.ROLE, 'lab', 'x', body),
                     self.api.replace(bmc_resources.ROLE, 'lab', 'x', body),
                     self.api.delete(bmc_resources.ROLE, 'lab', 'x')):
            with self.assertRaises(errors.Unavailable):
                await call
        self.assertEqual(before, len(self.server.requests))

    # Watches

    @contextlib.asynccontextmanager
    async def watching(self, **more):
        """A watch; what it yields is a function that waits for the next."""
        watch = self.api.watch(api_resources.VM, **more)

        async def next_():
            async with asyncio.timeout(30):
                kind, found = await anext(watch)
            if kind == api.LISTED:
                return kind, sorted(name for _, name in found)
            return kind, found['metadata']['name']

        try:
            yield next_
        finally:
            await watch.aclose()

    async def opened(self, count=1):
        """Wait until the server has so many watches."""
        async with asyncio.timeout(30):
            while self.server.count('WATCH') < count:
                await asyncio.sleep(0.01)

    async def put(self, name):
        await asyncio.to_thread(self.server.put, 'virtualmachines',
                                fake_api.vm(name))

    async def test_what_is_there_and_what_happens(self):
        async with self.watching() as following:
            self.assertEqual(('ADDED', 'a'), await following())
            self.assertEqual(('LISTED', ['a']), await following())
            changes = asyncio.ensure_future(following())
            await self.opened()
            await self.put('b')
            self.assertEqual(('ADDED', 'b'), await changes)
            await self.put('b')
            self.assertEqual(('MODIFIED', 'b'), await following())
            self.server.delete('virtualmachines', self.vm)
            self.assertEqual(('DELETED', 'a'), await following())
        self.assertEqual(1, self.server.count('GET', 'virtualmachines$'))

    async def test_pages(self):
        self.api = self.new_api(page_size=2)
        self.addCleanup(self.api.close)
        for name in 'bcde':
            await self.put(name)
        async with self.watching() as following:
            for name in 'abcde':
                self.assertEqual(('ADDED', name), await following())
            self.assertEqual(('LISTED', list('abcde')), await following())
        self.assertEqual(3, self.server.count('GET', 'virtualmachines$'))

    async def test_a_page_fails(self):
        # Half a list is none: it is begun again, and told when it is whole.
        self.api = self.new_api(page_size=2)
        self.addCleanup(self.api.close)
        for name in 'bcde':
            await self.put(name)
        for code in 500, 410:
            async with self.watching() as following:
                self.assertEqual(('ADDED', 'a'), await following())
                self.server.rule('GET', 'virtualmachines$',
                                 (code, {'message': 'oh'}, None))
                self.assertEqual(('ADDED', 'b'), await following())
                for name in 'abcde':
                    self.assertEqual(('ADDED', name), await following())
                self.assertEqual(('LISTED', list('abcde')),
                                 await following())

    async def test_selectors(self):
        async with self.watching(label_selector='a in (b)',
                                 field_selector='metadata.name=a',
                                 metadata_only=True) as following:
            await following()
            await following()
            changes = asyncio.ensure_future(following())
            await self.opened()
            changes.cancel()
            await asyncio.gather(changes, return_exceptions=True)
        for request in self.server.requests:
            self.assertEqual(('a in (b)', 'metadata.name=a'), (
                request[2]['labelSelector'], request[2]['fieldSelector']))
        self.assertIn('as=PartialObjectMetadataList;',
                      self.server.requests[0][3]['Accept'])
        self.assertIn('as=PartialObjectMetadata;', self.last[3]['Accept'])

    async def test_a_connection_breaks(self):
        with self.assertNoLogs(watcher.LOG, 'WARNING'):
            async with self.watching() as following:
                await following()
                await following()
                changes = asyncio.ensure_future(following())
                await self.opened()
                await self.put('b')
                self.assertEqual(('ADDED', 'b'), await changes)
                changes = asyncio.ensure_future(following())
                self.server.cut()
                await self.put('c')
                # Nothing is lost, nothing told twice or listed again.
                self.assertEqual(('ADDED', 'c'), await changes)
        self.assertEqual(1, self.server.count('GET', 'virtualmachines$'))

    async def test_it_is_too_late(self):
        async with self.watching() as following:
            await following()
            await following()
            await self.opened()
            with self.server.lock:
                self.server.cut()
                self.server.put('virtualmachines', fake_api.vm('b'))
                self.server.delete('virtualmachines', self.vm)
                self.server.oldest = self.server.version
            self.assertEqual(('ADDED', 'b'), await following())
            self.assertEqual(('LISTED', ['b']), await following())

    async def test_the_server_is_away(self):
        self.server.stop()
        with self.assertLogs(watcher.LOG, 'INFO') as logged:
            async with self.watching() as following:
                first = asyncio.ensure_future(following())
                await asyncio.sleep(0.1)
                self.server.start()
                self.assertEqual(('ADDED', 'a'), await first)
                await following()
                changes = asyncio.ensure_future(following())
                await self.opened()
                await self.put('b')
                await changes
        # Said once, however often it was tried.
        self.assertEqual(2, len(logged.output), logged.output)
        self.assertIn('does not answer', logged.output[0])
        self.assertIn('again', logged.output[1])

    async def test_what_is_nested_too_deep(self):
        # Whoever follows does not end by it, nor waits for ever.
        deep = (b'{"metadata": {"resourceVersion": "1"}, "items": ['
                b'{"metadata": {"name": "deep", "namespace": "default",'
                b'"managedFields": [%s1%s]}}]}' % (b'[' * 9000, b']' * 9000))
        self.server.rule('GET', 'virtualmachines$', (200, deep, None), 1)
        async with self.watching() as following:
            self.assertEqual(('ADDED', 'deep'), await following())

    async def test_a_right_is_missing(self):
        self.server.rule('GET', 'virtualmachines$',
                         (403, {'message': 'no'}, None), 5)
        with self.assertLogs(watcher.LOG, 'INFO') as logged:
            async with self.watching() as following:
                self.assertEqual(('ADDED', 'a'), await following())
        self.assertEqual(1, len(logged.output))
        self.assertIn('lacks the right', logged.output[0])

    async def test_a_server_that_ends_each_watch_at_once(self):
        # It is not asked as fast as it can answer.
        pauses = []

        def pause(tries, first, longest, least):
            pauses.append(first * 2 ** tries)
            return 0

        async with self.watching() as following:
            await following()
            await following()
            self.server.rule('WATCH', '', (200, b'', None), 6)
            with mock.patch.object(retry, 'pause', pause):
                changes = asyncio.ensure_future(following())
                await self.opened(7)
            await self.put('b')
            self.assertEqual(('ADDED', 'b'), await changes)
        # The first is made up for at once.
        self.assertEqual(5, len(pauses))
        self.assertGreater(pauses[-1], 8 * pauses[0])

    async def test_a_server_that_says_nothing(self):
        self.addCleanup(setattr, fake_api, 'WATCHES_END', True)
        fake_api.WATCHES_END = False
        with mock.patch.object(api, 'WATCH_SILENCE', 0.7):
            self.api = self.new_api()
        self.addCleanup(self.api.close)
        with self.assertNoLogs(watcher.LOG, 'WARNING'):
            async with self.watching() as following:
                await following()
                await following()
                changes = asyncio.ensure_future(following())
                await self.opened(3)
                await self.put('b')
                self.assertEqual(('ADDED', 'b'), await changes)
        self.assertEqual(1, self.server.count('GET', 'virtualmachines$'))

    async def test_watches_take_no_connection_from_others(self):
        # Of an operator for many namespaces there are many.
        with mock.patch.object(api, 'CONNECTIONS', 2):
            self.api = self.new_api()
        self.addCleanup(self.api.close)
        async with contextlib.AsyncExitStack() as stack:
            # Before the first of them is given up (see `watching`).
            await stack.enter_async_context(asyncio.timeout(8))
            for count in range(1, 4):
                following = await stack.enter_async_context(self.watching())
                await following()
                await following()
                changes = asyncio.ensure_future(following())
                stack.push_async_callback(
                    asyncio.gather, changes, return_exceptions=True)
                stack.callback(changes.cancel)
                await self.opened(count)
            await self.api.get(api_resources.VM, 'default', 'a')

    async def test_a_large_object(self):
        large = fake_api.vm('large', text='x' * 2 ** 20)
        async with self.watching() as following:
            await following()
            await following()
            changes = asyncio.ensure_future(following())
            await self.opened()
            threading.Thread(target=self.server.put, args=(
                'virtualmachines', large)).start()
            self.assertEqual(('ADDED', 'large'), await changes)

    async def test_its_thread_ends_with_a_watch(self):
        def threads():
            return [one for one in threading.enumerate()
                    if one.name == 'watch-virtualmachines']

        self.api = self.new_api(page_size=1)
        self.addCleanup(self.api.close)
        for name in 'bcd':
            await self.put(name)
        # In the middle of a list, and in the middle of a watch.
        for events in 1, 5:
            async with self.watching() as following:
                for _ in range(events):
                    await following()
                if events == 5:
                    changes = asyncio.ensure_future(following())
                    await self.opened()
                    self.assertEqual(1, len(threads()))
                    changes.cancel()
                    await asyncio.gather(changes, return_exceptions=True)
            async with asyncio.timeout(30):
                while threads():
                    await asyncio.sleep(0.01)

    # What a thread does for it

    async def test_the_loop_goes_on_while_a_request_hangs(self):
        self.server.rule('GET', VM, 'hang')
        asking = asyncio.ensure_future(
            self.api.get(api_resources.VM, 'default', 'a'))
        await asyncio.sleep(0.05)
        self.assertFalse(asking.done())
        # Nor does another one wait for it.
        await self.api.get(api_resources.VM, 'default', 'a')
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)

    async def test_what_it_says_is_about_the_same_object(self):
        def ask():
            return logs._about()

        with logs.about('lab', 'node'):
            self.assertEqual(('lab', 'node'), await api.in_thread(ask))

    async def test_who_asks(self):
        await self.api.get(api_resources.VM, 'default', 'a')
        self.assertEqual('sushy-kubevirt-operator',
                         self.last[3]['User-Agent'])

    async def test_calls_are_counted(self):
        await self.api.get(api_resources.VM, 'default', 'a')
        async with self.watching() as following:
            await following()
        self.answers('PATCH', 'services/x', 409, {'message': 'no'})
        with self.assertRaises(errors.Conflict):
            await self.api.apply(bmc_resources.SERVICE, 'lab', 'x', {})
        self.assertEqual({('GET', 200): 2, ('PATCH', 409): 1},
                         self.api.calls)

    async def test_a_token_that_changes(self):
        # The server takes another one from now on; a program that logs in
        # knows it.
        tokens = ['one', 'two']
        way = connection.Connection(lambda: connection.Access(
            server='http://127.0.0.1:%d' % self.server.port,
            authorization='Bearer ' + tokens[0]))
        self.api = api.Api(way)
        self.addCleanup(self.api.close)
        self.server.token = 'one'
        await self.api.get(api_resources.VM, 'default', 'a')
        del tokens[0]
        self.server.token = 'two'
        way._renewed_at -= connection.RENEW_SECONDS
        await self.api.get(api_resources.VM, 'default', 'a')
        # Refused for good: said, and asked twice at most.
        self.server.token = 'unknown'
        way._renewed_at -= connection.RENEW_SECONDS
        with self.assertRaises(errors.AccessDenied) as caught:
            await self.api.get(api_resources.VM, 'default', 'a')
        self.assertNotIn('two', str(caught.exception))
        self.assertEqual({('GET', 200): 2, ('GET', 401): 2}, self.api.calls)

    async def test_credentials_that_are_about_to_end(self):
        # A login may take long: the loop goes on, and one is enough.
        threads = []

        def read():
            threads.append(threading.current_thread())
            return connection.Access(
                server='http://127.0.0.1:%d' % self.server.port,
                authorization='Bearer x', expiry=1)

        way = connection.Connection(read)
        self.api = api.Api(way)
        self.addCleanup(self.api.close)
        del threads[:]
        way._renewed_at -= connection.RENEW_SECONDS
        await asyncio.gather(*(
            self.api.get(api_resources.VM, 'default', 'a') for _ in range(3)))
        self.assertEqual(1, len(threads))
        self.assertNotIn(threading.current_thread(), threads)
