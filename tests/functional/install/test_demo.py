# SPDX-License-Identifier: Apache-2.0
"""``tools/demo``: the printed commands work and nothing is left behind."""

import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import time

import fixtures
from oslotest import base

from kubevirt_sandbox.testing import given_cluster
from kubevirt_sandbox.testing import guard
from kubevirt_sandbox.testing import kubectl
from kubevirt_sandbox.testing import ports
from kubevirt_sandbox.testing import process
from tests.fixtures import checkout


@given_cluster.needs_sandbox('the sandbox that the demo starts')
class DemoTestCase(base.BaseTestCase):

    def demo(self, *arguments):
        """Start the demo with its own folder for temporary files."""
        folder = self.useFixture(fixtures.TempDir()).path
        one = process.Process(
            ['python', '-m', 'tools.demonstration', *arguments],
            ready=r'^Everything is up', timeout=90, cwd=checkout.ROOT,
            env=process.environment(folder, {'TMPDIR': folder}))
        one.folder = pathlib.Path(folder)
        return self.useFixture(one)

    def public_output(self, one):
        """Return the demo's output without the password."""
        return re.sub(r'^User, password .*$', '', one.output,
                      flags=re.MULTILINE)

    def commands(self, one):
        """List the commands of the demo's output: title, command."""
        blocks = one.output.split('Commands to paste')[1].split('\n\n')
        return [block[2:].split('\n', 1) for block in blocks
                if block.startswith('# ')]

    def setUp(self):
        super().setUp()
        # kubectl caches the API's resources there.
        self.home = self.useFixture(fixtures.TempDir()).path

    def paste(self, command):
        return subprocess.run(
            ['bash', '-c', command], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=60, env=process.environment(self.home))

    def wait_boot(self, command, count):
        """Wait until a guest has booted a number of times.

        :param command: command that prints the guest's record.
        """
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            guest = json.loads(self.paste(command).stdout)
            if guest['running'] and len(guest['boots']) >= count:
                return
        self.fail(f'timed out waiting for {count} boots: {guest}')

    def assertCleanedUp(self, one):
        one.end()
        self.assertEqual([], one.leftovers)
        self.assertEqual([], list(one.folder.glob('sushy-kubevirt-*')))

    def test_commands_of_two_demos_work(self):
        demos = [self.demo(), self.demo()]
        for one in demos:
            commands = self.commands(one)
            self.assertGreaterEqual(len(commands), 30 if kubectl.KUBECTL
                                    else 15)
            boots = 0
            for title, command in commands:
                done = self.paste(command)
                self.assertEqual(0, done.returncode,
                                 f'{title}: {command}: {done.stdout}')
                if title.startswith(('Power', 'Restart')):
                    # The next command may need a running guest.
                    boots += 1
                    self.wait_boot(commands[-1][1], boots)
        for one in demos:
            one.send(signal.SIGINT)
            self.assertEqual(0, one.wait())
            self.assertCleanedUp(one)

    def test_port_options(self):
        given = {name: self.useFixture(ports.Port()).number
                 for name in ('sandbox', 'redfish', 'vbmcd', 'ipmi')}
        one = self.demo('--no-operator', *(
            word for name, number in given.items()
            for word in (f'--{name}-port', str(number))))
        for number in (given['sandbox'], given['redfish']):
            self.assertIn(f'127.0.0.1:{number}', self.public_output(one))
        self.assertRegex(self.public_output(one),
                         rf"IPMI of vm-0 .*port {given['ipmi']}\n")
        self.assertRegex(self.public_output(one),
                         rf"IPMI of vm-1 .*port {given['ipmi'] + 1}\n")
        config = re.search(r'VIRTUALBMC_CONFIG=(\S+)', one.output)[1]
        self.assertIn(f"server_port = {given['vbmcd']}\n",
                      pathlib.Path(config).read_text())
        one.send(signal.SIGTERM)
        self.assertEqual(0, one.wait())
        self.assertCleanedUp(one)

    def check_privacy(self, one):
        """Check that files and the process list show no other user a secret.
        """
        home = next(one.folder.glob('sushy-kubevirt-demo-*'))
        self.assertEqual(0o700, home.stat().st_mode & 0o777)
        for name in 'kubeconfig', 'netrc', 'password', 'htpasswd':
            self.assertEqual(0o600, (home / name).stat().st_mode & 0o777)
        password = re.search(r'^User, password +\S+ (\S+)', one.output,
                             re.MULTILINE)[1]
        for pid in guard.below(one.pid):
            # Some processes are short-lived.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                command = pathlib.Path(f'/proc/{pid}/cmdline').read_bytes()
                self.assertFalse(password.encode() in command,
                                 f'process {pid} shows the password')

    def test_interrupted_during_start(self):
        for moment in 'sushy-emulator', 'vbmcd':
            folder = self.useFixture(fixtures.TempDir()).path
            one = self.useFixture(process.Process(
                ['python', '-m', 'tools.demonstration'],
                ready=rf'^Starting {moment}', cwd=checkout.ROOT,
                env=process.environment(folder, {'TMPDIR': folder})))
            one.folder = pathlib.Path(folder)
            one.send(signal.SIGINT)
            self.assertEqual(0, one.wait())
            self.assertCleanedUp(one)

    def test_is_private_and_leaves_no_processes_when_killed(self):
        one = self.demo()
        self.check_privacy(one)
        watched = []
        for pid in guard.below(one.pid):
            # Some processes are short-lived.
            with contextlib.suppress(ProcessLookupError):
                watched.append(os.pidfd_open(pid))
                self.addCleanup(os.close, watched[-1])
        self.assertGreater(len(watched), 4)
        one.kill()
        for descriptor in watched:
            self.assertTrue(guard.ended(descriptor, 60))

    def test_ends_when_a_program_ends(self):
        one = self.demo('--no-operator')
        for pid in guard.below(one.pid):
            # The daemon's processes may end while this runs.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                words = pathlib.Path(
                    f'/proc/{pid}/cmdline').read_bytes().split(b'\0')
                if b'--foreground' in words and b'-I' not in words:
                    os.kill(pid, signal.SIGKILL)
        self.assertEqual(1, one.wait())
        self.assertIn('tools/demo: vbmcd-kubevirt ended',
                      self.public_output(one))
        self.assertNotIn('Traceback', self.public_output(one))
        self.assertCleanedUp(one)

    def test_used_port_is_reported(self):
        taken = self.useFixture(ports.Port())
        with socket.socket() as sock:
            sock.bind(('127.0.0.1', taken.number))
            sock.listen()
            folder = self.useFixture(fixtures.TempDir()).path
            one = self.useFixture(process.Process(
                ['python', '-m', 'tools.demonstration', '--redfish-port',
                 str(taken.number)], cwd=checkout.ROOT,
                env=process.environment(folder, {'TMPDIR': folder})))
            one.folder = pathlib.Path(folder)
            self.assertEqual(1, one.wait())
            self.assertIn('tools/demo: sushy-emulator ended',
                          self.public_output(one))
            self.assertNotIn('Traceback', self.public_output(one))
            self.assertCleanedUp(one)
