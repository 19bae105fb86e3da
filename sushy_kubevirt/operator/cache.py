# SPDX-License-Identifier: Apache-2.0
"""What the operator keeps of the objects of each kind; see `store`.

BMCs and the objects created for them are kept completely, but compressed, in
the `object_cache.ObjectCache` that the BMC processes also use. Of VMs and
Secrets, which belong to users, little is kept; a Secret that a BMC refers to
is read when its version has changed, and only a `secret_summary.Summary` of it
is kept.
"""

from __future__ import annotations

from collections import abc
import json
import sys
import typing

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import object_cache
from sushy_kubevirt.kube import objects
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import boot_override
from sushy_kubevirt.operator import command_line
from sushy_kubevirt.operator import drift
from sushy_kubevirt.operator.metal3 import fields
from sushy_kubevirt.operator.metal3 import templates
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import secret_summary

if typing.TYPE_CHECKING:
    from sushy_kubevirt.operator import api

#: Prefix of the operator's own labels and annotations.
_OWN = naming.GROUP + '/'

#: Annotation that repeats the whole object.
_LAST_APPLIED = 'kubectl.kubernetes.io/last-applied-configuration'

#: Maximum number of deleted VMs, and Secrets, that are recorded, for seconds,
#: to ignore responses that arrive after the deletion.
_MAX_DELETED = 1000


def without_managed_fields(obj: objects.ObjectT) -> objects.ObjectT:
    """Return a copy of an object without the largest part of its metadata."""
    return typing.cast('objects.ObjectT', {**obj, 'metadata': {
        key: value for key, value in obj['metadata'].items()
        if key != 'managedFields'}})


class Compressed(object_cache.ObjectCache[objects.ObjectT]):
    """Objects of one kind.

    :param keep: returns what of an object is kept, which it does not modify
    """

    def __init__(self, keep: abc.Callable[[objects.ObjectT], objects.ObjectT]
                 = without_managed_fields) -> None:
        # Readmits, as an update may have the version of a patch's answer.
        super().__init__(lambda obj: obj, lambda obj: None, readmits=True)
        self._keep = keep

    def put(self, obj: objects.ObjectT) -> bool:
        """Store an object, unless a newer version is cached.

        :param obj: is not modified
        :returns: whether it was newer than the cached one
        """
        return self.is_news(obj) and super().put(self._keep(obj))

    def last(self, key: objects.ObjectKey) -> objects.ObjectT | None:
        """Return an object, the caller's own; None if it is not cached."""
        entry = self.get(key)
        return None if entry is None else entry.unpack()


class _Vm(typing.NamedTuple):
    """A VM.

    :param text: what else is kept of it, as JSON; most VMs share one text
    :param override: see `VirtualMachines.boot_override`, as JSON
    """

    uid: str
    version: int | None
    text: str
    override: str


class VirtualMachines:
    """VMs: what matters to BMCs, BareMetalHosts and HostClaims.

    That is their identity, whether they are being deleted, labels that the
    options name, the operator's own labels, annotations and finalizer, and
    their boot override. Templates for HostClaims are kept completely.
    """

    def __init__(self, options: command_line.Options) -> None:
        self._options = options
        self._labels = command_line.selector_labels(
            options.auto_create or '', negated=True)
        if options.bare_metal_hosts:
            self._labels |= {options.host_failure_domain,
                             *command_line.selector_labels(
                                 options.bare_metal_hosts)}
        self._vms: dict[objects.ObjectKey, _Vm] = {}
        # Those of which an answer may arrive later, by uid.
        self._deleted: dict[str, None] = {}

    def put(self, obj: objects.Object) -> bool:
        """Store a VM.

        :returns: whether what is kept of it has changed
        """
        key, metadata = object_cache.object_key(obj), obj['metadata']
        version = object_cache.version_number(metadata.get('resourceVersion'))
        held = self._vms.get(key)
        if metadata['uid'] in self._deleted or held is not None and (
                not object_cache.is_newer(version, held.version)):
            return False
        self._vms[key] = vm = _Vm(metadata['uid'], version, *(
            sys.intern(json.dumps(part)) for part in (
                self._kept(obj),
                boot_override.of(typing.cast('objects.VirtualMachine', obj)))))
        return held is None or held._replace(version=version) != vm

    def remove(self, obj: objects.Object) -> bool:
        """Remove a VM that was deleted; return whether it was cached."""
        key, uid = object_cache.object_key(obj), obj['metadata']['uid']
        self._deleted[uid] = None
        _limit(self._deleted)
        held = self._vms.get(key)
        return held is not None and held.uid == uid and self.discard(key)

    def discard(self, key: objects.ObjectKey) -> bool:
        """Remove a VM; return whether it was cached."""
        return self._vms.pop(key, None) is not None

    def last(self, key: objects.ObjectKey) -> objects.VirtualMachine | None:
        """Return what is kept of a VM, the caller's own."""
        vm = self._vms.get(key)
        if vm is None:
            return None
        kept = json.loads(vm.text)
        kept['metadata'].update(
            namespace=key.namespace, name=key.name, uid=vm.uid,
            resourceVersion=str(vm.version or ''))
        return kept

    def boot_override(self, key: objects.ObjectKey) -> objects.Json | None:
        """Return the boot override of a VM, see `boot_override.of`."""
        vm = self._vms.get(key)
        return None if vm is None else json.loads(vm.override)

    def keys(self) -> list[objects.ObjectKey]:
        """Return the keys of all VMs."""
        return list(self._vms)

    def _kept(self, vm: objects.AnyObject) -> objects.Json:
        metadata = vm['metadata']
        kept: objects.Json = {}
        labels, annotations = (metadata.get(field) or {} for field in (
            'labels', 'annotations'))
        result: objects.Json = {
            'apiVersion': bmc_resources.VM.api_version,
            'kind': bmc_resources.VM.kind, 'metadata': kept}
        if (templates.is_template(vm) and metadata['namespace']
                == self._options.claim_templates):
            result['spec'] = vm['spec']
        else:
            labels = {name: value for name, value in labels.items()
                      if self._needs_label(name)}
            annotations = {
                name: value for name, value in annotations.items()
                if name.startswith(_OWN)}
        # Whether it is there is asked for, not the time.
        for field, value in (
                ('labels', labels), ('annotations', annotations),
                ('finalizers', [
                    name for name in metadata.get('finalizers') or ()
                    if name == stored_names.HOST_FINALIZER])):
            if value:
                kept[field] = value
        if 'deletionTimestamp' in metadata:
            kept['deletionTimestamp'] = ''
        failures = [condition for condition in (vm.get('status') or {}).get(
            'conditions') or () if condition['type'] == 'Failure']
        if failures:
            result['status'] = {'conditions': failures}
        return result

    def _needs_label(self, name: str) -> bool:
        return name in self._labels or name.startswith(_OWN) or (
            self._options.bare_metal_hosts is not None
            and fields.is_copied(name, self._options))


