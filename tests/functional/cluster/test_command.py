# SPDX-License-Identifier: Apache-2.0
"""``sushy-kubevirt-cluster`` with the operator and a real Ironic.

Nodes get from a file to ``available``, are reached through their BMCs, and
nothing of them remains.
"""

import json
import pathlib
import subprocess
import tempfile

import yaml

from kubevirt_sandbox.testing import process
from tests.fixtures import ironic
from tests.fixtures import operator

KINDS = 'vm,vmbmc,secret,datavolume,deployment'


class CommandTestCase(operator.OperatorTestCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.ironic = cls.share(ironic.Ironic(ironic.WITHOUT_SYNC))

    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / 'clouds.yaml').write_text(yaml.safe_dump({'clouds': {
            'lab': {'auth_type': 'none', 'auth': {
                'endpoint': self.ironic.url}}}}))
        self.file = self.folder / 'lab.yaml'

    def declare(self, count, memory_mb=256, generation=0):
        self.file.write_text(yaml.safe_dump({
            'cluster': {'name': self.namespace, 'namespace': self.namespace,
                        'credentials_generation': generation},
            'node_name_prefix': f'{self.namespace}-',
            'default_ironic_driver': 'redfish',
            'physnet_mappings': {'physnet0': 'pod'},
            'node_types': {'small': {
                'vcpus': 1, 'memory_mb': memory_mb, 'volumes': [],
                'physical_networks': ['physnet0']}},
            'specs': [{'type': 'small', 'count': count, 'ironic_config': {
                'resource_class': 'small', 'traits': ['CUSTOM_LAB'],
                'verify_ca': False}}]}))

    def run_command(self, *words, expected=0):
        done = subprocess.run(
            [process.BIN / 'sushy-kubevirt-cluster', *map(str, words),
             '--kubeconfig', self.sandbox.kubeconfig,
             '--namespace', self.namespace],
            env=process.environment(self.folder, {
                'OS_CLIENT_CONFIG_FILE': str(self.folder / 'clouds.yaml'),
                'OS_CLOUD': 'lab'}),
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=120)
        self.assertEqual(expected, done.returncode, (words, done.stderr))
        return done.stdout

    def json(self, *words):
        return json.loads(self.run_command(*words, '--format', 'json'))

    def states(self):
        return {one.name: (one.provision_state, one.traits)
                for one in self.ironic.baremetal.nodes(
                    details=True, fields=None)
                if one.name.startswith(self.namespace)}

    def test_from_file_to_available_and_back(self):
        first, second = f'{self.namespace}-0', f'{self.namespace}-1'
        for count, name in (1, first), (2, second):
            self.declare(count)
            self.assertEqual(
                ['Secret', 'VirtualMachine', 'VirtualMachineBMC',
                 'Ironic node'],
                [one['Kind'] for one in self.json('plan', self.file)])
            self.assertIn(
                {'Node': name, 'Result': 'available', 'Reason': ''},
                self.json('deploy', self.file))
        available = 'available', ['CUSTOM_LAB']
        self.assertEqual({first: available, second: available},
                         self.states())
        for command in 'plan', 'deploy':
            self.assertEqual('nothing to do\n',
                             self.run_command(command, self.file))

        self.assertEqual('Off\n', self.run_command('power', first))
        self.run_command('power', first, 'on')
        self.kubectl('wait', f'vm/{first}', '--timeout=60s',
                     '--for=jsonpath={.status.printableStatus}=Running')
        self.assertEqual('On\n', self.run_command('power', first))
        row = self.json('show', self.namespace)[0]
        self.assertEqual(('Running', 'Ready', 'available'),
                         (row['VM'], row['BMC'], row['Ironic']))
        self.assertTrue(row['Kubernetes node'])
        self.run_command('power', first, 'off')
        self.kubectl('wait', f'vm/{first}', '--timeout=60s',
                     '--for=jsonpath={.status.printableStatus}=Stopped')

        self.declare(1)
        self.run_command('deploy', self.file)
        self.assertEqual({first: available}, self.states())
        self.run_command('teardown', self.file, expected=3)
        self.run_command('teardown', self.file, '--yes')
        self.assertEqual({}, self.states())
        self.kubectl('wait', '--for=delete', KINDS, '--all',
                     '--timeout=60s')
        self.assertEqual('', self.kubectl('get', KINDS, '-o', 'name'))

    def test_reconfiguration(self):
        name = f'{self.namespace}-0'
        self.declare(2)
        self.run_command('deploy', self.file)
        before = self.identities()
        # Another type: the nodes are made anew.
        self.declare(2, memory_mb=512)
        self.run_command('deploy', self.file)
        after = self.identities()
        self.assertEqual(set(before), set(after))
        self.assertFalse(set(before.values()) & set(after.values()))
        self.assertEqual(512, self.node(name).properties['memory_mb'])
        # New passwords, which Ironic gets; the nodes stay.
        self.declare(2, memory_mb=512, generation=1)
        self.run_command('deploy', self.file)
        self.assertEqual(after, self.identities())
        for target in 'power on', 'power off':
            self.ironic.power(self.node(name), target, target)
        # The node with the highest number goes, unless it has an instance.
        last = self.node(f'{self.namespace}-1')
        self.ironic.baremetal.update_node(
            last, instance_id='11111111-2222-3333-4444-555555555555')
        self.declare(1, memory_mb=512, generation=1)
        self.run_command('deploy', self.file, expected=3)
        self.assertEqual(after, self.identities())
        self.run_command('deploy', self.file, '--force')
        self.assertEqual({name: after[name]}, self.identities())
        self.run_command('teardown', self.file, '--yes')

    def node(self, name):
        return self.ironic.baremetal.get_node(name)

    def identities(self):
        """:returns: dict of name to UIDs of the Ironic node and of the VM"""
        return {one.name: (one.id, one.extra['sushy_kubevirt']['vm'])
                for one in self.ironic.baremetal.nodes(details=True)
                if one.name.startswith(self.namespace)}
