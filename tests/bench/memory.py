# SPDX-License-Identifier: Apache-2.0
"""Memory of processes, as their proportional set size (PSS).

Forked processes share most of their pages. Resident sizes would count those
once for each process; PSS divides them among the processes.
"""

import pathlib

import psutil


def pss(pid):
    """Return the proportional set size of one process, in bytes."""
    rollup = pathlib.Path(f'/proc/{pid}/smaps_rollup').read_text()
    for line in rollup.splitlines():
        if line.startswith('Pss:'):
            return 1024 * int(line.split()[1])
    raise RuntimeError(f'process {pid} has no Pss')


def tree(pid):
    """Measure a process and its descendants.

    :returns: dictionary of ``processes``, a list of their PSS in MiB, the
        parent's first, and ``total``.
    """
    pids = [pid] + sorted(
        child.pid for child in psutil.Process(pid).children(recursive=True))
    sizes = [round(pss(one) / 2 ** 20, 2) for one in pids]
    return {'processes': sizes, 'total': round(sum(sizes), 2)}
