# SPDX-License-Identifier: Apache-2.0
"""Redfish events as a stream (Server-Sent Events) and as a log."""

import contextlib
import datetime
import json
import signal
import threading
import time

import requests

from tests.fixtures import emulator
from tests.fixtures import events_case
from tests.fixtures import redfish_case
from tests.fixtures import sandbox

STREAM = events_case.SERVICE + '/SSE'


class Stream:
    """A client of an event stream; a context manager.

    ``events`` lists (id, body) of the received events, ``ended`` is set when
    the stream ends.
    """

    def __init__(self, url, **options):
        self._news = threading.Condition()
        self.events = []
        self.comments = 0
        self.ended = threading.Event()
        self.response = requests.get(url, stream=True, timeout=60, **options)
        self.response.raise_for_status()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        with contextlib.suppress(Exception):
            self._parse()
        self.ended.set()

    def _parse(self):
        fields = {}
        for line in self.response.iter_lines(chunk_size=1):
            text = line.decode()
            with self._news:
                if not text and fields:
                    self.events.append((fields['id'],
                                        json.loads(fields['data'])))
                    fields = {}
                elif text.startswith(':'):
                    self.comments += 1
                elif text:
                    name, _, value = text.partition(': ')
                    fields[name] = value
                self._news.notify_all()

    def keys(self):
        return [event['MessageId'].rpartition('.')[2]
                for _, body in self.events for event in body['Events']]

    def wait(self, key, count=1, timeout=30):
        deadline = time.monotonic() + timeout
        with self._news:
            while self.keys().count(key) < count:
                left = deadline - time.monotonic()
                if left <= 0 or self.ended.is_set():
                    raise AssertionError(f'no {key} but {self.keys()}')
                self._news.wait(left)

    def __enter__(self):
        return self

    def close(self):
        # Wake the reader, which holds a lock that close() waits for.
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            self.response.raw.shutdown()
        self.response.close()

    def __exit__(self, *args):
        self.close()


class StreamTestCase(events_case.EventsTestCase):

    SERVER = 'gunicorn'

    @classmethod
    def setUpClass(cls):
        super(redfish_case.base.EmulatorTestCase, cls).setUpClass()
        cls.emulator = cls.share(emulator.Emulator(
            cls.sandbox.bmc_account(), cls.SETTINGS, cls.SERVER))

    def stream(self, filter='', **options):
        url = self.emulator.url + STREAM
        if filter:
            options['params'] = {'$filter': filter}
        # A stream closed a moment ago may still count.
        stream = self.until(lambda: self.try_open(url, options))
        self.addCleanup(stream.close)
        return stream

    @staticmethod
    def try_open(url, options):
        try:
            return Stream(url, **options)
        except requests.HTTPError as exc:
            if exc.response.status_code != 503:
                raise
            return None

    def streams(self):
        """List the subscriptions that are streams."""
        members = self.emulator.request(
            'GET', events_case.SUBSCRIPTIONS, expect=200).json()['Members']
        found = [self.emulator.request('GET', member['@odata.id'])
                 for member in members]
        return [one.json() for one in found if one.status_code == 200
                and one.json()['SubscriptionType'] == 'SSE']


class TestStream(StreamTestCase):

    def setUp(self):
        super().setUp()
        # Runs last: the next test counts streams again.
        self.addCleanup(self.until, lambda: not self.streams())

    def test_streams_and_reconnects(self):
        self.make()
        mine = f"OriginResource eq '{self.path}'"
        with self.stream(mine) as one, self.stream(
                'RegistryPrefix eq SushyKubeVirt') as other:
            self.assertEqual('text/event-stream',
                             one.response.headers['Content-Type'])
            self.until(lambda: len(self.streams()) == 2)
            self.emulator.reset(self.uuid, 'On')
            one.wait('ResourcePoweredOn')
            self.sandbox.do(self.name, 'stop', {'gracePeriod': 0})
            one.wait('ResourcePoweredOff')
            self.assertNotIn('ResourcePoweredOn', other.keys())
            ids = [id_ for id_, _ in one.events]
            self.assertEqual(ids, [body['Events'][0]['EventId']
                                   for _, body in one.events])
        # A client that reconnects gets the missed events.
        for _ in range(4):
            with self.stream(mine, headers={
                    'Last-Event-ID': ids[0]}) as again:
                again.wait('ResourcePoweredOff')
                self.assertEqual(ids[1:], [id_ for id_, _ in again.events])
        with self.stream(mine, headers={'Last-Event-ID': 'x'}) as again:
            again.wait('EventBufferExceeded')

    def test_deleted_subscription_ends_stream(self):
        self.make()
        one = self.stream()
        [shown] = self.until(self.streams)
        self.assertTrue(shown['Destination'].startswith('redfish-sse://'))
        self.assertTrue(shown['Context'])
        self.emulator.request('PATCH', shown['@odata.id'],
                              {'Context': 'x'}, expect=405)
        self.emulator.request('DELETE', shown['@odata.id'], expect=204)
        self.assertTrue(one.ended.wait(10))
        self.until(lambda: not self.streams())
        self.emulator.request('DELETE', shown['@odata.id'], expect=404)

    def test_invalid_requests(self):
        for bad in ('Nonsense eq 1', 'RegistryPrefix', '(', "'",
                    'MessageId like x'):
            answer = self.emulator.request(
                'GET', STREAM, params={'$filter': bad}, expect=400)
            self.assertEqual('application/json',
                             answer.headers['Content-Type'])
        self.emulator.request('GET', STREAM, expect=406,
                              headers={'Accept': 'application/json'})
        self.emulator.request('HEAD', STREAM, expect=200)
        self.assertEqual([], self.streams())

    def test_streams_leave_threads_for_requests(self):
        """Streams take no more than half of the threads."""
        self.make()
        codes = []
        for _ in range(8):
            answer = requests.get(self.emulator.url + STREAM, stream=True,
                                  timeout=60)
            self.addCleanup(answer.close)
            codes.append(answer.status_code)
        self.assertEqual([200] * 2 + [503] * 6, codes)
        for _ in range(8):
            self.emulator.request('GET', self.path, expect=200, timeout=10)


