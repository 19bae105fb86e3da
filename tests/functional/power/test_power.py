# SPDX-License-Identifier: Apache-2.0
"""Power operations, verified by the sandbox's record of guests' boots."""

import json
import threading

from kubevirt_sandbox.testing import given_cluster
from kubevirt_sandbox.testing import kubectl
from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import power_state
from tests.fixtures import lagging_controllers
from tests.fixtures import machine_case
from tests.fixtures import power_history

R = power_state.ResetType
ON, OFF = power_state.PowerState.ON, power_state.PowerState.OFF
UP, DOWN = (
    power_state.PowerState.POWERING_ON,
    power_state.PowerState.POWERING_OFF,
)
PAUSED = power_state.PowerState.PAUSED

STRATEGIES = ('Always', 'RerunOnFailure', 'Manual', 'Halted', 'Once')

IGNORES_ACPI = {machine_case.IGNORE_ACPI: 'true'}


def unschedulable(spec):
    spec['nodeSelector'] = {'no': 'such-node'}


def with_claim(name):
    """Return a change that adds a disk of a PVC."""
    def change(spec):
        spec['volumes'].append({
            'name': 'data', 'persistentVolumeClaim': {'claimName': name}})
        spec['domain']['devices']['disks'].append(
            {'name': 'data', 'disk': {'bus': 'virtio'}})
    return change


def without_image(spec):
    spec['volumes'][1]['containerDisk']['image'] = machine_case.MISSING_IMAGE


class SwitchTestCase(machine_case.MachineTestCase):

    def test_on_and_off_under_every_strategy(self):
        bmc = self.bmc()
        for strategy in STRATEGIES:
            after = {'Halted': 'RerunOnFailure'}.get(strategy, strategy)
            machine = self.machine(strategy, bmc)
            for off in (R.GRACEFUL_SHUTDOWN, R.FORCE_OFF):
                before = len(self.sandbox.boots(machine.name))
                machine.reset(R.ON)
                self.assertIn(machine.power_state(), (UP, ON), strategy)
                self.becomes(machine, ON)
                self.sandbox.wait_boot(machine.name, before + 1)
                self.assertEqual(after, self.strategy(machine.name))
                machine.reset(R.ON)
                machine.reset(off)
                self.assertIn(machine.power_state(), (DOWN, OFF), strategy)
                self.becomes(machine, OFF)
                self.assertEqual(before + 1,
                                 len(self.sandbox.boots(machine.name)))
                machine.reset(off)
            self.stays(lambda: machine.power_state() is OFF)
            machine.reset(R.ON)
            self.becomes(machine, ON)
            self.until('no annotations',
                       lambda: not self.annotations(machine.name))
            self.assertEqual(after, self.strategy(machine.name))

    def test_on_and_off_with_running_field(self):
        machine = self.machine(None, running=False)
        for _ in range(2):
            machine.reset(R.ON)
            self.becomes(machine, ON)
            machine.reset(R.ON)
            machine.reset(R.FORCE_OFF)
            self.becomes(machine, OFF)
            machine.reset(R.FORCE_OFF)
        vm = self.sandbox.vm(machine.name)
        self.assertIs(False, vm['spec']['running'])
        self.assertNotIn('runStrategy', vm['spec'])
        self.assertEqual({}, self.annotations(machine.name))

    def test_on_uses_configured_run_strategy(self):
        for strategy in ('Always', 'Manual'):
            machine = self.machine('Halted', self.bmc(run_strategy=strategy))
            machine.reset(R.ON)
            self.becomes(machine, ON)
            self.assertEqual(strategy, self.strategy(machine.name))

    def test_crashed_guest_restarts_and_shut_down_guest_stays_off(self):
        machine = self.machine('Halted')
        machine.reset(R.ON)
        self.becomes(machine, ON)
        self.sandbox.guest_does(machine.name, 'crash')
        self.sandbox.wait_boot(machine.name, 2)
        self.becomes(machine, ON)
        self.sandbox.guest_does(machine.name, 'shutdown')
        self.becomes(machine, OFF)
        self.stays(lambda: machine.power_state() is OFF)
        machine.reset(R.ON)
        self.becomes(machine, ON)
        self.assertEqual(3, len(self.sandbox.boots(machine.name)))

    def test_power_button_toggles(self):
        machine = self.machine('Manual')
        machine.reset(R.PUSH_POWER_BUTTON)
        self.becomes(machine, ON)
        machine.reset(R.PUSH_POWER_BUTTON)
        self.becomes(machine, OFF)

    def test_another_bmc_restores_always(self):
        name = self.machine('Always', off=False).name
        self.bmc().machine(name).reset(R.FORCE_OFF)
        self.sandbox.wait_stopped(name)
        self.assertEqual('Halted', self.strategy(name))
        self.bmc().machine(name).reset(R.ON)
        self.sandbox.wait_running(name)
        self.assertEqual('Always', self.strategy(name))

    def test_strategy_set_by_others_removes_annotations(self):
        machine = self.machine('Always', off=False)
        machine.reset(R.FORCE_OFF)
        self.becomes(machine, OFF)
        self.assertTrue(self.annotations(machine.name))
        self.sandbox.patch('virtualmachines', machine.name,
                           {'spec': {'runStrategy': 'Manual'}})
        self.until('no annotations',
                   lambda: not self.annotations(machine.name))

    def test_reset_of_deleted_vm_raises_not_found(self):
        machine = self.machine('Manual', off=False)
        self.sandbox.delete('virtualmachines', machine.name)
        self.sandbox.wait('virtualmachines', machine.name,
                          lambda vm: vm is None)
        for action in (R.ON, R.FORCE_OFF, R.FORCE_RESTART):
            self.assertRaises(errors.MachineNotFound, machine.reset, action)


