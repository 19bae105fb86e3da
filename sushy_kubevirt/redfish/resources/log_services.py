# SPDX-License-Identifier: Apache-2.0
"""LogService v1.5: the Kubernetes events of a system.

Each system has one log. It is served below the system and below its manager,
because clients read one or the other.
"""

from __future__ import annotations

import datetime
import re
import typing

import flask

from sushy_kubevirt.bmc import event_log
from sushy_kubevirt.redfish.protocol import authentication
from sushy_kubevirt.redfish.protocol import payload
from sushy_kubevirt.redfish.protocol import responses
from sushy_kubevirt.redfish.protocol import routing
from sushy_kubevirt.redfish.resources import resource_paths

if typing.TYPE_CHECKING:
    from sushy_kubevirt.machine import machine

ID = 'Events'

_CLEAR = 'LogService.ClearLog'

# Origins that are linked to: the system and its media devices.
_ORIGIN = resource_paths.SYSTEMS + '/[^/]+((?:/VirtualMedia/[^/]+)?)'


def _log() -> event_log.Log:
    return authentication.services().events.log


def _path(machine: machine.Machine, *names: str) -> str:
    """Return a path below the system or its manager, as in the request."""
    place = resource_paths.place(flask.request.path)
    return place(machine, 'LogServices', *names)


def collection(machine: machine.Machine) -> responses.Json:
    """GET …/LogServices"""
    return responses.collection('LogService', 'Log Services', _path(machine),
                                [ID])


def resource(machine: machine.Machine) -> responses.Json:
    """GET …/LogServices/Events"""
    here = _path(machine, ID)
    now = datetime.datetime.now(datetime.timezone.utc)
    return {
        '@odata.id': here,
        '@odata.type': '#LogService.v1_5_0.LogService',
        'Id': ID,
        'Name': 'Event Log',
        'Description': 'Kubernetes Events about the VirtualMachine '
        f'{machine.qualified_name}, its instance and its media',
        'ServiceEnabled': True,
        'LogEntryType': 'Event',
        'MaxNumberOfRecords': event_log.MAX_ENTRIES,
        # Kubernetes deletes events after a time that its API does not show.
        'OverWritePolicy': 'Unknown',
        'DateTime': now.isoformat(timespec='seconds'),
        'DateTimeLocalOffset': '+00:00',
        'Status': {'State': 'Enabled', 'Health': 'OK'},
        'Entries': responses.link(here + '/Entries'),
        'Actions': {'#' + _CLEAR: {
            'target': f'{here}/Actions/{_CLEAR}'}},
    }


def entries(machine: machine.Machine) -> responses.Json:
    """GET …/LogServices/Events/Entries

    The collection contains the entries themselves, not links to them
    (DSP0266, "Expanded resources").
    """
    here = _path(machine, ID, 'Entries')
    members = [_entry(machine, entry) for entry in _log().entries(machine)]
    return {
        '@odata.id': here,
        '@odata.type': '#LogEntryCollection.LogEntryCollection',
        'Name': 'Log Entries',
        'Members@odata.count': len(members),
        'Members': members,
    }


def entry(machine: machine.Machine, entry: str) -> responses.Json:
    """GET …/LogServices/Events/Entries/<entry>"""
    return _entry(machine, resource_paths.member('LogEntry', entry, {
        logged.id: logged for logged in _log().entries(machine)}))


def _entry(machine: machine.Machine, entry: event_log.Entry) -> responses.Json:
    # Another service, with other Ids of systems, may have written the entry.
    # Tasks expire; a link to an expired task would be broken.
    match = re.fullmatch(_ORIGIN, entry.origin)
    return {
        '@odata.id': _path(machine, ID, 'Entries', entry.id),
        '@odata.type': '#LogEntry.v1_15_0.LogEntry',
        'Id': entry.id,
        'Name': entry.reason,
        'EntryType': 'Event',
        'Severity': entry.severity,
        'Created': entry.created,
        'Message': entry.text,
        'MessageId': entry.message_id,
        'MessageArgs': list(entry.args),
        'Originator': entry.by,
        'OriginatorType': 'Internal' if entry.event else 'SupportingService',
        **responses.present(
            EventId=entry.event,
            Links=match and {'OriginOfCondition': responses.link(
                resource_paths.system(machine) + match[1])}),
    }


def clear(machine: machine.Machine) -> None:
    """POST …/Actions/LogService.ClearLog

    Hides the present entries, also those of Kubernetes and KubeVirt, from
    both protocols.
    """
    payload.parameters(_CLEAR, {})
    _log().clear(machine)


def _routes(root: str) -> tuple[routing.Route, ...]:
    log = f'{root}/{ID}'
    return (
        routing.add(root, collection),
        routing.add(log, resource),
        routing.add(log + '/Entries', entries),
        routing.add(log + '/Entries/<entry>', entry),
        routing.add(f'{log}/Actions/{_CLEAR}', post=clear),
    )


ROUTES = (*_routes('/redfish/v1/Systems/<identity>/LogServices'),
          *_routes('/redfish/v1/Managers/<identity>/LogServices'))
