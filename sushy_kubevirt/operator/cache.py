# SPDX-License-Identifier: Apache-2.0
"""Cached objects of the cluster, and an index of the BMCs that use them.

Filled by watches and by responses to requests; empty when the operator starts.
BMCs and the objects created for them are kept completely, but compressed, in
the `object_cache.ObjectCache` that the BMC processes also use. Of VMs and
Secrets, which belong to users, only the metadata is watched; a Secret that a
BMC refers to is read when its version has changed, and only a
`secret_summary.Summary` of it is kept.
"""

from __future__ import annotations

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import object_cache
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import drift
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import observed_state
from sushy_kubevirt.operator import permissions
from sushy_kubevirt.operator import secret_summary
from sushy_kubevirt.operator import spec

_OWNED = {resource.plural: resource for resource in (
    *bmc_resources.OWNED, bmc_resources.ROUTE)}

#: Annotation that repeats the whole object.
_LAST_APPLIED = 'kubectl.kubernetes.io/last-applied-configuration'

#: Maximum number of deleted Secrets whose versions are kept, for seconds, to
#: ignore responses that arrive after the deletion.
_MAX_DELETED = 1000


class Cache:
    """All cached objects.

    :param api: an `api.Api`

    ``objects`` is an `Objects` of BMCs and the objects created for them,
    ``machines`` a `VirtualMachines`, ``secrets`` a `Secrets`.
    ``route_problems`` has what `route_problem` returns, by namespace; under
    None, for all namespaces.
    """

    def __init__(self, api) -> None:
        self.objects = Objects()
        self.machines = VirtualMachines()
        self.secrets = Secrets(api)
        self.route_problems = {}
        self._users = {}
        self._refs = {}

    def route_problem(self, namespace):
        """Tell why BMCs of a namespace cannot have Routes.

        :returns: `routes.MISSING`, `routes.FORBIDDEN` or `routes.UNLISTED`;
            None if they can
        """
        return self.route_problems.get(
            namespace, self.route_problems.get(None))

    def bmc(self, key):
        """Look up a BMC.

        :param key: (namespace, name)
        :returns: dict, or None
        """
        return self.objects.get(bmc_resources.BMC, *key)

    def put_bmc(self, body) -> bool:
        """Store a BMC.

        :param body: dict
        :returns: whether it is newer than what was cached
        """
        if not self.objects.put(bmc_resources.BMC, body):
            return False
        bmc = spec.read(body)
        key = bmc.namespace, bmc.name
        refs = tuple(_refs(bmc))
        if self._refs.get(key) != refs:
            self._drop_refs(key)
            self._refs[key] = refs
            for ref in refs:
                self._users[ref] = (*self._users.get(ref, ()), key)
        return True

    def drop_bmc(self, key):
        """Remove a BMC.

        :returns: whether there was one
        """
        self._drop_refs(key)
        return self.objects.drop(bmc_resources.BMC, *key)

    def bmcs(self):
        """:returns: list of keys"""
        return self.objects.names(bmc_resources.BMC)

    def users_of(self, resource, namespace, name):
        """Find the BMCs that have or name an object.

        :returns: tuple of keys
        """
        return self._users.get((resource.plural, namespace, name), ())

    def reserves_vm_service(self, bmc):
        """Tell whether another BMC needs the name of `naming.vm_service`.

        :param bmc: a `spec.Bmc`
        """
        second = naming.vm_service(bmc)
        return (second is not None and second == naming.base(bmc.vm.name)
                and self.bmc((bmc.namespace, bmc.vm.name)) is not None)

    def objects_of(self, bmc):
        """Look up the objects of a BMC that exist.

        :param bmc: a `spec.Bmc`
        :returns: dict of (kind, namespace, name) and object
        """
        found = {}
        for resource, namespace, name in observed_state.object_refs(bmc):
            obj = self.objects.get(resource, namespace, name)
            if obj is not None:
                found[resource.kind, namespace, name] = obj
        return found

    def _drop_refs(self, key) -> None:
        for ref in self._refs.pop(key, ()):
            left = tuple(one for one in self._users[ref] if one != key)
            if left:
                self._users[ref] = left
                continue
            del self._users[ref]
            if ref[0] == bmc_resources.SECRET.plural:
                self.secrets.drop_summary(spec.Reference(*ref[1:]))
            elif ref[0] in _OWNED:
                self._drop_foreign(_OWNED[ref[0]], *ref[1:])

    def _drop_foreign(self, resource, *at) -> None:
        """Remove a foreign object, whose deletion no watch would report."""
        obj = self.objects.get(resource, *at)
        if obj is not None and not naming.made_by_us(obj):
            self.objects.drop(resource, *at)


