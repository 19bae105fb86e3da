# SPDX-License-Identifier: Apache-2.0

import copy
import threading

import fixtures
from oslotest import base

from sushy_kubevirt.kube import delaying_queue
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine import boot_overrides
from sushy_kubevirt.machine import one_time_boot
from sushy_kubevirt.machine import power_state
from sushy_kubevirt.machine import reset
from sushy_kubevirt.machine import run_strategy
from sushy_kubevirt.machine import vm_state
from tests.unit.machine import fakes


class ReconcileTestCase(base.BaseTestCase):

    def pending(self, strategy, gates=('RebootPolicy',)):
        machine = fakes.Machine(fakes.vm(strategy), gates=gates)
        fakes.set_boot(machine, boot.Target.PXE, boot.Enabled.ONCE)
        return machine

    def start(self, machine, uid='u1', phase='Running'):
        machine.vmi = fakes.vmi(phase, uid, of=machine.vm)
        machine.vm['status']['observedGeneration'] = machine.vm[
            'metadata']['generation']

    def reconcile(self, machine):
        edited = one_time_boot.desired_vm(machine.state())
        if edited is None:
            return False
        machine.vm = edited
        machine.vm['metadata']['generation'] += 1
        self.assertIsNone(one_time_boot.desired_vm(machine.state()))
        return True

    def assert_restored(self, machine, strategy):
        self.assertEqual(fakes.vm(strategy)['spec'], machine.vm['spec'])
        self.assertEqual({'other': 'kept'},
                         machine.vm['metadata']['annotations'])


class OneTimeBootTestCase(ReconcileTestCase):

    def test_runs_under_always_until_next_vmi(self):
        for strategy in ('RerunOnFailure', 'Manual'):
            machine = self.pending(strategy)
            self.start(machine)
            self.assertTrue(self.reconcile(machine))
            # Runs under Always for this boot, with its own order restored.
            self.assertEqual('Always', machine.strategy)
            self.assertEqual((strategy, 'u1'),
                             run_strategy.saved(machine.vm))
            spec = copy.deepcopy(machine.vm['spec'])
            spec['runStrategy'] = strategy
            self.assertEqual(fakes.vm(strategy)['spec'], spec)
            # The guest reboots, and its VMI ends.
            machine.vmi['status']['phase'] = 'Succeeded'
            self.assertFalse(self.reconcile(machine))
            machine.vmi = None
            self.assertFalse(self.reconcile(machine))
            machine.vmi = fakes.vmi('Pending', 'u2')
            self.assertTrue(self.reconcile(machine))
            self.assert_restored(machine, strategy)

    def test_strategy_always_is_not_changed(self):
        machine = self.pending('Always')
        self.start(machine)
        self.reconcile(machine)
        self.assert_restored(machine, 'Always')

    def test_restores_at_once_without_gate(self):
        for strategy in ('RerunOnFailure', 'Manual', 'Always', 'Once'):
            machine = self.pending(strategy, gates=())
            self.start(machine)
            self.reconcile(machine)
            self.assert_restored(machine, strategy)

    def test_keeps_running_field(self):
        machine = fakes.Machine(fakes.vm(running=True))
        fakes.set_boot(machine, boot.Target.PXE, boot.Enabled.ONCE)
        self.start(machine)
        self.reconcile(machine)
        self.assertEqual(fakes.vm(running=True)['spec'], machine.vm['spec'])

    def test_keeps_reboot_policy_of_owner(self):
        for own in ('Terminate', 'Reboot'):
            machine = fakes.Machine(fakes.vm(
                'Manual', domain={'rebootPolicy': own}))
            fakes.set_boot(machine, boot.Target.PXE, boot.Enabled.ONCE)
            self.start(machine)
            self.reconcile(machine)
            self.assertEqual(own, machine.vm['spec']['template']['spec'][
                'domain']['rebootPolicy'])
            machine.vmi = fakes.vmi(uid='u2')
            self.reconcile(machine)
            self.assertEqual('Manual', machine.strategy)

    def test_restores_after_vmi_that_already_ended(self):
        for phase in ('Succeeded', 'Failed'):
            machine = self.pending('RerunOnFailure')
            self.start(machine, phase=phase)
            machine.vmi['status']['nodeName'] = 'node-0'
            self.reconcile(machine)
            self.assert_restored(machine, 'RerunOnFailure')

    def test_restores_while_vmi_is_stopping(self):
        machine = self.pending('Manual')
        self.start(machine)
        machine.vmi['metadata']['deletionTimestamp'] = 'x'
        self.reconcile(machine)
        self.assert_restored(machine, 'Manual')

    def test_restores_after_power_on_by_bmc(self):
        machine = self.pending('Halted')
        reset.reset(machine, power_state.ResetType.ON)
        self.assertFalse(self.reconcile(machine))
        self.start(machine, phase='Scheduling')
        self.assertFalse(self.reconcile(machine))
        self.start(machine)
        self.assertTrue(self.reconcile(machine))
        self.assertEqual('Always', machine.strategy)
        machine.vmi = fakes.vmi('Pending', 'u2')
        self.reconcile(machine)
        self.assert_restored(machine, 'RerunOnFailure')

    def test_restores_strategy_if_vmi_lacks_reboot_policy(self):
        machine = self.pending('Manual')
        reset.reset(machine, power_state.ResetType.ON)
        self.start(machine)
        del machine.vmi['spec']['domain']['rebootPolicy']
        self.reconcile(machine)
        self.assert_restored(machine, 'Manual')

    def test_restores_strategy_of_removed_override(self):
        machine = self.pending('Manual')
        reset.reset(machine, power_state.ResetType.ON)
        fakes.set_boot(machine, enabled=boot.Enabled.DISABLED)
        self.assertEqual('Always', machine.strategy)
        self.start(machine)
        self.reconcile(machine)
        self.assert_restored(machine, 'Manual')

    def test_second_override_during_one_time_boot(self):
        machine = self.pending('Manual')
        self.start(machine)
        self.reconcile(machine)
        fakes.set_boot(machine, boot.Target.CD, boot.Enabled.ONCE)
        self.assertFalse(self.reconcile(machine))
        self.start(machine, 'u2')
        self.reconcile(machine)
        self.assertEqual(('Manual', 'u2'),
                         run_strategy.saved(machine.vm))
        self.assertEqual('Always', machine.strategy)
        machine.vmi = fakes.vmi(uid='u3')
        self.reconcile(machine)
        self.assert_restored(machine, 'Manual')

    def test_vm_stopped_by_another_client_during_one_time_boot(self):
        for strategy in ('RerunOnFailure', 'Manual'):
            machine = self.pending(strategy)
            self.start(machine)
            self.reconcile(machine)
            machine.vm['spec']['runStrategy'] = 'Halted'
            machine.vmi['metadata']['deletionTimestamp'] = 'x'
            self.assertFalse(self.reconcile(machine))
            machine.vmi = None
            if strategy == 'Manual':
                # Restoring Manual does not start the VM.
                self.reconcile(machine)
                self.assert_restored(machine, 'Manual')
                continue
            self.assertFalse(self.reconcile(machine))
            # virtctl start
            machine.vm['spec']['runStrategy'] = 'Always'
            self.assertFalse(self.reconcile(machine))
            machine.vmi = fakes.vmi('Pending', 'u2')
            self.reconcile(machine)
            self.assert_restored(machine, 'RerunOnFailure')

    def test_leaves_deleting_vm(self):
        machine = self.pending('Manual')
        self.start(machine)
        machine.vm['metadata']['deletionTimestamp'] = 'x'
        self.assertFalse(self.reconcile(machine))


