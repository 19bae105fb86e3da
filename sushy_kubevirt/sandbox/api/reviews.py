# SPDX-License-Identifier: Apache-2.0
"""Questions to the API that are answered and not kept.

Who am I, and may I do this: everybody who got in may do everything, until
access rights are enforced.
"""
from sushy_kubevirt.sandbox.api import core_schemas as schemas
from sushy_kubevirt.sandbox.api import kinds

_AUTHORIZATION, _AUTHENTICATION = ('authorization.k8s.io',
                                   'authentication.k8s.io')


def _allow(review, call):
    review['status'] = {'allowed': True, 'reason': 'system:masters'}
    return review


def _rules(review, call):
    review['status'] = {
        'incomplete': False,
        'resourceRules': [{'verbs': ['*'], 'apiGroups': ['*'],
                           'resources': ['*']}],
        'nonResourceRules': [{'verbs': ['*'], 'nonResourceURLs': ['*']}]}
    return review


def _info(user):
    info = {'username': user.name, 'groups': list(user.groups)}
    if user.uid:
        info['uid'] = user.uid
    return info


def _whoami(review, call):
    review['status'] = {'userInfo': _info(call.user)}
    return review


def _token(review, call):
    token = review.get('spec', {}).get('token', '')
    user = call.server.tokens.user(f'Bearer {token}')
    review.get('spec', {}).pop('token', None)
    review['status'] = {'authenticated': user is not None}
    if user is not None:
        review['status']['user'] = _info(user)
    return review


_SCHEMA = schemas.about(schemas.thing(
    spec=schemas.thing(token=schemas.STRING)),
    'A question that is answered in its status.')


def _kind(group, kind, plural, create, namespaced=False):
    return kinds.Kind(group, 'v1', kind, plural, kind.lower(),
                      namespaced=namespaced, verbs=('create',),
                      create=create, generation=False, schema=_SCHEMA)


def install(server):
    """Serve them."""
    for kind in (
            _kind(_AUTHORIZATION, 'SelfSubjectAccessReview',
                  'selfsubjectaccessreviews', _allow),
            _kind(_AUTHORIZATION, 'SelfSubjectRulesReview',
                  'selfsubjectrulesreviews', _rules),
            _kind(_AUTHORIZATION, 'SubjectAccessReview',
                  'subjectaccessreviews', _allow),
            _kind(_AUTHORIZATION, 'LocalSubjectAccessReview',
                  'localsubjectaccessreviews', _allow, True),
            _kind(_AUTHENTICATION, 'SelfSubjectReview',
                  'selfsubjectreviews', _whoami),
            _kind(_AUTHENTICATION, 'TokenReview', 'tokenreviews', _token)):
        server.register_kind(kind)
