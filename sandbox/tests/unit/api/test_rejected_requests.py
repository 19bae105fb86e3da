# SPDX-License-Identifier: Apache-2.0
import json

from kubevirt_sandbox.api import bodies
from tests.unit.api import base


class RejectedRequestTestCase(base.ServerTestCase):

    async def test_unknown_paths_get_404(self):
        for path in ('/nothing', '/apis/nothing/v1', '/api/v2',
                     '/apis/example.test/v1/nothing',
                     '/apis/example.test/v1/things/a',
                     self.THINGS + '/a/nothing'):
            body = await self.call('GET', path, expect=404)
            self.assertEqual('the server could not find the requested '
                             'resource', body['message'])

    async def test_unsupported_methods_get_405(self):
        await self.call('POST', self.THINGS + '/a', {}, 405)
        await self.call('PUT', self.THINGS, {}, 405)
        await self.call('POST', '/apis/example.test/v1/things', {}, 405)
        await self.call('POST', '/apis', {}, 405)
        await self.call('OPTIONS', self.THINGS, expect=405)

    async def test_head_has_no_body(self):
        async with self.client.head(self.THINGS) as answer:
            self.assertEqual(200, answer.status)
            self.assertEqual(b'', await answer.read())

    async def test_accept_header(self):
        await self.call('GET', self.THINGS, expect=406,
                        headers={'Accept': 'text/html'})
        await self.call('GET', self.THINGS, expect=406, headers={
            'Accept': 'application/vnd.kubernetes.protobuf'})
        await self.call('GET', self.THINGS, expect=200, headers={
            'Accept': 'application/vnd.kubernetes.protobuf, */*;q=0.1'})
        await self.call('GET', self.THINGS, expect=200, headers={
            'Accept': 'application/yaml'})
        self.assertEqual('application/yaml', self.answer.content_type)

    async def test_unacceptable_response_type_prevents_write(self):
        await self.call('POST', self.THINGS, base.make(), 406,
                        headers={'Accept': 'text/html'})
        self.assertEqual([], self.store.list(self.kind))

    async def test_unsupported_content_types_get_415(self):
        await self.call('POST', self.THINGS, 'x', 415, 'text/plain')
        self.store.create(self.kind, base.make())
        body = await self.call('PATCH', self.THINGS + '/a', '{}', 415,
                               'application/json')
        self.assertIn(base.MERGE, body['message'])
        # Custom resources take no strategic merge patches.
        await self.call('PATCH', self.THINGS + '/a', '{}', 415,
                        'application/strategic-merge-patch+json')

    async def test_bodies_that_are_no_objects_get_400(self):
        for body in ('{', '[]', '"x"', 'null', '', '{"a":NaN}',
                     '[' * 5000, '{"apiVersion":"example.test/v1"}',
                     '{"apiVersion":"example.test/v1","kind":"Thing",'
                     '"metadata":[]}'):
            for media in ('application/json', 'application/yaml'):
                answer = await self.call('POST', self.THINGS, body, 400,
                                         media)
                self.assertEqual('BadRequest', answer['reason'], body)

    async def test_yaml_aliases_get_400(self):
        text = 'a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]'
        body = await self.call('POST', self.THINGS, text, 400,
                               'application/yaml')
        self.assertIn('aliases', body['message'])

    async def test_large_body_gets_413(self):
        answer = await self.call('POST', self.THINGS,
                                 b'"' + b'x' * bodies.LIMIT + b'"', 413)
        self.assertEqual('RequestEntityTooLarge', answer['reason'])

    async def test_kind_name_and_namespace_must_match_path(self):
        wrong = {**base.make(), 'kind': 'Other'}
        await self.call('POST', self.THINGS, wrong, 400)
        wrong = base.make()
        wrong['metadata']['namespace'] = 'other'
        body = await self.call('POST', self.THINGS, wrong, 400)
        self.assertIn('does not match the namespace', body['message'])
        self.store.create(self.kind, base.make())
        body = await self.call('PUT', self.THINGS + '/a', base.make('b'),
                               400)
        self.assertEqual(
            'the name of the object (b) does not match the name on the URL '
            '(a)', body['message'])

    async def test_not_found_and_already_exists_statuses(self):
        body = await self.call('GET', self.THINGS + '/a', expect=404)
        self.assertEqual(
            {'kind': 'Status', 'apiVersion': 'v1', 'metadata': {},
             'status': 'Failure', 'message':
                 'things.example.test "a" not found', 'reason': 'NotFound',
             'details': {'name': 'a', 'group': 'example.test',
                         'kind': 'things'}, 'code': 404}, body)
        await self.call('POST', self.THINGS, base.make(), 201)
        body = await self.call('POST', self.THINGS, base.make(), 409)
        self.assertEqual('AlreadyExists', body['reason'])

    async def test_missing_namespace_gets_404(self):
        body = await self.call(
            'POST', '/api/v1/namespaces/none/configmaps',
            {'apiVersion': 'v1', 'kind': 'ConfigMap',
             'metadata': {'name': 'x'}}, 404)
        self.assertEqual('namespaces "none" not found', body['message'])

    async def test_exception_gets_status_500(self):
        def bug(admission):
            raise RuntimeError('secret')
        self.kind.validate = bug
        with self.assertLogs('kubevirt_sandbox.api.server'):
            body = await self.call('POST', self.THINGS, base.make(), 500)
        self.assertNotIn('secret', json.dumps(body))
