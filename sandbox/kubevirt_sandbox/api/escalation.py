# SPDX-License-Identifier: Apache-2.0
"""Privilege escalation checks for roles and bindings.

A user with the verb ``escalate`` on a role, or ``bind`` for bindings, may
grant rights beyond the user's own.

Follows ``pkg/registry/rbac/{escalation_check.go,*/policybased,
validation/rule.go}`` and ``component-helpers/auth/rbac/validation`` of
Kubernetes 1.36.
"""
import collections
import itertools
import json

from kubevirt_sandbox.api import attributes
from kubevirt_sandbox.api import auth
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import rbac
from kubevirt_sandbox.api import roles

_EVERYTHING = tuple(rbac.Rule.compile(rule) for rule in (
    {'verbs': ['*'], 'apiGroups': ['*'], 'resources': ['*']},
    {'verbs': ['*'], 'nonResourceURLs': ['*']}))

#: What may change of an object that is only to be collected.
_COLLECTED = ('finalizers', 'ownerReferences', 'managedFields',
              'resourceVersion')


def _uncovered(held, rule):
    """Split a rule into the smallest rules, as (verb, group, …) tuples.

    :returns: iterator of those that no held rule includes.
    """
    source = rule.source
    names = source.get('resourceNames') or (None,)
    for verb in source.get('verbs') or ():
        for path in rule.paths:
            if not any(_covers(own, verb, path=path) for own in held):
                yield verb, None, None, None, path
        for group, resource in itertools.product(
                source.get('apiGroups') or (), source.get('resources') or ()):
            # A role may have many names, and most rules cover all of them.
            given = [own.names for own in held
                     if _covers(own, verb, group, resource)]
            if all(given):
                for name in names:
                    if not any(name in own for own in given):
                        yield verb, group, resource, name, None


def _covers(rule, verb, group=None, resource=None, path=None):
    """Tell whether a user's rule includes a single-item rule, but for names.
    """
    if '*' not in rule.verbs and verb not in rule.verbs:
        return False
    if path is not None:
        return any(own == path or own.endswith('*') and path.startswith(
            own.rstrip('*')) for own in rule.paths)
    if '*' not in rule.groups and group not in rule.groups:
        return False
    if '*' not in rule.resources and resource not in rule.resources:
        _, slash, sub = resource.partition('/')
        if not slash or f'*/{sub}' not in rule.resources:
            return False
    return True


def _list(words):
    return '[' + ' '.join(json.dumps(word) for word in words) + ']'


def _sentences(pieces):
    """Describe missing rights as Kubernetes does, grouped by resource."""
    verbs = collections.defaultdict(list)
    for verb, *what in pieces:
        if verb not in verbs[tuple(what)]:
            verbs[tuple(what)].append(verb)
    for (group, resource, name, path), found in verbs.items():
        parts = []
        if path is None:
            parts += [f'APIGroups:{_list([group])}',
                      f'Resources:{_list([resource])}']
            if name is not None:
                parts.append(f'ResourceNames:{_list([name])}')
        else:
            parts.append(f'NonResourceURLs:{_list([path])}')
        parts.append(f'Verbs:{_list(found)}')
        yield '{' + ', '.join(parts) + '}'


def missing(held, wanted):
    """List the rights of some rules that others do not include.

    :param held: :class:`rbac.Rule` s.
    :param wanted: :class:`rbac.Rule` s.
    :returns: sentences, sorted.
    """
    return sorted(set(_sentences(
        piece for rule in wanted for piece in _uncovered(held, rule))))


def _only_collected(new, old):
    """Tell whether a change only concerns garbage collection."""
    def rest(obj):
        return {**obj, 'metadata': {
            k: v for k, v in obj['metadata'].items() if k not in _COLLECTED}}
    return old is not None and rest(new) == rest(old)


class Check:
    """Checks every write of a role or a binding.

    :param server: a :class:`server.Server`.
    """

    def __init__(self, server):
        self._access = server.access
        server.store.gates.append(self._check)

    def _check(self, kind, admission):
        user = admission.identity
        if kind not in roles.KINDS or user is None or (
                auth.MASTERS in user.groups) or _only_collected(
                    admission.new, admission.old):
            return
        if kind in (roles.ROLE, roles.CLUSTER_ROLE):
            self._role(kind, admission)
        else:
            self._binding(kind, admission)

    def _may(self, verb, user, plural, namespace, name):
        return self._access.decide(user, attributes.Attributes(
            verb, roles.GROUP, plural, namespace=namespace, name=name))[0]

    def _role(self, kind, admission):
        new, user = admission.new, admission.identity
        meta = new['metadata']
        namespace = meta.get('namespace', '')
        if self._may('escalate', user, kind.plural, namespace,
                     meta.get('name', '') if admission.old else ''):
            return
        rules = [rbac.Rule.compile(rule) for rule in new.get('rules') or ()]
        self._confirm(kind, admission, rules, namespace)
        if new.get('aggregationRule'):
            self._confirm(kind, admission, _EVERYTHING, '',
                          'must have cluster-admin privileges to use the '
                          'aggregationRule: ')

    def _binding(self, kind, admission):
        ref, user = admission.new.get('roleRef') or {}, admission.identity
        namespace = admission.new['metadata'].get('namespace', '')
        role_kind, name = ref.get('kind'), ref.get('name') or ''
        of = {'Role': roles.ROLE, 'ClusterRole': roles.CLUSTER_ROLE}.get(
            role_kind)
        if of is None or of.namespaced and not namespace:
            # Validation will have its say.
            return
        if self._may('bind', user, of.plural, namespace, name):
            return
        rules = self._access.rules_of(role_kind, namespace, name)
        if rules is None:
            raise errors.not_found(of, name)
        self._confirm(kind, admission, rules, namespace)

    def _confirm(self, kind, admission, rules, namespace, why=''):
        user = admission.identity
        found = missing(self._access.rules(user, namespace), rules)
        if found:
            raise errors.forbidden(
                kind, admission.new['metadata'].get('name', ''),
                f'{why}user {json.dumps(user.name)} '
                f'(groups={_list(user.groups)}) is attempting to grant RBAC '
                'permissions not currently held:\n' + '\n'.join(found))
