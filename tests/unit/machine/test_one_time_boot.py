# SPDX-License-Identifier: Apache-2.0

import copy
import threading

import fixtures
from oslotest import base

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import annotations
from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine import one_time_boot
from sushy_kubevirt.machine import power_state
from sushy_kubevirt.machine import reset
from sushy_kubevirt.machine import run_strategy
from tests.unit.machine import fakes


class PutRightTestCase(base.BaseTestCase):

    def pending(self, strategy, gates=('RebootPolicy',)):
        machine = fakes.Machine(fakes.vm(strategy), gates=gates)
        boot.set(machine, boot.Target.PXE, boot.Enabled.ONCE)
        return machine

    def start(self, machine, uid='u1', phase='Running'):
        machine.vmi = fakes.vmi(phase, uid, of=machine.vm)
        machine.vm['status']['observedGeneration'] = machine.vm[
            'metadata']['generation']

    def keep(self, machine):
        edited = one_time_boot.desired_vm(*machine.objects())
        if edited is None:
            return False
        machine.vm = edited
        machine.vm['metadata']['generation'] += 1
        self.assertIsNone(one_time_boot.desired_vm(*machine.objects()))
        return True

    def is_clean(self, machine, strategy):
        self.assertEqual(fakes.vm(strategy)['spec'], machine.vm['spec'])
        self.assertEqual({'other': 'kept'},
                         machine.vm['metadata']['annotations'])


