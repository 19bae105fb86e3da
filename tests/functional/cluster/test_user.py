# SPDX-License-Identifier: Apache-2.0
"""``sushy-kubevirt-cluster`` with no more rights than its documented Role."""

import base64
import json
import pathlib
import subprocess
import tempfile

import yaml

from kubevirt_sandbox.testing import process
from tests.fixtures import checkout
from tests.fixtures import operator

ROLE = (checkout.ROOT / 'etc' / 'kubernetes' / 'samples'
        / 'cluster-user.yaml')
NETWORKS = 'network-attachment-definitions.k8s.cni.cncf.io'
KINDS = f'vm,vmi,vmbmc,datavolumes,pvc,{NETWORKS},{operator.OWNED}'


class UserTestCase(operator.OperatorTestCase):

    def setUp(self):
        super().setUp()
        self.kubectl('apply', '-f', ROLE)
        self.kubectl('create', 'serviceaccount', 'dev')
        self.kubectl('create', 'rolebinding', 'dev',
                     '--role=sushy-kubevirt-cluster',
                     f'--serviceaccount={self.namespace}:dev')
        self.kubeconfig = self.sandbox.account('dev', self.namespace)
        self.initial = self.everything()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.file = self.folder / 'lab.yaml'

    def everything(self):
        return self.kubectl.names(KINDS)

    def declare(self, count=1, generation=0):
        self.file.write_text(yaml.safe_dump({
            'cluster': {'credentials_generation': generation},
            'networks': {'lan': {}},
            'node_types': {'small': {
                'vcpus': 1, 'memory_mb': 256, 'boot_mode': 'bios',
                'physical_networks': ['lan'],
                'volumes': [{'capacity': '64MiB'}]}},
            'specs': [{'type': 'small', 'count': count,
                       'ironic_config': {'resource_class': 'small'}}]}))

    def run_command(self, *words, expected=0):
        done = subprocess.run(
            [process.BIN / 'sushy-kubevirt-cluster', *map(str, words)],
            env=process.environment(self.folder, {
                'KUBECONFIG': self.kubeconfig}),
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=120)
        self.assertEqual(expected, done.returncode, (words, done.stderr))
        return done.stdout

    def json(self, *words):
        return json.loads(self.run_command(*words, '--format', 'json'))

    def check_teardown(self):
        self.run_command('teardown', self.file, '--yes',
                         '--without-openstack')
        self.until('nothing is left', self.everything, self.initial)
        self.assertEqual('nothing to do\n', self.run_command(
            'teardown', self.file, '--yes', '--without-openstack'))
        self.check_no_denials()

    def check_no_denials(self):
        if not self.sandbox.external:
            self.assertNotIn(f'system:serviceaccount:{self.namespace}:dev',
                             self.sandbox.stats()['refused'])

    def bmc(self):
        """:returns: the BMC of the first node, with its current password"""
        found = operator.Bmc(self.kubectl, 'tk0', 'admin', None)
        found.password = base64.b64decode(self.kubectl.get(
            'secret', found.status['authSecret'])['data'][
                'password']).decode()
        self.passwords.add(found.password)
        return found

    def test_plan_to_teardown(self):
        self.declare()
        self.assertEqual(
            ['NetworkAttachmentDefinition', 'Secret', 'VirtualMachine',
             'VirtualMachineBMC'],
            [one['Kind'] for one in self.json('plan', self.file)])
        self.assertEqual(self.initial, self.everything())
        self.assertEqual(
            [{'Node': 'tk0', 'Result': 'ready', 'Reason': ''}],
            self.json('apply', self.file))
        self.assertEqual('nothing to do\n',
                         self.run_command('apply', self.file))
        self.assertEqual('Off\n', self.run_command('power', 'tk0'))
        self.run_command('power', 'tk0', 'on')
        self.kubectl.wait('vm/tk0', 'jsonpath={.status.printableStatus}='
                          'Running')
        [row] = self.json('show', 'lab')
        self.assertEqual(('tk0', 'Running', 'Ready'),
                         (row['Node'], row['VM'], row['BMC']))
        self.assertTrue(row['Kubernetes node'])
        [host] = json.loads(self.run_command(
            'inventory', self.file, '--format', 'bifrost')).values()
        self.assertEqual(self.bmc().password,
                         host['driver_info']['ipmi_password'])
        self.check_secrets_of_metal3()
        self.check_new_credentials()
        self.check_teardown()

    def check_secrets_of_metal3(self):
        self.kubectl('apply', '-f', '-', stdin=self.run_command(
            'inventory', self.file, '--format', 'metal3-secrets'))
        [host] = yaml.safe_load_all(self.run_command(
            'inventory', self.file, '--format', 'metal3'))
        name = host['spec']['bmc']['credentialsName']
        self.assertNotEqual(name, self.bmc().status['authSecret'])
        self.assertEqual(self.bmc().password, base64.b64decode(
            self.kubectl.get('secret', name)['data']['password']).decode())
        self.kubectl('delete', 'secret', name)

    def check_new_credentials(self):
        """The new password works in both protocols, and the old in none."""
        old = self.bmc()
        self.assertEqual('On', old.works())
        self.declare(generation=1)
        self.run_command('apply', self.file)
        self.check_replaced(old)

    def check_replaced(self, old):
        new = self.bmc()
        self.assertNotEqual(old.password, new.password)
        # The kubelet updates the volumes of the pod.
        self.until('new password', lambda: bool(new.works()))
        self.assertEqual(401, old.curl().code)
        self.assertNotEqual(0, old.ipmitool('power', 'status').returncode)
        self.assertEqual('nothing to do\n',
                         self.run_command('apply', self.file))

    def test_manifests_of_another_tool(self):
        """After ``kubectl apply`` of the manifests, nothing is to be done."""
        self.declare(2)
        self.kubectl.apply(self.run_command(
            'apply', self.file, '--output', 'yaml'))
        for name in 'tk0', 'tk1':
            operator.Bmc(self.kubectl, name, 'admin', None).ready()
        uids = self.uids()
        self.assertEqual('nothing to do\n',
                         self.run_command('plan', self.file))
        self.assertEqual('nothing to do\n',
                         self.run_command('apply', self.file))
        self.assertEqual(uids, self.uids())
        self.assertEqual('Off\n', self.run_command('power', 'tk0'))
        # Only a Secret of the cluster can be replaced.
        old = self.bmc()
        self.declare(2, generation=1)
        self.run_command('apply', self.file)
        self.assertEqual('tk0-bmc', self.bmc().status['authSecret'])
        self.check_replaced(old)
        self.check_teardown()

    def uids(self):
        return sorted((one['kind'], one['metadata']['uid'])
                      for one in self.kubectl.get('vm,vmbmc')['items'])
