# SPDX-License-Identifier: Apache-2.0
"""Hardware inventory of a machine, read from its VM and its VMI.

The VM holds the requested values. The VMI holds the actual ones, such as sizes
that an instance type or a default filled in and MAC addresses that KubeVirt
generated. The VMI takes precedence. If neither has a value, KubeVirt's default
is used (``pkg/defaults`` of KubeVirt 1.9).
"""

from __future__ import annotations

import typing

from sushy_kubevirt.kube import quantity
from sushy_kubevirt.machine import architecture
from sushy_kubevirt.machine import bios
from sushy_kubevirt.machine import firmware

if typing.TYPE_CHECKING:
    from collections import abc

    from sushy_kubevirt.kube import objects
    from sushy_kubevirt.machine import vm_state


class Cpus(typing.NamedTuple):
    """CPU topology that the guest sees."""

    sockets: int = 1
    cores: int = 1          # in each socket
    threads: int = 1        # in each core
    model: str = ''         # such as 'host-model'; '' for the default
    architecture: str = ''  # 'amd64', 'arm64', 's390x'; '' for the default

    @property
    def total(self) -> int:
        """Number of hardware threads."""
        return self.sockets * self.cores * self.threads


class Nic(typing.NamedTuple):
    """A network interface."""

    name: str
    mac: str = ''           # lower case with colons; '' if not known yet
    ips: tuple[str, ...] = ()   # without prefix length
    model: str = ''         # 'virtio', 'e1000' …
    network: str = ''       # 'pod', or the name of the Multus network
    guest_name: str = ''    # such as 'eth0'; '' without a guest agent
    link: str = ''          # 'up', 'down'; '' if not known
    plugged: bool = True    # False if the VM's owner set the link down
    guest_mac: str = ''     # MAC the guest uses (VMI's status); '' unknown


class Disk(typing.NamedTuple):
    """A disk, LUN or CD-ROM drive."""

    name: str
    kind: str = 'disk'      # 'disk', 'cdrom', 'lun'
    bus: str = ''           # 'virtio', 'sata', 'scsi', 'usb'
    capacity_bytes: int | None = None
    serial: str = ''
    read_only: bool = False
    source: str = ''        # type of the volume, such as
    #                         'persistentVolumeClaim'; '' for an empty drive


class Chassis(typing.NamedTuple):
    """Chassis data of the guest's SMBIOS (``domain.chassis``)."""

    manufacturer: str = ''
    version: str = ''
    serial: str = ''
    asset: str = ''
    sku: str = ''


class Inventory(typing.NamedTuple):
    """Inventory of a machine. Strings are '' if not known."""

    cpus: Cpus
    memory_bytes: int           # 0 if not known
    nics: tuple[Nic, ...] = ()
    disks: tuple[Disk, ...] = ()
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
    def firmware_type(self) -> str:
        """The type of the guest's firmware, ``UEFI`` or ``BIOS``."""
        return 'UEFI' if self.firmware == 'efi' else 'BIOS'

    @property
    def firmware_version(self) -> str:
        """The type of the guest's firmware and the version of KubeVirt."""
        return (f'{self.firmware_type} of KubeVirt {self.kubevirt_version}'
                ).rstrip()


def needs_sizes(state: vm_state.VmState) -> bool:
    """Return whether a machine's sizes have to be read from its instance type
    or preference, because it has no VMI.
    """
    spec = state.vm['spec']
    return state.vmi is None and (
        'instancetype' in spec or 'preference' in spec)


def serial(state: vm_state.VmState) -> str:
    """Return the serial number that the guest reads from its SMBIOS.

    KubeVirt fills it in when the VM is created
    (``pkg/virt-api/webhooks/mutating-webhook/mutators/vm-mutator.go`` of
    KubeVirt 1.9).

    :returns: ``domain.firmware.serial``; '' if it has none
    """
    spec = (state.vmi or state.vm['spec']['template'])['spec']
    return ((spec.get('domain') or {}).get('firmware') or {}).get(
        'serial') or ''


def of(state: vm_state.VmState,
       kubevirt_version: str | None = None,
       sizes: objects.Json | None = None) -> Inventory:
    """Return the inventory of a machine.

    :param kubevirt_version: see `feature_gates.Gates.version`
    :param sizes: members of ``spec.domain`` that an instance type or a
        preference fills in
    """
    vm, vmi = state.vm, state.vmi
    template = vm['spec']['template']['spec']
    spec = vmi['spec'] if vmi else template
    status: objects.VirtualMachineInstanceStatus = (
        vmi.get('status') if vmi else None) or {}
    domain: objects.Json = {**(spec.get('domain') or {}), **(sizes or {})}
    running: objects.Json = {**status} if (
        status.get('phase') == 'Running') else {}
    guest = status.get('guestOSInfo') or {}
    return Inventory(
        cpus=_cpus(spec, domain, status),
        memory_bytes=_memory(domain, status),
        nics=_nics(spec, domain, status),
        disks=_disks(vm, spec, domain, status),
        serial=serial(state),
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
        started=_time(running.get('phaseTransitionTimestamps'),
                      'phaseTransitionTimestamp', phase='Running'),
        booted=_time(running.get('conditions'), 'lastTransitionTime',
                     type='AgentConnected', status='True'),
        os_name=guest.get('prettyName') or '',
        os_version=guest.get('version') or '')