class OneTimeBootTestCase(PutRightTestCase):

    def test_whoever_started_it(self):
        for strategy in ('RerunOnFailure', 'Manual'):
            machine = self.pending(strategy)
            self.start(machine)
            self.assertTrue(self.keep(machine))
            # Kept up for this boot, on its own order again.
            self.assertEqual('Always', machine.strategy)
            self.assertEqual((strategy, 'u1'),
                             run_strategy.saved(machine.vm))
            spec = copy.deepcopy(machine.vm['spec'])
            spec['runStrategy'] = strategy
            self.assertEqual(fakes.vm(strategy)['spec'], spec)
            # The guest reboots, which ends its VMI.
            machine.vmi['status']['phase'] = 'Succeeded'
            self.assertFalse(self.keep(machine))
            machine.vmi = None
            self.assertFalse(self.keep(machine))
            machine.vmi = fakes.vmi('Pending', 'u2')
            self.assertTrue(self.keep(machine))
            self.is_clean(machine, strategy)

    def test_always_needs_no_strategy_of_another(self):
        machine = self.pending('Always')
        self.start(machine)
        self.keep(machine)
        self.is_clean(machine, 'Always')

    def test_without_the_gate(self):
        for strategy in ('RerunOnFailure', 'Manual', 'Always', 'Once'):
            machine = self.pending(strategy, gates=())
            self.start(machine)
            self.keep(machine)
            self.is_clean(machine, strategy)

    def test_running_field(self):
        machine = fakes.Machine(fakes.vm(running=True))
        boot.set(machine, boot.Target.PXE, boot.Enabled.ONCE)
        self.start(machine)
        self.keep(machine)
        self.assertEqual(fakes.vm(running=True)['spec'], machine.vm['spec'])

    def test_policy_that_is_its_owners(self):
        for own in ('Terminate', 'Reboot'):
            machine = fakes.Machine(fakes.vm(
                'Manual', domain={'rebootPolicy': own}))
            boot.set(machine, boot.Target.PXE, boot.Enabled.ONCE)
            self.start(machine)
            self.keep(machine)
            self.assertEqual(own, machine.vm['spec']['template']['spec'][
                'domain']['rebootPolicy'])
            machine.vmi = fakes.vmi(uid='u2')
            self.keep(machine)
            self.assertEqual('Manual', machine.strategy)

    def test_vmi_that_ended_before_anybody_looked(self):
        for phase in ('Succeeded', 'Failed'):
            machine = self.pending('RerunOnFailure')
            self.start(machine, phase=phase)
            machine.vmi['status']['nodeName'] = 'node-0'
            self.keep(machine)
            self.is_clean(machine, 'RerunOnFailure')

    def test_vmi_that_is_being_stopped(self):
        machine = self.pending('Manual')
        self.start(machine)
        machine.vmi['metadata']['deletionTimestamp'] = 'x'
        self.keep(machine)
        self.is_clean(machine, 'Manual')

    def test_started_by_a_bmc(self):
        machine = self.pending('Halted')
        reset.reset(machine, power_state.ResetType.ON)
        self.assertFalse(self.keep(machine))
        self.start(machine, phase='Scheduling')
        self.assertFalse(self.keep(machine))
        self.start(machine)
        self.assertTrue(self.keep(machine))
        self.assertEqual('Always', machine.strategy)
        machine.vmi = fakes.vmi('Pending', 'u2')
        self.keep(machine)
        self.is_clean(machine, 'RerunOnFailure')

    def test_started_by_a_bmc_and_the_policy_did_not_get_through(self):
        machine = self.pending('Manual')
        reset.reset(machine, power_state.ResetType.ON)
        self.start(machine)
        del machine.vmi['spec']['domain']['rebootPolicy']
        self.keep(machine)
        self.is_clean(machine, 'Manual')

    def test_override_taken_away_before_its_boot(self):
        machine = self.pending('Manual')
        reset.reset(machine, power_state.ResetType.ON)
        boot.set(machine, enabled=boot.Enabled.DISABLED)
        self.assertEqual('Always', machine.strategy)
        self.start(machine)
        self.keep(machine)
        self.is_clean(machine, 'Manual')

    def test_next_override_in_the_boot_of_the_last_one(self):
        machine = self.pending('Manual')
        self.start(machine)
        self.keep(machine)
        boot.set(machine, boot.Target.CD, boot.Enabled.ONCE)
        self.assertFalse(self.keep(machine))
        self.start(machine, 'u2')
        self.keep(machine)
        self.assertEqual(('Manual', 'u2'),
                         run_strategy.saved(machine.vm))
        self.assertEqual('Always', machine.strategy)
        machine.vmi = fakes.vmi(uid='u3')
        self.keep(machine)
        self.is_clean(machine, 'Manual')

    def test_stopped_by_somebody_else_in_that_boot(self):
        for strategy in ('RerunOnFailure', 'Manual'):
            machine = self.pending(strategy)
            self.start(machine)
            self.keep(machine)
            machine.vm['spec']['runStrategy'] = 'Halted'
            machine.vmi['metadata']['deletionTimestamp'] = 'x'
            self.assertFalse(self.keep(machine))
            machine.vmi = None
            if strategy == 'Manual':
                # which starts nothing by coming back
                self.keep(machine)
                self.is_clean(machine, 'Manual')
                continue
            self.assertFalse(self.keep(machine))
            # virtctl start
            machine.vm['spec']['runStrategy'] = 'Always'
            self.assertFalse(self.keep(machine))
            machine.vmi = fakes.vmi('Pending', 'u2')
            self.keep(machine)
            self.is_clean(machine, 'RerunOnFailure')

    def test_vm_that_is_deleted_is_left(self):
        machine = self.pending('Manual')
        self.start(machine)
        machine.vm['metadata']['deletionTimestamp'] = 'x'
        self.assertFalse(self.keep(machine))


