# SPDX-License-Identifier: Apache-2.0
"""A node's disks: in its VirtualMachine, and the DataVolumes to fill them.

KubeVirt makes the DataVolumes of a VM's ``dataVolumeTemplates``, and they are
deleted with it. Their spec has ``storage`` rather than ``pvc``, so that CDI
chooses what is left out by the StorageProfile of the storage class.
"""

from __future__ import annotations

from collections import abc
import typing

from sushy_kubevirt.cluster.objects import merge

if typing.TYPE_CHECKING:
    from sushy_kubevirt.cluster import model
    from sushy_kubevirt.kube import objects


def disks(node: model.Node) -> list[objects.Disk]:
    """Make the disks of the domain."""
    return [{'name': name,
             'disk': {'bus': volume.bus} if volume.bus else {}}
            for name, volume in _named(node)]


def volumes(node: model.Node) -> list[objects.Json]:
    """Make the volumes of the VM, of the same names."""
    return [{'name': name, **_volume(node, name, volume)}
            for name, volume in _named(node)]


def claims(node: model.Node) -> list[str]:
    """Return the names of the existing claims that a node uses."""
    return [_claim(node, volume) for volume in node.type.volumes
            if volume.source == 'claim']


def templates(node: model.Node, labels: dict[str, str],
              namespace: str) -> list[objects.Json]:
    """Make the VM's ``dataVolumeTemplates``."""
    return [{'metadata': {'name': name, 'labels': labels},
             'spec': {'source': _source(volume, namespace),
                      'storage': _storage(volume)}}
            for name, volume in _named(node)
            if volume.source != 'claim' and not volume.ephemeral]


def template_names(vm: abc.Mapping[str, typing.Any]) -> tuple[str, ...]:
    """Return the names of the DataVolumes of a VM."""
    return tuple(template['metadata']['name'] for template in
                 vm['spec'].get('dataVolumeTemplates') or ())


def _named(node: model.Node) -> abc.Iterator[tuple[str, model.Volume]]:
    return zip(node.volume_names, node.type.volumes, strict=True)


def _volume(node: model.Node, name: str,
            volume: model.Volume) -> objects.Json:
    if volume.ephemeral:
        return {'emptyDisk': {'capacity': volume.capacity}}
    if volume.source == 'claim':
        return {'persistentVolumeClaim': {
            'claimName': _claim(node, volume)}}
    return {'dataVolume': {'name': name}}


def _claim(node: model.Node, volume: model.Volume) -> str:
    return volume.location.replace(
        '{index}', str(node.index)).replace('{node}', node.name)


def _source(volume: model.Volume, namespace: str) -> objects.Json:
    if volume.source == 'blank':
        return {'blank': {}}
    if volume.source == 'clone':
        place, _, name = volume.location.rpartition('/')
        return {'pvc': {'namespace': place or namespace, 'name': name}}
    return {volume.source: {'url': volume.location}}


def _storage(volume: model.Volume) -> objects.Json:
    return merge.given({
        'resources': {'requests': {'storage': volume.capacity}}
        if volume.capacity else None,
        'storageClassName': volume.storage_class,
        'accessModes': [volume.access_mode] if volume.access_mode else None,
        'volumeMode': volume.volume_mode})
