# SPDX-License-Identifier: Apache-2.0
"""Foreign objects with a needed name are watched while they conflict."""

import asyncio
from unittest import mock

from oslotest import base

from sushy_kubevirt.operator import cache
from sushy_kubevirt.operator import foreign_objects
from tests.unit.operator import cluster

KEY, OTHER = ('lab', 'a'), ('lab', 'b')
ONE, TWO = ('Role', 'lab', 'a-virtbmc'), ('Service', 'lab', 'a-virtbmc')


class StrangersTestCase(base.BaseTestCase):

    def run_with(self, story):
        kube = cluster.Cluster()
        for kind, namespace, name in ONE, TWO:
            kube.add({'kind': kind, 'spec': {}, 'metadata': {
                'namespace': namespace, 'name': name}})
        woken = []

        async def run():
            made = foreign_objects.ForeignObjects(
                kube, cache.Cache(kube), woken.extend)
            await story(made, kube, woken)
            made.close()
            self.assertEqual({}, made._tasks)
        asyncio.run(run())

    def test_no_longer_than_they_are_in_the_way(self):
        async def story(made, kube, woken):
            made.watch(KEY, [ONE, TWO])
            made.watch(OTHER, [ONE])
            self.assertEqual({(KEY, ONE), (KEY, TWO), (OTHER, ONE)},
                             set(made._tasks))
            task = made._tasks[KEY, ONE]
            made.watch(KEY, [TWO])
            await asyncio.wait({task}, timeout=10)
            self.assertTrue(task.cancelled())
            made.forget(KEY)
            self.assertEqual({(OTHER, ONE)}, set(made._tasks))
        self.run_with(story)

    def test_whoever_waits_is_woken(self):
        async def story(made, kube, woken):
            # One is gone while it is watched, one before.
            kube.remove(*TWO)
            made.watch(KEY, [ONE])
            made.watch(OTHER, [TWO])
            tasks = set(made._tasks.values())
            await asyncio.sleep(0)
            kube.remove(*ONE)
            await asyncio.wait(tasks, timeout=10)
            self.assertEqual({KEY, OTHER}, set(woken))
            self.assertEqual({}, made._tasks)
        self.run_with(story)

    def test_so_many(self):
        async def story(made, kube, woken):
            with mock.patch.object(foreign_objects, 'MOST', 1):
                made.watch(KEY, [ONE, TWO])
                self.assertEqual(1, len(made._tasks))
        self.run_with(story)
