# SPDX-License-Identifier: Apache-2.0
import base64
import json
from unittest import mock

from kubevirt_sandbox.api import accounts
from kubevirt_sandbox.api import core
from kubevirt_sandbox.api import roles
from tests.unit.api import base
from tests.unit.api import test_rbac

NS = '/api/v1/namespaces/default/'
RBAC = '/apis/rbac.authorization.k8s.io/v1/'
NS_RBAC = RBAC + 'namespaces/default/'
SELF_REVIEW = '/apis/authentication.k8s.io/v1/selfsubjectreviews'
AUTHZ = '/apis/authorization.k8s.io/v1/'


class AccountTestCase(base.ServerTestCase):

    async def asyncSetUp(self):
        await super().asyncSetUp()
        self.store.create(core.SERVICE_ACCOUNT, {
            'metadata': {'name': 'bmc', 'namespace': 'default'}})

    def grant(self, *rules, kind='Role', name='bmc'):
        """Give the account permissions in its namespace."""
        self.store.create(roles.ROLE, test_rbac.named(
            name, ns='default', rules=list(rules)))
        self.store.create(roles.ROLE_BINDING, test_rbac.bind(
            name, name, ('ServiceAccount', 'bmc'), ns='default'))

    async def token(self, expect=201, **spec):
        answer = await self.call('POST', NS + 'serviceaccounts/bmc/token',
                                 {'spec': spec}, expect)
        return answer['status']['token'] if expect == 201 else answer

    async def call_as(self, token, method, path, body=None, expect=None,
                      **more):
        return await self.call(
            method, path, body, expect,
            headers={'Authorization': 'Bearer ' + token}, **more)

    async def whoami(self, token, expect=201):
        answer = await self.call_as(token, 'POST', SELF_REVIEW, {}, expect)
        return answer['status']['userInfo'] if expect == 201 else None


