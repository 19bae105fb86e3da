# SPDX-License-Identifier: Apache-2.0
"""Objects at a version, and the events between versions.

A :class:`Collection` holds the objects of one stored resource and a bounded
number of past events: watches resume from it, and lists of several pages are
read at the version of their first page. The store validates writes.
"""
import bisect
import collections
import json

from kubevirt_sandbox.api import errors

ADDED, MODIFIED, DELETED = 'ADDED', 'MODIFIED', 'DELETED'


_encode = json.JSONEncoder(separators=(',', ':'), ensure_ascii=False).encode


def encode(value):
    """Encode JSON as it is sent: compact, UTF-8."""
    return _encode(value).encode()


class Record:
    """One immutable version of one object.

    Its JSON is made once, however many lists and watches send it.
    """

    __slots__ = ('obj', 'key', 'version', '_raw', '_views')

    def __init__(self, key, obj, version):
        self.key = key
        self.obj = obj
        self.version = version
        self._raw = None
        self._views = None

    @property
    def raw(self):
        """Return the object as JSON, bytes."""
        if self._raw is None:
            self._raw = encode(self.obj)
        return self._raw

    def view(self, name, make):
        """Return another form of the object, made once.

        :param name: hashable name of the form.
        :param make: function of this record, called the first time.
        """
        if self._views is None:
            self._views = {}
        found = self._views.get(name)
        if found is None:
            found = self._views[name] = make(self)
        return found


class Event:
    """One change of one object."""

    __slots__ = ('type', 'record', 'previous', '_sent')

    def __init__(self, type_, record, previous):
        self.type = type_
        self.record = record
        self.previous = previous
        self._sent = None

    @property
    def version(self):
        """Return the resource version of the change, an int."""
        return self.record.version

    def sent(self, name, make):
        """Return the bytes of this event in one form, made once."""
        if self._sent is None:
            self._sent = {}
        found = self._sent.get(name)
        if found is None:
            found = self._sent[name] = make()
        return found


class Collection:
    """The objects of one resource and their recent history.

    :param kind: the Kind as it is stored.
    :param floor: oldest version that can still be read.
    :param length: number of events kept.
    """

    def __init__(self, kind, floor, length):
        self.kind = kind
        self.floor = floor
        self.records = {}
        self._keys = []
        self._events = collections.deque(maxlen=length)
        self.listeners = []

    def apply(self, event):
        """Apply an event: store or delete its object."""
        key = event.record.key
        if event.type == DELETED:
            del self.records[key]
            del self._keys[bisect.bisect_left(self._keys, key)]
        else:
            if key not in self.records:
                bisect.insort(self._keys, key)
            self.records[key] = event.record
        if len(self._events) == self._events.maxlen:
            self.floor = self._events[0].version
        self._events.append(event)

    def current(self, namespace=None):
        """Return the current records, sorted by namespace and name."""
        if namespace is None:
            return [self.records[key] for key in self._keys]
        first = bisect.bisect_left(self._keys, (namespace, ''))
        last = bisect.bisect_left(self._keys, (namespace + '\0', ''))
        return [self.records[key] for key in self._keys[first:last]]

    def at_version(self, version, namespace=None):
        """Return the records at a version.

        :raises errors.ApiError: 410 (Expired) for a version before the floor.
        """
        if version < self.floor:
            raise errors.too_old(version, self.floor)
        undone = {}
        for event in reversed(self._events):
            if event.version <= version:
                break
            undone[event.record.key] = event.previous
        if not undone:
            return self.current(namespace)
        state = {**self.records, **undone}
        return [state[key] for key in sorted(state)
                if state[key] is not None
                and (namespace is None or key[0] == namespace)]

    def events_since(self, version):
        """Return the events after a version, oldest first.

        :raises errors.ApiError: 410 (Expired) for a version before the floor.
        """
        if version < self.floor:
            raise errors.too_old(version, self.floor)
        found = []
        for event in reversed(self._events):
            if event.version <= version:
                break
            found.append(event)
        found.reverse()
        return found
