# SPDX-License-Identifier: Apache-2.0
"""Edits the drives of a VM's template.

Pure functions that change a VM dict in place. A drive is a disk of the
template, its medium the volume of the same name. KubeVirt fills and empties
CD-ROM drives of a running guest if the volume has ``hotpluggable`` and the
feature gate DeclarativeHotplugVolumes is on (pkg/storage/hotplug of 1.9). It
never adds a drive to a running guest; if requested, it retries forever.

Without that gate KubeVirt refuses a CD-ROM without a medium
(``vmi-create-admitter.go``), so a drive is added and removed with its medium.
A USB stick is a disk on the USB bus, which KubeVirt cannot plug into a
running guest (``storagehotplug.go``).
"""

from __future__ import annotations

import typing

from sushy_kubevirt.machine import architecture
from sushy_kubevirt.machine import boot_order
from sushy_kubevirt.machine import boot_overrides
from sushy_kubevirt.machine.media import model
from sushy_kubevirt.machine import vm_state

if typing.TYPE_CHECKING:
    from collections import abc

    from sushy_kubevirt.kube import objects

#: KubeVirt's feature gate for CD-ROMs without a medium; its refusals name it.
GATE = 'DeclarativeHotplugVolumes'

#: Names of the drives that are added: {device ID: name}.
ADDED_DRIVES = {model.CD.id: 'bmc-cd',
                model.USB_STICK.id: boot_order.USB_STICK,
                model.HTTP_BOOT.id: boot_order.HTTP_DRIVE}


def choose(state: vm_state.VmState, device: model.Device) -> str:
    """Choose the drive for a new medium.

    :returns: name of an empty drive, or of one to be added
    """
    vmi = state.vmi
    spec = state.vm['spec']['template']['spec']
    taken = _volume_names(spec) | {
        name for name in (_volume_names(vmi['spec']) if vmi else ())
        if would_migrate(state, name)}
    own = ADDED_DRIVES[device.id]
    if device is model.CD:
        free = [disk['name'] for disk in _disks(spec)
                if 'cdrom' in disk and disk['name'] not in taken
                and disk['name'] != boot_order.HTTP_DRIVE]
        if vm_state.is_active(vmi):
            # Prefer a drive that the running guest has.
            plugged = {disk['name'] for disk in _disks(vmi['spec'])
                       if 'cdrom' in disk}
            free.sort(key=lambda name: name not in plugged)
        if free:
            return free[0]
    taken |= {disk['name'] for disk in _disks(spec)}
    number = 1
    name = own
    while name in taken:
        number += 1
        name = f'{own}-{number}'
    return name


def would_migrate(state: vm_state.VmState, drive: str) -> bool:
    """Return whether replacing this drive's medium would migrate the guest.

    With ``updateVolumesStrategy: Migration`` KubeVirt takes another claim in a
    running guest's volume as the migration target and copies the old medium
    over the new one (volumemig in vm.go of 1.9).
    """
    return (_migrates_volumes(state.vm) and vm_state.is_active(state.vmi)
            and drive in _volume_names(state.vmi['spec']))


def _migrates_volumes(vm: objects.VirtualMachine) -> bool:
    return vm['spec'].get('updateVolumesStrategy') == 'Migration'


def can_hotplug(state: vm_state.VmState, device: model.Device, drive: str
                ) -> bool:
    """Return whether KubeVirt can fill this drive of the running guest.

    Without a running guest, whether it could later.
    """
    vm, vmi = state.vm, state.vmi
    specs = [vm['spec']['template']['spec']]
    if vm_state.is_active(vmi):
        specs.append(vmi['spec'])
    if any(_devices(spec).get('disableHotplug') for spec in specs):
        # The pod cannot mount such a volume, and its start waits for it.
        return False
    if device is not model.CD or _migrates_volumes(vm):
        # HandleDeclarativeVolumes in pkg/storage/hotplug skips those.
        return False
    return not vm_state.is_active(vmi) or any(
        disk['name'] == drive and 'cdrom' in disk
        for disk in _disks(vmi['spec']))


