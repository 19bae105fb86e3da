# SPDX-License-Identifier: Apache-2.0
"""The fixtures for processes and ports."""

import os
import pathlib
import signal
import socket
import subprocess
import sys

import fixtures
from oslotest import base

from kubevirt_sandbox.testing import guard
from kubevirt_sandbox.testing import ports
from kubevirt_sandbox.testing import process

#: The folder of the package.
ROOT = str(pathlib.Path(__file__).parents[2])

# A program that leaves a process in a separate session.
FORKS_DAEMON = 'setsid sleep 1000 & echo forked $!; sleep 1000 & wait'

KILLED_PARENT = '''
import os, signal, sys
sys.path.insert(0, %r)
from kubevirt_sandbox.testing import process
one = process.Process(['bash', '-c', %r], ready='forked', grace=1)
one.setUp()
print(one.pid, one.output.split()[1], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
'''


class ProcessTestCase(base.BaseTestCase):

    def bash(self, script, **options):
        return process.Process(['bash', '-c', script], **options)

    def assert_ends(self, descriptor):
        """Assert that the process of a pidfd ends soon."""
        self.assertTrue(guard.ended(descriptor, 10))

    def watch(self, pid):
        descriptor = os.pidfd_open(pid)
        self.addCleanup(os.close, descriptor)
        return descriptor

    def test_waits_for_ready_line(self):
        with self.bash('echo one; echo two 22; sleep 1000',
                       ready=r'^two (\d+)') as one:
            self.assertEqual('22', one.match[1])
            self.assertIn('one\n', one.output)
        self.assertEqual(-signal.SIGTERM, one.returncode)
        self.assertEqual([], [pid for pid in one.leftovers if pid == one.pid])

    def test_error_if_process_ends_before_ready(self):
        one = self.bash('echo why not; exit 3', ready='never')
        exc = self.assertRaises(fixtures.MultipleExceptions, one.setUp)
        self.assertIn('ended with 3', str(exc.args[0][1]))
        self.assertIn('why not', str(exc.args[0][1]))

    def test_error_if_process_is_never_ready(self):
        one = self.bash('sleep 1000', ready='never', timeout=0.1)
        exc = self.assertRaises(fixtures.MultipleExceptions, one.setUp)
        self.assertIsInstance(exc.args[0][1], TimeoutError)

    def test_error_for_unknown_command(self):
        one = process.Process(['no-such-command'], ready='never')
        exc = self.assertRaises(fixtures.MultipleExceptions, one.setUp)
        self.assertIn('No such file', str(exc.args[0][1]))

    def test_ends_forked_processes(self):
        with self.bash(FORKS_DAEMON, ready=r'^forked (\d+)') as one:
            left = int(one.match[1])
            descriptor = self.watch(left)
        self.assert_ends(descriptor)
        self.assertIn(left, one.leftovers)

    def test_kills_process_that_ignores_sigterm(self):
        with self.bash("trap '' TERM; echo set; sleep 1000 & wait; wait",
                       ready='^set', grace=0.2) as one:
            descriptor = self.watch(one.pid)
        self.assert_ends(descriptor)
        self.assertEqual(-signal.SIGKILL, one.returncode)

    def test_processes_end_when_parent_is_killed(self):
        with subprocess.Popen(
                [sys.executable, '-c',
                 KILLED_PARENT % (ROOT, FORKS_DAEMON)],
                stdout=subprocess.PIPE, text=True) as parent:
            # The kernel could have reused a pid only if both had ended.
            watched = []
            for word in parent.stdout.readline().split():
                try:
                    watched.append(self.watch(int(word)))
                except ProcessLookupError:
                    pass
            self.assertEqual(-signal.SIGKILL, parent.wait())
        for descriptor in watched:
            self.assert_ends(descriptor)

    def test_kill_and_restart(self):
        with self.bash('echo up; sleep 1000', ready='^up') as one:
            first = one.pid
            self.assertEqual(-signal.SIGKILL, one.kill())
            one.restart()
            self.assertNotEqual(first, one.pid)
            self.assertIsNone(one.returncode)

    def test_waits_for_output_after_mark(self):
        with self.bash('echo tick; read -t 0.1; echo tick; sleep 1000',
                       ready='^tick') as one:
            one.wait_output('^tick', mark=len('tick\n'), timeout=10)

    def test_environment_is_isolated(self):
        self.useFixture(fixtures.EnvironmentVariable('KUBECONFIG', '/nope'))
        env = process.environment('/home/x', {'A': 1, 'LANG': None})
        self.assertNotIn('KUBECONFIG', env)
        self.assertNotIn('LANG', env)
        self.assertEqual('1', env['A'])
        self.assertEqual('/home/x', env['HOME'])


class PortTestCase(base.BaseTestCase):

    def test_ports_are_different_and_free(self):
        one = self.useFixture(ports.Port())
        two = self.useFixture(ports.Port())
        self.assertNotEqual(one.number, two.number)
        with socket.socket(type=socket.SOCK_DGRAM) as sock:
            sock.bind(('127.0.0.1', one.number))

    def test_used_port_is_not_bindable(self):
        port = ports.Port()
        with port:
            number = port.number
            with socket.socket() as sock:
                sock.bind(('127.0.0.1', number))
                sock.listen()
                self.assertFalse(ports._bindable('127.0.0.1', number))
