# SPDX-License-Identifier: Apache-2.0
"""Where pods are placed, and what is said when there is no node."""

import asyncio
import itertools

from oslotest import base

from kubevirt_sandbox.api import core
from kubevirt_sandbox.scheduling import scheduler
from kubevirt_sandbox.testing import server

HOSTNAME, ZONE = 'kubernetes.io/hostname', 'topology.kubernetes.io/zone'
APP = {'matchLabels': {'app': 'a'}}
NOT_HELPFUL = ('no new claims to deallocate, preemption: 0/3 nodes are '
               'available: 3 Preemption is not helpful for scheduling.')


def spread(key=HOSTNAME, when='DoNotSchedule', **more):
    return {'topologySpreadConstraints': [{
        'maxSkew': 1, 'topologyKey': key, 'whenUnsatisfiable': when,
        'labelSelector': APP, **more}]}


def wants(**requests):
    return {'containers': [{'name': 'c', 'resources': {
        'requests': requests}}]}


def node_affinity(operator, *values, key=ZONE, field='matchExpressions'):
    return {'affinity': {'nodeAffinity': {
        'requiredDuringSchedulingIgnoredDuringExecution': {
            'nodeSelectorTerms': [{field: [{
                'key': key, 'operator': operator,
                'values': list(values)}]}]}}}}


def pod_affinity(kind, key=HOSTNAME, **term):
    return {'affinity': {kind: {
        'requiredDuringSchedulingIgnoredDuringExecution': [{
            'topologyKey': key, 'labelSelector': APP, **term}]}}}


class SchedulerTestCase(base.BaseTestCase):
    """Three nodes, two of them in zone east, with room for two pods each."""

    def setUp(self):
        super().setUp()
        cluster = server.cluster()
        self.store = cluster.store
        self.store.delete(core.NODE, '', 'node-0')
        for name, zone in (('a', 'east'), ('b', 'east'), ('c', 'west')):
            self.store.create(core.NODE, {'metadata': {
                'name': name, 'labels': {HOSTNAME: name, ZONE: zone}},
                'spec': {}})
            self.change(name, lambda node: node.update(status={
                'allocatable': {'cpu': '4', 'memory': '4Gi', 'pods': '2'}}),
                'status')
        self.scheduler = scheduler.of(cluster)
        self.assertIs(self.scheduler, scheduler.of(cluster))
        self.numbers = itertools.count()

    def change(self, name, change, subresource=''):
        self.store.change(core.NODE, '', name, change,
                          subresource=subresource)

    def spec(self, name, **spec):
        self.change(name, lambda node: node['spec'].update(spec))

    def pod(self, labels=None, namespace='default', **spec):
        return {'metadata': {
            'namespace': namespace, 'uid': str(next(self.numbers)),
            'labels': {'app': 'a'} if labels is None else labels},
            'spec': spec}

    def place(self, *args, **spec):
        """Place a pod; return the name of its node."""
        pod = self.pod(*args, **spec)
        name, why = self.scheduler.find(pod)
        self.assertEqual('', why)
        self.scheduler.assume(pod, name)
        return name

    def refusal(self, **spec):
        name, why = self.scheduler.find(self.pod(**spec))
        self.assertIsNone(name)
        return why

    def only_c(self):
        for name in 'ab':
            self.spec(name, unschedulable=True)


