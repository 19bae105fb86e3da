# SPDX-License-Identifier: Apache-2.0
"""What is known of the WSGI server: its processes, of which there must be one,
and its threads, which waiting answers occupy."""

from __future__ import annotations

import collections
import contextlib
import os
import signal
import sys
import threading
import time
import typing

from sushy_kubevirt.bmc import shares
from sushy_kubevirt.kube import errors

#: Module that each process of gunicorn has.
_ARBITER = 'gunicorn.arbiter'


def _worker() -> typing.Any:
    """Return the gunicorn worker of this process, or None.

    It is found through its SIGTERM handler, which is one of its methods
    (gunicorn 27, workers/base.py).
    """
    if _ARBITER not in sys.modules:
        return None
    worker = getattr(signal.getsignal(signal.SIGTERM), '__self__', None)
    return worker if hasattr(worker, 'alive') else None


def require_one_process() -> None:
    """Refuse to serve beside another worker of gunicorn.

    The first worker of several reports it, which ends gunicorn. One that is
    added later (SIGTTIN) waits for the end of the first, which goes on; after
    a reload (SIGHUP) the earlier worker has another configuration and ends.

    :raises: `errors.ConfigError`
    """
    worker, arbiter = _worker(), sys.modules.get(_ARBITER)
    if worker is None:
        if arbiter is not None:
            raise errors.ConfigError(
                'gunicorn has loaded the application before it forks its '
                'worker, which would have none of its threads. Start it '
                'without --preload and --check-config.')
        return
    # As of the fork, without this worker (gunicorn 27, arbiter.py).
    others = [other for other in (arbiter.Arbiter.WORKERS.values()
                                  if arbiter is not None else ())
              if other.cfg is worker.cfg]
    number = max(worker.cfg.workers, 1 + len(others))
    text = (f'gunicorn starts {number} workers, but one process must serve '
            'all requests, as sessions and events are in its memory. Start '
            'one worker with several threads (--workers 1 --threads 8), or '
            'sushy-kubevirt-redfish instead of gunicorn.')
    if others:
        if worker.cfg.workers == 1:
            worker.log.error('sushy-kubevirt: worker %s serves nothing: %s',
                             worker.pid, text)
        with contextlib.suppress(ProcessLookupError):
            while worker.alive:
                os.kill(others[0].pid, 0)
                worker.notify()
                time.sleep(0.1)
        sys.exit()
    if number > 1:
        raise errors.ConfigError(text)


def stopping() -> bool:
    """Return whether the server is stopping.

    A stopping worker of gunicorn waits for all requests; streams never end
    by themselves and therefore have to check for it.
    """
    worker = _worker()
    return worker is not None and not worker.alive


def _threads() -> int | None:
    """Return the number of gunicorn's threads; None for other servers."""
    return getattr(getattr(_worker(), 'cfg', None), 'threads', None)


def several(environ: dict[str, typing.Any]) -> bool:
    """Return whether others are served while an answer lasts.

    :param environ: WSGI environ of its request
    """
    return bool(environ.get('wsgi.multithread')) and _threads() != 1


class Slots:
    """Limits the answers of one kind that last, as a stream does. Thread-safe.

    All kinds of a process together get half of the threads of a gunicorn
    worker, which are not divided among owners; the other half serves requests.

    :param share: maximum number at a time of one owner
    """

    _lock = threading.Lock()
    _all_used = 0

    def __init__(self, share: int) -> None:
        self.share = share
        self._used: collections.Counter[str] = collections.Counter()

    def take(self, owner: str) -> contextlib.ExitStack | None:
        """Reserve a slot.

        :param owner: see `shares`
        :returns: context manager that releases it at its end or by
            ``close()``, once; None if the owner has no slot left
        """
        threads = _threads()
        with Slots._lock:
            if not shares.fits(
                    self._used[owner], self._used.total(),
                    shares.total(self.share)) or threads is not None and (
                        Slots._all_used >= max(1, threads // 2)):
                return None
            self._count(owner, 1)
        slot = contextlib.ExitStack()
        slot.callback(self._release, owner)
        return slot

    def _release(self, owner: str) -> None:
        with Slots._lock:
            self._count(owner, -1)

    def _count(self, owner: str, number: int) -> None:
        Slots._all_used += number
        self._used[owner] += number
        if not self._used[owner]:
            del self._used[owner]


def limit(most: int, share: float) -> int:
    """Limit how many threads of this process one purpose may occupy.

    :param most: limit if the server has a thread for each connection
    :param share: fraction of gunicorn's threads, below 1
    :returns: 0 for a fraction of less than one thread
    """
    threads = _threads()
    return most if threads is None else min(most, int(threads * share))
