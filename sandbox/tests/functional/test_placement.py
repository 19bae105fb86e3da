# SPDX-License-Identifier: Apache-2.0
"""Nodes, networks and quotas of VMs, in a sandbox with three nodes."""

import uuid

from kubevirt_sandbox.testing import given_cluster
from kubevirt_sandbox.testing import sandbox
from tests.functional import kubevirt

DEVICE = 'bridge.network.kubevirt.io/br1'
NETWORKS = 'network-attachment-definitions'
SPREAD = {'topologyKey': 'kubernetes.io/hostname', 'maxSkew': 1,
          'whenUnsatisfiable': 'DoNotSchedule',
          'labelSelector': {'matchLabels': {'cluster': 'a'}}}


@given_cluster.needs_sandbox('nodes of its own')
class PlacementTestCase(kubevirt.KubeVirtTestCase):

    @classmethod
    def setUpClass(cls):
        super(kubevirt.KubeVirtTestCase, cls).setUpClass()
        cls.cluster = cls.share(sandbox.Sandbox(0, cls.BOOT_SECONDS, (
            '--nodes', '3', '--pods', 'pretended')))

    def change_node(self, name, body, subresource=''):
        self.cluster.request(
            'PATCH', f'/api/v1/nodes/{name}{subresource}', body,
            content_type=sandbox.MERGE_PATCH, expect=200)

    def cordon(self, name, cordoned=True):
        self.change_node(name, {'spec': {'unschedulable': cordoned}})
        if cordoned:
            self.addCleanup(self.cordon, name, False)

    def offer(self, name, **resources):
        """Change allocatable resources of a node for the test."""
        node = self.cluster.request('GET', f'/api/v1/nodes/{name}').json()
        before = node['status']['allocatable']
        self.change_node(name, {'status': {'allocatable': resources}},
                         '/status')
        self.addCleanup(self.change_node, name, {'status': {'allocatable': {
            key: before.get(key) for key in resources}}}, '/status')

    def define(self, **annotations):
        """Create a network for the test; return its name."""
        name = 'net-' + uuid.uuid4().hex[:8]
        self.cluster.create(NETWORKS, {
            'apiVersion': 'k8s.cni.cncf.io/v1',
            'kind': 'NetworkAttachmentDefinition',
            'metadata': {'name': name, 'annotations': annotations},
            'spec': {'config': '{"cniVersion": "0.3.1", "type": "bridge"}'}})
        self.addCleanup(self.cluster.delete, NETWORKS, name)
        return name

    def condition(self, name, kind):
        return next(one for one in self.cluster.vm(name)['status'][
            'conditions'] if one['type'] == kind)

    def node(self, name):
        return self.cluster.wait_running(name)['status']['nodeName']

    def events(self, reason):
        return [one for one in self.cluster.list('events')
                if one['reason'] == reason]


def on(*networks):
    """Return a change that puts a VM on networks of Multus, too."""
    def change(vm, spec):
        for name in networks:
            spec['networks'].append({
                'name': name, 'multus': {'networkName': name}})
            spec['domain']['devices']['interfaces'].append(
                {'name': name, 'bridge': {}})
    return change


def spread(vm, spec):
    vm['spec']['template']['metadata']['labels']['cluster'] = 'a'
    spec['topologySpreadConstraints'] = [SPREAD]


class NodesTestCase(PlacementTestCase):

    def test_spread_over_three_nodes_with_one_cordoned(self):
        self.cordon('node-1')
        names = [self.make('Always', spread) for _ in range(3)]
        for name in names[:2]:
            self.node(name)
        self.wait_word(names[2], 'ErrorUnschedulable')
        self.assertEqual({'node-0', 'node-2'},
                         {self.node(name) for name in names[:2]})
        message = (
            "0/3 nodes are available: 1 node(s) were unschedulable, 2 node(s) "
            "didn't match pod topology spread constraints. no new claims to "
            'deallocate, preemption: 0/3 nodes are available: 1 Preemption is '
            'not helpful for scheduling, 2 No preemption victims found for '
            'incoming pod.')
        condition = self.condition(names[2], 'PodScheduled')
        self.assertEqual(('False', 'Unschedulable', message), tuple(
            condition[key] for key in ('status', 'reason', 'message')))
        event = next(one for one in self.events('FailedScheduling')
                     if one['message'] == message)
        self.assertEqual('Pod', event['involvedObject']['kind'])
        self.assertRegex(event['involvedObject']['name'],
                         f'^virt-launcher-{names[2]}-')
        self.cordon('node-1', False)
        self.assertEqual('node-1', self.node(names[2]))

    def test_memory_of_a_node_is_shared(self):
        for name in ('node-0', 'node-2'):
            self.cordon(name)
        self.offer('node-1', memory='1Gi')
        first, _ = self.make_running(memory={'guest': '512Mi'})
        second = self.make('Always', memory={'guest': '512Mi'})
        self.wait_word(second, 'ErrorUnschedulable')
        self.assertIn('1 Insufficient memory, 2 node(s) were unschedulable',
                      self.condition(second, 'PodScheduled')['message'])
        self.cluster.do(first, 'stop')
        self.assertEqual('node-1', self.node(second))

    def test_huge_pages_and_dedicated_cpus(self):
        self.offer('node-2', **{'hugepages-2Mi': '128Mi'})
        name, _ = self.make_running(memory={
            'guest': '64Mi', 'hugepages': {'pageSize': '2Mi'}})
        self.assertEqual('node-2', self.node(name))
        name = self.make('Always', cpu={
            'cores': 2, 'dedicatedCpuPlacement': True})
        self.wait_word(name, 'ErrorUnschedulable')
        self.change_node('node-1', {'metadata': {'labels': {
            'cpumanager': 'true'}}})
        self.assertEqual('node-1', self.node(name))
        self.assertEqual('Guaranteed',
                         self.cluster.vmi(name)['status']['qosClass'])

    def test_new_node_gets_what_kubelet_and_kubevirt_add(self):
        self.cluster.request('POST', '/api/v1/nodes', {
            'apiVersion': 'v1', 'kind': 'Node',
            'metadata': {'name': 'new', 'labels': {'rack': '1'}}},
            expect=201)
        self.addCleanup(self.cluster.request, 'DELETE', '/api/v1/nodes/new')
        name, _ = self.make_running(change=lambda vm, spec: spec.update(
            nodeSelector={'rack': '1'}))
        self.assertEqual('new', self.node(name))


