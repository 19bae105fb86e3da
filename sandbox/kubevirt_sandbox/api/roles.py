# SPDX-License-Identifier: Apache-2.0
"""Roles and their bindings: kinds, validation, aggregated roles.

Follows ``pkg/apis/rbac/{v1/defaults,validation/validation}.go`` and
``pkg/controller/clusterroleaggregation`` of Kubernetes 1.36.
"""
import json

from kubevirt_sandbox.api import core_schemas
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import kinds
from kubevirt_sandbox.api import metadata
from kubevirt_sandbox.api import tables

GROUP = 'rbac.authorization.k8s.io'

_MANAGER = 'clusterrole-aggregation-controller'


def _atomic(items=core_schemas.STRING):
    return {'type': 'array', 'items': items,
            'x-kubernetes-list-type': 'atomic'}


_RULES = _atomic(core_schemas.strict(
    verbs=_atomic(), apiGroups=_atomic(), resources=_atomic(),
    resourceNames=_atomic(), nonResourceURLs=_atomic()))
_SUBJECTS = _atomic({**core_schemas.strict(
    kind=core_schemas.STRING, apiGroup=core_schemas.STRING,
    name=core_schemas.STRING,
    namespace=core_schemas.STRING), 'x-kubernetes-map-type': 'atomic'})
_REFERENCE = {**core_schemas.strict(
    apiGroup=core_schemas.STRING, kind=core_schemas.STRING,
    name=core_schemas.STRING),
    'x-kubernetes-map-type': 'atomic'}
_EXPRESSION = core_schemas.strict(key=core_schemas.STRING,
                                  operator=core_schemas.STRING,
                                  values=_atomic())
_AGGREGATION = core_schemas.strict(clusterRoleSelectors=_atomic({
    **core_schemas.strict(matchLabels=core_schemas.TEXTS,
                          matchExpressions=_atomic(_EXPRESSION)),
    'x-kubernetes-map-type': 'atomic'}))


def _required(field, why=''):
    return errors.Cause('FieldValueRequired', 'Required value' + (
        f': {why}' if why else ''), field)


def _invalid(field, value, why):
    return errors.Cause('FieldValueInvalid', 'Invalid value: '
                        f'{json.dumps(value, separators=(",", ":"))}: {why}',
                        field)


def _unsupported(field, value, allowed):
    allowed = ', '.join(json.dumps(a) for a in allowed)
    return errors.Cause(
        'FieldValueNotSupported', f'Unsupported value: {json.dumps(value)}: '
        f'supported values: {allowed}', field)


def _rule_causes(rule, namespaced, field):
    if not rule.get('verbs'):
        yield _required(f'{field}.verbs',
                        'verbs must contain at least one value')
    paths = rule.get('nonResourceURLs')
    if paths:
        if namespaced:
            yield _invalid(f'{field}.nonResourceURLs', paths, 'namespaced '
                           'rules cannot apply to non-resource URLs')
        if any(rule.get(n) for n in ('apiGroups', 'resources',
                                     'resourceNames')):
            yield _invalid(f'{field}.nonResourceURLs', paths, 'rules cannot '
                           'apply to both regular resources and non-resource '
                           'URLs')
        return
    if not rule.get('apiGroups'):
        yield _required(f'{field}.apiGroups', 'resource rules must supply at '
                        'least one api group')
    if not rule.get('resources'):
        yield _required(f'{field}.resources', 'resource rules must supply at '
                        'least one resource')


def _subject_causes(subject, namespaced, field):
    kind, group = subject.get('kind', ''), subject.get('apiGroup', '')
    if not subject.get('name'):
        yield _required(f'{field}.name')
    if kind == 'ServiceAccount':
        why = metadata.name_fault(subject.get('name') or '')
        if subject.get('name') and why:
            yield _invalid(f'{field}.name', subject['name'], why)
        if group:
            yield _unsupported(f'{field}.apiGroup', group, [''])
        if not namespaced and not subject.get('namespace'):
            yield _required(f'{field}.namespace')
    elif kind in ('User', 'Group'):
        if not subject.get('name'):
            yield _invalid(f'{field}.name', '',
                           f'{kind.lower()} name cannot be empty')
        if group != GROUP:
            yield _unsupported(f'{field}.apiGroup', group, [GROUP])
    else:
        yield _unsupported(f'{field}.kind', kind,
                           ['ServiceAccount', 'User', 'Group'])


def _refuse(kind, admission, causes):
    causes = list(causes)
    if causes:
        raise errors.invalid(
            kind, admission.new['metadata'].get('name'), causes)


def _validate_role(admission):
    if admission.new is None:
        return
    kind = ROLE if admission.new['kind'] == 'Role' else CLUSTER_ROLE
    _refuse(kind, admission, (
        cause for number, rule in enumerate(admission.new.get('rules') or ())
        for cause in _rule_causes(rule, kind.namespaced,
                                  f'rules[{number}]')))


def _complete_binding(admission):
    """Fill in the API groups that a binding leaves out."""
    if admission.new is None:
        return
    ref = admission.new.setdefault('roleRef', {})
    if not ref.get('apiGroup'):
        ref['apiGroup'] = GROUP
    for subject in admission.new.get('subjects') or ():
        if subject.get('kind') in ('User', 'Group'):
            if not subject.get('apiGroup'):
                subject['apiGroup'] = GROUP
        elif subject.get('apiGroup') == '':
            del subject['apiGroup']


