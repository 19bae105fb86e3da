# SPDX-License-Identifier: Apache-2.0
import asyncio
from asyncio import sslproto
import contextlib
from http import client
import json
import pathlib
import queue
import socket
import ssl
import struct
import tempfile
import threading
import time
import types
from unittest import mock

import fixtures
from oslotest import base

from kubevirt_sandbox.testing import certificates
from sushy_kubevirt.machine.media import upload_stream
from sushy_kubevirt.pod import certificate
from sushy_kubevirt.pod import fairness
from sushy_kubevirt.pod import http_connection
from sushy_kubevirt.pod import http_server
from sushy_kubevirt.pod import redfish_probe
from sushy_kubevirt.pod import request_body
from sushy_kubevirt.redfish.protocol import authentication
from sushy_kubevirt.redfish.protocol import http_framing
from sushy_kubevirt.redfish.protocol import response_cache
from sushy_kubevirt.redfish.protocol import websocket
from sushy_kubevirt.redfish.services import server_threads

TIMEOUT = 30

GET = b'GET /x HTTP/1.1\r\nHost: x\r\n\r\n'
LOGIN = b'GET /login/%s HTTP/1.1\r\nHost: x\r\n\r\n'


def cached_response(body, path='/x'):
    """Return what `Server.find` finds for a GET of a path."""
    headers = [('Content-Length', str(len(body)))]
    return response_cache.Response(
        '200 OK', headers, http_framing.lines(headers), body, {
            'REQUEST_METHOD': 'GET', 'REQUEST_URI': path,
            'SERVER_PROTOCOL': 'HTTP/1.1'},
        types.SimpleNamespace(account=None, rule=path))


class Application:
    """WSGI application whose behaviour depends on the path."""

    def __init__(self):
        self.unblock = threading.Event()
        self.called = threading.Semaphore(0)
        self.ended = threading.Semaphore(0)
        #: Of a body that is read piece by piece: numbers of bytes, 0 at its
        #: end; or the exception that ended it.
        self.pieces = queue.SimpleQueue()
        #: Function of the path of each request.
        self.observe = len
        self.environs = []

    def __call__(self, environ, start_response):
        path = environ['PATH_INFO']
        self.environs.append(environ)
        self.observe(path)
        length = environ.get('CONTENT_LENGTH', '')
        if path.startswith('/login/'):
            self.admitted = environ[authentication.IDENTIFY](
                path.split('/')[2])
        self.called.release()
        if path in ('/wait', '/receive later', '/login/slow'):
            self.unblock.wait(TIMEOUT)
        if path.startswith('/receive'):
            self.receive(environ['wsgi.input'])
        if path == '/receive and wait':
            self.unblock.wait(TIMEOUT)
        if path == '/refuse':
            length = ''
        if path == '/fail':
            raise ValueError('secret')
        if path in ('/websocket', '/websocket-later'):
            if path.endswith('later'):
                self.unblock.wait(TIMEOUT)
            environ[websocket.UPGRADES].append(types.SimpleNamespace(
                connect=websocket.WebSocket, run=self.serve))
            start_response('101 Switching Protocols', [])
            return ()
        self.nodelay = environ['sushy_kubevirt.socket'].getsockopt(
            socket.IPPROTO_TCP, socket.TCP_NODELAY)
        kind = ('text/event-stream; charset=utf-8'
                if path.startswith('/stream') else 'application/json')
        start_response('200 OK', [('Content-Type', kind)])
        if path.startswith('/stream'):
            return self.stream(path)
        if path == '/large':
            return [b'x' * 65536] * 1000
        return [json.dumps({
            'path': path, 'scheme': environ['wsgi.url_scheme'],
            'body': environ['wsgi.input'].read(
                int(length) if length.isdecimal() else 0).decode(),
        }).encode()]

    async def serve(self, connection):
        """Send each message back; say why at the end."""
        end = 1000, 'the end'
        try:
            while (data := await connection.receive()) is not None:
                await connection.send(data)
        except asyncio.CancelledError:
            end = 1001, 'stopping'
        await connection.end(*end)
        self.ended.release()

    def receive(self, body):
        try:
            while (piece := len(body.read(65536))):
                self.pieces.put(piece)
            self.pieces.put(0)
        except ConnectionError as exc:
            self.pieces.put(exc)

    def stream(self, path):
        while not self.unblock.is_set():
            yield b': \n'
            if path.endswith('fails'):
                raise ValueError('secret')
            self.unblock.wait(0.05)


def frame(kind, data):
    """Make a client's frame (RFC 6455, section 5.2), with a mask of zeros."""
    return bytes((kind, 0x80 | len(data))) + bytes(4) + data


def run(*servers):
    """Serve until all servers were stopped."""
    async def serve():
        await asyncio.gather(*(server.run() for server in servers))

    asyncio.run(serve())


