# SPDX-License-Identifier: Apache-2.0
"""Build the images and take them to where a cluster finds them.

The program of ``tools/images``. It needs nothing but Python's standard
library, git, and the programs that it runs.
"""

import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]

#: What the manifests call the images; the last part names a folder in images/.
NAMES = 'sushy-kubevirt-operator', 'sushy-kubevirt-emulator'

#: Where ``--kustomize`` names the images.
KUSTOMIZATION = pathlib.Path('etc/kubernetes/base/kustomization.yaml')

#: The engines, in the order in which they are looked for.
ENGINES = 'podman', 'docker', 'buildah'

#: How an archive gets into the nodes, by the word of ``--load``. ``{archive}``
#: is its path; the second list is added where ``--cluster`` is given.
LOADERS = {
    'kind': (['kind', 'load', 'image-archive', '{archive}'],
             ['--name', '{cluster}']),
    'minikube': (['minikube', 'image', 'load', '{archive}'],
                 ['--profile', '{cluster}']),
    'k3s': (['k3s', 'ctr', 'images', 'import', '{archive}'], None),
    'containerd': (['ctr', '--namespace', 'k8s.io', 'images', 'import',
                    '{archive}'], None),
}

_EPILOG = """\
Without --push, --load or --save the images stay in the engine. Their names
are REGISTRY/sushy-kubevirt-operator:VERSION and -emulator:VERSION, or begin
with localhost/.

Standard output has one line for each image: its name and its digest, which is
that in the registry after --push, and else that of its configuration (the
image ID). The same commit, base image and engine give the same digests. The
rest goes to standard error. The exit code is 0 for success, 1 if something
failed, 2 for wrong arguments.

examples:
  tools/images --push registry.example.com/lab --kustomize
  tools/images --load kind --kustomize
  tools/images --save archives        # to import on nodes elsewhere
  tools/images -- --pull=never --no-cache
  tools/images -- --secret id=pip.conf,src=/etc/pip.conf
"""


class Failed(Exception):
    """What failed, and what to do; ends the program with exit code 1."""


def say(text: str) -> None:
    """Print progress."""
    print(f'images: {text}', file=sys.stderr, flush=True)


def run(command, remedy: str = '', env: dict | None = None) -> None:
    """Run a command; its output goes to standard error.

    :param command: list of words
    :param remedy: sentence for the error message
    :param env: environment variables in addition
    :raises Failed: the program is missing, or its exit code is not 0
    """
    words = [str(word) for word in command]
    say(shlex.join(words))
    try:
        code = subprocess.run(words, stdin=subprocess.DEVNULL,
                              stdout=sys.stderr,
                              env={**os.environ, **(env or {})}).returncode
    except OSError as exc:
        raise Failed(f'{words[0]}: {exc.strerror}. {remedy}') from None
    if code != 0:
        raise Failed(f'{shlex.join(words[:3])}: exit code {code}, for the '
                     f'reason above. {remedy}')


def git(*arguments: str) -> str:
    """Return what git prints about this checkout.

    :raises Failed: there is no git, or this is no clone
    """
    try:
        done = subprocess.run(['git', '-C', ROOT, *arguments], text=True,
                              capture_output=True)
    except OSError:
        done = None
    if done is None or done.returncode != 0:
        raise Failed(
            f'git cannot read the commit of {ROOT}: '
            + (done.stderr.strip() if done else 'it is not installed')
            + '. Install git, and clone the repository')
    return done.stdout.strip()


@dataclasses.dataclass(frozen=True)
class Source:
    """What is built.

    :param version: what the programs report, and the tag of the images
    :param commit: SHA-1
    :param seconds: time of the commit, since 1970
    :param created: the same as in ``2026-11-23T12:00:00Z``
    """

    version: str
    commit: str
    seconds: str
    created: str

    @classmethod
    def read(cls, version: str | None = None) -> 'Source':
        """Read the commit that is checked out.

        :param version: None for that of its tag X.Y.Z, or of the development
            after the tag, X.Y.(Z+1).devCOMMITS
        """
        commit, seconds = git('log', '-1', '--format=%H %ct').split()
        created = datetime.datetime.fromtimestamp(
            int(seconds), datetime.timezone.utc)
        return cls(version or _version(), commit, seconds,
                   f'{created:%Y-%m-%dT%H:%M:%SZ}')


