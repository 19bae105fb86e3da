# SPDX-License-Identifier: Apache-2.0

from oslotest import base

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine import one_time_boot
from sushy_kubevirt.machine import options
from sushy_kubevirt.machine import power_restore_policy
from sushy_kubevirt.machine import run_strategy
from sushy_kubevirt.machine import vm_state
from tests.unit.machine import fakes

Policy = power_restore_policy.Policy
STRATEGIES = {Policy.ALWAYS_ON: 'Always', Policy.LAST_STATE: 'RerunOnFailure',
              Policy.ALWAYS_OFF: 'Manual'}


class PolicyTestCase(base.BaseTestCase):

    def machine(self, strategy, vmi=None, **more):
        return fakes.Machine(fakes.vm(strategy, **more), vmi)

    def policy(self, machine):
        return power_restore_policy.of(machine.vm, machine.options)

    def saved(self, machine):
        return run_strategy.saved(machine.vm)


class ReadTestCase(PolicyTestCase):

    def test_policy_of_each_strategy(self):
        for strategy, policy in (
                ('Always', Policy.ALWAYS_ON), ('Manual', Policy.ALWAYS_OFF),
                ('RerunOnFailure', Policy.LAST_STATE),
                ('Once', Policy.ALWAYS_OFF), ('WaitAsReceiver', None),
                ('Halted', Policy.LAST_STATE)):
            self.assertIs(policy, self.policy(self.machine(strategy)))

    def test_policy_of_halted_is_that_of_next_start(self):
        machine = self.machine('Halted')
        self.assertIs(Policy.ALWAYS_ON, power_restore_policy.of(
            machine.vm, options.Options(run_strategy='Always')))
        run_strategy.save(machine.vm, 'Manual')
        self.assertIs(Policy.ALWAYS_OFF, self.policy(machine))

    def test_policy_of_running_field(self):
        for running in (True, False):
            self.assertIs(Policy.ALWAYS_ON, self.policy(
                self.machine(None, running=running)))

    def test_policy_during_one_time_boot(self):
        machine = self.machine('Always')
        run_strategy.save(machine.vm, 'RerunOnFailure', 'u0')
        self.assertIs(Policy.LAST_STATE, self.policy(machine))


class SetTestCase(PolicyTestCase):

    def set(self, machine, policy):
        fakes.set_policy(machine, policy)
        self.assertIs(policy, self.policy(machine))
        # One write is enough, and the reconciler does not revert it.
        writes = len(machine.writes)
        fakes.set_policy(machine, policy)
        self.assertEqual(writes, len(machine.writes))
        self.assertIsNone(one_time_boot.desired_vm(machine.state()))

    def test_set_while_on(self):
        for before in ('Always', 'RerunOnFailure', 'Manual', 'Once'):
            for policy, strategy in STRATEGIES.items():
                machine = self.machine(before, fakes.vmi())
                self.set(machine, policy)
                self.assertEqual(strategy, machine.strategy)
                self.assertEqual((None, None), self.saved(machine))
                self.assertTrue(set(machine.actions) <= {'patch'})

    def test_set_while_off(self):
        for before in ('RerunOnFailure', 'Manual', 'Halted'):
            for policy, strategy in STRATEGIES.items():
                machine = self.machine(before)
                self.set(machine, policy)
                self.assertFalse(
                    machine.state().starting())
                if strategy in (before, 'Manual'):
                    self.assertEqual(strategy, machine.strategy)
                else:
                    self.assertEqual('Halted', machine.strategy)
                    self.assertEqual(strategy, self.saved(machine)[0])

    def test_set_after_guest_shut_down(self):
        machine = self.machine('RerunOnFailure', fakes.vmi('Succeeded'))
        self.set(machine, Policy.ALWAYS_ON)
        self.assertEqual('Halted', machine.strategy)

    def test_set_while_stopping(self):
        machine = self.machine('Halted', fakes.vmi(deleting=True))
        self.set(machine, Policy.ALWAYS_OFF)
        self.assertEqual('Halted', machine.strategy)
        machine.vmi = None
        edited = one_time_boot.desired_vm(vm_state.VmState(machine.vm))
        self.assertEqual('Manual', edited['spec']['runStrategy'])
        machine = self.machine('Manual', fakes.vmi(), requests=[fakes.STOP])
        self.set(machine, Policy.ALWAYS_ON)
        self.assertEqual('Halted', machine.strategy)

    def test_set_replaces_running_field(self):
        machine = self.machine(None, fakes.vmi(), running=True)
        self.set(machine, Policy.LAST_STATE)
        self.assertEqual('RerunOnFailure', machine.strategy)
        self.assertNotIn('running', machine.vm['spec'])
        machine = self.machine(None, running=False)
        self.set(machine, Policy.ALWAYS_ON)
        self.assertEqual('Halted', machine.strategy)
        self.assertNotIn('running', machine.vm['spec'])

    def test_set_waits_for_start_in_progress(self):
        def comes(machine):
            machine.vmi = fakes.vmi('Scheduling')

        machine = fakes.Machine(fakes.vm('Always'), None, on_wait=[comes])
        self.set(machine, Policy.ALWAYS_OFF)
        self.assertEqual('Manual', machine.strategy)

    def test_set_is_unavailable_if_start_does_not_happen(self):
        machine = fakes.Machine(fakes.vm('Always'), None, write_deadline=0.2)
        self.assertRaises(
            errors.Unavailable,
            fakes.set_policy,
            machine,
            Policy.LAST_STATE,
        )
        self.assertEqual([], machine.writes)
        self.set(machine, Policy.ALWAYS_ON)

    def test_migration_receiver_is_refused(self):
        self.assertRaises(errors.WrongState, fakes.set_policy,
                          self.machine('WaitAsReceiver'), Policy.ALWAYS_ON)

    def test_set_during_one_time_boot(self):
        for before in ('RerunOnFailure', 'Manual', 'Always'):
            for policy, strategy in STRATEGIES.items():
                machine = self.machine(before)
                fakes.set_boot(machine, boot.Target.CD, boot.Enabled.ONCE)
                machine.vmi = fakes.vmi('Running', 'u1', of=machine.vm)
                self.set_and_reboot(machine, policy, strategy)

    def set_and_reboot(self, machine, policy, strategy):
        fakes.set_policy(machine, policy)
        self.assertIs(policy, self.policy(machine))
        # A reboot of the guest still starts it again.
        self.assertEqual('Always', machine.strategy)
        machine.vmi['status']['phase'] = 'Succeeded'
        self.assertTrue(machine.state().starting())
        machine.vmi = fakes.vmi('Running', 'u2')
        machine.vm = one_time_boot.desired_vm(
            machine.state()) or machine.vm
        self.assertEqual(strategy, machine.strategy)
        self.assertNotIn(stored_names.RUN_STRATEGY,
                         machine.vm['metadata']['annotations'])
