# SPDX-License-Identifier: Apache-2.0
"""``kubectl bmc power`` and ``boot``, and the way to a BMC."""

from kubevirt_sandbox.testing import machines
from tests.fixtures import kubectl_case
from tests.fixtures import machine_case


class PowerTestCase(kubectl_case.KubectlCase):

    def power(self, *words):
        return self.plugin('power', 'box', *words)

    def test_waits_for_each_action(self):
        self.bmc().ready()
        self.assertEqual('Off\n', self.power())
        for action, state in (
                ('on', 'On'), ('reset', 'On'), ('cycle', 'On'),
                ('shutdown', 'Off'), ('on', 'On'), ('off', 'Off')):
            self.assertEqual(state + '\n', self.power(action, '--wait'))

    def test_restart_is_another_guest(self):
        self.bmc().ready()
        self.power('on', '--wait')
        before = self.sandbox.vmi('box', self.namespace)['metadata']['uid']
        self.power('reset', '--wait')
        self.assertNotEqual(before, self.sandbox.vmi(
            'box', self.namespace)['metadata']['uid'])

    def test_vm_that_cannot_run(self):
        self.vm('box')
        self.sandbox.patch('virtualmachines', 'box', {'spec': {'template': {
            'spec': {'nodeSelector': {'no': 'such-node'}}}}}, self.namespace)
        self.bmc().ready()
        text = self.refusal('power', 'box', 'on', '--wait')
        self.assertIn('ErrorUnschedulable', text)

    def test_wait_that_takes_too_long(self):
        vm = machines.vm('box', 'Always', self.namespace)
        template = vm['spec']['template']
        template['metadata']['annotations'] = {
            machine_case.IGNORE_ACPI: 'true'}
        template['spec']['terminationGracePeriodSeconds'] = 600
        self.sandbox.create('virtualmachines', vm, self.namespace)
        self.sandbox.wait_running('box', self.namespace)
        self.bmc().ready()
        self.assertIn(' after 0 s', self.refusal(
            'power', 'box', 'shutdown', '--wait', '--timeout', '0'))

    def test_shared_pod(self):
        for name in 'box', 'other':
            self.bmc(name, vm=name, secret=f'{name}-bmc', placement='Shared')
        for name in 'box', 'other':
            self.kubectl.wait(f'vmbmc/{name}', 'condition=Ready')
        self.plugin('power', 'other', 'on', '--wait')
        self.assertEqual('Off\n', self.power())

    def test_plain_http(self):
        self.bmc(redfish={'plainHTTP': True}).ready()
        self.assertEqual('Off\n', self.power())


class BootTestCase(kubectl_case.KubectlCase):

    def boot(self, *words):
        return self.plugin('boot', 'box', *words)

    def test_settings(self):
        self.bmc().ready()
        self.assertEqual('none, legacy\n', self.boot())
        self.assertEqual('pxe, once, legacy\n', self.boot('pxe'))
        self.assertEqual('pxe, once, legacy\n', self.boot())
        self.assertEqual('disk, always, legacy\n',
                         self.boot('disk', '--always'))
        self.assertEqual('disk, always, uefi\n', self.boot('--mode', 'uefi'))
        self.assertEqual(
            'cd, once, legacy\n', self.boot('cd', '--mode', 'legacy'))
        # A firmware for one start goes with its override.
        self.assertEqual('none, uefi\n', self.boot('none'))
        self.assertIn('goes with', self.refusal('boot', 'box', 'http',
                                                status=2))

    def test_boots_what_was_asked_for(self):
        self.bmc().ready()
        self.boot('pxe')
        self.plugin('power', 'box', 'on', '--wait')
        self.until('once', self.boot, 'none, legacy\n')
