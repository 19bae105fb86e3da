# SPDX-License-Identifier: Apache-2.0
"""The VirtualMachine of a node; fields as in KubeVirt's API v1."""

from __future__ import annotations

import copy
import dataclasses
import typing

from sushy_kubevirt.cluster import identity
from sushy_kubevirt.cluster import model
from sushy_kubevirt.cluster.objects import merge
from sushy_kubevirt.cluster.objects import networks
from sushy_kubevirt.cluster.objects import stamp
from sushy_kubevirt.cluster.objects import volumes
from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.machine import architecture

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import objects

#: Name of the CD-ROM drive for virtual media.
DRIVE = 'cd'


def virtual_machine(cluster: model.Cluster, node: model.Node,
                    namespace: str) -> stamp.Wanted:
    """Make the VirtualMachine, which is off."""
    kind = node.type
    labels = stamp.labels(cluster, node)
    if identity.is_label_value(kind.name):
        labels[stored_names.TYPE] = kind.name
    template = {'metadata': {'labels': labels},
                'spec': {'domain': _domain(node),
                         'networks': networks.networks(node),
                         'volumes': volumes.volumes(node),
                         **_placement(kind.placement, cluster)}}
    spec = merge.given({
        'runStrategy': 'Halted', 'template': template,
        'dataVolumeTemplates': volumes.templates(
            node, labels, namespace) or None,
        'instancetype': kind.instancetype, 'preference': kind.preference})
    body = merge.merge({'spec': spec}, kind.vm)
    # The constraints of `_placement` select VMs by these labels.
    body = merge.merge(body, {'spec': {'template': {'metadata': {
        'labels': labels}}}})
    return stamp.wanted(api_resources.VM, node.name, body, node.name,
                        namespace, labels, _declared(node))


def without_drive(body: objects.Json) -> objects.Json | None:
    """Return a VM without its empty CD-ROM drive.

    KubeVirt refuses an empty drive unless its feature gate
    DeclarativeHotplugVolumes is on (``vmi-create-admitter.go`` of 1.9). BMCs
    then add a drive with each medium.

    :param body: the VM; is not changed
    :returns: None if it has no empty drive
    """
    body = copy.deepcopy(body)
    spec = body['spec']['template']['spec']
    devices = spec['domain'].get('devices') or {}
    filled = {volume['name'] for volume in spec.get('volumes') or ()}
    disks = devices.get('disks') or []
    kept = [disk for disk in disks
            if disk['name'] in filled or 'cdrom' not in disk]
    if kept == disks:
        return None
    devices['disks'] = kept
    return body


def _domain(node: model.Node) -> objects.Json:
    kind = node.type
    has = architecture.named(kind.architecture)
    uefi, tpm = kind.boot_mode != 'bios', kind.tpm
    firmware = {'bootloader': (
        {'efi': {'secureBoot': kind.secure_boot}} if uefi
        else {'bios': {'useSerial': True}})}
    interfaces, disks = networks.interfaces(node), volumes.disks(node)
    if kind.driver == 'snmp':
        # Nothing sets a boot device: the network first, then the disks.
        for order, interface in enumerate(interfaces, 1):
            interface['bootOrder'] = order
        for order, disk in enumerate(disks, 1 + len(interfaces)):
            disk['bootOrder'] = order
    return merge.given({
        'devices': merge.given({
            'disks': [*disks,
                      {'name': DRIVE, 'cdrom': {'bus': has.cdrom_bus}}],
            'interfaces': interfaces,
            # KubeVirt would add one in the pod network.
            'autoattachPodInterface': None if node.interfaces else False,
            'logSerialConsole': kind.console_log,
            'tpm': tpm and ({'persistent': True} if tpm == 'persistent'
                            else {})}),
        'firmware': firmware if uefi or len(has.firmware) > 1 else None,
        # Secure boot needs System Management Mode.
        'features': {'smm': {'enabled': True}} if kind.secure_boot else None,
        'cpu': _cpu(kind) or None, 'memory': _memory(kind) or None})


def _cpu(kind: model.NodeType) -> objects.Json:
    return merge.given({
        'cores': kind.vcpus,
        'dedicatedCpuPlacement': kind.placement.dedicated_cpus or None,
        'numa': {'guestMappingPassthrough': {}} if kind.placement.numa
        else None})


def _memory(kind: model.NodeType) -> objects.Json:
    pages = kind.placement.huge_pages
    return merge.given({
        'guest': f'{kind.memory_mb}Mi' if kind.memory_mb else None,
        'hugepages': {'pageSize': pages} if pages else None})


def _placement(placement: model.Placement,
               cluster: model.Cluster) -> objects.Json:
    spread = [{
        'maxSkew': 1, 'topologyKey': placement.spread,
        'whenUnsatisfiable': ('DoNotSchedule' if placement.spread_required
                              else 'ScheduleAnyway'),
        'labelSelector': {'matchLabels': {
            stored_names.CLUSTER: cluster.name}}}]
    return merge.given({
        'nodeSelector': placement.node_selector or None,
        'tolerations': list(placement.tolerations) or None,
        'affinity': placement.affinity or None,
        'topologySpreadConstraints': spread if placement.spread else None})


def _declared(node: model.Node) -> objects.Json:
    """Return what the file declares about the machine, without defaults."""
    declared = _non_defaults(node.type, model.NodeType(''))
    declared['type'] = declared.pop('name', '')
    # These two belong to the BMC and to Ironic.
    declared.pop('bmc', None)
    if declared.pop('driver', None) == 'snmp':
        # It also determines the boot order.
        declared['ironic_driver'] = 'snmp'
    declared['networks'] = [
        f'{interface.network.name} ({interface.network.attachment or "pod"})'
        for interface in node.interfaces]
    placement = declared.pop('placement', {})
    return {**declared, **placement}


def _non_defaults(
        declared: model.NodeType | model.Placement | model.Volume,
        default: object) -> objects.Json:
    differing: objects.Json = {}
    for field in dataclasses.fields(declared):
        value = getattr(declared, field.name)
        if value == getattr(default, field.name):
            continue
        if isinstance(value, model.Placement):
            differing[field.name] = _non_defaults(value, model.Placement())
        elif field.name == 'volumes':
            differing[field.name] = [
                _non_defaults(volume, model.Volume(None)) for volume in value]
        else:
            differing[field.name] = (
                list(value) if isinstance(value, tuple) else value)
    return differing
