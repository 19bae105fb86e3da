# SPDX-License-Identifier: Apache-2.0

import copy
import datetime
import itertools

from oslotest import base

from sushy_kubevirt.machine import power_state
from sushy_kubevirt.machine import run_strategy
from sushy_kubevirt.machine import trim
from sushy_kubevirt.machine import vm_state
from tests.unit.machine import fakes

ON, OFF = power_state.PowerState.ON, power_state.PowerState.OFF
UP, DOWN = (
    power_state.PowerState.POWERING_ON,
    power_state.PowerState.POWERING_OFF,
)
PAUSED = power_state.PowerState.PAUSED

STRATEGIES = ('Always', 'RerunOnFailure', 'Manual', 'Halted', 'Once',
              'WaitAsReceiver')

# Power state by phase of the VMI; the columns are those of STRATEGIES. An
# active VMI under Halted is about to be stopped.
BY_VMI = [
    # no VMI: KubeVirt creates one under Always and Once
    (None, (UP, OFF, OFF, OFF, UP, OFF)),
    # without a phase, or starting
    ('', (UP, UP, UP, DOWN, UP, UP)),
    ('Pending', (UP, UP, UP, DOWN, UP, UP)),
    ('Scheduling', (UP, UP, UP, DOWN, UP, UP)),
    ('Scheduled', (UP, UP, UP, DOWN, UP, UP)),
    ('Running', (ON, ON, ON, DOWN, ON, ON)),
    # its node is unreachable
    ('Unknown', (ON, ON, ON, DOWN, ON, ON)),
    # ended: KubeVirt creates another under Always, and under RerunOnFailure
    # after a failure
    ('Succeeded', (UP, OFF, OFF, OFF, OFF, OFF)),
    ('Failed', (UP, UP, OFF, OFF, OFF, OFF)),
]


def power_of(*objects):
    return power_state.of(vm_state.VmState(*objects))


def problem_of(*objects):
    return power_state.problem(vm_state.VmState(*objects))


def seconds_of(*objects):
    return power_state.seconds_until_problem(vm_state.VmState(*objects))


class NodeTestCase(base.BaseTestCase):

    def test_lost_node(self):
        for vmi, lost in ((None, False), (fakes.vmi(), False),
                          (fakes.vmi('Unknown'), True),
                          (fakes.vmi('Failed'), False)):
            self.assertIs(lost, power_state.node_lost(vmi))
        vmi['status']['reason'] = 'NodeUnresponsive'
        self.assertTrue(power_state.node_lost(vmi))


class ImpairmentTestCase(base.BaseTestCase):
    """A guest that was running and does not work."""

    def test_io_error(self):
        message = 'VMI was paused, low-level IO error detected'
        vmi = fakes.vmi(conditions=[fakes.condition(
            'Paused', 'True', 'PausedIOError', message)])
        self.assertEqual(power_state.Problem('PausedIOError', message),
                         power_state.impairment(vmi))
        self.assertIs(PAUSED, power_of(fakes.vm(), vmi))
        self.assertIsNone(problem_of(fakes.vm(), vmi))

    def test_other_reasons_to_pause(self):
        for reason in 'PausedByUser', 'PausedByMigrationMonitor':
            vmi = fakes.vmi(conditions=[fakes.condition(
                'Paused', 'True', reason)])
            self.assertIsNone(power_state.impairment(vmi))

    def test_lost_node(self):
        vmi = fakes.vmi('Unknown')
        vmi['status']['nodeName'] = 'node-1'
        self.assertEqual(
            power_state.Problem('NodeUnresponsive',
                                'Node node-1 did not respond'),
            power_state.impairment(vmi))
        # KubeVirt starts the VM again when it has removed the VMI.
        vmi = fakes.vmi('Failed', deleting=True)
        vmi['status']['reason'] = 'NodeUnresponsive'
        vm = fakes.vm(requests=[fakes.START])
        self.assertIs(UP, power_of(vm, vmi))
        self.assertIsNotNone(power_state.impairment(vmi))

        # It may still run, whatever the machine's state.
        vmi = fakes.vmi('Failed')
        vmi['status']['reason'] = 'NodeUnresponsive'
        self.assertIs(OFF, power_of(fakes.vm('Manual'), vmi))
        self.assertIsNotNone(power_state.impairment(vmi))

    def test_guest_that_works_or_has_ended(self):
        ended = fakes.vmi('Failed', conditions=[fakes.condition(
            'Paused', 'True', 'PausedIOError')])
        for vmi in None, fakes.vmi(), fakes.vmi('Scheduling'), ended:
            self.assertIsNone(power_state.impairment(vmi))


