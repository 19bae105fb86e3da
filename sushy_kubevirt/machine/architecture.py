# SPDX-License-Identifier: Apache-2.0
"""What the CPU architecture of a VM has of the settings that a BMC writes.

KubeVirt checks most of it when it creates a VMI, and not when the VM is
changed: a VM with a setting that its architecture lacks never starts. Sources,
of KubeVirt 1.9: ``pkg/virt-api/webhooks`` (arm64.go, amd64.go, s390x.go),
``pkg/defaults``, ``pkg/storage/admitters/disks.go`` (no virtio CD-ROMs), and
virt-launcher's ``converter/arch`` and ``efi/efi.go``.
"""

from __future__ import annotations

import typing

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import objects


class Architecture(typing.NamedTuple):
    """One CPU architecture.

    :param firmware: types of KubeVirt's ``bootloader`` that guests start with,
        the default first
    :param secure_boot: whether UEFI has secure boot: KubeVirt demands SMM for
        it, which only x86 has
    :param cdrom_bus: bus of an added CD-ROM drive
    :param usb: whether disks can be on the USB bus
    """

    firmware: tuple[str, ...]
    secure_boot: bool
    cdrom_bus: str
    usb: bool


#: By KubeVirt's name. Guests on s390x have no firmware that could be chosen:
#: ``bios``, which has no effect there, stands for it.
_ARCHITECTURES = {
    'amd64': Architecture(('bios', 'efi'), True, 'sata', True),
    'arm64': Architecture(('efi',), False, 'scsi', False),
    's390x': Architecture(('bios',), False, 'scsi', False),
}

#: What any other, such as ppc64le of older versions, is known to have.
_OTHER = _ARCHITECTURES['s390x']

#: Types of ``launchSecurity``, which encrypt a guest's memory and demand UEFI
#: (amd64.go), by whether they allow secure boot.
ENCRYPTED = {'sev': False, 'snp': False, 'tdx': True}


def of(vm: objects.VirtualMachine) -> Architecture:
    """Return the architecture of a VM, as far as its encryption allows.

    :param vm: the VM, into which KubeVirt has written the cluster's default;
        one without it counts as amd64
    """
    architecture = named(name(vm))
    type_ = encryption(vm)
    if type_ is None:
        return architecture
    return architecture._replace(firmware=('efi',), secure_boot=(
        architecture.secure_boot and ENCRYPTED[type_]))


def encryption(vm: objects.VirtualMachine) -> str | None:
    """Return the type of a VM's memory encryption, of `ENCRYPTED`."""
    template = vm['spec'].get('template') or {}
    domain = (template.get('spec') or {}).get('domain') or {}
    return next((type_ for type_ in domain.get('launchSecurity') or {}
                 if type_ in ENCRYPTED), None)


def named(name_: str) -> Architecture:
    """Return the `Architecture` of this name."""
    return _ARCHITECTURES.get(name_, _OTHER)


def cpu_arch(name_: str) -> str:
    """Return Ironic's name of an architecture, that of ``uname -m``.

    :param name_: KubeVirt's name
    """
    return {'amd64': 'x86_64', 'arm64': 'aarch64'}.get(name_, name_)


def name(vm: objects.VirtualMachine) -> str:
    """Return KubeVirt's name of the architecture of a VM."""
    template = vm['spec'].get('template') or {}
    return (template.get('spec') or {}).get('architecture') or 'amd64'