class TransitionTestCase(machine_case.MachineTestCase):

    def test_force_off_ends_hanging_shutdown(self):
        bmc = self.bmc()
        for strategy in ('Always', 'RerunOnFailure', 'Manual', 'Once'):
            machine = self.machine(strategy, bmc, off=False, grace=600,
                                   annotations=IGNORES_ACPI)
            machine.reset(R.GRACEFUL_SHUTDOWN)
            self.stays(lambda: machine.power_state() is DOWN, 0.3)
            machine.reset(R.GRACEFUL_SHUTDOWN)
            machine.reset(R.FORCE_OFF)
            self.becomes(machine, OFF)
            machine.reset(R.FORCE_OFF)
            self.stays(lambda: machine.power_state() is OFF)
            self.assertEqual(1, len(self.sandbox.boots(machine.name)))

    def test_force_off_ends_deleted_vmi(self):
        machine = self.machine('Manual', off=False, grace=600,
                               annotations=IGNORES_ACPI)
        self.sandbox.delete('virtualmachineinstances', machine.name)
        self.becomes(machine, DOWN)
        machine.reset(R.FORCE_OFF)
        self.becomes(machine, OFF)

    def test_on_waits_for_end_of_shutdown(self):
        bmc = self.bmc()
        for strategy in ('Always', 'RerunOnFailure', 'Manual', 'Once'):
            machine = self.machine(strategy, bmc, off=False, grace=3,
                                   annotations=IGNORES_ACPI)
            uid = self.uid(machine.name)
            machine.reset(R.GRACEFUL_SHUTDOWN)
            self.assertIs(DOWN, machine.power_state())
            machine.reset(R.ON)
            self.sandbox.wait_running(machine.name, other_than=uid)
            self.becomes(machine, ON)
            self.assertEqual(strategy, self.strategy(machine.name))

    def test_on_raises_unavailable_while_shutdown_hangs(self):
        machine = self.machine('Manual', self.bmc(write_deadline=0.5),
                               off=False, grace=600, annotations=IGNORES_ACPI)
        machine.reset(R.GRACEFUL_SHUTDOWN)
        e = self.assertRaises(errors.Unavailable, machine.reset, R.ON)
        self.assertTrue(e.retry_after)

    def test_off_while_powering_on(self):
        bmc = self.bmc()
        for strategy in ('Always', 'RerunOnFailure', 'Manual', 'Once'):
            machine = self.machine(strategy, bmc)
            before = len(self.sandbox.boots(machine.name))
            machine.reset(R.ON)
            # The guest may have booted before this line runs.
            self.assertIn(machine.power_state(), (UP, ON))
            machine.reset(R.FORCE_OFF)
            self.becomes(machine, OFF)
            self.stays(lambda: machine.power_state() is OFF)
            self.assertIn(len(self.sandbox.boots(machine.name)) - before,
                          (0, 1))

    def test_concurrent_resets_restart_once(self):
        machine = self.machine('RerunOnFailure', off=False)
        others = [self.bmc().machine(machine.name) for _ in range(2)]
        uid = self.uid(machine.name)
        threads = [threading.Thread(target=each.reset,
                                    args=(R.FORCE_RESTART,))
                   for each in others]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.sandbox.wait_running(machine.name, other_than=uid)
        self.stays(lambda: len(self.vmis(machine.name)) == 2)


