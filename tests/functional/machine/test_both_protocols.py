# SPDX-License-Identifier: Apache-2.0
"""One machine through Redfish and IPMI: each shows what the other has set.

BMCs keep their state in Kubernetes, so any of them can continue an operation
that another began or did not finish because it was killed. The sushy library
speaks Redfish and ipmitool IPMI; the guest's record shows what was booted.
"""

import itertools

import sushy

from kubevirt_sandbox.testing import kubectl
from kubevirt_sandbox.testing import machines
from tests.fixtures import base
from tests.fixtures import emulator
from tests.fixtures import vbmcd

ANNOTATION = 'sushy-kubevirt.openstack.org/'

_names = ('machine-%d' % number for number in itertools.count(1))


class Bmcs(base.SandboxTestCase):
    """A cluster with an emulator and a daemon."""

    VMS = 0
    GATES = {}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # Before there is a BMC: it remembers for a while which there are.
        cls.sandbox.set_gates(**cls.GATES)
        account = cls.sandbox.bmc_account()
        cls.emulator = cls.share(emulator.Emulator(account))
        cls.vbmcd = cls.share(vbmcd.Vbmcd(account))

    def make(self, run_strategy='Halted', **spec):
        """Have a VM of the test's own, with a BMC of either protocol."""
        self.name = next(_names)
        self.vm = self.sandbox.create('virtualmachines', machines.vm(
            self.name, run_strategy, **spec))
        self.vbmcd.add(self.name)
        if run_strategy == 'Always':
            self.sandbox.wait_running(self.name)

    def system(self):
        """Read the system with sushy."""
        root = sushy.Sushy(self.emulator.url + '/redfish/v1')
        return root.get_system('/redfish/v1/Systems/'
                               + machines.uuid_of(self.vm))

    def once(self, target=sushy.BOOT_SOURCE_TARGET_PXE):
        self.system().set_system_boot_options(
            target, enabled=sushy.BOOT_SOURCE_ENABLED_ONCE)

    def ipmi(self, *words):
        return self.vbmcd.ipmi(self.name, *words)

    def boot_parameter(self):
        return self.ipmi('chassis', 'bootparam', 'get', '5')

    def kubectl(self, *words):
        return kubectl.Kubectl(self.sandbox.kubeconfig)(*words)

    def boots(self):
        return [boot['class'] for boot in self.sandbox.boots(self.name)]

    def wait_restored(self):
        """Wait until the next VMI is made as it was before an override."""
        return self.sandbox.wait(
            'virtualmachines', self.name, lambda vm:
            vm['spec']['template'] == self.vm['spec']['template'])

    def wait_forgotten(self, run_strategy='RerunOnFailure'):
        """Wait until nothing of an override is left on the VM."""
        return self.sandbox.wait(
            'virtualmachines', self.name, lambda vm:
            vm['spec']['template'] == self.vm['spec']['template']
            and vm['spec']['runStrategy'] == run_strategy
            and not [name for name in vm['metadata'].get('annotations', {})
                     if name.startswith(ANNOTATION)])

    def restart_emulator(self):
        self.emulator.cleanUp()
        self.emulator.setUp()