def _chassis(chassis: objects.Json) -> Chassis:
    return Chassis(**{name: chassis.get(name) or ''
                      for name in Chassis._fields})


def _attached(domain: objects.Json, name: str) -> bool:
    return (domain.get('devices') or {}).get(name) is not False


def _time(entries: abc.Iterable[objects.Json] | None, field: str,
          **values: str) -> str:
    """Return the time of the first entry with these values, '' for none."""
    return next((entry.get(field) or '' for entry in entries or ()
                 if entry.items() >= values.items()), '')


def _cpus(spec: objects.VirtualMachineInstanceSpec, domain: objects.Json,
          status: objects.VirtualMachineInstanceStatus) -> Cpus:
    cpu = domain.get('cpu') or {}
    topology = {**cpu, **(status.get('currentCPUTopology') or {})}
    sizes = [topology.get(size) or 0
             for size in ('sockets', 'cores', 'threads')]
    if not any(sizes):
        resources = domain.get('resources') or {}
        for kind in ('limits', 'requests'):
            cpus = (resources.get(kind) or {}).get('cpu')
            if cpus is not None:
                sizes[0] = quantity.to_int(cpus) or 0
                break
    sockets, cores, threads = (max(1, size) for size in sizes)
    return Cpus(sockets, cores, threads,
                model=cpu.get('model') or '',
                architecture=spec.get('architecture') or '')


def _memory(domain: objects.Json,
            status: objects.VirtualMachineInstanceStatus) -> int:
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


def _nics(spec: objects.VirtualMachineInstanceSpec, domain: objects.Json,
          status: objects.VirtualMachineInstanceStatus) -> tuple[Nic, ...]:
    devices: objects.Devices = domain.get('devices') or {}
    networks = {network['name']: network
                for network in spec.get('networks') or ()}
    interfaces = devices.get('interfaces')
    if not interfaces and devices.get('autoattachPodInterface') is not False:
        interfaces = [{'name': 'default'}]
        networks.setdefault('default', {'pod': {}})
    seen = {reported['name']: reported
            for reported in status.get('interfaces') or ()
            if reported.get('name')}
    return tuple(
        _nic(interface, networks.get(interface['name']) or {},
             seen.get(interface['name']) or {})
        for interface in interfaces or ()
        if interface.get('state') != 'absent')


def _nic(interface: objects.Interface, network: objects.Json,
         seen: objects.Json) -> Nic:
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


def _mac(text: str) -> str:
    return text.lower().replace('-', ':')


def _disks(vm: objects.VirtualMachine,
           spec: objects.VirtualMachineInstanceSpec, domain: objects.Json,
           status: objects.VirtualMachineInstanceStatus) -> tuple[Disk, ...]:
    devices: objects.Devices = domain.get('devices') or {}
    disks = list(devices.get('disks') or ())
    volumes = {volume['name']: volume for volume in spec.get('volumes') or ()}
    shared = {system['name'] for system in devices.get('filesystems') or ()}
    known = shared.union(disk['name'] for disk in disks)
    # A volume that no disk or file system names gets a disk of its own.
    disks += [{'name': name} for name in volumes if name not in known]
    states = {state['name']: state
              for state in status.get('volumeStatus') or ()}
    bus = ('sata' if spec.get('architecture') in (None, '', 'amd64')
           else 'virtio')
    return tuple(_disk(disk, volumes.get(disk['name']) or {},
                       states.get(disk['name']) or {}, vm, bus)
                 for disk in disks)


def _disk(disk: objects.Disk, volume: objects.Volume, state: objects.Json,
          vm: objects.VirtualMachine, default_bus: str) -> Disk:
    kind: typing.Literal['cdrom', 'lun', 'disk'] = (
        'cdrom' if 'cdrom' in disk else 'lun' if 'lun' in disk else 'disk')
    device = disk.get(kind) or {}
    return Disk(
        name=disk['name'],
        kind=kind,
        bus=device.get('bus') or default_bus,
        capacity_bytes=_capacity(volume, state, vm),
        serial=disk.get('serial') or '',
        read_only=bool(device.get('readonly', kind == 'cdrom')),
        source=next((member for member in volume if member != 'name'), ''))


def _capacity(volume: objects.Volume, state: objects.Json,
              vm: objects.VirtualMachine) -> int | None:
    """Return the size of a disk in bytes, or None if it is not known.

    Sources in the order of precedence: capacity and request of its claim, its
    volume, its DataVolume template, the size that the VMI's status has.
    """
    claim = state.get('persistentVolumeClaimInfo') or {}
    sizes = [(claim.get(member) or {}).get('storage')
             for member in ('capacity', 'requests')]
    sizes.append((volume.get('emptyDisk') or {}).get('capacity'))
    sizes.append((volume.get('hostDisk') or {}).get('capacity'))
    name = ((volume.get('dataVolume') or {}).get('name')
            or (volume.get('persistentVolumeClaim') or {}).get('claimName'))
    for template in vm['spec'].get('dataVolumeTemplates') or ():
        if name and template['metadata']['name'] == name:
            for kind in ('storage', 'pvc'):
                sizes.append(((template['spec'].get(kind) or {}).get(
                    'resources') or {}).get('requests', {}).get('storage'))
    for text in sizes:
        size = quantity.to_int(text) if text is not None else None
        if size:
            return size
    return state.get('size') or None
