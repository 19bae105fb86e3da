# SPDX-License-Identifier: Apache-2.0
"""Defaults that KubeVirt adds to VMs and VMIs.

A VM gets little (firmware UUID and serial, machine type, architecture), so
that it follows the cluster's defaults; a VMI gets everything, since it is
what runs.

Source: pkg/defaults, pkg/virt-api/webhooks/mutating-webhook/mutators,
staging/src/kubevirt.io/api/core/v1/defaults.go (KubeVirt 1.9).
"""

import uuid

from kubevirt_sandbox.api import metadata
from kubevirt_sandbox.api import quantity
from kubevirt_sandbox.kubevirt.admission import resources
from kubevirt_sandbox.kubevirt import paths

VMI_FINALIZER = 'kubevirt.io/foregroundDeleteVirtualMachine'
PCI_TOPOLOGY = 'kubevirt.io/pci-topology-version'

_MOST_VCPUS = 512
_DISK_BUSES = {'arm64': 'virtio', 's390x': 'virtio'}
_TIMERS = ('hpet', 'kvm', 'pit', 'rtc', 'hyperv')


class DefaultsError(ValueError):
    """A default is not allowed by the cluster's configuration."""


def fill_vm(vm, config, new):
    """Add to a VM what virt-api adds.

    :param vm: the VM, changed in place; its template must be there.
    :param config: a :class:`config.ClusterConfig`.
    :param new: whether it is being created.
    """
    template = vm['spec']['template']
    spec = template.setdefault('spec', {})
    domain = spec.setdefault('domain', {})
    if new:
        firmware = domain.setdefault('firmware', {})
        for key in ('uuid', 'serial'):
            if not firmware.get(key):
                firmware[key] = str(uuid.uuid4())
    if not spec.get('architecture'):
        spec['architecture'] = config.architecture
    machine = domain.setdefault('machine', {})
    if not machine.get('type'):
        machine['type'] = config.machine_type(spec['architecture'])
    if new:
        _set_pci_topology(template, spec)


def _set_pci_topology(obj, spec):
    machine = paths.at(spec, 'domain', 'machine', 'type') or 'q35'
    if ('q35' in machine or machine.startswith('virt')) and spec.get(
            'architecture') in ('amd64', 'arm64', None):
        annotations = obj.setdefault('metadata', {}).setdefault(
            'annotations', {})
        annotations.setdefault(PCI_TOPOLOGY, 'v3')


def fill_spec(spec, config):
    """Add to a VMI's spec what both kinds are checked with.

    :param spec: the spec, changed in place.
    :raises: DefaultsError
    """
    if not spec.get('architecture'):
        spec['architecture'] = config.architecture
    domain = spec['domain']
    machine = domain.setdefault('machine', {})
    if not machine.get('type'):
        machine['type'] = config.machine_type(spec['architecture'])
    _fill_sizes(domain)
    for volume in paths.volumes(spec):
        disk = volume.get('containerDisk')
        if disk is not None and not disk.get('imagePullPolicy'):
            image = disk.get('image', '')
            latest = image.endswith(':latest') or not any(
                mark in image for mark in ':@')
            disk['imagePullPolicy'] = 'Always' if latest else 'IfNotPresent'
    if spec.get('evictionStrategy') is None and config.eviction_strategy:
        spec['evictionStrategy'] = config.eviction_strategy
    add_interface(spec, config)
    add_disks(spec)


