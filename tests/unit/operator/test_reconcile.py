# SPDX-License-Identifier: Apache-2.0
"""A BMC reaches its desired state even if its operator is killed."""

import asyncio
import copy
import itertools

from oslotest import base

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import pki
from sushy_kubevirt.operator import plan
from sushy_kubevirt.operator import rollout
from sushy_kubevirt.operator import spec
from sushy_kubevirt.operator import workqueue
from tests.unit.operator import bodies
from tests.unit.operator import cluster
from tests.unit.operator import harness

KEY = harness.KEY

#: Kinds of the objects of a BMC in its namespace.
KINDS = ('Deployment', 'Service', 'ServiceAccount', 'Role', 'RoleBinding',
         'ConfigMap', 'Secret')


def add_container(obj):
    """Add a container to a Deployment, as a user."""
    obj['spec']['template']['spec']['containers'].append(
        {'name': 'more', 'image': 'evil'})


# {name: (the BMC, steps)}; each step is a function that changes the cluster.
SCENARIOS = {
    'created': (bodies.body(), ()),
    'plain': (bodies.body(redfish={'plainHTTP': True}), ()),
    'recreate spec': (bodies.body(), (
        lambda kube: kube.change('VirtualMachineBMC', *KEY, harness.set_spec(
            redfish={'plainHTTP': True}, runStrategy='Always',
            networkPolicy={'enabled': True})),
        lambda kube: kube.change('VirtualMachineBMC', *KEY, harness.set_spec(
            redfish={}, networkPolicy={}, ipmi={'enabled': False})))),
    'drift': (bodies.body(), (
        lambda kube: kube.remove('Deployment', 'lab', 'node-virtbmc'),
        lambda kube: kube.remove('Secret', 'lab', 'node-virtbmc-auth'),
        lambda kube: kube.remove('Secret', 'lab', 'node-virtbmc-tls'),
        lambda kube: kube.remove('Service', 'lab', 'node-virtbmc'),
        lambda kube: kube.remove('Role', 'lab', 'node-virtbmc'),
        lambda kube: kube.change('Deployment', 'lab', 'node-virtbmc',
                                 add_container),
        lambda kube: kube.change(
            'RoleBinding', 'lab', 'node-virtbmc',
            lambda obj: obj['roleRef'].update(name='admin')),
        lambda kube: kube.change(
            'Secret', 'lab', 'node-virtbmc-auth',
            lambda obj: obj['data'].pop('password')))),
    'other namespace': (bodies.cross_namespace(), (
        lambda kube: kube.change('VirtualMachine', 'far', 'vm',
                                 harness.set_annotations({})),
        lambda kube: kube.change('VirtualMachine', 'far', 'vm',
                                 harness.set_annotations(harness.ALLOWED)),
        lambda kube: kube.change('Secret', 'far', 'key',
                                 harness.set_annotations({})),
        lambda kube: kube.change('Secret', 'far', 'key',
                                 harness.set_annotations(harness.ALLOWED)))),
    'other namespace, deleted': (bodies.cross_namespace(), (
        lambda kube: kube.remove('VirtualMachineBMC', *KEY),)),
    'VM recreated': (bodies.body(), (
        lambda kube: kube.remove('VirtualMachine', 'lab', 'vm'),
        lambda kube: kube.add(cluster.vm()))),
}


