# SPDX-License-Identifier: Apache-2.0
"""Admission of disks, their buses and the boot order.

Source: pkg/storage/admitters/disks.go, validateBootOrder of
vmi-create-admitter.go (KubeVirt 1.9).
"""

import posixpath
import re

from kubevirt_sandbox.kubevirt.admission import causes
from kubevirt_sandbox.kubevirt import paths

_SERIAL = re.compile(r'^[A-Za-z0-9_.+-]+$')
_PCI_ADDRESS = re.compile(
    r'^[\da-fA-F]{4}:[\da-fA-F]{2}:[\da-fA-F]{2}\.[0-7]$')
_BUSES = ('virtio', 'scsi', 'sata', 'usb')
_KINDS = ('disk', 'lun', 'cdrom')
_BLOCK_SIZES = (512, 2097152)


def is_pci_address(text):
    """Tell whether a text is a PCI address such as 0000:81:11.1."""
    return bool(_PCI_ADDRESS.match(text))


def kind_of(disk):
    """Return disk, lun, cdrom or ''."""
    return next((kind for kind in _KINDS if disk.get(kind) is not None), '')


def check_disks(field, disks):
    """List causes to refuse disks.

    :param field: the path of the list.
    :param disks: the list.
    """
    found = []
    for index, disk in enumerate(disks):
        where = f'{field}[{index}]'
        found += _check_name(field, index, disks)
        found += _check_target(where, disk)
        found += _check_boot_order(where, disk)
        found += _check_bus(field, where, disk)
        found += _check_serial(where, disk)
        found += _check_modes(field, where, index, disk)
        found += [causes.Cause(text,
                               f'{field}.domain.devices.disks[{index}].name')
                  for text in causes.label_errors(disk.get('name', ''))]
        found += _check_block_size(where, disk)
    return found


def _check_name(field, index, disks):
    return [causes.Cause(f'{field}[{index}] and {field}[{other}] must not '
                         'have the same Name.', f'{field}[{index}].name')
            for other in range(index)
            if disks[other].get('name') == disks[index].get('name')]


def _check_target(where, disk):
    if sum(disk.get(kind) is not None for kind in _KINDS) > 1:
        yield causes.Cause(
            f'{where} can only have a single target type defined',
            where)
    address = paths.at(disk, 'disk', 'pciAddress')
    if not address:
        return
    list_of, _, index = where.rstrip(']').rpartition('[')
    inner = f'{list_of}.domain.devices.disks.disk[{index}]'
    if disk['disk'].get('bus') != 'virtio':
        yield causes.Cause(
            f'disk {inner}.name - setting a PCI address is only possible '
            'with bus type virtio.', f'{inner}.pciAddress')
    if not is_pci_address(address):
        yield causes.Cause(f'disk {inner}.name has malformed PCI address '
                           f'({address}).', f'{inner}.pciAddress')


def _check_boot_order(where, disk):
    order = disk.get('bootOrder')
    if order is not None and order < 1:
        yield causes.Cause(f'{where} must have a boot order > 0, if supplied',
                           f'{where}.bootOrder')


def _check_bus(field, where, disk):
    kind = kind_of(disk)
    bus = paths.at(disk, kind, 'bus')
    if not bus:
        return
    where_bus = f'{where}.{kind}.bus'
    if bus == 'ide':
        yield causes.Cause('IDE bus is not supported', where_bus)
    elif bus not in _BUSES:
        yield causes.Cause(
            f'{where} is set with an unrecognized bus {bus}, must be one '
            'of: [virtio scsi sata usb]', where_bus)
    elif bus == 'virtio' and kind == 'cdrom':
        yield causes.Cause(f'Bus type {bus} is invalid for CD-ROM device',
                           where_bus)
    elif bus == 'sata' and paths.at(disk, 'disk', 'readonly'):
        yield causes.Cause(f'{bus} hard-disks do not support read-only.',
                           where_bus)
    if disk.get('dedicatedIOThread') and bus != 'virtio':
        index = where[len(field):]
        yield causes.Cause(
            f'IOThreads are not supported for disks on a {bus} bus',
            f'{field}.domain.devices.disks{index}', causes.NOT_SUPPORTED)


def _check_serial(where, disk):
    serial = disk.get('serial')
    if not serial:
        return
    if not _SERIAL.match(serial):
        yield causes.Cause(
            f'{where} must be made up of the following characters '
            '[A-Za-z0-9_.+-], if specified', f'{where}.serial')
    if len(serial) > 256:
        yield causes.Cause(f'{where} must be less than or equal to 256 in '
                           'length, if specified', f'{where}.serial')


