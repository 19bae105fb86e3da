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

from collections import abc
import typing

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import object_cache
from sushy_kubevirt.kube import objects
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import drift
from sushy_kubevirt.operator import facts
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import permissions
from sushy_kubevirt.operator import secret_summary
from sushy_kubevirt.operator import spec

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import api_resources
    from sushy_kubevirt.operator import api

_OWNED = frozenset(resource.kind for resource in (
    *bmc_resources.OWNED, bmc_resources.ROUTE))

#: Annotation that repeats the whole object.
_LAST_APPLIED = 'kubectl.kubernetes.io/last-applied-configuration'

#: Maximum number of deleted Secrets whose versions are kept, for seconds, to
#: ignore responses that arrive after the deletion.
_MAX_DELETED = 1000


class Cache:
    """All cached objects.

    ``objects`` has BMCs and the objects created for them.
    ``route_problems`` has what `route_problem` returns, by namespace; under
    None, for all namespaces.
    """

    def __init__(self, api: api.Api) -> None:
        self.objects = Objects()
        self.machines = VirtualMachines()
        self.secrets = Secrets(api)
        self.route_problems: dict[str | None, str | None] = {}
        self._users: dict[bmc_resources.ObjectRef,
                          tuple[objects.ObjectKey, ...]] = {}
        self._refs: dict[objects.ObjectKey,
                         tuple[bmc_resources.ObjectRef, ...]] = {}

    def route_problem(self, namespace: str) -> str | None:
        """Tell why BMCs of a namespace cannot have Routes.

        :returns: `routes.MISSING`, `routes.FORBIDDEN` or `routes.UNLISTED`;
            None if they can
        """
        return self.route_problems.get(
            namespace, self.route_problems.get(None))

    def bmc(self, key: objects.ObjectKey) -> objects.VirtualMachineBMC | None:
        """Look up a BMC."""
        return self.objects.get(bmc_resources.BMC, *key)

    def put_bmc(self, body: objects.VirtualMachineBMC) -> bool:
        """Store a BMC.

        :returns: whether it is newer than what was cached
        """
        if not self.objects.put(bmc_resources.BMC, body):
            return False
        bmc = spec.read(body)
        key = objects.ObjectKey(bmc.namespace, bmc.name)
        refs = tuple(_refs(bmc))
        if self._refs.get(key) != refs:
            self._drop_refs(key)
            self._refs[key] = refs
            for ref in refs:
                self._users[ref] = (*self._users.get(ref, ()), key)
        return True

    def drop_bmc(self, key: objects.ObjectKey) -> bool:
        """Remove a BMC.

        :returns: whether there was one
        """
        self._drop_refs(key)
        return self.objects.drop(bmc_resources.BMC, *key)

    def bmcs(self) -> list[objects.ObjectKey]:
        """Return the keys of all BMCs."""
        return self.objects.names(bmc_resources.BMC)

    def users_of(self, resource: api_resources.AnyResource,
                 namespace: str, name: str) -> tuple[objects.ObjectKey, ...]:
        """Return the keys of the BMCs that have or name an object."""
        return self._users.get(bmc_resources.ObjectRef(
            resource.kind, namespace, name), ())

    def reserves_vm_service(self, bmc: spec.Bmc) -> bool:
        """Tell whether another BMC needs the name of `naming.vm_service`."""
        second = naming.vm_service(bmc)
        return (second is not None and second == naming.base(bmc.vm.name)
                and self.bmc(objects.ObjectKey(
                    bmc.namespace, bmc.vm.name)) is not None)

    def objects_of(self, bmc: spec.Bmc
                   ) -> dict[bmc_resources.ObjectRef, objects.Json]:
        """Look up the objects of a BMC that exist."""
        live = {}
        for resource, namespace, name in facts.object_refs(bmc):
            obj = self.objects.get(resource, namespace, name)
            if obj is not None:
                live[bmc_resources.ObjectRef(
                    resource.kind, namespace, name)] = obj
        return live

    def _drop_refs(self, key: objects.ObjectKey) -> None:
        for ref in self._refs.pop(key, ()):
            users = tuple(user for user in self._users[ref] if user != key)
            if users:
                self._users[ref] = users
                continue
            del self._users[ref]
            if ref.kind == bmc_resources.SECRET.kind:
                self.secrets.drop_summary(
                    spec.Reference(ref.namespace, ref.name))
            elif ref.kind in _OWNED:
                self._drop_foreign(ref)

    def _drop_foreign(self, ref: bmc_resources.ObjectRef) -> None:
        """Remove a foreign object, whose deletion no watch would report."""
        resource = bmc_resources.of_kind(ref.kind)
        obj = self.objects.get(resource, ref.namespace, ref.name)
        if obj is not None and not naming.made_by_us(obj):
            self.objects.drop(resource, ref.namespace, ref.name)


