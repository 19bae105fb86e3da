# SPDX-License-Identifier: Apache-2.0
"""Persistent boot order and power restore policy of machines.

The sandbox's record of each guest's boots decides whether a step worked.
"""

import copy
import threading

from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine import power_restore_policy
from sushy_kubevirt.machine import power_state
from tests.fixtures import machine_case

R = power_state.ResetType
Policy = power_restore_policy.Policy
OFF, ON = machine_case.OFF, machine_case.ON

ROOT, CD, NIC = 'Boot0001', 'Boot0002', 'Boot1001'


class OrderTestCase(machine_case.MachineTestCase):

    def setUp(self):
        super().setUp()
        self.sandbox.set_gates(
            on=['DeclarativeHotplugVolumes', 'RebootPolicy'])

    def boot_class(self, machine, action):
        """Reset a machine and return the class of device that it boots."""
        name = machine.name
        count, uid = len(self.sandbox.boots(name)), self.uid(name)
        machine.reset(action)
        self.sandbox.wait_running(name, other_than=uid)
        self.becomes(machine, ON)
        return self.sandbox.wait_boot(name, count + 1)['class']

    def template(self, name):
        return self.sandbox.vm(name)['spec']['template']

    def wait_restored(self, name, template):
        self.until('original template',
                   lambda: self.template(name) == template)
        self.until('no annotations', lambda: not self.annotations(name))


