# SPDX-License-Identifier: Apache-2.0
"""Shares the resourceVersion of the last write to an object between workers.

The objects are VMs and the Secret of `bmc.state_secret`. A worker learns of
another worker's write through its watch, milliseconds later, or more on a
busy host. A client whose next request is served by another worker could
therefore read outdated data; Ironic would then restart a machine to apply a
setting that is already applied. So a worker records the version of each write
here, in shared memory, before it responds, and each read checks whether the
cached object is older.

Records are hints for `VALID_SECONDS`: one that was overwritten by that of
another object, or was read half-written, causes a delayed or an unnecessary
read.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
import time
import zlib

#: Seconds for which a record is valid. The watch event arrives earlier.
VALID_SECONDS = 5.0

# Digest of the name, version, time (CLOCK_MONOTONIC is the same in all
# processes).
_RECORD = struct.Struct('=QQd')
_RECORDS = 4096


class WrittenVersions:
    """Versions in shared memory, one file per folder. Thread-safe.

    :param folder: path of a folder that only this user can enter
    """

    def __init__(self, folder) -> None:
        fd = os.open(os.path.join(folder, 'writes'),
                     os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC,
                     0o600)
        try:
            os.ftruncate(fd, _RECORD.size * _RECORDS)
            self._memory = mmap.mmap(fd, _RECORD.size * _RECORDS)
        finally:
            os.close(fd)
        self._lock = threading.Lock()

    def record(self, name, version) -> None:
        """Record a write to an object.

        :param name: uid of a VM, or another text that identifies the object
        :param version: text, its resourceVersion after the write
        """
        try:
            version = int(version)
        except (TypeError, ValueError):
            return      # not comparable
        if not 0 < version < 1 << 64:
            return
        digest, at = _slot(name)
        with self._lock:
            if version > self.latest(name):
                _RECORD.pack_into(self._memory, at, digest, version,
                                  time.monotonic())

    def latest(self, name):
        """Return the version of the last write to an object.

        :param name: see `record`
        :returns: int; 0 if no valid record exists
        """
        digest, at = _slot(name)
        found, version, when = _RECORD.unpack_from(self._memory, at)
        if found != digest or not 0 <= time.monotonic() - when < VALID_SECONDS:
            return 0
        return version


def _slot(name):
    """Return (digest of a name, offset of its record)."""
    data = name.encode()
    low = zlib.crc32(data)
    return low << 32 | zlib.adler32(data), low % _RECORDS * _RECORD.size
