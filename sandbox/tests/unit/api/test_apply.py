# SPDX-License-Identifier: Apache-2.0
from tests.unit.api import base


class ApplyTestCase(base.ServerTestCase):

    def config(self, **spec):
        return {'apiVersion': 'example.test/v1', 'kind': 'Thing',
                'metadata': {'name': 'a'}, 'spec': spec}

    async def apply(self, manager, config, expect, **params):
        return await self.call(
            'PATCH', self.THINGS + '/a', config, expect, base.APPLY,
            params={'fieldManager': manager, **params})

    async def test_creates_object_and_reports_conflicts(self):
        made = await self.apply('one', self.config(size=1), 201)
        self.assertEqual('red', made['spec']['colour'])
        body = await self.apply('two', self.config(size=2), 409)
        self.assertEqual(
            'Apply failed with 1 conflict: conflict with "one": .spec.size',
            body['message'])
        self.assertEqual([{
            'reason': 'FieldManagerConflict', 'field': '.spec.size',
            'message': 'conflict with "one"'}], body['details']['causes'])
        body = await self.apply('two', self.config(size=2), 200,
                                force='true')
        self.assertEqual(2, body['spec']['size'])
        self.assertEqual({'two'}, {
            m['manager'] for m in body['metadata']['managedFields']})

    async def test_repeated_apply_changes_nothing(self):
        first = await self.apply('one', self.config(size=1), 201)
        again = await self.apply('one', self.config(size=1), 200)
        self.assertEqual(first, again)

    async def test_rejects_invalid_configurations(self):
        body = await self.call('PATCH', self.THINGS + '/a',
                               self.config(size=1), 422, base.APPLY)
        self.assertIn('fieldManager: Required value', body['message'])
        wrong = self.config(size=1)
        wrong['metadata']['managedFields'] = []
        body = await self.apply('one', wrong, 400)
        self.assertIn('must be nil', body['message'])
        await self.apply('one', self.config(size='x'), 422)
        await self.apply('one', {'metadata': {'name': 'a'}}, 400)

    async def test_accepts_yaml(self):
        await self.apply('one', 'apiVersion: example.test/v1\nkind: Thing\n'
                         'metadata: {name: a}\nspec: {size: 4}\n', 201)

    async def test_unknown_fields_fail(self):
        what = ('failed to create typed patch object (default/a; '
                'example.test/v1, Kind=Thing): ')
        for mode in 'Strict', 'Warn', 'Ignore':
            body = await self.apply('one', self.config(size=1, nix=1), 500,
                                    fieldValidation=mode)
            self.assertEqual(
                what + '.spec.nix: field not declared in schema',
                body['message'])
            self.assertNotIn('reason', body)
        body = await self.apply(
            'one', {**self.config(nix=1, more=2), 'nothing': 1}, 500)
        self.assertEqual(
            what + 'errors:\n  .spec.nix: field not declared in schema\n'
            '  .nothing: field not declared in schema', body['message'])

    async def test_status_fields_have_their_own_manager_entry(self):
        await self.apply('one', self.config(size=1), 201)
        body = await self.call(
            'PATCH', self.THINGS + '/a/status', {
                **self.config(), 'status': {'phase': 'On'}}, 200, base.APPLY,
            params={'fieldManager': 'status'})
        self.assertEqual((1, 'On'), (body['spec']['size'],
                                     body['status']['phase']))
        entry = [m for m in body['metadata']['managedFields']
                 if m['manager'] == 'status'][0]
        self.assertEqual(('status', {'f:status': {'f:phase': {}}}),
                         (entry['subresource'], entry['fieldsV1']))
