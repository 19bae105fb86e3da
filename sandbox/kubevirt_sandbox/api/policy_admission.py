# SPDX-License-Identifier: Apache-2.0
"""Checks writes with ValidatingAdmissionPolicies.

Follows ``apiserver/pkg/admission/plugin/policy/validating`` (1.36). Writes of
users are evaluated after they have passed the checks of their kind. Writes of
the sandbox's own controllers are not, since they have no user names, and
neither are calls that change nothing (``CONNECT``). Expressions get an object
in its storage version, independent of the version that a rule names.
"""
from collections.abc import Callable
import functools
import re

from kubevirt_sandbox.api import admission_policies
from kubevirt_sandbox.api import cel_authorizer
from kubevirt_sandbox.api import cel_reads
from kubevirt_sandbox.api import cel_rules
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import roles

# Variables, and string literals, in which there are none.
_VARIABLES = re.compile(
    r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|'
    r'\b(?<!\.)variables\s*\.\s*([A-Za-z_][A-Za-z0-9_]*)')
_PRESENT = re.compile(
    r'\bhas\(\s*(variables\s*\.\s*[A-Za-z_][A-Za-z0-9_]*)\s*\)')
# String literals, and comparisons of the objects with null.
_NULL = re.compile(
    r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|'
    r'\b(?<!\.)(object|oldObject)\s*([!=])=\s*null\b')
# What may be a macro's variable of such a name.
_SHADOWED = re.compile(r'[(,]\s*(?:object|oldObject)\s*,')

_OBJECTS = 'object', 'oldObject'

#: What many requests have in common, as paths of :mod:`cel_reads`.
_FIXED = frozenset((('userInfo', 'username'), ('resource', 'resource'),
                    ('operation',)))

#: Begins the names of CEL variables that stand for ``variables.NAME``.
_PREFIX = 'variables__'