def _version() -> str:
    tags = re.findall(r'(?m)^(\d+)\.(\d+)\.(\d+)$', git(
        'tag', '--merged', 'HEAD', '--sort=version:refname'))
    if not tags:
        return '0.0.0.dev' + git('rev-list', '--count', 'HEAD')
    major, minor, patch = tags[-1]
    tag = f'{major}.{minor}.{patch}'
    commits = git('rev-list', '--count', f'{tag}..HEAD')
    return tag if commits == '0' else (
        f'{major}.{minor}.{int(patch) + 1}.dev{commits}')


def changes() -> list[str]:
    """List the uncommitted changes that get into an image."""
    lines = (ROOT / '.dockerignore').read_text().splitlines()
    paths = [line[1:] for line in lines if line.startswith('!')]
    left_out = [f':!{line}' for line in lines
                if not line.startswith(('!', '#', '*'))]
    return git('status', '--porcelain', '--', *paths, *left_out).splitlines()


class Engine:
    """A program that builds images.

    :param name: one of `ENGINES`
    """

    def __init__(self, name: str):
        self.name = name

    @classmethod
    def find(cls) -> 'Engine':
        """Return the first of `ENGINES` that is installed.

        :raises Failed: none is
        """
        for name in ENGINES:
            if shutil.which(name):
                return cls(name)
        raise Failed('there is no container engine. Install podman, docker '
                     'or buildah')

    def build(self, name: str, reference: str, source: Source,
              options) -> str:
        """Build an image.

        :param name: one of `NAMES`
        :param reference: its name and tag in the engine
        :param options: list of further options of ``build``
        :returns: the digest of its configuration
        """
        folder = name.rpartition('-')[2]
        arguments = {'VERSION': source.version, 'REVISION': source.commit,
                     'CREATED': source.created,
                     'SOURCE_DATE_EPOCH': source.seconds}
        # Docker takes the time from the environment.
        times = [] if self.name == 'docker' else [
            '--timestamp', source.seconds]
        with tempfile.TemporaryDirectory() as temporary:
            digest = pathlib.Path(temporary, 'digest')
            run([self.name, 'build', '--iidfile', digest, *times,
                 *(word for item in arguments.items()
                   for word in ('--build-arg', '='.join(item))),
                 '--file', ROOT / 'images' / folder / 'Containerfile',
                 '--tag', reference, *options, ROOT],
                'The build needs the base image, and package indexes of '
                'Python and npm: see doc/source/operator/images.rst.',
                {'SOURCE_DATE_EPOCH': source.seconds})
            return digest.read_text().strip()

    def push(self, reference: str) -> str:
        """Push an image to the registry that its name begins with.

        :returns: its digest there
        """
        remedy = f'Log in with: {self.name} login {reference.split("/")[0]}'
        if self.name == 'docker':
            run(['docker', 'push', reference], remedy)
            found = subprocess.run(
                ['docker', 'image', 'inspect', '--format',
                 '{{json .RepoDigests}}', reference],
                stdout=subprocess.PIPE, text=True, check=True)
            # Docker leaves out the name of its own registry.
            repository = reference.rpartition(':')[0].removeprefix(
                'docker.io/')
            return dict(digest.split('@') for digest in json.loads(
                found.stdout)).get(repository, 'unknown digest')
        with tempfile.TemporaryDirectory() as temporary:
            digest = pathlib.Path(temporary, 'digest')
            run([self.name, 'push', '--digestfile', digest, reference],
                remedy)
            return digest.read_text().strip()

    def save(self, reference: str, archive: pathlib.Path) -> None:
        """Write an image into a new file, as docker does."""
        if self.name == 'buildah':
            run(['buildah', 'push', reference,
                 f'docker-archive:{archive}:{reference}'])
        else:
            run([self.name, 'save', '--output', archive, reference])


def load(target: str, archive: pathlib.Path, cluster: str | None) -> None:
    """Load an archive into the nodes of a cluster.

    :param target: key of `LOADERS`
    :param cluster: name of the cluster; None for the program's default
    """
    command, more = LOADERS[target]
    words = [*command, *(more if cluster else ())]
    run([word.format(archive=archive, cluster=cluster) for word in words],
        f'{command[0]} has to be installed, have a running cluster, and may '
        'need root. For nodes elsewhere, write archives with --save.')


