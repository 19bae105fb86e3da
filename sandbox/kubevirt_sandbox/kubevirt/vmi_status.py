# SPDX-License-Identifier: Apache-2.0
"""Computes a VMI's status: network interfaces, volumes and state.

Functions of the VMI and of what its node knows; they change the copy that
they are given and write nothing.

Source: pkg/virt-handler/vm.go, pkg/virt-controller/watch/vmi/lifecycle.go
and storage.go (KubeVirt 1.9).
"""

import hashlib
import uuid

from kubevirt_sandbox.api import metadata
from kubevirt_sandbox.api import quantity
from kubevirt_sandbox.kubevirt import claims
from kubevirt_sandbox.kubevirt import conditions
from kubevirt_sandbox.kubevirt import paths

PENDING, SCHEDULING, SCHEDULED, RUNNING, SUCCEEDED, FAILED = (
    'Pending', 'Scheduling', 'Scheduled', 'Running', 'Succeeded', 'Failed')

SYNC_FAILED = 'Synchronizing with the Domain failed.'
"""Reason of the condition Synchronized while virt-handler fails."""

_LETTERS = 'abcdefghijklmnopqrstuvwxyz'
_OS = {'id': 'debian', 'kernelRelease': '6.12.0', 'kernelVersion': '#1 SMP',
       'machine': 'x86_64', 'name': 'Debian GNU/Linux',
       'prettyName': 'Debian GNU/Linux 13 (trixie)',
       'version': '13 (trixie)', 'versionId': '13'}


def phase(vmi):
    """Return the phase of a VMI, '' before it has one."""
    return paths.at(vmi, 'status', 'phase') or ''


def is_final(vmi):
    """Tell whether a VMI has ended."""
    return phase(vmi) in (SUCCEEDED, FAILED)


def move(vmi, to):
    """Put a VMI into a phase, with the time of it."""
    status = vmi['status']
    if status.get('phase') == to:
        return
    status['phase'] = to
    stamps = status.setdefault('phaseTransitionTimestamps', [])
    if all(stamp['phase'] != to for stamp in stamps):
        stamps.append({'phase': to,
                       'phaseTransitionTimestamp': metadata.now()})


def set_ready(vmi, pod, alive=True):
    """Set the condition Ready.

    :param pod: the launcher pod, or None.
    :param alive: False when the pod is going down.
    """
    if pod is None and not is_final(vmi):
        facts = (False, 'PodNotExists',
                 'virt-launcher pod has not yet been scheduled')
    elif pod is None or not alive:
        facts = (False, 'PodTerminating', 'virt-launcher pod is terminating')
    elif phase(vmi) != RUNNING:
        facts = (False, 'GuestNotRunning',
                 'Guest VM is not reported as running')
    elif conditions.is_true(vmi, 'Paused'):
        gate = 'kubevirt.io/virtual-machine-unpaused'
        facts = (False, 'ReadinessGatesNotReady',
                 f'the status of pod readiness gate "{gate}" is not "True", '
                 'but False')
    else:
        facts = (True, '', '')
    conditions.put(vmi, 'Ready', *facts)


def set_paused(vmi, paused, io_error=False):
    """Set or remove the condition Paused.

    :param io_error: whether an I/O error has paused the guest.
    """
    if not paused:
        conditions.drop(vmi, 'Paused')
    elif conditions.find(vmi, 'Paused') is None:
        conditions.put(vmi, 'Paused', True, *(
            ('PausedIOError', 'VMI was paused, low-level IO error detected')
            if io_error else ('PausedByUser', 'VMI was paused by user')),
            probed=True)


def set_synchronized(vmi, reason='', message=''):
    """Set the condition Synchronized after a failure, or remove it."""
    if reason:
        conditions.put(vmi, 'Synchronized', False, reason, message)
    else:
        conditions.drop(vmi, 'Synchronized')


def set_claim_missing(vmi, message):
    """Set the conditions of a VMI that waits for a claim to appear.

    The condition PodScheduled has no time, and stays when the claim is there,
    until the pod has a node.
    """
    set_synchronized(vmi, 'FailedPvcNotFound', message)
    conditions.drop(vmi, 'PodScheduled')
    conditions.copy(vmi, {
        'type': 'PodScheduled', 'status': 'False', 'reason': 'Unschedulable',
        'message': message, 'lastProbeTime': None,
        'lastTransitionTime': None})


def mac_of(vmi, card):
    """Return the MAC address of an interface, generated if not specified."""
    given = card.get('macAddress')
    if given:
        return given.lower().replace('-', ':')
    digest = hashlib.blake2b(
        f'{vmi["metadata"]["uid"]}/{card["name"]}'.encode(),
        digest_size=3).hexdigest()
    return '52:54:00:' + ':'.join(
        digest[i:i + 2] for i in range(0, 6, 2))