class PolicyAdmission:
    """Evaluates the policies for every write.

    :param server: a :class:`server.Server`.
    :param namespace: the Kind of namespaces.
    """

    def __init__(self, server, namespace):
        self._store = server.store
        self._access = server.access
        self._kinds = server.kinds
        self._namespace = namespace
        self._policies = None              # [(policy, [binding]), …]
        self._concerned = {}               # {kind of write: the same}
        for kind in admission_policies.KINDS:
            server.register_kind(kind)
            self._store.listen(kind, self._invalidate)
        self._store.checks.append(self._check)

    def _invalidate(self, _event):
        self._policies = None
        self._concerned.clear()

    def _bound_policies(self):
        if self._policies is None:
            bindings = {}
            collection = self._store.collection(admission_policies.BINDING)
            for record in collection.current():
                bindings.setdefault(record.obj['spec']['policyName'],
                                    []).append(record.obj)
            collection = self._store.collection(admission_policies.POLICY)
            self._policies = [
                (record.obj, bindings[record.key[1]])
                for record in collection.current()
                if record.key[1] in bindings
            ]
        return self._policies

    def _policies_for(self, kind, operation, subresource):
        """Return the policies that may match such writes."""
        write = kind, operation, subresource
        found = self._concerned.get(write)
        if found is None:
            found = self._concerned[write] = [
                (policy, bindings)
                for policy, bindings in self._bound_policies()
                if any(_concerns(rule, *write) for rule in policy['spec'][
                    'matchConstraints'].get('resourceRules') or ())]
        return found

    def _check(self, kind, admission, dry_run):
        if admission.identity is None or kind in admission_policies.KINDS:
            return
        refused = inputs = None
        for policy, bindings in self._policies_for(
                kind, admission.operation, admission.subresource):
            spec = policy['spec']
            if not self._matches(spec['matchConstraints'], kind, admission):
                continue
            found = None
            for binding in bindings:
                match = binding['spec'].get('matchResources')
                if match is not None and not self._matches(
                        match, kind, admission, True):
                    continue
                if found is None:
                    inputs = inputs or self._inputs(kind, admission, dry_run)
                    found = list(failed_validations(spec, inputs))
                for message, reason in found:
                    actions = binding['spec']['validationActions']
                    if 'Deny' in actions:
                        refused = refused or _refusal(
                            kind, admission, policy, binding, message,
                            reason)
                    if 'Warn' in actions:
                        admission.warnings.append(
                            'Validation failed for ValidatingAdmissionPolicy'
                            f' \'{policy["metadata"]["name"]}\' with binding'
                            f' \'{binding["metadata"]["name"]}\': {message}')
        if refused is not None:
            raise refused

    # -- matching ---------------------------------------------------------

    def _matches(self, match, kind, admission, binding=False):
        meta = (admission.new or admission.old)['metadata']
        wanted = match.get('resourceRules')
        if (self._any(match.get('excludeResourceRules'), kind, admission,
                      meta)
                or not (binding and not wanted)
                and not self._any(wanted, kind, admission, meta)):
            return False
        selector = match.get('objectSelector')
        if selector and not any(
                obj is not None and roles.selected(
                    selector, obj['metadata'].get('labels') or {})
                for obj in (admission.new, admission.old)):
            return False
        selector = match.get('namespaceSelector')
        if not selector or not (kind.namespaced or kind is self._namespace):
            return True
        if kind is self._namespace:
            labels = meta.get('labels')
        else:
            found = self._store.find(self._namespace, '', meta['namespace'])
            labels = (found or {}).get('metadata', {}).get('labels')
        return roles.selected(selector, labels or {})

    def _any(self, wanted, kind, admission, meta):
        return any(self._fits(rule, kind, admission, meta)
                   for rule in wanted or ())

    def _fits(self, rule, kind, admission, meta):
        """Tell whether a rule matches a write (webhook/predicates/rules)."""
        return (
            _concerns(rule, kind, admission.operation, admission.subresource)
            and (not rule.get('resourceNames')
                 or meta.get('name') in rule['resourceNames'])
            and ('*' in rule['apiVersions'] or any(
                one.version in rule['apiVersions'] for one in self._kinds
                if (one.group, one.plural) == (kind.group, kind.plural))))

    # -- variables of expressions -----------------------------------------

    def _inputs(self, kind, admission, dry_run):
        meta = (admission.new or admission.old)['metadata']
        resource = {'group': kind.group, 'version': kind.version,
                    'resource': kind.plural}
        of = {'group': kind.group, 'version': kind.version,
              'kind': kind.kind}
        space = None
        if kind.namespaced:
            space = self._store.find(self._namespace, '', meta['namespace'])
        return Inputs({
            'object': admission.new, 'oldObject': admission.old,
            'namespaceObject': space, 'params': None,
            'authorizer': lambda wanted: self._access.decide(
                admission.identity, wanted),
            'request': {
                'kind': of, 'requestKind': of, 'resource': resource,
                'requestResource': resource,
                'subResource': admission.subresource,
                'requestSubResource': admission.subresource,
                'name': meta.get('name', ''),
                'namespace': meta.get('namespace', ''),
                'operation': admission.operation, 'dryRun': dry_run,
                'userInfo': {'extra': {}, 'uid': '',
                             **admission.identity.info()}}})


def _concerns(rule, kind, operation, subresource):
    """Tell whether a rule matches a write of some version and name."""
    scope = 'Namespaced' if kind.namespaced else 'Cluster'
    return (_in(rule['operations'], operation)
            and _in(rule['apiGroups'], kind.group)
            and rule['scope'] in ('*', scope)
            and any(_is_resource(one, kind.plural, subresource)
                    for one in rule['resources']))


def _in(wanted, what):
    return '*' in wanted or what in wanted


def _is_resource(wanted, plural, subresource):
    name, slash, sub = wanted.partition('/')
    if not slash:
        return not subresource and name in ('*', plural)
    return name in ('*', plural) and (
        sub == '*' or bool(subresource) and sub == subresource)


