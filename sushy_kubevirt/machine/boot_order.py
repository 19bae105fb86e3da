# SPDX-License-Identifier: Apache-2.0
"""Which devices of a VM can be booted from, and in which order.

Pure functions over a VM's template. KubeVirt boots from the devices that
have a ``bootOrder``, lowest first; once one device has a number, those
without are never tried. So an order that is put here numbers every bootable
device, and there is always something to fall back to.

An order is put on with a record of what it changed, and taken off by that
record: only numbers that are still the ones put there are changed back, so
that somebody else's edit in the meantime stands.
"""

import dataclasses
import enum


class Class(enum.Enum):
    """What a boot device is, in the words of Redfish's boot targets."""

    PXE = 'Pxe'
    """A network interface."""

    HDD = 'Hdd'
    """A disk or LUN."""

    CD = 'Cd'
    """A CD-ROM, with or without a medium."""

    HTTP = 'UefiHttp'
    """The CD-ROM that holds what HTTP boot has fetched."""


#: Volumes that carry data for the guest's own use. Their disks boot nothing,
#: so they get no number from us; one that its owner gave stays in its place.
_DATA_VOLUMES = frozenset((
    'cloudInitNoCloud', 'cloudInitConfigDrive', 'configMap', 'secret',
    'serviceAccount', 'downwardAPI', 'downwardMetrics', 'sysprep',
    'memoryDump'))

#: Guests whose memory is encrypted boot from no network interface; KubeVirt
#: refuses to number one (``pkg/virt-api/webhooks/amd64.go`` of 1.9).
_ENCRYPTED = frozenset(('sev', 'snp', 'tdx'))


#: Name of the drive that HTTP boot adds.
HTTP_DRIVE = 'bmc-http'


@dataclasses.dataclass(frozen=True)
class Device:
    """One device that may have a boot order.

    :param list: ``disks`` or ``interfaces``
    :param name: its name there
    :param class_: its `Class`
    :param order: its number, None if it has none
    :param bootable: False for a data disk that its owner numbered
    :param written: False for the disk that KubeVirt adds on its own for a
        volume which the template has no disk for
    """

    list: str
    name: str
    class_: Class
    order: int | None
    bootable: bool = True
    written: bool = True


def devices(template):
    """Find the devices a VM can boot from.

    :param template: the VM's ``spec.template``
    :returns: list of `Device`, in the order in which they are tried now:
        by number, then in the order they stand in the template, disks first
    """
    spec = template.get('spec') or {}
    hardware = _hardware(template)
    sources = {volume.get('name'): volume for volume in
               spec.get('volumes') or ()}
    found = []
    for disk in hardware.get('disks') or ():
        if 'floppy' in disk:
            continue
        volume = sources.get(disk['name']) or {}
        order = disk.get('bootOrder')
        bootable = not _DATA_VOLUMES & volume.keys()
        if bootable or order is not None:
            class_ = Class.CD if 'cdrom' in disk else Class.HDD
            if class_ is Class.CD and disk['name'] == HTTP_DRIVE:
                class_ = Class.HTTP
            found.append(Device('disks', disk['name'], class_, order,
                                bootable))
    used = {item['name'] for kind in ('disks', 'filesystems')
            for item in hardware.get(kind) or ()}
    for name, volume in sources.items():
        if name not in used and not _DATA_VOLUMES & volume.keys():
            found.append(Device('disks', name, Class.HDD, None,
                                written=False))
    domain = spec.get('domain') or {}
    if _ENCRYPTED & (domain.get('launchSecurity') or {}).keys():
        hardware = {}
    for interface in hardware.get('interfaces') or ():
        # passt has no device that firmware could boot from, and one that is
        # being unplugged is as good as gone.
        if ('passtBinding' not in interface
                and interface.get('state') != 'absent'):
            found.append(Device('interfaces', interface['name'], Class.PXE,
                                interface.get('bootOrder')))
    # Sorting is stable: devices without a number keep their places.
    return sorted(found, key=lambda device: (
        device.order is None, device.order or 0))


def classes(template):
    """:returns: tuple of each `Class` the VM has a device of"""
    present = {device.class_ for device in devices(template)
               if device.bootable}
    return tuple(class_ for class_ in Class if class_ in present)


def first(template):
    """:returns: `Class` of the device that is tried first; None if no device
    has a number, which leaves it to KubeVirt
    """
    for device in devices(template):
        if device.order is not None:
            return device.class_
    return None


def prioritize(template, class_):
    """Let one class of device go first, in its own order, the rest after.

    :param template: a VM's ``spec.template``, which is changed
    :param class_: a `Class`
    :returns: record for `restore`: {``disks``: {name: [old, new]},
        ``interfaces``: …, ``added``: [names]}, without what is empty
    """
    before = devices(template)
    chosen = [device for device in before
              if device.class_ is class_ and device.bootable]
    return _number(template, chosen + [
        device for device in before if device not in chosen])


def apply(template, chosen):
    """Let these devices be tried, in this order, and no others.

    :param template: a VM's ``spec.template``, which is changed
    :param chosen: list of `Device`, as `devices` tells them
    :returns: record for `restore`
    """
    return _number(template, chosen, [
        device for device in devices(template) if device not in chosen])


def _number(template, ordered, others=()):
    """Number some devices, and take the numbers of others away.

    All disks that KubeVirt would add are written out as soon as one has to
    be, in KubeVirt's order: so the places of disks are the same before and
    after.
    """
    record = {}
    if any(not device.written for device in ordered):
        everything = {(device.list, device.name): device
                      for device in (*ordered, *others)}
        for volume in template['spec'].get('volumes') or ():
            device = everything.get(('disks', volume.get('name')))
            if device is not None and not device.written:
                _hardware(template, True).setdefault('disks', []).append(
                    {'name': device.name})
                record.setdefault('added', []).append(device.name)
    for number, device in [*enumerate(ordered, 1),
                           *((None, device) for device in others)]:
        item = _find(template, device.list, device.name)
        if item is None or device.order == number:
            continue
        item.pop('bootOrder', None)
        if number is not None:
            item['bootOrder'] = number
        if device.written:
            record.setdefault(device.list, {})[device.name] = [
                device.order, number]
    return record


def restore(template, record):
    """Undo what `prioritize` did, as far as it is still there.

    :param template: a VM's ``spec.template``, which is changed
    :param record: what `prioritize` returned
    """
    volumes = {volume.get('name') for volume in
               template.get('spec', {}).get('volumes') or ()}
    for name in record.get('added') or ():
        disk = _find(template, 'disks', name)
        if disk is not None and name in volumes and not (
                disk.keys() - {'name', 'bootOrder', 'disk'}):
            _hardware(template)['disks'].remove(disk)
    returned = []
    for list_ in ('disks', 'interfaces'):
        for name, (old, new) in (record.get(list_) or {}).items():
            item = _find(template, list_, name)
            if item is not None and item.get('bootOrder') == new:
                item.pop('bootOrder', None)
                if old is not None:
                    returned.append((old, item))
    # A number that somebody has given to another device in the meantime is
    # theirs; KubeVirt refuses two devices with one number.
    taken = {device.order for device in devices(template)}
    for order, item in sorted(returned, key=lambda pair: pair[0]):
        while order in taken:
            order += 1
        taken.add(order)
        item['bootOrder'] = order


def _hardware(template, make=False):
    place = template
    for key in ('spec', 'domain', 'devices'):
        if make:
            place = place.setdefault(key, {})
        else:
            place = place.get(key) or {}
    return place


def _find(template, list_, name):
    for item in _hardware(template).get(list_) or ():
        if item.get('name') == name:
            return item
    return None
