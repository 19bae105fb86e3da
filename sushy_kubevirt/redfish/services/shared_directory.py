# SPDX-License-Identifier: Apache-2.0
"""A private directory shared by the worker processes of one emulator.

It contains sessions, sockets and locks; the modules that create these define
their content.

The workers of a WSGI server do not know each other, but have the same
configuration. The directory's name is therefore derived from the
configuration. Emulators with equal configurations serve the same VMs to the
same accounts, so they may share sessions. The directory is created in
SUSHY_EMULATOR_STATE_DIR, else in the system's directory for temporary files.

Each process holds a shared flock on the directory, which the kernel releases
when the process ends and which systemd-tmpfiles respects. The last process
removes the directory, unless its server only replaces it: sessions survive a
worker. A directory without a lock is left over from a crash, and the next
emulator removes it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import pathlib
import shutil
import socket
import stat
import tempfile
import threading
import time

from sushy_kubevirt.kube import errors

_PREFIX = 'sushy-kubevirt-%d-'

#: Prefixes of the options that distinguish emulators.
_OPTIONS = ('SUSHY_EMULATOR_KUBEVIRT_', 'SUSHY_EMULATOR_LISTEN_',
            'SUSHY_EMULATOR_AUTH_FILE', 'SUSHY_EMULATOR_ALLOWED_INSTANCES')

_STATE_DIR = 'SUSHY_EMULATOR_STATE_DIR'

#: Seconds that the last worker waits for its server to stop listening. systemd
#: stops all processes of a service at the same time.
STOP_SECONDS = 0.5


class SharedDirectory:
    """The shared directory of one emulator. Thread-safe.

    :param config: mapping, the content of sushy-emulator's config file
    """

    def __init__(self, config) -> None:
        base = config.get(_STATE_DIR)
        self._base = pathlib.Path(base or tempfile.gettempdir())
        self._fd = None
        self._closed = False
        self._server = _Server()
        self._lock = threading.Lock()
        #: Its path; it exists once `make` was called.
        self.path = self._base / (
            _PREFIX % os.geteuid() + _fingerprint(config))

    def make(self):
        """Create the directory unless it exists, and lock it.

        To be called before each use, because the directory may have been
        removed. After `close` it is not made again.

        :returns: its path
        :raises: `errors.ConfigError` if it cannot be created, or if other
            users can access it
        """
        with self._lock:
            try:
                if not self._closed and (
                        self._fd is None or not _is_at(self._fd, self.path)):
                    self._drop()
                    self._fd = self._open()
                    self._sweep()
            except OSError as exc:
                raise errors.ConfigError(
                    f'The folder for sessions and sockets, {self.path}, '
                    f'cannot be made: {exc.strerror or exc}. Set '
                    f'{_STATE_DIR} to a folder that can be written to.'
                ) from exc
        return self.path

    def close(self) -> None:
        """Release the lock; the last process removes the directory."""
        with self._lock:
            self._closed = True
            if self._fd is not None:
                self._remove_if_last()
                self._drop()

    def _remove_if_last(self) -> None:
        deadline = time.monotonic() + STOP_SECONDS
        while self._is_last():
            if not self._server.listens():
                if _is_at(self._fd, self.path):
                    shutil.rmtree(self.path, ignore_errors=True)
                return
            # Let a new worker in.
            fcntl.flock(self._fd, fcntl.LOCK_SH)
            if time.monotonic() > deadline:
                return
            time.sleep(STOP_SECONDS / 20)

    def _is_last(self) -> bool:
        """Lock the directory exclusively, if no other process has locked it.

        Of several processes that end at the same time, the last one succeeds:
        an attempt gives up the shared lock.
        """
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _drop(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _open(self):
        """Create the directory if needed, check its owner, and lock it.

        :returns: file descriptor that holds the lock
        """
        self._base.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = self._base.stat()
        if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
            raise errors.ConfigError(
                f'All users can replace files in {self._base}. Set '
                f'{_STATE_DIR} to another folder, or remove the write '
                'permission of others: chmod o-w.')
        while True:
            try:
                os.mkdir(self.path, 0o700)
            except FileExistsError:
                pass
            try:
                fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY
                             | os.O_NOFOLLOW)
            except FileNotFoundError:
                continue
            except (NotADirectoryError, PermissionError):
                raise self._not_ours() from None
            held = False
            try:
                found = os.fstat(fd)
                if found.st_uid != os.geteuid() or found.st_mode & 0o077:
                    raise self._not_ours()
                fcntl.flock(fd, fcntl.LOCK_SH)
                # Another process may have removed it before.
                held = _is_at(fd, self.path)
                if held:
                    return fd
            finally:
                if not held:
                    os.close(fd)

    def _not_ours(self):
        return errors.ConfigError(
            f'{self.path} is not a folder of this user alone (mode 700). '
            f'Remove it, or set {_STATE_DIR} to another folder.')

    def _sweep(self) -> None:
        """Remove directories that other emulators have left over."""
        for path in self._base.glob(_PREFIX % os.geteuid() + '*'):
            if path == self.path:
                continue
            try:
                found = path.lstat()
                if (not stat.S_ISDIR(found.st_mode)
                        or found.st_uid != os.geteuid()):
                    continue
                fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY
                             | os.O_NOFOLLOW)
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path, ignore_errors=True)
                finally:
                    os.close(fd)
            except OSError:
                # Locked by another emulator, or already removed.
                continue


class _Server:
    """The WSGI server that has forked this process and replaces it.

    A process that has inherited no listening socket is its own server.
    """

    def __init__(self) -> None:
        self._pid = os.getppid()
        self._sockets = _listening_sockets()

    def listens(self):
        """Tell whether the server listens, so that it starts new workers.

        gunicorn closes its sockets before it stops its workers.
        """
        if not self._sockets or os.getppid() != self._pid:
            return False
        folder = f'/proc/{self._pid}/fd'
        try:
            found = os.listdir(folder)
        except FileNotFoundError:
            return False
        except PermissionError:
            return True     # a server of root, whose workers are not
        return any(_inode(f'{folder}/{name}') in self._sockets
                   for name in found)


def _listening_sockets():
    """Return the set of the inodes of this process's listening sockets."""
    found = set()
    for name in os.listdir('/proc/self/fd'):
        try:
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                one = socket.socket(fileno=int(name))
                try:
                    if one.getsockopt(socket.SOL_SOCKET,
                                      socket.SO_ACCEPTCONN):
                        found.add(os.fstat(int(name)).st_ino)
                finally:
                    one.detach()
        except OSError:
            continue    # closed meanwhile
    return found


def _inode(path):
    try:
        return os.stat(path).st_ino
    except OSError:
        return None


def _is_at(fd, path):
    try:
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except FileNotFoundError:
        return False


def _fingerprint(config):
    """Hash the options that distinguish emulators of the same user.

    :returns: text, 12 hexadecimal digits
    """
    options = {name: value for name, value in config.items()
               if name.startswith(_OPTIONS)}
    text = json.dumps([options, os.environ.get('KUBECONFIG')],
                      sort_keys=True, default=lambda value: sorted(
                          map(repr, value)) if isinstance(
                              value, (set, frozenset)) else repr(value))
    return hashlib.sha256(text.encode()).hexdigest()[:12]