class HttpServerTestCase(base.BaseTestCase):

    CERTIFICATE = None

    def setUp(self):
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger())
        self.app = Application()
        self.server = http_server.Server('127.0.0.1', 0, self.app,
                                         self.CERTIFICATE)
        self.thread = threading.Thread(target=run,
                                       args=(self.server,))
        self.thread.start()
        self.addCleanup(self.end)

    def end(self):
        self.app.unblock.set()
        self.server.stop()
        self.thread.join(TIMEOUT)
        self.assertFalse(self.thread.is_alive())

    def set(self, name, value):
        module, = (one for one in (fairness, http_connection, http_server,
                                   request_body) if hasattr(one, name))
        self.useFixture(fixtures.MockPatchObject(module, name, value))

    def connect(self, source='127.0.0.1'):
        found = socket.create_connection(
            ('127.0.0.1', self.server.port), timeout=TIMEOUT,
            source_address=(source, 0))
        self.addCleanup(found.close)
        return found

    def send(self, *pieces):
        sock = self.connect()
        for piece in pieces:
            sock.sendall(piece)
        return sock

    def receiving(self, path=b'/receive', length=2 ** 30):
        self.set('_MAX_BODY_BYTES', 3)
        return self.send(b'POST %s HTTP/1.1\r\nHost: x\r\n'
                         b'Content-Length: %d\r\n\r\n'
                         % (path.replace(b' ', b'%20'), length))

    def answer(self, sock):
        """Read a response; return (status code, body)."""
        response = client.HTTPResponse(sock)
        response.begin()
        return response.status, response.read()

    def get(self, path='/x'):
        return self.answer(self.send(
            b'GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n'
            % path.encode()))

    def upgrade(self, path, behind=b''):
        """Send an upgrade request, and what is behind it at once."""
        return self.send(
            b'GET %s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n'
            b'Upgrade: websocket\r\n\r\n%s' % (path.encode(), behind))

    def accepted(self, sock):
        head = b''
        while not head.endswith(b'\r\n\r\n'):
            head += sock.recv(1)
        self.assertTrue(head.startswith(b'HTTP/1.1 101 '), head)

    def assert_closed(self, sock):
        try:
            self.assertEqual(b'', sock.recv(1))
        except ConnectionResetError:
            pass

    def wait_for(self, condition):
        end = time.monotonic() + TIMEOUT
        while not condition():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.005)


