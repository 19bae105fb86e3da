# SPDX-License-Identifier: Apache-2.0
"""ValidatingAdmissionPolicies and their bindings, as objects.

Follows ``pkg/apis/admissionregistration/{v1/defaults,validation}`` of
Kubernetes 1.36. A policy with parameters or audit annotations is refused,
since the sandbox cannot enforce it. :mod:`policy_admission` enforces policies.
"""
import json

from kubevirt_sandbox.api import cel_rules
from kubevirt_sandbox.api import core_schemas
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import kinds
from kubevirt_sandbox.api import tables

GROUP = 'admissionregistration.k8s.io'

ACTIONS = ('Deny', 'Warn', 'Audit')

#: Reasons that a validation may give, and the code of each.
REASONS = {'Unauthorized': 401, 'Forbidden': 403, 'Invalid': 422,
           'RequestEntityTooLarge': 413}

_OPERATIONS = ('*', 'CREATE', 'UPDATE', 'DELETE', 'CONNECT')


def _list(items=core_schemas.STRING):
    return {'type': 'array', 'items': items,
            'x-kubernetes-list-type': 'atomic'}


_RULES = _list(core_schemas.strict(
    apiGroups=_list(), apiVersions=_list(), operations=_list(),
    resources=_list(), resourceNames=_list(), scope=core_schemas.STRING))
_SELECTOR = {**core_schemas.strict(
    matchLabels=core_schemas.TEXTS, matchExpressions=_list(core_schemas.strict(
        key=core_schemas.STRING, operator=core_schemas.STRING,
        values=_list()))),
    'x-kubernetes-map-type': 'atomic'}
_MATCH = core_schemas.strict(
    resourceRules=_RULES, excludeResourceRules=_RULES,
    matchPolicy=core_schemas.STRING, namespaceSelector=_SELECTOR,
    objectSelector=_SELECTOR)
_NAMED = core_schemas.keyed(core_schemas.strict(
    name=core_schemas.STRING, expression=core_schemas.STRING), 'name')
_POLICY = core_schemas.strict(
    spec=core_schemas.strict(
        failurePolicy=core_schemas.STRING, matchConstraints=_MATCH,
        matchConditions=_NAMED, variables=_NAMED,
        validations=_list(core_schemas.strict(
            expression=core_schemas.STRING, message=core_schemas.STRING,
            messageExpression=core_schemas.STRING,
            reason=core_schemas.STRING)),
        paramKind=core_schemas.strict(apiVersion=core_schemas.STRING,
                                      kind=core_schemas.STRING),
        auditAnnotations=_list(core_schemas.ANYTHING)),
    status=core_schemas.ANYTHING)
_BINDING = core_schemas.strict(spec=core_schemas.strict(
    policyName=core_schemas.STRING, matchResources=_MATCH,
    validationActions=core_schemas.members(), paramRef=core_schemas.ANYTHING))


def _required(field, why=''):
    return errors.Cause('FieldValueRequired', 'Required value' + (
        f': {why}' if why else ''), field)


def _unsupported(field, value, allowed):
    allowed = ', '.join(json.dumps(one) for one in sorted(allowed))
    return errors.Cause(
        'FieldValueNotSupported', f'Unsupported value: {json.dumps(value)}: '
        f'supported values: {allowed}', field)


def _complete_match(match):
    match.setdefault('matchPolicy', 'Equivalent')
    match.setdefault('namespaceSelector', {})
    match.setdefault('objectSelector', {})
    for name in ('resourceRules', 'excludeResourceRules'):
        for rule in match.get(name) or ():
            rule.setdefault('scope', '*')


def _complete_policy(admission):
    if admission.new is None:
        return
    spec = admission.new.setdefault('spec', {})
    spec.setdefault('failurePolicy', 'Fail')
    _complete_match(spec.setdefault('matchConstraints', {}))


def _complete_binding(admission):
    if admission.new is None:
        return
    match = admission.new.setdefault('spec', {}).get('matchResources')
    if match is not None:
        _complete_match(match)


def _match_causes(match, field):
    if match['matchPolicy'] not in ('Exact', 'Equivalent'):
        yield _unsupported(f'{field}.matchPolicy', match['matchPolicy'],
                           ('Exact', 'Equivalent'))
    for part in ('resourceRules', 'excludeResourceRules'):
        for number, rule in enumerate(match.get(part) or ()):
            at = f'{field}.{part}[{number}]'
            for name in ('operations', 'apiGroups', 'apiVersions',
                         'resources'):
                if not rule.get(name):
                    yield _required(f'{at}.{name}')
            for one in rule.get('operations') or ():
                if one not in _OPERATIONS:
                    yield _unsupported(f'{at}.operations', one, _OPERATIONS)
            if rule['scope'] not in ('*', 'Cluster', 'Namespaced'):
                yield _unsupported(f'{at}.scope', rule['scope'],
                                   ('*', 'Cluster', 'Namespaced'))