class StateTestCase(base.BaseTestCase):

    def test_by_strategy_and_phase(self):
        for phase, states in BY_VMI:
            for strategy, expected in zip(STRATEGIES, states):
                vmi = None if phase is None else fakes.vmi(phase)
                vm = fakes.vm(strategy)
                self.assertIs(expected, power_of(vm, vmi),
                              (strategy, phase))

    def test_running_field_means_always_or_halted(self):
        for running, strategy in ((True, 'Always'), (False, 'Halted')):
            vm = fakes.vm(running=running)
            self.assertEqual(strategy, run_strategy.of(vm))
            for phase, states in BY_VMI:
                vmi = None if phase is None else fakes.vmi(phase)
                self.assertIs(states[STRATEGIES.index(strategy)],
                              power_of(vm, vmi), (running, phase))

    def test_vmi_that_is_deleted_is_powering_off(self):
        for strategy in STRATEGIES:
            for phase in ('', 'Scheduling', 'Running'):
                self.assertIs(DOWN, power_of(
                    fakes.vm(strategy), fakes.vmi(phase, deleting=True)))

    def test_stop_requested_is_powering_off_before_kubevirt_acts(self):
        for requests in ([fakes.STOP], [fakes.STOP, fakes.START]):
            vm = fakes.vm('Manual', requests=requests)
            self.assertIs(DOWN, power_of(vm, fakes.vmi()))

    def test_stop_of_another_vmi_is_ignored(self):
        vm = fakes.vm('Manual', requests=[{'action': 'Stop', 'uid': 'old'}])
        self.assertIs(ON, power_of(vm, fakes.vmi()))

    def test_stop_of_the_ended_vmi_is_done(self):
        vm = fakes.vm('Manual', requests=[fakes.STOP])
        vmi = fakes.vmi('Succeeded')
        self.assertIs(power_state.PowerState.OFF, power_of(vm, vmi))
        vmi['metadata']['uid'] = 'older'
        self.assertIs(DOWN, power_of(vm, vmi))
        self.assertIs(DOWN, power_of(vm, None))
        self.assertIs(OFF, power_of(vm, None, True))
        # A cancelled start.
        vm['status']['stateChangeRequests'] = [{'action': 'Stop'}]
        self.assertIs(DOWN, power_of(vm, None, True))

    def test_start_requested_is_powering_on(self):
        for strategy in ('Manual', 'RerunOnFailure', 'Halted'):
            vm = fakes.vm(strategy, requests=[fakes.START])
            self.assertIs(UP, power_of(vm, None), strategy)

    def test_restart_of_an_ended_vmi_is_powering_on(self):
        vm = fakes.vm('Manual', requests=[fakes.STOP, fakes.START])
        self.assertIs(UP, power_of(vm, fakes.vmi('Succeeded')))

    def test_unobserved_rerun_on_failure_is_powering_on(self):
        for observed in ('Halted', ''):
            vm = fakes.vm('RerunOnFailure')
            vm['status']['runStrategy'] = observed
            self.assertIs(UP, power_of(vm, None))
        del vm['status']['runStrategy']
        self.assertIs(UP, power_of(vm, None))
        del vm['status']
        self.assertIs(UP, power_of(vm, None))

    def test_failed_deleting_vmi_is_off_until_start_request(self):
        vm = fakes.vm('RerunOnFailure')
        vmi = fakes.vmi('Failed', deleting=True)
        self.assertIs(OFF, power_of(vm, vmi))
        vm['status']['stateChangeRequests'] = [fakes.START]
        self.assertIs(UP, power_of(vm, vmi))

    def test_paused(self):
        vmi = fakes.vmi(conditions=[fakes.condition('Paused', 'True')])
        self.assertIs(PAUSED, power_of(fakes.vm(), vmi))
        vmi = fakes.vmi(conditions=[fakes.condition('Paused', 'False')])
        self.assertIs(ON, power_of(fakes.vm(), vmi))

    def test_deleting_vm_is_off_or_powering_off(self):
        vm = fakes.vm('Always')
        vm['metadata']['deletionTimestamp'] = '2026-01-01T00:00:00Z'
        self.assertIs(OFF, power_of(vm, None))
        self.assertIs(DOWN, power_of(vm, fakes.vmi()))

    def test_stays_off_while_status_of_vm_is_behind(self):
        """The end of a VMI is delivered before the status that counts none.
        """
        for strategy in 'Halted', 'Manual':
            for status in ('Stopping', 'Stopped',
                           'ErrorPvcNotFound', 'ErrorUnschedulable',
                           *(['Starting', 'Running', 'Paused']
                             if strategy == 'Halted' else [])):
                vm = fakes.vm(strategy, printableStatus=status)
                self.assertIs(OFF, power_of(
                    vm, fakes.vmi('Failed', deleting=True)))
                self.assertIs(OFF, power_of(vm, None, True))

    def test_end_of_a_guest_before_its_cause_was_delivered(self):
        """The next version of the VM tells whether it is restarted."""
        for strategy in 'Manual', 'RerunOnFailure':
            for status in 'Running', 'Paused':
                for state in (
                        (fakes.vmi('Succeeded'),),
                        (fakes.vmi('Succeeded', deleting=True),),
                        (None, True)):
                    vm = fakes.vm(strategy, printableStatus=status)
                    self.assertIs(DOWN, power_of(vm, *state))
                    vm['status']['stateChangeRequests'] = [fakes.STOP]
                    self.assertIs(OFF, power_of(vm, *state))
                    vm['status']['stateChangeRequests'].append(fakes.START)
                    self.assertIs(UP, power_of(vm, *state))
                    vm = fakes.vm(strategy, printableStatus='Stopped')
                    self.assertIs(OFF, power_of(vm, *state))

    def test_vmi_that_was_not_delivered(self):
        for strategy, status, state in (
                ('Halted', 'Starting', DOWN), ('Halted', 'Stopping', DOWN),
                ('Manual', 'Starting', UP), ('Manual', 'Stopping', DOWN),
                ('Halted', 'Running', DOWN), ('Manual', 'Running', UP),
                ('Halted', 'Paused', DOWN), ('Manual', 'Paused', UP),
                *((strategy, status, state)
                  for strategy, state in (('Halted', DOWN), ('Manual', UP))
                  for status in ('ErrorPvcNotFound', 'ErrorUnschedulable',
                                 'ErrImagePull', 'ImagePullBackOff')),
                ('Manual', 'Stopped', OFF)):
            vm = fakes.vm(strategy, printableStatus=status)
            self.assertIs(state, power_of(vm, None))

    def test_next_vmi_of_a_restart_was_not_delivered(self):
        """The VM's status went from one VMI to the next."""
        vm = fakes.vm('Manual', printableStatus='Starting')
        self.assertIs(UP, power_of(vm, None, True))

    def test_end_of_a_guest_whose_start_is_still_in_the_status(self):
        for strategy in 'Manual', 'Once', 'RerunOnFailure':
            vm = fakes.vm(strategy, printableStatus='Starting')
            for phase in ('Succeeded', *(
                    ['Failed'] if strategy != 'RerunOnFailure' else [])):
                self.assertIs(OFF, power_of(vm, fakes.vmi(phase)))

    def test_failed_start_that_kubevirt_repeats(self):
        """It deletes the VMI before it requests a start."""
        vm = fakes.vm('RerunOnFailure', printableStatus='Starting')
        self.assertIs(UP, power_of(
            vm, fakes.vmi('Failed', deleting=True)))


