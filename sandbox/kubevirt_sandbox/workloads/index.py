# SPDX-License-Identifier: Apache-2.0
"""Indexes objects by one of their properties."""

from kubevirt_sandbox.workloads import owner_references


class Index:
    """Finds the objects of a kind.

    :param store: the store.
    :param kind: the Kind.
    :param keys: function of an object that returns by what it is found.
    """

    def __init__(self, store, kind, keys):
        self._store = store
        self._kind = kind
        self._keys = keys
        self._found = {}
        for obj in store.list(kind):
            self._on_event('ADDED', obj, None)
        #: Ends it.
        self.close = store.subscribe(kind, self._on_event)

    def get(self, *keys):
        """List the objects with one of some keys, by namespace and name."""
        names = set()
        for key in keys:
            names |= self._found.get(key, set())
        found = (self._store.find(self._kind, *name)
                 for name in sorted(names))
        return [obj for obj in found if obj is not None]

    def _on_event(self, type_, obj, old):
        name = (obj['metadata'].get('namespace', ''), obj['metadata']['name'])
        before = set(self._keys(old)) if old is not None else set()
        after = set(self._keys(obj)) if type_ != 'DELETED' else set()
        for key in before - after:
            left = self._found.get(key, set())
            left.discard(name)
            if not left:
                self._found.pop(key, None)
        for key in after - before:
            self._found.setdefault(key, set()).add(name)


def by_owner(store, kind):
    """Index objects by the uid of their controller."""
    def keys(obj):
        found = owner_references.controller(obj)
        return (found['uid'],) if found else ()
    return Index(store, kind, keys)


def by_labels(store, kind):
    """Index objects by (namespace, label name, label value)."""
    def keys(obj):
        meta = obj['metadata']
        return [(meta.get('namespace', ''), *pair)
                for pair in (meta.get('labels') or {}).items()]
    return Index(store, kind, keys)
