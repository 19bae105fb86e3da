# SPDX-License-Identifier: Apache-2.0
"""Schemas of volumes: where the disks of a machine get their content."""

from kubevirt_sandbox.kubevirt.schema import openapi as o

_HOTPLUG = o.flag('The volume may come and go while the machine runs.')


def _cloud_init(description):
    reference = o.record('A Secret of the namespace.', {'name': o.text()})
    return o.record(description, {
        'secretRef': reference,
        'userData': o.text('User data as it is, at most 2048 bytes.'),
        'userDataBase64': o.text('User data in base64.'),
        'networkDataSecretRef': reference,
        'networkData': o.text('Network data as it is.'),
        'networkDataBase64': o.text('Network data in base64.'),
    })


def _claim(description):
    return o.record(description, {
        'claimName': o.text('The name of the PersistentVolumeClaim.'),
        'readOnly': o.flag('Not to be written to.'),
        'hotpluggable': _HOTPLUG,
    }, required=('claimName',))


CLAIM = _claim('A PersistentVolumeClaim of the namespace.')

DATA_VOLUME = o.record(
    'A DataVolume of the namespace, and the claim that CDI makes for it.', {
        'name': o.text('The name of the DataVolume and of its claim.'),
        'hotpluggable': _HOTPLUG,
    }, required=('name',))

SOURCES = {
    'cloudInitConfigDrive': _cloud_init(
        'A disk with cloud-init data in OpenStack\'s ConfigDrive layout.'),
    'cloudInitNoCloud': _cloud_init(
        'A disk with cloud-init data in the NoCloud layout.'),
    'configMap': o.record('A ConfigMap of the namespace as a disk.', {
        'name': o.text(), 'optional': o.boolean(),
        'volumeLabel': o.text('The label that the guest sees.')}),
    'containerDisk': o.record('A disk image out of a container image.', {
        'image': o.text('The container image.'),
        'imagePullPolicy': o.text('Always, IfNotPresent or Never.'),
        'imagePullSecret': o.text('The Secret to pull the image with.'),
        'path': o.text('Where the disk lies in the container.'),
    }, required=('image',)),
    'containerPath': o.record('A path of the launcher, by virtiofs.', {
        'path': o.text(), 'readOnly': o.boolean()}, required=('path',)),
    'dataVolume': DATA_VOLUME,
    'downwardAPI': o.anything('Facts of the pod as a disk.'),
    'downwardMetrics': o.anything('Metrics of the host as a disk.'),
    'emptyDisk': o.record('A new empty disk with every start.', {
        'capacity': o.quantity('Its size.')}, required=('capacity',)),
    'ephemeral': o.record('A throw-away layer above a claim.', {
        'persistentVolumeClaim': _claim('The claim underneath.')}),
    'hostDisk': o.record('A disk image on the node.', {
        'path': o.text('The file.'),
        'type': o.text('Disk or DiskOrCreate.'),
        'capacity': o.quantity('The size of a new one.'),
        'shared': o.boolean('Also used by others.'),
    }, required=('path', 'type')),
    'memoryDump': _claim('Where a dump of the memory goes.'),
    'persistentVolumeClaim': CLAIM,
    'secret': o.record('A Secret of the namespace as a disk.', {
        'secretName': o.text(), 'optional': o.boolean(),
        'volumeLabel': o.text('The label that the guest sees.')}),
    'serviceAccount': o.record('A token of a service account as a disk.', {
        'serviceAccountName': o.text()}),
    'sysprep': o.anything('Answers for a Windows installation.'),
}
"""Every kind of volume; a volume has exactly one of them."""

VOLUME = o.record('A volume; the disk of the same name shows it.', {
    'name': o.text('A DNS label, the only one of its name.'), **SOURCES,
}, required=('name',))

_DATA_VOLUME_SPEC = o.anything('What CDI shall import, and where to.')
_DATA_VOLUME_SPEC['properties'] = {
    'source': o.mapping(o.anything(), 'Where from: one of its kinds.'),
    'sourceRef': o.anything('A DataSource to import from.'),
    'pvc': o.anything('The claim.'),
    'storage': o.anything('The claim, the rest by its storage class.')}
_DATA_VOLUME_META = o.anything(nullable=True)
_DATA_VOLUME_META['properties'] = {
    'name': o.text(), 'labels': o.labels(), 'annotations': o.labels()}

DATA_VOLUME_TEMPLATE = o.record(
    'A DataVolume that is made together with the machine.', {
        'apiVersion': o.text(), 'kind': o.text(),
        'metadata': _DATA_VOLUME_META, 'spec': _DATA_VOLUME_SPEC,
    }, required=('spec',), nullable=True)