class RestartTestCase(machine_case.MachineTestCase):

    def test_restart_under_every_strategy(self):
        bmc = self.bmc()
        for strategy in ('Always', 'RerunOnFailure', 'Manual', 'Once'):
            machine = self.machine(strategy, bmc, off=False)
            for action in (R.FORCE_RESTART, R.POWER_CYCLE,
                           R.GRACEFUL_RESTART):
                uid = self.uid(machine.name)
                boots = len(self.sandbox.boots(machine.name))
                machine.reset(action)
                self.assertNotEqual(OFF, machine.power_state())
                self.sandbox.wait_running(machine.name, other_than=uid)
                self.becomes(machine, ON)
                self.assertEqual(boots + 1,
                                 len(self.sandbox.boots(machine.name)))
            self.until('original run strategy',
                       lambda: self.strategy(machine.name) == strategy)
            self.until('no annotations',
                       lambda: not self.annotations(machine.name))

    def test_restart_that_is_delivered_after_the_end_of_the_vmi(self):
        """A BMC that only watches, and whose watch of VMs is behind."""
        bmc = self.bmc()
        history = power_history.History(bmc)
        for strategy in 'RerunOnFailure', 'Manual':
            machine = self.machine(strategy, bmc, off=False)
            uid = self.uid(machine.name)
            self.until('status', lambda: machine.state().vm['status'][
                'printableStatus'] == 'Running')
            history.clear()
            self.sandbox.fault('hang', verb='WATCH',
                               where='/virtualmachines$')
            self.sandbox.fault('break', verb='WATCH',
                               where='/virtualmachines$')
            self.until('silent watch', lambda: self.fault_hits()[0])
            self.sandbox.do(machine.name, 'restart')
            self.sandbox.wait_running(machine.name, other_than=uid)
            self.until('next VMI', lambda: machine.running_uid()
                       not in (None, uid))
            self.becomes(machine, ON)
            self.sandbox.clear_faults()
            self.assertEqual([DOWN, UP, ON],
                             history.states(machine.name)[-3:])
            self.assertNotIn(OFF, history.states(machine.name))

    def test_restart_applies_pending_changes(self):
        machine = self.machine('Always', off=False)
        self.sandbox.patch('virtualmachines', machine.name, [{
            'op': 'add', 'value': 1, 'path': '/spec/template/spec/domain/'
            'devices/interfaces/0/bootOrder'}])
        machine.reset(R.FORCE_RESTART)
        self.assertEqual(
            'Pxe', self.sandbox.wait_boot(machine.name, 2)['class'])

    def test_restart_of_machine_that_is_off(self):
        bmc = self.bmc()
        for strategy in STRATEGIES:
            machine = self.machine(strategy, bmc)
            boots = len(self.sandbox.boots(machine.name))
            for action in (R.FORCE_RESTART, R.GRACEFUL_RESTART,
                           R.POWER_CYCLE):
                e = self.assertRaises(errors.WrongState, machine.reset,
                                      action, restart_powers_on=False)
                self.assertIn('is off', str(e))
                self.stays(lambda: machine.power_state() is OFF, 0.1)
                machine.reset(action)
                self.becomes(machine, ON)
                boots += 1
                self.assertEqual(boots,
                                 len(self.sandbox.boots(machine.name)))
                machine.reset(R.FORCE_OFF)
                self.becomes(machine, OFF)

    def test_force_restart_ends_hanging_restart(self):
        bmc = self.bmc()
        for strategy in ('Always', 'RerunOnFailure', 'Manual'):
            machine = self.machine(strategy, bmc, off=False, grace=600,
                                   annotations=IGNORES_ACPI)
            uid = self.uid(machine.name)
            machine.reset(R.GRACEFUL_RESTART)
            self.stays(lambda: self.uid(machine.name) == uid, 0.3)
            machine.reset(R.GRACEFUL_RESTART)
            machine.reset(R.FORCE_RESTART)
            self.sandbox.wait_running(machine.name, other_than=uid)
            self.assertEqual(strategy, self.strategy(machine.name))

    def test_force_restart_ends_hanging_shutdown(self):
        machine = self.machine('Manual', off=False, grace=600,
                               annotations=IGNORES_ACPI)
        uid = self.uid(machine.name)
        machine.reset(R.GRACEFUL_SHUTDOWN)
        self.becomes(machine, DOWN)
        self.assertRaises(errors.WrongState, machine.reset,
                          R.GRACEFUL_RESTART)
        machine.reset(R.FORCE_RESTART)
        self.sandbox.wait_running(machine.name, other_than=uid)

    def test_force_restart_does_not_wait_for_the_end_of_a_vmi(self):
        """After its guest a VMI may take half a minute to go."""
        bmc = self.bmc()
        history = power_history.History(bmc)
        for strategy in ('Always', 'RerunOnFailure', 'Manual'):
            machine = self.machine(strategy, bmc, off=False, grace=600,
                                   annotations=IGNORES_ACPI)
            uid = self.uid(machine.name)
            self.sandbox.patch('virtualmachineinstances', machine.name, [{
                'op': 'add', 'path': '/metadata/finalizers/-',
                'value': 'example.test/hold'}])
            machine.reset(R.GRACEFUL_SHUTDOWN)
            self.becomes(machine, DOWN)
            machine.reset(R.FORCE_RESTART)
            self.assertEqual(uid, self.uid(machine.name))
            self.assertIn(machine.power_state(), (DOWN, UP))
            finalizers = self.sandbox.vmi(machine.name)['metadata'][
                'finalizers']
            self.sandbox.patch('virtualmachineinstances', machine.name, {
                'metadata': {'finalizers': [
                    name for name in finalizers
                    if name != 'example.test/hold']}})
            self.sandbox.wait_running(machine.name, other_than=uid)
            self.becomes(machine, ON)
            self.until('both states',
                       lambda: history.states(machine.name)[-1:] == [ON])
            states = history.states(machine.name)
            self.assertEqual([DOWN, UP, ON],
                             states[states.index(DOWN):], strategy)
            self.until('run strategy', lambda: self.strategy(machine.name)
                       == strategy)

    def test_force_off_ends_hanging_restart(self):
        machine = self.machine('Always', off=False, grace=600,
                               annotations=IGNORES_ACPI)
        machine.reset(R.GRACEFUL_RESTART)
        self.becomes(machine, DOWN)
        machine.reset(R.FORCE_OFF)
        self.becomes(machine, OFF)
        self.stays(lambda: machine.power_state() is OFF)


