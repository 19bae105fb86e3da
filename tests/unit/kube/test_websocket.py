# SPDX-License-Identifier: Apache-2.0
"""WebSockets: credentials, TLS, errors, and the end of a connection."""

import asyncio
import contextlib
import http
import json
import os
import socket as sockets
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import unittest
from unittest import mock

from websockets.asyncio import client as client_connection
from websockets.asyncio import server
from websockets import protocol

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import client
from sushy_kubevirt.kube import connection
from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import options
from tests.fixtures import authority

PATH = ('/apis/subresources.kubevirt.io/v1/namespaces/lab/'
        'virtualmachineinstances/vm/console')


class WebSocketTestCase(unittest.IsolatedAsyncioTestCase):
    """Test case with a server whose connections run ``self.handler``."""

    async def asyncSetUp(self):
        self.requests = []
        self.answers = []
        self.accesses = []
        self.closing = asyncio.Event()

    async def serve(self, handler=None, **settings):
        """Start the server and return its port."""
        async def wait(_socket):
            await self.closing.wait()

        running = await server.serve(
            handler or wait, '127.0.0.1', 0, process_request=self.check,
            subprotocols=['plain.kubevirt.io'], compression=None,
            close_timeout=0.2, **settings)
        self.addAsyncCleanup(self.stop, running)
        return running.sockets[0].getsockname()[1]

    async def stop(self, running):
        self.closing.set()
        running.close()
        await running.wait_closed()

    def check(self, made, request):
        """Record a request, and answer it with the next of `answers`."""
        self.requests.append(request)
        if self.answers:
            code, message = self.answers.pop(0)
            response = made.respond(http.HTTPStatus(code), json.dumps(
                {'message': message}))
            del response.headers['Content-Type']
            response.headers['Content-Type'] = 'application/json'
            return response
        return None

    async def connect(self, *accesses):
        """Open a connection with the first `Access` that is not refused."""
        left = list(accesses)
        made = client.Client(
            connection.Connection(lambda: left.pop(0) if left
                                  else accesses[-1]),
            options.Options(request_timeout=30))
        made._connection._pause = 0
        self.addCleanup(made.close)
        opened = await made.websocket(
            api_resources.VMI, 'lab', 'vm', 'console', 'plain.kubevirt.io')
        self.addAsyncCleanup(opened.close)
        return opened

    async def access(self, *arguments, **settings):
        return connection.Access(
            server=f'http://127.0.0.1:{await self.serve(*arguments)}',
            **settings)


