# SPDX-License-Identifier: Apache-2.0
"""Clusters of virtual bare metal in Kubernetes, without OpenStack."""

import base64
import json
import time

from kubevirt_sandbox.testing import given_cluster
from sushy_kubevirt.cluster import api_server
from sushy_kubevirt.cluster import model
from sushy_kubevirt.kube import api_resources
from tests.fixtures import steps
from tests.fixtures import virtual_cluster
from tests.fixtures import virtual_cluster_case

cluster = virtual_cluster.cluster


class LifeTestCase(virtual_cluster_case.VirtualClusterTestCase):

    def test_apply_twice(self):
        made = cluster(3)
        self.apply(made)
        for node in made.nodes:
            vm = self.user.client.get(
                api_resources.VM, self.namespace, node.name)
            self.assertIn((api_server.FIELD_MANAGER, 'Apply'), [
                (one['manager'], one['operation'])
                for one in vm['metadata']['managedFields']])
            [card] = vm['spec']['template']['spec']['domain']['devices'][
                'interfaces']
            self.assertEqual(node.interfaces[0].mac, card['macAddress'])
            self.assertEqual('admin', base64.b64decode(self.kubectl.get(
                'secret', node.name + '-bmc')['data']['username']).decode())
        again = self.new_user()
        self.assertFalse(again.plan(made))
        self.assertEqual(4, again.lists())
        self.assertEqual(3, len(again.apply(made).ready))
        self.assertEqual(0, again.writes())
        self.check_teardown()

    def test_scale_change_and_rotate(self):
        self.apply(cluster(1))
        first = self.uids()
        password = self.password('tk0')
        self.apply(cluster(3))
        three = self.uids()
        self.assertEqual({'tk0', 'tk1', 'tk2'}, set(three))
        self.assertEqual(first['tk0'], three['tk0'])
        made = cluster(2, memory_mb=512)
        self.assertEqual(
            ['recreate VirtualMachine tk0 (memory_mb: 256 -> 512)',
             'recreate VirtualMachine tk1 (memory_mb: 256 -> 512)',
             'delete Secret tk2-bmc', 'delete VirtualMachine tk2',
             'delete VirtualMachineBMC tk2'],
            [str(one) for one in self.user.plan(made).changes])
        self.apply(made)
        two = self.uids()
        self.assertEqual({'tk0', 'tk1'}, set(two))
        self.assertFalse(set(two.values()) & set(three.values()))
        self.assertEqual(password, self.password('tk0'))
        progress = steps.Steps()
        result = self.user.apply(cluster(2, memory_mb=512, credentials=1),
                                 progress)
        self.assertEqual({}, result.failed)
        self.assertEqual(two, self.uids())
        self.assertNotEqual(password, self.password('tk0'))
        for word in password, self.password('tk0'):
            self.assertNotIn(word, repr(progress))
        self.check_teardown()

    def test_quota_and_other_failures_of_one_node(self):
        self.kubectl.apply({
            'apiVersion': 'v1', 'kind': 'ResourceQuota',
            'metadata': {'name': 'claims'},
            'spec': {'hard': {'persistentvolumeclaims': '2'}}})
        result = self.user.apply(cluster(3))
        [[failed, reason]] = result.failed.items()
        self.assertIn('exceeded quota: claims', reason)
        self.assertEqual({'tk0', 'tk1', 'tk2'} - {failed}, set(result.ready))
        self.kubectl('delete', 'quota', 'claims')
        self.apply(cluster(3))
        self.check_teardown()

    def test_misspelt_raw_fields(self):
        """They are refused, and not dropped."""
        misspelt = {'nodeSelecter': {'rack': 'a'}}
        for more in ({'vm': {'spec': {'template': {'spec': misspelt}}}},
                     {'bmc': {'servce': {'type': 'NodePort'}}}):
            began = time.monotonic()
            result = self.user.apply(cluster(1, **more))
            self.assertEqual(['tk0'], list(result.failed))
            self.assertRegex(result.failed['tk0'], 'nodeSelecter|servce')
            self.assertLess(time.monotonic() - began,
                            virtual_cluster.READY / 2)
        # Those of a BMC that exists, too.
        self.apply(cluster(1))
        result = self.user.apply(cluster(1, bmc={'servce': {}}))
        self.assertIn('servce', result.failed['tk0'])
        self.check_teardown()

    def test_quota_of_pods(self):
        """The pods of BMCs count; the reason is that of their ReplicaSet."""
        self.kubectl.apply({
            'apiVersion': 'v1', 'kind': 'ResourceQuota',
            'metadata': {'name': 'pods'}, 'spec': {'hard': {'pods': '1'}}})
        result = self.user.apply(cluster(2))
        [[_, reason]] = result.failed.items()
        self.assertIn('exceeded quota: pods', reason)
        self.kubectl('delete', 'quota', 'pods')
        self.apply(cluster(2))
        self.check_teardown()

    def test_reason_of_the_scheduler(self):
        running = cluster(1, prefix='on', vm={'spec': {
            'runStrategy': 'Always', 'template': {'spec': {
                'nodeSelector': {'rack': 'none'}}}}})
        result = self.user.apply(running)
        self.assertIn('nodes are available', result.failed['on0'])
        self.check_teardown()

    def test_names_of_others_and_two_clusters(self):
        self.kubectl('create', 'secret', 'generic', 'tk1-bmc',
                     '--from-literal=a=b')
        before = self.kubectl.get('secret', 'tk1-bmc')
        result = self.user.apply(cluster(3))
        self.assertEqual(['tk1'], list(result.failed))
        self.assertIn('belongs to no cluster', result.failed['tk1'])
        self.assertEqual(['tk0', 'tk2'], sorted(result.ready))
        other = self.user.apply(cluster(1, 'other'))
        self.assertIn('belongs to cluster tenks', other.failed['tk0'])
        self.apply(cluster(1, 'other', prefix='x'))
        self.assertEqual({}, self.user.teardown('other').failed)
        self.assertEqual({'tk0', 'tk2'}, set(self.uids()))
        self.assertEqual({}, self.user.teardown().failed)
        self.assertEqual(before, self.kubectl.get('secret', 'tk1-bmc'))

    @given_cluster.needs_sandbox('a change of feature gates')
    def test_kubevirt_that_refuses_an_empty_drive(self):
        self.sandbox.set_gates(off=['DeclarativeHotplugVolumes'])
        self.addCleanup(self.sandbox.set_gates)
        self.apply(cluster(1))
        self.assertNotIn('cdrom', json.dumps(self.kubectl.get('vm', 'tk0')))
        self.check_teardown()

    def test_hardware(self):
        """Everything that a type may declare is accepted by KubeVirt."""
        self.apply(cluster(
            1, boot_mode='uefi', secure_boot=True, tpm='ephemeral',
            console_log=True, driver='redfish', volumes=(
                virtual_cluster.DISK,
                model.Volume('1Gi', bus='sata', ephemeral=True),
                model.Volume('64Mi', volume_mode='Filesystem',
                             access_mode='ReadWriteOnce', bus='scsi')),
            placement=model.Placement(
                {'kubernetes.io/os': 'linux'},
                ({'key': 'metal', 'operator': 'Exists'},),
                {'podAntiAffinity': {
                    'preferredDuringSchedulingIgnoredDuringExecution': [{
                        'weight': 1, 'podAffinityTerm': {
                            'topologyKey': 'kubernetes.io/hostname',
                            'labelSelector': {'matchLabels': {'a': 'b'}}}}]}},
                spread_required=True, dedicated_cpus=True, huge_pages='2Mi',
                numa=True),
            vm={'spec': {'template': {'spec': {
                'terminationGracePeriodSeconds': 7,
                'domain': {'cpu': {'model': 'host-model'}}}}}},
            bmc={'service': {'type': 'NodePort'}}))
        found = self.kubectl.get('vm', 'tk0')['spec']['template']['spec']
        self.assertEqual(7, found['terminationGracePeriodSeconds'])
        self.assertEqual(
            {'model': 'host-model', 'cores': 1, 'dedicatedCpuPlacement': True,
             'numa': {'guestMappingPassthrough': {}}},
            {key: one for key, one in found['domain']['cpu'].items()
             if key not in ('sockets', 'threads')})
        self.assertEqual('2Mi', found['domain']['memory']['hugepages'][
            'pageSize'])
        self.assertEqual({'type': 'NodePort'}, self.kubectl.get(
            'vmbmc', 'tk0')['spec']['service'])
        self.check_teardown()

    def test_persistent_tpm(self):
        self.apply(cluster(1, tpm='persistent'))
        found = self.kubectl.get('vm', 'tk0')['spec']['template']['spec']
        self.assertEqual({'persistent': True},
                         found['domain']['devices']['tpm'])
        self.check_teardown()


