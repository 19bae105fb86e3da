# SPDX-License-Identifier: Apache-2.0
"""Power of a node by Redfish, and what users are told if it fails."""

import contextlib
import dataclasses
import datetime
import socketserver
import ssl
import tempfile
import threading

from kubevirt_sandbox.testing import certificates
from kubevirt_sandbox.testing import polling
from kubevirt_sandbox.testing import ports
from sushy_kubevirt.cluster import power
from sushy_kubevirt.operator import pki
from sushy_kubevirt.remote import endpoint
from tests.fixtures import base
from tests.fixtures import redfish_pod


class PowerTestCase(base.SandboxTestCase):

    VMS = 1

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.pod = cls.share(redfish_pod.RedfishPod(cls.sandbox))

    def setUp(self):
        super().setUp()
        self.bmc = endpoint.Bmc(
            '127.0.0.1', redfish_port=self.pod.port,
            username=redfish_pod.USER, password=self.pod.password,
            ca=self.pod.ca.read_text(), secret='vm-0-bmc',
            name='vm-0')

    def refusal(self, **more):
        error = self.assertRaises(
            endpoint.BmcUnavailable, power.run,
            dataclasses.replace(self.bmc, **more))
        return str(error)

    def until(self, action, state):
        """Do an action, and read the state until it is the expected one."""
        found = power.run(self.bmc, action)
        for _ in polling.attempts(60):
            if found == state:
                return
            self.assertIn(found, ('On', 'Off', 'PoweringOn', 'PoweringOff'))
            found = power.run(self.bmc)
        self.assertEqual(state, found)

    def test_all_actions(self):
        for action, state in (
                ('off', 'Off'), ('on', 'On'), ('pause', 'Paused'),
                ('resume', 'On'), ('reboot', 'On'), ('soft-reboot', 'On'),
                ('soft-off', 'Off'), ('on', 'On')):
            self.until(action, state)

    def test_all_actions_are_tried(self):
        self.assertEqual({'off', 'on', 'pause', 'resume', 'reboot',
                          'soft-reboot', 'soft-off'}, set(power.ACTIONS))

    def test_refused_action(self):
        self.until('off', 'Off')
        error = self.assertRaises(endpoint.BmcUnavailable, power.run,
                                  self.bmc, 'pause')
        self.assertIn('BMC of vm-0: ', str(error))
        self.assertEqual(409, error.status)

    def test_wrong_password(self):
        text = self.refusal(password='not the password')
        self.assertIn('refuses the credentials of Secret vm-0-bmc', text)
        self.assertNotIn('not the password', text)

    def test_certificate_of_another_authority(self):
        text = self.refusal(
            ca=certificates.make(['127.0.0.1']).ca.decode())
        self.assertIn('not to be trusted', text)

    def test_expired_certificate(self):
        authority = pki.make('test')
        pair = pki.issue(authority, ('127.0.0.1',), datetime.datetime.now(
            datetime.UTC) - 2 * pki.CERTIFICATE_LIFE)
        text = self.refusal(redfish_port=self.serve(pair),
                            ca=authority.certificate)
        self.assertIn('not to be trusted: certificate has expired', text)

    def serve(self, pair):
        """Shake hands with TLS clients; return the port."""
        with tempfile.NamedTemporaryFile('w') as file:
            file.write(pair.certificate + pair.key)
            file.flush()
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(file.name)

        class Handler(socketserver.BaseRequestHandler):

            def handle(self):
                with contextlib.suppress(OSError):
                    context.wrap_socket(self.request, server_side=True)

        server = socketserver.ThreadingTCPServer(('127.0.0.1', 0), Handler)
        self.addCleanup(server.server_close)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.shutdown)
        return server.server_address[1]

    def test_unreachable(self):
        text = self.refusal(
            redfish_port=self.useFixture(ports.Port()).number)
        self.assertIn('cannot be reached from here', text)
        self.assertIn('Connection refused', text)
        self.assertIn('ClusterIP', text)
