# SPDX-License-Identifier: Apache-2.0
from tests.unit.api import base


class ListTestCase(base.ServerTestCase):

    options = {'length': 8}

    async def asyncSetUp(self):
        await super().asyncSetUp()
        for name in 'abcde':
            self.store.create(self.kind, base.make(
                name, colour='green' if name == 'b' else 'red'))

    async def names(self, **params):
        self.body = await self.call('GET', self.THINGS, expect=200,
                                    params=params)
        return [o['metadata']['name'] for o in self.body['items']]

    async def test_pages_show_one_resource_version(self):
        self.assertEqual(['a', 'b'], await self.names(limit='2'))
        meta = self.body['metadata']
        self.assertEqual(3, meta['remainingItemCount'])
        self.store.delete(self.kind, 'default', 'c')
        self.store.create(self.kind, base.make('bb'))
        self.assertEqual(['c', 'd'], await self.names(
            **{'limit': '2', 'continue': meta['continue']}))
        last = self.body['metadata']
        self.assertEqual(meta['resourceVersion'], last['resourceVersion'])
        self.assertEqual(['e'], await self.names(
            **{'limit': '2', 'continue': last['continue']}))
        self.assertNotIn('continue', self.body['metadata'])

    async def test_expired_continue_token_gets_410_and_new_token(self):
        await self.names(limit='2')
        token = self.body['metadata']['continue']
        for size in range(2, 12):
            self.store.change(self.kind, 'default', 'e',
                              lambda o, n=size: o['spec'].update(size=n))
        body = await self.call('GET', self.THINGS, expect=410, params={
            'limit': '2', 'continue': token})
        self.assertEqual('Expired', body['reason'])
        # The error contains a token for the rest of the list.
        self.assertEqual(['c', 'd', 'e'], await self.names(
            **{'continue': body['metadata']['continue']}))

    async def test_invalid_continue_tokens_get_400(self):
        for token in ('x', '!!!', 'e30', 'bnVsbA'):
            await self.call('GET', self.THINGS, expect=400,
                            params={'continue': token})

    async def test_field_selectors(self):
        self.assertEqual(['b'], await self.names(
            fieldSelector='spec.colour=green'))
        self.assertEqual(['b', 'c', 'd', 'e'], await self.names(
            fieldSelector='metadata.name!=a'))
        body = await self.call('GET', self.THINGS, expect=400,
                               params={'fieldSelector': 'spec.size=1'})
        self.assertEqual('field label not supported: spec.size',
                         body['message'])

    async def test_resource_version_match(self):
        now = self.store.version
        self.store.delete(self.kind, 'default', 'a')
        self.assertEqual(4, len(await self.names(
            resourceVersion=str(now), resourceVersionMatch='NotOlderThan')))
        self.assertEqual(5, len(await self.names(
            resourceVersion=str(now), resourceVersionMatch='Exact')))
        body = await self.call('GET', self.THINGS, expect=504, params={
            'resourceVersion': str(self.store.version + 100)})
        self.assertIn('Too large resource version', body['message'])
        await self.call('GET', self.THINGS, expect=400,
                        params={'resourceVersion': 'x'})
        await self.call('GET', self.THINGS, expect=422,
                        params={'resourceVersionMatch': 'Exact'})
