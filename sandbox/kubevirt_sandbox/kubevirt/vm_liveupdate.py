# SPDX-License-Identifier: Apache-2.0
"""Live updates of a running VM from changes of its template.

Some reach the running VMI (processors and memory that are added, node
selectors, tolerations, CD-ROM media); the others wait for the next start, and
the VM gets the condition RestartRequired.

Source: syncRestartRequired, handle...Request of pkg/virt-controller/watch/
vm/vm.go, pkg/storage/hotplug, pkg/network/vmliveupdate (KubeVirt 1.9).
"""

from kubevirt_sandbox.api import json_copy
from kubevirt_sandbox.api import quantity
from kubevirt_sandbox.kubevirt.admission import resources
from kubevirt_sandbox.kubevirt import conditions
from kubevirt_sandbox.kubevirt import paths
from kubevirt_sandbox.kubevirt import vm_model
from kubevirt_sandbox.kubevirt import vm_status
from kubevirt_sandbox.kubevirt import vmi_status

_LIVE = ('nodeSelector', 'affinity', 'tolerations')


class LiveUpdateError(Exception):
    """A change cannot be applied now; (reason, message)."""


def check_restart(vm, vmi, started, config):
    """Set or remove the condition RestartRequired.

    :param vm: the VM, its status is changed in place.
    :param vmi: its VMI.
    :param started: the template's spec as it was at the VMI's start.
    :returns: whether a restart is required.
    """
    wanted = vm['spec']['template']['spec']
    if started != wanted and not vm_model.same(
            _carried_over(started, wanted, vm, vmi, config), wanted):
        vm_status.require_restart(
            vm, 'a non-live-updatable field was changed in the template '
            'spec')
        return True
    conditions.drop(vm, vm_model.RESTART_REQUIRED)
    return False


def _carried_over(started, wanted, vm, vmi, config):
    """Return the spec at the start with all changes allowed since."""
    spec = json_copy.copy(started)
    migrates = vm['spec'].get('updateVolumesStrategy') == 'Migration'
    if _volumes_live(started, wanted, migrates):
        _take(spec, wanted, 'volumes')
    devices = spec['domain'].setdefault('devices', {})
    new = wanted['domain'].get('devices') or {}
    if _disks_live(started, wanted):
        _take(devices, new, 'disks')
    if config.live_update:
        cpu, new_cpu = (s['domain'].get('cpu') for s in (spec, wanted))
        if cpu is not None and new_cpu is not None:
            _take(cpu, new_cpu, 'sockets')
        guest = paths.at(wanted, 'domain', 'memory', 'guest')
        if guest is not None:
            spec['domain'].setdefault('memory', {})['guest'] = guest
        for field in _LIVE:
            _take(spec, wanted, field)
    if not _networks_changed(wanted, vmi['spec']):
        _take(devices, new, 'interfaces')
        _take(spec, wanted, 'networks')
    uid = paths.at(wanted, 'domain', 'firmware', 'uuid')
    if uid and uid == paths.at(vmi, 'spec', 'domain', 'firmware', 'uuid'):
        spec['domain'].setdefault('firmware', {})['uuid'] = uid
    return spec


def _take(target, source, field):
    if field in source:
        target[field] = source[field]
    else:
        target.pop(field, None)


def _volumes_live(started, wanted, migrates):
    old = paths.named(paths.volumes(started))
    for volume in paths.volumes(wanted):
        before = old.pop(volume['name'], None)
        if paths.is_hotplug(volume):
            continue
        if before is None:
            return False
        if migrates and any(volume.get(k) is not None for k in (
                'persistentVolumeClaim', 'dataVolume')):
            continue
        if before != volume:
            return False
    return all(paths.is_hotplug(volume) for volume in old.values())


