# SPDX-License-Identifier: Apache-2.0
"""Builds the claim that CDI creates for a DataVolume.

Source: pkg/controller/datavolume/util.go, controller-base.go
(newPersistentVolumeClaim), import-controller.go, upload-controller.go,
pkg/controller/common/util.go (CDI 1.65).
"""
from kubevirt_sandbox.api import core
from kubevirt_sandbox.api import json_copy
from kubevirt_sandbox.api import quantity
from kubevirt_sandbox.api import volumes
from kubevirt_sandbox.cdi import claim_annotations
from kubevirt_sandbox.cdi import images
from kubevirt_sandbox.cdi import storage_settings

_MIB = 1 << 20


class ClaimError(Exception):
    """No claim can be made for a DataVolume; reason ErrClaimNotValid."""


def claim(store, volume):
    """Make the claim to create for a DataVolume.

    :param store: the store, to look for storage classes and sources.
    :param volume: the DataVolume.
    :raises ClaimError: the DataVolume lacks required fields.
    """
    meta = volume['metadata']
    spec = _spec(store, volume)
    labels = {'app': 'containerized-data-importer',
              'app.kubernetes.io/component': 'storage',
              'app.kubernetes.io/managed-by': 'cdi-controller'}
    if not is_block(spec):
        labels['alerts.k8s.io/KubePersistentVolumeFillingUp'] = 'disabled'
    labels.update(meta.get('labels') or {})
    annotations = dict(claim_annotations.of(volume))
    annotations.update(
        {
            claim_annotations.RESTARTS: '0',
            claim_annotations.CONTENT_TYPE: volume['spec'].get('contentType')
            or 'kubevirt',
            claim_annotations.PREALLOCATION: str(
                bool(volume['spec'].get('preallocation'))
            ).lower(),
            claim_annotations.CREATED_FOR: meta['uid'],
            **_source(volume),
        }
    )
    annotations.pop(claim_annotations.POPULATED_FOR, None)
    return {
        'apiVersion': 'v1', 'kind': 'PersistentVolumeClaim',
        'metadata': {
            'name': meta['name'], 'namespace': meta['namespace'],
            'labels': labels, 'annotations': annotations,
            'ownerReferences': [{
                'apiVersion': volume['apiVersion'], 'kind': 'DataVolume',
                'name': meta['name'], 'uid': meta['uid'],
                'controller': True, 'blockOwnerDeletion': True}]},
        'spec': spec}


def is_block(spec):
    """Tell whether a claim's spec requests a block device."""
    return spec.get('volumeMode') == 'Block'


def available(store, claim):
    """Return the maximum size of a disk in a claim in bytes.

    CDI leaves to the file system what it assumes, but the file system may
    take more.
    """
    spec = claim['spec']
    name = spec.get('storageClassName')
    storage_class = volumes.class_of(store, claim)
    return images.usable(volumes.size(claim), is_block(spec), max(
        storage_settings.assumed_overhead(store, name),
        volumes.overhead_of(storage_class) if storage_class else 0))


def is_bound(store, provisioner, claim):
    """Tell whether a claim is bound, after binding an immediate one.

    :param provisioner: the :class:`api.volumes.Provisioner`.
    """
    if (claim.get('status') or {}).get('phase') == 'Bound':
        return True
    if claim_annotations.IMMEDIATE in claim_annotations.of(claim):
        # Its first consumer is the pod that fills it. A change of the claim
        # queues the caller's object again.
        meta, nodes = claim['metadata'], store.list(core.NODE)
        provisioner.consume(meta['namespace'], meta['name'],
                            nodes[0]['metadata']['name'] if nodes else '')
    return False


def source_claim(store, volume):
    """Return the claim that a DataVolume copies, or None."""
    source = ((volume['spec'].get('source') or {}).get('pvc')) or {}
    return store.find(core.CLAIM, source.get('namespace', ''),
                      source.get('name', ''))


def _spec(store, volume):
    spec = volume['spec']
    if spec.get('pvc') is not None:
        return json_copy.copy(spec['pvc'])
    result = json_copy.copy(spec['storage'])
    if spec.get('contentType') == 'archive':
        if is_block(result):
            raise ClaimError('ContentType Archive cannot have block '
                             'volumeMode')
        result['volumeMode'] = 'Filesystem'
    found = (volumes.class_of(store, {'spec': result})
             if result.get('storageClassName')
             else volumes.default_class(store))
    if found is None:
        if not result.get('accessModes'):
            raise ClaimError('PVC spec is missing accessMode and no '
                             'storageClass to choose profile')
    else:
        result['storageClassName'] = found['metadata']['name']
        try:
            storage_settings.complete(
                store, found['metadata']['name'], result)
        except storage_settings.ProfileError as exc:
            raise ClaimError(str(exc)) from None
    requests = result.setdefault('resources', {}).setdefault('requests', {})
    if 'storage' not in requests:
        original = source_claim(store, volume)
        if original is None:
            raise ClaimError('source PVC of the copy is not there')
        requests['storage'] = original['spec']['resources']['requests'][
            'storage']
        return result
    overhead = storage_settings.assumed_overhead(
        store, result.get('storageClassName'))
    size = images.required(int(quantity.value(requests['storage'])),
                           is_block(result), overhead)
    requests['storage'] = quantity.canonical(size)
    return result


def _source(volume):
    """Return the annotations that describe the source of a claim."""
    source = volume['spec'].get('source') or {}
    if source.get('blank') is not None:
        return {claim_annotations.SOURCE: claim_annotations.NONE}
    if source.get('upload') is not None:
        return {claim_annotations.UPLOAD: ''}
    if source.get('pvc') is not None:
        return {claim_annotations.CLONE: f'{source["pvc"]["namespace"]}/'
                f'{source["pvc"]["name"]}'}
    if (source.get('registry') or {}).get('url'):
        return {claim_annotations.SOURCE: claim_annotations.REGISTRY,
                claim_annotations.ENDPOINT: source['registry']['url']}
    http = source.get('http')
    if http is None:
        # s3, gcs and so on: nothing here can import from them.
        return {claim_annotations.SOURCE: next(iter(source), '')}
    found = {claim_annotations.SOURCE: claim_annotations.HTTP,
             claim_annotations.ENDPOINT: http['url']}
    for field, name in (('secretRef', claim_annotations.SECRET),
                        ('certConfigMap', claim_annotations.CERTIFICATES),
                        ('checksum', claim_annotations.CHECKSUM)):
        if http.get(field):
            found[name] = http[field]
    if http.get('insecureSkipVerify'):
        found[claim_annotations.INSECURE] = 'true'
    for field, name in (
        ('extraHeaders', claim_annotations.HEADERS),
        ('secretExtraHeaders', claim_annotations.SECRET_HEADERS),
    ):
        for index, header in enumerate(http.get(field) or ()):
            found[f'{name}.{index}'] = header
    return found
