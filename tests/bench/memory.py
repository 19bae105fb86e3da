# SPDX-License-Identifier: Apache-2.0
"""Memory of processes, as their proportional set size (PSS).

Forked processes share most of their pages. Resident sizes would count those
once for each process; PSS divides them among the processes.
"""

import pathlib
import re

import psutil


def pss(pid):
    """Return the proportional set size of one process, in MiB."""
    rollup = pathlib.Path(f'/proc/{pid}/smaps_rollup').read_text()
    return int(re.search(r'(?m)^Pss: *([0-9]+)', rollup)[1]) / 1024


def tree(pid):
    """Return the PSS of a process and its descendants, a list in MiB."""
    return [pss(member) for member in (pid, *sorted(
        child.pid for child in psutil.Process(pid).children(recursive=True)))]
