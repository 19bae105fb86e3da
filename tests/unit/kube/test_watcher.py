# SPDX-License-Identifier: Apache-2.0

import threading

from oslotest import base

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import watcher
from sushy_kubevirt.machine import options


class Client:
    """Lists nothing, and breaks each watch with the next error."""

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

    def follow(self, client):
        """Follow until the faults are over."""
        client.watcher = made = watcher.Watcher(
            client, options.Options(watch_backoff=0.01), api_resources.VM, '',
            '', '', Sink())
        made.start()
        self.addCleanup(made.stop)
        self.assertTrue(client.done.wait(30))

    def calls(self, fault):
        client = Client(fault)
        self.follow(client)
        return client.calls[:4]

    def test_what_the_server_cannot_tell_is_listed(self):
        for fault in (errors.WatchExpired('410'), errors.ServerError('500')):
            self.assertEqual(['list', 'watch', 'list', 'watch'],
                             self.calls(fault))

    def test_broken_connection_costs_no_list(self):
        self.assertEqual(['list', 'watch', 'watch'],
                         self.calls(errors.Unavailable('broke'))[:3])

    def test_only_the_first_list_counts_as_heard_when_it_is_done(self):
        """Reads would go to the API until the watch has begun, else; and
        from a cache that no watch keeps, if each list counted.
        """
        ages = []

        class Slow(Client):

            def pages(self, *args):
                # As if it had begun long ago.
                self.watcher.broken_since = 0.0
                return super().pages(*args)

            def watch(self, *args):
                ages.append(self.watcher.broken_since)
                if len(ages) < 3:
                    raise errors.ServerError('500')
                return super().watch(*args)

        self.follow(Slow())
        self.assertGreater(ages[0], 0)
        self.assertEqual([0.0, 0.0], ages[1:3])