class TestServers(StreamTestCase):

    def start(self, **options):
        return self.useFixture(emulator.Emulator(
            self.sandbox.bmc_account(), self.SETTINGS, **options))

    def test_streams_do_not_delay_shutdown(self):
        for server in ('gunicorn', 'werkzeug'):
            one = self.start(server=server)
            with Stream(one.url + STREAM) as stream:
                self.until(lambda: stream.comments)
                begin = time.monotonic()
                one.process.send(signal.SIGTERM)
                one.process.wait(20)
                self.assertLess(time.monotonic() - begin, 15)
                self.assertTrue(stream.ended.wait(5))

    def test_no_streams_with_one_thread(self):
        one = self.start(server='gunicorn', threads=1)
        self.assertNotIn('ServerSentEventUri', one.request(
            'GET', events_case.SERVICE, expect=200).json())
        one.request('GET', STREAM, expect=501)


class TestLog(events_case.EventsTestCase):

    def entries(self, **query):
        return self.emulator.request(
            'GET', self.log + '/Entries', params=query,
            expect=200).json()

    def test_log_entries(self):
        self.make()
        for root in (self.path, '/redfish/v1/Managers/' + self.uuid):
            [member] = self.emulator.request(
                'GET', root + '/LogServices', expect=200).json()['Members']
            self.log = member['@odata.id']
            self.assertTrue(self.log.startswith(root))
            self.emulator.request('GET', self.log, expect=200)
        self.emulator.reset(self.uuid, 'On')
        self.sandbox.wait_running(self.name)

        def power_on_entries():
            found = self.entries()['Members']
            return found if any(
                entry['MessageId'].endswith('PoweredOn')
                for entry in found) else None

        found = self.until(power_on_entries)
        times = [datetime.datetime.fromisoformat(entry['Created'])
                 for entry in found]
        self.assertEqual(sorted(times), times)
        [own] = [entry for entry in found if entry.get(
            'MessageId') == 'ResourceEvent.1.3.ResourcePoweredOn']
        self.assertEqual([f'{sandbox.NAMESPACE}/{self.name}'],
                         own['MessageArgs'])
        self.assertEqual(own, self.untagged(self.emulator.request(
            'GET', own['@odata.id'], expect=200).json()))
        # Events of KubeVirt.
        kubernetes = [entry for entry in found
                      if entry['OriginatorType'] == 'SupportingService']
        self.assertTrue(kubernetes)
        self.assertEqual({'SushyKubeVirt.1.0.KubernetesEvent'},
                         {entry['MessageId'] for entry in kubernetes})
        page = self.entries(**{'$top': 1, '$skip': 1})
        self.assertEqual(found[1:2], page['Members'])
        self.assertEqual(len(found), page['Members@odata.count'])
        self.emulator.request(
            'POST', self.log + '/Actions/LogService.ClearLog', {},
            expect=204)
        self.assertEqual([], self.entries()['Members'])
        self.refused('GET', own['@odata.id'], None, 404)
        self.refused('GET', self.log + '/Entries/none', None, 404)
        # Nothing was deleted, and nothing newer is hidden.
        kept = {event['metadata']['name']
                for event in self.sandbox.list('events')}
        self.assertLessEqual({entry['Id'] for entry in found}, kept)
        self.emulator.reset(self.uuid, 'ForceOff')
        self.sandbox.wait_stopped(self.name)
        self.until(lambda: any(
            entry['MessageId'].endswith('PoweredOff')
            for entry in self.entries()['Members']))
        self.assertNotIn(own['Id'], [
            entry['Id'] for entry in self.entries()['Members']])

    @staticmethod
    def untagged(body):
        body.pop('@odata.etag', None)
        return body
