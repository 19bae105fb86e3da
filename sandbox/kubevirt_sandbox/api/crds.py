# SPDX-License-Identifier: Apache-2.0
"""CustomResourceDefinitions, and the kinds that they define.

Kinds that are registered with ``crd=True`` have a definition, too; a
definition that a client creates is served immediately.
"""
import dataclasses
import json

from kubevirt_sandbox.api import cel_rules
from kubevirt_sandbox.api import core_schemas
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import json_copy
from kubevirt_sandbox.api import kinds
from kubevirt_sandbox.api import metadata
from kubevirt_sandbox.api import schema_walks
from kubevirt_sandbox.api import schemas

GROUP = 'apiextensions.k8s.io'

_CLEANUP = 'customresourcecleanup.apiextensions.k8s.io'


def _names(kind):
    names = {'plural': kind.plural, 'singular': kind.singular,
             'kind': kind.kind, 'listKind': kind.list_kind}
    if kind.short_names:
        names['shortNames'] = list(kind.short_names)
    if kind.categories:
        names['categories'] = list(kind.categories)
    return names


def _schema_of_schemas():
    """Return the schema of JSONSchemaProps in a definition."""
    one = {'type': 'object'}
    text, flag = {'type': 'string'}, {'type': 'boolean'}
    many = {'type': 'array', 'items': one}
    texts = {'type': 'array', 'items': text}
    number = {'type': 'number'}
    count = {'type': 'integer', 'minimum': 0}
    one['properties'] = {
        **dict.fromkeys(('description', 'format', 'pattern', 'title'), text),
        **dict.fromkeys((
            'exclusiveMaximum', 'exclusiveMinimum', 'nullable',
            'uniqueItems', schemas.PRESERVE, schemas.INT_OR_STRING,
            schemas.EMBEDDED), flag),
        **dict.fromkeys(('maximum', 'minimum', 'multipleOf'), number),
        **dict.fromkeys(('maxItems', 'minItems', 'maxLength', 'minLength',
                         'maxProperties', 'minProperties'), count),
        **dict.fromkeys(('allOf', 'anyOf', 'oneOf'), many),
        'type': {**text, 'enum': ['array', 'boolean', 'integer', 'number',
                                  'object', 'string']},
        'not': one, 'items': one, 'enum': {'type': 'array'},
        'properties': {'type': 'object', 'additionalProperties': one},
        'additionalProperties': {'anyOf': [flag, one]},
        'required': texts, 'x-kubernetes-list-map-keys': texts,
        'x-kubernetes-list-type': {
            **text, 'enum': ['atomic', 'map', 'set']},
        'x-kubernetes-map-type': {**text, 'enum': ['atomic', 'granular']}}
    return one


_SCHEMA_OF_SCHEMAS = _schema_of_schemas()


def _version(kind):
    """Return the entry of a registered kind in ``spec.versions``."""
    # Through JSON: a schema may be made of subclasses of dict.
    schema = json.loads(json.dumps(kind.schema)) or {
        'type': 'object', 'x-kubernetes-preserve-unknown-fields': True}
    version = {
        'name': kind.version, 'served': True,
        'storage': kind.stored_as is None,
        'schema': {'openAPIV3Schema': schema}}
    if kind.status:
        version['subresources'] = {'status': {}}
    columns = []
    for column in kind.columns:
        if column.jsonPath:
            entry = {'name': column.name, 'type': column.type,
                     'jsonPath': column.jsonPath}
            for name in ('format', 'description', 'priority'):
                if getattr(column, name):
                    entry[name] = getattr(column, name)
            columns.append(entry)
    if columns:
        version['additionalPrinterColumns'] = columns
    if kind.selectable_fields:
        version['selectableFields'] = [
            {'jsonPath': '.' + f} for f in kind.selectable_fields]
    return version


def _default(admission):
    """Fill in names derived from the kind, and the conversion strategy."""
    if admission.new is None:
        return
    names = admission.new.get('spec', {}).get('names')
    if isinstance(names, dict) and isinstance(names.get('kind'), str):
        names.setdefault('singular', names['kind'].lower())
        names.setdefault('listKind', names['kind'] + 'List')
    if admission.operation == 'CREATE':
        admission.new.get('spec', {}).setdefault(
            'conversion', {'strategy': 'None'})