class NetworksTestCase(virtual_cluster_case.VirtualClusterTestCase):
    """Definitions of networks, to which a user needs further rights."""

    def setUp(self):
        super().setUp()
        self.allow_networks()

    def definitions(self):
        found = self.kubectl.get(virtual_cluster_case.NETWORKS)['items']
        return {one['metadata']['name']: json.loads(one['spec']['config'])
                for one in found}

    def test_own_and_shared_networks(self):
        config = {'cniVersion': '0.3.1', 'type': 'bridge'}
        made = [cluster(1, name, prefix=name, networks=(
            virtual_cluster.POD,
            model.Network('lan', f'{name}-lan', config),
            model.Network('storage', 'storage', config, True)))
            for name in ('one', 'two')]
        for one in made:
            self.apply(one)
        found = self.definitions()
        self.assertEqual({'one-lan', 'two-lan', 'storage'}, set(found))
        self.assertEqual(3, len({one['bridge'] for one in found.values()}))
        vm = self.kubectl.get('vm', 'one0')
        self.assertEqual(
            [{'name': 'pod', 'pod': {}},
             {'name': 'lan', 'multus': {'networkName': 'one-lan'}},
             {'name': 'storage', 'multus': {'networkName': 'storage'}}],
            vm['spec']['template']['spec']['networks'])
        self.assertFalse(self.user.plan(made[0]))
        self.assertEqual({}, self.user.teardown('one').failed)
        self.assertEqual({'two-lan', 'storage'}, set(self.definitions()))
        self.assertFalse(self.user.plan(made[1]))
        self.check_teardown('two')
        self.assertEqual({}, self.definitions())