def _fill_sizes(domain):
    wanted = domain.setdefault('resources', {})
    limits, requests = wanted.get('limits') or {}, wanted.get('requests')
    if quantity.value(limits.get('cpu')) and not (requests or {}).get('cpu'):
        requests = wanted.setdefault('requests', {})
        requests['cpu'] = limits['cpu']
    requests = requests or {}
    memory = domain.setdefault('memory', {})
    if memory.get('guest') is None:
        guest = next((amount for amount in (
            requests.get('memory'), limits.get('memory'),
            paths.at(memory, 'hugepages', 'pageSize'))
            if amount and _is_amount(amount)), None)
        if guest is not None:
            memory['guest'] = guest
    cpu = domain.setdefault('cpu', {})
    if not any(cpu.get(k) for k in ('sockets', 'cores', 'threads')):
        given = limits.get('cpu') or requests.get('cpu')
        sockets = -(-quantity.value(given) // 1) if given else 1
        cpu.update(sockets=int(sockets), cores=1, threads=1)


def _is_amount(text):
    try:
        return bool(quantity.value(text))
    except quantity.QuantityError:
        return False


def add_interface(spec, config):
    """Add an interface on the pod network if no network is specified.

    :raises: DefaultsError
    """
    devices = spec['domain'].setdefault('devices', {})
    if (devices.get('autoattachPodInterface') is False
            or spec.get('networks') or devices.get('interfaces')):
        return
    binding = config.network_interface
    if binding == 'bridge' and not config.bridge_on_pod_network:
        raise DefaultsError(
            'bridge interface is not enabled in kubevirt-config')
    if binding == 'slirp':
        raise DefaultsError('slirp interface is deprecated as of v1.3')
    devices['interfaces'] = [{'name': 'default', binding: {}}]
    spec['networks'] = [{'name': 'default', 'pod': {}}]


def add_disks(spec):
    """Add a disk for every volume that has neither disk nor filesystem."""
    devices = spec['domain'].setdefault('devices', {})
    shown = {d.get('name') for kind in ('disks', 'filesystems')
             for d in devices.get(kind) or ()}
    extra = [{'name': v['name']} for v in paths.volumes(spec)
             if v.get('name') and v['name'] not in shown]
    if extra:
        devices['disks'] = (devices.get('disks') or []) + extra


def fill_vmi(vmi, config):
    """Add to a new VMI what virt-api adds.

    :param vmi: the VMI, changed in place.
    :raises: DefaultsError
    """
    spec = vmi['spec']
    fill_spec(spec, config)
    _fill_devices(spec)
    domain = spec['domain']
    domain['cpu'].setdefault('model', 'host-passthrough' if spec[
        'architecture'] == 'arm64' else config.cpu_model)
    status = vmi['status'] = {
        'phase': 'Pending', 'guestOSInfo': {}, 'runtimeUser': 107,
        'phaseTransitionTimestamps': [{
            'phase': 'Pending',
            'phaseTransitionTimestamp': metadata.now()}],
        **{k: v for k, v in (vmi.get('status') or {}).items()
           if k == 'virtualMachineRevisionName'}}
    guest = domain['memory'].get('guest')
    if guest is not None:
        status['memory'] = {k: guest for k in (
            'guestAtBoot', 'guestCurrent', 'guestRequested')}
    status['currentCPUTopology'] = {
        k: domain['cpu'][k] for k in ('sockets', 'cores', 'threads')
        if domain['cpu'].get(k)}
    if spec['architecture'] != 'arm64' and config.live_update:
        _fill_hotplug(spec, config)
    _set_pci_topology(vmi, spec)
    finalizers = vmi['metadata'].setdefault('finalizers', [])
    if VMI_FINALIZER not in finalizers:
        finalizers.append(VMI_FINALIZER)


def _fill_devices(spec):
    domain = spec['domain']
    domain.setdefault('firmware', {}).setdefault('uuid', str(uuid.uuid4()))
    architecture = spec['architecture']
    if architecture == 'arm64':
        efi = domain['firmware'].setdefault('bootloader', {'efi': {}}).get(
            'efi')
        if efi is not None:
            efi.setdefault('secureBoot', False)
    features = domain.setdefault('features', {})
    features.setdefault('acpi', {'enabled': False}
                        if architecture == 's390x' else {})
    for name in ('acpi', 'apic', 'smm', 'pvspinlock', 'hypervPassthrough'):
        if features.get(name) is not None:
            features[name].setdefault('enabled', True)
    timer = paths.at(domain, 'clock', 'timer') or {}
    for name in _TIMERS:
        if timer.get(name) is not None:
            timer[name].setdefault('present', True)
    for disk in paths.disks(spec):
        kinds = [k for k in ('disk', 'cdrom', 'lun')
                 if disk.get(k) is not None]
        if not kinds:
            disk['disk'] = {}
            kinds = ['disk']
        for kind in kinds:
            if not disk[kind].get('bus'):
                disk[kind]['bus'] = _DISK_BUSES.get(architecture, 'sata')
        if 'cdrom' in kinds:
            disk['cdrom'].setdefault('readonly', True)
            disk['cdrom'].setdefault('tray', 'closed')
    devices = domain['devices']
    for device in devices.get('inputs') or ():
        device.setdefault('bus', 'usb')
    watchdog = devices.get('watchdog')
    if watchdog is not None and architecture != 'arm64':
        watchdog.setdefault('diag288' if architecture == 's390x' else
                            'i6300esb', {}).setdefault('action', 'reset')
    for kind in ('readinessProbe', 'livenessProbe'):
        probe = spec.get(kind)
        for key, least in (('timeoutSeconds', 1), ('periodSeconds', 10),
                           ('successThreshold', 1),
                           ('failureThreshold', 3)):
            if probe is not None and probe.get(key, 0) < 1:
                probe[key] = least


def _fill_hotplug(spec, config):
    cpu, memory = spec['domain']['cpu'], spec['domain']['memory']
    sockets = cpu.get('sockets') or 1
    if not cpu.get('maxSockets'):
        per_socket = (cpu.get('cores') or 1) * (cpu.get('threads') or 1)
        most = config.max_sockets and max(config.max_sockets, sockets)
        if not most:
            most = sockets * config.max_hotplug_ratio
            if most * per_socket > _MOST_VCPUS:
                most = max(_MOST_VCPUS // per_socket, sockets)
        cpu['maxSockets'] = most
    if memory.get('maxGuest') is not None:
        return
    most = config.max_guest_memory
    if most is None and memory.get('guest') is not None:
        amount = quantity.value(memory['guest']) * config.max_hotplug_ratio
        # the product is written with a binary suffix for any factor
        most = (quantity.canonical(f'{int(amount) // 1024}Ki')
                if amount % 1024 == 0 else str(int(amount)))
    if not resources.hotplug_error(spec, most):
        memory['maxGuest'] = most
