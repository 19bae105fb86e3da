# SPDX-License-Identifier: Apache-2.0
"""A folder that the processes of one emulator share, and nobody else.

A WSGI server starts workers that are told nothing of each other: not even
that they are several. What they have in common is their configuration, so
the folder's name is derived from that; emulators with the same one serve the
same VMs to the same accounts and may well share sessions. It lies in
SUSHY_EMULATOR_STATE_DIR, else in the system's folder for temporary files.

It stays when a process ends: a server that replaces its only worker would
otherwise log everybody out. Each process holds a shared lock on the folder
(an flock, which goes with the process however it ends; systemd-tmpfiles
leaves such folders alone, too), so one that nobody has used for a day is
known to be left over, and the next emulator removes it.

What is in it is its users' matter: sessions, sockets, a lock.
"""

import fcntl
import hashlib
import json
import os
import pathlib
import shutil
import stat
import tempfile
import threading
import time
import weakref

from sushy_kubevirt.kube import errors

_PREFIX = 'sushy-kubevirt-%d-'

#: Options that make an emulator another one.
_OPTIONS = ('SUSHY_EMULATOR_KUBEVIRT_', 'SUSHY_EMULATOR_LISTEN_',
            'SUSHY_EMULATOR_AUTH_FILE', 'SUSHY_EMULATOR_ALLOWED_INSTANCES')

_STATE_DIR = 'SUSHY_EMULATOR_STATE_DIR'

#: Seconds after which a folder that nobody holds is left over.
_LEFT_OVER = 86400

_instances = weakref.WeakSet()


class SharedDirectory:
    """The shared folder of one emulator.

    :param config: mapping with what sushy-emulator's config file set
    """

    def __init__(self, config):
        base = config.get(_STATE_DIR)
        self._base = pathlib.Path(base or tempfile.gettempdir())
        self._fd = None
        self.after_fork()
        _instances.add(self)
        #: Where it is; there once `make` was called.
        self.path = self._base / (
            _PREFIX % os.geteuid() + _fingerprint(config))

    def after_fork(self):
        """Forget what a thread of the parent may have been about."""
        self._lock = threading.Lock()

    def make(self):
        """Have the folder, made now if it is not there.

        To be called before it is used, and again when it turns out to have
        been removed.

        :returns: its path
        :raises: `errors.ConfigError` if it is not ours alone
        """
        with self._lock:
            try:
                if self._fd is None or not _is_at(self._fd, self.path):
                    self._drop()
                    self._fd = self._open()
                    self._sweep()
            except OSError as exc:
                raise errors.ConfigError(
                    'The folder for sessions and the like, %s, cannot be '
                    'made: %s. Set %s to a folder that can be written to.'
                    % (self.path, exc.strerror or exc, _STATE_DIR)) from exc
        return self.path

    def close(self):
        """Let go of it; the folder stays."""
        with self._lock:
            self._drop()

    def _drop(self):
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _open(self):
        """Make it if need be, check whose it is, and hold it."""
        self._base.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = self._base.stat()
        if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
            raise errors.ConfigError(
                'Anybody can replace what is in %s. Set %s to another '
                'folder, or take the right to write from others: chmod o-w.'
                % (self._base, _STATE_DIR))
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
                # Another emulator may just have swept it away.
                held = _is_at(fd, self.path)
                if held:
                    os.utime(fd)
                    return fd
            finally:
                if not held:
                    os.close(fd)

    def _not_ours(self):
        return errors.ConfigError(
            '%s is not a folder of this user alone (mode 700). Remove it, '
            'or set %s to another folder.' % (self.path, _STATE_DIR))

    def _sweep(self):
        """Remove folders like this one that were left over."""
        old = time.time() - _LEFT_OVER
        for path in self._base.glob(_PREFIX % os.geteuid() + '*'):
            if path == self.path:
                continue
            try:
                found = path.lstat()
                if (not stat.S_ISDIR(found.st_mode) or found.st_mtime > old
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
                # Somebody uses it, or was faster.
                continue


def _is_at(fd, path):
    try:
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except FileNotFoundError:
        return False


def _fingerprint(config):
    """What tells this emulator from others of the same user."""
    options = {name: value for name, value in config.items()
               if name.startswith(_OPTIONS)}
    text = json.dumps([options, os.environ.get('KUBECONFIG')],
                      sort_keys=True, default=lambda value: sorted(
                          map(repr, value)) if isinstance(
                              value, (set, frozenset)) else repr(value))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _after_fork():
    for folder in list(_instances):
        folder.after_fork()


os.register_at_fork(after_in_child=_after_fork)
