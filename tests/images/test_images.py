# SPDX-License-Identifier: Apache-2.0
"""What the images contain, how programs take them, and pods that run them.

The pods are those of the sandbox, under OpenShift's constraints: as a user
that no file knows, with the manifests' probes. Each container has a read-only
root.
"""

import contextlib
import dataclasses
import functools
import importlib.metadata
import json
import pathlib
import re
import subprocess
import unittest

import fixtures
import requests

from kubevirt_sandbox.testing import process
from tests.fixtures import base
from tests.fixtures import containerfile
from tests.fixtures import link_crawler
from tests.fixtures import operator
from tests.fixtures import terminal
from tests.images import engine
from tools import locks

#: An arbitrary user of group 0, as OpenShift chooses one.
USER = '1000680000:0'

#: The commands of each image.
PROGRAMS = {'emulator': {'sushy-kubevirt-bmc', 'sushy-kubevirt-ipmi',
                         'sushy-kubevirt-redfish'},
            'operator': {'sushy-kubevirt-operator'}}

#: What is imported in cases that do not occur in a pod: uvicorn's other
#: parser, and commands of uvicorn and Flask.
DEFERRED = {'click', 'h11'}

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


@functools.cache
def built():
    """Return the images of all tests in this module, an `engine.Images`.

    :raises unittest.SkipTest: this machine cannot run containers
    """
    images = engine.Images()
    unittest.addModuleCleanup(built.cache_clear)
    try:
        images.setUp()
    except fixtures.MultipleExceptions as exc:
        raise process.cause(exc) from None
    unittest.addModuleCleanup(images.cleanUp)
    return images


@dataclasses.dataclass(frozen=True)
class Image:
    """The files of an image.

    :param name: of its folder in ``images``
    :param reference: name and tag in the engine
    :param root: folder where it is mounted
    """

    name: str
    reference: str
    root: pathlib.Path

    @property
    def version(self):
        """Version of the programs."""
        return self.reference.rpartition(':')[2]

    @property
    def opt(self):
        """Folder of the project's environment."""
        return self.root / containerfile.OPT.lstrip('/')

    @property
    def packages(self):
        """Folder of the installed packages."""
        folder, = self.opt.glob('lib/python*/site-packages')
        return folder

    def distributions(self):
        """List the installed packages, as :mod:`importlib.metadata` does."""
        return list(importlib.metadata.distributions(
            path=[str(self.packages)]))


@contextlib.contextmanager
def mounted(images):
    """Mount the files of both images.

    :param images: `engine.Images`
    :returns: context manager of a list of `Image`
    """
    with contextlib.ExitStack() as stack:
        yield [Image(name, images.reference(name), stack.enter_context(
            images.engine.files(images.reference(name))))
            for name in containerfile.NAMES]