class MemoryTestCase(PutRightTestCase):
    """What is remembered of run strategies, and forgotten."""

    def kept(self, strategy, remembered, about=None, vmi=None, **status):
        vm = fakes.vm(strategy, **status)
        run_strategy.save(vm, remembered, about)
        machine = fakes.Machine(vm, vmi)
        changed = self.keep(machine)
        return changed, machine.strategy, run_strategy.saved(
            machine.vm)[0]

    def test_kept_for_the_next_power_on(self):
        for remembered in ('Always', 'Once', 'RerunOnFailure'):
            self.assertEqual((False, 'Halted', remembered),
                             self.kept('Halted', remembered))
        self.assertEqual((False, 'Halted', 'Manual'), self.kept(
            'Halted', 'Manual', vmi=fakes.vmi(deleting=True)))
        self.assertEqual((False, 'Halted', 'Manual'), self.kept(
            'Halted', 'Manual', requests=[fakes.START]))

    def test_kept_while_its_vmi_is_about_to_be_stopped(self):
        self.assertEqual((False, 'Always', 'Always'), self.kept(
            'Always', 'Always', 'u0', fakes.vmi()))

    def test_forgotten_when_another_vmi_came(self):
        # Another client started it again, or it never stopped.
        for strategy in ('Always', 'Once'):
            self.assertEqual((True, strategy, None), self.kept(
                strategy, strategy, 'u0', fakes.vmi(uid='u1')))

    def test_forgotten_when_somebody_chose_another(self):
        for strategy in ('Manual', 'RerunOnFailure', 'Once'):
            self.assertEqual((True, strategy, None),
                             self.kept(strategy, 'Always'))
        for strategy in ('Manual', 'Once'):
            self.assertEqual((True, strategy, None),
                             self.kept(strategy, 'RerunOnFailure', 'u0',
                                       fakes.vmi()))

    def test_forgotten_when_it_came_back_already(self):
        self.assertEqual((True, 'Manual', None),
                         self.kept('Manual', 'Manual', 'u0'))

    def test_once_comes_back_after_a_restart(self):
        self.assertEqual((False, 'Always', 'Once'), self.kept(
            'Always', 'Once', 'u0', fakes.vmi()))
        self.assertEqual((False, 'Always', 'Once'), self.kept(
            'Always', 'Once', 'u0'))
        self.assertEqual((True, 'Once', None), self.kept(
            'Always', 'Once', 'u0', fakes.vmi(uid='u1')))

    def test_nonsense_is_forgotten(self):
        vm = fakes.vm(annotations={
            'other': 'kept', annotations.RUN_STRATEGY: '{"runStrategy":"?"}'})
        machine = fakes.Machine(vm)
        self.assertTrue(self.keep(machine))
        self.is_clean(machine, 'RerunOnFailure')


class Cluster:
    """Records the subscription of a one-time boot reconciler."""

    def subscribe(self, callback):
        self.tell = callback


class KeeperTestCase(PutRightTestCase):

    def setUp(self):
        super().setUp()
        for name in ('FIRST_PAUSE', 'LONGEST_PAUSE', 'REFUSED_PAUSE'):
            self.useFixture(fixtures.MonkeyPatch(
                'sushy_kubevirt.machine.reconcile_loop.' + name, 0.01))
        self.useFixture(fixtures.MonkeyPatch(
            'sushy_kubevirt.kube.retry.FIRST_PAUSE', 0.001))
        self.logger = self.useFixture(fixtures.FakeLogger())
        self.cluster = Cluster()
        self.reconciler = one_time_boot.OneTimeBootReconciler(self.cluster)
        self.reconciler.start()
        self.addCleanup(self.reconciler.close)

    def machine(self, **kwargs):
        machine = self.pending('Manual')
        self.start(machine)
        machine.uid = 'vm-uid'
        machine.done = threading.Event()
        patch = machine.patch

        def and_tell(*args, **kwargs):
            answer = patch(*args, **kwargs)
            machine.done.set()
            return answer

        machine.patch = and_tell
        return machine

    def test_writes_when_told(self):
        machine = self.machine()
        self.cluster.tell(machine, *machine.objects())
        self.assertTrue(machine.done.wait(10))
        self.assertEqual('Always', machine.strategy)

    def test_leaves_what_is_right(self):
        machine = self.machine()
        vm = fakes.vm()
        machine.fetch = None
        self.cluster.tell(machine, vm, None)
        self.cluster.tell(machine, None, None)
        self.assertFalse(self.reconciler._loop.pending)

    def test_another_keeper_was_faster(self):
        machine = self.machine()
        vm, vmi = machine.objects()
        looked = threading.Event()
        machine.vm = fakes.vm()
        fetch = machine.fetch

        def watched():
            looked.set()
            return fetch()

        machine.fetch = watched
        machine.writes.clear()
        self.cluster.tell(machine, vm, vmi)
        self.assertTrue(looked.wait(10))
        self.assertEqual([], machine.writes)

    def test_tries_again_until_it_works(self):
        machine = self.machine()
        machine.faults = [errors.Unavailable('x'), errors.AccessDenied('x'),
                          ValueError('x'), errors.Rejected('x')]
        self.cluster.tell(machine, *machine.objects())
        self.assertTrue(machine.done.wait(10))

    def test_vm_that_is_gone(self):
        machine = self.machine()
        machine.faults = [errors.MachineNotFound('x')]
        self.cluster.tell(machine, *machine.objects())
        other = self.machine()
        other.uid = 'other'
        self.cluster.tell(other, *other.objects())
        self.assertTrue(other.done.wait(10))
        self.assertFalse(self.reconciler._loop.pending)

    def test_tells_why_a_vm_cannot_start_once(self):
        machine = self.machine()
        stuck = fakes.vmi('Scheduling', conditions=[fakes.condition(
            'PodScheduled', 'False', 'Unschedulable', 'no room')])
        for _ in range(3):
            self.cluster.tell(machine, fakes.vm(), stuck)
        self.assertEqual(1, self.logger.output.count('no room'))
        self.cluster.tell(machine, fakes.vm(), fakes.vmi())
        self.cluster.tell(machine, fakes.vm(), stuck)
        self.assertEqual(2, self.logger.output.count('no room'))


