# SPDX-License-Identifier: Apache-2.0
"""Schemas of Kubernetes' core kinds, reduced to the fields used here.

Fields without a schema are kept as sent.
"""
KEEP = {'x-kubernetes-preserve-unknown-fields': True}
STRING = {'type': 'string'}
INTEGER = {'type': 'integer'}
BOOLEAN = {'type': 'boolean'}
TIME = {'type': 'string', 'format': 'date-time'}

#: metav1.MicroTime, of which the API server reads no other precision.
MICRO_TIME = {**TIME, 'pattern': r'T.*\.\d{6}(Z|[-+]\d\d:\d\d)$'}
ANYTHING = {'type': 'object', **KEEP}
STRINGS = {'type': 'array', 'items': STRING}
TEXTS = {'type': 'object', 'additionalProperties': STRING}
QUANTITY = {'x-kubernetes-int-or-string': True, 'format': 'quantity'}
QUANTITIES = {'type': 'object', 'additionalProperties': QUANTITY}

#: Marks a number or a flag that is left out when it is zero or false; see
#: :mod:`go_types`.
OMITTED = 'x-sandbox-omitted-when-zero'


def about(schema, text):
    """Return a schema with a description for ``kubectl explain``."""
    return {**schema, 'description': text}


def thing(**properties):
    """Return the schema of an object that keeps unknown fields."""
    return {'type': 'object', 'properties': properties, **KEEP}


def strict(**properties):
    """Return the schema of an object without unknown fields."""
    return {'type': 'object', 'properties': properties}


def keyed(items, *keys, patch=None):
    """Return the schema of a list that is a map by some of its fields."""
    return {'type': 'array', 'items': items, 'x-kubernetes-list-type': 'map',
            'x-kubernetes-list-map-keys': list(keys),
            'x-kubernetes-patch-strategy': 'merge',
            'x-kubernetes-patch-merge-key': patch or keys[0]}


def members(items=STRING):
    """Return the schema of a list that is a set."""
    return {'type': 'array', 'items': items, 'x-kubernetes-list-type': 'set',
            'x-kubernetes-patch-strategy': 'merge'}


CONDITIONS = keyed(thing(
    type=STRING, status=STRING, reason=STRING, message=STRING,
    lastTransitionTime=TIME), 'type')
SELECTOR = {
    **strict(matchLabels=TEXTS, matchExpressions={
        'type': 'array', 'items': strict(
            key=STRING, operator=STRING, values=STRINGS),
        'x-kubernetes-list-type': 'atomic'}),
    'x-kubernetes-map-type': 'atomic'}
REFERENCE = {**strict(
    apiVersion=STRING, kind=STRING, namespace=STRING, name=STRING,
    uid=STRING, resourceVersion=STRING, fieldPath=STRING),
    'x-kubernetes-map-type': 'atomic'}
LOCAL_REFERENCE = {**strict(name=STRING), 'x-kubernetes-map-type': 'atomic'}

NAMESPACE = about(strict(
    spec=strict(finalizers={'type': 'array', 'items': STRING}),
    status=strict(phase=STRING, conditions=CONDITIONS)),
    'Namespace provides a scope for Names. Use of multiple namespaces is '
    'optional.')

SECRET = about(strict(
    data=about(TEXTS, 'Data contains the secret data, base64 encoded.'),
    stringData=about(TEXTS, 'stringData allows specifying non-binary secret '
                     'data in string form. It is write-only.'),
    type=about(STRING, 'Used to facilitate programmatic handling of secret '
               'data.'),
    immutable=BOOLEAN),
    'Secret holds secret data of a certain type.')

CONFIG_MAP = about(strict(
    data=about(TEXTS, 'Data contains the configuration data.'),
    binaryData=about(TEXTS, 'BinaryData contains the binary data.'),
    immutable=BOOLEAN),
    'ConfigMap holds configuration data for pods to consume.')