class PauseTestCase(machine_case.MachineTestCase):

    def test_pause_and_resume(self):
        machine = self.machine('Manual', off=False)
        machine.reset(R.RESUME)
        machine.reset(R.PAUSE)
        self.assertIs(PAUSED, machine.power_state())
        machine.reset(R.PAUSE)
        machine.reset(R.RESUME)
        self.assertIs(ON, machine.power_state())
        machine.reset(R.PAUSE)
        machine.reset(R.ON)
        self.becomes(machine, ON)
        self.assertEqual(1, len(self.sandbox.boots(machine.name)))

    def test_paused_machine_is_reset(self):
        """A launcher ends a paused guest only 15 s after its grace period.
        """
        bmc = self.bmc()
        history = power_history.History(bmc)
        for strategy in ('Always', 'RerunOnFailure', 'Manual', 'Once'):
            machine = self.machine(strategy, bmc, off=False, grace=20)
            for action, state in (
                    (R.FORCE_OFF, OFF), (R.FORCE_RESTART, ON),
                    (R.POWER_CYCLE, ON), (R.GRACEFUL_RESTART, ON),
                    (R.GRACEFUL_SHUTDOWN, OFF)):
                machine.reset(R.ON)
                self.becomes(machine, ON)
                machine.reset(R.PAUSE)
                uid = self.uid(machine.name)
                history.clear()
                machine.reset(action)
                self.assertTrue(machine.wait(
                    lambda now: power_state.of(now) is state
                    and (now.vmi is None
                         or now.vmi['metadata']['uid'] != uid), 12),
                    (strategy, action, machine.state()))
                if state is ON:
                    self.assertNotIn(OFF, history.states(machine.name))
            self.assertEqual('Halted' if strategy in ('Always', 'Once')
                             else strategy, self.strategy(machine.name))
            machine.reset(R.ON)
            self.becomes(machine, ON)
            self.assertEqual(strategy, self.strategy(machine.name))
            self.until('no annotations',
                       lambda: not self.annotations(machine.name))

    def test_forced_restart_by_another_client_hangs(self):
        """KubeVirt's own restart of a paused machine, and the BMC's."""
        machine = self.machine('RerunOnFailure', off=False, grace=600)
        machine.reset(R.PAUSE)
        uid = self.uid(machine.name)
        self.sandbox.do(machine.name, 'restart', {'gracePeriodSeconds': 0})
        self.assertTrue(machine.wait(lambda state: any(
            condition['type'] == 'Synchronized'
            for condition in state.vmi['status']['conditions']), 15))
        self.assertIs(DOWN, machine.power_state())
        self.assertIsNone(machine.problem())
        machine.reset(R.FORCE_RESTART)
        self.sandbox.wait_running(machine.name, other_than=uid)
        self.becomes(machine, ON)

    def test_pause_of_machine_that_is_off_is_refused(self):
        machine = self.machine('Manual')
        for action in (R.PAUSE, R.RESUME):
            self.assertRaises(errors.WrongState, machine.reset, action)


