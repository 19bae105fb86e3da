# SPDX-License-Identifier: Apache-2.0
"""OpenAPI v3 documents of the served kinds, one for each group and version.

``kubectl explain``, ``diff`` and the checks before ``apply`` read them. Of
OpenAPI v2 there is only what :mod:`openapi_protobuf` writes.
"""
import hashlib

from kubevirt_sandbox.api import history
from kubevirt_sandbox.api import merge_schema
from kubevirt_sandbox.api import openapi_protobuf
from kubevirt_sandbox.api import patches

_META = 'io.k8s.apimachinery.pkg.apis.meta.v1.'
_GVK = 'x-kubernetes-group-version-kind'

_HEAD = {
    'apiVersion': {
        'type': 'string', 'description':
            'APIVersion defines the versioned schema of this representation '
            'of an object.'},
    'kind': {
        'type': 'string', 'description':
            'Kind is a string value representing the REST resource this '
            'object represents.'}}

_LIST_META = {
    'type': 'object',
    'description': 'ListMeta describes metadata that '
    'synthetic resources must have.',
    'properties': {
        'continue': merge_schema.STRING,
        'resourceVersion': merge_schema.STRING,
        'selfLink': merge_schema.STRING,
        'remainingItemCount': {'type': 'integer', 'format': 'int64'},
    },
}

_DELETE_OPTIONS = {
    'type': 'object',
    'description': 'DeleteOptions may be provided when '
    'deleting an API object.',
    'properties': {
        **_HEAD,
        'dryRun': {'type': 'array', 'items': merge_schema.STRING},
        'gracePeriodSeconds': {'type': 'integer', 'format': 'int64'},
        'propagationPolicy': merge_schema.STRING,
        'preconditions': {
            'type': 'object',
            'properties': {
                'uid': merge_schema.STRING,
                'resourceVersion': merge_schema.STRING,
            },
        },
    },
}

_COMMON = {_META + 'ObjectMeta': merge_schema.OBJECT_META,
           _META + 'ListMeta': _LIST_META,
           _META + 'DeleteOptions': _DELETE_OPTIONS}

_LIST_QUERY = ('allowWatchBookmarks', 'continue', 'fieldSelector',
               'labelSelector', 'limit', 'resourceVersion',
               'resourceVersionMatch', 'sendInitialEvents',
               'timeoutSeconds', 'watch')
_WRITE_QUERY = ('dryRun', 'fieldManager', 'fieldValidation')

#: method, action, on the collection, query parameters
_OPERATIONS = {
    'list': ('get', True, _LIST_QUERY),
    'create': ('post', True, _WRITE_QUERY),
    'deletecollection': ('delete', True, _LIST_QUERY),
    'get': ('get', False, ()),
    'update': ('put', False, _WRITE_QUERY),
    'patch': ('patch', False, (*_WRITE_QUERY, 'force')),
    'delete': ('delete', False, ('dryRun', 'gracePeriodSeconds',
                                 'propagationPolicy'))}

_PATCHES = (patches.APPLY, patches.JSON_PATCH, patches.MERGE,
            patches.STRATEGIC)


def component(kind):
    """Return the name of a kind's schema, e.g.
    ``io.kubevirt.v1.VirtualMachine``.
    """
    group = kind.group or 'core.api.k8s.io'
    return '.'.join((*reversed(group.split('.')), kind.version, kind.kind))


def _gvk(kind):
    return {'group': kind.group, 'kind': kind.kind, 'version': kind.version}


def _reference(name):
    return {'allOf': [{'$ref': '#/components/schemas/' + name}]}


def _schemas(kind):
    """Return the schemas of a kind and of its lists."""
    schema = dict(kind.schema or {
        'type': 'object', 'x-kubernetes-preserve-unknown-fields': True})
    meta = {**_reference(_META + 'ObjectMeta'),
            'description': 'Standard object\'s metadata.'}
    schema['properties'] = {**schema.get('properties', {}), **_HEAD,
                            'metadata': meta}
    schema[_GVK] = [_gvk(kind)]
    name = component(kind)
    return {name: schema, name + 'List': {
        'type': 'object', 'description': f'{kind.list_kind} is a list of '
        f'{kind.kind}', 'required': ['items'], 'properties': {
            **_HEAD, 'metadata': _reference(_META + 'ListMeta'),
            'items': {'type': 'array', 'items': _reference(name)}},
        _GVK: [{**_gvk(kind), 'kind': kind.list_kind}]}}


