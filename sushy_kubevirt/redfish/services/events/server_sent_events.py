# SPDX-License-Identifier: Apache-2.0
"""Server-Sent Events: streams of events to connected clients.

An open stream occupies a server thread, so their number is limited. It is
shown as a subscription (DSP0266, "Server-sent events").
"""

from __future__ import annotations

import collections
from collections import abc
import contextlib
import json
import logging
import secrets
import threading
import time
import typing

from sushy_kubevirt.bmc import event_registry
from sushy_kubevirt.redfish.services.events import event_record
from sushy_kubevirt.redfish.services import server_threads

if typing.TYPE_CHECKING:
    from sushy_kubevirt.redfish.services.events import event_options
    from sushy_kubevirt.redfish.services.events import filters

LOG = logging.getLogger(__name__)

#: Seconds without an event after which a comment is sent, because proxies
#: close idle connections. The client's authorization is checked then, and
#: before each event.
KEEP_ALIVE_SECONDS = 15.0

#: Seconds between checks whether the server stops or the client is gone.
POLL_SECONDS = 0.5

#: Largest number of events that wait for a client; with more, its stream is
#: closed.
MAX_QUEUE = 500

#: Seconds until the connection of a stream that should end is closed. A
#: client that does not read blocks the thread that sends.
GRACE_SECONDS = 1.0


class TooMany(Exception):
    """The owner has no stream left."""


class Streams:
    """The open streams.

    :param history: returns the last records
    """

    def __init__(self, history: abc.Callable[[], list[event_record.Record]],
                 options: event_options.EventOptions) -> None:
        self._history = history
        self._slots = server_threads.Slots(options.streams)
        self._open: dict[str, Stream] = {}

    def open(self, owner: str, expression: filters.Expression, client: str,
             last: str | None = None,
             connected: abc.Callable[[], bool] = lambda: True,
             authorized: abc.Callable[[], bool] = lambda: True,
             disconnect: abc.Callable[[], None] = lambda: None) -> Stream:
        """Open a stream.

        :param owner: to whose share it belongs, see `shares`
        :param client: address and port of the client
        :param last: EventId after which to continue, or None
        :param connected: tells whether the client is still connected; called
            every `POLL_SECONDS`
        :param authorized: tells whether the client may still read events
        :param disconnect: closes the connection; called in any thread
        :raises: `TooMany`
        """
        slot = self._slots.take(owner)
        if slot is None:
            raise TooMany
        stream = Stream(slot, expression, client, connected, authorized,
                        disconnect)
        self._open[stream.id] = stream
        slot.callback(self._open.pop, stream.id)
        if last is not None:
            stream.replay(self._history(), last)
        return stream

    def all(self) -> tuple[Stream, ...]:
        """Return the open streams."""
        return tuple(self._open.values())

    def get(self, id_: str) -> Stream | None:
        """Find a stream."""
        return self._open.get(id_)

    def take(self, record: event_record.Record) -> None:
        """Send a record on all streams that select it."""
        for stream in self.all():
            stream.take(record)

    def close(self) -> None:
        """End all streams."""
        for stream in self.all():
            stream.end()


class Stream:
    """An iterable of bytes to send to a client; a WSGI response body.

    :param slot: ends with the stream
    :ivar id: Id of the subscription as which it is shown
    :ivar client: address and port of the client
    :ivar context: generated text, Context of its events
    """

    def __init__(self, slot: contextlib.ExitStack,
                 expression: filters.Expression, client: str,
                 connected: abc.Callable[[], bool],
                 authorized: abc.Callable[[], bool],
                 disconnect: abc.Callable[[], None]) -> None:
        self.id = secrets.token_hex(8)
        self.client = client
        self.context = secrets.token_urlsafe(12)
        self._slot = slot
        self._expression = expression
        self._connected = connected
        self._authorized = authorized
        self._disconnect = disconnect
        self._condition = threading.Condition()
        self._queue: collections.deque[
            event_record.Record] = collections.deque()
        self._first = True
        self._ended = self._closed = False

    def take(self, record: event_record.Record) -> None:
        """Queue a record if the stream selects it; end it if it is full."""
        if not self._expression.matches(record):
            return
        with self._condition:
            full = len(self._queue) >= MAX_QUEUE
            if not full:
                self._queue.append(record)
                self._condition.notify_all()
        if full and not self._ended:
            LOG.warning('Event stream %s closed: client %s is too slow, %d '
                        'events wait', self.id, self.client, MAX_QUEUE)
            self.terminate()

    def replay(self, history: list[event_record.Record], last: str) -> None:
        """Queue the events after a given one.

        If that event is not in the history, EventBufferExceeded is queued.

        :param last: EventId
        """
        ids = [record.id for record in history]
        if last in ids:
            for record in history[ids.index(last) + 1:]:
                self.take(record)
        else:
            self._queue.append(event_record.make(
                event_registry.BUFFER_EXCEEDED, event_record.OTHER))

    def end(self) -> None:
        """End the stream once the queue is empty; callable in any thread."""
        with self._condition:
            self._ended = True
            self._condition.notify_all()

    def terminate(self) -> None:
        """End the stream; disconnect its client after `GRACE_SECONDS`."""
        self.end()
        timer = threading.Timer(GRACE_SECONDS, self._disconnect_late)
        timer.daemon = True
        timer.start()

    def _disconnect_late(self) -> None:
        if not self._closed:
            self._disconnect()

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> bytes:
        if self._first:
            self._first = False
            # Shows the client at once that it is connected.
            return b': welcome\n\n'
        until = time.monotonic() + KEEP_ALIVE_SECONDS
        with self._condition:
            while not self._queue and not self._ended:
                left = until - time.monotonic()
                if left <= 0 or self._is_over():
                    break
                self._condition.wait(min(left, POLL_SECONDS))
            record = self._queue.popleft() if self._queue else None
        # Checked before each event, not only when idle: a client must not
        # receive events after its logout.
        if not self._authorized():
            raise StopIteration
        if record is not None:
            return _message(record, self.context)
        if self._ended or self._is_over():
            raise StopIteration
        return b': still here\n\n'

    def _is_over(self) -> bool:
        return server_threads.stopping() or not self._connected()

    def close(self) -> None:
        """Release the stream; called by the server at the end (PEP 3333)."""
        self.end()
        self._closed = True
        self._slot.close()


def _message(record: event_record.Record, context: str) -> bytes:
    body = json.dumps(event_record.event([record], context))
    return (f'id: {record.id}\ndata: {body}\n\n').encode()
