# SPDX-License-Identifier: Apache-2.0
"""Locks between the workers of one emulator.

Each lock is a byte of a file in the shared directory (POSIX record locks,
fcntl(2)), which the kernel releases when a process ends. A process counts as
one owner, so its threads need a lock of their own besides.
"""

from __future__ import annotations

import fcntl
import os
import time

#: Seconds between attempts; a record lock has no timeout.
_PAUSE_SECONDS = 0.02


class WorkerLocks:
    """The locks of one file.

    :param folder: path of a folder that only this user can enter
    """

    def __init__(self, folder) -> None:
        # Closing any descriptor of the file would release all locks.
        self._fd = os.open(os.path.join(folder, 'changes.lock'),
                           os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
                           | os.O_CLOEXEC, 0o600)

    def acquire(self, number, timeout) -> bool:
        """Acquire a lock.

        :param number: of the lock, from 0
        :param timeout: seconds
        :returns: whether it was acquired
        """
        deadline = time.monotonic() + timeout
        while True:
            try:
                fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)
                return True
            except BlockingIOError:
                if time.monotonic() > deadline:
                    return False
            time.sleep(_PAUSE_SECONDS)

    def release(self, number) -> None:
        """Release a lock.

        :param number: of the lock
        """
        fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, number)
