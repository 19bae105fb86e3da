# SPDX-License-Identifier: Apache-2.0
"""``kubectl bmc list``: BMCs and their VMs, without a connection to them."""

import os

import yaml

from tests.fixtures import kubectl_case
from tests.fixtures import operator


class ListTestCase(kubectl_case.KubectlCase):

    def test_columns(self):
        box = self.bmc().ready()
        address = box.status['serviceIP']
        lines = self.plugin('list').splitlines()
        self.assertEqual(
            ['NAME', 'VM', 'POWER', 'BOOT', 'MEDIUM', 'ADDRESS', 'HEALTH'],
            lines[0].split())
        self.assertEqual(
            ['box', 'box', 'Off', 'none', '<none>', address, 'OK'],
            lines[1].split())
        self.assertTrue(self.plugin('list', '-o', 'wide').splitlines()[
            0].endswith('REASON'))

    def test_follows_the_vm(self):
        self.bmc().ready()
        self.plugin('boot', 'box', 'pxe', '--always')
        self.plugin('power', 'box', 'on', '--wait')
        row = self.rows()['box']
        self.assertEqual(('On', 'pxe, always', 'OK'), (
            row['power'], row['boot'], row['health']))
        self.assertEqual([row], yaml.safe_load(
            self.plugin('list', '-o', 'yaml')))

    def test_reasons(self):
        self.bmc(vm='box').ready()
        self.sandbox.patch('virtualmachines', 'box', {'spec': {
            'runStrategy': 'Always', 'template': {'spec': {
                'nodeSelector': {'no': 'such-node'}}}}}, self.namespace)
        self.kubectl.apply(operator.bmc_manifest('lost', 'no-such-vm'))
        self.until('cause', lambda: self.rows()['lost']['health'],
                   'VirtualMachineNotFound')
        self.assertIn('no-such-vm', self.rows()['lost']['reason'])
        self.until('cause', lambda: self.rows()['box']['health'],
                   'ErrorUnschedulable')

    def test_all_namespaces(self):
        self.bmc().ready()
        text = self.refusal('list', '-A')
        self.assertIn('lacks the right to list', text)
        self.assertIn('kubectl auth can-i list virtualmachinebmcs.bmc.kubevirt'
                      '.io --all-namespaces', text)
        lines = self.plugin('list', '-A', user=self.admin_user).splitlines()
        self.assertEqual('NAMESPACE', lines[0].split()[0])
        self.assertIn(self.namespace, ''.join(lines))

    def test_nothing(self):
        self.assertEqual(f'No BMC in {self.namespace}.\n', self.plugin('list'))
        self.assertEqual('[]\n', self.plugin('list', '-o', 'json'))

    def test_output_that_nobody_reads(self):
        self.vm('box')
        reader, writer = os.pipe()
        os.close(reader)
        listing = self.start('list', stdout=writer)
        os.close(writer)
        self.assertEqual((1, b''), (listing.wait(60), listing.stderr.read()))
