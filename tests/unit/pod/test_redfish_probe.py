# SPDX-License-Identifier: Apache-2.0
"""Whether Redfish is served, as a client sees it."""

import contextlib
import socket
import threading
from unittest import mock

from oslotest import base

from sushy_kubevirt.pod import redfish_probe


class ProbeTestCase(base.BaseTestCase):

    def serve(self, *answers):
        """A server that gives these answers, one a connection.

        :returns: its port; it listens no more after the last of them
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

    def test_well_and_remembered(self):
        one = self.probe(b'HTTP/1.1 200 OK\r\n\r\n')
        # Nobody answers a second time.
        for _ in range(2):
            self.assertEqual('', one.ready())
            self.assertEqual('', one.live())

    def test_asked_again_in_time(self):
        one = self.probe(b'HTTP/1.1 200 OK\r\n\r\n',
                         b'HTTP/1.1 503 Unavailable\r\n\r\n')
        with mock.patch.object(redfish_probe.time, 'monotonic') as now:
            now.return_value = 1000.0
            self.assertEqual('', one.ready())
            now.return_value += 30
            self.assertEqual('', one.live())
            self.assertIn('503', one.ready())

    def test_another_answer(self):
        for answer in (b'HTTP/1.1 500 Internal Server Error\r\n\r\n',
                       b'hello\r\n', b'\r\n'):
            self.assertIn('Redfish answers with',
                          self.probe(answer).live())

    def test_no_answer(self):
        with mock.patch.object(redfish_probe, 'TIMEOUT_SECONDS', 0.1):
            self.assertIn('does not answer', self.probe(b'').live())

    def test_nobody_there(self):
        # Bound, so that nobody else is there either.
        with socket.socket() as bound:
            bound.bind(('127.0.0.1', 0))
            port = bound.getsockname()[1]
            self.assertIn(
                'does not answer on port %d' % port,
                redfish_probe.Probe('127.0.0.1', port, False).live(),
            )