def fill(state: vm_state.VmState, device: model.Device, drive: str,
         volume: str, hotplug: bool, write_protected: bool = True) -> None:
    """Insert a medium into a drive; add the drive if it does not exist.

    :param state: its VM is changed; call it in `edit`
    :param drive: name of the drive
    :param volume: name of the DataVolume
    :param hotplug: whether the feature gate allows to fill running guests'
        drives
    :param write_protected: whether an added USB stick is read-only
    """
    spec = state.vm['spec']['template']['spec']
    if drive not in {disk['name'] for disk in _disks(spec)}:
        disk: objects.Disk = {'name': drive, 'cdrom': _cdrom(state.vm)}
        if device is model.USB_STICK:
            disk = {'name': drive, 'disk': {'bus': 'usb'}}
            if write_protected:
                disk['disk']['readonly'] = True
        spec.setdefault('domain', {}).setdefault('devices', {}).setdefault(
            'disks', []).append(disk)
    source: objects.Json = {'name': volume}
    if hotplug and can_hotplug(state, device, drive):
        source['hotpluggable'] = True
    volumes = spec.setdefault('volumes', [])
    # A volume has one source: others go.
    filled: objects.Volume = {'name': drive, 'dataVolume': source}
    for index, present in enumerate(volumes):
        if present.get('name') == drive:
            volumes[index] = filled
            return
    volumes.append(filled)


def _cdrom(vm: objects.VirtualMachine) -> objects.Json:
    """Return the ``cdrom`` of a drive to be added.

    KubeVirt connects a CD-ROM by SATA on amd64 unless the VM has a preference.
    Harvester refuses changes of interfaces, and its user interface cannot
    insert images, while an empty drive does not name that bus
    (SupportInsertCdRomVolume in pkg/util/virtualmachine/virtualmachine.go of
    1.9). On other architectures KubeVirt would choose virtio, and refuse it.
    """
    spec = vm['spec']
    if architecture.name(vm) == 'amd64' and (
            spec.get('preference')
            or not spec['template']['spec'].get('architecture')):
        return {}
    return {'bus': architecture.of(vm).cdrom_bus}


def empty(vm: objects.VirtualMachine, device: model.Device, drive: str,
          volume: str, keep: bool) -> None:
    """Remove a medium from its drive, if it is there.

    A drive that was added stays, empty, where KubeVirt allows it: the running
    guest can then get the next medium at once, and removing the drive would
    set RestartRequired. A drive of the VM's owner always stays.

    :param vm: is changed; call it in `edit`
    :param drive: name of the drive
    :param volume: name of the DataVolume
    :param keep: whether a drive may be empty
    """
    if not holds(vm, drive, volume):
        return
    spec = vm['spec']['template']['spec']
    spec['volumes'] = [present for present in spec['volumes']
                       if present['name'] != drive]
    if device is not model.CD or not keep and _is_added(device, drive):
        remove(vm, drive)


def _is_added(device: model.Device, drive: str) -> bool:
    return drive == ADDED_DRIVES[device.id] or drive.startswith(
        ADDED_DRIVES[device.id] + '-')


def remove(vm: objects.VirtualMachine, drive: str) -> None:
    """Remove a drive that has no medium, if there is one.

    :param vm: is changed; call it in `edit`
    :param drive: name of the drive
    """
    spec = vm['spec']['template']['spec']
    if has_drive(spec, drive):
        spec['domain']['devices']['disks'] = [
            disk for disk in _disks(spec) if disk['name'] != drive]


def disable_hotplug(vm: objects.VirtualMachine, drive: str) -> None:
    """Make a medium wait for the next start.

    :param vm: is changed
    :param drive: name of the drive
    """
    for volume in vm['spec']['template']['spec'].get('volumes') or ():
        if volume.get('name') == drive and 'dataVolume' in volume:
            volume['dataVolume'].pop('hotpluggable', None)


def holds(vm: objects.VirtualMachine, drive: str, volume: str) -> bool:
    """Return whether this medium is in this drive of the template."""
    source = source_of(vm['spec']['template']['spec'], drive)
    return source is not None and source.get('name') == volume


def source_of(spec: objects.VirtualMachineInstanceSpec, drive: str
              ) -> objects.Json | None:
    """Return the ``dataVolume`` of a drive in a spec, or None."""
    for volume in spec.get('volumes') or ():
        if volume.get('name') == drive:
            return volume.get('dataVolume')
    return None


def has_drive(spec: objects.VirtualMachineInstanceSpec, drive: str) -> bool:
    """Return whether a spec has a disk of this name."""
    return any(disk['name'] == drive for disk in _disks(spec))


def uses(vmi: objects.VirtualMachineInstance | None, volume: str) -> bool:
    """Return whether a running VMI has this DataVolume."""
    return vm_state.is_active(vmi) and any(
        source.get('name') == volume for source in _sources(vmi))