def _validate_binding(admission):
    if admission.new is None:
        return
    new, old = admission.new, admission.old
    kind = (ROLE_BINDING if new['kind'] == 'RoleBinding'
            else CLUSTER_ROLE_BINDING)
    allowed = ['Role', 'ClusterRole'] if kind.namespaced else ['ClusterRole']
    ref, causes = new['roleRef'], []
    if ref.get('apiGroup') != GROUP:
        causes.append(_unsupported('roleRef.apiGroup', ref['apiGroup'],
                                   [GROUP]))
    if ref.get('kind') not in allowed:
        causes.append(_unsupported('roleRef.kind', ref.get('kind', ''),
                                   allowed))
    why = metadata.name_fault(ref.get('name') or '', path=True)
    if not ref.get('name'):
        causes.append(_required('roleRef.name'))
    elif why:
        causes.append(_invalid('roleRef.name', ref['name'], why))
    for number, subject in enumerate(new.get('subjects') or ()):
        causes += _subject_causes(subject, kind.namespaced,
                                  f'subjects[{number}]')
    if old is not None and old['roleRef'] != ref:
        causes.append(_invalid('roleRef', {
            'APIGroup': ref['apiGroup'], 'Kind': ref.get('kind', ''),
            'Name': ref.get('name', '')}, 'cannot change roleRef'))
    _refuse(kind, admission, causes)


_AGE = kinds.Column('Age', 'date', '.metadata.creationTimestamp',
                    description=tables.AGE_TEXT)
_CREATED = kinds.Column('Created At', 'string',
                        '.metadata.creationTimestamp')


def _who(kind):
    def names(obj):
        return ', '.join(
            f'{s.get("namespace", "")}/{s.get("name")}'
            if kind == 'ServiceAccount' else str(s.get('name'))
            for s in obj.get('subjects') or () if s.get('kind') == kind)
    return names


_BINDING_COLUMNS = (
    kinds.Column('Role', value=lambda obj:
                 f'{obj["roleRef"]["kind"]}/{obj["roleRef"]["name"]}'),
    _AGE,
    kinds.Column('Users', priority=1, value=_who('User')),
    kinds.Column('Groups', priority=1, value=_who('Group')),
    kinds.Column('ServiceAccounts', priority=1,
                 value=_who('ServiceAccount')))


def _kind(kind, text, schema, columns, mutate, validate):
    return kinds.Kind(
        GROUP, 'v1', kind, kind.lower() + 's', kind.lower(),
        namespaced=not kind.startswith('Cluster'), generation=False,
        unconditional_update=True, path_names=True, columns=columns,
        schema=core_schemas.about(schema, text), mutate=mutate,
        validate=validate)


ROLE = _kind(
    'Role', 'Role is a namespaced, logical grouping of PolicyRules that can '
    'be referenced as a unit by a RoleBinding.',
    core_schemas.strict(rules=_RULES), (_CREATED,), None, _validate_role)
CLUSTER_ROLE = _kind(
    'ClusterRole', 'ClusterRole is a cluster level, logical grouping of '
    'PolicyRules that can be referenced as a unit by a RoleBinding or '
    'ClusterRoleBinding.',
    core_schemas.strict(rules=_RULES, aggregationRule=_AGGREGATION),
    (_CREATED,),
    None, _validate_role)
ROLE_BINDING = _kind(
    'RoleBinding', 'RoleBinding references a role, but does not contain it.',
    core_schemas.strict(subjects=_SUBJECTS, roleRef=_REFERENCE),
    _BINDING_COLUMNS, _complete_binding, _validate_binding)
CLUSTER_ROLE_BINDING = _kind(
    'ClusterRoleBinding', 'ClusterRoleBinding references a ClusterRole, but '
    'not contain it.',
    core_schemas.strict(subjects=_SUBJECTS, roleRef=_REFERENCE),
    _BINDING_COLUMNS, _complete_binding, _validate_binding)

KINDS = (ROLE, CLUSTER_ROLE, ROLE_BINDING, CLUSTER_ROLE_BINDING)


def selected(selector, labels):
    """Tell whether a LabelSelector selects labels; an empty one selects all.
    """
    if any(labels.get(key) != value for key, value in (
            selector.get('matchLabels') or {}).items()):
        return False
    for term in selector.get('matchExpressions') or ():
        key, values = term.get('key'), term.get('values') or ()
        if not {'In': labels.get(key) in values,
                'NotIn': labels.get(key) not in values,
                'Exists': key in labels,
                'DoesNotExist': key not in labels}.get(
                    term.get('operator'), False):
            return False
    return True


class Aggregation:
    """Fills aggregated cluster roles.

    :param server: a :class:`server.Server`.
    """

    def __init__(self, server):
        self._store = server.store
        self._soon = server.soon
        self._store.listen(CLUSTER_ROLE, self._on_event)

    def _on_event(self, event):
        labels = [record.obj['metadata'].get('labels') or {}
                  for record in (event.record, event.previous) if record]
        for record in self._store.collection(CLUSTER_ROLE).current():
            rule = record.obj.get('aggregationRule')
            if rule and (record.key == event.record.key or any(
                    selected(selector, each) for each in labels
                    for selector in rule.get('clusterRoleSelectors') or ())):
                self._soon(self._fill, record.key[1])

    def _fill(self, name):
        role = self._store.find(CLUSTER_ROLE, '', name)
        rule = (role or {}).get('aggregationRule')
        if not rule:
            return
        rules = []
        for record in self._store.collection(CLUSTER_ROLE).current():
            labels = record.obj['metadata'].get('labels') or {}
            if record.key[1] != name and any(
                    selected(selector, labels) for selector in
                    rule.get('clusterRoleSelectors') or ()):
                rules += [r for r in record.obj.get('rules') or ()
                          if r not in rules]
        if role.get('rules') == rules:
            return
        self._store.change(
            CLUSTER_ROLE, '', name, lambda obj: obj.update(rules=rules),
            manager=_MANAGER)