class TokenTestCase(AccountTestCase):

    async def test_token_authenticates_its_account(self):
        info = await self.whoami(await self.token())
        self.assertEqual('system:serviceaccount:default:bmc',
                         info['username'])
        self.assertEqual(
            ['system:serviceaccounts', 'system:serviceaccounts:default',
             'system:authenticated'], info['groups'])
        self.assertEqual(self.store.get(
            core.SERVICE_ACCOUNT, 'default', 'bmc')['metadata']['uid'],
            info['uid'])

    async def test_account_has_only_granted_permissions(self):
        token = await self.token()
        self.grant({'verbs': ['list'], 'apiGroups': ['example.test'],
                    'resources': ['things'], 'resourceNames': ['a']})
        body = await self.call_as(token, 'GET', self.THINGS, expect=403)
        self.assertEqual(
            'things.example.test is forbidden: User "system:serviceaccount:'
            'default:bmc" cannot list resource "things" in API group '
            '"example.test" in the namespace "default"', body['message'])
        one = {'fieldSelector': 'metadata.name=a'}
        await self.call_as(token, 'GET', self.THINGS, expect=200, params=one)
        await self.call_as(token, 'GET', self.THINGS, expect=403,
                           params={**one, 'watch': '1'})
        await self.call_as(token, 'GET', '/apis/example.test/v1/things',
                           expect=403, params=one)
        # A missing resource looks like a forbidden one.
        await self.call_as(token, 'GET', '/apis/no.test/v1/nothing',
                           expect=403)
        await self.call_as(token, 'GET', '/apis', expect=200)

    async def test_apply_that_creates_needs_create_permission(self):
        token = await self.token()
        patch = {'verbs': ['patch'], 'apiGroups': [''],
                 'resources': ['configmaps']}
        self.grant(patch)
        body = json.dumps({'apiVersion': 'v1', 'kind': 'ConfigMap',
                           'metadata': {'name': 'x'}})
        path, how = NS + 'configmaps/x', dict(
            media='application/apply-patch+yaml',
            params={'fieldManager': 'm'})
        answer = await self.call_as(token, 'PATCH', path, body, 403, **how)
        self.assertIn('cannot create resource "configmaps"',
                      answer['message'])
        # Unlike a POST, an apply has a name, which the rule can contain.
        self.grant({**patch, 'verbs': ['create'], 'resourceNames': ['x']},
                   name='more')
        await self.call_as(token, 'POST', NS + 'configmaps',
                           {'metadata': {'name': 'x'}}, 403)
        await self.call_as(token, 'PATCH', path, body, 201, **how)

    async def test_token_expires_or_ends_with_its_account(self):
        token = await self.token(expirationSeconds=600)
        with mock.patch.object(accounts.time, 'time',
                               return_value=accounts.time.time() + 601):
            await self.whoami(token, 401)
        await self.whoami(token)
        # A recreated account has another uid.
        await self.call('DELETE', NS + 'serviceaccounts/bmc', expect=200)
        await self.whoami(token, 401)
        await self.call('POST', NS + 'serviceaccounts',
                        {'metadata': {'name': 'bmc'}}, 201)
        await self.whoami(token, 401)

    async def test_rejects_forged_tokens(self):
        head, body, signature = (await self.token()).split('.')
        for wrong in (f'{head}.{body}.', f'{head}.{body}.{signature[:-2]}AA',
                      f'{head}.e30.{signature}', '.', 'x' * 9000, '\u20ac'):
            self.assertIsNone(self.server.tokens.of(wrong), wrong)

    async def test_token_for_other_audiences(self):
        await self.whoami(await self.token(audiences=['vault']), 401)
        await self.whoami(await self.token(
            audiences=['vault', accounts.ISSUER]))

    async def test_token_bound_to_a_pod(self):
        self.store.create(core.POD, {
            'metadata': {'name': 'p', 'namespace': 'default'},
            'spec': {'serviceAccountName': 'bmc', 'containers': [
                {'name': 'c', 'image': 'i'}]}})
        token = await self.token(boundObjectRef={
            'kind': 'Pod', 'apiVersion': 'v1', 'name': 'p'})
        info = await self.whoami(token)
        self.assertEqual(['p'], info['extra'][
            'authentication.kubernetes.io/pod-name'])
        self.store.delete(core.POD, 'default', 'p')
        await self.whoami(token, 401)
        await self.token(404, boundObjectRef={
            'kind': 'Pod', 'apiVersion': 'v1', 'name': 'p'})

    async def test_rejects_invalid_token_requests(self):
        answer = await self.token(422, expirationSeconds=60)
        self.assertEqual(
            'TokenRequest.authentication.k8s.io "" is invalid: '
            'spec.expirationSeconds: Invalid value: 60: may not specify a '
            'duration less than 10 minutes', answer['message'])
        await self.token(400, audiences='x')
        await self.call('POST', NS + 'serviceaccounts/nobody/token', {}, 404)

    async def test_service_account_token_secrets(self):
        await self.call('POST', NS + 'secrets', {
            'metadata': {'name': 't', 'annotations': {
                'kubernetes.io/service-account.name': 'bmc'}},
            'type': 'kubernetes.io/service-account-token'}, 201)
        secret = await self.eventually(lambda: self.store.get(
            core.SECRET, 'default', 't').get('data'))
        token = base64.b64decode(secret['token']).decode()
        await self.whoami(token)
        await self.call('DELETE', NS + 'serviceaccounts/bmc', expect=200)
        await self.whoami(token, 401)
        await self.eventually(lambda: self.store.find(
            core.SECRET, 'default', 't') is None)

    async def test_every_namespace_has_a_default_account(self):
        await self.call('DELETE', NS + 'serviceaccounts/default', expect=200)
        await self.eventually(lambda: self.store.find(
            core.SERVICE_ACCOUNT, 'default', 'default'))


