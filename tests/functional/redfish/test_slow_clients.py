# SPDX-License-Identifier: Apache-2.0
"""Clients that keep the server waiting do not delay others."""

import contextlib
import socket
import ssl
import threading
import time

import requests

from tests.fixtures import base
from tests.fixtures import redfish_pod

SYSTEM = '/redfish/v1/Systems/1'

#: Numbers of clients that send nothing, that send a header, and that send a
#: body, byte by byte.
SILENT, SLOW_HEAD, SLOW_BODY = 500, 200, 100

#: Requests of which the 95th percentile is computed, and rounds. The test
#: fails if no round is good: others use the processors, too.
COUNT, ROUNDS = 200, 5


class SlowClients:
    """Clients that keep the server waiting, as a context manager.

    :param pod: `redfish_pod.RedfishPod`
    """

    def __init__(self, pod):
        self._pod = pod
        self._context = ssl.create_default_context(cafile=str(pod.ca))
        self._end = threading.Event()
        self._socks = []
        self._thread = threading.Thread(target=self._drip)

    def __enter__(self):
        for _ in range(SILENT):
            self._connect()
        for start, number in (
                (b'GET / HTTP/1.1\r\nX: ', SLOW_HEAD),
                (b'POST /redfish/v1/SessionService/Sessions HTTP/1.1\r\n'
                 b'Content-Length: 100000\r\n\r\n{', SLOW_BODY)):
            for _ in range(number):
                # The server closes others of them to accept it.
                sock = self._connect()
                with contextlib.suppress(OSError):
                    sock = self._context.wrap_socket(
                        sock, server_hostname='127.0.0.1')
                    self._socks[-1] = sock
                    sock.sendall(start)
        self._thread.start()
        return self

    def _connect(self):
        sock = socket.create_connection(('127.0.0.1', self._pod.port),
                                        timeout=30)
        self._socks.append(sock)
        return sock

    def _drip(self):
        slow = self._socks[SILENT:]
        while not self._end.wait(0.1):
            for sock in slow:
                with contextlib.suppress(OSError):
                    sock.sendall(b'x')

    def __exit__(self, *exc_info):
        self._end.set()
        self._thread.join()
        for sock in self._socks:
            sock.close()


class SlowClientsTestCase(base.SandboxTestCase):

    def setUp(self):
        super().setUp()
        self.pod = self.useFixture(redfish_pod.RedfishPod(self.sandbox))
        self.client = requests.Session()
        self.addCleanup(self.client.close)
        self.client.verify = str(self.pod.ca)
        self.client.auth = redfish_pod.USER, self.pod.password
        self.client.trust_env = False

    def p95(self):
        times = []
        for _ in range(COUNT):
            begin = time.monotonic()
            answer = self.client.get(self.pod.url + SYSTEM, timeout=30)
            times.append(time.monotonic() - begin)
            self.assertEqual(200, answer.status_code)
        return sorted(times)[COUNT * 95 // 100]

    def test_others_are_served_as_before(self):
        self.p95()
        ratios = []
        for _ in range(ROUNDS):
            alone = self.p95()
            with SlowClients(self.pod):
                ratios.append(self.p95() / alone)
                # A client without an open connection.
                self.pod.request('GET', SYSTEM, expect=200)
                self.assertEqual((200, 'ok'), self.pod.probe('/readyz'))
            if ratios[-1] <= 2:
                return
        self.fail(f'95th percentile beside slow clients: {ratios}')
