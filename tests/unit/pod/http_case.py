# SPDX-License-Identifier: Apache-2.0
"""A WSGI application behind a server of pods, and its clients."""

import asyncio
from http import client
import json
import queue
import socket
import threading
import time
import types

import fixtures
from oslotest import base

from sushy_kubevirt.pod import fairness
from sushy_kubevirt.pod import http_connection
from sushy_kubevirt.pod import http_server
from sushy_kubevirt.pod import request_body
from sushy_kubevirt.redfish.protocol import authentication
from sushy_kubevirt.redfish.protocol import http_framing
from sushy_kubevirt.redfish.protocol import response_cache
from sushy_kubevirt.redfish.protocol import websocket

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

    def ask(self, path):
        """Send a GET request; return its connection."""
        return self.send(GET.replace(b'/x', path.encode()))

    def called(self):
        """Wait until the application is called."""
        self.assertTrue(self.app.called.acquire(timeout=TIMEOUT))

    def piece(self):
        """Wait for what the application reads next, see `Application`."""
        return self.app.pieces.get(timeout=TIMEOUT)

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
