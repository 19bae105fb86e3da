# SPDX-License-Identifier: Apache-2.0
"""Review requests, which are answered and not stored.

Of a user about itself SelfSubjectReview, SelfSubjectAccessReview and
SelfSubjectRulesReview, which ``kubectl auth`` sends; about another user
SubjectAccessReview.

Follows ``pkg/registry/authorization`` and ``pkg/registry/authentication`` of
Kubernetes 1.36.
"""
from kubevirt_sandbox.api import attributes
from kubevirt_sandbox.api import auth
from kubevirt_sandbox.api import core_schemas
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import kinds

_AUTHORIZATION, _AUTHENTICATION = ('authorization.k8s.io',
                                   'authentication.k8s.io')

_SPEC = 'spec.resourceAttributes'


def _wanted(review, call):
    """Return the :class:`attributes.Attributes` that a review asks about."""
    spec = review.get('spec') or {}
    resource, path = (spec.get(name) for name in (
        'resourceAttributes', 'nonResourceAttributes'))
    if (resource is None) == (path is None):
        what = ('cannot be specified in combination with '
                'nonResourceAttributes' if resource is not None else
                'exactly one of nonResourceAttributes or resourceAttributes '
                'must be specified')
        raise errors.invalid(call.kind, '', [errors.Cause(
            'FieldValueInvalid', f'Invalid value: {what}', _SPEC)])
    if resource is None:
        return attributes.Attributes(path.get('verb', ''),
                                     path=path.get('path') or '/')
    return attributes.Attributes(*(resource.get(name, '') for name in (
        'verb', 'group', 'resource', 'subresource', 'namespace', 'name')))


def _access(review, call):
    return _decide(call.user, review, call)


def _access_of(review, call):
    spec = review.get('spec') or {}
    name, groups = spec.get('user') or '', spec.get('groups') or ()
    wanted = _wanted(review, call)
    if not name and not groups:
        raise errors.invalid(call.kind, '', [errors.Cause(
            'FieldValueInvalid', 'Invalid value: at least one of user or '
            'group must be specified', 'spec.user')])
    # Only the groups that are given count, unlike in impersonation.
    return _decide(auth.User(name, tuple(groups)), review, call, wanted)


def _decide(user, review, call, wanted=None):
    allowed, reason = call.server.access.decide(
        user, wanted or _wanted(review, call))
    review['status'] = {'allowed': allowed}
    if reason:
        review['status']['reason'] = reason
    return review


def _rules(review, call):
    namespace = (review.get('spec') or {}).get('namespace')
    if not namespace:
        raise errors.bad_request('no namespace on request')
    found = {'resourceRules': [], 'nonResourceRules': [],
             'incomplete': False}
    for rule in call.server.access.rules(call.user, namespace):
        source = rule.source
        if rule.resources:
            found['resourceRules'].append({
                name: list(source[name]) for name in (
                    'verbs', 'apiGroups', 'resources', 'resourceNames')
                if source.get(name)})
        if rule.paths:
            found['nonResourceRules'].append({
                name: list(source[name]) for name in (
                    'verbs', 'nonResourceURLs')})
    review['status'] = found
    return review


def _whoami(review, call):
    review['status'] = {'userInfo': call.user.info()}
    return review


_RESOURCE = core_schemas.thing(
    namespace=core_schemas.STRING, verb=core_schemas.STRING,
    group=core_schemas.STRING,
    version=core_schemas.STRING, resource=core_schemas.STRING,
    subresource=core_schemas.STRING, name=core_schemas.STRING)
_PATH = core_schemas.thing(path=core_schemas.STRING, verb=core_schemas.STRING)
_SCHEMA = core_schemas.about(core_schemas.thing(
    spec=core_schemas.thing(
        namespace=core_schemas.STRING, resourceAttributes=_RESOURCE,
        nonResourceAttributes=_PATH, user=core_schemas.STRING,
        uid=core_schemas.STRING, groups=core_schemas.STRINGS)),
    'A question that is answered in its status.')


def _kind(group, kind, plural, create):
    return kinds.Kind(group, 'v1', kind, plural, kind.lower(),
                      namespaced=False, verbs=('create',),
                      create=create, generation=False, schema=_SCHEMA)


def install(server):
    """Serve them."""
    for kind in (
            _kind(_AUTHORIZATION, 'SelfSubjectAccessReview',
                  'selfsubjectaccessreviews', _access),
            _kind(_AUTHORIZATION, 'SubjectAccessReview',
                  'subjectaccessreviews', _access_of),
            _kind(_AUTHORIZATION, 'SelfSubjectRulesReview',
                  'selfsubjectrulesreviews', _rules),
            _kind(_AUTHENTICATION, 'SelfSubjectReview',
                  'selfsubjectreviews', _whoami)):
        server.register_kind(kind)
