# SPDX-License-Identifier: Apache-2.0
"""Messages between the workers of one emulator, and their leader election.

Each worker has a Unix datagram socket in the emulator's shared directory,
whose permissions protect it. A published message is delivered to all workers
on this host, the sender included. Delivery is best effort: a worker whose
queue stays full misses messages.

One worker is the *leader*, for tasks that must run only once (pushing
events). It holds a file lock, which the kernel passes to another worker as
soon as the leader's process ends.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import logging
import os
import secrets
import socket
import threading
import time

LOG = logging.getLogger(__name__)

#: Largest number of bytes of a message.
MAX_BYTES = 128 * 1024

#: Seconds to wait for a worker whose queue is full (ten messages on Linux),
#: and seconds without further waiting for it after that.
SEND_SECONDS = 1.0
SLOW_WORKER_SECONDS = 10.0

_SUFFIX = '.worker'
_LOCK = 'leader.lock'


class Dispatcher:
    """Passes messages to those who have subscribed to their topics."""

    def __init__(self) -> None:
        self._callbacks = {}

    def subscribe(self, topic, callback) -> None:
        """Register a function to receive the messages of a topic.

        :param topic: text
        :param callback: function of the message, a dict. Called in the
            publisher's thread for messages of this worker, else in the
            listening thread; must not block.
        """
        self._callbacks.setdefault(topic, []).append(callback)

    def dispatch(self, topic, message) -> None:
        """Pass a message on.

        :param topic: text
        :param message: dict
        """
        for callback in self._callbacks.get(topic, ()):
            try:
                callback(message)
            except Exception:
                LOG.exception('Processing a worker message on %s failed',
                              topic)


class WorkerMessages:
    """Messaging and leadership of one worker. Thread-safe.

    Threads run only after `start`.

    :param folder: path of a folder that only this user can enter
    """

    def __init__(self, folder) -> None:
        self._folder = os.fspath(folder)
        self._dispatcher = Dispatcher()
        self._dispatch = self._dispatcher.dispatch
        self.subscribe = self._dispatcher.subscribe
        self._elected = []
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._socket = self._sender = self._directory = None
        self._name = None
        self._lock_fd = None
        self._slow = {}
        self._closed = self._acquiring = False
        #: Whether this worker is the leader.
        self.is_leader = False

    def on_elected(self, callback) -> None:
        """Register a function to be called when this worker is elected.

        :param callback: function without parameters; called in the election
            thread
        """
        self._elected.append(callback)

    def start(self) -> None:
        """Create the socket and listen; idempotent.

        :raises: `OSError` if the folder cannot be used
        """
        with self._lock:
            if self._socket is not None or self._closed:
                return
            self._directory = os.open(
                self._folder, os.O_RDONLY | os.O_DIRECTORY)
            self._name = f'{os.getpid()}-{secrets.token_hex(4)}{_SUFFIX}'
            self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF,
                                    2 * MAX_BYTES)
            mine = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            mine.bind(self._path(self._name))
            self._socket = mine
        threading.Thread(target=self._listen, args=(mine,), daemon=True,
                         name='worker-messages').start()

    def acquire_leadership(self) -> None:
        """Take part in the leader election; idempotent."""
        with self._lock:
            if self._acquiring or self._closed:
                return
            self._acquiring = True
        threading.Thread(target=self._wait_for_leadership, daemon=True,
                         name='worker-election').start()

    def close(self) -> None:
        """Close the socket and resign from leadership."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self.is_leader = False
            if self._socket is None:
                return
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path(self._name))
            # Wakes the listening thread, which closes the socket.
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            if self._lock_fd is not None:
                os.close(self._lock_fd)
                self._lock_fd = None
        with self._sending:
            self._sender.close()
            os.close(self._directory)

    def _path(self, name) -> str:
        # A socket address is limited to 107 bytes, which the folder's path
        # may exceed.
        return f'/proc/self/fd/{self._directory}/{name}'

    # Sending

    def publish(self, topic, message):
        """Send a message to all workers.

        :param topic: text
        :param message: dict that can be encoded as JSON
        :raises: `ValueError` if topic and message exceed `MAX_BYTES` bytes
        """
        data = json.dumps([topic, message]).encode()
        if len(data) > MAX_BYTES:
            raise ValueError(f'The message on {topic} has {len(data)} bytes; '
                             f'{MAX_BYTES} are allowed')
        if self._socket is not None:
            # The lock keeps messages in the order of the calls.
            with self._sending:
                if not self._closed:
                    self._send_to_others(data)
        self._dispatch(topic, message)

    def _send_to_others(self, data) -> None:
        for name in os.listdir(self._directory):
            if not name.endswith(_SUFFIX) or name == self._name:
                continue
            slow = self._slow.get(name, 0) > time.monotonic()
            self._sender.settimeout(0 if slow else SEND_SECONDS)
            try:
                self._sender.sendto(data, self._path(name))
            except (ConnectionRefusedError, FileNotFoundError):
                # Its worker has ended, perhaps without removing the socket.
                self._remove(name)
            except OSError as e:
                if not slow:
                    LOG.warning('Worker process %s receives no messages; '
                                'message dropped: %s',
                                name.partition('-')[0], e)
                self._slow[name] = time.monotonic() + SLOW_WORKER_SECONDS
            else:
                self._slow.pop(name, None)

    def _remove(self, name) -> None:
        self._slow.pop(name, None)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path(name))

    # Receiving

    def _listen(self, mine) -> None:
        while not self._closed:
            try:
                data = mine.recv(2 * MAX_BYTES)
            except OSError as e:
                if e.errno == errno.EINTR:
                    continue
                break
            if not data:
                continue
            try:
                topic, message = json.loads(data)
            except (ValueError, TypeError, RecursionError):
                topic = message = None
            if not isinstance(topic, str) or not isinstance(message, dict):
                LOG.warning('Invalid message from another worker; ignored')
                continue
            self._dispatch(topic, message)
        mine.close()

    # Leader election

    def _wait_for_leadership(self) -> None:
        try:
            hold = os.open(os.path.join(self._folder, _LOCK),
                           os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as e:
            if not self._closed:
                LOG.error('This worker cannot become leader: lock file in '
                          '%s: %s', self._folder, e)
            return
        fcntl.flock(hold, fcntl.LOCK_EX)
        with self._lock:
            if self._closed:
                os.close(hold)
                return
            self._lock_fd = hold
            self.is_leader = True
        LOG.debug('This worker is the leader')
        for callback in tuple(self._elected):
            try:
                callback()
            except Exception:
                LOG.exception('A callback of the leader election failed')
