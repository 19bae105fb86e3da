# SPDX-License-Identifier: Apache-2.0
"""TaskService: imports of virtual media as tasks (Task v1.7).

DSP0266, "Asynchronous operations". A task is derived from the medium and not
stored: it exists while the medium is in its device, with an id per insertion.
Ejecting the medium or inserting another one removes it.
"""

from __future__ import annotations

import datetime
import typing

import flask

from sushy_kubevirt.machine import media
from sushy_kubevirt.redfish.protocol import application
from sushy_kubevirt.redfish.protocol import error_responses
from sushy_kubevirt.redfish.protocol import messages
from sushy_kubevirt.redfish.protocol import payload
from sushy_kubevirt.redfish.protocol import responses
from sushy_kubevirt.redfish.protocol import routing
from sushy_kubevirt.redfish.resources import media_status

if typing.TYPE_CHECKING:
    from collections import abc

    from sushy_kubevirt.machine import machine

ROOT = '/redfish/v1/TaskService'
TASKS = ROOT + '/Tasks'
MONITORS = ROOT + '/TaskMonitors'

#: Retry-After of a running task, seconds.
RETRY_AFTER = 2

_STATES = {
    media.State.WAITING: ('Starting', 'OK'),
    media.State.IMPORTING: ('Running', 'OK'),
    media.State.READY: ('Completed', 'OK'),
    media.State.FAILED: ('Exception', 'Critical'),
}


class _Import(typing.NamedTuple):
    """A task: the import of a medium into a device of a system."""

    machine: machine.Machine
    device_id: str
    medium: media.Medium


def service() -> flask.Response:
    """GET, PATCH /redfish/v1/TaskService"""
    if flask.request.method == 'PATCH':
        payload.properties(payload.read_only(
            'Id', 'Name', 'ServiceEnabled', 'Status', 'DateTime', 'Tasks',
            'CompletedTaskOverWritePolicy',
            'LifeCycleEventOnTaskStateChange'))
    now = datetime.datetime.now(datetime.timezone.utc)
    return responses.resource({
        '@odata.id': ROOT,
        '@odata.type': '#TaskService.v1_2_1.TaskService',
        'Id': 'TaskService',
        'Name': 'Task Service',
        'Description': 'Imports of virtual media',
        'ServiceEnabled': True,
        'CompletedTaskOverWritePolicy': 'Oldest',
        'LifeCycleEventOnTaskStateChange': True,
        'DateTime': now.isoformat(timespec='seconds'),
        'Status': {'State': 'Enabled', 'Health': 'OK'},
        'Tasks': responses.link(TASKS),
    })


def _imports() -> abc.Iterator[_Import]:
    for system in application.current().systems.machines():
        for device in (*system.media_devices(), media.HTTP_BOOT):
            medium = system.medium(device.id)
            if medium is not None and medium.task:
                yield _Import(system, device.id, medium)


def collection() -> flask.Response:
    """GET /redfish/v1/TaskService/Tasks"""
    return responses.collection(
        'TaskCollection', 'Task Collection', TASKS,
        [f'{TASKS}/{imported.medium.task}' for imported in _imports()])


def _find(task: str) -> _Import:
    for imported in _imports():
        if imported.medium.task == task:
            return imported
    raise error_responses.resource_not_found('Task', task)


def resource(task: str) -> flask.Response:
    """GET, DELETE /redfish/v1/TaskService/Tasks/<task>"""
    imported = _find(task)
    if flask.request.method == 'DELETE':
        return _cancel(*imported)
    return responses.resource(_body(*imported))


def monitor(task: str) -> flask.Response:
    """GET, DELETE /redfish/v1/TaskService/TaskMonitors/<task>

    202 while the import runs, then the response of a synchronous request.
    """
    machine, device_id, medium = imported = _find(task)
    if flask.request.method == 'DELETE':
        return _cancel(*imported)
    if media_status.in_progress(medium):
        return task_accepted(machine, device_id, medium)
    if medium.state is media.State.FAILED:
        raise error_responses.RedfishError(
            400, *media_status.extended_info(machine, device_id, medium))
    return task_result(machine, device_id, medium)


def task_accepted(machine: machine.Machine, device_id: str,
                  medium: media.Medium) -> flask.Response:
    """Create the response 202 with the task."""
    return responses.accepted(f'{MONITORS}/{medium.task}',
                              _body(machine, device_id, medium), RETRY_AFTER)


def task_result(machine: machine.Machine, device_id: str, medium: media.Medium
                ) -> flask.Response:
    """Create the response of a completed task.

    204, or 200 with ResetRequired if the guest needs a restart to see the
    medium.
    """
    if medium.pending_restart:
        return responses.resource(error_responses.error_body(
            [media_status.restart_required(machine, device_id)]))
    return responses.no_content()


def _body(machine: machine.Machine, device_id: str, medium: media.Medium
          ) -> responses.Json:
    state, health = _STATES[medium.state]
    body: responses.Json = {
        '@odata.id': f'{TASKS}/{medium.task}',
        '@odata.type': '#Task.v1_7_4.Task',
        'Id': medium.task,
        'Name': f'Import of {medium.image_name}',
        'Description': f'{media_status.url_without_query(medium)} for '
        f'{device_id} of {machine.qualified_name}',
        'TaskState': state,
        'TaskStatus': health,
        'PercentComplete': media_status.percent(medium),
        # Severity is deprecated in favor of MessageSeverity.
        'Messages': [
            {name: value for name, value in entry.items()
             if name != 'Severity'}
            for entry in media_status.extended_info(
                machine, device_id, medium)],
        'TaskMonitor': f'{MONITORS}/{medium.task}',
    }
    if medium.since:
        body['StartTime'] = medium.since
    return body


def _cancel(machine: machine.Machine, device_id: str, medium: media.Medium
            ) -> flask.Response:
    if medium.state is media.State.READY:
        raise error_responses.RedfishError(409, messages.message(
            'ResourceCannotBeDeleted', detail='The import is complete.',
            resolution='Eject the medium; this removes its task.'))
    machine.eject_media(device_id)
    flask.current_app.logger.info(
        'The import of %s for %s of %s was cancelled',
        media_status.url_without_query(medium), device_id,
        machine.qualified_name)
    return responses.no_content()


ROOT_LINKS = {'Tasks': ROOT}

ROUTES = (
    routing.replace('simple_task_service', service),
    routing.add(ROOT, service, ('PATCH',)),
    # The only task id of sushy-emulator.
    routing.replace('simple_task', lambda: resource('42')),
    routing.add(TASKS, collection),
    routing.add(TASKS + '/<task>', resource, ('GET', 'DELETE')),
    routing.add(MONITORS + '/<task>', monitor, ('GET', 'DELETE')),
)
