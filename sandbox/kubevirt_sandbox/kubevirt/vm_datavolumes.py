# SPDX-License-Identifier: Apache-2.0
"""DataVolumes created from a VM's dataVolumeTemplates.

CDI fills them.

Source: handleDataVolumes of pkg/virt-controller/watch/vm/vm.go
(KubeVirt 1.9).
"""

from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import json_copy
from kubevirt_sandbox.kubevirt import claims
from kubevirt_sandbox.kubevirt import conditions
from kubevirt_sandbox.kubevirt import events
from kubevirt_sandbox.kubevirt import paths
from kubevirt_sandbox.kubevirt import vm_model

_FILLED = ('Succeeded', 'WaitForFirstConsumer', 'PendingPopulation')


class DataVolumes:
    """Creates the DataVolumes of a VM's templates.

    :param store: the store.
    :param recorder: an :class:`events.Recorder`.
    """

    def __init__(self, store, recorder):
        self._store = store
        self._recorder = recorder

    def make(self, vm):
        """Make those that are missing.

        :returns: whether all are filled.
        :raises: vm_model.SyncError when one cannot be made, or its claim
            would exceed a quota.
        """
        ready = True
        for template in vm['spec'].get('dataVolumeTemplates') or ():
            name = template['metadata']['name']
            volume = claims.data_volume(
                self._store, vm['metadata']['namespace'], name)
            if volume is None:
                ready = False
                self._make_one(vm, template)
                continue
            phase = paths.at(volume, 'status', 'phase')
            if phase not in _FILLED:
                ready = False
            if phase == 'Failed':
                self._record(vm, events.WARNING, 'FailedDataVolumeImport',
                             f'DataVolume {name} failed to import disk image')
            elif phase == 'Pending':
                self._check_quota(vm, volume)
        return ready

    def _check_quota(self, vm, volume):
        name = volume['metadata']['name']
        bound = conditions.find(volume, 'Bound') or {}
        if bound.get('status') != 'True' and (
                bound.get('reason') == 'ErrExceededQuota'):
            self._record(vm, events.WARNING, 'FailedDataVolumeImport',
                         f'DataVolume {name} exceeds quota limits')
            raise vm_model.SyncError(
                'FailedCreate', 'Error encountered while creating '
                f'DataVolumes: DataVolume {name} importer is not running due '
                f"to an error: {bound.get('message', '')}")

    def _make_one(self, vm, template):
        kind = claims.data_volume_kind(self._store)
        name = template['metadata']['name']
        try:
            if kind is None:
                raise errors.no_such_path()
            meta = json_copy.copy(template['metadata'])
            meta.setdefault('labels', {})['kubevirt.io/created-by'] = vm[
                'metadata']['uid']
            meta.setdefault('annotations', {})[
                'cdi.kubevirt.io/allowClaimAdoption'] = 'true'
            meta.update(namespace=vm['metadata']['namespace'],
                        ownerReferences=[vm_model.reference(vm)])
            self._store.create(kind, {
                'metadata': meta, 'spec': json_copy.copy(template['spec'])},
                manager='virt-controller')
        except errors.ApiError as error:
            self._record(vm, events.WARNING, 'FailedDataVolumeCreate',
                         f'Error creating DataVolume {name}: {error}')
            raise vm_model.SyncError(
                'FailedCreate', 'Error encountered while creating '
                f'DataVolumes: failed to create DataVolume: {error}')
        self._record(vm, events.NORMAL, 'SuccessfulDataVolumeCreate',
                     f'Created DataVolume {name}')

    def _record(self, vm, kind, reason, message):
        self._recorder.event(vm, kind, reason, message, vm_model.COMPONENT)