def _problems(schema):
    """List what is wrong with a schema, as :class:`errors.Cause`."""
    if schema_walks.work(_SCHEMA_OF_SCHEMAS, schema) & schema_walks.INVALID:
        found = schemas.causes(_SCHEMA_OF_SCHEMAS, schema)
        if found:
            return found
    return cel_rules.problems(schema)


def _validate(admission):
    if admission.operation == 'DELETE' or (
            admission.old and admission.old['spec'] == admission.new['spec']):
        return
    new = admission.new
    spec, name = new['spec'], new['metadata']['name']
    causes = []
    wanted = f'{spec["names"]["plural"]}.{spec["group"]}'
    if name != wanted:
        causes.append(errors.Cause(
            'FieldValueInvalid', f'Invalid value: "{name}": must be '
            'spec.names.plural+"."+spec.group', 'metadata.name'))
    stored = [v for v in spec['versions'] if v.get('storage')]
    if len(stored) != 1:
        causes.append(errors.Cause(
            'FieldValueInvalid', 'Invalid value: must have exactly one '
            'version marked as storage version', 'spec.versions'))
    for at, version in enumerate(spec['versions']):
        schema = version.get('schema', {}).get('openAPIV3Schema')
        place = f'spec.versions[{at}].schema.openAPIV3Schema'
        wrong = [dataclasses.replace(c, field=f'{place}.{c.field}')
                 for c in _problems(schema or {})]
        causes += wrong
        if wrong:
            continue
        if not schema:
            causes.append(errors.Cause(
                'FieldValueRequired', 'Required value: schemas are required',
                f'spec.versions[{at}].schema.openAPIV3Schema'))
        elif schema.get('type') != 'object':
            causes.append(errors.Cause(
                'FieldValueRequired' if 'type' not in schema
                else 'FieldValueInvalid',
                'Required value: must not be empty at the root'
                if 'type' not in schema else
                f'Invalid value: "{schema["type"]}": must be object at the '
                'root', f'spec.versions[{at}].schema.openAPIV3Schema.type'))
    if causes:
        raise errors.invalid(CRD, name, causes)


CRD = kinds.Kind(
    GROUP, 'v1', 'CustomResourceDefinition', 'customresourcedefinitions',
    'customresourcedefinition', ('crd', 'crds'), ('api-extensions',),
    namespaced=False, schema=core_schemas.CRD, status=True,
    unconditional_update=True, mutate=_default, validate=_validate,
    columns=(kinds.Column('Created At', 'date',
                          value=lambda obj: obj['metadata'].get(
                              'creationTimestamp')),))


def _kinds(definition):
    """Make the Kinds that a definition describes."""
    spec = definition['spec']
    names = spec['names']
    found = []
    for version in spec['versions']:
        schema = version.get('schema', {}).get('openAPIV3Schema')
        found.append((version, kinds.Kind(
            spec['group'], version['name'], names['kind'], names['plural'],
            names.get('singular') or names['kind'].lower(),
            tuple(names.get('shortNames') or ()),
            tuple(names.get('categories') or ()),
            spec['scope'] == 'Namespaced', schema,
            tuple(kinds.Column(
                c['name'], c['type'], c['jsonPath'], c.get('priority', 0),
                c.get('format', ''), c.get('description', ''))
                for c in version.get('additionalPrinterColumns') or ()),
            'status' in (version.get('subresources') or {}),
            list_kind=names.get('listKind', ''), crd=True,
            selectable_fields=tuple(
                f['jsonPath'].lstrip('.')
                for f in version.get('selectableFields') or ()))))
    storage = next(kind for version, kind in found if version.get('storage'))
    for version, kind in found:
        kind.validate = cel_rules.checker(kind)
        # Objects are stored in one version and converted when read.
        kind.from_stored = _version_converter(kind.api_version)
        if kind is not storage:
            kind.stored_as = storage
            kind.to_stored = _version_converter(storage.api_version)
    return storage, [k for v, k in found if v.get('served')]


def _version_converter(api_version):
    return lambda obj: {**obj, 'apiVersion': api_version}


