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

import enum
import typing

from sushy_kubevirt.machine import architecture

if typing.TYPE_CHECKING:
    from collections import abc

    from sushy_kubevirt.kube import objects

#: Lists of a template that contain devices.
List: typing.TypeAlias = typing.Literal['disks', 'interfaces']


class Changes(typing.TypedDict, total=False):
    """What was changed, as `bmc_annotations` describes it.

    Each value is [old, new], that of a device by its name. `prioritize` and
    `apply` set the first three members, or omit those that would be empty.
    """

    disks: dict[str, list[int | None]]
    interfaces: dict[str, list[int | None]]
    added: list[str]
    bootloader: list[objects.Json | None]
    rebootPolicy: list[str | None]


class Target(enum.Enum):
    """Redfish's ``BootSourceOverrideTarget``: the values a VM supports, and
    the classes of boot devices.
    """

    NONE = 'None'
    """No override: the VM's persistent boot order. No device has it."""

    PXE = 'Pxe'
    """A network interface."""

    HDD = 'Hdd'
    """A disk or LUN."""

    CD = 'Cd'
    """A CD-ROM, with or without a medium."""

    USB = 'Usb'
    """A disk on the USB bus, such as a USB stick with a virtual medium."""

    UEFI_HTTP = 'UefiHttp'
    """The separate CD-ROM with the image of ``HttpBootUri``."""


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


class Device(typing.NamedTuple):
    """One device that can have a ``bootOrder``.

    :param list: list of the template it is in
    :param name: its name in that list
    :param order: its ``bootOrder``, None if it has none
    :param bootable: False for a data disk that its owner numbered
    :param written: False for a device that the template does not contain:
        the disk that KubeVirt adds for a volume without one, the interface
        that it adds to a VM without any
    :param usb: whether it is on the USB bus
    """

    list: List
    name: str
    class_: Target
    order: int | None
    bootable: bool = True
    written: bool = True
    usb: bool = False

    def is_a(self, target: Target) -> bool:
        """Return whether a boot target means the device."""
        return target is self.class_ or target is Target.USB and self.usb