class SavedRunStrategyTestCase(ReconcileTestCase):
    """When a saved run strategy is kept, restored and discarded."""

    def reconciled(self, strategy, remembered, about=None, vmi=None, **status):
        vm = fakes.vm(strategy, **status)
        run_strategy.save(vm, remembered, about)
        machine = fakes.Machine(vm, vmi)
        changed = self.reconcile(machine)
        return changed, machine.strategy, run_strategy.saved(
            machine.vm)[0]

    def test_kept_while_halted(self):
        for remembered in ('Always', 'Once', 'RerunOnFailure'):
            self.assertEqual((False, 'Halted', remembered),
                             self.reconciled('Halted', remembered))
        self.assertEqual((False, 'Halted', 'Manual'), self.reconciled(
            'Halted', 'Manual', vmi=fakes.vmi(deleting=True)))
        self.assertEqual((False, 'Halted', 'Manual'), self.reconciled(
            'Halted', 'Manual', requests=[fakes.START]))

    def test_kept_while_vmi_is_about_to_be_stopped(self):
        self.assertEqual((False, 'Always', 'Always'), self.reconciled(
            'Always', 'Always', 'u0', fakes.vmi()))

    def test_discarded_when_another_vmi_exists(self):
        # Another client started it again, or it never stopped.
        for strategy in ('Always', 'Once'):
            self.assertEqual((True, strategy, None), self.reconciled(
                strategy, strategy, 'u0', fakes.vmi(uid='u1')))

    def test_discarded_when_another_strategy_was_set(self):
        for strategy in ('Manual', 'RerunOnFailure', 'Once'):
            self.assertEqual((True, strategy, None),
                             self.reconciled(strategy, 'Always'))
        for strategy in ('Manual', 'Once'):
            self.assertEqual((True, strategy, None),
                             self.reconciled(strategy, 'RerunOnFailure', 'u0',
                                             fakes.vmi()))

    def test_discarded_when_already_restored(self):
        self.assertEqual((True, 'Manual', None),
                         self.reconciled('Manual', 'Manual', 'u0'))

    def test_once_is_restored_after_restart(self):
        self.assertEqual((False, 'Always', 'Once'), self.reconciled(
            'Always', 'Once', 'u0', fakes.vmi()))
        self.assertEqual((False, 'Always', 'Once'), self.reconciled(
            'Always', 'Once', 'u0'))
        self.assertEqual((True, 'Once', None), self.reconciled(
            'Always', 'Once', 'u0', fakes.vmi(uid='u1')))

    def test_invalid_annotation_is_removed(self):
        vm = fakes.vm(annotations={
            'other': 'kept',
            stored_names.RUN_STRATEGY: '{"runStrategy":"?"}'})
        machine = fakes.Machine(vm)
        self.assertTrue(self.reconcile(machine))
        self.assert_restored(machine, 'RerunOnFailure')


