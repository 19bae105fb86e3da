# SPDX-License-Identifier: Apache-2.0
import asyncio

from oslotest import base

from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import informer
from tests.unit.operator import cluster


def service(name, namespace='lab', **more):
    return {'apiVersion': 'v1', 'kind': 'Service', 'metadata': {
        'name': name, 'namespace': namespace, **more}, 'spec': {}}


class InformerTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.kube = cluster.Cluster()
        self.changed = []

    def run_with(self, check, **more):
        """Run an informer until a coroutine has ended."""
        async def run():
            found = informer.Informer(
                self.kube, bmc_resources.SERVICE, (None,),
                self.changed.append, **more)
            task = asyncio.create_task(found.run())
            await asyncio.wait_for(found.listed.wait(), 10)
            try:
                await check(found)
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        asyncio.run(run())

    async def until(self, condition):
        for _ in range(500):
            if condition():
                return
            await asyncio.sleep(0.01)
        self.fail('timed out')

    def test_follows_the_cluster(self):
        self.kube.add(service('a', managedFields=[{}]))

        async def check(found):
            self.assertEqual([('lab', 'a')], found.keys())
            self.assertNotIn('managedFields',
                             found.get(('lab', 'a'))['metadata'])
            self.kube.add(service('b'))
            await self.until(lambda: found.get(('lab', 'b')))
            self.kube.remove('Service', 'lab', 'a')
            await self.until(lambda: not found.get(('lab', 'a')))
            self.assertEqual([('lab', 'a'), ('lab', 'b'), ('lab', 'a')],
                             self.changed)
        self.run_with(check)

    def test_answer_of_a_request_is_not_reverted(self):
        self.kube.add(service('a'))

        async def check(found):
            held = found.get(('lab', 'a'))
            newer = {**held, 'metadata': {
                **held['metadata'], 'resourceVersion': '999', 'labels': {}}}
            found.put(newer)
            found.put(held)
            self.assertEqual('999', found.get(('lab', 'a'))['metadata'][
                'resourceVersion'])
            found.drop(('lab', 'a'))
            found.drop(('lab', 'a'))
            self.assertEqual(3, len(self.changed))
        self.run_with(check)