class RequestTestCase(HttpServerTestCase):

    def test_makes_no_dns_query(self):
        with mock.patch('socket.getfqdn', side_effect=AssertionError):
            http_server.Server('127.0.0.1', 0, self.app).socket.close()

    def test_serves_get_request(self):
        code, body = self.get()
        self.assertEqual(200, code)
        self.assertIn(b'"scheme": "http"', body)
        self.assertIn('127.0.0.1 "GET /x HTTP/1.1" 200', self.log.output)
        self.wait_for(lambda: self.server.connections == 0)

    def test_body_does_not_wait_for_acknowledgement_of_header(self):
        self.get()
        self.assertTrue(self.app.nodelay)

    def test_body_in_pieces(self):
        sock = self.send(b'POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 4'
                         b'\r\n\r\n', b'ab', b'cd')
        self.assertIn(b'"body": "abcd"', self.answer(sock)[1])

    def test_chunked_body(self):
        sock = self.send(b'POST /x HTTP/1.1\r\nHost: x\r\n'
                         b'Transfer-Encoding: chunked\r\n\r\n',
                         b'4\r\nabcd\r\n0\r\n\r\n')
        self.assertEqual(200, self.answer(sock)[0])

    def test_answers_expect_100_continue(self):
        sock = self.send(b'POST /x HTTP/1.1\r\nHost: x\r\n'
                         b'Content-Length: 4\r\nExpect: 100-continue\r\n\r\n')
        self.assertEqual(b'HTTP/1.1 100 Continue\r\n\r\n',
                         sock.recv(100).partition(b'\r\n\r\n')[0]
                         + b'\r\n\r\n')
        sock.sendall(b'abcd')
        self.assertIn(b'"body": "abcd"', self.answer(sock)[1])

    def test_malformed_bodies_cause_no_traceback(self):
        for head, body in ((b'Content-Length: -1', b''),
                           (b'Content-Length: \xb2', b''),
                           (b'Content-Length: x', b''),
                           (b'Transfer-Encoding: chunked', b'no chunk\r\n')):
            sock = self.send(b'POST /x HTTP/1.1\r\nHost: x\r\n' + head
                             + b'\r\n\r\n' + body)
            sock.shutdown(socket.SHUT_WR)
            sock.makefile('rb').read()
        self.assertEqual(200, self.get()[0])
        self.assertNotIn('Traceback', self.log.output)

    def test_long_body_is_not_read(self):
        # The application, which refuses it, is called before it arrives.
        self.set('_MAX_BODY_BYTES', 3)
        sock = self.send(b'POST /refuse HTTP/1.1\r\nHost: x\r\n'
                         b'Content-Length: 4\r\nExpect: 100-continue\r\n\r\n')
        self.assertIn(b'"body": ""', self.answer(sock)[1])
        # The rest does not arrive.
        self.assert_closed(sock)

    def test_discards_unread_body(self):
        self.set('_MAX_BODY_BYTES', 3)
        body = b'x' * 2 ** 20
        for head, data in ((b'Content-Length: %d' % len(body), body),
                           (b'Transfer-Encoding: chunked',
                            b'%x\r\n%s\r\n0\r\n\r\n' % (len(body), body))):
            sock = self.send(b'POST /refuse HTTP/1.1\r\nHost: x\r\n'
                             b'%s\r\n\r\n' % head, data)
            self.assertEqual(200, self.answer(sock)[0])
            # The next request begins behind it.
            sock.sendall(b'GET /y HTTP/1.1\r\nHost: x\r\n\r\n')
            self.assertIn(b'/y', self.answer(sock)[1])

    def test_long_body_is_passed_on_while_it_arrives(self):
        # Neither do the deadlines of other requests apply to it.
        self.set('REQUEST_SECONDS', 0.2)
        sock = self.receiving(length=6)
        for piece in (b'ab', b'c', b'def'):
            self.assertTrue(self.app.pieces.empty())
            sock.sendall(piece)
            self.assertEqual(len(piece), self.app.pieces.get(timeout=TIMEOUT))
        self.assertEqual(200, self.answer(sock)[0])
        self.assertEqual(0, self.app.pieces.get(timeout=TIMEOUT))
        sock.sendall(b'GET /y HTTP/1.1\r\nHost: x\r\n\r\n')
        self.assertIn(b'/y', self.answer(sock)[1])

    def test_long_chunked_body_is_passed_on(self):
        self.set('_MAX_BODY_BYTES', 3)
        sock = self.send(b'POST /receive HTTP/1.1\r\nHost: x\r\n'
                         b'Transfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n')
        self.assertEqual(4, self.app.pieces.get(timeout=TIMEOUT))
        sock.sendall(b'5\r\nabcde\r\n0\r\n\r\n')
        self.assertEqual(200, self.answer(sock)[0])
        self.assertEqual(5, self.app.pieces.get(timeout=TIMEOUT))

    def test_long_body_waits_until_it_is_read(self):
        sock = self.receiving(b'/receive later')
        self.assertTrue(self.app.called.acquire(timeout=TIMEOUT))
        sock.settimeout(0.5)
        sent = 0
        with contextlib.suppress(TimeoutError):
            while sent < 2 ** 30:
                sent += sock.send(bytes(2 ** 20))
        # In buffers of the kernel, most of it.
        self.assertLess(sent, 2 ** 24)
        self.app.unblock.set()
        while sent:
            sent -= self.app.pieces.get(timeout=TIMEOUT)

    def test_cdi_has_time_for_a_long_body(self):
        sock = self.receiving(b'/receive and wait', 4)
        sock.sendall(b'abcd')
        for piece in (4, 0):
            self.assertEqual(piece, self.app.pieces.get(timeout=TIMEOUT))
        [one] = self.server._connections
        self.assertGreater(one.end - one.since, upload_stream.ANSWER_SECONDS)
        self.app.unblock.set()
        self.assertEqual(200, self.answer(sock)[0])

    def test_client_that_stops_sending_a_long_body(self):
        self.set('_PIECE_SECONDS', 0.2)
        sock = self.receiving()
        sock.sendall(b'abcd')
        self.assert_closed(sock)
        self.assertEqual(4, self.app.pieces.get(timeout=TIMEOUT))
        self.assertIsInstance(self.app.pieces.get(timeout=TIMEOUT),
                              ConnectionError)

    def test_client_that_disconnects_within_a_long_body(self):
        sock = self.receiving()
        sock.sendall(b'abcd')
        self.assertEqual(4, self.app.pieces.get(timeout=TIMEOUT))
        sock.close()
        self.assertIsInstance(self.app.pieces.get(timeout=TIMEOUT),
                              ConnectionError)

    def test_stop_ends_a_long_body(self):
        sock = self.receiving()
        sock.sendall(b'abcd')
        self.assertEqual(4, self.app.pieces.get(timeout=TIMEOUT))
        self.server.stop()
        self.assertIsInstance(self.app.pieces.get(timeout=TIMEOUT),
                              ConnectionError)

    def test_other_connections_make_way_for_a_long_body(self):
        self.server._max_connections = 2
        idle = self.send(b'GET /x HTTP/1.1\r\nHost: x\r\n\r\n')
        self.answer(idle)
        sock = self.receiving(length=8)
        sock.sendall(b'abcd')
        self.assertEqual(4, self.app.pieces.get(timeout=TIMEOUT))
        self.assertEqual(200, self.get()[0])
        self.assert_closed(idle)
        sock.sendall(b'efgh')
        self.assertEqual(200, self.answer(sock)[0])

    def test_limits_request_head(self):
        line = b'X: ' + b'x' * 2000 + b'\r\n'
        self.assertEqual(200, self.answer(self.send(
            b'GET /x HTTP/1.1\r\nHost: x\r\n' + line * 8 + b'\r\n'))[0])
        for head, code in ((b'GET /x HTTP/1.1\r\n' + line * 20, 431),
                           (b'GET /x HTTP/1.1\r\nX: ' + b'x' * 50000, 431),
                           (b'GET /' + b'x' * 50000, 414)):
            self.assert_refused(code, head)
        # The limit counts lines of chunks as well.
        chunked = (b'POST /x HTTP/1.1\r\nHost: x\r\n'
                   b'Transfer-Encoding: chunked\r\n\r\n')
        sock = self.send(chunked, b'1\r\nx\r\n' * 2 ** 15)
        self.assertEqual(431, self.answer(sock)[0])
        self.assert_closed(sock)
        self.assert_refused(
            431, chunked + b'0\r\n' + b'X: y\r\n' * 200 + b'\r\n')
        self.assertNotIn('Traceback', self.log.output)
        self.assertEqual(200, self.get()[0])

    def test_truncated_chunk_closes_connection(self):
        # Werkzeug would return uninitialized memory instead.
        for number in 4, 40, 10 ** 6:
            sock = self.send(b'POST /x HTTP/1.1\r\nHost: x\r\n'
                             b'Transfer-Encoding: chunked\r\n\r\n'
                             b'%x\r\nabc' % number)
            sock.shutdown(socket.SHUT_WR)
            self.assert_closed(sock)
            self.assertFalse(self.app.called.acquire(blocking=False))

    def assert_refused(self, code, head):
        """Check that a request is answered with a Redfish error."""
        found, body = self.answer(self.send(head))
        self.assertEqual(code, found, head[:60])
        error = json.loads(body)['error']
        [entry] = error['@Message.ExtendedInfo']
        self.assertIn(entry['Message'], error['message'])

    def test_rejects_invalid_requests_before_application(self):
        for head, code in (
                (b'POST /x HTTP/1.1\r\nContent-Length: ' + b'9' * 5000, 413),
                (b'GET http://[ HTTP/1.1', 400),
                (b'GET', 400), (b'GET /x /y HTTP/1.1\r\nHost: x', 400),
                (b'GET /x HTTP/1.x', 400), (b'POST /x', 400),
                (b'GET /x HTTP/2.0', 505), (b'MADEUP /x HTTP/1.1', 501),
                (b'MADEUP /x', 400),
                (b'GET /x HTTP/1.1\r\nHost: x\r\n' + b'X: y\r\n' * 200, 431)):
            self.assert_refused(code, head + b'\r\n\r\n')
        self.assertFalse(self.app.called.acquire(blocking=False))
        self.assertNotIn('Traceback', self.log.output)

    def test_exception_in_application_gets_500(self):
        code, body = self.get('/fail')
        self.assertEqual(500, code)
        self.assertNotIn(b'secret', body)
        self.assertEqual(200, self.get()[0])

    def test_server_header_has_no_version(self):
        sock = self.send(b'GET / HTTP/1.1\r\nHost: x\r\n'
                         b'Connection: close\r\n\r\n')
        self.assertIn(b'\r\nserver: sushy-kubevirt\r\n',
                      sock.makefile('rb').read())

    def test_control_characters_are_refused_and_not_logged(self):
        for character in '\x1b', '\x9b', '\x7f':
            self.assert_refused(400, b'GET /%s[31m HTTP/1.1\r\nHost: x\r\n\r\n'
                                % character.encode('latin-1'))
            self.assertNotIn(character, self.log.output)

    def test_keeps_connection(self):
        sock = self.connect()
        for number in range(3):
            sock.sendall(b'GET /%d HTTP/1.1\r\nHost: x\r\n\r\n' % number)
            self.assertIn(b'/%d' % number, self.answer(sock)[1])
        sock.sendall(b'GET /a HTTP/1.1\r\nHost: x\r\n\r\n'
                     b'GET /b HTTP/1.1\r\nHost: x\r\n\r\n')
        received = b''
        while b'/b' not in received:
            received += sock.recv(4096)
        self.assertLess(received.index(b'/a'), received.index(b'/b'))
        self.assertEqual(1, self.server.connections)

    def test_http_1_0_closes_connection(self):
        sock = self.send(b'GET /x HTTP/1.0\r\n\r\n')
        self.assertEqual(200, self.answer(sock)[0])
        self.assert_closed(sock)

    def test_underscores_in_header_names_are_ignored(self):
        self.answer(self.send(
            b'GET /a%2Fb%C3%A9?c=%20 HTTP/1.1\r\nHost: x\r\n'
            b'X_Y: 1\r\nX-Y: 2\r\n'
            b'x-y: 3\r\nContent-Type: t\r\n\r\n'))
        [environ] = self.app.environs
        self.assertEqual(
            ['2,3', 't', '/a/b\xc3\xa9', 'c=%20', '/a%2Fb%C3%A9?c=%20'],
            [environ[name] for name in (
                'HTTP_X_Y', 'CONTENT_TYPE', 'PATH_INFO', 'QUERY_STRING',
                'REQUEST_URI')])

    def test_known_response_is_sent_without_application(self):
        self.server.find = {response_cache.digest(
            'http', GET.replace(b'/x', b'/known')):
                cached_response(b'{}', '/known')}.get
        sock = self.connect()
        for path in '/known', '/x', '/known', '/known':
            sock.sendall(b'GET %s HTTP/1.1\r\nHost: x\r\n\r\n' % path.encode())
            code, body = self.answer(sock)
            self.assertEqual(path == '/known', body == b'{}')
        self.assertTrue(self.app.called.acquire(blocking=False))
        self.assertFalse(self.app.called.acquire(blocking=False))
        # The last line may be written after the response.
        self.wait_for(lambda: 3 == self.log.output.count(
            '"GET /known HTTP/1.1" 200'))
        # Behind a request that the application has not answered yet.
        sock.sendall(b'GET /wait HTTP/1.1\r\nHost: x\r\n\r\n')
        self.assertTrue(self.app.called.acquire(timeout=TIMEOUT))
        sock.sendall(b'GET /known HTTP/1.1\r\nHost: x\r\n\r\n')
        [connection] = self.server._connections
        self.wait_for(lambda: connection.pipeline)
        self.app.unblock.set()
        self.assertIn(b'/wait', self.answer(sock)[1])

    def test_request_for_another_protocol_closes_connection(self):
        """A client that asked for HTTP/2 may send its next request."""
        sock = self.send(
            b'GET /x HTTP/1.1\r\nHost: x\r\n'
            b'Connection: Upgrade, HTTP2-Settings\r\n'
            b'Upgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n')
        answer = client.HTTPResponse(sock)
        answer.begin()
        self.assertEqual(200, answer.status)
        self.assertEqual('close', answer.getheader('Connection'))
        answer.read()
        self.assert_closed(sock)
        # Its response is not stored for requests that are not parsed.
        [environ] = self.app.environs
        self.assertNotIn(response_cache.DIGEST, environ)

    def test_websocket_reads_what_came_with_the_request(self):
        sock = self.upgrade('/websocket', frame(0x81, b'one'))
        self.accepted(sock)
        # As a binary message, since the service sends bytes.
        self.assertEqual(b'\x82\x03one', sock.recv(100))
        sock.sendall(frame(0x82, b'two'))
        self.assertEqual(b'\x82\x03two', sock.recv(100))
        sock.sendall(frame(0x88, b''))
        self.assertEqual(b'\x88\x00', sock.recv(100))
        sock.close()
        self.wait_for(lambda: self.server.connections == 0)

    def test_websocket_ends_with_the_server(self):
        sock = self.upgrade('/websocket')
        self.accepted(sock)
        self.server.stop()
        self.assertEqual(b'\x88\x0a\x03\xe9stopping', sock.recv(100))
        sock.close()
        self.thread.join(TIMEOUT)
        self.assertNotIn('were not completed', self.log.output)

    def test_flood_before_websocket_is_accepted(self):
        sock = self.upgrade('/websocket-later')
        self.assertTrue(self.app.called.acquire(timeout=TIMEOUT))
        with contextlib.suppress(ConnectionError):
            for _ in range(50):
                sock.sendall(bytes(2 ** 16))
        self.wait_for(lambda: self.server.connections == 0)

    def test_slow_request_delays_no_other(self):
        busy = [self.send(b'GET /wait HTTP/1.1\r\nHost: x\r\n\r\n')
                for _ in range(20)]
        for _ in busy:
            self.assertTrue(self.app.called.acquire(timeout=TIMEOUT))
        self.assertEqual(200, self.get()[0])

    def test_probes_are_not_logged(self):
        probe = redfish_probe.Probe('127.0.0.1', self.server.port, False)
        self.assertEqual('', probe.ready())
        self.assertEqual('', self.log.output)


