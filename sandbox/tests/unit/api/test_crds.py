# SPDX-License-Identifier: Apache-2.0
import asyncio

from kubevirt_sandbox.api import crds
from tests.unit.api import base

CRDS = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions'
BOATS = '/apis/sea.test/v1/namespaces/default/boats'


def boats():
    def version(name, storage):
        return {'name': name, 'served': True, 'storage': storage,
                'subresources': {'status': {}},
                'additionalPrinterColumns': [{
                    'name': 'Mast', 'type': 'integer',
                    'jsonPath': '.spec.masts'}],
                'schema': {'openAPIV3Schema': {
                    'type': 'object', 'properties': {
                        'spec': {'type': 'object', 'properties': {
                            'masts': {'type': 'integer', 'maximum': 4}}},
                        'status': {'type': 'object',
                                   'x-kubernetes-preserve-unknown-fields':
                                       True}}}}}
    return {'apiVersion': 'apiextensions.k8s.io/v1',
            'kind': 'CustomResourceDefinition',
            'metadata': {'name': 'boats.sea.test'},
            'spec': {'group': 'sea.test', 'scope': 'Namespaced',
                     'names': {'plural': 'boats', 'kind': 'Boat'},
                     'versions': [version('v1beta1', False),
                                  version('v1', True)]}}


def boat(masts=1, version='v1', name='a'):
    return {'apiVersion': f'sea.test/{version}', 'kind': 'Boat',
            'metadata': {'name': name}, 'spec': {'masts': masts}}


class DefinitionTestCase(base.ServerTestCase):

    async def test_registered_kinds_have_definitions(self):
        body = await self.call('GET', f'{CRDS}/things.example.test',
                               expect=200)
        self.assertEqual(
            {'plural': 'things', 'singular': 'thing', 'kind': 'Thing',
             'listKind': 'ThingList', 'shortNames': ['th']},
            body['spec']['names'])
        self.assertIn('Established',
                      [c['type'] for c in body['status']['conditions']])
        self.assertEqual('integer', body['spec']['versions'][0]['schema'][
            'openAPIV3Schema']['properties']['spec']['properties']['size'][
                'type'])

    async def test_new_definition_is_served_at_once(self):
        await self.call('GET', BOATS, expect=404)
        made = await self.call('POST', CRDS, boats(), 201)
        self.assertEqual('BoatList', made['spec']['names']['listKind'])
        body = await self.call('GET', f'{CRDS}/boats.sea.test', expect=200)
        self.assertEqual({'NamesAccepted': 'True', 'Established': 'True'}, {
            c['type']: c['status'] for c in body['status']['conditions']})
        self.assertEqual(['customresourcecleanup.apiextensions.k8s.io'],
                         body['metadata']['finalizers'])
        await self.call('POST', BOATS, boat(2), 201)
        await self.call('POST', BOATS, boat(9, name='b'), 422)
        body = await self.call('GET', BOATS, expect=200, headers={
            'Accept': 'application/json;as=Table;v=v1;g=meta.k8s.io'})
        self.assertEqual([['a', 2]], [r['cells'] for r in body['rows']])
        body = await self.call('GET', '/apis/sea.test', expect=200)
        self.assertEqual('v1', body['preferredVersion']['version'])

    async def test_versions_are_views_of_one_object(self):
        await self.call('POST', CRDS, boats(), 201)
        beta = BOATS.replace('/v1/', '/v1beta1/')
        made = await self.call('POST', beta, boat(version='v1beta1'), 201)
        self.assertEqual('sea.test/v1beta1', made['apiVersion'])
        body = await self.call('GET', BOATS + '/a', expect=200)
        self.assertEqual('sea.test/v1', body['apiVersion'])
        body = await self.call('PATCH', beta + '/a', {
            'spec': {'masts': 3}}, 200, 'application/merge-patch+json')
        self.assertEqual(('sea.test/v1beta1', 3), (
            body['apiVersion'], body['spec']['masts']))
        body = await self.call('GET', beta, expect=200)
        self.assertEqual(['sea.test/v1beta1'], [
            i['apiVersion'] for i in body['items']])
        events = await self.watch(beta, lambda e: True)
        self.assertEqual('sea.test/v1beta1',
                         events[0]['object']['apiVersion'])

    async def test_deletion_waits_for_its_objects(self):
        await self.call('POST', CRDS, boats(), 201)
        obj = boat()
        obj['metadata']['finalizers'] = ['sea.test/f']
        await self.call('POST', BOATS, obj, 201)
        await self.call('DELETE', f'{CRDS}/boats.sea.test', expect=200)
        await self.call('GET', BOATS + '/a', expect=200)
        await self.call('PATCH', BOATS + '/a', {'metadata': {
            'finalizers': None}}, 200, 'application/merge-patch+json')
        await self.eventually(lambda: self.store.find(
            crds.CRD, '', 'boats.sea.test') is None)
        await self.call('GET', BOATS, expect=404)
        await self.call('POST', CRDS, boats(), 201)
        body = await self.call('GET', BOATS, expect=200)
        self.assertEqual([], body['items'])

    async def test_watches_end_with_their_definition(self):
        await self.call('POST', CRDS, boats(), 201)
        watching = asyncio.create_task(self.watch(BOATS, lambda event: False))
        await self.eventually(lambda: self.server.watches)
        await self.call('DELETE', f'{CRDS}/boats.sea.test', expect=200)
        self.assertEqual([], await watching)

    async def test_rejects_invalid_definitions(self):
        for change in (
                lambda b: b['metadata'].update(name='x.y'),
                lambda b: b['spec'].update(scope='None'),
                lambda b: b['spec'].update(versions=[]),
                lambda b: b['spec']['versions'][1].update(storage=False),
                lambda b: b['spec']['versions'][1].pop('schema'),
                lambda b: b['spec']['versions'][0]['schema'][
                    'openAPIV3Schema'].update(properties=[]),
                lambda b: b['spec']['versions'][0]['schema'][
                    'openAPIV3Schema']['properties'].update(
                        spec={'type': 'nix'}),
                lambda b: b['spec'].pop('names'),
                lambda b: b.pop('spec')):
            body = boats()
            change(body)
            await self.call('POST', CRDS, body)
            self.assertIn(self.answer.status, (400, 422))
