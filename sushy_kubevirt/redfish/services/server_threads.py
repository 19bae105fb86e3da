# SPDX-License-Identifier: Apache-2.0
"""What is known of the WSGI server's threads, which waiting answers occupy."""

import contextlib
import signal
import threading


def _worker():
    """Return the gunicorn worker of this process, or None.

    It is found through its SIGTERM handler, which is one of its methods
    (gunicorn 27, workers/base.py).
    """
    worker = getattr(signal.getsignal(signal.SIGTERM), '__self__', None)
    return worker if hasattr(worker, 'alive') else None


def stopping():
    """Return whether the server is stopping.

    A stopping worker of gunicorn waits for all requests; streams never end
    by themselves and therefore have to check for it.
    """
    worker = _worker()
    return worker is not None and not worker.alive


def _threads():
    """Return the number of gunicorn's threads; None for other servers."""
    return getattr(getattr(_worker(), 'cfg', None), 'threads', None)


def several(environ):
    """Return whether others are served while an answer lasts.

    :param environ: WSGI environ of its request
    """
    return bool(environ.get('wsgi.multithread')) and _threads() != 1


class Slots:
    """Limits the answers of one kind that last, as a stream does. Thread-safe.

    All kinds of a process together get half of the threads of a gunicorn
    worker; the other half serves requests.

    :param most: maximum number at a time
    """

    _lock = threading.Lock()
    _all_used = 0

    def __init__(self, most):
        self.most = most
        self._used = 0

    def take(self):
        """Reserve a slot.

        :returns: context manager that releases it at its end or by
            ``close()``, once; None if no slot is free
        """
        threads = _threads()
        with Slots._lock:
            if self._used >= self.most or threads is not None and (
                    Slots._all_used >= max(1, threads // 2)):
                return None
            self._count(1)
        slot = contextlib.ExitStack()
        slot.callback(self._release)
        return slot

    def _release(self):
        with Slots._lock:
            self._count(-1)

    def _count(self, number):
        self._used += number
        Slots._all_used += number


def limit(most, share):
    """Limit how many threads of this process one purpose may occupy.

    :param most: limit if the server has a thread for each connection
    :param share: fraction of gunicorn's threads, below 1
    :returns: int; 0 for a fraction of less than one thread
    """
    threads = _threads()
    return most if threads is None else min(most, int(threads * share))