class ControllerCase(machine_case.MachineTestCase):
    """A test case that does what virt-controller does to VMs and VMIs."""

    def patch(self, kind, name, operations, *options):
        """Patch an object with the account of virt-controller."""
        kubectl.Kubectl(self.sandbox.kubeconfig)(
            'patch', kind, name, *options, '--type', 'json', '--patch',
            json.dumps(operations),
            '--as', 'system:serviceaccount:kubevirt:kubevirt-controller',
            '--as-group', 'system:masters')


class LostNodeTestCase(ControllerCase):
    """KubeVirt keeps the VMI until its pod is gone."""

    @given_cluster.needs_sandbox('a node that does not respond')
    def test_on_waits_for_the_end_of_the_vmi(self):
        machine = self.machine(off=False)
        name, uid = machine.name, self.uid(machine.name)
        self.patch('vmi', name, [
            {'op': 'add', 'path': '/metadata/finalizers/-',
             'value': 'tests/pod'},
            {'op': 'replace', 'path': '/status/phase', 'value': 'Failed'},
            {'op': 'add', 'path': '/status/reason',
             'value': 'NodeUnresponsive'}])
        self.becomes(machine, UP)
        machine.reset(R.FORCE_OFF)
        self.assertIs(OFF, machine.power_state())
        self.assertEqual('NodeUnresponsive', machine.impairment().reason)
        hasty = self.handle(self.bmc(write_deadline=1), name)
        self.sandbox.reset_stats()
        error = self.assertRaises(errors.Unavailable, hasty.reset, R.ON)
        self.assertIn('node does not respond', str(error))
        self.assertNotIn('PUT', str(self.sandbox.stats()['calls']))
        self.assertEqual(uid, self.uid(name))
        self.patch('vmi', name, [{
            'op': 'remove', 'path': '/metadata/finalizers'}])
        self.until('no VMI', lambda: self.uid(name) is None)
        machine.reset(R.ON)
        self.becomes(machine, ON)
        self.assertIsNone(machine.impairment())


class VolumeMigrationTestCase(ControllerCase):
    """KubeVirt refuses a restart meanwhile, and a start if it has failed."""

    def add_condition(self, kind, name, type_, *options, **fields):
        """Add a condition with status True."""
        self.patch(kind, name, [{
            'op': 'add', 'path': '/status/conditions/-',
            'value': {'type': type_, 'status': 'True', **fields}}], *options)

    def require_recovery(self, name):
        self.add_condition(
            'vm', name, 'ManualRecoveryRequired', '--subresource', 'status',
            reason='VMI was removed or was final during the volume migration')

    @given_cluster.needs_sandbox("KubeVirt's own conditions")
    def test_start_is_refused(self):
        bmc = self.bmc()
        for strategy in STRATEGIES:
            machine = self.machine(strategy, bmc)
            self.require_recovery(machine.name)
            self.assertTrue(machine.wait(
                lambda state: power_state.recovery_required(state.vm), 15))
            before = self.sandbox.vm(machine.name)['spec']
            for action in (R.ON, R.FORCE_RESTART, R.PUSH_POWER_BUTTON):
                error = self.assertRaises(errors.WrongState, machine.reset,
                                          action)
                self.assertIn('volume migration', str(error))
            self.assertEqual(before, self.sandbox.vm(machine.name)['spec'])
            self.assertIs(OFF, machine.power_state())

    @given_cluster.needs_sandbox("KubeVirt's own conditions")
    def test_started_machine_is_off(self):
        machine = self.machine('Always')
        self.require_recovery(machine.name)
        self.sandbox.patch('virtualmachines', machine.name, {
            'spec': {'runStrategy': 'Always'}})
        self.assertTrue(machine.wait(power_state.problem, 15))
        self.assertEqual('ManualRecoveryRequired', machine.problem().reason)
        self.assertIs(OFF, machine.power_state())
        self.stays(lambda: self.uid(machine.name) is None)
        machine.reset(R.FORCE_OFF)
        self.assertIsNone(machine.problem())

    @given_cluster.needs_sandbox("KubeVirt's own conditions")
    def test_restart_is_refused(self):
        machine = self.machine(off=False)
        self.add_condition('vmi', machine.name, 'VolumesChange')
        self.assertTrue(machine.wait(
            lambda state: power_state.migrates_volumes(state.vm), 15))
        uid = self.uid(machine.name)
        for pause in False, True:
            if pause:
                machine.reset(R.PAUSE)
            for action in (R.FORCE_RESTART, R.GRACEFUL_RESTART,
                           R.POWER_CYCLE):
                error = self.assertRaises(errors.WrongState, machine.reset,
                                          action)
                self.assertIn('volumes are migrated', str(error))
        self.assertEqual(uid, self.uid(machine.name))
        machine.reset(R.FORCE_OFF)
        self.becomes(machine, OFF)


