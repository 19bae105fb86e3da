# SPDX-License-Identifier: Apache-2.0
"""Install the clients of this suite.

    python -m tests.clients.environment

It prepares the environments of :mod:`tests.fixtures.environments`, with
Debian's FreeIPMI, Net-SNMP and socat, and builds the Go programs of
``tests/clients/go`` and ``helm``, if a recent Go is installed, in the folder
``clients`` of the environment that it runs in (``.venv`` or tox's). What is up
to date is left alone.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

from tests.fixtures import environments

PYTHON = environments.ENVIRONMENTS['clients']

#: The last Ironic with the hardware type snmp.
IRONIC = environments.ENVIRONMENTS['clients-ironic']

SOURCES = pathlib.Path(__file__).parent
GO_SOURCES = SOURCES / 'go'

#: The module that fixes the version of helm.
HELM_SOURCES = SOURCES / 'helm'

#: What is built of each module.
_GO_PACKAGES = {GO_SOURCES: './...',
                HELM_SOURCES: 'helm.sh/helm/v4/cmd/helm'}

_FOLDER = pathlib.Path(sys.prefix) / 'clients'

#: Commands of the Go programs.
GO_BIN = _FOLDER / 'go'

#: Results of the tests; see `tests.clients.table`.
RESULTS = _FOLDER / 'results'


def needed_go(sources=GO_SOURCES):
    """Return the Go version that a module needs, e.g. ``(1, 23)``."""
    found = re.search(r'^go (\d+)\.(\d+)',
                      (sources / 'go.mod').read_text(), re.MULTILINE)
    return tuple(map(int, found.groups()))


def without_go(sources=GO_SOURCES):
    """Return why programs of a module cannot be built; None if they can."""
    needed = 'Go {}.{} or later is not installed'.format(*needed_go(sources))
    if not shutil.which('go'):
        return needed
    found = re.search(r'go(\d+)\.(\d+)', subprocess.run(
        ['go', 'env', 'GOVERSION'], env=_go_environment(), cwd='/',
        stdin=subprocess.DEVNULL, capture_output=True, text=True,
        check=True).stdout)
    return (None if tuple(map(int, found.groups())) >= needed_go(sources)
            else needed)


def installed_helm(path=None):
    """Find a helm that was not built here.

    :param path: folders to search, instead of those of PATH
    :returns: its path; None if there is none of the major version of the tests
    """
    found = shutil.which('helm', path=path)
    wanted = re.search('/v[0-9]+/', _GO_PACKAGES[HELM_SOURCES])[0]
    if found and subprocess.run(
            [found, 'version', '--template', '{{.Version}}'],
            stdin=subprocess.DEVNULL, capture_output=True,
            text=True).stdout.startswith(wanted.strip('/') + '.'):
        return found
    return None


def _go_environment():
    # Never download another toolchain.
    return dict(os.environ, GOTOOLCHAIN='local', CGO_ENABLED='0',
                GOFLAGS='-mod=readonly -buildvcs=false')


def _build_go():
    GO_BIN.mkdir(parents=True, exist_ok=True)
    for sources, packages in _GO_PACKAGES.items():
        if reason := without_go(sources):
            print(f'no programs of {sources.name}: {reason}', flush=True)
            continue
        # Go's cache makes this quick when nothing has changed.
        subprocess.run(['go', 'build', '-o', f'{GO_BIN}{os.sep}', packages],
                       cwd=sources, env=_go_environment(),
                       stdin=subprocess.DEVNULL, check=True)


def main():
    """Install everything, and forget the results of earlier runs."""
    shutil.rmtree(RESULTS, ignore_errors=True)
    RESULTS.mkdir(parents=True)
    PYTHON.prepare()
    IRONIC.prepare()
    _build_go()


if __name__ == '__main__':
    main()
