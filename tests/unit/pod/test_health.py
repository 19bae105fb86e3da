# SPDX-License-Identifier: Apache-2.0
import asyncio
import http.client
import logging
import socket
import threading
from unittest import mock

from oslotest import base

from sushy_kubevirt.pod import health


class HealthTestCase(base.BaseTestCase):

    ADDRESS = '127.0.0.1'

    def setUp(self):
        super().setUp()
        self.live = mock.Mock(return_value=None)
        self.ready = mock.Mock(return_value='')
        self.metrics = mock.Mock(return_value=b'one 1\n')
        self.server = health.Server(self.ADDRESS, 0, self.live, self.ready,
                                    self.metrics)
        self.server.start()
        self.addCleanup(self.server.close)

    def ask(self, path, method='GET'):
        connection = http.client.HTTPConnection(
            self.ADDRESS, self.server.port, timeout=10)
        self.addCleanup(connection.close)
        connection.request(method, path)
        response = connection.getresponse()
        self.content_type = response.getheader('Content-Type')
        return response.status, response.read()

    def connect(self, source=None):
        found = socket.create_connection(
            (self.ADDRESS, self.server.port), 10, (source or self.ADDRESS, 0))
        self.addCleanup(found.close)
        return found

    def test_healthy(self):
        self.assertEqual((200, b'ok\n'), self.ask('/livez'))
        self.assertEqual((200, b'ok\n'), self.ask('/readyz?verbose'))
        self.assertEqual((200, b'one 1\n'), self.ask('/metrics'))
        # The type by which Prometheus recognizes its text format.
        self.assertEqual('text/plain; version=0.0.4; charset=utf-8',
                         self.content_type)

    def test_unready_response_contains_reason(self):
        self.ready.return_value = 'The watch broke.'
        self.assertEqual((503, b'The watch broke.\n'), self.ask('/readyz'))
        self.assertEqual(200, self.ask('/livez')[0])

    def test_logs_each_change_of_a_probe_once(self):
        with self.assertLogs(health.LOG) as logged:
            self.ask('/readyz')
            for problem in 'The watch broke.', 'No login is possible.', '':
                self.ready.return_value = problem
                self.ask('/readyz')
                self.ask('/readyz?verbose')
        self.assertEqual(
            ['/readyz fails: The watch broke.',
             '/readyz fails: No login is possible.',
             '/readyz succeeds again'],
            [record.getMessage() for record in logged.records])

    def test_exception_in_probe_gets_500(self):
        logging.getLogger(health.__name__).setLevel(logging.CRITICAL)
        self.addCleanup(logging.getLogger(health.__name__).setLevel,
                        logging.NOTSET)
        self.live.side_effect = ValueError('secret')
        self.assertEqual((500, b'Unexpected error; see the log.\n'),
                         self.ask('/livez'))
        self.assertEqual(200, self.ask('/readyz')[0])

    def test_rejects_other_requests(self):
        self.assertEqual(404, self.ask('/')[0])
        self.assertEqual(405, self.ask('/livez', 'POST')[0])
        self.assertEqual((200, b''), self.ask('/livez', 'HEAD'))
        sock = self.connect()
        sock.sendall(b'\x16\x03\x01 hello\r\n\r\n')
        self.assertIn(b' 400 ', sock.recv(100))

    def test_accepts_request_in_pieces(self):
        sock = self.connect()
        for piece in b'GET /livez HT', b'TP/1.1\r\nHost: x\r', b'\n\r\n':
            sock.sendall(piece)
        answer = sock.makefile('rb').read()
        self.assertTrue(answer.endswith(b'\r\n\r\nok\n'), answer)

    def test_slow_reader_does_not_block_other_requests(self):
        self.metrics.return_value = b'x' * 8_000_000
        sock = self.connect()
        sock.sendall(b'GET /metrics HTTP/1.1\r\n\r\n')
        # Another request is served in the meantime.
        self.assertEqual(200, self.ask('/livez')[0])
        body = sock.makefile('rb').read().partition(b'\r\n\r\n')[2]
        self.assertEqual(self.metrics.return_value, body)

    def test_rejects_endless_request_head(self):
        sock = self.connect()
        sock.sendall(b'GET /livez HTTP/1.1\r\nX: ' + b'y' * 9000)
        self.assertIn(b' 400 ', sock.recv(100))

    def test_disconnects_silent_clients(self):
        with mock.patch.object(health, 'TIMEOUT_SECONDS', 0.05):
            sock = self.connect()
            self.assertEqual(b'', sock.recv(1))

    def test_closes_oldest_connection_above_limit(self):
        # The limit closes it, not the timeout.
        with mock.patch.multiple(health, MAX_CONNECTIONS=3,
                                 TIMEOUT_SECONDS=600):
            many = [self.connect() for _ in range(8)]
            self.assertEqual(b'', many[0].recv(1))
            self.assertEqual(200, self.ask('/livez')[0])

    def test_flood_from_another_address(self):
        with mock.patch.multiple(health, MAX_CONNECTIONS=3,
                                 TIMEOUT_SECONDS=600):
            kept = self.connect()
            many = [self.connect('127.0.0.2') for _ in range(8)]
            for sock in many[:-2]:
                self.assertEqual(b'', sock.recv(1))
            kept.sendall(b'GET /livez HTTP/1.1\r\n\r\n')
            self.assertTrue(kept.recv(100).startswith(b'HTTP/1.1 200'))

    def test_close_ends_connections_and_listener(self):
        sock = self.connect()
        self.ask('/livez')
        self.server.close()
        self.server.close()
        self.assertEqual(b'', sock.recv(1))
        self.assertRaises(ConnectionRefusedError, self.connect)

    def test_error_names_port_in_use(self):
        other = health.Server(self.ADDRESS, self.server.port, None, None,
                              None)
        error = self.assertRaises(OSError, other.start)
        self.assertIn(f'TCP port {self.server.port} on {self.ADDRESS}',
                      str(error))


class HealthIPv6TestCase(HealthTestCase):

    ADDRESS = '::1'

    # There is one IPv6 loopback address.
    test_flood_from_another_address = None


class LoopTestCase(base.BaseTestCase):

    def test_hanging_event_loop_is_a_problem(self):
        answers = []

        async def main():
            loop = asyncio.get_running_loop()
            with mock.patch.object(health, 'LOOP_SECONDS', 30):
                answers.append(
                    await asyncio.to_thread(health.loop_problem, loop))
            asking = threading.Thread(
                target=lambda: answers.append(health.loop_problem(loop)))
            with mock.patch.object(health, 'LOOP_SECONDS', 0.1):
                asking.start()
                # The loop hangs until it has been asked.
                asking.join(30)

        asyncio.run(main())
        self.assertEqual(
            ['', 'The event loop has not answered for 0.1 s'], answers)
