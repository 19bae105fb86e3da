# SPDX-License-Identifier: Apache-2.0

from unittest import mock

from oslotest import base

from kubevirt_sandbox.kubevirt import conditions
from kubevirt_sandbox.kubevirt import samples
from kubevirt_sandbox.kubevirt import vm_status
from tests.unit.kubevirt import objects


class VmStatusTest(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.vm = samples.sample_vm('one')
        self.vm['metadata'].update(uid='vm-1', generation=3)
        self.store = mock.Mock()
        self.store.find.return_value = None
        self.store.kinds.of_object.return_value = None

    def _update(self, vmi, strategy='Always', failure=None):
        vm_status.update(self.vm, vmi, strategy, failure, self.store)
        return self.vm['status']

    def _vmi(self, phase='Running', *found, **meta):
        vmi = objects.vmi(phase=phase)
        vmi['metadata'].update(meta)
        for condition in found:
            conditions.put(vmi, *condition)
        return vmi

    def test_printable_status(self):
        for vmi, strategy, word in (
                (None, 'Halted', 'Stopped'),
                (self._vmi('Pending'), 'Always', 'Starting'),
                (self._vmi('Scheduled'), 'Always', 'Starting'),
                (self._vmi('Running'), 'Always', 'Running'),
                (self._vmi('Running', ('Paused', True)), 'Always',
                 'Paused'),
                (self._vmi('Running', deletionTimestamp='now'), 'Halted',
                 'Stopping'),
                (self._vmi('Succeeded', deletionTimestamp='now'), 'Halted',
                 'Stopped'),
                (self._vmi('Succeeded'), 'Manual', 'Stopped'),
                (self._vmi('Pending', (
                    'Synchronized', False, 'FailedPvcNotFound')), 'Always',
                 'ErrorPvcNotFound'),
                (self._vmi('Scheduling', (
                    'PodScheduled', False, 'Unschedulable')), 'Always',
                 'ErrorUnschedulable'),
                (self._vmi('Scheduling', (
                    'Synchronized', False, 'ErrImagePull')), 'Always',
                 'ErrImagePull'),
                (self._vmi('Scheduling', (
                    'Synchronized', False, 'ImagePullBackOff')), 'Always',
                 'ImagePullBackOff')):
            self.assertEqual(word, self._update(vmi, strategy)[
                'printableStatus'])
        self.vm['metadata']['deletionTimestamp'] = 'now'
        self.assertEqual('Terminating',
                         self._update(None)['printableStatus'])

    def test_states_that_hold_together(self):
        missing = 'Synchronized', False, 'FailedPvcNotFound'
        unschedulable = 'PodScheduled', False, 'Unschedulable'
        for found, word in (
                ((missing, unschedulable), 'ErrorPvcNotFound'),
                ((unschedulable, ('Synchronized', False, 'ErrImagePull')),
                 'ErrorUnschedulable'),
                ((unschedulable, ('Synchronized', False, 'FailedCreate')),
                 'ErrorUnschedulable')):
            for order in (1, -1):
                self.assertEqual(word, self._update(
                    self._vmi('Scheduling', *found[::order]), 'Always')[
                        'printableStatus'])

    def test_start_request_ends_when_vmi_exists(self):
        self.vm['status'] = {'stateChangeRequests': [{'action': 'Start'}]}
        for vmi in (None, self._vmi('Succeeded'),
                    self._vmi('Running', deletionTimestamp='now')):
            self.assertEqual([{'action': 'Start'}],
                             self._update(vmi)['stateChangeRequests'])
        self.assertNotIn('stateChangeRequests',
                         self._update(self._vmi('Pending')))

    def test_stop_request_ends_when_its_vmi_is_gone(self):
        stop = {'action': 'Stop', 'uid': 'uid-1'}
        start = {'action': 'Start'}
        self.vm['status'] = {'stateChangeRequests': [stop, start]}
        self._update(self._vmi())
        self.assertEqual([stop, start],
                         self.vm['status']['stateChangeRequests'])
        self._update(None)
        self.assertEqual([start], self.vm['status']['stateChangeRequests'])
        self.vm['status']['stateChangeRequests'] = [stop, start]
        other = objects.vmi(uid='uid-2', phase='Pending')
        self._update(other)
        self.assertEqual([start], self.vm['status']['stateChangeRequests'])

    def test_run_strategy_is_recorded_after_first_vmi(self):
        self.assertNotIn('runStrategy', self._update(None, 'Halted'))
        self.assertEqual('Manual', self._update(self._vmi(), 'Manual')[
            'runStrategy'])
        self.assertEqual('Halted', self._update(None, 'Halted')[
            'runStrategy'])

    def test_observed_and_desired_generation(self):
        status = self._update(self._vmi(annotations={
            'kubevirt.io/vm-generation': '2'}))
        self.assertEqual((2, 3), (status['observedGeneration'],
                                  status['desiredGeneration']))

    def test_conditions_follow_the_vmi(self):
        self._update(self._vmi('Running', ('Ready', True), ('Paused', True)))
        self.assertTrue(conditions.is_true(self.vm, 'Paused'))
        self.assertTrue(self.vm['status']['ready'])
        self._update(self._vmi('Running', ('Ready', True)))
        self.assertIsNone(conditions.find(self.vm, 'Paused'))
        vm_status.require_restart(self.vm, 'why')
        self._update(None, failure=('FailedCreate', 'because'))
        self.assertEqual('VMINotExists',
                         conditions.find(self.vm, 'Ready')['reason'])
        self.assertEqual('because',
                         conditions.find(self.vm, 'Failure')['message'])
        self.assertTrue(conditions.is_true(self.vm, 'RestartRequired'))
        self._update(None)
        self.assertIsNone(conditions.find(self.vm, 'Failure'))

    def test_counts_each_failed_start_once(self):
        for uid, count in (('a', 1), ('a', 1), ('b', 2)):
            failed = objects.vmi(uid=uid, phase='Failed')
            status = self._update(failed)
            self.assertEqual(
                count, status['startFailure']['consecutiveFailCount'])
        self.assertEqual('CrashLoopBackOff', status['printableStatus'])
        left = vm_status.seconds_left(self.vm)
        self.assertTrue(39 <= left <= 61, left)
        ran = objects.vmi(uid='c')
        ran['status']['phaseTransitionTimestamps'] = [{'phase': 'Running'}]
        self.assertNotIn('startFailure', self._update(ran))
        self.assertEqual(0, vm_status.seconds_left(self.vm))
