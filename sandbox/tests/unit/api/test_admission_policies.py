# SPDX-License-Identifier: Apache-2.0
import unittest

from kubevirt_sandbox.api import admission_policies
from kubevirt_sandbox.api import auth
from kubevirt_sandbox.api import core
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import roles
from kubevirt_sandbox.api import store
from tests.unit.api import base

JANE = auth.User('jane', ('friends', auth.AUTHENTICATED))

RULE = {'apiGroups': ['example.test'], 'apiVersions': ['*'],
        'operations': ['CREATE', 'UPDATE'], 'resources': ['things']}


def policy(*expressions, match=None, rule=None, **spec):
    return {'metadata': {'name': 'p'}, 'spec': {
        'matchConstraints': {'resourceRules': [{**RULE, **(rule or {})}],
                             **(match or {})},
        'validations': [{'expression': one} if isinstance(one, str) else one
                        for one in expressions], **spec}}


def named(**expressions):
    return [{'name': name, 'expression': text}
            for name, text in expressions.items()]


# (policy, message when jane creates a Thing of size 1; None if allowed)
CREATED = (
    (policy('true'), None),
    (policy('object.spec.size > 5'), 'failed expression: object.spec.size > '
     '5'),
    (policy({'expression': 'false', 'message': ' no '}), 'no'),
    (policy({'expression': 'false', 'message': 'no', 'messageExpression':
             '"not " + string(object.spec.size)'}), 'not 1'),
    (policy({'expression': 'false', 'message': 'no',
             'messageExpression': 'object.none'}), 'no'),
    # The message is that of the first failed validation.
    (policy('true', {'expression': 'false', 'message': 'a'},
            {'expression': 'false', 'message': 'b'}), 'a'),
    # Errors deny the request unless failurePolicy is Ignore.
    (policy('object.spec.none == 1'), 'expression \'object.spec.none == 1\' '
     'resulted in error: \'none\''),
    (policy('object.spec.none == 1', failurePolicy='Ignore'), None),
    (policy('false', failurePolicy='Ignore'), 'failed expression: false'),
    (policy('object.spec.size'), 'failed expression: object.spec.size'),
    # User and request.
    (policy('request.userInfo.username != "jane"'), 'failed expression: '
     'request.userInfo.username != "jane"'),
    (policy('"friends" in request.userInfo.groups'), None),
    (policy('request.operation == "CREATE" && oldObject == null && '
            'request.resource.resource == "things" && '
            'request.kind.kind == "Thing" && request.name == "a" && '
            'request.namespace == "default" && !request.dryRun && '
            'namespaceObject.metadata.name == "default"'), None),
    # Access rights; those of jane are in AdmissionPolicyTestCase.
    *((policy(f'authorizer.{text}'), None if allowed else
       f'failed expression: authorizer.{text}')
      for text, allowed in (
        ('group("example.test").resource("things").namespace("default")'
         '.name("a").check("patch").allowed()', True),
        ('group("example.test").resource("things").namespace("default")'
         '.name("b").check("patch").allowed()', False),
        ('group("example.test").resource("things").namespace("other")'
         '.name(object.metadata.name).check("patch").allowed()', False),
        ('group("example.test").resource("things").subresource("status")'
         '.namespace("default").name("a").check("patch").allowed()', False),
        ('requestResource.check("patch").allowed()', True),
        ('requestResource.check("delete").allowed()', False),
        ('requestResource.check("patch").reason().contains("RBAC")', True),
        ('path("/none").check("get").allowed()', False),
        ('path("/healthz").check("get").allowed()', True),
        ('path("/healthz").check("get").errored()', False))),
    (policy('!has(object.metadata.name) || variables.a.allowed()',
            variables=named(a='authorizer.requestResource.check("patch")')),
     None),
    (policy('authorizer.group("").resource(" ").check("get").allowed()'),
     'expression \'authorizer.group("").resource(" ").check("get").allowed()'
     '\' resulted in error: Function \'resource\' error: Python function '
     'call failed: ValueError: resource must not be empty. Check function '
     'arguments and their types.'),
    # A text is no comparison.
    (policy('"oldObject == null".size() + \'object != null\'.size() == 31'),
     None),
    # Nor is a variable of a macro an object of the request.
    (policy('[1].all(oldObject, oldObject != null)',
            '![1].exists( oldObject , object == null || oldObject == null)'),
     None),
    # Match conditions.
    (policy('false', matchConditions=named(
        a='request.userInfo.username == "joe"')), None),
    (policy('false', matchConditions=named(a='true', b='true')),
     'failed expression: false'),
    (policy('true', matchConditions=named(a='object.none')), "'none'"),
    (policy('true', matchConditions=named(a='object.none', b='false')),
     None),
    (policy('false', matchConditions=named(a='object.none'),
            failurePolicy='Ignore'), None),
    # Variables: may use earlier ones, and are evaluated when used.
    (policy('variables.b == 3', variables=named(
        a='object.spec.size', b='variables.a + 2', c='object.none')), None),
    (policy('true || variables.c', variables=named(c='object.none')), None),
    # Expressions about other parts of an object.
    (policy('object != null', 'object.metadata.name == "a"',
            'object.spec.size == 1 && !has(object.metadata.none)',
            'object.exists(field, field == "spec")',
            'object.metadata.namespace == request.namespace && '
            'request.exists(field, field == "dryRun")',
            'has(object.metadata.name) && has(request.name)',
            'has(request.name)', 'request.exists(field, field == "name")'),
     None),
    # Whatever is evaluated first, each expression has its variables.
    (policy(' + '.join(f'variables.{name}{n}' for n in range(12)
                       for name in 'ab') + ' == 36',
            variables=named(
                **{f'a{n}': 'object.spec.size' for n in range(12)},
                **{f'b{n}': f'variables.a{n} + 1' for n in range(12)})), None),
    (policy('has(variables.a) && !has(variables.o.none) && '
            '!has(object.variables) && variables . a == 1',
            variables=named(a='object.spec.size', o='object')), None),
    (policy({'expression': 'false', 'messageExpression':
             '"variables.a is " + string(variables.a)'},
            variables=named(a='object.spec.size')), 'variables.a is 1'),
    (policy('has(variables.c)', variables=named(c='object.none')),
     "expression 'has(variables.c)' resulted in error: 'none'"),
    (policy('variables.c', variables=named(c='object.none')),
     "expression 'variables.c' resulted in error: 'none'"),
    (policy('variables.a', variables=named(a='variables.a')),
     "expression 'variables.a' resulted in error: no such key: a"),
    # Match constraints.
    (policy('false', rule={'resources': ['*']}), 'failed expression: false'),
    (policy('false', rule={'resources': ['*/*']}),
     'failed expression: false'),
    (policy('false', rule={'resources': ['things/status']}), None),
    (policy('false', rule={'resources': ['others']}), None),
    (policy('false', rule={'apiGroups': ['']}), None),
    (policy('false', rule={'apiVersions': ['v2']}), None),
    (policy('false', rule={'apiVersions': ['v1']}),
     'failed expression: false'),
    (policy('false', rule={'operations': ['UPDATE']}), None),
    (policy('false', rule={'operations': ['*']}),
     'failed expression: false'),
    (policy('false', rule={'scope': 'Cluster'}), None),
    (policy('false', rule={'resourceNames': ['b']}), None),
    (policy('false', rule={'resourceNames': ['a']}),
     'failed expression: false'),
    (policy('false', match={'excludeResourceRules': [RULE]}), None),
    (policy('false', match={'objectSelector': {'matchLabels': {
        'a': 'b'}}}), None),
    (policy('false', match={'namespaceSelector': {'matchLabels': {
        'kubernetes.io/metadata.name': 'default'}}}),
     'failed expression: false'),
    (policy('false', match={'namespaceSelector': {'matchExpressions': [
        {'key': 'a', 'operator': 'Exists'}]}}), None),
)

