# SPDX-License-Identifier: Apache-2.0
"""``tools/release``, and its wheel in an empty environment."""

import hashlib
import importlib.metadata
import json
import pathlib
import re
import subprocess
import sys
import tarfile
import unittest

import fixtures
import yaml

from kubevirt_sandbox.testing import api_user
from kubevirt_sandbox.testing import given_cluster
from kubevirt_sandbox.testing import kubectl
from kubevirt_sandbox.testing import process
from tests.fixtures import base
from tests.fixtures import checkout
from tests.fixtures import containerfile
from tests.fixtures import operator
from tests.fixtures import sandbox
from tools import locks

TAG = '3.2.1'

NEEDS_SANDBOX = given_cluster.needs_sandbox('a cluster of its own')

#: Where the wheel installs the files of etc/.
INSTALLED = {
    'etc/sushy-emulator/': 'etc/sushy-kubevirt/',
    'etc/virtualbmc/': 'etc/sushy-kubevirt/',
    'etc/virtualpdu/': 'etc/sushy-kubevirt/',
    'etc/bifrost/': 'etc/sushy-kubevirt/bifrost/',
    'etc/cluster/': 'etc/sushy-kubevirt/cluster/',
    'etc/kubernetes/': 'etc/sushy-kubevirt/kubernetes/',
}

#: What users call: the commands of this project, and upstream's with drivers.
COMMANDS = ('sushy-kubevirt-bmc', 'sushy-kubevirt-cluster',
            'sushy-kubevirt-ipmi', 'sushy-kubevirt-operator',
            'sushy-kubevirt-redfish', 'vbmcd-kubevirt', 'sushy-emulator',
            'vbmc', 'virtualpdu-kubevirt')


def run(*words, cwd=None, code=0, **env):
    """Run a command that ends; return its output.

    :raises AssertionError: it has another exit code.
    :raises unittest.SkipTest: there is no package index.
    """
    done = subprocess.run(
        [str(word) for word in words], cwd=cwd, text=True, timeout=600,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, env=process.environment(process.NO_HOME, {
            # pip's cache is in it.
            'HOME': pathlib.Path.home(), **env}))
    if done.returncode != code:
        if re.search(containerfile.NO_INDEX, done.stdout):
            raise unittest.SkipTest('no package index can be reached')
        raise AssertionError(f'{words}: exit code {done.returncode}: '
                             f'{done.stdout[-5000:]}')
    return done.stdout


