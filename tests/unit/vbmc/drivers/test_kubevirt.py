# SPDX-License-Identifier: Apache-2.0
"""The driver with its real processes and a fake cluster."""

import os
import select
import signal
import socket
import time
from unittest import mock

import fixtures
from oslotest import base

from kubevirt_sandbox.testing import ports
from sushy_kubevirt.kube import errors
from vbmc_kubevirt import backends
from vbmc_kubevirt import config
from vbmc_kubevirt.drivers import kubevirt
from vbmc_kubevirt import upstream
from vbmc_kubevirt import vm_check


def entry(name='vm', **more):
    return dict({'domain_name': name, 'username': 'admin',
                 'password': 'password', 'address': '127.0.0.1', 'port': 0,
                 'namespace': 'lab', 'kubeconfig': None, 'context': None},
                **more)


def responds(port):
    """Tell whether Get Channel Authentication Capabilities is answered."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(10)
        sock.connect(('127.0.0.1', port))
        try:
            sock.send(bytes.fromhex('0600ff0700000000000000000009'
                                    '2018c88100388e04b5'))
            return bool(sock.recv(100))
        except OSError:
            return False


class DriverTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.connection = self.useFixture(fixtures.MockPatchObject(
            backends.connection, 'Connection')).mock
        self.cluster = self.useFixture(fixtures.MockPatchObject(
            backends.cluster, 'Cluster')).mock
        self.useFixture(fixtures.MockPatchObject(
            config, 'load', config.Settings))
        self.driver = kubevirt.Driver()
        self.addCleanup(self.driver.close)


class CheckTest(DriverTestCase):

    def setUp(self):
        super().setUp()
        self.find = self.useFixture(
            fixtures.MockPatchObject(
                vm_check, 'find', side_effect=lambda *args: args[2] or 'found'
            )
        ).mock

    def assert_rejected(self, text, *args, **more):
        self.assertRaisesRegex(upstream.VirtualBMCError, text,
                               self.driver.check, entry(*args, **more))
        self.find.assert_not_called()

    def test_namespace_of_name_or_option(self):
        for name, chosen, namespace, found in (
                ('vm', None, 'found', (None, 'vm')),
                ('vm', 'lab', 'lab', ('lab', 'vm')),
                ('lab/vm', None, 'lab', ('lab', 'vm')),
                ('lab/vm', 'lab', 'lab', ('lab', 'vm'))):
            checked = self.driver.check(entry(name, namespace=chosen))
            self.assertEqual((name, namespace), (checked['domain_name'],
                                                 checked['namespace']))
            self.assertEqual(found, self.find.call_args.args[2:4])
        self.find.reset_mock()
        self.assert_rejected('lab/vm is not in namespace other', 'lab/vm',
                             namespace='other')

    def test_rejects_invalid_names(self):
        for name in ('', 'VM', 'a_b', '-a', 'a-', 'a..b', 'a' * 64, 'lab/',
                     'Lab/vm', 'a.b/vm', 'a/b/c', 'vm\n', '..', '%2e'):
            self.assert_rejected('is not a valid (VM|namespace) name', name,
                                 namespace=None)
        self.assert_rejected('not a valid namespace name', namespace='a.b')

    def test_rejects_invalid_credentials(self):
        for option, value in (
                ('username', ''), ('username', 'x' * 17),
                ('password', ''), ('password', 'x' * 21),
                ('password', 'ü' * 11), ('password', ' x'),
                ('password', 'x\ny'), ('username', 'x\t')):
            self.assert_rejected(f'The {option} must (have|not have)',
                                 **{option: value})
        self.driver.check(entry(username='ü' * 8, password='ü' * 10))

    def test_error_does_not_contain_password(self):
        try:
            self.driver.check(entry(password='geheim' * 5))
        except upstream.VirtualBMCError as exc:
            self.assertNotIn('geheim', str(exc))

    def test_kubeconfig_must_be_a_private_file(self):
        path = self.useFixture(fixtures.TempDir()).path + '/k'
        self.assert_rejected('/k: No such file', kubeconfig=path)
        self.assert_rejected('is not a regular file', kubeconfig='/')
        with open(path, 'w'):
            pass
        os.chmod(path, 0o666)
        self.assert_rejected('must belong to', kubeconfig=path)
        os.chmod(path, 0o600)
        self.driver.check(entry(kubeconfig=path, context='c'))
        self.assertEqual((path, 'c'), self.find.call_args.args[:2])
        self.find.reset_mock()
        self.useFixture(fixtures.MockPatch('os.geteuid', lambda: 12345))
        self.useFixture(fixtures.MockPatch(
            'os.stat', lambda path: mock.Mock(st_mode=0o100600, st_uid=7)))
        self.assert_rejected('must belong to', kubeconfig=path)

    def test_error_contains_reason_of_cluster(self):
        self.find.side_effect = errors.AccessDenied('may not list VMs')
        self.assertRaisesRegex(upstream.VirtualBMCError, 'may not list VMs',
                               self.driver.check, entry())


class FindTest(DriverTestCase):

    def find(self, seconds=10):
        return vm_check.find(None, None, None, 'vm', None, seconds)

    def test_find_returns_namespace(self):
        self.connection.from_options.return_value.namespace = 'own'
        self.assertEqual('own', self.find())
        self.connection.from_options.return_value.namespace = None
        self.assertEqual('default', self.find())

    def test_find_raises_error_of_cluster(self):
        self.cluster.return_value.machine.side_effect = (
            errors.MachineNotFound('default/vm'))
        self.assertRaisesRegex(errors.MachineError, 'no VirtualMachine def',
                               self.find)

    def test_find_times_out(self):
        started = time.monotonic()
        self.cluster.return_value.wait_ready = lambda: time.sleep(60)
        self.assertRaisesRegex(errors.Unavailable, 'not answer within 0.3 s',
                               self.find, 0.3)
        self.assertLess(time.monotonic() - started, 30)

    def test_crash_of_child_process_is_unavailable(self):
        self.cluster.side_effect = lambda *args, **more: os._exit(3)
        self.assertRaises(errors.Unavailable, self.find)


class ServeTest(DriverTestCase):

    def setUp(self):
        super().setUp()
        self.one, self.two = (
            entry(name, port=self.useFixture(ports.Port()).number)
            for name in ('one', 'two'))

    def processes(self):
        return [each._process.pid for each in self.driver._processes.values()]

    def test_bmcs_share_one_process(self):
        self.assertTrue(self.driver.start(self.one))
        self.assertTrue(self.driver.start(self.two))
        self.assertFalse(self.driver.start(self.one))
        self.assertEqual(1, len(self.processes()))
        self.assertTrue(responds(self.one['port']))
        self.assertTrue(responds(self.two['port']))
        self.assertEqual(upstream.RUNNING, self.driver.state('one')[0])

    def test_other_cluster_gets_its_own_process(self):
        self.driver.start(self.one)
        self.driver.start(dict(self.two, context='other'))
        self.assertEqual(2, len(self.processes()))
        self.assertTrue(responds(self.two['port']))

    def test_stop_does_not_affect_other_bmcs(self):
        self.driver.start(self.one)
        self.driver.start(self.two)
        pid, = self.processes()
        self.assertTrue(self.driver.stop('one'))
        self.assertFalse(self.driver.stop('one'))
        self.assertFalse(responds(self.one['port']))
        self.assertTrue(responds(self.two['port']))
        self.assertEqual([pid], self.processes())
        self.assertTrue(self.driver.start(self.one))
        self.assertTrue(responds(self.one['port']))
        self.driver.stop('one')
        self.driver.stop('two')
        self.assertEqual([], self.processes())
        self.assertRaises(ProcessLookupError, os.kill, pid, 0)

    def test_start_rejects_port_in_use(self):
        self.driver.start(self.one)
        taken = dict(self.two, port=self.one['port'])
        self.assertRaisesRegex(
            upstream.VirtualBMCError,
            f"UDP port {self.one['port']} on 127.0.0.1: .*in use",
            self.driver.start, taken)
        self.assertTrue(responds(self.one['port']))
        self.assertFalse(self.driver.stop('two'))
        self.driver.stop('one')
        self.assertTrue(self.driver.start(taken))

    def test_replaces_killed_process(self):
        self.driver.start(self.one)
        self.driver.start(self.two)
        pid, = self.processes()
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        self.assertEqual(upstream.ERROR, self.driver.state('one')[0])
        self.assertTrue(self.driver.start(self.one))
        self.assertTrue(self.driver.start(self.two))
        self.assertEqual(1, len(self.processes()))
        self.assertTrue(responds(self.one['port']))
        self.assertTrue(responds(self.two['port']))

    def test_stop_after_process_was_killed(self):
        self.driver.start(self.one)
        pid, = self.processes()
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        self.assertTrue(self.driver.stop('one'))
        self.assertEqual([], self.processes())

    def test_replaces_hanging_process(self):
        self.useFixture(fixtures.MockPatchObject(
            kubevirt, 'CALL_SECONDS', 0.3))
        self.driver.start(self.one)
        pid, = self.processes()
        os.kill(pid, signal.SIGSTOP)
        self.assertEqual(upstream.ERROR, self.driver.state('one')[0])
        kubevirt.CALL_SECONDS = 10
        self.assertTrue(self.driver.start(self.one))
        self.assertTrue(responds(self.one['port']))

    def test_state_contains_problem(self):
        self.cluster.return_value.machine.side_effect = errors.Unavailable(
            'The API server is away')
        self.driver.start(self.one)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            status, problem = self.driver.state('one')
            if problem:
                break
        self.assertEqual((upstream.RUNNING, 'The API server is away'),
                         (status, problem))

    def test_exception_does_not_affect_other_bmcs(self):
        self.driver.start(self.one)
        pid, = self.processes()
        self.assertRaisesRegex(
            upstream.VirtualBMCError, 'AttributeError', self.driver.start,
            dict(self.two, username=None))
        self.assertEqual([pid], self.processes())
        self.assertTrue(responds(self.one['port']))

    def test_start_rejects_entry_without_namespace(self):
        self.assertRaises(upstream.VirtualBMCError, self.driver.start,
                          entry(namespace=None))

    def test_process_ends_when_daemon_is_killed(self):
        here, there = os.pipe()
        daemon = os.fork()
        if not daemon:
            try:
                self.driver.start(self.one)
                os.write(there, b'%d' % self.processes()[0])
                signal.pause()
            finally:
                # Otherwise the child would run further tests.
                os._exit(1)
        os.close(there)
        self.addCleanup(os.close, here)
        self.addCleanup(os.waitpid, daemon, 0)
        self.addCleanup(os.kill, daemon, signal.SIGKILL)
        pid = int(os.read(here, 20))
        self.assertTrue(responds(self.one['port']))
        ended = os.pidfd_open(pid)
        os.kill(daemon, signal.SIGKILL)
        self.assertTrue(select.select([ended], [], [], 30)[0])
        self.assertFalse(responds(self.one['port']))
