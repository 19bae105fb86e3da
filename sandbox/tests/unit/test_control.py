# SPDX-License-Identifier: Apache-2.0
"""Faults, outages and counts, over HTTP."""
import asyncio
import time

import aiohttp

from kubevirt_sandbox import control
from tests.unit.api import base

FAILURES = (aiohttp.ClientConnectionError, ConnectionError,
            aiohttp.ClientPayloadError)


class ControlTestCase(base.ServerTestCase):

    async def asyncSetUp(self):
        self.kind = base.thing()
        self.server = base.cluster(self.kind)
        self.control = control.install(self.server)
        self.store = self.server.store
        await self.server.start()
        self.addAsyncCleanup(self.server.stop)
        self.client = aiohttp.ClientSession(
            self.server.url, headers={
                'Authorization': f'Bearer {self.server.token}'},
            timeout=aiohttp.ClientTimeout(total=20))
        self.addAsyncCleanup(self.client.close)

    async def fault(self, action, **more):
        return await self.call('POST', '/sandbox/faults',
                               {'action': action, **more}, 201)

    async def hits(self):
        body = await self.call('GET', '/sandbox/faults', expect=200)
        return [f['hits'] for f in body['faults']]


class FaultTestCase(ControlTestCase):

    async def leave(self, task):
        """End a call that is not answered for a while."""
        await asyncio.wait({task}, timeout=0.5)
        self.assertFalse(task.done())
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def test_status_faults_fail_the_next_calls(self):
        for action, reason in (
                ('409', 'Conflict'), ('429', 'TooManyRequests'),
                ('500', 'InternalError'), ('503', 'ServiceUnavailable')):
            await self.fault(action, verb='POST', path='/things$', count=2)
            for _ in range(2):
                body = await self.call('POST', self.THINGS, base.make(),
                                       int(action))
                self.assertEqual(reason, body['reason'])
        self.assertEqual([2, 2, 2, 2], await self.hits())
        self.assertEqual([], self.store.list(self.kind))
        await self.call('POST', self.THINGS, base.make(), 201)

    async def test_429_has_retry_after(self):
        await self.fault('429')
        await self.call('GET', self.THINGS, expect=429)
        self.assertEqual('1', self.answer.headers['Retry-After'])

    async def test_fault_is_limited_to_verb_and_path(self):
        await self.fault('500', verb='PUT', path='/things/a/start')
        await self.call('GET', self.THINGS, expect=200)
        await self.call('GET', '/sandbox/stats', expect=200)
        self.assertEqual([0], await self.hits())

    async def test_get_and_watch_are_separate_verbs(self):
        await self.fault('500', verb='GET')
        self.store.create(self.kind, base.make())
        self.assertEqual(1, len(await self.watch(self.THINGS,
                                                 lambda e: True)))
        await self.fault('503', verb='WATCH')
        await self.call('GET', self.THINGS + '?watch=1', expect=503)
        await self.call('GET', self.THINGS, expect=500)

    async def test_reset_prevents_and_drop_after_completes_write(self):
        for action, there in (('reset', 0), ('drop-after', 1)):
            await self.fault(action, verb='POST')
            # A new connection, because clients retry on a reused one.
            async with aiohttp.ClientSession(
                    self.server.url, headers=self.client.headers) as client:
                with self.assertRaises(FAILURES):
                    async with client.post(self.THINGS, json=base.make()):
                        pass
            self.assertEqual(there, len(self.store.list(self.kind)), action)

    async def test_hang_ends_when_client_leaves_or_fault_is_cleared(self):
        await self.fault('hang', verb='POST', count=2)
        for hits in 1, 2:
            task = asyncio.ensure_future(
                self.call('POST', self.THINGS, base.make()))
            await self.eventually(lambda: self.control.faults.report()[0][
                'hits'] == hits)
            if hits == 1:
                await self.leave(task)
        await self.call('DELETE', '/sandbox/faults', expect=204)
        with self.assertRaises(FAILURES):
            await task
        self.assertEqual([], await self.hits())
        await self.call('GET', self.THINGS, expect=200)

    async def test_silence_completes_write_without_response(self):
        await self.fault('silence', verb='WRITE')
        task = asyncio.ensure_future(
            self.call('POST', self.THINGS, base.make()))
        await self.eventually(lambda: self.store.list(self.kind))
        await self.leave(task)
        self.assertEqual(1, len(self.store.list(self.kind)))

    async def test_verb_write_matches_all_modifying_calls(self):
        await self.fault('500', verb='WRITE', count=4)
        for method in ('POST', 'PUT', 'PATCH', 'DELETE'):
            await self.call('GET', self.THINGS, expect=200)
            name = '' if method == 'POST' else '/a'
            await self.call(method, self.THINGS + name, base.make(), 500)
        async with self.client.get(self.THINGS + '?watch=1') as answer:
            self.assertEqual(200, answer.status)
        self.assertEqual([4], await self.hits())

    async def test_fault_after_some_calls(self):
        await self.fault('silence', verb='POST', after=1)
        await self.fault('500', verb='POST', after=1, count=2)
        await self.call('POST', self.THINGS, base.make('a'), 201)
        task = asyncio.ensure_future(
            self.call('POST', self.THINGS, base.make('b')))
        await self.eventually(lambda: len(self.store.list(self.kind)) == 2)
        await self.leave(task)
        for _ in range(2):
            await self.call('POST', self.THINGS, base.make('c'), 500)
        self.assertEqual([1, 2], await self.hits())
        self.assertEqual(2, len(self.store.list(self.kind)))

    async def test_fault_of_one_user(self):
        await self.fault('500', user='^somebody-else$')
        await self.call('GET', self.THINGS, expect=200)
        await self.fault('503', user='admin')
        await self.call('GET', self.THINGS, expect=503)
        self.assertEqual([0, 1], await self.hits())

    async def test_hanging_watch_is_open_without_events(self):
        await self.fault('hang', verb='WATCH', delay=0.3)
        self.store.create(self.kind, base.make())
        async with self.client.get(self.THINGS + '?watch=1') as answer:
            self.assertEqual(200, answer.status)
            with self.assertRaises(FAILURES):
                self.assertEqual(b'', await answer.content.readline())

    async def test_gone_expires_watch(self):
        await self.fault('gone', verb='WATCH')
        body = await self.call('GET', self.THINGS + '?watch=1', expect=410)
        self.assertEqual('Expired', body['reason'])
        await self.fault('gone', verb='*', event=True)
        await self.call('GET', self.THINGS, expect=200)
        events = await self.watch(self.THINGS, lambda e: False)
        self.assertEqual([('ERROR', 410)], [
            (e['type'], e['object']['code']) for e in events])

    async def test_gone_expires_continue_token(self):
        for name in 'ab':
            self.store.create(self.kind, base.make(name))
        await self.fault('gone', verb='GET')
        body = await self.call('GET', self.THINGS + '?limit=1', expect=200)
        token = body['metadata']['continue']
        body = await self.call('GET', self.THINGS, expect=410, params={
            'limit': '1', 'continue': token})
        self.assertEqual('Expired', body['reason'])
        self.assertIn('continue', body['metadata'])

    async def test_break_ends_open_watches(self):
        async with self.client.get(self.THINGS + '?watch=1') as answer:
            await self.eventually(lambda: self.server.watches)
            body = await self.fault('break', path='things')
            self.assertEqual(1, body['hits'])
            with self.assertRaises(FAILURES):
                await answer.content.readline()
        await self.eventually(lambda: not self.server.watches)

    async def test_break_keeps_other_watches(self):
        async with self.client.get(self.THINGS + '?watch=1') as answer:
            await self.eventually(lambda: self.server.watches)
            await self.fault('break', path='configmaps')
            self.store.create(self.kind, base.make())
            self.assertIn(b'ADDED', await answer.content.readline())

    async def test_delays_call(self):
        await self.fault('delay', delay=0.3)
        begin = time.monotonic()
        await self.call('GET', self.THINGS, expect=200)
        self.assertGreaterEqual(time.monotonic() - begin, 0.3)

    async def test_rejects_invalid_faults(self):
        for body in ({}, [], {'action': 'nix'}, {'action': '500', 'nix': 1},
                     {'action': '500', 'count': 0},
                     {'action': '500', 'count': True},
                     {'action': '500', 'count': '1'},
                     {'action': '500', 'path': '('},
                     {'action': '500', 'verb': 'get'},
                     {'action': '500', 'delay': -1},
                     {'action': '500', 'after': -1},
                     {'action': '500', 'user': '('}):
            await self.call('POST', '/sandbox/faults', body, 400)

    async def test_needs_the_token(self):
        for method, path in (('GET', 'faults'), ('POST', 'faults'),
                             ('DELETE', 'faults'), ('POST', 'outage'),
                             ('GET', 'stats'), ('DELETE', 'stats')):
            for token, code in (('', 403), ('Bearer wrong', 401)):
                await self.call(method, '/sandbox/' + path, expect=code,
                                headers={'Authorization': token})

    async def test_counts_forbidden_calls(self):
        await self.call('DELETE', '/sandbox/stats', expect=204)
        for path in ('/api/v1/pods', '/api/v1/pods', self.THINGS + '/a/status',
                     '/metrics'):
            await self.call('GET', path, expect=403,
                            headers={'Authorization': ''})
        body = await self.call('GET', '/sandbox/stats', expect=200)
        self.assertEqual({'system:anonymous': {
            'get': {'/metrics': 1, 'things.example.test/status': 1},
            'list': {'pods': 2}}}, body['refused'])
        # Members of system:masters need no permissions.
        self.assertEqual({}, body['used'])
        self.assertEqual(4, body['total'])


