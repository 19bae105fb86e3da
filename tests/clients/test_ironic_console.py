# SPDX-License-Identifier: Apache-2.0
"""Ironic's serial console by its API, with the interface ipmitool-socat."""

from importlib import metadata
import socket
import time
from urllib import parse

from kubevirt_sandbox.testing import ports
from tests.clients import case
from tests.fixtures import ironic


class IronicConsoleTestCase(case.ClientTestCase):

    CLIENT = 'Ironic'

    @classmethod
    def version(cls):
        # Its version is not fixed: a minor release does not change the table.
        return metadata.version('ironic').partition('.')[0]

    def read(self, connection, end):
        """Read until the output ends with some bytes."""
        received = b''
        deadline = time.monotonic() + 60
        while not received.endswith(end):
            connection.settimeout(max(0.1, deadline - time.monotonic()))
            data = connection.recv(65536)
            self.assertTrue(data, received[-1000:])
            received += data
        return received

    def test_console(self):
        self.power('On')
        service = self.useFixture(ironic.Ironic({'DEFAULT': {
            'enabled_console_interfaces': 'ipmitool-socat,no-console'}}))
        node = service.enrol('node', 'ipmi', {
            'ipmi_address': self.address, 'ipmi_port': 623,
            'ipmi_username': self.bmc.username,
            'ipmi_password': self.bmc.password,
            'ipmi_terminal_port': self.useFixture(ports.Port()).number},
            console_interface='ipmitool-socat')
        service.baremetal.enable_node_console(node)
        service.wait(node, lambda now: now.is_console_enabled)
        info = service.baremetal.get_node_console(node)
        self.assertTrue(info['console_enabled'])
        self.assertEqual('socat', info['console_info']['type'])
        where = parse.urlsplit(info['console_info']['url'])
        with socket.create_connection((where.hostname, where.port),
                                      10) as user:
            self.read(user, b'Use ~? for help]\r\n')
            user.sendall(b'\r')
            self.read(user, b'# ')
            user.sendall(b'print 64000\r')
            printed = self.read(user, b'# ')
            self.assertEqual(
                [b'%010d' % number for number in range(1000)],
                [line[:10] for line in printed.split(b'\r\n')[1:-1]])
            service.baremetal.disable_node_console(node)
            service.wait(node, lambda now: not now.is_console_enabled)
            self.read(user, b'[Deactivated by another session.]\r\n')
        self.assertIn('already de-activated',
                      self.ipmi_failure('sol', 'deactivate'))
        self.record('console ipmitool-socat')
