# SPDX-License-Identifier: Apache-2.0
"""LogService v1.5: the Kubernetes events of a system.

One log per system, served below the system and below its manager, because
clients look in one or the other.
"""

import datetime

import flask

from sushy_kubevirt.redfish.protocol import errors
from sushy_kubevirt.redfish.protocol import payload
from sushy_kubevirt.redfish.protocol import responses
from sushy_kubevirt.redfish.protocol import routing
from sushy_kubevirt.redfish.resources import computer_system
from sushy_kubevirt.redfish.services.events import event_log

ID = 'Events'

_CLEAR = 'LogService.ClearLog'


def _log():
    return flask.current_app.sushy_kubevirt.services.events.log


def _root(machine):
    """The path of the log services that are asked for, of a system or of its
    manager.
    """
    owners = flask.request.path.split('/')[3]
    return f'/redfish/v1/{owners}/{machine.uuid}/LogServices'


def _path(machine):
    return f'{_root(machine)}/{ID}'


def collection(machine):
    """GET …/LogServices"""
    return responses.collection('LogServiceCollection', 'Log Services',
                                _root(machine), [_path(machine)])


def resource(machine):
    """GET …/LogServices/Events"""
    here = _path(machine)
    now = datetime.datetime.now(datetime.timezone.utc)
    return responses.resource({
        '@odata.id': here,
        '@odata.type': '#LogService.v1_5_0.LogService',
        'Id': ID,
        'Name': 'Event Log',
        'Description': 'Events of Kubernetes about the VirtualMachine %s, '
        'its instance and its media' % machine.qualified_name,
        'ServiceEnabled': True,
        'LogEntryType': 'Event',
        'MaxNumberOfRecords': event_log.MOST,
        # Kubernetes forgets them after a time that it tells nobody.
        'OverWritePolicy': 'Unknown',
        'DateTime': now.isoformat(timespec='seconds'),
        'DateTimeLocalOffset': '+00:00',
        'Status': {'State': 'Enabled', 'Health': 'OK'},
        'Entries': responses.link(here + '/Entries'),
        'Actions': {'#' + _CLEAR: {
            'target': f'{here}/Actions/{_CLEAR}'}},
    })


def entries(machine):
    """GET …/LogServices/Events/Entries, with the entries in it

    DSP0266, "Expanded resources": collections of log entries may be.
    """
    here = _path(machine) + '/Entries'
    members = [_entry(machine, one) for one in _log().entries(machine)]
    return responses.resource({
        '@odata.id': here,
        '@odata.type': '#LogEntryCollection.LogEntryCollection',
        'Name': 'Log Entries',
        'Members@odata.count': len(members),
        'Members': members,
    })


def entry(machine, entry):
    """GET …/LogServices/Events/Entries/<entry>"""
    for one in _log().entries(machine):
        if one.id == entry:
            return responses.resource(_entry(machine, one))
    raise errors.resource_not_found('LogEntry', entry)


def _entry(machine, one):
    body = {
        '@odata.id': f'{_path(machine)}/Entries/{one.id}',
        '@odata.type': '#LogEntry.v1_15_0.LogEntry',
        'Id': one.id,
        'Name': one.reason,
        'EntryType': 'Event',
        'Severity': one.severity,
        'Created': one.created,
        'Message': one.text,
        'MessageId': one.message_id,
        'MessageArgs': list(one.args),
        'Originator': one.by,
        'OriginatorType': 'Internal' if one.event else 'SupportingService',
    }
    if one.event:
        body['EventId'] = one.event
    system = computer_system.path(machine)
    # Tasks go, and links may not lead to nowhere.
    if one.origin == system or one.origin.startswith(
            system + '/VirtualMedia/'):
        body['Links'] = {'OriginOfCondition': responses.link(one.origin)}
    return body


def clear(machine):
    """POST …/Actions/LogService.ClearLog: clears our own entries"""
    payload.parameters(_CLEAR, {})
    _log().clear(machine)
    return responses.no_content()


def _routes(root):
    one = f'{root}/{ID}'
    return (
        routing.add(root, collection),
        routing.add(one, resource),
        routing.add(one + '/Entries', entries),
        routing.add(one + '/Entries/<entry>', entry),
        routing.add(f'{one}/Actions/{_CLEAR}', clear, ('POST',)),
    )


ROUTES = (*_routes('/redfish/v1/Systems/<identity>/LogServices'),
          *_routes('/redfish/v1/Managers/<identity>/LogServices'))
