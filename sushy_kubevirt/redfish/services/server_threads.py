# SPDX-License-Identifier: Apache-2.0
"""What is known of the WSGI server's threads, which waiting answers occupy."""

import signal


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


def limit(most, share):
    """Limit how many threads of this process one purpose may occupy.

    :param most: limit if the server has a thread for each connection
    :param share: fraction of gunicorn's threads, below 1
    :returns: int; 0 for a fraction of less than one thread
    """
    threads = getattr(getattr(_worker(), 'cfg', None), 'threads', None)
    return most if threads is None else min(most, int(threads * share))
