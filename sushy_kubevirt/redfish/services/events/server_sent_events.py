# SPDX-License-Identifier: Apache-2.0
"""Server-Sent Events: streams of events to connected clients.

An open stream occupies a server thread, so their number is limited. It is
shown as a subscription (DSP0266, "Server-sent events"): its worker
describes it in a file of the shared directory and holds a lock on that file.
Other workers read the file, and detect by the lock when its worker has ended.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import fcntl
import json
import logging
import os
import secrets
import threading
import time

from sushy_kubevirt.bmc import event_registry
from sushy_kubevirt.bmc import shares
from sushy_kubevirt.redfish.services.events import event_record
from sushy_kubevirt.redfish.services import server_threads

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

_PREFIX = 'stream-'
_CLOSE = 'stream-close'


class TooMany(Exception):
    """The owner has no stream left."""


@dataclasses.dataclass(frozen=True)
class StreamInfo:
    """An open stream, shown as a subscription.

    :param id: subscription id
    :param owner: to whose share it belongs, see `shares`
    :param client: address and port of the client
    :param context: generated text, Context of its events
    :param filter: text of its ``$filter``
    """

    id: str
    owner: str
    client: str
    context: str
    filter: str


class Streams:
    """The streams of this worker, and information on those of others.

    :param worker_messages: a `worker_messages.WorkerMessages`
    :param folder: function that returns the path of the shared directory
    :param history: function that returns the list of the last
        `event_record.Record`
    :param options: an `event_options.EventOptions`
    """

    def __init__(self, worker_messages, folder, history, options) -> None:
        self._worker_messages = worker_messages
        self._folder = folder
        self._history = history
        self._options = options
        self._slots = server_threads.Slots(options.streams)
        self._lock = threading.Lock()
        self._open = {}
        worker_messages.subscribe(_CLOSE, self._close)

    def open(self, owner, expression, client, last=None,
             connected=lambda: True, authorized=lambda: True,
             disconnect=lambda: None):
        """Open a stream.

        :param owner: to whose share it belongs, see `shares`
        :param expression: a `filters.Expression`
        :param client: address and port of the client
        :param last: EventId after which to continue, or None
        :param connected: function that returns whether the client is still
            connected; called every `POLL_SECONDS`
        :param authorized: function that returns whether the client may still
            read events
        :param disconnect: function that closes the connection; called in any
            thread
        :returns: a `Stream`
        :raises: `TooMany`
        """
        slot = self._slots.take(owner)
        if slot is None:
            raise TooMany
        with slot, self._lock:
            owners = [one.owner for one in self.all()]
            if not shares.fits(owners.count(owner), len(owners),
                               shares.total(self._options.streams)):
                raise TooMany
            stream = Stream(self, owner, expression, client, connected,
                            authorized, disconnect)
            path = self._path(stream.info.id)
            stream.descriptor = os.open(
                path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC,
                0o600)
            fcntl.flock(stream.descriptor, fcntl.LOCK_EX)
            os.write(stream.descriptor, json.dumps(
                dataclasses.asdict(stream.info)).encode())
            self._open[stream.info.id] = stream
            if last is not None:
                stream.replay(self._history(), last)
            stream.slot = slot.pop_all()
        return stream

    def all(self):
        """Return a tuple of `StreamInfo`, streams of all workers."""
        found = []
        for name in self._files():
            with contextlib.suppress(OSError, ValueError, TypeError):
                with open(self._path(name)) as stream:
                    found.append(StreamInfo(**json.load(stream)))
        return tuple(found)

    def get(self, id_):
        """Return the `StreamInfo` with an id, or None."""
        return next((one for one in self.all() if one.id == id_), None)

    def remove(self, id_) -> bool:
        """Close a stream of any worker.

        :returns: whether there was a stream with this id
        """
        if self.get(id_) is None:
            return False
        self._worker_messages.publish(_CLOSE, {'id': id_})
        return True

    def take(self, record) -> None:
        """Send a record on all streams of this worker that select it."""
        for stream in tuple(self._open.values()):
            stream.take(record)

    def close(self) -> None:
        """End all streams of this worker."""
        for stream in tuple(self._open.values()):
            stream.end()

    def _close(self, message) -> None:
        stream = self._open.get(message.get('id'))
        if stream is not None:
            self.terminate(stream)

    def terminate(self, stream) -> None:
        """End a stream; disconnect its client after `GRACE_SECONDS`."""
        stream.end()
        timer = threading.Timer(GRACE_SECONDS, self._disconnect, (stream,))
        timer.daemon = True
        timer.start()

    def _disconnect(self, stream) -> None:
        if stream.info.id in self._open:
            stream.disconnect()

    def unregister(self, stream) -> None:
        """Remove a closed stream from the open ones."""
        with self._lock:
            if self._open.pop(stream.info.id, None) is None:
                return
        with contextlib.suppress(OSError):
            os.unlink(self._path(stream.info.id))
        os.close(stream.descriptor)
        stream.slot.close()

    def _path(self, name):
        return os.path.join(self._folder(), _PREFIX + name)

    def _files(self):
        """List the ids of open streams; remove files of ended workers."""
        found = []
        folder = self._folder()
        try:
            names = os.listdir(folder)
        except OSError:
            return found
        for name in names:
            if not name.startswith(_PREFIX):
                continue
            path = os.path.join(folder, name)
            try:
                with open(path) as stream:
                    fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
                    if stream.read(1):
                        os.unlink(path)     # its worker has ended
            except BlockingIOError:
                found.append(name.removeprefix(_PREFIX))
            except OSError:
                continue
        return sorted(found)


class Stream:
    """An iterable of bytes to send to a client; a WSGI response body."""

    def __init__(self, streams, owner, expression, client, connected,
                 authorized, disconnect) -> None:
        self._streams = streams
        self._expression = expression
        self._connected = connected
        self._authorized = authorized
        self.disconnect = disconnect
        self._condition = threading.Condition()
        self._queue = collections.deque()
        self._ended = False
        self._first = True
        self.descriptor = self.slot = None
        self.info = StreamInfo(secrets.token_hex(8), owner, client,
                               secrets.token_urlsafe(12), expression.text)

    def take(self, record) -> None:
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
                        'events wait', self.info.id, self.info.client,
                        MAX_QUEUE)
            self._streams.terminate(self)

    def replay(self, history, last) -> None:
        """Queue the events after a given one.

        If that event is not in the history, EventBufferExceeded is queued.

        :param history: list of `event_record.Record`
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

    def __iter__(self):
        return self

    def __next__(self):
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
            return _message(record, self.info.context)
        if self._ended or self._is_over():
            raise StopIteration
        return b': still here\n\n'

    def _is_over(self):
        return server_threads.stopping() or not self._connected()

    def close(self) -> None:
        """Release the stream; called by the server at the end (PEP 3333)."""
        self.end()
        self._streams.unregister(self)


def _message(record, context):
    body = json.dumps(event_record.event([record], context))
    return (f'id: {record.id}\ndata: {body}\n\n').encode()