class CountTestCase(HttpServerTestCase):
    """Which responses are counted; see also test_metrics.py."""

    def setUp(self):
        super().setUp()
        self.counted = []
        self.server.count = lambda *values: self.counted.append(values)

    def assert_counted(self, *expected):
        """Check what was counted when no request is in progress any more."""
        self.wait_for(lambda: not self.server.connections
                      and not self.server.state.tasks)
        self.assertEqual(list(expected), self.counted)

    def test_stream(self):
        sock = self.send(GET.replace(b'/x', b'/stream'))
        self.assertEqual(b'H', sock.recv(1))
        self.app.unblock.set()
        sock.close()
        self.assert_counted((None, 'GET', 200))

    def test_stream_that_fails(self):
        sock = self.send(GET.replace(b'/x', b'/stream-fails'))
        received = sock.makefile('rb').read()
        self.assertTrue(received.endswith(b'\r\n3\r\n: \n\r\n'), received)
        self.assert_counted((None, 'GET', 200))

    def test_websocket(self):
        sock = self.upgrade('/websocket')
        self.accepted(sock)
        sock.close()
        self.assert_counted((None, 'GET', 101))

    def test_refused_request(self):
        """Without a slot, or without a thread."""
        self.server._requests = server_threads.Slots(0)
        self.assertEqual(503, self.get()[0])
        self.server._requests = server_threads.Slots(1)
        with mock.patch.object(http_server._thread, 'start_new_thread',
                               side_effect=RuntimeError('no thread')):
            self.assertEqual(503, self.get()[0])
        self.assert_counted(*[(None, 'GET', 503)] * 2)

    def answer_nobody(self):
        """Let the application answer a request whose client has gone."""
        self.wait_for(lambda: not self.server.connections)
        self.assertEqual(1, len(self.server.state.tasks))
        self.app.unblock.set()
        self.assert_counted()

    def test_client_that_has_gone(self):
        for path in '/wait', '/websocket-later':
            sock = self.upgrade(path)
            self.assertTrue(self.app.called.acquire(timeout=TIMEOUT))
            sock.close()
            self.answer_nobody()
            self.app.unblock.clear()

    def test_time_limit(self):
        self.set('ANSWER_SECONDS', 0.1)
        sock = self.send(GET.replace(b'/x', b'/wait'))
        self.assert_closed(sock)
        self.answer_nobody()

    def test_long_body_that_turns_out_invalid(self):
        self.set('_MAX_BODY_BYTES', 3)
        sock = self.send(b'POST /receive HTTP/1.1\r\nHost: x\r\n'
                         b'Transfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n')
        self.assertEqual(4, self.app.pieces.get(timeout=TIMEOUT))
        sock.sendall(b'no chunk\r\n')
        self.assertEqual(400, self.answer(sock)[0])
        self.assertIsInstance(self.app.pieces.get(timeout=TIMEOUT),
                              ConnectionError)
        sock.close()
        self.assert_counted((None, None, 400))
        self.assertIn('"POST /receive HTTP/1.1" 200', self.log.output)

    def test_known_response(self):
        self.server.find = lambda digest: cached_response(b'{}', '/known')
        sock = self.send(GET)
        self.answer(sock)
        sock.close()
        self.assert_counted(('/known', 'GET', 200))


