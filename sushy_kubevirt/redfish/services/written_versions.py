# SPDX-License-Identifier: Apache-2.0
"""Which version of a VM the workers of one emulator have written last.

A worker sees what another one has written when its watch tells, some
milliseconds later, or many on a busy machine. A client that is answered by
one and asks the other at once would read what was before; Ironic then
restarts a machine to have a setting applied that is there already. So who
writes notes the version here before the client is answered, in memory that
all workers share, and who reads looks whether its own is older.

It is advice, and for a short time only: a record that was overwritten by
that of another VM, or torn, costs a late or a needless look.
"""

import mmap
import os
import struct
import threading
import time
import weakref
import zlib

#: Seconds that a record counts. The watch is there long before.
LASTS = 5.0

# uid (its digest), version, when (CLOCK_MONOTONIC is the same for all).
_RECORD = struct.Struct('=QQd')
_RECORDS = 4096

_all = weakref.WeakSet()


class WrittenVersions:
    """The versions, shared by all who have the folder.

    :param folder: path of a folder that only this user can enter
    """

    def __init__(self, folder):
        fd = os.open(os.path.join(folder, 'writes'),
                     os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC,
                     0o600)
        try:
            os.ftruncate(fd, _RECORD.size * _RECORDS)
            self._memory = mmap.mmap(fd, _RECORD.size * _RECORDS)
        finally:
            os.close(fd)
        self.after_fork()
        _all.add(self)

    def after_fork(self):
        """Forget what a thread of the parent may have been about."""
        self._lock = threading.Lock()

    def record(self, uid, version):
        """Tell that a VM has been written.

        :param uid: of the VM
        :param version: its resourceVersion, text
        """
        try:
            version = int(version)
        except (TypeError, ValueError):
            return      # it cannot be compared
        if not 0 < version < 1 << 64:
            return
        name, at = _place(uid)
        with self._lock:
            if version > self.latest(uid):
                _RECORD.pack_into(self._memory, at, name, version,
                                  time.monotonic())

    def latest(self, uid):
        """:returns: the version noted last, a number; 0 if there is none"""
        name, at = _place(uid)
        there, version, when = _RECORD.unpack_from(self._memory, at)
        if there != name or not 0 <= time.monotonic() - when < LASTS:
            return 0
        return version


def _place(uid):
    data = uid.encode()
    low = zlib.crc32(data)
    return low << 32 | zlib.adler32(data), low % _RECORDS * _RECORD.size


def _after_fork():
    for writes in list(_all):
        writes.after_fork()


os.register_at_fork(after_in_child=_after_fork)
