# SPDX-License-Identifier: Apache-2.0
"""Network policies of shared pods."""

import asyncio

from oslotest import base

from sushy_kubevirt.kube import errors
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import workqueue
from tests.unit.operator import harness
from tests.unit.operator.shared import shards_case

NODES = shards_case.NODES
slots = shards_case.slots
cluster_with = shards_case.cluster_with


class ShardPoliciesTestCase(base.BaseTestCase):

    def test_bmcs_with_policies_have_pods_of_their_own(self):
        kube = cluster_with(*NODES)
        operator = shards_case.Operator(kube, bmcs_per_pod=4)

        def shards_of(wanted):
            for name in NODES:
                kube.change('VirtualMachineBMC', 'lab', name,
                            harness.set_spec(networkPolicy={
                                'enabled': name in wanted,
                                'allowedCIDRs': ['10.0.0.0/8']}))
            operator.settle()
            for name in NODES:
                self.assertEqual(('True', 'ServiceReady'),
                                 harness.conditions(kube, name)['Ready'])
            found = slots(kube)
            # Each policy has the ports of all BMCs of its pod.
            self.assertEqual(
                {found[name][0] for name in wanted},
                {naming.shard_of(obj) for obj in kube.list('NetworkPolicy')})
            for obj in kube.list('NetworkPolicy'):
                self.assertEqual(
                    {10000 + slot for shard, slot in found.values()
                     if shard == naming.shard_of(obj)},
                    {rule['ports'][0]['port']
                     for rule in obj['spec']['ingress']})
            return [found[name][0] for name in NODES]
        self.assertEqual([0, 0, 0], shards_of(()))
        self.assertEqual([0, 1, 0], shards_of(['n1']))
        self.assertEqual([1, 1, 0], shards_of(NODES[:2]))
        self.assertEqual([1, 1, 0], shards_of(NODES))

    def test_rejected_policy_stops_no_other_write(self):
        policy = 'NetworkPolicy', 'lab', naming.shared(0)
        for networks, accepted in (
                # The creation, or an apply and a replacement; one that admits
                # no clients is accepted.
                ([], 1), (['10.0.0.0/8'], 2)):
            with self.subTest(networks=networks):
                kube = cluster_with('n0')

                def want(allowed, kube=kube):
                    kube.change('VirtualMachineBMC', 'lab', 'n0',
                                harness.set_spec(networkPolicy={
                                    'enabled': True, 'allowedCIDRs': allowed}))
                operator = shards_case.Operator(kube)
                if networks:
                    want(networks)
                    operator.settle()
                    self.assertTrue(kube.objects[policy]['spec']['ingress'])
                    lost = 'RoleBinding', 'lab', naming.shared(0)
                else:
                    lost = 'ConfigMap', 'lab', naming.shared(0)
                want(['fd00::/8'])
                kube.objects.pop(lost, None)
                writes = []

                def reject(verb, kind, name, writes=writes,
                           accepted=accepted):
                    if kind != 'NetworkPolicy' or verb == 'get':
                        return None
                    writes.append(verb)
                    return None if len(writes) > accepted else (
                        errors.Rejected('denied by Kyverno'))
                self._reconcile(operator)
                kube.faults.append(reject)
                self.assertRaises(workqueue.Failure, asyncio.run,
                                  operator.shards.reconcile(('lab', 0)))
                kube.faults.clear()
                self.assertEqual([], kube.objects[policy]['spec']['ingress'])
                self.assertIn(lost, kube.objects)
                self._reconcile(operator)
                self.assertEqual(('False', 'Refused'),
                                 harness.conditions(kube, 'n0')['Ready'])
                operator.settle()
                self.assertTrue(kube.objects[policy]['spec']['ingress'])
                self.assertEqual(('True', 'ServiceReady'),
                                 harness.conditions(kube, 'n0')['Ready'])

    @staticmethod
    def _reconcile(operator):
        for _ in range(3):
            operator.sync()
            operator._do(operator.reconciler.reconcile(('lab', 'n0')))

    def test_policies_enabled_while_no_operator_runs(self):
        kube = cluster_with(*NODES)
        shards_case.Operator(kube, bmcs_per_pod=4).settle()
        for name in NODES[1:]:
            kube.change('VirtualMachineBMC', 'lab', name, harness.set_spec(
                networkPolicy={'enabled': True}))
        shards_case.Operator(kube, bmcs_per_pod=4).settle()
        self.assertEqual([1, 0, 0], [slots(kube)[name][0] for name in NODES])
        self.assertEqual([0], [naming.shard_of(obj)
                               for obj in kube.list('NetworkPolicy')])

    def test_policy_disabled_while_no_operator_runs(self):
        kube = cluster_with('n0', 'n1')
        for name in 'n0', 'n1':
            kube.change('VirtualMachineBMC', 'lab', name, harness.set_spec(
                networkPolicy={'enabled': True}))
        shards_case.Operator(kube).settle()
        kube.change('VirtualMachineBMC', 'lab', 'n0', harness.set_spec(
            networkPolicy={'enabled': False}))
        operator = shards_case.Operator(kube)
        operator._do(operator.shards.reconcile(('lab', 0)))
        # The pod of the other one stays closed meanwhile.
        self.assertEqual(1, len(kube.list('NetworkPolicy')))
        operator.settle()
        self.assertEqual({'n0': (1, 0), 'n1': (0, 1)}, slots(kube))
        self.assertEqual([0], [naming.shard_of(obj)
                               for obj in kube.list('NetworkPolicy')])
