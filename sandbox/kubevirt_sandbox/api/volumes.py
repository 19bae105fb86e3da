# SPDX-License-Identifier: Apache-2.0
"""Storage classes, and the life cycle of volume claims.

A claim is bound as its class says: immediately, or with its first consumer. A
deleted claim remains while a pod uses it; its content is deleted with it. The
only storage of a claim is the file of its content.

A claim that cannot be bound has an event that says why. One without a class
gets the default one, also if that is marked later.

Follows ``pkg/apis/core/validation``, ``pkg/controller/volume`` and the
admission plugins ``DefaultStorageClass`` and
``StorageObjectInUseProtection`` of Kubernetes 1.36.
"""
import fractions

from kubevirt_sandbox.api import core_schemas
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import kinds
from kubevirt_sandbox.api import quantity
from kubevirt_sandbox.api import tables

DEFAULT_CLASS = 'storageclass.kubernetes.io/is-default-class'
PROTECTION = 'kubernetes.io/pvc-protection'
NODE = 'volume.kubernetes.io/selected-node'
LATE = 'WaitForFirstConsumer'

PROVISIONER = 'sandbox.sushy-kubevirt.openstack.org/file'

#: The classes that there are from the beginning: the default one binds at
#: once, the other one with the first consumer.
CLASSES = {'standard': 'Immediate', 'late': LATE}

_MODES = ('ReadWriteOnce', 'ReadOnlyMany', 'ReadWriteMany',
          'ReadWriteOncePod')
_MANAGER = 'kube-controller-manager'
_COMPONENT = 'persistentvolume-controller'

STORAGE_CLASS = kinds.Kind(
    'storage.k8s.io', 'v1', 'StorageClass', 'storageclasses', 'storageclass',
    ('sc',), namespaced=False, generation=False, unconditional_update=True,
    schema=core_schemas.about(core_schemas.thing(
        provisioner=core_schemas.STRING, parameters=core_schemas.TEXTS,
        reclaimPolicy={**core_schemas.STRING, 'default': 'Delete'},
        volumeBindingMode={**core_schemas.STRING, 'default': 'Immediate'},
        allowVolumeExpansion=core_schemas.BOOLEAN),
        'StorageClass describes the parameters for a class of storage for '
        'which PersistentVolumes can be dynamically provisioned.'),
    columns=(kinds.Column('Provisioner', 'string', '.provisioner'),
             kinds.Column('ReclaimPolicy', 'string', '.reclaimPolicy'),
             kinds.Column('VolumeBindingMode', 'string',
                          '.volumeBindingMode'),
             kinds.Column('Age', 'date', '.metadata.creationTimestamp',
                          description=tables.AGE_TEXT)))


def default_class(store):
    """Return the default storage class, or None."""
    for item in store.list(STORAGE_CLASS):
        if (item['metadata'].get('annotations') or {}).get(
                DEFAULT_CLASS) == 'true':
            return item
    return None


def class_of(store, claim):
    """Return the storage class of a claim, or None when it does not exist."""
    name = (claim.get('spec') or {}).get('storageClassName')
    return store.find(STORAGE_CLASS, '', name) if name else None


def is_late(store, claim):
    """Tell whether a claim is bound only for its first consumer."""
    found = class_of(store, claim)
    return found is not None and found.get('volumeBindingMode') == LATE


def modes_of(found):
    """List the access modes that a storage class supports.

    Those of its parameter ``accessModes``, separated by commas; all without
    it. Classes of real provisioners have no such parameter.
    """
    chosen = (found.get('parameters') or {}).get('accessModes')
    return tuple(chosen.split(',')) if chosen else _MODES


def overhead_of(found):
    """Return what the file system of a class's volumes takes.

    :returns: its parameter ``filesystemOverhead``, a share of the space that
        is left, a Fraction; 0 without it. Classes of real provisioners have no
        such parameter.
    """
    text = (found.get('parameters') or {}).get('filesystemOverhead')
    try:
        return fractions.Fraction(text or 0)
    except (ValueError, ZeroDivisionError):
        return fractions.Fraction(0)


def size(claim):
    """Return the requested size of a claim in bytes; 0 if not specified."""
    requests = ((claim.get('spec') or {}).get('resources') or {}).get(
        'requests') or {}
    try:
        return int(quantity.value(requests.get('storage')))
    except quantity.QuantityError:
        return 0


