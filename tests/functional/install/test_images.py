# SPDX-License-Identifier: Apache-2.0
"""The images: their build steps, what these install, and its programs.

No container engine is needed. The programs serve as pods of the sandbox, under
OpenShift's constraints: as a user that no file knows, with the manifests'
probes.
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import venv

import fixtures
import requests

from kubevirt_sandbox.testing import given_cluster
from kubevirt_sandbox.testing import process
from tests.fixtures import base
from tests.fixtures import containerfile
from tests.fixtures import link_crawler
from tests.fixtures import operator
from tests.fixtures import terminal
from tools import locks

VERSION = '7.6.5'
EPOCH = 1700000000

#: The commands of each image.
PROGRAMS = {'emulator': {'sushy-kubevirt-bmc', 'sushy-kubevirt-ipmi',
                         'sushy-kubevirt-redfish'},
            'operator': {'sushy-kubevirt-operator'}}

#: What is imported in cases that do not occur in a pod: uvicorn's other
#: parser, and commands of uvicorn and Flask.
DEFERRED = {'click', 'h11'}

#: Where the base image has the standard library.
PYTHON_LIBRARY = '/usr/local/lib/python3.11'

#: What web-modules/install installs, and its licences.
NPM = {'pkg:npm/%40novnc/novnc', 'pkg:npm/%40xterm/addon-fit',
       'pkg:npm/%40xterm/xterm'}
LICENCES = {'xterm/LICENSE', 'xterm/LICENSE.addon-fit', 'novnc/AUTHORS',
            'novnc/LICENSE.txt', 'novnc/docs/LICENSE.MPL-2.0',
            'novnc/docs/LICENSE.BSD-2-Clause',
            'novnc/docs/LICENSE.BSD-3-Clause',
            'novnc/docs/LICENSE.OFL-1.1', 'novnc/vendor/pako/LICENSE'}

#: Bytes that the packages of an image may have, with their byte code.
MOST = 60 * 10 ** 6

#: Packages that must not be in an image: large, or never imported.
ABSENT = {'aiohttp', 'kubernetes', 'libvirt-python', 'pip', 'pygments', 'rich',
          'virtualbmc', *locks.UNUSED}


def top_modules(distribution):
    """Return the names of the modules that a package can be imported by."""
    found = set()
    for path in distribution.files:
        name, *rest = path.parts
        if rest or name.endswith(('.py', '.so')):
            found.add(name.partition('.')[0])
    return {name for name in found if name.isidentifier()
            and name not in ('__pycache__', 'bin', 'etc')}


def build(case, image, epoch=EPOCH):
    """Build an image's tree in a folder that other users can enter.

    :param case: the test case or class that shares the folder.
    :returns: containerfile.Builder
    """
    folder = pathlib.Path(case.share(fixtures.TempDir()).path)
    folder.chmod(0o711)
    builder = containerfile.Builder(image, folder, VERSION=VERSION,
                                    SOURCE_DATE_EPOCH=str(epoch))
    builder.build()
    return builder


class TreeTestCase(base.FunctionalTestCase):
    """What is installed in each image."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.builders = [build(cls, image) for image in containerfile.NAMES]

    def each(self):
        for builder in self.builders:
            found = {locks.normal(one.name): one
                     for one in builder.distributions()}
            yield builder, found

    def run_python(self, builder, *words):
        done = subprocess.run(
            [builder.opt / 'bin/python', '-I', *words], text=True, timeout=60,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env=process.environment(process.NO_HOME))
        self.assertEqual(0, done.returncode, done.stdout)
        return done.stdout

    def test_packages(self):
        for builder, found in self.each():
            wanted = {'sushy-kubevirt'} | set(re.findall(
                r'(?m)^([\w-]+)==', (
                    containerfile.FOLDER / builder.image
                    / 'requirements.txt').read_text()))
            self.assertEqual(wanted, set(found))
            self.assertEqual(set(), ABSENT & set(found))
            self.assertEqual(VERSION, found['sushy-kubevirt'].version)

    def test_size(self):
        for builder, found in self.each():
            size = sum(one.stat().st_size
                       for one in builder.packages.rglob('*')
                       if one.is_file())
            print(f'{builder.image}: {size / 1e6:.1f} MB')
            self.assertLess(size, MOST, builder.image)

    def test_all_modules_of_the_project(self):
        for builder, found in self.each():
            for package in 'sushy_kubevirt', 'vbmc_kubevirt':
                for name in containerfile.tracked(package):
                    self.assertTrue((builder.packages / name).exists(), name)

    def test_every_package_can_be_imported(self):
        for builder, found in self.each():
            names = set().union(*map(top_modules, found.values()))
            self.assertLess({'cryptography', 'urllib3', 'vbmc_kubevirt'},
                            names)
            self.run_python(builder, '-c', 'import ' + ', '.join(names))

    def test_every_program_starts(self):
        for builder in self.builders:
            programs = {path.name for path in (builder.opt / 'bin').iterdir()
                        if not path.name.startswith('python')}
            self.assertEqual(PROGRAMS[builder.image], programs)
            for name in programs:
                done = subprocess.run(
                    [builder.opt / 'bin' / name, '--version'], text=True,
                    env=process.environment(process.NO_HOME), timeout=60,
                    capture_output=True)
                self.assertEqual(0, done.returncode, done.stderr)
                self.assertIn(VERSION, done.stdout)

    def test_web_modules(self):
        builder, = (one for one in self.builders if one.image == 'emulator')
        folder = builder.opt / 'share/sushy-kubevirt/web'
        found = {str(path.relative_to(folder))
                 for path in folder.rglob('*') if path.is_file()}
        self.assertLess({'xterm/xterm.mjs', 'xterm/xterm.css',
                         'xterm/addon-fit.mjs', 'novnc/core/rfb.js',
                         *LICENCES}, found)
        # Nothing but licences and what browsers load, and all of that.
        self.assertEqual(set(), {
            name for name in found - LICENCES
            if not name.endswith(('.css', '.js', '.mjs'))})
        for name in found:
            if name.endswith(('js', 'mjs')):
                path = folder / name
                for used in re.findall(
                        r'(?m)^(?:import|export)\b.*? from ["\'](.+?)["\'];',
                        path.read_text()):
                    self.assertTrue((path.parent / used).exists(),
                                    (name, used))

    def test_no_web_modules_for_the_operator(self):
        builder, = (one for one in self.builders if one.image == 'operator')
        self.assertFalse((builder.opt / 'share/sushy-kubevirt/web').exists())

    def test_bill_of_materials(self):
        # cyclonedx-py has validated that of Python's by CycloneDX's schema.
        for builder, found in self.each():
            bill = json.loads((builder.opt / 'sbom.cdx.json').read_text())
            self.assertEqual('CycloneDX', bill['bomFormat'])
            self.assertEqual(
                {(name, one.version) for name, one in found.items()},
                {(locks.normal(one['name']), one['version'])
                 for one in bill['components']
                 if not one.get('purl', '').startswith('pkg:npm/')})
            self.assertEqual(
                NPM if builder.image == 'emulator' else set(),
                {one['purl'].partition('@')[0] for one in bill['components']
                 if one.get('purl', '').startswith('pkg:npm/')})
            for one in bill['components']:
                self.assertTrue(one.get('licenses'), one['name'])

    def test_every_user_can_read_it_and_none_change_it(self):
        for builder in self.builders:
            for path, (mode, *_) in builder.content().items():
                if not (builder.opt / path).is_symlink():
                    self.assertEqual(4, int(mode, 8) & 0o6, (path, mode))

    def test_byte_code_is_used(self):
        for builder in self.builders:
            text = self.run_python(builder, '-v', '-c',
                                   'import sushy_kubevirt.kube.client')
            self.assertRegex(text, r'matches .*kube/client\.py')
            self.assertNotIn(f'# wrote {str(builder.packages)!r}', text)

    def test_build_is_reproducible(self):
        # The image that has the packages of both; both are built alike.
        builder, = (one for one in self.builders if one.image == 'emulator')
        before = builder.content()
        self.assertEqual({EPOCH}, {time for _, time, _ in before.values()})
        kept = builder.folder / 'kept'
        builder.opt.rename(kept)
        builder.build()
        self.assertEqual(before, builder.content())
        shutil.rmtree(kept)

    def test_byte_code_of_standard_library(self):
        # Without it, a BMC takes more than twice the time to start.
        builder = self.builders[0]
        _, run = builder.stages['image'].all('RUN')
        self.assertIn(PYTHON_LIBRARY, run)
        folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        for name in 'os.py', 'json/decoder.py', 'idlelib/run.py':
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text('x = {"a", "b"}\n')
        (builder.folder / 'src').mkdir()
        self.addCleanup((builder.folder / 'src').rmdir)
        builder.run(run.replace(PYTHON_LIBRARY, str(folder)),
                    PYTHONDONTWRITEBYTECODE='1')
        found = {str(path.parent.parent.relative_to(folder) / path.name):
                 path.read_bytes() for path in folder.rglob('*.pyc')}
        self.assertEqual({'os', 'json/decoder'},
                         {name.partition('.')[0] for name in found})
        for code in found.values():
            # Flags of PEP 552: a hash that is not checked.
            self.assertEqual(b'\1\0\0\0', code[4:8])

    def test_installers_are_removed(self):
        # In another environment than that of this machine's Python.
        folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        venv.create(folder, with_pip=True)
        packages, = folder.glob('lib/python*/site-packages')
        for name in 'pip', 'setuptools':
            self.assertTrue((packages / name).exists() or sys.version_info
                            >= (3, 12))
        builder = self.builders[0]
        run, _ = builder.stages['image'].all('RUN')
        (builder.folder / 'src').mkdir()
        self.addCleanup((builder.folder / 'src').rmdir)
        builder.run(run, PATH=f'{folder}/bin:/usr/bin:/bin',
                    PYTHONDONTWRITEBYTECODE='1')
        self.assertEqual(set(), {
            path.name for path in packages.glob('*')
            if re.match('pip|setuptools|wheel|pkg_resources', path.name)})


