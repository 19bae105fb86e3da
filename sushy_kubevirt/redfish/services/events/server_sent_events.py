# SPDX-License-Identifier: Apache-2.0
"""Server-Sent Events: events over a connection that a client keeps open.

Each stream takes a thread of the server, so there are few, and each is shown
as a subscription as long as it is open (DSP0266, "Server-sent events"). What
is shown lies in a file of the emulator's folder that the worker holds a lock
on, so the other workers know of it, and know when its worker died.
"""

import collections
import contextlib
import dataclasses
import fcntl
import json
import logging
import os
import secrets
import signal
import threading
import time

from sushy_kubevirt.redfish.services.events import event_record
from sushy_kubevirt.redfish.services.events import messages

LOG = logging.getLogger(__name__)

#: A comment is sent after so many seconds without an event: proxies end what
#: is silent. It is asked then, as with each event, who may still listen.
KEEP_ALIVE = 15.0

#: How soon a stream notices that the server stops or the client is gone.
POLL_SECONDS = 0.5

#: Events that wait for one client; one that falls behind further is left.
QUEUE = 500

#: Seconds that a stream which is to end has for that, before its connection
#: is cut: a client that reads nothing holds up the thread that sends.
GRACE = 1.0

_PREFIX = 'stream-'
_CLOSE = 'stream-close'


class TooMany(Exception):
    """There are as many streams as there may be."""


@dataclasses.dataclass(frozen=True)
class StreamInfo:
    """An open stream as a subscription.

    :param id: its name
    :param client: address and port of the client
    :param context: text made for it
    :param filter: text of its ``$filter``
    """

    id: str
    client: str
    context: str
    filter: str


class Streams:
    """The streams of this worker, and what is known of the others'.

    :param worker_messages: a `worker_messages.WorkerMessages`
    :param folder: function that returns the path of the emulator's folder
    :param history: function that returns the records of late
    :param options: an `options.EventOptions`
    """

    def __init__(self, worker_messages, folder, history, options):
        self._worker_messages = worker_messages
        self._folder = folder
        self._history = history
        self._options = options
        self._begin()
        worker_messages.subscribe(_CLOSE, self._close)

    def _begin(self):
        self._lock = threading.Lock()
        self._open = {}

    def after_fork(self):
        """Leave the parent's streams to it."""
        for stream in self._open.values():
            os.close(stream.descriptor)
        self._begin()

    def open(self, wanted, client, last=None, connected=lambda: True,
             welcome=lambda: True, cut=lambda: None):
        """Begin a stream.

        :param wanted: a `filters.Expression`
        :param client: address and port of the client
        :param last: EventId after which to go on, if it is known
        :param connected: function that tells whether the client is still
            there; asked often
        :param welcome: function that tells whether it still may listen
        :param cut: function that breaks the connection, from any thread
        :returns: a `Stream`
        :raises: `TooMany`
        """
        with self._lock:
            if (len(self._open) >= _most_here(self._options.streams)
                    or len(self._files()) >= self._options.streams):
                raise TooMany
            stream = Stream(self, wanted, client, connected, welcome, cut)
            path = self._path(stream.shown.id)
            stream.descriptor = os.open(
                path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC,
                0o600)
            fcntl.flock(stream.descriptor, fcntl.LOCK_EX)
            os.write(stream.descriptor, json.dumps(
                dataclasses.asdict(stream.shown)).encode())
            self._open[stream.shown.id] = stream
            if last is not None:
                stream.replay(self._history(), last)
        return stream

    def all(self):
        """:returns: tuple of `StreamInfo`, of all workers"""
        found = []
        for name in self._files():
            with contextlib.suppress(OSError, ValueError, TypeError):
                with open(self._path(name)) as stream:
                    found.append(StreamInfo(**json.load(stream)))
        return tuple(found)

    def get(self, id_):
        """:returns: a `StreamInfo`; None if there is no such stream"""
        return next((one for one in self.all() if one.id == id_), None)

    def remove(self, id_):
        """End a stream, whichever worker's.

        :returns: whether there was one of that name
        """
        if self.get(id_) is None:
            return False
        self._worker_messages.publish(_CLOSE, {'id': id_})
        return True

    def take(self, record):
        """Hand on a record to whoever wants it."""
        for stream in tuple(self._open.values()):
            stream.take(record)

    def close(self):
        """End all of this worker."""
        for stream in tuple(self._open.values()):
            stream.end()

    def _close(self, message):
        stream = self._open.get(message.get('id'))
        if stream is not None:
            self.leave(stream)

    def leave(self, stream):
        """End a stream, whatever its client does."""
        stream.end()
        timer = threading.Timer(GRACE, self._cut, (stream,))
        timer.daemon = True
        timer.start()

    def _cut(self, stream):
        if stream.shown.id in self._open:
            stream.cut()

    def forget(self, stream):
        with self._lock:
            if self._open.pop(stream.shown.id, None) is None:
                return
        with contextlib.suppress(OSError):
            os.unlink(self._path(stream.shown.id))
        os.close(stream.descriptor)

    def _path(self, name):
        return os.path.join(self._folder(), _PREFIX + name)

    def _files(self):
        """:returns: names of the streams there are; clears up dead ones"""
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
                        os.unlink(path)     # its worker is gone
            except BlockingIOError:
                found.append(name.removeprefix(_PREFIX))
            except OSError:
                continue
        return sorted(found)


