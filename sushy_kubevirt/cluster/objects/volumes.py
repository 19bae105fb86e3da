# SPDX-License-Identifier: Apache-2.0
"""A node's disks: in its VirtualMachine, and the DataVolumes to fill them.

KubeVirt makes the DataVolumes of a VM's ``dataVolumeTemplates``, and they are
deleted with it. Their spec has ``storage`` rather than ``pvc``, so that CDI
chooses what is left out by the StorageProfile of the storage class.
"""

from __future__ import annotations

DOCKER = 'docker://'


def disks(node):
    """Make the disks of the domain.

    :param node: a `model.Node`
    :returns: list of dicts
    """
    return [{'name': name,
             'disk': {'bus': volume.bus} if volume.bus else {}}
            for name, volume in _named(node)]


def volumes(node):
    """Make the volumes of the VM, of the same names.

    :param node: a `model.Node`
    :returns: list of dicts
    """
    return [{'name': name, **_volume(node, name, volume)}
            for name, volume in _named(node)]


def claims(node):
    """Return the names of the existing claims that a node uses.

    :param node: a `model.Node`
    """
    return [_claim(node, one) for one in node.type.volumes
            if one.source == 'claim']


def templates(node, labels, namespace):
    """Make the VM's ``dataVolumeTemplates``.

    :param node: a `model.Node`
    :param labels: dict, of the DataVolumes
    :param namespace: of the VM
    :returns: list of dicts
    """
    return [{'metadata': {'name': name, 'labels': labels},
             'spec': {'source': _source(volume, namespace),
                      'storage': _storage(volume)}}
            for name, volume in _named(node)
            if volume.source != 'claim' and not volume.ephemeral]


def template_names(vm):
    """Return the names of the DataVolumes of a VM.

    :param vm: dict, a VirtualMachine
    """
    return tuple(one['metadata']['name'] for one in
                 vm['spec'].get('dataVolumeTemplates') or ())


def _named(node):
    return zip(node.volume_names, node.type.volumes, strict=True)


def _volume(node, name, volume):
    if volume.ephemeral:
        return {'emptyDisk': {'capacity': volume.capacity}}
    if volume.source == 'claim':
        return {'persistentVolumeClaim': {
            'claimName': _claim(node, volume)}}
    return {'dataVolume': {'name': name}}


def _claim(node, volume):
    return volume.location.replace(
        '{index}', str(node.index)).replace('{node}', node.name)


def _source(volume, namespace):
    if volume.source == 'blank':
        return {'blank': {}}
    if volume.source == 'clone':
        place, _, name = volume.location.rpartition('/')
        return {'pvc': {'namespace': place or namespace, 'name': name}}
    url = volume.location
    if volume.source == 'registry' and '://' not in url:
        url = DOCKER + url
    return {volume.source: {'url': url}}


def _storage(volume):
    storage = {}
    if volume.capacity:
        storage['resources'] = {'requests': {'storage': volume.capacity}}
    if volume.storage_class:
        storage['storageClassName'] = volume.storage_class
    if volume.access_mode:
        storage['accessModes'] = [volume.access_mode]
    if volume.volume_mode:
        storage['volumeMode'] = volume.volume_mode
    return storage
