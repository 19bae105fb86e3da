# SPDX-License-Identifier: Apache-2.0
"""What the one-time boot reconciler does about restarts and generations."""

import copy
import json
import pathlib
import re

from sushy_kubevirt.kube import delaying_queue
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.machine import bmc_annotations
from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine import one_time_boot
from sushy_kubevirt.machine import power_restore_policy
from sushy_kubevirt.machine import power_state
from sushy_kubevirt.machine import reset
from sushy_kubevirt.machine import run_strategy
from sushy_kubevirt.machine import vm_state
from tests.unit.machine import fakes
from tests.unit.machine import reset_case
from tests.unit.machine import test_one_time_boot

R = power_state.ResetType


class PendingRestartTestCase(reset_case.ResetTestCase):

    def restarted(self, strategy='RerunOnFailure', **kwargs):
        machine = self.machine(strategy, reset_case.STARTING, **kwargs)
        reset.reset(machine, R.FORCE_RESTART)
        machine.writes.clear()
        return machine

    def reconcile(self, machine):
        edited = one_time_boot.desired_vm(machine.state())
        if edited is not None:
            machine.vm = edited
        return edited is not None

    def assert_done(self, machine):
        self.assertEqual({}, bmc_annotations.read(machine.vm,
                                                  stored_names.RESTART))
        self.assertFalse(self.reconcile(machine))

    def test_strategy_is_restored_when_next_vmi_exists(self):
        for strategy in ('Always', 'RerunOnFailure', 'Once'):
            machine = self.restarted(strategy)
            self.assertFalse(self.reconcile(machine))
            machine.vmi = None
            machine.vm['status']['stateChangeRequests'] = [fakes.START]
            self.assertFalse(self.reconcile(machine))
            machine.vmi = fakes.vmi('Pending', 'u1')
            self.assertTrue(self.reconcile(machine))
            self.assertEqual(strategy, machine.strategy)
            self.assert_done(machine)

    def test_running_field_is_restored(self):
        machine = self.restarted(None, running=True)
        machine.vmi = fakes.vmi('Pending', 'u1')
        self.assertTrue(self.reconcile(machine))
        self.assertIs(True, machine.vm['spec']['running'])
        self.assertNotIn('runStrategy', machine.vm['spec'])
        self.assert_done(machine)

    def test_stop_by_another_client_is_kept(self):
        for strategy in ('Always', 'RerunOnFailure', 'Once'):
            machine = self.restarted(strategy)
            reset_case.end_vmi(machine)
            self.assertTrue(self.reconcile(machine))
            self.assertEqual('Halted', machine.strategy)
            self.assertEqual(strategy, run_strategy.saved(machine.vm)[0])
            self.assert_done(machine)

    def test_stop_of_vm_with_running_field_is_kept(self):
        machine = self.restarted(None, running=True)
        reset_case.end_vmi(machine)
        self.assertTrue(self.reconcile(machine))
        self.assertIs(False, machine.vm['spec']['running'])
        self.assert_done(machine)

    def test_vmi_that_ended_by_itself(self):
        # The restart is complete ('u1'), or was not requested ('u0').
        for strategy, phase, uid, expected in (
                ('Always', 'Failed', 'u1', 'Always'),
                ('Always', 'Succeeded', 'u1', 'Always'),
                ('Always', 'Failed', 'u0', 'Always'),
                ('RerunOnFailure', 'Failed', 'u1', 'RerunOnFailure'),
                # KubeVirt would not start these.
                ('RerunOnFailure', 'Succeeded', 'u1', 'Halted'),
                ('Once', 'Failed', 'u1', 'Halted')):
            with self.subTest(strategy=strategy, phase=phase, uid=uid):
                machine = self.restarted(strategy)
                machine.vmi = fakes.vmi(phase, uid)
                # KubeVirt has not carried out the requests yet.
                self.assertFalse(self.reconcile(machine))
                del machine.vm['status']['stateChangeRequests']
                self.assertTrue(self.reconcile(machine))
                self.assertEqual(expected, machine.strategy)
                self.assertEqual(
                    strategy if expected == 'Halted' else None,
                    run_strategy.saved(machine.vm)[0])
                self.assert_done(machine)

    def test_vmi_with_running_field_that_ended_by_itself(self):
        machine = self.restarted(None, running=True)
        del machine.vm['status']['stateChangeRequests']
        machine.vmi = fakes.vmi('Failed', 'u1')
        self.assertTrue(self.reconcile(machine))
        self.assertIs(True, machine.vm['spec']['running'])
        self.assert_done(machine)

    def test_ended_vmi_that_is_deleted_was_stopped(self):
        machine = self.restarted('Always')
        del machine.vm['status']['stateChangeRequests']
        machine.vmi = fakes.vmi('Failed', 'u1', deleting=True)
        self.assertTrue(self.reconcile(machine))
        self.assertEqual('Halted', machine.strategy)

    def test_restart_requested_while_it_is_reconciled(self):
        # The VM was read before the request, its VMI after the old one ended.
        machine = self.restarted()
        vm = copy.deepcopy(machine.vm)
        del vm['status']['stateChangeRequests']
        edited = one_time_boot.desired_vm(vm_state.VmState(vm))
        self.assertEqual('Halted', edited['spec']['runStrategy'])
        machine.vm['metadata']['resourceVersion'] += '1'
        self.assertRaises(errors.Conflict, machine.patch,
                          one_time_boot.patch(vm, edited))
        self.assertEqual('Manual', machine.strategy)

    def test_strategy_of_another_client_is_kept(self):
        machine = self.restarted()
        for strategy in ('Always', 'Halted'):
            machine.vm['spec']['runStrategy'] = strategy
            self.assertTrue(self.reconcile(machine))
            self.assertEqual(strategy, machine.strategy)
            machine = self.restarted()

    def test_manual_set_by_another_client_is_undone(self):
        # It cannot be told from the BMC's own.
        machine = self.restarted('Always')
        machine.vm['spec']['runStrategy'] = 'Manual'
        machine.vmi = fakes.vmi('Pending', 'u1')
        self.assertTrue(self.reconcile(machine))
        self.assertEqual('Always', machine.strategy)

    def test_documented_command_for_abandoned_restart(self):
        page = pathlib.Path(__file__).parents[3].joinpath(
            'doc/source/reference/power.rst').read_text()
        [command] = re.findall(r"kubectl patch vm [^']+'([^']+)'", page)
        given = json.loads(command)
        self.assertEqual({stored_names.RESTART: None},
                         given['metadata']['annotations'])
        machine = self.restarted('Always')
        machine.vmi = fakes.vmi('Failed')
        del machine.vm['status']['stateChangeRequests']
        del machine.vm['metadata']['annotations'][stored_names.RESTART]
        machine.vm['spec'].update(given['spec'])
        self.assertEqual('Always', machine.strategy)
        self.assert_done(machine)

    def test_invalid_annotation_is_removed(self):
        for value in ({'runStrategy': 'Halted'}, {'runStrategy': 7}):
            machine = self.machine('Manual')
            bmc_annotations.write(machine.vm, stored_names.RESTART, value)
            self.assertTrue(self.reconcile(machine))
            self.assertEqual('Manual', machine.strategy)
            self.assert_done(machine)

    def test_one_time_boot_continues_under_always(self):
        # The restarted VMI belongs to a VM with a pending one-time boot.
        machine = self.machine('RerunOnFailure', reset_case.STARTING)
        fakes.set_boot(machine, boot.Target.PXE, boot.Enabled.ONCE)
        reset.reset(machine, R.FORCE_RESTART)
        machine.vmi = fakes.vmi('Running', 'u1', of=machine.vm)
        self.assertTrue(self.reconcile(machine))
        self.assertEqual('Always', machine.strategy)
        self.assertEqual(('RerunOnFailure', 'u1'),
                         run_strategy.saved(machine.vm))
        machine.vmi = fakes.vmi('Pending', 'u2')
        self.reconcile(machine)
        self.assertEqual('RerunOnFailure', machine.strategy)

    def test_restart_in_one_time_boot(self):
        # The VM runs under Always for it, and gets its own strategy back.
        machine = self.machine('Always', reset_case.STARTING)
        run_strategy.save(machine.vm, 'RerunOnFailure', 'u0')
        reset.reset(machine, R.FORCE_RESTART)
        machine.vmi = fakes.vmi('Pending', 'u1')
        self.reconcile(machine)
        self.assertEqual('RerunOnFailure', machine.strategy)
        self.assert_done(machine)

    def test_stop_in_one_time_boot(self):
        machine = self.machine('Always', reset_case.STARTING)
        run_strategy.save(machine.vm, 'RerunOnFailure', 'u0')
        reset.reset(machine, R.FORCE_RESTART)
        reset_case.end_vmi(machine)
        self.reconcile(machine)
        self.assertEqual('RerunOnFailure', run_strategy.saved(machine.vm)[0])

    def test_removal_of_bmc(self):
        for requests, uid, strategy, done in (
                (True, 'u0', 'Manual', False),
                (False, 'u0', 'Always', True),
                (False, 'u1', 'Always', True)):
            machine = self.restarted('Always')
            machine.vmi = fakes.vmi('Scheduling', uid)
            if not requests:
                del machine.vm['status']['stateChangeRequests']
            edited, finished = one_time_boot.desired_vm_on_removal(
                machine.state())
            self.assertIs(done, finished)
            self.assertEqual(strategy, (edited or machine.vm)['spec'][
                'runStrategy'])

    def test_power_restore_policy(self):
        machine = self.restarted('Always')
        policy = power_restore_policy.Policy
        self.assertIs(policy.ALWAYS_ON, power_restore_policy.of(
            machine.vm, machine.options))

        def restart(machine):
            machine.vmi = fakes.vmi('Scheduling', 'u1')
            del machine.vm['status']['stateChangeRequests']
            self.reconcile(machine)

        machine.on_wait = [restart]
        fakes.set_policy(machine, policy.LAST_STATE)
        self.assertEqual('RerunOnFailure', machine.strategy)