class Objects:
    """Objects by kind, namespace and name, in one cache for each kind."""

    def __init__(self) -> None:
        self._stores = {}

    def put(self, resource, obj):
        """Store an object, unless a newer version is cached.

        :param resource: a `api_resources.Resource`
        :param obj: dict, not modified
        :returns: whether it was newer than the cached one
        """
        return self._of(resource).put(_trimmed(obj))

    def deleted(self, resource, obj):
        """Remove an object that was deleted or lost its label.

        :param obj: dict, its last state
        :returns: whether it was cached
        """
        return bool(self._of(resource).remove(obj))

    def drop(self, resource, namespace, name):
        """Remove an object.

        :returns: whether it was cached
        """
        return self._of(resource).discard((namespace, name))

    def get(self, resource, namespace, name):
        """:returns: the object, a dict of the caller's own; None if it is not
            cached
        """
        found = self._of(resource).get((namespace, name))
        return found and found.unpack()

    def names(self, resource):
        """:returns: list of (namespace, name) of all objects of a kind"""
        return self._of(resource).keys()

    def _of(self, resource):
        if resource not in self._stores:
            # `put` trims a copy, as callers still use the object.
            self._stores[resource] = object_cache.ObjectCache(
                lambda obj: obj, lambda obj: None, readmits=True)
        return self._stores[resource]


class VirtualMachines:
    """VMs: uid, whether they are being deleted, permitted namespaces."""

    def __init__(self) -> None:
        self._found = {}

    def put(self, obj) -> bool:
        """Store a VM.

        :param obj: dict with metadata
        :returns: whether anything changed that matters to a BMC
        """
        metadata = obj['metadata']
        at = metadata['namespace'], metadata['name']
        found = (metadata['uid'], 'deletionTimestamp' in metadata,
                 (metadata.get('annotations') or {}).get(
                     permissions.ANNOTATION))
        if self._found.get(at) == found:
            return False
        self._found[at] = found
        return True

    def drop(self, namespace, name) -> bool:
        """:returns: whether it was cached"""
        return self._found.pop((namespace, name), None) is not None

    def deleted(self, obj):
        """Remove a VM that was deleted.

        :param obj: dict with metadata
        :returns: whether it was cached
        """
        return self.drop(obj['metadata']['namespace'],
                         obj['metadata']['name'])

    def get(self, at):
        """Look up a VM.

        :param at: `spec.Reference`
        :returns: dict with apiVersion, kind and metadata, or None
        """
        found = self._found.get((at.namespace, at.name))
        if found is None:
            return None
        uid, deleting, allowed = found
        metadata = {'namespace': at.namespace, 'name': at.name, 'uid': uid}
        if deleting:
            metadata['deletionTimestamp'] = True
        if allowed is not None:
            metadata['annotations'] = {permissions.ANNOTATION: allowed}
        return {'apiVersion': bmc_resources.VM.api_version,
                'kind': bmc_resources.VM.kind, 'metadata': metadata}

    def names(self):
        """:returns: list of (namespace, name)"""
        return list(self._found)