def complete(admission):
    """Fill in what a new claim leaves to the cluster."""
    new = admission.new
    if admission.operation != 'CREATE':
        return
    spec = new.setdefault('spec', {})
    spec.setdefault('volumeMode', 'Filesystem')
    if spec.get('storageClassName') is None:
        found = default_class(admission.store)
        if found is not None:
            spec['storageClassName'] = found['metadata']['name']
    finalizers = new['metadata'].setdefault('finalizers', [])
    if PROTECTION not in finalizers:
        finalizers.append(PROTECTION)
    new['status'] = {'phase': 'Pending'}


def refuse(admission):
    """Refuse claims without size or access mode, and changes of a claim."""
    new, old = admission.new, admission.old
    if new is None or admission.subresource:
        return
    spec, causes = new['spec'], []
    modes = spec.get('accessModes') or []
    if not modes:
        causes.append(errors.Cause(
            'FieldValueRequired', 'Required value: at least 1 access mode '
            'is required', 'spec.accessModes'))
    for mode in modes:
        if mode not in _MODES:
            causes.append(errors.Cause(
                'FieldValueNotSupported', f'Unsupported value: "{mode}": '
                'supported values: "ReadOnlyMany", "ReadWriteMany", '
                '"ReadWriteOnce", "ReadWriteOncePod"', 'spec.accessModes'))
    requests = (spec.get('resources') or {}).get('requests') or {}
    if 'storage' not in requests:
        causes.append(errors.Cause(
            'FieldValueRequired', 'Required value',
            'spec.resources[storage]'))
    elif size(new) <= 0:
        causes.append(errors.Cause(
            'FieldValueInvalid', f'Invalid value: "{requests["storage"]}": '
            'must be greater than zero', 'spec.resources[storage]'))
    if old is not None and _fixed(spec) != _fixed(_without_class(
            old.get('spec') or {}, spec)):
        causes.append(errors.Cause(
            'FieldValueForbidden', 'Forbidden: spec is immutable after '
            'creation except resources.requests and '
            'volumeAttributesClassName for bound claims', 'spec'))
    if causes:
        raise errors.invalid(_claims(admission.store),
                             new['metadata'].get('name'), causes)


def _fixed(spec):
    """Return the immutable fields; ``volumeName`` is set by binding."""
    return {name: value for name, value in spec.items() if name not in (
        'resources', 'volumeName', 'volumeAttributesClassName')}


def _without_class(old, new):
    """Return the old spec with the class that the new one assigns to it."""
    if 'storageClassName' not in old and 'storageClassName' in new:
        return {**old, 'storageClassName': new['storageClassName']}
    return old


def _claims(store):
    return store.kinds.of_object('v1', 'PersistentVolumeClaim')


