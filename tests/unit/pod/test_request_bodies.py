# SPDX-License-Identifier: Apache-2.0
import contextlib
import socket

from sushy_kubevirt.machine.media import upload_stream
from sushy_kubevirt.pod import request_body
from tests.unit.pod import http_case


class RequestBodyTestCase(http_case.HttpServerTestCase):

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
        sock = self.receiving(length=6)
        for piece in (b'ab', b'c', b'def'):
            self.assertTrue(self.app.pieces.empty())
            sock.sendall(piece)
            self.assertEqual(len(piece), self.piece())
            if piece == b'c':
                # It has a deadline of its own.
                [connection] = self.server._connections
                self.wait_for(lambda: request_body._PIECE_SECONDS == round(
                    connection.end - connection.since))
        self.assertEqual(200, self.answer(sock)[0])
        self.assertEqual(0, self.piece())
        sock.sendall(b'GET /y HTTP/1.1\r\nHost: x\r\n\r\n')
        self.assertIn(b'/y', self.answer(sock)[1])

    def test_long_chunked_body_is_passed_on(self):
        self.set('_MAX_BODY_BYTES', 3)
        sock = self.send(b'POST /receive HTTP/1.1\r\nHost: x\r\n'
                         b'Transfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n')
        self.assertEqual(4, self.piece())
        sock.sendall(b'5\r\nabcde\r\n0\r\n\r\n')
        self.assertEqual(200, self.answer(sock)[0])
        self.assertEqual(5, self.piece())

    def test_long_body_waits_until_it_is_read(self):
        sock = self.receiving(b'/receive later')
        self.called()
        sock.settimeout(0.5)
        sent = 0
        with contextlib.suppress(TimeoutError):
            while sent < 2 ** 30:
                sent += sock.send(bytes(2 ** 20))
        # In buffers of the kernel, most of it.
        self.assertLess(sent, 2 ** 24)
        self.app.unblock.set()
        while sent:
            sent -= self.piece()

    def test_cdi_has_time_for_a_long_body(self):
        sock = self.receiving(b'/receive and wait', 4)
        sock.sendall(b'abcd')
        for piece in (4, 0):
            self.assertEqual(piece, self.piece())
        [one] = self.server._connections
        self.assertGreater(one.end - one.since, upload_stream.ANSWER_SECONDS)
        self.app.unblock.set()
        self.assertEqual(200, self.answer(sock)[0])

    def test_client_that_stops_sending_a_long_body(self):
        self.set('_PIECE_SECONDS', 0.2)
        sock = self.receiving()
        sock.sendall(b'abcd')
        self.assert_closed(sock)
        self.assertEqual(4, self.piece())
        self.assertIsInstance(self.piece(),
                              ConnectionError)

    def test_client_that_disconnects_within_a_long_body(self):
        sock = self.receiving()
        sock.sendall(b'abcd')
        self.assertEqual(4, self.piece())
        sock.close()
        self.assertIsInstance(self.piece(),
                              ConnectionError)

    def test_stop_ends_a_long_body(self):
        sock = self.receiving()
        sock.sendall(b'abcd')
        self.assertEqual(4, self.piece())
        self.server.stop()
        self.assertIsInstance(self.piece(),
                              ConnectionError)

    def test_other_connections_make_way_for_a_long_body(self):
        self.server._max_connections = 2
        idle = self.ask('/x')
        self.answer(idle)
        sock = self.receiving(length=8)
        sock.sendall(b'abcd')
        self.assertEqual(4, self.piece())
        self.assertEqual(200, self.get()[0])
        self.assert_closed(idle)
        sock.sendall(b'efgh')
        self.assertEqual(200, self.answer(sock)[0])

    def test_truncated_chunk_closes_connection(self):
        # Werkzeug would return uninitialized memory instead.
        for number in 4, 40, 10 ** 6:
            sock = self.send(b'POST /x HTTP/1.1\r\nHost: x\r\n'
                             b'Transfer-Encoding: chunked\r\n\r\n'
                             b'%x\r\nabc' % number)
            sock.shutdown(socket.SHUT_WR)
            self.assert_closed(sock)
            self.assertFalse(self.app.called.acquire(blocking=False))
