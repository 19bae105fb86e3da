# SPDX-License-Identifier: Apache-2.0
"""Reconciles that meet objects of others, or whose objects are refused."""

import asyncio
import copy

from oslotest import base

from sushy_kubevirt.kube import errors
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import credentials
from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import workqueue
from tests.unit.operator import bodies
from tests.unit.operator import cluster
from tests.unit.operator import harness

KEY = harness.KEY


class RefusedObjectsTestCase(base.BaseTestCase):

    def test_foreign_object_of_that_name_is_kept(self):
        for kind, name, type_ in (
                ('Deployment', 'node-virtbmc', 'BMCEmulatorReady'),
                ('ServiceAccount', 'node-virtbmc', 'BMCEmulatorReady'),
                ('Role', 'node-virtbmc', 'BMCEmulatorReady'),
                ('Service', 'node-virtbmc', 'EndpointReady'),
                ('ConfigMap', 'node-virtbmc', 'BMCEmulatorReady'),
                ('Secret', 'node-virtbmc-auth', 'SecretAvailable'),
                ('Secret', 'node-virtbmc-tls', 'BMCEmulatorReady')):
            with self.subTest(kind=kind, name=name):
                kube = harness.cluster_with(bodies.body())
                foreign = kube.add({
                    'kind': kind, 'type': 'Opaque', 'spec': {}, 'data': {},
                    'metadata': {'name': name, 'namespace': 'lab'}})
                before = copy.deepcopy(foreign)
                operator = harness.Operator(kube)
                operator.run()
                self.assertEqual(before, kube.objects[kind, 'lab', name])
                self.assertEqual(('False', 'NameTaken'),
                                 harness.conditions(kube)[type_])
                if kind != 'Service':
                    self.assertEqual([], [
                        one for one in kube.list('Deployment')
                        if naming.made_by_us(one)])
                kube.remove(kind, 'lab', name)
                operator.store.drop(*bmc_resources.ObjectRef(
                    kind, 'lab', name).target)
                operator.run()
                self.assertEqual(('True', 'ServiceReady'),
                                 harness.conditions(kube)['Ready'])

    def test_secret_that_a_host_keeps_is_adopted(self):
        host = {'apiVersion': 'metal3.io/v1alpha1', 'kind': 'BareMetalHost',
                'name': 'node', 'uid': 'u-host'}

        def cluster(**metadata):
            made = credentials.generated(bodies.bmc())
            made['metadata'].update(ownerReferences=[host], **metadata)
            kube = harness.cluster_with(bodies.body())
            kube.add(made)
            return kube, made
        for metadata in {}, {
                'deletionTimestamp': '2026-01-01T00:00:00Z',
                'finalizers': ['baremetalhost.metal3.io/secret']}:
            kube, made = cluster(**metadata)
            harness.Operator(kube).run()
            found = kube.objects['Secret', 'lab', 'node-virtbmc-auth']
            self.assertEqual(made['data'], found['data'])
            self.assertEqual(
                ['u-host', bodies.UID],
                [one['uid'] for one in found['metadata']['ownerReferences']])
            self.assertEqual(('True', 'ServiceReady'),
                             harness.conditions(kube)['Ready'])
        # Another generated password when it is gone.
        kube.remove('Secret', 'lab', 'node-virtbmc-auth')
        harness.Operator(kube).run()
        self.assertNotEqual(made['data'], kube.objects[
            'Secret', 'lab', 'node-virtbmc-auth']['data'])

    def test_state_secret_of_foreign_type(self):
        kube = harness.cluster_with(bodies.body())
        kube.add({'kind': 'Secret', 'metadata': {
            'name': 'vm-bmc-state', 'namespace': 'lab'},
            'type': 'kubernetes.io/service-account-token'})
        harness.Operator(kube).run()
        self.assertEqual(('False', 'NameTaken'),
                         harness.conditions(kube)['BMCEmulatorReady'])
        self.assertEqual([], kube.list('Deployment'))

    def test_refused_write_is_reported_and_retried(self):
        kube = harness.cluster_with(bodies.body())
        kube.faults.append(lambda verb, kind, name: (
            errors.AccessDenied('may not') if (verb, kind) == (
                'create', 'Role') else None))
        operator = harness.Operator(kube)
        for _ in range(2):
            operator.sync()
            self.assertRaises(workqueue.Failure, asyncio.run,
                              operator.reconciler.reconcile(KEY))
        self.assertEqual(('False', 'Refused'),
                         harness.conditions(kube)['BMCEmulatorReady'])
        self.assertEqual([], kube.list('Deployment'))
        kube.faults.clear()
        operator.run()
        self.assertEqual(('True', 'ServiceReady'),
                         harness.conditions(kube)['Ready'])

    def test_rejected_network_policy_admits_no_clients(self):
        """The former policy would go on to admit what is no longer wanted."""
        kube = harness.cluster_with(bodies.body())
        operator = harness.Operator(kube)
        operator.run()
        policy = 'NetworkPolicy', 'lab', 'node-virtbmc'
        self.assertNotIn(policy, kube.objects)
        for before in (), ('10.0.0.0/8',):
            def want(body, networks=('fd00::/8',)):
                body['spec']['networkPolicy'] = {
                    'enabled': True, 'allowedCIDRs': list(networks)}
            if before:
                kube.change('VirtualMachineBMC', *KEY,
                            lambda body: want(body, before))
                operator.sync()
                operator.run()
                self.assertTrue(kube.objects[policy]['spec']['ingress'])
            kube.change('VirtualMachineBMC', *KEY, want)
            kube.writes.clear()
            # An apply is followed by a replacement.
            rejections = ['create'] if not before else ['apply', 'patch']

            def reject(verb, kind, name, rejections=rejections):
                if kind == 'NetworkPolicy' and verb in rejections:
                    rejections.remove(verb)
                    return errors.Rejected('no such network')
            kube.faults.append(reject)
            operator.sync()
            self.assertRaises(workqueue.Failure, asyncio.run,
                              operator.reconciler.reconcile(KEY))
            self.assertEqual([], kube.objects[policy]['spec']['ingress'])
            # Nothing else was written before.
            self.assertEqual({'NetworkPolicy', 'VirtualMachineBMC', 'Event'},
                             {kind for _, kind, _ in kube.writes})
            self.assertEqual(('False', 'Refused'),
                             harness.conditions(kube)['Ready'])
            kube.faults.clear()
            operator.sync()
            operator.run()
            self.assertTrue(kube.objects[policy]['spec']['ingress'])

    def test_rejected_network_policy_stops_no_other_step(self):
        kube = harness.cluster_with(bodies.body(networkPolicy={
            'enabled': True, 'allowedCIDRs': ['10.0.0.0/8']}))
        operator = harness.Operator(kube)
        operator.run()
        policy = 'NetworkPolicy', 'lab', 'node-virtbmc'
        lost = 'Secret', 'lab', 'node-virtbmc-tls'
        for accepts_closed in True, False:
            with self.subTest(accepts_closed=accepts_closed):
                kube.change('VirtualMachineBMC', *KEY, harness.set_spec(
                    networkPolicy={'enabled': True, 'allowedCIDRs': [
                        f'fd0{accepts_closed:d}::/16']}))
                kube.remove(*lost)
                writes = []

                def reject(verb, kind, name, writes=writes,
                           accepts_closed=accepts_closed):
                    if kind != 'NetworkPolicy' or verb == 'get':
                        return None
                    writes.append(verb)
                    # An apply and a replacement, then the closed one.
                    if len(writes) == 3 and accepts_closed:
                        return None
                    return errors.Rejected('denied by Kyverno')
                kube.faults.append(reject)
                operator.sync()
                self.assertRaises(workqueue.Failure, asyncio.run,
                                  operator.reconciler.reconcile(KEY))
                kube.faults.clear()
                self.assertEqual(accepts_closed, lost in kube.objects)
                self.assertEqual(
                    [] if accepts_closed else ['fd01::/16'],
                    [source['ipBlock']['cidr']
                     for rule in kube.objects[policy]['spec']['ingress']
                     for source in rule['from']])
                self.assertEqual(('False', 'Refused'),
                                 harness.conditions(kube)['Ready'])
                operator.sync()
                operator.run()

    def test_service_whose_name_begins_with_a_digit(self):
        body = bodies.by_ref()
        body['spec']['virtualMachineRef'] = {'name': '7up'}
        service = 'Service', 'lab', '7up-virtbmc'
        for version, reason in (
                ('v1.35.4', 'SecondServiceNameInvalid'),
                ('v1.36.0', 'EndpointAssigned')):
            kube = harness.cluster_with(body)
            kube.add(cluster.vm(name='7up'))
            kube.kubernetes = version
            harness.Operator(kube).run()
            self.assertEqual(('True', reason),
                             harness.conditions(kube)['EndpointReady'])
            self.assertEqual(reason == 'EndpointAssigned',
                             service in kube.objects)

    def test_unusable_certificate_authority(self):
        kube = harness.cluster_with(bodies.body())
        kube.add({'kind': 'Secret', 'data': {}, 'metadata': {
            'name': naming.AUTHORITY, 'namespace': 'system'}})
        operator = harness.Operator(kube)
        self.assertRaises(workqueue.Failure, asyncio.run,
                          operator.reconciler.reconcile(KEY))
        self.assertEqual(('False', 'Refused'),
                         harness.conditions(kube)['EndpointReady'])
        kube.remove('Secret', 'system', naming.AUTHORITY)
        operator.run()
        self.assertEqual(('True', 'ServiceReady'),
                         harness.conditions(kube)['Ready'])

    def test_terminating_namespace_logs_no_warning(self):
        kube = harness.cluster_with(bodies.body())
        kube.faults.append(lambda verb, kind, name: (
            errors.NamespaceTerminating('terminating') if verb == 'create'
            else None))
        with self.assertNoLogs(level='WARNING'):
            self.assertRaises(
                workqueue.Failure, asyncio.run,
                harness.Operator(kube).reconciler.reconcile(KEY))
        self.assertNotIn('status', kube.objects['VirtualMachineBMC', *KEY])

    def test_image_that_is_not_allowed(self):
        kube = harness.cluster_with(bodies.body(image='lab.test/created:1'))
        harness.Operator(kube, allowed_images=('lab.test/created',)).run()
        kube.change('VirtualMachineBMC', *KEY,
                    harness.set_spec(image='evil.test/a'))
        operator = harness.Operator(kube, allowed_images=('lab.test/created',))
        operator.run()
        self.assertEqual(('False', 'ImageNotAllowed'),
                         harness.conditions(kube)['BMCEmulatorReady'])
        self.assertEqual({'lab.test/created:1'}, set(deployments.images(
            kube.objects['Deployment', 'lab', 'node-virtbmc'])))
        # The image is removed from the operator's --allowed-images.
        harness.Operator(kube, allowed_images=('other',)).run()
        self.assertEqual([], kube.list('Deployment'))