class BootOrderTestCase(OrderTestCase):

    def test_order_lasts_until_default_is_set(self):
        machine = self.machine('Manual')
        template = self.template(machine.name)
        self.assertEqual((ROOT,), machine.boot_order())
        machine.set_boot(order=(NIC, ROOT))
        self.assertEqual((NIC, ROOT), machine.boot_order())
        # A persistent order is not an override.
        self.assertIs(boot.Enabled.DISABLED, machine.boot().enabled)
        self.assertEqual('Pxe', self.boot_class(machine, R.ON))
        self.assertEqual('Pxe', self.boot_class(machine, R.FORCE_RESTART))
        machine.set_boot(order=(CD,))
        self.assertEqual('Cd', self.boot_class(machine, R.FORCE_RESTART))
        machine.set_default_boot_order()
        self.assertEqual('Hdd', self.boot_class(machine, R.FORCE_RESTART))
        self.wait_restored(machine.name, template)

    def test_order_applies_after_one_time_override(self):
        machine = self.machine('Manual')
        template = self.template(machine.name)
        machine.set_boot(boot.Target.CD, boot.Enabled.ONCE)
        machine.set_boot(order=(NIC, ROOT))
        self.assertIs(boot.Enabled.ONCE, machine.boot().enabled)
        self.assertEqual('Cd', self.boot_class(machine, R.ON))
        self.assertEqual('Pxe', self.boot_class(machine, R.FORCE_RESTART))
        # Override and order in one request; then the default order.
        machine.set_boot(boot.Target.CD, boot.Enabled.ONCE,
                         order=(ROOT, NIC))
        self.assertEqual((ROOT, NIC), machine.boot_order())
        self.assertEqual('Cd', self.boot_class(machine, R.FORCE_RESTART))
        self.assertEqual('Hdd', self.boot_class(machine, R.FORCE_RESTART))
        machine.set_boot(boot.Target.CD, boot.Enabled.ONCE)
        machine.set_default_boot_order()
        self.assertEqual('Cd', self.boot_class(machine, R.FORCE_RESTART))
        self.assertEqual('Hdd', self.boot_class(machine, R.FORCE_RESTART))
        self.wait_restored(machine.name, template)

    def test_order_applies_after_continuous_override(self):
        machine = self.machine('Manual')
        template = self.template(machine.name)
        machine.set_boot(boot.Target.CD, boot.Enabled.CONTINUOUS)
        machine.set_boot(order=(NIC,))
        self.assertIs(boot.Enabled.CONTINUOUS, machine.boot().enabled)
        self.assertEqual('Cd', self.boot_class(machine, R.ON))
        machine.set_boot(enabled=boot.Enabled.DISABLED)
        self.assertEqual('Pxe', self.boot_class(machine, R.FORCE_RESTART))
        machine.set_default_boot_order()
        self.wait_restored(machine.name, template)

    def test_order_set_in_one_time_boot_applies_next(self):
        machine = self.machine('Manual')
        template = self.template(machine.name)
        machine.set_boot(boot.Target.CD, boot.Enabled.ONCE)
        self.assertEqual('Cd', self.boot_class(machine, R.ON))
        machine.set_boot(order=(NIC, ROOT))
        # The guest's reboot ends that boot.
        before = len(self.sandbox.boots(machine.name))
        self.wait_override_removed(machine.name)
        self.sandbox.guest_does(machine.name, 'reboot')
        self.assertEqual('Pxe', self.sandbox.wait_boot(
            machine.name, before + 1)['class'])
        machine.set_default_boot_order()
        self.until('original run strategy',
                   lambda: self.strategy(machine.name) == 'Manual')
        self.wait_restored(machine.name, template)

    def test_set_order_survives_each_fault(self):
        machine = self.machine('Manual')
        template = self.template(machine.name)
        for moment in machine_case.WRITE_FAULTS:
            self.sandbox.fault(moment, verb='PATCH',
                               where=f'virtualmachines/{machine.name}$')
            machine.set_boot(order=(NIC, ROOT))
            self.assertEqual([1], self.fault_hits())
            self.assertEqual((NIC, ROOT), machine.boot_order())
            self.sandbox.clear_faults()
            machine.set_default_boot_order()
            self.wait_restored(machine.name, template)

    def test_several_bmcs_set_order_at_once(self):
        name = self.machine('Manual').name
        template = self.template(name)
        failures = []

        def work(machine, order, target):
            try:
                for _ in range(4):
                    machine.set_boot(order=order)
                    machine.set_boot(target, boot.Enabled.ONCE)
                    machine.set_boot(enabled=boot.Enabled.DISABLED)
            except Exception as exc:
                failures.append(exc)

        threads = [threading.Thread(target=work, args=(
            self.bmc().machine(name), order, target))
            for order, target in (((NIC, ROOT), boot.Target.CD),
                                  ((CD,), boot.Target.PXE),
                                  ((ROOT, CD, NIC), boot.Target.HDD))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([], failures)
        machine = self.bmc().machine(name)
        self.assertIn(machine.boot_order(),
                      ((NIC, ROOT), (CD,), (ROOT, CD, NIC)))
        machine.set_default_boot_order()
        self.wait_restored(name, template)

    def test_order_survives_kill_after_write(self):
        machine = self.machine('Manual')
        template = self.template(machine.name)
        name = machine.name
        machine.set_boot(boot.Target.CD, boot.Enabled.ONCE)
        self.assertFalse(self.run_bmc(name, 'order', NIC, ROOT, writes=1))
        self.until('the order', lambda: machine.boot_order() == (NIC, ROOT))
        # The next process finds it done and writes nothing.
        self.assertTrue(self.run_bmc(name, 'order', NIC, ROOT, writes=1))
        self.assertEqual('Cd', self.boot_class(machine, R.ON))
        self.assertEqual('Pxe', self.boot_class(machine, R.FORCE_RESTART))
        self.assertFalse(self.run_bmc(name, 'order', writes=1))
        self.wait_restored(name, template)

    def test_order_set_by_killed_bmc_in_one_time_boot(self):
        """The BMC that set the order, or a reconciler, ends the override."""
        machine = self.machine('Manual', self.bmc(reconcile=False))
        template = self.template(machine.name)
        machine.set_boot(boot.Target.CD, boot.Enabled.ONCE)
        self.assertEqual('Cd', self.boot_class(machine, R.ON))
        self.assertFalse(self.run_bmc(machine.name, 'order', NIC, ROOT,
                                      writes=1))
        other = self.bmc().machine(machine.name)
        self.until('override disabled', lambda: other.boot().enabled
                   is boot.Enabled.DISABLED)
        self.assertEqual((NIC, ROOT), other.boot_order())
        self.assertEqual('Pxe', self.boot_class(other, R.FORCE_RESTART))
        other.set_default_boot_order()
        self.until('original run strategy',
                   lambda: self.strategy(machine.name) == 'Manual')
        self.wait_restored(machine.name, template)


class PolicyTestCase(OrderTestCase):

    def crash(self, machine):
        uid = self.uid(machine.name)
        self.sandbox.guest_does(machine.name, 'crash')
        return uid

    def wait_restarted(self, machine, uid):
        self.sandbox.wait_running(machine.name, other_than=uid)
        self.becomes(machine, ON)

    def test_policy_changes_only_restart_after_crash(self):
        machine = self.machine('Manual', off=False)
        uid = self.uid(machine.name)
        for policy in (Policy.ALWAYS_ON, Policy.ALWAYS_OFF,
                       Policy.LAST_STATE):
            machine.set_power_restore_policy(policy)
            self.assertIs(policy, machine.power_restore_policy())
            self.stays(lambda: self.uid(machine.name) == uid, 0.3)
        self.wait_restarted(machine, self.crash(machine))
        self.sandbox.guest_does(machine.name, 'shutdown')
        self.sandbox.wait_stopped(machine.name)
        self.becomes(machine, OFF)
        # No policy starts a machine that is off.
        before = len(self.sandbox.boots(machine.name))
        for policy in (Policy.ALWAYS_ON, Policy.ALWAYS_OFF,
                       Policy.LAST_STATE, Policy.ALWAYS_ON):
            machine.set_power_restore_policy(policy)
            self.assertIs(policy, machine.power_restore_policy())
            self.stays(lambda: machine.power_state() is OFF, 0.4)
        self.assertEqual(before, len(self.sandbox.boots(machine.name)))
        machine.reset(R.ON)
        self.sandbox.wait_running(machine.name)
        self.assertEqual('Always', self.strategy(machine.name))
        self.wait_restarted(machine, self.crash(machine))
        machine.set_power_restore_policy(Policy.ALWAYS_OFF)
        self.crash(machine)
        self.becomes(machine, OFF)
        self.stays(lambda: machine.power_state() is OFF)

    def test_sets_policy_during_start(self):
        for strategy in ('Always', 'RerunOnFailure'):
            machine = self.machine(strategy)
            machine.reset(R.ON)
            machine.set_power_restore_policy(Policy.ALWAYS_OFF)
            self.assertIs(Policy.ALWAYS_OFF, machine.power_restore_policy())
            self.assertEqual('Manual', self.strategy(machine.name))
            self.becomes(machine, ON)

    def test_sets_policy_in_one_time_boot(self):
        machine = self.machine('RerunOnFailure')
        machine.set_boot(boot.Target.CD, boot.Enabled.ONCE)
        self.assertEqual('Cd', self.boot_class(machine, R.ON))
        machine.set_power_restore_policy(Policy.ALWAYS_OFF)
        self.assertIs(Policy.ALWAYS_OFF, machine.power_restore_policy())
        before = len(self.sandbox.boots(machine.name))
        self.wait_override_removed(machine.name)
        self.sandbox.guest_does(machine.name, 'reboot')
        self.assertEqual('Hdd', self.sandbox.wait_boot(
            machine.name, before + 1)['class'])
        self.until('original run strategy',
                   lambda: self.strategy(machine.name) == 'Manual')

    def test_policy_survives_kill_after_write(self):
        machine = self.machine('Manual')
        spec = copy.deepcopy(self.sandbox.vm(machine.name)['spec'])
        self.assertFalse(self.run_bmc(machine.name, 'policy', 'AlwaysOn',
                                      writes=1))
        self.until('the policy', lambda: machine.power_restore_policy()
                   is Policy.ALWAYS_ON)
        self.stays(lambda: machine.power_state() is OFF)
        self.assertTrue(self.run_bmc(machine.name, 'policy', 'AlwaysOn',
                                     writes=1))
        self.assertFalse(self.run_bmc(machine.name, 'policy', 'AlwaysOff',
                                      writes=1))
        self.assertEqual(spec, self.sandbox.vm(machine.name)['spec'])
        self.assertEqual({}, self.annotations(machine.name))
