# SPDX-License-Identifier: Apache-2.0
from tests.unit.api import base


class DiscoveryTestCase(base.ServerTestCase):

    async def test_groups_and_resources(self):
        body = await self.call('GET', '/apis', expect=200)
        groups = {g['name']: g for g in body['groups']}
        self.assertEqual('v1', groups['example.test'][
            'preferredVersion']['version'])
        self.assertIn('apiextensions.k8s.io', groups)
        body = await self.call('GET', '/apis/example.test/v1', expect=200)
        entries = {r['name']: r for r in body['resources']}
        self.assertEqual({'things', 'things/status'}, entries.keys())
        self.assertEqual(['th'], entries['things']['shortNames'])
        body = await self.call('GET', '/api', expect=200)
        self.assertEqual(['v1'], body['versions'])
        await self.call('GET', '/apis/example.test', expect=200)

    async def test_aggregated_discovery(self):
        accept = 'application/json;g=apidiscovery.k8s.io;v=v2;' \
            'as=APIGroupDiscoveryList,application/json'
        body = await self.call('GET', '/apis', expect=200,
                               headers={'Accept': accept})
        self.assertEqual('APIGroupDiscoveryList', body['kind'])
        self.assertIn('as=APIGroupDiscoveryList',
                      self.answer.headers['Content-Type'])
        mine = [i for i in body['items']
                if i['metadata']['name'] == 'example.test'][0]
        self.assertEqual('status', mine['versions'][0]['resources'][0][
            'subresources'][0]['subresource'])
        mark = self.answer.headers['ETag']
        await self.call('GET', '/apis', expect=304, headers={
            'Accept': accept, 'If-None-Match': mark})

    async def test_openapi_documents(self):
        body = await self.call('GET', '/openapi/v3', expect=200)
        url = body['paths']['apis/example.test/v1']['serverRelativeURL']
        body = await self.call('GET', url, expect=200)
        schema = body['components']['schemas']['test.example.v1.Thing']
        self.assertEqual(
            [{'group': 'example.test', 'kind': 'Thing', 'version': 'v1'}],
            schema['x-kubernetes-group-version-kind'])
        patch = body['paths'][
            '/apis/example.test/v1/namespaces/{namespace}/things/{name}'][
                'patch']
        self.assertIn('fieldValidation',
                      [p['name'] for p in patch['parameters']])
        await self.call('GET', '/openapi/v2', expect=406)
        await self.call('GET', '/openapi/v3/apis/none/v1', expect=404)
        for dot in '.@':
            async with self.client.get('/openapi/v2', headers={
                    'Accept': 'application/com.github.proto-openapi.spec.v2'
                    f'{dot}v1.0+protobuf'}) as answer:
                raw = await answer.read()
            # Field 1 of the document, then its operations.
            self.assertEqual(b'\x0a\x032.0', raw[:5])
            self.assertIn(b'"group": "example.test"', raw)
            self.assertIn(b'fieldValidation', raw)


class SubresourceTestCase(base.ServerTestCase):

    async def asyncSetUp(self):
        await super().asyncSetUp()
        self.seen = []

        async def start(request):
            self.seen.append(request)
            return (202, None) if not request.path else (
                200, {'path': request.path})
        self.server.register_subresource(
            'sub.example.test', 'v1', 'things', 'start', start,
            kind='Thing')

    PATH = '/apis/sub.example.test/v1/namespaces/default/things/a/start'

    async def test_handler_gets_body_user_and_path(self):
        await self.call('PUT', self.PATH, {'x': 1}, 202)
        await self.call('PUT', self.PATH, expect=202)
        self.assertEqual([{'x': 1}, {}], [r.body for r in self.seen])
        request = self.seen[0]
        self.assertEqual(('default', 'a', 'kubernetes-admin'), (
            request.namespace, request.name, request.user))
        body = await self.call('PUT', self.PATH + '/22', expect=200)
        self.assertEqual({'path': '22'}, body)

    async def test_rejects_wrong_methods_and_bodies(self):
        await self.call('GET', self.PATH, expect=405)
        await self.call('PUT', self.PATH, '[', 400)
        await self.call('PUT', self.PATH, '[]', 400)
        await self.call('PUT', self.PATH + 'x', expect=404)

    async def test_discovery_lists_subresource(self):
        body = await self.call('GET', '/apis/sub.example.test/v1',
                               expect=200)
        self.assertEqual([{
            'name': 'things/start', 'singularName': '', 'namespaced': True,
            'kind': 'Thing', 'verbs': ['update']}], body['resources'])
