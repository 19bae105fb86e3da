# SPDX-License-Identifier: Apache-2.0
import asyncio
import socket
import unittest

from websockets import client as sansio
from websockets import frames
from websockets import uri

from kubevirt_sandbox.api import web
from kubevirt_sandbox.api import websocket

LIMIT = 100


class WebTestCase(unittest.IsolatedAsyncioTestCase):

    async def asyncSetUp(self):
        self.server = web.Server(self.handle, LIMIT)
        self.handled, self.cancelled = [], asyncio.Event()
        listener = socket.create_server(('127.0.0.1', 0))
        self.address = listener.getsockname()
        await self.server.listen(listener)
        self.addAsyncCleanup(self.server.stop)
        self.reader, self.writer = await asyncio.open_connection(
            *self.address)
        self.addCleanup(self.writer.close)

    async def handle(self, request):
        self.handled.append(request)
        if request.path == '/fails':
            raise ValueError('for the test')
        if request.path == '/never':
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
        if request.path == '/stream':
            response = web.StreamResponse({'Content-Type': 'text/plain'})
            await response.prepare(request)
            for piece in (b'one', b'', b'two'):
                await response.write(piece)
            if 'fails' in request.query:
                raise ValueError('for the test')
            return response
        if request.path == '/flood':
            response = web.StreamResponse()
            await response.prepare(request)
            while True:
                await response.write(bytes(2 ** 16))
        if request.path == '/socket':
            echo = websocket.WebSocket(('a', 'b'))
            await echo.prepare(request)
            async for message in echo:
                await echo.send_bytes(message)
                if message == b'end':
                    await echo.close()
            return echo
        try:
            body = await request.read()
        except web.BodyTooLargeError:
            return web.Response(status=413)
        return web.Response(text=f'{request.method} {request.path} '
                            f'{dict(request.query)} {body.decode()}')

    async def exchange(self, text, timeout=10):
        """Send text; return status line, headers and body of the response."""
        async with asyncio.timeout(timeout):
            self.writer.write(text.replace('\n', '\r\n').encode())
            return await self.response(text[:4] == 'HEAD')

    async def response(self, bare=False):
        head = (await self.reader.readuntil(b'\r\n\r\n')).decode()
        status, *lines = head.strip().split('\r\n')
        headers = dict(line.split(': ', 1) for line in lines)
        length = 0 if bare else int(headers.get('Content-Length', 0))
        body = await self.reader.readexactly(length)
        return status.split(' ', 1)[1], headers, body.decode()

    async def closed(self):
        async with asyncio.timeout(10):
            return await self.reader.read() == b''

    async def test_requests(self):
        for text, expected in (
                ('GET /a%20b?x=1&y=%2F&z HTTP/1.1\n\n',
                 "GET /a b {'x': '1', 'y': '/', 'z': ''} "),
                ('GET http://host/a?x=1 HTTP/1.1\n\n',
                 "GET /a {'x': '1'} "),
                ('POST /a HTTP/1.1\nContent-Length: 4\n\nbody',
                 'POST /a {} body'),
                ('POST /a HTTP/1.1\nTransfer-Encoding: chunked\n\n'
                 '2\nbo\n2\ndy\n0\n\n', 'POST /a {} body')):
            status, headers, body = await self.exchange(text)
            self.assertEqual(('200 OK', expected), (status, body))
            self.assertNotIn('Connection', headers)
        self.assertEqual('/a%20b', self.handled[0].raw_path)

    async def test_head(self):
        _, headers, body = await self.exchange('HEAD /a HTTP/1.1\n\n')
        self.assertEqual('11', headers['Content-Length'])
        _, _, body = await self.exchange('GET /a HTTP/1.1\n\n')
        self.assertEqual('GET /a {} ', body)

    async def test_pipelined_requests(self):
        count = 30
        self.writer.write(b''.join(
            b'GET /%d HTTP/1.1\r\n\r\n' % n for n in range(count)))
        for number in range(count):
            async with asyncio.timeout(10):
                _, _, body = await self.response()
            self.assertEqual(f'GET /{number} {{}} ', body)

    async def test_body_limit(self):
        # The phrase of 413 depends on the version of Python.
        for length, code in (LIMIT, '200'), (LIMIT + 1, '413'):
            status, _, _ = await self.exchange(
                f'POST /a HTTP/1.1\nContent-Length: {length}\n\n'
                + 'x' * length)
            self.assertEqual(code, status.split()[0])

    async def test_expected_continue(self):
        found, _, _ = await self.exchange(
            'POST /a HTTP/1.1\nContent-Length: 1\nExpect: 100-continue\n\n')
        self.assertEqual('100 Continue', found)
        _, _, body = await self.exchange('x')
        self.assertEqual('POST /a {} x', body)

    async def test_closed_connections(self):
        for text, status in (
                ('GET /a HTTP/1.1\nConnection: close\n\n', '200 OK'),
                ('GET /a HTTP/1.0\n\n', '200 OK'),
                ('nonsense\n\n', '400 Bad Request')):
            found, headers, _ = await self.exchange(text)
            self.assertEqual((status, 'close'),
                             (found, headers['Connection']))
            self.assertTrue(await self.closed())
            self.reader, writer = await asyncio.open_connection(
                *self.address)
            self.addCleanup(writer.close)
            self.writer = writer

    async def test_failed_handler(self):
        with self.assertLogs(web.LOG):
            found, _, _ = await self.exchange('GET /fails HTTP/1.1\n\n')
        self.assertEqual('500 Internal Server Error', found)
        found, _, _ = await self.exchange('GET /a HTTP/1.1\n\n')
        self.assertEqual('200 OK', found)

    async def test_streams(self):
        _, headers, _ = await self.exchange('GET /stream HTTP/1.1\n\n')
        self.assertEqual('chunked', headers['Transfer-Encoding'])
        self.assertEqual(b'3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n',
                         await self.reader.readexactly(21))
        await self.exchange('GET /stream HTTP/1.0\n\n')
        self.assertEqual(b'onetwo', await self.reader.read())

    async def test_failed_stream(self):
        """It does not end as if it was complete."""
        with self.assertLogs(web.LOG):
            await self.exchange('GET /stream?fails HTTP/1.1\n\n')
            async with asyncio.timeout(10):
                rest = await self.reader.read()
        self.assertEqual(b'3\r\none\r\n3\r\ntwo\r\n', rest)

    async def test_invalid_request_during_a_response(self):
        self.writer.write(b'GET /never HTTP/1.1\r\n\r\n')
        async with asyncio.timeout(10):
            while not self.handled:
                await asyncio.sleep(0.01)
        self.writer.write(b'nonsense\r\n\r\n')
        self.assertTrue(await self.closed())

    async def test_client_that_leaves(self):
        for path in ('never', 'flood'):
            _, writer = await asyncio.open_connection(*self.address)
            writer.write(f'GET /{path} HTTP/1.1\r\n\r\n'.encode())
            async with asyncio.timeout(10):
                while not any(r.path == '/' + path for r in self.handled):
                    await asyncio.sleep(0.01)
                writer.transport.abort()
                while len(self.server.connections) > 1:
                    await asyncio.sleep(0.01)
        self.assertTrue(self.cancelled.is_set())

    async def test_client_that_does_not_read(self):
        self.writer.write(b'GET /flood HTTP/1.1\r\n\r\n')
        async with asyncio.timeout(10):
            while not self.handled:
                await asyncio.sleep(0.01)
            transport = self.handled[0].transport
            size = -1
            while (now := transport.get_write_buffer_size()) != size:
                size = now
                await asyncio.sleep(0.2)
        self.assertLess(size, 2 ** 20)

    async def handshake(self, *protocols):
        connection = sansio.ClientProtocol(
            uri.parse_uri('ws://127.0.0.1/socket'), subprotocols=protocols)
        connection.send_request(connection.connect())
        return connection

    async def talk(self, connection, count):
        """Exchange data until a number of events is received."""
        events = []
        async with asyncio.timeout(10):
            while len(events) < count:
                for data in connection.data_to_send():
                    if data:
                        self.writer.write(data)
                received = await self.reader.read(65536)
                if not received:
                    break
                connection.receive_data(received)
                events += connection.events_received()
        return events

    async def test_websocket(self):
        connection = await self.handshake('x', 'b', 'a')
        # The first message is sent with the handshake.
        response, = await self.talk(connection, 1)
        self.assertEqual(101, response.status_code)
        self.assertEqual('b', connection.subprotocol)
        connection.send_text(b'text is ignored')
        connection.send_binary(b'part', fin=False)
        connection.send_continuation(b' and part', fin=True)
        connection.send_ping(b'x')
        connection.send_binary(bytes(10 ** 6))
        first, *rest = await self.talk(connection, 3)
        found = {first.opcode: first, **{one.opcode: one for one in rest}}
        self.assertIn(frames.Opcode.PONG, found)
        data = [one.data for one in (first, *rest)
                if one.opcode is frames.Opcode.BINARY]
        self.assertEqual([b'part and part', bytes(10 ** 6)], data)
        connection.send_binary(b'end')
        echo, close = await self.talk(connection, 2)
        self.assertEqual(b'end', bytes(echo.data))
        self.assertIs(frames.Opcode.CLOSE, close.opcode)
        for part in connection.data_to_send():
            self.writer.write(part)
        self.assertTrue(await self.closed())

    async def test_websocket_message_with_the_handshake(self):
        connection = await self.handshake()
        request = b''.join(connection.data_to_send())
        other = sansio.ClientProtocol(
            uri.parse_uri('ws://127.0.0.1/'), state=connection.state.OPEN)
        other.send_binary(b'early')
        self.writer.write(request + b''.join(other.data_to_send()))
        _, echo = await self.talk(connection, 2)
        self.assertEqual(b'early', bytes(echo.data))

    async def test_handshake_without_key(self):
        with self.assertLogs(web.LOG):
            found, headers, _ = await self.exchange(
                'GET /socket HTTP/1.1\nConnection: Upgrade\n'
                'Upgrade: websocket\n\n')
        self.assertEqual('500 Internal Server Error', found)
        self.assertEqual('close', headers['Connection'])
