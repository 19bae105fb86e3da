# SPDX-License-Identifier: Apache-2.0
"""Timers of a BMC: watchdog, timed identify."""

from __future__ import annotations

import asyncio
from collections import abc


class Timer:
    """A function that runs later; made by `Server.run_later`. Thread-safe."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._handle: asyncio.TimerHandle | None = None
        self.cancelled = False

    def arm(self, seconds: float,
            expire: abc.Callable[[Timer], object]) -> None:
        """Begin to wait; call it in the event loop.

        :param expire: called in the event loop
        """
        if not self.cancelled:
            self._handle = self._loop.call_later(seconds, expire, self)

    def cancel(self) -> None:
        """Stop waiting. A function that has begun is not interrupted."""
        self.cancelled = True
        self._loop.call_soon_threadsafe(self._disarm)

    def _disarm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
