# SPDX-License-Identifier: Apache-2.0
"""Merge rules of objects: lists that are maps or sets, known fields.

A :class:`Shape` is a schema as server-side apply and the strategic merge patch
use it; follows ``kube-openapi/pkg/schemaconv``. Without a schema objects merge
by field and lists are atomic.
"""
import json
import weakref

STRING = {'type': 'string'}

_encode = json.JSONEncoder(separators=(',', ':')).encode

#: Schema of metadata in every object; overrides the schema of the kind.
OBJECT_META = {
    'type': 'object',
    'description': 'ObjectMeta is metadata that all persisted resources '
                   'must have, which includes all objects users must '
                   'create.',
    'properties': {
        **{name: STRING for name in (
            'name', 'generateName', 'namespace', 'selfLink', 'uid',
            'resourceVersion', 'creationTimestamp', 'deletionTimestamp')},
        'generation': {'type': 'integer', 'format': 'int64'},
        'deletionGracePeriodSeconds': {'type': 'integer', 'format': 'int64'},
        'labels': {'type': 'object', 'additionalProperties': STRING},
        'annotations': {'type': 'object', 'additionalProperties': STRING},
        'ownerReferences': {
            'type': 'array', 'x-kubernetes-list-type': 'map',
            'x-kubernetes-list-map-keys': ['uid'],
            'x-kubernetes-patch-strategy': 'merge',
            'x-kubernetes-patch-merge-key': 'uid',
            'items': {
                'type': 'object', 'x-kubernetes-map-type': 'atomic',
                'required': ['apiVersion', 'kind', 'name', 'uid'],
                'properties': {
                    'apiVersion': STRING, 'kind': STRING, 'name': STRING,
                    'uid': STRING, 'controller': {'type': 'boolean'},
                    'blockOwnerDeletion': {'type': 'boolean'}}}},
        'finalizers': {'type': 'array', 'x-kubernetes-list-type': 'set',
                       'x-kubernetes-patch-strategy': 'merge',
                       'items': STRING},
        'managedFields': {'type': 'array', 'items': {
            'type': 'object', 'properties': {
                **{name: STRING for name in (
                    'manager', 'operation', 'apiVersion', 'time',
                    'fieldsType', 'subresource')},
                'fieldsV1': {'type': 'object'}}}}}}


class Shape:
    """The merge rules of one value.

    :param schema: its schema, or None.
    """

    __slots__ = ('schema', 'list_type', 'keys', 'atomic', '_fields',
                 '_element', '_items', 'root')

    def __init__(self, schema, root=False):
        self.schema = schema = schema or {}
        self.root = root
        self.list_type = schema.get('x-kubernetes-list-type', 'atomic')
        self.keys = sorted(schema.get('x-kubernetes-list-map-keys', ()))
        self.atomic = schema.get('x-kubernetes-map-type') == 'atomic'
        self._fields = {}
        self._element = self._items = None

    def named(self, name):
        """Tell whether the schema names a field."""
        return name in self.schema.get('properties', ()) or (
            self.root and name in ('apiVersion', 'kind', 'metadata'))

    def field(self, name):
        """Return the shape of a field."""
        found = self._fields.get(name)
        if found is not None:
            return found
        if self.root and name == 'metadata':
            schema = OBJECT_META
        else:
            schema = self.schema.get('properties', {}).get(name)
        if schema is None:
            return self.element
        found = self._fields[name] = Shape(schema)
        return found

    @property
    def element(self):
        """Return the shape of fields that the schema does not name."""
        if self._element is None:
            schema = self.schema.get('additionalProperties')
            self._element = Shape(schema) if isinstance(
                schema, dict) else DEDUCED
        return self._element

    @property
    def items(self):
        """Return the shape of the entries of a list."""
        if self._items is None:
            schema = self.schema.get('items')
            self._items = Shape(schema) if isinstance(
                schema, dict) else DEDUCED
        return self._items

    def entry(self, item):
        """Return the path element of an entry of a list that is not atomic.

        :raises ValueError: when it has none.
        """
        if self.list_type == 'set':
            if isinstance(item, (dict, list)) or item is None:
                raise ValueError('associative list without keys has an '
                                 'element that is no scalar')
            return 'v:' + _encode(item)
        if not isinstance(item, dict):
            raise ValueError('associative list with keys may not have '
                             'non-map elements')
        keys = {}
        for name in self.keys:
            if name in item:
                keys[name] = item[name]
            else:
                default = self.items.schema.get('properties', {}).get(
                    name, {}).get('default')
                if default is not None:
                    keys[name] = default
        if not keys:
            raise ValueError(
                'associative list with keys has an element that omits all '
                f'key fields {json.dumps(self.keys)} (and doesn\'t have '
                'default values for any key fields)')
        return 'k:' + _encode(keys)

    def step(self, element):
        """Return the shape at a path element."""
        if element.startswith('f:'):
            return self.field(element[2:])
        return self.items


DEDUCED = Shape(None)

_ROOTS = weakref.WeakKeyDictionary()


def of_kind(kind):
    """Return the shape of the objects of a kind."""
    found = _ROOTS.get(kind)
    if found is None:
        found = _ROOTS[kind] = Shape(kind.schema, True)
    return found
