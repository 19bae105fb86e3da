# SPDX-License-Identifier: Apache-2.0
"""``kubectl bmc create`` and ``credentials``."""

import json
import signal
import subprocess

import yaml

from kubevirt_sandbox.testing import process
from tests.fixtures import kubectl_case
from tests.fixtures import operator
from tests.fixtures import terminal


class CreateTestCase(kubectl_case.KubectlCase):

    def test_from_vm_to_power(self):
        self.vm('box')
        self.assertEqual(
            'virtualmachinebmc.bmc.kubevirt.io/box created\n'
            'BMC box is ready\n', self.plugin('create', 'box'))
        self.assertEqual('On\n', self.plugin('power', 'box', 'on', '--wait'))

    def test_again(self):
        """What exists is changed only as far as options say."""
        self.vm('box')
        for words, change, placement in (
                ((), 'created', None), ((), 'unchanged', None),
                (('--shared',), 'configured', 'Shared'),
                ((), 'unchanged', 'Shared')):
            self.assertEqual(
                f'virtualmachinebmc.bmc.kubevirt.io/box {change}\n'
                'BMC box is ready\n', self.plugin('create', 'box', *words))
            self.assertEqual(placement, self.kubectl.get('vmbmc', 'box')[
                'spec'].get('placement'))
        self.vm('other')
        self.assertIn('the virtual machine cannot be changed', self.refusal(
            'create', 'other', '--name', 'box'))

    def test_again_in_the_spelling_of_kubevirtbmc(self):
        self.vm('box')
        self.kubectl.apply({
            'apiVersion': 'bmc.kubevirt.io/v1beta1',
            'kind': 'VirtualMachineBMC', 'metadata': {'name': 'box'},
            'spec': {'virtualMachineRef': {'name': 'box'}}})
        for words, change in ((), 'unchanged'), (('--shared',), 'configured'):
            self.assertIn(f'box {change}\n',
                          self.plugin('create', 'box', *words))

    def test_options(self):
        self.vm('box')
        self.plugin('create', 'box', '--name', 'other', '--shared',
                    '--no-host')
        spec = self.kubectl.get('vmbmc', 'other')['spec']
        self.assertEqual(
            {'virtualMachine': {'name': 'box'}, 'placement': 'Shared',
             'bareMetalHost': {'enabled': False, 'protocol': 'Redfish'}},
            {key: spec[key] for key in (
                'virtualMachine', 'placement', 'bareMetalHost')})

    def test_dry_run_can_be_applied(self):
        text = self.plugin('create', 'box', '--secret', 'box-bmc',
                           '--dry-run=client', '-o', 'yaml')
        self.assertEqual([], self.kubectl.names('vmbmc'))
        self.kubectl.apply(text)
        self.assertEqual('box-bmc', yaml.safe_load(text)['spec'][
            'authSecret']['name'])

    def test_dry_run_of_a_name_that_looks_like_a_number(self):
        self.kubectl.apply(self.plugin(
            'create', '1e5', '--secret', 'y', '--dry-run=client',
            '-o', 'yaml'))
        self.assertEqual('y', self.kubectl.get('vmbmc', '1e5')['spec'][
            'authSecret']['name'])

    def test_says_why_it_is_not_ready(self):
        self.kubectl.apply(operator.bmc_manifest('no-such-vm'))
        # The operator may take longer to say so than the command waits.
        self.until('condition', operator.Bmc(
            self.kubectl, 'no-such-vm', 'admin', None).condition,
            ('False', 'VirtualMachineNotFound'))
        text = self.refusal('create', 'no-such-vm', '--timeout', '3')
        self.assertIn('is not ready after 3 s: VirtualMachineNotFound', text)

    def test_interrupt(self):
        running = self.useFixture(terminal.Terminal(
            [process.BIN / 'kubectl-bmc', 'create', 'no-such-vm'],
            process.environment(self.user.kubeconfig.parent, {
                'KUBECONFIG': self.user.kubeconfig})))
        running.wait(rb'VirtualMachineNotFound')
        running.process.send_signal(signal.SIGINT)
        self.assertEqual(130, running.wait_end(), running.output)
        self.assertNotIn(b'Traceback', running.output)


class CredentialsTestCase(kubectl_case.KubectlCase):

    def credentials(self, form, *words):
        return self.plugin('credentials', 'box', '-o', form, *words)

    def shell(self, text, folder):
        done = subprocess.run(
            ['bash', '-euc', text], capture_output=True, text=True,
            cwd=folder, stdin=subprocess.DEVNULL, timeout=60,
            env=process.environment(folder, {
                'KUBECONFIG': self.user.kubeconfig}))
        self.assertEqual(0, done.returncode, done.stderr)
        return done.stdout

    def test_commands_work_with_and_without_password(self):
        box = self.bmc().ready()
        folder = self.user.kubeconfig.parent
        for words in (), ('--show',):
            for form, expected in (('curl', '"PowerState": "Off"'),
                                   ('ipmitool', 'Chassis Power is off')):
                text = self.credentials(form, *words)
                self.assertEqual(bool(words), box.password in text)
                self.assertIn(
                    expected.replace(' ', ''),
                    self.shell(text, folder).replace(' ', ''))
            for form in 'ironic', 'baremetalhost':
                self.assertEqual(bool(words), box.password
                                 in self.credentials(form, *words))

    def test_objects_of_metal3(self):
        box = self.bmc().ready()
        secret, host = yaml.safe_load_all(
            self.credentials('baremetalhost', '--show'))
        self.assertEqual(box.password, secret['stringData']['password'])
        self.assertEqual(secret['metadata']['name'],
                         host['spec']['bmc']['credentialsName'])
        self.assertEqual(
            f'redfish-virtualmedia://{box.status["serviceIP"]}'
            '/redfish/v1/Systems/1', host['spec']['bmc']['address'])

    def test_summary(self):
        box = self.bmc(ipmi={'enabled': False}).ready()
        text = self.plugin('credentials', 'box')
        self.assertNotIn(box.password, text)
        self.assertIn('in Secret box-bmc', text)
        self.assertIn(box.password, self.plugin('credentials', 'box',
                                                '--show'))
        self.assertIn('does not serve IPMI',
                      self.refusal('credentials', 'box', '-o', 'ipmitool'))
        self.assertNotIn('password', json.dumps(self.rows()))