def devices(template: objects.VirtualMachineInstanceTemplate) -> list[Device]:
    """List the devices a VM can boot from.

    :returns: sorted by ``bootOrder``; then those without one, in the
        template's order, disks before interfaces
    """
    spec = template.get('spec') or {}
    hardware = hardware_of(template)
    sources = {volume.get('name', ''): volume for volume in
               spec.get('volumes') or ()}
    listed = []
    for disk in hardware.get('disks') or ():
        if 'floppy' in disk:
            continue
        volume = sources.get(disk['name']) or {}
        order = disk.get('bootOrder')
        bootable = not _DATA_VOLUMES & volume.keys()
        if bootable or order is not None:
            usb = (disk.get('disk') or {}).get('bus') == 'usb'
            listed.append(Device('disks', disk['name'], _class(disk, usb),
                                 order, bootable, usb=usb))
    used = {disk['name'] for disk in hardware.get('disks') or ()}
    used |= {system['name'] for system in hardware.get('filesystems') or ()}
    for name, volume in sources.items():
        if name not in used and not _DATA_VOLUMES & volume.keys():
            listed.append(Device('disks', name, Target.HDD, None,
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
            listed.append(Device('interfaces', interface['name'], Target.PXE,
                                 interface.get('bootOrder')))
    if not encrypted and lacks_interfaces(template):
        listed.append(Device('interfaces', POD_INTERFACE, Target.PXE, None,
                             written=False))
    # Sorting is stable: devices without a number keep their order.
    return sorted(listed, key=lambda device: (
        device.order is None, device.order or 0))


def numbers(template: objects.VirtualMachineInstanceTemplate
            ) -> dict[str, int]:
    """Return the ``bootOrder`` of all disks and interfaces of a template.

    :returns: by ``disk:NAME``, ``cdrom:NAME`` or ``interface:NAME``, 0 for
        none: ``bootOrders`` of KubeVirtBMC's ``status.bootOverride``
        (``BootOverrideStatus`` of its main branch, autumn 2026)
    """
    hardware = hardware_of(template)
    keys: list[tuple[str, objects.Disk | objects.Interface]] = [
        *(('cdrom' if 'cdrom' in disk else 'disk', disk)
          for disk in hardware.get('disks') or ()),
        *(('interface', interface)
          for interface in hardware.get('interfaces') or ())]
    return {f"{class_}:{device['name']}": device.get('bootOrder') or 0
            for class_, device in keys}


def lacks_interfaces(template: objects.VirtualMachineInstanceTemplate
                     ) -> bool:
    """Return whether KubeVirt adds an interface to the VM's VMIs."""
    hardware = hardware_of(template)
    return not ((template.get('spec') or {}).get('networks')
                or hardware.get('interfaces')
                or hardware.get('autoattachPodInterface') is False)


def _class(disk: objects.Disk, usb: bool) -> Target:
    if 'cdrom' in disk:
        return Target.UEFI_HTTP if disk['name'] == HTTP_DRIVE else Target.CD
    if usb and disk['name'].startswith(USB_STICK):
        return Target.USB
    return Target.HDD


def classes(template: objects.VirtualMachineInstanceTemplate
            ) -> tuple[Target, ...]:
    """Return the classes that the VM has a bootable device of."""
    present = [device for device in devices(template) if device.bootable]
    return tuple(class_ for class_ in Target
                 if any(device.is_a(class_) for device in present))


def first(template: objects.VirtualMachineInstanceTemplate) -> Device | None:
    """Return the device that is tried first; None if no device has a number,
    in which case KubeVirt chooses.
    """
    return next((device for device in devices(template)
                 if device.order is not None), None)


def first_class(template: objects.VirtualMachineInstanceTemplate) -> Target:
    """Return the class of the device that a guest tries first.

    If no device has a number, libvirt takes the first disk (its ``<boot
    dev='hd'/>``, as KubeVirt's converter sets none), and without one the
    firmware looks at CD-ROMs and the network.

    :returns: `Target.NONE` if there is no such device
    """
    device = first(template)
    if device is not None:
        return device.class_
    present = classes(template)
    return next((class_ for class_ in (Target.HDD, Target.CD, Target.PXE)
                 if class_ in present), Target.NONE)


def prioritize(template: objects.VirtualMachineInstanceTemplate,
               class_: Target, media: abc.Container[str] = ()) -> Changes:
    """Number the devices of one class first, then all others.

    Within both groups devices keep their present order, but drives with
    virtual media come first in the class.

    :param template: a VM's ``spec.template``, which is changed
    :param media: names of the drives with virtual media
    :returns: for `restore`
    """
    before = devices(template)
    chosen = sorted((device for device in before
                     if device.is_a(class_) and device.bootable),
                    key=lambda device: device.name not in media)
    return _number(template, chosen + [
        device for device in before if device not in chosen])


def apply(template: objects.VirtualMachineInstanceTemplate,
          chosen: list[Device]) -> Changes:
    """Number only the given devices, so that no others are tried.

    :param template: a VM's ``spec.template``, which is changed
    :param chosen: some of `devices`, in the order to try
    :returns: for `restore`
    """
    return _number(template, chosen, [
        device for device in devices(template) if device not in chosen])


def _number(template: objects.VirtualMachineInstanceTemplate,
            ordered: list[Device], others: abc.Sequence[Device] = ()
            ) -> Changes:
    """Number some devices from 1 and remove the numbers of others.

    If one disk that KubeVirt would add has to be written to the template, all
    of them are, in KubeVirt's order, so that no disk changes its place.

    :param template: a VM's ``spec.template``, which is changed
    :param ordered: those to number
    :param others: those to leave without a number
    :returns: for `restore`
    """
    record: Changes = {}
    if any(not device.written and device.list == 'disks'
           for device in ordered):
        spec = template['spec']
        implied = {device.name for device in (*ordered, *others)
                   if not device.written and device.list == 'disks'}
        for volume in spec.get('volumes') or ():
            name = volume.get('name', '')
            if name in implied:
                spec.setdefault('domain', {}).setdefault(
                    'devices', {}).setdefault('disks', []).append(
                        {'name': name})
                record.setdefault('added', []).append(name)
    numbered: list[tuple[int | None, Device]] = [
        *enumerate(ordered, 1), *((None, device) for device in others)]
    for number, device in numbered:
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


def restore(template: objects.VirtualMachineInstanceTemplate, record: Changes
            ) -> None:
    """Undo the changes of `prioritize` or `apply` that are still in place.

    :param template: a VM's ``spec.template``, which is changed
    :param record: what `prioritize` or `apply` returned
    """
    volumes = {volume.get('name') for volume in
               template.get('spec', {}).get('volumes') or ()}
    disks = hardware_of(template).get('disks') or []
    for name in record.get('added') or ():
        disk = next((disk for disk in disks if disk.get('name') == name), None)
        if disk is not None and name in volumes and not (
                disk.keys() - {'name', 'bootOrder', 'disk'}
                or disk.get('disk')):
            disks.remove(disk)
    returned: list[tuple[int, objects.Disk | objects.Interface]] = []
    lists: tuple[List, ...] = ('disks', 'interfaces')
    for list_ in lists:
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


def hardware_of(template: objects.VirtualMachineInstanceTemplate
                ) -> objects.Devices:
    """Return the devices of a VM's template or of a VMI, {} for none."""
    domain = (template.get('spec') or {}).get('domain') or {}
    devices = domain.get('devices')
    # An empty one may be edited, too.
    return {} if devices is None else devices


def _find(template: objects.VirtualMachineInstanceTemplate, list_: List,
          name: str) -> objects.Disk | objects.Interface | None:
    for item in hardware_of(template).get(list_) or ():
        if item.get('name') == name:
            return item
    return None
