# SPDX-License-Identifier: Apache-2.0
"""UpdateService v1.14 and SoftwareInventory v1.10: versions of the firmware.

Nothing can be updated here: the guests' firmware is part of KubeVirt, and the
BMC is an image or a package. Replaces sushy-emulator's views, which simulate
an update by incrementing a version number.
"""

from __future__ import annotations

import contextlib
import typing

from sushy_kubevirt.kube import errors
from sushy_kubevirt.redfish.protocol import application
from sushy_kubevirt.redfish.protocol import error_responses
from sushy_kubevirt.redfish.protocol import responses
from sushy_kubevirt.redfish.protocol import routing
from sushy_kubevirt.redfish.resources import product
from sushy_kubevirt.redfish.resources import resource_paths

ROOT = '/redfish/v1/UpdateService'
INVENTORY = ROOT + '/FirmwareInventory'

_UPDATE = 'UpdateService.SimpleUpdate'


def service() -> responses.Json:
    """GET /redfish/v1/UpdateService"""
    return {
        '@odata.id': ROOT,
        '@odata.type': '#UpdateService.v1_14_0.UpdateService',
        'Id': 'UpdateService',
        'Name': 'Update Service',
        'Description': 'Versions of the firmware, which is updated with '
        'KubeVirt and with this service',
        # No updates. The inventory can be read all the same.
        'ServiceEnabled': False,
        'Status': {'State': 'Disabled', 'Health': 'OK'},
        'FirmwareInventory': responses.link(INVENTORY),
        # Ironic's interoperability profile requires it.
        'Actions': {'#' + _UPDATE: {'target': f'{ROOT}/Actions/{_UPDATE}'}},
    }


def simple_update() -> typing.NoReturn:
    """POST …/Actions/UpdateService.SimpleUpdate: 501"""
    raise error_responses.base_error(
        501, 'ActionNotSupported', _UPDATE,
        detail='Firmware comes with KubeVirt and is updated with it.')


def collection() -> responses.Json:
    """GET /redfish/v1/UpdateService/FirmwareInventory"""
    return responses.collection(
        'SoftwareInventory', 'Firmware Inventory', INVENTORY, _inventory())


def resource(firmware: str) -> responses.Json:
    """GET /redfish/v1/UpdateService/FirmwareInventory/<firmware>"""
    properties = resource_paths.member('SoftwareInventory', firmware,
                                       _inventory())
    related = properties.pop('RelatedItem')
    return {
        '@odata.id': f'{INVENTORY}/{firmware}',
        '@odata.type': '#SoftwareInventory.v1_10_0.SoftwareInventory',
        'Id': firmware,
        **properties,
        'Updateable': False,
        'Status': resource_paths.STATUS_OK,
        'RelatedItem': [responses.link(path) for path in related],
        'RelatedItem@odata.count': len(related),
    }


def _inventory() -> dict[str, responses.Json]:
    """List the firmware: of the BMC, KubeVirt, and that of the guests.

    :returns: Id to properties; RelatedItem has paths
    """
    managers, systems = [], []
    kubevirt: responses.Json = {}
    guests: dict[str, responses.Json] = {}
    for machine in application.current().systems.machines():
        with contextlib.suppress(errors.MachineNotFound):   # deleted meanwhile
            inventory = machine.inventory()
            managers.append(resource_paths.manager(machine))
            systems.append(resource_paths.system(machine))
            if inventory.kubevirt_version:
                kubevirt = {'Version': inventory.kubevirt_version}
            kind = inventory.firmware_type
            guest = guests.setdefault(kind, {
                'Name': f'{kind} of the guests',
                'Manufacturer': 'KubeVirt',
                'Version': inventory.firmware_version,
                'RelatedItem': []})
            guest['RelatedItem'].append(systems[-1])
    return {
        'BMC': {'Name': 'BMC', 'Manufacturer': product.NAME,
                'Version': product.version(),
                'RelatedItem': managers},
        'KubeVirt': {'Name': 'KubeVirt', 'Manufacturer': 'KubeVirt',
                     **kubevirt, 'RelatedItem': systems},
        **guests,
    }


ROOT_LINKS = {'UpdateService': ROOT}

ROUTES = (
    routing.replace('UpdateService.update_service_resource', service),
    routing.replace('UpdateService.update_service_simple_update',
                    post=simple_update),
    routing.add(INVENTORY, collection),
    routing.add(INVENTORY + '/<firmware>', resource),
)
