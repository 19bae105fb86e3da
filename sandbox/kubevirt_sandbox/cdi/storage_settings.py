# SPDX-License-Identifier: Apache-2.0
"""What CDI knows of storage classes: StorageProfiles and the overhead.

Every storage class has a StorageProfile, whose status has the access modes
and the volume mode that CDI chooses for a claim without them: those of its
spec, otherwise what CDI recommends for a provisioner that it knows. The
status of the CDIConfig has the overhead of file systems that CDI assumes for
each class, from the configuration of the CDI object.

Source: pkg/controller/storageprofile-controller.go, config-controller.go
(reconcileFilesystemOverhead), pkg/controller/datavolume/util.go
(getDefaultVolumeAndAccessMode and those that follow it), and
pkg/controller/common/util.go (GetFilesystemOverheadForStorageClass), of CDI
1.65.
"""
import fractions
import re

from kubevirt_sandbox.api import volumes
from kubevirt_sandbox.cdi import images
from kubevirt_sandbox.kubevirt import workqueue

CONFIG = 'config'
"""Name of the CDIConfig."""

_GROUP = 'cdi.kubevirt.io/v1beta1'
_MANAGER = 'cdi-controller'
_OVERHEAD = re.compile(r'0(\.\d{1,3})?|1')


class ProfileError(Exception):
    """A StorageProfile cannot complete a claim; the message is CDI's."""


class Controller:
    """Keeps StorageProfiles and the status of the CDIConfig up to date.

    :param store: the store.
    :param kinds: the :class:`cdi_kinds.Kinds`.
    :param loop: the asyncio loop.
    :param lag: see :class:`workqueue.WorkQueue`.
    """

    def __init__(self, store, kinds, loop, lag=0):
        self._store = store
        self._kinds = kinds
        self._queue = workqueue.WorkQueue(loop, self._sync, 'storageprofile',
                                          lag)
        self._ends = [
            store.subscribe(kind, self._on_event)
            for kind in (volumes.STORAGE_CLASS, kinds.profile)]
        self._ends += [
            store.subscribe(kind, lambda *_: self._queue.add(''))
            for kind in (volumes.STORAGE_CLASS, kinds.cdi, kinds.config)]

    def close(self):
        """Stop."""
        for end in self._ends:
            end()
        self._queue.close()

    def _on_event(self, _type, obj, _old):
        # A profile has the name of its class.
        self._queue.add(obj['metadata']['name'])

    def _sync(self, name):
        if name:
            self._sync_profile(name)
        else:
            self._sync_config()

    def _sync_profile(self, name):
        storage_class = self._store.find(volumes.STORAGE_CLASS, '', name)
        profile = self._store.find(self._kinds.profile, '', name)
        if storage_class is None:
            if profile is not None:
                self._store.delete(self._kinds.profile, '', name)
            return
        if profile is None:
            profile = self._store.create(
                self._kinds.profile, {'metadata': {'name': name}, 'spec': {}},
                manager=_MANAGER)
        wanted = profile_status(storage_class, profile.get('spec') or {})
        if wanted is not None and wanted != profile.get('status'):
            self._store.update(
                self._kinds.profile, {**profile, 'status': wanted},
                subresource='status', manager=_MANAGER)

    def _sync_config(self):
        cdi = next(iter(self._store.list(self._kinds.cdi)), None)
        config = self._store.find(self._kinds.config, '', CONFIG)
        if cdi is None or config is None:
            return
        spec = (cdi.get('spec') or {}).get('config') or {}
        overhead = config_overhead(self._store, spec)
        if (config.get('spec'), config['status'].get(
                'filesystemOverhead')) != (spec, overhead):
            self._store.update(self._kinds.config, {
                **config, 'spec': spec, 'status': {
                    **config['status'], 'filesystemOverhead': overhead}},
                manager='cdi-operator')


def profile_status(storage_class, spec):
    """Build the status of a StorageProfile.

    :param spec: of the profile.
    :returns: None for a spec that CDI does not accept.
    """
    sets = spec.get('claimPropertySets') or []
    if not all(item.get('volumeMode') and item.get('accessModes')
               for item in sets):
        return None
    provisioner = storage_class.get('provisioner')
    if not sets and provisioner == volumes.PROVISIONER:
        modes = volumes.modes_of(storage_class)
        sets = [{'accessModes': ['ReadWriteOnce' if 'ReadWriteOnce' in modes
                                 else modes[0]],
                 'volumeMode': mode} for mode in ('Filesystem', 'Block')]
    status = {'storageClass': storage_class['metadata']['name'],
              'provisioner': provisioner, 'cloneStrategy': 'copy'}
    return {**status, 'claimPropertySets': sets} if sets else status


def config_overhead(store, spec):
    """Build ``filesystemOverhead`` of the CDIConfig's status.

    :param spec: the CDIConfig's.
    """
    chosen = spec.get('filesystemOverhead') or {}
    each = chosen.get('storageClass') or {}
    default = _valid(chosen.get('global'), images.OVERHEAD)
    return {'global': default, 'storageClass': {
        name: _valid(each.get(name), default)
        for name in (item['metadata']['name']
                     for item in store.list(volumes.STORAGE_CLASS))}}


def _valid(text, default):
    return text if text and _OVERHEAD.fullmatch(text) else default


def assumed_overhead(store, name):
    """Return the overhead that CDI assumes for a storage class.

    :param name: of the class; None for the default one.
    :returns: share of the disk's size, a Fraction.
    """
    config = store.find(store.kinds.of_object(_GROUP, 'CDIConfig'), '',
                        CONFIG)
    known = ((config or {}).get('status') or {}).get(
        'filesystemOverhead') or {}
    if not name:
        default = volumes.default_class(store)
        name = default and default['metadata']['name']
    return fractions.Fraction(
        (known.get('storageClass') or {}).get(name)
        or known.get('global') or images.OVERHEAD)


def complete(store, name, spec):
    """Choose what a claim's spec lacks: its access and volume mode.

    :param name: of its storage class.
    :param spec: is changed.
    :raises ProfileError: the profile does not have it.
    """
    profile = store.find(store.kinds.of_object(_GROUP, 'StorageProfile'), '',
                         name)
    if profile is None and not (
            spec.get('accessModes') and spec.get('volumeMode')):
        raise ProfileError('cannot get StorageProfile: StorageProfile.'
                           f'cdi.kubevirt.io "{name}" not found')
    sets = ((profile or {}).get('status') or {}).get(
        'claimPropertySets') or []
    modes, mode = spec.get('accessModes'), spec.get('volumeMode')
    chosen = {}
    if not modes:
        fitting = [item for item in sets if item.get('volumeMode') == mode
                   and item.get('accessModes')] if mode else sets[:1]
        chosen = next(iter(fitting), {})
        if not chosen.get('accessModes'):
            raise ProfileError(
                f"no {'matching ' if mode else ''}accessMode specified in "
                f'StorageProfile {name}')
        spec['accessModes'] = list(chosen['accessModes'])
    elif not mode:
        chosen = next((item for item in sets if set(modes) & set(
            item.get('accessModes') or ())), {})
    if not mode:
        spec['volumeMode'] = chosen.get('volumeMode') or 'Filesystem'