class Cluster:
    """Records the subscription of a one-time boot reconciler."""

    def subscribe(self, callback):
        self.publish = callback


class BackOffTestCase(ReconcileTestCase):

    FAILURE = {'consecutiveFailCount': 1}

    def test_stopped_before_the_guest_ran(self):
        for strategy, vmi, requests, expected in (
                ('RerunOnFailure', None, [], True),
                # KubeVirt records it again while it sees the VMI.
                ('RerunOnFailure', fakes.vmi('Failed', deleting=True), [],
                 False),
                # Starts that fail.
                ('RerunOnFailure', None, [fakes.START], False),
                ('Always', None, [], False),
                ('Once', None, [], False)):
            vm = fakes.vm(strategy, requests=requests,
                          startFailure=self.FAILURE)
            state = vm_state.VmState(vm, vmi)
            self.assertIs(expected, one_time_boot.has_needless_back_off(state))
            del vm['status']['startFailure']
            self.assertFalse(one_time_boot.has_needless_back_off(state))

    def test_override_that_has_not_booted_is_kept(self):
        machine = self.pending('RerunOnFailure')
        status = machine.vm['status']
        status['startFailure'] = self.FAILURE
        status['observedGeneration'] = machine.vm['metadata']['generation']
        self.assertFalse(one_time_boot.has_needless_back_off(
            vm_state.VmState(machine.vm)))
        self.assertFalse(self.reconcile(machine))
        status['observedGeneration'] = boot_overrides.once(machine.vm)[
            'generation'] - 1
        self.assertTrue(one_time_boot.has_needless_back_off(
            vm_state.VmState(machine.vm)))


class ReconcilerTestCase(ReconcileTestCase):

    def setUp(self):
        super().setUp()
        for name in ('FIRST_PAUSE', 'LONGEST_PAUSE', 'REFUSED_PAUSE'):
            self.useFixture(fixtures.MonkeyPatch(
                'sushy_kubevirt.machine.reconcile_loop.' + name, 0.01))
        self.useFixture(fixtures.MonkeyPatch(
            'sushy_kubevirt.kube.retry.FIRST_PAUSE', 0.001))
        self.logger = self.useFixture(fixtures.FakeLogger())
        self.cluster = Cluster()
        self.worker = delaying_queue.Worker('one-time-boot')
        self.worker.start()
        self.addCleanup(self.worker.close)
        self.reconciler = one_time_boot.OneTimeBootReconciler(
            self.cluster, self.worker)
        self.reconciler.start()

    def machine(self, **kwargs):
        machine = self.pending('Manual')
        self.start(machine)
        machine.uid = 'vm-uid'
        machine.done = threading.Event()
        patch = machine.patch

        def patch_and_report(*args, **kwargs):
            result = patch(*args, **kwargs)
            machine.done.set()
            return result

        machine.patch = patch_and_report
        return machine

    def test_restores_on_change(self):
        machine = self.machine()
        self.cluster.publish(machine, machine.state())
        self.assertTrue(machine.done.wait(10))
        self.assertEqual('Always', machine.strategy)

    def test_ignores_machine_without_due_changes(self):
        machine = self.machine()
        vm = fakes.vm()
        machine.fetch = None
        self.cluster.publish(machine, vm_state.VmState(vm))
        self.cluster.publish(machine, None)
        self.assertFalse(self.worker._functions)

    def test_writes_nothing_if_another_reconciler_was_first(self):
        machine = self.machine()
        state = machine.state()
        fetched = threading.Event()
        machine.vm = fakes.vm()
        fetch = machine.fetch

        def fetch_and_report():
            fetched.set()
            return fetch()

        machine.fetch = fetch_and_report
        machine.writes.clear()
        self.cluster.publish(machine, state)
        self.assertTrue(fetched.wait(10))
        self.assertEqual([], machine.writes)

    def test_retries_until_success(self):
        machine = self.machine()
        machine.faults = [errors.Unavailable('x'), errors.AccessDenied('x'),
                          ValueError('x'), errors.Rejected('x')]
        self.cluster.publish(machine, machine.state())
        self.assertTrue(machine.done.wait(10))

    def test_discards_deleted_vm(self):
        machine = self.machine()
        machine.faults = [errors.MachineNotFound('x')]
        self.cluster.publish(machine, machine.state())
        other = self.machine()
        other.uid = 'other'
        self.cluster.publish(other, other.state())
        self.assertTrue(other.done.wait(10))
        self.assertFalse(self.worker._functions)

    def test_logs_start_problem_once_per_occurrence(self):
        machine = self.machine()
        stuck = fakes.vmi('Scheduling', conditions=[fakes.condition(
            'PodScheduled', 'False', 'Unschedulable', 'no room')])
        stuck = vm_state.VmState(fakes.vm(), stuck)
        for _ in range(3):
            self.cluster.publish(machine, stuck)
        self.assertEqual(1, self.logger.output.count('no room'))
        self.cluster.publish(machine, vm_state.VmState(
            fakes.vm(), fakes.vmi()))
        self.cluster.publish(machine, stuck)
        self.assertEqual(2, self.logger.output.count('no room'))