class OtherArchitectureTestCase(base.FunctionalTestCase):

    def test_every_package_has_wheels_for_both(self):
        for platform in locks.PLATFORMS:
            # The stage that builds has the image's architecture, too.
            for path in containerfile.FOLDER.glob('**/*requirements.txt'):
                done = self.install(platform, '--no-deps',
                                    '--require-hashes', '--requirement', path)
                self.assertEqual(0, done.returncode, done.stdout)

    def test_a_package_without_wheels_for_one_is_noticed(self):
        # It has wheels for x86_64 alone.
        done = self.install('aarch64-manylinux_2_36', 'intel-openmp')
        self.assertIn('no wheels with a matching platform tag', done.stdout)

    def install(self, platform, *words):
        """Have uv do all of an installation but the download of wheels."""
        folder = self.useFixture(fixtures.TempDir()).path
        done = subprocess.run(
            [locks.uv(), 'pip', 'install', '--dry-run', '--target', folder,
             '--only-binary', ':all:', '--python-platform', platform,
             '--python-version', locks.python_version(), *words],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=300)
        if re.search(containerfile.NO_INDEX, done.stdout):
            self.skipTest('no package index can be reached')
        return done


@given_cluster.needs_sandbox(
    'pods with the programs of the images that the test has built')
class PodsTestCase(operator.OperatorTestCase):
    """The pods of the operator and of a BMC, with the images' programs."""

    FOLDER = operator.MANIFESTS / 'overlays' / 'openshift'
    RUNS = False

    @classmethod
    def setUpClass(cls):
        programs = pathlib.Path(cls.share(fixtures.TempDir()).path)
        programs.chmod(0o755)
        cls.builders = {}
        for image in containerfile.NAMES:
            builder = cls.builders[image] = build(cls, image)
            # Each program writes there which modules it imports.
            imports = builder.folder / 'imports'
            imports.touch()
            imports.chmod(0o666)
            for name in PROGRAMS[image]:
                script = programs / name
                script.write_text(
                    '#!/bin/sh\nexec env PYTHONPROFILEIMPORTTIME=1 '
                    'PYTHONDONTWRITEBYTECODE=1 '
                    f'{builder.opt}/bin/{name} "$@" 2>>{imports}\n')
                script.chmod(0o755)
        cls.SANDBOX = '--openshift', '--programs', str(programs)
        super().setUpClass()

    @classmethod
    def install(cls):
        operator.install(cls.admin, cls.FOLDER, replicas=1)

    def imported(self, image):
        """Return the top-level modules that an image's programs imported."""
        text = (self.builders[image].folder / 'imports').read_text()
        return {name.partition('.')[0] for name in re.findall(
            r'(?m)^import time: .*\| *(\S+)$', text)}

    def use_console(self, box):
        endpoint = box.status['endpoints']['ipmi']
        client = self.useFixture(terminal.Terminal(
            ['ipmitool', '-I', 'lanplus', '-H', endpoint['host'], '-p',
             str(endpoint['port']), '-U', 'admin', '-E', 'sol', 'activate'],
            process.environment(process.NO_HOME, {
                'IPMI_PASSWORD': box.password, 'TERM': 'dumb'})))
        client.wait(rb'SOL Session operational')
        # The guest's prompt.
        client.say(b'', rb'\r\n# ')

    def read_everything(self, box):
        with requests.Session() as session:
            session.trust_env = False
            session.auth = box.username, box.password
            session.verify = str(box.ca_file())
            found = link_crawler.crawl(lambda path: session.get(
                box.url(path), stream=True, timeout=60))
        self.assertGreater(len(found), 50)
        self.assertEqual({200}, {code for code, *_ in found.values()}, [
            one for one in found.items() if one[1][0] != 200])

    def add_certificate(self, box):
        """Let the BMC parse a certificate, which imports cryptography."""
        answer = requests.post(
            box.url('/redfish/v1/Managers/1/VirtualMedia/Cd/Certificates'),
            json={'CertificateString': box.ca_file().read_text(),
                  'CertificateType': 'PEM'},
            auth=(box.username, box.password), verify=str(box.ca_file()),
            timeout=60)
        self.assertEqual(201, answer.status_code, answer.text)

    def diagnose(self, system):
        done = system.run(
            'exec', 'deployment/' + operator.NAME, '--', operator.NAME,
            'diagnose', f'{self.namespace}/box')
        # It reads manifests that are in the image.
        self.assertRegex(done.stdout, r'(?m)^ok +Rights:')
        self.assertNotIn('The manifest', done.stdout + done.stderr)

    def match_namespaces(self):
        """Let the operator's image read a policy with a pattern."""
        builder = self.builders['operator']
        with (builder.folder / 'imports').open('a') as imports:
            found = subprocess.run(
                [builder.opt / 'bin' / 'python', '-X', 'importtime', '-c',
                 'from sushy_kubevirt.operator.metal3 import claims\n'
                 'print(claims.admitted([{"spec": {"hostClaimNamespaces": '
                 '{"nameMatches": "^a+$"}}}], "aaa", {}))'],
                env=builder.env, stdout=subprocess.PIPE, stderr=imports,
                text=True, timeout=60, check=True).stdout
        self.assertEqual('True\n', found)

    def test_pods_serve_with_all_their_packages(self):
        system = self.admin.within(operator.NAMESPACE)
        system('rollout', 'status', 'deployment/' + operator.NAME,
               '--timeout=60s', timeout=90)
        box = self.bmc()
        box.ready()
        self.until('power', box.works, 'Off')
        box.ipmi('power', 'on')
        self.sandbox.wait_running('box', self.namespace)
        self.until('power', box.works, 'On')
        self.use_console(box)
        self.add_certificate(box)
        self.read_everything(box)
        self.diagnose(system)
        self.match_namespaces()
        for kubectl in system, self.kubectl:
            pod, = kubectl.get('pods')['items']
            for container in pod['spec']['containers']:
                self.assertLess({'livenessProbe', 'readinessProbe'},
                                set(container))
            for status in pod['status']['containerStatuses']:
                self.assertEqual((True, 0), (
                    status['ready'], status['restartCount']), status)
        # Nothing is in an image that its programs do not import.
        for image, builder in self.builders.items():
            imported = self.imported(image)
            self.assertEqual([], [
                one.name for one in builder.distributions()
                if not top_modules(one) & (imported | DEFERRED)])
