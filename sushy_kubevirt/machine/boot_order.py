# SPDX-License-Identifier: Apache-2.0
"""Bootable devices of a VM and their ``bootOrder`` numbers.

Pure functions over a VM's template. KubeVirt boots from the devices that
have a ``bootOrder``, lowest first; once one device has a number, those
without are never tried. `prioritize` therefore numbers every bootable device,
so that the boot can always fall back to another one.

`prioritize` and `apply` return a record of what they changed, and `restore`
undoes the change by that record. It changes back only the numbers that are
still the recorded ones, so that edits made by other clients since then are
kept.
"""

from __future__ import annotations

import dataclasses
import enum

from sushy_kubevirt.machine import architecture


class Class(enum.Enum):
    """Class of a boot device; the values are Redfish's boot targets."""

    PXE = 'Pxe'
    """A network interface."""

    HDD = 'Hdd'
    """A disk or LUN."""

    CD = 'Cd'
    """A CD-ROM, with or without a medium."""

    USB = 'Usb'
    """A disk on the USB bus, such as a USB stick with a virtual medium."""

    HTTP = 'UefiHttp'
    """The CD-ROM with the image of HTTP boot."""


#: Types of volumes that carry data for the guest. Their disks are not
#: bootable and get no number here. A disk that its owner numbered keeps its
#: place in the order.
_DATA_VOLUMES = frozenset((
    'cloudInitNoCloud', 'cloudInitConfigDrive', 'configMap', 'secret',
    'serviceAccount', 'downwardAPI', 'downwardMetrics', 'sysprep',
    'memoryDump'))

#: Name of the interface that KubeVirt adds to a VM without any
#: (``pkg/network/vmispec/defaults.go`` of 1.9), and of its network.
POD_INTERFACE = 'default'

#: Name of the CD-ROM drive that HTTP boot adds.
HTTP_DRIVE = 'bmc-http'

#: Name of the USB stick that virtual media add, which may have a number as
#: suffix. It is no hard disk, while a disk of the VM's owner on the USB bus
#: is both.
USB_STICK = 'bmc-usb'


@dataclasses.dataclass(frozen=True)
class Device:
    """One device that can have a ``bootOrder``.

    :param list: list of the template it is in, ``disks`` or ``interfaces``
    :param name: its name in that list
    :param class_: its `Class`
    :param order: its ``bootOrder``, None if it has none
    :param bootable: False for a data disk that its owner numbered
    :param written: False for a device that the template does not contain:
        the disk that KubeVirt adds for a volume without one, the interface
        that it adds to a VM without any
    :param usb: whether it is on the USB bus
    """

    list: str
    name: str
    class_: Class
    order: int | None
    bootable: bool = True
    written: bool = True
    usb: bool = False

    def is_a(self, class_):
        """Return whether a boot target of this `Class` means the device."""
        return class_ is self.class_ or class_ is Class.USB and self.usb


