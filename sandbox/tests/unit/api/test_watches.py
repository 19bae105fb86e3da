# SPDX-License-Identifier: Apache-2.0
import asyncio
import json
from unittest import mock

from kubevirt_sandbox.api import core
from kubevirt_sandbox.api import negotiation
from kubevirt_sandbox.api import selectors
from kubevirt_sandbox.api import views
from kubevirt_sandbox.api import watches
from tests.unit.api import base


class WatchTestCase(base.ServerTestCase):

    options = {'length': 8, 'bookmark_seconds': 0.05}

    def types(self, events):
        return [(e['type'], e['object']['metadata'].get('name'))
                for e in events]

    async def test_watch_without_version_starts_with_existing_objects(self):
        self.store.create(self.kind, base.make())
        for version in ('', '0'):
            events = await self.watch(self.THINGS, lambda e: True,
                                      resourceVersion=version)
            self.assertEqual([('ADDED', 'a')], self.types(events))

    async def test_watch_from_version_sends_later_changes_only(self):
        made = self.store.create(self.kind, base.make())
        version = made['metadata']['resourceVersion']

        async def change():
            await asyncio.sleep(0.1)
            self.store.delete(self.kind, 'default', 'a')
        self.store.change(self.kind, 'default', 'a',
                          lambda o: o['spec'].update(size=2))
        task = asyncio.ensure_future(change())
        events = await self.watch(self.THINGS, lambda e: len(e) == 2,
                                  resourceVersion=version)
        await task
        self.assertEqual([('MODIFIED', 'a'), ('DELETED', 'a')],
                         self.types(events))
        versions = [int(e['object']['metadata']['resourceVersion'])
                    for e in events]
        self.assertLess(int(version), versions[0])
        self.assertLess(versions[0], versions[1])

    async def test_selector_turns_changes_into_added_and_deleted(self):
        version = str(self.store.version)
        self.store.create(self.kind, base.make())
        for colour in ('green', 'green', 'red'):
            self.store.change(self.kind, 'default', 'a', lambda o:
                              o['spec'].update(colour=colour, size=o[
                                  'spec']['size'] + 1))
        events = await self.watch(
            self.THINGS, lambda e: len(e) == 3, resourceVersion=version,
            fieldSelector='spec.colour=green')
        self.assertEqual(['ADDED', 'MODIFIED', 'DELETED'],
                         [e['type'] for e in events])
        # The event has the last state that matched the selector.
        self.assertEqual('green', events[2]['object']['spec']['colour'])
        self.assertEqual(
            self.store.get(self.kind, 'default', 'a')['metadata'][
                'resourceVersion'],
            events[2]['object']['metadata']['resourceVersion'])

    async def test_old_version_gets_error_event(self):
        self.store.create(self.kind, base.make())
        for size in range(2, 12):
            self.store.change(self.kind, 'default', 'a',
                              lambda o, n=size: o['spec'].update(size=n))
        events = await self.watch(self.THINGS, lambda e: False,
                                  resourceVersion='1')
        self.assertEqual(['ERROR'], [e['type'] for e in events])
        self.assertEqual((410, 'Expired'), (
            events[0]['object']['code'], events[0]['object']['reason']))
        self.assertRegex(events[0]['object']['message'],
                         r'^too old resource version: 1 \(\d+\)$')

    async def test_sends_bookmarks(self):
        version = str(self.store.version)
        self.store.create(core.CONFIG_MAP, {'metadata': {
            'name': 'x', 'namespace': 'default'}})
        events = await self.watch(
            self.THINGS, lambda e: True, resourceVersion=version,
            allowWatchBookmarks='true')
        self.assertEqual('BOOKMARK', events[0]['type'])
        self.assertEqual(str(self.store.version), events[0]['object'][
            'metadata']['resourceVersion'])

    async def test_initial_events_end_with_a_bookmark(self):
        self.store.create(self.kind, base.make())
        events = await self.watch(
            self.THINGS, lambda e: len(e) == 2, sendInitialEvents='true',
            allowWatchBookmarks='true', resourceVersionMatch='NotOlderThan')
        self.assertEqual(['ADDED', 'BOOKMARK'], [e['type'] for e in events])
        self.assertEqual({'k8s.io/initial-events-end': 'true'}, events[1][
            'object']['metadata']['annotations'])
        await self.call('GET', self.THINGS + '?watch=1&sendInitialEvents='
                        'true', expect=422)

    async def test_server_without_streaming_lists_refuses_them(self):
        self.server.streaming_lists = False
        body = await self.call(
            'GET', self.THINGS + '?watch=1&sendInitialEvents=true&'
            'allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan',
            expect=422)
        self.assertEqual(
            'ListOptions.meta.k8s.io "" is invalid: sendInitialEvents: '
            'Forbidden: sendInitialEvents is forbidden for watch unless the '
            'WatchList feature gate is enabled', body['message'])

    async def test_bookmark_ends_initial_events_if_bookmarks_are_allowed(self):
        """As SetListOptionsDefaults and isListWatchRequest of Kubernetes."""
        for streams, query, marked in (
                (True, {'allowWatchBookmarks': 'true'}, True),
                (True, {'resourceVersion': '0'}, False),
                (True, {'sendInitialEvents': 'true',
                        'resourceVersionMatch': 'NotOlderThan'}, False),
                (False, {'allowWatchBookmarks': 'true'}, False)):
            self.server.streaming_lists = streams
            self.server.bookmark_seconds = None
            events = await self.watch(self.THINGS, lambda e: e,
                                      timeoutSeconds='1', **query)
            self.assertEqual(['BOOKMARK'] if marked else [],
                             [e['type'] for e in events])

    async def test_watch_ends_after_timeout(self):
        events = await self.watch(self.THINGS, lambda e: False,
                                  timeoutSeconds='1',
                                  resourceVersion=str(self.store.version))
        self.assertEqual([], events)

    async def test_watch_of_one_object(self):
        for name in 'ab':
            self.store.create(self.kind, base.make(name))
        events = await self.watch(self.THINGS + '/b', lambda e: True)
        self.assertEqual([('ADDED', 'b')], self.types(events))

    async def test_watch_as_tables(self):
        for name in 'ab':
            self.store.create(self.kind, base.make(name))
        events = []
        async with self.client.get(self.THINGS + '?watch=1', headers={
                'Accept': base.TABLE}) as answer:
            async for line in answer.content:
                events.append(json.loads(line)['object'])
                if len(events) == 2:
                    break
        self.assertTrue(events[0]['columnDefinitions'])
        self.assertIsNone(events[1]['columnDefinitions'])

    async def test_client_that_does_not_read_is_disconnected(self):
        written = []

        class Response:
            async def write(self, raw):
                written.append(raw)
        view = views.View(self.kind, negotiation.Form())
        watch = watches.Watch(self.store, view, selectors.Selector(
            '', '', self.kind), None, 20)
        with mock.patch.object(watches, 'BACKLOG', 2):
            watch.begin(self.store.version, False)
            for name in 'abcdef':
                self.store.create(self.kind, base.make(name))
        await watch.send(Response())
        self.assertEqual(3, len(b''.join(written).splitlines()))

    async def test_disconnected_client_leaves_no_listener(self):
        async with self.client.get(self.THINGS + '?watch=1') as answer:
            self.assertEqual(200, answer.status)
            await self.eventually(lambda: self.server.watches)
            answer.close()
        await self.eventually(lambda: not self.server.watches)
        self.assertEqual([], self.store.collection(self.kind).listeners)
