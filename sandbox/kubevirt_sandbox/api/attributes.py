# SPDX-License-Identifier: Apache-2.0
"""Attributes of a request that access rights are checked against.

Follows ``apiserver/pkg/endpoints/request/requestinfo.go`` and
``handlers/responsewriters/errors.go`` (1.36).
"""
import json
from typing import NamedTuple

from kubevirt_sandbox.api import auth
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import query_parameters

_VERBS = {'POST': 'create', 'PUT': 'update', 'PATCH': 'patch',
          'DELETE': 'delete', 'GET': 'get', 'HEAD': 'get'}


class Attributes(NamedTuple):
    """Attributes of a request, for authorization.

    :param path: a non-resource path, e.g. ``/version``, or ``''``.
    """

    verb: str
    group: str = ''
    resource: str = ''
    subresource: str = ''
    namespace: str = ''
    name: str = ''
    path: str = ''

    @property
    def combined(self):
        """Return ``resource/subresource`` as rules name it."""
        if self.subresource:
            return f'{self.resource}/{self.subresource}'
        return self.resource


def of_path(method, path):
    """Make the :class:`Attributes` of a request for a non-resource path."""
    return Attributes(method.lower(), path=path)


def of_target(method, target, query):
    """Make the :class:`Attributes` of a request for a resource.

    As in Kubernetes only the first path segment after the name counts as
    subresource, and a list of one object by its name has that name.

    :param target: the :class:`request_path.Target`.
    :param query: the query parameters.
    """
    verb, name = _VERBS.get(method, method.lower()), target.name
    if verb == 'get' and not target.subresource and (
            not name or query_parameters.flag(query, 'watch')):
        verb = 'watch' if query_parameters.flag(query, 'watch') else 'list'
        name = name or _selected(query.get('fieldSelector', ''))
    elif verb == 'delete' and not name:
        verb = 'deletecollection'
    namespace = target.namespace
    if target.plural == 'namespaces' and not namespace:
        # Roles in a namespace may grant rights to the namespace object.
        namespace = target.name
    return Attributes(verb, target.group, target.plural,
                      target.subresource.partition('/')[0], namespace, name)


def _selected(fields):
    """Return the one name that a field selector allows, or ``''``."""
    for part in fields.split(',') if fields else ():
        path, _, value = part.partition('=')
        if path.strip() == 'metadata.name':
            value = value.removeprefix('=')
            return value if value not in ('.', '..') and not (
                set('/%') & set(value)) else ''
    return ''


def of_impersonation(user):
    """List the rights needed to impersonate an :class:`auth.User`.

    :returns: a list of :class:`Attributes`.
    """
    account = auth.account_of(user.name)
    found = [Attributes('impersonate', resource='users', name=user.name)]
    if account:
        found = [Attributes('impersonate', resource='serviceaccounts',
                            namespace=account[0], name=account[1])]
    found += [Attributes('impersonate', resource='groups', name=group)
              for group in user.groups]
    if user.uid:
        found.append(Attributes('impersonate', 'authentication.k8s.io',
                                'uids', name=user.uid))
    found += [Attributes('impersonate', 'authentication.k8s.io',
                         'userextras', key, name=value)
              for key, values in user.extra for value in values]
    return found


def _quoted(text):
    return json.dumps(text, ensure_ascii=False)


def forbidden(user, wanted, reason=''):
    """Make a 403 error with the message of Kubernetes.

    :param user: the :class:`auth.User`.
    :param wanted: the :class:`Attributes`.
    """
    text = f'User {_quoted(user.name)} cannot {wanted.verb} '
    if wanted.path:
        text += f'path {_quoted(wanted.path)}'
    else:
        text += (f'resource {_quoted(wanted.combined)} in API group '
                 f'{_quoted(wanted.group)} ')
        text += (f'in the namespace {_quoted(wanted.namespace)}'
                 if wanted.namespace else 'at the cluster scope')
    for char, escaped in (('&', '&amp;'), ('<', '&lt;'), ('>', '&gt;')):
        text = text.replace(char, escaped)
    if reason:
        text += f': {reason}'
    if wanted.path:
        return errors.ApiError(403, 'Forbidden', f'forbidden: {text}', {})
    what, details = wanted.resource, {}
    if wanted.group:
        what = f'{what}.{wanted.group}'
        details['group'] = wanted.group
    if wanted.name:
        what += f' {_quoted(wanted.name)}'
        details = {'name': wanted.name, **details}
    return errors.ApiError(403, 'Forbidden', f'{what} is forbidden: {text}',
                           {**details, 'kind': wanted.resource})
