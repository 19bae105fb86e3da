# SPDX-License-Identifier: Apache-2.0
import asyncio
from concurrent import futures
import json
import threading
import types
import unittest
from unittest import mock

from oslotest import base

from kubevirt_sandbox.testing import certificates
from sushy_kubevirt.kube import errors
from sushy_kubevirt.operator.shared import placement
from sushy_kubevirt.pod import certificate
from sushy_kubevirt.redfish.services import account_files
from vbmc_kubevirt import mounted_secret
from vbmc_kubevirt import shared_bmc
from vbmc_kubevirt import shared_pod


class ReportTest(unittest.IsolatedAsyncioTestCase):

    async def test_replaces_all_first_and_then_writes_changes(self):
        client, pool = mock.Mock(), futures.ThreadPoolExecutor(1)
        self.addCleanup(pool.shutdown)
        written = asyncio.Queue()
        loop = asyncio.get_running_loop()
        results = [errors.Unavailable('busy'), None, None]

        def patch(resource, namespace, name, body):
            self.assertEqual(('lab', 'b-served'), (namespace, name))
            loop.call_soon_threadsafe(written.put_nowait, body)
            result = results.pop(0)
            if result is not None:
                raise result

        client.patch = patch
        with mock.patch.object(shared_pod, 'REPORT_SECONDS', 0.01):
            report = shared_pod.Report(client, ('lab', 'b-served'), pool)
            report.set('a', 'digest-a')
            report.set('b', 'digest-b', 'no Secret')
            task = asyncio.create_task(report.run())
            self.addCleanup(task.cancel)
            async with asyncio.timeout(30):
                with self.assertLogs('vbmc_kubevirt'):
                    # The first write failed, and is repeated.
                    for _ in range(2):
                        [change] = await written.get()
                self.assertEqual('/data', change['path'])
                self.assertEqual(
                    {'digest': 'digest-b', 'problem': 'no Secret'},
                    json.loads(change['value']['b']))
                report.set('a', 'digest-2')
                report.remove('b')
                body = await written.get()
        self.assertIsNone(body['data'].pop('b'))
        self.assertEqual(
            {'a': {'digest': 'digest-2', 'problem': ''}},
            {name: json.loads(text) for name, text in body['data'].items()})

    async def test_what_somebody_else_changes_is_written_again(self):
        client, pool = mock.Mock(), futures.ThreadPoolExecutor(1)
        self.addCleanup(pool.shutdown)
        written = asyncio.Queue()
        loop = asyncio.get_running_loop()
        client.patch = lambda *args: loop.call_soon_threadsafe(
            written.put_nowait, args[-1])
        client.get.return_value = {}
        with mock.patch.object(shared_pod, 'REPORT_SECONDS', 0.01), \
                mock.patch.object(shared_pod, 'CHECK_SECONDS', 0.01):
            report = shared_pod.Report(client, ('lab', 'b-served'), pool)
            report.set('a', 'digest-a')
            self.assertFalse(report.replaced)
            task = asyncio.create_task(report.run())
            self.addCleanup(task.cancel)
            async with asyncio.timeout(30):
                [first] = await written.get()
                # It was deleted and created again, or is forged.
                for found in ({}, {'a': 'x'}, first['value'] | {'b': 'x'}):
                    client.get.return_value = {'data': found}
                    while not written.empty():
                        written.get_nowait()
                    body = (await written.get())['data']
                    # Writes of the check before may still follow.
                    while 'b' in found and 'b' not in body:
                        body = (await written.get())['data']
                    self.assertEqual(None if 'b' in found else first[
                        'value']['a'], body['b' if 'b' in found else 'a'])
                self.assertTrue(report.replaced)
                client.get.side_effect = errors.ObjectNotFound('gone')
                body = await written.get()
                while 'b' in body['data']:
                    body = await written.get()
                self.assertEqual({'data': first['value']}, body)


class Bmc:
    """A BMC that takes as long as a test wants to be prepared and to stop.

    :ivar using: the BMCs that have the ports
    """

    using = []
    prepared = stopped = None

    def __init__(self, common, name, entry):
        self.entry = entry

    def prepare(self):
        if self.prepared is not None:
            self.prepared.wait(30)

    def start(self):
        self.using.append(self)
        if len(self.using) > 1:
            raise shared_bmc.Problem('TCP port 10000: Address already in use')

    async def stop(self):
        if self.stopped is not None:
            await self.stopped.wait()
        if self in self.using:
            self.using.remove(self)

    def close(self):
        pass

    def problem(self):
        return ''


