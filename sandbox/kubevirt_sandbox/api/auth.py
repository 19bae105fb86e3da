# SPDX-License-Identifier: Apache-2.0
"""Authentication: bearer tokens and impersonation.

Authorization is in ``rbac``, tokens of service accounts are in ``accounts``.
"""
import hmac
from typing import NamedTuple
import urllib.parse

MASTERS = 'system:masters'
AUTHENTICATED = 'system:authenticated'
UNAUTHENTICATED = 'system:unauthenticated'
ACCOUNTS = 'system:serviceaccounts'

_ACCOUNT = 'system:serviceaccount:'


class User(NamedTuple):
    """A user as the API knows one (``authentication.k8s.io`` UserInfo).

    :param extra: pairs of a key and a tuple of values.
    """

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ''
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def info(self):
        """Return the user as a ``UserInfo`` object."""
        found = {'username': self.name, 'groups': list(self.groups)}
        if self.uid:
            found['uid'] = self.uid
        if self.extra:
            found['extra'] = {key: list(values)
                              for key, values in self.extra}
        return found


ANONYMOUS = User('system:anonymous', (UNAUTHENTICATED,))


def account_name(namespace, name):
    """Return the user name of a service account."""
    return f'{_ACCOUNT}{namespace}:{name}'


def account_of(user_name):
    """Return (namespace, name) of a service account's user name, or None."""
    if not user_name.startswith(_ACCOUNT):
        return None
    namespace, _, name = user_name[len(_ACCOUNT):].partition(':')
    return (namespace, name) if namespace and name else None


def account_user(namespace, name, uid='', extra=()):
    """Make the :class:`User` of a service account."""
    return User(account_name(namespace, name), (
        ACCOUNTS, f'{ACCOUNTS}:{namespace}', AUTHENTICATED), uid, extra)


class Tokens:
    """The accepted tokens and their users."""

    def __init__(self):
        self._users = []
        #: Called with a token that is none of those added; gives the
        #: :class:`User` of it, or None.
        self.others = []

    def add(self, token, user):
        """Accept a token as one of a :class:`User`."""
        self._users.append((token.encode(), user))

    def of(self, token):
        """Return the :class:`User` of a token, or None.

        Every token is compared, each in constant time.
        """
        sent, found = token.encode(errors='replace'), None
        for known, user in self._users:
            if hmac.compare_digest(sent, known):
                found = user
        for other in self.others:
            found = found or other(token)
        return found

    def user(self, authorization):
        """Find the :class:`User` of an ``Authorization`` header.

        :returns: the anonymous user when no token was sent; None when the
            token is unknown.
        """
        scheme, _, token = (authorization or '').strip().partition(' ')
        if scheme.lower() != 'bearer' or not token.strip():
            return ANONYMOUS
        return self.of(token.strip())


def impersonated(headers):
    """Return the :class:`User` that a request impersonates.

    :param headers: the request's headers, a multidict.
    :returns: None without impersonation; the name is ``''`` when only groups
        or other attributes are given.
    """
    name = headers.get('Impersonate-User', '')
    groups = tuple(headers.getall('Impersonate-Group', ()))
    uid = headers.get('Impersonate-Uid', '')
    prefix = 'impersonate-extra-'
    extra = {}
    for key, value in headers.items():
        if key[0] in 'Ii' and key.lower().startswith(prefix):
            key = urllib.parse.unquote(key.lower()[len(prefix):])
            extra.setdefault(key, []).append(value)
    if not (name or groups or uid or extra):
        return None
    return User(name, groups, uid, tuple(
        (key, tuple(values)) for key, values in extra.items()))


def completed(user):
    """Return an impersonated user with the groups of every user.

    Source: apiserver/pkg/endpoints/filters/impersonation (1.36).
    """
    account, groups = account_of(user.name), list(user.groups)
    if account and not groups:
        groups = [ACCOUNTS, f'{ACCOUNTS}:{account[0]}']
    everybody = (UNAUTHENTICATED if user.name == ANONYMOUS.name
                 else AUTHENTICATED)
    if everybody not in groups and UNAUTHENTICATED not in groups:
        groups.append(everybody)
    return user._replace(groups=tuple(groups))