class RetireTestCase(PutRightTestCase):
    """A VM whose BMC is taken away."""

    def retire(self, machine):
        edited, done = one_time_boot.desired_vm_on_removal(*machine.objects())
        if edited is not None:
            machine.vm = edited
            self.assertEqual(
                (None, done), one_time_boot.desired_vm_on_removal(
                    *machine.objects()))
        return done

    def test_a_boot_that_has_not_come(self):
        for strategy in ('Always', 'RerunOnFailure', 'Manual', 'Halted'):
            machine = self.pending(strategy)
            self.assertTrue(self.retire(machine))
            self.is_clean(machine, strategy)

    def test_one_that_waits_while_another_runs(self):
        machine = fakes.Machine(fakes.vm('RerunOnFailure'))
        machine.vmi = fakes.vmi('Running', 'u0', of=machine.vm)
        boot.set(machine, boot.Target.PXE, boot.Enabled.ONCE)
        self.assertTrue(self.retire(machine))
        self.is_clean(machine, 'RerunOnFailure')

    def test_one_that_was_asked_for_already(self):
        for vmi in (None, fakes.vmi('Running', 'u0')):
            machine = self.pending('RerunOnFailure')
            machine.vmi = vmi
            machine.vm['status']['stateChangeRequests'] = [
                {'action': 'Stop', 'uid': 'u0'}, {'action': 'Start'}]
            self.assertEqual(
                (None, False),
                one_time_boot.desired_vm_on_removal(*machine.objects()),
            )
            del machine.vm['status']['stateChangeRequests']
            self.start(machine)
            self.assertFalse(self.retire(machine))
            self.start(machine, 'u2')
            self.assertTrue(self.retire(machine))
            self.is_clean(machine, 'RerunOnFailure')

    def test_a_boot_that_runs_and_reboots(self):
        machine = self.pending('RerunOnFailure')
        self.start(machine)
        self.assertFalse(self.retire(machine))
        self.assertEqual('Always', machine.strategy)
        self.start(machine, 'u2')
        self.assertTrue(self.retire(machine))
        self.is_clean(machine, 'RerunOnFailure')

    def test_without_the_gate_nothing_is_waited_for(self):
        machine = self.pending('RerunOnFailure', gates=())
        self.start(machine)
        self.assertTrue(self.retire(machine))
        self.is_clean(machine, 'RerunOnFailure')

    def test_after_the_keeper_was_there(self):
        machine = self.pending('RerunOnFailure')
        self.start(machine)
        self.keep(machine)
        self.assertFalse(self.retire(machine))
        self.assertEqual('Always', machine.strategy)
        machine.vmi = None
        machine.vm['spec']['runStrategy'] = 'Halted'
        self.assertTrue(self.retire(machine))
        self.is_clean(machine, 'Halted')

    def test_lasting_settings_stay(self):
        machine = fakes.Machine(fakes.vm('RerunOnFailure'))
        boot.set(machine, boot.Target.PXE, boot.Enabled.CONTINUOUS)
        self.assertEqual(
            (None, True), one_time_boot.desired_vm_on_removal(
                *machine.objects()))

    def test_a_vm_that_goes_is_left_alone(self):
        machine = self.pending('RerunOnFailure')
        machine.vm['metadata']['deletionTimestamp'] = 'now'
        self.assertEqual(
            (None, True), one_time_boot.desired_vm_on_removal(
                *machine.objects()))
