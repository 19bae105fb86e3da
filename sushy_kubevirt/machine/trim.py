# SPDX-License-Identifier: Apache-2.0
"""Removal of the parts of VMs and VMIs that the cache does not keep.

A BMC may cache a thousand VMs. Bookkeeping of other components, scheduling
and the guest's secrets (cloud-init, sysprep) are never used here, so they are
removed before an object is stored.
"""

from __future__ import annotations

import typing

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import objects

_ANNOTATIONS = ('kubectl.kubernetes.io/last-applied-configuration',
                'kubevirt.io/storage-observed-api-version')
_VMI_SPEC = ('affinity', 'tolerations', 'nodeSelector', 'dnsConfig',
             'topologySpreadConstraints', 'accessCredentials',
             'readinessProbe', 'livenessProbe')
_VMI_STATUS = ('topologyHints', 'selinuxContext', 'migratedVolumes',
               'launcherContainerImageVersion')
_GUEST_OS = 'guestOSInfo'
_GUEST_OS_FIELDS = 'prettyName', 'version'
_PHASE_TIMES = 'phaseTransitionTimestamps'
_SECRET_SOURCES = ('cloudInitNoCloud', 'cloudInitConfigDrive', 'sysprep')


def vm(obj: objects.VirtualMachine) -> objects.VirtualMachine:
    """Remove unused parts of a VirtualMachine in place."""
    _metadata(obj)
    spec = obj.get('spec') or {}
    template = spec.get('template') or {}
    _spec(template.get('spec') or {})
    for volume in spec.get('dataVolumeTemplates') or ():
        volume.pop('status', None)
        volume.get('spec', {}).pop('source', None)
    return obj


def vmi(obj: objects.VirtualMachineInstance
        ) -> objects.VirtualMachineInstance:
    """Remove unused parts of a VirtualMachineInstance in place."""
    _metadata(obj)
    _spec(obj.get('spec') or {})
    # These parts are no fields of the types.
    status: typing.Any = obj.get('status') or {}
    for field in _VMI_STATUS:
        status.pop(field, None)
    guest = status.pop(_GUEST_OS, None) or {}
    guest = {field: guest[field] for field in _GUEST_OS_FIELDS
             if guest.get(field)}
    if guest:
        status[_GUEST_OS] = guest
    transitions = [
        transition for transition in status.pop(_PHASE_TIMES, None) or ()
        if transition.get('phase') in ('Running', status.get('phase'))]
    if transitions:
        # The best available time of the power-on, and of a failed start.
        status[_PHASE_TIMES] = transitions
    return obj


def _metadata(obj: typing.Any) -> None:
    obj.pop('apiVersion', None)
    obj.pop('kind', None)
    metadata = obj['metadata']
    metadata.pop('managedFields', None)
    annotations = metadata.get('annotations')
    if annotations:
        for name in _ANNOTATIONS:
            annotations.pop(name, None)


def _spec(spec: typing.Any) -> None:
    for field in _VMI_SPEC:
        spec.pop(field, None)
    for volume in spec.get('volumes') or ():
        for source in _SECRET_SOURCES:
            if source in volume:
                volume[source] = {}