def _parameter(name, place='query'):
    return {'name': name, 'in': place, 'required': place == 'path',
            'schema': {'type': 'string'}}


def _operation(kind, verb, path):
    _, _, query = _OPERATIONS[verb]
    name = component(kind) + ('List' if verb == 'list' else '')
    content = {'application/json': {'schema': _reference(name)['allOf'][0]}}
    operation = {
        'operationId': verb + path.replace('/', '_').translate(
            str.maketrans('', '', '{}.-')),
        'x-kubernetes-action': {'create': 'post', 'update': 'put'}.get(
            verb, verb),
        _GVK: _gvk(kind),
        'parameters': [_parameter(q) for q in query],
        'responses': {'200': {'description': 'OK', 'content': content}}}
    if verb in ('create', 'update'):
        operation['requestBody'] = {'content': {
            '*/*': {'schema': {'$ref': '#/components/schemas/'
                               + component(kind)}}}}
    elif verb == 'patch':
        operation['requestBody'] = {'content': {
            media: {'schema': {'type': 'object'}} for media in _PATCHES
            if not (kind.crd and media == patches.STRATEGIC)}}
    return operation


def _paths(kind):
    root = f'/apis/{kind.group}/{kind.version}' if kind.group else (
        f'/api/{kind.version}')
    base = root + '/namespaces/{namespace}' if kind.namespaced else root
    places = [(f'{base}/{kind.plural}', True, kind.verbs),
              (f'{base}/{kind.plural}/{{name}}', False, kind.verbs)]
    if kind.namespaced and 'list' in kind.verbs:
        places.append((f'{root}/{kind.plural}', True, ('list',)))
    if kind.status:
        places.append((f'{base}/{kind.plural}/{{name}}/status', False,
                       ('get', 'update', 'patch')))
    found = {}
    for path, collection, verbs in places:
        entry = {}
        for verb in verbs:
            if verb in _OPERATIONS and _OPERATIONS[verb][1] == collection:
                entry[_OPERATIONS[verb][0]] = _operation(kind, verb, path)
        if entry:
            entry['parameters'] = [
                _parameter(n, 'path') for n in ('namespace', 'name')
                if '{%s}' % n in path]
            found[path] = entry
    return found


def _document(kinds, title):
    schemas, paths = dict(_COMMON), {}
    for kind in kinds:
        schemas.update(_schemas(kind))
        paths.update(_paths(kind))
    return {'openapi': '3.0.0',
            'info': {'title': title, 'version': 'v1.36.0'},
            'paths': paths, 'components': {'schemas': schemas}}


class Documents:
    """The documents, made on request.

    :param kinds: the :class:`kinds.Registry`.
    """

    def __init__(self, kinds):
        self._kinds = kinds
        self._made = {}
        self._changes = None

    def _get(self, key, make):
        if self._changes != self._kinds.changes:
            self._made = {}
            self._changes = self._kinds.changes
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def group(self, group, version):
        """Return the v3 document of a group and version, bytes, or None."""
        kinds = [k for k in self._kinds
                 if (k.group, k.version) == (group, version)]
        if not kinds:
            return None
        return self._get((group, version), lambda: history.encode(
            _document(kinds, 'sushy-kubevirt-sandbox')))

    def index(self):
        """Return ``/openapi/v3``, as a dict."""
        paths = {}
        for group, versions in self._kinds.groups().items():
            for version in versions:
                path = f'apis/{group}/{version}' if group else (
                    f'api/{version}')
                mark = hashlib.sha256(self.group(group, version))
                paths[path] = {'serverRelativeURL': f'/openapi/v3/{path}'
                               f'?hash={mark.hexdigest().upper()}'}
        return {'paths': paths}

    def version_2(self):
        """Make ``/openapi/v2`` in protobuf.

        :returns: bytes.
        """
        return self._get('v2', lambda: openapi_protobuf.encode(_document(
            self._kinds, 'sushy-kubevirt-sandbox')))
