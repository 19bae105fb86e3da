# SPDX-License-Identifier: Apache-2.0
"""Where the VMs of clusters run, on three nodes, and why some do not."""

import collections
import json

from kubevirt_sandbox.testing import given_cluster
from sushy_kubevirt.cluster import model
from tests.fixtures import operator
from tests.fixtures import virtual_cluster
from tests.fixtures import virtual_cluster_case

RUNNING = {'spec': {'runStrategy': 'Always'}}


@given_cluster.needs_sandbox('three nodes of its own')
class PlacementTestCase(virtual_cluster_case.VirtualClusterTestCase):

    SANDBOX = (*operator.PRETENDED_PODS, '--nodes', '3')
    NODES = ('node-0', 'node-1', 'node-2')

    def cordon(self, *nodes):
        for node in nodes:
            self.admin('cordon', node)
            self.addCleanup(self.admin, 'uncordon', node)

    def label(self, node, text):
        self.admin('label', 'node', node, text)
        self.addCleanup(self.admin, 'label', 'node', node,
                        text.partition('=')[0] + '-')

    def shrink(self, node):
        """Make a node so small that VMs would be put elsewhere."""
        def patch(size):
            self.admin('patch', 'node', node, '--subresource=status',
                       '--type=merge', '-p', json.dumps(
                           {'status': {'allocatable': size}}))

        old = self.admin.get('node', node)['status']['allocatable']
        patch({'cpu': '2', 'memory': '4Gi'})
        self.addCleanup(patch, old)

    def cluster(self, count=4, placement=None, **more):
        return virtual_cluster.cluster(
            count, vm=RUNNING, placement=placement or model.Placement(),
            **more)

    def hosts(self, count):
        """Wait until VMs run.

        :returns: number of VMs by node
        """
        def read():
            nodes = [(one.get('status') or {}).get('nodeName')
                     for one in self.kubectl.get('vmi')['items']]
            return [one for one in nodes if one]
        self.until('all VMs have nodes', lambda: len(read()), count)
        return collections.Counter(read())

    def test_spread(self):
        self.shrink('node-0')
        self.cordon('node-1')
        self.apply(self.cluster())
        self.assertEqual({'node-0': 2, 'node-2': 2}, self.hosts(4))
        self.admin('uncordon', 'node-1')
        self.apply(self.cluster(6))
        self.assertEqual(dict.fromkeys(self.NODES, 2), self.hosts(6))
        self.check_teardown()

    def test_failure_domains(self):
        """Two zones, one of them with a single node."""
        self.label('node-0', 'zone=a')
        for node in 'node-1', 'node-2':
            self.label(node, 'zone=b')
        self.apply(self.cluster(6, placement=model.Placement(
            spread='zone', spread_required=True)))
        hosts = self.hosts(6)
        self.assertEqual((3, 3), (
            hosts['node-0'], hosts['node-1'] + hosts['node-2']))
        self.check_teardown()

    def test_network_on_one_node(self):
        """Its selector is that of the types with an interface in it."""
        made = self.read('''
            networks:
              lab: {attachment: lab, node_selector: {physnet: lab}}
            node_types:
              with: {vcpus: 1, memory_mb: 64, physical_networks: [lab],
                     vm: {spec: {runStrategy: Always}}}
            specs: [{type: with, count: 3}]
            ''')
        self.kubectl.apply({
            'apiVersion': 'k8s.cni.cncf.io/v1',
            'kind': 'NetworkAttachmentDefinition',
            'metadata': {'name': 'lab'},
            'spec': {'config': '{"type": "bridge", "bridge": "br0"}'}})
        self.initial = self.everything()
        result = self.user.apply(made)
        self.assertEqual({'tk0', 'tk1', 'tk2'}, set(result.failed))
        for reason in result.failed.values():
            self.assertIn("3 node(s) didn't match Pod's node affinity/"
                          'selector', reason)
        self.label('node-2', 'physnet=lab')
        self.apply(made)
        self.assertEqual({'node-2': 3}, self.hosts(3))
        self.check_teardown('c')

    def test_no_node_for_bmcs(self):
        self.cordon(*self.NODES)
        result = self.user.apply(virtual_cluster.cluster(2))
        self.assertEqual({'tk0', 'tk1'}, set(result.failed))
        for reason in result.failed.values():
            self.assertIn('Pod tk', reason)
            self.assertIn('3 node(s) were unschedulable', reason)
        self.admin('uncordon', 'node-0')
        self.apply(virtual_cluster.cluster(2))
        self.check_teardown()