class NodeRulesTestCase(SchedulerTestCase):

    def test_pods_without_rules_are_spread(self):
        self.assertEqual('abcabc', ''.join(
            self.place() for _ in range(6)))

    def test_every_reason_is_counted(self):
        self.spec('a', unschedulable=True)
        self.spec('b', taints=[{'key': 'k', 'value': 'v',
                                'effect': 'NoSchedule'}])
        self.assertEqual(
            "0/3 nodes are available: 1 node(s) didn't match Pod's node "
            'affinity/selector, 1 node(s) had untolerated taint(s), 1 '
            'node(s) were unschedulable. ' + NOT_HELPFUL,
            self.refusal(nodeSelector={'disk': 'gold'}))

    def test_cordoned_node_gets_no_pods(self):
        self.spec('b', unschedulable=True)
        self.assertEqual('acac', ''.join(self.place() for _ in range(4)))
        self.assertEqual('b', self.place(tolerations=[{
            'key': 'node.kubernetes.io/unschedulable',
            'operator': 'Exists'}]))

    def test_tolerations(self):
        self.spec('c', taints=[{'key': 'k', 'value': 'v',
                                'effect': 'NoSchedule'}])
        only = {'nodeSelector': {HOSTNAME: 'c'}}
        for one in ({'operator': 'Exists'}, {'key': 'k', 'value': 'v'},
                    {'key': 'k', 'operator': 'Exists',
                     'effect': 'NoSchedule'}):
            self.assertEqual('c', self.scheduler.find(
                self.pod(tolerations=[one], **only))[0])
        for one in ({'key': 'k', 'value': 'w'},
                    {'operator': 'Exists', 'effect': 'NoExecute'}):
            self.assertIn(
                "1 node(s) had untolerated taint(s), 2 node(s) didn't match",
                self.refusal(tolerations=[one], **only))

    def test_disliked_node_is_the_last(self):
        self.spec('a', taints=[{'key': 'k', 'effect': 'PreferNoSchedule'}])
        self.assertEqual('bcbcaa', ''.join(self.place() for _ in range(6)))

    def test_node_affinity(self):
        self.change('c', lambda node: node['metadata']['labels'].update(
            rack='12'))
        for found, *rule in (
                ('c', 'In', 'west'), ('c', 'NotIn', 'east'), ('a', 'Exists'),
                (None, 'DoesNotExist'), (None, 'In')):
            self.assertEqual(found, self.scheduler.find(
                self.pod(**node_affinity(*rule)))[0], rule)
        for found, *rule in (('c', 'Gt', '11'), (None, 'Gt', '12'),
                             ('c', 'Lt', '13'), (None, 'Lt', 'x')):
            self.assertEqual(found, self.scheduler.find(self.pod(
                **node_affinity(*rule, key='rack')))[0], rule)
        self.assertEqual('b', self.scheduler.find(self.pod(**node_affinity(
            'In', 'b', key='metadata.name', field='matchFields')))[0])

    def test_preferred_node_affinity(self):
        self.assertEqual('c', self.place(affinity={'nodeAffinity': {
            'preferredDuringSchedulingIgnoredDuringExecution': [{
                'weight': 5, 'preference': {'matchExpressions': [{
                    'key': ZONE, 'operator': 'In', 'values': ['west']}]}}]}}))

    def test_no_nodes(self):
        for name in 'abc':
            self.store.delete(core.NODE, '', name)
        self.assertEqual('no nodes available to schedule pods',
                         self.refusal())


