# SPDX-License-Identifier: Apache-2.0
"""``vbmcd-kubevirt`` and the clients ``vbmc`` and ``ipmitool``, as a
fixture.
"""

import configparser
import pathlib
import secrets
import subprocess
import time

import fixtures

from kubevirt_sandbox.testing import ports
from kubevirt_sandbox.testing import process


class Bmc(fixtures.Fixture):
    """What one BMC is reached by: address, port, user and password."""

    def __init__(self, name, username='admin', password=None, port=None):
        super().__init__()
        self.name = name
        self.port = port
        self.address = '127.0.0.1'
        self.username = username
        # IPMI keeps 20 bytes of a password at most.
        self.password = password or secrets.token_hex(8)

    def _setUp(self):
        if self.port is None:
            self.port = self.useFixture(ports.Port(self.address)).number


class Vbmcd(fixtures.Fixture):
    """A running daemon with a home, a config file and ports of its own.

    :param kubeconfig: path, for ``KUBECONFIG``; None leaves it out.
    :param config: dictionary of sections of further settings.
    :param env: further environment.
    :param command: the daemon; upstream's is ``vbmcd``.
    :param port: for ``vbmc`` to talk to it; a free one when None.
    :param log: file that gets its output.
    """

    def __init__(self, kubeconfig=None, config=None, env=None,
                 command='vbmcd-kubevirt', port=None, log=None):
        super().__init__()
        self.kubeconfig = kubeconfig
        self.config = config or {}
        self.extra = dict(env or {})
        self.command = command
        self.port = port
        self.log = log

    def _setUp(self):
        self.home = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.bmcs = {}
        port = self.port or self.useFixture(ports.Port()).number
        config = configparser.ConfigParser()
        config.read_dict({
            'default': {'config_dir': self.home / 'vbmc',
                        'pid_file': self.home / 'master.pid',
                        'server_port': port,
                        # Busy machines take their time.
                        'server_response_timeout': 30000,
                        'server_spawn_wait': 10000}})
        config.read_dict(self.config)
        self.config_file = self.home / 'virtualbmc.conf'
        with open(self.config_file, 'w') as stream:
            config.write(stream)
        (self.home / 'vbmc').mkdir(exist_ok=True)
        env = dict(self.extra, VIRTUALBMC_CONFIG=self.config_file)
        if self.kubeconfig is not None:
            env['KUBECONFIG'] = self.kubeconfig
        self.env = process.environment(self.home, env)
        self.process = self.useFixture(process.Process(
            [self.command, '--foreground'],
            ready=r'Started vBMC server on port', timeout=60, env=self.env,
            log=self.log))

    def vbmc(self, *arguments, check=True):
        """Run ``vbmc``.

        :param check: raise when it fails.
        :returns: :class:`subprocess.CompletedProcess` with text output,
            standard error in ``stdout`` too.
        """
        done = subprocess.run(
            [process.BIN / 'vbmc', *map(str, arguments)], env=self.env,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=90)
        if check and done.returncode != 0:
            # The arguments stay unsaid: a password may be among them.
            raise AssertionError('vbmc %s: exit code %d: %s' % (
                arguments[0], done.returncode, done.stdout))
        return done

    def add(self, name, *arguments, driver='kubevirt', start=True,
            username='admin', password=None, port=None):
        """Add a BMC for a VM and start it.

        :param name: ``name`` or ``namespace/name``, as ``vbmc`` wants it.
        :param arguments: further words for ``vbmc add``.
        :param driver: None leaves ``--driver`` out.
        :returns: :class:`Bmc`
        """
        bmc = self.useFixture(Bmc(name, username, password, port))
        words = ['add', name, '--address', bmc.address, '--port', bmc.port,
                 '--username', bmc.username, '--password', bmc.password]
        if driver:
            words += ['--driver', driver]
        self.vbmc(*words, *arguments)
        self.bmcs[name] = bmc
        if start:
            self.start(name)
        return bmc

    def start(self, name):
        """Start a BMC and wait until it answers."""
        self.vbmc('start', name)
        self.wait_answer(self.bmcs[name])

    def wait_answer(self, bmc, timeout=30):
        """Wait until a BMC lets its user in.

        Nothing tells when a UDP port begins to be served: ask again.
        """
        deadline = time.monotonic() + timeout
        while True:
            done = ipmitool(bmc, 'mc', 'info', options=('-N', '1', '-R', '1'))
            if done.returncode == 0:
                return
            if time.monotonic() >= deadline:
                raise AssertionError(
                    'The BMC of %s does not answer after %g s: %s\n%s' % (
                        bmc.name, timeout, done.stdout, self.process.tail()))

    def ipmi(self, name, *words, check=True, **options):
        """Run ``ipmitool`` against one BMC of this daemon.

        :returns: its output, stripped.
        :raises AssertionError: it failed, unless ``check`` is false.
        """
        done = ipmitool(self.bmcs[name], *words, **options)
        if check and done.returncode != 0:
            raise AssertionError('ipmitool %s: exit code %d: %s' % (
                ' '.join(words), done.returncode, done.stdout))
        return done.stdout.strip()


def ipmitool(bmc, *words, username=None, password=None, options=(),
             timeout=90, interface='lanplus'):
    """Run ``ipmitool`` against a BMC.

    The password goes by the environment: a process list shows arguments.

    :param bmc: :class:`Bmc`
    :param username: instead of the BMC's.
    :param password: instead of the BMC's.
    :param options: further words before the command.
    :param interface: ``lan`` is IPMI v1.5.
    :returns: :class:`subprocess.CompletedProcess` with text output,
        standard error in ``stdout`` too.
    """
    return subprocess.run(
        ['ipmitool', '-I', interface, '-H', bmc.address, '-p', str(bmc.port),
         '-U', bmc.username if username is None else username, '-E',
         *options, *words],
        env=process.environment('/nonexistent', {
            'IPMI_PASSWORD':
                bmc.password if password is None else password}),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=timeout)