class ReviewTestCase(AccountTestCase):

    async def ask(self, plural, spec, expect=201, token=None):
        token = token or self.server.token
        answer = await self.call_as(token, 'POST', AUTHZ + plural,
                                    {'spec': spec}, expect)
        return answer.get('status')

    async def test_access_reviews(self):
        token = await self.token()
        self.grant({'verbs': ['get'], 'apiGroups': [''],
                    'resources': ['pods']})
        pods = {'verb': 'get', 'resource': 'pods', 'namespace': 'default'}
        for spec, allowed in (
                ({'resourceAttributes': pods}, True),
                ({'resourceAttributes': {**pods, 'verb': 'list'}}, False),
                ({'nonResourceAttributes': {'verb': 'get', 'path': '/api'}},
                 True),
                ({'nonResourceAttributes': {
                    'verb': 'get', 'path': '/metrics'}}, False)):
            self.assertIs(allowed, (await self.ask(
                'selfsubjectaccessreviews', spec, token=token))['allowed'])
        await self.ask('selfsubjectaccessreviews', {}, 422)
        rules = await self.ask('selfsubjectrulesreviews',
                               {'namespace': 'default'}, token=token)
        self.assertIn({'verbs': ['get'], 'apiGroups': [''],
                       'resources': ['pods']}, rules['resourceRules'])

    async def test_access_reviews_of_others(self):
        self.grant({'verbs': ['get'], 'apiGroups': [''],
                    'resources': ['pods']})
        pods = {'verb': 'get', 'resource': 'pods', 'namespace': 'default'}
        account = {'user': 'system:serviceaccount:default:bmc'}
        path = {'nonResourceAttributes': {'verb': 'get', 'path': '/api'}}
        for spec, allowed in (
                ({**account, 'resourceAttributes': pods}, True),
                ({**account, 'resourceAttributes': {
                    **pods, 'namespace': 'far'}}, False),
                ({'user': 'jane', 'resourceAttributes': pods}, False),
                # The user has no other groups than those given.
                ({**account, **path}, False),
                ({'groups': ['system:authenticated'], **path}, True)):
            self.assertIs(allowed, (await self.ask(
                'subjectaccessreviews', spec))['allowed'])
        await self.ask('subjectaccessreviews', {'resourceAttributes': pods},
                       422)
        await self.ask('subjectaccessreviews', account, 422)
        # Not every user may ask about others.
        await self.ask('subjectaccessreviews', {
            **account, 'resourceAttributes': pods}, 403, await self.token())

    async def test_impersonation(self):
        async def who(expect=201, token=self.server.token, **headers):
            answer = await self.call('POST', SELF_REVIEW, {}, expect, headers={
                'Authorization': 'Bearer ' + token,
                **{'Impersonate-' + k: v for k, v in headers.items()}})
            return answer['status']['userInfo'] if expect == 201 else None
        self.assertEqual(
            {'username': 'jane', 'groups': ['g', 'system:authenticated']},
            await who(User='jane', Group='g'))
        self.assertEqual(
            ['system:serviceaccounts', 'system:serviceaccounts:default',
             'system:authenticated'], (await who(
                 User='system:serviceaccount:default:bmc'))['groups'])
        await who(500, Group='g')
        token = await self.token()
        await who(403, token, User='jane')
        self.grant({'verbs': ['impersonate'], 'apiGroups': [''],
                    'resources': ['serviceaccounts']})
        await who(403, token, User='jane')
        await who(403, token, User='system:serviceaccount:default:x',
                  Group='system:masters')
        await who(201, token, User='system:serviceaccount:default:x')


