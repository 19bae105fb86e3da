# SPDX-License-Identifier: Apache-2.0
"""Resources of the Kubernetes and KubeVirt APIs, and their URL paths."""

from __future__ import annotations

import dataclasses
import typing

from sushy_kubevirt.kube import objects

#: API group that serves start, stop, restart, pause …
SUBRESOURCES_GROUP = 'subresources.kubevirt.io'


@dataclasses.dataclass(frozen=True)
class Resource(typing.Generic[objects.ObjectT]):
    """A resource type of the API; the group is '' in the core API."""

    group: str
    version: str
    plural: str
    kind: str

    def __str__(self) -> str:
        return '.'.join(filter(None, (self.plural, self.group)))

    @property
    def api_version(self) -> str:
        """``apiVersion`` of its objects: ``group/version``, or ``v1``."""
        return '/'.join(filter(None, (self.group, self.version)))

    def path(self, namespace: str | None, name: str | None = None,
             sub: str | None = None, group: str | None = None) -> str:
        """Return the URL path of the collection or of one object.

        :param namespace: None or '' for all namespaces
        :param sub: such as ``status``, below the object itself
        :param group: of a subresource that is served in another group
        """
        group = group or self.group
        return '/'.join(filter(None, (
            f'/apis/{group}' if group else '/api', self.version,
            namespace and f'namespaces/{namespace}', self.plural, name, sub)))


#: A resource of objects whose type does not matter.
AnyResource: typing.TypeAlias = Resource[typing.Any]

VM: Resource[objects.VirtualMachine] = Resource(
    'kubevirt.io', 'v1', 'virtualmachines', 'VirtualMachine')
VMI: Resource[objects.VirtualMachineInstance] = Resource(
    'kubevirt.io', 'v1', 'virtualmachineinstances', 'VirtualMachineInstance')
KUBEVIRT: Resource[objects.Json] = Resource(
    'kubevirt.io', 'v1', 'kubevirts', 'KubeVirt')
POD: Resource[objects.Json] = Resource('', 'v1', 'pods', 'Pod')
SECRET: Resource[objects.Json] = Resource('', 'v1', 'secrets', 'Secret')
EVENT: Resource[objects.Json] = Resource('', 'v1', 'events', 'Event')
CONFIG_MAP: Resource[objects.Json] = Resource(
    '', 'v1', 'configmaps', 'ConfigMap')
CLAIM: Resource[objects.Json] = Resource(
    '', 'v1', 'persistentvolumeclaims', 'PersistentVolumeClaim')
DATA_VOLUME: Resource[objects.DataVolume] = Resource(
    'cdi.kubevirt.io', 'v1beta1', 'datavolumes', 'DataVolume')
UPLOAD_TOKEN: Resource[objects.Json] = Resource(
    'upload.cdi.kubevirt.io', 'v1beta1', 'uploadtokenrequests',
    'UploadTokenRequest')
