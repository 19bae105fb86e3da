# SPDX-License-Identifier: Apache-2.0
"""Rights of shared pods."""

import json
from unittest import mock

import fixtures
from oslotest import base

from sushy_kubevirt.operator import config_map
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator.shared import shard_manifests
from tests.unit.operator import cluster
from tests.unit.operator import harness
from tests.unit.operator.shared import shards_case

NODES = shards_case.NODES
records = shards_case.records
slots = shards_case.slots
body = shards_case.body
cluster_with = shards_case.cluster_with


def granted(kube):
    """Return {name of a Role: names of VMs}, without Roles for no VM."""
    return {obj['metadata']['name']: found for obj in kube.list('Role')
            if (found := shard_manifests.granted(obj))}


def bound(kube):
    """Return {name of a Role for VMs: names of the accounts}."""
    return {obj['metadata']['name']: {one['name'] for one in obj['subjects']}
            for obj in kube.list('RoleBinding')
            if '-vms-' in obj['roleRef']['name']}


class ShardRightsTestCase(base.BaseTestCase):

    def test_rights_are_those_to_the_vms_of_the_members(self):
        self.useFixture(fixtures.MockPatchObject(
            shard_manifests, '_SLOTS_PER_ROLE', 1))
        kube = cluster_with(*NODES)
        operator = shards_case.Operator(kube)
        operator.settle()
        first, second = (f'{naming.shared(0)}-vms-{number}'
                         for number in (0, 1))
        self.assertEqual(
            {first: {'n0'}, second: {'n1'},
             naming.shared(1) + '-vms-0': {'n2'}}, granted(kube))
        self.assertEqual(
            {one: {naming.shared(naming.shard_number(one))}
             for one in granted(kube)}, bound(kube))
        # They go with the BMC, also while no operator runs.
        kube.remove('VirtualMachineBMC', 'lab', 'n0')
        operator.shards.release(('lab', 'n0'))
        operator.settle()
        self.assertNotIn(first, granted(kube))
        self.assertNotIn(first, bound(kube))
        kube.remove('VirtualMachineBMC', 'lab', 'n1')
        shards_case.Operator(kube).settle()
        self.assertEqual([{'n2'}], list(granted(kube).values()))

    def test_next_operator_keeps_the_rights(self):
        kube = cluster_with('n0', 'n1')
        shards_case.Operator(kube).settle()
        roles = kube.list('Role')
        # Rights to this Secret come with the next entry.
        kube.change('VirtualMachineBMC', 'lab', 'n0', harness.set_spec(
            authSecretRef={'name': 'other'}))
        operator = shards_case.Operator(kube)
        operator._do(operator.shards.reconcile(('lab', 0)))
        self.assertEqual([{'n0', 'n1'}], list(granted(kube).values()))
        self.assertEqual(roles, kube.list('Role'))

    def test_forged_record_gives_no_rights_to_secrets(self):
        kube = cluster_with('n0')
        shards_case.Operator(kube).settle()
        text = json.loads(records(kube)['lab', 0]['n0'])
        text['auth']['secret'] = 'other'
        text['options'][config_map.CA_CONFIG_MAP] = 'other'
        for forged in text, {**text, 'auth': 'x', 'redfish': ['x']}:
            kube.change('ConfigMap', 'lab', naming.shared(0), lambda obj:
                        obj['data'].update(n0=json.dumps(forged)))
            operator = shards_case.Operator(kube)
            operator._do(operator.shards.reconcile(('lab', 0)))
            self.assertNotIn('other', set().union(*(
                shard_manifests.granted(one, plural)
                for one in kube.list('Role')
                for plural in ('secrets', 'configmaps'))))

    def test_rights_come_before_the_entry(self):
        kube = cluster_with('n0', 'n1')
        operator = shards_case.Operator(kube)

        def reconcile(name):
            return operator.reconciler.reconcile(('lab', name))

        def entered():
            return {name for name, text in records(kube)['lab', 0].items()
                    if 'auth' in json.loads(text)}

        for name in 'n0', 'n1':
            operator._do(reconcile(name))
        operator._do(operator.shards.reconcile(('lab', 0)))
        operator.sync()
        operator._do(reconcile('n0'))
        ensure = operator.shards._cluster.ensure

        async def enter_meanwhile(shard, wanted, *more):
            made = await ensure(shard, wanted, *more)
            if wanted['kind'] == 'RoleBinding':
                await reconcile('n1')
            return made

        with mock.patch.object(
                operator.shards._cluster, 'ensure', enter_meanwhile):
            operator._do(operator.shards.reconcile(('lab', 0)))
        self.assertEqual({'n0'}, entered())
        self.assertEqual([{'n0'}], list(granted(kube).values()))
        operator._do(operator.shards.reconcile(('lab', 0)))
        self.assertEqual({'n0', 'n1'}, entered())
        self.assertEqual([{'n0', 'n1'}], list(granted(kube).values()))

    def test_no_rights_to_a_foreign_state(self):
        kube = cluster_with('n0', 'n1')
        operator = shards_case.Operator(kube)
        operator.settle()
        state = 'Secret', 'lab', 'n0-bmc-state'
        ours = kube.objects[state]
        labels = ours['metadata'].pop('labels')
        kube.change(*state, lambda obj: None)
        operator.settle()
        self.assertEqual([{'n1'}], list(granted(kube).values()))
        self.assertEqual(('False', 'NameTaken'),
                         harness.conditions(kube, 'n0')['Ready'])
        kube.change(*state, lambda obj: obj['metadata'].update(labels=labels))
        operator.settle()
        self.assertEqual([{'n0', 'n1'}], list(granted(kube).values()))
        # Also while the BMC waits for a pod of its own.
        kube.change(*state, lambda obj: obj['metadata'].pop('labels'))
        kube.change('VirtualMachineBMC', 'lab', 'n0',
                    harness.set_spec(placement='PerVM'))
        operator.settle()
        self.assertEqual([{'n1'}], list(granted(kube).values()))

    def test_foreign_role_of_its_name_does_not_matter(self):
        kube = cluster_with('n0')
        kube.add({'apiVersion': 'rbac.authorization.k8s.io/v1',
                  'kind': 'Role', 'metadata': {
                      'namespace': 'lab', 'name': 'n0-virtbmc'}})
        shards_case.Operator(kube).settle()
        self.assertEqual(('True', 'ServiceReady'),
                         harness.conditions(kube, 'n0')['Ready'])

    def test_withdrawn_permission(self):
        kube = cluster_with('n0')
        kube.add(cluster.vm('far', 'vm', allowed='lab'))
        made = body('away')
        made['spec']['virtualMachine'] = {'name': 'vm', 'namespace': 'far'}
        kube.add(made)
        operator = shards_case.Operator(kube)
        operator.settle()
        self.assertEqual({'n0', 'away'}, set(slots(kube)))
        binding = 'RoleBinding', 'far', naming.access('away', 'lab', 'far')
        self.assertEqual(
            [{'kind': 'ServiceAccount', 'name': naming.shared(0),
              'namespace': 'lab'}], kube.objects[binding]['subjects'])
        kube.change('VirtualMachine', 'far', 'vm',
                    harness.set_annotations({}))
        operator.settle()
        self.assertNotIn(binding, kube.objects)
        self.assertEqual({'n0'}, set(slots(kube)))
        self.assertEqual(('False', 'ReferenceNotPermitted'),
                         harness.conditions(kube, 'away')['Ready'])