class ResourcesTestCase(SchedulerTestCase):

    def test_sum_of_requests_is_limited(self):
        self.only_c()
        self.assertEqual('c', self.place(**wants(cpu='2500m')))
        self.assertEqual(
            '0/3 nodes are available: 1 Insufficient cpu, 2 node(s) were '
            'unschedulable. no new claims to deallocate, preemption: 0/3 '
            'nodes are available: 1 No preemption victims found for incoming '
            'pod, 2 Preemption is not helpful for scheduling.',
            self.refusal(**wants(cpu='1600m')))
        self.assertEqual('c', self.place(**wants(cpu='1500m')))
        self.assertIn('1 Too many pods, 2 node(s)', self.refusal())

    def test_node_lacks_several_resources(self):
        self.assertEqual(
            '0/3 nodes are available: 3 Insufficient cpu, 3 Insufficient '
            'hugepages-2Mi, 3 Insufficient memory. ' + NOT_HELPFUL,
            self.refusal(**wants(cpu='5', memory='5Gi', **{
                'hugepages-2Mi': '2Mi'})))

    def test_device_of_one_node(self):
        device = 'bridge.network.kubevirt.io/br1'
        self.change('b', lambda node: node['status']['allocatable'].update({
            device: '1'}), 'status')
        limits = {'containers': [{'name': 'c', 'resources': {
            'limits': {device: '1'}}}]}
        self.assertEqual('b', self.place(**limits))
        self.assertEqual(
            f'0/3 nodes are available: 3 Insufficient {device}. no new claims '
            'to deallocate, preemption: 0/3 nodes are available: 1 No '
            'preemption victims found for incoming pod, 2 Preemption is not '
            'helpful for scheduling.', self.refusal(**limits))

    def test_init_containers_and_overhead_count(self):
        spec = wants(cpu='1')
        spec['initContainers'] = [
            {'name': 'side', 'restartPolicy': 'Always', 'resources': {
                'requests': {'cpu': '1'}}},
            {'name': 'big', 'resources': {'requests': {'cpu': '2500m'}}}]
        self.place(**spec)
        spec['overhead'] = {'cpu': '501m'}
        self.assertIn('3 Insufficient cpu', self.refusal(**spec))

    def test_node_without_known_resources_is_not_limited(self):
        self.only_c()
        self.change('c', lambda node: node.update(status={}), 'status')
        self.assertEqual('c', self.place(**wants(cpu='99')))

    def test_waiting_pods_are_called_when_one_leaves(self):
        self.only_c()

        async def run():
            called = asyncio.Event()
            end = self.scheduler.call_when_changed(called.set)
            pods = [self.pod(), self.pod()]
            for pod in pods:
                self.scheduler.assume(pod, 'c')
            self.assertIn('Too many pods', self.refusal())
            self.assertFalse(called.is_set())
            self.scheduler.forget(pods[0]['metadata']['uid'])
            await asyncio.wait_for(called.wait(), 10)
            self.assertEqual('c', self.place())
            called.clear()
            # A pod that cannot stay for its own reasons makes no room.
            self.scheduler.forget(pods[1]['metadata']['uid'], retry=False)
            await asyncio.sleep(0.3)
            self.assertFalse(called.is_set())
            self.spec('a', unschedulable=False)
            self.assertTrue(called.is_set())
            end()
        asyncio.run(run())

    def test_pods_of_the_api_are_known(self):
        async def run():
            for name in 'xy':
                self.store.create(core.POD, {
                    'metadata': {'name': name, 'namespace': 'default'},
                    'spec': {'nodeName': 'c', 'containers': [
                        {'name': 'c', 'image': 'i'}]}})
            self.only_c()
            self.assertIn('Too many pods', self.refusal())
            self.store.change(core.POD, 'default', 'x', lambda pod: pod
                              .update(status={'phase': 'Succeeded'}),
                              subresource='status')
            self.assertEqual('c', self.place())
            self.assertIn('Too many pods', self.refusal())
            self.store.delete(core.POD, 'default', 'y', grace=0)
            self.assertEqual('c', self.place())
        asyncio.run(run())