class ConnectTest(WebSocketTestCase):

    async def test_request(self):
        await self.connect(await self.access(authorization='Bearer one'))
        request, = self.requests
        self.assertEqual(PATH, request.path)
        self.assertEqual(
            ('Bearer one', 'plain.kubevirt.io', client.FIELD_MANAGER),
            tuple(request.headers[name] for name in (
                'Authorization', 'Sec-WebSocket-Protocol', 'User-Agent')))

    async def test_credentials_are_renewed_once(self):
        old = await self.access(authorization='Bearer old')
        new = old._replace(authorization='Bearer new')
        self.answers = [(401, 'expired')]
        await self.connect(old, new)
        self.assertEqual(['Bearer old', 'Bearer new'], [
            request.headers['Authorization'] for request in self.requests])
        self.requests.clear()
        self.answers = [(401, 'no')] * 5
        with self.assertRaisesRegex(errors.AccessDenied, 'no'):
            await self.connect(old, new)
        self.assertEqual(2, len(self.requests))

    async def test_rotated_token_is_used(self):
        with tempfile.NamedTemporaryFile('w') as token:
            token.write('first')
            token.flush()
            access = await self.access(token_file=token.name)
            await self.connect(access)
        self.assertEqual('Bearer first',
                         self.requests[0].headers['Authorization'])

    async def test_refusals(self):
        access = await self.access()
        for code, error, text in (
                (400, errors.Rejected, '^VMI is not running$'),
                (403, errors.AccessDenied,
                 'right to get virtualmachineinstances/console.'
                 'subresources.kubevirt.io of lab/vm'),
                (404, errors.ObjectNotFound, 'VMI is not running'),
                (500, errors.ServerError, 'VMI is not running'),
                (503, errors.ServerError, 'VMI is not running')):
            self.answers = [(code, 'VMI is not running')]
            with self.assertRaisesRegex(error, text):
                await self.connect(access)

    async def test_no_server(self):
        with sockets.socket() as free:
            free.bind(('127.0.0.1', 0))
            port = free.getsockname()[1]
            with self.assertRaisesRegex(errors.Unavailable,
                                        'does not answer'):
                await self.connect(connection.Access(
                    server=f'http://127.0.0.1:{port}'))

    async def test_lost_connection_is_no_reason_to_read_again(self):
        async def end(_reader, writer):
            writer.close()

        lost = await asyncio.start_server(end, '127.0.0.1', 0)
        self.addCleanup(lost.close)
        port = lost.sockets[0].getsockname()[1]
        accesses = [connection.Access(server=f'https://127.0.0.1:{port}')] * 2
        reads = mock.Mock(side_effect=accesses)
        conn = connection.Connection(reads)
        conn._pause = 0
        kube_client = client.Client(conn, options.Options(request_timeout=30))
        self.addCleanup(kube_client.close)
        with self.assertRaisesRegex(errors.Unavailable, 'does not answer'):
            await kube_client.websocket(api_resources.VMI, 'lab', 'vm',
                                        'console', 'plain.kubevirt.io')
        self.assertEqual(1, reads.call_count)

    async def test_server_without_websockets(self):
        async def answer(_reader, writer):
            writer.write(b'nonsense\r\n\r\n')
            writer.close()

        running = await asyncio.start_server(answer, '127.0.0.1', 0)
        self.addCleanup(running.close)
        port = running.sockets[0].getsockname()[1]
        with self.assertRaises(errors.Unavailable):
            await self.connect(connection.Access(
                server=f'http://127.0.0.1:{port}'))

    async def test_connection_lost_at_once(self):
        connect = client_connection.connect

        async def lose(*arguments, **settings):
            made.append(await connect(*arguments, **settings))
            made[-1].transport.abort()
            await made[-1].wait_closed()
            return made[-1]

        made = []
        with mock.patch.object(client_connection, 'connect', lose):
            with self.assertRaisesRegex(errors.Unavailable,
                                        'does not answer'):
                await self.connect(await self.access())
        # The options cannot be set for another reason.
        options = [(sockets.SOL_SOCKET, 9999, 1)]

        async def keep(*arguments, **settings):
            made.append(await connect(*arguments, **settings))
            return made[-1]

        with mock.patch.object(connection, 'SOCKET_OPTIONS', options), \
                mock.patch.object(client_connection, 'connect', keep):
            with self.assertRaises(errors.Unavailable):
                await self.connect(await self.access())
        self.assertEqual(protocol.State.CLOSED, made[-1].state)

    async def test_proxy(self):
        port = await self.serve()
        lines = []

        async def proxy(reader, writer):
            lines.append(await reader.readline())
            while (await reader.readline()).strip():
                pass
            writer.write(b'HTTP/1.1 200 OK\r\n\r\n')
            there, here = await asyncio.open_connection('127.0.0.1', port)

            async def copy(one, other):
                with contextlib.suppress(OSError):
                    while data := await one.read(4096):
                        other.write(data)
                other.close()
            await asyncio.gather(copy(reader, here), copy(there, writer))

        running = await asyncio.start_server(proxy, '127.0.0.1', 0)
        self.addCleanup(running.close)
        await self.connect(connection.Access(
            server='http://api.test:8443', proxy='http://127.0.0.1:'
            f'{running.sockets[0].getsockname()[1]}'))
        self.assertEqual([b'CONNECT api.test:8443 HTTP/1.1\r\n'], lines)
        with self.assertRaisesRegex(errors.ConfigError, 'proxy'):
            await self.connect(connection.Access(
                server='http://api.test', proxy='socks5://127.0.0.1:1'))

    async def test_client_certificate_and_server_name(self):
        issuer = authority.Authority()
        settings = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, 'pem')
            with open(path, 'w') as stream:
                stream.write('\n'.join(issuer.issue('api', 'api.test')))
            settings.load_cert_chain(path)
        settings.verify_mode = ssl.CERT_REQUIRED
        settings.load_verify_locations(cadata=issuer.pem)
        cert, key = issuer.issue('bmc')
        access = connection.Access(
            server=f'https://127.0.0.1:{await self.serve(ssl=settings)}',
            ca=issuer.pem, cert=cert, key=key,
            tls_server_name='api.test')
        threads = []
        make = connection.Access.ssl_context
        patch = mock.patch.object(
            connection.Access, 'ssl_context', autospec=True,
            side_effect=lambda one: threads.append(
                threading.current_thread()) or make(one))
        patch.start()
        self.addCleanup(patch.stop)
        opened = await self.connect(access)
        await opened.send(b'x')
        # It may read the system's certificates, which takes a while.
        self.assertNotIn(threading.main_thread(), threads)
        self.assertTrue(threads)
        for wrong in ({'ca': authority.Authority().pem},
                      {'tls_server_name': 'other.test'}):
            with self.assertRaises(errors.Unavailable):
                await self.connect(access._replace(**wrong))


