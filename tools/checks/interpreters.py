# SPDX-License-Identifier: Apache-2.0
"""The Pythons of this machine, with environments for the unit tests.

uv finds the interpreters, on PATH, in ``/usr/bin`` and among pyenv's versions.
An environment lies in the folder of this virtual environment, so that it
belongs to the checkout, whose packages it has. It lacks libvirt's module, and
what only other tests need.
"""

import glob
import hashlib
import json
import os
import pathlib
import platform
import re
import subprocess
import sys

from tests.fixtures import checkout
from tests.fixtures import environments
from tools import locks
from tools import uv

_PINS = checkout.ROOT / locks.UNIT_TESTS[0]
_PROJECTS = (checkout.ROOT / 'setup.cfg',
             checkout.ROOT / 'sandbox' / 'setup.cfg')


def _uv(*words: object, **variables: str) -> str:
    return uv.run(*words, cwd=checkout.ROOT, stdout=subprocess.PIPE,
                  text=True, check=True, env=variables).stdout


def supported(listed: list[dict]) -> dict[str, str]:
    """Select one interpreter for each version that the project supports.

    :param listed: what ``uv python list --output-format json`` prints
    :returns: dictionary of version, such as ``3.11.2``, to the path
    """
    minors = re.findall(r'(?m)Python :: (3\.\d+)$', _PROJECTS[0].read_text())
    return {each['version']: each['path'] for each in reversed(listed)
            if each['implementation'] == 'cpython'
            and each['variant'] == 'default'
            and '.'.join(each['version'].split('.')[:2]) in minors}


def others() -> dict[str, str]:
    """Find the Pythons of this machine besides the one that runs this.

    :returns: as `supported`
    :raises: `subprocess.CalledProcessError` if uv fails; it prints why
    """
    pyenv = os.environ.get('PYENV_ROOT') or str(pathlib.Path.home() / '.pyenv')
    # pyenv's shims are slow, and some of them start nothing.
    path = os.pathsep.join((
        *(each for each in os.environ['PATH'].split(os.pathsep)
          if each != f'{pyenv}/shims'),
        '/usr/bin', *sorted(glob.glob(f'{pyenv}/versions/3.1[1-9]*/bin'))))
    found = supported(json.loads(_uv(
        'python', 'list', '--only-installed', '--no-python-downloads',
        '--output-format', 'json', PATH=path)))
    found.pop(platform.python_version(), None)
    return dict(sorted(found.items()))


def environment(version: str, path: str) -> pathlib.Path:
    """Make a virtual environment with what the unit tests need.

    One that is there is used again.

    :param version: of the interpreter
    :param path: of the interpreter
    :returns: folder of its programs
    :raises: `subprocess.CalledProcessError` if uv fails; it prints why
    """
    folder = pathlib.Path(sys.prefix) / f'python-{version}'
    stamp = folder / 'complete'
    contents = hashlib.sha256(b''.join(each.read_bytes() for each in (
        pathlib.Path(__file__), _PINS, *_PROJECTS))).hexdigest()
    # The suites of product and sandbox run side by side.
    with environments.locked(folder.name):
        if not stamp.exists() or stamp.read_text() != contents:
            print(f'installing packages in {folder}', flush=True)
            _uv('venv', '--quiet', '--clear', '--python', path, folder)
            _uv('pip', 'install', '--quiet', '--python', folder, '--no-deps',
                '--requirement', _PINS, '--build-constraints', _PINS,
                '--editable', '.', '--editable', './sandbox')
            stamp.write_text(contents)
    return folder / 'bin'
