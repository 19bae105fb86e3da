# SPDX-License-Identifier: Apache-2.0
"""Retries of idempotent writes, with back-off and a deadline.

A write is a function (a step) that reads fresh state, returns if nothing is
left to do, and otherwise sends one request. It is repeated after
`errors.Unavailable`: conflicts, a busy or failing server, a lost connection.
As each attempt reads first, a request that was carried out although its
response was lost is not sent twice. Where a watch shows the effect, not even
that read is needed: under load it may be as late as the response.

urllib3's retries cannot do this, as they repeat the same request. With the
tenacity package the server's Retry-After and the shorter pause after conflicts
would still be functions of ours; what it would replace are the ten lines of
`run`.
"""

from __future__ import annotations

from collections import abc
import math
import random
import threading
import time
import typing

from sushy_kubevirt.kube import errors

ResultT = typing.TypeVar('ResultT')
ArgumentTs = typing.TypeVarTuple('ArgumentTs')

#: Seconds before the first retry, doubled each time, and the longest pause.
#: After a conflict a fifth of that: the other write is already complete.
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 2.0

#: Seconds beyond the deadline in which the effect of a request without a
#: response may show.
LATE_SECONDS = 0.5


class _Thread(threading.local):
    limit = math.inf


_thread = _Thread()


def within(seconds: float, function: abc.Callable[[*ArgumentTs], ResultT],
           *arguments: *ArgumentTs) -> ResultT:
    """Call a function, and limit the deadlines of what it does.

    For a client that waits less long than the options provide for.

    :param seconds: longest ``write_deadline``; a request gets half of it
    """
    before, _thread.limit = _thread.limit, seconds
    try:
        return function(*arguments)
    finally:
        _thread.limit = before


def limit() -> float:
    """Return the longest deadline of this thread in seconds."""
    return _thread.limit


def pause(tries: int, first: float, longest: float,
          least: float | None = None) -> float:
    """Compute the pause before the next attempt.

    :param tries: number of failed attempts before the last one, from 0
    :param first: pause after the first failure in seconds, doubled each time
    :param longest: longest pause in seconds
    :param least: seconds the server requested (Retry-After), or None
    :returns: seconds, with jitter, so that processes that failed together do
        not retry together
    """
    wait = min(first * 2 ** min(tries, 20), longest)
    return max(wait * random.uniform(0.5, 1.0), least or 0)


class Attempts(typing.Generic[ResultT]):
    """The attempts of one write.

    :param seconds: for the write and its retries
    :param closing: ends the waiting when set
    :param shown: function of a number of seconds, in which it waits for the
        effect of a request whose response was lost to show. Returns a tuple
        with what the write would return then; None if it has not shown
    """

    def __init__(self, seconds: float, closing: threading.Event,
                 shown: abc.Callable[[float], tuple[ResultT] | None]
                 | None = None) -> None:
        self._deadline = time.monotonic() + min(seconds, limit())
        self._closing = closing
        self._shown = shown
        self._lost = False
        self._tries = 0

    def wait(self, error: errors.Unavailable) -> tuple[ResultT] | None:
        """Wait after an attempt that has failed.

        :returns: what ``shown`` returned; None if the next attempt is due
        :raises: the error if the deadline has passed
        """
        self._lost = self._lost or error.maybe_done
        share = 1 / 5 if isinstance(error, errors.Conflict) else 1
        wait = pause(self._tries, FIRST_PAUSE * share, LONGEST_PAUSE * share,
                     error.retry_after)
        self._tries += 1
        late = time.monotonic() + wait >= self._deadline
        if self._lost and self._shown is not None:
            result = self._shown(LATE_SECONDS if late else wait)
            if result is None and (late or self._closing.is_set()):
                raise error
            return result
        if late or self._closing.wait(wait):
            raise error
        return None


def run(step: abc.Callable[[], ResultT], seconds: float,
        closing: threading.Event,
        shown: abc.Callable[[float], tuple[ResultT] | None] | None = None
        ) -> ResultT:
    """Repeat a step until it succeeds or the deadline has passed.

    :param seconds: see `Attempts`, as for what follows
    :returns: what the step returned
    :raises: the last `errors.Unavailable`; other errors at once
    """
    attempts = Attempts(seconds, closing, shown)
    while True:
        try:
            return step()
        except errors.Unavailable as e:
            result = attempts.wait(e)
            if result is not None:
                return result[0]
