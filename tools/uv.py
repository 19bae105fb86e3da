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
def _index() -> str | None:
    """Return the address of the index that pip is configured with, if any."""
    text = subprocess.run([sys.executable, '-m', 'pip', 'config', 'list'],
                          stdin=subprocess.DEVNULL, capture_output=True,
                          text=True).stdout
    found = re.findall(r"(?m)^\S*\.index-url='(.*)'$", text)
    return found[-1] if found else None


def run(*words: object, **options) -> subprocess.CompletedProcess:
    """Run uv.

    :param words: its arguments
    :param options: of `subprocess.run`; variables in ``env`` are additional
    :returns: the finished process, as `subprocess.run` does
    :raises: what `subprocess.run` raises
    """
    env = {**os.environ, 'UV_SYSTEM_CERTS': '1', **options.pop('env', {})}
    if 'UV_DEFAULT_INDEX' not in env and (index := _index()):
        env['UV_DEFAULT_INDEX'] = index
    if 'input' not in options:
        options.setdefault('stdin', subprocess.DEVNULL)
    return subprocess.run([sys.executable, '-m', 'uv', *map(str, words)],
                          env=env, **options)


if __name__ == '__main__':
    sys.exit(run(*sys.argv[1:]).returncode)