class Provisioner:
    """Binds claims and releases deleted ones.

    :param server: a :class:`server.Server`.
    :param kind: the Kind of claims.
    :param storage: storage of the claims' content, or None; its
        ``remove(namespace, name)`` is called for deleted claims.

    :ivar report: function (claim, type, reason, message, component) that
        records an event.
    """

    def report(self, claim, kind, reason, message, component):
        """Record no event, unless replaced."""

    def __init__(self, server, kind, storage=None):
        self._store = server.store
        self._soon = server.soon
        self._kind = kind
        self._storage = storage
        self._leaving = set()
        self._users = []
        for name, mode in CLASSES.items():
            self._store.create(STORAGE_CLASS, {
                'metadata': {'name': name, 'annotations': {
                    DEFAULT_CLASS: 'true'} if mode != LATE else {}},
                'provisioner': PROVISIONER, 'volumeBindingMode': mode})
        self._store.subscribe(kind, self._on_event)
        self._store.subscribe(STORAGE_CLASS, self._on_class)

    def add_user(self, uses):
        """Keep claims as long as they are in use.

        :param uses: function (namespace, name) -> whether a claim is in use
            by a pod.
        """
        self._users.append(uses)

    def look(self):
        """Let claims go that are to be deleted and no longer in use.

        To be called when something may have stopped using one.
        """
        for key in list(self._leaving):
            self._soon(self._release, key)

    def consume(self, namespace, name, node):
        """Bind a claim that waited for a pod on a node.

        :returns: whether it is bound now.
        """
        claim = self._store.find(self._kind, namespace, name)
        if claim is None or 'deletionTimestamp' in claim['metadata']:
            return False
        if (claim.get('status') or {}).get('phase') != 'Bound' and is_late(
                self._store, claim):
            self._bind((namespace, name), node)
            claim = self._store.get(self._kind, namespace, name)
        return (claim.get('status') or {}).get('phase') == 'Bound'

    def _on_event(self, type_, claim, _old):
        key = (claim['metadata']['namespace'], claim['metadata']['name'])
        if type_ == 'DELETED':
            self._leaving.discard(key)
            if self._storage is not None:
                self._storage.remove(*key)
        elif 'deletionTimestamp' in claim['metadata']:
            if key not in self._leaving:
                self._leaving.add(key)
                self._soon(self._release, key)
        elif (claim.get('status') or {}).get('phase') != 'Bound' and (
                not is_late(self._store, claim)):
            self._soon(self._bind, key)

    def _on_class(self, type_, found, _old):
        if type_ == 'DELETED':
            return
        for claim in self._store.list(self._kind):
            if (claim.get('status') or {}).get('phase') == 'Bound':
                continue
            key = claim['metadata']['namespace'], claim['metadata']['name']
            if claim['spec'].get('storageClassName') is None and (
                    default_class(self._store) is not None):
                self._soon(self._assign_class, key)
            elif class_of(self._store, claim) == found and not is_late(
                    self._store, claim):
                self._soon(self._bind, key)

    def _assign_class(self, key):
        claim = self._store.find(self._kind, *key)
        found = default_class(self._store)
        if claim is None or found is None or (
                claim['spec'].get('storageClassName') is not None):
            return
        self._store.change(self._kind, *key, lambda new: new['spec'].update(
            storageClassName=found['metadata']['name']), manager=_MANAGER)

    def _bind(self, key, node=None):
        claim = self._store.find(self._kind, *key)
        if claim is None or (claim.get('status') or {}).get(
                'phase') == 'Bound' or (
                    'deletionTimestamp' in claim['metadata']):
            return
        problem = self._problem(claim)
        if problem is not None:
            self.report(claim, *problem)
            return

        def name_volume(new):
            new['spec'].setdefault('volumeName',
                                   f'pvc-{new["metadata"]["uid"]}')
            notes = new['metadata'].setdefault('annotations', {})
            notes['pv.kubernetes.io/bind-completed'] = 'yes'
            notes['pv.kubernetes.io/bound-by-controller'] = 'yes'
            if node:
                notes[NODE] = node

        def be_bound(new):
            spec = new['spec']
            new['status'] = {
                'phase': 'Bound', 'accessModes': spec['accessModes'],
                'capacity': {'storage': spec['resources']['requests'][
                    'storage']}}
        self._store.change(self._kind, *key, name_volume, manager=_MANAGER)
        self._store.change(self._kind, *key, be_bound, subresource='status',
                           manager=_MANAGER)

    def _problem(self, claim):
        """Find why a claim cannot be bound.

        :returns: type, reason, message and component of an event, or None.
        """
        name = claim['spec'].get('storageClassName')
        found = class_of(self._store, claim)
        if not name:
            return ('Normal', 'FailedBinding', 'no persistent volumes '
                    'available for this claim and no storage class is set',
                    _COMPONENT)
        if found is None:
            return ('Warning', 'ProvisioningFailed',
                    f'storageclass.storage.k8s.io "{name}" not found',
                    _COMPONENT)
        wrong = [mode for mode in claim['spec']['accessModes']
                 if mode not in modes_of(found)]
        if wrong:
            return ('Warning', 'ProvisioningFailed', 'failed to provision '
                    f'volume with StorageClass "{name}": rpc error: code = '
                    'InvalidArgument desc = volume capabilities not '
                    f'supported: {", ".join(wrong)}', PROVISIONER)
        return None

    def _release(self, key):
        claim = self._store.find(self._kind, *key)
        if claim is None or key not in self._leaving or any(
                uses(*key) for uses in self._users):
            return
        self._store.change(
            self._kind, *key, lambda new: new['metadata'].update(
                finalizers=[f for f in new['metadata'].get('finalizers', ())
                            if f != PROTECTION]), manager=_MANAGER)
