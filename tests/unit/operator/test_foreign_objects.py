# SPDX-License-Identifier: Apache-2.0
"""Foreign objects with a needed name are watched while they conflict."""

import asyncio
from unittest import mock

from oslotest import base

from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import command_line
from sushy_kubevirt.operator import foreign_objects
from sushy_kubevirt.operator import store
from tests.unit.operator import cluster

KEY, OTHER = ('lab', 'a'), ('lab', 'b')
ONE, TWO = (bmc_resources.ObjectRef(kind, 'lab', 'a-virtbmc')
            for kind in ('Role', 'Service'))


class ForeignObjectsTestCase(base.BaseTestCase):

    def run_with(self, scenario):
        kube = cluster.Cluster()
        for kind, namespace, name in ONE, TWO:
            kube.add({'kind': kind, 'spec': {}, 'metadata': {
                'namespace': namespace, 'name': name}})
        woken = []

        async def run():
            watcher = foreign_objects.ForeignObjects(
                kube, store.Store(kube, command_line.Options()),
                woken.extend)
            await scenario(watcher, kube, woken)
            watcher.close()
            self.assertEqual({}, watcher._tasks)
        asyncio.run(run())

    def test_watches_while_objects_conflict(self):
        async def scenario(watcher, kube, woken):
            watcher.watch(KEY, [ONE, TWO])
            watcher.watch(OTHER, [ONE])
            self.assertEqual({(KEY, ONE), (KEY, TWO), (OTHER, ONE)},
                             set(watcher._tasks))
            task = watcher._tasks[KEY, ONE]
            watcher.watch(KEY, [TWO])
            await asyncio.wait({task}, timeout=10)
            self.assertTrue(task.cancelled())
            watcher.forget(KEY)
            self.assertEqual({(OTHER, ONE)}, set(watcher._tasks))
        self.run_with(scenario)

    def test_deletion_wakes_waiting_bmcs(self):
        async def scenario(watcher, kube, woken):
            # ONE is deleted while it is watched, TWO before.
            kube.remove(*TWO)
            watcher.watch(KEY, [ONE])
            watcher.watch(OTHER, [TWO])
            tasks = set(watcher._tasks.values())
            await asyncio.sleep(0)
            kube.remove(*ONE)
            await asyncio.wait(tasks, timeout=10)
            self.assertEqual({KEY, OTHER}, set(woken))
            self.assertEqual({}, watcher._tasks)
        self.run_with(scenario)

    def test_number_of_watches_is_limited(self):
        async def scenario(watcher, kube, woken):
            with mock.patch.object(foreign_objects, 'MAX_WATCHES', 1):
                watcher.watch(KEY, [ONE, TWO])
                self.assertEqual(1, len(watcher._tasks))
        self.run_with(scenario)
