# SPDX-License-Identifier: Apache-2.0
"""The user name and password of a mounted Secret, as they are now.

Kubernetes mounts a Secret as a folder of links, and replaces what they lead
to all at once. Nothing waits for that: whoever asks, gets what is there at
that moment, and looking takes microseconds. While nothing that can be used
is there, there is no account and nobody is let in.
"""

import logging
import os
import threading
import time

LOG = logging.getLogger(__name__)

#: The link that Kubernetes turns to a Secret's new content.
_DATA = '..data'
_NAMES = 'username', 'password'

#: No file is read further than this.
_MOST = 1024

#: Seconds for which a file outside of such a link may still be being
#: written. What is there at the start is taken as it is.
_FRESH = 1


class Unusable(Exception):
    """Why there is no account; says nothing of what is in the files."""


class Account:
    """Who may log in. Safe for several threads.

    :param folder: path, with the files ``username`` and ``password``
    :param limits: the most bytes of each
    """

    def __init__(self, folder, limits):
        self.folder = folder
        self._limits = dict(zip(_NAMES, limits))
        self._lock = threading.Lock()
        self._stamp = self._account = self._first = None
        self._problem = ''
        self._first = self._look()

    def current(self):
        """The account, read again if it has changed.

        :returns: (user name, password), both bytes, the same tuple for as
            long as they are the same; None if there is none to be used
        """
        with self._lock:
            for _once_more in range(3):
                stamp = self._look()
                if stamp == self._stamp:
                    break
                self._load(stamp)
                # If it has changed while it was read, user and password may
                # be of two states of it, so it is looked at once more.
                self._stamp = stamp
            return self._account

    @property
    def problem(self):
        """Why there is no account, a sentence; '' if there is one."""
        self.current()
        return self._problem

    def _look(self):
        """:returns: what changes when the account does"""
        found = [_stat(os.path.join(self.folder, name))
                 for name in (_DATA, *_NAMES)]
        if found[0] is None and self._first not in (None, found):
            # Not by Kubernetes, and not as at the start: it may be in the
            # middle of being written, until it has been left alone.
            newest = max((each[0] for each in found if each), default=0)
            # A time to come, by a wrong clock, is not waited for.
            found.append(abs(time.time_ns() - newest) < _FRESH * 10 ** 9)
        return found

    def _load(self, stamp):
        try:
            if stamp[-1] is True:
                raise Unusable('it is being written')
            account = tuple(map(self._read, _NAMES))
        except Unusable as exc:
            account = None
            problem = ('The Secret mounted at %s cannot be used: %s'
                       % (self.folder, exc))
            if problem != self._problem:
                LOG.error('%s. Nobody can log in', problem)
        else:
            problem = ''
            if self._stamp is not None and account != self._account:
                LOG.info('There is another user name or password now')
        self._problem = problem
        if account != self._account:
            self._account = account

    def _read(self, name):
        try:
            with open(os.path.join(self.folder, name), 'rb') as stream:
                data = stream.read(_MOST)
        except OSError as exc:
            raise Unusable(f'{name}: {exc.strerror}') from None
        # What an editor leaves at the end is none of it.
        ending = b'\r\n' if data.endswith(b'\r\n') else b'\n'
        data = data.removesuffix(ending)
        if not 0 < len(data) <= self._limits[name]:
            raise Unusable('%s: IPMI takes 1 to %d bytes' % (
                name, self._limits[name]))
        try:
            sound = data.decode().isprintable()
        except UnicodeDecodeError:
            sound = False
        if not sound:
            raise Unusable(f'{name}: it is no text without control characters')
        return data


def _stat(path):
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_dev
