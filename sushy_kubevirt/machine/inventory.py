# SPDX-License-Identifier: Apache-2.0
"""Hardware inventory of a machine, read from its VM and its VMI.

The VM holds the requested values. The VMI holds the actual ones, such as sizes
that an instance type or a default filled in and MAC addresses that KubeVirt
generated. The VMI takes precedence. If neither has a value, KubeVirt's default
is used (``pkg/defaults`` of KubeVirt 1.9).
"""

from __future__ import annotations

import dataclasses

from sushy_kubevirt.kube import quantity
from sushy_kubevirt.machine import architecture
from sushy_kubevirt.machine import bios
from sushy_kubevirt.machine import firmware


@dataclasses.dataclass(frozen=True)
class Cpus:
    """CPU topology that the guest sees."""

    sockets: int = 1
    cores: int = 1          # in each socket
    threads: int = 1        # in each core
    model: str = ''         # such as 'host-model'; '' for the default
    architecture: str = ''  # 'amd64', 'arm64', 's390x'; '' for the default

    @property
    def total(self):
        """Number of hardware threads."""
        return self.sockets * self.cores * self.threads


@dataclasses.dataclass(frozen=True)
class Nic:
    """A network interface."""

    name: str
    mac: str = ''           # lower case with colons; '' if not known yet
    ips: tuple = ()         # strings without prefix length
    model: str = ''         # 'virtio', 'e1000' …
    network: str = ''       # 'pod', or the name of the Multus network
    guest_name: str = ''    # such as 'eth0'; '' without a guest agent
    link: str = ''          # 'up', 'down'; '' if not known
    plugged: bool = True    # False if the VM's owner set the link down
    guest_mac: str = ''     # MAC the guest uses (VMI's status); '' unknown


@dataclasses.dataclass(frozen=True)
class Disk:
    """A disk, LUN or CD-ROM drive."""

    name: str
    kind: str = 'disk'      # 'disk', 'cdrom', 'lun'
    bus: str = ''           # 'virtio', 'sata', 'scsi', 'usb'
    capacity_bytes: int | None = None
    serial: str = ''
    read_only: bool = False
    source: str = ''        # type of the volume, such as
    #                         'persistentVolumeClaim'; '' for an empty drive


@dataclasses.dataclass(frozen=True)
class Chassis:
    """Chassis data of the guest's SMBIOS (``domain.chassis``)."""

    manufacturer: str = ''
    version: str = ''
    serial: str = ''
    asset: str = ''
    sku: str = ''


@dataclasses.dataclass(frozen=True)
class Inventory:
    """Inventory of a machine. Strings are '' if not known."""

    cpus: Cpus
    memory_bytes: int           # 0 if not known
    nics: tuple = ()            # of Nic
    disks: tuple = ()           # of Disk
    serial: str = ''            # serial number in domain.firmware
    machine_type: str = ''      # such as 'pc-q35-rhel9.6.0'
    node: str = ''              # node that the VMI runs on
    hostname: str = ''
    firmware: str = 'bios'      # 'bios', 'efi'
    kubevirt_version: str = ''
    chassis: Chassis = Chassis()
    tpm: str = ''               # 'Volatile', 'Persistent'; '' without a TPM
    graphics: bool = True       # whether KubeVirt gives it a VNC display
    serial_console: bool = True
    started: str = ''           # when its VMI became Running, RFC 3339
    booted: str = ''            # when its guest agent connected, RFC 3339
    os_name: str = ''           # of the guest, from its agent
    os_version: str = ''        # likewise

    @property
    def firmware_type(self):
        """The type of the guest's firmware, ``UEFI`` or ``BIOS``."""
        return 'UEFI' if self.firmware == 'efi' else 'BIOS'

    @property
    def firmware_version(self):
        """The type of the guest's firmware and the version of KubeVirt."""
        return (f'{self.firmware_type} of KubeVirt {self.kubevirt_version}'
                ).rstrip()


