# SPDX-License-Identifier: Apache-2.0
from asyncio import sslproto
import contextlib
from http import client
import json
import pathlib
import socket
import ssl
import struct
import tempfile
import time
from unittest import mock

import fixtures

from kubevirt_sandbox.testing import certificates
from sushy_kubevirt.pod import certificate
from sushy_kubevirt.pod import http_server
from sushy_kubevirt.pod import redfish_probe
from sushy_kubevirt.redfish.protocol import response_cache
from tests.unit.pod import http_case

_abort = sslproto._SSLProtocolTransport.abort


def _force_close(transport):
    """Abort as CPython 3.11.8 to 3.12 does: fail without a protocol."""
    transport._ssl_protocol._abort
    _abort(transport)


class RequestTestCase(http_case.HttpServerTestCase):

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
            'http', http_case.GET.replace(b'/x', b'/known')):
                http_case.cached_response(b'{}', '/known')}.get
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
        self.called()
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
        sock = self.upgrade('/websocket', http_case.frame(0x81, b'one'))
        self.accepted(sock)
        # As a binary message, since the service sends bytes.
        self.assertEqual(b'\x82\x03one', sock.recv(100))
        sock.sendall(http_case.frame(0x82, b'two'))
        self.assertEqual(b'\x82\x03two', sock.recv(100))
        sock.sendall(http_case.frame(0x88, b''))
        self.assertEqual(b'\x88\x00', sock.recv(100))
        sock.close()
        self.wait_for(lambda: self.server.connections == 0)

    def test_websocket_ends_with_the_server(self):
        sock = self.upgrade('/websocket')
        self.accepted(sock)
        self.server.stop()
        self.assertEqual(b'\x88\x0a\x03\xe9stopping', sock.recv(100))
        sock.close()
        self.thread.join(http_case.TIMEOUT)
        self.assertNotIn('were not completed', self.log.output)

    def test_flood_before_websocket_is_accepted(self):
        sock = self.upgrade('/websocket-later')
        self.called()
        with contextlib.suppress(ConnectionError):
            for _ in range(50):
                sock.sendall(bytes(2 ** 16))
        self.wait_for(lambda: self.server.connections == 0)

    def test_slow_request_delays_no_other(self):
        busy = [self.ask('/wait')
                for _ in range(20)]
        for _ in busy:
            self.called()
        self.assertEqual(200, self.get()[0])

    def test_probes_are_not_logged(self):
        probe = redfish_probe.Probe('127.0.0.1', self.server.port, False)
        self.assertEqual('', probe.ready())
        self.assertEqual('', self.log.output)


class StopTestCase(http_case.HttpServerTestCase):

    def test_stop_completes_running_requests(self):
        busy = self.ask('/wait')
        silent = self.connect()
        self.called()
        self.wait_for(lambda: self.server.connections == 2)
        self.server.stop()
        self.assert_closed(silent)
        self.wait_for(lambda: self.server.socket.fileno() == -1)
        self.assertRaises(ConnectionRefusedError, self.connect)
        self.app.unblock.set()
        self.assertEqual(200, self.answer(busy)[0])
        self.thread.join(http_case.TIMEOUT)
        self.assertFalse(self.thread.is_alive())

    def test_stop_abandons_requests_after_grace_period(self):
        self.set('GRACE_SECONDS', 0.1)
        self.ask('/wait')
        self.called()
        self.server.stop()
        self.thread.join(http_case.TIMEOUT)
        self.assertFalse(self.thread.is_alive())
        self.assertIn('1 requests were not completed', self.log.output)
        self.assertNotIn('Traceback', self.log.output)

    def test_stop_ends_streams(self):
        sock = self.ask('/stream')
        self.called()
        sock.recv(1)
        begin = time.monotonic()
        self.server.stop()
        self.thread.join(http_case.TIMEOUT)
        self.assertLess(time.monotonic() - begin,
                        http_server.GRACE_SECONDS / 2)
        self.assertNotIn('Traceback', self.log.output)


class TLSTestCase(http_case.HttpServerTestCase):

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
        for data in (http_case.frame(0x88, b''), http_case.frame(0x83, b'x'),
                     b''):
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
                self.assertTrue(
                    self.app.ended.acquire(timeout=http_case.TIMEOUT))
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
