# SPDX-License-Identifier: Apache-2.0
"""podman with a storage of its own, and programs that take images from it."""

import contextlib
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import textwrap
import unittest

import fixtures

from kubevirt_sandbox.testing import polling
from kubevirt_sandbox.testing import ports
from kubevirt_sandbox.testing import process
from tests.fixtures import checkout
from tests.fixtures import containerfile
from tests.fixtures import documents
from tests.fixtures import environments
from tools import uv

PREPARED = environments.ENVIRONMENTS['images']

CERTIFICATES = pathlib.Path('/etc/ssl/certs/ca-certificates.crt')

#: Matches what an engine says where the machine forbids containers.
FORBIDDEN = r'(?i)not permitted|permission denied|not supported|read-only'

_CONTAINERS = """
[containers]
# podman's own are higher than those of some machines.
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]

[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "none"
"""

_STORAGE = """
[storage]
driver = "overlay"
graphroot = "{folder}/storage"
runroot = "{folder}/run"

[storage.options.overlay]
# Do not leave a mount behind.
skip_mount_home = "true"
"""

# The build's options for this machine: users have a base image, and need no
# others where the package indexes are the public ones. Network "host" leaves
# no bridge behind.
_PODMAN = """
#!/bin/sh
if [ "$1" = build ]; then
    shift
    set -- build --pull=never --network host {options} "$@"
fi
exec {podman} "$@"
"""


def pip_configuration():
    """Return a ``pip.conf`` with the package index of this machine.

    The certificates are in `CERTIFICATES`.
    """
    options = {name: value for name, value in uv.pip_options().items()
               if name in ('index-url', 'extra-index-url', 'trusted-host',
                           'proxy', 'timeout', 'cert')}
    if 'cert' in options:
        options['cert'] = str(CERTIFICATES)
    return '[global]\n' + ''.join(
        f'{name} = {value}\n' for name, value in options.items())