def needs_sizes(vm, vmi) -> bool:
    """Return whether a machine's sizes have to be read from its instance type
    or preference, because it has no VMI.
    """
    return vmi is None and ('instancetype' in vm['spec']
                            or 'preference' in vm['spec'])


def serial(vm, vmi):
    """Return the serial number that the guest reads from its SMBIOS.

    KubeVirt fills it in when the VM is created
    (``pkg/virt-api/webhooks/mutating-webhook/mutators/vm-mutator.go`` of
    KubeVirt 1.9).

    :param vm: the VM
    :param vmi: its VMI, or None
    :returns: ``domain.firmware.serial``; '' if it has none
    """
    spec = vmi['spec'] if vmi else vm['spec']['template']['spec']
    return ((spec.get('domain') or {}).get('firmware') or {}).get(
        'serial') or ''


def of(vm, vmi, kubevirt_version=None, sizes=None):
    """Return the inventory of a machine.

    :param vm: the VM
    :param vmi: its VMI, or None
    :param kubevirt_version: see `feature_gates.Gates.version`
    :param sizes: dict of the members of ``spec.domain`` that an instance type
        or a preference fills in, or None
    :returns: an `Inventory`
    """
    template = vm['spec']['template']['spec']
    spec = vmi['spec'] if vmi else template
    status = (vmi or {}).get('status') or {}
    domain = {**(spec.get('domain') or {}), **(sizes or {})}
    guest = status.get('guestOSInfo') or {}
    return Inventory(
        cpus=_cpus(spec, domain, status),
        memory_bytes=_memory(domain, status),
        nics=_nics(spec, domain, status),
        disks=_disks(vm, spec, domain, status),
        serial=serial(vm, vmi),
        machine_type=((status.get('machine') or domain.get('machine') or {})
                      .get('type') or ''),
        node=status.get('nodeName') or '',
        hostname=spec.get('hostname') or vm['metadata']['name'],
        firmware=(firmware.bootloader_type(firmware.bootloader(
            vmi or vm['spec']['template']))
            or architecture.of(vm).firmware[0]),
        kubevirt_version=kubevirt_version or '',
        chassis=_chassis(domain.get('chassis') or {}),
        tpm=bios.tpm({'spec': spec}) or '',
        graphics=_attached(domain, 'autoattachGraphicsDevice'),
        serial_console=_attached(domain, 'autoattachSerialConsole'),
        started=_started(status),
        booted=_booted(status),
        os_name=guest.get('prettyName') or '',
        os_version=guest.get('version') or '')


def _chassis(chassis):
    return Chassis(**{field.name: chassis.get(field.name) or ''
                      for field in dataclasses.fields(Chassis)})


def _attached(domain, name) -> bool:
    return (domain.get('devices') or {}).get(name) is not False


def _started(status):
    if status.get('phase') != 'Running':
        return ''
    for each in status.get('phaseTransitionTimestamps') or ():
        if each.get('phase') == 'Running':
            return each.get('phaseTransitionTimestamp') or ''
    return ''


def _booted(status):
    if status.get('phase') != 'Running':
        return ''
    for condition in status.get('conditions') or ():
        if (condition.get('type') == 'AgentConnected'
                and condition.get('status') == 'True'):
            return condition.get('lastTransitionTime') or ''
    return ''


def _cpus(spec, domain, status):
    cpu = domain.get('cpu') or {}
    topology = {**cpu, **(status.get('currentCPUTopology') or {})}
    sizes = [topology.get(each) or 0
             for each in ('sockets', 'cores', 'threads')]
    if not any(sizes):
        resources = domain.get('resources') or {}
        for kind in ('limits', 'requests'):
            cpus = (resources.get(kind) or {}).get('cpu')
            if cpus is not None:
                sizes[0] = quantity.to_int(cpus) or 0
                break
    return Cpus(*(max(1, size) for size in sizes),
                model=cpu.get('model') or '',
                architecture=spec.get('architecture') or '')