class PowerTestCase(Bmcs):

    def test_run_strategies(self):
        """What a VM ran under it runs under again."""
        for strategy, off in (('Always', 'Halted'), ('Manual', 'Manual'),
                              ('RerunOnFailure', 'RerunOnFailure')):
            self.make(strategy)
            if strategy != 'Always':
                self.system().reset_system(sushy.RESET_ON)
                self.sandbox.wait_running(self.name)
            self.ipmi('power', 'off')
            stopped = self.sandbox.wait_stopped(self.name)
            self.assertEqual(off, stopped['spec']['runStrategy'])
            self.system().reset_system(sushy.RESET_ON)
            self.sandbox.wait_running(self.name)
            self.assertEqual(strategy, self.sandbox.vm(self.name)['spec'][
                'runStrategy'])

    def test_running(self):
        """A VM of the old kind stays one."""
        self.make(None, running=False)
        self.ipmi('power', 'on')
        self.sandbox.wait_running(self.name)
        spec = self.sandbox.vm(self.name)['spec']
        self.assertTrue(spec['running'])
        self.assertNotIn('runStrategy', spec)
        self.system().reset_system(sushy.RESET_FORCE_OFF)
        self.sandbox.wait_stopped(self.name)
        self.assertFalse(self.sandbox.vm(self.name)['spec']['running'])

    def test_guest_crashes(self):
        self.make()
        self.ipmi('power', 'on')
        self.sandbox.wait_running(self.name)
        self.sandbox.guest_does(self.name, 'crash')
        self.sandbox.wait_boot(self.name, 2)
        self.sandbox.wait_running(self.name)
        self.assertEqual(sushy.POWER_STATE_ON, self.system().power_state)
        self.assertIn('on', self.ipmi('power', 'status'))

    def test_paused(self):
        self.make()
        self.ipmi('power', 'on')
        self.sandbox.wait_running(self.name)
        self.emulator.reset(machines.uuid_of(self.vm), 'Pause')
        self.assertEqual('Paused', self.emulator.system(
            machines.uuid_of(self.vm))['PowerState'])
        self.assertIn('on', self.ipmi('power', 'status'))
        self.emulator.reset(machines.uuid_of(self.vm), 'Resume')
        self.assertEqual(sushy.POWER_STATE_ON, self.system().power_state)

    def test_made_again_under_its_name(self):
        self.make()
        self.ipmi('power', 'on')
        self.sandbox.wait_running(self.name)
        self.sandbox.delete('virtualmachines', self.name)
        self.sandbox.wait('virtualmachines', self.name,
                          lambda vm: vm is None)
        self.vm = self.sandbox.create('virtualmachines', machines.vm(
            self.name, 'Halted'))
        self.assertIn('off', self.ipmi('power', 'status'))
        self.ipmi('power', 'on')
        self.sandbox.wait_running(self.name)
        self.assertEqual(sushy.POWER_STATE_ON, self.system().power_state)

    def test_persistent_set_by_ipmi_and_taken_back_by_redfish(self):
        self.make()
        self.ipmi('chassis', 'bootdev', 'pxe', 'options=persistent')
        boot = self.system().boot
        self.assertEqual(
            (sushy.BOOT_SOURCE_TARGET_PXE,
             sushy.BOOT_SOURCE_ENABLED_CONTINUOUS),
            (boot.target, boot.enabled))
        self.ipmi('power', 'on')
        self.assertEqual('Pxe', self.sandbox.wait_boot(self.name, 1)['class'])
        self.ipmi('power', 'cycle')
        self.assertEqual('Pxe', self.sandbox.wait_boot(self.name, 2)['class'])
        self.system().set_system_boot_options(
            enabled=sushy.BOOT_SOURCE_ENABLED_DISABLED)
        self.assertIn('No override', self.boot_parameter())
        self.ipmi('power', 'cycle')
        self.assertEqual('Hdd', self.sandbox.wait_boot(self.name, 3)['class'])

    def test_reads_ask_nothing_of_the_cluster(self):
        self.make()
        self.ipmi('power', 'on')
        self.sandbox.wait_running(self.name)
        path = '/redfish/v1/Systems/' + machines.uuid_of(self.vm)
        ways = [path + part for part in (
            '', '/EthernetInterfaces', '/SimpleStorage', '/Processors',
            '/BIOS', '/SecureBoot')] + ['/redfish/v1/Systems']
        for way in ways:
            self.emulator.request('GET', way, expect=200)
        self.wait_restored()
        self.sandbox.reset_stats()
        for way in ways * 3:
            self.emulator.request('GET', way, expect=200)
        self.ipmi('power', 'status')
        self.boot_parameter()
        self.assertEqual({}, self.sandbox.calls())


