# SPDX-License-Identifier: Apache-2.0
"""KubeVirt: instance types and normalized quantities."""

import uuid

from kubevirt_sandbox.testing import sandbox
from tests.functional import kubevirt


class InstanceTypesTest(kubevirt.KubeVirtTestCase):

    def setUp(self):
        super().setUp()
        self.size = 'size-' + uuid.uuid4().hex[:8]

    def make_size(self, cpus=2, memory='128Mi'):
        plural = 'virtualmachineclusterinstancetypes'
        where = sandbox.path(plural, namespace=None)
        self.cluster.request('POST', where, {
            'apiVersion': 'instancetype.kubevirt.io/v1beta1',
            'kind': 'VirtualMachineClusterInstancetype',
            'metadata': {'name': self.size},
            'spec': {'cpu': {'guest': cpus}, 'memory': {'guest': memory}}},
            expect=201)
        self.addCleanup(self.cluster.request, 'DELETE',
                        where + '/' + self.size)

    def use_size(self, vm, spec):
        del spec['domain']['memory']
        vm['spec']['instancetype'] = {'name': self.size}

    def test_vmi_has_sizes_of_instance_type(self):
        self.make_size()
        name, _ = self.make_running(change=self.use_size)
        domain = self.cluster.vmi(name)['spec']['domain']
        self.assertEqual((2, 1, 1), tuple(
            domain['cpu'][key] for key in ('sockets', 'cores', 'threads')))
        self.assertEqual('128Mi', domain['memory']['guest'])
        vm = self.cluster.vm(name)
        self.assertNotIn('memory', vm['spec']['template']['spec']['domain'])
        self.assertIsNone(self.state(vm, 'RestartRequired'))

    def test_expand_spec(self):
        self.make_size()
        name = self.make(change=self.use_size)
        vm = self.cluster.request(
            'GET', f'{kubevirt.SUBRESOURCES}/virtualmachines/{name}/'
            'expand-spec', expect=200).json()
        domain = vm['spec']['template']['spec']['domain']
        self.assertEqual('128Mi', domain['memory']['guest'])

    def test_preference_excludes_pod_interface(self):
        def change(vm, spec):
            spec.pop('networks', None)
            spec['domain']['devices'].pop('interfaces', None)
            vm['spec']['preference'] = {'name': self.size}

        where = sandbox.path('virtualmachineclusterpreferences',
                             namespace=None)
        self.cluster.request('POST', where, {
            'apiVersion': 'instancetype.kubevirt.io/v1beta1',
            'kind': 'VirtualMachineClusterPreference',
            'metadata': {'name': self.size}, 'spec': {'devices': {
                'preferredAutoattachPodInterface': False}}}, expect=201)
        self.addCleanup(self.cluster.request, 'DELETE',
                        where + '/' + self.size)
        name, _ = self.make_running(change=change)
        devices = self.cluster.vmi(name)['spec']['domain']['devices']
        self.assertIs(False, devices['autoattachPodInterface'])
        self.assertNotIn('interfaces', devices)

    def test_sizes_conflict_with_instance_type(self):
        self.make_size()
        message = self.rejection(422, lambda vm, spec: vm['spec'].update(
            instancetype={'name': self.size}))
        self.assertIn('domain.memory.guest conflicts with', message)

    def test_start_waits_for_missing_instance_type(self):
        name = self.make('Always', self.use_size)
        vm = self.wait_condition(name, 'Failure', 'True')
        self.assertIsNone(self.cluster.vmi(name))
        self.assertIn(self.size, str(vm['status']['conditions']))
        self.make_size()
        self.uid(name)

    def test_rejects_instance_type_without_name(self):
        self.rejection(422, lambda vm, spec: vm['spec'].update(
            instancetype={'kind': 'VirtualMachineInstancetype'}))


class QuantitiesTest(kubevirt.KubeVirtTestCase):

    def test_quantities_are_normalized(self):
        name = self.make(memory={'guest': '1024Mi'})
        self.wait_word(name, 'Stopped')
        vm = self.cluster.vm(name)
        self.assertEqual('1Gi', vm['spec']['template']['spec']['domain'][
            'memory']['guest'])
        after = self.cluster.patch('virtualmachines', name, {'spec': {
            'template': {'spec': {'domain': {'memory': {
                'guest': '1048576Ki'}}}}}})
        self.assertEqual(vm['metadata']['generation'],
                         after['metadata']['generation'])

    def test_empty_lists_are_omitted(self):
        name = self.make()
        vm = self.cluster.patch('virtualmachines', name, [
            {'op': 'remove', 'path': kubevirt.VOLUMES + '/0'},
            {'op': 'remove', 'path': kubevirt.DISKS + '/0'}])
        spec = vm['spec']['template']['spec']
        self.assertNotIn('volumes', spec)
        self.assertNotIn('disks', spec['domain']['devices'])
        self.patch_fails(name, [{'op': 'add', 'path': kubevirt.VOLUMES + '/-',
                                 'value': {'name': 'a'}}], 422)