class Stream:
    """One stream: iterate it for what to send. Close it in the end."""

    def __init__(self, streams, wanted, client, connected, welcome, cut):
        self._streams = streams
        self._wanted = wanted
        self._connected = connected
        self._welcome = welcome
        self.cut = cut
        self._news = threading.Condition()
        self._queue = collections.deque()
        self._ended = False
        self._first = True
        self.descriptor = None
        self.shown = StreamInfo(secrets.token_hex(8), client,
                                secrets.token_urlsafe(12), wanted.text)

    def take(self, record):
        if not self._wanted.matches(record):
            return
        with self._news:
            full = len(self._queue) >= QUEUE
            if not full:
                self._queue.append(record)
                self._news.notify_all()
        if full and not self._ended:
            LOG.warning('Stream %s of %s is ended: it does not keep up',
                        self.shown.id, self.shown.client)
            self._streams.leave(self)

    def replay(self, history, last):
        """Begin with what came after an event.

        If that is not known any more, the client is told so.
        """
        ids = [record.id for record in history]
        if last in ids:
            for record in history[ids.index(last) + 1:]:
                self.take(record)
        else:
            self._queue.append(event_record.make(messages.BUFFER_EXCEEDED,
                                                 event_record.OTHER))

    def end(self):
        """Have it end, from another thread."""
        with self._news:
            self._ended = True
            self._news.notify_all()

    def __iter__(self):
        return self

    def __next__(self):
        if self._first:
            self._first = False
            # So that the client sees at once that it is connected.
            return b': welcome\n\n'
        until = time.monotonic() + KEEP_ALIVE
        with self._news:
            while not self._queue and not self._ended:
                left = until - time.monotonic()
                if left <= 0 or self._is_over():
                    break
                self._news.wait(min(left, POLL_SECONDS))
            record = self._queue.popleft() if self._queue else None
        # Asked before each event as well: those may come so fast that it is
        # never silent here, and who has logged out is told none of them.
        if not self._welcome():
            raise StopIteration
        if record is not None:
            return _message(record, self.shown.context)
        if self._ended or self._is_over():
            raise StopIteration
        return b': still here\n\n'

    def _is_over(self):
        return stopping() or not self._connected()

    def close(self):
        """The connection has ended."""
        self.end()
        self._streams.forget(self)


def _message(record, context):
    body = json.dumps(event_record.event([record], context))
    return (f'id: {record.id}\ndata: {body}\n\n').encode()


def _worker():
    """The gunicorn worker this runs in; None elsewhere.

    It waits for all requests when it is to stop, and streams have no end:
    they have to look. Its handler of SIGTERM is a method of it (gunicorn 27,
    workers/base.py).
    """
    worker = getattr(signal.getsignal(signal.SIGTERM), '__self__', None)
    return worker if hasattr(worker, 'alive') else None


def stopping():
    """Whether the server is about to stop."""
    worker = _worker()
    return worker is not None and not worker.alive


def _most_here(most):
    """How many streams this worker may have: half of its threads."""
    threads = getattr(getattr(_worker(), 'cfg', None), 'threads', None)
    return most if threads is None else min(most, max(1, threads // 2))
