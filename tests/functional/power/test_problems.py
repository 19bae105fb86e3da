# SPDX-License-Identifier: Apache-2.0
"""Power actions on machines that cannot run, or not go on."""

import json

import fixtures

from kubevirt_sandbox.testing import given_cluster
from kubevirt_sandbox.testing import kubectl
from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import power_state
from tests.fixtures import machine_case
from tests.fixtures import power_history

R = power_state.ResetType
ON, OFF = power_state.PowerState.ON, power_state.PowerState.OFF
UP = power_state.PowerState.POWERING_ON


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
        hasty = self.handle(self.bmc(write_deadline=4), name)
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
        for strategy in machine_case.STRATEGIES:
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
        # The watches may show it later.
        self.assertTrue(machine.wait(
            lambda state: power_state.of(state) is OFF
            and power_state.problem(state) is None, 15), machine.state())
        self.assertIsNone(machine.problem())

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
        # Longer than the test may pause.
        self.useFixture(fixtures.MonkeyPatch(
            'sushy_kubevirt.machine.power_state.GRACE_SECONDS', 60))
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
