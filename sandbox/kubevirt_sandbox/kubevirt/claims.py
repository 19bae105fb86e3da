# SPDX-License-Identifier: Apache-2.0
"""Claims and DataVolumes that a machine waits for.

DataVolumes exist only in clusters with CDI.

Source: pkg/storage/types (KubeVirt 1.9).
"""

from kubevirt_sandbox.api import core
from kubevirt_sandbox.kubevirt import conditions
from kubevirt_sandbox.kubevirt import paths

_DONE = ('Succeeded', 'PendingPopulation')
_FAILED_REASONS = ('Error', 'ImagePullFailed')


def data_volume_kind(store):
    """Return the Kind of DataVolumes, or None without CDI."""
    return store.kinds.of_object('cdi.kubevirt.io/v1beta1', 'DataVolume')


def find(store, namespace, name):
    """Return a claim, or None."""
    return store.find(core.CLAIM, namespace, name)


def data_volume(store, namespace, name):
    """Return a DataVolume, or None."""
    kind = data_volume_kind(store)
    return kind and store.find(kind, namespace, name)


def is_relevant(event):
    """Tell whether machines may wait for a change of a claim or DataVolume.

    Most updates during an import are progress and are not relevant.

    :param event: a :class:`api.history.Event` of any kind of object.
    """
    if event.record.obj.get('kind') not in ('DataVolume',
                                            'PersistentVolumeClaim'):
        return False
    return (event.type != 'MODIFIED' or event.previous is None
            or _state(event.record.obj) != _state(event.previous.obj))


def _state(obj):
    return (paths.at(obj, 'status', 'phase'),
            'deletionTimestamp' in obj['metadata'],
            obj['metadata'].get('ownerReferences'),
            [(c.get('type'), c.get('status'), c.get('reason'))
             for c in paths.at(obj, 'status', 'conditions') or ()])


def data_volumes(store, namespace, volumes):
    """List the existing DataVolumes of volumes."""
    found = []
    for volume in volumes:
        name = paths.at(volume, 'dataVolume', 'name')
        if name is None and volume.get('persistentVolumeClaim') is not None:
            name = _owner(find(store, namespace, paths.claim_name(volume)))
        item = name and data_volume(store, namespace, name)
        if item:
            found.append(item)
    return found


def _owner(claim):
    for reference in paths.at(claim, 'metadata', 'ownerReferences') or ():
        if reference.get('controller') and reference['kind'] == 'DataVolume':
            return reference['name']
    return None


def unbound(store, namespace, volumes):
    """Tell whether the claim of a volume exists but is not bound."""
    for volume in volumes:
        claim = find(store, namespace, paths.claim_name(volume) or '')
        if claim and paths.at(claim, 'status', 'phase') != 'Bound':
            return True
    return False


def provisioning(store, namespace, volumes):
    """Tell whether a DataVolume is still being filled."""
    for volume in volumes:
        name = paths.at(volume, 'dataVolume', 'name')
        item = name and data_volume(store, namespace, name)
        phase = paths.at(item, 'status', 'phase')
        if not item or phase in _DONE:
            continue
        if (conditions.has(item, 'Bound', 'True')
                or phase != 'WaitForFirstConsumer'):
            return True
    return False


def failing(store, namespace, volumes):
    """Tell whether filling a DataVolume fails."""
    for volume in volumes:
        name = paths.at(volume, 'dataVolume', 'name')
        item = name and data_volume(store, namespace, name)
        if not item:
            continue
        running = conditions.find(item, 'Running') or {}
        if paths.at(item, 'status', 'phase') == 'Failed' or (
                running.get('status') == 'False'
                and running.get('reason') in _FAILED_REASONS):
            return True
    return False


def missing(store, namespace, volumes):
    """Return the name of the first missing claim, or None.

    :param volumes: the volumes of a VMI; what is plugged in later is not
        waited for.
    """
    for volume in volumes:
        if _awaited(volume):
            name = paths.claim_name(volume)
            if find(store, namespace, name) is None:
                return name
    return None


def orphaned(store, namespace, volumes):
    """Return the first missing DataVolume whose claim exists, or None.

    :param volumes: see :func:`missing`.
    :returns: its name, or None.
    """
    for volume in volumes:
        if _awaited(volume):
            owner = _owner(find(store, namespace, paths.claim_name(volume)))
            if owner and data_volume(store, namespace, owner) is None:
                return owner
    return None


def ready(store, namespace, volumes):
    """Tell whether all claims exist and are filled."""
    for volume in volumes:
        if not _awaited(volume):
            continue
        if not filled(store, namespace, paths.claim_name(volume)):
            return False
    return True


def filled(store, namespace, name):
    """Tell whether a claim exists and is filled."""
    claim = find(store, namespace, name)
    owner = _owner(claim)
    return claim is not None and (not owner or paths.at(
        data_volume(store, namespace, owner), 'status', 'phase') in _DONE)


def awaited(store, namespace, volumes):
    """List the claims of DataVolumes that wait for their first consumer."""
    for volume in volumes:
        name = paths.claim_name(volume) or ''
        owner = _owner(find(store, namespace, name))
        item = owner and data_volume(store, namespace, owner)
        if paths.at(item, 'status', 'phase') == 'WaitForFirstConsumer':
            yield name


def _awaited(volume):
    return (any(volume.get(k) is not None
                for k in ('dataVolume', 'persistentVolumeClaim'))
            and not paths.is_hotplug(volume))
