# SPDX-License-Identifier: Apache-2.0
"""``vbmc`` and ``vbmcd-kubevirt``: entries, drivers and processes."""

import os
import pathlib
import signal
import socket
import subprocess
import time

import fixtures
from oslotest import base as oslotest_base

from kubevirt_sandbox.testing import machines
from kubevirt_sandbox.testing import ports
from kubevirt_sandbox.testing import process
from tests.fixtures import base
from tests.fixtures import processes
from tests.fixtures import sandbox
from tests.fixtures import vbmcd

LIBVIRT = ('--libvirt-uri', 'test:///default')

#: A driver as another package could provide it.
THIRD = '''
class Driver:
    options = chosen = ('color',)

    @staticmethod
    def add_arguments(parser):
        parser.add_argument('--color')

    def __init__(self):
        self.serves = set()

    def check(self, entry):
        return entry

    def start(self, entry):
        new = entry['domain_name'] not in self.serves
        self.serves.add(entry['domain_name'])
        return new

    def stop(self, name):
        if name not in self.serves:
            return False
        self.serves.remove(name)
        return True

    def state(self, name):
        return 'running', 'painted'

    def close(self):
        self.serves.clear()
'''


def status(daemon):
    """Return {name: (status, driver)} as ``vbmc list`` prints it."""
    table = daemon.vbmc('list', '-f', 'csv', '--quote', 'none').stdout
    rows = [line.split(',') for line in table.splitlines()[1:]]
    return {name: (state, driver)
            for name, state, _address, _port, driver in rows}


def shown(daemon, name):
    """Return the output of ``vbmc show`` as a dictionary."""
    table = daemon.vbmc('show', name, '-f', 'csv', '--quote', 'none').stdout
    return dict(line.split(',', 1) for line in table.splitlines()[1:])


