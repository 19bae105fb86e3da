# SPDX-License-Identifier: Apache-2.0
"""Processor time of processes."""

import psutil


def seconds(pid):
    """Return the processor time of a process and its descendants so far.

    The kernel counts it in hundredths of a second.
    """
    parent = psutil.Process(pid)
    return sum(sum(one.cpu_times()[:2])
               for one in (parent, *parent.children(recursive=True)))