SYNC_FAILED = 'Synchronizing with the Domain failed.'

# Reasons of failed starts and their conditions, in the order of
# setPrintableStatus in KubeVirt's pkg/virt-controller/watch/vm/vm.go, and
# last those for which it has no status.
PRECEDENCE = [
    ('ErrorPvcNotFound', ('Synchronized', 'False', 'FailedPvcNotFound')),
    ('DataVolumeError', None),
    ('ErrorUnschedulable', ('PodScheduled', 'False', 'Unschedulable')),
    ('ErrImagePull', ('Synchronized', 'False', 'ErrImagePull')),
    ('ImagePullBackOff', ('Synchronized', 'False', 'ImagePullBackOff')),
    ('FailedCreate', ('Synchronized', 'False', 'FailedCreate')),
    ('SyncFailed', ('Synchronized', 'False', SYNC_FAILED)),
    ('SchedulerError', ('PodScheduled', 'False', 'SchedulerError')),
    ('SchedulingGated', ('PodScheduled', 'False', 'SchedulingGated')),
]


def timestamp(seconds_ago):
    """Return a time as KubeVirt writes it."""
    moment = datetime.datetime.now(datetime.timezone.utc)
    moment -= datetime.timedelta(seconds=seconds_ago)
    return moment.strftime('%Y-%m-%dT%H:%M:%SZ')