class ImportTest(unittest.TestCase):

    def test_all_enter_the_circular_imports_at_the_same_module(self):
        # Two threads that do not would wait for each other: datastructures
        # imports exceptions, which imports datastructures.
        code = ('import sys\n'
                'class Finder:\n'
                '    def find_spec(self, name, *args): print(name)\n'
                'sys.meta_path.insert(0, Finder()); import ')
        for module in ('sushy_kubevirt.kube.websocket',
                       'sushy_kubevirt.redfish.protocol.websocket'):
            names = subprocess.run(
                [sys.executable, '-c', code + module], text=True, check=True,
                capture_output=True, timeout=60).stdout.split()
            self.assertLess(names.index('websockets.exceptions'),
                            names.index('websockets.datastructures'), module)


class DataTest(WebSocketTestCase):

    async def test_both_directions(self):
        async def echo(made):
            async for message in made:
                await made.send(message)

        opened = await self.connect(await self.access(echo))
        await opened.send(b'\0\xff')
        self.assertEqual(b'\0\xff', await opened.receive())

    async def test_end_with_and_without_close_frame(self):
        async def close(made):
            await made.send(b'last')

        async def cut(made):
            await made.send(b'last')
            made.transport.close()

        for handler in close, cut:
            opened = await self.connect(await self.access(handler))
            self.assertEqual(b'last', await opened.receive())
            self.assertIsNone(await opened.receive())
            with self.assertRaises(errors.ConnectionLost):
                await opened.send(b'x')

    async def test_reset_is_a_lost_connection(self):
        async def reset(made):
            made.transport.get_extra_info('socket').setsockopt(
                sockets.SOL_SOCKET, sockets.SO_LINGER, struct.pack('ii', 1, 0))
            made.transport.abort()

        opened = await self.connect(await self.access(reset))
        with self.assertRaisesRegex(errors.ConnectionLost, 'lost'):
            await opened.receive()

    async def test_server_waits_for_slow_reader(self):
        sent = []

        async def flood(made):
            for _ in range(2000):
                await made.send(bytes(32768))
                sent.append(1)
            # Its end would wait for 0.2 s only.
            await self.closing.wait()

        opened = await self.connect(await self.access(flood))
        await opened.receive()
        await asyncio.sleep(0.3)
        # The buffers of two sockets and of two libraries.
        self.assertLess(len(sent), 600)
        for _ in range(1999):
            self.assertEqual(32768, len(await opened.receive()))

    async def test_close_does_not_wait_for_the_server(self):
        async def ignore(made):
            made.transport.pause_reading()
            await self.closing.wait()

        opened = await self.connect(await self.access(ignore))
        async with asyncio.timeout(30):
            await opened.close()