class OutageTestCase(ControlTestCase):

    async def test_outage_keeps_objects_and_address(self):
        made = self.store.create(self.kind, base.make())
        address = self.server.address
        async with self.client.get(self.THINGS + '?watch=1') as answer:
            await answer.content.readline()
            await self.call('POST', '/sandbox/outage', {'seconds': 3}, 202)
            with self.assertRaises(FAILURES):
                await answer.content.readline()
        with self.assertRaises(FAILURES):
            await self.call('GET', self.THINGS)
        begin = time.monotonic()
        while True:
            try:
                body = await self.call('GET', self.THINGS + '/a', expect=200)
                break
            except FAILURES:
                self.assertLess(time.monotonic() - begin, 30)
                await asyncio.sleep(0.02)
        self.assertEqual(made, body)
        self.assertEqual(address, self.server.address)

    async def test_rejects_invalid_outages(self):
        for body in ({}, [], {'seconds': 0}, {'seconds': 'x'},
                     {'seconds': True}, {'seconds': 1e9}):
            await self.call('POST', '/sandbox/outage', body, 400)


class StatsTestCase(ControlTestCase):

    async def test_counts_calls_by_verb_and_resource(self):
        await self.call('POST', self.THINGS, base.make(), 201)
        await self.call('GET', self.THINGS, expect=200)
        await self.call('GET', self.THINGS + '/a', expect=200)
        await self.call('GET', self.THINGS + '/a', expect=200)
        await self.call('GET', '/apis', expect=200)
        body = await self.call('GET', '/sandbox/stats', expect=200)
        thing = 'things.example.test'
        self.assertEqual({
            'create': {thing: 1}, 'list': {thing: 1},
            'get': {thing: 2, 'discovery': 1}}, body['calls'])
        self.assertEqual((5, 0), (body['total'], body['watches']))
        await self.call('DELETE', '/sandbox/stats', expect=204)
        body = await self.call('GET', '/sandbox/stats', expect=200)
        self.assertEqual(0, body['total'])
