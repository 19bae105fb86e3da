# SPDX-License-Identifier: Apache-2.0
"""Event delivery over HTTP, against fake servers on real sockets."""

import asyncio
import socket
import threading
import time

from oslotest import base

from sushy_kubevirt.machine.media import url_policy
from sushy_kubevirt.redfish.services.events import http_push


class Server:
    """HTTP server with prepared responses.

    :param answers: for each connection, a list of responses in bytes, or in
        tuples of parts that are sent one by one; None closes the connection
    """

    def __init__(self, test, *answers):
        self.requests = []
        self.connections = 0
        listening = socket.create_server(('127.0.0.1', 0))
        test.addCleanup(listening.close)
        self.port = listening.getsockname()[1]
        threading.Thread(target=self._serve, args=(listening, answers),
                         daemon=True).start()

    def _serve(self, listening, answers):
        for mine in answers:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            self.connections += 1
            with connection, connection.makefile('rb') as stream:
                for answer in mine:
                    self._read(stream)
                    if answer is None:
                        break
                    for part in [answer] if isinstance(answer, bytes) else (
                            answer):
                        connection.sendall(part)
                        time.sleep(0.02)

    def _read(self, stream):
        head, length = [], 0
        while (line := stream.readline().strip()):
            head.append(line.decode())
            if line.lower().startswith(b'content-length:'):
                length = int(line.split()[1])
        self.requests.append((head, stream.read(length)))


OK = b'HTTP/1.1 204 No Content\r\n\r\n'


class PosterTestCase(base.BaseTestCase):

    def post(self, server, times=1, headers=(), path='/events?a=b'):
        place = url_policy.parse(f'http://127.0.0.1:{server.port}{path}')

        async def resolve():
            return ('127.0.0.1',)

        async def run():
            poster = http_push.Poster(place, resolve)
            try:
                for _ in range(times):
                    await asyncio.wait_for(poster.post(b'{}', headers), 30)
            finally:
                poster.close()

        asyncio.run(run())

    def test_request_line_headers_and_body(self):
        server = Server(self, [OK])
        self.post(server, headers=[('X-Token', 'mine')])
        [(head, body)] = server.requests
        self.assertEqual('POST /events?a=b HTTP/1.1', head[0])
        self.assertIn(f'Host: 127.0.0.1:{server.port}', head)
        self.assertIn('Content-Type: application/json', head)
        self.assertIn('X-Token: mine', head)
        self.assertEqual(b'{}', body)

    def test_keeps_connection(self):
        for answer in (
                OK, b'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok',
                b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n'
                b'3\r\nabc\r\n0\r\n\r\n',
                b'HTTP/1.1 100 Continue\r\n\r\n' + OK,
                (b'HTTP/1.1 20', b'0 OK\r\nContent-Length: 2\r\n\r\n', b'ok'),
                (b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n',
                 b'3\r\nabc\r\n', b'0\r\n\r\n')):
            server = Server(self, [answer] * 3)
            self.post(server, 3)
            self.assertEqual(1, server.connections, answer)

    def test_opens_new_connection_when_necessary(self):
        for answer in (
                b'HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n',
                b'HTTP/1.0 200 OK\r\n\r\n',
                b'HTTP/1.1 200 OK\r\n\r\nno length',
                b'HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n',
                b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n'
                b'nonsense\r\n',
                b'HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nok',
                # Not valid, but the code is clear.
                b'HTTP/1.1 200 OK\r\nServer : x\r\n\r\n',
                b'HTTP/1.1 200\r\nContent-Length: 5\r\n'
                b'Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n'):
            server = Server(self, [answer], [OK])
            self.post(server, 2)
            self.assertEqual(2, server.connections, answer)

    def test_reconnects_after_server_closed(self):
        server = Server(self, [OK, None], [OK])
        self.post(server, 2)
        self.assertEqual(2, server.connections)

    def test_invalid_responses_are_failures(self):
        for answer in (
                b'HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n',
                b'HTTP/1.1 302 Go\r\nLocation: http://169.254.169.254/\r\n'
                b'Content-Length: 0\r\n\r\n',
                b'HTTP/1.1 x\r\n\r\n', b'SSH-2.0-x\r\n\r\n',
                b'x' * 200000):
            server = Server(self, [answer])
            self.assertRaises(http_push.Failed, self.post, server)
        server = Server(self, [None])
        self.assertRaises(ConnectionError, self.post, server)
        server = Server(self)
        server.port = 1
        self.assertRaises(OSError, self.post, server)
