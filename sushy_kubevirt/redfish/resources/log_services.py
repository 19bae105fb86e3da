# SPDX-License-Identifier: Apache-2.0
"""LogServices: what happened to a system, as Kubernetes keeps it.

One log for each system, which its manager shows as well.
"""

import datetime

import flask

from sushy_kubevirt.redfish.protocol import errors
from sushy_kubevirt.redfish.protocol import payload
from sushy_kubevirt.redfish.protocol import responses
from sushy_kubevirt.redfish.protocol import routing
from sushy_kubevirt.redfish.resources import computer_system
from sushy_kubevirt.services.events import log

ID = 'Events'

_CLEAR = 'LogService.ClearLog'


def _log():
    return flask.current_app.sushy_kubevirt.services.events.log


def _path(machine):
    return '%s/LogServices/%s' % (computer_system.path(machine), ID)


def _collection(machine, root):
    return responses.collection(
        'LogServiceCollection', 'Log Services', root, [_path(machine)])


def of_system(machine):
    """GET /redfish/v1/Systems/<identity>/LogServices"""
    return _collection(machine,
                       computer_system.path(machine) + '/LogServices')


def of_manager(machine):
    """GET /redfish/v1/Managers/<identity>/LogServices: the same log"""
    return _collection(machine, '/redfish/v1/Managers/%s/LogServices'
                       % machine.uuid)


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
        'MaxNumberOfRecords': log.MOST,
        # Kubernetes forgets them after a time that it tells nobody.
        'OverWritePolicy': 'Unknown',
        'DateTime': now.isoformat(timespec='seconds'),
        'DateTimeLocalOffset': '+00:00',
        'Status': {'State': 'Enabled', 'Health': 'OK'},
        'Entries': responses.link(here + '/Entries'),
        'Actions': {'#' + _CLEAR: {
            'target': '%s/Actions/%s' % (here, _CLEAR)}},
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
    raise errors.not_found('LogEntry', entry)


def _entry(machine, one):
    body = {
        '@odata.id': '%s/Entries/%s' % (_path(machine), one.id),
        '@odata.type': '#LogEntry.v1_15_0.LogEntry',
        'Id': one.id,
        'Name': one.reason or 'Event',
        'EntryType': 'Event',
        'Severity': one.severity,
        'Created': one.created,
        'Message': one.text,
    }
    if one.by:
        body['Originator'] = one.by
        body['OriginatorType'] = ('Internal' if one.by == log.COMPONENT
                                  else 'SupportingService')
    if one.message_id:
        body['MessageId'] = one.message_id
        body['MessageArgs'] = list(one.args)
        body['EventId'] = one.event
    system = computer_system.path(machine)
    # Tasks go, and links may not lead to nowhere.
    if one.origin == system or one.origin.startswith(
            system + '/VirtualMedia/'):
        body['Links'] = {'OriginOfCondition': responses.link(one.origin)}
    return body


def clear(machine):
    """POST …/Actions/LogService.ClearLog: ours; KubeVirt's are not ours."""
    payload.parameters(_CLEAR, {})
    _log().clear(machine)
    return responses.done()


_SYSTEM = '/redfish/v1/Systems/<identity>/LogServices'
_RULE = '%s/%s' % (_SYSTEM, ID)

ROUTES = (
    routing.add(_SYSTEM, of_system),
    routing.add('/redfish/v1/Managers/<identity>/LogServices', of_manager),
    routing.add(_RULE, resource),
    routing.add(_RULE + '/Entries', entries),
    routing.add(_RULE + '/Entries/<entry>', entry),
    routing.add('%s/Actions/%s' % (_RULE, _CLEAR), clear, ('POST',)),
)
