# SPDX-License-Identifier: Apache-2.0
"""How much memory processes take, as the kernel counts it."""

import os
import re


def pss(pid):
    """:returns: proportional set size of a process, in KiB"""
    with open('/proc/%d/smaps_rollup' % pid) as stream:
        return int(re.search(r'^Pss:\s+(\d+)', stream.read(),
                             re.MULTILINE).group(1))


def children(pid):
    """:returns: list of the process ids of a process's children"""
    found = []
    for task in os.listdir('/proc/%d/task' % pid):
        with open('/proc/%d/task/%s/children' % (pid, task)) as stream:
            found += map(int, stream.read().split())
    return found
