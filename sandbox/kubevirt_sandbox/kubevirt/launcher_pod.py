# SPDX-License-Identifier: Apache-2.0
"""The manifest of a launcher pod, as far as scheduling and quotas need it.

It has the container ``compute`` only, not those of container disks and of the
console's log.

Source: template.go, renderresources.go and nodeselectorrenderer.go in
pkg/virt-controller/services, pkg/hypervisor/kvm (KubeVirt 1.9).
"""

from kubevirt_sandbox.api import json_copy
from kubevirt_sandbox.api import quantity
from kubevirt_sandbox.kubevirt import paths

SCHEDULABLE = 'kubevirt.io/schedulable'
CPU_MANAGER = 'cpumanager'

_DEVICES = 'devices.kubevirt.io/'
_CPU_RATIO = 10  # virtual CPUs for each requested one
_LIMIT_RATIO = 2  # of limited to requested memory, where a quota needs it
_MI = 1 << 20
_EPHEMERAL_STORAGE = '50M'
# virt-launcher-monitor, virt-launcher, virtlogd, virtqemud, QEMU, I/O thread
_PROCESSES = (25 + 100 + 25 + 40 + 30 + 8) * _MI


def render(vmi, name, uid, network_resources, memory_limit=False):
    """Make the manifest of a launcher pod.

    :param vmi: the VMI.
    :param name: name of the pod.
    :param uid: uid of the pod.
    :param network_resources: names of the resources that its networks need.
    :param memory_limit: whether a pod without a limit of memory gets one.
    :returns: the pod as a dict.
    """
    meta, spec = vmi['metadata'], vmi['spec']
    made = {key: json_copy.copy(spec[key]) for key in (
        'affinity', 'tolerations', 'topologySpreadConstraints')
        if spec.get(key)}
    return {
        'apiVersion': 'v1', 'kind': 'Pod',
        'metadata': {
            'name': name, 'namespace': meta['namespace'], 'uid': uid,
            'resourceVersion': '', 'labels': {
                **(meta.get('labels') or {}), 'kubevirt.io': 'virt-launcher',
                'kubevirt.io/created-by': meta['uid'],
                'vm.kubevirt.io/name': meta['name']}},
        'spec': {**made, 'nodeSelector': _selector(spec), 'containers': [
            {'name': 'compute',
             'resources': _resources(spec, network_resources,
                                     memory_limit)}]}}


def _selector(spec):
    found = {SCHEDULABLE: 'true', 'kubernetes.io/arch':
             spec.get('architecture') or 'amd64',
             **(spec.get('nodeSelector') or {})}
    cpu = paths.at(spec, 'domain', 'cpu') or {}
    if cpu.get('dedicatedCpuPlacement'):
        found[CPU_MANAGER] = 'true'
    if cpu.get('realtime') is not None:
        found['kubevirt.io/realtime'] = 'true'
    return found


def is_guaranteed(spec):
    """Tell whether the pod of a VMI is of quality of service Guaranteed."""
    wanted = paths.at(spec, 'domain', 'resources') or {}
    limits, requests = wanted.get('limits') or {}, wanted.get('requests') or {}
    return bool(paths.at(spec, 'domain', 'cpu', 'dedicatedCpuPlacement')) or (
        all(limits.get(key) and requests.get(key) and quantity.value(
            limits[key]) == quantity.value(requests[key])
            for key in ('cpu', 'memory')))


def _resources(spec, network_resources, memory_limit):
    domain = spec['domain']
    given = domain.get('resources') or {}
    limits, requests = dict(given.get('limits') or {}), dict(
        given.get('requests') or {})
    cpu = domain.get('cpu') or {}
    vcpus = 1
    for key in ('sockets', 'cores', 'threads'):
        vcpus *= cpu.get(key) or 1
    overhead = _overhead(spec, requests, vcpus)
    _add_memory(domain, limits, requests, overhead)
    requests['ephemeral-storage'] = str(int(
        quantity.value(requests.get('ephemeral-storage'))
        + quantity.value(_EPHEMERAL_STORAGE)))
    if cpu.get('dedicatedCpuPlacement'):
        count = vcpus + bool(cpu.get('isolateEmulatorThread'))
        limits['cpu'] = requests['cpu'] = str(count)
        limits['memory'] = requests['memory']
    else:
        requests.setdefault('cpu', f'{vcpus * 1000 // _CPU_RATIO}m')
    if memory_limit and not limits.get('memory'):
        limits['memory'] = str(int(
            quantity.value(requests['memory']) * _LIMIT_RATIO))
    for name in (*_devices(spec), *network_resources):
        for amounts in (limits, requests):
            amounts[name] = str(int(quantity.value(amounts.get(name))) + 1)
    return {'limits': limits, 'requests': requests}


def _add_memory(domain, limits, requests, overhead):
    """Complete the memory of a pod, with that of its processes."""
    memory = domain.get('memory') or {}
    pages = paths.at(memory, 'hugepages', 'pageSize')
    guest = memory.get('guest') or pages
    if limits.get('memory') and not requests.get('memory'):
        requests['memory'] = limits['memory']
    if not requests.get('memory') and guest:
        requests['memory'] = guest
    if paths.at(domain, 'resources', 'overcommitGuestOverhead'):
        overhead = 0
    amount = quantity.value(requests.get('memory'))
    if pages:
        huge = min(amount, quantity.value(guest))
        limits[f'hugepages-{pages}'] = requests[f'hugepages-{pages}'] = str(
            int(huge))
        amount -= huge
    requests['memory'] = str(int(amount) + overhead)
    if limits.get('memory'):
        limits['memory'] = str(int(quantity.value(limits['memory'])
                                   - (huge if pages else 0)) + overhead)


def _overhead(spec, requests, vcpus):
    """Return the bytes that a launcher needs beside the guest's memory."""
    devices = spec['domain'].get('devices') or {}
    total = (_PROCESSES + 8 * _MI * vcpus
             + int(quantity.value(requests.get('memory'))) // 512)
    if devices.get('autoattachGraphicsDevice') is not False:
        total += 32 * _MI
    if devices.get('tpm') is not None and paths.at(
            devices, 'tpm', 'enabled') is not False:
        total += 53 * _MI
    if is_guaranteed(spec):
        total += 100 * _MI
    return total


def _devices(spec):
    """List the devices of the node that a VMI needs."""
    devices = spec['domain'].get('devices') or {}
    cards = paths.interfaces(spec)
    yield _DEVICES + 'kvm'
    if cards or devices.get('autoattachPodInterface') is not False:
        yield _DEVICES + 'tun'
    if any(card.get('model') in (None, '', 'virtio') for card in cards):
        yield _DEVICES + 'vhost-net'
    for key in ('gpus', 'hostDevices'):
        yield from (one['deviceName'] for one in devices.get(key) or ()
                    if one.get('deviceName'))
