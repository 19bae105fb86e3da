# SPDX-License-Identifier: Apache-2.0
"""Drives of a VM's template, filled and emptied.

Pure functions that edit a VM in place. A drive is a disk of the template, its
medium the volume of the same name. KubeVirt fills and empties CD-ROM drives
of a running guest by itself when such a volume says ``hotpluggable`` and the
gate DeclarativeHotplugVolumes is on (pkg/storage/hotplug of 1.9); it never
adds a drive to a running guest, and tries again for ever, and in vain, when
it is told to.

Without that gate a CD-ROM without a medium is refused
(``vmi-create-admitter.go``), so that a drive comes and goes with its medium.
A USB stick is a disk of its own on the USB bus, which KubeVirt cannot plug
into a running guest (``storagehotplug.go``).
"""

import copy

from sushy_kubevirt.machine import boot_order
from sushy_kubevirt.machine import boot_overrides
from sushy_kubevirt.machine.media import model
from sushy_kubevirt.machine import run_strategy

#: Names of the drives that are added.
ADDED_DRIVES = {model.CD.id: 'bmc-cd', model.USB_STICK.id: 'bmc-usb',
                model.HTTP_BOOT.id: boot_order.HTTP_DRIVE}


def choose(vm, vmi, device):
    """Find the drive that a new medium goes into.

    :param device: a `model.Device`
    :returns: name of an empty drive, or of one to be added
    """
    spec = vm['spec']['template']['spec']
    taken = _names(spec, 'volumes') | {
        name for name in _names((vmi or {}).get('spec') or {}, 'volumes')
        if would_migrate(vm, vmi, name)}
    own = ADDED_DRIVES[device.id]
    if device is model.CD:
        free = [disk['name'] for disk in _disks(spec)
                if 'cdrom' in disk and disk['name'] not in taken
                and disk['name'] != boot_order.HTTP_DRIVE]
        if run_strategy.living(vmi):
            there = {disk['name'] for disk in _disks(vmi['spec'])
                     if 'cdrom' in disk}
            free.sort(key=lambda name: name not in there)
        if free:
            return free[0]
    taken |= {disk['name'] for disk in _disks(spec)}
    number = 1
    name = own
    while name in taken:
        number += 1
        name = '%s-%d' % (own, number)
    return name


def would_migrate(vm, vmi, drive):
    """Whether another medium in this drive would not be another medium.

    KubeVirt may have been told to take another claim for the new home of
    what a volume of a running guest holds: it then migrates the guest, and
    copies the old medium over the new one (volumemig in vm.go of 1.9).
    """
    return (_migrates_volumes(vm) and run_strategy.living(vmi)
            and drive in _names(vmi['spec'], 'volumes'))


def _migrates_volumes(vm):
    return vm['spec'].get('updateVolumesStrategy') == 'Migration'


def can_hotplug(vm, vmi, device, drive):
    """Whether KubeVirt could fill the drive of this guest, or has none to
    fill.
    """
    specs = [vm['spec']['template']['spec']]
    if run_strategy.living(vmi):
        specs.append(vmi['spec'])
    if any(_devices(spec).get('disableHotplug') for spec in specs):
        # Its pod has no place where such a volume could be mounted, and is
        # waited for at the start all the same.
        return False
    if device is not model.CD or _migrates_volumes(vm):
        # HandleDeclarativeVolumes in pkg/storage/hotplug leaves those alone.
        return False
    return not run_strategy.living(vmi) or any(
        disk['name'] == drive and 'cdrom' in disk
        for disk in _disks(vmi['spec']))


def fill(vm, vmi, device, drive, volume, hotplug, write_protected=True):
    """Put a medium into a drive, which is added if need be.

    :param vm: the VM, which is changed
    :param vmi: its VMI or None
    :param device: a `model.Device`
    :param drive: name of the drive
    :param volume: name of the DataVolume
    :param hotplug: whether KubeVirt may fill and empty it in a running guest
    """
    spec = vm['spec']['template']['spec']
    if drive not in {disk['name'] for disk in _disks(spec)}:
        disk = {'name': drive, 'cdrom': {}}
        if device is model.USB_STICK:
            disk = {'name': drive, 'disk': {'bus': 'usb'}}
            if write_protected:
                disk['disk']['readonly'] = True
        _without_overrides(vm, vmi, lambda: spec.setdefault(
            'domain', {}).setdefault('devices', {}).setdefault(
            'disks', []).append(disk))
    source = {'name': volume}
    if hotplug and can_hotplug(vm, vmi, device, drive):
        source['hotpluggable'] = True
    for each in spec.setdefault('volumes', []):
        if each.get('name') == drive:
            # No other member: a volume has one source.
            for member in set(each) - {'name', 'dataVolume'}:
                del each[member]
            each['dataVolume'] = source
            return
    spec['volumes'].append({'name': drive, 'dataVolume': source})


