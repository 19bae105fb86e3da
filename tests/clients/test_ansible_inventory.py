# SPDX-License-Identifier: Apache-2.0
"""``ansible-inventory`` reads the inventory of virtual bare metal."""

import json
import pathlib
import subprocess

import fixtures
import yaml

from kubevirt_sandbox.testing import process
from tests.clients import environment
from tests.fixtures import virtual_cluster_case


class AnsibleInventoryTestCase(virtual_cluster_case.VirtualClusterTestCase):

    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.env = process.environment(self.folder, {
            'ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED': 'true'})

    def run_command(self, *words):
        done = subprocess.run(
            [str(word) for word in words], env=self.env, text=True,
            stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
        self.assertEqual(0, done.returncode, done.stderr)
        return done

    def cluster(self, command, *words):
        return self.run_command(
            process.BIN / 'sushy-kubevirt-cluster', command,
            self.folder / 'lab-1.yaml', '--kubeconfig', self.kubeconfig,
            *words).stdout

    def test_groups_and_variables(self):
        (self.folder / 'lab-1.yaml').write_text(yaml.safe_dump({
            'default_ironic_driver': 'redfish', 'node_name_prefix': 'an',
            'physnet_mappings': {'physnet0': 'pod'},
            'node_types': {'small': {
                'vcpus': 1, 'memory_mb': 256, 'volumes': [],
                'physical_networks': ['physnet0']}},
            'specs': [{'type': 'small', 'count': 2, 'ironic_config': {
                'resource_class': 'baremetal.small'}}]}))
        self.cluster('apply')
        path = self.folder / 'hosts.json'
        self.cluster('inventory', '--format', 'ansible',
                     '--output-file', path)
        listed = self.run_command(
            environment.PYTHON.bin / 'ansible-inventory', '--inventory', path,
            '--list')
        self.assertNotIn('WARNING', listed.stderr)
        groups = json.loads(listed.stdout)
        for group in 'lab_1', 'type_small', 'class_baremetal_small':
            self.assertEqual(['an0', 'an1'], sorted(groups[group]['hosts']))
        bmcs = {one['metadata']['name']: one['status']['serviceIP']
                for one in self.kubectl.get('vmbmc')['items']}
        variables = groups['_meta']['hostvars']
        self.assertEqual(bmcs, {
            name: one['bmc_address'] for name, one in variables.items()})
        self.assertNotIn(self.password('an0'), listed.stdout)