class LimitsTestCase(HttpServerTestCase):

    def test_disconnects_silent_client(self):
        self.set('REQUEST_SECONDS', 0.1)
        self.assert_closed(self.connect())

    def test_disconnects_client_that_sends_head_slowly(self):
        self.set('REQUEST_SECONDS', 0.3)
        sock = self.connect()
        begin = time.monotonic()
        try:
            while time.monotonic() - begin < TIMEOUT:
                sock.sendall(b'x')
                time.sleep(0.02)
        except OSError:
            pass
        self.assertLess(time.monotonic() - begin, TIMEOUT)

    def test_disconnects_client_that_does_not_send_body(self):
        self.set('REQUEST_SECONDS', 0.2)
        sock = self.send(b'POST /x HTTP/1.1\r\nHost: x\r\n'
                         b'Content-Length: 9\r\n\r\nab')
        self.assert_closed(sock)
        # The application was not called.
        self.assertFalse(self.app.called.acquire(blocking=False))

    def test_truncated_body_closes_connection(self):
        sock = self.send(b'POST /x HTTP/1.1\r\nHost: x\r\n'
                         b'Content-Length: 9\r\n\r\nab')
        sock.shutdown(socket.SHUT_WR)
        self.assert_closed(sock)
        self.assertFalse(self.app.called.acquire(blocking=False))

    def test_request_timeout_does_not_apply_to_response(self):
        self.set('REQUEST_SECONDS', 1)
        sock = self.send(b'GET /wait HTTP/1.1\r\nHost: x\r\n\r\n')
        self.assertTrue(self.app.called.acquire(timeout=TIMEOUT))
        time.sleep(1.2)
        self.app.unblock.set()
        self.assertEqual(200, self.answer(sock)[0])

    def test_slow_response_closes_connection(self):
        self.set('ANSWER_SECONDS', 0.1)
        sock = self.send(b'GET /wait HTTP/1.1\r\nHost: x\r\n\r\n')
        self.assert_closed(sock)

    def test_timeouts_do_not_apply_to_streams(self):
        self.set('ANSWER_SECONDS', 1)
        self.set('REQUEST_SECONDS', 1)
        sock = self.send(b'GET /stream HTTP/1.1\r\nHost: x\r\n\r\n')
        # About 30 lines, fewer on a busy machine.
        time.sleep(1.5)
        self.app.unblock.set()
        self.assertGreater(self.answer(sock)[1].count(b': \n'), 5)

    def test_closes_oldest_idle_connection_above_limit(self):
        self.set('MAX_CONNECTIONS', 3)
        busy = self.send(b'GET /wait HTTP/1.1\r\nHost: x\r\n\r\n')
        self.assertTrue(self.app.called.acquire(timeout=TIMEOUT))
        silent = [self.connect() for _ in range(2)]
        self.wait_for(lambda: self.server.connections == 3)
        self.assertEqual(200, self.get()[0])
        self.assert_closed(silent[0])
        self.app.unblock.set()
        self.assertEqual(200, self.answer(busy)[0])

    def crowd(self, count, source, *requests):
        """Open connections; wait until each request is answered."""
        found = []
        for _ in range(count):
            sock = self.connect(source)
            for request in requests:
                sock.sendall(request)
                self.assertEqual(200, self.answer(sock)[0])
            found.append(sock)
        return found

    def test_network_with_most_connections_loses_one(self):
        self.set('MAX_CONNECTIONS', 6)
        kept, = self.crowd(1, '127.0.0.3', GET)
        crowd = self.crowd(20, '127.0.0.2', GET)
        bare = self.crowd(20, '127.0.0.2')
        for sock in crowd:
            self.assert_closed(sock)
        fresh, = self.crowd(1, '127.0.0.4')
        self.assert_closed(bare[-5])
        for sock in kept, fresh, bare[-1]:
            sock.sendall(GET)
            self.assertEqual(200, self.answer(sock)[0])

    def test_new_client_has_time_to_log_in(self):
        """Reading without login keeps no connection of one network alive."""
        self.set('MAX_CONNECTIONS', 4)
        reading = self.crowd(4, '127.0.0.2', GET)
        fresh, = self.crowd(1, '127.0.0.2')
        for sock in reading[1:]:
            sock.sendall(GET)
            self.assertEqual(200, self.answer(sock)[0])
        self.crowd(3, '127.0.0.2')
        fresh.sendall(GET)
        self.assertEqual(200, self.answer(fresh)[0])

    def test_accounts_and_others_have_half_each(self):
        self.set('MAX_CONNECTIONS', 8)
        kept = self.crowd(2, '127.0.0.2', LOGIN % b'owner')
        guests = self.crowd(20, '127.0.0.2', GET)
        for sock in guests[:-6]:
            self.assert_closed(sock)
        # The account with most connections gives.
        many = self.crowd(20, '127.0.0.2', LOGIN % b'other')
        for sock in (*guests[:-3], *many[:-3]):
            self.assert_closed(sock)
        for sock in (*kept, *guests[-3:], *many[-3:]):
            sock.sendall(GET)
            self.assertEqual(200, self.answer(sock)[0])

    def test_address_with_most_connections_of_an_account_loses_one(self):
        self.set('MAX_CONNECTIONS', 4)
        kept, = self.crowd(1, '127.0.0.3', LOGIN % b'owner')
        leaking = self.crowd(3, '127.0.0.2', LOGIN % b'owner')
        self.crowd(1, '127.0.0.3')
        self.assert_closed(leaking[0])
        kept.sendall(GET)
        self.assertEqual(200, self.answer(kept)[0])

    def test_requests_of_one_network_do_not_block_others(self):
        self.set('MAX_CONNECTIONS', 2)
        busy = [self.connect('127.0.0.2') for _ in range(2)]
        for sock in busy:
            sock.sendall(b'GET /wait HTTP/1.1\r\nHost: x\r\n\r\n')
            self.assertTrue(self.app.called.acquire(timeout=TIMEOUT))
        self.assertEqual(200, self.get()[0])
        self.assert_closed(busy[0])
        self.app.unblock.set()
        self.assertEqual(200, self.answer(busy[1])[0])

    def abandon(self, path, *sources):
        """Send requests that take long, and close their connections."""
        for source in sources:
            sock = self.connect(source)
            sock.sendall(GET.replace(b'/x', path))
            self.assertTrue(self.app.called.acquire(timeout=TIMEOUT))
            sock.close()
        self.wait_for(lambda: not self.server.connections)

    def test_requests_without_a_connection_count(self):
        self.server._requests = server_threads.Slots(2)
        self.abandon(b'/wait', '127.0.0.2', '127.0.0.2')
        refused = self.connect('127.0.0.2')
        refused.sendall(GET)
        response = client.HTTPResponse(refused)
        response.begin()
        self.assertEqual((503, '1'), (
            response.status, response.getheader('Retry-After')))
        self.assertIsNone(response.getheader('Strict-Transport-Security'))
        self.assertIn('in progress', response.read().decode())
        self.assert_closed(refused)
        self.assertEqual(200, self.get()[0])
        self.app.unblock.set()
        self.wait_for(lambda: not self.server._requests._used)
        self.crowd(1, '127.0.0.2', GET)

    def test_request_without_a_thread(self):
        self.server.fairness = fairness.Fairness()
        self.server._requests = server_threads.Slots(1)
        for _ in range(3):
            with mock.patch.object(http_server._thread, 'start_new_thread',
                                   side_effect=RuntimeError('no thread')):
                response = client.HTTPResponse(self.send(GET))
                response.begin()
            self.assertEqual((503, '1'), (
                response.status, response.getheader('Retry-After')))
            # Neither its slot nor its turn is lost.
            self.assertEqual({}, self.server._requests._used)
            self.assertIsNone(self.server.fairness._calling)
        self.assertIn('no thread', self.log.output)
        self.assertEqual(200, self.get()[0])

    def test_requests_of_an_account_from_many_addresses_count(self):
        self.server._requests = server_threads.Slots(2)
        self.abandon(b'/login/slow', '127.0.0.2', '127.0.0.3')
        for path, admitted in (b'/login/slow/x', False), (b'/login/x', True):
            self.crowd(1, '127.0.0.4', GET.replace(b'/x', path))
            self.assertEqual(admitted, self.app.admitted)

    def test_probe_has_a_place(self):
        self.set('MAX_CONNECTIONS', 2)
        self.useFixture(fixtures.MockPatchObject(
            redfish_probe, '_READY_SECONDS', -1))
        connected = threading.Event()

        def announce(port):
            self.server.probe_port = port
            connected.set()

        probe = redfish_probe.Probe('127.0.0.1', self.server.port, False,
                                    announce)
        self.useFixture(fixtures.MockPatchObject(
            redfish_probe, '_REQUEST',
            b'GET /wait HTTP/1.1\r\nHost: x\r\n\r\n'))
        problems = []
        thread = threading.Thread(
            target=lambda: problems.append(probe.ready()))
        thread.start()
        self.assertTrue(self.app.called.acquire(timeout=TIMEOUT))
        clients = self.crowd(3, '127.0.0.1')
        self.assert_closed(clients[0])
        self.assertEqual(3, self.server.connections)
        self.app.unblock.set()
        # The probe reads until the connection ends.
        self.server.stop()
        thread.join(TIMEOUT)
        self.assertEqual([''], problems)

    def test_rejects_connection_when_all_are_busy(self):
        self.set('MAX_CONNECTIONS', 2)
        busy = [self.send(b'GET /wait HTTP/1.1\r\nHost: x\r\n\r\n')
                for _ in range(2)]
        for _ in busy:
            self.assertTrue(self.app.called.acquire(timeout=TIMEOUT))
        self.assert_closed(self.connect())
        self.app.unblock.set()
        for each in busy:
            self.assertEqual(200, self.answer(each)[0])
        self.assertEqual(200, self.get()[0])

    def test_disconnects_client_that_does_not_read_response(self):
        self.set('SEND_SECONDS', 0.2)
        sock = self.send(b'GET /large HTTP/1.1\r\nHost: x\r\n\r\n')
        self.wait_for(lambda: self.server.connections == 1)
        self.wait_for(lambda: self.server.connections == 0)
        sock.close()

    def test_unread_known_responses_are_not_piled_up(self):
        known, looked = cached_response(b'x' * 100000), threading.Semaphore(0)

        def find(digest):
            looked.release()
            return known

        self.server.find = find
        sock = self.connect()
        sock.sendall(GET)
        self.assertTrue(looked.acquire(timeout=TIMEOUT))
        [connection] = self.server._connections
        while not connection.flow.write_paused:
            sock.sendall(GET)
            self.wait_for(lambda: looked.acquire(blocking=False)
                          or connection.flow.write_paused)
        size = connection.transport.get_write_buffer_size()
        self.assertLess(size, 2 ** 20)
        # The server reads no further requests.
        sock.settimeout(1)
        self.assertRaises(TimeoutError, sock.sendall, GET * 1000000)
        self.assertEqual(size, connection.transport.get_write_buffer_size())
        self.assertFalse(looked.acquire(blocking=False))

    def test_unread_responses_do_not_block_new_connections(self):
        self.set('MAX_CONNECTIONS', 2)
        for _ in range(5):
            sock = self.send(b'GET /large HTTP/1.1\r\nHost: x\r\n\r\n')
            self.assertEqual(b'H', sock.recv(1))
        self.assertEqual(200, self.get()[0])

    def test_client_that_keeps_sending_is_closed(self):
        sock = self.send(b'GET /x HTTP/1.1\r\nHost: x\r\n\r\n', b'x' * 100)
        self.assertEqual(200, self.answer(sock)[0])
        self.wait_for(lambda: self.server.connections == 0)

    def test_many_idle_connections_do_not_block_requests(self):
        self.set('MAX_CONNECTIONS', 8)
        crowd = [self.connect() for _ in range(40)]
        self.assertEqual(200, self.get()[0])
        self.assert_closed(crowd[0])