def guest_keeps(vmi: objects.VirtualMachineInstance | None, drive: str,
                volume: str) -> bool:
    """Return whether a running guest has not let go of an ejected medium.

    virt-launcher repeats the eject while the guest has locked the tray; the
    volume has left the VMI's spec then, and is in its status. A medium that
    the guest keeps until it ends does not count.

    :param drive: name of the drive
    :param volume: name of the DataVolume
    """
    if vmi is None or vm_state.phase(vmi) != 'Running':
        return False
    present = source_of(vmi['spec'], drive)
    if present is not None:
        return bool(present.get('name') == volume
                    and present.get('hotpluggable'))
    return any(status.get('name') == drive
               and status.get('hotplugVolume') is not None
               for status in vmi['status'].get('volumeStatus') or ())


def is_held(vmi: objects.VirtualMachineInstance | None, volume: str) -> bool:
    """Return whether a guest needs this DataVolume until it ends.

    If the DataVolume is deleted, KubeVirt plugs nothing into or out of that
    guest any more (areDataVolumesReady in vmi/datavolumes.go of 1.9), and a
    guest whose claim is being deleted cannot be migrated.
    """
    return vm_state.is_active(vmi) and vm_state.phase(vmi) not in (
        '', 'Pending') and any(
        source.get('name') == volume and not source.get('hotpluggable')
        for source in _sources(vmi))


def _sources(vmi: objects.VirtualMachineInstance
             ) -> abc.Iterator[objects.Json]:
    """Yield the ``dataVolume`` of each volume."""
    for volume in vmi['spec'].get('volumes') or ():
        yield volume.get('dataVolume') or {}


def waits_for_start(state: vm_state.VmState, drive: str, volume: str) -> bool:
    """Return whether a medium reaches the guest at the VM's next start only.
    """
    vmi = state.vmi
    if not vm_state.is_active(vmi):
        return False
    present = source_of(vmi['spec'], drive)
    if present is not None and present.get('name') == volume:
        return False
    wanted = source_of(state.vm['spec']['template']['spec'], drive) or {}
    if not wanted.get('hotpluggable'):
        return True
    if present is None:
        return (drive in _volume_names(vmi['spec'])
                or not has_drive(vmi['spec'], drive))
    return not present.get('hotpluggable')


def restart_cause(state: vm_state.VmState, device: model.Device, drive: str,
                  gates: str) -> str:
    """Say why a running guest does not get a medium before the next start.

    Of several causes, the one that lasts longest comes first.

    :param state: of a medium for which `waits_for_start`
    :param drive: name of the drive
    :param gates: see `feature_gates.Gates.why_no_cdrom_hotplug`
    :returns: sentences, with what to do
    """
    vm, running = state.vm, state.vmi['spec'] if state.vmi else {}
    if device is not model.CD:
        return ('KubeVirt cannot plug a USB disk into a running guest; the '
                'device Cd can be filled while it runs.')
    if _migrates_volumes(vm):
        return ('The VM has updateVolumesStrategy Migration, with which '
                'KubeVirt would migrate the guest for its medium; remove it '
                'to insert media at once.')
    if any(_devices(spec).get('disableHotplug') for spec in (
            vm['spec']['template']['spec'], running)):
        return ('disableHotplug of the VM\'s devices is true; remove it to '
                'insert media at once.')
    missing = '' if has_drive(running, drive) else (
        'The running guest has no empty CD-ROM drive, so the drive '
        f'{drive} was added to the VM. ')
    if gates:
        again = ('' if missing else
                 ', then eject the medium and insert it again')
        return f'{missing}{gates[:1].upper()}{gates[1:]}{again}.'
    if missing:
        return missing + ('A guest that starts with an empty drive gets media '
                          'at once.')
    present = source_of(running, drive) or {}
    if drive in _volume_names(running) and not present.get('hotpluggable'):
        return ('The guest keeps the medium that it was started with until it '
                'ends.')
    return ('KubeVirt could not change media of running guests when it was '
            'inserted, and now can: eject it and insert it again to have it '
            'at once.')


def edit(state: vm_state.VmState, change: abc.Callable[[], None]) -> None:
    """Change drives and media below the boot overrides.

    Overrides record device numbers, and put virtual media first, so they are
    removed before the change and applied again after it.

    :param state: its VM is changed
    :param change: changes the VM, and the record of its media
    """
    with boot_overrides.lifted(state):
        change()


def _devices(spec: objects.VirtualMachineInstanceSpec) -> objects.Devices:
    return (spec.get('domain') or {}).get('devices') or {}


def _disks(spec: objects.VirtualMachineInstanceSpec) -> list[objects.Disk]:
    return _devices(spec).get('disks') or []


def _volume_names(spec: objects.VirtualMachineInstanceSpec) -> set[str]:
    return {volume.get('name', '') for volume in spec.get('volumes') or ()}
