# SPDX-License-Identifier: Apache-2.0
"""Finds out why an image gets no storage, or too little, and what to do.

A DataVolume does not tell: while its claim waits it is pending, and CDI
copies events of the claim into its conditions from 1.64 on only, and not all
of them (``UpdatePVCBoundConditionFromEvents`` in
pkg/controller/common/util.go, main of 2026-08). So the claim and its events
are read.
"""

from __future__ import annotations

import dataclasses
import datetime
import re
import typing

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine.media import model
from sushy_kubevirt.machine import option_hints

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import client
    from sushy_kubevirt.kube import objects
    from sushy_kubevirt.machine.media import datavolumes
    from sushy_kubevirt.machine import options
    from sushy_kubevirt.machine import protocols

#: Seconds for which a claim has to be pending before it is read, and until it
#: is read again.
SECONDS = 5.0
AGAIN_SECONDS = 20.0

#: Reason of a medium whose claim has no storage class. Other reasons are those
#: of Kubernetes' events.
NO_CLASS = 'StorageClassMissing'

#: Failures with which a provisioner goes on (`checkError` in
#: pkg/controller/controller.go of kubernetes-csi/external-provisioner), and
#: for how many seconds they are expected to pass.
_GOES_ON = re.compile(
    r'\bcode = (Aborted|Canceled|DeadlineExceeded|Unavailable)\b')
_PATIENCE = 120

#: CDI's reason for a claim that it cannot create.
_NOT_VALID = 'ErrClaimNotValid'

#: Its message where the reason is the StorageProfile
#: (getDefaultVolumeAndAccessMode, getDefaultAccessModes in
#: pkg/controller/datavolume/util.go).
_NO_MODES = re.compile(r'accessMode specified in StorageProfile (\S+)')

#: What CDI says of an image that does not fit (simplifyKnownMessage in
#: pkg/controller/util.go, handleStreamError in pkg/uploadserver).
_TOO_SMALL = re.compile(
    'DataVolume too small|larger than the reported available'
    '|no space left on device|disk quota exceeded')


def is_pending(status: datavolumes.Status) -> bool:
    """Tell whether the claim of a DataVolume waits for storage."""
    # With a pod (ImportScheduled, UploadScheduled), CDI's own claim is bound.
    # Earlier warnings about it are out of date then. (updateStatusPhase in
    # pkg/controller/datavolume/import-controller.go)
    return (status.state is model.State.WAITING and status.reason == 'Pending'
            and not status.phase.endswith('Scheduled'))


def find(machine: protocols.Machine, name: str) -> tuple[str, str] | None:
    """Read a claim and its events.

    :param name: of the DataVolume
    :returns: (reason, message); None if nothing is known to be wrong
    :raises: `errors.MachineError`
    """
    client, namespace = machine.cluster.client, machine.namespace
    try:
        claim = client.get(api_resources.CLAIM, namespace, name)
    except errors.ObjectNotFound:
        return None
    if (claim.get('status') or {}).get('phase') != 'Pending':
        return None
    options = machine.options.media
    if not claim['spec'].get('storageClassName'):
        return NO_CLASS, (
            'The cluster has no default storage class. Mark one as the '
            'default' + option_hints.hint(
                options, 'storage_class', ', or name one in {} and insert the '
                'image again'))
    event = _latest_warning(client, namespace, claim)
    if event is None:
        return None
    return event['reason'], (
        f"{event.get('message') or event['reason']}"
        f'{_advice(options)}')


def explained(status: datavolumes.Status,
              options: options.MediaOptions) -> datavolumes.Status:
    """Add to the status of a DataVolume what to do."""
    if status.state is not model.State.FAILED:
        return status
    return dataclasses.replace(status, message=status.message + advice(
        status.reason, status.message, options))


def advice(reason: str, message: str, options: options.MediaOptions) -> str:
    """Say what to do about a failure, as the end of its message.

    :param reason: CDI's
    :param message: CDI's
    :returns: '' if the message says all that is known
    """
    if reason == _NOT_VALID:
        profile = _NO_MODES.search(message)
        return _modes_advice(profile[1], options) if profile else _advice(
            options)
    return _size_advice(options) if _TOO_SMALL.search(message) else ''


def _modes_advice(profile: str, options: options.MediaOptions) -> str:
    either = option_hints.hint(
        options, 'access_mode', f'Set {{}}, which is {options.access_mode}, '
        'to a mode that it supports and insert the image again, or add '
    ) or 'Add '
    return ('. CDI does not know the access modes of this storage class. '
            f'{either}claimPropertySets to the spec of StorageProfile '
            f'{profile}, after which CDI continues')


def _size_advice(options: options.MediaOptions) -> str:
    causes, remedies = [], []
    if options.default_size:
        causes.append(option_hints.hint(
            options, 'default_size', 'the image is larger than {} says'))
        remedies.append(option_hints.hint(
            options, 'default_size', 'raise {}'))
    if options.volume_mode != 'Block':
        causes.append('the file system of the storage class takes more space '
                      'than the overhead that CDI assumes')
        remedies += [
            'raise filesystemOverhead of the class in spec.config of the CDI '
            'object', option_hints.hint(options, 'size_margin', 'set {}'),
            option_hints.hint(options, 'volume_mode', 'set {} to Block')]
    if not any(causes):
        return ''
    cause, remedy = (', or '.join(filter(None, texts))
                     for texts in (causes, remedies))
    return (f'. {cause[0].upper()}{cause[1:]}. {remedy[0].upper()}'
            f'{remedy[1:]}, and insert the image again')


def _advice(options: options.MediaOptions) -> str:
    volume_mode = option_hints.hint(
        options, 'volume_mode', ', the volume mode ({}), which is '
        f'{options.volume_mode},') if options.volume_mode else ''
    return option_hints.hint(
        options, 'storage_class', '. Check the storage class ({})'
    ) + volume_mode + option_hints.hint(
        options, 'access_mode', f' and the access mode ({{}}), which is '
        f'{options.access_mode}; then insert the image again')


def _latest_warning(client: client.Client, namespace: str,
                    claim: objects.Json) -> objects.Json | None:
    """Find the latest warning about a claim.

    CDI fills some claims through another one, named after the first one's uid
    (``PVCPrimeName``).

    :returns: an event of ``v1``; None if there is none
    """
    uid = claim['metadata']['uid']
    warnings: list[objects.Json] = []
    for about in (f"involvedObject.name={claim['metadata']['name']},"
                  f'involvedObject.uid={uid}',
                  f'involvedObject.name=prime-{uid}'):
        for events, _ in client.pages(
                api_resources.EVENT, namespace, field_selector=about):
            warnings += [event for event in events
                         if event.get('type') == 'Warning'
                         and event.get('reason') and not _may_pass(event)]
    return max(warnings, key=_time, default=None)


def _may_pass(event: objects.Json) -> bool:
    """Tell whether a warning is of a failure that storage may overcome."""
    if not _GOES_ON.search(event.get('message') or ''):
        return False
    try:
        first, last = (datetime.datetime.fromisoformat(event[name]) for name
                       in ('firstTimestamp', 'lastTimestamp'))
        return (last - first).total_seconds() < _PATIENCE
    except (KeyError, TypeError, ValueError):
        return True


def _time(event: objects.Json) -> str:
    # RFC 3339 in UTC, of seconds or of microseconds.
    return (event.get('lastTimestamp') or event.get('eventTime')
            or event['metadata'].get('creationTimestamp') or '')[:19]