class _Missing:
    """Notices which variable an evaluation lacks first.

    It does not refer to the context whose resolver it is: garbage collection
    would not see that cycle.
    """

    def __init__(self):
        #: ``{name of a CEL variable: paths that the context has}``
        self.known = {}
        #: ``{name: paths that the present expression reads}``
        self.reads = {}
        #: None when there was all that was needed.
        self.name = None

    def has(self, name: str, paths: frozenset) -> bool:
        """Tell whether the context has paths of a variable."""
        return name in self.known and paths <= self.known[name]

    def __call__(self, name: str) -> None:
        if self.name is None and name in self.reads and not self.has(
                name, self.reads[name]):
            self.name = name


class Inputs:
    """Variables of the expressions about one write.

    A value is converted for CEL when an evaluation first needs it, and only
    what the expression reads of it.

    :param values: ``{name of a CEL variable: value}``; the value of
        ``authorizer`` is the function that :func:`cel_authorizer.functions`
        takes.
    """

    def __init__(self, values: dict):
        self._values = values
        #: Which of the objects are null.
        self._nulls = tuple(name for name in _OBJECTS
                            if values.get(name) is None)
        request = values.get('request') or {}
        self._fixed = (request.get('userInfo', {}).get('username'),
                       request.get('resource', {}).get('resource'),
                       request.get('operation'))
        decide = values.get(cel_authorizer.NAME)
        self._context = cel_rules.library().Context(
            functions=cel_authorizer.functions(decide) if decide else {})
        self._missing = _Missing()
        self._context.set_variable_resolver(self._missing)

    def forget_variables(self) -> None:
        """Forget the values of a policy's variables."""
        self._missing.known = {
            name: paths for name, paths in self._missing.known.items()
            if name in self._values}

    def evaluate(self, text: str,
                 variable: Callable[[str], object]) -> object:
        """Return the value of an expression.

        :param variable: returns the value of a variable of the policy; raises
            ValueError.
        :raises ValueError: the evaluation failed.
        """
        value = _of_request(text, self._nulls, self._fixed)
        if value is not None:
            return value
        flat, reads = _named(text, self._nulls)
        try:
            for name, paths in reads.items():
                # The conversion of a whole object takes long.
                large = name in _OBJECTS and cel_reads.WHOLE in paths
                if name in self._values and not large and (
                        not self._missing.has(name, paths)):
                    self._provide(name, reads, variable)
            while True:
                value, error = self._attempt(flat, reads)
                if self._missing.name is None:
                    break
                self._provide(self._missing.name, reads, variable)
        except (RuntimeError, TypeError, KeyError) as exc:
            error = exc
        if error is not None:
            raise ValueError(str(error))
        return value

    def _attempt(self, text, reads):
        """Return the value of an expression, and the error."""
        self._missing.reads, self._missing.name = reads, None
        try:
            return cel_rules.compiled(text).execute(self._context), None
        except (RuntimeError, TypeError, KeyError, ValueError) as exc:
            return None, exc

    def _provide(self, name, reads, variable):
        paths = reads[name]
        if name.startswith(_PREFIX):
            value = variable(name.removeprefix(_PREFIX))
        else:
            paths |= self._missing.known.get(name, frozenset())
            value = self._authorizer() if name == cel_authorizer.NAME else (
                cel_reads.part(self._values[name], paths))
        self._context.add_variable(name, value)
        self._missing.known[name] = paths

    def _authorizer(self):
        request = self._values.get('request') or {}
        resource = request.get('resource') or {}
        return cel_authorizer.variable({
            'group': resource.get('group', ''),
            'resource': resource.get('resource', ''),
            'subresource': request.get('subResource', ''),
            'namespace': request.get('namespace', ''),
            'name': request.get('name', '')})


