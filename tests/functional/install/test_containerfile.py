# SPDX-License-Identifier: Apache-2.0
"""Containerfile: build steps run without a container engine."""

import base64
import os
import pathlib
import re
import subprocess

import fixtures
import yaml

from kubevirt_sandbox.testing import given_cluster
from kubevirt_sandbox.testing import kubectl
from kubevirt_sandbox.testing import ports
from kubevirt_sandbox.testing import process
from sushy_kubevirt.operator import config_map
from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import spec
from tests.fixtures import base
from tests.fixtures import checkout
from tests.fixtures import containerfile
from tests.fixtures import operator
from tests.fixtures import sandbox

VERSION = '7.6.5'

TARGETS = 'emulator', 'operator'


class FileTestCase(base.FunctionalTestCase):

    def setUp(self):
        super().setUp()
        self.arguments, self.stages = containerfile.read()

    def inherited(self, target, word):
        return [text for stage in containerfile.lineage(self.stages, target)
                for text in stage.all(word)]

    def test_copied_files_exist(self):
        ignored = (checkout.ROOT / '.dockerignore').read_text().splitlines()
        self.assertIn('*', ignored)
        seen = list(self.stages)
        for position, stage in enumerate(self.stages.values()):
            for text in stage.all('COPY'):
                if text.startswith('--from='):
                    name = text.partition('=')[2].split()[0]
                    self.assertIn(name, seen[:position])
                    continue
                for source in text.split()[:-1]:
                    self.assertNotEqual(
                        [], containerfile.tracked(source), source)
                    self.assertIn('!' + source, ignored)

    def test_base_is_pinned(self):
        self.assertRegex(self.arguments['BASE'],
                         r'^python:\d+\.\d+\.\d+-slim-[a-z]+$')
        for stage in self.stages.values():
            if stage.base not in self.stages:
                self.assertEqual('${BASE}', stage.base)

    def test_images_have_user_and_labels(self):
        for target in TARGETS:
            user = self.inherited(target, 'USER')[-1]
            self.assertEqual('65532:65532', user)
            labels = ' '.join(self.inherited(target, 'LABEL'))
            for name in ('title', 'description', 'version', 'revision',
                         'licenses'):
                self.assertIn(f'org.opencontainers.image.{name}=', labels)

    def test_debian_packages_are_in_bindep(self):
        text = (checkout.ROOT / 'bindep.txt').read_text()
        for run in self.inherited('build', 'RUN'):
            if 'apt-get install' in run:
                words = run.partition('apt-get install')[2]
                for name in words.partition('&&')[0].split():
                    if not name.startswith('-'):
                        self.assertRegex(
                            text, rf'(?m)^{re.escape(name)}( |$)')


@given_cluster.needs_sandbox(
    'a cluster of its own, for the operator that it installs')
