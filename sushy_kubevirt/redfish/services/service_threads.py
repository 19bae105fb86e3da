# SPDX-License-Identifier: Apache-2.0
"""Threads in which the services of one or many BMCs do what may block."""

from __future__ import annotations

from collections import abc
import threading
import typing

from sushy_kubevirt.bmc import event_log
from sushy_kubevirt.kube import delaying_queue

#: Threads of `SharedThreads`.
SHARED = 4

_Task: typing.TypeAlias = abc.Callable[[], None]


class ServiceThreads:
    """Those of one emulator: a thread for each call.

    :ivar log_writer: writes the logs of its machines
    """

    def __init__(self) -> None:
        self.log_writer = event_log.Writer()

    def run(self, function: _Task, seconds: float = 0) -> None:
        """Call a function that may block in a thread.

        :param seconds: time until then
        """
        timer = threading.Timer(seconds, function)
        timer.daemon = True
        timer.start()

    def close(self) -> None:
        """Stop the threads."""
        self.log_writer.close()


class SharedThreads(ServiceThreads):
    """Those of all BMCs of a process that serves many: `SHARED` of them."""

    def __init__(self) -> None:
        super().__init__()
        self._worker = delaying_queue.Worker('services', SHARED)
        self._worker.start()

    def run(self, function: _Task, seconds: float = 0) -> None:
        """See `ServiceThreads.run`; once if it waits already."""
        self._worker.queue.put(function, function, seconds)

    def close(self) -> None:
        """Stop the threads."""
        super().close()
        self._worker.close()