def set_images(path: pathlib.Path, references: dict[str, str]) -> None:
    """Name the images in a kustomization, as ``kustomize edit`` does.

    :param path: of a ``kustomization.yaml`` that lists them
    :param references: {name in the manifests: name with tag}
    :raises Failed: the file does not list an image
    """
    text = path.read_text()
    for name, reference in references.items():
        repository, _, tag = reference.rpartition(':')
        text, count = re.subn(
            rf'(?m)^( *)- name: {name}\n(?:\1  \w+: .*\n)*',
            rf'\1- name: {name}\n\1  newName: {repository}\n'
            rf'\1  newTag: "{tag}"\n', text)
        if count != 1:
            raise Failed(f'{path} does not name {name} once under "images". '
                         'Restore the file with git')
    path.write_text(text)


def parse(argv=None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog='tools/images',
        usage='%(prog)s [option ...] [-- option of the build ...]',
        description='Build the images of the operator and of BMCs, and take '
                    'them to where a cluster finds them.',
        epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--engine', choices=ENGINES,
                        help='default: the first of these that is installed')
    parser.add_argument('--version', help='of the programs, and tag of the '
                        'images; default: by the tags X.Y.Z of git')
    where = parser.add_mutually_exclusive_group()
    where.add_argument('--push', metavar='REGISTRY',
                       help='push them to REGISTRY/sushy-kubevirt-operator '
                            'and REGISTRY/sushy-kubevirt-emulator')
    where.add_argument('--load', choices=sorted(LOADERS),
                       help='load them into the nodes of kind or minikube, '
                            'or into the k3s or containerd of this machine')
    where.add_argument('--save', metavar='FOLDER', type=pathlib.Path,
                       help='write them into the files operator.tar and '
                            'emulator.tar')
    parser.add_argument('--cluster', help='name of the cluster for --load '
                        'kind, or of the profile for --load minikube')
    parser.add_argument('--kustomize', action='store_true',
                        help=f'name them in {KUSTOMIZATION}, for kubectl '
                             'apply -k')
    parser.add_argument('options', nargs='*', help=argparse.SUPPRESS)
    words = parser.parse_args(argv)
    if words.cluster and not (words.load and LOADERS[words.load][1]):
        parser.error('--cluster needs --load kind or --load minikube')
    if words.version and not re.fullmatch(r'\d[\w.]{0,127}', words.version):
        parser.error(f'--version {words.version!r} is no version and tag such '
                     'as 1.0.0')
    return words


def build(words: argparse.Namespace) -> dict[str, str]:
    """Do what the command line says.

    :returns: {name in the manifests: name with tag}
    """
    engine = Engine(words.engine) if words.engine else Engine.find()
    source = Source.read(words.version)
    if changed := changes():
        say(f'the images will contain {len(changed)} changed files, not only '
            f'commit {source.commit[:12]}; nodes that have version '
            f'{source.version} keep theirs unless --version names another')
    files = {name: name.rpartition('-')[2] + '.tar' for name in NAMES}
    for file in files.values():
        if words.save and (words.save / file).exists():
            raise Failed(f'{words.save / file} exists. Delete it first')
    prefix = (words.push or 'localhost').rstrip('/')
    references = {name: f'{prefix}/{name}:{source.version}' for name in NAMES}
    digests = {name: engine.build(name, reference, source, words.options)
               for name, reference in references.items()}
    if words.push:
        digests = {name: engine.push(reference)
                   for name, reference in references.items()}
    elif words.load or words.save:
        with tempfile.TemporaryDirectory() as temporary:
            folder = words.save or pathlib.Path(temporary)
            folder.mkdir(parents=True, exist_ok=True)
            for name, reference in references.items():
                engine.save(reference, folder / files[name])
                if words.load:
                    load(words.load, folder / files[name], words.cluster)
    if words.kustomize:
        set_images(ROOT / KUSTOMIZATION, references)
    for name, reference in references.items():
        print(reference, digests[name], flush=True)
    return references


def main(argv=None) -> int:
    """Run the program.

    :returns: its exit code
    """
    words = parse(argv)
    try:
        references = build(words)
    except Failed as exc:
        say(f'failed: {exc}')
        return 1
    if words.kustomize:
        say(f'{KUSTOMIZATION} names them; next: kubectl apply -k '
            'etc/kubernetes')
    else:
        say(f'name them in {KUSTOMIZATION}, with --kustomize or by:\n  '
            f'cd {KUSTOMIZATION.parent} && kustomize edit set image '
            + ' '.join(f'{name}={reference}'
                       for name, reference in references.items()))
    return 0


if __name__ == '__main__':
    sys.exit(main())