class ProblemTestCase(machine_case.MachineTestCase):

    def make_failing(self, strategy, reason, bmc, **kwargs):
        name = self.make(strategy, **kwargs)
        machine = self.handle(bmc, name)
        if strategy == 'Manual':
            machine.reset(R.ON)
        self.assertTrue(machine.wait(
            lambda state: power_state.problem(state) is not None
            and power_state.problem(state).reason in reason,
            180 if self.sandbox.external else 15),
            machine.state())
        self.assertIs(OFF, machine.power_state())
        return machine

    def assert_force_off_ends_start(self, machine):
        machine.reset(R.FORCE_OFF)
        self.until('no VMI', lambda: self.uid(machine.name) is None)
        self.stays(lambda: self.uid(machine.name) is None)
        self.assertIsNone(machine.problem())
        self.assertIs(OFF, machine.power_state())

    def test_unschedulable(self):
        if not self.sandbox.has_scheduler():
            self.skipTest("needs kube-scheduler's condition PodScheduled")
        bmc = self.bmc()
        for strategy in ('Always', 'RerunOnFailure', 'Manual', 'Once'):
            machine = self.make_failing(strategy, ('ErrorUnschedulable',), bmc,
                                        change=unschedulable)
            self.assertIn('nodes are available', machine.problem().message)
            self.assert_force_off_ends_start(machine)
            self.sandbox.patch('virtualmachines', machine.name, [{
                'op': 'remove', 'path': '/spec/template/spec/nodeSelector'}])
            machine.reset(R.ON)
            self.becomes(machine, ON)
            self.assertEqual(strategy, self.strategy(machine.name))

    def create_claim(self, name):
        self.addCleanup(self.sandbox.delete, 'persistentvolumeclaims', name)
        self.sandbox.create('persistentvolumeclaims', {
            'apiVersion': 'v1', 'kind': 'PersistentVolumeClaim',
            'metadata': {'name': name}, 'spec': {
                'accessModes': ['ReadWriteOnce'],
                'resources': {'requests': {'storage': '1Gi'}}}})

    def test_missing_claim(self):
        """The VMI also has ``PodScheduled`` with ``Unschedulable``."""
        machine = self.make_failing(
            'RerunOnFailure', ('ErrorPvcNotFound',), self.bmc(),
            change=with_claim('missing'))
        self.assertIn('default/missing', machine.problem().message)
        self.create_claim('missing')
        self.becomes(machine, ON)
        self.assertIsNone(machine.problem())

    def test_failure_that_is_resolved_soon(self):
        bmc = self.bmc()
        name = self.make('Manual', change=with_claim('late'))
        machine = self.handle(bmc, name)
        history = power_history.History(bmc)
        machine.reset(R.ON)
        self.assertTrue(machine.wait(lambda state: any(
            condition['reason'] == 'FailedPvcNotFound'
            for condition in (state.vmi or {'status': {}})['status'].get(
                'conditions', ())), 15), machine.state())
        self.assertIs(UP, machine.power_state())
        self.create_claim('late')
        self.becomes(machine, ON)
        self.until('both states', lambda: ON in history.states(name))
        self.assertEqual([UP, ON], history.since_power_on(name))

    def test_guest_that_the_launcher_cannot_start(self):
        for strategy in ('RerunOnFailure', 'Manual'):
            machine = self.make_failing(
                strategy, ('SyncFailed',), self.bmc(), annotations={
                    machine_case.REFUSE_START: 'unsupported machine type'})
            self.assertEqual('server error. command SyncVMI failed: '
                             '"unsupported machine type"',
                             machine.problem().message)
            self.assert_force_off_ends_start(machine)

    def test_image_pull_failure(self):
        machine = self.make_failing('RerunOnFailure',
                                    ('ErrImagePull', 'ImagePullBackOff'),
                                    self.bmc(), change=without_image)
        self.assertIn('example.test/missing', machine.problem().message)
        machine.reset(R.ON)
        self.assertRaises(errors.WrongState, machine.reset, R.FORCE_RESTART,
                          restart_powers_on=False)
        uid = self.uid(machine.name)
        machine.reset(R.FORCE_RESTART)
        self.until('another VMI',
                   lambda: self.uid(machine.name) not in (None, uid))
        self.assert_force_off_ends_start(machine)
        machine.reset(R.ON)
        self.assertTrue(machine.wait(
            power_state.problem, 15))
        self.assert_force_off_ends_start(machine)

    def test_crash_loop(self):
        bmc = self.bmc()
        for strategy in ('Always', 'RerunOnFailure'):
            machine = self.make_failing(
                strategy, ('CrashLoopBackOff',), bmc,
                annotations={machine_case.FAIL_START: 'true'})
            self.assert_force_off_ends_start(machine)
            self.sandbox.patch('virtualmachines', machine.name, {
                'spec': {'template': {'metadata': {'annotations': {
                    machine_case.FAIL_START: None}}}}})
            machine.reset(R.ON)
            self.becomes(machine, ON, 40)
            self.assertEqual(strategy, self.strategy(machine.name))

    def test_failed_start_that_is_not_repeated(self):
        bmc = self.bmc()
        for strategy in ('Manual', 'Once'):
            machine = self.make_failing(
                strategy, ('StartFailed',), bmc,
                annotations={machine_case.FAIL_START: 'true'})
            self.sandbox.patch('virtualmachines', machine.name, {
                'spec': {'template': {'metadata': {'annotations': {
                    machine_case.FAIL_START: None}}}}})
            machine.reset(R.ON)
            self.becomes(machine, ON)
            self.assertIsNone(machine.problem())

    def test_data_volume_refused_by_cdi(self):
        # KubeVirt tries the start that a new run strategy causes once.
        machine = self.machine('RerunOnFailure')
        name = machine.name
        spec = self.sandbox.vm(name)['spec']
        volumes = spec['template']['spec']['volumes']
        self.sandbox.patch('virtualmachines', name, {'spec': {
            'runStrategy': 'Halted',
            'dataVolumeTemplates': [{
                # CDI refuses volumes smaller than 1 MiB.
                'metadata': {'name': name}, 'spec': {
                    'source': {'blank': {}}, 'storage': {'resources': {
                        'requests': {'storage': '1Ki'}}}}}],
            'template': {'spec': {'volumes': volumes + [
                {'name': 'more', 'dataVolume': {'name': name}}]}}}})
        self.until('status Halted', lambda: self.sandbox.vm(name)[
            'status']['runStrategy'] == 'Halted')
        machine.reset(R.ON)
        self.assertTrue(machine.wait(
            lambda state: state.vm['status']['runStrategy'] == 'RerunOnFailure'
            and power_state.problem(state), 15), machine.state())
        self.stays(lambda: machine.problem() is not None)
        self.assertIs(OFF, machine.power_state())
        self.assertIn('DataVolume', machine.problem().message)
        self.assert_force_off_ends_start(machine)
        machine.reset(R.ON)
        self.sandbox.patch('virtualmachines', name, {'spec': {
            'dataVolumeTemplates': None,
            'template': {'spec': {'volumes': volumes}}}})
        self.becomes(machine, ON)
        self.assertEqual('RerunOnFailure', self.strategy(name))