class StopTestCase(HttpServerTestCase):

    def test_stop_completes_running_requests(self):
        busy = self.send(b'GET /wait HTTP/1.1\r\nHost: x\r\n\r\n')
        silent = self.connect()
        self.assertTrue(self.app.called.acquire(timeout=TIMEOUT))
        self.wait_for(lambda: self.server.connections == 2)
        self.server.stop()
        self.assert_closed(silent)
        self.wait_for(lambda: self.server.socket.fileno() == -1)
        self.assertRaises(ConnectionRefusedError, self.connect)
        self.app.unblock.set()
        self.assertEqual(200, self.answer(busy)[0])
        self.thread.join(TIMEOUT)
        self.assertFalse(self.thread.is_alive())

    def test_stop_abandons_requests_after_grace_period(self):
        self.set('GRACE_SECONDS', 0.1)
        self.send(b'GET /wait HTTP/1.1\r\nHost: x\r\n\r\n')
        self.assertTrue(self.app.called.acquire(timeout=TIMEOUT))
        self.server.stop()
        self.thread.join(TIMEOUT)
        self.assertFalse(self.thread.is_alive())
        self.assertIn('1 requests were not completed', self.log.output)
        self.assertNotIn('Traceback', self.log.output)

    def test_stop_ends_streams(self):
        sock = self.send(b'GET /stream HTTP/1.1\r\nHost: x\r\n\r\n')
        self.assertTrue(self.app.called.acquire(timeout=TIMEOUT))
        sock.recv(1)
        begin = time.monotonic()
        self.server.stop()
        self.thread.join(TIMEOUT)
        self.assertLess(time.monotonic() - begin,
                        http_server.GRACE_SECONDS / 2)
        self.assertNotIn('Traceback', self.log.output)


