# SPDX-License-Identifier: Apache-2.0
"""Volumes of nodes with data, instance types, and Tenks' own example."""

import os
import pathlib
import time

import fixtures

from kubevirt_sandbox.testing import given_cluster
from kubevirt_sandbox.testing import webserver
from tests.fixtures import checkout
from tests.fixtures import operator
from tests.fixtures import virtual_cluster
from tests.fixtures import virtual_cluster_case

EXAMPLE = (checkout.ROOT / 'tests' / 'unit' / 'cluster' / 'samples'
           / 'tenks-override.yml')


class VolumesTestCase(virtual_cluster_case.VirtualClusterTestCase):

    SANDBOX = (*operator.PRETENDED_PODS, '--image',
               f'images.test/disk:1={checkout.ROOT / "LICENSE"}')

    def make(self, volumes, more='', count=1):
        return self.read(f'''\
            node_types:
              a: {{vcpus: 1, memory_mb: 64, volumes: [{volumes}]{more}}}
            specs: [{{type: a, count: {count}}}]
            ''')

    def serve(self):
        """Serve ``disk.img``, of 2 MiB.

        :returns: URL of the folder
        """
        folder = self.useFixture(fixtures.TempDir()).path
        pathlib.Path(folder, 'disk.img').write_bytes(os.urandom(2 << 20))
        return self.useFixture(webserver.files(folder)).url

    def claim(self, name):
        self.kubectl.apply({
            'apiVersion': 'cdi.kubevirt.io/v1beta1', 'kind': 'DataVolume',
            'metadata': {'name': name}, 'spec': {
                'source': {'blank': {}}, 'storage': {'resources': {
                    'requests': {'storage': '4Mi'}}}}})
        self.kubectl.wait(f'dv/{name}', 'condition=Ready')

    def test_unknown_storage_class(self):
        """It is reported soon, and not waited for."""
        began = time.monotonic()
        result = self.user.apply(self.make(
            '{capacity: 4MiB, storage_class: nowhere}'))
        self.assertIn('no storageClass to choose profile',
                      result.failed['tk0'])
        self.assertLess(time.monotonic() - began, virtual_cluster.READY / 2)

    @given_cluster.needs_sandbox('a web server on this host')
    def test_sources(self):
        """A volume of each source; claims of others stay."""
        url = self.serve() + '/disk.img'
        for name in 'mine-0', 'mine-1', 'golden':
            self.claim(name)
        self.initial = self.everything()
        self.apply(self.make(
            f'{{capacity: 4MiB, image: "{url}"}}, '
            '{claim: "mine-{index}"}, {clone: golden}, '
            '{capacity: 8MiB, bus: sata, volume_mode: Block}, '
            '{capacity: 1MiB, image: "docker://images.test/disk:1"}',
            count=2))
        data = {one['metadata']['name']: (
            one['spec']['source'], one['status']['phase'])
            for one in self.kubectl.get('dv')['items']}
        for name, source in (('tk1vol0', 'http'), ('tk1vol2', 'pvc'),
                             ('tk1vol3', 'blank'),
                             ('tk1vol4', 'registry')):
            self.assertEqual(([source], 'Succeeded'),
                             (list(data[name][0]), data[name][1]))
        self.assertNotIn('tk1vol1', data)
        vm = self.kubectl.get('vm', 'tk1')['spec']['template']['spec']
        self.assertEqual(
            {'name': 'tk1vol1',
             'persistentVolumeClaim': {'claimName': 'mine-1'}},
            vm['volumes'][1])
        self.check_teardown('c')

    def check_reason(self, made, *words):
        result = self.user.apply(made)
        self.assertEqual(['tk0'], list(result.failed))
        for word in words:
            self.assertIn(word, result.failed['tk0'])
        self.check_teardown('c')

    @given_cluster.needs_sandbox('a web server on this host')
    def test_reasons_of_failures(self):
        url = self.serve()
        self.check_reason(
            self.make(f'{{capacity: 4MiB, image: "{url}/no.img"}}'),
            'DataVolume tk0vol0', '404')
        self.check_reason(
            self.make(f'{{capacity: 1023kiB, image: "{url}/disk.img"}}'),
            'DataVolumes', 'should be at least 1MiB')
        self.check_reason(
            self.make(f'{{capacity: 1MiB, image: "{url}/disk.img"}}'),
            'DataVolume tk0vol0', 'too small to contain')
        self.check_reason(
            self.make('{capacity: 1MiB, image: "docker://images.test/no:1"}'),
            'DataVolume tk0vol0', 'manifest unknown')
        self.check_reason(self.make('{claim: none}'),
                          'PersistentVolumeClaim', 'none does not exist')
        self.check_reason(self.make('{clone: none}'),
                          'DataVolume tk0vol0: ErrClaimNotValid')

    def test_claim_of_another(self):
        """It does not become a disk of a node."""
        self.claim('tk0vol0')
        self.initial = self.everything()
        before = self.kubectl.get('dv', 'tk0vol0')
        made = self.make('{capacity: 4MiB}', count=2)
        result = self.user.apply(made)
        self.assertEqual((['tk0'], ['tk1']),
                         (list(result.failed), result.ready))
        self.assertIn('tk0vol0 exists and belongs to no cluster',
                      result.failed['tk0'])
        self.check_teardown('c')
        self.assertEqual(before, self.kubectl.get('dv', 'tk0vol0'))

    def test_tenks_example(self):
        """Tenks' own file: its bridge is the name of a network."""
        self.allow_networks()
        made = self.read(EXAMPLE.read_text(), 'override.yml')
        self.assertEqual({'tk0', 'tk1', 'tk2'},
                         set(self.user.apply(made).failed))
        self.assertEqual(self.initial, self.everything())
        self.kubectl.apply({
            'apiVersion': 'k8s.cni.cncf.io/v1',
            'kind': 'NetworkAttachmentDefinition',
            'metadata': {'name': 'brfoo'}, 'spec': {'config': '{}'}})
        self.initial = self.everything()
        self.apply(made)
        again = self.new_user()
        self.assertEqual(3, len(again.apply(made).ready))
        self.assertEqual(0, again.writes())
        self.check_teardown('override')

    def test_instancetype_and_preference(self):
        self.kubectl.apply({
            'apiVersion': 'instancetype.kubevirt.io/v1beta1',
            'kind': 'VirtualMachineInstancetype',
            'metadata': {'name': 'small'},
            'spec': {'cpu': {'guest': 2}, 'memory': {'guest': '128Mi'}}}, {
            'apiVersion': 'instancetype.kubevirt.io/v1beta1',
            'kind': 'VirtualMachinePreference', 'metadata': {'name': 'cores'},
            'spec': {'cpu': {'preferredCPUTopology': 'cores'}}})
        made = self.read('''\
            node_types:
              a:
                instancetype: {name: small, kind: VirtualMachineInstancetype}
                preference: {name: cores, kind: VirtualMachinePreference}
                volumes: [{capacity: 4MiB}]
                vm: {spec: {runStrategy: Always}}
            specs: [{type: a, count: 1}]
            ''')
        self.apply(made)
        self.kubectl.wait('vmi/tk0', 'jsonpath={.status.phase}=Running')
        domain = self.kubectl.get('vmi', 'tk0')['spec']['domain']
        self.assertEqual(('128Mi', 2), (
            domain['memory']['guest'], domain['cpu']['cores']))
        self.check_teardown('c')