class Once:
    """What a cluster with the gate RebootPolicy does, and one without."""

    def test_set_by_redfish_and_run_by_ipmi(self):
        self.make()
        self.once()
        parameter = self.boot_parameter()
        self.assertIn('Boot Flag Valid', parameter)
        self.assertIn('only next boot', parameter)
        self.assertIn('Force PXE', parameter)
        self.assertIn('bootOrder', self.kubectl(
            'get', 'vm', self.name, '-o', 'yaml'))
        self.ipmi('power', 'on')
        self.assertEqual('Pxe', self.sandbox.wait_boot(self.name, 1)['class'])
        self.wait_restored()
        self.assertNotIn('bootOrder', self.kubectl(
            'get', 'vm', self.name, '-o', 'yaml'))
        self.assertIn('No override', self.boot_parameter())
        self.ipmi('power', 'reset')
        self.assertEqual('Hdd', self.sandbox.wait_boot(self.name, 2)['class'])
        self.wait_forgotten()

    def test_set_by_ipmi_and_run_by_redfish(self):
        self.make()
        self.ipmi('chassis', 'bootdev', 'cdrom', 'options=efiboot')
        boot = self.system().boot
        self.assertEqual(
            (sushy.BOOT_SOURCE_TARGET_CD, sushy.BOOT_SOURCE_ENABLED_ONCE,
             sushy.BOOT_SOURCE_MODE_UEFI),
            (boot.target, boot.enabled, boot.mode))
        self.system().reset_system(sushy.RESET_ON)
        first = self.sandbox.wait_boot(self.name, 1)
        self.assertEqual(('Cd', 'efi'), (first['class'], first['firmware']))
        self.wait_restored()
        self.system().reset_system(sushy.RESET_FORCE_RESTART)
        second = self.sandbox.wait_boot(self.name, 2)
        self.assertEqual(('Hdd', 'bios'),
                         (second['class'], second['firmware']))
        self.wait_forgotten()

    def test_pending_one_is_replaced_by_the_other(self):
        self.make()
        self.once()
        self.ipmi('chassis', 'bootdev', 'cdrom')
        boot = self.system().boot
        self.assertEqual(
            (sushy.BOOT_SOURCE_TARGET_CD, sushy.BOOT_SOURCE_ENABLED_ONCE),
            (boot.target, boot.enabled))
        self.ipmi('power', 'on')
        self.assertEqual('Cd', self.sandbox.wait_boot(self.name, 1)['class'])
        # What the first replaced is what the second brings back.
        self.wait_restored()

    def test_starts_and_stops_nothing(self):
        self.make()
        self.once()
        self.ipmi('chassis', 'bootdev', 'cdrom')
        vm = self.sandbox.vm(self.name)
        self.assertEqual('Halted', vm['spec']['runStrategy'])
        self.assertIsNone(self.sandbox.vmi(self.name))
        self.ipmi('power', 'on')
        self.sandbox.wait_boot(self.name, 1)
        self.wait_restored()
        self.ipmi('power', 'off')
        self.sandbox.wait_stopped(self.name)
        self.once()
        # RerunOnFailure, and stopped: it must stay that way.
        self.assertIsNone(self.sandbox.vmi(self.name))
        self.assertEqual(1, len(self.boots()))

    def test_on_a_running_machine(self):
        self.make()
        self.ipmi('power', 'on')
        before = self.sandbox.wait_running(self.name)
        self.once()
        self.assertEqual(before['metadata']['uid'],
                         self.sandbox.guest(self.name)['vmi'])
        self.ipmi('power', 'cycle')
        self.sandbox.wait_boot(self.name, 2)
        self.sandbox.wait_running(self.name)
        self.ipmi('power', 'cycle')
        self.sandbox.wait_boot(self.name, 3)
        self.wait_forgotten()
        self.assertEqual(['Hdd', 'Pxe', 'Hdd'], self.boots())

    def test_emulator_killed_before_the_boot(self):
        """The other BMC puts back what the dead one changed."""
        self.make()
        self.once()
        self.emulator.process.kill()
        self.addCleanup(self.restart_emulator)
        self.ipmi('power', 'on')
        self.assertEqual('Pxe', self.sandbox.wait_boot(self.name, 1)['class'])
        self.wait_restored()
        self.ipmi('power', 'reset')
        self.assertEqual('Hdd', self.sandbox.wait_boot(self.name, 2)['class'])

    def test_all_killed_before_the_boot(self):
        """A BMC that starts after the boot restores the original spec."""
        self.make()
        self.once()
        self.emulator.process.kill()
        self.vbmcd.process.cleanUp()
        self.kubectl('patch', 'vm', self.name, '--type=merge', '-p',
                     '{"spec": {"runStrategy": "RerunOnFailure"}}')
        self.assertEqual('Pxe', self.sandbox.wait_boot(
            self.name, 1)['class'])
        # No BMC is running to do it.
        self.assertNotEqual(
            self.vm['spec']['template'],
            self.sandbox.vm(self.name)['spec']['template'])
        # It gets no request.
        self.restart_emulator()
        self.wait_restored()
        self.vbmcd.process.setUp()
        self.system().reset_system(sushy.RESET_FORCE_RESTART)
        self.assertEqual('Hdd', self.sandbox.wait_boot(
            self.name, 2)['class'])
        self.wait_forgotten()


