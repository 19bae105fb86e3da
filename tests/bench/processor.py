# SPDX-License-Identifier: Apache-2.0
"""Processor time of processes."""

import contextlib
import time

import psutil


def seconds(pid):
    """Return the processor time of a process and its descendants so far.

    It is that of their clocks, clock_getcpuclockid(3), in nanoseconds: the
    hundredths of a second in /proc are longer than a hundred requests.
    """
    total = _seconds(pid)
    for child in psutil.Process(pid).children(recursive=True):
        # It may end meanwhile.
        with contextlib.suppress(OSError):
            total += _seconds(child.pid)
    return total


def _seconds(pid):
    # MAKE_PROCESS_CPUCLOCK(pid, CPUCLOCK_SCHED) of the kernel's
    # include/linux/posix-timers_types.h.
    return time.clock_gettime(~pid << 3 | 2)
