# SPDX-License-Identifier: Apache-2.0
"""Word between the workers that serve one emulator, on one host.

A worker has a Unix datagram socket in the emulator's own folder; what one
publishes reaches all, itself included. One of them is the *leader*, who does
what may be done once only (sending events): whoever holds a file lock, which
the kernel hands on the moment its holder is gone.

The folder's permissions say who may speak here. What is said is advice: a
worker that was too busy to take it is passed over.
"""

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
import weakref

LOG = logging.getLogger(__name__)

#: Bytes of one message.
LONGEST = 128 * 1024

#: Seconds a worker with a full queue (ten messages, for Linux) is waited for;
#: after that, it is not waited for so many seconds.
SEND_SECONDS = 1.0
SLOW_WORKER_SECONDS = 10.0

_ENDING = '.worker'
_LOCK = 'leader.lock'

_instances = weakref.WeakSet()


class WorkerMessages:
    """A worker's place among the workers. Safe for several threads.

    Starts nothing before `start`; after a fork, the child has to start anew.

    :param folder: path of a folder that only this user can enter
    """

    def __init__(self, folder):
        self._folder = os.fspath(folder)
        self._callbacks = {}
        self._elected = []
        self._begin()
        _instances.add(self)

    def _begin(self):
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._socket = self._sender = self._directory = None
        self._name = None
        self._lock_fd = None
        self._slow = {}
        self._closed = self._campaigning = False
        #: Whether this worker is the leader.
        self.is_leader = False

    def after_fork(self):
        """Leave the parent's place to it."""
        for each in (self._socket, self._sender):
            if each is not None:
                each.close()
        for descriptor in (self._directory, self._lock_fd):
            if descriptor is not None and not self._closed:
                os.close(descriptor)
        self._begin()

    def subscribe(self, topic, callback):
        """Be told of what is published about a topic.

        :param callback: function of the message, a dict. It is called in the
            publisher's thread if that is in this worker, else in the one
            thread that listens, and must not block.
        """
        self._callbacks.setdefault(topic, []).append(callback)

    def on_elected(self, callback):
        """Have something called, in a thread of its own, once this leads."""
        self._elected.append(callback)

    def start(self):
        """Take a place; again, it changes nothing.

        :raises: `OSError` if the folder cannot be used
        """
        with self._lock:
            if self._socket is not None or self._closed:
                return
            self._directory = os.open(
                self._folder, os.O_RDONLY | os.O_DIRECTORY)
            self._name = '%d-%s%s' % (os.getpid(), secrets.token_hex(4),
                                      _ENDING)
            self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF,
                                    2 * LONGEST)
            mine = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            mine.bind(self._path(self._name))
            self._socket = mine
        threading.Thread(target=self._listen, args=(mine,), daemon=True,
                         name='bus').start()

    def campaign(self):
        """Stand for leader; again, it changes nothing."""
        with self._lock:
            if self._campaigning or self._closed:
                return
            self._campaigning = True
        threading.Thread(target=self._run_for_leader, daemon=True,
                         name='bus-leader').start()

    def close(self):
        """Give the place up; another worker may lead."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self.is_leader = False
            if self._socket is None:
                return
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path(self._name))
            # Wakes the thread that listens, which closes it.
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            if self._lock_fd is not None:
                os.close(self._lock_fd)
                self._lock_fd = None
        with self._sending:
            self._sender.close()
            os.close(self._directory)

    def _path(self, name):
        # Names of sockets have 107 bytes, paths of folders may have more.
        return '/proc/self/fd/%d/%s' % (self._directory, name)

    # Speaking

    def publish(self, topic, message):
        """Tell all workers.

        :param topic: word
        :param message: dict, for JSON, of less than `LONGEST` bytes
        """
        data = json.dumps([topic, message]).encode()
        if len(data) > LONGEST:
            raise ValueError(f'{len(data)} bytes are too many for the bus')
        if self._socket is not None:
            # Here as well in one order: that of the calls.
            with self._sending:
                if not self._closed:
                    self._send_to_others(data)
        self._dispatch(topic, message)

    def _send_to_others(self, data):
        for name in os.listdir(self._directory):
            if not name.endswith(_ENDING) or name == self._name:
                continue
            slow = self._slow.get(name, 0) > time.monotonic()
            self._sender.settimeout(0 if slow else SEND_SECONDS)
            try:
                self._sender.sendto(data, self._path(name))
            except (ConnectionRefusedError, FileNotFoundError):
                # Its worker is gone, and may have had no time to clean up.
                self._remove(name)
            except OSError as e:
                if not slow:
                    LOG.warning('Worker %s takes no messages: %s',
                                name.partition('-')[0], e)
                self._slow[name] = time.monotonic() + SLOW_WORKER_SECONDS
            else:
                self._slow.pop(name, None)

    def _remove(self, name):
        self._slow.pop(name, None)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path(name))

    # Listening

    def _listen(self, mine):
        while not self._closed:
            try:
                data = mine.recv(2 * LONGEST)
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
                LOG.warning('Something on the bus that is no message')
                continue
            self._dispatch(topic, message)
        mine.close()

    def _dispatch(self, topic, message):
        for callback in self._callbacks.get(topic, ()):
            try:
                callback(message)
            except Exception:
                LOG.exception('Telling of %s failed', topic)

    # Leading

    def _run_for_leader(self):
        try:
            hold = os.open(os.path.join(self._folder, _LOCK),
                           os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as e:
            if not self._closed:
                LOG.error('This worker will never lead: %s', e)
            return
        fcntl.flock(hold, fcntl.LOCK_EX)
        with self._lock:
            if self._closed:
                os.close(hold)
                return
            self._lock_fd = hold
            self.is_leader = True
        LOG.debug('This worker leads')
        for callback in tuple(self._elected):
            try:
                callback()
            except Exception:
                LOG.exception('Taking the lead failed')


def _after_fork():
    for each in list(_instances):
        each.after_fork()


os.register_at_fork(after_in_child=_after_fork)