class MembersTest(unittest.IsolatedAsyncioTestCase):

    async def asyncSetUp(self):
        self.pod = pod = object.__new__(shared_pod.SharedPod)
        pod._members, pod._stopping = {}, False
        pod._loop = asyncio.get_running_loop()
        pod._starters = futures.ThreadPoolExecutor(4)
        self.addCleanup(pod._starters.shutdown)
        pod._common, pod._report = None, mock.Mock()
        self.bmc = type('OneBmc', (Bmc,), {'using': []})
        patch = mock.patch.object(shared_bmc, 'SharedBmc', self.bmc)
        patch.start()
        self.addCleanup(patch.stop)

    def entry(self, **values):
        return json.dumps({'uid': 'u', 'slot': 0, **values})

    async def apply(self, *entries):
        """Change the entry without a pause; wait until the last is served."""
        for text in entries:
            self.pod._apply({} if text is None else {'a': text})
            for _ in range(5):
                await asyncio.sleep(0)

    async def served(self):
        async with asyncio.timeout(30):
            while (member := self.pod._members.get('a')) is not None and (
                    not member.task.done()):
                await asyncio.sleep(0.001)
        return [one.entry['vm'] for one in self.bmc.using]

    async def test_reservation_is_neither_served_nor_reported(self):
        await self.apply(self.entry())
        self.assertEqual([], await self.served())
        self.pod._report.set.assert_not_called()
        await self.apply(self.entry(vm='lab/a'))
        self.assertEqual(['lab/a'], await self.served())
        self.pod._report.remove.reset_mock()
        await self.apply(self.entry())
        self.assertEqual([], await self.served())
        self.pod._report.remove.assert_called_once_with('a')
        self.pod._report.set.assert_called_once()
        await self.apply(None)
        self.assertEqual([], await self.served())
        self.assertEqual({}, self.pod._members)

    async def test_next_entry_waits_for_ports(self):
        await self.apply(self.entry(vm='lab/a'))
        await self.served()
        stopped = self.bmc.stopped = asyncio.Event()
        await self.apply(*(self.entry(vm=f'lab/{name}') for name in 'bcd'))
        await asyncio.sleep(0.05)       # for a BMC that does not wait
        self.assertEqual(['lab/a'], [
            one.entry['vm'] for one in self.bmc.using])
        stopped.set()
        self.assertEqual(['lab/d'], await self.served())
        self.assertEqual({''}, {call.args[2] for call
                                in self.pod._report.set.mock_calls})

    async def test_change_during_preparation(self):
        self.bmc.prepared = threading.Event()
        stopped = self.bmc.stopped = asyncio.Event()
        await self.apply(*(self.entry(vm=f'lab/{name}') for name in 'abc'))
        self.bmc.prepared.set()
        await asyncio.sleep(0.01)
        self.assertEqual([], self.bmc.using)    # 'a' is still discarded
        stopped.set()
        self.assertEqual(['lab/c'], await self.served())


class EntryTest(base.BaseTestCase):

    def test_reservation_is_no_entry(self):
        for text, expected in (
                ('{"slot": 1, "uid": "u"}', True), ('{"vm": "a/b"}', False),
                ('x', False), ('3', False)):
            self.assertEqual(expected, shared_pod._is_reservation(text), text)

    def test_versions_of_secrets_need_no_restart(self):
        entry = {'auth': {'secret': 's', 'version': '1'}, 'slot': 1}
        renewed = {'auth': {'secret': 's', 'version': '2'}, 'slot': 1}
        other = {'auth': {'secret': 't', 'version': '1'}, 'slot': 1}
        self.assertTrue(shared_bmc.differs_by_secrets_only(entry, renewed))
        self.assertFalse(shared_bmc.differs_by_secrets_only(entry, other))


class Secret(types.SimpleNamespace):

    version = 1

    def __str__(self):
        return 'lab/auth'

    def change(self, **values):
        self.values = {name: value for name, value in values.items()}
        self.version += 1


class SecretTest(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.secret = Secret(values={
            'username': b'admin\n', 'password': b'secret-1\n'})

    def test_account_of_ipmi(self):
        account = mounted_secret.SecretAccount(self.secret)
        [user] = account.users()
        self.assertEqual((b'admin', b'secret-1', ''),
                         (user.name, user.password, account.problem))
        self.assertIs(user, account.users()[0])
        self.secret.change(username=b'admin', password=b'')
        self.assertEqual((), account.users())
        self.assertIn('lab/auth', account.problem)
        self.secret.change(password=b'x')
        self.assertIn('username', account.problem)
        self.secret.change(username=b'a', password=b'x', role=b'King')
        self.assertIn('role', account.problem)

    def test_account_of_redfish(self):
        source = account_files.SecretSource(self.secret)
        accounts = account_files.Accounts([source])
        accounts.require()
        [first] = accounts.current().values()
        self.assertEqual(('admin', 'Administrator', True),
                         (first.name, first.role, first.ipmi))
        self.assertEqual(account_files.keyed_hash(b'secret-1'),
                         first.password_hash)
        self.assertNotIn(b'secret-1', first.digest)
        self.secret.change(username=b'admin', password=b'secret-2')
        [second] = accounts.current(recheck=True).values()
        # Sessions end.
        self.assertNotEqual(first.signature, second.signature)
        self.secret.change(username=b'admin')
        self.assertEqual({}, accounts.current(recheck=True))
        self.assertRaisesRegex(account_files.Invalid, 'lab/auth.*password',
                               accounts.require)

    def test_certificate(self):
        made = certificates.make(['127.0.0.1'])
        self.secret.change(**{'tls.crt': made.certificate,
                              'tls.key': made.key})
        one = certificate.CertificateInMemory(self.secret)
        first = one.context()
        self.assertEqual('', one.problem)
        self.assertIs(first, one.context())
        self.secret.change(**{'tls.crt': made.certificate, 'tls.key': b'x'})
        self.assertIn('lab/auth', one.problem)
        self.assertIs(first, one.context())
        again = certificates.make(['127.0.0.1'])
        self.secret.change(**{'tls.crt': again.certificate,
                              'tls.key': again.key})
        self.assertEqual('', one.problem)
        self.assertIsNot(first, one.context())
        self.secret.change()
        self.assertRaisesRegex(OSError, 'lab/auth',
                               certificate.CertificateInMemory, self.secret)


class PortsTestCase(base.BaseTestCase):

    def test_ports_are_those_of_the_services(self):
        for name in 'REDFISH_PORT', 'HTTP_PORT', 'IPMI_PORT':
            self.assertEqual(getattr(placement, name),
                             getattr(shared_bmc, name))
