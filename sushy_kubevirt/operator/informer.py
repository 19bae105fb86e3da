# SPDX-License-Identifier: Apache-2.0
"""Objects of one kind, kept up to date by watches."""

from __future__ import annotations

import asyncio

from sushy_kubevirt.kube import object_cache
from sushy_kubevirt.operator import api


def without_managed_fields(obj):
    """:returns: a copy of an object without the largest part of its metadata
    """
    return {**obj, 'metadata': {
        key: value for key, value in obj['metadata'].items()
        if key != 'managedFields'}}


class Informer:
    """The cached objects of one kind.

    :param client: an `api.Api`
    :param resource: a `api_resources.Resource`
    :param namespaces: iterable of names; (None,) for all
    :param changed: function of (namespace, name), called after each change
    :param label_selector: only objects with these labels
    :param keep: function of an object that returns what of it is kept;
        default: `without_managed_fields`
    :param metadata_only: whether to read nothing but the metadata

    ``listed`` is an `asyncio.Event`, set when all namespaces were listed once;
    ``failed`` another one, set when a watch does not work.
    """

    def __init__(self, client, resource, namespaces, changed,
                 label_selector: str = '', keep=without_managed_fields,
                 metadata_only: bool = False) -> None:
        self._api = client
        self._resource = resource
        self._namespaces = tuple(namespaces)
        self._changed = changed
        self._label_selector = label_selector
        self._keep = keep
        self._metadata_only = metadata_only
        # Readmits, as an update may have the version of a patch's answer.
        self._objects = object_cache.ObjectCache(
            lambda obj: obj, lambda obj: None, readmits=True)
        self._unlisted = set(self._namespaces)
        self.listed = asyncio.Event()
        self.failed = asyncio.Event()

    async def run(self) -> None:
        """Watch, without end."""
        async with asyncio.TaskGroup() as group:
            for namespace in self._namespaces:
                group.create_task(self._watch(namespace))

    def get(self, key):
        """:returns: the object with a (namespace, name), a dict of the
            caller's own; None if it does not exist
        """
        found = self._objects.get(key)
        return found and found.unpack()

    def keys(self):
        """:returns: list of (namespace, name)"""
        return self._objects.keys()

    def put(self, obj) -> None:
        """Store an object from an event, or from the answer to a request."""
        if self._objects.put(self._keep(obj)):
            self._changed(object_cache.object_key(obj))

    def drop(self, key) -> None:
        """Remove an object that does not exist any more."""
        if self._objects.discard(key):
            self._changed(key)

    async def _watch(self, namespace) -> None:
        async for kind, found in self._api.watch(
                self._resource, namespace, self._label_selector,
                metadata_only=self._metadata_only, failed=self.failed.set):
            if kind == api.LISTED:
                for key in self._objects.keys():
                    if key not in found and namespace in (None, key[0]):
                        self.drop(key)
                self._unlisted.discard(namespace)
                if not self._unlisted:
                    self.listed.set()
            elif kind == 'DELETED':
                if self._objects.remove(found):
                    self._changed(object_cache.object_key(found))
            else:
                self.put(found)