class ReleaseTestCase(base.FunctionalTestCase):
    """A clone with the release of a tag, and an environment with its wheel."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = pathlib.Path(cls.share(fixtures.TempDir()).path)
        cls.clone = cls.folder / 'clone'
        run('git', 'clone', '--quiet', '--no-tags', checkout.ROOT, cls.clone)
        run('git', 'tag', TAG, cwd=cls.clone)
        cls.dist = cls.release('dist')
        cls.wheel, = cls.dist.glob('*.whl')
        cls.env = cls.folder / 'env'
        run(sys.executable, '-m', 'venv', cls.env)
        run(cls.env / 'bin/pip', 'install', '--quiet',
            '--disable-pip-version-check', cls.wheel)

    @classmethod
    def release(cls, name):
        run('tools/release', cls.folder / name, cwd=cls.clone,
            PATH=containerfile.python_path())
        return cls.folder / name

    def test_version_is_that_of_the_tag(self):
        self.assertEqual(
            {f'sushy_kubevirt-{TAG}-py3-none-any.whl',
             f'sushy_kubevirt-{TAG}.tar.gz', 'CHANGELOG.rst', 'NOTES.md',
             'kubectl-bmc.tar.gz', 'bmc.yaml'},
            {path.name for path in self.dist.iterdir()})

    def test_changes_are_those_of_the_release_notes(self):
        text = (self.dist / 'CHANGELOG.rst').read_text()
        self.assertIn(f'\n{TAG}\n', text)
        notes = (self.dist / 'NOTES.md').read_text()
        self.assertNotIn('\n.. ', notes)
        self.assertIn('New Features\n---', notes)
        for one in text, notes:
            # Of a note that is as old as the project.
            self.assertIn('answer Redfish and IPMI', one)
        with tarfile.open(self.dist / f'sushy_kubevirt-{TAG}.tar.gz') as tar:
            member = tar.extractfile(f'sushy_kubevirt-{TAG}/CHANGELOG.rst')
            self.assertEqual(text, member.read().decode())

    def test_wheel_is_reproducible(self):
        again = self.release('again') / self.wheel.name
        self.assertEqual(*(
            hashlib.sha256(path.read_bytes()).hexdigest()
            for path in (self.wheel, again)))

    def test_plugin_of_krew(self):
        """Rules of ``internal/index/validation/validate.go``, krew 0.4.5."""
        archive = self.dist / 'kubectl-bmc.tar.gz'
        plugin = yaml.safe_load((self.dist / 'bmc.yaml').read_text())
        self.assertEqual(
            ('krew.googlecontainertools.github.com/v1alpha2', 'Plugin', 'bmc'),
            (plugin['apiVersion'], plugin['kind'], plugin['metadata']['name']))
        spec = plugin['spec']
        self.assertEqual(f'v{TAG}', spec['version'])
        self.assertNotIn('\n', spec['shortDescription'])
        platform, = spec['platforms']
        self.assertEqual(hashlib.sha256(archive.read_bytes()).hexdigest(),
                         platform['sha256'])
        self.assertEqual(archive.as_uri(), platform['uri'])
        self.assertEqual(
            {'os'}, {rule['key'] for rule
                     in platform['selector']['matchExpressions']})
        with tarfile.open(archive) as tar:
            names = {name.removeprefix('./') for name in tar.getnames()}
            self.assertLessEqual(
                {file['from'] for file in platform['files']}, names)
            tar.extractall(self.folder / 'krew', filter='data')
        program = self.folder / 'krew' / platform['bin']
        complete = program.with_name('kubectl_complete-bmc')
        complete.symlink_to(program)
        env = {'PIP_FIND_LINKS': self.dist, 'XDG_DATA_HOME': self.folder,
               'PATH': containerfile.python_path()}
        self.assertIn('kubectl bmc', run(program, '--help', **env))
        # Now it is installed.
        self.assertIn('power\t', run(complete, '', **env))
        self.assertNotIn('installing', run(program, '--help', **env))

    def test_commit_without_tag(self):
        run('git', 'clone', '--quiet', '--no-tags', self.clone,
            self.folder / 'untagged')
        text = run('tools/release', self.folder / 'none', code=1,
                   cwd=self.folder / 'untagged')
        self.assertIn('has no tag X.Y.Z; create one', text)
        self.assertFalse((self.folder / 'none').exists())

    def test_other_version_of_python(self):
        folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (folder / 'python3').write_text('#!/bin/sh\necho 3.99\n')
        (folder / 'python3').chmod(0o755)
        text = run('tools/release', self.folder / 'none', code=1,
                   cwd=self.clone, PATH=f'{folder}:/usr/bin:/bin')
        self.assertIn('python3 is 3.99; have '
                      f'{locks.python_version()} first', text)
        self.assertFalse((self.folder / 'none').exists())

    # The wheel in the environment

    def manifests(self, folder=''):
        return self.env / 'etc/sushy-kubevirt/kubernetes' / folder

    def test_files(self):
        packages, = self.env.glob('lib/python*/site-packages')
        listed = {(packages / path).resolve() for path in
                  importlib.metadata.Distribution.at(next(packages.glob(
                      'sushy_kubevirt-*.dist-info'))).files}
        for name in containerfile.tracked('etc'):
            folder, = (one for one in INSTALLED if name.startswith(one))
            path = self.env / name.replace(folder, INSTALLED[folder])
            self.assertEqual((checkout.ROOT / name).read_bytes(),
                             path.read_bytes())
            # pip uninstall removes it.
            self.assertIn(path.resolve(), listed)

    def test_commands(self):
        for name in COMMANDS:
            text = run(self.env / 'bin' / name, '--help')
            # virtualbmc gives its daemon another name.
            self.assertRegex(text, rf'(?i)usage: ({name}|VirtualBMC server) ')
        self.assertIn('--driver', run(self.env / 'bin/vbmc', 'add', '--help'))
        for name in COMMANDS[:3]:
            self.assertIn(TAG, run(self.env / 'bin' / name, '--version'))

    def start(self, name, *words, ready=None, **env):
        return self.useFixture(process.Process(
            [self.env / 'bin' / name, *words], ready=ready, timeout=60,
            env=process.environment(self.folder, env)))

    @NEEDS_SANDBOX
    def test_emulator_with_the_sample(self):
        running = self.useFixture(sandbox.Sandbox(vms=1))
        emulator = self.start(
            'sushy-emulator', '--config',
            self.env / 'etc/sushy-kubevirt/kubevirt.conf', '--interface',
            '127.0.0.1', '--port', '0', ready=r'Running on (\S+)',
            KUBECONFIG=running.kubeconfig, TMPDIR=self.folder)
        text = run('curl', '--silent', '--show-error', '--fail', '--noproxy',
                   '*', emulator.match[1] + '/redfish/v1/Systems')
        self.assertEqual(1, json.loads(text)['Members@odata.count'])

    @NEEDS_SANDBOX
    def test_operator_with_the_manifests(self):
        if not kubectl.KUBECTL:
            self.skipTest('kubectl is not installed')
        running = self.useFixture(sandbox.Sandbox(vms=0))
        admin = api_user.ApiUser(running.kubeconfig)
        operator.install(admin, self.manifests())
        self.assertEqual(operator.manifests(self.manifests()),
                         operator.manifests())
        account = running.account(operator.NAME, operator.NAMESPACE)
        self.start(operator.NAME, '--kubeconfig', account,
                   '--metrics-address', '127.0.0.1:0', ready=operator.READY)
        for name in 'vm', 'secret', 'bmc':
            admin('apply', '-f', self.manifests(f'samples/{name}.yaml'))
        admin.wait('vmbmc/node-0', 'condition=Ready')
