# SPDX-License-Identifier: Apache-2.0
import socket
import unittest
from unittest import mock

from vbmc_kubevirt import bmc_process


class BmcProcessTest(unittest.IsolatedAsyncioTestCase):

    async def start(self, name):
        """Start a BMC; return the arguments of its `Bmc`."""
        one = bmc_process.BmcProcess(None, None, None, None, 'options', 'a/b')
        with mock.patch.object(
            bmc_process.bmc, 'Bmc'
        ) as entry, mock.patch.object(
            bmc_process.udp, 'open_socket'
        ) as open_socket:
            entry.return_value.watch = mock.AsyncMock()
            self.assertIsNone(await one.start({
                'domain_name': name, 'namespace': 'lab', 'username': 'admin',
                'password': 'p', 'address': '127.0.0.1', 'port': 6230}))
            open_socket.assert_called_once_with('127.0.0.1', 6230)
            entry.return_value.start.assert_called_once()
            await one.stop(name)
            entry.return_value.server.stop.assert_called_once()
            return entry.call_args.args

    async def test_serves_vm_and_account_of_entry(self):
        for name in 'lab/vm', 'vm':
            _commands, connect, *rest, users, _readers, _writers = (
                await self.start(name))
            self.assertEqual([name, 'lab/vm'], rest)
            self.assertEqual(('options', 'lab/vm', 'a/b'), connect.args[1:])
            user, = users.all()
            self.assertEqual((2, b'admin', b'p', 4, True),
                             tuple(user))

    async def test_start_reports_port_in_use(self):
        one = bmc_process.BmcProcess(None, None, None, None, None, '')
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            other.bind(('127.0.0.1', 0))
            self.assertIn('in use', await one.start({
                'domain_name': 'vm', 'address': '127.0.0.1',
                'port': other.getsockname()[1]}))
