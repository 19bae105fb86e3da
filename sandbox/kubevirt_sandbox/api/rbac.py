# SPDX-License-Identifier: Apache-2.0
"""RBAC authorization: decisions from roles and bindings.

Bindings are kept by their subjects, rules of roles are compiled when they
are first needed, and decisions are remembered until a role or a binding
changes: a decision costs microseconds.

Follows ``plugin/pkg/auth/authorizer/rbac`` and
``pkg/registry/rbac/validation/rule.go`` of Kubernetes 1.36.
"""
import collections
import dataclasses
import json

from kubevirt_sandbox.api import attributes
from kubevirt_sandbox.api import auth
from kubevirt_sandbox.api import roles

#: So many decisions are remembered.
REMEMBERED = 20000

#: So many different uses of rights are counted, and so many refusals.
COUNTED = 20000


@dataclasses.dataclass(frozen=True)
class Rule:
    """A rule of a role, compiled for fast decisions."""

    verbs: frozenset
    groups: frozenset
    resources: frozenset
    names: frozenset
    paths: tuple
    source: dict = dataclasses.field(compare=False, hash=False)

    @classmethod
    def compile(cls, rule):
        """Make a rule from an entry of an object's ``rules``."""
        return cls(*(frozenset(rule.get(name) or ()) for name in (
            'verbs', 'apiGroups', 'resources', 'resourceNames')),
            tuple(rule.get('nonResourceURLs') or ()), rule)

    def allows(self, wanted):
        """Tell whether the rule allows a request."""
        if '*' not in self.verbs and wanted.verb not in self.verbs:
            return False
        if wanted.path:
            return any(path == '*' or path == wanted.path or (
                path.endswith('*') and wanted.path.startswith(
                    path.rstrip('*'))) for path in self.paths)
        if '*' not in self.groups and wanted.group not in self.groups:
            return False
        if '*' not in self.resources and (
                wanted.combined not in self.resources) and not (
                wanted.subresource
                and f'*/{wanted.subresource}' in self.resources):
            return False
        return not self.names or wanted.name in self.names


class _Binding:
    """A role binding or cluster role binding."""

    def __init__(self, namespace, obj):
        meta, ref = obj['metadata'], obj['roleRef']
        self.namespace = namespace
        self.kind = obj['kind']
        self.name = meta['name']
        self.role_kind, self.role = ref.get('kind'), ref.get('name')
        #: {key of the subject: words for it}
        self.subjects = {}
        for subject in obj.get('subjects') or ():
            found = _subject(subject, namespace)
            if found:
                self.subjects.setdefault(*found)

    def describe(self, subject):
        """Describe a subject in the reason of a decision."""
        name = (f'{self.name}/{self.namespace}' if self.namespace
                else self.name)
        return (f'{self.kind} {json.dumps(name)} of {self.role_kind} '
                f'{json.dumps(self.role)} to {self.subjects[subject]}')


def _subject(subject, namespace):
    """Return (key, words) of a subject, or None."""
    kind, name = subject.get('kind'), subject.get('name', '')
    if kind in ('User', 'Group'):
        return (kind, name), f'{kind} {json.dumps(name)}'
    where = subject.get('namespace') or namespace
    if kind == 'ServiceAccount' and where:
        return ('User', auth.account_name(where, name)), (
            f'{kind} {json.dumps(f"{name}/{where}")}')
    return None


