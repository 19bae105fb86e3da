# SPDX-License-Identifier: Apache-2.0
"""The VirtualMachine of a node; fields as in KubeVirt's API v1."""

from __future__ import annotations

import copy
import dataclasses

from sushy_kubevirt.cluster import identity
from sushy_kubevirt.cluster import model
from sushy_kubevirt.cluster.objects import merge
from sushy_kubevirt.cluster.objects import networks
from sushy_kubevirt.cluster.objects import stamp
from sushy_kubevirt.cluster.objects import volumes
from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.machine import architecture

#: Name of the CD-ROM drive for virtual media.
DRIVE = 'cd'


def virtual_machine(cluster, node, namespace):
    """Make the VirtualMachine, which is off.

    :param cluster: a `model.Cluster`
    :param node: a `model.Node`
    :param namespace: of its objects
    :returns: a `stamp.Wanted`
    """
    kind = node.type
    labels = stamp.labels(cluster, node)
    if identity.is_label_value(kind.name):
        labels[identity.TYPE] = kind.name
    template = {'metadata': {'labels': labels},
                'spec': {'domain': _domain(node),
                         'networks': networks.networks(node),
                         'volumes': volumes.volumes(node),
                         **_placement(kind.placement, cluster)}}
    spec = {'runStrategy': 'Halted', 'template': template}
    made = volumes.templates(node, labels, namespace)
    if made:
        spec['dataVolumeTemplates'] = made
    if kind.instancetype:
        spec['instancetype'] = kind.instancetype
    if kind.preference:
        spec['preference'] = kind.preference
    body = merge.merge({'spec': spec}, kind.vm)
    # The constraints of `_placement` select VMs by these labels.
    body = merge.merge(body, {'spec': {'template': {'metadata': {
        'labels': labels}}}})
    return stamp.wanted(api_resources.VM, node.name, body, node.name,
                        namespace, labels, _declared(node))


def without_drive(body):
    """Return a VM without its empty CD-ROM drive.

    KubeVirt refuses an empty drive unless its feature gate
    DeclarativeHotplugVolumes is on (``vmi-create-admitter.go`` of 1.9). BMCs
    then add a drive with each medium.

    :param body: dict, the VM; is not changed
    :returns: dict; None if it has no empty drive
    """
    body = copy.deepcopy(body)
    spec = body['spec']['template']['spec']
    devices = spec['domain'].get('devices') or {}
    filled = {one['name'] for one in spec.get('volumes') or ()}
    disks = devices.get('disks') or []
    kept = [one for one in disks
            if one['name'] in filled or 'cdrom' not in one]
    if kept == disks:
        return None
    devices['disks'] = kept
    return body


def _domain(node):
    kind = node.type
    has = architecture.named(kind.architecture)
    devices = {
        'disks': [*volumes.disks(node),
                  {'name': DRIVE, 'cdrom': {'bus': has.cdrom_bus}}],
        'interfaces': networks.interfaces(node)}
    if not node.interfaces:
        # KubeVirt would add one in the pod network.
        devices['autoattachPodInterface'] = False
    if kind.console_log is not None:
        devices['logSerialConsole'] = kind.console_log
    if kind.tpm:
        devices['tpm'] = (
            {'persistent': True} if kind.tpm == 'persistent' else {})
    domain = {'devices': devices}
    if len(has.firmware) > 1 or kind.boot_mode != 'bios':
        domain['firmware'] = {'bootloader': (
            {'bios': {'useSerial': True}} if kind.boot_mode == 'bios'
            else {'efi': {'secureBoot': kind.secure_boot}})}
    if kind.secure_boot:
        # Secure boot needs System Management Mode.
        domain['features'] = {'smm': {'enabled': True}}
    cpu, memory = _cpu(kind), _memory(kind)
    if cpu:
        domain['cpu'] = cpu
    if memory:
        domain['memory'] = memory
    return domain


def _cpu(kind):
    cpu = {}
    if kind.vcpus is not None:
        cpu['cores'] = kind.vcpus
    if kind.placement.dedicated_cpus:
        cpu['dedicatedCpuPlacement'] = True
    if kind.placement.numa:
        cpu['numa'] = {'guestMappingPassthrough': {}}
    return cpu


def _memory(kind):
    memory = {}
    if kind.memory_mb is not None:
        memory['guest'] = f'{kind.memory_mb}Mi'
    if kind.placement.huge_pages:
        memory['hugepages'] = {'pageSize': kind.placement.huge_pages}
    return memory


def _placement(placement, cluster):
    spec = {}
    if placement.node_selector:
        spec['nodeSelector'] = placement.node_selector
    if placement.tolerations:
        spec['tolerations'] = list(placement.tolerations)
    if placement.affinity:
        spec['affinity'] = placement.affinity
    if placement.spread:
        spec['topologySpreadConstraints'] = [{
            'maxSkew': 1, 'topologyKey': placement.spread,
            'whenUnsatisfiable': ('DoNotSchedule' if placement.spread_required
                                  else 'ScheduleAnyway'),
            'labelSelector': {'matchLabels': {
                identity.CLUSTER: cluster.name}}}]
    return spec


def _declared(node):
    """Return what the file declares about the machine, without defaults."""
    declared = _non_defaults(node.type, model.NodeType(''))
    declared['type'] = declared.pop('name', '')
    # These two belong to the BMC and to Ironic.
    declared.pop('bmc', None)
    declared.pop('driver', None)
    declared['networks'] = [
        f'{one.network.name} ({one.network.attachment or "pod"})'
        for one in node.interfaces]
    placement = declared.pop('placement', {})
    return {**declared, **placement}


def _non_defaults(value, default):
    found = {}
    for field in dataclasses.fields(value):
        one = getattr(value, field.name)
        if one == getattr(default, field.name):
            continue
        if isinstance(one, model.Placement):
            found[field.name] = _non_defaults(one, model.Placement())
        elif field.name == 'volumes':
            found[field.name] = [
                _non_defaults(volume, model.Volume(None)) for volume in one]
        else:
            found[field.name] = list(one) if isinstance(one, tuple) else one
    return found
