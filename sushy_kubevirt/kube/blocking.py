# SPDX-License-Identifier: Apache-2.0
"""Attempts to call a function where nothing may block, as in an event loop.

An attempt ends with `WouldBlock` before an API call, a wait, or a lock that
another thread holds during either. The caller then repeats it in a thread. So
a function that may be attempted must be repeatable up to that point.
"""

from __future__ import annotations

from collections import abc
import contextlib
import threading
import typing

ResultT = typing.TypeVar('ResultT')
ArgumentTs = typing.TypeVarTuple('ArgumentTs')


class WouldBlock(Exception):
    """The attempt has ended, as its next step may block."""


class _Thread(threading.local):
    attempting = False


_thread = _Thread()


def attempt(function: abc.Callable[[*ArgumentTs], ResultT],
            *arguments: *ArgumentTs) -> ResultT:
    """Call a function that must not block.

    :raises: `WouldBlock`
    """
    _thread.attempting = True
    try:
        return function(*arguments)
    finally:
        _thread.attempting = False


def check() -> None:
    """Declare that the next step of the caller may block.

    :raises: `WouldBlock` in an attempt
    """
    if _thread.attempting:
        raise WouldBlock()


@contextlib.contextmanager
def hold(lock: threading.Lock) -> abc.Iterator[None]:
    """Hold a lock, a context, that others may hold while they block.

    :raises: `WouldBlock` in an attempt, if another thread holds it
    """
    if not lock.acquire(blocking=not _thread.attempting):
        raise WouldBlock()
    try:
        yield
    finally:
        lock.release()
