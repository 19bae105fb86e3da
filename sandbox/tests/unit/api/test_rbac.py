# SPDX-License-Identifier: Apache-2.0
import unittest

from kubevirt_sandbox.api import attributes
from kubevirt_sandbox.api import auth
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import escalation
from kubevirt_sandbox.api import rbac
from kubevirt_sandbox.api import roles
from tests.unit.api import base

A = attributes.Attributes


def rule(verbs, groups='', resources='', names='', paths=''):
    """Make a rule from space-separated words; ``-`` is the core group."""
    found = {'verbs': verbs.split()}
    for name, words in (('apiGroups', groups), ('resources', resources),
                        ('resourceNames', names), ('nonResourceURLs', paths)):
        if words:
            found[name] = ['' if w == '-' else w for w in words.split()]
    return found


#: (rule, attributes, whether it allows them)
RULES = (
    (rule('get', '-', 'pods'), A('get', '', 'pods', '', 'n', 'a'), True),
    (rule('get', '-', 'pods'), A('list', '', 'pods', '', 'n'), False),
    (rule('get', '-', 'pods'), A('get', 'x', 'pods'), False),
    (rule('get', '-', 'pods'), A('get', '', 'pods', 'log', '', 'a'), False),
    (rule('*', '*', '*'), A('get', 'x', 'pods', 'log', '', 'a'), True),
    (rule('*', '*', '*'), A('get', path='/version'), False),
    (rule('get', '-', 'pods/log'), A('get', '', 'pods', 'log'), True),
    (rule('get', '-', 'pods/log'), A('get', '', 'pods'), False),
    (rule('get', '-', '*/log'), A('get', '', 'pods', 'log'), True),
    (rule('get', '-', '*/log'), A('get', '', 'pods', 'exec'), False),
    (rule('get', '-', 'pods/*'), A('get', '', 'pods', 'log'), False),
    (rule('get', '-', 'pods', 'a b'), A('get', '', 'pods', '', '', 'b'),
     True),
    (rule('get', '-', 'pods', 'a'), A('get', '', 'pods', '', '', 'c'), False),
    (rule('list', '-', 'pods', 'a'), A('list', '', 'pods'), False),
    (rule('create', '-', 'pods', 'a'), A('create', '', 'pods'), False),
    (rule('get', paths='/a /b/*'), A('get', path='/a'), True),
    (rule('get', paths='/a /b/*'), A('get', path='/a/x'), False),
    (rule('get', paths='/a /b/*'), A('get', path='/b/x'), True),
    (rule('get', paths='/a /b/*'), A('post', path='/a'), False),
    (rule('get', paths='*'), A('get', path='/x'), True),
    (rule('get', paths='*'), A('get', '', 'pods'), False))

#: (held rules, rules to grant, missing permissions)
ESCALATIONS = (
    ([rule('*', '*', '*')], [rule('get', '-', 'pods', 'a')], []),
    ([rule('get list', '-', 'pods secrets')], [rule('get', '-', 'pods'),
                                               rule('list', '-', 'secrets')],
     []),
    ([rule('get', '-', 'pods')], [rule('get list', '-', 'pods')],
     ['{APIGroups:[""], Resources:["pods"], Verbs:["list"]}']),
    ([rule('get', '-', 'pods', 'a')], [rule('get', '-', 'pods', 'a b')],
     ['{APIGroups:[""], Resources:["pods"], ResourceNames:["b"], '
      'Verbs:["get"]}']),
    ([rule('get', '-', 'pods', 'a')], [rule('get', '-', 'pods')],
     ['{APIGroups:[""], Resources:["pods"], Verbs:["get"]}']),
    ([rule('get', '-', '*/log')], [rule('get', '-', 'pods/log')], []),
    ([rule('get', '-', 'pods')], [rule('*', '-', 'pods')],
     ['{APIGroups:[""], Resources:["pods"], Verbs:["*"]}']),
    ([rule('get', paths='/a/*')], [rule('get', paths='/a/b')], []),
    ([rule('*', '*', '*')], [rule('get', paths='/a')],
     ['{NonResourceURLs:["/a"], Verbs:["get"]}']))


class RuleTestCase(unittest.TestCase):

    def test_rule_allows_request(self):
        for one, wanted, allowed in RULES:
            with self.subTest(rule=one, wanted=wanted):
                self.assertIs(allowed,
                              rbac.Rule.compile(one).allows(wanted))

    def test_missing_permissions_of_escalation(self):
        for held, wanted, missing in ESCALATIONS:
            with self.subTest(held=held, wanted=wanted):
                self.assertEqual(missing, escalation.missing(
                    [rbac.Rule.compile(r) for r in held],
                    [rbac.Rule.compile(r) for r in wanted]))


def named(name, **more):
    return {'metadata': {'name': name, **(
        {'namespace': more.pop('ns')} if 'ns' in more else {})}, **more}


def bind(name, role, *subjects, ns='', kind='Role'):
    return named(name, roleRef={'kind': kind, 'name': role}, subjects=[
        {'kind': k, 'name': n, **({'namespace': 'default'} if k
                                  == 'ServiceAccount' else {})}
        for k, n in subjects], **({'ns': ns} if ns else {}))


