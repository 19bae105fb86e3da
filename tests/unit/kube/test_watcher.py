# SPDX-License-Identifier: Apache-2.0

import threading

from oslotest import base

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import watch_stream
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

    def watch(self, resource, namespace, version, *args):
        self.calls.append('watch' if version else 'stream')
        return Broken(self)


class Broken:
    """A watch that ends at once, with the next fault of its client."""

    def __init__(self, client):
        self._client = client

    def __iter__(self):
        return self

    def __next__(self):
        if self._client.faults:
            raise self._client.faults.pop(0)
        self._client.done.set()
        raise StopIteration

    def stop(self):
        pass


class Events(list):
    """The events of a stream."""

    stopped = False

    def stop(self):
        self.stopped = True


def event(kind, name, version='5', **annotations):
    return kind, {'metadata': {'name': name, 'resourceVersion': version,
                               'annotations': annotations}}


END = event('BOOKMARK', '', '9', **{watch_stream.INITIAL_EVENTS_END: 'true'})


class Sink:

    def __init__(self):
        self.lists = []
        self.events = []

    def take_list(self, source, pages):
        listed, version = [], None
        for items, version in pages:
            listed += [item['metadata']['name'] for item in items]
        self.lists.append(listed)
        return version

    def event(self, source, kind, obj):
        self.events.append((kind, obj['metadata']['name']))

    def changed(self):
        pass


class WatcherTestCase(base.BaseTestCase):

    def run_watcher(self, client, **more):
        """Run a watcher until all faults have been raised."""
        self.sink = Sink()
        client.watcher = made = watcher.Watcher(
            client, options.Options(watch_backoff=0.01), api_resources.VM, '',
            '', '', self.sink, **more)
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

    def stream(self, *answers):
        """Run a watcher that streams.

        :param answers: of requests for a stream: an exception, or events
        :returns: the client
        """
        waiting = list(answers)

        class Streams(Client):

            def watch(self, resource, namespace, version, *args):
                found = super().watch(resource, namespace, version, *args)
                if version is not None:
                    return found
                answer = waiting.pop(0)
                if isinstance(answer, Exception):
                    raise answer
                return answer

        made = Streams()
        self.run_watcher(made, streams=True)
        return made

    def test_stream_replaces_first_list(self):
        events = Events([event('ADDED', 'a'), event('ADDED', 'b'),
                         event('BOOKMARK', ''), event('MODIFIED', 'b', '6'),
                         event('DELETED', 'a', '7'), END,
                         event('ADDED', 'late')])
        client = self.stream(events)
        self.assertEqual(['stream', 'watch'], client.calls[:2])
        self.assertEqual([['a', 'b', 'b']], self.sink.lists[:1])
        self.assertEqual([('DELETED', 'a')], self.sink.events)
        self.assertTrue(events.stopped)

    def test_lists_pages_where_streams_are_not_supported(self):
        for refusal in (errors.Rejected('422'), errors.ServerError('500')):
            client = self.stream(refusal)
            self.assertEqual(['stream', 'list', 'watch'], client.calls[:3])
            self.assertNotIn('stream', client.calls[1:])

    def test_lists_pages_after_interrupted_stream(self):
        for fault in (Events([event('ADDED', 'a')]),
                      errors.ConnectionLost('lost', maybe_done=True)):
            client = self.stream(fault)
            self.assertEqual(['stream', 'list', 'watch'], client.calls[:3])
            self.assertEqual([], self.sink.lists[0])

    def test_streams_again_if_server_was_not_reached(self):
        client = self.stream(errors.Unavailable('refused'),
                             errors.TooManyRequests('429'), Events([END]))
        self.assertEqual(['stream', 'stream', 'stream', 'watch'],
                         client.calls[:4])

    def test_expired_list_is_repeated_with_larger_pages(self):
        """It is no error, because it is repeated at once."""
        sizes = []

        class Expiring(Client):

            def pages(self, *args):
                sizes.append(args[-1])
                if len(sizes) < 3:
                    yield (), '1'
                    if len(sizes) == 1:
                        first.append(self.watcher.error)
                    raise errors.WatchExpired('410')
                first.append(self.watcher.error)
                yield (), '1'

        first = []
        self.run_watcher(Expiring())
        self.assertEqual([25, 500, 10000], sizes[:3])
        self.assertIsNone(first[0])
        # A second one is an error, which waiting requests get.
        self.assertIsInstance(first[1], errors.Unavailable)