class Objects:
    """Objects by kind, namespace and name, in one cache for each kind."""

    def __init__(self) -> None:
        self._stores: dict[api_resources.AnyResource,
                           object_cache.ObjectCache[typing.Any]] = {}

    def put(self, resource: api_resources.Resource[objects.ObjectT],
            obj: objects.ObjectT) -> bool:
        """Store an object, unless a newer version is cached.

        :param obj: is not modified
        :returns: whether it was newer than the cached one
        """
        return self._of(resource).put(_trimmed(obj))

    def deleted(self, resource: api_resources.Resource[objects.ObjectT],
                obj: objects.ObjectT) -> bool:
        """Remove an object that was deleted or lost its label.

        :param obj: its last state
        :returns: whether it was cached
        """
        return bool(self._of(resource).remove(obj))

    def drop(self, resource: api_resources.AnyResource,
             namespace: str, name: str) -> bool:
        """Remove an object.

        :returns: whether it was cached
        """
        return self._of(resource).discard(objects.ObjectKey(namespace, name))

    def get(self, resource: api_resources.Resource[objects.ObjectT],
            namespace: str, name: str) -> objects.ObjectT | None:
        """Return an object, the caller's own; None if it is not cached."""
        entry = self._of(resource).get(objects.ObjectKey(namespace, name))
        return None if entry is None else entry.unpack()

    def names(self, resource: api_resources.AnyResource
              ) -> list[objects.ObjectKey]:
        """Return the keys of all objects of a kind."""
        return self._of(resource).keys()

    def _of(self, resource: api_resources.AnyResource
            ) -> object_cache.ObjectCache[typing.Any]:
        if resource not in self._stores:
            # `put` trims a copy, as callers still use the object.
            self._stores[resource] = object_cache.ObjectCache(
                lambda obj: obj, lambda obj: None, readmits=True)
        return self._stores[resource]


class _Vm(typing.NamedTuple):
    """What is kept of a VM.

    :param deleting: whether it is being deleted
    :param allowed: value of `permissions.ANNOTATION`
    """

    uid: str
    deleting: bool
    allowed: str | None


class VirtualMachines:
    """VMs: uid, whether they are being deleted, permitted namespaces."""

    def __init__(self) -> None:
        self._vms: dict[objects.ObjectKey, _Vm] = {}

    def put(self, obj: objects.Object) -> bool:
        """Store a VM.

        :returns: whether anything changed that matters to a BMC
        """
        metadata = obj['metadata']
        key = objects.ObjectKey(metadata['namespace'], metadata['name'])
        vm = _Vm(metadata['uid'], 'deletionTimestamp' in metadata,
                 (metadata.get('annotations') or {}).get(
                     permissions.ANNOTATION))
        if self._vms.get(key) == vm:
            return False
        self._vms[key] = vm
        return True

    def drop(self, namespace: str, name: str) -> bool:
        """Remove a VM; return whether it was cached."""
        return self._vms.pop(
            objects.ObjectKey(namespace, name), None) is not None

    def deleted(self, obj: objects.Object) -> bool:
        """Remove a VM that was deleted; return whether it was cached."""
        return self.drop(obj['metadata']['namespace'],
                         obj['metadata']['name'])

    def get(self, reference: spec.Reference) -> objects.Object | None:
        """Look up a VM, as a new object with a part of the metadata."""
        vm = self._vms.get(objects.ObjectKey(
            reference.namespace, reference.name))
        if vm is None:
            return None
        metadata: objects.ObjectMeta = {
            'namespace': reference.namespace, 'name': reference.name,
            'uid': vm.uid}
        if vm.deleting:
            # Its presence is asked for, not the time.
            metadata['deletionTimestamp'] = ''
        if vm.allowed is not None:
            metadata['annotations'] = {permissions.ANNOTATION: vm.allowed}
        return {'apiVersion': bmc_resources.VM.api_version,
                'kind': bmc_resources.VM.kind, 'metadata': metadata}

    def names(self) -> list[objects.ObjectKey]:
        """Return the keys of all VMs."""
        return list(self._vms)


