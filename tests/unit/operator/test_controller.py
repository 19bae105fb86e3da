# SPDX-License-Identifier: Apache-2.0
"""Every event enqueues the BMCs that it concerns."""

import asyncio

from oslotest import base

from sushy_kubevirt.operator import api
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import command_line
from sushy_kubevirt.operator import controller
from sushy_kubevirt.operator import metrics
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import pki
from sushy_kubevirt.operator import secret_summary
from tests.unit.operator import bodies
from tests.unit.operator import cluster
from tests.unit.operator import test_reconcile as stories

KEY = stories.KEY


class ControllerTestCase(base.BaseTestCase):

    def run_story(self, story, there=None, **said):
        there = there or stories.begun(bodies.body())

        async def run():
            work = controller.Controller(command_line.Options(
                system_namespace='system', **said), there, metrics.Metrics())
            await work.start()
            try:
                await asyncio.wait_for(work.listed.wait(), 30)
                self.assertIsNone(work.problem())
                await asyncio.wait_for(story(there, work), 30)
            finally:
                await work.close()
        # What a task ends with is only said in the log.
        with self.assertNoLogs('sushy_kubevirt', 'ERROR'):
            asyncio.run(run())

    async def until(self, what):
        while not what():
            await asyncio.sleep(0.005)

    async def ready(self, there, work, name='node', reason='ServiceReady'):
        def is_ready():
            status = there.objects['VirtualMachineBMC', 'lab', name].get(
                'status')
            return status and stories.conditions(there, name)[
                'Ready'][1] == reason and not work._queue._working
        await self.until(is_ready)

    def test_life_of_a_bmc(self):
        async def story(there, work):
            await self.ready(there, work)
            for kind, name in (('Deployment', 'node-virtbmc'),
                               ('Secret', 'node-virtbmc-auth'),
                               ('ConfigMap', 'node-virtbmc-ca')):
                uid = there.objects[kind, 'lab', name]['metadata']['uid']
                there.remove(kind, 'lab', name)
                await self.until(lambda: there.objects.get(
                    (kind, 'lab', name), {'metadata': {'uid': uid}})[
                        'metadata']['uid'] != uid)
            await self.ready(there, work)
            there.remove('VirtualMachine', 'lab', 'vm')
            await self.ready(there, work, reason='VirtualMachineNotFound')
            there.add(cluster.vm())
            await self.ready(there, work)
            there.remove('VirtualMachineBMC', *KEY)
            await self.until(lambda: not work._cache.bmcs())
            await self.until(lambda: not work._queue._working)
            self.assertEqual([], there.of('Deployment'))
            # Nothing is kept of one that is gone.
            for kept in (work._cache._users, work._cache._refs,
                         work._reasons, work._reconciler._tried,
                         work._queue._failures, work._queue._timers,
                         work._rollout._waiting):
                self.assertEqual({}, kept)
            self.assertEqual([], work._cache.objects.names(bmc_resources.BMC))
            self.assertLessEqual(set(work._cache.secrets._summaries),
                                 {('lab', 'vm-bmc-state')})
        self.run_story(story)

    def without_its_finalizer(self, there):
        """A user deletes a BMC after removing its finalizer."""
        there.objects['VirtualMachineBMC', *KEY]['metadata'].pop('finalizers')
        there.remove('VirtualMachineBMC', *KEY)

    def rights(self, there):
        return [one['metadata']['namespace'] for kind in (
            'Role', 'RoleBinding') for one in there.of(kind)]

    def test_rights_elsewhere_of_a_bmc_without_its_finalizer(self):
        async def story(there, work):
            await self.ready(there, work)
            self.assertEqual(['far', 'far'], self.rights(there))
            self.without_its_finalizer(there)
            await self.until(lambda: not self.rights(there))
            # Another of its name, before it is noticed.
            for _ in range(2):
                body = bodies.elsewhere()
                body['metadata']['uid'] = 'second'
                there.add(body)
                await self.ready(there, work)
                self.without_its_finalizer(there)
                there.add(bodies.body())
                await self.until(lambda: self.rights(there) == [
                    'lab', 'lab'])
                await self.ready(there, work)
                there.remove('VirtualMachineBMC', *KEY)
                await self.until(lambda: not work._cache.bmcs())
        self.run_story(story, stories.begun(bodies.elsewhere()))

    def test_rights_elsewhere_while_nobody_worked(self):
        there = stories.begun(bodies.elsewhere())
        stories.Operator(there).run()
        self.without_its_finalizer(there)
        self.assertEqual(['far', 'far'], self.rights(there))

        async def not_ours(there, work):
            await asyncio.sleep(0.1)
            self.assertEqual(['far', 'far'], self.rights(there))

        async def gone(there, work):
            await self.until(lambda: not self.rights(there))
        # Its BMC might be there: those of its namespace are not known.
        self.run_story(not_ours, there, namespaces=('far',))
        self.run_story(gone, there)

    def test_a_label_is_taken_away(self):
        async def story(there, work):
            await self.ready(there, work)

            def strip(obj):
                del obj['metadata']['labels'][naming.MANAGED_BY]
            there.change('Role', 'lab', 'node-virtbmc', strip)
            await self.until(lambda: naming.made_by_us(
                there.objects['Role', 'lab', 'node-virtbmc']))
        self.run_story(story)

    def test_one_that_names_no_vm(self):
        # KubeVirtBMC's definition let people store such.
        for given in ({}, {'virtualMachineRef': {}},
                      {'virtualMachineRef': {'name': ''}}):
            there = stories.begun(bodies.body())
            odd = bodies.body('odd')
            odd['metadata']['uid'] = 'odd'
            odd['spec'] = {'authSecretRef': {'name': ''}, **given}
            there.add(odd)

            async def story(there, work):
                await self.ready(there, work)
                there.remove('VirtualMachineBMC', 'lab', 'odd')
                await self.until(lambda: not work._without_vm)
                self.assertFalse([one for one in work.tasks if one.done()])
                self.assertEqual([KEY], work._cache.bmcs())
            with self.subTest(given=given):
                self.run_story(story, there)

    def test_one_that_vanishes_before_it_is_told(self):
        # On a list, and deleted before it was shown: nothing waits for it.
        there = stories.begun(bodies.body())
        watch = there.watch

        async def broken(resource, *args, **more):
            async for kind, found in watch(resource, *args, **more):
                if (resource == bmc_resources.BMC
                        and kind == api.LISTED):
                    yield kind, found | {('lab', 'gone')}
                yield kind, found
        there.watch = broken
        self.run_story(self.ready, there)

    def test_as_soon_as_a_name_is_free(self):
        there = stories.begun(bodies.body())
        there.add({'kind': 'Deployment', 'spec': {}, 'metadata': {
            'name': 'node-virtbmc', 'namespace': 'lab'}})

        async def story(there, work):
            await self.ready(there, work, reason='NameTaken')
            self.assertEqual(1, len(work._foreign_objects._tasks))
            there.remove('Deployment', 'lab', 'node-virtbmc')
            await self.ready(there, work)
            await self.until(lambda: not work._foreign_objects._tasks)
        self.run_story(story, there)

    def test_a_password_elsewhere(self):
        async def story(there, work):
            await self.ready(there, work)
            there.change('Secret', 'far', 'key', lambda obj: obj[
                'data'].update(password='bmV3'))
            await self.until(lambda: there.objects[
                'Secret', 'lab', 'node-virtbmc-auth']['data'][
                    'password'] == 'bmV3')
            there.change('Secret', 'far', 'key', stories.annotated({}))
            await self.ready(there, work, reason='ReferenceNotPermitted')
        self.run_story(story, stories.begun(bodies.elsewhere()))

    def test_a_secret_of_one_is_used_by_another(self):
        given = {'authSecretRef': {'name': 'node-virtbmc-auth'}}
        second = bodies.body('second', **given)
        second['metadata']['uid'] = 'second'
        there = stories.begun(second)
        there.add({**bodies.secret(name='mine'), 'kind': 'Secret'})

        async def story(there, work):
            await self.ready(there, work, 'second', 'SecretNotFound')
            there.add(bodies.body())
            await self.ready(there, work, 'second')
            there.change('VirtualMachineBMC', *KEY, stories.fields(
                authSecretRef={'name': 'mine'}))
            await self.ready(there, work, 'second', 'SecretNotFound')
        self.run_story(story, there)

    def test_one_that_goes_when_its_turn_has_come(self):
        there = stories.begun(bodies.body(
            authSecretRef={'name': 'mine'}, redfish={'plainHTTP': True}))
        there.add({**bodies.secret(name='mine'), 'kind': 'Secret'})
        stories.Operator(there, image='a:1').run()
        get, bmc = there.get, ('VirtualMachineBMC', *KEY)

        async def slow(resource, namespace, name, **more):
            found = await get(resource, namespace, name, **more)
            if name == 'mine' and bmc in there.objects:
                # What it owns goes later.
                there._tell('DELETED', there.objects.pop(bmc))
                await asyncio.sleep(0.05)
            return found
        there.get = slow

        async def story(there, work):
            await self.until(lambda: bmc not in there.objects)
            await self.until(lambda: not work._queue._working)
            self.assertEqual(set(), work._rollout._turns)
        self.run_story(story, there, image='a:2')

    def test_nothing_is_kept_of_what_was_in_the_way(self):
        there = stories.begun(bodies.body())
        there.add({'kind': 'ConfigMap', 'data': {}, 'metadata': {
            'name': 'node-virtbmc', 'namespace': 'lab'}})

        async def story(there, work):
            await self.ready(there, work, reason='NameTaken')
            there.remove('VirtualMachineBMC', *KEY)
            await self.until(lambda: not work._cache.bmcs())
            await self.until(lambda: not work._cache.objects.names(
                bmc_resources.CONFIG_MAP))
        self.run_story(story, there)

    def test_the_authority_is_put_back(self):
        async def story(there, work):
            await self.ready(there, work)
            where = 'Secret', 'system', naming.AUTHORITY
            before = there.objects[where]['data']
            issued = there.objects['Secret', 'lab', 'node-virtbmc-tls'][
                'data']
            there.remove(*where)
            await self.until(lambda: where in there.objects)
            self.assertEqual(before, there.objects[where]['data'])
            # Another one, and all is issued anew.
            there.change(*where, lambda obj: obj.update(
                data=secret_summary.data(pki.make('other'))))
            await self.until(lambda: there.objects[
                'Secret', 'lab', 'node-virtbmc-tls']['data'] != issued)
        self.run_story(story)

    def test_an_authority_that_went_unseen_is_put_back(self):
        there = stories.begun(bodies.body())
        watch = there.watch

        async def broken(*args, **more):
            async for kind, found in watch(*args, **more):
                if kind == 'DELETED' and more.get('field_selector'):
                    # It could not be followed, and is listed anew.
                    kind, found = api.LISTED, set()
                yield kind, found
        there.watch = broken

        async def story(there, work):
            await self.ready(there, work)
            where = 'Secret', 'system', naming.AUTHORITY
            there.remove(*where)
            await self.until(lambda: where in there.objects)
        self.run_story(story, there)

    def test_many(self):
        there = stories.begun(bodies.body())
        for number in range(20):
            there.add({**bodies.body(), 'metadata': {
                'name': 'n%d' % number, 'namespace': 'lab',
                'uid': 'u%d' % number, 'generation': 1}})

        async def story(there, work):
            for number in range(20):
                await self.ready(there, work, 'n%d' % number)
            self.assertEqual({'ServiceReady'}, set(work._reasons.values()))
        self.run_story(story, there)