class EntriesTest(base.VbmcdTestCase):
    """Two VMs, vm-0 and vm-1, and libvirt's own test domain."""

    CONFIG = {'drivers': {'default': 'kubevirt'}}

    def setUp(self):
        super().setUp()
        self.port = self.useFixture(ports.Port()).number
        self.addCleanup(self.clear)

    def clear(self):
        names = list(status(self.vbmcd))
        if names:
            self.vbmcd.vbmc('delete', *names)

    def add(self, name, *words, **options):
        return self.vbmcd.vbmc('add', name, '--address', '127.0.0.1',
                               '--port', self.port, *words, **options)

    def refused(self, name, *words):
        done = self.add(name, *words, check=False)
        self.assertNotEqual(0, done.returncode, done.stdout)
        self.assertEqual({}, status(self.vbmcd))
        self.assertNotIn('Traceback', done.stdout)
        return done.stdout

    def test_add_refuses_missing_vm(self):
        self.assertIn('There is no VirtualMachine '
                      f'{sandbox.NAMESPACE}/nothing', self.refused('nothing'))
        # The daemon's own account has no permissions in that namespace.
        self.assertIn('There is no VirtualMachine other/vm-0',
                      self.refused('vm-0', '--namespace', 'other',
                                   '--kubeconfig', self.sandbox.kubeconfig))

    def test_add_refuses_unreachable_cluster(self):
        kubeconfig = pathlib.Path(self.sandbox.kubeconfig).read_text()
        config = self.vbmcd.home / 'unreachable'
        config.write_text(kubeconfig.replace(
            self.sandbox.url, f'https://127.0.0.1:{self.port}'))
        config.chmod(0o600)
        # The text shows that neither vbmc nor the daemon has run out of time.
        self.assertIn(
            f'The API server https://127.0.0.1:{self.port} does not answer',
            self.refused('vm-0', '--kubeconfig', config))
        self.assertIn('no context nope',
                      self.refused('vm-0', '--context', 'nope'))
        self.assertIn('No such file',
                      self.refused('vm-0', '--kubeconfig', 'no/such/file'))

    def test_add_refuses_unresponsive_cluster(self):
        """A limit of the daemon's ends it, not that of vbmc, 30 s here."""
        with socket.create_server(('127.0.0.1', 0)) as silent:
            kubeconfig = pathlib.Path(self.sandbox.kubeconfig).read_text()
            config = self.vbmcd.home / 'silent'
            config.write_text(kubeconfig.replace(
                self.sandbox.url,
                f'https://127.0.0.1:{silent.getsockname()[1]}'))
            config.chmod(0o600)
            self.assertRegex(
                self.refused('vm-0', '--kubeconfig', config),
                # Whichever is first: the request, or the wait for its list.
                'The API server .* does not answer .* timed out'
                '|The API server has not listed the VMs in 4 s')

    def test_add_refuses_invalid_arguments(self):
        self.assertIn('1 to 20 bytes',
                      self.refused('vm-0', '--password', 'x' * 21))
        self.assertIn('not a valid VM name', self.refused('VM_0'))
        self.refused('../../etc')
        self.assertIn('option of driver kubevirt', self.refused(
            'test', '--driver', 'libvirt', '--namespace', 'x'))
        self.assertIn('invalid choice', self.refused(
            'vm-0', '--driver', 'vmware'))

    def test_names_with_and_without_namespace(self):
        self.add(f'{sandbox.NAMESPACE}/vm-0')
        self.assertEqual({f'{sandbox.NAMESPACE}/vm-0': ('down', 'kubevirt')},
                         status(self.vbmcd))
        self.assertEqual((
            sandbox.NAMESPACE, 'kubevirt', f'{sandbox.NAMESPACE}/vm-0'), tuple(
            shown(self.vbmcd, f'{sandbox.NAMESPACE}/vm-0')[key]
            for key in ('namespace', 'driver', 'domain_name')))
        self.add('vm-1', '--namespace', sandbox.NAMESPACE)
        self.assertIn('BMC for vm-1 already exists',
                      self.add('vm-1', check=False).stdout)
        self.vbmcd.vbmc('start', f'{sandbox.NAMESPACE}/vm-0')
        self.assertEqual({f'{sandbox.NAMESPACE}/vm-0': ('running', 'kubevirt'),
                          'vm-1': ('down', 'kubevirt')}, status(self.vbmcd))
        self.vbmcd.vbmc('delete', f'{sandbox.NAMESPACE}/vm-0')
        self.assertEqual(['vm-1'], list(status(self.vbmcd)))
        self.assertNotEqual(0, self.vbmcd.vbmc(
            'delete', '..', check=False).returncode)
        self.assertTrue((self.vbmcd.home / 'vbmc').exists())

    def test_passwords_are_not_readable_by_others(self):
        for name, password in (('vm-0', 'p%ss wörd'), ('vm-1', "a'b\"=;#")):
            bmc = self.vbmcd.add(name, password=password)
            self.assertIn('Chassis Power', self.vbmcd.ipmi(
                name, 'power', 'status'))
            folder = self.vbmcd.home / 'vbmc' / name
            self.assertEqual(0o700, folder.stat().st_mode & 0o777)
            for path in folder.iterdir():
                self.assertEqual(0o600, path.stat().st_mode & 0o777)
            self.assertEqual('***', shown(self.vbmcd, name)['password'])
            self.assertNotIn(bmc.password, self.vbmcd.process.output)

    def test_start_on_used_port_is_repeated(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            other.bind(('127.0.0.1', self.port))
            self.add('vm-0')
            done = self.vbmcd.vbmc('start', 'vm-0', check=False)
            self.assertNotEqual(0, done.returncode)
            self.assertIn(f'UDP port {self.port} on 127.0.0.1: ',
                          done.stdout)
            self.assertEqual({'vm-0': ('error', 'kubevirt')},
                             status(self.vbmcd))
            self.assertIn('UDP port', shown(self.vbmcd, 'vm-0')['problem'])
        # The daemon tries it again every three seconds.
        self.wait_status('vm-0', 'running')
        self.vbmcd.vbmc('stop', 'vm-0')
        self.assertEqual({'vm-0': ('down', 'kubevirt')}, status(self.vbmcd))

    def wait_status(self, name, state, seconds=60):
        deadline = time.monotonic() + seconds
        while status(self.vbmcd)[name][0] != state:
            self.assertLess(time.monotonic(), deadline)
            # The daemon checks its entries after 3 s without a request.
            time.sleep(3.2)

    def test_kubevirt_and_libvirt_drivers(self):
        self.vbmcd.add('test', *LIBVIRT, driver='libvirt')
        self.vbmcd.add('vm-0')
        self.vbmcd.add('vm-1', driver=None)
        self.assertEqual({'test': ('running', 'libvirt'),
                          'vm-0': ('running', 'kubevirt'),
                          'vm-1': ('running', 'kubevirt')},
                         status(self.vbmcd))
        for name in 'test', 'vm-0', 'vm-1':
            self.assertIn('Chassis Power',
                          self.vbmcd.ipmi(name, 'power', 'status'))
        # One process for libvirt's entry, one for both of KubeVirt's.
        self.assertEqual(
            2, len(processes.children(self.vbmcd.process.pid)))
        self.vbmcd.vbmc('stop', 'vm-0')
        for name in 'test', 'vm-1':
            self.assertIn('Chassis Power',
                          self.vbmcd.ipmi(name, 'power', 'status'))
        # libvirt's test driver keeps its state per connection.
        self.vbmcd.ipmi('test', 'chassis', 'bootdev', 'pxe')
        done = vbmcd.ipmitool(self.vbmcd.bmcs['vm-0'], 'power', 'status',
                              options=('-N', '1', '-R', '1'))
        self.assertNotEqual(0, done.returncode)

    def test_killed_host_process_is_restarted(self):
        for name in 'vm-0', 'vm-1':
            self.vbmcd.add(name)
        host, = processes.children(self.vbmcd.process.pid)
        os.kill(host, signal.SIGKILL)
        for name in 'vm-0', 'vm-1':
            self.vbmcd.wait_answer(self.vbmcd.bmcs[name])
        self.assertNotEqual([host],
                            processes.children(self.vbmcd.process.pid))
        self.assertEqual({'running'}, {state for state, driver in
                                       status(self.vbmcd).values()})

    def test_restarted_daemon_serves_its_entries(self):
        self.vbmcd.add('vm-0')
        self.vbmcd.add('test', *LIBVIRT, driver='libvirt')
        self.vbmcd.process.restart()
        self.assertEqual([], self.vbmcd.process.leftovers)
        for name in 'vm-0', 'test':
            self.vbmcd.wait_answer(self.vbmcd.bmcs[name])
        self.assertEqual({'vm-0': ('running', 'kubevirt'),
                          'test': ('running', 'libvirt')},
                         status(self.vbmcd))

    def test_killed_daemon_serves_its_entries(self):
        self.vbmcd.add('vm-0')
        pid_file = self.vbmcd.home / 'master.pid'
        self.assertEqual(str(self.vbmcd.process.pid), pid_file.read_text())
        self.vbmcd.process.kill()
        self.vbmcd.process.restart()
        self.vbmcd.wait_answer(self.vbmcd.bmcs['vm-0'])

    def test_second_daemon_is_refused(self):
        done = subprocess.run(
            [process.BIN / 'vbmcd-kubevirt', '--foreground'],
            env=self.vbmcd.env, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=30)
        self.assertEqual(1, done.returncode)
        self.assertIn('still running', done.stdout)


class StockDaemonTest(oslotest_base.BaseTestCase):
    """Additional options of the stock client and the stock daemon."""

    def test_stock_daemon_ignores_options(self):
        daemon = self.useFixture(vbmcd.Vbmcd(command='vbmcd'))
        daemon.add('test', *LIBVIRT, driver='libvirt')
        self.assertIn('Chassis Power', daemon.ipmi('test', 'power',
                                                   'status'))
        done = daemon.vbmc('add', 'vm', '--driver', 'kubevirt',
                           '--namespace', 'x', *LIBVIRT, check=False)
        self.assertIn('No domain with matching name vm', done.stdout)

    def test_uses_entries_of_stock_daemon(self):
        first = self.useFixture(vbmcd.Vbmcd(command='vbmcd'))
        bmc = first.add('test', *LIBVIRT, driver=None)
        first.process.cleanUp()
        first.process.command[0] = 'vbmcd-kubevirt'
        first.process.setUp()
        self.assertEqual({'test': ('running', 'libvirt')}, status(first))
        first.wait_answer(bmc)
        self.assertIn('Chassis Power is on',
                      first.ipmi('test', 'power', 'status'))


class ThirdDriverTest(oslotest_base.BaseTestCase):
    """A driver of another package, found by its entry point."""

    def test_driver_of_another_package(self):
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (path / 'third.py').write_text(THIRD)
        info = path / 'third-1.dist-info'
        info.mkdir()
        (info / 'METADATA').write_text(
            'Metadata-Version: 2.1\nName: third\nVersion: 1\n')
        (info / 'entry_points.txt').write_text(
            '[virtualbmc.drivers]\nthird = third:Driver\n')
        daemon = self.useFixture(vbmcd.Vbmcd(env={'PYTHONPATH': path}))
        daemon.add('house', '--color', 'red', driver='third', start=False)
        daemon.vbmc('start', 'house')
        self.assertEqual({'house': ('running', 'third')}, status(daemon))
        seen = shown(daemon, 'house')
        self.assertEqual(('red', 'painted'), (seen['color'],
                                              seen['problem']))
        self.assertIn('--color is an option of driver third', daemon.vbmc(
            'add', 'test', '--driver', 'libvirt', '--color', 'red',
            check=False).stdout)
        daemon.vbmc('stop', 'house')
        self.assertEqual({'house': ('down', 'third')}, status(daemon))


class CommandTest(oslotest_base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.home = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.port = self.useFixture(ports.Port()).number
        self.config = self.home / 'virtualbmc.conf'

    def configure(self, text=''):
        self.config.write_text(
            f'[default]\nconfig_dir = {self.home}/x/vbmc\n'
            f'pid_file = {self.home}/master.pid\nserver_port = {self.port}\n'
            # Milliseconds; the default of 5 s is short on a busy host.
            'server_response_timeout = 30000\nserver_spawn_wait = 10000\n'
            f'[log]\nlogfile = {self.home}/log\n{text}')
        return process.environment(
            self.home, {'VIRTUALBMC_CONFIG': self.config})

    def run_daemon(self, *words, text=''):
        return subprocess.run(
            [process.BIN / 'vbmcd-kubevirt', *words],
            env=self.configure(text), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=30)

    def test_version(self):
        stock = subprocess.run([process.BIN / 'vbmcd', '--version'],
                               stdout=subprocess.PIPE, text=True)
        self.assertEqual(stock.stdout, self.run_daemon('--version').stdout)

    def test_config_errors_are_reported(self):
        for text, message in (
                ('[drivers]\ndefault = x\n', 'Unknown driver x'),
                ('[drivers]\ndefault = kubevirt\n[kubevirt]\nx = 1\n',
                 'Unknown option x in section [kubevirt]')):
            self.assertEqual(
                1, self.run_daemon('--foreground', text=text).returncode)
            self.assertIn(message, (self.home / 'log').read_text())

    def test_detached_daemon(self):
        done = self.run_daemon()
        self.assertEqual(0, done.returncode, done.stdout)
        pid_file = self.home / 'master.pid'
        deadline = time.monotonic() + 60
        while not (pid_file.exists()
                   and pid_file.read_text() not in ('', '0')):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        pid = int(pid_file.read_text())
        self.addCleanup(self.end, pid)
        ended = os.pidfd_open(pid)
        self.addCleanup(os.close, ended)
        env = self.configure()
        add = subprocess.run(
            [process.BIN / 'vbmc', 'add', 'test', *LIBVIRT, '--port', '1623'],
            env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=60)
        self.assertEqual(0, add.returncode, add.stdout)
        for path, mode in (('x/vbmc', 0o700), ('x/vbmc/test', 0o700),
                           ('x/vbmc/test/config', 0o600)):
            self.assertEqual(
                mode, (self.home / path).stat().st_mode & 0o777, path)
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + 40
        while pid_file.exists():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)

    @staticmethod
    def end(pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


class TwoBmcsTest(base.VbmcdTestCase):
    """Two BMCs of one daemon."""

    VMS = 0

    def test_bmcs_are_independent(self):
        for name in 'left', 'right':
            self.sandbox.create('virtualmachines',
                                machines.vm(name, 'Halted'))
            self.vbmcd.add(name)
        self.vbmcd.ipmi('left', 'chassis', 'bootdev', 'pxe')
        self.vbmcd.ipmi('left', 'power', 'on')
        self.sandbox.wait_running('left')
        self.assertEqual([], self.sandbox.boots('right'))
        self.assertEqual('Chassis Power is off',
                         self.vbmcd.ipmi('right', 'power', 'status'))
        left, right = (self.vbmcd.bmcs[name] for name in ('left', 'right'))
        done = vbmcd.ipmitool(right, 'power', 'status',
                              password=left.password)
        self.assertNotEqual(0, done.returncode)