class GraceTestCase(base.BaseTestCase):
    """A failed start is a problem if KubeVirt's retries fail, too."""

    def failing(self, type_, reason, seconds_ago):
        return {**fakes.condition(type_, 'False', reason, 'this is why'),
                'lastTransitionTime': timestamp(seconds_ago)}

    def test_failure_becomes_a_problem(self):
        old = power_state.GRACE_SECONDS + 1
        for type_, reason in (('PodScheduled', 'Unschedulable'),
                              ('PodScheduled', 'SchedulerError'),
                              ('PodScheduled', 'SchedulingGated'),
                              ('Synchronized', 'FailedPvcNotFound'),
                              ('Synchronized', 'FailedCreate'),
                              ('Synchronized', SYNC_FAILED)):
            vmi = fakes.vmi('Scheduled', conditions=[
                self.failing(type_, reason, 1)])
            self.assertIsNone(problem_of(fakes.vm(), vmi))
            self.assertIs(UP, power_of(fakes.vm(), vmi))
            seconds = seconds_of(fakes.vm(), vmi)
            self.assertTrue(0 < seconds < power_state.GRACE_SECONDS, seconds)
            vmi['status']['conditions'] = [self.failing(type_, reason, old)]
            self.assertIsNotNone(problem_of(fakes.vm(), vmi))
            self.assertIs(OFF, power_of(fakes.vm(), vmi))
            self.assertIsNone(
                seconds_of(fakes.vm(), vmi))

    def test_image_that_cannot_be_pulled(self):
        """Its two reasons alternate: the age of the VMI decides."""
        vmi = fakes.vmi('Scheduling', conditions=[
            self.failing('Synchronized', 'ErrImagePull', 1)])
        vmi['metadata']['creationTimestamp'] = timestamp(2)
        self.assertIsNone(problem_of(fakes.vm(), vmi))
        vmi['metadata']['creationTimestamp'] = timestamp(20)
        self.assertEqual('ErrImagePull',
                         problem_of(fakes.vm(), vmi).reason)

    def test_condition_without_time(self):
        condition = fakes.condition('PodScheduled', 'False', 'Unschedulable')
        vmi = fakes.vmi('Scheduling', conditions=[
            {**condition, 'lastTransitionTime': None}])
        vmi['metadata']['creationTimestamp'] = timestamp(1)
        self.assertIsNone(problem_of(fakes.vm(), vmi))
        vmi['metadata']['creationTimestamp'] = timestamp(20)
        self.assertIsNotNone(problem_of(fakes.vm(), vmi))

    def test_vmi_that_cannot_be_created(self):
        failure = {**fakes.condition('Failure', 'True', 'FailedCreate', 'no'),
                   'lastTransitionTime': timestamp(1)}
        vm = fakes.vm('Always', conditions=[failure])
        self.assertIsNone(problem_of(vm, None))
        self.assertIs(UP, power_of(vm, None))
        failure['lastTransitionTime'] = timestamp(20)
        self.assertIsNotNone(problem_of(vm, None))

    def test_nothing_failed(self):
        for vmi in None, fakes.vmi(), fakes.vmi('Scheduling'):
            self.assertIsNone(
                seconds_of(fakes.vm(), vmi))


