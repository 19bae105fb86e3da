# SPDX-License-Identifier: Apache-2.0
import asyncio
import functools
import time
import unittest
from unittest import mock

from sushy_kubevirt.kube import blocking
from sushy_kubevirt.kube import errors
from vbmc_kubevirt import backends
from vbmc_kubevirt import bmc
from vbmc_kubevirt import bmc_users
from vbmc_kubevirt import command_table


class SharedConnectionTest(unittest.TestCase):

    def setUp(self):
        super().setUp()
        patch = mock.patch.object(backends.connection, 'Connection')
        self.make = patch.start().from_options
        self.addCleanup(patch.stop)

    def test_connects_once_at_first_use(self):
        link = backends.SharedConnection('/k', 'c')
        self.make.assert_not_called()
        self.assertIs(link.get(), link.get())
        self.make.assert_called_once_with('/k', 'c')

    def test_retries_failed_connection_after_pause(self):
        link = backends.SharedConnection(None, None)
        self.make.side_effect = errors.ConfigError('no kubeconfig')
        for _number in range(5):
            self.assertRaisesRegex(errors.ConfigError, 'no kubeconfig',
                                   link.get)
        self.assertEqual(1, self.make.call_count)
        self.make.side_effect = None
        later = time.monotonic() + backends.RETRY_SECONDS + 1
        with mock.patch.object(backends.time, 'monotonic', lambda: later):
            link.get()


class BmcTest(unittest.TestCase):

    def setUp(self):
        super().setUp()
        patch = mock.patch.object(backends.cluster, 'Cluster')
        self.cluster = patch.start()
        self.addCleanup(patch.stop)
        self.link = mock.Mock()

    def entry(self):
        return bmc.Bmc(
            command_table.commands,
            functools.partial(backends.OwnBackend, self.link, 'options',
                              'lab/vm'),
            'vm', 'lab/vm', mock.Mock(managed=False), None, None)

    def test_accesses_only_its_vm(self):
        entry = self.entry()
        self.assertIsNone(entry.cluster)
        self.cluster.return_value.machine.return_value.uuid = (
            '6fb0c2e9-6dd2-4c0a-b1d2-1234567890ab')
        for _twice in range(2):
            entry.machine()
        self.cluster.assert_called_once_with(
            self.link.get(), options='options', vm='lab/vm')
        self.cluster.return_value.machine.assert_called_with('lab/vm')
        self.assertIs(self.cluster.return_value, entry.cluster)

    def test_attempt_does_not_connect(self):
        entry = self.entry()
        self.assertRaises(blocking.WouldBlock, blocking.attempt,
                          entry.machine)
        self.link.get.assert_not_called()

    def test_closed_bmc_does_not_connect(self):
        entry = self.entry()
        entry.close()
        self.assertRaises(errors.Unavailable, entry.machine)
        self.cluster.assert_not_called()


class SharedBackendTest(unittest.TestCase):

    def test_ipmi_alone_reads_stored_accounts(self):
        """Nothing else does, and the first login needs them."""
        state = mock.Mock()
        backend = backends.SharedBackend(
            mock.Mock(), state, mock.Mock(), None, {})
        users = bmc_users.BmcUsers(tuple, True)
        backend.attach(users)
        state.refresh.assert_called_once()
        self.assertIsNotNone(users._accounts)
        state.reset_mock()
        backend.attach(bmc_users.BmcUsers(tuple, False))
        self.assertEqual([], state.mock_calls)


class WatchTest(unittest.IsolatedAsyncioTestCase):
    """A BMC watches its VM without waiting for an IPMI request."""

    async def watch(self, *results):
        entry = bmc.Bmc(command_table.commands, mock.Mock(), 'vm', 'lab/vm',
                        mock.Mock(managed=False), None, None)
        entry.machine = mock.Mock(side_effect=results)
        with mock.patch.object(backends, 'RETRY_SECONDS', 0):
            async with asyncio.timeout(30):
                await entry.watch(None)
        self.assertEqual(len(results), entry.machine.call_count)
        return entry

    async def test_watch_starts_without_ipmi_request(self):
        await self.watch('machine')

    async def test_watch_retries_until_kubeconfig_is_valid(self):
        with self.assertLogs('vbmc_kubevirt') as logs:
            served = await self.watch(errors.ConfigError('no kubeconfig'),
                                      errors.ConfigError('no kubeconfig'),
                                      'machine')
        self.assertEqual(1, len(logs.records))
        self.assertEqual('no kubeconfig', served.last_error)

    async def test_watch_leaves_retries_to_the_cluster(self):
        served = await self.watch(errors.Unavailable('away'))
        self.assertEqual('away', served.last_error)
