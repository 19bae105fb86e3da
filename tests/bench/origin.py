# SPDX-License-Identifier: Apache-2.0
"""Where figures come from: machine, versions and commit."""

import datetime
import importlib.metadata
import os
import pathlib
import platform
import re
import subprocess

from tests.fixtures import checkout

PACKAGES = ('sushy-kubevirt', 'sushy-tools', 'virtualbmc', 'pyghmi',
            'gunicorn', 'libvirt-python')

#: End of the commit of a checkout that has other files than the commit.
CHANGED = '-changed'


def describe():
    """Return what the JSON says about the origin, a dictionary."""
    return {
        'date': datetime.datetime.now(datetime.timezone.utc).isoformat(
            timespec='seconds'),
        'commit': commit(),
        'machine': machine(),
        'python': platform.python_version(),
        'packages': {name: importlib.metadata.version(name)
                     for name in PACKAGES},
    }


def machine():
    """Return the kind of machine: architecture, processors, their model."""
    model = re.search(r'(?m)^model name\s*: (.+)$',
                      pathlib.Path('/proc/cpuinfo').read_text())
    return ', '.join((platform.machine(), f'{os.cpu_count()} processors',
                      *((model[1],) if model else ())))


def commit(folder=checkout.ROOT):
    """Return the commit of a checkout; None without git.

    The history file is not counted as a change.
    """
    try:
        name = _git(folder, 'rev-parse', 'HEAD').strip()
        changed = _git(folder, 'status', '--porcelain', '--', '.',
                       ':!tests/bench/history.jsonl')
    except (OSError, subprocess.CalledProcessError):
        return None
    return name + CHANGED if changed else name


def _git(folder, *words):
    return subprocess.run(
        ['git', *words], cwd=folder, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=True).stdout