def _memory(domain, status):
    memory = domain.get('memory') or {}
    resources = domain.get('resources') or {}
    for text in (
            (status.get('memory') or {}).get('guestCurrent'),
            memory.get('guest'),
            (resources.get('requests') or {}).get('memory'),
            (resources.get('limits') or {}).get('memory'),
            (memory.get('hugepages') or {}).get('pageSize')):
        size = quantity.to_int(text) if text is not None else None
        if size:
            return size
    return 0


def _nics(spec, domain, status):
    devices = domain.get('devices') or {}
    networks = {each['name']: each for each in spec.get('networks') or ()}
    interfaces = devices.get('interfaces')
    if not interfaces and devices.get('autoattachPodInterface') is not False:
        interfaces = [{'name': 'default'}]
        networks.setdefault('default', {'pod': {}})
    seen = {each['name']: each for each in status.get('interfaces') or ()
            if each.get('name')}
    return tuple(
        _nic(each, networks.get(each['name']) or {}, seen.get(each['name']))
        for each in interfaces or () if each.get('state') != 'absent')


def _nic(interface, network, seen):
    seen = seen or {}
    ips = seen.get('ipAddresses') or (
        [seen['ipAddress']] if seen.get('ipAddress') else [])
    return Nic(
        name=interface['name'],
        mac=_mac(interface.get('macAddress') or seen.get('mac') or ''),
        guest_mac=_mac(seen.get('mac') or ''),
        ips=tuple(ip.split('/')[0] for ip in ips),
        model=interface.get('model') or 'virtio',
        network=((network.get('multus') or {}).get('networkName')
                 or ('pod' if 'pod' in network else '')),
        guest_name=seen.get('interfaceName') or '',
        link=seen.get('linkState') or interface.get('state') or '',
        plugged=interface.get('state') != 'down')


def _mac(text):
    return text.lower().replace('-', ':')


def _disks(vm, spec, domain, status):
    devices = domain.get('devices') or {}
    disks = list(devices.get('disks') or ())
    volumes = {each['name']: each for each in spec.get('volumes') or ()}
    shared = {each['name'] for each in devices.get('filesystems') or ()}
    known = shared.union(each['name'] for each in disks)
    # A volume that no disk or file system names gets a disk of its own.
    disks += [{'name': name} for name in volumes if name not in known]
    states = {each['name']: each
              for each in status.get('volumeStatus') or ()}
    bus = ('sata' if spec.get('architecture') in (None, '', 'amd64')
           else 'virtio')
    return tuple(_disk(each, volumes.get(each['name']),
                       states.get(each['name']) or {}, vm, bus)
                 for each in disks)


def _disk(disk, volume, state, vm, default_bus):
    kind = next((each for each in ('cdrom', 'lun') if each in disk), 'disk')
    device = disk.get(kind) or {}
    return Disk(
        name=disk['name'],
        kind=kind,
        bus=device.get('bus') or default_bus,
        capacity_bytes=_capacity(volume or {}, state, vm),
        serial=disk.get('serial') or '',
        read_only=bool(device.get('readonly', kind == 'cdrom')),
        source=next((each for each in volume or () if each != 'name'), ''))


def _capacity(volume, state, vm):
    """Return the size of a disk in bytes, or None if it is not known.

    Sources in the order of precedence: capacity and request of its claim, its
    volume, its DataVolume template, the size that the VMI's status has.
    """
    claim = state.get('persistentVolumeClaimInfo') or {}
    sizes = [(claim.get(each) or {}).get('storage')
             for each in ('capacity', 'requests')]
    sizes.append((volume.get('emptyDisk') or {}).get('capacity'))
    sizes.append((volume.get('hostDisk') or {}).get('capacity'))
    name = ((volume.get('dataVolume') or {}).get('name')
            or (volume.get('persistentVolumeClaim') or {}).get('claimName'))
    for template in vm['spec'].get('dataVolumeTemplates') or ():
        if name and template['metadata']['name'] == name:
            for kind in ('storage', 'pvc'):
                sizes.append(((template['spec'].get(kind) or {}).get(
                    'resources') or {}).get('requests', {}).get('storage'))
    for each in sizes:
        size = quantity.to_int(each) if each is not None else None
        if size:
            return size
    return state.get('size') or None