EVENT = about(strict(
    involvedObject=REFERENCE, related=REFERENCE, reason=STRING,
    message=STRING, type=STRING, action=STRING, count=INTEGER,
    firstTimestamp=TIME, lastTimestamp=TIME, eventTime=MICRO_TIME,
    source=strict(component=STRING, host=STRING),
    series=strict(count=INTEGER, lastObservedTime=MICRO_TIME),
    reportingComponent=STRING, reportingInstance=STRING),
    'Event is a report of an event somewhere in the cluster.')

SERVICE_ACCOUNT = about(strict(
    secrets=keyed(REFERENCE, 'name'),
    imagePullSecrets=keyed(LOCAL_REFERENCE, 'name'),
    automountServiceAccountToken=BOOLEAN),
    'ServiceAccount binds together a name, a principal that can be '
    'authenticated and authorized, and a set of secrets.')

CLAIM = about(strict(
    spec=strict(
        accessModes={'type': 'array', 'items': STRING,
                     'x-kubernetes-list-type': 'atomic'},
        dataSource=ANYTHING, dataSourceRef=ANYTHING,
        resources=strict(limits=QUANTITIES, requests=QUANTITIES),
        selector=SELECTOR, storageClassName=STRING,
        volumeAttributesClassName=STRING, volumeMode=STRING,
        volumeName=STRING),
    status=thing(phase=STRING, accessModes=STRINGS, capacity=QUANTITIES,
                 conditions=CONDITIONS)),
    'PersistentVolumeClaim is a user\'s request for and claim to a '
    'persistent volume')

NODE = about(strict(
    spec=thing(unschedulable=BOOLEAN, providerID=STRING, podCIDR=STRING,
               podCIDRs=members(), taints={
                   'type': 'array', 'items': thing(key=STRING),
                   'x-kubernetes-list-type': 'atomic'}),
    status=thing(conditions=CONDITIONS, addresses=keyed(
        thing(type=STRING, address=STRING), 'type'), capacity=QUANTITIES,
        allocatable=QUANTITIES, nodeInfo=ANYTHING)),
    'Node is a worker node in Kubernetes.')

LEASE = about(strict(spec=strict(
    holderIdentity=STRING, leaseDurationSeconds=INTEGER,
    acquireTime=MICRO_TIME, renewTime=MICRO_TIME, leaseTransitions=INTEGER,
    preferredHolder=STRING, strategy=STRING)),
    'Lease defines a lease concept.')

_NAMES = strict(plural=STRING, singular=STRING, kind=STRING, listKind=STRING,
                shortNames=STRINGS, categories=STRINGS)
_COLUMN = {**strict(name=STRING, type=STRING, format=STRING,
                    description=STRING, priority=INTEGER, jsonPath=STRING),
           'required': ['name', 'type', 'jsonPath']}
_VERSION = {
    **strict(
        name=STRING, served=BOOLEAN, storage=BOOLEAN, deprecated=BOOLEAN,
        deprecationWarning=STRING, schema=strict(openAPIV3Schema=ANYTHING),
        subresources=strict(status=ANYTHING, scale=ANYTHING),
        additionalPrinterColumns={'type': 'array', 'items': _COLUMN},
        selectableFields={'type': 'array',
                          'items': strict(jsonPath=STRING)}),
    'required': ['name', 'served', 'storage']}
_CRD_SPEC = {
    **strict(
        group=STRING, names={**_NAMES, 'required': ['plural', 'kind']},
        scope={**STRING, 'enum': ['Cluster', 'Namespaced']},
        conversion=ANYTHING, preserveUnknownFields=BOOLEAN,
        versions={**keyed(_VERSION, 'name'), 'minItems': 1}),
    'required': ['group', 'names', 'scope', 'versions']}
CRD = about({
    **strict(spec=_CRD_SPEC, status=strict(
        conditions=CONDITIONS, acceptedNames=_NAMES, storedVersions=STRINGS,
        observedGeneration=INTEGER)),
    'required': ['spec']},
    'CustomResourceDefinition represents a resource that should be exposed '
    'on the API server.')