class ContentTestCase(base.FunctionalTestCase):
    """What is in each image."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.images = built()
        stack = contextlib.ExitStack()
        cls.addClassCleanup(stack.close)
        cls.all = stack.enter_context(mounted(cls.images))

    def each(self):
        for image in self.all:
            found = {locks.normal(one.name): one
                     for one in image.distributions()}
            yield image, found

    def execute(self, image, *words):
        """Run a command in a container; return its output."""
        return subprocess.run(
            [self.images.engine.podman, 'run', '--rm', '--network', 'host',
             '--read-only', '--user', USER, image.reference, *words],
            env=self.images.engine.env, stdin=subprocess.DEVNULL, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60,
            check=True).stdout

    def test_packages(self):
        for image, found in self.each():
            wanted = {'sushy-kubevirt'} | set(re.findall(
                r'(?m)^([\w-]+)==', (
                    containerfile.FOLDER / image.name
                    / 'requirements.txt').read_text()))
            self.assertEqual(wanted, set(found))
            self.assertEqual(set(), ABSENT & set(found))
            self.assertEqual(image.version, found['sushy-kubevirt'].version)

    def test_size(self):
        for image, found in self.each():
            size = sum(one.stat().st_size
                       for one in image.packages.rglob('*')
                       if one.is_file())
            print(f'{image.name}: {size / 1e6:.1f} MB')
            self.assertLess(size, MOST, image.name)

    def test_all_modules_of_the_project(self):
        for image, found in self.each():
            for package in 'sushy_kubevirt', 'vbmc_kubevirt':
                for name in containerfile.tracked(package):
                    self.assertTrue((image.packages / name).exists(), name)

    def test_every_package_can_be_imported(self):
        for image, found in self.each():
            names = set().union(*map(top_modules, found.values()))
            self.assertLess({'cryptography', 'urllib3', 'vbmc_kubevirt'},
                            names)
            self.execute(image, 'python', '-c',
                         'import ' + ', '.join(names))

    def test_every_program_starts(self):
        for image in self.all:
            programs = {path.name for path in (image.opt / 'bin').iterdir()
                        if not path.name.startswith('python')}
            self.assertEqual(PROGRAMS[image.name], programs)
            for name in programs:
                self.assertIn(image.version, self.execute(
                    image, name, '--version'))

    def test_web_modules(self):
        image, = (one for one in self.all if one.name == 'emulator')
        folder = image.opt / 'share/sushy-kubevirt/web'
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
        image, = (one for one in self.all if one.name == 'operator')
        self.assertFalse((image.opt / 'share/sushy-kubevirt/web').exists())

    def test_bill_of_materials(self):
        # cyclonedx-py has validated that of Python's by CycloneDX's schema.
        for image, found in self.each():
            bill = json.loads((image.opt / 'sbom.cdx.json').read_text())
            self.assertEqual('CycloneDX', bill['bomFormat'])
            self.assertEqual(
                {(name, one.version) for name, one in found.items()},
                {(locks.normal(one['name']), one['version'])
                 for one in bill['components']
                 if not one.get('purl', '').startswith('pkg:npm/')})
            self.assertEqual(
                NPM if image.name == 'emulator' else set(),
                {one['purl'].partition('@')[0] for one in bill['components']
                 if one.get('purl', '').startswith('pkg:npm/')})
            for one in bill['components']:
                self.assertTrue(one.get('licenses'), one['name'])

    def test_every_user_can_read_it_and_none_change_it(self):
        for image in self.all:
            for path in image.opt.rglob('*'):
                if not path.is_symlink():
                    about = path.lstat()
                    self.assertEqual((0, 0, 4), (
                        about.st_uid, about.st_gid, about.st_mode & 0o6),
                        path)

    def test_byte_code_is_used(self):
        # Also that of the standard library, without which a BMC takes more
        # than twice the time to start.
        for image in self.all:
            text = self.execute(image, 'python', '-v', '-c',
                                'import json, sushy_kubevirt.kube.client')
            # Without docstrings, which are 2 MiB of a BMC's memory.
            self.assertRegex(text, r'opt-2\.pyc matches .*kube/client\.py')
            self.assertRegex(text, r'opt-2\.pyc matches .*json/decoder\.py')
            self.assertNotIn('# wrote', text)

    def test_byte_code_is_not_compared_with_sources(self):
        for image in self.all:
            library, = image.root.glob('usr/local/lib/python3*')
            files = [*library.rglob('*.pyc'), *image.packages.rglob('*.pyc')]
            self.assertTrue(files)
            for path in files:
                # Flags of PEP 552: a hash that is not checked.
                self.assertEqual(b'\1\0\0\0', path.read_bytes()[4:8], path)
            self.assertEqual([], [*library.glob('idlelib/**/*.pyc')])

    def test_installers_are_removed(self):
        for image in self.all:
            self.assertEqual([], [
                path for path in image.root.glob(
                    'usr/local/lib/python3*/*-packages/*')
                if re.match('pip|setuptools|wheel|pkg_resources', path.name)])

    def test_labels(self):
        for image in self.all:
            labels = json.loads(self.images.engine(
                'image', 'inspect', '--format', '{{json .Labels}}',
                image.reference))
            self.assertEqual(
                [image.version, self.images.commit],
                [labels['org.opencontainers.image.' + name]
                 for name in ('version', 'revision')])


class DeliveryTestCase(base.FunctionalTestCase):
    """What ``tools/images`` makes of the same source again, and where."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.images = built()
        cls.engine = cls.images.engine

    def test_build_is_reproducible(self):
        before = [self.about(one) for one in sorted(self.images.digests)]
        again = self.images.build('--', '--no-cache')
        self.assertEqual(before, [self.about(one) for one in sorted(again)])
        self.assertEqual([config for config, _ in before],
                         [again[one] for one in sorted(again)])
        print(before)

    def about(self, reference):
        """Return the digests of an image's configuration and manifest."""
        configuration, manifest = self.engine(
            'image', 'inspect', '--format', '{{.Id}} {{.Digest}}',
            reference).split()
        return 'sha256:' + configuration, manifest

    def test_registry_has_them(self):
        for reference, digest in self.images.digests.items():
            name, _, tag = reference.partition('/')[2].rpartition(':')
            answer = requests.get(
                f'http://{self.images.registry.address}/v2/{name}/manifests/'
                + tag, timeout=60, headers={'Accept': ', '.join((
                    'application/vnd.oci.image.manifest.v1+json',
                    'application/vnd.docker.distribution.manifest.v2+json'))})
            self.assertEqual((200, digest), (
                answer.status_code,
                answer.headers.get('Docker-Content-Digest')))
            # It can be pulled, without what the build has left.
            self.assertEqual('sha256:' + self.engine(
                'pull', '--quiet', f'{reference.rpartition(":")[0]}@{digest}'),
                answer.json()['config']['digest'])

    def test_containerd_has_them(self):
        node = self.useFixture(engine.Containerd())
        digests = self.images.build('--load', 'containerd', env=node.env)
        for reference, digest in digests.items():
            self.assertEqual(digest, node.configuration(reference))


