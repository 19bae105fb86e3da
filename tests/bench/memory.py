# SPDX-License-Identifier: Apache-2.0
"""Memory of processes, as their proportional share (PSS).

Forked processes share most of their pages, so resident sizes would count
those again and again; PSS shares them out.
"""

import pathlib

import psutil


def pss(pid):
    """Read the proportional set size of one process, in bytes."""
    rollup = pathlib.Path('/proc/%d/smaps_rollup' % pid).read_text()
    for line in rollup.splitlines():
        if line.startswith('Pss:'):
            return 1024 * int(line.split()[1])
    raise RuntimeError('process %d has no Pss' % pid)


def tree(pid):
    """Measure a process and all below it.

    :returns: dictionary of ``processes``, a list of their PSS in MiB, the
        first that of the parent, and ``total``.
    """
    pids = [pid] + sorted(
        child.pid for child in psutil.Process(pid).children(recursive=True))
    sizes = [round(pss(one) / 2 ** 20, 2) for one in pids]
    return {'processes': sizes, 'total': round(sum(sizes), 2)}