class FaultTestCase(machine_case.MachineTestCase):
    """Each write succeeds in spite of a fault and takes effect once."""

    #: Reset type, run strategy, whether the machine is off before, number of
    #: boots that follow, and HTTP methods of the writes.
    CASES = [
        (R.ON, 'Halted', True, 1, ('PATCH', 'PUT')),
        (R.ON, 'Manual', True, 1, ('PUT',)),
        (R.ON, 'RerunOnFailure', True, 1, ('PUT',)),
        (R.FORCE_OFF, 'Always', False, 0, ('PATCH', 'PUT')),
        (R.FORCE_OFF, 'Manual', False, 0, ('PUT',)),
        (R.GRACEFUL_SHUTDOWN, 'RerunOnFailure', False, 0, ('PUT',)),
        (R.FORCE_RESTART, 'Always', False, 1, ('PUT',)),
        (R.FORCE_RESTART, 'Manual', False, 1, ('PUT',)),
        (R.GRACEFUL_RESTART, 'RerunOnFailure', False, 1, ('PUT',)),
        (R.FORCE_RESTART, 'Once', False, 1, ('PATCH', 'PUT')),
    ]

    def test_each_write_survives_each_fault(self):
        bmc = self.bmc()
        for action, strategy, off, boots, verbs in self.CASES:
            machine = self.machine(strategy, bmc, off=off)
            for fault in machine_case.WRITE_FAULTS:
                for verb in verbs:
                    self.sandbox.fault(
                        fault, verb=verb,
                        where=f'virtualmachines/{machine.name}')
                    self.reset_once(machine, action, boots, fault)
                    self.assertEqual([1], self.fault_hits())
                    self.sandbox.clear_faults()
                    self.restore(machine, strategy, off)

    def reset_once(self, machine, action, boots, fault):
        """Reset a machine and check the number of boots that follow."""
        before = len(self.sandbox.boots(machine.name))
        uid = self.uid(machine.name)
        machine.reset(action)
        if action in (R.FORCE_OFF, R.GRACEFUL_SHUTDOWN):
            self.becomes(machine, OFF)
        else:
            self.sandbox.wait_running(machine.name, other_than=uid)
            self.becomes(machine, ON)
        # A repeated reset would show soon after the first.
        self.stays(lambda: len(self.sandbox.boots(machine.name))
                   == before + boots, 0.3 if fault == 'drop-after' else 0.1)

    def restore(self, machine, strategy, off):
        if off:
            machine.reset(R.FORCE_OFF)
            self.becomes(machine, OFF)
        else:
            machine.reset(R.ON)
            self.becomes(machine, ON)
        if strategy == 'Halted':
            self.sandbox.patch('virtualmachines', machine.name,
                               {'spec': {'runStrategy': strategy}})
            self.sandbox.wait('virtualmachines', machine.name, lambda vm: vm[
                'status'].get('runStrategy') == strategy)
        self.until('run strategy', lambda: self.strategy(machine.name)
                   == strategy)

    def test_reset_survives_short_outage(self):
        machine = self.machine('Manual')
        self.sandbox.outage(1)
        machine.reset(R.ON)
        self.becomes(machine, ON)
        self.assertEqual(1, len(self.sandbox.boots(machine.name)))

    def test_reset_raises_unavailable_in_long_outage(self):
        machine = self.machine('Manual', self.bmc(write_deadline=0.5))
        self.sandbox.outage(8)
        self.addCleanup(self.until, 'the API', self.sandbox.is_available)
        # Without the deadline, reset would succeed after 8 s.
        self.assertRaises(errors.Unavailable, machine.reset, R.ON)


