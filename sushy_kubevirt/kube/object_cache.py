# SPDX-License-Identifier: Apache-2.0
"""Cache of the newest version of each object of one kind.

Objects come from three sources: lists, watch events, and responses to writes
of this process. The newer version wins regardless of the order of arrival, so
that a delayed watch event never reverts a write. Objects are compressed, as
most of a thousand are not read for hours.

Not thread-safe: the caller holds a lock.
"""

from __future__ import annotations

import collections
from collections import abc
import json
import sys
import typing
import zlib

from sushy_kubevirt.kube import objects

#: Of zlib: level, base two logarithm of the window's bytes, and memory level.
#: The default window and memory, 256 KiB for each call, take twice the time.
_LEVEL, _WINDOW, _MEMORY = 6, 14, 6

#: Number of deleted objects that are recorded, to ignore delayed events.
_MAX_TOMBSTONES = 1000


class Packer:
    """Compresses JSON of objects that resemble each other.

    The first one is the dictionary of the others (RFC 1950).
    """

    __slots__ = ('_dictionary',)

    def __init__(self) -> None:
        self._dictionary = b''

    def pack(self, obj: abc.Mapping[str, typing.Any]) -> bytes:
        """Compress an object."""
        text = json.dumps(obj, separators=(',', ':')).encode()
        # No more than zlib uses: it is kept when its object is deleted.
        self._dictionary = self._dictionary or text[-2 ** _WINDOW:]
        compressor = zlib.compressobj(
            _LEVEL, zlib.DEFLATED, _WINDOW, _MEMORY, zdict=self._dictionary)
        return compressor.compress(text) + compressor.flush()

    def unpack(self, data: bytes) -> typing.Any:
        """Return a new copy of an object."""
        return json.loads(zlib.decompressobj(
            zdict=self._dictionary).decompress(data))


class Entry(typing.Generic[objects.ObjectT]):
    """One object: its lookup keys, and the object compressed.

    :param link: relation to other objects: a VM's firmware UUID, a VMI's
        owner
    """

    __slots__ = ('key', 'uid', 'version', 'link', 'data', 'packer')

    def __init__(self, obj: objects.ObjectT, link: str | None,
                 packer: Packer) -> None:
        metadata = obj['metadata']
        self.key = object_key(obj)
        self.uid: str = metadata.get('uid', '')
        self.version = version_number(metadata.get('resourceVersion'))
        self.link = link
        self.packer = packer
        self.data = packer.pack(obj)

    def unpack(self) -> objects.ObjectT:
        """Return a new copy of the object."""
        return typing.cast('objects.ObjectT', self.packer.unpack(self.data))