class RemovalTestCase(ReconcileTestCase):
    """A VM whose last BMC has been deleted."""

    def remove(self, machine):
        edited, done = one_time_boot.desired_vm_on_removal(machine.state())
        if edited is not None:
            machine.vm = edited
            self.assertEqual(
                (None, done), one_time_boot.desired_vm_on_removal(
                    machine.state()))
        return done

    def test_removes_override_that_has_not_booted(self):
        for strategy in ('Always', 'RerunOnFailure', 'Manual', 'Halted'):
            machine = self.pending(strategy)
            self.assertTrue(self.remove(machine))
            self.assert_restored(machine, strategy)

    def test_removes_pending_override_of_running_vm(self):
        machine = fakes.Machine(fakes.vm('RerunOnFailure'))
        machine.vmi = fakes.vmi('Running', 'u0', of=machine.vm)
        fakes.set_boot(machine, boot.Target.PXE, boot.Enabled.ONCE)
        self.assertTrue(self.remove(machine))
        self.assert_restored(machine, 'RerunOnFailure')

    def test_waits_for_boot_that_was_requested(self):
        for vmi in (None, fakes.vmi('Running', 'u0')):
            machine = self.pending('RerunOnFailure')
            machine.vmi = vmi
            machine.vm['status']['stateChangeRequests'] = [
                {'action': 'Stop', 'uid': 'u0'}, {'action': 'Start'}]
            self.assertEqual(
                (None, False),
                one_time_boot.desired_vm_on_removal(machine.state()),
            )
            del machine.vm['status']['stateChangeRequests']
            self.start(machine)
            self.assertFalse(self.remove(machine))
            self.start(machine, 'u2')
            self.assertTrue(self.remove(machine))
            self.assert_restored(machine, 'RerunOnFailure')

    def test_waits_for_reboot_in_one_time_boot(self):
        machine = self.pending('RerunOnFailure')
        self.start(machine)
        self.assertFalse(self.remove(machine))
        self.assertEqual('Always', machine.strategy)
        self.start(machine, 'u2')
        self.assertTrue(self.remove(machine))
        self.assert_restored(machine, 'RerunOnFailure')

    def test_does_not_wait_without_gate(self):
        machine = self.pending('RerunOnFailure', gates=())
        self.start(machine)
        self.assertTrue(self.remove(machine))
        self.assert_restored(machine, 'RerunOnFailure')

    def test_completes_after_reconciler_set_always(self):
        machine = self.pending('RerunOnFailure')
        self.start(machine)
        self.reconcile(machine)
        self.assertFalse(self.remove(machine))
        self.assertEqual('Always', machine.strategy)
        machine.vmi = None
        machine.vm['spec']['runStrategy'] = 'Halted'
        self.assertTrue(self.remove(machine))
        self.assert_restored(machine, 'Halted')

    def test_continuous_override_stays(self):
        machine = fakes.Machine(fakes.vm('RerunOnFailure'))
        fakes.set_boot(machine, boot.Target.PXE, boot.Enabled.CONTINUOUS)
        self.assertEqual(
            (None, True), one_time_boot.desired_vm_on_removal(
                machine.state()))

    def test_leaves_deleting_vm(self):
        machine = self.pending('RerunOnFailure')
        machine.vm['metadata']['deletionTimestamp'] = 'now'
        self.assertEqual(
            (None, True), one_time_boot.desired_vm_on_removal(
                machine.state()))
