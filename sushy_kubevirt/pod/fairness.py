# SPDX-License-Identifier: Apache-2.0
"""Fair shares of a process that serves many BMCs, for `http_server`."""

from __future__ import annotations

import collections
import functools
import logging
import time
import typing

if typing.TYPE_CHECKING:
    import asyncio
    from collections import abc

    from uvicorn.protocols.http import flow_control

LOG = logging.getLogger(__name__)

#: Limits of a server beside which others of the process are served, see
#: `Fairness`.
_SHARE_SECONDS, PAUSE_SECONDS = 0.0005, 0.001
ACCEPT_SECONDS, _TURN_SECONDS = 0.004, 0.05


class Connection(typing.Protocol):
    """What `Fairness` uses of an `http_connection.Connection`."""

    address: str
    flow: flow_control.FlowControl
    loop: asyncio.AbstractEventLoop
    lost: bool
    transport: asyncio.Transport

    def abort(self) -> None:
        """Close the connection at once."""

    def process(self, data: bytes) -> None:
        """Process what was received."""


class Fairness:
    """Keeps the clients of one BMC from occupying a process of many.

    Its requests take about `_SHARE_SECONDS` of an iteration of the event
    loop; the rest waits for `PAUSE_SECONDS`. A server accepts a connection
    every `ACCEPT_SECONDS`, because of the handshake. One thread calls the
    application; another may begin when that has ended, or after
    `_TURN_SECONDS`, as it then probably waits for the Kubernetes API.
    """

    def __init__(self) -> None:
        self._used = 0.0
        self._scheduled = False
        self._backlog: collections.deque[tuple[Connection, bytes]] = (
            collections.deque())
        # Those that wait, by owner; whose turn is next comes first.
        self._calls: dict[str, collections.deque[asyncio.Future[None]]] = {}
        self._calling: object | None = None

    # Requests in the event loop

    def receive(self, protocol: Connection, data: bytes) -> None:
        """Let a connection process data, now or in a later iteration."""
        if self._backlog or self._used >= _SHARE_SECONDS:
            self._backlog.append((protocol, data))
            protocol.transport.pause_reading()
        else:
            self._process(protocol, data)
        if not self._scheduled:
            self._scheduled = True
            protocol.loop.call_soon(self._begin_iteration, protocol.loop)

    def _process(self, protocol: Connection, data: bytes) -> None:
        began = time.perf_counter()
        try:
            protocol.process(data)
        except Exception:
            # The requests of others, which wait behind this one, continue.
            LOG.exception('Connection from %s is closed', protocol.address)
            protocol.abort()
        self._used += time.perf_counter() - began

    def _begin_iteration(self, loop: asyncio.AbstractEventLoop) -> None:
        self._used = 0.0
        while self._backlog and self._used < _SHARE_SECONDS:
            protocol, data = self._backlog.popleft()
            self._process(protocol, data)
            if not protocol.lost and not protocol.flow.read_paused:
                protocol.transport.resume_reading()
        self._scheduled = self._used > 0
        if self._backlog:
            # Also leaves time to threads that call applications.
            loop.call_later(PAUSE_SECONDS, self._begin_iteration, loop)
        elif self._scheduled:
            loop.call_soon(self._begin_iteration, loop)

    # Calls of the application

    async def turn(self, loop: asyncio.AbstractEventLoop,
                   owner: str) -> abc.Callable[[], None]:
        """Wait until a thread may call the application; owners take turns.

        :param owner: see `shares`
        :returns: function to be called at its end
        """
        while self._calling is not None:
            waiting = loop.create_future()
            self._calls.setdefault(owner, collections.deque()).append(waiting)
            await waiting
        token = self._calling = object()
        end = functools.partial(self._end_turn, token)
        loop.call_later(_TURN_SECONDS, end)
        return end

    def _end_turn(self, token: object) -> None:
        if self._calling is not token:
            return
        self._calling = None
        while self._calls:
            owner = next(iter(self._calls))
            calls = self._calls.pop(owner)
            waiting = calls.popleft()
            if calls:
                self._calls[owner] = calls      # behind the others
            if not waiting.done():
                waiting.set_result(None)
                break
