# SPDX-License-Identifier: Apache-2.0
"""Events of a watch, and how it ends."""

from unittest import mock

from oslotest import base

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import client
from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import options
from tests.unit.machine import api


class WatchTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.api = api.Api()
        self.api.start()
        self.addCleanup(self.api.stop)
        self.api.put('virtualmachines', api.vm('a'))
        self.client = client.Client(self.api.connection(), options.Options(
            request_timeout=30, page_size=2))
        self.addCleanup(self.client.close)

    def test_watch_yields_events_and_ends(self):
        self.options = options.Options(watch_seconds=1)
        own_client = client.Client(self.api.connection(), self.options)
        watch = own_client.watch(api_resources.VM, version='0')
        self.assertEqual([('ADDED', 'a')], [
            (kind, obj['metadata']['name']) for kind, obj in watch])

    def test_watch_from_expired_version(self):
        self.api.oldest = 50
        watch = self.client.watch(api_resources.VM, version='1')
        self.assertRaises(errors.WatchExpired, list, watch)

    def test_broken_watch_is_unavailable(self):
        watch = self.client.watch(api_resources.VM, version='0')
        events = iter(watch)
        next(events)
        self.api.break_watches()
        self.assertRaises(errors.Unavailable, next, events)

    def test_silent_watch_expires_after_bookmarks(self):
        self.options = options.Options(watch_seconds=3)
        own_client = client.Client(self.api.connection(), self.options)
        self.addCleanup(own_client.close)
        self.api.log.append((200, 'virtualmachines', 'BOOKMARK', {
            'metadata': {'resourceVersion': '200', 'namespace': '',
                         'name': ''}}))
        with mock.patch.object(client, 'WATCH_SILENCE', 0.5):
            marked = own_client.watch(api_resources.VM, version='150')
            self.assertEqual('BOOKMARK', next(iter(marked))[0])
            marked.stop()
            # Before the server would end the watch.
            watch = own_client.watch(api_resources.VM, version='200')
            self.assertRaises(errors.WatchExpired, list, watch)
            # From then on silence is allowed until the next bookmark.
            self.assertEqual([], list(own_client.watch(
                api_resources.VM, version='200')))

    def test_stop_ends_watch(self):
        watch = self.client.watch(api_resources.VM, version='0')
        events = iter(watch)
        next(events)
        watch.stop()
        try:
            self.assertRaises(StopIteration, next, events)
        except errors.Unavailable:
            pass
