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
from sushy_kubevirt.operator import store
from tests.unit.operator import bodies
from tests.unit.operator import cluster
from tests.unit.operator import harness

KEY = harness.KEY


class ControllerTestCase(base.BaseTestCase):

    def run_scenario(self, scenario, kube=None, **options):
        kube = kube or harness.cluster_with(bodies.body())

        async def run():
            settings = command_line.Options(
                system_namespace='system', **options)
            operator = controller.Controller(
                settings, kube, store.Store(kube, settings), metrics.Metrics())
            await operator.start()
            try:
                await asyncio.wait_for(operator.listed.wait(), 30)
                self.assertIsNone(operator.problem())
                await asyncio.wait_for(scenario(kube, operator), 30)
            finally:
                await operator.close()
        # A task that fails only logs its error.
        with self.assertNoLogs('sushy_kubevirt', 'ERROR'):
            asyncio.run(run())

    async def until(self, condition):
        while not condition():
            await asyncio.sleep(0.005)

    async def ready(self, kube, operator, name='node', reason='ServiceReady'):
        def is_ready():
            status = kube.objects['VirtualMachineBMC', 'lab', name].get(
                'status')
            return status and harness.conditions(kube, name)[
                'Ready'][1] == reason and not operator._queue._working
        await self.until(is_ready)

    def test_kinds_that_are_not_listed_yet(self):
        kube = harness.cluster_with(bodies.body())
        options = command_line.Options()
        kinds = store.Store(kube, options)
        operator = controller.Controller(
            options, kube, kinds, metrics.Metrics())
        for resource in bmc_resources.OWNED:
            kinds.kind(resource).listed.set()
        kinds.kind(bmc_resources.BMC).listed.set()
        self.assertEqual('not listed yet: secrets, '
                         'virtualmachines.kubevirt.io', operator.problem())

    def test_lifecycle_of_a_bmc(self):
        async def scenario(kube, operator):
            await self.ready(kube, operator)
            for kind, name in (('Deployment', 'node-virtbmc'),
                               ('Secret', 'node-virtbmc-auth'),
                               ('ConfigMap', 'node-virtbmc-ca')):
                uid = kube.objects[kind, 'lab', name]['metadata']['uid']
                kube.remove(kind, 'lab', name)
                await self.until(lambda: kube.objects.get(
                    (kind, 'lab', name), {'metadata': {'uid': uid}})[
                        'metadata']['uid'] != uid)
            await self.ready(kube, operator)
            kube.remove('VirtualMachine', 'lab', 'vm')
            await self.ready(kube, operator, reason='VirtualMachineNotFound')
            kube.add(cluster.vm())
            await self.ready(kube, operator)
            kube.remove('VirtualMachineBMC', *KEY)
            await self.until(lambda: not operator._store.bmcs())
            await self.until(lambda: not operator._queue._working)
            self.assertEqual([], kube.list('Deployment'))
            # No state of the deleted BMC is kept.
            for state in (operator._store._users, operator._store._refs,
                          operator._reasons, operator._reconciler._tried,
                          operator._queue._failures, operator._queue._timers,
                          operator._rollout._waiting):
                self.assertEqual({}, state)
            self.assertEqual(
                [], operator._store.kind(bmc_resources.BMC).keys())
            self.assertLessEqual(set(operator._store.secrets._summaries),
                                 {('lab', 'vm-bmc-state')})
        self.run_scenario(scenario)

    def delete_without_finalizer(self, kube):
        """A user deletes a BMC after removing its finalizer."""
        kube.objects['VirtualMachineBMC', *KEY]['metadata'].pop('finalizers')
        kube.remove('VirtualMachineBMC', *KEY)

    def rbac_namespaces(self, kube):
        return [one['metadata']['namespace'] for kind in (
            'Role', 'RoleBinding') for one in kube.list(kind)]

    def test_rbac_in_other_namespace_is_removed_without_finalizer(self):
        async def scenario(kube, operator):
            await self.ready(kube, operator)
            self.assertEqual(['far', 'far'], self.rbac_namespaces(kube))
            self.delete_without_finalizer(kube)
            await self.until(lambda: not self.rbac_namespaces(kube))
            # A BMC of the same name, before the deletion is noticed.
            for _ in range(2):
                body = bodies.cross_namespace()
                body['metadata']['uid'] = 'second'
                kube.add(body)
                await self.ready(kube, operator)
                self.delete_without_finalizer(kube)
                kube.add(bodies.body())
                await self.until(lambda: self.rbac_namespaces(kube) == [
                    'lab', 'lab'])
                await self.ready(kube, operator)
                kube.remove('VirtualMachineBMC', *KEY)
                await self.until(lambda: not operator._store.bmcs())
        self.run_scenario(
            scenario, harness.cluster_with(bodies.cross_namespace()))

    def test_rbac_left_over_from_downtime_is_removed(self):
        kube = harness.cluster_with(bodies.cross_namespace())
        harness.Operator(kube).run()
        self.delete_without_finalizer(kube)
        self.assertEqual(['far', 'far'], self.rbac_namespaces(kube))

        async def keeps_rbac(kube, operator):
            await asyncio.sleep(0.1)
            self.assertEqual(['far', 'far'], self.rbac_namespaces(kube))

        async def removes_rbac(kube, operator):
            await self.until(lambda: not self.rbac_namespaces(kube))
        # Its BMC may exist: the operator does not watch that namespace.
        self.run_scenario(keeps_rbac, kube, namespaces=('far',))
        self.run_scenario(removes_rbac, kube)

    def test_removed_label_is_restored(self):
        async def scenario(kube, operator):
            await self.ready(kube, operator)

            def strip(obj):
                del obj['metadata']['labels'][naming.MANAGED_BY]
            kube.change('Role', 'lab', 'node-virtbmc', strip)
            await self.until(lambda: naming.made_by_us(
                kube.objects['Role', 'lab', 'node-virtbmc']))
        self.run_scenario(scenario)

    def count_reconciles(self, meanwhile=None):
        """Delete the VM of a BMC that is ready; the event of the status that
        follows comes before the answer.

        :param meanwhile: change of the BMC by another client at that time
        :returns: number of reconciles
        """
        reconciles, statuses = [], []

        async def scenario(kube, operator):
            async def rested():
                await self.until(lambda: not operator._queue._waiting
                                 and not operator._queue._working)
            await self.ready(kube, operator)
            await rested()
            reconcile, patch = operator._reconciler.reconcile, kube.patch

            async def counted(key):
                reconciles.append(key)
                return await reconcile(key)

            async def late(*args):
                answer = await patch(*args)
                statuses.append(answer['status'])
                if meanwhile and len(statuses) == 1:
                    kube.change('VirtualMachineBMC', *KEY, meanwhile)
                await self.until(lambda: all(
                    events.empty() for _, events in kube._watchers))
                return answer
            operator._reconciler.reconcile, kube.patch = counted, late
            kube.remove('VirtualMachine', 'lab', 'vm')
            await self.until(lambda: statuses)
            await rested()
            self.assertEqual({}, operator._reconciler._writing)
            self.assertEqual('VirtualMachineNotFound', harness.conditions(
                kube)['Ready'][1])
        self.run_scenario(scenario)
        return len(reconciles)

    def test_event_of_own_status_wakes_nobody(self):
        self.assertEqual(1, self.count_reconciles())

    def test_change_before_the_answer_to_a_status_is_reconciled(self):
        def revert(body):
            body['status']['conditions'][-1]['reason'] = 'ServiceReady'
        for change in (revert, harness.set_spec(ipmi=False)):
            self.assertLess(1, self.count_reconciles(change))

    def test_bmc_without_vm_reference(self):
        # KubeVirtBMC's definition allowed such objects.
        for given in ({}, {'virtualMachineRef': {}},
                      {'virtualMachineRef': {'name': ''}}):
            kube = harness.cluster_with(bodies.body())
            odd = bodies.body('odd')
            odd['metadata']['uid'] = 'odd'
            odd['spec'] = {'authSecret': {'name': ''}, **given}
            kube.add(odd)

            async def scenario(kube, operator):
                await self.ready(kube, operator)
                kube.remove('VirtualMachineBMC', 'lab', 'odd')
                await self.until(lambda: not operator._without_vm)
                self.assertFalse([one for one in operator.tasks if one.done()])
                self.assertEqual([KEY], operator._store.bmcs())
            with self.subTest(given=given):
                self.run_scenario(scenario, kube)

    def test_bmc_deleted_between_list_and_event(self):
        # It is in the list, but deleted before its event.
        kube = harness.cluster_with(bodies.body())
        watch = kube.watch

        async def broken(resource, *args, **more):
            async for kind, found in watch(resource, *args, **more):
                if (resource == bmc_resources.BMC
                        and kind == api.LISTED):
                    yield kind, found | {('lab', 'gone')}
                yield kind, found
        kube.watch = broken
        self.run_scenario(self.ready, kube)

    def test_slot_of_bmc_whose_deletion_was_missed_is_free(self):
        async def scenario(kube, operator):
            record = 'ConfigMap', 'lab', naming.shared(0)
            await self.until(lambda: '"vm"' in kube.objects.get(
                record, {}).get('data', {}).get('node', ''))
            # No event reports it, as between two lists.
            del kube.objects['VirtualMachineBMC', *KEY]
            kube.remove('Service', 'lab', 'node-virtbmc')
            await self.until(lambda: record not in kube.objects)

        self.run_scenario(scenario, harness.cluster_with(
            bodies.body(placement='Shared')))

    def test_reconciles_when_foreign_object_is_deleted(self):
        kube = harness.cluster_with(bodies.body())
        kube.add({'kind': 'Deployment', 'spec': {}, 'metadata': {
            'name': 'node-virtbmc', 'namespace': 'lab'}})

        async def scenario(kube, operator):
            await self.ready(kube, operator, reason='NameTaken')
            self.assertEqual(1, len(operator._foreign_objects._tasks))
            kube.remove('Deployment', 'lab', 'node-virtbmc')
            await self.ready(kube, operator)
            await self.until(lambda: not operator._foreign_objects._tasks)
        self.run_scenario(scenario, kube)

    def test_name_of_second_service_is_left_to_those_who_need_it(self):
        kube = harness.cluster_with(bodies.by_ref())
        where = 'Service', 'lab', 'vm-virtbmc'
        kube.add({'kind': 'Service', 'spec': {}, 'metadata': {
            'name': where[2], 'namespace': 'lab'}})

        def owner():
            found = kube.objects.get(where)
            return found and found['metadata'].get(
                'ownerReferences', [{}])[0].get('name')

        def reason(name='node'):
            return harness.conditions(kube, name)['EndpointReady']

        async def scenario(kube, operator):
            # A foreign Service has it.
            await self.ready(kube, operator)
            self.assertEqual(('True', 'SecondServiceNameTaken'), reason())
            kube.remove(*where)
            await self.until(lambda: owner() == 'node')
            await self.until(lambda: reason()[1] == 'EndpointAssigned')
            # Another BMC for the same VM.
            second = bodies.by_ref('second')
            second['metadata']['uid'] = 'second'
            kube.add(second)
            await self.ready(kube, operator, 'second')
            self.assertEqual('SecondServiceNameTaken', reason('second')[1])
            # A BMC whose own Service has that name.
            namesake = bodies.body('vm')
            namesake['metadata']['uid'] = 'namesake'
            kube.add(namesake)
            await self.ready(kube, operator, 'vm')
            await self.until(lambda: owner() == 'vm')
            await self.until(
                lambda: reason()[1] == 'SecondServiceNameTaken')
            kube.remove('VirtualMachineBMC', 'lab', 'vm')
            await self.until(lambda: owner() in ('node', 'second'))
        self.run_scenario(scenario, kube)

    def test_service_of_another_bmc_is_not_watched_by_name(self):
        kube = harness.cluster_with(bodies.by_ref())

        async def scenario(kube, operator):
            await self.ready(kube, operator)
            self.assertIn(('Service', 'lab', 'vm-virtbmc'), kube.objects)
            # Both are for the same VM; the first one has no use for the name.
            for number, make in enumerate((bodies.body, bodies.by_ref)):
                name = f'another-{number}'
                body = make(name)
                body['metadata']['uid'] = name
                kube.add(body)
                await self.ready(kube, operator, name)
                self.assertEqual({}, operator._foreign_objects._tasks, name)
        self.run_scenario(scenario, kube)

    def test_second_service_is_removed_with_the_field(self):
        kube = harness.cluster_with(bodies.by_ref())

        def name_vm(body):
            body['spec']['virtualMachine'] = body['spec'].pop(
                'virtualMachineRef')
            body['metadata']['generation'] += 1

        def services():
            return {one['metadata']['name'] for one in kube.list('Service')}

        async def scenario(kube, operator):
            await self.ready(kube, operator)
            self.assertEqual({'node-virtbmc', 'vm-virtbmc'}, services())
            kube.change('VirtualMachineBMC', *KEY, name_vm)
            await self.until(lambda: services() == {'node-virtbmc'})
            # Foreign ones stay.
            kube.add({'kind': 'Service', 'spec': {}, 'metadata': {
                'name': 'vm-virtbmc', 'namespace': 'lab'}})
            kube.change('VirtualMachineBMC', *KEY, harness.set_spec(
                ipmi={'enabled': False}))
            await self.until(lambda: kube.objects[
                'VirtualMachineBMC', *KEY]['status'][
                    'observedGeneration'] == 5)
            await self.ready(kube, operator)
            self.assertIn('vm-virtbmc', services())
        self.run_scenario(scenario, kube)

    def test_changed_secret_of_other_namespace_is_copied(self):
        async def scenario(kube, operator):
            await self.ready(kube, operator)
            kube.change('Secret', 'far', 'key', lambda obj: obj[
                'data'].update(password='bmV3'))
            await self.until(lambda: kube.objects[
                'Secret', 'lab', 'node-virtbmc-auth']['data'][
                    'password'] == 'bmV3')
            kube.change('Secret', 'far', 'key', harness.set_annotations({}))
            await self.ready(kube, operator, reason='ReferenceNotPermitted')
        self.run_scenario(
            scenario, harness.cluster_with(bodies.cross_namespace()))

    def test_secret_generated_for_another_bmc(self):
        given = {'authSecret': {'name': 'node-virtbmc-auth'}}
        second = bodies.body('second', **given)
        second['metadata']['uid'] = 'second'
        kube = harness.cluster_with(second)
        kube.add({**bodies.secret(name='mine'), 'kind': 'Secret'})

        async def scenario(kube, operator):
            await self.ready(kube, operator, 'second', 'SecretNotFound')
            kube.add(bodies.body())
            await self.ready(kube, operator, 'second')
            kube.change('VirtualMachineBMC', *KEY, harness.set_spec(
                authSecret={'name': 'mine'}))
            await self.ready(kube, operator, 'second', 'SecretNotFound')
        self.run_scenario(scenario, kube)

    def test_deleted_bmc_frees_rollout_slot(self):
        kube = harness.cluster_with(bodies.body(
            authSecret={'name': 'mine'}, redfish={'plainHTTP': True}))
        kube.add({**bodies.secret(name='mine'), 'kind': 'Secret'})
        harness.Operator(kube, image='a:1').run()
        get, bmc = kube.get, ('VirtualMachineBMC', *KEY)

        async def slow(resource, namespace, name, **more):
            found = await get(resource, namespace, name, **more)
            if name == 'mine' and bmc in kube.objects:
                # Its objects are deleted later.
                kube._publish('DELETED', kube.objects.pop(bmc))
                await asyncio.sleep(0.05)
            return found
        kube.get = slow

        async def scenario(kube, operator):
            await self.until(lambda: bmc not in kube.objects)
            await self.until(lambda: not operator._queue._working)
            self.assertEqual(set(), operator._rollout._granted)
        self.run_scenario(scenario, kube, image='a:2')

    def test_foreign_object_is_forgotten_with_bmc(self):
        kube = harness.cluster_with(bodies.body())
        kube.add({'kind': 'ConfigMap', 'data': {}, 'metadata': {
            'name': 'node-virtbmc', 'namespace': 'lab'}})

        async def scenario(kube, operator):
            await self.ready(kube, operator, reason='NameTaken')
            kube.remove('VirtualMachineBMC', *KEY)
            await self.until(lambda: not operator._store.bmcs())
            await self.until(lambda: not operator._store.kind(
                bmc_resources.CONFIG_MAP).keys())
        self.run_scenario(scenario, kube)

    def test_deleted_certificate_authority_is_restored(self):
        async def scenario(kube, operator):
            await self.ready(kube, operator)
            where = 'Secret', 'system', naming.AUTHORITY
            before = kube.objects[where]['data']
            issued = kube.objects['Secret', 'lab', 'node-virtbmc-tls'][
                'data']
            kube.remove(*where)
            await self.until(lambda: where in kube.objects)
            self.assertEqual(before, kube.objects[where]['data'])
            # With another authority, all certificates are reissued.
            kube.change(*where, lambda obj: obj.update(
                data=secret_summary.data(pki.make('other'))))
            await self.until(lambda: kube.objects[
                'Secret', 'lab', 'node-virtbmc-tls']['data'] != issued)
        self.run_scenario(scenario)

    def test_unseen_deletion_of_certificate_authority_is_noticed(self):
        # By the watch of all Secrets, and by one of its own.
        for namespaces in (), ('lab',), ('lab', 'system'):
            with self.subTest(namespaces=namespaces):
                self.check_unseen_deletion(namespaces)

    def check_unseen_deletion(self, namespaces):
        kube = harness.cluster_with(bodies.body())
        watch = kube.watch
        where = 'Secret', 'system', naming.AUTHORITY

        async def broken(resource, namespace, *args, **more):
            async for kind, found in watch(
                    resource, namespace, *args, **more):
                if kind == 'DELETED' and found['kind'] == 'Secret':
                    # The watch was interrupted, and lists again.
                    kind, found = api.LISTED, {
                        ref[1:] for ref in kube.objects if ref[0] == 'Secret'
                        and namespace in (None, ref[1])}
                yield kind, found
        kube.watch = broken

        async def scenario(kube, operator):
            await self.ready(kube, operator)
            kube.remove(*where)
            await self.until(lambda: where in kube.objects)
        self.run_scenario(scenario, kube, namespaces=namespaces)

    def test_many_bmcs(self):
        kube = harness.cluster_with(bodies.body())
        for number in range(20):
            kube.add({**bodies.body(), 'metadata': {
                'name': f'n{number}', 'namespace': 'lab',
                'uid': f'u{number}', 'generation': 1}})

        async def scenario(kube, operator):
            for number in range(20):
                await self.ready(kube, operator, f'n{number}')
            self.assertEqual({'ServiceReady'}, set(operator._reasons.values()))
        self.run_scenario(scenario, kube)