class Secrets:
    """The versions of all Secrets, and summaries of those that were read."""

    def __init__(self, api: api.Api) -> None:
        self._api = api
        self._versions: dict[objects.ObjectKey, int] = {}
        self._summaries: dict[objects.ObjectKey, secret_summary.Summary] = {}
        self._deleted: dict[objects.ObjectKey, int] = {}

    def put(self, obj: objects.Object) -> bool:
        """Store the version in an event of a watch.

        :returns: whether it is newer than that of the previous event
        """
        key, version = object_cache.object_key(obj), _version(obj)
        if self._versions.get(key, -1) >= version:
            return False
        self._deleted.pop(key, None)
        self._versions[key] = version
        return True

    def take(self, secret: objects.Json) -> secret_summary.Summary:
        """Store a Secret from the response to a request."""
        key = object_cache.object_key(secret)
        # Do not change the watch's version: its event must still wake other
        # BMCs that use the Secret. The response may also arrive after the
        # event of the deletion, which is not repeated.
        summary = secret_summary.summarize(secret)
        if _version(secret) >= max(self._summarized(key),
                                   self._deleted.get(key, -1)):
            self._summaries[key] = summary
        return summary

    def drop(self, namespace: str, name: str) -> bool:
        """Remove a Secret; return whether it was cached."""
        key = objects.ObjectKey(namespace, name)
        summary = self._summaries.pop(key, None)
        return self._versions.pop(key, None) is not None or (
            summary is not None)

    def deleted(self, obj: objects.Object) -> bool:
        """Remove a Secret that was deleted.

        :param obj: its last metadata
        :returns: whether BMCs that use it must be reconciled; True also if
            the operator deleted it, as other BMCs may use it
        """
        key, version = object_cache.object_key(obj), _version(obj)
        if version < max(self._versions.get(key, -1), self._summarized(key)):
            # It was created again meanwhile.
            return False
        self._deleted[key] = version
        if len(self._deleted) > _MAX_DELETED:
            self._deleted.pop(next(iter(self._deleted)))
        self.drop(*key)
        return True

    def drop_summary(self, reference: spec.Reference) -> None:
        """Remove the summary of a Secret that no BMC refers to any more."""
        self._summaries.pop(objects.ObjectKey(
            reference.namespace, reference.name), None)

    def names(self) -> list[objects.ObjectKey]:
        """Return the keys of all Secrets."""
        return list({**self._versions, **self._summaries})

    async def get(self, reference: spec.Reference
                  ) -> secret_summary.Summary | None:
        """Look up a Secret; read it if its version has changed.

        :raises: `errors.MachineError`
        """
        key = objects.ObjectKey(reference.namespace, reference.name)
        if self._summarized(key) < self._versions.get(key, -1):
            return await self.read(reference)
        return self._summaries.get(key)

    def _summarized(self, key: objects.ObjectKey) -> int:
        """Return the version that was summarized; -1 for none."""
        summary = self._summaries.get(key)
        return -1 if summary is None else _version(summary.obj)

    async def read(self, reference: spec.Reference
                   ) -> secret_summary.Summary | None:
        """Read a Secret.

        :raises: `errors.MachineError`
        """
        try:
            return self.take(await self._api.get(
                bmc_resources.SECRET, reference.namespace, reference.name))
        except errors.ObjectNotFound:
            # The watch will report the deletion, or a new Secret.
            self.drop_summary(reference)
            return None


def _version(obj: objects.AnyObject) -> int:
    return object_cache.version_number(
        obj['metadata'].get('resourceVersion')) or 0


def _refs(bmc: spec.Bmc) -> abc.Iterator[bmc_resources.ObjectRef]:
    """List a BMC's objects and those it refers to."""
    for resource, namespace, name in facts.object_refs(bmc):
        yield bmc_resources.ObjectRef(resource.kind, namespace, name)
    yield bmc_resources.ObjectRef(
        bmc_resources.VM.kind, bmc.vm.namespace, bmc.vm.name)
    if naming.vm_service(bmc):
        # A BMC of this name needs the name of that Service.
        yield bmc_resources.ObjectRef(
            bmc_resources.BMC.kind, bmc.namespace, bmc.vm.name)
    for secret in dict.fromkeys(filter(None, facts.secret_refs(bmc))):
        yield bmc_resources.ObjectRef(
            bmc_resources.SECRET.kind, secret.namespace, secret.name)


def _trimmed(obj: objects.AnyObject) -> objects.Json:
    """Return an object without the metadata that `drift` ignores."""
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
