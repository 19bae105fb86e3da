# SPDX-License-Identifier: Apache-2.0
"""Storage v1.17 and SimpleStorage v1.3: drives of a system, grouped by bus.

Each bus is one Storage resource with one controller, one drive per disk and
one volume per disk of known size. Drives are below the chassis, where the
schema places them. CD-ROM drives are in `virtual_media` and SimpleStorage,
there without CapacityBytes, because clients that search for a disk to install
on would take them for disks. Disks are added with KubeVirt; POST of a volume
is refused.
"""

from __future__ import annotations

import typing

from sushy_kubevirt.redfish.protocol import error_responses
from sushy_kubevirt.redfish.protocol import payload
from sushy_kubevirt.redfish.protocol import responses
from sushy_kubevirt.redfish.protocol import routing
from sushy_kubevirt.redfish.resources import resource_paths

if typing.TYPE_CHECKING:
    from collections import abc

    from sushy_kubevirt.machine import inventory
    from sushy_kubevirt.machine import machine

#: Id of the only controller of each bus.
CONTROLLER = '1'

# Bus: Redfish's Protocol. There is none for virtio and SCSI: shown as OEM.
_PROTOCOLS = {'sata': 'SATA', 'usb': 'USB'}


def path(machine: machine.Machine, storage_id: str, *names: str) -> str:
    """Return the path of a Storage or of a resource below it."""
    return resource_paths.system(machine, 'Storage', storage_id, *names)


def _by_bus(disks: abc.Iterable[inventory.Disk]
            ) -> dict[str, list[inventory.Disk]]:
    """Group disks by bus, in their order."""
    by_bus: dict[str, list[inventory.Disk]] = {}
    for disk in disks:
        by_bus.setdefault(disk.bus, []).append(disk)
    return by_bus


def drives(machine: machine.Machine) -> dict[str, list[inventory.Disk]]:
    """Group the disks and LUNs by bus, without CD-ROM drives."""
    return _by_bus(disk for disk in machine.inventory().disks
                   if disk.kind != 'cdrom')


def drive_path(machine: machine.Machine, name: str) -> str:
    """Return the path of the drive of a disk.

    :param name: the disk's name
    """
    return resource_paths.chassis(machine, 'Drives', name)


def _disks(machine: machine.Machine, storage_id: str) -> list[inventory.Disk]:
    return resource_paths.member('Storage', storage_id, drives(machine))


def collection(machine: machine.Machine) -> responses.Json:
    """GET …/Storage"""
    return responses.collection('Storage', 'Storage Collection',
                                resource_paths.system(machine, 'Storage'),
                                drives(machine))


def resource(machine: machine.Machine, storage_id: str) -> responses.Json:
    """GET …/Storage/<storage_id>"""
    disks = _disks(machine, storage_id)
    here = path(machine, storage_id)
    return {
        '@odata.id': here,
        '@odata.type': '#Storage.v1_17_0.Storage',
        'Id': storage_id,
        'Name': f'{storage_id} disks',
        'Status': resource_paths.STATUS_OK,
        'Controllers': responses.link(here + '/Controllers'),
        'Drives': [responses.link(drive_path(machine, disk.name))
                   for disk in disks],
        'Drives@odata.count': len(disks),
        'Volumes': responses.link(here + '/Volumes'),
        'Links': {
            'Enclosures': [responses.link(resource_paths.chassis(machine))]},
    }


def controllers(machine: machine.Machine, storage_id: str) -> responses.Json:
    """GET …/Storage/<storage_id>/Controllers"""
    _disks(machine, storage_id)
    return responses.collection('StorageController', 'Controllers',
                                path(machine, storage_id, 'Controllers'),
                                [CONTROLLER])


def controller(machine: machine.Machine, storage_id: str, controller_id: str
               ) -> responses.Json:
    """GET …/Storage/<storage_id>/Controllers/<controller_id>"""
    _disks(machine, storage_id)
    resource_paths.member('StorageController', controller_id,
                          {CONTROLLER: storage_id})
    protocol = _PROTOCOLS.get(storage_id)
    return {
        '@odata.id': path(machine, storage_id, 'Controllers', CONTROLLER),
        '@odata.type': '#StorageController.v1_8_0.StorageController',
        'Id': CONTROLLER,
        'Name': f'{storage_id} Controller',
        'SupportedRAIDTypes': ['None'],
        'Status': resource_paths.STATUS_OK,
        **responses.present(SupportedDeviceProtocols=protocol and [protocol]),
    }


def chassis_drives(machine: machine.Machine) -> responses.Json:
    """GET /redfish/v1/Chassis/<identity>/Drives"""
    return responses.collection(
        'Drive', 'Drives', resource_paths.chassis(machine, 'Drives'),
        [disk.name for disks in drives(machine).values() for disk in disks])