def devices(template):
    """List the devices a VM can boot from.

    :param template: the VM's ``spec.template``
    :returns: list of `Device`, sorted by ``bootOrder``; then those without
        one, in the template's order, disks before interfaces
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
            usb = (disk.get('disk') or {}).get('bus') == 'usb'
            found.append(Device('disks', disk['name'], _class(disk, usb),
                                order, bootable, usb=usb))
    used = {item['name'] for kind in ('disks', 'filesystems')
            for item in hardware.get(kind) or ()}
    for name, volume in sources.items():
        if name not in used and not _DATA_VOLUMES & volume.keys():
            found.append(Device('disks', name, Class.HDD, None,
                                written=False))
    domain = spec.get('domain') or {}
    # KubeVirt rejects a bootOrder on an interface of such a guest
    # (pkg/virt-api/webhooks/amd64.go of 1.9).
    encrypted = architecture.ENCRYPTED.keys() & (
        domain.get('launchSecurity') or {}).keys()
    if encrypted:
        hardware = {}
    for interface in hardware.get('interfaces') or ():
        # passt has no device that firmware could boot from; an interface in
        # state absent is being unplugged.
        if ('passtBinding' not in interface
                and interface.get('state') != 'absent'):
            found.append(Device('interfaces', interface['name'], Class.PXE,
                                interface.get('bootOrder')))
    if not encrypted and lacks_interfaces(template):
        found.append(Device('interfaces', POD_INTERFACE, Class.PXE, None,
                            written=False))
    # Sorting is stable: devices without a number keep their order.
    return sorted(found, key=lambda device: (
        device.order is None, device.order or 0))


def lacks_interfaces(template) -> bool:
    """Return whether KubeVirt adds an interface to the VM's VMIs.

    :param template: the VM's ``spec.template``
    """
    hardware = _hardware(template)
    return not ((template.get('spec') or {}).get('networks')
                or hardware.get('interfaces')
                or hardware.get('autoattachPodInterface') is False)


def _class(disk, usb):
    if 'cdrom' in disk:
        return Class.HTTP if disk['name'] == HTTP_DRIVE else Class.CD
    if usb and disk['name'].startswith(USB_STICK):
        return Class.USB
    return Class.HDD


def classes(template):
    """Return a tuple of the classes that the VM has a bootable device of.

    :param template: the VM's ``spec.template``
    """
    present = [device for device in devices(template) if device.bootable]
    return tuple(class_ for class_ in Class
                 if any(device.is_a(class_) for device in present))


def first(template):
    """Return the `Device` that is tried first; None if no device has a
    number, in which case KubeVirt chooses.

    :param template: the VM's ``spec.template``
    """
    for device in devices(template):
        if device.order is not None:
            return device
    return None


def unnumbered(template):
    """Return the `Class` that a guest boots from if no device has a number.

    libvirt then takes the first disk (its ``<boot dev='hd'/>``, as KubeVirt's
    converter sets none), and without one the firmware looks at CD-ROMs and the
    network.

    :param template: the VM's ``spec.template``
    :returns: None if there is no such device
    """
    present = classes(template)
    return next((class_ for class_ in (Class.HDD, Class.CD, Class.PXE)
                 if class_ in present), None)


def prioritize(template, class_, media=()):
    """Number the devices of one class first, then all others.

    Within both groups devices keep their present order, but drives with
    virtual media come first in the class.

    :param template: a VM's ``spec.template``, which is changed
    :param class_: a `Class`
    :param media: names of the drives with virtual media
    :returns: record for `restore`: {``disks``: {name: [old, new]},
        ``interfaces``: …, ``added``: [names]}, without empty members
    """
    before = devices(template)
    chosen = sorted((device for device in before
                     if device.is_a(class_) and device.bootable),
                    key=lambda device: device.name not in media)
    return _number(template, chosen + [
        device for device in before if device not in chosen])


def apply(template, chosen):
    """Number only the given devices, so that no others are tried.

    :param template: a VM's ``spec.template``, which is changed
    :param chosen: list of `Device` from `devices`, in the order to try
    :returns: record for `restore`, like that of `prioritize`
    """
    return _number(template, chosen, [
        device for device in devices(template) if device not in chosen])


def _number(template, ordered, others=()):
    """Number some devices from 1 and remove the numbers of others.

    If one disk that KubeVirt would add has to be written to the template, all
    of them are, in KubeVirt's order, so that no disk changes its place.

    :param template: a VM's ``spec.template``, which is changed
    :param ordered: list of `Device` to number
    :param others: list of `Device` to leave without a number
    :returns: record for `restore`
    """
    record = {}
    if any(not device.written and device.list == 'disks'
           for device in ordered):
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


def restore(template, record) -> None:
    """Undo the changes of `prioritize` or `apply` that are still in place.

    :param template: a VM's ``spec.template``, which is changed
    :param record: the record that `prioritize` or `apply` returned
    """
    volumes = {volume.get('name') for volume in
               template.get('spec', {}).get('volumes') or ()}
    for name in record.get('added') or ():
        disk = _find(template, 'disks', name)
        if disk is not None and name in volumes and not (
                disk.keys() - {'name', 'bootOrder', 'disk'}
                or disk.get('disk')):
            _hardware(template)['disks'].remove(disk)
    returned = []
    for list_ in ('disks', 'interfaces'):
        for name, (old, new) in (record.get(list_) or {}).items():
            item = _find(template, list_, name)
            if item is not None and item.get('bootOrder') == new:
                item.pop('bootOrder', None)
                if old is not None:
                    returned.append((old, item))
    # Another client may have given an old number to another device since.
    # That device keeps it, because KubeVirt rejects two devices with the same
    # number; the restored device gets the next free one.
    taken = {device.order for device in devices(template)}
    for order, item in sorted(returned, key=lambda pair: pair[0]):
        while order in taken:
            order += 1
        taken.add(order)
        item['bootOrder'] = order


def _hardware(template, make: bool = False):
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
