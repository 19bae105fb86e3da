# SPDX-License-Identifier: Apache-2.0
"""The newest version seen of each object of one kind.

Objects come from three sides: lists, watch events, and answers to writes of
this process. Whichever arrives last, the newer version wins, so that a
watch which lags behind never takes back what a write has already shown.
Objects are kept packed, as most of a thousand are not looked at for hours.

Not locked: the cache does that.
"""

import json
import zlib

#: A fast level: the gain of the higher ones is small on such short texts.
_LEVEL = 1

#: Deleted objects remembered against events that lag behind.
_MAX_TOMBSTONES = 1000


class Entry:
    """One object: what it is found by, and the rest packed."""

    __slots__ = ('key', 'uid', 'version', 'link', 'data')

    def __init__(self, obj, link):
        metadata = obj['metadata']
        self.key = object_key(obj)
        self.uid = metadata.get('uid', '')
        self.version = version_number(metadata.get('resourceVersion'))
        #: What the kind is linked by: a VM's firmware UUID, a VMI's owner.
        self.link = link
        self.data = zlib.compress(
            json.dumps(obj, separators=(',', ':')).encode(), _LEVEL)

    def unpack(self):
        """:returns: the object, a dict of its own"""
        return json.loads(zlib.decompress(self.data))


class ObjectCache:
    """Objects of one kind.

    :param trim: function that drops what is not needed of an object
    :param link: function of an object: what it is linked by
    :param readmits: whether an object that a watch showed to be gone may be
        put again with the version it was gone at. An object that lost the
        label it is watched by has that version; who reads it by its name
        wants it.
    """

    def __init__(self, trim, link, readmits=False):
        self._trim = trim
        self._link = link
        self._readmits = readmits
        self._entries = {}
        self._tombstones = {}         # uid: version it was gone at, or None

    def __len__(self):
        return len(self._entries)

    def get(self, key):
        """:returns: the `Entry` at (namespace, name), or None"""
        return self._entries.get(key)

    def keys(self):
        return list(self._entries)

    @property
    def newest(self):
        """The highest version held."""
        return max((e.version or 0 for e in self._entries.values()),
                   default=0)

    def put(self, obj):
        """Take an object in, unless a newer version is held or it is gone.

        :param obj: the object, trimmed in place
        :returns: whether that changed anything
        """
        self._trim(obj)
        metadata = obj['metadata']
        version = version_number(metadata.get('resourceVersion'))
        uid = metadata.get('uid', '')
        if uid in self._tombstones:
            deleted_at = self._tombstones[uid]
            if deleted_at is None or not (_newer(version, deleted_at) or (
                    self._readmits and version == deleted_at)):
                return False
            del self._tombstones[uid]
        held = self._entries.get(object_key(obj))
        if held is not None and not _newer(version, held.version):
            return False
        entry = Entry(obj, self._link(obj))
        self._entries[entry.key] = entry
        return True

    def remove(self, obj):
        """Take an object out that a watch says is deleted, or does not
        match the selector any more.

        :returns: the entries taken out
        """
        metadata = obj['metadata']
        version = version_number(metadata.get('resourceVersion'))
        uid = metadata.get('uid', '')
        held = self._entries.get(object_key(obj))
        if held is None or held.uid != uid:
            self._add_tombstone(uid, version)
            return []
        if held.version != version and _newer(held.version, version):
            return []
        self._add_tombstone(uid, version)
        return [self._entries.pop(held.key)]

    def discard_deleted(self, key, uid):
        """Take an object out that the API does not have any more.

        :param uid: of the object that is gone for good
        :returns: the entries taken out
        """
        self._add_tombstone(uid, None)
        held = self._entries.get(key)
        if held is None or held.uid != uid:
            return []
        return [self._entries.pop(key)]

    def discard(self, key):
        """Take an object out that is not wanted any more.

        :returns: whether it was held
        """
        return self._entries.pop(key, None) is not None

    def retain_listed(self, within, seen, version):
        """Take out what a complete list did not have.

        :param within: function of a key: whether the list was about it
        :param seen: the keys listed
        :param version: of the list; what is newer stays
        :returns: the entries taken out
        """
        version = version_number(version)
        return self._pop(e for e in self._entries.values()
                         if e.key not in seen and within(e.key)
                         and (e.version == version
                              or not _newer(e.version, version)))

    def drop(self, within):
        """Take out everything, and what is remembered of what is gone.

        :param within: function of a key: whether it is meant
        :returns: the entries taken out
        """
        self._tombstones.clear()
        return self._pop(e for e in self._entries.values() if within(e.key))

    def _pop(self, entries):
        lost = list(entries)
        for entry in lost:
            del self._entries[entry.key]
        return lost

    def _add_tombstone(self, uid, version):
        self._tombstones[uid] = version
        while len(self._tombstones) > _MAX_TOMBSTONES:
            del self._tombstones[next(iter(self._tombstones))]


def object_key(obj):
    """:returns: (namespace, name)"""
    metadata = obj['metadata']
    return metadata.get('namespace', ''), metadata['name']


def version_number(version):
    """A resourceVersion as a number.

    Versions of one kind may be compared as numbers (KEP-5504; true of every
    API server on etcd before it was written down). None if it is none.
    """
    try:
        return int(version)
    except (TypeError, ValueError):
        return None


def _newer(version, than):
    # What cannot be compared is taken to be news.
    return version is None or than is None or version > than
