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
from sushy_kubevirt.redfish.protocol import payload
from sushy_kubevirt.redfish.protocol import responses
from sushy_kubevirt.redfish.protocol import routing
from sushy_kubevirt.redfish.resources import media_status
from sushy_kubevirt.redfish.resources import resource_paths

if typing.TYPE_CHECKING:
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


_READ_ONLY = payload.read_only(
    'Id', 'Name', 'ServiceEnabled', 'Status', 'DateTime', 'Tasks',
    'CompletedTaskOverWritePolicy', 'LifeCycleEventOnTaskStateChange')


def service() -> responses.Json:
    """GET /redfish/v1/TaskService"""
    now = datetime.datetime.now(datetime.timezone.utc)
    return {
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
    }


def _imports() -> dict[str, _Import]:
    """Return all tasks by their ids."""
    return {medium.task: _Import(system, device.id, medium)
            for system in application.current().systems.machines()
            for device in (*system.media_devices(), media.HTTP_BOOT)
            if (medium := system.medium(device.id)) is not None
            and medium.task}


def collection() -> responses.Json:
    """GET /redfish/v1/TaskService/Tasks"""
    return responses.collection('Task', 'Task Collection', TASKS, _imports())


def _find(task: str) -> _Import:
    return resource_paths.member('Task', task, _imports())


def resource(task: str) -> responses.Json:
    """GET /redfish/v1/TaskService/Tasks/<task>"""
    return _body(*_find(task))


def monitor(task: str) -> flask.Response | responses.Json | None:
    """GET /redfish/v1/TaskService/TaskMonitors/<task>

    202 while the import runs, then the response of a synchronous request.
    """
    machine, device_id, medium = _find(task)
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
                ) -> responses.Json | None:
    """Return the response of a completed task.

    :returns: ResetRequired if the guest needs a restart to see the medium,
        else None
    """
    if not medium.pending_restart:
        return None
    return error_responses.error_body(
        [media_status.restart_required(machine, device_id, medium)])


def _body(machine: machine.Machine, device_id: str, medium: media.Medium
          ) -> responses.Json:
    state, health = _STATES[medium.state]
    return {
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
        **responses.present(StartTime=medium.since),
    }


def cancel(task: str) -> None:
    """DELETE …/Tasks/<task>, …/TaskMonitors/<task>"""
    machine, device_id, medium = _find(task)
    if medium.state is media.State.READY:
        raise error_responses.base_error(
            409, 'ResourceCannotBeDeleted', detail='The import is complete.',
            resolution='Eject the medium; this removes its task.')
    machine.eject_media(device_id)
    flask.current_app.logger.info(
        'The import of %s for %s of %s was cancelled',
        media_status.url_without_query(medium), device_id,
        machine.qualified_name)


ROOT_LINKS = {'Tasks': ROOT}

ROUTES = (
    routing.replace('simple_task_service', service),
    # Refuses all properties.
    routing.add(ROOT, patch=lambda: payload.properties(_READ_ONLY)),
    # The only task id of sushy-emulator.
    routing.replace('simple_task', lambda: resource('42')),
    routing.add(TASKS, collection),
    routing.add(TASKS + '/<task>', resource, delete=cancel),
    routing.add(MONITORS + '/<task>', monitor, delete=cancel),
)