class Authorizer:
    """Authorizes the requests of one server.

    :param store: the :class:`store.Store` with roles and bindings.
    """

    def __init__(self, store):
        self._store = store
        #: {key of a subject: {(kind, key of a binding): _Binding}}
        self._by_subject = collections.defaultdict(dict)
        self._rules = {}
        self._decided = {}
        #: {(name of the user, verb, resource or path): how often refused}
        self.refused = collections.Counter()
        #: The same, how often it was allowed; without the masters'.
        self.used = collections.Counter()
        for kind in (roles.ROLE_BINDING, roles.CLUSTER_ROLE_BINDING):
            store.listen(kind, self._bound)
        for kind in (roles.ROLE, roles.CLUSTER_ROLE):
            store.listen(kind, self._changed)

    def _bound(self, event):
        self._decided.clear()
        place = (event.record.obj['kind'], event.record.key)
        namespace = event.record.key[0]
        if event.previous is not None:
            for subject in _Binding(
                    namespace, event.previous.obj).subjects:
                found = self._by_subject[subject]
                found.pop(place, None)
                if not found:
                    del self._by_subject[subject]
        if event.type != 'DELETED':
            binding = _Binding(namespace, event.record.obj)
            for subject in binding.subjects:
                self._by_subject[subject][place] = binding

    def _changed(self, event):
        self._decided.clear()
        self._rules.pop((event.record.obj['kind'], event.record.key), None)

    def rules_of(self, role_kind, namespace, name):
        """Return the :class:`Rule` of a role; None when there is no role.

        :param role_kind: ``Role`` or ``ClusterRole``.
        :param namespace: where the binding is; ``''`` for the cluster.
        """
        key = ('' if role_kind == 'ClusterRole' else namespace, name)
        found = self._rules.get((role_kind, key))
        if found is None:
            kind = (roles.CLUSTER_ROLE if role_kind == 'ClusterRole'
                    else roles.ROLE)
            obj = self._store.find(kind, *key)
            if obj is None:
                return None
            found = self._rules[role_kind, key] = tuple(
                Rule.compile(rule) for rule in obj.get('rules') or ())
        return found

    def _visit(self, user, namespace):
        """Yield (binding, subject, rules) of a user in a namespace."""
        subjects = [('User', user.name)]
        subjects += [('Group', group) for group in user.groups]
        for wide in (True, False):
            seen = set()
            for subject in subjects:
                for place, binding in self._by_subject.get(
                        subject, {}).items():
                    if place in seen or (
                            binding.namespace if wide else
                            not namespace or binding.namespace != namespace):
                        continue
                    seen.add(place)
                    rules = self.rules_of(
                        binding.role_kind, binding.namespace, binding.role)
                    yield binding, subject, rules

    def rules(self, user, namespace):
        """List all :class:`Rule` of a user in a namespace."""
        return [rule for _, _, rules in self._visit(user, namespace)
                for rule in rules or ()]

    def decide(self, user, wanted):
        """Decide whether a user may do a request.

        :param user: the :class:`auth.User`.
        :param wanted: the :class:`attributes.Attributes`.
        :returns: (whether it is allowed, why).
        """
        if auth.MASTERS in user.groups:
            return True, ''
        key = (user.name, user.groups, wanted)
        found = self._decided.get(key)
        if found is None:
            if len(self._decided) >= REMEMBERED:
                self._decided.clear()
            found = self._decided[key] = self._decide(user, wanted)
        return found

    def _decide(self, user, wanted):
        missing = []
        for binding, subject, rules in self._visit(user, wanted.namespace):
            if rules is None:
                role = ('clusterrole' if binding.role_kind == 'ClusterRole'
                        else 'role')
                missing.append(f'{role}.rbac.authorization.k8s.io '
                               f'{json.dumps(binding.role)} not found')
            for rule in rules or ():
                if rule.allows(wanted):
                    return True, (
                        f'RBAC: allowed by {binding.describe(subject)}')
        missing = list(dict.fromkeys(missing))
        if not missing:
            return False, ''
        text = ', '.join(missing)
        return False, 'RBAC: ' + (f'[{text}]' if missing[1:] else text)

    def check(self, user, wanted):
        """Refuse what is not allowed.

        :raises errors.ApiError: 403.
        """
        if auth.MASTERS in user.groups:
            return
        allowed, reason = self.decide(user, wanted)
        what = wanted.path or wanted.combined
        if wanted.group:
            what = (f'{wanted.resource}.{wanted.group}'
                    + what[len(wanted.resource):])
        key = (user.name, wanted.verb, what)
        counts = self.used if allowed else self.refused
        if key in counts or len(counts) < COUNTED:
            counts[key] += 1
        if not allowed:
            raise attributes.forbidden(user, wanted, reason)
