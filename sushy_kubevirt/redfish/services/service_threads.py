# SPDX-License-Identifier: Apache-2.0
"""Threads in which the services of one or many BMCs do what may block."""

from __future__ import annotations

from collections import abc

from sushy_kubevirt.bmc import event_log
from sushy_kubevirt.kube import delaying_queue

#: Number of threads of a process that serves many BMCs.
SHARED = 4


class ServiceThreads:
    """The threads of an emulator, or of all BMCs of a process.

    :param number: of functions that may run at the same time
    :ivar log_writer: writes the logs of the machines
    """

    def __init__(self, number: int = 1) -> None:
        self.log_writer = event_log.Writer()
        self._worker = delaying_queue.Worker('services', number)
        self._worker.start()

    def run(self, function: abc.Callable[[], None],
            seconds: float = 0) -> None:
        """Call a function that may block in a thread.

        :param function: called once if it waits already, at the earlier time
        :param seconds: time until then
        """
        self._worker.put(function, function, seconds)

    def close(self) -> None:
        """Stop the threads."""
        self.log_writer.close()
        self._worker.close()