class AuthorizerTestCase(unittest.TestCase):

    def setUp(self):
        super().setUp()
        server = base.cluster()
        self.settle, self.store = server.settle, server.store
        self.access = server.access
        self.get = A('get', '', 'pods', '', 'default', 'a')
        self.jane = auth.User('jane', ('team',))

    def decide(self, user=None, wanted=None):
        return self.access.decide(user or self.jane, wanted or self.get)

    def role(self, rules, name='reader'):
        self.store.create(roles.ROLE, named(name, ns='default', rules=rules))

    def test_only_masters_need_no_role(self):
        self.assertEqual((False, ''), self.decide())
        self.assertEqual((True, ''), self.decide(
            auth.User('x', (auth.MASTERS,))))

    def test_names_that_a_binding_cannot_have(self):
        for role, account, field in (
                ('..', 'a', 'roleRef.name'), ('a/b', 'a', 'roleRef.name'),
                ('a:b', 'A:b', 'subjects[0].name')):
            with self.assertRaises(errors.ApiError) as caught:
                self.store.create(roles.ROLE_BINDING, bind(
                    'b', role, ('ServiceAccount', account), ns='default'))
            self.assertEqual([field], [
                cause['field'] for cause in caught.exception.status()[
                    'details']['causes']])

    def test_role_is_limited_to_its_namespace(self):
        self.role([rule('get', '-', 'pods')])
        self.store.create(roles.ROLE_BINDING, bind(
            'b', 'reader', ('User', 'jane'), ns='default'))
        self.assertEqual(
            (True, 'RBAC: allowed by RoleBinding "b/default" of Role '
             '"reader" to User "jane"'), self.decide())
        for other in ('', 'kube-system'):
            self.assertFalse(self.decide(wanted=A(
                'get', '', 'pods', '', other, 'a'))[0])

    def test_changes_take_effect_at_once(self):
        self.assertFalse(self.decide()[0])
        self.store.create(roles.ROLE_BINDING, bind(
            'b', 'reader', ('Group', 'team'), ns='default'))
        self.assertEqual(
            (False, 'RBAC: role.rbac.authorization.k8s.io "reader" not '
             'found'), self.decide())
        self.role([rule('list', '-', 'pods')])
        self.assertFalse(self.decide()[0])
        self.store.change(roles.ROLE, 'default', 'reader', lambda obj:
                          obj.update(rules=[rule('get', '-', 'pods')]))
        self.assertTrue(self.decide()[0])
        self.store.change(roles.ROLE_BINDING, 'default', 'b', lambda obj:
                          obj.update(subjects=[]))
        self.assertFalse(self.decide()[0])
        self.store.change(
            roles.ROLE_BINDING, 'default', 'b', lambda obj: obj.update(
                subjects=[{'kind': 'User', 'name': 'jane'}]))
        self.assertTrue(self.decide()[0])
        self.store.delete(roles.ROLE, 'default', 'reader')
        self.assertFalse(self.decide()[0])

    def test_cluster_roles_of_service_accounts(self):
        user = auth.account_user('default', 'bmc')
        self.store.create(roles.CLUSTER_ROLE, named(
            'all', rules=[rule('get', '-', 'pods'),
                          rule('get', paths='/metrics')]))
        self.store.create(roles.ROLE_BINDING, bind(
            'b', 'all', ('ServiceAccount', 'bmc'), ns='kube-system',
            kind='ClusterRole'))
        inside = A('get', '', 'pods', '', 'kube-system', 'a')
        self.assertTrue(self.decide(user, inside)[0])
        self.assertFalse(self.decide(user)[0])
        self.assertFalse(self.decide(auth.account_user(
            'kube-system', 'bmc'), inside)[0])
        self.assertFalse(self.decide(user, A('get', path='/metrics'))[0])
        self.store.create(roles.CLUSTER_ROLE_BINDING, bind(
            'c', 'all', ('ServiceAccount', 'bmc'), kind='ClusterRole'))
        self.assertEqual(
            (True, 'RBAC: allowed by ClusterRoleBinding "c" of ClusterRole '
             '"all" to ServiceAccount "bmc/default"'), self.decide(user))
        self.assertTrue(self.decide(user, A('get', path='/metrics'))[0])

    def test_aggregated_cluster_roles(self):
        view = A('list', 'example.test', 'things', '', 'default')
        self.store.create(roles.ROLE_BINDING, bind(
            'b', 'view', ('User', 'jane'), ns='default', kind='ClusterRole'))
        self.assertFalse(self.decide(wanted=view)[0])
        part = named('things', rules=[rule('list', 'example.test',
                                           'things')])
        part['metadata']['labels'] = {
            'rbac.authorization.k8s.io/aggregate-to-view': 'true'}
        self.store.create(roles.CLUSTER_ROLE, part)
        self.settle()
        self.assertTrue(self.decide(wanted=view)[0])
        for name in ('edit', 'admin'):
            self.assertIn(part['rules'][0], self.store.get(
                roles.CLUSTER_ROLE, '', name)['rules'])
        self.assertFalse(self.decide(wanted=A(
            'get', '', 'secrets', '', 'default', 'x'))[0])
        self.store.delete(roles.CLUSTER_ROLE, '', 'things')
        self.settle()
        self.assertFalse(self.decide(wanted=view)[0])