def set_interfaces(vmi, pod, agent):
    """Set ``status.interfaces``.

    :param agent: whether a guest agent reports addresses.
    """
    networks = paths.named(paths.networks(vmi['spec']))
    found = []
    for index, card in enumerate(paths.interfaces(vmi['spec'])):
        if card.get('state') == 'absent':
            continue
        network = networks.get(card['name'], {})
        on_pod = network.get('pod') is not None
        sources = ['domain', *(['guest-agent'] if agent else []),
                   *(['multus-status'] if network.get('multus') else [])]
        entry = {'name': card['name'], 'mac': mac_of(vmi, card),
                 'infoSource': ', '.join(sources), 'queueCount': 1,
                 'linkState': 'down' if card.get('state') == 'down'
                 else 'up',
                 'podInterfaceName': 'eth0' if on_pod else 'pod'
                 + hashlib.sha256(card['name'].encode()).hexdigest()[:11]}
        if agent:
            entry['interfaceName'] = f'eth{index}'
        if on_pod or agent:
            address = pod.ip if on_pod else '192.0.2.' + str(
                2 + int(entry['mac'][-2:], 16) % 250)
            entry['ipAddress'] = address
            entry['ipAddresses'] = [address]
        found.append(entry)
    if found:
        vmi['status']['interfaces'] = found
    else:
        vmi['status'].pop('interfaces', None)


def set_agent(vmi, agent):
    """Set the condition AgentConnected and the agent's information."""
    if agent:
        if conditions.find(vmi, 'AgentConnected') is None:
            conditions.put(vmi, 'AgentConnected', True, probed=True)
        vmi['status']['guestOSInfo'] = dict(_OS)
    else:
        conditions.drop(vmi, 'AgentConnected')
        vmi['status']['guestOSInfo'] = {}


def set_volumes(vmi, store, running, plugged):
    """Set ``status.volumeStatus``, including the steps of hotplug.

    :param running: whether the guest runs and sees disks.
    :param plugged: function of a volume's name that tells whether the guest
        has it.
    :returns: whether another step is due.
    """
    namespace = vmi['metadata']['namespace']
    old = {s['name']: s for s in vmi['status'].get('volumeStatus') or ()}
    targets = _targets(vmi['spec'])
    found, more = [], False
    for volume in paths.volumes(vmi['spec']):
        name = volume['name']
        # what is not there when a machine starts is plugged in
        status = dict(old.pop(name, None) or {'name': name, 'target': '', **(
            {'hotplugVolume': {}} if running or paths.is_hotplug(volume)
            else {})})
        claim = paths.claim_name(volume)
        if claim:
            _set_claim(status, claims.find(store, namespace, claim))
        if status.get('hotplugVolume') is not None:
            more |= _plug(status, claims.find(store, namespace, claim or ''),
                          claim, targets.get(name, ''), plugged,
                          claims.filled(store, namespace, claim or ''),
                          not paths.at(vmi, 'spec', 'domain', 'devices',
                                       'disableHotplug'))
        elif running:
            status['target'] = targets.get(name, '')
        found.append(status)
    for status in old.values():
        if status.get('hotplugVolume') is None:
            continue
        here = plugged(status['name'])
        if status.get('phase') in ('Ready', 'Detaching') and here:
            # The guest has not released it yet: virt-handler sets Ready again
            # while the domain has the disk.
            found.append(status)
        elif _unplug(status):
            found.append(status)
            more = True
    if found:
        vmi['status']['volumeStatus'] = sorted(
            found, key=lambda s: s['name'])
    else:
        vmi['status'].pop('volumeStatus', None)
    return more


def _set_claim(status, claim):
    if claim is None:
        return
    spec = claim.get('spec') or {}
    info = {'claimName': claim['metadata']['name'],
            'accessModes': spec.get('accessModes'),
            'volumeMode': spec.get('volumeMode', 'Filesystem'),
            'capacity': paths.at(claim, 'status', 'capacity'),
            'requests': paths.at(spec, 'resources', 'requests'),
            'filesystemOverhead': '0.055'}
    status['persistentVolumeClaimInfo'] = {
        k: v for k, v in info.items() if v}


def plugs_ready(vmi):
    """Tell whether hotplugged volumes can be present from the start.

    A machine starts only then: its firmware may be meant to boot from it.
    """
    return all(
        s.get('phase') in ('MountedToPod', 'Ready')
        for s in paths.at(vmi, 'status', 'volumeStatus') or ()
        if s.get('hotplugVolume') is not None)


