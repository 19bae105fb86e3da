# SPDX-License-Identifier: Apache-2.0
"""Checks the storage classes that virtual media need."""

from __future__ import annotations

from collections import abc
import typing

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import objects
from sushy_kubevirt.machine import options
from sushy_kubevirt.operator.diagnose import findings
from sushy_kubevirt.operator.diagnose import kinds

if typing.TYPE_CHECKING:
    from sushy_kubevirt.operator.diagnose import reader as readers
    from sushy_kubevirt.operator import spec

AREA = 'Storage'

#: Annotations of a default class: Kubernetes', and KubeVirt's, which CDI
#: prefers for volumes of VMs.
_DEFAULT = ('storageclass.kubernetes.io/is-default-class',
            'storageclass.beta.kubernetes.io/is-default-class')
_VIRT_DEFAULT = 'storageclass.kubevirt.io/is-default-virt-class'

#: Provisioner of classes whose volumes an administrator creates.
_NO_PROVISIONER = 'kubernetes.io/no-provisioner'

#: Access mode that BMCs request, unless their spec has another; and the value
#: that leaves it to CDI's StorageProfile.
_MODE = options.MediaOptions().access_mode
_AUTO = 'auto'


def default_class(reader: readers.Reader) -> abc.Iterator[findings.Finding]:
    """Check the class of media whose BMC names none."""
    classes = _classes(reader)
    name = _default(classes.values())
    if name is None:
        yield findings.warning(
            'NoDefaultStorageClass', 'The cluster has no default storage class'
            + (f" (but {', '.join(sorted(classes))})" if classes else
               ', nor any other') + ': virtual media of BMCs that name none '
            'are not provided.',
            f'Annotate one with {_DEFAULT[0]}=true, or set '
            'spec.virtualMedia.storageClassName of the BMCs.')
        return
    yield from _check(reader, classes[name],
                      f'Default storage class {name}', _MODE)


def of_bmc(reader: readers.Reader, media: spec.Media
           ) -> abc.Iterator[findings.Finding]:
    """Check the class and the access mode that a BMC names, if any."""
    if not media.storage_class and not media.access_mode:
        return
    classes = _classes(reader)
    name = media.storage_class or _default(classes.values())
    if media.storage_class and name not in classes:
        yield findings.problem(
            'StorageClassMissing',
            f'Storage class {name} of spec.virtualMedia.storageClassName does '
            'not exist: virtual media are not provided.',
            'Create it, or name another one.')
    elif name:
        yield from _check(reader, classes[name], f'Storage class {name}',
                          media.access_mode or _MODE)


def _classes(reader: readers.Reader) -> dict[str, objects.Json]:
    return {storage_class['metadata']['name']: storage_class
            for storage_class in reader.list(kinds.STORAGE_CLASS)}


def _default(classes: abc.Iterable[objects.Json]) -> str | None:
    """Find the default class as CDI does: of several, the newest."""
    for keys in ((_VIRT_DEFAULT,), _DEFAULT):
        marked = [
            storage_class['metadata'] for storage_class in classes
            if any(objects.annotations_of(storage_class).get(key) == 'true'
                   for key in keys)]
        if marked:
            marked.sort(key=lambda metadata: metadata['name'])
            newest = max(marked, key=lambda metadata: metadata.get(
                'creationTimestamp', ''))
            name: str = newest['name']
            return name
    return None


def _check(reader: readers.Reader, storage_class: objects.Json, what: str,
           mode: str) -> abc.Iterator[findings.Finding]:
    name = storage_class['metadata']['name']
    provisioner = storage_class.get('provisioner')
    if provisioner == _NO_PROVISIONER:
        yield findings.warning(
            'NoProvisioner', f'{what} has no provisioner: a medium '
            'waits until an administrator creates a volume for it.',
            'Use a class with a provisioner.')
    if not reader.client.serves_group(api_resources.DATA_VOLUME.group):
        return
    profile = reader.get(kinds.STORAGE_PROFILE, None, name) or {}
    modes = sorted({
        mode for properties in (profile.get('status') or {}).get(
            'claimPropertySets') or ()
        for mode in properties.get('accessModes') or ()})
    if not modes and mode == _AUTO:
        yield findings.warning(
            'AccessModeUnknown',
            f"CDI's StorageProfile of {what[:1].lower()}{what[1:]} has no "
            'access mode, and spec.virtualMedia.accessMode is auto: CDI '
            'refuses the claims of media.', 'Name a mode.')
    elif modes and mode not in (_AUTO, *modes):
        yield findings.warning(
            'AccessModeNotOffered',
            f"{what} offers {', '.join(modes)} by CDI's StorageProfile, and "
            f'{mode} is requested: if its provisioner refuses that, media '
            'are not provided.',
            'Set spec.virtualMedia.accessMode of the BMC, or use another '
            'class for media (spec.virtualMedia.storageClassName).')
    else:
        yield findings.ok(
            'StorageClassFound', f'{what} ({provisioner}) '
            + (f"offers {', '.join(modes)}." if modes else
               'exists; CDI does not know its access modes.'))
