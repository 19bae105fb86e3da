# SPDX-License-Identifier: Apache-2.0
"""Which responses a server counts; see also test_metrics.py."""

from unittest import mock

from sushy_kubevirt.pod import http_server
from sushy_kubevirt.redfish.services import server_threads
from tests.unit.pod import http_case


class CountTestCase(http_case.HttpServerTestCase):

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
        sock = self.ask('/stream')
        self.assertEqual(b'H', sock.recv(1))
        self.app.unblock.set()
        sock.close()
        self.assert_counted((None, 'GET', 200))

    def test_stream_that_fails(self):
        sock = self.ask('/stream-fails')
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
            self.called()
            sock.close()
            self.answer_nobody()
            self.app.unblock.clear()

    def test_time_limit(self):
        self.set('ANSWER_SECONDS', 0.1)
        sock = self.ask('/wait')
        self.assert_closed(sock)
        self.answer_nobody()

    def test_long_body_that_turns_out_invalid(self):
        self.set('_MAX_BODY_BYTES', 3)
        sock = self.send(b'POST /receive HTTP/1.1\r\nHost: x\r\n'
                         b'Transfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n')
        self.assertEqual(4, self.piece())
        sock.sendall(b'no chunk\r\n')
        self.assertEqual(400, self.answer(sock)[0])
        self.assertIsInstance(self.piece(),
                              ConnectionError)
        sock.close()
        self.assert_counted((None, None, 400))
        self.assertIn('"POST /receive HTTP/1.1" 200', self.log.output)

    def test_known_response(self):
        known = http_case.cached_response(b'{}', '/known')
        self.server.find = lambda digest: known
        sock = self.send(http_case.GET)
        self.answer(sock)
        sock.close()
        self.assert_counted(('/known', 'GET', 200))
