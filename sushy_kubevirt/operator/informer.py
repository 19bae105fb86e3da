# SPDX-License-Identifier: Apache-2.0
"""Objects of one kind, kept up to date by watches."""

from __future__ import annotations

import asyncio
from collections import abc
import typing

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import object_cache
from sushy_kubevirt.kube import objects
from sushy_kubevirt.operator import api


def without_managed_fields(obj: objects.ObjectT) -> objects.ObjectT:
    """:returns: a copy of an object without the largest part of its metadata
    """
    return typing.cast('objects.ObjectT', {**obj, 'metadata': {
        key: value for key, value in obj['metadata'].items()
        if key != 'managedFields'}})


class Informer(typing.Generic[objects.ObjectT]):
    """The cached objects of one kind.

    :param namespaces: (None,) for all
    :param changed: called after each change
    :param label_selector: only objects with these labels
    :param keep: returns what of an object is kept
    :param metadata_only: whether to read nothing but the metadata

    ``listed`` is set when all namespaces were listed once; ``failed`` when a
    watch does not work.
    """

    def __init__(
            self,
            client: api.Api,
            resource: api_resources.Resource[objects.ObjectT],
            namespaces: abc.Iterable[str | None],
            changed: abc.Callable[[objects.ObjectKey], object],
            label_selector: str = '',
            keep: abc.Callable[[objects.ObjectT], objects.ObjectT]
            = without_managed_fields,
            metadata_only: bool = False) -> None:
        self._api = client
        self._resource = resource
        self._namespaces = tuple(namespaces)
        self._changed = changed
        self._label_selector = label_selector
        self._keep = keep
        self._metadata_only = metadata_only
        # Readmits, as an update may have the version of a patch's answer.
        self._objects: object_cache.ObjectCache[objects.ObjectT] = (
            object_cache.ObjectCache(
                lambda obj: obj, lambda obj: None, readmits=True))
        self._unlisted = set(self._namespaces)
        self.listed = asyncio.Event()
        self.failed = asyncio.Event()

    async def run(self) -> None:
        """Watch, without end."""
        async with asyncio.TaskGroup() as group:
            for namespace in self._namespaces:
                group.create_task(self._watch(namespace))

    def get(self, key: objects.ObjectKey) -> objects.ObjectT | None:
        """:returns: a copy of the object; None if it does not exist"""
        entry = self._objects.get(key)
        return entry.unpack() if entry else None

    def keys(self) -> list[objects.ObjectKey]:
        """:returns: the keys of all objects"""
        return self._objects.keys()

    def put(self, obj: objects.ObjectT) -> None:
        """Store an object from an event, or from the answer to a request."""
        if self._objects.put(self._keep(obj)):
            self._changed(object_cache.object_key(obj))

    def drop(self, key: objects.ObjectKey) -> None:
        """Remove an object that does not exist any more."""
        if self._objects.discard(key):
            self._changed(key)

    async def _watch(self, namespace: str | None) -> None:
        async for kind, content in self._api.watch(
                self._resource, namespace, self._label_selector,
                metadata_only=self._metadata_only, failed=self.failed.set):
            if kind == api.LISTED:
                for key in self._objects.keys():
                    if key not in content and namespace in (
                            None, key.namespace):
                        self.drop(key)
                self._unlisted.discard(namespace)
                if not self._unlisted:
                    self.listed.set()
            elif kind == 'DELETED':
                if self._objects.remove(content):
                    self._changed(object_cache.object_key(content))
            else:
                self.put(content)
