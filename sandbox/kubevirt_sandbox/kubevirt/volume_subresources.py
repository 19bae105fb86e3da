# SPDX-License-Identifier: Apache-2.0
"""addvolume and removevolume of VMs.

Source: pkg/virt-api/rest/volumes.go, ApplyVolumeRequestOnVMISpec of
pkg/controller (KubeVirt 1.9).
"""

from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import json_copy
from kubevirt_sandbox.kubevirt import paths
from kubevirt_sandbox.kubevirt import vm_subresources

_VM = 'virtualmachine'


class VolumeSubresources:
    """The handlers of the subresources that add and remove volumes.

    :param kinds: the :class:`kubevirt_kinds.Kinds` of the cluster.
    :param config: a :class:`config.ClusterConfig`.
    """

    def __init__(self, kinds, config):
        self._kinds = kinds
        self._config = config

    async def add(self, request):
        """Add a volume and its disk to a VM."""
        volume, disk = self._added(request)
        self._change(request, lambda spec: _add(spec, volume, disk))
        return 202, None

    async def remove(self, request):
        """Take a volume and its disk from a VM."""
        name = self._removed(request)
        self._change(request, lambda spec: _remove(spec, name))
        return 202, None

    def _check_enabled(self):
        if not any(self._config.enabled(gate) for gate in (
                'HotplugVolumes', 'DeclarativeHotplugVolumes')):
            raise errors.bad_request(
                'Enable DeclarativeHotplugVolumes or HotplugVolumes feature '
                'gate to use this API.')

    def _added(self, request):
        self._check_enabled()
        name = vm_subresources.option(request.body, 'name', str)
        disk = vm_subresources.option(request.body, 'disk', dict)
        source = vm_subresources.option(request.body, 'volumeSource', dict)
        if not name:
            raise errors.bad_request(
                'AddVolumeOptions requires name to be set')
        if disk is None:
            raise errors.bad_request(
                'AddVolumeOptions requires disk to not be nil')
        if source is None:
            raise errors.bad_request(
                'AddVolumeOptions requires VolumeSource to not be nil')
        volume = {'name': name}
        for kind in ('dataVolume', 'persistentVolumeClaim'):
            if isinstance(source.get(kind), dict):
                volume[kind] = {**source[kind], 'hotpluggable': True}
                break
        return volume, {**json_copy.copy(disk), 'name': name}

    def _removed(self, request):
        self._check_enabled()
        name = vm_subresources.option(request.body, 'name', str)
        if not name:
            raise errors.bad_request(
                'RemoveVolumeOptions requires name to be set')
        return name

    def _change(self, request, change):
        vm = request.store.find(self._kinds.vm, request.namespace,
                                request.name)
        if vm is None:
            raise vm_subresources.not_found(_VM, request.name)
        vm = json_copy.copy(vm)
        try:
            change(vm['spec']['template']['spec'])
        except ValueError as error:
            raise vm_subresources.conflict(_VM, request.name, error)
        if vm_subresources.dry(request.body):
            return
        try:
            request.store.update(self._kinds.vm, vm, manager='virt-api')
        except errors.ApiError as error:
            if error.code == 422:
                raise
            raise errors.internal_error(f'unable to patch vm: {error}')


def _add(spec, volume, disk):
    name, claim = volume['name'], paths.claim_name(volume)
    for other in paths.volumes(spec):
        if other['name'] == name:
            raise ValueError(f'Unable to add volume [{name}] because volume '
                             'with that name already exists')
        if claim and paths.claim_name(other) == claim:
            raise ValueError(f'Unable to add volume source [{claim}] '
                             'because it already exists')
    devices = spec['domain'].setdefault('devices', {})
    spec['volumes'] = [*paths.volumes(spec), volume]
    devices['disks'] = [*paths.disks(spec), disk]


def _remove(spec, name):
    found = [v for v in paths.volumes(spec)
             if name in (v['name'], paths.claim_name(v))]
    if not found:
        raise ValueError(f'Unable to remove volume [{name}] because it does '
                         'not exist')
    if not paths.is_hotplug(found[0]):
        raise ValueError(f'Unable to remove volume [{found[0]["name"]}] '
                         'because it is not hotpluggable')
    spec['volumes'] = [v for v in spec['volumes'] if v['name'] != name]
    spec['domain']['devices']['disks'] = [
        d for d in paths.disks(spec) if d['name'] != name]
