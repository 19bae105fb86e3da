# SPDX-License-Identifier: Apache-2.0
"""CDI's DataVolumes: the bodies that are created, and reading their status.

Source: CDI's ``pkg/controller/datavolume`` (conditions.go,
controller-base.go) and doc/datavolumes.md, 1.63 and main of 2026-08.
"""

from __future__ import annotations

import dataclasses
import typing

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.machine.media import image_credentials
from sushy_kubevirt.machine.media import model

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import objects
    from sushy_kubevirt.machine.media import media_annotation
    from sushy_kubevirt.machine import protocols

_CDI = 'cdi.kubevirt.io/'
_MIB = 1 << 20

# Reasons of the condition Running that count as a failure: CDI makes no
# progress until the cause is fixed. The others are steps of a pod's start.
# ``Unschedulable`` is one of these: a pod has it until its scratch space is
# created.
_STUCK = ('Error', 'CrashLoopBackOff', 'OOMKilled', 'ContainerCannotRun',
          'ErrImagePull', 'ImagePullBackOff', 'InvalidImageName',
          'ImagePullFailed', 'ChecksumError', 'CreateContainerError',
          'ErrExceededQuota', 'ErrStartingPod', 'Failed')


@dataclasses.dataclass(frozen=True)
class Status:
    """The status of a DataVolume.

    :param progress: per cent; None while it is not known
    :param reason: one word, '' for none
    :param message: text that explains the reason
    :param phase: CDI's phase
    """

    state: model.State
    progress: float | None = None
    reason: str = ''
    message: str = ''
    phase: str = ''


def body(machine: protocols.Machine, device: model.Device,
         entry: media_annotation.Entry, size: int,
         authorities: str | None = None) -> objects.DataVolume:
    """Build a DataVolume.

    :param machine: the owner
    :param size: size of the disk image, bytes
    :param authorities: name of the ConfigMap with CA certificates, or None
    """
    options = machine.options.media
    size = max(size + size * options.size_margin // 100, options.minimum_size)
    storage: objects.Json = {'resources': {'requests': {
        'storage': f'{-(-size // _MIB)}Mi'}}}
    if options.storage_class:
        storage['storageClassName'] = options.storage_class
    if options.access_mode != 'auto':
        storage['accessModes'] = [options.access_mode]
    if options.volume_mode:
        storage['volumeMode'] = options.volume_mode
    source: objects.Json = {'upload': {}}
    if not entry.upload:
        http: objects.Json = {'url': entry.url}
        if entry.credentials:
            http['secretRef'] = image_credentials.name(machine, entry)
        if authorities:
            http['certConfigMap'] = authorities
        if not entry.verify:
            http['insecureSkipVerify'] = True
        source = {'http': http}
    return {
        'apiVersion': api_resources.DATA_VOLUME.api_version,
        'kind': api_resources.DATA_VOLUME.kind,
        'metadata': {
            'name': entry.volume,
            'namespace': machine.namespace,
            'labels': {stored_names.MEDIA_LABEL: device.id},
            'annotations': {
                stored_names.MEDIA_ATTEMPT: entry.id,
                # Bind the claim without a consumer: the image is fetched
                # now, and a VM that is off starts no pod.
                _CDI + 'storage.bind.immediate.requested': 'true',
                # CDI 1.57 and 1.58 delete complete DataVolumes.
                _CDI + 'storage.deleteAfterCompletion': 'false',
            },
            'ownerReferences': [owner(machine)],
        },
        # ``storage``, not ``pvc``: CDI then adds the file system's overhead.
        'spec': {'source': source, 'storage': storage},
    }


def ignores_verify_option(volume: objects.DataVolume,
                          entry: media_annotation.Entry) -> bool:
    """Return whether CDI is too old for ``insecureSkipVerify``.

    The API drops fields that CDI's CRD does not have. It does not matter for
    http URLs, which have no certificate.

    :param volume: the DataVolume as the API returned it
    """
    http = volume['spec']['source'].get('http')
    return (http is not None and not entry.verify
            and not http.get('insecureSkipVerify')
            and not entry.url.startswith('http:'))


def owner(machine: protocols.Machine) -> objects.OwnerReference:
    """Build the owner reference by which an object is deleted with the VM."""
    return {'apiVersion': api_resources.VM.api_version,
            'kind': api_resources.VM.kind, 'name': machine.name,
            'uid': machine.uid}


def is_ours(volume: objects.DataVolume, machine: protocols.Machine) -> bool:
    """Return whether a DataVolume was made for media of this VM."""
    metadata = volume['metadata']
    return stored_names.MEDIA_LABEL in (metadata.get('labels') or {}) and any(
        reference.get('uid') == machine.uid
        for reference in metadata.get('ownerReferences') or ())


def is_claim_of(claim: objects.Json, name: str) -> bool:
    """Return whether CDI made a claim for a DataVolume of this name."""
    return any(reference.get('kind') == api_resources.DATA_VOLUME.kind
               and reference.get('name') == name
               for reference in
               claim['metadata'].get('ownerReferences') or ())


def attempt(volume: objects.DataVolume) -> str | None:
    """Return the ID of the `media_annotation.Entry` of a DataVolume."""
    return (volume['metadata'].get('annotations') or {}).get(
        stored_names.MEDIA_ATTEMPT)


def status(volume: objects.DataVolume) -> Status:
    """Return the `Status` of a DataVolume."""
    phase = (volume.get('status') or {}).get('phase') or ''
    return dataclasses.replace(_status(volume, phase), phase=phase)


def _status(volume: objects.DataVolume, phase: str) -> Status:
    if volume['metadata'].get('deletionTimestamp'):
        return Status(model.State.FAILED, None, 'Deleted',
                      'The DataVolume is being deleted')
    reported = volume.get('status') or {}
    progress = _progress(reported.get('progress'))
    if phase == 'Succeeded':
        return Status(model.State.READY, 100.0)
    running, bound = (_condition(reported, type_)
                      for type_ in ('Running', 'Bound'))
    for condition, failed in ((running, _is_stuck), (bound, _is_refused)):
        if condition.get('status') != 'True' and failed(
                condition.get('reason') or ''):
            return Status(model.State.FAILED, progress,
                          condition['reason'],
                          condition.get('message') or '')
    if phase == 'Failed':
        reason = running.get('reason') or bound.get('reason') or phase
        message = running.get('message') or bound.get('message') or (
            'CDI reports the phase Failed')
        return Status(model.State.FAILED, progress, reason, message)
    state = model.State.WAITING
    if phase in ('ImportInProgress', 'UploadReady'):
        state = model.State.IMPORTING
    if running.get('status') == 'True':
        # CSI storage binds the claim when it is filled; until then ``Bound``
        # reports a wait that is normal.
        return Status(state, progress)
    shown = running if running.get('message') else bound
    return Status(state, progress, shown.get('reason') or '',
                  shown.get('message') or '')


def _is_stuck(reason: str) -> bool:
    return any(word in _STUCK for word in reason.split(' and '))


def _is_refused(reason: str) -> bool:
    # ErrExceededQuota, ErrClaimNotValid, ErrUnableToClaim …
    return reason.startswith('Err') or reason == 'ClaimLost'


def _condition(reported: objects.DataVolumeStatus, type_: str
               ) -> objects.Condition:
    for condition in reported.get('conditions') or ():
        if condition.get('type') == type_:
            return condition
    return {}


def _progress(text: str | None) -> float | None:
    """Parse CDI's progress, such as ``45.30%``; None for ``N/A``."""
    try:
        return min(max(float((text or '').rstrip('%')), 0.0), 100.0)
    except ValueError:
        return None