def _check_modes(field, where, index, disk):
    cache = disk.get('cache')
    if cache and cache not in ('none', 'writethrough', 'writeback'):
        yield causes.Cause(f'{where}.cache has invalid value {cache}',
                           f'{where}.cache')
    if disk.get('io') and disk['io'] not in ('native', 'threads'):
        yield causes.Cause(
            f'Disk IO mode for {field} is not supported. Supported modes '
            'are: native, threads.',
            f'{field}.domain.devices.disks[{index}].io', causes.NOT_SUPPORTED)
    policy = disk.get('errorPolicy')
    if policy and policy not in ('stop', 'ignore', 'report', 'enospace'):
        yield causes.Cause(f'{where}.errorPolicy has invalid value "{policy}"',
                           f'{where}.errorPolicy')


def _check_block_size(where, disk):
    custom = paths.at(disk, 'blockSize', 'custom')
    if custom is None:
        return
    match = disk['blockSize'].get('matchVolume')
    field = f'{where}.blockSize'
    if match is not None and match.get('enabled', True):
        yield causes.Cause(
            "Block size matching can't be enabled together with a "
            'custom value', field)
        return
    logical, physical = custom.get('logical', 0), custom.get('physical', 0)
    granularity = custom.get('discardGranularity')
    if logical > physical:
        yield causes.Cause(f'Logical size {logical} must be the same or less '
                           f'than the physical size of {physical}',
                           f'{field}.custom.logical')
    elif (paths.at(disk, kind_of(disk), 'bus') == 'sata'
            and logical != _BLOCK_SIZES[0]):
        yield causes.Cause(f'Logical size {logical} must be {_BLOCK_SIZES[0]} '
                           'for SATA devices', f'{field}.custom.logical')
    elif granularity is not None and logical and granularity % logical:
        yield causes.Cause(
            f'Discard granularity {granularity} must be multiples '
            f'of logical size {logical}',
            f'{field}.custom.discardGranularity')
    else:
        for name, size in (('logical', logical), ('physical', physical)):
            yield from _check_size(f'{field}.custom.{name}', size)


def _check_size(field, size):
    least, most = _BLOCK_SIZES
    if size < least:
        yield causes.Cause(
            f'Provided size of {size} is less than the supported '
            f'minimum size of {least}', field)
    elif size > most:
        yield causes.Cause(f'Provided size of {size} is greater than the '
                           f'supported maximum size of {most}', field)
    elif size & (size - 1):
        yield causes.Cause(f'Provided size of {size} is not a power of 2',
                           field)


def check_boot(field, spec, config):
    """Check that disks have volumes and that boot orders are unique.

    :param field: the path of the VMI's spec.
    """
    volumes = paths.named(paths.volumes(spec))
    taken = set()
    for index, disk in enumerate(paths.disks(spec)):
        where = f'{field}.domain.devices.disks[{index}]'
        volume = volumes.get(disk.get('name'))
        if volume is None:
            yield from _check_empty(where, disk, config)
        elif disk.get('lun') is not None and not (
                volume.get('persistentVolumeClaim') is not None
                or volume.get('dataVolume') is not None):
            yield causes.Cause(
                f'{where}.lun can only be mapped to a DataVolume '
                'or PersistentVolumeClaim volume.', f'{where}.lun')
        yield from _check_taken(where, disk, taken)
    for index, card in enumerate(paths.interfaces(spec)):
        order = card.get('bootOrder')
        if order is not None and order < 1:
            yield causes.Cause(
                f'{field}[{index}] must have a boot order > 0, if '
                'supplied', f'{field}[{index}].bootOrder')
            continue
        yield from _check_taken(
            f'{field}.domain.devices.interfaces[{index}]', card, taken)


def _check_empty(where, disk, config):
    if disk.get('cdrom') is None:
        yield causes.Cause(f"{where}.Name '{disk.get('name', '')}' not found.",
                           f'{where}.name')
    elif not config.enabled('DeclarativeHotplugVolumes'):
        yield causes.Cause(
            'DeclarativeHotplugVolumes feature gate not enabled, cannot '
            'define an empty CD-ROM disk', f'{where}.name')


def _check_taken(where, device, taken):
    order = device.get('bootOrder')
    if order is None:
        return
    if order in taken:
        yield causes.Cause(
            f'Boot order for {where}.bootOrder already set for a '
            'different device.', f'{where}.bootOrder')
    taken.add(order)


def check_path(field, path):
    """Check a path in a container: absolute, normalized, not the root."""
    if path == '/':
        yield causes.Cause(f'{field} must not point to root', field)
    elif posixpath.normpath('/' + path) != path.removesuffix('/'):
        yield causes.Cause(
            f'{field} must be an absolute path to a file without '
            'relative components', field)