_abort = sslproto._SSLProtocolTransport.abort


def _force_close(transport):
    """Abort as CPython 3.11.8 to 3.12 does: fail without a protocol."""
    transport._ssl_protocol._abort
    _abort(transport)


class TLSTestCase(HttpServerTestCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        made = certificates.make(['localhost'])
        files = [pathlib.Path(folder.name) / name for name in ('crt', 'key')]
        for file, content in zip(files, (made.certificate, made.key)):
            file.write_bytes(content)
        cls.context = ssl.create_default_context(cadata=made.ca.decode())
        cls.CERTIFICATE = certificate.Certificate(*map(str, files))

    def test_websocket_whose_client_ends(self):
        # asyncio's transport has no protocol any more after a second `close`.
        self.useFixture(fixtures.MockPatchObject(
            sslproto._SSLProtocolTransport, 'abort', _force_close))
        for data in frame(0x88, b''), frame(0x83, b'x'), b'':
            for reset in False, True:
                sock = self.context.wrap_socket(
                    self.connect(), server_hostname='localhost')
                self.addCleanup(sock.close)
                sock.sendall(b'GET /websocket HTTP/1.1\r\nHost: x\r\n'
                             b'Connection: Upgrade\r\n'
                             b'Upgrade: websocket\r\n\r\n')
                self.accepted(sock)
                sock.sendall(data)
                if reset:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                    struct.pack('ii', 1, 0))
                sock.close()
                self.assertTrue(self.app.ended.acquire(timeout=TIMEOUT))
                self.wait_for(lambda: self.server.connections == 0)

    def test_serves_get_request(self):
        sock = self.context.wrap_socket(
            self.connect(), server_hostname='localhost')
        self.addCleanup(sock.close)
        sock.sendall(b'GET /x HTTP/1.1\r\nHost: x\r\n\r\n')
        code, body = self.answer(sock)
        self.assertEqual(200, code)
        self.assertIn(b'"scheme": "https"', body)

    def test_refusals_have_transport_security(self):
        for head, code in (
                (b'GET', 400), (b'GET /x HTTP/2.0', 505),
                (b'MADEUP /x HTTP/1.1', 501),
                (b'POST /x HTTP/1.1\r\nContent-Length: ' + b'9' * 5000, 413),
                (b'GET /x HTTP/1.1\r\nHost: x\r\n' + b'X: y\r\n' * 200, 431),
                (b'GET /fail HTTP/1.1\r\nHost: x', 500),
                (b'GET /fail HTTP/1.1\r\nHost: localhost:8443', 500),
                (b'GET /x HTTP/1.1\r\nHost: localhost\r\n'
                 + b'X: y\r\n' * 200, 431)):
            sock = self.context.wrap_socket(
                self.connect(), server_hostname='localhost')
            self.addCleanup(sock.close)
            sock.sendall(head + b'\r\n\r\n')
            response = client.HTTPResponse(sock)
            response.begin()
            self.assertEqual(code, response.status, head[:60])
            self.assertEqual(
                None if b'localhost' in head else 'max-age=31536000',
                response.getheader('Strict-Transport-Security'), head[:60])

    def test_missing_handshake_does_not_block_other_clients(self):
        self.connect()
        self.test_serves_get_request()

    def test_handshake_timeout(self):
        self.set('REQUEST_SECONDS', 0.1)
        self.assert_closed(self.connect())

    def test_plain_http_is_not_served(self):
        sock = self.send(b'GET / HTTP/1.1\r\nHost: x\r\n\r\n')
        self.assertNotIn(b'200', sock.makefile('rb').read())
        self.test_serves_get_request()

    def test_probe_reuses_tls_session(self):
        probe = redfish_probe.Probe('127.0.0.1', self.server.port, True)
        with mock.patch.object(redfish_probe, '_READY_SECONDS', -1):
            for _ in range(3):
                self.assertEqual('', probe.ready())
        context = self.CERTIFICATE.context()
        self.assertEqual(2, context.session_stats()['hits'])