class PodRulesTestCase(SchedulerTestCase):

    def test_required_spread_waits_for_a_cordoned_node(self):
        self.spec('b', unschedulable=True)
        self.assertEqual(['a', 'c'], sorted(
            self.place(**spread()) for _ in range(2)))
        self.assertEqual(
            "0/3 nodes are available: 1 node(s) were unschedulable, 2 node(s) "
            "didn't match pod topology spread constraints. no new claims to "
            'deallocate, preemption: 0/3 nodes are available: 1 Preemption is '
            'not helpful for scheduling, 2 No preemption victims found for '
            'incoming pod.', self.refusal(**spread()))
        self.spec('b', unschedulable=False)
        self.assertEqual('b', self.place(**spread()))

    def test_preferred_spread_uses_the_other_nodes(self):
        self.spec('b', unschedulable=True)
        found = [self.place(**spread(when='ScheduleAnyway'))
                 for _ in range(4)]
        self.assertEqual(['a', 'a', 'c', 'c'], sorted(found))

    def test_preferred_spread_counts_selected_pods_only(self):
        self.place({'app': 'other'})
        self.place({'app': 'a'}, nodeSelector={HOSTNAME: 'b'})
        self.place({'app': 'a'}, nodeSelector={HOSTNAME: 'c'})
        self.assertEqual('a', self.place(**spread(when='ScheduleAnyway')))

    def test_spread_over_zones(self):
        self.assertEqual(['east', 'west'], sorted(
            {'a': 'east', 'b': 'east', 'c': 'west'}[
                self.place(**spread(ZONE))] for _ in range(2)))

    def test_skew_is_of_own_namespace_and_label_keys(self):
        self.only_c()
        self.place(namespace='other')
        rule = spread(matchLabelKeys=['version'])
        self.spec('a', unschedulable=False)
        self.place({'app': 'a', 'version': '1'},
                   nodeSelector={HOSTNAME: 'c'})
        for version, nodes in (('1', 'a'), ('2', 'ac')):
            name, why = self.scheduler.find(self.pod(
                {'app': 'a', 'version': version}, **rule))
            self.assertIn(name, nodes, why)

    def test_spread_without_label(self):
        self.assertEqual(
            "0/3 nodes are available: 3 node(s) didn't match pod topology "
            'spread constraints (missing required label). ' + NOT_HELPFUL,
            self.refusal(**spread('rack')))

    def test_too_few_domains(self):
        self.place(**spread(minDomains=4))
        self.place(**spread(minDomains=4))
        self.place(**spread(minDomains=4))
        self.assertIn('3 node(s)', self.refusal(**spread(minDomains=4)))
        self.assertIsNotNone(self.scheduler.find(
            self.pod(**spread(minDomains=3)))[0])

    def test_pods_that_end_are_not_counted(self):
        self.only_c()
        pod = self.pod()
        pod['metadata']['deletionTimestamp'] = '2026-01-01T00:00:00Z'
        self.scheduler.assume(pod, 'c')
        self.spec('a', unschedulable=False)
        self.scheduler.assume(self.pod(), 'a')
        self.spec('b', unschedulable=False)
        self.scheduler.assume(self.pod(), 'b')
        self.assertEqual('c', self.place(**spread()))

    def test_spread_over_untainted_nodes(self):
        self.spec('c', taints=[{'key': 'k', 'effect': 'NoSchedule'}])
        rule = spread(nodeTaintsPolicy='Honor')
        self.assertEqual(['a', 'a', 'b', 'b'], sorted(
            self.place(**rule) for _ in range(4)))

    def test_anti_affinity(self):
        rule = pod_affinity('podAntiAffinity')
        self.assertEqual(['a', 'b', 'c'], sorted(
            self.place(**rule) for _ in range(3)))
        self.assertIn("3 node(s) didn't match pod anti-affinity rules. no",
                      self.refusal(**rule))
        self.assertIn("3 node(s) didn't satisfy existing pods anti-affinity "
                      'rules', self.refusal())
        self.assertIsNotNone(self.scheduler.find(self.pod({}))[0])
        self.assertIsNotNone(self.scheduler.find(
            self.pod(namespace='other', **rule))[0])

    def test_anti_affinity_over_namespaces(self):
        for name in ('one', 'two'):
            self.store.create(core.NAMESPACE, {'metadata': {
                'name': name, 'labels': {'team': name}}})
        for term in ({'namespaces': ['one']}, {'namespaceSelector': {}},
                     {'namespaceSelector': {'matchLabels': {
                         'team': 'one'}}}):
            rule = pod_affinity('podAntiAffinity', ZONE, **term)
            pod = self.pod(namespace='one')
            self.scheduler.assume(pod, 'a')
            self.assertEqual('c', self.scheduler.find(
                self.pod(namespace='two', **rule))[0])

    def test_affinity(self):
        rule = pod_affinity('podAffinity', ZONE)
        self.assertIn("3 node(s) didn't match pod affinity rules. "
                      + NOT_HELPFUL, self.refusal(
                          **pod_affinity('podAffinity', labelSelector={
                              'matchLabels': {'app': 'none'}})))
        first = self.place(**rule)  # it matches its own rule
        self.assertEqual('a', first)
        self.assertEqual(['a', 'b', 'b'], sorted(
            self.place(**rule) for _ in range(3)))
        self.assertIn('Too many pods', self.refusal(**rule))

    def test_preferred_affinity(self):
        self.place(nodeSelector={HOSTNAME: 'c'})
        term = {'weight': 1, 'podAffinityTerm': {
            'topologyKey': ZONE, 'labelSelector': APP}}
        for kind, nodes in (('podAffinity', 'c'), ('podAntiAffinity', 'ab')):
            self.assertIn(self.scheduler.find(self.pod(affinity={kind: {
                'preferredDuringSchedulingIgnoredDuringExecution': [
                    term]}}))[0], nodes)
