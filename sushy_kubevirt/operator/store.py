# SPDX-License-Identifier: Apache-2.0
"""The objects of all BMCs as they were last seen, packed.

They come from watches and from the answers to writes, in any order: the newer
resourceVersion wins, and what is known to be gone does not come back.
"""

import json
import zlib

from sushy_kubevirt.operator import drift

# What kubectl keeps, as much as the object itself.
_LAST_APPLIED = 'kubectl.kubernetes.io/last-applied-configuration'


#: How many are remembered to be gone; late answers are late by seconds.
_MOST_GONE = 4096


class Store:
    """Objects by kind, namespace and name."""

    def __init__(self):
        self._objects = {}
        self._gone = {}

    def put(self, resource, obj):
        """Take what was seen.

        :param resource: a `resources.Resource`
        :param obj: dict
        :returns: whether it was news
        """
        ref, now = _ref(resource, obj), version(obj)
        known = self._objects.get(ref)
        if known is not None and now <= known[0]:
            return False
        # One that only lost the label it is watched by has the version that
        # it was told to be gone with.
        if now < self._gone.get(ref, -1):
            return False
        self._gone.pop(ref, None)
        self._objects[ref] = now, zlib.compress(json.dumps(
            _trimmed(obj), separators=(',', ':')).encode(), 1)
        return True

    def gone(self, resource, obj):
        """Take that an object was deleted.

        :param obj: dict, its last state
        :returns: whether that was news
        """
        ref, now = _ref(resource, obj), version(obj)
        known = self._objects.get(ref)
        if known is not None and now < known[0]:
            return False
        note_gone(self._gone, ref, obj)
        return self._objects.pop(ref, None) is not None

    def drop(self, resource, namespace, name):
        """Forget an object, which is there no more or nobody asks for.

        :returns: whether it was known
        """
        return self._objects.pop((resource.plural, namespace, name),
                                 None) is not None

    def get(self, resource, namespace, name):
        """:returns: the object, a dict of its own; None if there is none"""
        found = self._objects.get((resource.plural, namespace, name))
        if found is None:
            return None
        return json.loads(zlib.decompress(found[1]))

    def names(self, resource):
        """:returns: list of (namespace, name) of all objects of a kind"""
        return [ref[1:] for ref in self._objects
                if ref[0] == resource.plural]


def _ref(resource, obj):
    metadata = obj['metadata']
    return resource.plural, metadata.get('namespace', ''), metadata['name']


def note_gone(gone, ref, obj):
    """Remember of an object that it is gone, for a while.

    :param gone: dict of references and resourceVersions
    :param ref: what the object is known by
    :param obj: dict, its last state
    """
    gone[ref] = version(obj)
    if len(gone) > _MOST_GONE:
        gone.pop(next(iter(gone)))


def version(obj):
    """:returns: an object's resourceVersion, which grows"""
    try:
        return int(obj['metadata'].get('resourceVersion', 0))
    except ValueError:
        return 0


def _trimmed(obj):
    metadata = dict(obj['metadata'])
    touched = drift.touched(obj)
    metadata.pop('managedFields', None)
    if touched:
        metadata['managedFields'] = touched
    annotations = metadata.get('annotations')
    if annotations:
        metadata['annotations'] = {
            name: value for name, value in annotations.items()
            if name != _LAST_APPLIED}
    return {**obj, 'metadata': metadata}