def _expression_cause(text, field):
    if not (text or '').strip():
        return _required(field)
    try:
        cel_rules.compiled(text)
    except ValueError as exc:
        return errors.Cause(
            'FieldValueInvalid', f'Invalid value: {json.dumps(text)}: '
            f'compilation failed: {exc}', field)
    return None


def _policy_causes(spec):
    for name in ('paramKind', 'auditAnnotations'):
        if spec.get(name):
            yield errors.Cause('FieldValueForbidden', 'Forbidden: the '
                               'sandbox has no such policies',
                               f'spec.{name}')
    if spec['failurePolicy'] not in ('Fail', 'Ignore'):
        yield _unsupported('spec.failurePolicy', spec['failurePolicy'],
                           ('Fail', 'Ignore'))
    if not spec['matchConstraints'].get('resourceRules'):
        yield _required('spec.matchConstraints.resourceRules')
    yield from _match_causes(spec['matchConstraints'],
                             'spec.matchConstraints')
    if not spec.get('validations'):
        yield _required('spec.validations', 'validations or auditAnnotations '
                        'must contain at least one item')
    for part in ('matchConditions', 'variables', 'validations'):
        for number, one in enumerate(spec.get(part) or ()):
            at = f'spec.{part}[{number}]'
            if part != 'validations' and not one.get('name'):
                yield _required(f'{at}.name')
            yield _expression_cause(one.get('expression'),
                                    f'{at}.expression')
            if one.get('messageExpression'):
                yield _expression_cause(one['messageExpression'],
                                        f'{at}.messageExpression')
            if one.get('reason', 'Invalid') not in REASONS:
                yield _unsupported(f'{at}.reason', one['reason'], REASONS)


def _binding_causes(spec):
    if not spec.get('policyName'):
        yield _required('spec.policyName')
    if spec.get('paramRef'):
        yield errors.Cause('FieldValueForbidden', 'Forbidden: the sandbox '
                           'has no parameters of policies', 'spec.paramRef')
    actions = spec.get('validationActions') or ()
    if not actions:
        yield _required('spec.validationActions')
    for one in actions:
        if one not in ACTIONS:
            yield _unsupported('spec.validationActions', one, ACTIONS)
    if {'Deny', 'Warn'} <= set(actions):
        yield errors.Cause(
            'FieldValueInvalid', f'Invalid value: {json.dumps(actions)}: '
            'must not contain both Deny and Warn (repeating the same '
            'validation failure information in the API response and headers '
            'serves no purpose)', 'spec.validationActions')
    if spec.get('matchResources') is not None:
        yield from _match_causes(spec['matchResources'],
                                 'spec.matchResources')


def _validator(kind_of, causes):
    def validate(admission):
        if admission.new is None or admission.subresource:
            return
        found = [cause for cause in causes(admission.new['spec']) if cause]
        if found:
            raise errors.invalid(
                kind_of(), admission.new['metadata'].get('name'), found)
    return validate


def _count(obj):
    return len(obj['spec'].get('validations') or ())


_AGE = kinds.Column('Age', 'date', '.metadata.creationTimestamp',
                    description=tables.AGE_TEXT)

POLICY = kinds.Kind(
    GROUP, 'v1', 'ValidatingAdmissionPolicy', 'validatingadmissionpolicies',
    'validatingadmissionpolicy', namespaced=False, status=True,
    unconditional_update=True, schema=core_schemas.about(
        _POLICY, 'ValidatingAdmissionPolicy describes the definition of an '
        'admission validation policy that accepts or rejects an object '
        'without changing it.'),
    columns=(kinds.Column('Validations', 'integer', value=_count),
             kinds.Column('ParamKind', value=lambda obj: '<unset>'), _AGE),
    mutate=_complete_policy,
    validate=_validator(lambda: POLICY, _policy_causes))
BINDING = kinds.Kind(
    GROUP, 'v1', 'ValidatingAdmissionPolicyBinding',
    'validatingadmissionpolicybindings', 'validatingadmissionpolicybinding',
    namespaced=False, unconditional_update=True, schema=core_schemas.about(
        _BINDING, 'ValidatingAdmissionPolicyBinding binds the '
        'ValidatingAdmissionPolicy with paramerized resources.'),
    columns=(kinds.Column('PolicyName', jsonPath='.spec.policyName'),
             kinds.Column('ParamRef', value=lambda obj: '<unset>'), _AGE),
    mutate=_complete_binding,
    validate=_validator(lambda: BINDING, _binding_causes))

KINDS = (POLICY, BINDING)
