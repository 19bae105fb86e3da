# SPDX-License-Identifier: Apache-2.0
"""VMs of Harvester, whose webhook replaces run strategies."""

from oslotest import base

from kubevirt_sandbox.testing import json_patches
from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine import one_time_boot
from sushy_kubevirt.machine import power_restore_policy
from sushy_kubevirt.machine import power_state
from sushy_kubevirt.machine import reset
from sushy_kubevirt.machine import run_strategy
from sushy_kubevirt.machine import vm_state
from tests.unit.machine import fakes

NOTE = run_strategy.HARVESTER
Policy = power_restore_policy.Policy


class Machine(fakes.Machine):
    """A machine whose writes pass Harvester's webhook.

    See patchRunStrategy in pkg/webhook/resources/virtualmachine/mutator.go of
    Harvester 1.9.
    """

    def _apply(self, operations, guard=None):
        old = self.strategy
        new = json_patches.apply(self.vm, operations)
        if old == 'Halted' != new['spec'].get('runStrategy'):
            operations = [*operations, {
                'op': 'replace', 'path': '/spec/runStrategy',
                'value': new['metadata']['annotations'].get(
                    NOTE) or 'RerunOnFailure'}]
        return super()._apply(operations, guard)

    @property
    def note(self):
        return self.vm['metadata']['annotations'].get(NOTE)


def machine(strategy, note=None, saved=None, vmi=None, **settings):
    annotations = {'harvesterhci.io/reservedMemory': '256Mi'}
    if note:
        annotations[NOTE] = note
    made = Machine(fakes.vm(strategy, annotations=annotations), vmi,
                   **settings)
    if saved:
        run_strategy.save(made.vm, saved)
    return made


class HarvesterTestCase(base.BaseTestCase):

    def test_starts_with_strategy_of_harvester(self):
        for note in ('Always', 'RerunOnFailure', 'Manual', 'Once'):
            one = machine('Halted', note)
            self.assertEqual(note, run_strategy.of_next_start(
                one.vm, 'RerunOnFailure'))
            reset.reset(one, power_state.ResetType.ON)
            self.assertEqual((note, note), (one.strategy, one.note))

    def test_own_strategy_has_priority(self):
        for note in (None, 'Always', 'RerunOnFailure', 'Manual'):
            for saved in ('Always', 'RerunOnFailure', 'Manual'):
                one = machine('Halted', note, saved)
                reset.reset(one, power_state.ResetType.ON)
                self.assertEqual((saved, saved), (one.strategy, one.note))

    def test_configured_strategy(self):
        for note in None, 'Halted', 'nonsense':
            one = machine('Halted', note, run_strategy='Manual')
            reset.reset(one, power_state.ResetType.ON)
            self.assertEqual(('Manual', 'Manual'), (one.strategy, one.note))

    def test_one_time_boot_runs_under_always(self):
        one = machine('Halted', 'RerunOnFailure')
        fakes.set_boot(one, boot.Target.PXE, boot.Enabled.ONCE)
        reset.reset(one, power_state.ResetType.ON)
        self.assertEqual(('Always', 'Always'), (one.strategy, one.note))
        self.assertEqual('RerunOnFailure', run_strategy.saved(one.vm)[0])

    def test_stopped_machine_stays_off(self):
        # Stopped by a user, in a one-time boot that ran under Always.
        one = machine('Halted', 'Always', 'Manual')
        edited = one_time_boot.desired_vm(vm_state.VmState(one.vm))
        one.patch(one_time_boot.patch(one.vm, edited))
        self.assertEqual(('Manual', 'Manual'), (one.strategy, one.note))
        self.assertFalse(vm_state.VmState(one.vm).starting())

    def test_next_start_by_harvester_restores_strategy(self):
        one = machine('Halted', 'Always', 'RerunOnFailure')
        edited = one_time_boot.desired_vm(vm_state.VmState(one.vm))
        one.patch(one_time_boot.patch(one.vm, edited))
        self.assertEqual(('Halted', 'RerunOnFailure'),
                         (one.strategy, one.note))
        self.assertIsNone(one_time_boot.desired_vm(vm_state.VmState(one.vm)))

    def test_policy_of_machine_that_is_off(self):
        for note in (None, 'Always', 'RerunOnFailure', 'Manual'):
            for policy, strategy in (
                    (Policy.ALWAYS_ON, 'Always'),
                    (Policy.LAST_STATE, 'RerunOnFailure'),
                    (Policy.ALWAYS_OFF, 'Manual')):
                one = machine('Halted', note)
                fakes.set_policy(one, policy)
                self.assertIs(policy, power_restore_policy.of(
                    one.vm, one.options))
                self.assertEqual(strategy, one.note)
                self.assertFalse(vm_state.VmState(one.vm).starting())

    def test_policy_is_that_of_harvesters_strategy(self):
        one = machine('Halted', 'Manual')
        self.assertIs(Policy.ALWAYS_OFF, power_restore_policy.of(
            one.vm, one.options))

    def test_leaves_running_machine_to_harvester(self):
        # Its controller writes what the VM has.
        one = machine('RerunOnFailure', 'RerunOnFailure', vmi=fakes.vmi())
        fakes.set_policy(one, Policy.ALWAYS_ON)
        self.assertEqual(('Always', 'RerunOnFailure'),
                         (one.strategy, one.note))

    def test_other_vms_get_no_annotation(self):
        for annotations in {'other': 'kept'}, {'x/harvesterhci.io': ''}:
            one = fakes.Machine(fakes.vm('Halted', annotations=annotations))
            reset.reset(one, power_state.ResetType.ON)
            self.assertEqual(annotations, one.vm['metadata']['annotations'])

    def test_label_marks_vm(self):
        vm = fakes.vm('Halted')
        vm['metadata']['labels'] = {'harvesterhci.io/creator': 'harvester'}
        one = Machine(vm, run_strategy='Always')
        reset.reset(one, power_state.ResetType.ON)
        self.assertEqual(('Always', 'Always'), (one.strategy, one.note))
