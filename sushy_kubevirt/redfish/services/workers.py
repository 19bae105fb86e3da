# SPDX-License-Identifier: Apache-2.0
"""What connects the workers of one emulator, and its counterpart without any.

The workers of a WSGI server share a directory, messages and locks. A process
that serves the BMCs of many VMs has no other workers: `OneProcess` costs no
descriptor, thread or lock for each BMC.
"""

from __future__ import annotations

from concurrent import futures
import os
import pathlib
import shutil
import tempfile
import threading

from sushy_kubevirt.bmc import event_log
from sushy_kubevirt.redfish.services.events import turns
from sushy_kubevirt.redfish.services import shared_directory
from sushy_kubevirt.redfish.services import worker_locks
from sushy_kubevirt.redfish.services import worker_messages
from sushy_kubevirt.redfish.services import written_versions

#: Threads of `OneProcess` for work that may wait, such as for caches.
_THREADS = 4


class Workers:
    """Of an emulator whose server may have several worker processes.

    :param config: mapping, the content of sushy-emulator's config file
    :raises: `errors.ConfigError` if the shared directory cannot be used
    :ivar folder: has ``path``, ``make`` and ``close``, see
        `shared_directory.SharedDirectory`
    :ivar messages: see `worker_messages.WorkerMessages`
    :ivar change_locks: see `worker_locks.WorkerLocks`
    :ivar recent_writes: see `cluster.Cluster.recent_writes`
    :ivar turns: `turns.Turns` of other emulators too, or None
    :ivar log_writer: `event_log.Writer` of other emulators too, or None
    """

    turns = log_writer = None

    def __init__(self, config) -> None:
        self.folder = shared_directory.SharedDirectory(config)
        self.folder.make()
        self.messages = worker_messages.WorkerMessages(self.folder.path)
        self.recent_writes = written_versions.WrittenVersions(
            self.folder.path)
        self.change_locks = worker_locks.WorkerLocks(self.folder.path)

    @staticmethod
    def run(function, name) -> None:
        """Call a function that may block in a thread.

        :param name: of the thread
        """
        threading.Thread(target=function, daemon=True, name=name).start()


class OneProcess:
    """Of all BMCs of a process that serves many.

    :ivar turns: their `turns.Turns`
    :ivar log_writer: their `event_log.Writer`
    """

    def __init__(self) -> None:
        self._base = pathlib.Path(tempfile.mkdtemp(prefix='sushy-kubevirt-'))
        self._pool = futures.ThreadPoolExecutor(_THREADS, 'services')
        self.turns = turns.Turns('events')
        self.turns.start()
        self.log_writer = event_log.Writer()

    def of(self, name):
        """Return what `Workers` is, for one BMC.

        :param name: text, unique for the BMC, without a slash
        """
        return _OneOfMany(self, self._base / name)

    def run(self, function, name) -> None:
        """See `Workers.run`."""
        self._pool.submit(function)

    def close(self) -> None:
        """Stop the threads and remove all directories."""
        self.turns.close()
        self.log_writer.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
        shutil.rmtree(self._base, ignore_errors=True)


class _OneOfMany:

    recent_writes = None

    def __init__(self, process, path) -> None:
        self.turns, self.log_writer = process.turns, process.log_writer
        self.run = process.run
        self.folder = _Directory(path)
        self.messages = _Messages()
        self.change_locks = _NoLocks()


class _Directory:
    """See `shared_directory.SharedDirectory`; made when it is needed."""

    def __init__(self, path) -> None:
        self.path = path

    def make(self):
        os.makedirs(self.path, 0o700, exist_ok=True)
        return self.path

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


class _Messages:
    """See `worker_messages.WorkerMessages`: all messages are its own."""

    def __init__(self) -> None:
        self._dispatcher = worker_messages.Dispatcher()
        self._elected = []
        self._acquired = False
        self.is_leader = False
        self.subscribe = self._dispatcher.subscribe
        self.publish = self._dispatcher.dispatch

    def on_elected(self, callback) -> None:
        self._elected.append(callback)

    def start(self) -> None:
        """Do nothing: there are no other workers."""

    def acquire_leadership(self) -> None:
        if not self._acquired:
            self._acquired = self.is_leader = True
            for callback in self._elected:
                callback()

    def close(self) -> None:
        self.is_leader = False


class _NoLocks:
    """See `worker_locks.WorkerLocks`: no other process changes anything."""

    def acquire(self, number, timeout) -> bool:
        return True

    def release(self, number) -> None:
        """Do nothing."""
