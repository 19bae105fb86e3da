# SPDX-License-Identifier: Apache-2.0
"""The emulator with fake machines, as a pod serves it."""

import asyncio
import contextlib
import re
import select
import socket
import threading

from sushy_kubevirt.pod import http_server
from sushy_kubevirt.pod import metrics
from tests.unit.redfish import base
from tests.unit.redfish import fakes

TIMEOUT = 30

SYSTEM = '/redfish/v1/Systems/' + fakes.A
ROOT = '/redfish/v1/'
TIMES = re.compile(rb'(?m)^date: .*\r\n')


def request(*lines, path=SYSTEM, host='localhost', method='GET',
            version='1.1'):
    """Return the bytes of a request.

    :param lines: headers
    """
    return '\r\n'.join((f'{method} {path} HTTP/{version}', f'Host: {host}',
                        *lines, '', '')).encode()


def lines(headers):
    return [f'{name}: {value}' for name, value in headers.items()]


def readable(sock):
    return bool(select.select([sock], [], [], 0)[0])


class ServerMixin(base.CacheMixin):
    """Serves the emulator by pods' servers, with ``requests`` as counter."""

    def setUp(self):
        super().setUp()
        self.requests = metrics.Requests()
        self.servers = [self.server()]
        self.thread = threading.Thread(
            target=lambda: asyncio.run(self.serve()))
        self.running = threading.Event()
        self.addCleanup(self.end)

    def observed(self, response):
        """Return the thread in which a response was found."""
        return threading.current_thread()

    def server(self, certificate=None):
        return http_server.Server(
            '127.0.0.1', 0, self.app, certificate,
            find=lambda digest: self.responses.find(digest),
            count=self.requests.count)

    async def serve(self):
        self.loop = asyncio.get_running_loop()
        self.running.set()
        await asyncio.gather(*(server.run() for server in self.servers))

    def start(self):
        if self.thread.ident is None:
            self.thread.start()
            self.assertTrue(self.running.wait(TIMEOUT))

    def end(self):
        for server in self.servers:
            server.stop()
        self.start()
        self.thread.join(TIMEOUT)
        self.assertFalse(self.thread.is_alive())

    def connect(self, server=None):
        self.start()
        sock = socket.create_connection(
            ('127.0.0.1', (server or self.servers[0]).port), timeout=TIMEOUT)
        self.addCleanup(sock.close)
        return sock

    def call(self, function, *arguments):
        """Call a function in the event loop; return what it returns."""
        async def run():
            return function(*arguments)

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(
            TIMEOUT)

    def wait_for(self, condition):
        """Wait until a function returns true in the event loop."""
        async def wait():
            while not condition():
                await asyncio.sleep(0.001)

        asyncio.run_coroutine_threadsafe(wait(), self.loop).result(TIMEOUT)

    def quiet(self):
        """Tell whether the server has nothing to do for its clients."""
        return not any(
            server._accepting or readable(server.socket) or any(
                connection.pipeline or readable(connection._sock)
                or connection.cycle and not connection.cycle.response_complete
                and not (connection.cycle.more_body and connection.client_turn)
                for connection in server._connections)
            for server in self.servers)

    def exchange(self, data, *more):
        """Send pieces on a connection; return all that is sent back."""
        sock = self.connect()
        for piece in (data, *more):
            sock.sendall(piece)
            self.wait_for(self.quiet)
        return self.read_all(sock)

    def read_all(self, sock):
        """End a connection; return all that was sent back."""
        received = b''
        # The server may have closed it.
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_WR)
        while part := sock.recv(65536):
            received += part
        sock.close()
        return received

    def ask(self, data, code=200, sock=None):
        """Send a request, and check the status code.

        :returns: response, whether it was sent without parsing the request
        """
        sock = sock or self.connect()
        before = len(self.sent_again)
        sock.sendall(data)
        response = b''
        while b'\r\n\r\n' not in response:
            response += sock.recv(65536)
        head, _, body = response.partition(b'\r\n\r\n')
        self.assertTrue(head.startswith(b'HTTP/1.1 %d ' % code), response)
        length = re.search(rb'(?i)\r\ncontent-length: (\d+)', head)
        while length and not data.startswith(b'HEAD') and len(body) < int(
                length[1]):
            body += sock.recv(65536)
        return (TIMES.sub(b'', head + b'\r\n\r\n' + body),
                self.thread in self.sent_again[before:])

    def assert_again(self, expected, data, code=200, sock=None):
        response, again = self.ask(data, code, sock)
        self.assertIs(expected, again, response)
        return response
