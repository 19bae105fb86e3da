# SPDX-License-Identifier: Apache-2.0
"""Repeat a request until its result is the expected one.

For what has no watch. A request costs both programs milliseconds of CPU, which
tests that run at the same time need.
"""

import collections.abc
import time

#: Seconds between the first two attempts, and between those of a long wait.
FIRST, LONGEST = 0.01, 0.2

#: Each pause is this many times the one before.
FACTOR = 1.5


def attempts(seconds: float, first: float = FIRST, longest: float = LONGEST
             ) -> collections.abc.Iterator[None]:
    """Yield for each attempt, after a pause that grows.

    The last attempt begins after the time limit, so that a process that was
    stopped in between has one.

    :param seconds: time limit.
    :param first: seconds of the first pause.
    :param longest: seconds of the longest pause.
    """
    deadline = time.monotonic() + seconds
    pause = first
    while True:
        late = time.monotonic() > deadline
        yield
        if late:
            return
        time.sleep(pause)
        pause = min(pause * FACTOR, longest)
