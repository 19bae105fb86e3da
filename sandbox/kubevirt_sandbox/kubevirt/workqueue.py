# SPDX-License-Identifier: Apache-2.0
"""Work queue of a controller, without duplicate keys.

Keys are processed in the server's event loop. A key that is added several
times before its turn is processed once; after a failure it is retried with
back-off.
"""

import collections
import logging
import random

from kubevirt_sandbox.api import errors

LOG = logging.getLogger(__name__)

#: How long clients wait for turns at most, seconds.
_SLICE = 0.003
_FIRST_DELAY = 0.1
_LONGEST_DELAY = 15.0


class Again(Exception):
    """A key cannot be processed yet and shall be queued again."""


class WorkQueue:
    """A queue of keys, each processed once at a time.

    :param loop: the asyncio loop.
    :param work: function of a key, called once per turn.
    :param name: the controller's name, for the log.
    :param lag: maximum delay of each turn in seconds, as in a busy cluster.
    """

    def __init__(self, loop, work, name, lag=0):
        self._loop = loop
        self._work = work
        self._name = name
        self._lag = lag
        self._waiting = collections.OrderedDict()
        self._later = {}
        self._failures = {}
        self._handle = None
        self._closed = False

    def add(self, key):
        """Queue a key."""
        if self._lag:
            self.add_after(key, random.uniform(0, self._lag))  # noqa: S311
        else:
            self._wait(key)

    def _wait(self, key):
        if self._closed:
            return
        self._waiting[key] = True
        if self._handle is None:
            self._handle = self._loop.call_soon(self._turns)

    def add_after(self, key, seconds):
        """Queue a key after a delay; the earliest time counts."""
        if self._closed:
            return
        when = self._loop.time() + max(seconds, 0)
        old = self._later.get(key)
        if old is not None and old.when() <= when:
            return
        if old is not None:
            old.cancel()
        self._later[key] = self._loop.call_at(when, self._due, key)

    def close(self):
        """Stop calling the handler."""
        self._closed = True
        self._waiting.clear()
        for handle in self._later.values():
            handle.cancel()
        self._later.clear()
        if self._handle is not None:
            self._handle.cancel()

    def _due(self, key):
        self._later.pop(key, None)
        self._wait(key)

    def _turns(self):
        # a few at a time, so that clients are answered in between
        self._handle = None
        end = self._loop.time() + _SLICE
        while self._waiting and self._loop.time() < end:
            key, _ = self._waiting.popitem(last=False)
            self._turn(key)
        if self._waiting and self._handle is None and not self._closed:
            self._handle = self._loop.call_soon(self._turns)

    def _turn(self, key):
        try:
            self._work(key)
        except Exception as error:
            failures = self._failures.get(key, 0)
            self._failures[key] = failures + 1
            delay = min(_FIRST_DELAY * 2 ** min(failures, 30), _LONGEST_DELAY)
            expected = isinstance(error, (Again, errors.ApiError))
            LOG.log(logging.DEBUG if expected else logging.ERROR,
                    '%s: %s failed, again in %.1f s: %s', self._name, key,
                    delay, error, exc_info=not expected)
            self.add_after(key, delay)
        else:
            self._failures.pop(key, None)
