# SPDX-License-Identifier: Apache-2.0
"""What a machine is made of, from its VM and its VMI.

A VM says what was asked for, its VMI what there is: sizes that an instance
type or a default filled in, MAC addresses that KubeVirt made up. The VMI is
believed where it speaks.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Cpus:
    sockets: int = 1
    cores: int = 1          # of each socket
    threads: int = 1        # of each core
    model: str = ''
    architecture: str = ''  # 'amd64', 'arm64', 's390x'

    @property
    def total(self):
        return self.sockets * self.cores * self.threads


@dataclasses.dataclass(frozen=True)
class Nic:
    name: str
    mac: str = ''           # lower case, colons; '' when not known yet
    ips: tuple = ()
    model: str = ''         # 'virtio', 'e1000' …
    network: str = ''       # 'pod', or the name of the Multus network
    guest_name: str = ''    # 'eth0'; when the guest agent tells
    link: str = ''          # 'up', 'down', '' when not known


@dataclasses.dataclass(frozen=True)
class Disk:
    name: str
    kind: str = 'disk'      # 'disk', 'cdrom', 'lun'
    bus: str = ''           # 'virtio', 'sata', 'scsi', 'usb'
    capacity_bytes: int | None = None
    serial: str = ''
    read_only: bool = False
    source: str = ''        # kind of volume behind it; '' for an empty drive


@dataclasses.dataclass(frozen=True)
class Inventory:
    cpus: Cpus
    memory_bytes: int
    nics: tuple = ()
    disks: tuple = ()
    serial: str = ''
    machine_type: str = ''
    node: str = ''
    guest_os: str = ''
    hostname: str = ''
    firmware: str = ''          # 'bios', 'efi'
    kubevirt_version: str = ''
    launcher_image: str = ''


def of(vm, vmi, kubevirt_version=None):
    """:returns: an `Inventory`"""
