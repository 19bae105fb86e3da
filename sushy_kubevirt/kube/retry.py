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
import contextlib
import itertools
import math
import random
import threading
import time
import typing

from sushy_kubevirt.kube import errors

ResultT = typing.TypeVar('ResultT')

#: Seconds before the first retry, doubled each time, and the longest pause.
#: After a conflict a fifth of that: the other write is already complete.
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 2.0

#: Seconds beyond the deadline in which the effect of a request without a
#: response may show.
LATE_SECONDS = 0.5


class Options(typing.Protocol):
    """Options of `run`."""

    @property
    def write_deadline(self) -> float:
        """Seconds for a write and its retries."""


class _Thread(threading.local):
    limit = math.inf


_thread = _Thread()


@contextlib.contextmanager
def within(seconds: float) -> abc.Iterator[None]:
    """Limit the deadlines of what this thread does meanwhile.

    For a client that waits less long than the options provide for.

    :param seconds: longest ``write_deadline``; a request gets half of it
    """
    before, _thread.limit = _thread.limit, seconds
    try:
        yield
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


def after_first(first: abc.Callable[[], bool],
                step: abc.Callable[[], ResultT]
                ) -> abc.Callable[[], ResultT | None]:
    """Return a step whose first attempt uses state that may be out of date.

    :param first: makes this attempt. It returns True if it has written, with
        a guard that refuses after a change of what it has read; False to have
        the step called
    :param step: reads and then writes
    :returns: function for `run`. Of the first attempt it raises what the API
        server or admission have answered; on a conflict, and errors found in
        the state, it calls the step at once
    """
    attempts = itertools.count()

    def attempt() -> ResultT | None:
        if next(attempts) == 0:
            try:
                if first():
                    return None
            except errors.Conflict:
                pass
            except (errors.Unavailable, errors.Rejected, errors.AccessDenied):
                raise
            except errors.MachineError:
                pass
        return step()

    return attempt


def run(step: abc.Callable[[], ResultT], options: Options,
        closing: threading.Event,
        shown: abc.Callable[[float], tuple[ResultT] | None] | None = None
        ) -> ResultT:
    """Repeat a step until it succeeds or the deadline has passed.

    :param closing: ends the waiting when set
    :param shown: function of a number of seconds, in which it waits for the
        effect of a request whose response was lost to show. Returns a tuple
        with what the step would return then; None if it has not shown
    :returns: what the step returned
    :raises: the last `errors.Unavailable`; other errors at once
    """
    deadline = time.monotonic() + min(options.write_deadline, limit())
    lost = False
    tries = 0
    while True:
        try:
            return step()
        except errors.Unavailable as e:
            lost = lost or e.maybe_done
            share = 1 / 5 if isinstance(e, errors.Conflict) else 1
            wait = pause(tries, FIRST_PAUSE * share, LONGEST_PAUSE * share,
                         e.retry_after)
            late = time.monotonic() + wait >= deadline
            if lost and shown is not None:
                result = shown(LATE_SECONDS if late else wait)
                if result is not None:
                    return result[0]
                if late or closing.is_set():
                    raise
            elif late or closing.wait(wait):
                raise
            tries += 1