class PodsTestCase(operator.OperatorTestCase):
    """Pods of the operator and of a BMC, as containers of the images."""

    RUNS = False

    @classmethod
    def setUpClass(cls):
        cls.images = built()
        programs = pathlib.Path(cls.share(fixtures.TempDir()).path)
        programs.chmod(0o755)
        cls.imports = {}
        for image in containerfile.NAMES:
            # Each program writes there which modules it imports.
            imports = cls.imports[image] = programs / image
            imports.touch()
            imports.chmod(0o666)
            text = cls.images.engine.program(
                cls.images.reference(image), imports)
            for name in PROGRAMS[image]:
                script = programs / name
                script.write_text(text)
                script.chmod(0o755)
        cls.SANDBOX = '--openshift', '--programs', str(programs)
        super().setUpClass()

    @classmethod
    def install(cls):
        # The rest of the recipe, with the variant for OpenShift.
        subprocess.run(
            ['bash', '-ec', cls.images.install.replace(
                '-k etc/kubernetes', '-k etc/kubernetes/overlays/openshift')],
            cwd=cls.images.clone, stdin=subprocess.DEVNULL, check=True,
            timeout=180, env=process.environment(
                cls.images.clone, {'KUBECONFIG': cls.sandbox.kubeconfig}))

    def imported(self, image):
        """Return the top-level modules that an image's programs imported."""
        return {name.partition('.')[0] for name in re.findall(
            r'(?m)^import time: .*\| *(\S+)$',
            self.imports[image].read_text())}

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
        done = self.images.engine.run(
            'run', '--rm', '--network', 'host', '--read-only', '--user', USER,
            self.images.reference('operator'), 'python', '-X', 'importtime',
            '-c', 'from sushy_kubevirt.operator.metal3 import claims\n'
            'print(claims.admitted([{"spec": {"hostClaimNamespaces": '
            '{"nameMatches": "^a+$"}}}], "aaa", {}))')
        self.assertEqual('True\n', done.stdout)
        with self.imports['operator'].open('a') as imports:
            imports.write(done.stderr)

    def check_health(self, pod):
        """Check the containers of a pod as a node does."""
        container, = pod['spec']['containers']
        self.assertLess({'livenessProbe', 'readinessProbe'}, set(container))
        probe = container['readinessProbe']['httpGet']
        port, = (one['containerPort'] for one in container['ports']
                 if one['name'] == probe['port'])
        answer = requests.get(f'http://{pod["status"]["podIP"]}:{port}'
                              + probe['path'], timeout=60)
        self.assertEqual(('/readyz', 200), (
            probe['path'], answer.status_code))
        status, = pod['status']['containerStatuses']
        self.assertEqual((True, 0), (
            status['ready'], status['restartCount']), status)

    def check_containers(self):
        """Check how the runtime runs them: as users of the namespaces."""
        running = json.loads(self.images.engine('ps', '--format', 'json'))
        users = set()
        for container in running:
            about, = json.loads(self.images.engine(
                'inspect', container['Id']))
            self.assertTrue(about['HostConfig']['ReadonlyRootfs'])
            self.assertEqual([], about['EffectiveCaps'] or [])
            users.add(about['Config']['User'])
        # Two of the operator, and one of the BMC, in another namespace.
        self.assertEqual((3, 2), (len(running), len(users)), users)
        for user in users:
            self.assertRegex(user, r'^1\d{9}:0$')

    def test_pods_serve_with_all_their_packages(self):
        system = self.admin.within(operator.NAMESPACE)
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
            for pod in kubectl.get('pods')['items']:
                self.check_health(pod)
        self.check_containers()
        # The manifests name the images that the recipe has pushed.
        self.assertEqual(
            {self.images.reference('operator'),
             self.images.reference('emulator')},
            {kubectl.get('pods')['items'][0]['spec']['containers'][0]['image']
             for kubectl in (system, self.kubectl)})
        # Nothing is in an image that its programs do not import.
        with mounted(self.images) as images:
            for image in images:
                imported = self.imported(image.name)
                self.assertEqual([], [
                    one.name for one in image.distributions()
                    if not top_modules(one) & (imported | DEFERRED)])
