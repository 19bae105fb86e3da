# SPDX-License-Identifier: Apache-2.0
"""Status and messages of a medium, for its device and its task."""

from __future__ import annotations

from sushy_kubevirt.bmc import event_registry
from sushy_kubevirt.machine import media
from sushy_kubevirt.machine import power_state
from sushy_kubevirt.redfish.protocol import messages
from sushy_kubevirt.redfish.protocol import responses
from sushy_kubevirt.redfish.resources import resource_paths

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


def in_progress(medium) -> bool:
    """Check whether the import of a medium is still running."""
    return medium.state in (media.State.WAITING, media.State.IMPORTING)


def percent(medium):
    """Return the progress of the import.

    :returns: int, 0 to 100
    """
    if medium.state is media.State.READY:
        return 100
    return min(int(medium.progress or 0), 100)


def extended_info(machine, device_id, medium):
    """List messages about a medium: failure, progress, restart needed.

    :returns: list of entries of @Message.ExtendedInfo
    """
    found = []
    if medium.state is media.State.FAILED:
        found.append(_entry(
            event_registry.MEDIA_FAILED, machine.qualified_name,
            url_without_query(medium), device_id, medium.reason or 'Error',
            medium.message))
    elif in_progress(medium):
        entry = _entry(_PROGRESS, medium.task, str(percent(medium)))
        if medium.message:
            entry['Message'] += ' ' + medium.message
        found.append(entry)
    elif medium.state is media.State.EJECTING:
        entry = _entry(_EJECTING, 'Inserted', medium.reason or 'Ejecting')
        entry['Message'] = (
            f'The medium of {device_id} was ejected, and the guest has not '
            'let go of it.' + (medium.message and ' ' + medium.message))
        found.append(entry)
    if medium.pending_restart and medium.state is not media.State.FAILED:
        found.append(restart_required(machine, device_id))
    return found


def restart_required(machine, device_id):
    """Create the message ResetRequired: the guest lacks the medium so far.

    :returns: entry of @Message.ExtendedInfo
    """
    return messages.message(
        'ResetRequired', resource_paths.system(
            machine, 'Actions', 'ComputerSystem.Reset'), RESTART,
        detail=f'The guest sees the medium of {device_id} after a restart.')


def status(machine, device_id, medium, here):
    """Build the property Status of a device.

    :param medium: the medium in it, or None
    :param here: path of the device
    :returns: dict (Resource.Status)
    """
    found = {'State': 'Enabled', 'Health': 'OK'}
    if medium is None:
        return found
    if in_progress(medium):
        found['State'] = 'Updating'
        if medium.reason == power_state.SYNC_FAILED:
            found['Health'] = 'Warning'
    elif medium.state is media.State.EJECTING:
        found.update(State='Updating', Health='Warning')
    elif medium.state is media.State.FAILED:
        found['Health'] = 'Critical'
    entries = extended_info(machine, device_id, medium)
    if entries:
        found['Conditions'] = [{
            'MessageId': entry['MessageId'],
            'MessageArgs': entry['MessageArgs'],
            'Message': entry['Message'],
            'Severity': entry['MessageSeverity'],
            'Resolution': entry['Resolution'],
            'OriginOfCondition': responses.link(here),
        } for entry in entries]
    return found


def url_without_query(medium):
    """Return the URL of a medium without its query, perhaps a signature."""
    return medium.url.partition('?')[0]


def _entry(message, *args):
    args = [messages.truncate(arg) for arg in args]
    return {
        '@odata.type': '#Message.v1_1_2.Message',
        'MessageId': message.id,
        'Message': message.format(args),
        'MessageArgs': args,
        'MessageSeverity': message.severity,
        'Severity': message.severity,
        'Resolution': message.resolution,
    }
