# SPDX-License-Identifier: Apache-2.0
"""Chassis v1.25: one virtual chassis per system, with the system's Id.

It has no power supplies. Manufacturer, Model, SerialNumber, SKU
and AssetTag come from ``domain.chassis``, which the VM's owner sets for the
guest's SMBIOS. Without its own serial number it has that of the system.
"""

from __future__ import annotations

import typing

from sushy_kubevirt.redfish.protocol import error_responses
from sushy_kubevirt.redfish.protocol import payload
from sushy_kubevirt.redfish.protocol import responses
from sushy_kubevirt.redfish.protocol import routing
from sushy_kubevirt.redfish.resources import computer_system
from sushy_kubevirt.redfish.resources import resource_paths
from sushy_kubevirt.redfish.services import system_id

if typing.TYPE_CHECKING:
    from sushy_kubevirt.machine import machine

ROOT = resource_paths.CHASSIS

_SHAPE: payload.Shape = {
    'IndicatorLED': computer_system.INDICATOR,
    'LocationIndicatorActive': bool,
    **payload.read_only(
        'Id', 'Name', 'UUID', 'ChassisType', 'Description', 'Status', 'Links',
        'Manufacturer', 'Model', 'SerialNumber', 'SKU', 'AssetTag',
        'PowerState', 'Drives', 'Sensors'),
}


def collection() -> responses.Document:
    """GET /redfish/v1/Chassis"""
    return resource_paths.machine_collection(
        'Chassis', 'Chassis Collection', ROOT)


def resource(machine: machine.Machine) -> responses.Json:
    """GET /redfish/v1/Chassis/<identity>

    The indicator is that of the system.
    """
    indicator = machine.indicator()
    inventory = machine.inventory()
    smbios = inventory.chassis
    return {
        '@odata.id': resource_paths.chassis(machine),
        '@odata.type': '#Chassis.v1_25_0.Chassis',
        'Id': system_id.of(machine),
        'Name': f'{machine.name}-Chassis',
        'UUID': machine.uuid,
        'ChassisType': 'Other',
        'Description': 'Virtual chassis without hardware',
        'IndicatorLED': indicator,
        'LocationIndicatorActive': indicator != 'Off',
        'Status': resource_paths.STATUS_OK,
        'Drives': responses.link(resource_paths.chassis(machine, 'Drives')),
        'Sensors': responses.link(resource_paths.chassis(machine, 'Sensors')),
        'Links': {
            'ComputerSystems': [
                responses.link(resource_paths.system(machine))],
            'ComputerSystems@odata.count': 1,
            'ManagedBy': [responses.link(resource_paths.manager(machine))],
            'ManagedBy@odata.count': 1,
            'ManagersInChassis': [
                responses.link(resource_paths.manager(machine))],
            'ManagersInChassis@odata.count': 1,
        },
        **responses.present(
            Manufacturer=smbios.manufacturer, Model=smbios.version,
            SerialNumber=smbios.serial or inventory.serial, SKU=smbios.sku,
            AssetTag=smbios.asset),
    }


def patch(machine: machine.Machine) -> None:
    """PATCH /redfish/v1/Chassis/<identity>"""
    indicator = computer_system.requested_indicator(
        machine, payload.properties(_SHAPE))
    if indicator is not None:
        with resource_paths.property_errors(
                machine, 'IndicatorLED', indicator):
            machine.change(indicator=indicator)


def thermal(machine: machine.Machine) -> typing.NoReturn:
    """GET …/Thermal: 404, because a VM has nothing to measure"""
    raise error_responses.uri_not_found()


ROOT_LINKS = {'Chassis': ROOT}

ROUTES = (
    routing.replace('chassis_collection_resource', collection),
    routing.replace('chassis_resource', resource, patch=patch, cached=True),
    routing.replace('thermal_resource', thermal),
)