class ProblemTestCase(base.BaseTestCase):

    def test_vmi_that_cannot_be_scheduled_or_created(self):
        for type_, cause, reason in (
                ('PodScheduled', 'Unschedulable', 'ErrorUnschedulable'),
                ('Synchronized', 'ErrImagePull', 'ErrImagePull'),
                ('Synchronized', 'ImagePullBackOff', 'ImagePullBackOff'),
                ('Synchronized', 'FailedPvcNotFound', 'ErrorPvcNotFound'),
                ('Synchronized', 'FailedCreate', 'FailedCreate')):
            vmi = fakes.vmi('Scheduling', conditions=[fakes.condition(
                type_, 'False', cause, 'this is why')])
            vm = fakes.vm('Always')
            self.assertEqual(power_state.Problem(reason, 'this is why'),
                             problem_of(vm, vmi))
            self.assertIs(OFF, power_of(vm, vmi))

    def test_normal_steps_of_a_start_are_no_problem(self):
        for cause in ('BackendStorageNotReady', 'PVCNotReady', ''):
            vmi = fakes.vmi('Pending', conditions=[fakes.condition(
                'Synchronized', 'False', cause)])
            self.assertIsNone(problem_of(fakes.vm(), vmi))
            self.assertIs(UP, power_of(fakes.vm(), vmi))

    def test_running_or_stopping_vmi_has_no_problem(self):
        for reason in 'FailedCreate', SYNC_FAILED:
            trouble = [fakes.condition('Synchronized', 'False', reason)]
            for vmi, state in (
                    (fakes.vmi(conditions=trouble), ON),
                    (fakes.vmi('Unknown', conditions=trouble), ON),
                    (fakes.vmi('Scheduled', conditions=trouble,
                               deleting=True), DOWN)):
                self.assertIsNone(problem_of(fakes.vm(), vmi))
                self.assertIs(state, power_of(fakes.vm(), vmi))

    def test_guest_that_the_launcher_cannot_start(self):
        message = 'server error. command SyncVMI failed: "no such machine"'
        vmi = fakes.vmi('Scheduled', conditions=[fakes.condition(
            'Synchronized', 'False', SYNC_FAILED, message)])
        self.assertEqual(power_state.Problem('SyncFailed', message),
                         problem_of(fakes.vm(), vmi))
        self.assertIs(OFF, power_of(fakes.vm(), vmi))

    def test_reasons_of_virt_controller(self):
        """Whatever they begin with."""
        for reason in ('ContainerPathVolumesDisabled',
                       'MissingVirtiofsContainers',
                       'Failed deleting backend storage',
                       'FailedGuaranteeResources', 'AReasonOfTheFuture'):
            vmi = fakes.vmi('Scheduling', conditions=[fakes.condition(
                'Synchronized', 'False', reason, 'this is why')])
            self.assertEqual(power_state.Problem(reason, 'this is why'),
                             problem_of(fakes.vm(), vmi))

    def test_reasons_that_hold_together(self):
        """The one that KubeVirt's printableStatus prefers is shown."""
        for first, second in itertools.combinations(PRECEDENCE, 2):
            conditions, fields = [], {}
            for reason, cause in (first, second):
                if reason == 'DataVolumeError':
                    fields = {'printableStatus': reason}
                else:
                    conditions.append(fakes.condition(*cause))
            if len({each['type'] for each in conditions}) < len(conditions):
                continue    # a condition has one reason
            for order in (1, -1):
                vmi = fakes.vmi('Scheduling', conditions=conditions[::order])
                self.assertEqual(first[0], problem_of(
                    fakes.vm(**fields), vmi).reason, (first, second))

    def test_image_failure_while_a_volume_is_prepared(self):
        """KubeVirt has no status for the reasons that follow."""
        for status in 'Provisioning', 'WaitingForVolumeBinding':
            for reason, problem in (
                    ('ErrImagePull', None), ('ImagePullBackOff', None),
                    ('FailedPvcNotFound', 'ErrorPvcNotFound'),
                    ('FailedCreate', 'FailedCreate'),
                    (SYNC_FAILED, 'SyncFailed')):
                vm = fakes.vm(printableStatus=status)
                vmi = fakes.vmi('Scheduling', conditions=[
                    fakes.condition('Synchronized', 'False', reason)])
                self.assertEqual(problem, getattr(
                    problem_of(vm, vmi), 'reason', None))

    def test_missing_pvc(self):
        """virt-controller gives the condition PodScheduled no time, and
        keeps it when the PVC is there.
        """
        message = 'PVC default/disk does not exist, waiting for it to appear'
        scheduled = {**fakes.condition('PodScheduled', 'False',
                                       'Unschedulable', message),
                     'lastTransitionTime': None}
        vmi = fakes.vmi('Pending', conditions=[scheduled, fakes.condition(
            'Synchronized', 'False', 'FailedPvcNotFound', message)])
        self.assertEqual(power_state.Problem('ErrorPvcNotFound', message),
                         problem_of(fakes.vm(), vmi))
        del vmi['status']['conditions'][1]
        self.assertIsNone(problem_of(fakes.vm(), vmi))
        self.assertIs(UP, power_of(fakes.vm(), vmi))

    def test_missing_pvc_that_appears(self):
        """virt-controller removes the condition after the phase changes,
        unless the pod is unschedulable, too.
        """
        vmi = fakes.vmi('Scheduling', conditions=[{
            **fakes.condition('PodScheduled', 'False', 'Unschedulable'),
            'lastTransitionTime': None}])
        vmi['metadata']['creationTimestamp'] = timestamp(60)
        for seconds_ago, state in (1, UP), (20, OFF):
            vmi['status']['phaseTransitionTimestamps'] = [
                {'phase': phase, 'phaseTransitionTimestamp': timestamp(ago)}
                for phase, ago in (('Pending', 60),
                                   ('Scheduling', seconds_ago))]
            self.assertIs(state, power_of(
                fakes.vm(), trim.vmi(copy.deepcopy(vmi))))

    def test_vm_whose_vmi_cannot_be_created(self):
        failure = fakes.condition('Failure', 'True', 'FailedCreate',
                                  'no such instance type')
        vm = fakes.vm('Always', conditions=[failure])
        self.assertEqual(
            power_state.Problem('FailedCreate', 'no such instance type'),
            problem_of(vm, None))
        self.assertIs(OFF, power_of(vm, None))

    def test_vm_without_requested_start_has_no_problem(self):
        failure = fakes.condition('Failure', 'True', 'FailedCreate', 'x')
        for strategy in ('Halted', 'Manual', 'RerunOnFailure'):
            vm = fakes.vm(strategy, conditions=[failure],
                          printableStatus='CrashLoopBackOff')
            self.assertIsNone(problem_of(vm, None), strategy)

    def test_crash_loop(self):
        vm = fakes.vm('RerunOnFailure', requests=[fakes.START],
                      printableStatus='CrashLoopBackOff',
                      startFailure={'consecutiveFailCount': 3})
        problem = problem_of(vm, None)
        self.assertEqual('CrashLoopBackOff', problem.reason)
        self.assertIn('consecutive failures: 3', problem.message)
        self.assertIs(OFF, power_of(vm, None))

    def test_reconcile_error(self):
        failure = {**fakes.condition('Failure', 'True', 'HotPlugVolumeError',
                                     'no such volume'),
                   'lastTransitionTime': timestamp(1)}
        vm = fakes.vm('Manual', conditions=[failure])
        self.assertIsNone(power_state.reconcile_error(vm))
        failure['lastTransitionTime'] = timestamp(20)
        self.assertEqual(
            power_state.Problem('HotPlugVolumeError', 'no such volume'),
            power_state.reconcile_error(vm))
        self.assertIsNone(problem_of(vm, fakes.vmi()))
        self.assertIs(ON, power_of(vm, fakes.vmi()))
        self.assertIsNone(power_state.reconcile_error(fakes.vm()))

    def test_failed_start_that_is_not_repeated(self):
        error = fakes.condition('Synchronized', 'False', SYNC_FAILED,
                                'secure boot is not supported')
        for strategy in 'Manual', 'Once':
            for conditions, message in (
                    ([error], 'secure boot is not supported'),
                    ([], 'The VMI ended before its guest ran')):
                vm = fakes.vm(strategy, printableStatus='CrashLoopBackOff',
                              startFailure={'consecutiveFailCount': 1})
                vmi = fakes.vmi('Failed', conditions=conditions)
                self.assertEqual(power_state.Problem('StartFailed', message),
                                 problem_of(vm, vmi))
                self.assertIs(OFF, power_of(vm, vmi))
                self.assertIs(UP, power_of(
                    fakes.vm('Manual', requests=[fakes.STOP, fakes.START]),
                    vmi))
                vmi['metadata']['deletionTimestamp'] = timestamp(1)
                self.assertIsNone(problem_of(
                    fakes.vm('Manual'), vmi))
        ran = fakes.vmi('Failed', conditions=[error])
        ran['status']['phaseTransitionTimestamps'] = [
            {'phase': 'Running', 'phaseTransitionTimestamp': timestamp(9)}]
        for vm, vmi in ((fakes.vm('Manual'), ran),
                        (fakes.vm('Manual'), fakes.vmi('Succeeded')),
                        (fakes.vm('Halted'), fakes.vmi('Failed'))):
            self.assertIsNone(problem_of(vm, vmi))

    def test_data_volume_error(self):
        vm = fakes.vm('Always', printableStatus='DataVolumeError')
        self.assertEqual(
            'DataVolumeError',
            problem_of(vm, None).reason)
        # KubeVirt reports only that a DataVolume is not ready.
        self.assertIn('datavolumes', problem_of(vm, None).message)

    def test_volumes_that_need_recovery(self):
        """KubeVirt then prints ``Stopped`` and creates no VMI."""
        cause = 'VMI was removed or was final during the volume migration'
        recovery = {**fakes.condition('ManualRecoveryRequired', 'True',
                                      cause), 'lastTransitionTime': None}
        for vm in (fakes.vm('Always', conditions=[recovery]),
                   fakes.vm('Once', conditions=[recovery]),
                   fakes.vm('Manual', conditions=[recovery],
                            requests=[fakes.START])):
            vm['status']['printableStatus'] = 'Stopped'
            problem = problem_of(vm, None)
            self.assertEqual('ManualRecoveryRequired', problem.reason)
            self.assertIn(cause, problem.message)
            self.assertIs(OFF, power_of(vm, None))
        vm['status']['printableStatus'] = 'DataVolumeError'
        self.assertEqual('DataVolumeError',
                         problem_of(vm, None).reason)

    def test_status_of_previous_vmi_is_ignored(self):
        vm = fakes.vm('Always', printableStatus='ErrorUnschedulable')
        self.assertIsNone(problem_of(vm, None))
        self.assertIs(UP, power_of(vm, fakes.vmi('Scheduling')))