class ReconcilerTestCase(reset_case.ResetTestCase):

    def setUp(self):
        super().setUp()
        self.reconciler = one_time_boot.OneTimeBootReconciler(
            test_one_time_boot.Cluster(), delaying_queue.Worker('test'))
        self.delays = []
        self.reconciler._loop.add = lambda machine, seconds=0: (
            self.delays.append(seconds))

    def machine(self, *args, **kwargs):
        made = super().machine(*args, **kwargs)
        made.uid = 'vm-uid'
        return made

    def reconcile(self, machine):
        self.reconciler._reconcile(machine, machine.fetch())

    def interrupted(self, write_deadline):
        """A restart that was recorded but not requested."""
        machine = self.machine('Always', reset_case.STARTING,
                               write_deadline=write_deadline)
        run_strategy.begin_restart(machine.vm, 'u0', True)
        return machine

    def test_waits_for_process_that_began_the_restart(self):
        machine = self.interrupted(3.0)
        self.reconciler._changed(machine, machine.state())
        self.reconcile(machine)
        self.assertEqual([], machine.writes)
        self.assertEqual(0, self.delays[0])
        self.assertTrue(2 < self.delays[1] <= 3)

    def test_requests_restart_after_write_deadline(self):
        machine = self.interrupted(0.0)
        self.reconcile(machine)
        self.assertEqual(['restart 0'], reset_case.sent(machine))
        # KubeVirt carries it out.
        self.reconcile(machine)
        self.assertEqual(['restart 0'], reset_case.sent(machine))
        self.assertEqual({}, self.reconciler._restarts)

    def one_time_boot(self):
        machine = self.machine('Always', reset_case.NO_VMI)
        fakes.set_boot(machine, boot.Target.PXE, boot.Enabled.ONCE)
        machine.vmi = fakes.vmi(of=machine.vm)
        machine.vmi['metadata']['annotations'][
            vm_state.VM_GENERATION] = str(
                machine.vm['metadata']['generation'])
        return machine

    def test_generation_catches_up_after_one_time_boot(self):
        machine = self.one_time_boot()
        before = copy.deepcopy(machine.vmi)
        self.reconcile(machine)
        self.assertTrue(vm_state.is_latest(machine.vm, machine.vmi))
        self.assertEqual(before['spec'], machine.vmi['spec'])
        machine.writes.clear()
        self.reconcile(machine)
        self.assertEqual([], machine.writes)

    def test_generation_is_kept_while_another_boot_is_pending(self):
        machine = self.one_time_boot()
        self.reconcile(machine)
        fakes.set_boot(machine, boot.Target.CD, boot.Enabled.ONCE)
        machine.writes.clear()
        self.reconcile(machine)
        self.assertEqual([], machine.writes)
        self.assertFalse(vm_state.is_latest(machine.vm, machine.vmi))

    def test_generation_of_other_vmis_is_not_changed(self):
        machine = self.machine('Always')
        machine.vmi['metadata']['annotations'] = {
            vm_state.VM_GENERATION: '1'}
        self.reconcile(machine)
        self.assertEqual([], machine.writes)

    def test_missing_right_is_not_tried_again(self):
        for error in (errors.AccessDenied('no'), errors.Rejected('no')):
            machine = self.one_time_boot()
            machine.writes.clear()
            machine.faults = [None, error]
            self.reconcile(machine)
            self.assertEqual(['patch'], machine.actions)
            self.delays.clear()
            self.reconciler._changed(machine, machine.state())
            self.assertEqual([], self.delays)
            machine.vmi['metadata']['uid'] = 'u1'
            self.reconciler._changed(machine, machine.state())
            self.assertEqual([0], self.delays)
            self.reconciler._denied.clear()
