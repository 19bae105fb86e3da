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


def pause(tries, first, longest, least=None):
    """Compute how long to wait before the next try.

    :param tries: number of tries that have failed before this one, from 0
    :param first: seconds after the first one; twice as long each time
    :param longest: seconds at most
    :param least: seconds that the server asked for, or None
    :returns: seconds, with jitter, so that processes that failed together do
        not try again together
    """
    wait = min(first * 2 ** min(tries, 20), longest)
    return max(wait * random.uniform(0.5, 1.0), least or 0)


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
            share = 1 / 5 if isinstance(e, errors.Conflict) else 1
            wait = pause(tries, FIRST_PAUSE * share, LONGEST_PAUSE * share,
                         e.retry_after)
            if time.monotonic() + wait >= deadline or closing.wait(wait):
                raise
