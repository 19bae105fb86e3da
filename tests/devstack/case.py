# SPDX-License-Identifier: Apache-2.0
"""A DevStack that consists of the plugins, and Ironic."""

import configparser
import os
import pathlib
import shutil
import subprocess
import unittest

import fixtures
import yaml

from kubevirt_sandbox.testing import kubectl
from kubevirt_sandbox.testing import process
from tests.fixtures import checkout
from tests.fixtures import containerfile
from tests.fixtures import environments

SOURCES = pathlib.Path(__file__).parent

#: Programs of this suite. Each test has a HOME of its own.
BIN = environments.ENVIRONMENTS['devstack'].bin

#: Ironic's plugin; its functions are those that the inventory is made for.
IRONIC = '39.0.0'

#: What of the checkout a clone of DevStack's needs.
_CLONED = ('devstack', 'etc', 'sandbox', 'sushy_kubevirt', 'vbmc_kubevirt',
           'bindep.txt', 'LICENSE', 'README.rst', 'pyproject.toml',
           'requirements.txt', 'setup.cfg', 'setup.py')


class DevStack(fixtures.Fixture):
    """The folder of a DevStack and its services.

    Share it in a class: each test has a HOME of its own, in which neither pip
    nor this suite's environment has its files.

    :param localrc: dictionary, the section ``localrc`` of ``local.conf``
    """

    def __init__(self, localrc):
        super().__init__()
        self.localrc = localrc

    def _setUp(self):
        self.top = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.opt = self.top / 'opt'
        self.opt.mkdir()
        (self.opt / 'ironic').symlink_to(
            environments.source('ironic', IRONIC))
        self._clone(self.opt / 'sushy-kubevirt')
        (self.top / 'stackrc').write_text('CIRROS_VERSION=0.6.3\n')
        self.write_localrc()
        self.env = process.environment(self.top, {
            # What DevStack finds on its host: pip's settings and cache.
            'HOME': os.environ.get('HOME', '/'),
            'KUBECACHEDIR': self.top / 'kube',
            'PBR_VERSION': '1.0',
            'OS_CLIENT_CONFIG_FILE': self.top / 'clouds.yaml',
            'PATH': os.pathsep.join((
                str(BIN), os.environ['PATH'], '/usr/sbin'))})
        self.services = self.useFixture(process.Process(
            ['bash', SOURCES / 'services.sh', self.top], ready='ready',
            env=self.env))

    @staticmethod
    def _clone(folder):
        for source in _CLONED:
            for name in containerfile.tracked(source):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(checkout.ROOT / name, folder / name)

    def write_localrc(self, **more):
        """Write ``localrc``, with further variables."""
        (self.top / 'localrc').write_text(''.join(
            f'{name}="{value}"\n' for name, value in {
                'IRONIC_NODE_UUID': '6a1d4b7c-0c3c-4dd5-8cd2-5f5d6b3f3a10',
                **self.localrc, **more}.items()))

    def write_clouds(self, url):
        """Write ``clouds.yaml`` as DevStack does, for an Ironic alone."""
        (self.top / 'clouds.yaml').write_text(yaml.safe_dump({'clouds': {
            name: {'auth_type': 'none', 'auth': {'endpoint': url}}
            for name in ('devstack-admin', 'devstack-system-admin')}}))

    def run(self, *words, timeout=600):
        """Run ``devstack.sh``.

        :param words: mode, and the last phase of ``stack``
        :returns: `subprocess.CompletedProcess`; the output has both streams
        """
        one = process.Process(
            ['bash', SOURCES / 'devstack.sh', self.top, *words],
            env=self.env, cwd=self.top)
        with one:
            code = one.wait(timeout)
        # All of the output is there now.
        return subprocess.CompletedProcess(words, code, one.output)

    @property
    def data(self):
        """The plugin's folder."""
        return self.opt / 'data' / 'sushy-kubevirt'

    def ini(self, name):
        """Read a file that ``iniset`` has written."""
        found = configparser.ConfigParser(interpolation=None, strict=False)
        found.read(self.top / name)
        return found

    def ironic_config(self):
        """:returns: dictionary of sections, what Ironic's plugin sets of
            drivers and cleaning in ``ironic.conf``
        """
        (self.top / 'variables').unlink(missing_ok=True)
        done = self.run('settings')
        if done.returncode:
            raise AssertionError(done.stdout[-5000:])
        values = dict(line.split('=', 1) for line in (
            self.top / 'variables').read_text().splitlines())
        return {
            'conductor': {'automated_clean': values[
                'IRONIC_AUTOMATED_CLEAN_ENABLED']},
            'DEFAULT': {
                name.removeprefix('IRONIC_').lower(): value
                for name, value in values.items()
                if value and name.endswith(('_INTERFACE', '_INTERFACES',
                                            '_TYPES'))}}


@unittest.skipUnless(kubectl.KUBECTL, 'kubectl is not installed')
class Mixin:
    """Checks of test cases with a `DevStack`."""

    def check(self, *words, devstack=None):
        """Run ``devstack.sh`` and return its output; it has to succeed."""
        done = (devstack or self.devstack).run(*words)
        self.assertEqual(0, done.returncode, done.stdout[-8000:])
        return done.stdout
