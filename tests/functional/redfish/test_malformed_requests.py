# SPDX-License-Identifier: Apache-2.0
"""Requests that are no HTTP, or that two servers can read differently."""

from urllib import parse

from tests.fixtures import base
from tests.fixtures import malformed_requests
from tests.fixtures import redfish_case


class MalformedRequestsMixin:

    VMS = 0

    def setUp(self):
        super().setUp()
        self.port = parse.urlsplit(self.emulator.url).port

    def test_refuses_malformed_requests(self):
        for name, request in malformed_requests.REFUSED.items():
            found = malformed_requests.codes(self.port, request)
            self.assertIn(found, ([400], [501], [431], [505]), name)
        self.assert_works()

    def test_refuses_wrong_hosts(self):
        for name, request in malformed_requests.WRONG_HOSTS.items():
            found = malformed_requests.codes(self.port, request)
            self.assertIn(found, ([400], [400, 404]), name)
        self.assert_works()

    def test_accepts_unusual_requests(self):
        for name, request in malformed_requests.ACCEPTED.items():
            found = malformed_requests.codes(self.port, request)
            self.assertEqual(
                400 if request.startswith(b'POST') else 200, found[0], name)
        self.assert_works()

    def test_refuses_names_of_others(self):
        # What a browser sends after DNS rebinding.
        for path in '/', '/redfish/v1/', '/redfish/v1/Systems':
            for _ in range(2):
                answer = self.emulator.request(
                    'GET', path, expect=421, headers={
                        'Host': f'attacker.test:{self.port}'})
                self.assertIn('HOST_NAMES', answer.text)
                self.emulator.request('GET', path, expect=200, headers={
                    'Host': f'localhost:{self.port}'})

    def assert_works(self):
        self.emulator.request('GET', '/redfish/v1/', expect=200)
        for word in 'Traceback', ' 500 ', 'Unexpected':
            self.assertNotIn(word, self.emulator.process.output)


class TestWerkzeug(MalformedRequestsMixin, base.EmulatorTestCase):

    def test_closes_connection_behind_which_more_follows(self):
        # More than is read with the request.
        self.assertEqual([200], malformed_requests.codes(
            self.port, malformed_requests.ACCEPTED['port'] + b'x' * 100000))


class TestGunicorn(MalformedRequestsMixin, base.EmulatorTestCase):
    SERVER = 'gunicorn'


class TestPod(MalformedRequestsMixin, base.EmulatorTestCase):
    SERVER = 'pod'


class TestTexts(redfish_case.RedfishTestCase):

    def test_unpaired_surrogates(self):
        self.make()
        for body in {'AssetTag': '\ud83d'}, {'\ud83d': 1}:
            self.assertEqual([('MalformedJSON',)], self.refused(
                'PATCH', self.path, body, 400))
        # Kubernetes replaces them.
        self.sandbox.patch('virtualmachines', self.name, {
            'metadata': {'annotations': {'example.org/a': 'x\ud83d'}}})
        self.assertEqual('x\ufffd', self.sandbox.vm(self.name)['metadata'][
            'annotations']['example.org/a'])
        self.emulator.patch_system(self.uuid, {'AssetTag': '\U0001f600'})
        self.assertEqual('\U0001f600',
                         self.emulator.system(self.uuid)['AssetTag'])