class ImagesTestCase(base.FunctionalTestCase):
    """Programs of both built images, in clean environments."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        _, stages = containerfile.read()
        folder = pathlib.Path(cls.share(fixtures.TempDir()).path)
        cls.builder = containerfile.Builder(folder, VERSION)
        cls.opt = cls.builder.opt
        # Both images have the tree of one build stage.
        source, = {text.partition('=')[2].split()[0] for target in TARGETS
                   for text in stages[target].all('COPY')}
        for stage in containerfile.lineage(stages, source):
            cls.builder.build(stage)
        cls.sandbox = cls.share(sandbox.Sandbox(vms=0))

    def program(self, name):
        path = self.opt / 'bin' / name
        self.assertTrue(path.exists(), name)
        return path

    def environment(self, **more):
        env = process.environment('/nonexistent', {
            'PYTHONDONTWRITEBYTECODE': '1', **more})
        env['PATH'] = f"{self.opt / 'bin'}:/usr/bin:/bin"
        return env

    def test_all_modules_are_installed(self):
        site, = self.opt.glob('lib/python*/site-packages')
        for package in 'sushy_kubevirt', 'vbmc_kubevirt':
            for name in containerfile.tracked(package):
                self.assertTrue((site / name).exists(), name)

    def test_removed_packages_are_absent(self):
        site, = self.opt.glob('lib/python*/site-packages')
        for name in 'kubernetes', 'libvirt.py', 'pip':
            self.assertFalse((site / name).exists(), name)

    def test_every_program_starts(self):
        for name in ('sushy-kubevirt-redfish', 'sushy-kubevirt-ipmi',
                     'sushy-kubevirt-operator'):
            done = subprocess.run(
                [self.program(name), '--version'], env=self.environment(),
                capture_output=True, text=True, timeout=60)
            self.assertEqual(0, done.returncode, done.stderr)
            self.assertIn(VERSION, done.stdout)

    # In a pod

    def account(self, name, namespace):
        """Create the files that Kubernetes mounts for a pod's account."""
        config = yaml.safe_load(
            self.sandbox.account(name, namespace).read_text())
        folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (folder / 'ca.crt').write_bytes(base64.b64decode(
            config['clusters'][0]['cluster']['certificate-authority-data']))
        (folder / 'namespace').write_text(namespace)
        (folder / 'token').write_text(config['users'][0]['user']['token'])
        return folder

    def start(self, program, account, ready, arguments=(), **more):
        host, _, port = self.sandbox.url.rpartition('/')[2].rpartition(':')
        return self.useFixture(process.Process(
            [self.program(program), *arguments], ready=ready,
            env=self.environment(
                KUBERNETES_SERVICE_HOST=host, KUBERNETES_SERVICE_PORT=port,
                # Only root can write to the folder that pods use.
                SUSHY_KUBEVIRT_ACCOUNT=account, **more)))

    def test_emulators_serve_with_account_of_pod(self):
        self.sandbox.apply(operator.MANIFESTS / 'samples/vm.yaml')
        self.sandbox.apply(operator.MANIFESTS / 'bmc.yaml')
        account = self.account('emulator-virtbmc', 'default')
        folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        for name, text in ('username', 'admin'), ('password', 'password'):
            (folder / name).write_text(text)
        bmc = spec.read({
            'metadata': {'name': 'node-0', 'namespace': 'default',
                         'uid': 'u', 'generation': 1},
            'spec': {'virtualMachine': {'name': 'node-0'},
                     'redfish': {'plainHTTP': True}}})
        deployment = deployments.deployment(bmc, deployments.Defaults('any'))
        for container in deployment['spec']['template']['spec'][
                'containers']:
            health = self.useFixture(ports.Port()).number
            program, = container['command']
            self.start(program, account, None, **self.variables(
                bmc, container, folder, health))
            self.assertEqual(200, self.ready(health), program)

    def variables(self, bmc, container, folder, health):
        """Return the environment of a container, adapted to this host."""
        made = {one['name']: one.get('value')
                for one in container['env']}
        # A pod has its own /tmp.
        made.update(POD_IP='127.0.0.1', VIRTBMC_HEALTH_PORT=health,
                    TMPDIR=folder)
        made[config_map.AUTH_VARIABLE] = folder
        port = self.useFixture(ports.Port()).number
        if 'VIRTBMC_PORT' in made:
            made['VIRTBMC_PORT'] = port
        else:
            config = folder / 'emulator.conf'
            config.write_text(config_map.text(bmc).replace(
                str(config_map.PORT), str(port)))
            made['SUSHY_EMULATOR_CONFIG'] = config
        return made

    def ready(self, port):
        """Poll a probe for up to 20 s; return its HTTP status code."""
        done = subprocess.run(
            ['curl', '-s', '-o', os.devnull, '-w', '%{http_code}', '-f',
             '--retry', '40', '--retry-delay', '0', '--retry-max-time', '20',
             '--retry-connrefused', '--noproxy', '*',
             f'http://127.0.0.1:{port}/readyz'],
            stdout=subprocess.PIPE, text=True, timeout=60)
        return int(done.stdout[-3:])

    def test_operator_runs_with_account_of_pod(self):
        if not kubectl.KUBECTL:
            self.skipTest('kubectl is not installed')
        operator.install(kubectl.Kubectl(self.sandbox.kubeconfig))
        account = self.account(naming.OPERATOR, operator.NAMESPACE)
        self.start(naming.OPERATOR, account, operator.READY,
                   ['--metrics-address', ''])

    def test_diagnose_with_account_of_pod(self):
        """Its manifests are in the image, and can be parsed."""
        self.sandbox.apply(operator.MANIFESTS / 'base/namespace.yaml')
        self.sandbox.apply(operator.MANIFESTS / 'base/account.yaml')
        one = self.start(
            naming.OPERATOR, self.account(
                naming.OPERATOR, operator.NAMESPACE),
            None, ['diagnose', '--system-namespace', operator.NAMESPACE])
        self.assertEqual(1, one.wait())
        self.assertIn('problem   Rights: ', one.output)
        self.assertNotIn('The manifest', one.output)