class ObjectCache(typing.Generic[objects.ObjectT]):
    """Objects of one kind.

    :param trim: function that removes unused parts of an object in place
    :param link: function that returns the `Entry.link` of an object
    :param readmits: True to accept an object again with the version at which
        a watch reported it as deleted. An object that lost the label it is
        watched by has that version and still exists; a read by its name
        adds it again.
    """

    def __init__(self, trim: abc.Callable[[objects.ObjectT], object],
                 link: abc.Callable[[objects.ObjectT], str | None],
                 readmits: bool = False) -> None:
        self._trim = trim
        self._link = link
        self._readmits = readmits
        self._entries: dict[objects.ObjectKey,
                            Entry[objects.ObjectT]] = {}
        # By the fields of objects: one without a status is a poor dictionary
        # of those with one.
        self._packers: dict[tuple[str, ...], Packer] = (
            collections.defaultdict(Packer))
        # Versions of deletions, by uid.
        self._tombstones: dict[str, int | None] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: objects.ObjectKey) -> Entry[objects.ObjectT] | None:
        """Return the entry of an object, None if it is not cached."""
        return self._entries.get(key)

    def keys(self) -> list[objects.ObjectKey]:
        """Return the keys of all objects."""
        return list(self._entries)

    @property
    def newest(self) -> int:
        """The highest version in the cache, 0 if it is empty."""
        return max((e.version or 0 for e in self._entries.values()),
                   default=0)

    def put(self, obj: objects.ObjectT) -> bool:
        """Add an object unless a newer version is cached or it was deleted.

        :param obj: the object, trimmed in place
        :returns: True if the cache changed
        """
        self._trim(obj)
        metadata = obj['metadata']
        version = version_number(metadata.get('resourceVersion'))
        uid = metadata.get('uid', '')
        if uid in self._tombstones:
            deleted_at = self._tombstones[uid]
            if deleted_at is None or not (is_newer(version, deleted_at) or (
                    self._readmits and version == deleted_at)):
                return False
            del self._tombstones[uid]
        if not self.is_news(obj):
            return False
        entry = Entry(obj, self._link(obj),
                      self._packers[*obj, *metadata])
        self._entries[entry.key] = entry
        return True

    def is_news(self, obj: objects.ObjectT) -> bool:
        """Return False if this version, or a newer one, is cached."""
        held = self._entries.get(object_key(obj))
        return held is None or is_newer(version_number(
            obj['metadata'].get('resourceVersion')), held.version)

    def remove(self, obj: objects.ObjectT) -> list[Entry[objects.ObjectT]]:
        """Remove an object that a watch reported as deleted, or that no
        longer matches its selector.

        :returns: the entries removed
        """
        metadata = obj['metadata']
        version = version_number(metadata.get('resourceVersion'))
        uid = metadata.get('uid', '')
        held = self._entries.get(object_key(obj))
        if held is None or held.uid != uid:
            self._add_tombstone(uid, version)
            return []
        if held.version != version and is_newer(held.version, version):
            return []
        self._add_tombstone(uid, version)
        return [self._entries.pop(held.key)]

    def discard_deleted(self, key: objects.ObjectKey,
                        uid: str) -> list[Entry[objects.ObjectT]]:
        """Remove an object that the API no longer has.

        :param uid: of the deleted object
        :returns: the entries removed
        """
        self._add_tombstone(uid, None)
        held = self._entries.get(key)
        if held is None or held.uid != uid:
            return []
        return [self._entries.pop(key)]

    def discard(self, key: objects.ObjectKey) -> bool:
        """Remove an object that is no longer needed.

        :returns: True if it was cached
        """
        return self._entries.pop(key, None) is not None

    def retain_listed(self, within: abc.Callable[[objects.ObjectKey], bool],
                      listed: abc.Collection[objects.ObjectKey],
                      version: str) -> list[Entry[objects.ObjectT]]:
        """Remove the objects that are missing from a complete list.

        :param within: whether the list covers a key
        :param version: of the list; newer objects are kept
        :returns: the entries removed
        """
        number = version_number(version)
        return self._pop(e for e in self._entries.values()
                         if e.key not in listed and within(e.key)
                         and (e.version == number
                              or not is_newer(e.version, number)))

    def drop(self, within: abc.Callable[[objects.ObjectKey], bool]
             ) -> list[Entry[objects.ObjectT]]:
        """Remove objects and all records of deleted objects.

        :param within: whether to remove the object with a key
        :returns: the entries removed
        """
        self._tombstones.clear()
        return self._pop(e for e in self._entries.values() if within(e.key))

    def _pop(self, entries: abc.Iterable[Entry[objects.ObjectT]]
             ) -> list[Entry[objects.ObjectT]]:
        removed = list(entries)
        for entry in removed:
            del self._entries[entry.key]
        return removed

    def _add_tombstone(self, uid: str, version: int | None) -> None:
        self._tombstones[uid] = version
        while len(self._tombstones) > _MAX_TOMBSTONES:
            del self._tombstones[next(iter(self._tombstones))]


def object_key(obj: abc.Mapping[str, typing.Any]) -> objects.ObjectKey:
    """Return the key of an object."""
    metadata = obj['metadata']
    return objects.ObjectKey(sys.intern(metadata.get('namespace', '')),
                             metadata['name'])


def version_number(version: str | None) -> int | None:
    """Return a resourceVersion as a number, None if it is not numeric.

    Versions of one kind may be compared as numbers (KEP-5504; it held for
    every API server on etcd before that).
    """
    try:
        return int(version or '')
    except ValueError:
        return None


def is_newer(version: int | None, than: int | None) -> bool:
    """Return True for a newer version, or one that cannot be compared.

    Versions of several kinds may be compared while the API server keeps them
    in one etcd.

    :param version: from `version_number`
    :param than: from `version_number`
    """
    return version is None or than is None or version > than