class Engine(fixtures.Fixture):
    """podman, with no image but the base of ours.

    ``env`` is the environment in which ``podman``, and what calls it, works
    this way. Nothing of it is left after clean-up.

    :ivar folder: that of the storage, and of a socket at which users of root's
        group may have podman do anything.
    """

    def _setUp(self):
        if PREPARED.needs:
            raise unittest.SkipTest(f'the suite needs {PREPARED.needs}')
        self.folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.folder.chmod(0o711)
        self.podman = shutil.which('podman')
        self.env = dict(os.environ, CONTAINERS_CONF=self._write(
            'containers.conf', _CONTAINERS), CONTAINERS_STORAGE_CONF=self
            ._write('storage.conf', _STORAGE.format(folder=self.folder)))
        self.addCleanup(self._clean_up)
        base, digest = self._import_base()
        self._check_works(base)
        self._wrap(digest)
        self._serve()

    def _serve(self):
        """Let users of root's group run containers, as pods are."""
        path = self.folder / 'podman.sock'
        self.url = f'unix://{path}'
        self.service = self.useFixture(process.Process(
            [self.podman, 'system', 'service', '--time', '0', self.url],
            env=self.env))
        for _ in polling.attempts(60):
            if path.is_socket():
                break
        else:
            raise AssertionError(self.service.output)
        path.chmod(0o660)

    def _write(self, name, text):
        path = self.folder / name
        path.write_text(text.lstrip('\n'))
        return str(path)

    def _import_base(self):
        """Give the base the name that ``FROM`` uses.

        :returns: the name, and the digest that it has here
        """
        arguments, _ = containerfile.read('operator')
        name = arguments['BASE']
        self('import', '--quiet', PREPARED.folder / 'base.tar',
             f'docker.io/library/{name}')
        return name, self('image', 'inspect', '--format', '{{.Digest}}', name)

    def _check_works(self, base):
        done = self.run('run', '--rm', '--network', 'host', base, 'true')
        if done.returncode and re.search(FORBIDDEN, done.stderr):
            raise unittest.SkipTest(
                f'podman cannot run containers here: {done.stderr.strip()}')
        assert done.returncode == 0, done.stderr

    def _wrap(self, digest):
        """Put a podman that knows this machine first on PATH."""
        options = ['--build-arg', f'BASE_DIGEST={digest}',
                   '--secret', 'id=pip.conf,src='
                   + self._write('pip.conf', pip_configuration())]
        if CERTIFICATES.exists():
            options += ['--secret', f'id={CERTIFICATES.name},'
                        f'src={CERTIFICATES}']
        programs = self.folder / 'bin'
        programs.mkdir()
        self._write('bin/podman', _PODMAN.format(
            options=' '.join(options), podman=self.podman))
        (programs / 'podman').chmod(0o755)
        self.env['PATH'] = os.pathsep.join(map(str, (
            programs, PREPARED.folder / 'bin', self.env['PATH'])))

    def _clean_up(self):
        self.run('rm', '--all', '--force', '--time', '0')
        mounts = [line for line in pathlib.Path(
            '/proc/self/mounts').read_text().splitlines()
            if str(self.folder) in line]
        assert not mounts, mounts

    def run(self, *words):
        """Run podman; return `subprocess.CompletedProcess` with its output."""
        return subprocess.run(
            [self.podman, *map(str, words)], env=self.env, text=True,
            stdin=subprocess.DEVNULL, capture_output=True, timeout=600)

    def __call__(self, *words):
        """Run podman and return what it printed.

        :raises AssertionError: it failed; with its output
        """
        done = self.run(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    @contextlib.contextmanager
    def files(self, reference):
        """Mount the files of an image.

        :returns: context manager of the path of their top folder
        """
        folder = pathlib.Path(self('image', 'mount', reference))
        try:
            yield folder
        finally:
            self('image', 'unmount', reference)

    def program(self, reference, output):
        """Return a script that runs a program of an image in a container.

        The sandbox runs it in place of the program. The container has a
        read-only root, the user and groups of the process, its environment,
        no capabilities, and the volumes of the pod.

        :param output: path of a file, to which standard error is appended
        """
        return textwrap.dedent(f"""\
            #!/bin/sh
            pod=${{HOME%/home}}
            options=
            for name in $(env | sed -nE 's/^([A-Za-z_][A-Za-z0-9_]*)=.*/\\1/p')
            do
                case $name in
                    PATH|PWD|PYTHONPATH|VIRTUAL_ENV|LD_LIBRARY_PATH) ;;
                    *) options="$options --env $name" ;;
                esac
            done
            for group in $(id -G); do
                options="$options --group-add $group"
            done
            exec {self.podman} --remote --url {self.url} run --rm \\
                --network host --read-only --read-only-tmpfs=false \\
                --cap-drop all --security-opt no-new-privileges \\
                --user "$(id -u):$(id -g)" --volume "$pod:$pod" $options \\
                --env PYTHONPROFILEIMPORTTIME=1 \\
                {reference} "${{0##*/}}" "$@" 2>>{output}
            """)


class Registry(fixtures.Fixture):
    """A registry on loopback, which an engine reaches without TLS.

    :param engine: the :class:`Engine`; its environment is changed
    :ivar address: ``HOST:PORT``
    """

    def __init__(self, engine):
        super().__init__()
        self.engine = engine

    def _setUp(self):
        folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        port = self.useFixture(ports.Port()).number
        self.address = f'127.0.0.1:{port}'
        configuration = folder / 'registry.yaml'
        configuration.write_text(textwrap.dedent(f"""\
            version: 0.1
            log: {{level: info, accesslog: {{disabled: true}}}}
            storage: {{filesystem: {{rootdirectory: {folder}/blobs}}}}
            http: {{addr: '{self.address}'}}
            """))
        insecure = folder / 'registries.conf'
        insecure.write_text(f'[[registry]]\nlocation = "{self.address}"\n'
                            'insecure = true\n')
        self.engine.env['CONTAINERS_REGISTRIES_CONF'] = str(insecure)
        self.addCleanup(self.engine.env.pop, 'CONTAINERS_REGISTRIES_CONF')
        self.useFixture(process.Process(
            [PREPARED.folder / 'bin/docker-registry', 'serve', configuration],
            ready='listening on', env=process.environment(folder)))


class Containerd(fixtures.Fixture):
    """containerd, as on a node.

    :ivar env: variables with which ``ctr`` finds it
    """

    def _setUp(self):
        folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        address = str(folder / 'containerd.sock')
        configuration = folder / 'config.toml'
        configuration.write_text(
            'version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n'
            f'[grpc]\naddress = "{address}"\n')
        self.env = {'CONTAINERD_ADDRESS': address}
        self.useFixture(process.Process(
            [PREPARED.folder / 'bin/containerd', '--config', configuration,
             '--root', folder / 'root', '--state', folder / 'state'],
            ready='successfully booted', env=process.environment(folder)))

    def configuration(self, reference):
        """Return the digest of the configuration of a stored image.

        :raises AssertionError: it is not there, for Kubernetes
        """
        def ctr(*words):
            return subprocess.run(
                [PREPARED.folder / 'bin/ctr', '--namespace', 'k8s.io', *words],
                check=True,
                env={**os.environ, **self.env}, stdout=subprocess.PIPE,
                text=True, timeout=60).stdout

        listed = ctr('images', 'list', f'name=={reference}').splitlines()
        assert len(listed) == 2, listed
        manifest, = re.findall(r'sha256:[0-9a-f]{64}', listed[1])
        return json.loads(ctr('content', 'get', manifest))['config']['digest']


class Images(fixtures.Fixture):
    """Both images, built and pushed by the installation page's first recipe.

    :ivar engine: :class:`Engine`
    :ivar registry: :class:`Registry`
    :ivar clone: folder of a copy of this checkout; its manifests name the
        images
    :ivar commit: its commit
    :ivar install: the commands of the recipe after the first
    :ivar digests: {name in the registry with tag: digest in the registry}
    """

    def _setUp(self):
        self.engine = self.useFixture(Engine())
        self.registry = self.useFixture(Registry(self.engine))
        self.commit = subprocess.run(
            ['git', 'rev-parse', 'HEAD'], cwd=checkout.ROOT, text=True,
            stdout=subprocess.PIPE, check=True).stdout.strip()
        self.clone = pathlib.Path(self.useFixture(
            fixtures.TempDir()).path) / 'clone'
        subprocess.run(['git', 'clone', '--quiet', '--shared',
                        checkout.ROOT, self.clone], check=True)
        for name in containerfile.tracked('.'):
            target = self.clone / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(checkout.ROOT / name, target)
        recipe = next(text for _, text, _ in documents.blocks(
            documents.INSTALL.read_text()) if text.startswith('tools/images'))
        build, _, self.install = recipe.partition('\n')
        self.digests = self.build(*shlex.split(build.replace(
            'REGISTRY', f'{self.registry.address}/lab'))[1:])

    def build(self, *options, env=None):
        """Run ``tools/images`` in the clone.

        :param env: environment variables in addition
        :returns: what it printed: {name of an image: digest}
        :raises AssertionError: it failed; with its output
        """
        done = subprocess.run(
            [self.clone / 'tools/images', *options], text=True,
            env={**self.engine.env, **(env or {})}, cwd=self.clone,
            stdin=subprocess.DEVNULL, capture_output=True, timeout=900)
        assert done.returncode == 0, done.stderr[-5000:]
        return dict(map(str.split, done.stdout.splitlines()))

    def reference(self, image):
        """Return the name and tag of an image.

        :param image: name of its folder in ``images``
        """
        return next(one for one in self.digests
                    if f'/sushy-kubevirt-{image}:' in one)
