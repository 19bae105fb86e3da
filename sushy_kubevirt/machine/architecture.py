# SPDX-License-Identifier: Apache-2.0
"""What the CPU architecture of a VM has of the settings that a BMC writes.

KubeVirt checks most of it when it creates a VMI, and not when the VM is
changed: a VM with a setting that its architecture lacks never starts. Sources,
of KubeVirt 1.9: ``pkg/virt-api/webhooks`` (arm64.go, amd64.go, s390x.go),
``pkg/defaults``, ``pkg/storage/admitters/disks.go`` (no virtio CD-ROMs), and
virt-launcher's ``converter/arch`` and ``efi/efi.go``.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Architecture:
    """One CPU architecture.

    :param firmware: types of KubeVirt's ``bootloader`` that guests start with,
        the default first
    :param secure_boot: whether UEFI has secure boot: KubeVirt demands SMM for
        it, which only x86 has
    :param cdrom_bus: bus of an added CD-ROM drive
    :param usb: whether disks can be on the USB bus
    """

    firmware: tuple
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


def of(vm):
    """Return the `Architecture` of a VM.

    :param vm: the VM, into which KubeVirt has written the cluster's default;
        one without it counts as amd64
    """
    return named(name(vm))


def named(name_):
    """Return the `Architecture` of this name; amd64 for an unknown one."""
    return _ARCHITECTURES.get(name_, _ARCHITECTURES['amd64'])


def name(vm):
    """Return KubeVirt's name of the architecture of a VM."""
    template = vm['spec'].get('template') or {}
    return (template.get('spec') or {}).get('architecture') or 'amd64'
