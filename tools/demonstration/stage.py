# SPDX-License-Identifier: Apache-2.0
"""Programs of the demonstration: sandbox, emulator and vbmcd, for two VMs.

The fixtures of the functional tests start the programs, with one folder for
all files and with credentials for the user. The operator is not included: the
steps in `bmc` install it into the cluster.
"""

import contextlib
import json
import os
import pathlib
import secrets
import select
import shutil
import sys
import tempfile

import bcrypt

from kubevirt_sandbox.testing import process
from tests.fixtures import emulator
from tests.fixtures import image_server
from tests.fixtures import sandbox
from tests.fixtures import vbmcd

USER = 'admin'


class ProgramFailed(Exception):
    """A program failed to start or has ended; the message has its output."""


class Stage(contextlib.AbstractContextManager):
    """The running programs and their addresses.

    :param options: options of ``tools/demo``: ``sandbox_port``,
        ``redfish_port``, ``ipmi_port`` and ``vbmcd_port``, None for a free
        one.

    While the context is entered, ``sandbox``, ``emulator`` and ``vbmcd`` are
    the fixtures, ``vms`` the names of the VMs, ``uuids`` their Redfish UUIDs
    by name, ``bmcs`` their BMCs by name, ``password`` is the user's for both
    protocols, ``image`` the URL of an ISO image, and ``home`` the folder with
    ``kubeconfig``, ``netrc`` and ``login.json`` (for curl), ``password`` (for
    ipmitool) and ``ca.crt``.
    """

    def __init__(self, options):
        self.options = options
        self.password = secrets.token_hex(8)
        self.bmcs = {}
        self.images = None

    def __enter__(self):
        self.home = pathlib.Path(
            tempfile.mkdtemp(prefix='sushy-kubevirt-demo-'))
        # The fixtures create their folders in it, so they are deleted with
        # it.
        tempfile.tempdir = str(self.home)
        try:
            self._start()
        except BaseException as raised:
            self.__exit__(*sys.exc_info())
            exc = process.cause(raised)
            if isinstance(exc, (AssertionError, OSError, RuntimeError)):
                raise ProgramFailed(str(exc)) from raised
            raise exc
        return self

    def __exit__(self, *exc_info):
        process.end_all()
        if self.images is not None:
            self.images.cleanUp()
        tempfile.tempdir = None
        shutil.rmtree(self.home, ignore_errors=True)

    def _start(self):
        options = self.options
        self._print_progress('Starting the sandbox')
        self.sandbox = sandbox.Sandbox(
            port=options.sandbox_port or 0, log=self.home / 'sandbox.log')
        self.sandbox.setUp()
        self.kubeconfig = self._write_private(
            'kubeconfig', self.sandbox.kubeconfig.read_text())
        self.ca = self._write_private('ca.crt', self.sandbox.ca.read_text())
        self.vms = sorted(vm['metadata']['name']
                          for vm in self.sandbox.list('virtualmachines'))
        self.uuids = {
            name: self.sandbox.vm(name)['spec']['template']['spec']['domain']
            ['firmware']['uuid'] for name in self.vms}

        # An account with the permissions of emulators and no others.
        account = self.sandbox.bmc_account()
        self._print_progress('Starting sushy-emulator')
        hashed = bcrypt.hashpw(self.password.encode(), bcrypt.gensalt(8))
        users = self._write_private('htpasswd', f'{USER}:{hashed.decode()}\n')
        self.emulator = emulator.Emulator(
            account, {
                'SUSHY_EMULATOR_AUTH_FILE': str(users),
                # The image server listens on this machine.
                'SUSHY_EMULATOR_KUBEVIRT_MEDIA_ALLOW_LOOPBACK': True},
            auth=(USER, self.password), port=options.redfish_port or 0,
            log=self.home / 'sushy-emulator.log')
        self.emulator.setUp()
        self.netrc = self._write_private(
            'netrc',
            f'machine 127.0.0.1 login {USER} password {self.password}\n')
        self.login = self._write_private('login.json', json.dumps(
            {'UserName': USER, 'Password': self.password}) + '\n')

        self._print_progress('Starting a web server with an image')
        self.images = image_server.ImageServer()
        self.images.setUp()
        self.image = self.images.url + '/size-8000000/install.iso'

        self._print_progress('Starting vbmcd with a BMC for each VM')
        self.vbmcd = vbmcd.Vbmcd(
            account, port=options.vbmcd_port,
            log=self.home / 'vbmcd.log', client='vbmc-kubevirt')
        self.vbmcd.setUp()
        self.password_file = self._write_private(
            'password', self.password + '\n')
        for number, name in enumerate(self.vms):
            given = options.ipmi_port
            self.bmcs[name] = self.vbmcd.add(
                name, username=USER, password=self.password,
                port=given and given + number)

    def _write_private(self, name, text):
        """Write a file that only the user can read. :returns: its path"""
        path = self.home / name
        path.touch(0o600)
        path.write_text(text)
        return path

    @staticmethod
    def _print_progress(text):
        print(text + ' ...', file=sys.stderr, flush=True)

    def wait(self):
        """Wait until one of the programs ends; that is always an error.

        :raises ProgramFailed: one ended.
        """
        programs = [one.process for one in (self.sandbox, self.emulator,
                                            self.vbmcd)]
        descriptors = {}
        for one in programs:
            try:
                descriptors[os.pidfd_open(one.pid)] = one
            except ProcessLookupError:
                self._raise_ended(one)
        for descriptor in select.select(list(descriptors), [], [])[0]:
            self._raise_ended(descriptors[descriptor])

    @staticmethod
    def _raise_ended(program):
        raise ProgramFailed(f'{program.name} ended; its output ends:\n'
                            f'{program.tail()}')

    def address(self, name):
        """Return the address of a BMC that the operator made.

        :raises LookupError: there is none
        """
        found = self.sandbox.request(
            'GET', '/apis/bmc.kubevirt.io/v1beta1/namespaces/default'
            '/virtualmachinebmcs/' + name).json()
        return found['status']['serviceIP']

    def environment(self):
        """Return the environment in which the tour runs its commands.

        It is the user's own, so that the printed commands work when pasted,
        except that kubectl's cache of this cluster is in ``home``, which is
        deleted.
        """
        return dict(os.environ, KUBECACHEDIR=str(self.home / 'cache'))
