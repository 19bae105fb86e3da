# SPDX-License-Identifier: Apache-2.0
"""Writes that survive a bad moment and are never done twice.

A write is given as a step that looks at fresh state, returns if nothing is
left to do, and else makes one request. The step is tried again after whatever
is `errors.Unavailable`: conflicts, a busy or failing server, a lost
connection. As every try begins with a look, a request that was carried out
while its answer was lost is found done.
"""

import itertools
import random
import time

from sushy_kubevirt.kube import errors

#: Seconds before the second try, twice as long each time, and at most. After a
#: conflict, which is over when it is noticed, a fifth of that.
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 2.0


def run(step, options, closing):
    """Try a step until it succeeds or the deadline has passed.

    :param step: function without arguments
    :param options: an `options.Options`
    :param closing: `threading.Event`; set, it ends the waiting
    :returns: what the step returned
    :raises: the last `errors.Unavailable`; other errors at once
    """
    deadline = time.monotonic() + options.write_deadline
    for tries in itertools.count():
        try:
            return step()
        except errors.Unavailable as e:
            pause = min(FIRST_PAUSE * 2 ** min(tries, 10), LONGEST_PAUSE)
            if isinstance(e, errors.Conflict):
                pause /= 5
            # Jitter, so that several BMCs of one VM do not stay in step.
            wait = max(pause * random.uniform(0.5, 1.0), e.retry_after or 0)
            if time.monotonic() + wait >= deadline or closing.wait(wait):
                raise
