# SPDX-License-Identifier: Apache-2.0
"""Status and messages of a medium, for its device and its task."""

from __future__ import annotations

import typing

from sushy_kubevirt.bmc import event_registry
from sushy_kubevirt.machine import media
from sushy_kubevirt.machine import power_state
from sushy_kubevirt.redfish.protocol import messages
from sushy_kubevirt.redfish.protocol import responses
from sushy_kubevirt.redfish.resources import resource_paths

if typing.TYPE_CHECKING:
    from sushy_kubevirt.machine import machine

#: ResetType after which the guest sees its new medium.
RESTART = 'PowerCycle'

_EJECTING = event_registry.Message(
    'ResourceEvent.1.3', 'ResourceErrorsDetected', 'Warning',
    "The resource property '%1' has detected errors of type '%2'.",
    'Release the medium in the guest, such as by unmounting it, or restart '
    'the system.')
_PROGRESS = event_registry.Message(
    'TaskEvent.1.0', 'TaskProgressChanged', 'OK',
    "The task with Id '%1' has changed to progress %2 percent complete.")


def in_progress(medium: media.Medium) -> bool:
    """Check whether the import of a medium is still running."""
    return medium.state in (media.State.WAITING, media.State.IMPORTING)


def percent(medium: media.Medium) -> int:
    """Return the progress of the import, 0 to 100."""
    if medium.state is media.State.READY:
        return 100
    return min(int(medium.progress or 0), 100)


def extended_info(machine: machine.Machine, device_id: str,
                  medium: media.Medium) -> list[messages.Message]:
    """List messages about a medium: failure, progress, restart needed."""
    entries = []
    if medium.state is media.State.FAILED:
        entries.append(_entry(
            event_registry.MEDIA_FAILED, machine.qualified_name,
            url_without_query(medium), device_id, medium.reason or 'Error',
            medium.message))
    elif in_progress(medium):
        entry = _entry(_PROGRESS, medium.task, str(percent(medium)))
        if medium.message:
            entry['Message'] += ' ' + medium.message
        entries.append(entry)
    elif medium.state is media.State.EJECTING:
        entry = _entry(_EJECTING, 'Inserted', medium.reason or 'Ejecting')
        entry['Message'] = (
            f'The medium of {device_id} was ejected, and the guest has not '
            'let go of it.' + (medium.message and ' ' + medium.message))
        entries.append(entry)
    if medium.pending_restart and medium.state is not media.State.FAILED:
        entries.append(restart_required(machine, device_id, medium))
    return entries


def restart_required(machine: machine.Machine, device_id: str,
                     medium: media.Medium) -> messages.Message:
    """Create the message ResetRequired: the guest lacks the medium so far."""
    return messages.message(
        'ResetRequired', resource_paths.system(
            machine, 'Actions', 'ComputerSystem.Reset'), RESTART,
        detail=f'The guest sees the medium of {device_id} after a restart. '
        f'{medium.restart_cause}'.rstrip())


def status(machine: machine.Machine, device_id: str,
           medium: media.Medium | None, here: str) -> responses.Json:
    """Build the property Status of a device.

    :param medium: the medium in it
    :param here: path of the device
    :returns: Resource.Status
    """
    body: responses.Json = {'State': 'Enabled', 'Health': 'OK'}
    if medium is None:
        return body
    if in_progress(medium):
        body['State'] = 'Updating'
        if medium.reason == power_state.SYNC_FAILED:
            body['Health'] = 'Warning'
    elif medium.state is media.State.EJECTING:
        body.update(State='Updating', Health='Warning')
    elif medium.state is media.State.FAILED:
        body['Health'] = 'Critical'
    entries = extended_info(machine, device_id, medium)
    if entries:
        body['Conditions'] = [{
            'MessageId': entry['MessageId'],
            'MessageArgs': entry['MessageArgs'],
            'Message': entry['Message'],
            'Severity': entry['MessageSeverity'],
            'Resolution': entry['Resolution'],
            'OriginOfCondition': responses.link(here),
        } for entry in entries]
    return body


def url_without_query(medium: media.Medium) -> str:
    """Return the URL of a medium without its query, perhaps a signature."""
    return medium.url.partition('?')[0]


def _entry(message: event_registry.Message, *args: str) -> messages.Message:
    # CDI's message and what to do are not of the request.
    return messages.make(message.id, message.severity, message.text,
                         message.resolution, *args, longest=1000)
