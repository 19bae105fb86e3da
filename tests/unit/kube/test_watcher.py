# SPDX-License-Identifier: Apache-2.0

import threading

from oslotest import base

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import watcher
from sushy_kubevirt.machine import options


class Client:
    """A fake client: lists are empty, each watch raises the next error."""

    def __init__(self, *faults):
        self.faults = list(faults)
        self.calls = []
        self.done = threading.Event()

    def pages(self, *args):
        self.calls.append('list')
        return [((), '1')]

    def watch(self, *args):
        self.calls.append('watch')
        return self._events()

    def _events(self):
        if not self.faults:
            self.done.set()
            return
        raise self.faults.pop(0)
        yield


class Sink:

    def take_list(self, source, pages):
        return [version for _, version in pages][0]

    def changed(self):
        pass


class WatcherTestCase(base.BaseTestCase):

    def run_watcher(self, client):
        """Run a watcher until all faults have been raised."""
        client.watcher = made = watcher.Watcher(
            client, options.Options(watch_backoff=0.01), api_resources.VM, '',
            '', '', Sink())
        made.start()
        self.addCleanup(made.stop)
        self.assertTrue(client.done.wait(30))

    def calls(self, fault):
        client = Client(fault)
        self.run_watcher(client)
        return client.calls[:4]

    def test_lists_again_after_expired_or_failed_watch(self):
        for fault in (errors.WatchExpired('410'), errors.ServerError('500')):
            self.assertEqual(['list', 'watch', 'list', 'watch'],
                             self.calls(fault))

    def test_resumes_watch_after_broken_connection(self):
        self.assertEqual(['list', 'watch', 'watch'],
                         self.calls(errors.Unavailable('broke'))[:3])

    def test_logs_each_change_of_the_error_once(self):
        class Refused(Client):

            def pages(self, *args):
                if self.faults:
                    raise self.faults.pop(0)
                return super().pages(*args)

        with self.assertLogs(watcher.LOG) as logged:
            self.run_watcher(Refused(
                *map(errors.Unavailable, ('refused', 'refused')),
                *map(errors.AccessDenied, ('no right', 'no right')),
                errors.Unavailable('refused')))
        messages = [record.getMessage().rpartition(': ')[2]
                    for record in logged.records[:3]]
        self.assertEqual(['refused', 'no right', 'refused'], messages)

    def test_only_first_list_ends_broken_state(self):
        """The first complete list makes the cache current.

        Otherwise reads would go to the API until the watch starts. If later
        lists counted too, reads would use a cache that no watch updates.
        """
        broken_since = []

        class Slow(Client):

            def pages(self, *args):
                # As if it had been broken for a long time.
                self.watcher.broken_since = 0.0
                return super().pages(*args)

            def watch(self, *args):
                broken_since.append(self.watcher.broken_since)
                if len(broken_since) < 3:
                    raise errors.ServerError('500')
                return super().watch(*args)

        self.run_watcher(Slow())
        self.assertGreater(broken_since[0], 0)
        self.assertEqual([0.0, 0.0], broken_since[1:3])
