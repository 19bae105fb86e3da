# SPDX-License-Identifier: Apache-2.0
"""HTTP details of both servers, seen by a raw HTTP client."""

import http.client
import json
import secrets
import socket
import threading
import urllib.parse

import requests

from tests.fixtures import base
from tests.fixtures import emulator
from tests.fixtures import redfish_case


class HttpTestCase(redfish_case.RedfishTestCase):
    """One connection, reopened when the server closes it."""

    def setUp(self):
        super().setUp()
        self.make()
        parts = urllib.parse.urlsplit(self.emulator.url)
        self.connection = http.client.HTTPConnection(
            parts.hostname, parts.port, timeout=30)
        self.addCleanup(self.connection.close)
        self.connections = 0

    def ask(self, method, path, body=None, code=200, **headers):
        """Send a request; return headers and body (bytes) of the response."""
        if self.connection.sock is None:
            self.connections += 1
        data = body if body is None or isinstance(body, bytes) else (
            json.dumps(body).encode())
        self.connection.request(method, path, data, {
            'Content-Type': 'application/json',
            **{name.replace('_', '-'): value
               for name, value in headers.items()}})
        response = self.connection.getresponse()
        content = response.read()
        self.assertEqual(code, response.status, content[:500])
        self.assertEqual(11, response.version)
        if method == 'HEAD' or code in (204, 304):
            self.assertEqual(b'', content)
        else:
            self.assertEqual(str(len(content)),
                             response.headers['Content-Length'])
        self.assertEqual('4.0', response.headers['OData-Version'])
        return response.headers, content

    def act_with_one_etag(self):
        """Send two actions as gofish does, with the ETag of one GET."""
        get, body = self.ask('GET', self.path)
        target = json.loads(body)['Actions']['#ComputerSystem.Reset']['target']
        for reset_type, state in ('On', 'On'), ('ForceOff', 'Off'):
            self.ask('POST', target, {'ResetType': reset_type}, code=204,
                     If_Match=get['ETag'])
            self.wait_power(state)

    def send_invalid(self, *requests):
        """Send what the server itself refuses.

        :param requests: tuples (bytes, status code)
        """
        parts = urllib.parse.urlsplit(self.emulator.url)
        for data, code in requests:
            with socket.create_connection(
                    (parts.hostname, parts.port), timeout=30) as sock:
                sock.sendall(data + b'\r\n\r\n')
                response = http.client.HTTPResponse(sock)
                response.begin()
                content = response.read()
            self.assertEqual(code, response.status, content[:500])
            headers = response.headers
            self.assertEqual('application/json', headers['Content-Type'])
            self.assertEqual(str(len(content)), headers['Content-Length'])
            self.assertEqual('4.0', headers['OData-Version'])
            error = json.loads(content)['error']
            self.assertTrue(error['code'].startswith('Base.'))
            [entry] = error['@Message.ExtendedInfo']
            for name in ('MessageId', 'Message', 'MessageArgs',
                         'MessageSeverity', 'Resolution'):
                self.assertIn(name, entry)
        self.ask('GET', self.path)
        self.assertNotIn('Traceback', self.emulator.process.output)

    def send_each_kind(self):
        """Send one request of each kind over the same connection."""
        get, body = self.ask('GET', self.path)
        head, _ = self.ask('HEAD', self.path)
        self.assertEqual(str(len(body)), head['Content-Length'])
        self.assertEqual(get['ETag'], head['ETag'])
        self.ask('GET', self.path, code=304, If_None_Match=get['ETag'])
        self.ask('GET', self.path, If_Match='"x"')
        self.ask('GET', self.path, b'{}')
        self.ask('OPTIONS', self.path)
        self.ask('DELETE', self.path, code=405)
        self.ask('FAKE', self.path, code=501)
        change = {'IndicatorLED': 'Lit'}
        self.ask('PATCH', self.path, change, code=412, If_Match='"x"')
        self.ask('PATCH', self.path, change, code=204, If_Match=get['ETag'])
        self.ask('PATCH', self.path, change, code=412, If_Match=get['ETag'])
        _, body = self.ask('PATCH', self.path, {'IndicatorLED': 'Off'},
                           Prefer='return=representation')
        self.assertEqual('Off', json.loads(body)['IndicatorLED'])
        self.ask('PATCH', self.path, b'{' * 100000, code=400)
        self.ask('POST', self.path, b'x' * 100000, code=405)
        self.ask('PATCH', self.path, b'text' * 1000, code=415,
                 Content_Type='text/plain')
        self.ask('GET', self.path + '?$select=Name')
        self.ask('GET', redfish_case.SYSTEMS + '?$expand=.($levels=2)')
        self.ask('GET', '/redfish/v1/Nonsense', code=404)
        self.ask('GET', self.path, code=406, Accept='text/html')


class TestWerkzeug(HttpTestCase):
    """werkzeug closes the connection after each response."""

    def test_each_kind_of_request(self):
        self.send_each_kind()
        headers, _ = self.ask('GET', self.path)
        self.assertEqual('close', headers['Connection'])

    def test_errors_of_the_server(self):
        self.send_invalid(
            (b'GET', 400), (b'GET / HTTP/1.x', 400), (b'GET / HTTP/2.0', 505),
            (b'GET http://[ HTTP/1.1', 400),
            (b'GET /' + b'x' * 70000 + b' HTTP/1.1', 414),
            (b'GET / HTTP/1.1\r\nX: ' + b'x' * 70000, 431),
            (b'GET / HTTP/1.1\r\n' + b'X: y\r\n' * 200, 431))

    def test_actions_with_the_etag_of_one_get(self):
        self.act_with_one_etag()


class TestGunicorn(HttpTestCase):

    SERVER = 'gunicorn'

    def test_each_kind_over_one_connection(self):
        """No rest of a request is taken for the next one."""
        self.send_each_kind()
        self.assertEqual(1, self.connections)

    def test_errors_of_the_server(self):
        self.send_invalid(
            (b'GET', 400), (b'GET / HTTP/1.x', 400),
            (b'GET / HTTP/1.1\r\nno header', 400),
            (b'GET / HTTP/1.1\r\nTransfer-Encoding: gzip', 400),
            (b'GET /' + b'x' * 9000 + b' HTTP/1.1', 414),
            (b'GET / HTTP/1.1\r\nX: ' + b'x' * 9000, 431),
            (b'GET / HTTP/1.1\r\n' + b'X: y\r\n' * 200, 431))

    def test_actions_with_the_etag_of_one_get(self):
        self.act_with_one_etag()


class TestConditionalChanges(base.SandboxTestCase):

    VMS = 1

    def test_one_of_simultaneous_changes_succeeds(self):
        """Of those with the same ETag, in several threads."""
        served = self.useFixture(emulator.Emulator(
            self.sandbox.bmc_account(), server='gunicorn', threads=8))
        path, = served.systems()

        def change(tag, start, codes):
            start.wait(30)
            codes.append(requests.patch(
                served.url + path, json={'AssetTag': secrets.token_hex()},
                headers={'If-Match': tag}, timeout=30).status_code)

        for _ in range(5):
            tag = served.request('GET', path, expect=200).headers['ETag']
            start, codes = threading.Barrier(6), []
            threads = [threading.Thread(target=change,
                                        args=(tag, start, codes))
                       for _ in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            self.assertEqual([204] + [412] * 5, sorted(codes))
