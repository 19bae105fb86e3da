# SPDX-License-Identifier: Apache-2.0
"""Responses that the server sends again without parsing the request.

What they depend on is checked for each, as by the application; and a request
that is not the stored one, byte for byte, is parsed.
"""

import base64
import hashlib
import random
import re
import ssl
import threading
import time
from unittest import mock

import fixtures

from kubevirt_sandbox.testing import certificates
from sushy_kubevirt.pod import certificate
from sushy_kubevirt.pod import http_connection
from sushy_kubevirt.redfish.protocol import response_cache
from sushy_kubevirt.redfish.services import server_threads
from tests.unit.pod import redfish_case
from tests.unit.redfish import base
from tests.unit.redfish import fakes

lines, readable, request = (
    redfish_case.lines, redfish_case.readable, redfish_case.request)

SYSTEM, ROOT = redfish_case.SYSTEM, redfish_case.ROOT
TIMEOUT, TIMES = redfish_case.TIMEOUT, redfish_case.TIMES


class CachedResponsesTestCase(redfish_case.ServerMixin, base.AccountsTestCase):

    def setUp(self):
        super().setUp()
        self.log = self.useFixture(
            fixtures.FakeLogger(http_connection.__name__))
        self.session = self.log_in('ReadOnly')
        token = self.session.headers['X-Auth-Token']
        self.headers = [f'X-Auth-Token: {token}']
        self.basic = lines(self.auth('ReadOnly'))

    def both(self, *headers, code=200, **options):
        """Store a response, and have it sent again; return the request."""
        data = request(*headers, **options)
        first = self.assert_again(False, data, code)
        self.assertEqual(first, self.assert_again(True, data, code))
        return data

    def test_sends_same_bytes_and_logs_the_same(self):
        for method, path in ('GET', SYSTEM), ('HEAD', SYSTEM), ('GET', ROOT):
            data = self.both(*self.headers, path=path, method=method)
            for sock in self.connect(), self.connect():
                for _ in range(3):
                    self.assert_again(True, data, sock=sock)
            self.call(lambda: None)
            self.assertEqual(8, self.log.output.count(
                f'127.0.0.1 "{method} {path} HTTP/1.1" 200\n'))

    def test_account_of_connection(self):
        data = self.both(*self.basic)
        sock = self.connect()
        self.assert_again(True, data, sock=sock)
        self.assertEqual('ReadOnly', self.connection(sock).account)
        # Also of a request that the application finds.
        for found in False, True:
            sock, before = self.connect(), len(self.sent_again)
            sock.sendall(data[:9])
            connection = self.connection(sock)
            self.wait_for(lambda: connection._parsing)
            self.assert_again(False, data[9:], sock=sock)
            self.assertEqual(found, len(self.sent_again) > before)
            self.assertEqual('ReadOnly', connection.account)

    def test_too_many_requests_of_an_account(self):
        close = request(*self.basic, 'Connection: close')
        slow = request(*self.basic, path=SYSTEM + '/Processors')
        self.ask(close)
        server, = self.servers
        server._requests = server_threads.Slots(1)
        called, go_on = threading.Event(), threading.Event()
        name = 'processors_collection'

        def view(**arguments):
            called.set()
            go_on.wait(TIMEOUT)
            return views[name](**arguments)

        views = dict(self.app.view_functions)
        with mock.patch.dict(self.app.view_functions, {name: view}):
            sock = self.connect()
            sock.sendall(slow)
            self.assertTrue(called.wait(TIMEOUT))
            self.assertIn(b'retry-after: 1', self.ask(close, 503)[0].lower())
            go_on.set()
            self.ask(b'', sock=sock)
        self.ask(close)

    def connection(self, sock):
        """Return the server's side of a connection."""
        [connection] = self.call(lambda: [
            connection for connection in self.servers[0]._connections
            if connection._peer == sock.getsockname()])
        return connection

    def test_ended_session(self):
        data = self.both(*self.headers)
        self.assertEqual(204, self.client.delete(
            self.session.headers['Location'],
            headers=self.auth('Administrator')).status_code)
        self.assert_again(False, data, 401)

    def test_session_without_use(self):
        sessions = self.app.sushy_kubevirt.services.sessions
        data = self.both(*self.headers)
        [session] = sessions.all()
        session.used -= sessions.timeout - 10
        # Which is a use.
        self.assert_again(True, data)
        self.assertLess(time.monotonic() - session.used, TIMEOUT)
        session.used -= sessions.timeout + 1
        self.assert_again(False, data, 401)

    def change(self, *roles, old='', new=''):
        self.write(*roles)
        self.accounts.write_text(
            self.accounts.read_text().replace(old, new))
        self.app.sushy_kubevirt.services.login._accounts.current(recheck=True)

    def test_changed_role(self):
        data, by_token = self.both(*self.basic), self.both(*self.headers)
        self.change('ReadOnly', old=':ReadOnly\n', new=':Operator\n')
        self.assert_again(False, data)
        self.assert_again(False, by_token, 401)

    def test_changed_password(self):
        data, by_token = self.both(*self.basic), self.both(*self.headers)
        self.change('ReadOnly', old=base._digest('ReadOnly'),
                    new=base._digest('Operator'))
        self.assert_again(False, data, 401)
        self.assert_again(False, by_token, 401)
        pair = base64.b64encode(b'ReadOnly:password of Operator').decode()
        self.assert_again(False, request(f'Authorization: Basic {pair}'))

    def test_removed_account(self):
        data, by_token = self.both(*self.basic), self.both(*self.headers)
        self.change('Administrator')
        self.assert_again(False, data, 401)
        self.assert_again(False, by_token, 401)

    def test_changed_machine(self):
        data = self.both(*self.headers)
        tag = re.search(rb'(?m)^etag: (.*)\r$', self.ask(data)[0])[1].decode()
        unchanged = self.both(*self.headers, f'If-None-Match: {tag}', code=304)
        self.machine._asset_tag = 'changed'
        self.cluster.versions[fakes.A] = 2
        self.assertIn(b'"changed"', self.assert_again(False, data))
        self.assert_again(False, unchanged)
        self.cluster.versions.clear()
        self.assert_again(False, data)

    def test_each_byte_counts(self):
        data = self.both(*self.headers, 'Accept: */*')
        for place in random.Random(7).sample(range(len(data)), 60):
            changed = bytearray(data)
            changed[place] ^= 1
            self.assertNotIn(self.thread, self.found(bytes(changed)), place)
        self.assert_again(True, data)

    def found(self, *pieces):
        """Send pieces; return the threads in which responses were found."""
        before = len(self.sent_again)
        self.exchange(*pieces)
        return self.sent_again[before:]

    def test_other_framing_is_parsed(self):
        data = self.both(*self.headers)
        for pieces in (
                (data[:20], data[20:]), (data[:-1], data[-1:]), (data + data,),
                (data + b'GET',), (b'\r\n' + data[:-4], b'\r\n\r\n'),
                (data[:-2], b'X: y\r\n\r\n'), (b'P', data)):
            self.assertNotIn(self.thread, self.found(*pieces), pieces)
            self.assert_again(True, data)

    def test_requests_that_are_not_sent_again_unparsed(self):
        for headers, options in (
                ((), {'version': '1.0'}),
                (('Connection: keep-alive',), {'version': '1.0'}),
                (('Connection: close',), {}),
                (('Connection: Upgrade', 'Upgrade: h2c'), {}),
                (('Content-Length: 2',), {}),
                (('Transfer-Encoding: chunked',), {}),
                (('Expect: 100-continue',), {}),
                ((), {'method': 'OPTIONS'}),
                ((), {'path': SYSTEM + '/none'})):
            data = request(*self.headers, *headers, **options)
            for _ in range(3):
                self.assertNotIn(self.thread, self.found(
                    data, *([b'0\r\n\r\n'] if 'chunked' in str(headers)
                            else [])), data)

    def test_split_requests(self):
        data = self.both(*self.headers)
        expected = TIMES.sub(b'', self.exchange(data))
        for place in range(1, len(data)):
            before = len(self.sent_again)
            self.assertEqual(expected, TIMES.sub(b'', self.exchange(
                data[:place], data[place:])), place)
            self.assertNotIn(self.thread, self.sent_again[before:])

    def test_no_response_before_that_of_an_earlier_request(self):
        root, data = request(path=ROOT + '?x'), self.both(*self.headers)
        expected = [self.ask(each)[0] for each in (root, data)]
        self.responses.clear()
        self.both(*self.headers)
        called, go_on = threading.Event(), threading.Event()

        def app(*args):
            called.set()
            go_on.wait(TIMEOUT)
            return self.app(*args)

        self.servers[0]._app = app
        sock = self.connect()
        sock.sendall(root)
        self.assertTrue(called.wait(TIMEOUT))
        sock.sendall(data)
        connection = self.connection(sock)
        self.wait_for(lambda: connection.pipeline or readable(sock))
        self.assertFalse(readable(sock))
        go_on.set()
        self.wait_for(self.quiet)
        self.assertEqual(b''.join(expected),
                         TIMES.sub(b'', self.read_all(sock)))

    def test_pieces_behind_a_whole_request(self):
        root, system = request(path=ROOT), request(*self.headers)
        first, _ = self.ask(root)
        sock = self.connect()
        data = request(path=ROOT + '?x')
        self.assert_again(False, data, sock=sock)
        sock.sendall(system[:20])
        connection = self.connection(sock)
        self.wait_for(lambda: connection._parsing)
        self.assert_again(False, system[20:], sock=sock)
        self.assertEqual(first, self.ask(data)[0])
        self.assertEqual(first, self.ask(root)[0])

    def test_parsed_requests_are_found_by_the_application(self):
        data = request(*self.headers, 'Connection: close')
        self.assertEqual([], self.found(data))
        self.assertEqual(1, len(self.found(data)))
        self.assertEqual(1, len(self.found(data[:9], data[9:])))

    def test_bare_line_feeds_end_no_request(self):
        """Otherwise two requests could be taken for one."""
        data = request(*self.headers)
        for end in b'\n\n', b'\r\n\n', b'\n\r\n', b'\r\r', b'\r\r\n':
            for _ in range(2):
                self.assertEqual(1, self.exchange(
                    data[:-4] + end + data).count(b'HTTP/1.1 '), end)
                self.assertNotIn(self.thread, self.sent_again)

    def test_long_heads(self):
        for size, code in (2 ** 13, 200), (2 ** 15, 431):
            data = request(*self.headers, f'X: {"x" * size}')
            self.assertLess(len(data), 2 ** 15 + 300)
            for again in False, code == 200:
                self.assert_again(again, data, code)

    def test_no_response_while_others_are_unread(self):
        data = self.both(*self.headers)
        sock = self.connect()
        self.assert_again(True, data, sock=sock)
        connection = self.connection(sock)
        self.call(connection.pause_writing)
        before = len(self.sent_again)
        sock.sendall(data)
        self.wait_for(lambda: connection.cycle)
        self.assertFalse(readable(sock))
        self.call(connection.resume_writing)
        self.assertTrue(sock.recv(100))
        self.assertNotIn(self.thread, self.sent_again[before:])

    def test_idle_connection_is_closed(self):
        data = self.both(*self.headers)
        self.useFixture(fixtures.MockPatchObject(
            http_connection, 'SEND_SECONDS', 0.1))
        self.useFixture(fixtures.MockPatchObject(
            http_connection, 'REQUEST_SECONDS', 2 * TIMEOUT))
        sock = self.connect()
        self.assert_again(True, data, sock=sock)
        self.assertEqual(b'', sock.recv(1))

    def test_time_limit_of_the_next_request(self):
        data = self.both(*self.headers)
        sock = self.connect()
        self.assert_again(True, data, sock=sock)
        connection = self.connection(sock)
        sock.sendall(data[:20])
        self.wait_for(lambda: connection._parsing)
        self.assertAlmostEqual(http_connection.REQUEST_SECONDS,
                               connection.end - connection.since)