class RoleTestCase(AccountTestCase):

    async def assert_422(self, path, body, *fields):
        answer = await self.call('POST', path, body, 422)
        self.assertEqual(list(fields), [
            c['field'] for c in answer['details']['causes']], answer)

    async def test_rejects_invalid_roles_and_bindings(self):
        def role(*rules):
            return {'metadata': {'name': 'r'}, 'rules': list(rules)}
        await self.assert_422(NS_RBAC + 'roles', role({'verbs': ['get']}),
                              'rules[0].apiGroups', 'rules[0].resources')
        await self.assert_422(NS_RBAC + 'roles', role(
            {'verbs': ['get'], 'nonResourceURLs': ['/x']}),
            'rules[0].nonResourceURLs')
        await self.assert_422(RBAC + 'clusterroles', role(
            {'apiGroups': [''], 'resources': ['pods']}), 'rules[0].verbs')
        await self.call('POST', NS_RBAC + 'roles', role('x'), 400)
        await self.assert_422(
            RBAC + 'clusterrolebindings', {
                'metadata': {'name': 'b'},
                'roleRef': {'kind': 'Role', 'name': 'r'}, 'subjects': [
                    {'kind': 'ServiceAccount', 'name': 'x'},
                    {'kind': 'Nobody', 'name': 'x'}]},
            'roleRef.kind', 'subjects[0].namespace', 'subjects[1].kind')
        await self.assert_422(NS_RBAC + 'rolebindings', {
            'metadata': {'name': 'a/b'}}, 'metadata.name')

    async def test_role_of_a_binding_is_immutable(self):
        made = await self.call('POST', NS_RBAC + 'rolebindings', {
            'metadata': {'name': 'b'},
            'roleRef': {'kind': 'Role', 'name': 'r'},
            'subjects': [{'kind': 'User', 'name': 'jane'}]}, 201)
        group = 'rbac.authorization.k8s.io'
        self.assertEqual((group, group), (
            made['roleRef']['apiGroup'], made['subjects'][0]['apiGroup']))
        made['roleRef']['name'] = 'other'
        answer = await self.call('PUT', NS_RBAC + 'rolebindings/b', made, 422)
        self.assertEqual(
            'RoleBinding.rbac.authorization.k8s.io "b" is invalid: roleRef: '
            'Invalid value: {"APIGroup":"rbac.authorization.k8s.io","Kind":'
            '"Role","Name":"other"}: cannot change roleRef',
            answer['message'])

    async def test_prevents_privilege_escalation(self):
        token = await self.token()
        self.grant({'verbs': ['get'], 'apiGroups': [''],
                    'resources': ['pods']},
                   {'verbs': ['*'], 'apiGroups': [
                       'rbac.authorization.k8s.io'], 'resources': [
                           'roles', 'rolebindings'], 'resourceNames': []})
        # "*" has the verbs escalate and bind in it.
        held = ['create', 'update', 'get']
        self.store.change(roles.ROLE, 'default', 'bmc', lambda obj:
                          obj['rules'][1].update(verbs=held))
        role = {'metadata': {'name': 'r'}, 'rules': [
            {'verbs': ['get'], 'apiGroups': [''], 'resources': ['pods']}]}
        made = await self.call_as(token, 'POST', NS_RBAC + 'roles', role, 201)
        made['rules'][0]['verbs'].append('delete')
        answer = await self.call_as(token, 'PUT', NS_RBAC + 'roles/r', made,
                                    403)
        self.assertEqual(
            'roles.rbac.authorization.k8s.io "r" is forbidden: user "system:'
            'serviceaccount:default:bmc" (groups=["system:serviceaccounts" '
            '"system:serviceaccounts:default" "system:authenticated"]) is '
            'attempting to grant RBAC permissions not currently held:\n'
            '{APIGroups:[""], Resources:["pods"], Verbs:["delete"]}',
            answer['message'])

        def binding(kind, name):
            return {'metadata': {'generateName': 'b-'},
                    'roleRef': {'kind': kind, 'name': name},
                    'subjects': [{'kind': 'User', 'name': 'jane'}]}
        for kind, name, code in (('Role', 'r', 201), ('Role', 'none', 404),
                                 ('ClusterRole', 'view', 403)):
            await self.call_as(token, 'POST', NS_RBAC + 'rolebindings',
                               binding(kind, name), code)
        self.grant({'verbs': ['bind'],
                    'apiGroups': ['rbac.authorization.k8s.io'],
                    'resources': ['clusterroles'],
                    'resourceNames': ['view']},
                   {'verbs': ['escalate'],
                    'apiGroups': ['rbac.authorization.k8s.io'],
                    'resources': ['roles']}, name='more')
        await self.call_as(token, 'POST', NS_RBAC + 'rolebindings',
                           binding('ClusterRole', 'view'), 201)
        await self.call_as(token, 'POST', NS_RBAC + 'rolebindings',
                           binding('ClusterRole', 'edit'), 403)
        await self.call_as(token, 'PUT', NS_RBAC + 'roles/r', made, 200)