class KilledTestCase(machine_case.MachineTestCase):
    """A process is killed after each write; the next one continues."""

    def test_next_bmc_finishes_reset_of_killed_one(self):
        bmc = self.bmc()
        for action, strategy, off, state in (
                (R.FORCE_OFF, 'Always', False, OFF),
                (R.FORCE_RESTART, 'Once', False, ON),
                (R.FORCE_RESTART, 'Always', False, ON),
                (R.ON, 'Halted', True, ON)):
            for writes in (1, 2, 3):
                machine = self.machine(strategy, bmc, off=off)
                finished = self.run_bmc(machine.name, 'reset', action.value,
                                        writes=writes)
                if not finished or action is not R.FORCE_RESTART:
                    try:
                        machine.reset(action)
                    except errors.WrongState:
                        self.assertIs(R.FORCE_RESTART, action)
                self.becomes(machine, state)
                machine.reset(R.ON)
                self.becomes(machine, ON)
                after = {'Halted': 'RerunOnFailure'}.get(strategy, strategy)
                self.until('run strategy', lambda: self.strategy(
                    machine.name) == after)
                self.until('no annotations',
                           lambda: not self.annotations(machine.name))
                if finished:
                    break

    def test_unfinished_force_off_leaves_machine_on(self):
        # Killed between the annotation and the stop: the machine stays on,
        # and its next VMI makes the annotation stale.
        machine = self.machine('Always', off=False)
        self.assertFalse(self.run_bmc(machine.name, 'reset', 'ForceOff',
                                      writes=1))
        self.stays(lambda: machine.power_state() is ON)
        self.sandbox.do(machine.name, 'restart')
        self.until('no annotations',
                   lambda: not self.annotations(machine.name))
        self.assertEqual('Always', self.strategy(machine.name))


LateSwitchTestCase = lagging_controllers.lagging(
    SwitchTestCase,
    'test_another_bmc_restores_always',
    'test_reset_of_deleted_vm_raises_not_found')
LateTransitionTestCase = lagging_controllers.lagging(
    TransitionTestCase,
    'test_on_waits_for_end_of_shutdown',
    'test_off_while_powering_on',
    'test_concurrent_resets_restart_once')
