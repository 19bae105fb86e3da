# SPDX-License-Identifier: Apache-2.0
import asyncio
import collections
import json
import time
from unittest import mock

import fixtures
from oslotest import base

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import plan
from sushy_kubevirt.operator.shared import placement
from sushy_kubevirt.operator.shared import shards
from sushy_kubevirt.operator import spec
from tests.unit.operator import cluster
from tests.unit.operator import harness
from tests.unit.operator.shared import shards_case

NODES = shards_case.NODES
records = shards_case.records
slots = shards_case.slots
body = shards_case.body
cluster_with = shards_case.cluster_with


def long_hosts(count):
    return [f'{number}.' + '.'.join(['h' * 60] * 4)
            for number in range(count)]


class ShardsTestCase(base.BaseTestCase):

    def test_slots(self):
        kube = cluster_with(*NODES)
        shards_case.Operator(kube).settle()
        self.assertEqual({'n0': (0, 0), 'n1': (0, 1), 'n2': (1, 0)},
                         slots(kube))
        for name in NODES:
            self.assertEqual(('True', 'ServiceReady'),
                             harness.conditions(kube, name)['Ready'])
            service = kube.objects['Service', 'lab', name + '-virtbmc'][
                'spec']
            shard, slot = slots(kube)[name]
            self.assertEqual(str(shard),
                             service['selector'][stored_names.SHARD])
            self.assertEqual(10000 + slot, service['ports'][0]['targetPort'])
        self.assertFalse([one for one in kube.objects if one[0] in (
            'Deployment', 'ServiceAccount') and 'shared' not in one[2]])

    def test_foreign_objects_that_are_not_needed(self):
        for kind in ('ConfigMap', 'Deployment', 'NetworkPolicy',
                     'ServiceAccount'):
            with self.subTest(kind=kind):
                kube = cluster_with('n0')
                kube.change('VirtualMachineBMC', 'lab', 'n0', harness.set_spec(
                    placement='PerVM', networkPolicy={'enabled': True}))
                kube.add({'kind': kind, 'spec': {}, 'metadata': {
                    'name': 'n0-virtbmc', 'namespace': 'lab'}})
                operator = shards_case.Operator(kube)
                operator.settle()
                self.assertEqual(('False', 'NameTaken'),
                                 harness.conditions(kube, 'n0')['Ready'])
                kube.change('VirtualMachineBMC', 'lab', 'n0',
                            harness.set_spec(placement='Shared'))
                operator.settle()
                self.assertEqual(('True', 'ServiceReady'),
                                 harness.conditions(kube, 'n0')['Ready'])
                binding = kube.objects['RoleBinding', 'lab',
                                       naming.shared(0) + '-vms-0']
                self.assertEqual([naming.shared(0)], [
                    one['name'] for one in binding['subjects']])

    def test_refused_shard_does_not_affect_others(self):
        kube = cluster_with(*NODES)
        kube.faults.append(lambda verb, kind, name: errors.AccessDenied(
            'exceeded quota') if name == naming.shared(1) else None)
        shards_case.Operator(kube).settle()
        self.assertEqual(
            [('True', 'ServiceReady')] * 2 + [('False', 'Refused')],
            [harness.conditions(kube, name)['Ready'] for name in NODES])

    def test_next_operator_keeps_the_slots(self):
        kube = cluster_with(*NODES)
        shards_case.Operator(kube).settle()
        kube.remove('VirtualMachineBMC', 'lab', 'n0')
        before = slots(kube)
        operator = shards_case.Operator(kube)
        operator.settle()
        del before['n0']
        self.assertEqual(before, slots(kube))
        writes = len(kube.writes)
        operator = shards_case.Operator(kube)
        operator.settle()
        self.assertEqual(writes, len(kube.writes))
        kube.add(cluster.vm(name='n3'))
        kube.add(body('n3'))
        operator.settle()
        self.assertEqual((0, 0), slots(kube)['n3'])

    def test_empty_shard_is_removed(self):
        kube = cluster_with(*NODES)
        operator = shards_case.Operator(kube)
        operator.settle()
        for name in NODES:
            kube.remove('VirtualMachineBMC', 'lab', name)
            operator.shards.release(('lab', name))
        operator.settle()
        self.assertFalse([one for one in kube.objects if 'shared' in one[2]])

    def test_leftovers_are_removed_after_a_restart(self):
        kube = cluster_with('n0')
        shards_case.Operator(kube).settle()
        kube.remove('VirtualMachineBMC', 'lab', 'n0')
        kube.remove('ConfigMap', 'lab', naming.shared(0))
        shards_case.Operator(kube).settle()
        self.assertFalse([one for one in kube.objects if 'shared' in one[2]])

    def test_forged_record_is_not_believed(self):
        kube = cluster_with('n0', 'n1')
        shards_case.Operator(kube).settle()
        wanted = records(kube)
        stolen = json.dumps({**json.loads(wanted['lab', 0]['n0']),
                             'vm': 'lab/n1'})
        for forged in ({'n0': stolen}, {'n0': wanted['lab', 0]['n1']},
                       {'other': stolen}, {'n0': 'x'}, {}):
            with self.subTest(forged=forged):
                kube.change('ConfigMap', 'lab', naming.shared(0),
                            lambda obj: obj.update(data=dict(forged)))
                shards_case.Operator(kube).settle()
                self.assertEqual({'n0', 'n1'}, set(slots(kube)))
                for name in 'n0', 'n1':
                    text = records(kube)['lab', 0][name]
                    self.assertEqual('lab/' + name, json.loads(text)['vm'])

    def test_killed_at_every_write(self):
        complete = cluster_with(*NODES)
        shards_case.Operator(complete).settle()
        for number in range(len(complete.writes)):
            for done in (True, False):
                kube = cluster_with(*NODES)
                with self.subTest(number=number, done=done):
                    kube.kill_after = number, done
                    self.assertRaises(
                        cluster.Killed,
                        lambda: shards_case.Operator(kube).settle())
                    kube.kill_after = None
                    shards_case.Operator(kube).settle()
                    found = slots(kube)
                    self.assertEqual(
                        [(0, 0), (0, 1), (1, 0)], sorted(found.values()))
                    for name, (shard, slot) in found.items():
                        service = kube.objects[
                            'Service', 'lab', name + '-virtbmc']['spec']
                        self.assertEqual(
                            (str(shard), 10000 + slot),
                            (service['selector'][stored_names.SHARD],
                             service['ports'][0]['targetPort']))

    def test_new_bmc_costs_few_plans(self):
        operator = shards_case.Operator(cluster_with('n0'))
        with mock.patch.object(plan, 'steps', side_effect=plan.steps) as made:
            for _ in range(3):
                asyncio.run(operator.reconciler.reconcile(('lab', 'n0')))
                asyncio.run(operator.shards.reconcile(('lab', 0)))
                operator.serve()
        # The slot; objects and certificate; entry; the status.
        self.assertEqual(4, made.call_count)
        self.assertEqual(('True', 'ServiceReady'),
                         harness.conditions(operator.kube, 'n0')['Ready'])

    def test_new_bmc_costs_few_calls(self):
        calls = collections.Counter()
        kube = cluster_with(*NODES)
        kube.faults.append(lambda verb, kind, name: calls.update(
            [(verb, kind)] if 'n0' in name else ()))
        shards_case.Operator(kube).settle()
        self.assertEqual({
            # Its user name and password, its certificate, its state.
            ('create', 'Secret'): 3,
            ('create', 'Service'): 1,
            # The certificate of the authority.
            ('create', 'ConfigMap'): 1,
            # The status.
            ('patch', 'VirtualMachineBMC'): 1}, calls)

    def test_claims_are_written_at_once(self):
        names = [f'n{number}' for number in range(100)]
        kube = cluster_with(*names)
        operator = shards_case.Operator(kube, bmcs_per_pod=1000)
        operator.settle()
        self.assertEqual(100, len(slots(kube)))
        self.assertLess(len([one for one in kube.writes
                             if naming.shared(0) in one]), 15)

    def limit_text(self, characters):
        self.useFixture(fixtures.MockPatchObject(
            shards, '_MAX_TEXT', characters))

    def test_recorded_slot_wakes_its_bmc_once(self):
        operator = shards_case.Operator(cluster_with('n0'))
        operator._do(operator.reconciler.reconcile(('lab', 'n0')))
        woken = []
        with mock.patch.object(operator.shards, '_wake', woken.extend):
            operator._do(operator.shards.reconcile(('lab', 0)))
            self.assertIn(('lab', 'n0'), woken)
            woken.clear()
            operator._do(operator.shards.reconcile(('lab', 0)))
        self.assertEqual([], woken)

    def test_room_is_limited_by_the_text(self):
        self.limit_text(20000)
        hosts = long_hosts(32)
        names = [f'n{number}' for number in range(6)]
        kube = cluster_with()
        for name in names:
            kube.add(cluster.vm(name=name))
            kube.add(body(name, virtualMedia={'allowedHosts': hosts}))
        operator = shards_case.Operator(kube, bmcs_per_pod=1000)
        # All of them claim before any has an entry.
        operator.settle()
        self.assertEqual(
            [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)],
            sorted(slots(kube).values()))
        for members in records(kube).values():
            self.assertTrue(all('vm' in text for text in members.values()))
            self.assertLess(sum(map(len, members.values())), 20000)

    def test_entry_that_grows_too_long_moves(self):
        self.limit_text(5000)
        kube = cluster_with(*NODES)
        operator = shards_case.Operator(kube, bmcs_per_pod=1000)
        operator.settle()
        self.assertEqual({0}, {shard for shard, _ in slots(kube).values()})
        kube.change(
            'VirtualMachineBMC', 'lab', 'n1', harness.set_spec(
                virtualMedia={'allowedHosts': long_hosts(16)}))
        operator.settle()
        found = slots(kube)
        self.assertEqual([0, 1, 0], [found[name][0] for name in NODES])
        self.assertEqual(('True', 'ServiceReady'),
                         harness.conditions(kube, 'n1')['Ready'])
        service = kube.objects['Service', 'lab', 'n1-virtbmc']['spec']
        self.assertEqual('1', service['selector'][stored_names.SHARD])

    def test_pod_keeps_memory_for_its_bmcs(self):
        kube = cluster_with(*NODES, 'n3')
        shards_case.Operator(kube, bmcs_per_pod=4).settle()

        def limit():
            return kube.objects['Deployment', 'lab', naming.shared(0)][
                'spec']['template']['spec']['containers'][0]['resources'][
                    'limits']['memory']
        self.assertEqual('168Mi', limit())
        operator = shards_case.Operator(kube, bmcs_per_pod=1)
        operator.settle()
        self.assertEqual('168Mi', limit())
        # Not one BMC less replaces the pod, but the next operator.
        kube.remove('VirtualMachineBMC', 'lab', 'n0')
        operator.shards.release(('lab', 'n0'))
        operator.settle()
        self.assertEqual('168Mi', limit())
        shards_case.Operator(kube, bmcs_per_pod=1).settle()
        self.assertEqual('166Mi', limit())

    def test_free_slot_rests(self):
        kube = cluster_with('n0')
        operator = shards_case.Operator(kube, bmcs_per_pod=1)
        operator.settle()
        for name, expected in (('n1', (0, 1)), ('n2', (0, 2))):
            old = next(iter(slots(kube)))
            kube.remove('VirtualMachineBMC', 'lab', old)
            operator.shards.release(('lab', old))
            kube.add(cluster.vm(name=name))
            kube.add(body(name))
            # Also when the pod was removed meanwhile.
            operator.settle()
            self.assertEqual({name: expected}, slots(kube))
        # So does the next operator, with the record of the former one.
        kube.remove('VirtualMachineBMC', 'lab', 'n2')
        kube.add(body('n0'))
        operator = shards_case.Operator(kube, bmcs_per_pod=1)
        operator.settle()
        self.assertEqual({'n0': (0, 0)}, slots(kube))
        kube.remove('VirtualMachineBMC', 'lab', 'n0')
        operator.shards.release(('lab', 'n0'))
        kube.add(body('n1'))
        with mock.patch('time.monotonic', return_value=time.monotonic()
                        + shards.REST_SECONDS + 1):
            operator.settle()
        self.assertEqual({'n1': (0, 0)}, slots(kube))

    def test_rest_does_not_fill_a_pod(self):
        kube = cluster_with('n0')
        operator = shards_case.Operator(kube)
        shard = operator.shards._shard('lab', 0)
        for slot in range(placement.SLOTS):
            operator.shards._rest(shard, slot)
        operator.settle()
        self.assertEqual({'n0': (0, 0)}, slots(kube))

    def test_deleted_record_is_made_again_as_it_was(self):
        kube = cluster_with('n0', 'n1')
        operator = shards_case.Operator(kube)
        operator.settle()
        name = naming.shared(0)
        gone = kube.objects['ConfigMap', 'lab', name]
        kube.remove('ConfigMap', 'lab', name)
        operator.sync()
        operator.shards.seen(bmc_resources.CONFIG_MAP, 'lab', name, gone)
        operator._do(operator.shards.reconcile(('lab', 0)))
        self.assertEqual(gone['data'], records(kube)['lab', 0])

    def test_bmc_that_is_back_is_found_in_the_report(self):
        kube = cluster_with('n0')
        operator = shards_case.Operator(kube)
        operator.settle()
        key, bmc = ('lab', 'n0'), spec.read(
            kube.objects['VirtualMachineBMC', 'lab', 'n0'])
        self.assertTrue(operator.shards.placement_of(bmc).served)
        # The pod saw the entry only, not that it was away.
        operator.shards.release(key)
        operator.shards._resting.clear()
        for _ in range(3):
            operator._do(operator.reconciler.reconcile(key))
            operator._do(operator.shards.reconcile(('lab', 0)))
        self.assertTrue(operator.shards.placement_of(bmc).served)

    def test_upgrade_replaces_pod_after_pod(self):
        kube = cluster_with(*NODES)
        shards_case.Operator(kube, image='a:1').settle()

        def images():
            return sorted(
                obj['spec']['template']['spec']['containers'][0]['image']
                for obj in kube.list('Deployment'))
        self.assertEqual(['a:1', 'a:1'], images())
        operator = shards_case.Operator(kube, image='a:2', max_unavailable=1)
        operator._do(operator.shards.reconcile(('lab', 0)))
        # The controller of Deployments stops the pod.
        stopped = kube.objects['Deployment', 'lab', naming.shared(0)]
        stopped['status'] = {}
        stopped['metadata']['resourceVersion'] = str(next(kube._count))
        # The next operator knows which pod it has to wait for.
        for one in operator, shards_case.Operator(
                kube, image='a:2', max_unavailable=1):
            one.sync()
            one.shards._read_deployment(one.shards._shards['lab'][0])
            one._do(one.shards.reconcile(('lab', 1)))
            self.assertEqual(['a:1', 'a:2'], images())
        one.settle()
        self.assertEqual(['a:2', 'a:2'], images())
        self.assertFalse([
            obj for obj in kube.list('Deployment')
            if stored_names.UPGRADING in obj['metadata'].get(
                'annotations', {})])

    def test_upgrade_recreates_a_deployment_with_another_selector(self):
        kube = cluster_with('n0')
        shards_case.Operator(kube, image='a:1').settle()
        name = naming.shared(0)
        # A selector is immutable, so the Deployment has to be recreated.
        kube.change('Deployment', 'lab', name, lambda obj: obj['spec'].update(
            selector={'matchLabels': {'app': 'of-another-version'}}))
        before = kube.objects['Deployment', 'lab', name]['metadata']['uid']
        shards_case.Operator(kube, image='a:2').settle()
        deployment = kube.objects['Deployment', 'lab', name]
        self.assertNotEqual(before, deployment['metadata']['uid'])
        template = deployment['spec']['template']
        self.assertEqual('a:2', template['spec']['containers'][0]['image'])
        self.assertLessEqual(
            deployment['spec']['selector']['matchLabels'].items(),
            template['metadata']['labels'].items())

    def test_hosts_of_the_cluster_replace_no_pod(self):
        kube = cluster_with('n0')
        operator = shards_case.Operator(kube, cluster_hosts=('10.96.0.0/12',))
        operator.settle()
        pod = 'Deployment', 'lab', naming.shared(0)
        before = records(kube), kube.objects[pod]['spec']
        for hosts in ('192.0.2.1:6443',), ('192.0.2.2:6443', '10.4.0.0/16'):
            operator.shards.deny(hosts)
            operator.reconciler.deny(hosts)
            operator.settle()
            self.assertEqual(list(hosts), kube.objects[
                'ConfigMap', 'lab', naming.shared(0) + '-config']['data'][
                    'cluster-hosts.txt'].split())
            self.assertEqual(before, (records(kube),
                                      kube.objects[pod]['spec']))
