# SPDX-License-Identifier: Apache-2.0
"""Clients that list and watch see all changes, even if watches break."""
import asyncio
import json
import random

import aiohttp

from kubevirt_sandbox.api import core
from tests.unit.api import base

PATH = '/api/v1/namespaces/default/configmaps'


class Follower:
    """A client's copy of objects, kept up to date by list and watch."""

    def __init__(self, client, selector):
        self._client = client
        self._params = {'labelSelector': selector}
        self.state = {}
        self.connections = 0

    async def listed(self):
        async with self._client.get(PATH, params=self._params) as answer:
            body = await answer.json()
        return {o['metadata']['name']: o for o in body['items']}, body[
            'metadata']['resourceVersion']

    async def follow(self):
        self.state, version = await self.listed()
        while True:
            self.connections += 1
            try:
                async with self._client.get(PATH, params={
                        **self._params, 'watch': '1',
                        'resourceVersion': version}) as answer:
                    async for line in answer.content:
                        if line.endswith(b'\n'):
                            version = self.take(json.loads(line), version)
            except aiohttp.ClientError:
                pass

    def take(self, event, version):
        obj = event['object']
        name, new = obj['metadata']['name'], obj['metadata'][
            'resourceVersion']
        # Every change arrives once, and in order.
        assert int(new) > int(version), (event, version)
        assert (name in self.state) == (event['type'] != 'ADDED'), event
        if event['type'] == 'DELETED':
            del self.state[name]
        else:
            self.state[name] = obj
        return new


class ConsistencyTestCase(base.ServerTestCase):

    async def write(self, dice):
        name = f'c{dice.randrange(12)}'
        kind, label = core.CONFIG_MAP, {'l': dice.choice('xy')}
        if self.store.find(kind, 'default', name) is None:
            self.store.create(kind, {'metadata': {
                'name': name, 'namespace': 'default', 'labels': label}})
        elif dice.random() < 0.3:
            self.store.delete(kind, 'default', name)
        else:
            self.store.change(kind, 'default', name, lambda o: o.update(
                data={'n': str(dice.random())}, metadata={
                    **o['metadata'], 'labels': label}))
        if dice.random() < 0.2:
            await asyncio.sleep(0)

    async def test_clients_follow_all_changes_across_broken_watches(self):
        dice = random.Random(5)
        followers = [Follower(self.client, s) for s in ('', 'l=x', 'l!=x')]
        tasks = [asyncio.ensure_future(f.follow()) for f in followers]
        for _ in range(5):
            connections = sum(f.connections for f in followers)
            for _ in range(200):
                await self.write(dice)
            await self.eventually(lambda: len(self.server.watches) == 3)
            self.assertEqual(3, self.server.cut())
            await self.eventually(lambda: sum(
                f.connections for f in followers) >= connections + 3)
        for follower, task in zip(followers, tasks):
            wanted = (await follower.listed())[0]
            self.assertTrue(wanted)
            await self.eventually(
                lambda: task.done() or follower.state == wanted)
            self.assertFalse(task.done(), task)
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