# (invalid policy, message)
INVALID = (
    (policy('1 +'), 'spec.validations[0].expression: Invalid value: "1 +": '
     'compilation failed'),
    (policy(''), 'spec.validations[0].expression: Required value'),
    (policy(), 'spec.validations: Required value'),
    (policy('true', failurePolicy='Maybe'), 'spec.failurePolicy: '
     'Unsupported value: "Maybe"'),
    (policy('true', paramKind={'kind': 'A', 'apiVersion': 'v1'}),
     'spec.paramKind: Forbidden'),
    (policy('true', rule={'operations': ['PATCH']}),
     'spec.matchConstraints.resourceRules[0].operations: Unsupported'),
    (policy('true', match={'resourceRules': []}),
     'spec.matchConstraints.resourceRules: Required value'),
    (policy({'expression': 'true', 'reason': 'Why'}),
     'spec.validations[0].reason: Unsupported value: "Why"'),
    (policy('true', variables=[{'expression': 'true'}]), 'name'),
)


class AdmissionPolicyTestCase(unittest.TestCase):

    def setUp(self):
        self.kind = base.thing()
        self.cluster = base.cluster(self.kind)
        self.store = self.cluster.store
        self.store.create(roles.ROLE, {
            'metadata': {'name': 'r', 'namespace': 'default'}, 'rules': [{
                'apiGroups': ['example.test'], 'resources': ['things'],
                'resourceNames': ['a'], 'verbs': ['patch']}]})
        self.store.create(roles.ROLE_BINDING, {
            'metadata': {'name': 'r', 'namespace': 'default'},
            'roleRef': {'apiGroup': roles.GROUP, 'kind': 'Role', 'name': 'r'},
            'subjects': [{'kind': 'User', 'name': JANE.name,
                          'apiGroup': roles.GROUP}]})

    def bind(self, made, *actions, **spec):
        self.store.create(admission_policies.POLICY, made)
        self.store.create(admission_policies.BINDING, {
            'metadata': {'name': 'b'}, 'spec': {
                'policyName': 'p', **spec,
                'validationActions': list(actions) or ['Deny']}})

    def write(self, **more):
        return store.Write('m', JANE.name, identity=JANE, **more)

    def assert_refused(self, call, *args, **more):
        more.setdefault('write', self.write())
        with self.assertRaises(errors.ApiError) as caught:
            call(self.kind, *args, **more)
        return caught.exception

    def test_policies_of_create(self):
        for made, message in CREATED:
            with self.subTest(policy=made['spec']):
                self.setUp()
                self.bind(made)
                if message is None:
                    self.store.create(self.kind, base.make(),
                                      write=self.write())
                    continue
                error = self.assert_refused(self.store.create, base.make())
                self.assertEqual(
                    (422, 'Invalid', 'things.example.test "a" is forbidden: '
                     'ValidatingAdmissionPolicy \'p\' with binding \'b\' '
                     'denied request: ' + message),
                    (error.code, error.reason, error.message))
                self.assertIsNone(self.store.find(self.kind, 'default', 'a'))

    def test_rejects_invalid_policies(self):
        for made, message in INVALID:
            with self.subTest(policy=made['spec']):
                with self.assertRaises(errors.ApiError) as caught:
                    self.store.create(admission_policies.POLICY, made)
                self.assertIn(message, caught.exception.message)

    def test_rejects_invalid_bindings(self):
        for spec, message in (
                ({'validationActions': ['Deny']}, 'policyName'),
                ({'policyName': 'p'}, 'validationActions'),
                ({'policyName': 'p', 'validationActions': ['No']}, '"No"'),
                ({'policyName': 'p', 'validationActions': ['Deny', 'Warn']},
                 'both Deny and Warn'),
                ({'policyName': 'p', 'validationActions': ['Deny'],
                  'paramRef': {'name': 'a'}}, 'paramRef')):
            with self.subTest(spec=spec):
                with self.assertRaises(errors.ApiError) as caught:
                    self.store.create(admission_policies.BINDING, {
                        'metadata': {'name': 'b'}, 'spec': spec})
                self.assertIn(message, caught.exception.message)

    def test_conditions_on_users(self):
        """Those on the name alone are kept, by the name."""
        self.bind(policy('"friends" in request.userInfo.groups', (
            'request.userInfo.username.matches("^j") && "request.x" != ""')))
        for number, (name, group, allowed) in enumerate((
                ('jane', 'friends', True), ('joe', 'friends', True),
                ('ann', 'friends', False), ('jane', 'others', False),
                ('jane', 'friends', True))):
            user = auth.User(name, (group, auth.AUTHENTICATED))
            write = store.Write('m', name, identity=user)
            thing = base.make(f'a{number}')
            with self.subTest(name=name, group=group):
                if allowed:
                    self.store.create(self.kind, thing, write=write)
                else:
                    self.assert_refused(self.store.create, thing, write=write)

    def test_conditions_on_requests(self):
        """Those on resource and operation alone are kept, by them."""
        other = base.thing()
        other.plural, other.kind = 'others', 'Other'
        self.cluster.register_kind(other)
        self.bind(policy(
            'request.resource.resource == "things" ? oldObject == null : '
            'request.operation == "UPDATE"', rule={'resources': ['*']}))
        made = self.store.create(self.kind, base.make(), write=self.write())
        self.assert_refused(self.store.update, {**made, 'spec': {'size': 2}})
        self.store.create(other, base.make())
        with self.assertRaises(errors.ApiError):
            self.store.create(other, base.make('b'), write=self.write())
        self.store.update(other, base.make(size=2), write=self.write())

    def test_policy_of_updates(self):
        self.bind(policy('object.spec.size >= oldObject.spec.size',
                         rule={'operations': ['UPDATE']}))
        made = self.store.create(self.kind, base.make(size=5),
                                 write=self.write())
        self.store.update(self.kind, {**made, 'spec': {'size': 6}},
                          write=self.write())
        self.assert_refused(self.store.update,
                            {**base.make(), 'spec': {'size': 5}})
        # The policy does not match the status subresource.
        self.store.update(self.kind, {**base.make(), 'status': {
            'phase': 'a'}}, subresource='status', write=self.write())

    def test_policy_of_status(self):
        self.bind(policy('object.status.phase != "a"',
                         rule={'resources': ['things/status']}))
        self.store.create(self.kind, base.make(), write=self.write())
        self.assert_refused(self.store.update, {**base.make(), 'status': {
            'phase': 'a'}}, subresource='status')

    def test_policy_of_deletion(self):
        self.bind(policy('object == null && oldObject.spec.size > 3',
                         rule={'operations': ['DELETE']}))
        for size in (1, 4):
            self.store.create(self.kind, base.make(f'a{size}', size=size),
                              write=self.write())
        self.assert_refused(self.store.delete, 'default', 'a1')
        self.store.delete(self.kind, 'default', 'a4', write=self.write())

    def test_reason_of_validation(self):
        self.bind(policy({'expression': 'false', 'reason': 'Forbidden'}))
        error = self.assert_refused(self.store.create, base.make())
        self.assertEqual((403, 'Forbidden'), (error.code, error.reason))

    def test_policy_of_dry_run(self):
        self.bind(policy('!request.dryRun'))
        self.assert_refused(self.store.create, base.make(),
                            write=self.write(dry_run=True))

    def test_warn_action(self):
        self.bind(policy('false', 'true', 'false'), 'Warn', 'Audit')
        write = self.write()
        self.store.create(self.kind, base.make(), write=write)
        self.assertEqual(
            ['Validation failed for ValidatingAdmissionPolicy \'p\' with '
             'binding \'b\': failed expression: false'] * 2, write.warnings)

    def test_binding_limits_policy(self):
        self.bind(policy('false'), matchResources={'objectSelector': {
            'matchLabels': {'a': 'b'}}})
        self.store.create(self.kind, base.make(), write=self.write())
        made = base.make('b')
        made['metadata']['labels'] = {'a': 'b'}
        self.assert_refused(self.store.create, made)

    def test_policies_have_variables_of_their_own(self):
        for name, value in (('p', '1'), ('q', '2'), ('r', 'object.none')):
            made = policy(f'variables.a == {value}',
                          variables=named(a=value))
            self.store.create(admission_policies.POLICY, {
                **made, 'metadata': {'name': name}})
            self.store.create(admission_policies.BINDING, {
                'metadata': {'name': name}, 'spec': {
                    'policyName': name, 'validationActions': ['Deny']}})
        error = self.assert_refused(self.store.create, base.make())
        self.assertIn("'r' with binding 'r' denied request: expression "
                      "'variables.a == object.none'", error.message)

    def test_binding_takes_effect_and_ends(self):
        self.store.create(admission_policies.POLICY, policy('false'))
        self.store.create(self.kind, base.make('a'), write=self.write())
        self.store.create(admission_policies.BINDING, {
            'metadata': {'name': 'b'}, 'spec': {
                'policyName': 'p', 'validationActions': ['Deny']}})
        self.assert_refused(self.store.create, base.make('b'))
        self.store.delete(admission_policies.BINDING, '', 'b')
        self.store.create(self.kind, base.make('b'), write=self.write())

    def test_changed_policy_takes_effect(self):
        self.bind(policy('false', rule={'resources': ['others']}))
        self.store.create(self.kind, base.make(), write=self.write())
        self.store.change(
            admission_policies.POLICY, '', 'p',
            lambda made: made.update(spec=policy('false')['spec']))
        self.assert_refused(self.store.create, base.make('b'))

    def test_writes_of_own_controllers_are_exempt(self):
        self.bind(policy('false', rule={'apiGroups': ['*'],
                                        'resources': ['*']}))
        self.store.create(self.kind, base.make())
        self.store.create(core.CONFIG_MAP, {'metadata': {
            'name': 'a', 'namespace': 'default'}})

    def test_policies_do_not_apply_to_policies(self):
        self.bind(policy('false', rule={
            'apiGroups': ['*'], 'resources': ['*'], 'operations': ['*']}))
        self.store.delete(admission_policies.POLICY,
                          '', 'p', write=self.write())
