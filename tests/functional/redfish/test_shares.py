# SPDX-License-Identifier: Apache-2.0
"""One client does not use up what others need."""

import contextlib
from http import client
import socket
import ssl
import threading

from tests.fixtures import base
from tests.fixtures import redfish_pod

ROOT, SYSTEM = '/redfish/v1/', '/redfish/v1/Systems/1'
ACCOUNTS = '/redfish/v1/AccountService/Accounts'
SESSIONS = '/redfish/v1/SessionService/Sessions'
SUBSCRIPTIONS = '/redfish/v1/EventService/Subscriptions'
STREAM = '/redfish/v1/EventService/SSE'

#: Connections that read the service root, and bare ones per second.
KEPT, BARE_PER_SECOND = 66, 100

#: New connections of another client.
COUNT = 25


class Flood:
    """Connections without login from one address, as a context manager.

    :param pod: `redfish_pod.RedfishPod`
    :param source: IP address of the client
    """

    def __init__(self, pod, source):
        self._pod = pod
        self._source = source
        self._context = ssl.create_default_context(cafile=str(pod.ca))
        self._end = threading.Event()
        self._bare = []
        self._threads = [threading.Thread(target=self._connect), *(
            threading.Thread(target=self._read, args=(number,))
            for number in range(KEPT))]
        #: Of bare connections that were opened.
        self.many = threading.Event()

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        if not self.many.wait(30):
            raise TimeoutError('no bare connections')
        return self

    def _read(self, number):
        """Read the service root repeatedly; connect again if it is cut.

        :param number: of the connection
        """
        connection = client.HTTPSConnection(
            '127.0.0.1', self._pod.port, timeout=30, context=self._context,
            source_address=(self._source, 0))
        while not self._end.wait(0.5):
            try:
                connection.request('GET', ROOT)
                connection.getresponse().read()
            except (OSError, client.HTTPException):
                connection.close()
        connection.close()

    def _connect(self):
        while not self._end.wait(1 / BARE_PER_SECOND):
            with contextlib.suppress(OSError):
                self._bare.append(socket.create_connection(
                    ('127.0.0.1', self._pod.port), 30, (self._source, 0)))
            if len(self._bare) > 2 * KEPT:
                self.many.set()
                self._bare.pop(0).close()

    def __exit__(self, *exc_info):
        self._end.set()
        for thread in self._threads:
            thread.join()
        for one in self._bare:
            one.close()


class AccountsTestCase(base.SandboxTestCase):
    """What an account fills, others can still use."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.pod = cls.share(redfish_pod.RedfishPod(cls.sandbox))

    def setUp(self):
        super().setUp()
        self.account = self.pod.request('POST', ACCOUNTS, {
            'UserName': 'bob', 'Password': 'secret-of-bob',
            'RoleId': 'Operator'}, expect=201).json()['@odata.id']
        self.addCleanup(self.pod.request, 'DELETE', self.account)

    def request(self, *arguments, **options):
        """Send a request as the Operator."""
        return self.pod.request(*arguments, auth=('bob', 'secret-of-bob'),
                                **options)

    def fill(self, request):
        """Repeat a request as the Operator until it is refused.

        :param request: function that returns a `requests.Response`
        :returns: the refusal
        """
        for _ in range(1000):
            response = request()
            if response.status_code >= 400:
                return response
        raise AssertionError('there is no limit')

    def subscription(self, length=0):
        return {'Destination': 'http://192.0.2.1/', 'OriginResources': [
            {'@odata.id': f'/redfish/v1/{number:0{length}}'}
            for number in range(100 if length else 0)]}

    def test_subscriptions_leave_room(self):
        for length in 800, 100, 0:
            refused = self.fill(lambda: self.request(
                'POST', SUBSCRIPTIONS, self.subscription(length)))
            self.assertEqual(409, refused.status_code, refused.text)
        self.pod.request('PATCH', self.account, {'RoleId': 'ReadOnly'},
                         expect=200)
        self.pod.request('PATCH', '/redfish/v1/SessionService',
                         {'SessionTimeout': 600}, expect=200)
        self.pod.request('POST', SUBSCRIPTIONS, self.subscription(100),
                         expect=201)
        for member in self.pod.request('GET', SUBSCRIPTIONS).json()['Members']:
            self.pod.request('DELETE', member['@odata.id'], expect=204)

    def test_streams(self):
        def opened(request):
            response = request('GET', STREAM, stream=True)
            self.addCleanup(response.close)
            return response

        refused = self.fill(lambda: opened(self.request))
        self.assertEqual(503, refused.status_code)
        self.assertEqual(200, opened(self.pod.request).status_code)

    def test_sessions(self):
        _user, session = (self.pod.request('POST', SESSIONS, {
            'UserName': name, 'Password': password}, expect=201)
            for name, password in (('bob', 'secret-of-bob'), (
                redfish_pod.USER, self.pod.password)))
        for _ in range(70):
            self.pod.request('POST', SESSIONS, {
                'UserName': 'bob', 'Password': 'secret-of-bob'}, expect=201)
        self.pod.request('GET', session.headers['Location'].removeprefix(
            self.pod.url), expect=200)


class ConnectionsTestCase(base.SandboxTestCase):

    def setUp(self):
        super().setUp()
        self.pod = self.useFixture(redfish_pod.RedfishPod(self.sandbox))

    def check(self, source):
        """Use the BMC with a kept connection and new ones beside a flood."""
        kept = client.HTTPSConnection(
            '127.0.0.1', self.pod.port, timeout=30,
            context=ssl.create_default_context(cafile=str(self.pod.ca)))
        self.addCleanup(kept.close)
        session = self.pod.request(
            'POST', '/redfish/v1/SessionService/Sessions', {
                'UserName': redfish_pod.USER, 'Password': self.pod.password})
        token = {'X-Auth-Token': session.headers['X-Auth-Token']}

        def read():
            kept.request('GET', SYSTEM, headers=token)
            response = kept.getresponse()
            response.read()
            return response.status

        self.assertEqual(200, read())
        first = kept.sock
        with Flood(self.pod, source):
            for _ in range(COUNT):
                self.pod.request('GET', SYSTEM, expect=200)
                self.assertEqual(200, read())
            self.assertEqual((200, 'ok'), self.pod.probe('/readyz'))
        self.assertIs(first, kept.sock)

    def test_flood_from_another_address(self):
        self.check('127.0.0.2')

    def test_flood_from_the_same_address(self):
        """As where a Service hides the addresses of clients."""
        self.check('127.0.0.1')
