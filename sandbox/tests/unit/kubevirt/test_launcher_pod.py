# SPDX-License-Identifier: Apache-2.0
"""What launcher pods request from their nodes."""

from oslotest import base

from kubevirt_sandbox.api import pod_resources
from kubevirt_sandbox.kubevirt import launcher_pod
from tests.unit.kubevirt import objects

MI = 1 << 20
OVERHEAD = (228 + 32) * MI
"""Bytes for the processes and the display, without those for CPUs."""


class LauncherPodTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.vmi = objects.vmi()
        self.spec = self.vmi['spec']
        self.domain = self.spec['domain']
        self.domain['memory'] = {'guest': '1Gi'}
        self.domain['cpu'] = {'sockets': 2, 'cores': 2, 'threads': 1}

    def pod(self, *args):
        return launcher_pod.render(self.vmi, 'virt-launcher-one-x', 'uid-2',
                                   *(args or ((),)))

    def requests(self, *args):
        return pod_resources.requests(self.pod(*args)['spec'])

    def test_requests(self):
        found = self.requests()
        self.assertEqual({
            'cpu': 400, 'memory': 1024 * MI + OVERHEAD + 4 * 8 * MI,
            'ephemeral-storage': 50000000, 'devices.kubevirt.io/kvm': 1,
            'devices.kubevirt.io/tun': 1, 'devices.kubevirt.io/vhost-net': 1},
            found)

    def test_own_requests_are_kept(self):
        self.domain['resources'] = {'requests': {
            'cpu': '3', 'memory': '512Mi'}}
        found = self.requests()
        self.assertEqual((3000, (512 + 1 + 32) * MI + OVERHEAD),
                         (found['cpu'], found['memory']))
        self.domain['resources']['overcommitGuestOverhead'] = True
        self.assertEqual(512 * MI, self.requests()['memory'])

    def test_dedicated_cpus(self):
        self.domain['cpu']['dedicatedCpuPlacement'] = True
        self.domain['cpu']['isolateEmulatorThread'] = True
        pod = self.pod()
        self.assertEqual('true', pod['spec']['nodeSelector']['cpumanager'])
        for found in (pod_resources.requests(pod['spec']),
                      pod_resources.limits(pod['spec'])):
            self.assertEqual((5000, (1024 + 32 + 100) * MI + OVERHEAD),
                             (found['cpu'], found['memory']))
        self.assertTrue(launcher_pod.is_guaranteed(self.spec))

    def test_huge_pages_hold_the_memory_of_the_guest(self):
        self.domain['memory']['hugepages'] = {'pageSize': '2Mi'}
        found = self.requests()
        self.assertEqual((1024 * MI, OVERHEAD + 32 * MI),
                         (found['hugepages-2Mi'], found['memory']))

    def test_devices_of_networks(self):
        device = 'bridge.network.kubevirt.io/br1'
        found = self.requests([device, device])
        self.assertEqual(2, found[device])

    def test_machine_without_networks(self):
        self.domain['devices'].update(autoattachPodInterface=False,
                                      autoattachGraphicsDevice=False)
        del self.domain['devices']['interfaces']
        found = self.requests()
        self.assertEqual(['devices.kubevirt.io/kvm'],
                         [name for name in found if '/' in name])
        self.assertEqual((1024 + 228 + 32) * MI, found['memory'])

    def test_limit_of_memory_for_a_quota(self):
        self.assertNotIn('memory', pod_resources.limits(self.pod()['spec']))
        pod = self.pod((), True)['spec']
        self.assertEqual(2 * pod_resources.requests(pod)['memory'],
                         pod_resources.limits(pod)['memory'])

    def test_placement_is_copied(self):
        self.vmi['metadata']['labels'] = {'cluster': 'a'}
        self.spec['nodeSelector'] = {'disk': 'gold'}
        rules = {'affinity': {'nodeAffinity': {}},
                 'tolerations': [{'key': 'k'}],
                 'topologySpreadConstraints': [{'topologyKey': 'zone'}]}
        self.spec.update(rules)
        pod = self.pod()
        self.assertEqual({'disk': 'gold', 'kubevirt.io/schedulable': 'true',
                          'kubernetes.io/arch': 'amd64'},
                         pod['spec']['nodeSelector'])
        self.assertEqual(rules, {key: pod['spec'][key] for key in rules})
        self.spec['tolerations'].clear()
        self.assertEqual([{'key': 'k'}], pod['spec']['tolerations'])
        self.assertEqual({
            'cluster': 'a', 'kubevirt.io': 'virt-launcher',
            'kubevirt.io/created-by': 'uid-1', 'vm.kubevirt.io/name': 'one'},
            pod['metadata']['labels'])
