# SPDX-License-Identifier: Apache-2.0
"""Power of a node by Redfish, and what users are told if it fails."""

import argparse
import contextlib
import dataclasses
import datetime
import socket
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


class Api:
    """API server with a BMC's Service and pod, whose ports are this host's.
    """

    def __init__(self, port):
        self.port = port

    def get(self, resource, namespace, name):
        return {'spec': {'ports': [
            {'name': 'redfish', 'targetPort': self.port}]}}

    def pages(self, resource, namespace, selector):
        yield [{'metadata': {'name': 'pod'}, 'status': {'conditions': [
            {'type': 'Ready', 'status': 'True'}]}}], ''

    def port_forward(self, namespace, pod, port):
        return argparse.Namespace(error='', socket=socket.create_connection(
            ('127.0.0.1', port)))


class PowerTestCase(base.SandboxTestCase):

    VMS = 1

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.pod = cls.share(redfish_pod.RedfishPod(
            cls.sandbox, certificate=certificates.make(['localhost'])))

    def setUp(self):
        super().setUp()
        self.bmc = endpoint.Bmc(
            'localhost', redfish_port=self.pod.port,
            username=redfish_pod.USER, password=self.pod.password,
            ca=self.pod.ca.read_text(), secret='vm-0-bmc',
            name='vm-0')

    def run_power(self, action=None, **more):
        bmc = dataclasses.replace(self.bmc, **more)
        return power.run(bmc, Api(bmc.redfish_port), action)

    def refusal(self, **more):
        return str(self.assertRaises(
            endpoint.BmcUnavailable, self.run_power, **more))

    def until(self, action, state):
        """Do an action, and read the state until it is the expected one."""
        found = self.run_power(action)
        for _ in polling.attempts(60):
            if found == state:
                return
            self.assertIn(found, ('On', 'Off', 'PoweringOn', 'PoweringOff'))
            found = self.run_power()
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
        error = self.assertRaises(endpoint.BmcUnavailable,
                                  self.run_power, 'pause')
        self.assertIn('BMC of vm-0: ', str(error))
        self.assertEqual(409, error.status)

    def test_wrong_password(self):
        text = self.refusal(password='not the password')
        self.assertIn('refuses the credentials of Secret vm-0-bmc', text)
        self.assertNotIn('not the password', text)

    def test_certificate_of_another_authority(self):
        text = self.refusal(
            ca=certificates.make(['localhost']).ca.decode())
        self.assertIn('not to be trusted', text)

    def test_expired_certificate(self):
        authority = pki.make('test')
        pair = pki.issue(authority, ('localhost',), datetime.datetime.now(
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
        self.assertIn('does not answer', text)
        self.assertIn('Connection refused', text)
