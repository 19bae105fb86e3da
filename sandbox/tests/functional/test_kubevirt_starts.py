# SPDX-License-Identifier: Apache-2.0
"""KubeVirt: VMIs that end before their guest runs, and what clients may do."""

import time

from kubevirt_sandbox.testing import sandbox
from tests.functional import kubevirt

_GENERATION = '/metadata/annotations/kubevirt.io~1vm-generation'


class _StartsTestCase(kubevirt.KubeVirtTestCase):

    def starting(self, run, change=None):
        """Create a VM and wait for its VMI; return its name and the uid."""
        name = self.make(run, change)
        if run == 'Manual':
            self.cluster.do(name, 'start')
        vmi = self.wait_vmi(name, bool)
        # A stop of a VMI that the VM's status does not show is dropped.
        self.wait_vm(name, lambda vm: vm['status'].get('created'))
        return name, vmi['metadata']['uid']

    def patch_status(self, name, *operations):
        self.cluster.request(
            'PATCH', sandbox.path('virtualmachines', name) + '/status',
            list(operations), content_type=sandbox.JSON_PATCH, expect=200)

    def next_vmi(self, name, uid):
        return self.wait_vmi(name, lambda vmi: (
            vmi is not None and vmi['metadata']['uid'] != uid))


class StartingTest(_StartsTestCase):

    # Longer than a test takes to restart a VM that has just got its VMI.
    BOOT_SECONDS = 8

    def test_restart_before_guest_runs_delays_next_start(self):
        for run in ('Always', 'RerunOnFailure'):
            name, uid = self.starting(run)
            self.cluster.do(name, 'restart')
            vm = self.wait_word(name, 'CrashLoopBackOff')
            self.assertEqual(uid, vm['status']['startFailure'][
                'lastFailedVMIUID'])
            self.wait_vmi(name, lambda vmi: vmi is None)
            # The start is not delayed any more.
            begun = time.monotonic()
            self.patch_status(name, {'op': 'remove',
                                     'path': '/status/startFailure'})
            self.next_vmi(name, uid)
            self.assertLess(time.monotonic() - begun, 8)

    def test_restart_under_manual_is_no_failure(self):
        for run in ('Always', 'RerunOnFailure', 'Once', 'Manual'):
            name, uid = self.starting(run)
            self.cluster.patch('virtualmachines', name, {
                'spec': {'runStrategy': 'Manual'}})
            begun = time.monotonic()
            self.cluster.do(name, 'restart')
            self.next_vmi(name, uid)
            self.assertLess(time.monotonic() - begun, 8)
            # The VMI remains when the run strategy is restored.
            self.cluster.patch('virtualmachines', name, {
                'spec': {'runStrategy': run}})
            self.uid(name)
            self.assertNotIn('startFailure', self.cluster.vm(name)['status'])
            self.assertEqual(run, self.cluster.vm(name)['spec'][
                'runStrategy'])


class RunningTest(_StartsTestCase):

    def test_stop_without_uid_is_removed_and_has_no_effect(self):
        off, (on, uid) = self.make(), self.make_running()
        self.wait_word(off, 'Stopped')
        for name in (off, on):
            self.patch_status(name, {
                'op': 'add', 'path': '/status/stateChangeRequests',
                'value': [{'action': 'Stop'}]})
            self.wait_vm(name, lambda vm: not vm['status'].get(
                'stateChangeRequests'))
        self.assertIsNone(self.cluster.vmi(off))
        vmi = self.cluster.vmi(on)
        self.assertEqual(uid, vmi['metadata']['uid'])
        self.assertNotIn('deletionTimestamp', vmi['metadata'])

    def test_observed_generation_is_that_of_the_vmi(self):
        name, _ = self.make_running()
        vm = self.cluster.patch('virtualmachines', name, [{
            'op': 'add', 'path': kubevirt.CARDS + '/0/bootOrder',
            'value': 2}])
        generation = vm['metadata']['generation']
        vm = self.wait_vm(name, lambda vm: vm['status'].get(
            'desiredGeneration') == generation)
        self.assertLess(vm['status']['observedGeneration'], generation)
        # Clients may change that annotation.
        self.cluster.patch('virtualmachineinstances', name, [{
            'op': 'replace', 'path': _GENERATION, 'value': str(generation)}])
        self.wait_vm(name, lambda vm: vm['status'][
            'observedGeneration'] == generation)
        self.assertEqual('True', self.state(self.cluster.vm(name),
                                            'RestartRequired'))