def _plug(status, claim, name, target, plugged, filled, mountable):
    """Do one step of hotplug; return whether another step follows.

    :param filled: whether the import into the claim has ended.
    :param mountable: whether the launcher's pod can mount it.
    """
    current = status.get('phase')
    if current == 'Ready':
        return False
    if claim is None:
        _set_state(status, 'Pending', 'FailedPvcNotFound',
                   f'PVC {name} not found')
        return False
    if paths.at(claim, 'status', 'phase') != 'Bound':
        _set_state(status, 'Pending', 'PVCNotReady', 'PVC is in phase '
                   'ClaimPending')
        return False
    if not filled:
        _set_state(status, 'Bound', 'PVCNotReady', 'PVC is in phase Bound')
        return False
    volume = status['name']
    if current == 'AttachedToNode':
        if not mountable:
            return False
        _set_state(status, 'MountedToPod', 'VolumeMountedToPod', f'Volume '
                   f'{volume} has been mounted in virt-launcher pod')
        return True
    if current == 'MountedToPod':
        if not plugged(volume):
            return False
        status['target'] = target
        _set_state(status, 'Ready', 'VolumeReady', 'Successfully attach '
                   f'hotplugged volume {volume} to VM')
        return False
    pod = metadata.generate('hp-volume-')
    status['hotplugVolume'] = {'attachPodName': pod,
                               'attachPodUID': str(uuid.uuid4())}
    _set_state(status, 'AttachedToNode', 'SuccessfulCreate', 'Created hotplug '
               f'attachment pod {pod}, for volume {volume}')
    return True


def _unplug(status):
    """Do one step of unplugging; return False after the last."""
    if not status['hotplugVolume'] or status.get('phase') == 'Detaching':
        return False
    status['target'] = ''
    _set_state(status, 'Detaching', 'SuccessfulDelete', 'Deleted hotplug '
               f'attachment pod {status["hotplugVolume"]["attachPodName"]}, '
               f'for volume {status["name"]}')
    return True


def _set_state(status, phase_, reason, message):
    status.update(phase=phase_, reason=reason, message=message)


def _targets(spec):
    """Name the disks as libvirt does: vda, sda, ..."""
    counts, found = {}, {}
    for disk in paths.disks(spec):
        bus = next((disk[k].get('bus') for k in ('disk', 'cdrom', 'lun')
                    if disk.get(k) is not None), None) or 'sata'
        prefix = 'vd' if bus == 'virtio' else 'sd'
        number = counts.get(prefix, 0)
        counts[prefix] = number + 1
        found[disk['name']] = prefix + _LETTERS[number % len(_LETTERS)]
    return found


def set_migratable(vmi, store):
    """Set the conditions LiveMigratable and StorageLiveMigratable."""
    namespace = vmi['metadata']['namespace']
    networks = paths.named(paths.networks(vmi['spec']))
    facts = (True, '', '')
    for card in paths.interfaces(vmi['spec']):
        if (networks.get(card['name'], {}).get('pod') is not None
                and card.get('bridge') is not None):
            facts = (False, 'InterfaceNotLiveMigratable',
                     'cannot migrate VMI which does not use masquerade or a '
                     'migratable plugin to connect to the pod network')
    method = 'LiveMigration'
    for volume in paths.volumes(vmi['spec']):
        if volume.get('containerDisk') is not None or volume.get(
                'emptyDisk') is not None:
            method = 'BlockMigration'
        name = paths.claim_name(volume)
        claim = name and claims.find(store, namespace, name)
        if claim and facts[0] and 'ReadWriteMany' not in (paths.at(
                claim, 'spec', 'accessModes') or ()):
            facts = (False, 'DisksNotLiveMigratable',
                     f'cannot migrate VMI: PVC {name} is not shared, live '
                     'migration requires that all PVCs must be shared '
                     '(using ReadWriteMany access mode)')
    conditions.put(vmi, 'LiveMigratable', *facts)
    conditions.put(vmi, 'StorageLiveMigratable', True)
    vmi['status']['migrationMethod'] = method


def set_data_volumes(vmi, store):
    """Set the condition DataVolumesReady if there are DataVolumes."""
    found = claims.data_volumes(store, vmi['metadata']['namespace'],
                                paths.volumes(vmi['spec']))
    if not found:
        return
    said = [(conditions.find(d, 'Ready') or {}).get('status', 'Unknown')
            for d in found]
    if all(s == 'True' for s in said):
        conditions.put(vmi, 'DataVolumesReady', True, 'AllDVsReady',
                       "All of the VMI's DVs are bound and ready")
    else:
        conditions.put(vmi, 'DataVolumesReady',
                       'False' if 'False' in said else 'Unknown',
                       'NotAllDVsReady',
                       "Not all of the VMI's DVs are ready")


def set_size_changes(vmi):
    """Set the conditions for added CPUs and memory that need a migration."""
    spec, status = vmi['spec']['domain'], vmi['status']
    sockets = paths.at(spec, 'cpu', 'sockets') or 1
    if sockets != (paths.at(status, 'currentCPUTopology', 'sockets') or 1):
        conditions.put(vmi, 'HotVCPUChange', True)
    wanted = paths.at(spec, 'memory', 'guest')
    current = paths.at(status, 'memory', 'guestCurrent')
    if wanted and current and quantity.value(wanted) != quantity.value(
            current):
        status['memory']['guestRequested'] = wanted
        conditions.put(vmi, 'HotMemoryChange', True)
