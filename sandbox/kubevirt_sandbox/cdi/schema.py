# SPDX-License-Identifier: Apache-2.0
"""Schemas of CDI's kinds, as its CustomResourceDefinitions have them.

Source: staging/src/kubevirt.io/containerized-data-importer-api/pkg/apis/core/
v1beta1/types.go (CDI 1.65).
"""
from kubevirt_sandbox.api import core_schemas

QUANTITY = {
    'anyOf': [{'type': 'integer'}, {'type': 'string'}],
    'pattern': (r'^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)'
                r'|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|'
                r'(\.[0-9]+))))?$'),
    'x-kubernetes-int-or-string': True}

about = core_schemas.about


def record(*required, **properties):
    """Return the schema of an object with some required fields."""
    found = {'type': 'object', 'properties': properties}
    if required:
        found['required'] = list(required)
    return found


def _fields(*names):
    return dict.fromkeys(names, core_schemas.STRING)


_STORAGE = record(
    accessModes=core_schemas.STRINGS, resources=record(
        limits={'type': 'object', 'additionalProperties': QUANTITY},
        requests={'type': 'object', 'additionalProperties': QUANTITY}),
    selector=record(
        matchLabels=core_schemas.TEXTS, matchExpressions={
            'type': 'array', 'items': record(
                'key', 'operator', values=core_schemas.STRINGS,
                **_fields('key', 'operator'))}),
    dataSource=record('kind', 'name', **_fields('apiGroup', 'kind', 'name')),
    dataSourceRef=record('kind', 'name', **_fields(
        'apiGroup', 'kind', 'name', 'namespace')),
    **_fields('storageClassName', 'volumeMode', 'volumeName'))

_SOURCES = record(
    http=about(record(
        'url', extraHeaders=core_schemas.STRINGS,
        secretExtraHeaders=core_schemas.STRINGS,
        insecureSkipVerify=core_schemas.BOOLEAN,
        **_fields('url', 'secretRef', 'certConfigMap', 'checksum')),
        'An HTTP or HTTPS address, with an optional Secret with user name '
        '(accessKeyId) and password (secretKey) and an optional ConfigMap '
        'with CAs.'),
    s3=record('url', **_fields('url', 'secretRef', 'certConfigMap')),
    gcs=record('url', **_fields('url', 'secretRef')),
    registry=record(platform=record(**_fields('architecture')), **_fields(
        'url', 'imageStream', 'pullMethod', 'secretRef', 'certConfigMap')),
    pvc=about(record('name', 'namespace', **_fields('name', 'namespace')),
              'A claim to copy.'),
    upload=about(record(), 'Filled through the upload proxy.'),
    blank=about(record(), 'An empty disk.'),
    imageio=record(
        'diskId', 'url', insecureSkipVerify=core_schemas.BOOLEAN,
        **_fields('url', 'diskId', 'secretRef', 'certConfigMap')),
    vddk=record(**_fields(
        'url', 'uuid', 'backingFile', 'thumbprint', 'secretRef',
        'certConfigMap', 'initImageURL', 'extraArgs')),
    snapshot=record('name', 'namespace', **_fields('name', 'namespace')))

_SPEC = record(
    source=about(_SOURCES, 'Where the data comes from: one of its kinds.'),
    sourceRef=record('kind', 'name', **_fields('kind', 'namespace', 'name')),
    pvc=about(_STORAGE, 'The claim.'),
    storage=about(_STORAGE, 'The claim; what is missing is filled in.'),
    contentType={**core_schemas.STRING, 'enum': ['kubevirt', 'archive']},
    checkpoints={'type': 'array', 'items': record(
        'current', 'previous', **_fields('current', 'previous'))},
    finalCheckpoint=core_schemas.BOOLEAN, preallocation=core_schemas.BOOLEAN,
    **_fields('priorityClassName', 'serviceAccountName'))

_STATUS = record(
    restartCount={**core_schemas.INTEGER, 'format': 'int32'},
    conditions={'type': 'array', 'items': record(
        'status', 'type', lastTransitionTime=core_schemas.TIME,
        lastHeartbeatTime=core_schemas.TIME,
        **_fields('type', 'status', 'reason', 'message'))},
    **_fields('claimName', 'phase', 'progress'))

DATA_VOLUME = about(record('spec', spec=_SPEC, status=_STATUS), (
    'DataVolume is an abstraction on top of PersistentVolumeClaims to allow '
    'easy population of those PersistentVolumeClaims with relation to '
    'VirtualMachines'))

_CONFIG = core_schemas.thing(
    featureGates=core_schemas.STRINGS,
    **_fields('uploadProxyURLOverride', 'scratchSpaceStorageClass'))
CDI = about(record('spec', spec=core_schemas.thing(config=_CONFIG),
                   status=core_schemas.thing(
                       phase=core_schemas.STRING,
                       conditions=core_schemas.CONDITIONS)),
            'CDI is the CDI Operator CRD')
CDI_CONFIG = about(record('spec', spec=_CONFIG, status=core_schemas.thing(
    **_fields('uploadProxyURL', 'uploadProxyCA',
              'scratchSpaceStorageClass'))),
    'CDIConfig provides a user configuration for CDI')
STORAGE_PROFILE = about(record(
    'spec', spec=core_schemas.thing(), status=core_schemas.thing(
        **_fields('storageClass', 'provisioner', 'cloneStrategy'))),
    'StorageProfile provides a CDI specific recommendation for storage '
    'parameters')
UPLOAD_TOKEN_REQUEST = about(record(
    spec=record('pvcName', pvcName=core_schemas.STRING),
    status=record(token=core_schemas.STRING)),
    'UploadTokenRequest is the CRD used to initiate a CDI upload')