class Definitions:
    """Serves the kinds of stored definitions.

    :param server: a :class:`server.Server`.
    """

    def __init__(self, server):
        self._server = server
        self._store = server.store
        #: name of the definition: (storage kind, served kinds)
        self._served = {}
        self._built_in = set()
        server.register_kind(CRD)
        self._store.subscribe(CRD, self._on_event)
        #: Kinds whose definitions are not made yet.
        self._undefined = []
        for kind in server.kinds:
            self._registered(kind)
        server.on_kind(self._registered)

    def _registered(self, kind):
        """Show a kind that was registered by the program."""
        if not kind.crd or kind in self._built_in:
            return
        self._built_in.add(kind)
        self._undefined.append(kind)
        self._store.defer(CRD, self._define_all)

    def _define_all(self):
        """Make the definitions of the program's kinds.

        Most clients never read them.
        """
        while self._undefined:
            self._define(self._undefined.pop(0))

    def _define(self, kind):
        name = f'{kind.plural}.{kind.group}'
        old = self._store.find(CRD, '', name)
        if old is None:
            self._store.create(CRD, {
                'metadata': {'name': name}, 'spec': {
                    'group': kind.group, 'names': _names(kind),
                    'scope': 'Namespaced' if kind.namespaced else 'Cluster',
                    'versions': [_version(kind)]}}, manager='virt-operator')
            return

        def change(definition):
            versions = definition['spec']['versions']
            versions[:] = [v for v in versions if v['name'] != kind.version]
            versions.append(_version(kind))
            if sum(bool(v['storage']) for v in versions) > 1:
                versions[-1]['storage'] = False
        self._store.change(CRD, '', name, change, manager='virt-operator')

    def _on_event(self, type_, definition, old):
        name = definition['metadata']['name']
        if type_ == 'DELETED':
            for kind in self._served.pop(name, (None, ()))[1]:
                self._server.kinds.remove(kind)
                self._server.end_watches(kind)
            return
        if 'deletionTimestamp' in definition['metadata']:
            self._server.soon(self._empty, name)
            return
        if any(f'{k.plural}.{k.group}' == name for k in self._built_in):
            self._establish(definition)
            return
        if old is None or old['spec'] != definition['spec']:
            for kind in self._served.pop(name, (None, ()))[1]:
                self._server.kinds.remove(kind)
            storage, served = _kinds(definition)
            self._store.collection(storage).kind = storage
            served.sort(key=lambda kind: kinds.priority(kind.version))
            for kind in served:
                self._server.kinds.add(kind)
            self._served[name] = storage, served
        self._establish(definition)

    def _establish(self, definition):
        """Set the condition Established."""
        name = definition['metadata']['name']
        if not any(c.get('type') == 'Established' for c in definition.get(
                'status', {}).get('conditions', ())):
            self._store.change(CRD, '', name, _accept, subresource='status',
                               manager='kube-apiserver')
        # The definition in the event may be older than the stored one.
        definition = self._store.find(CRD, '', name)
        if name in self._served and definition and _CLEANUP not in definition[
                'metadata'].get('finalizers', ()):
            self._store.change(
                CRD, '', name, lambda obj: obj['metadata'].setdefault(
                    'finalizers', []).append(_CLEANUP),
                manager='kube-apiserver')

    def _empty(self, name):
        """Delete a terminating definition's objects, then the definition."""
        storage = self._served.get(name, (None,))[0]
        if storage is not None:
            collection = self._store.collection(storage)
            for record in collection.current():
                if 'deletionTimestamp' not in record.obj['metadata']:
                    self._store.delete(storage, *record.key)
            if collection.records:
                end = None

                def again(event):
                    if not collection.records:
                        end()
                        self._server.soon(self._empty, name)
                end = self._store.listen(storage, again)
                return
        if self._store.find(CRD, '', name) is None:
            return

        def release(obj):
            left = [f for f in obj['metadata'].get('finalizers', ())
                    if f != _CLEANUP]
            obj['metadata']['finalizers'] = left
        self._store.change(CRD, '', name, release, manager='kube-apiserver')


def _accept(definition):
    now = metadata.now()
    definition['status'] = {
        'conditions': [
            {'type': 'NamesAccepted', 'status': 'True',
             'lastTransitionTime': now, 'reason': 'NoConflicts',
             'message': 'no conflicts found'},
            {'type': 'Established', 'status': 'True',
             'lastTransitionTime': now, 'reason': 'InitialNamesAccepted',
             'message': 'the initial names have been accepted'}],
        'acceptedNames': json_copy.copy(definition['spec']['names']),
        'storedVersions': [v['name'] for v in definition['spec']['versions']
                           if v['storage']]}