class Secrets:
    """The versions of all Secrets, and summaries of those that were read.

    ``sources`` has the `stored_names.SECRET_VERSION` of those with it.
    """

    def __init__(self, api: api.Api) -> None:
        self._api = api
        self._versions: dict[objects.ObjectKey, int] = {}
        self._summaries: dict[objects.ObjectKey, secret_summary.Summary] = {}
        self._deleted: dict[objects.ObjectKey, int] = {}
        self.sources: dict[objects.ObjectKey, str] = {}

    def put(self, obj: objects.Object) -> bool:
        """Store the version in an event of a watch, or in an answer, which may
        be late.

        :returns: whether it is newer than that of the previous event
        """
        key, version = object_cache.object_key(obj), _version(obj)
        if max(self._versions.get(key, -1),
               self._deleted.get(key, -1)) >= version:
            return False
        self._deleted.pop(key, None)
        self._versions[key] = version
        source = (obj['metadata'].get('annotations') or {}).get(
            stored_names.SECRET_VERSION)
        if source is None:
            self.sources.pop(key, None)
        else:
            self.sources[key] = source
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

    def discard(self, key: objects.ObjectKey) -> bool:
        """Remove a Secret; return whether it was cached."""
        self.sources.pop(key, None)
        summary = self._summaries.pop(key, None)
        return self._versions.pop(key, None) is not None or (
            summary is not None)

    def remove(self, obj: objects.Object) -> bool:
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
        _limit(self._deleted)
        self.discard(key)
        return True

    def drop_summary(self, key: objects.ObjectKey) -> None:
        """Remove the summary of a Secret that no BMC refers to any more."""
        self._summaries.pop(key, None)

    def keys(self) -> list[objects.ObjectKey]:
        """Return the keys of all Secrets."""
        return list({**self._versions, **self._summaries})

    def last(self, key: objects.ObjectKey) -> None:
        """Return None: no metadata is kept."""

    def version(self, key: objects.ObjectKey) -> str | None:
        """Return the version of a Secret; None if it does not exist."""
        version = self._versions.get(key)
        return None if version is None else str(version)

    async def get(self, key: objects.ObjectKey
                  ) -> secret_summary.Summary | None:
        """Look up a Secret; read it if its version has changed.

        :raises: `errors.MachineError`
        """
        if self._summarized(key) < self._versions.get(key, -1):
            return await self.read(key)
        return self._summaries.get(key)

    def _summarized(self, key: objects.ObjectKey) -> int:
        """Return the version that was summarized; -1 for none."""
        summary = self._summaries.get(key)
        return -1 if summary is None else (
            object_cache.version_number(summary.version) or 0)

    async def read(self, key: objects.ObjectKey
                   ) -> secret_summary.Summary | None:
        """Read a Secret.

        :raises: `errors.MachineError`
        """
        try:
            return self.take(await self._api.get(
                bmc_resources.SECRET, *key))
        except errors.ObjectNotFound:
            # The watch will report the deletion, or a new Secret.
            self.drop_summary(key)
            return None


#: What is kept of the objects of one kind. ``put`` and ``remove`` return
#: whether that has changed.
Kept: typing.TypeAlias = Compressed[typing.Any] | VirtualMachines | Secrets


def _limit(deleted: dict[typing.Any, typing.Any]) -> None:
    if len(deleted) > _MAX_DELETED:
        del deleted[next(iter(deleted))]


def _version(obj: objects.AnyObject) -> int:
    return object_cache.version_number(
        obj['metadata'].get('resourceVersion')) or 0


def trimmed(obj: objects.AnyObject) -> objects.Json:
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