class NetworksTestCase(PlacementTestCase):

    def test_interfaces_of_networks(self):
        networks = self.define(), self.define()
        name, _ = self.make_running(change=on(*networks))
        found = {one['name']: one for one in self.cluster.vmi(name)[
            'status']['interfaces']}
        self.assertEqual({'default', *networks}, set(found))
        self.assertEqual(3, len({one['mac'] for one in found.values()}))
        for network in networks:
            self.assertEqual('domain, multus-status',
                             found[network]['infoSource'])
            self.assertNotIn('ipAddress', found[network])

    def test_missing_network(self):
        name = self.make('Always', on('absent'))
        self.wait_condition(name, 'Synchronized', 'False')
        condition = self.condition(name, 'Synchronized')
        self.assertEqual(
            ('FailedCreate', 'failed to render launch manifest: failed to '
             'locate network attachment definition '
             f'{sandbox.NAMESPACE}/absent'),
            (condition['reason'], condition['message']))
        self.assertEqual('Pending',
                         self.cluster.vmi(name)['status']['phase'])
        self.cluster.create(NETWORKS, {
            'apiVersion': 'k8s.cni.cncf.io/v1',
            'kind': 'NetworkAttachmentDefinition',
            'metadata': {'name': 'absent'}, 'spec': {'config': '{}'}})
        self.addCleanup(self.cluster.delete, NETWORKS, 'absent')
        self.node(name)
        self.assertIsNone(self.state(self.cluster.vm(name), 'Synchronized'))

    def test_network_of_one_node(self):
        network = self.define(**{
            'k8s.v1.cni.cncf.io/resourceName': DEVICE})
        name = self.make('Always', on(network))
        self.wait_word(name, 'ErrorUnschedulable')
        self.assertIn(f'0/3 nodes are available: 3 Insufficient {DEVICE}.',
                      self.condition(name, 'PodScheduled')['message'])
        self.offer('node-1', **{DEVICE: '1'})
        self.assertEqual('node-1', self.node(name))
        other = self.make('Always', on(network))
        self.wait_word(other, 'ErrorUnschedulable')
        self.cluster.do(name, 'stop')
        self.assertEqual('node-1', self.node(other))


class QuotasTestCase(PlacementTestCase):

    def test_quota_of_launchers(self):
        self.cluster.create('resourcequotas', {
            'apiVersion': 'v1', 'kind': 'ResourceQuota',
            'metadata': {'name': 'small'},
            'spec': {'hard': {'requests.cpu': '150m', 'pods': '5'}}})
        self.addCleanup(self.cluster.delete, 'resourcequotas', 'small')
        first, _ = self.make_running()
        second = self.make('Always')
        self.wait_condition(second, 'Synchronized', 'False')
        why = (r'pods "virt-launcher-[-a-z0-9]+" is forbidden: exceeded '
               'quota: small, requested: requests.cpu=100m, used: '
               'requests.cpu=100m, limited: requests.cpu=150m')
        condition = self.condition(second, 'Synchronized')
        self.assertEqual('FailedCreate', condition['reason'])
        self.assertRegex(condition['message'],
                         f'^failed to create virtual machine pod: {why}$')
        event = self.events('FailedCreate')[0]
        self.assertRegex(event['message'], f'^Error creating pod: {why}$')
        self.assertEqual(second, event['involvedObject']['name'])
        self.cluster.do(first, 'stop')
        self.node(second)
