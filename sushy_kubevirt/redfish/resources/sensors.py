# SPDX-License-Identifier: Apache-2.0
"""Sensor v1.12: what can fail of a VM, below its chassis.

KubeVirt's objects report states but no measurements. So ``Reading`` is null
in every sensor, and ``Status`` has state, health and the reason of a fault.
"""

from __future__ import annotations

import typing

from sushy_kubevirt.machine import power_state
from sushy_kubevirt.redfish.protocol import responses
from sushy_kubevirt.redfish.protocol import routing
from sushy_kubevirt.redfish.resources import computer_system
from sushy_kubevirt.redfish.resources import media_status
from sushy_kubevirt.redfish.resources import resource_paths

if typing.TYPE_CHECKING:
    from sushy_kubevirt.machine import machine

_NAME = 'Sensors'

#: Sensors of what impairs a guest that runs: reason of the fault, its text.
_IMPAIRMENTS = {
    'Node': (power_state.NODE_LOST, 'The node of the guest is lost'),
    'Disks': (power_state.IO_ERROR, 'The storage of the guest failed'),
}


def _statuses(machine: machine.Machine) -> dict[str, responses.Json]:
    """Return Resource.Status of each sensor, by its Id."""
    here = resource_paths.chassis(machine, _NAME)
    statuses = {'Power': computer_system.status(
        machine, machine.power_state())}
    fault = machine.impairment()
    for name, (reason, text) in _IMPAIRMENTS.items():
        statuses[name] = (
            computer_system.unhealthy(
                machine, 'Enabled', 'Critical', fault, text)
            if fault is not None and fault.reason == reason
            else resource_paths.STATUS_OK)
    for device in machine.media_devices():
        medium = machine.medium(device.id)
        statuses[device.id] = {'State': 'Absent'} if medium is None else (
            media_status.status(machine, device.id, medium,
                                f'{here}/{device.id}'))
    return statuses


def collection(machine: machine.Machine) -> responses.Json:
    """GET /redfish/v1/Chassis/<identity>/Sensors"""
    return responses.collection(
        'Sensor', 'Sensor Collection', resource_paths.chassis(machine, _NAME),
        _statuses(machine))


def resource(machine: machine.Machine, sensor_id: str) -> responses.Json:
    """GET /redfish/v1/Chassis/<identity>/Sensors/<sensor_id>"""
    status = resource_paths.member('Sensor', sensor_id, _statuses(machine))
    return {
        '@odata.id': resource_paths.chassis(machine, _NAME, sensor_id),
        '@odata.type': '#Sensor.v1_12_0.Sensor',
        'Id': sensor_id,
        'Name': sensor_id,
        'Reading': None,
        'Status': status,
    }


_ROOT = f'{resource_paths.CHASSIS}/<identity>/{_NAME}'

ROUTES = (
    routing.add(_ROOT, collection),
    routing.add(_ROOT + '/<sensor_id>', resource),
)