def _disks_live(started, wanted):
    old = paths.named(paths.disks(started))
    old_volumes = paths.named(paths.volumes(started))
    volumes = paths.named(paths.volumes(wanted))
    for disk in paths.disks(wanted):
        before = old.pop(disk['name'], None)
        if paths.is_hotplug(volumes.get(disk['name']) or {}):
            continue
        if before is None or before != disk:
            return False
    for name, disk in old.items():
        if name in old_volumes and not paths.is_hotplug(old_volumes[name]):
            return False
        if disk.get('cdrom') is not None:
            return False
    return True


def _networks_changed(wanted, current):
    """Tell whether interfaces or networks of the VMI were changed."""
    cards, running = (paths.named(paths.interfaces(s))
                      for s in (wanted, current))
    for name, card in running.items():
        if name not in cards or {**cards[name], 'state': ''} != {
                **card, 'state': ''}:
            return True
    nets, running = (paths.named(paths.networks(s))
                     for s in (wanted, current))
    on_pod = [any(n.get('pod') is not None for n in group.values())
              for group in (nets, running)]
    return (on_pod[0] and not on_pod[1]) or any(
        nets.get(name) != net for name, net in running.items())


# -- changes of the running VMI ------------------------------------------

def carry_out(vm, vmi, config):
    """Apply a VM's changes to its running VMI.

    :param vm: the VM, its status is changed in place.
    :param vmi: a copy of its VMI, its spec is changed in place.
    :raises: LiveUpdateError
    """
    if 'deletionTimestamp' in vmi['metadata']:
        return
    wanted = vm['spec']['template']['spec']
    _add_sockets(vm, vmi, wanted)
    for field in _LIVE:
        if wanted.get(field) != vmi['spec'].get(field):
            _take(vmi['spec'], wanted, field)
    _add_memory(vm, vmi, wanted)


def _add_sockets(vm, vmi, wanted):
    cpu, current = (paths.at(s, 'domain', 'cpu')
                    for s in (wanted, vmi['spec']))
    if not cpu or not current:
        return
    number, before = cpu.get('sockets', 0), current.get('sockets', 0)
    if number == before:
        return
    if conditions.is_true(vmi, 'HotVCPUChange'):
        raise LiveUpdateError(
            'HotPlugCPUError', 'Error encountered while handling CPU change '
            'request: another CPU hotplug is in progress')
    if number > current.get('maxSockets', 0):
        vm_status.require_restart(
            vm, 'CPU sockets updated in template spec to a value higher '
            "than what's available")
    elif number < before:
        vm_status.require_restart(
            vm, 'Reduction of CPU socket count requires a restart')
    else:
        current['sockets'] = number


def _add_memory(vm, vmi, wanted):
    guest = paths.at(wanted, 'domain', 'memory', 'guest')
    memory = paths.at(vmi, 'spec', 'domain', 'memory') or {}
    current = paths.at(vmi, 'status', 'memory') or {}
    if None in (guest, memory.get('guest'), current.get('guestCurrent')):
        return
    if vm_model.same_amount(guest, memory['guest']):
        return
    why = _memory_obstacle(vmi, wanted, guest, memory, current)
    if why:
        vm_status.require_restart(vm, why)
        return
    if conditions.is_true(vmi, 'HotMemoryChange'):
        raise LiveUpdateError(
            'HotPlugMemoryError', 'error encountered while handling memory '
            'hotplug requests: another memory hotplug is in progress')
    memory['guest'] = guest


def _memory_obstacle(vmi, wanted, guest, memory, current):
    prefix = 'memory updated in template spec'
    if not conditions.is_true(vmi, 'LiveMigratable'):
        return (f'{prefix}. Memory-hotplug is only available for migratable '
                'VMs')
    if memory.get('maxGuest') is None:
        return (f'{prefix}. Memory-hotplug is not available for this VM '
                'configuration')
    why = resources.hotplug_error(wanted, memory['maxGuest'])
    if why:
        return f'memory hotplug not supported, {why}'
    if quantity.value(guest) < quantity.value(current.get('guestAtBoot')):
        return (f'{prefix} to a value lower than what the VM started with')
    return ''


