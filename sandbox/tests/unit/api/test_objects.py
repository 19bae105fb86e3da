# SPDX-License-Identifier: Apache-2.0
import json

from tests.unit.api import base


class ObjectTestCase(base.ServerTestCase):

    async def test_create_read_update_delete(self):
        made = await self.call('POST', self.THINGS, base.make(), 201)
        self.assertEqual('red', made['spec']['colour'])
        self.assertEqual(1, made['metadata']['generation'])
        made['spec']['size'] = 2
        changed = await self.call('PUT', self.THINGS + '/a', made, 200)
        self.assertEqual(2, changed['metadata']['generation'])
        self.assertEqual(
            changed, await self.call('GET', self.THINGS + '/a', expect=200))
        body = await self.call('PUT', self.THINGS + '/a', made, 409)
        self.assertIn('the object has been modified', body['message'])
        body = await self.call('DELETE', self.THINGS + '/a', expect=200)
        self.assertEqual(('Success', made['metadata']['uid']),
                         (body['status'], body['details']['uid']))
        await self.call('GET', self.THINGS + '/a', expect=404)

    async def test_put_of_custom_resource_needs_resource_version(self):
        self.store.create(self.kind, base.make())
        body = await self.call('PUT', self.THINGS + '/a', base.make(), 422)
        self.assertIn('metadata.resourceVersion', body['message'])
        path = '/api/v1/namespaces/default/configmaps'
        config = {'apiVersion': 'v1', 'kind': 'ConfigMap',
                  'metadata': {'name': 'x'}, 'data': {'a': 'b'}}
        await self.call('POST', path, config, 201)
        await self.call('PUT', path + '/x', config, 200)

    async def test_generate_name(self):
        body = base.make()
        del body['metadata']['name']
        body['metadata']['generateName'] = 'x-'
        made = await self.call('POST', self.THINGS, body, 201)
        self.assertRegex(made['metadata']['name'], '^x-[a-z0-9]{5}$')

    async def test_reports_every_field_that_violates_schema(self):
        body = await self.call('POST', self.THINGS,
                               base.make(size=0, colour='blue'), 422)
        self.assertEqual('Invalid', body['reason'])
        self.assertEqual({'spec.size', 'spec.colour'},
                         {c['field'] for c in body['details']['causes']})
        self.assertIn('Unsupported value: "blue": supported values: "red", '
                      '"green"', body['message'])

    async def test_unknown_fields_warn_or_fail_when_strict(self):
        made = await self.call('POST', self.THINGS, base.make(nix=1), 201)
        self.assertNotIn('nix', made['spec'])
        self.assertEqual('299 - "unknown field \\"spec.nix\\""',
                         self.answer.headers['Warning'])
        obj = base.make('m')
        obj['metadata'].update(nix=1, annotations={}, finalizers=[])
        made = await self.call('POST', self.THINGS, obj, 201)
        self.assertIn('metadata.nix', self.answer.headers['Warning'])
        self.assertFalse({'nix', 'annotations', 'finalizers'}
                         & made['metadata'].keys())
        path = self.THINGS + '?fieldValidation='
        body = await self.call('POST', path + 'Strict',
                               base.make('b', nix=1), 400)
        self.assertEqual(
            'Thing in version "v1" cannot be handled as a Thing: strict '
            'decoding error: unknown field "spec.nix"', body['message'])
        await self.call('POST', path + 'Ignore', base.make('b', nix=1), 201)
        self.assertNotIn('Warning', self.answer.headers)
        await self.call('POST', path + 'Nix', base.make('c'), 422)

    async def test_duplicate_fields_fail_when_strict(self):
        text = json.dumps(base.make()).replace(
            '"size": 1', '"size": 1, "size": 2')
        body = await self.call(
            'POST', self.THINGS + '?fieldValidation=Strict', text, 400)
        self.assertIn('duplicate field "size"', body['message'])

    async def test_dry_run_changes_nothing(self):
        made = await self.call('POST', self.THINGS + '?dryRun=All',
                               base.make(), 201)
        self.assertTrue(made['metadata']['uid'])
        await self.call('GET', self.THINGS + '/a', expect=404)
        self.store.create(self.kind, base.make())
        body = await self.call(
            'PATCH', self.THINGS + '/a?dryRun=All', {'spec': {'size': 9}},
            200, base.MERGE)
        self.assertEqual(9, body['spec']['size'])
        await self.call('DELETE', self.THINGS + '/a?dryRun=All', expect=200)
        self.assertEqual(1, self.store.get(
            self.kind, 'default', 'a')['spec']['size'])
        await self.call('DELETE', self.THINGS + '/a?dryRun=Some', expect=422)

    async def test_status_changes_through_its_subresource_only(self):
        made = await self.call(
            'POST', self.THINGS, {**base.make(), 'status': {'phase': 'x'}},
            201)
        self.assertNotIn('status', made)
        path = self.THINGS + '/a/status'
        body = await self.call(
            'PATCH', path, {'status': {'phase': 'On'}, 'spec': {'size': 7},
                            'metadata': {'labels': {'x': 'y'}}}, 200,
            base.MERGE)
        self.assertEqual(('On', 1, 1), (
            body['status']['phase'], body['spec']['size'],
            body['metadata']['generation']))
        self.assertNotIn('labels', body['metadata'])
        body = await self.call(
            'PATCH', self.THINGS + '/a', {'status': {'phase': 'Off'}}, 200,
            base.MERGE)
        self.assertEqual('On', body['status']['phase'])
        self.assertEqual('On', (await self.call(
            'GET', path, expect=200))['status']['phase'])
        await self.call('DELETE', path, expect=405)

    async def test_merge_and_json_patches(self):
        self.store.create(self.kind, base.make(free={'a': 1, 'b': 2}))
        path = self.THINGS + '/a'
        body = await self.call(
            'PATCH', path, {'spec': {'free': {'a': None, 'c': [1]}}}, 200,
            base.MERGE)
        self.assertEqual({'b': 2, 'c': [1]}, body['spec']['free'])
        body = await self.call('PATCH', path, [
            {'op': 'test', 'path': '/spec/size', 'value': 1},
            {'op': 'replace', 'path': '/spec/size', 'value': 3}], 200,
            base.JSON_PATCH)
        self.assertEqual(3, body['spec']['size'])
        for patch in ([{'op': 'test', 'path': '/spec/size', 'value': 1}],
                      [{'op': 'remove', 'path': '/spec/none'}]):
            body = await self.call('PATCH', path, patch, 422, base.JSON_PATCH)
            self.assertEqual('Invalid', body['reason'])
        for patch in {'op': 'test'}, [1]:
            await self.call('PATCH', path, patch, 400, base.JSON_PATCH)
        await self.call('PATCH', path, [
            {'op': 'add', 'path': '/spec/free/x', 'value': ['y' * 100]}, *[
                {'op': 'copy', 'from': '/spec/free/x', 'path':
                 '/spec/free/x/-'}] * 40], 413, base.JSON_PATCH)
        await self.call('PATCH', path, [1], 400, base.MERGE)
        await self.call('PATCH', path, {'metadata': None}, 400, base.MERGE)
        for wrong in ({'kind': 'Other'}, {'kind': {}}, {'apiVersion': 'v9'},
                      {'apiVersion': None}):
            await self.call('PATCH', path, wrong, 400, base.MERGE)
        await self.call('PATCH', path, {'metadata': {
            'resourceVersion': '1'}, 'spec': {'size': 5}}, 409, base.MERGE)
        await self.call('PATCH', self.THINGS + '/none', {}, 404, base.MERGE)

    async def test_patch_without_change_keeps_resource_version(self):
        made = self.store.create(self.kind, base.make())
        body = await self.call('PATCH', self.THINGS + '/a',
                               {'spec': {'size': 1}}, 200, base.MERGE)
        self.assertEqual(made['metadata'], body['metadata'])

    async def test_finalizer_delays_deletion(self):
        obj = base.make()
        obj['metadata']['finalizers'] = ['example.test/f']
        await self.call('POST', self.THINGS, obj, 201)
        body = await self.call('DELETE', self.THINGS + '/a', expect=200)
        self.assertEqual('Thing', body['kind'])
        self.assertIn('deletionTimestamp', body['metadata'])
        body = await self.call(
            'PATCH', self.THINGS + '/a', {'metadata': {'finalizers': [
                'example.test/f', 'example.test/g']}}, 422, base.MERGE)
        self.assertIn('no new finalizers can be added', body['message'])
        await self.call('PATCH', self.THINGS + '/a',
                        {'metadata': {'finalizers': None}}, 200, base.MERGE)
        await self.call('GET', self.THINGS + '/a', expect=404)

    async def test_delete_options(self):
        self.store.create(self.kind, base.make())
        for options in ([], {'preconditions': []}, {'dryRun': 'All'},
                        {'preconditions': {'uid': 1}},
                        {'gracePeriodSeconds': 'x'},
                        {'gracePeriodSeconds': -1}):
            await self.call('DELETE', self.THINGS + '/a', options, 400)
        await self.call('DELETE', self.THINGS + '/a', {
            'propagationPolicy': 'Nix'}, 422)
        await self.call('DELETE', self.THINGS + '/a', {
            'propagationPolicy': None, 'gracePeriodSeconds': 0}, 200)

    async def test_delete_preconditions(self):
        made = self.store.create(self.kind, base.make())
        body = await self.call('DELETE', self.THINGS + '/a', {
            'preconditions': {'uid': 'x'}}, 409)
        self.assertIn('Precondition failed: UID', body['message'])
        await self.call('DELETE', self.THINGS + '/a', {'preconditions': {
            'resourceVersion': made['metadata']['resourceVersion']}}, 200)

    async def test_foreign_uid_is_rejected(self):
        path = self.THINGS + '/a'
        whole = {**base.make(), 'metadata': {
            **base.make()['metadata'], 'uid': 'x'}}
        body = await self.call('PATCH', path + '?fieldManager=m', whole, 409,
                               base.APPLY)
        self.assertIn('no existing object was found', body['message'])
        self.store.create(self.kind, base.make())
        for media, what in ((base.MERGE, {'metadata': {'uid': 'x'}}),
                            (base.APPLY, whole)):
            body = await self.call(
                'PATCH', path + '?fieldManager=m&force=true', what, 422,
                media)
            self.assertIn('metadata.uid: Invalid value: "x": field is '
                          'immutable', body['message'])
        there = self.store.get(self.kind, 'default', 'a')
        body = await self.call('PUT', path, {**there, 'metadata': {
            **there['metadata'], 'uid': 'x'}}, 409)
        self.assertIn('Precondition failed: UID', body['message'])

    async def test_delete_collection(self):
        for name in 'abc':
            obj = base.make(name)
            obj['metadata']['labels'] = {'x': name}
            self.store.create(self.kind, obj)
        body = await self.call('DELETE', self.THINGS, expect=200,
                               params={'labelSelector': 'x in (a, b)'})
        self.assertEqual(2, len(body['items']))
        self.assertEqual(['c'], [o['metadata']['name'] for o in
                                 self.store.list(self.kind)])

    async def test_tables(self):
        self.store.create(self.kind, base.make(size=7))
        body = await self.call('GET', self.THINGS, expect=200,
                               headers={'Accept': base.TABLE})
        self.assertEqual(['Name', 'Size'], [
            c['name'] for c in body['columnDefinitions']])
        self.assertEqual(['a', 7], body['rows'][0]['cells'])
        self.assertEqual('PartialObjectMetadata',
                         body['rows'][0]['object']['kind'])
        body = await self.call(
            'GET', self.THINGS + '/a?includeObject=Object', expect=200,
            headers={'Accept': base.TABLE})
        self.assertEqual(7, body['rows'][0]['object']['spec']['size'])

    async def test_partial_object_metadata(self):
        self.store.create(self.kind, base.make())
        body = await self.call('GET', self.THINGS, expect=200, headers={
            'Accept': 'application/json;as=PartialObjectMetadataList;'
            'g=meta.k8s.io;v=v1'})
        self.assertEqual('PartialObjectMetadataList', body['kind'])
        self.assertNotIn('spec', body['items'][0])