class OnceWithRebootPolicyTestCase(Once, Bmcs):

    GATES = {'on': ['RebootPolicy']}

    def test_guest_reboots(self):
        self.make()
        self.once()
        self.ipmi('power', 'on')
        first = self.sandbox.wait_boot(self.name, 1)
        self.wait_restored()
        self.sandbox.wait_running(self.name)
        self.sandbox.guest_does(self.name, 'reboot')
        second = self.sandbox.wait_boot(self.name, 2)
        self.assertEqual(['Pxe', 'Hdd'], self.boots())
        self.assertNotEqual(first['vmi'], second['vmi'])
        # Policy and run strategy are put back, under the running guest.
        self.wait_forgotten()
        self.assertEqual(second['vmi'], self.sandbox.guest(self.name)['vmi'])
        # From then on a guest's reboot is one again.
        self.sandbox.wait_running(self.name)
        self.sandbox.guest_does(self.name, 'reboot')
        self.assertEqual(second['vmi'],
                         self.sandbox.wait_boot(self.name, 3)['vmi'])
        # And its shutdown is one.
        self.sandbox.guest_does(self.name, 'shutdown')
        self.sandbox.wait_stopped(self.name)
        self.assertEqual(3, len(self.boots()))

    def test_power_off_in_that_boot(self):
        self.make()
        self.once()
        self.ipmi('power', 'on')
        self.sandbox.wait_boot(self.name, 1)
        self.ipmi('power', 'off')
        self.sandbox.wait_stopped(self.name)
        stopped = self.wait_restored()
        self.assertNotEqual('Always', stopped['spec']['runStrategy'])
        self.system().reset_system(sushy.RESET_ON)
        self.sandbox.wait_boot(self.name, 2)
        self.wait_forgotten()
        self.assertEqual(['Pxe', 'Hdd'], self.boots())

    def test_guest_shuts_down_in_that_boot(self):
        """The price: it comes up again, but as it was before."""
        self.make()
        self.once()
        self.ipmi('power', 'on')
        self.sandbox.wait_boot(self.name, 1)
        self.wait_restored()
        self.sandbox.wait_running(self.name)
        self.sandbox.guest_does(self.name, 'shutdown')
        self.sandbox.wait_boot(self.name, 2)
        self.assertEqual(['Pxe', 'Hdd'], self.boots())
        self.wait_forgotten()


class OnceWithoutRebootPolicyTestCase(Once, Bmcs):

    GATES = {'off': ['RebootPolicy']}

    def test_guest_reboots(self):
        self.make()
        self.once()
        self.ipmi('power', 'on')
        first = self.sandbox.wait_boot(self.name, 1)
        self.wait_restored()
        self.sandbox.wait_running(self.name)
        self.sandbox.guest_does(self.name, 'reboot')
        # The VMI stays, and with it what it was made with.
        self.assertEqual(first['vmi'],
                         self.sandbox.wait_boot(self.name, 2)['vmi'])
        self.ipmi('power', 'cycle')
        self.sandbox.wait_boot(self.name, 3)
        self.assertEqual(['Pxe', 'Pxe', 'Hdd'], self.boots())

    def test_guest_shuts_down_in_that_boot(self):
        self.make()
        self.once()
        self.ipmi('power', 'on')
        self.sandbox.wait_boot(self.name, 1)
        self.sandbox.wait_running(self.name)
        self.sandbox.guest_does(self.name, 'shutdown')
        self.sandbox.wait_stopped(self.name)
        self.wait_forgotten()
        self.assertEqual(['Pxe'], self.boots())
