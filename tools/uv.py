# SPDX-License-Identifier: Apache-2.0
"""uv, which installs packages, with the package index and authorities of pip.

    python -m tools.uv WORD...

runs it. uv reads no configuration of pip; what pip is configured with, such as
the mirror of a site, or ``UV_DEFAULT_INDEX`` names the index. Imports nothing
but the standard library, as ``tools/bootstrap`` runs it first.
"""

import functools
import os
import re
import subprocess
import sys


@functools.cache
def pip_options() -> dict[str, str]:
    """Return the options that pip is configured with for installations."""
    text = subprocess.run([sys.executable, '-m', 'pip', 'config', 'list'],
                          stdin=subprocess.DEVNULL, capture_output=True,
                          text=True).stdout
    lines = re.findall(r"(?m)^(global|install|:env:)\.([a-z-]+)='(.*)'$", text)
    # The last section that has an option decides.
    return {name: value for last in ('global', 'install', ':env:')
            for section, name, value in lines if section == last}


def run(*words: object, **options) -> subprocess.CompletedProcess:
    """Run uv.

    :param words: its arguments
    :param options: of `subprocess.run`; variables in ``env`` are additional
    :returns: the finished process, as `subprocess.run` does
    :raises: what `subprocess.run` raises
    """
    env = {**os.environ, 'UV_SYSTEM_CERTS': '1', **options.pop('env', {})}
    for variable, name in ('UV_DEFAULT_INDEX', 'index-url'), (
            'SSL_CERT_FILE', 'cert'):
        if variable not in env and name in pip_options():
            env[variable] = pip_options()[name]
    if 'input' not in options:
        options.setdefault('stdin', subprocess.DEVNULL)
    return subprocess.run([sys.executable, '-m', 'uv', *map(str, words)],
                          env=env, **options)


if __name__ == '__main__':
    sys.exit(run(*sys.argv[1:]).returncode)
