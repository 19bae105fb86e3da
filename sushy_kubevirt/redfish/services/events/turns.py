# SPDX-License-Identifier: Apache-2.0
"""A thread in which event dispatchers of one or many BMCs take turns."""

from __future__ import annotations

import logging
import threading

from sushy_kubevirt.kube import delaying_queue

LOG = logging.getLogger(__name__)


class Turns:
    """Calls functions when they are due, one at a time. Thread-safe.

    :param name: name of the thread
    """

    def __init__(self, name) -> None:
        self._name = name
        self._queue = delaying_queue.DelayingQueue()

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, daemon=True,
                         name=self._name).start()

    def put(self, turn, seconds: int = 0) -> None:
        """Call a function soon, once if it is put several times before.

        :param turn: function without parameters that returns the seconds
            until it has to be called again, or None
        :param seconds: time until then
        """
        self._queue.put(turn, turn, seconds)

    def close(self) -> None:
        """End the thread."""
        self._queue.close()

    def _run(self) -> None:
        while True:
            turn = self._queue.next()
            if turn is None:
                return
            try:
                again = turn()
            except Exception:
                LOG.exception('A turn of an event dispatcher failed')
                continue
            if again is not None:
                self._queue.put(turn, turn, again)