def plug_volumes(vm, vmi):
    """Hotplug and unplug volumes, such as CD-ROM media.

    A medium that is exchanged goes first; the new one comes when the old
    one has left ``status.volumeStatus``.

    :param vmi: a copy of the VMI, its spec is changed in place.
    """
    if (vmi_status.phase(vmi) != vmi_status.RUNNING
            or vm['spec'].get('updateVolumesStrategy') == 'Migration'):
        return
    wanted = vm['spec']['template']['spec']
    volumes = paths.named(paths.volumes(wanted))
    new = []
    for volume in paths.volumes(vmi['spec']):
        there = volumes.get(volume['name'])
        if paths.is_hotplug(volume) and (there is None or (
                paths.is_hotplug(there) and there != volume)):
            continue
        new.append(volume)
    busy = {v['name'] for v in paths.volumes(vmi['spec'])} | {
        s['name'] for s in paths.at(vmi, 'status', 'volumeStatus') or ()}
    new += [json_copy.copy(v) for v in volumes.values()
            if paths.is_hotplug(v) and v['name'] not in busy]
    disks = _plug_disks(wanted, vmi['spec'], paths.named(new), volumes)
    for target, field, items in ((vmi['spec'], 'volumes', new),
                                 (vmi['spec']['domain']['devices'], 'disks',
                                  disks)):
        if items != (target.get(field) or []):
            target[field] = items


def _plug_disks(wanted, current, new, volumes):
    wanted_disks = paths.named(paths.disks(wanted))
    found = []
    for disk in paths.disks(current):
        name = disk['name']
        there = wanted_disks.get(name)
        if name not in new:
            if there is None:
                continue
            drives = all(d.get('cdrom') is not None for d in (there, disk))
            if name in volumes and not drives:
                continue
        found.append(disk)
    shown = {d['name'] for d in paths.disks(current)}
    return found + [
        json_copy.copy(d) for name, d in wanted_disks.items()
        if name not in shown and paths.is_hotplug(new.get(name) or {})]


def plug_cards(vm, vmi):
    """Hotplug and unplug interfaces and change their link state.

    :param vmi: a copy of the VMI, its spec is changed in place.
    """
    if 'deletionTimestamp' in vmi['metadata']:
        return
    wanted, current = vm['spec']['template']['spec'], vmi['spec']
    networks = paths.named(paths.networks(wanted))
    cards = json_copy.copy(paths.interfaces(current))
    nets = json_copy.copy(paths.networks(current))
    there = paths.named(cards)
    for card in paths.interfaces(wanted):
        name, state = card['name'], card.get('state')
        if name in there:
            if there[name].get('state') != 'absent':
                _take(there[name], card, 'state')
        elif state != 'absent' and any(
                card.get(k) is not None for k in ('bridge', 'sriov')):
            cards.append(json_copy.copy(card))
            nets.append(json_copy.copy(networks[name]))
    shown = {i['name'] for i in paths.at(vmi, 'status', 'interfaces') or ()}
    cards, nets = _present(cards, nets, shown)
    if cards != paths.interfaces(current):
        current['domain']['devices']['interfaces'] = cards
        current['networks'] = nets


def unplugged_cards(vm, vmi):
    """Return a VM's cards and networks without those already unplugged.

    :param vmi: its VMI, or None.
    :returns: (interfaces, networks).
    """
    spec = vm['spec']['template']['spec']
    kept = {c['name'] for c in paths.interfaces((vmi or {}).get('spec'))} | {
        i['name'] for i in paths.at(vmi, 'status', 'interfaces') or ()}
    return _present(paths.interfaces(spec), paths.networks(spec), kept)


def _present(cards, networks, kept):
    cards = [c for c in cards
             if c.get('state') != 'absent' or c['name'] in kept]
    names = {c['name'] for c in cards}
    return cards, [n for n in networks if n['name'] in names]