class ProbeTestCase(HttpServerTestCase):

    def ask(self, **options):
        return redfish_probe.Probe(
            '127.0.0.1', self.server.port, False, **options)

    def test_unready_before_not_live_when_server_stops(self):
        probe = self.ask()
        self.assertEqual('', probe.live())
        self.end()
        # The last success is valid for some seconds.
        self.assertEqual('', probe.ready())
        with mock.patch.object(redfish_probe, '_READY_SECONDS', -1):
            self.assertIn('does not answer', probe.ready())
            self.assertEqual('', probe.live())
            with mock.patch.object(redfish_probe, '_LIVE_SECONDS', -1):
                self.assertIn('does not answer', probe.live())

    def test_caches_successful_probe(self):
        probe = self.ask()
        for _ in range(3):
            self.assertEqual('', probe.ready())
        self.assertTrue(self.app.called.acquire(blocking=False))
        self.assertFalse(self.app.called.acquire(blocking=False))

    def test_unready_after_status_500(self):
        with mock.patch.object(
            redfish_probe, '_REQUEST',
            b'GET /fail HTTP/1.1\r\nHost: x\r\n\r\n'
        ):
            self.assertIn('answers with HTTP/1.1 500', self.ask().ready())

    def test_unready_after_timeout(self):
        with mock.patch.object(
            redfish_probe, '_REQUEST',
            b'GET /wait HTTP/1.1\r\nHost: x\r\n\r\n'
        ), mock.patch.object(redfish_probe, 'TIMEOUT_SECONDS', 0.1):
            self.assertIn('does not answer', self.ask().ready())