def drive(machine: machine.Machine, drive_id: str) -> responses.Json:
    """GET /redfish/v1/Chassis/<identity>/Drives/<drive_id>"""
    bus, disk = resource_paths.member('Drive', drive_id, {
        disk.name: (bus, disk) for bus, disks in drives(machine).items()
        for disk in disks})
    return {
        '@odata.id': drive_path(machine, disk.name),
        '@odata.type': '#Drive.v1_18_0.Drive',
        'Id': disk.name,
        'Name': disk.name,
        'Description': f'{disk.kind} of the VM',
        # KubeVirt does not report the medium behind a virtual disk.
        'MediaType': None,
        'Protocol': _PROTOCOLS.get(bus, 'OEM'),
        'Status': resource_paths.STATUS_OK,
        'Links': {
            'Chassis': responses.link(resource_paths.chassis(machine)),
            'Volumes': [responses.link(_volume_path(machine, bus, disk))
                        for disk in _with_capacity([disk])],
        },
        **responses.present(CapacityBytes=disk.capacity_bytes,
                            SerialNumber=disk.serial),
    }


def no_storage_drive(machine: machine.Machine, **_more: str
                     ) -> typing.NoReturn:
    """GET …/Storage/<stg_id>/Drives/<drv_id>: 404

    sushy-emulator's path; drives are below the chassis.
    """
    raise error_responses.uri_not_found()


def _with_capacity(disks: abc.Iterable[inventory.Disk]
                   ) -> list[inventory.Disk]:
    return [disk for disk in disks if disk.capacity_bytes is not None]


def _volume_path(machine: machine.Machine, storage_id: str,
                 disk: inventory.Disk) -> str:
    return path(machine, storage_id, 'Volumes', disk.name)


def volumes(machine: machine.Machine, storage_id: str) -> responses.Json:
    """GET …/Storage/<storage_id>/Volumes"""
    return {
        **responses.collection(
            'Volume', 'Volumes', path(machine, storage_id, 'Volumes'),
            [disk.name for disk in _with_capacity(
                _disks(machine, storage_id))]),
        '@Redfish.OperationApplyTimeSupport': {
            '@odata.type': '#Settings.v1_3_5.OperationApplyTimeSupport',
            'SupportedValues': ['Immediate'],
        },
    }


def create_volume(machine: machine.Machine, storage_id: str
                  ) -> typing.NoReturn:
    """POST …/Storage/<storage_id>/Volumes: 400"""
    _disks(machine, storage_id)
    payload.body()
    raise error_responses.base_error(
        400, 'CreateLimitReachedForResource',
        detail='Disks are added to a VM with KubeVirt.')


def volume(machine: machine.Machine, stg_id: str, vol_id: str
           ) -> responses.Json:
    """GET …/Storage/<stg_id>/Volumes/<vol_id>"""
    disk = resource_paths.member('Volume', vol_id, {
        disk.name: disk
        for disk in _with_capacity(_disks(machine, stg_id))})
    return {
        '@odata.id': _volume_path(machine, stg_id, disk),
        '@odata.type': '#Volume.v1_10_0.Volume',
        'Id': disk.name,
        'Name': disk.name,
        'Description': disk.source,
        'CapacityBytes': disk.capacity_bytes,
        'RAIDType': 'None',
        'Status': resource_paths.STATUS_OK,
        'Links': {'Drives': [responses.link(
            drive_path(machine, disk.name))]},
    }


# SimpleStorage

def simple_storages(machine: machine.Machine) -> responses.Json:
    """GET …/SimpleStorage"""
    return responses.collection(
        'SimpleStorage', 'Simple Storage Collection',
        resource_paths.system(machine, 'SimpleStorage'),
        _by_bus(machine.inventory().disks))


def simple_storage(machine: machine.Machine, simple_storage_id: str
                   ) -> responses.Json:
    """GET …/SimpleStorage/<simple_storage_id>

    :param simple_storage_id: bus, such as ``sata``
    """
    disks = resource_paths.member(
        'SimpleStorage', simple_storage_id,
        _by_bus(machine.inventory().disks))
    return {
        '@odata.id': resource_paths.system(machine, 'SimpleStorage',
                                           simple_storage_id),
        '@odata.type': '#SimpleStorage.v1_3_1.SimpleStorage',
        'Id': simple_storage_id,
        'Name': f'{simple_storage_id} Controller',
        'Status': resource_paths.STATUS_OK,
        'Devices': [_simple_device(disk) for disk in disks],
        'Links': {'Chassis': responses.link(resource_paths.chassis(machine))},
    }


def _simple_device(disk: inventory.Disk) -> responses.Json:
    device: responses.Json = {
        'Name': disk.name, 'Manufacturer': 'KubeVirt', 'Model': disk.kind,
        'Status': resource_paths.STATUS_OK}
    if not disk.source:
        # A drive without a medium.
        device['Status'] = {'State': 'Absent', 'Health': 'OK'}
    elif disk.capacity_bytes is not None and disk.kind != 'cdrom':
        device['CapacityBytes'] = disk.capacity_bytes
    return device


_ROOT = resource_paths.SYSTEMS + '/<identity>/Storage/<storage_id>/Controllers'
_DRIVES = resource_paths.CHASSIS + '/<identity>/Drives'

ROUTES = (
    routing.replace('simple_storage_collection', simple_storages, cached=True),
    routing.replace('simple_storage', simple_storage, cached=True),
    routing.replace('storage_collection', collection),
    routing.replace('storage', resource),
    routing.replace('drive_resource', no_storage_drive),
    routing.replace('volumes_collection', volumes, post=create_volume),
    routing.replace('volume', volume),
    routing.add(_DRIVES, chassis_drives),
    routing.add(_DRIVES + '/<drive_id>', drive),
    routing.add(_ROOT, controllers),
    routing.add(_ROOT + '/<controller_id>', controller),
)