class _Policy:
    """Evaluates the expressions of a policy.

    Its variables are evaluated when they are first used.

    :param expressions: ``{name of a variable: expression}``.
    """

    def __init__(self, expressions: dict, inputs: Inputs):
        self._expressions = expressions
        self._inputs = inputs
        inputs.forget_variables()

    def evaluate(self, text: str) -> object:
        """Return the value of an expression.

        :raises ValueError: the evaluation failed.
        """
        return self._inputs.evaluate(text, self._variable)

    def _variable(self, name):
        # A variable that names itself has no value.
        expression = self._expressions.pop(name, None)
        if expression is None:
            raise ValueError(f'no such key: {name}')
        try:
            return self.evaluate(expression)
        finally:
            self._expressions[name] = expression


def failed_validations(spec, inputs):
    """Evaluate a policy; yield the failed validations.

    :param spec: the policy's spec.
    :param inputs: the :class:`Inputs`.
    :returns: iterator of (message, reason).
    """
    policy = _Policy({one['name']: one['expression']
                      for one in spec.get('variables') or ()}, inputs)
    failed = None
    for one in spec.get('matchConditions') or ():
        try:
            if policy.evaluate(one['expression']) is not True:
                return
        except ValueError as exc:
            failed = exc
    fail = spec['failurePolicy'] == 'Fail'
    if failed is not None:
        if fail:
            yield str(failed), 'Invalid'
        return
    for one in spec['validations']:
        text = one['expression']
        try:
            if policy.evaluate(text) is not True:
                yield _message(one, policy), one.get('reason', 'Invalid')
        except ValueError as exc:
            if fail:
                yield f'expression \'{text.strip()}\' resulted in error: ' + (
                    str(exc)), 'Invalid'


def _message(one, policy):
    text = one.get('messageExpression')
    if text:
        try:
            message = policy.evaluate(text)
            if isinstance(message, str) and message.strip() and (
                    '\n' not in message):
                return message.strip()
        except ValueError:
            pass
    return (one.get('message') or '').strip() or (
        f'failed expression: {one["expression"].strip()}')


@functools.lru_cache(10_000)
def _named(text, nulls):
    """Return an expression as it is evaluated, and what it reads.

    :param nulls: names of the objects that are null.
    :returns: the expression with a CEL variable for each variable: a field of
        one CEL variable would have all of them converted again whenever
        another is evaluated. And the reads, see :func:`cel_reads.reads`.
    """
    def settled(found):
        if not found[1]:
            return found[0]
        return str((found[1] in nulls) == (found[2] == '=')).lower()

    if not _SHADOWED.search(text):
        text = _NULL.sub(settled, text)
    names = set(filter(None, _VARIABLES.findall(text)))
    # A variable is present unless its evaluation fails.
    flat = _VARIABLES.sub(
        lambda found: _PREFIX + found[1] if found[1] else found[0],
        _PRESENT.sub(r'(size([\1]) == 1)', text))
    return flat, {**cel_reads.reads(text), **dict.fromkeys(
        (_PREFIX + name for name in names), frozenset([cel_reads.WHOLE]))}


# Cached, as most policies are about a few users and resources, and say so by
# regular expressions, which are compiled whenever they are evaluated.
@functools.lru_cache(10_000)
def _of_request(text, nulls, fixed):
    """Return the value of an expression that these decide, or None.

    :param fixed: the user's name, resource and operation.
    """
    flat, reads = _named(text, nulls)
    if None in fixed or not reads.get('request', frozenset()) <= _FIXED:
        return None
    username, resource, operation = fixed
    try:
        return cel_rules.compiled(flat).execute({'request': {
            'userInfo': {'username': username},
            'resource': {'resource': resource}, 'operation': operation}})
    except (RuntimeError, TypeError, KeyError, ValueError):
        return None  # It fails, or needs another variable.


def _refusal(kind, admission, policy, binding, message, reason):
    text = (f'ValidatingAdmissionPolicy \'{policy["metadata"]["name"]}\' '
            f'with binding \'{binding["metadata"]["name"]}\' denied request: '
            f'{message}')
    meta = (admission.new or admission.old)['metadata']
    error = errors.forbidden(kind, meta.get('name', ''), text,
                             [{'message': text}])
    error.code, error.reason = admission_policies.REASONS[reason], reason
    return error
