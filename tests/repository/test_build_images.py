# SPDX-License-Identifier: Apache-2.0
"""``tools/images`` calls engines and clusters as these expect it.

The programs are stubs. ``tests/images`` has podman and containerd.
"""

import contextlib
import io
import os
import pathlib
import shutil
import subprocess

import fixtures
from oslotest import base
import yaml

from tests.fixtures import checkout
from tools import build_images

# Records its arguments, and writes the digest that it is asked for.
_STUB = """#!/bin/sh
echo "${0##*/} $*" >>"${0%/*}/calls"
while [ $# -gt 0 ]; do
    case $1 in
        --iidfile) printf %s sha256:image >"$2" ;;
        --digestfile) printf %s sha256:pushed >"$2" ;;
        --output) : >"$2" ;;
        docker-archive:*) file=${1#*:}; : >"${file%%:*}" ;;
        inspect) echo '["r.example/lab/sushy-kubevirt-operator@sha256:pushed",
                        "r.example/lab/sushy-kubevirt-emulator@sha256:pushed"]'
    esac
    shift
done
"""


class ProgramTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.programs = self.folder / 'bin'
        self.programs.mkdir()
        for name in 'git', 'sh':
            (self.programs / name).symlink_to(shutil.which(name))
        self.useFixture(fixtures.EnvironmentVariable(
            'PATH', str(self.programs)))
        # A clone in which a commit has tag 1.2.0.
        self.clone = self.folder / 'clone'
        self.git('init', '--quiet', self.clone)
        shutil.copy(checkout.ROOT / '.dockerignore', self.clone)
        self.kustomization = self.clone / build_images.KUSTOMIZATION
        self.kustomization.parent.mkdir(parents=True)
        shutil.copy(checkout.ROOT / build_images.KUSTOMIZATION,
                    self.kustomization)
        self.commit()
        self.git('tag', '1.2.0')
        self.useFixture(fixtures.MonkeyPatch(
            'tools.build_images.ROOT', self.clone))

    def git(self, *words):
        subprocess.run(
            ['git', '-c', 'user.name=a', '-c', 'user.email=a@b', *words],
            cwd=self.clone if self.clone.exists() else self.folder,
            check=True, stdout=subprocess.DEVNULL)

    def commit(self):
        self.git('add', '--all')
        self.git('commit', '--quiet', '--allow-empty', '--message', 'x',
                 '--date', '2026-01-02T03:04:05Z')

    def stub(self, *names, text=_STUB):
        for name in names:
            path = self.programs / name
            path.write_text(text)
            path.chmod(0o755)

    def calls(self):
        """List the calls of stubs, without a random part of paths."""
        return (self.programs / 'calls').read_text().splitlines()

    def run_program(self, *arguments):
        """Run it; return its exit code, output and messages.

        Stubs are child processes, so their output is not in the messages.
        """
        with contextlib.redirect_stdout(io.StringIO()) as out, \
                contextlib.redirect_stderr(_Messages()) as err:
            code = build_images.main(arguments)
        return code, out.getvalue(), err.getvalue()

    def test_build(self):
        self.stub('podman')
        code, out, err = self.run_program('--', '--pull=never', '--no-cache')
        self.assertEqual((0, (
            'localhost/sushy-kubevirt-operator:1.2.0 sha256:image\n'
            'localhost/sushy-kubevirt-emulator:1.2.0 sha256:image\n')),
            (code, out))
        self.assertIn('kustomize edit set image '
                      'sushy-kubevirt-operator=localhost/', err)
        commit = build_images.git('rev-parse', 'HEAD')
        seconds = build_images.git('log', '-1', '--format=%ct')
        for call, name in zip(self.calls(), ('operator', 'emulator'),
                              strict=True):
            for words in (
                    f'--timestamp {seconds} ', '--build-arg VERSION=1.2.0 ',
                    f'--build-arg REVISION={commit} ',
                    f'--build-arg SOURCE_DATE_EPOCH={seconds} ',
                    f'--file {self.clone}/images/{name}/Containerfile ',
                    f'--tag localhost/sushy-kubevirt-{name}:1.2.0 '
                    f'--pull=never --no-cache {self.clone}'):
                self.assertIn(words, call + ' ')
            self.assertRegex(call, r'CREATED=20\d\d-\d\d-\d\dT[\d:]{8}Z ')

    def test_version(self):
        self.assertEqual('1.2.0', build_images.Source.read().version)
        self.commit()
        self.commit()
        self.assertEqual('1.2.1.dev2', build_images.Source.read().version)
        self.git('tag', '1.10.0')
        self.assertEqual('1.10.0', build_images.Source.read().version)
        self.git('tag', '--delete', '1.2.0', '1.10.0')
        self.assertEqual('0.0.0.dev3', build_images.Source.read().version)
        self.assertEqual('5.0', build_images.Source.read('5.0').version)

    def test_push(self):
        for engine in build_images.ENGINES:
            self.stub(engine)
            code, out, _ = self.run_program(
                '--engine', engine, '--push', 'r.example/lab/')
            self.assertEqual((0, ''.join(
                f'r.example/lab/{name}:1.2.0 sha256:pushed\n'
                for name in build_images.NAMES)), (code, out))
            push = [call for call in self.calls()
                    if call.startswith(f'{engine} push ')]
            self.assertEqual(2, len(push))
            self.assertTrue(push[0].endswith(
                ' r.example/lab/sushy-kubevirt-operator:1.2.0'), push)

    def test_docker_does_not_name_its_own_registry(self):
        self.stub('docker', text=_STUB.replace('r.example/lab/', 'me/'))
        code, out, _ = self.run_program('--push', 'docker.io/me')
        self.assertEqual((0, ''.join(
            f'docker.io/me/{name}:1.2.0 sha256:pushed\n'
            for name in build_images.NAMES)), (code, out))

    def test_docker_gets_the_time_from_its_environment(self):
        self.stub('docker', text=_STUB.replace(
            '$*"', '$* $SOURCE_DATE_EPOCH"'))
        self.run_program()
        seconds = build_images.git('log', '-1', '--format=%ct')
        for call in self.calls():
            self.assertNotIn('--timestamp', call)
            self.assertTrue(call.endswith(f' {seconds}'), call)

    def test_first_engine_that_is_there(self):
        for name in reversed(build_images.ENGINES):
            self.stub(name)
            self.assertEqual(name, build_images.Engine.find().name)

    def test_load(self):
        wanted = {
            ('kind',): r'kind load image-archive \S+/{}\.tar',
            ('kind', '--cluster', 'lab'):
                r'kind load image-archive \S+/{}\.tar --name lab',
            ('minikube',): r'minikube image load \S+/{}\.tar',
            ('minikube', '--cluster', 'lab'):
                r'minikube image load \S+/{}\.tar --profile lab',
            ('k3s',): r'k3s ctr images import \S+/{}\.tar',
            ('containerd',):
                r'ctr --namespace k8s\.io images import \S+/{}\.tar'}
        self.stub('podman', 'kind', 'minikube', 'k3s', 'ctr')
        for words, pattern in wanted.items():
            (self.programs / 'calls').unlink(missing_ok=True)
            code, _, _ = self.run_program('--load', *words)
            self.assertEqual(0, code)
            calls = self.calls()
            self.assertRegex(
                calls[2], r'^podman save --output \S+/operator\.tar '
                'localhost/sushy-kubevirt-operator:1.2.0$')
            for call, name in zip(calls[3::2], ('operator', 'emulator'),
                                  strict=True):
                self.assertRegex(call, f'^{pattern.format(name)}$')

    def test_save(self):
        for engine in build_images.ENGINES:
            self.stub(engine)
            folder = self.folder / engine
            code, _, _ = self.run_program('--engine', engine, '--save',
                                          str(folder))
            self.assertEqual(0, code)
            self.assertEqual(['emulator.tar', 'operator.tar'],
                             sorted(os.listdir(folder)))
        (self.programs / 'calls').unlink()
        (folder / 'operator.tar').unlink()
        code, _, err = self.run_program('--save', str(folder))
        self.assertEqual(1, code)
        self.assertIn('emulator.tar exists. Delete it first', err)
        # Nothing was built.
        self.assertFalse((self.programs / 'calls').exists())

    def test_kustomize(self):
        self.stub('podman')
        before = yaml.safe_load(self.kustomization.read_text())
        # Again, as for the next version.
        for version in '1.0', '1.1':
            code, _, err = self.run_program(
                '--push', 'r.example:5000/lab', '--version', version,
                '--kustomize')
            self.assertEqual(0, code)
            self.assertIn('next: kubectl apply -k etc/kubernetes', err)
        after = yaml.safe_load(self.kustomization.read_text())
        self.assertEqual([
            {'name': name, 'newName': f'r.example:5000/lab/{name}',
             'newTag': '1.1'} for name in build_images.NAMES],
            after.pop('images'))
        before.pop('images')
        self.assertEqual(before, after)
        # The images do not contain it.
        self.assertEqual([], build_images.changes())

    def test_kustomization_without_an_image(self):
        self.kustomization.write_text('images:\n')
        self.stub('podman')
        code, _, err = self.run_program('--kustomize')
        self.assertEqual(1, code)
        self.assertIn('does not name sushy-kubevirt-operator once', err)

    def test_uncommitted_changes(self):
        self.stub('podman')
        (self.clone / 'etc/new').touch()
        (self.clone / 'doc').mkdir()
        (self.clone / 'doc/new').touch()
        code, _, err = self.run_program()
        self.assertEqual(0, code)
        self.assertIn('will contain 1 changed files', err)

    def test_failures(self):
        code, out, err = self.run_program()
        self.assertEqual((1, ''), (code, out))
        self.assertIn('failed: there is no container engine. Install podman',
                      err)
        self.stub('podman', text='#!/bin/sh\nexit 7\n')
        code, out, err = self.run_program()
        self.assertEqual((1, ''), (code, out))
        self.assertRegex(err, 'failed: podman build .*: exit code 7.*'
                         'needs the base image')
        self.stub('podman')
        code, out, err = self.run_program('--load', 'kind')
        self.assertEqual((1, ''), (code, out))
        self.assertRegex(err, 'kind: No such file.* --save')
        shutil.rmtree(self.clone / '.git')
        code, out, err = self.run_program()
        self.assertEqual(1, code)
        self.assertIn('git cannot read the commit of', err)

    def test_usage_errors(self):
        for words in (('--cluster', 'lab'),
                      ('--load', 'k3s', '--cluster', 'a'),
                      ('--load', 'kind', '--push', 'r'), ('--load', 'other'),
                      ('--version', 'v1'), ('--version', '1.0+a')):
            with contextlib.redirect_stderr(io.StringIO()):
                exc = self.assertRaises(SystemExit, build_images.main, words)
            self.assertEqual(2, exc.code, words)

    def test_help_names_every_target(self):
        done = subprocess.run(
            [checkout.ROOT / 'tools/images', '--help'], text=True,
            capture_output=True, check=True,
            env={'PATH': os.defpath, 'COLUMNS': '80'})
        for word in (*build_images.ENGINES, *build_images.LOADERS,
                     '--kustomize', 'exit code'):
            self.assertIn(word, done.stdout)


class _Messages(io.StringIO):
    """Standard error, with a descriptor for child processes."""

    def __init__(self):
        super().__init__()
        self._file = open(os.devnull, 'w')

    def fileno(self):
        return self._file.fileno()

    def close(self):
        self._file.close()
        super().close()
