# SPDX-License-Identifier: Apache-2.0
"""Determines which device the firmware of a VMI would boot.

Decided from the VMI alone: its boot order, disks, media and bootloader. The
VM's spec has no influence on a running machine.

As in KubeVirt, once any device has a boot order only the devices that have
one are tried, in that order; without any, the first hard disk is (libvirt's
default). A drive without a medium does not boot. The content of media is not
inspected, so every medium boots, and so does every network, unless the
annotation :data:`UNBOOTABLE` names it.
"""

import dataclasses

from kubevirt_sandbox.kubevirt.admission import devices
from kubevirt_sandbox.kubevirt import paths

UNBOOTABLE = 'sandbox.sushy-kubevirt/unbootable'
"""Annotation of a VMI: names of devices that do not boot, with commas."""


@dataclasses.dataclass(frozen=True)
class Boot:
    """The device that the firmware boots.

    :param device: 'disk:NAME', 'cdrom:NAME', 'interface:NAME', or None when
        nothing would boot.
    :param class_: 'Hdd', 'Usb', 'Cd', 'Pxe' or None.
    :param firmware: 'bios', 'efi' or 'efi-secure'.
    :param tried: the devices that were tried, the one that booted last.
    """

    device: str | None
    class_: str | None
    firmware: str
    tried: tuple[str, ...]


def boot(vmi):
    """Start a machine.

    :param vmi: the VirtualMachineInstance.
    :returns: a :class:`Boot`.
    """
    spec = vmi['spec']
    media = _media(vmi)
    dead = {name.strip() for name in (vmi['metadata'].get('annotations')
                                      or {}).get(UNBOOTABLE, '').split(',')}
    tried = []
    for device, class_, name in _order(spec):
        tried.append(device)
        if name not in dead and (class_ == 'Pxe' or name in media):
            return Boot(device, class_, kind(spec), tuple(tried))
    return Boot(None, None, kind(spec), tuple(tried))


def kind(spec):
    """Return 'bios', 'efi' or 'efi-secure' of a VMI's spec."""
    domain = spec.get('domain') or {}
    if devices.secure_boot(domain):
        return 'efi-secure'
    if paths.at(domain, 'firmware', 'bootloader', 'efi') is not None:
        return 'efi'
    return 'bios'


def missing(vmi):
    """Return why virt-launcher finds no firmware for a VMI, or ''.

    Its images have no UEFI for s390x, and none with secure boot for arm64
    (virtwrap/efi/efi.go and manager.go).
    """
    firmware, architecture = kind(vmi['spec']), vmi['spec'].get('architecture')
    if firmware == 'bios' or architecture not in ('arm64', 's390x') or (
            firmware == 'efi' and architecture == 'arm64'):
        return ''
    secure = str(firmware == 'efi-secure').lower()
    return ('EFI OVMF roms missing for booting in EFI mode with SecureBoot='
            f'{secure}, SEV/SEV-ES=false, SEV-SNP=false, TDX=false')


def _order(spec):
    """Return (device, class, name) of devices in boot order."""
    found = []
    for disk in paths.disks(spec):
        drive = disk.get('cdrom') is not None
        usb = paths.at(disk, 'disk', 'bus') == 'usb'
        found.append((disk.get('bootOrder'),
                      f'{"cdrom" if drive else "disk"}:{disk["name"]}',
                      'Cd' if drive else 'Usb' if usb else 'Hdd',
                      disk['name']))
    for card in paths.interfaces(spec):
        found.append((card.get('bootOrder'), f'interface:{card["name"]}',
                      'Pxe', card['name']))
    numbered = sorted(item for item in found if item[0] is not None)
    if numbered:
        return [item[1:] for item in numbered]
    return [item[1:] for item in found if item[2] in ('Hdd', 'Usb')][:1]


def _media(vmi):
    """Return the names of the volumes that the machine can read now.

    What is mounted when a machine starts is in it from the start
    (configurator.go of virt-launcher's converter).
    """
    plugging = {s['name'] for s in paths.at(vmi, 'status', 'volumeStatus')
                or () if s.get('hotplugVolume') is not None
                and s.get('phase') not in ('MountedToPod', 'Ready')}
    return {v['name'] for v in paths.volumes(vmi['spec'])} - plugging