class ReconcileTestCase(base.BaseTestCase):

    def test_creates_all_objects(self):
        kube = harness.cluster_with(bodies.body())
        harness.Operator(kube).run()
        self.assertEqual(('True', 'ServiceReady'),
                         harness.conditions(kube)['Ready'])
        created = [ref for ref, obj in kube.objects.items()
                   if naming.made_by_us(obj) and ref[1] == 'lab']
        self.assertEqual(set(KINDS), {kind for kind, *_ in created})
        for kind, namespace, name in created:
            obj = kube.objects[kind, namespace, name]
            owner = 'vm' if name == 'vm-bmc-state' else 'node'
            self.assertEqual(
                [owner], [one['name'] for one in obj['metadata'][
                    'ownerReferences']], name)
        status = kube.objects['VirtualMachineBMC', *KEY]['status']
        self.assertEqual(
            ('10.0.0.7', '10.0.0.7', 'vm', 'node-virtbmc-auth', 3),
            tuple(status[name] for name in (
                'serviceIP', 'clusterIP', 'virtualMachine', 'authSecret',
                'observedGeneration')))

    def test_sends_no_request_when_nothing_changed(self):
        kube = harness.cluster_with(bodies.body())
        harness.Operator(kube).run()
        again = harness.Operator(kube)
        kube.faults.append(lambda verb, kind, name: (
            None if (verb, kind) == ('get', 'Secret')
            else AssertionError((verb, kind, name))))
        again.run()
        kube.faults[:] = [lambda *what: AssertionError(what)]
        again.run()

    def test_hosts_of_the_cluster_replace_no_pod(self):
        """They differ while a control-plane node restarts."""
        kube = harness.cluster_with(bodies.body())
        services, node = '10.96.0.0/12', '192.0.2.1:6443'
        harness.Operator(kube, cluster_hosts=(services, node)).run()
        deployment = 'Deployment', 'lab', 'node-virtbmc'
        before = kube.objects[deployment]['spec']

        def assert_denied(*hosts):
            self.assertEqual(list(hosts), kube.objects[
                'ConfigMap', 'lab', 'node-virtbmc']['data'][
                    'cluster-hosts.txt'].split())
            self.assertEqual(before, kube.objects[deployment]['spec'])

        assert_denied(services, node)
        operator = harness.Operator(kube, cluster_hosts=(services,),
                                    max_unavailable=1)
        # They do not wait for the upgrade of another BMC.
        operator.rollout.update(('lab', 'other'), True)
        operator.run()
        assert_denied(services)
        operator.reconciler.deny((services, node, '192.0.2.2:6443'))
        operator.run()
        assert_denied(services, node, '192.0.2.2:6443')

    def test_same_result_when_killed_at_any_write(self):
        for scenario, (body, steps) in SCENARIOS.items():
            steps = (lambda kube: None, *steps)
            # The cluster before each step, and after the last one.
            kube = harness.cluster_with(body)
            states = [kube]
            for step in steps:
                kube = kube.copy()
                step(kube)
                harness.Operator(kube).run()
                states.append(kube)
            total = len(kube.writes)
            self.assertGreater(total, 5)
            for count in range(0, total, 1 if total < 30 else 2):
                number = max(index for index, state in enumerate(states)
                             if len(state.writes) <= count)
                # The write takes effect without a response, or it does not
                # take effect. Long scenarios alternate between the two.
                for done in ((False, True) if total < 30
                             else (bool(count % 4),)):
                    with self.subTest(scenario=scenario, writes=count,
                                      done=done):
                        self._kill(states, steps, number, count, done)

    def _kill(self, states, steps, number, count, done):
        """Kill the operator in a step; compare the cluster from there on.

        Once two steps have the same result, so have the ones after them.
        """
        kube = states[number].copy()
        kube.kill_after = count - len(kube.writes), done
        steps[number](kube)
        self.assertRaises(cluster.Killed, harness.Operator(kube).run)
        kube.kill_after = None
        harness.Operator(kube).run()
        self.assertEqual(states[number + 1].snapshot(), kube.snapshot())
        if number + 1 < len(steps):
            steps[number + 1](kube)
            harness.Operator(kube).run()
            self.assertEqual(states[number + 2].snapshot(), kube.snapshot())

    def test_withdrawn_permission_removes_pod_and_rbac(self):
        kube = harness.cluster_with(bodies.cross_namespace())
        harness.Operator(kube).run()
        self.assertEqual([stored_names.ELSEWHERE], kube.objects[
            'VirtualMachineBMC', *KEY]['metadata']['finalizers'])
        self.assertEqual('far', kube.list('Role')[0]['metadata']['namespace'])
        self.assertTrue(kube.list('Deployment'))
        kube.change('Secret', 'far', 'key', harness.set_annotations({}))
        harness.Operator(kube).run()
        for kind in ('Deployment', 'Role', 'RoleBinding', 'ServiceAccount'):
            self.assertEqual([], kube.list(kind), kind)
        self.assertNotIn(('Secret', 'lab', 'node-virtbmc-auth'),
                         kube.objects)
        self.assertEqual(('False', 'ReferenceNotPermitted'),
                         harness.conditions(kube)['Ready'])
        kube.remove('VirtualMachineBMC', *KEY)
        harness.Operator(kube).run()
        self.assertEqual([], kube.list('VirtualMachineBMC'))

    def test_creates_nothing_again_for_deleted_bmc(self):
        """Its watch may be broken, while that of its objects works."""
        kube = harness.cluster_with({
            **bodies.body(), 'status': {'observedGeneration': 3}})
        operator = harness.Operator(kube)
        kube.remove('VirtualMachineBMC', *KEY)
        self.assertIsNone(asyncio.run(operator.reconciler.reconcile(KEY)))
        # The certificate authority is not an object of a BMC.
        self.assertEqual([('create', 'Secret', naming.AUTHORITY)],
                         kube.writes)

    def test_creates_only_owned_objects_for_new_bmc(self):
        """It is not read before, and may be deleted already."""
        kube = harness.cluster_with(bodies.body())
        reads = []
        kube.faults.append(lambda verb, kind, name: reads.append(kind)
                           if verb == 'get' else None)
        operator = harness.Operator(kube)
        asyncio.run(operator.reconciler.reconcile(KEY))
        self.assertNotIn('VirtualMachineBMC', reads)
        owners = {
            obj['metadata']['name']: [owner['kind'] for owner in obj[
                'metadata']['ownerReferences']]
            for verb, kind, name in kube.writes if verb == 'create'
            for obj in kube.list(kind) if obj['metadata']['name'] == name
            and kind != 'Event' and name != naming.AUTHORITY}
        # What the VM owns is deleted by `vm_cleanup`.
        self.assertEqual(['VirtualMachine'], owners.pop('vm-bmc-state'))
        self.assertEqual({('VirtualMachineBMC',)}, set(map(
            tuple, owners.values())))

    def test_uses_current_spec_instead_of_cached_one(self):
        kube = harness.cluster_with({
            **bodies.body(), 'status': {'observedGeneration': 2}})
        operator = harness.Operator(kube)
        kube.change('VirtualMachineBMC', *KEY, harness.set_spec(
            redfish={'plainHTTP': True}))
        asyncio.run(operator.reconciler.reconcile(KEY))
        self.assertNotIn('node-virtbmc-tls', {
            name for _, _, name in kube.writes})
        self.assertEqual({'create', 'patch'}, {
            verb for verb, *_ in kube.writes})

    def test_permission_withdrawn_during_reconcile(self):
        kube = harness.cluster_with(bodies.cross_namespace())
        operator = harness.Operator(kube)
        reads = []

        def withdraw(verb, kind, name):
            if (verb, kind, name) == ('get', 'Secret', 'key'):
                reads.append(name)
                if len(reads) == 2:
                    kube.change('Secret', 'far', 'key',
                                harness.set_annotations({}))
        kube.faults.append(withdraw)
        asyncio.run(operator.reconciler.reconcile(KEY))
        self.assertNotIn('node-virtbmc-auth', {
            name for _, _, name in kube.writes})
        self.assertEqual(('False', 'ReferenceNotPermitted'),
                         harness.conditions(kube)['SecretAvailable'])

    def test_change_during_status_write_is_not_lost(self):
        def finalized(body):
            body['metadata']['finalizers'] = [stored_names.ELSEWHERE]

        def deleted(body):
            finalized(body)
            body['metadata']['deletionTimestamp'] = '2026-01-01T00:00:00Z'

        for change in (harness.set_spec(redfish={'plainHTTP': True}),
                       finalized, deleted):
            kube = harness.cluster_with(bodies.body())
            operator = harness.Operator(kube)
            operator.run()
            kube.change('VirtualMachineBMC', *KEY, harness.set_spec(
                service={'type': 'NodePort'}))
            operator.sync()
            reconciled = operator.store.bmc(KEY)['metadata']['generation']
            versions = []

            def change_meanwhile(verb, kind, name):
                if (verb, kind) == ('patch', 'VirtualMachineBMC'):
                    kube.faults.clear()
                    kube.change('VirtualMachineBMC', *KEY, change)
                    versions.append(copy.deepcopy(
                        kube.objects['VirtualMachineBMC', *KEY]))

            kube.faults.append(change_meanwhile)
            asyncio.run(operator.reconciler.reconcile(KEY))
            # The status is written, and the watch event comes later.
            self.assertEqual(reconciled, kube.objects[
                'VirtualMachineBMC', *KEY]['status']['observedGeneration'])
            self.assertTrue(operator.store.put_bmc(versions[0]))

    def test_status_is_stored_before_its_watch_event(self):
        """Also that of a BMC with annotations that are not kept."""
        kube = harness.cluster_with(bodies.body())
        kube.change('VirtualMachineBMC', *KEY, harness.set_annotations({
            'kubectl.kubernetes.io/last-applied-configuration': '{}',
            'a': 'b'}))
        operator = harness.Operator(kube)
        asyncio.run(operator.reconciler.reconcile(KEY))
        self.assertIn('status', kube.objects['VirtualMachineBMC', *KEY])
        self.assertFalse(operator.store.put_bmc(copy.deepcopy(
            kube.objects['VirtualMachineBMC', *KEY])))

    def test_reconciles_again_before_certificate_expires(self):
        kube = harness.cluster_with(bodies.body())
        operator = harness.Operator(kube)
        operator.run()
        seconds = asyncio.run(operator.reconciler.reconcile(KEY))
        self.assertAlmostEqual(
            pki.CERTIFICATE_LIFE.total_seconds() * 2 / 3, seconds,
            delta=3600)

    def test_retry_after_is_respected(self):
        kube = harness.cluster_with(bodies.body())
        kube.faults.append(lambda verb, *_: errors.TooManyRequests(
            'later', 7) if verb == 'create' else None)
        with self.assertRaises(workqueue.Failure) as caught:
            asyncio.run(harness.Operator(kube).reconciler.reconcile(KEY))
        self.assertEqual(7, caught.exception.seconds)

    def test_backs_off_from_client_that_reverts_changes(self):
        kube = harness.cluster_with(bodies.body())
        operator = harness.Operator(kube)
        operator.run()
        look, changes = operator.reconciler._observe, itertools.count(2)

        async def change_and_look(*args):
            kube.change('Deployment', 'lab', 'node-virtbmc', lambda obj: (
                obj['spec'].update(replicas=next(changes))))
            operator.sync()
            return await look(*args)
        operator.reconciler._observe = change_and_look
        before = len(kube.writes)
        with self.assertRaises(workqueue.Failure) as caught, \
                self.assertLogs(level='WARNING'):
            asyncio.run(operator.reconciler.reconcile(KEY))
        # It stops writing and retries after a pause.
        self.assertLess(len(kube.writes), before + 20)
        self.assertGreaterEqual(caught.exception.seconds, 10)

    def test_restores_objects_deleted_one_after_another(self):
        kube = harness.cluster_with(bodies.body())
        operator = harness.Operator(kube)
        operator.run()
        mine = {key: copy.deepcopy(obj) for key, obj in kube.objects.items()
                if naming.made_by_us(obj) and key[1] == 'lab'}
        self.assertGreater(len(mine), 8)
        look, left = operator.reconciler._observe, list(mine)

        async def delete_and_look(*args):
            if left:
                kube.remove(*left.pop())
                operator.sync()
            return await look(*args)
        operator.reconciler._observe = delete_and_look
        with self.assertNoLogs(level='WARNING'):
            asyncio.run(operator.reconciler.reconcile(KEY))
        self.assertEqual([], left)
        self.assertEqual(mine.keys(), mine.keys() & kube.objects.keys())

    def test_facts_are_of_one_moment(self):
        kube = harness.cluster_with(bodies.body())
        operator = harness.Operator(kube)
        operator.run()
        read, key = operator.store.secrets.get, ('Role', 'lab', 'node-virtbmc')

        async def change_and_read(reference):
            # A watch reports this while the Secrets are read.
            if key in kube.objects:
                kube.remove(*key)
                operator.sync()
            return await read(reference)
        operator.store.secrets.get = change_and_read
        body = kube.objects['VirtualMachineBMC', *KEY]
        known = asyncio.run(operator.reconciler._observe(
            spec.read(body), body, plan.Tried()))
        self.assertIsNone(known.live.get(bmc_resources.ObjectRef(*key)))

    def test_status_is_not_written_to_recreated_bmc(self):
        kube = harness.cluster_with(bodies.body())
        body = kube.objects['VirtualMachineBMC', *KEY]

        def recreate(verb, kind, name):
            if (verb, kind) == ('patch', 'VirtualMachineBMC'):
                kube.faults.clear()
                kube.objects['VirtualMachineBMC', *KEY] = {
                    **body, 'metadata': {**body['metadata'], 'uid': 'b'}}

        kube.faults.append(recreate)
        operator = harness.Operator(kube)
        operator.sync()
        self.assertRaises(workqueue.Failure, asyncio.run,
                          operator.reconciler.reconcile(KEY))
        self.assertEqual([], kube.faults)
        self.assertNotIn('status', kube.objects['VirtualMachineBMC', *KEY])

    def test_status_of_host_is_not_reverted(self):
        kube = harness.cluster_with(bodies.body())
        operator = harness.Operator(kube)
        operator.run()
        kube.change('VirtualMachineBMC', *KEY, lambda body: body[
            'status'].update(bareMetalHost={'name': 'node'}))
        kube.change('VirtualMachineBMC', *KEY, harness.set_spec(
            service={'type': 'NodePort'}))
        operator.sync()

        def pause(verb, kind, name):
            if (verb, kind) == ('patch', 'VirtualMachineBMC'):
                kube.faults.clear()
                kube.change('VirtualMachineBMC', *KEY, lambda body: body[
                    'status']['bareMetalHost'].update(paused=True))

        kube.faults.append(pause)
        self.assertRaises(workqueue.Failure, asyncio.run,
                          operator.reconciler.reconcile(KEY))
        operator.run()
        self.assertEqual({'name': 'node', 'paused': True}, kube.objects[
            'VirtualMachineBMC', *KEY]['status']['bareMetalHost'])

    def test_new_service_account_restarts_pod(self):
        kube = harness.cluster_with(bodies.body())
        operator = harness.Operator(kube, max_unavailable=1)
        operator.run()
        # Another BMC is being upgraded; the new account does not wait.
        operator.rollout.update(('lab', 'other'), True)
        kube.remove('ServiceAccount', 'lab', 'node-virtbmc')
        operator.run()
        self.assertEqual(
            kube.objects['ServiceAccount', 'lab', 'node-virtbmc'][
                'metadata']['uid'],
            deployments.account(kube.objects[
                'Deployment', 'lab', 'node-virtbmc']))

    def test_copies_changed_secret_of_other_namespace(self):
        kube = harness.cluster_with(bodies.cross_namespace())
        operator = harness.Operator(kube)
        operator.run()
        for change in (
                lambda data: data.update(password='bmV3'),
                lambda data: data.update(role='UmVhZE9ubHk='),
                lambda data: data.pop('role')):
            kube.change('Secret', 'far', 'key',
                        lambda obj: change(obj['data']))
            operator.run()
            self.assertEqual(
                kube.objects['Secret', 'far', 'key']['data'],
                kube.objects['Secret', 'lab', 'node-virtbmc-auth']['data'])

    def test_upgrade_is_limited_by_max_unavailable(self):
        kube = harness.cluster_with(bodies.body())
        for name in ('two', 'three'):
            kube.add({**bodies.body(), 'metadata': {
                'name': name, 'namespace': 'lab', 'uid': name,
                'generation': 1}})
        names = ('node', 'two', 'three')
        operator = harness.Operator(kube, image='virtbmc:1')
        for name in names:
            operator.run(('lab', name))

        def images():
            return [kube.objects['Deployment', 'lab', name + '-virtbmc'][
                'spec']['template']['spec']['containers'][0]['image']
                for name in names]
        self.assertEqual(['virtbmc:1'] * 3, images())
        # No pod gets ready with the new image.
        put = kube._put

        def set_unready(obj):
            obj = put(obj)
            if obj['kind'] == 'Deployment':
                obj['status']['readyReplicas'] = 0
            return obj
        kube._put = set_unready
        operator = harness.Operator(kube, image='virtbmc:2', max_unavailable=1)
        for name in names:
            operator.run(('lab', name))
        self.assertEqual(['virtbmc:2', 'virtbmc:1', 'virtbmc:1'], images())
        self.assertEqual(('True', 'RolloutWaiting'),
                         harness.conditions(kube, 'two')['BMCEmulatorReady'])
        # A change of the spec does not wait for a slot.
        kube.change('VirtualMachineBMC', 'lab', 'three',
                    harness.set_spec(runStrategy='Always'))
        operator.run(('lab', 'three'))
        self.assertEqual(['virtbmc:2', 'virtbmc:1', 'virtbmc:2'], images())
        # The next leader counts the same BMCs as stopped.
        operator = harness.Operator(kube, image='virtbmc:2', max_unavailable=1)
        for name in names:
            operator.rollout.update(('lab', name), rollout.is_stopped(
                kube.objects['Deployment', 'lab', name + '-virtbmc']))
        operator.run(('lab', 'two'))
        self.assertEqual(['virtbmc:2', 'virtbmc:1', 'virtbmc:2'], images())
        kube._put = put
        kube.change('Deployment', 'lab', 'node-virtbmc', lambda obj: None)
        operator.run(('lab', 'node'))
        self.assertEqual([('lab', 'two')], operator.woken)
        operator.run(('lab', 'two'))
        self.assertEqual(['virtbmc:2'] * 3, images())
        for one in kube.list('Deployment'):
            self.assertNotIn(stored_names.UPGRADING, one['metadata'][
                'annotations'])

    def test_bmc_that_was_not_ready_occupies_no_slot(self):
        kube = harness.cluster_with(bodies.body())
        kube.add({**bodies.body(), 'metadata': {
            'name': 'two', 'namespace': 'lab', 'uid': 'two',
            'generation': 1}})
        put = kube._put

        def set_unready(obj):
            obj = put(obj)
            if obj['metadata']['name'] == 'node-virtbmc' and obj[
                    'kind'] == 'Deployment':
                obj['status']['readyReplicas'] = 0
            return obj
        # For example, its nodeSelector matches no node.
        kube._put = set_unready
        for image in ('virtbmc:1', 'virtbmc:2'):
            operator = harness.Operator(kube, image=image, max_unavailable=1)
            for name in ('node', 'two'):
                operator.run(('lab', name))
            self.assertEqual({(image,)}, {
                tuple(set(deployments.images(one))) for one in kube.list(
                    'Deployment')})
        for one in kube.list('Deployment'):
            self.assertNotIn(stored_names.UPGRADING, one['metadata'][
                'annotations'])
