# SPDX-License-Identifier: Apache-2.0
"""Changes that KubeVirt itself may make to the spec of a running VMI.

Source: vmi-update-admitter.go, pkg/storage/admitters/storagehotplug.go
(KubeVirt 1.9).
"""

from kubevirt_sandbox.api import quantity
from kubevirt_sandbox.kubevirt.admission import causes
from kubevirt_sandbox.kubevirt import paths


def check(old, new, config):
    """Return the first cause to refuse a change, as a list.

    :param old: the VMI as it is.
    :param new: the VMI as it shall be.
    """
    for rule in (_check_sizes, _check_numbers, _check_permanent,
                 _check_pluggable):
        message = rule(old, new, config)
        if message:
            return [causes.Cause(message)]
    return []


def _check_sizes(old, new, _config):
    before, after = (paths.at(o, 'spec', 'domain', 'cpu') or {}
                     for o in (old, new))
    if before.get('maxSockets') != after.get('maxSockets'):
        return 'CPU topology maxSockets changed'
    before, after = (paths.at(o, 'spec', 'domain', 'memory', 'maxGuest')
                     for o in (old, new))
    if None not in (before, after) and (
            quantity.value(before) != quantity.value(after)):
        return 'Memory maxGuest changed'
    return ''


def _check_numbers(_old, new, config):
    spec = new['spec']
    names = {v['name'] for v in paths.volumes(spec)
             if v.get('memoryDump') is None}
    needed = len(paths.at(spec, 'domain', 'devices', 'filesystems') or ())
    empty_allowed = config.enabled('DeclarativeHotplugVolumes')
    for disk in paths.disks(spec):
        if not (disk['name'] not in names and disk.get('cdrom') is not None
                and empty_allowed):
            needed += 1
    if needed != len(names):
        return (f'mismatch between volumes declared ({len(names)}) and '
                f'required ({needed})')
    return ''


def _split(vmi, statuses):
    """Return the permanent and the hotplugged volumes."""
    fixed = {s['name'] for s in statuses if s.get('hotplugVolume') is None}
    volumes = paths.named(paths.volumes(vmi['spec']))
    return ({n: v for n, v in volumes.items() if n in fixed},
            {n: v for n, v in volumes.items() if n not in fixed})


def _check_permanent(old, new, _config):
    statuses = paths.at(old, 'status', 'volumeStatus') or []
    before, after = _split(old, statuses)[0], _split(new, statuses)[0]
    disks_before = paths.named(paths.disks(old['spec']))
    disks_after = paths.named(paths.disks(new['spec']))
    if len(before) != len(after):
        return 'Number of permanent volumes has changed'
    for name, volume in after.items():
        if name not in before:
            return f'permanent volume {name}, not found'
        if volume != before[name]:
            return f'permanent volume {name}, changed'
        if disks_after.get(name) != disks_before.get(name):
            return f'permanent disk {name}, changed'
    return ''


def _check_pluggable(old, new, _config):
    statuses = paths.at(old, 'status', 'volumeStatus') or []
    before, after = _split(old, statuses)[1], _split(new, statuses)[1]
    disks_before = paths.named(paths.disks(old['spec']))
    disks_after = paths.named(paths.disks(new['spec']))
    for name, volume in after.items():
        disk = disks_after.get(name)
        if name in before:
            if volume != before[name]:
                return f'hotplug volume {name}, changed'
            if disk is None:
                return f"volume {name} doesn't have a matching disk"
            if disk != disks_before.get(name):
                return f'hotplug disk {name}, changed'
            continue
        if not any(volume.get(k) is not None for k in (
                'dataVolume', 'persistentVolumeClaim', 'memoryDump')):
            return f'volume {name} is not a PVC or DataVolume'
        if disk is None:
            return f'disk {name} does not exist'
        if name not in disks_before:
            wrong = disk_error(disk, name, 'Hotplug configuration')
            if wrong:
                return wrong
    return ''


def disk_error(disk, name, prefix):
    """Describe why a disk cannot be hotplugged, or return ''."""
    if disk.get('disk') is not None:
        bus = disk['disk'].get('bus', '')
        if bus not in ('scsi', 'virtio'):
            return (f"{prefix} for disk [{name}] requires bus to be 'scsi' "
                    f"or 'virtio'. [{bus}] is not permitted.")
    elif disk.get('lun') is not None:
        bus = disk['lun'].get('bus', '')
        if bus != 'scsi':
            return (f"{prefix} for LUN [{name}] requires bus to be 'scsi'. "
                    f'[{bus}] is not permitted.')
    else:
        return (f"{prefix} for [{name}] requires diskDevice of type 'disk' "
                "or 'lun' to be used.")
    if disk.get('dedicatedIOThread') and bus != 'virtio':
        return f'{prefix} for [{name}] requires virtio bus for IOThreads.'
    return ''