class Secrets:
    """The versions of all Secrets, and summaries of those that were read.

    :param api: an `api.Api`
    """

    def __init__(self, api) -> None:
        self._api = api
        self._versions = {}
        self._summaries = {}
        self._deleted = {}

    def put(self, obj) -> bool:
        """Store the version in an event of a watch.

        :param obj: dict with metadata
        :returns: whether it is newer than that of the previous event
        """
        at, version = object_cache.object_key(obj), _version(obj)
        if self._versions.get(at, -1) >= version:
            return False
        self._deleted.pop(at, None)
        self._versions[at] = version
        return True

    def take(self, secret):
        """Store a Secret from the response to a request.

        :param secret: dict
        :returns: `secret_summary.Summary`
        """
        at = object_cache.object_key(secret)
        # Do not change the watch's version: its event must still wake other
        # BMCs that use the Secret. The response may also arrive after the
        # event of the deletion, which is not repeated.
        made = secret_summary.summarize(secret)
        if _version(secret) >= max(self._summarized(at),
                                   self._deleted.get(at, -1)):
            self._summaries[at] = made
        return made

    def drop(self, namespace, name) -> bool:
        """:returns: whether it was cached"""
        at = namespace, name
        summary = self._summaries.pop(at, None)
        return self._versions.pop(at, None) is not None or (
            summary is not None)

    def deleted(self, obj) -> bool:
        """Remove a Secret that was deleted.

        :param obj: dict with its last metadata
        :returns: whether BMCs that use it must be reconciled; True also if
            the operator deleted it, as other BMCs may use it
        """
        at, version = object_cache.object_key(obj), _version(obj)
        if version < max(self._versions.get(at, -1), self._summarized(at)):
            # It was created again meanwhile.
            return False
        self._deleted[at] = version
        if len(self._deleted) > _MAX_DELETED:
            self._deleted.pop(next(iter(self._deleted)))
        self.drop(*at)
        return True

    def drop_summary(self, at) -> None:
        """Remove the summary of a Secret that no BMC refers to any more.

        :param at: `spec.Reference`
        """
        self._summaries.pop((at.namespace, at.name), None)

    def names(self):
        """:returns: list of (namespace, name)"""
        return list({**self._versions, **self._summaries})

    async def get(self, at):
        """Look up a Secret; read it if its version has changed.

        :param at: `spec.Reference`
        :returns: `secret_summary.Summary`, or None
        :raises: `errors.MachineError`
        """
        where = at.namespace, at.name
        if self._summarized(where) < self._versions.get(where, -1):
            return await self.read(at)
        return self._summaries.get(where)

    def _summarized(self, where):
        """:returns: the version that was summarized; -1 for none"""
        summary = self._summaries.get(where)
        return -1 if summary is None else _version(summary.obj)

    async def read(self, at):
        """Read a Secret.

        :param at: `spec.Reference`
        :returns: `secret_summary.Summary`, or None
        :raises: `errors.MachineError`
        """
        try:
            return self.take(await self._api.get(
                bmc_resources.SECRET, at.namespace, at.name))
        except errors.ObjectNotFound:
            # The watch will report the deletion, or a new Secret.
            self._summaries.pop((at.namespace, at.name), None)
            return None


def _version(obj):
    return object_cache.version_number(
        obj['metadata'].get('resourceVersion')) or 0


def _refs(bmc):
    """:returns: iterator of (plural, namespace, name) of a BMC's objects and
        of those it refers to
    """
    for resource, namespace, name in observed_state.object_refs(bmc):
        yield resource.plural, namespace, name
    yield bmc_resources.VM.plural, bmc.vm.namespace, bmc.vm.name
    if naming.vm_service(bmc):
        # A BMC of this name needs the name of that Service.
        yield bmc_resources.BMC.plural, bmc.namespace, bmc.vm.name
    for at in observed_state.secret_refs(bmc).all():
        yield bmc_resources.SECRET.plural, at.namespace, at.name


def _trimmed(obj):
    """:returns: the object without the metadata that `drift` ignores"""
    metadata = dict(obj['metadata'])
    foreign_fields = drift.foreign_fields(obj)
    metadata.pop('managedFields', None)
    if foreign_fields:
        metadata['managedFields'] = foreign_fields
    annotations = metadata.get('annotations')
    if annotations:
        metadata['annotations'] = {
            name: value for name, value in annotations.items()
            if name != _LAST_APPLIED}
    return {**obj, 'metadata': metadata}
