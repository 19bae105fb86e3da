# SPDX-License-Identifier: Apache-2.0
"""Processes as the kernel sees them: their memory and their children."""

import contextlib
import os
import re


def anonymous(pid):
    """What a process has that no file has, shared with its parent or not.

    Unlike PSS it does not change when others that share it come and go, so
    that it tells whether a process grows.

    :returns: KiB
    """
    with open('/proc/%d/smaps_rollup' % pid) as stream:
        return int(re.search(r'^Anonymous:\s+(\d+)', stream.read(),
                             re.MULTILINE).group(1))


def children(pid):
    """:returns: list of the process ids of a process's children"""
    found = []
    for task in os.listdir('/proc/%d/task' % pid):
        # A thread may have ended meanwhile.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(
                '/proc/%d/task/%s/children' % (pid, task)) as stream:
            found += map(int, stream.read().split())
    return found