def empty(vm, vmi, device, drive, volume, keep):
    """Take a medium out of its drive, if it is still there.

    A drive that was added stays, empty, where that may be: the guest that
    runs can then be given the next medium at once, and a drive that is taken
    away says RestartRequired. One of the VM's owner stays in any case.

    :param vm: the VM, which is changed
    :param keep: whether a drive may be empty
    """
    if not holds(vm, drive, volume):
        return
    spec = vm['spec']['template']['spec']
    spec['volumes'] = [each for each in spec['volumes']
                       if each['name'] != drive]
    if device is not model.CD or not keep and _is_added(device, drive):
        remove(vm, vmi, drive)


def _is_added(device, drive):
    return drive == ADDED_DRIVES[device.id] or drive.startswith(
        ADDED_DRIVES[device.id] + '-')


def remove(vm, vmi, drive):
    """Remove a drive without a medium."""
    spec = vm['spec']['template']['spec']
    devices = spec['domain']['devices']

    def drop():
        devices['disks'] = [disk for disk in _disks(spec)
                            if disk['name'] != drive]

    if drive in {disk['name'] for disk in _disks(spec)}:
        _without_overrides(vm, vmi, drop)


def disable_hotplug(vm, drive):
    """Have a medium wait for the next start."""
    for each in vm['spec']['template']['spec'].get('volumes') or ():
        if each.get('name') == drive and 'dataVolume' in each:
            each['dataVolume'].pop('hotpluggable', None)


def holds(vm, drive, volume):
    """:returns: whether this medium is in this drive of the template"""
    source = source_of(vm['spec']['template']['spec'], drive)
    return source is not None and source.get('name') == volume


def source_of(spec, drive):
    """:returns: the ``dataVolume`` of a drive in a spec, or None"""
    for each in spec.get('volumes') or ():
        if each.get('name') == drive:
            return each.get('dataVolume')
    return None


def has_drive(spec, drive):
    return any(disk['name'] == drive for disk in _disks(spec))


def uses(vmi, volume):
    """:returns: whether a living VMI has this DataVolume"""
    return run_strategy.living(vmi) and any(
        (each.get('dataVolume') or {}).get('name') == volume
        for each in vmi['spec'].get('volumes') or ())


def is_held(vmi, volume):
    """Whether a guest has this DataVolume until it ends.

    KubeVirt wants to see it as long as the guest runs: without it nothing is
    plugged into or out of that guest any more (areDataVolumesReady in
    vmi/datavolumes.go of 1.9), and a guest whose claim is being deleted
    cannot be migrated.
    """
    return run_strategy.living(vmi) and run_strategy.phase(vmi) not in (
        '', 'Pending') and any(
        source.get('name') == volume and not source.get('hotpluggable')
        for source in (each.get('dataVolume') or {} for each in
                       vmi['spec'].get('volumes') or ()))


def waits_for_start(vm, vmi, drive, volume):
    """Whether a medium waits for the VM's next start.

    :returns: True if the guest that runs will not get it
    """
    if not run_strategy.living(vmi):
        return False
    there = source_of(vmi['spec'], drive)
    if there is not None and there.get('name') == volume:
        return False
    wanted = source_of(vm['spec']['template']['spec'], drive) or {}
    if not wanted.get('hotpluggable'):
        return True
    if there is None:
        return (drive in _names(vmi['spec'], 'volumes')
                or not has_drive(vmi['spec'], drive))
    return not there.get('hotpluggable')


def _without_overrides(vm, vmi, edit):
    """Add or remove a drive below the boot overrides.

    They number the devices there are; so they are taken off and put on
    again, as what they were, around the change.
    """
    once = copy.deepcopy(boot_overrides.once(vm))
    if once is not None and boot_overrides.begun(vm, vmi):
        boot_overrides.take_off_once(vm)
        once = None
    terminate = boot_overrides.ends_at_reboot(vm)
    boot_overrides.take_off_once(vm)
    lasting = boot_overrides.in_force(vm)
    boot_overrides.take_off_all(vm)
    edit()
    if lasting is not None:
        boot_overrides.put_continuous(vm, boot_order.Class(lasting['target']))
    if once is not None:
        boot_overrides.put_once_again(vm, vmi, once, terminate)


def _devices(spec):
    return (spec.get('domain') or {}).get('devices') or {}


def _disks(spec):
    return _devices(spec).get('disks') or []


def _names(spec, list_):
    return {each.get('name') for each in spec.get(list_) or ()}
