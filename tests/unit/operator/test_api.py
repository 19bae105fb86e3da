# SPDX-License-Identifier: Apache-2.0
"""The operator's API requests and watches."""

import asyncio
import contextlib
import gc
import logging
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
from sushy_kubevirt.operator import cluster_hosts
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
                       api.CLIENT_OPTIONS._replace(**options))

    def respond(self, method, path=VM, code=200, body=None):
        self.server.rule(method, path, (
            code, {} if body is None else body, None))

    @property
    def last_request(self):
        return self.server.requests[-1]

    # Single requests

    async def test_get(self):
        found = await self.api.get(api_resources.VM, 'default', 'a')
        self.assertEqual('a', found['metadata']['name'])
        self.assertEqual('application/json, */*',
                         self.last_request[3]['Accept'])
        await self.api.get(api_resources.VM, 'default', 'a',
                           metadata_only=True)
        self.assertIn('as=PartialObjectMetadata;',
                      self.last_request[3]['Accept'])

    async def test_create(self):
        self.respond('POST', 'roles', 201, {'metadata': {'name': 'x'}})
        made = await self.api.create(bmc_resources.ROLE, 'lab', {
            'metadata': {'name': 'x'}})
        self.assertEqual({'metadata': {'name': 'x'}}, made)
        method, path, query, headers, body = self.last_request
        self.assertEqual(('POST', '/apis/rbac.authorization.k8s.io/v1/'
                          'namespaces/lab/roles', {}), (method, path, query))
        self.assertEqual('application/json', headers['Content-Type'])

    async def test_apply(self):
        self.respond('PATCH', 'services/x')
        await self.api.apply(bmc_resources.SERVICE, 'lab', 'x',
                             {'kind': 'Service'})
        _, path, query, headers, body = self.last_request
        self.assertEqual('/api/v1/namespaces/lab/services/x', path)
        self.assertEqual({'fieldManager': 'sushy-kubevirt-operator',
                          'fieldValidation': 'Strict', 'force': 'true'}, query)
        self.assertEqual('application/apply-patch+yaml',
                         headers['Content-Type'])
        self.assertEqual({'kind': 'Service'}, body)

    async def test_patch_types(self):
        for body, kind in (({'a': 1}, 'merge'), ([{'op': 'test'}], 'json')):
            self.respond('PATCH', 'virtualmachinebmcs/x')
            await self.api.patch(bmc_resources.BMC, 'lab', 'x', body, 'status')
            self.assertTrue(self.last_request[1].endswith('/x/status'))
            self.assertEqual(f'application/{kind}-patch+json',
                             self.last_request[3]['Content-Type'])

    async def test_replace(self):
        self.respond('PUT', 'leases/x')
        await self.api.replace(bmc_resources.LEASE, 'lab', 'x', {'a': 1})
        self.assertEqual({'a': 1}, self.last_request[4])

    async def test_delete(self):
        for only, expected in (
                ((), {}), (('u',), {'preconditions': {'uid': 'u'}}),
                (('u', '7'), {'preconditions': {
                    'uid': 'u', 'resourceVersion': '7'}})):
            self.respond('DELETE', 'services/x')
            await self.api.delete(bmc_resources.SERVICE, 'lab', 'x', *only)
            self.assertEqual({'propagationPolicy': 'Background', **expected},
                             self.last_request[4])

    async def test_check_readable(self):
        await self.api.check_readable(api_resources.VM)
        self.respond('GET', 'virtualmachinebmcs$', 404,
                     {'message': 'the server could not find it'})
        with self.assertRaises(errors.Unavailable) as caught:
            await self.api.check_readable(bmc_resources.BMC)
        self.assertIn('install its CustomResourceDefinition',
                      str(caught.exception))

    async def test_errors_by_status(self):
        for code, message, error in (
                (401, 'Unauthorized', errors.AccessDenied),
                (403, 'forbidden', errors.AccessDenied),
                (403, 'exceeded quota: q', errors.Rejected),
                (403, 'a is forbidden: unable to create new content in '
                 'namespace n because it is being terminated',
                 errors.NamespaceTerminating),
                (404, 'namespaces "lab" not found', errors.ObjectNotFound),
                # A RoleBinding whose Role is gone.
                (404, 'roles.rbac.authorization.k8s.io "r" not found',
                 errors.ObjectNotFound),
                (404, 'the server could not find the requested resource',
                 errors.Unavailable),
                (409, 'exists', errors.Conflict),
                (422, 'invalid', errors.Rejected),
                (429, 'later', errors.TooManyRequests),
                (500, 'oh', errors.ServerError)):
            self.respond('POST', 'roles', code, {'message': message})
            with self.assertRaises(error) as caught:
                await self.api.create(bmc_resources.ROLE, 'lab', {
                    'metadata': {'name': 'x'}})
            self.assertIn(message, str(caught.exception))
        self.server.rule('GET', VM, (429, {}, {'Retry-After': '7'}))
        with self.assertRaises(errors.TooManyRequests) as caught:
            await self.api.get(api_resources.VM, 'default', 'a')
        self.assertEqual(7, caught.exception.retry_after)

    async def test_connection_errors(self):
        self.server.rule('PATCH', VM, 'reset')
        with self.assertRaises(errors.ConnectionLost) as caught:
            await self.api.patch(api_resources.VM, 'default', 'a', {})
        self.assertTrue(caught.exception.maybe_done)
        self.respond('GET', body=b'no JSON')
        with self.assertRaises(errors.Unavailable):
            await self.api.get(api_resources.VM, 'default', 'a')
        self.server.stop()
        self.api.close()
        with self.assertRaises(errors.Unavailable) as caught:
            await self.api.patch(api_resources.VM, 'default', 'a', {})
        self.assertFalse(caught.exception.maybe_done)
        self.server.start()

    async def test_redirects_are_not_followed(self):
        # A redirected request would send the token to another server.
        self.server.rule('GET', VM, (302, {}, {
            'Location': 'http://127.0.0.1:1/'}))
        with self.assertRaises(errors.MachineError):
            await self.api.get(api_resources.VM, 'default', 'a')

    async def test_writes_need_leadership(self):
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
        """Watch VMs; yields a function that waits for the next event."""
        watch = self.api.watch(api_resources.VM, **more)

        async def next_event():
            async with asyncio.timeout(30):
                kind, found = await anext(watch)
            if kind == api.LISTED:
                return kind, sorted(name for _, name in found)
            return kind, found['metadata']['name']

        try:
            yield next_event
        finally:
            await watch.aclose()

    async def opened(self, count=1):
        """Wait until the server has had so many watches."""
        async with asyncio.timeout(30):
            while self.server.count('WATCH') < count:
                await asyncio.sleep(0.01)

    async def put(self, name):
        await asyncio.to_thread(self.server.put, 'virtualmachines',
                                fake_api.vm(name))

    async def test_watch_yields_existing_and_changed_objects(self):
        async with self.watching() as next_event:
            self.assertEqual(('ADDED', 'a'), await next_event())
            self.assertEqual(('LISTED', ['a']), await next_event())
            pending = asyncio.ensure_future(next_event())
            await self.opened()
            await self.put('b')
            self.assertEqual(('ADDED', 'b'), await pending)
            await self.put('b')
            self.assertEqual(('MODIFIED', 'b'), await next_event())
            self.server.delete('virtualmachines', self.vm)
            self.assertEqual(('DELETED', 'a'), await next_event())
        self.assertEqual(1, self.server.count('GET', 'virtualmachines$'))

    async def test_lists_in_pages(self):
        self.api = self.new_api(page_size=2)
        self.addCleanup(self.api.close)
        for name in 'bcde':
            await self.put(name)
        async with self.watching() as next_event:
            for name in 'abcde':
                self.assertEqual(('ADDED', name), await next_event())
            self.assertEqual(('LISTED', list('abcde')), await next_event())
        self.assertEqual(3, self.server.count('GET', 'virtualmachines$'))

    async def test_list_starts_again_after_failed_page(self):
        # LISTED follows a complete list only; an incomplete one is repeated.
        self.api = self.new_api(page_size=2)
        self.addCleanup(self.api.close)
        for name in 'bcde':
            await self.put(name)
        for code in 500, 410:
            async with self.watching() as next_event:
                self.assertEqual(('ADDED', 'a'), await next_event())
                self.server.rule('GET', 'virtualmachines$',
                                 (code, {'message': 'oh'}, None))
                self.assertEqual(('ADDED', 'b'), await next_event())
                for name in 'abcde':
                    self.assertEqual(('ADDED', name), await next_event())
                self.assertEqual(('LISTED', list('abcde')),
                                 await next_event())

    async def test_selectors_are_sent_with_lists_and_watches(self):
        async with self.watching(label_selector='a in (b)',
                                 field_selector='metadata.name=a',
                                 metadata_only=True) as next_event:
            await next_event()
            await next_event()
            pending = asyncio.ensure_future(next_event())
            await self.opened()
            pending.cancel()
            await asyncio.gather(pending, return_exceptions=True)
        for request in self.server.requests:
            self.assertEqual(('a in (b)', 'metadata.name=a'), (
                request[2]['labelSelector'], request[2]['fieldSelector']))
        self.assertIn('as=PartialObjectMetadataList;',
                      self.server.requests[0][3]['Accept'])
        self.assertIn('as=PartialObjectMetadata;',
                      self.last_request[3]['Accept'])

    async def test_resumes_after_broken_connection(self):
        with self.assertNoLogs(watcher.LOG, 'WARNING'):
            async with self.watching() as next_event:
                await next_event()
                await next_event()
                pending = asyncio.ensure_future(next_event())
                await self.opened()
                await self.put('b')
                self.assertEqual(('ADDED', 'b'), await pending)
                pending = asyncio.ensure_future(next_event())
                self.server.break_watches()
                await self.put('c')
                # No event is lost or repeated, and nothing is listed again.
                self.assertEqual(('ADDED', 'c'), await pending)
        self.assertEqual(1, self.server.count('GET', 'virtualmachines$'))

    async def test_lists_again_after_expired_watch(self):
        async with self.watching() as next_event:
            await next_event()
            await next_event()
            await self.opened()
            with self.server.lock:
                self.server.break_watches()
                self.server.put('virtualmachines', fake_api.vm('b'))
                self.server.delete('virtualmachines', self.vm)
                self.server.oldest = self.server.version
            self.assertEqual(('ADDED', 'b'), await next_event())
            self.assertEqual(('LISTED', ['b']), await next_event())

    async def test_outage_is_logged_once(self):
        self.server.stop()
        with self.assertLogs(watcher.LOG, 'INFO') as logged:
            async with self.watching() as next_event:
                first = asyncio.ensure_future(next_event())
                async with asyncio.timeout(30):
                    while self.api.calls.get(('GET', 0), 0) < 3:
                        await asyncio.sleep(0.01)
                self.server.start()
                self.assertEqual(('ADDED', 'a'), await first)
                await next_event()
                pending = asyncio.ensure_future(next_event())
                await self.opened()
                await self.put('b')
                await pending
        # Logged once for several attempts.
        self.assertEqual(2, len(logged.output), logged.output)
        self.assertIn('does not answer', logged.output[0])
        self.assertIn('again', logged.output[1])

    async def test_watches_deeply_nested_objects(self):
        # The watch neither fails nor blocks.
        deep = (b'{"metadata": {"resourceVersion": "1"}, "items": ['
                b'{"metadata": {"name": "deep", "namespace": "default",'
                b'"managedFields": [%s1%s]}}]}' % (b'[' * 9000, b']' * 9000))
        self.server.rule('GET', 'virtualmachines$', (200, deep, None), 1)
        async with self.watching() as next_event:
            self.assertEqual(('ADDED', 'deep'), await next_event())

    async def test_missing_permission_is_logged_once(self):
        self.server.rule('GET', 'virtualmachines$',
                         (403, {'message': 'no'}, None), 5)
        with self.assertLogs(watcher.LOG, 'INFO') as logged:
            async with self.watching() as next_event:
                self.assertEqual(('ADDED', 'a'), await next_event())
        self.assertEqual(1, len(logged.output))
        self.assertIn('lacks the right', logged.output[0])

    async def test_backs_off_if_watches_end_at_once(self):
        # New watches are delayed.
        pauses = []

        def pause(tries, first, longest, least):
            pauses.append(first * 2 ** tries)
            return 0

        # Before the first watch, which a thread opens after the two events.
        self.server.rule('WATCH', '', (200, b'', None), 6)
        # However long the server takes to end them.
        with (mock.patch.object(watcher, 'SHORTEST_WATCH', 60),
              mock.patch.object(retry, 'pause', pause)):
            async with self.watching() as next_event:
                await next_event()
                await next_event()
                pending = asyncio.ensure_future(next_event())
                await self.opened(7)
                await self.put('b')
                self.assertEqual(('ADDED', 'b'), await pending)
        # The first watch that ends is replaced without a delay.
        self.assertEqual(5, len(pauses))
        self.assertGreater(pauses[-1], 8 * pauses[0])

    async def test_resumes_after_silent_watch(self):
        self.addCleanup(setattr, fake_api, 'WATCHES_END', True)
        fake_api.WATCHES_END = False
        with mock.patch.object(api, 'WATCH_SILENCE', 0.7):
            self.api = self.new_api()
        self.addCleanup(self.api.close)
        with self.assertNoLogs(watcher.LOG, 'WARNING'):
            async with self.watching() as next_event:
                await next_event()
                await next_event()
                pending = asyncio.ensure_future(next_event())
                await self.opened(3)
                await self.put('b')
                self.assertEqual(('ADDED', 'b'), await pending)
        self.assertEqual(1, self.server.count('GET', 'virtualmachines$'))

    async def test_watches_do_not_use_up_connection_pool(self):
        # An operator for many namespaces has many watches.
        with mock.patch.object(api, 'CONNECTIONS', 2):
            self.api = self.new_api()
        self.addCleanup(self.api.close)
        async with contextlib.AsyncExitStack() as stack:
            for count in range(1, 4):
                next_event = await stack.enter_async_context(self.watching())
                await next_event()
                await next_event()
                pending = asyncio.ensure_future(next_event())
                stack.push_async_callback(
                    asyncio.gather, pending, return_exceptions=True)
                stack.callback(pending.cancel)
                await self.opened(count)
            await self.api.get(api_resources.VM, 'default', 'a')

    async def test_watches_large_object(self):
        large = fake_api.vm('large', text='x' * 2 ** 20)
        async with self.watching() as next_event:
            await next_event()
            await next_event()
            pending = asyncio.ensure_future(next_event())
            await self.opened()
            threading.Thread(target=self.server.put, args=(
                'virtualmachines', large)).start()
            self.assertEqual(('ADDED', 'large'), await pending)

    async def test_thread_ends_with_its_watch(self):
        def threads():
            return [one for one in threading.enumerate()
                    if one.name == 'watch-virtualmachines']

        self.api = self.new_api(page_size=1)
        self.addCleanup(self.api.close)
        for name in 'bcd':
            await self.put(name)
        # During a list, and during a watch.
        for events in 1, 5:
            async with self.watching() as next_event:
                for _ in range(events):
                    await next_event()
                if events == 5:
                    pending = asyncio.ensure_future(next_event())
                    await self.opened()
                    self.assertEqual(1, len(threads()))
                    pending.cancel()
                    await asyncio.gather(pending, return_exceptions=True)
            async with asyncio.timeout(30):
                while threads():
                    await asyncio.sleep(0.01)

    async def test_reads_all_pages_without_a_watch(self):
        for name in 'bc':
            await self.put(name)
        with self.assertNoLogs(watcher.LOG, 'WARNING'):
            self.assertEqual(['a', 'b', 'c'], [
                vm['metadata']['name'] async for vm in self.api.read_all(
                    api_resources.VM, 'default', '', 1)])
        self.assertEqual(3, self.server.count('GET'))
        self.assertEqual(0, self.server.count('WATCH'))

    # Requests in threads

    async def test_hanging_request_does_not_block_others(self):
        self.server.rule('GET', VM, 'hang')
        request = asyncio.ensure_future(
            self.api.get(api_resources.VM, 'default', 'a'))
        async with asyncio.timeout(30):
            while not self.server.count('GET', VM):
                await asyncio.sleep(0.01)
        # Another request does not wait for it.
        await self.api.get(api_resources.VM, 'default', 'a')
        self.assertFalse(request.done())
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)

    async def test_slow_response_times_out(self):
        self.api = self.new_api(request_timeout=0.3)
        self.addCleanup(self.api.close)
        self.server.rule('PATCH', VM, 'drip')
        with self.assertRaises(errors.ConnectionLost) as caught:
            await self.api.patch(api_resources.VM, 'default', 'a', {})
        self.assertTrue(caught.exception.maybe_done)
        self.assertIn('has not answered completely', str(caught.exception))

    async def test_late_error_is_no_error_of_asyncio(self):
        reported, answers = [], threading.Event()
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: reported.append(
            context))

        def fail():
            answers.wait(30)
            raise errors.ServerError('x')

        self.api = self.new_api(request_timeout=0.01)
        self.addCleanup(self.api.close)
        request = api.in_thread(fail)
        with self.assertRaises(errors.ConnectionLost):
            await self.api._complete(request)
        other = api.in_thread(fail)
        waiting = asyncio.ensure_future(self.new_api()._complete(other))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        self.assertFalse(request.done() or other.done())
        answers.set()
        await asyncio.wait((request, other))
        # The error arrives before the caller is cancelled, but too late.
        answered = loop.create_future()
        waiting = asyncio.ensure_future(self.new_api()._complete(answered))
        await asyncio.sleep(0)
        answered.set_exception(errors.ServerError('x'))
        loop.call_soon(waiting.cancel)
        await asyncio.gather(waiting, return_exceptions=True)
        self.assertTrue(waiting.cancelled())
        await asyncio.sleep(0)
        del request, other, waiting, answered
        gc.collect()
        self.assertEqual([], reported)

    async def test_slow_list_times_out(self):
        self.api = self.new_api(request_timeout=0.3)
        self.addCleanup(self.api.close)
        self.server.rule('GET', 'servicecidrs', 'drip')
        with self.assertRaises(errors.ConnectionLost):
            await self.api.list(cluster_hosts.SERVICE_CIDR)

    async def test_waits_for_cancelled_writes(self):
        self.assertTrue(await self.api.wait_for_writes(0))
        self.server.rule('PATCH', VM, 'drip')
        write = asyncio.ensure_future(
            self.api.patch(api_resources.VM, 'default', 'a', {}))
        async with asyncio.timeout(30):
            while not self.server.count('PATCH', VM):
                await asyncio.sleep(0.01)
        write.cancel()
        await asyncio.gather(write, return_exceptions=True)
        self.assertFalse(await self.api.wait_for_writes(0.1))
        self.server.stop()
        self.assertTrue(await self.api.wait_for_writes(30))
        self.server.start()

    async def test_threads_inherit_log_context(self):
        def log_line():
            return logs.Plain().format(logging.makeLogRecord({'msg': 'text'}))

        with logs.about('lab', 'node'):
            self.assertIn('lab/node', await api.in_thread(log_line))

    async def test_user_agent(self):
        await self.api.get(api_resources.VM, 'default', 'a')
        self.assertEqual('sushy-kubevirt-operator',
                         self.last_request[3]['User-Agent'])

    async def test_counts_calls(self):
        await self.api.get(api_resources.VM, 'default', 'a')
        async with self.watching() as next_event:
            await next_event()
        self.respond('PATCH', 'services/x', 409, {'message': 'no'})
        with self.assertRaises(errors.Conflict):
            await self.api.apply(bmc_resources.SERVICE, 'lab', 'x', {})
        self.assertEqual({('GET', 200): 2, ('PATCH', 409): 1},
                         self.api.calls)

    async def test_token_is_renewed_after_refusal(self):
        # The server accepts only the new token from now on; the credential
        # source has it.
        tokens = ['one', 'two']
        conn = connection.Connection(lambda: connection.Access(
            server=f'http://127.0.0.1:{self.server.port}',
            authorization='Bearer ' + tokens[0]))
        self.api = api.Api(conn)
        self.addCleanup(self.api.close)
        self.server.token = 'one'
        await self.api.get(api_resources.VM, 'default', 'a')
        del tokens[0]
        self.server.token = 'two'
        conn._renewed_at -= connection.RENEW_SECONDS
        await self.api.get(api_resources.VM, 'default', 'a')
        # A token that stays invalid: reported, with two requests at most.
        self.server.token = 'unknown'
        conn._renewed_at -= connection.RENEW_SECONDS
        with self.assertRaises(errors.AccessDenied) as caught:
            await self.api.get(api_resources.VM, 'default', 'a')
        self.assertNotIn('two', str(caught.exception))
        self.assertEqual({('GET', 200): 2, ('GET', 401): 2}, self.api.calls)

    async def test_credentials_are_renewed_once_in_a_thread(self):
        # A login may take long: one thread does it, and the loop goes on.
        threads = []

        def read():
            threads.append(threading.current_thread())
            return connection.Access(
                server=f'http://127.0.0.1:{self.server.port}',
                authorization='Bearer x', expiry=1)

        conn = connection.Connection(read)
        self.api = api.Api(conn)
        self.addCleanup(self.api.close)
        del threads[:]
        conn._renewed_at -= connection.RENEW_SECONDS
        await asyncio.gather(*(
            self.api.get(api_resources.VM, 'default', 'a') for _ in range(3)))
        self.assertEqual(1, len(threads))
        self.assertNotIn(threading.current_thread(), threads)