class SchemeTestCase(redfish_case.ServerMixin, base.RedfishTestCase):

    def test_host(self):
        for again in False, True:
            self.assert_again(again, request())
            self.assert_again(False, request(host='attacker.test'), 421)

    def test_scheme(self):
        made = certificates.make(['localhost'])
        folder = self.useFixture(fixtures.TempDir())
        files = [folder.join(name) for name in ('crt', 'key')]
        for file, content in zip(files, (made.certificate, made.key)):
            with open(file, 'wb') as stream:
                stream.write(content)
        self.servers.append(self.server(certificate.Certificate(*files)))
        context = ssl.create_default_context(cadata=made.ca.decode())
        tls = context.wrap_socket(self.connect(self.servers[1]),
                                  server_hostname='localhost')
        data = request(host='127.0.0.1')
        for again in False, True:
            self.assertNotIn(b'\nstrict-transport',
                             self.assert_again(again, data))
            self.assertIn(b'\nstrict-transport',
                          self.assert_again(again, data, sock=tls))
        # Of the parsed request, too.
        data = request('Connection: close', host='127.0.0.1')
        self.assertNotIn(b'\nstrict-transport', self.ask(data)[0])
        self.assertIn(b'\nstrict-transport', self.ask(data, sock=tls)[0])


class HostileRequestsTestCase(redfish_case.ServerMixin, base.AccountsTestCase):
    """Requests like stored ones get the answer of an empty cache."""

    SEED, COUNT = 7, 150

    def setUp(self):
        super().setUp()
        self.random = random.Random(self.SEED)
        token = lines(self.token('ReadOnly'))
        self.stored = [
            request(*token), request(*token, method='HEAD'),
            request(*token, 'If-None-Match: *'), request(path=ROOT),
            request(*token, 'Accept: application/json', 'X-Y: z'),
            request(*token, path=SYSTEM + '?$select=Name')]

    def mutate(self, data):
        """Return the pieces of a request that resembles another."""
        for _ in range(self.random.choice((0, 1, 1, 1, 2, 3))):
            data = self.random.choice((
                self.replace, self.insert, self.remove, self.move_line,
                self.repeat_line, self.swap_case, self.append))(data)
        if self.random.random() < 0.2:
            place = self.random.randint(0, len(data))
            return data[:place], data[place:]
        return data,

    def replace(self, data):
        place = self.random.randrange(len(data))
        return data[:place] + self.byte() + data[place + 1:]

    def insert(self, data):
        place = self.random.randrange(len(data))
        return data[:place] + self.byte() + data[place:]

    def byte(self):
        return self.random.choice((
            b'\r\n', b'\n', b'\r', b' ', b'\t', b':', b'\0', b',', b'%', b'/',
            bytes((self.random.randrange(256),))))

    def remove(self, data):
        begin = self.random.randrange(len(data))
        return data[:begin] + data[begin + self.random.choice((1, 1, 2, 20)):]

    def move_line(self, data):
        parts = data.split(b'\r\n')
        part = parts.pop(self.random.randrange(len(parts)))
        parts.insert(self.random.randint(0, len(parts)), part)
        return b'\r\n'.join(parts)

    def repeat_line(self, data):
        parts = data.split(b'\r\n')
        parts.insert(self.random.randint(0, len(parts)),
                     self.random.choice((*parts, *self.HEADERS)))
        return b'\r\n'.join(parts)

    HEADERS = (b'Connection: close', b'Content-Length: 0',
               b'Content-Length: 5', b'Transfer-Encoding: chunked',
               b'Host: x', b'Upgrade: h2c', b'Connection: keep-alive',
               b'Expect: 100-continue', b'If-None-Match: "x"',
               b'X-Auth-Token: x')

    def swap_case(self, data):
        begin = self.random.randrange(len(data))
        end = begin + self.random.choice((1, 4, 16))
        return data[:begin] + data[begin:end].swapcase() + data[end:]

    def append(self, data):
        return data + self.random.choice((
            b'\r\n', b'x', b'GET', self.random.choice(self.stored)))

    def test_answers_are_those_of_an_empty_cache(self):
        for data in self.stored:
            self.exchange(data)
        answered = 0
        for number in range(self.COUNT):
            pieces = self.mutate(self.random.choice(self.stored))
            answered += bool(self.check(number, *pieces))
        self.assertGreater(answered, self.COUNT // 2)
        self.assertIn(self.thread, self.sent_again)

    def check(self, hint, *pieces):
        """Send pieces with an empty cache and without; return the answer."""
        self.exchange(*pieces)
        warm = TIMES.sub(b'', self.exchange(*pieces))
        with mock.patch.object(self.responses, 'find', return_value=None):
            cold = TIMES.sub(b'', self.exchange(*pieces))
        self.assertEqual(cold, warm, (hint, pieces))
        return cold

    def test_several_requests(self):
        data, *others = self.stored
        for count, *pieces in (
                (3, data * 3), (3, data, data, data), (2, data + others[0]),
                (2, data + others[0][:9], others[0][9:]),
                (2, data, b'\r\n' + data), (3, data + data, data),
                (1, data, b'G'), (2, data, b'x'),
                (2, data, b'?\r\n\r\n', data)):
            self.assertEqual(count, self.check(count, *pieces).count(
                b'HTTP/1.1 '), pieces)

    def test_repeated_and_contradictory_headers(self):
        first, host, *rest = self.stored[0].split(b'\r\n')
        for line in (*rest[:-2], *self.HEADERS, b'Host: localhost',
                     b'Authorization: Basic eDp4', b'Content-Length: 00',
                     b'Content-Length: +0', b'Content-Length: 0, 0',
                     b'Connection: keep-alive, close', b' folded', b'X : y'):
            for parts in (line, host, *rest), (host, *rest[:-2], line, b'',
                                               b''):
                data = b'\r\n'.join((first, *parts))
                self.check(line, data)
                self.check(line, data, b'12345')
                self.check(line, data + b'12345')


class DigestTestCase(redfish_case.ServerMixin, base.RedfishTestCase):

    def test_is_of_scheme_and_bytes(self):
        data = request()
        digests = {response_cache.digest('http', data),
                   response_cache.digest('https', data),
                   response_cache.digest('http', data[:-1])}
        self.assertEqual(3, len(digests))
        self.assertEqual({32}, set(map(len, digests)))
        # They contain passwords, and cannot be guessed from outside.
        self.assertNotIn(hashlib.blake2b(
            b'http:' + data, digest_size=32).digest(), digests)
