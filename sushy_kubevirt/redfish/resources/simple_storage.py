# SPDX-License-Identifier: Apache-2.0
"""SimpleStorage v1.3: all drives of a system by bus, including media drives.

Media have no CapacityBytes, because clients that search for a disk to install
on would take them for disks.
"""

from __future__ import annotations

import typing

from sushy_kubevirt.redfish.protocol import responses
from sushy_kubevirt.redfish.protocol import routing
from sushy_kubevirt.redfish.resources import hardware
from sushy_kubevirt.redfish.resources import resource_paths

if typing.TYPE_CHECKING:
    from sushy_kubevirt.machine import inventory
    from sushy_kubevirt.machine import machine


def collection(machine: machine.Machine) -> responses.Json:
    """GET …/SimpleStorage"""
    return responses.collection(
        'SimpleStorage', 'Simple Storage Collection',
        resource_paths.system(machine, 'SimpleStorage'),
        hardware.disks_by_bus(machine.inventory().disks))


def resource(machine: machine.Machine, simple_storage_id: str
             ) -> responses.Json:
    """GET …/SimpleStorage/<simple_storage_id>

    :param simple_storage_id: bus, such as ``sata``
    """
    disks = resource_paths.member(
        'SimpleStorage', simple_storage_id,
        hardware.disks_by_bus(machine.inventory().disks))
    return {
        '@odata.id': resource_paths.system(machine, 'SimpleStorage',
                                           simple_storage_id),
        '@odata.type': '#SimpleStorage.v1_3_1.SimpleStorage',
        'Id': simple_storage_id,
        'Name': f'{simple_storage_id} Controller',
        'Status': resource_paths.STATUS_OK,
        'Devices': [_device(disk) for disk in disks],
        'Links': {'Chassis': responses.link(resource_paths.chassis(machine))},
    }


def _device(disk: inventory.Disk) -> responses.Json:
    device: responses.Json = {
        'Name': disk.name, 'Manufacturer': 'KubeVirt', 'Model': disk.kind,
        'Status': resource_paths.STATUS_OK}
    if not disk.source:
        # A drive without a medium.
        device['Status'] = {'State': 'Absent', 'Health': 'OK'}
    elif disk.capacity_bytes is not None and disk.kind != 'cdrom':
        device['CapacityBytes'] = disk.capacity_bytes
    return device


ROUTES = (
    routing.replace('simple_storage_collection', collection, cached=True),
    routing.replace('simple_storage', resource, cached=True),
)
