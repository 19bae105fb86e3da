# SPDX-License-Identifier: Apache-2.0
"""Probes of the Redfish server: health as a client sees it."""

import contextlib
import socket
import threading
from unittest import mock

from oslotest import base

from sushy_kubevirt.pod import redfish_probe


class ProbeTestCase(base.BaseTestCase):

    def serve(self, *answers):
        """Start a server that sends these responses, one per connection.

        :returns: its port, which closes after the last response
        """
        listener = socket.create_server(('127.0.0.1', 0))
        self.addCleanup(listener.close)

        def run():
            with listener:
                for answer in answers:
                    client, _ = listener.accept()
                    with client, contextlib.suppress(OSError):
                        client.settimeout(10)
                        client.recv(4096)
                        client.sendall(answer)
                        if answer == b'':
                            client.recv(1)
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        self.addCleanup(thread.join, 10)
        return listener.getsockname()[1]

    def probe(self, *answers):
        return redfish_probe.Probe('127.0.0.1', self.serve(*answers), False)

    def test_caches_success(self):
        one = self.probe(b'HTTP/1.1 200 OK\r\n\r\n')
        # The server answers only once.
        for _ in range(2):
            self.assertEqual('', one.ready())
            self.assertEqual('', one.live())

    def test_readiness_expires_before_liveness(self):
        one = self.probe(b'HTTP/1.1 200 OK\r\n\r\n',
                         *[b'HTTP/1.1 503 Unavailable\r\n\r\n'] * 2)
        with mock.patch.object(redfish_probe.time, 'monotonic') as now:
            now.return_value = 1000.0
            self.assertEqual('', one.ready())
            now.return_value += 30
            self.assertEqual('', one.live())
            self.assertIn('503', one.ready())
            now.return_value += 31
            self.assertIn('503', one.live())

    def test_unexpected_response_is_reported(self):
        for answer in (b'HTTP/1.1 500 Internal Server Error\r\n\r\n',
                       b'hello\r\n', b'\r\n'):
            self.assertIn('Redfish answers with',
                          self.probe(answer).live())

    def test_timeout_is_reported(self):
        with mock.patch.object(redfish_probe, 'TIMEOUT_SECONDS', 0.1):
            self.assertIn('does not answer', self.probe(b'').live())

    def test_closed_port_is_reported(self):
        # Bound but not listening: no other program can listen there.
        with socket.socket() as bound:
            bound.bind(('127.0.0.1', 0))
            port = bound.getsockname()[1]
            self.assertIn(
                f'does not answer on port {port}',
                redfish_probe.Probe('127.0.0.1', port, False).live(),
            )
