# SPDX-License-Identifier: Apache-2.0
"""Schemas of volumes: where the disks of a machine get their content."""

from kubevirt_sandbox.kubevirt.schema import openapi

_HOTPLUG = openapi.flag('The volume may come and go while the machine runs.')


def _cloud_init(description):
    reference = openapi.record('A Secret of the namespace.',
                               {'name': openapi.text()})
    return openapi.record(description, {
        'secretRef': reference,
        'userData': openapi.text('User data as it is, at most 2048 bytes.'),
        'userDataBase64': openapi.text('User data in base64.'),
        'networkDataSecretRef': reference,
        'networkData': openapi.text('Network data as it is.'),
        'networkDataBase64': openapi.text('Network data in base64.'),
    })


def _claim(description):
    return openapi.record(description, {
        'claimName': openapi.text('The name of the PersistentVolumeClaim.'),
        'readOnly': openapi.flag('Not to be written to.'),
        'hotpluggable': _HOTPLUG,
    }, required=('claimName',))


CLAIM = _claim('A PersistentVolumeClaim of the namespace.')

DATA_VOLUME = openapi.record(
    'A DataVolume of the namespace, and the claim that CDI makes for it.', {
        'name': openapi.text('The name of the DataVolume and of its claim.'),
        'hotpluggable': _HOTPLUG,
    }, required=('name',))

SOURCES = {
    'cloudInitConfigDrive': _cloud_init(
        'A disk with cloud-init data in OpenStack\'s ConfigDrive layout.'),
    'cloudInitNoCloud': _cloud_init(
        'A disk with cloud-init data in the NoCloud layout.'),
    'configMap': openapi.record('A ConfigMap of the namespace as a disk.', {
        'name': openapi.text(), 'optional': openapi.boolean(),
        'volumeLabel': openapi.text('The label that the guest sees.')}),
    'containerDisk': openapi.record('A disk image out of a container image.', {
        'image': openapi.text('The container image.'),
        'imagePullPolicy': openapi.text('Always, IfNotPresent or Never.'),
        'imagePullSecret': openapi.text('The Secret to pull the image with.'),
        'path': openapi.text('Where the disk lies in the container.'),
    }, required=('image',)),
    'containerPath': openapi.record('A path of the launcher, by virtiofs.', {
        'path': openapi.text(), 'readOnly': openapi.boolean(),
    }, required=('path',)),
    'dataVolume': DATA_VOLUME,
    'downwardAPI': openapi.anything('Facts of the pod as a disk.'),
    'downwardMetrics': openapi.anything('Metrics of the host as a disk.'),
    'emptyDisk': openapi.record('A new empty disk with every start.', {
        'capacity': openapi.quantity('Its size.')}, required=('capacity',)),
    'ephemeral': openapi.record('A throw-away layer above a claim.', {
        'persistentVolumeClaim': _claim('The claim underneath.')}),
    'hostDisk': openapi.record('A disk image on the node.', {
        'path': openapi.text('The file.'),
        'type': openapi.text('Disk or DiskOrCreate.'),
        'capacity': openapi.quantity('The size of a new one.'),
        'shared': openapi.boolean('Also used by others.'),
    }, required=('path', 'type')),
    'memoryDump': _claim('Where a dump of the memory goes.'),
    'persistentVolumeClaim': CLAIM,
    'secret': openapi.record('A Secret of the namespace as a disk.', {
        'secretName': openapi.text(), 'optional': openapi.boolean(),
        'volumeLabel': openapi.text('The label that the guest sees.')}),
    'serviceAccount': openapi.record(
        'A token of a service account as a disk.', {
            'serviceAccountName': openapi.text()}),
    'sysprep': openapi.anything('Answers for a Windows installation.'),
}
"""Every kind of volume; a volume has exactly one of them."""

VOLUME = openapi.record('A volume; the disk of the same name shows it.', {
    'name': openapi.text('A DNS label, the only one of its name.'), **SOURCES,
}, required=('name',))

_DATA_VOLUME_SPEC = openapi.anything('Source and claim of the import by CDI.')
_DATA_VOLUME_SPEC['properties'] = {
    'source': openapi.mapping(openapi.anything(),
                              'Where from: one of its kinds.'),
    'sourceRef': openapi.anything('A DataSource to import from.'),
    'pvc': openapi.anything('The claim.'),
    'storage': openapi.anything('The claim, the rest by its storage class.')}
_DATA_VOLUME_META = openapi.anything(nullable=True)
_DATA_VOLUME_META['properties'] = {
    'name': openapi.text(), 'labels': openapi.labels(),
    'annotations': openapi.labels()}

DATA_VOLUME_TEMPLATE = openapi.record(
    'A DataVolume that is made together with the machine.', {
        'apiVersion': openapi.text(), 'kind': openapi.text(),
        'metadata': _DATA_VOLUME_META, 'spec': _DATA_VOLUME_SPEC,
    }, required=('spec',), nullable=True)
