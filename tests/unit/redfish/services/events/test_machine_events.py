# SPDX-License-Identifier: Apache-2.0
"""Events from the states of watches, in any order."""

import copy

import fixtures
from oslotest import base

from kubevirt_sandbox.testing import machines
from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine import boot_overrides
from sushy_kubevirt.machine import media
from sushy_kubevirt.machine import vm_state
from sushy_kubevirt.redfish.services.events import filters
from sushy_kubevirt.redfish.services.events import machine_events
from tests.unit.machine import api


class Machine:

    def __init__(self, vm, cluster=None):
        self.cluster = cluster or Cluster()
        self.namespace = vm['metadata']['namespace']
        self.name = vm['metadata']['name']
        self.uid = vm['metadata']['uid']
        self.uuid = self.uid

    @property
    def qualified_name(self):
        return f'{self.namespace}/{self.name}'


class Media:

    def subscribe(self, callback):
        self.callback = callback


class Cluster:

    vm = None

    def __init__(self, *vms):
        self.vms = vms
        self.media = Media()

    def machines(self):
        return [Machine(vm) for vm in self.vms]

    def subscribe(self, callback):
        self.callback = callback
        for vm in self.vms:
            callback(Machine(vm), vm_state.VmState(vm))


def new_vm(name='vm', uid='u-1'):
    vm = machines.vm(name, 'Manual')
    vm['metadata'].update(uid=uid, resourceVersion='1', generation=1)
    vm['status'] = {'printableStatus': 'Stopped', 'observedGeneration': 1}
    return vm


class MachineEventsTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.useFixture(
            fixtures.MonkeyPatch(
                'sushy_kubevirt.redfish.services.events'
                '.machine_events.VMI_WAIT_SECONDS',
                0,
            )
        )
        self.emitted = []
        self.later = []
        self.allowed = True
        self.vm = new_vm()
        self.cluster = Cluster(self.vm)
        self.events = machine_events.MachineEvents(
            self.cluster, lambda machine: self.allowed, self.emitted.append,
            lambda *call: self.later.append(call))
        self.events.start()

    def see(self, vm, vmi=None, machine=None):
        self.cluster.callback(
            machine or Machine(vm), vm and vm_state.VmState(vm, vmi))

    def keys(self):
        found = [record.key for record in self.emitted]
        del self.emitted[:]
        return found

    def running(self, vm, **more):
        vmi = api.vmi(vm, uid='vmi-1')
        vmi['spec'] = copy.deepcopy(vm['spec']['template']['spec'])
        vmi['metadata']['annotations'] = dict(
            vm['spec']['template']['metadata'].get('annotations') or {})
        vmi['status'].update(more)
        return vmi


class SingleVmTestCase(MachineEventsTestCase):

    def test_origin_is_canonical_and_selected_by_uuid(self):
        self.cluster.vm = ('default', 'vm')
        off = copy.deepcopy(self.vm)
        off['status']['printableStatus'] = 'Starting'
        self.see(off, machine=Machine(off, self.cluster))
        record, = self.emitted
        self.assertEqual('/redfish/v1/Systems/1', record.origin)
        for identity, selected in ('1', True), ('u-1', True), ('u-2', False):
            chosen = filters.Filter(
                origins=('/redfish/v1/Systems/' + identity,))
            self.assertEqual(selected, chosen.matches(record))


class MachinesTestCase(MachineEventsTestCase):

    def test_startup_creates_no_events(self):
        self.assertEqual([], self.keys())
        self.see(self.vm)
        self.assertEqual([], self.keys())

    def test_created_and_removed(self):
        other = new_vm('other', 'u-2')
        self.see(other)
        self.assertEqual(['ResourceCreated'], self.keys())
        self.see(None, machine=Machine(other))
        self.see(None, machine=Machine(other))
        self.assertEqual(['ResourceRemoved'], self.keys())

    def test_recreated_while_not_watched(self):
        self.see(new_vm(uid='u-2'))
        self.assertEqual(['ResourceRemoved', 'ResourceCreated'], self.keys())
        # A late event of the deleted VM is ignored.
        self.see(None, machine=Machine(self.vm))
        self.assertEqual([], self.keys())

    def test_ignores_disallowed_machines(self):
        self.allowed = False
        self.see(new_vm('secret', 'u-9'))
        self.assertEqual([], self.keys())

    def test_power_states(self):
        vm = copy.deepcopy(self.vm)

        vmi = self.running(vm)
        self.see(vm, vmi)
        [record] = self.emitted
        self.assertEqual(('ResourcePoweredOn', ('default/vm',), 'u-1'),
                         (record.key, record.args, record.uid))
        self.keys()
        self.see(vm, vmi)
        vmi['status']['conditions'] = [{'type': 'Paused', 'status': 'True'}]
        self.see(vm, vmi)
        self.assertEqual(['ResourcePaused'], self.keys())
        self.see(self.vm)
        self.assertEqual(['ResourcePoweredOff'], self.keys())

    def test_guest_that_does_not_work(self):
        vmi = self.running(self.vm)
        self.see(self.vm, vmi)
        failing = self.running(self.vm, conditions=[{
            'type': 'Paused', 'status': 'True', 'reason': 'PausedIOError',
            'message': 'low-level IO error detected'}])
        self.keys()
        self.see(self.vm, failing)
        record = self.emitted[-1]
        self.assertEqual(
            ('SystemImpaired', (
                'default/vm', 'PausedIOError',
                'low-level IO error detected')), (record.key, record.args))
        self.assertEqual(['ResourcePaused', 'SystemImpaired'], self.keys())
        self.see(self.vm, failing)
        self.assertEqual([], self.keys())
        self.see(self.vm, vmi)
        self.assertEqual(['ResourcePoweredOn', 'ResourceStatusChangedOK'],
                         self.keys())

    def test_stop_whose_request_is_gone_before_the_vmi_changes(self):
        """The watch of VMs is ahead of that of VMIs."""
        vmi = self.running(self.vm)
        self.see(self.vm, vmi)
        vm = copy.deepcopy(self.vm)
        vm['status'].update(created=True, stateChangeRequests=[
            {'action': 'Stop', 'uid': 'vmi-1'}])
        self.see(vm, vmi)
        self.see(self.vm, vmi)
        vmi['metadata']['resourceVersion'] = '2'
        self.see(self.vm, vmi)
        self.assertEqual(['ResourcePoweredOn', 'ResourcePoweringOff'],
                         self.keys())
        # A stop that was withdrawn.
        del vm['status']['stateChangeRequests']
        self.see(vm, vmi)
        self.assertEqual(['ResourcePoweredOn'], self.keys())

    def test_vmi_ends_before_status_of_its_start_changes(self):
        """The watch of VMIs is ahead of that of VMs."""
        vm = copy.deepcopy(self.vm)
        vm['status']['printableStatus'] = 'Starting'
        stopping = self.running(vm)
        stopping['metadata']['deletionTimestamp'] = '2026-01-01T00:00:00Z'
        self.see(vm, self.running(vm))
        self.see(vm, stopping)
        self.see(vm)
        self.see(self.vm)
        self.assertEqual(['ResourcePoweredOn', 'ResourcePoweringOff',
                          'ResourcePoweredOff'], self.keys())

    def test_off_by_a_problem_and_at_the_end_of_the_same_vmi(self):
        stuck = self.running(self.vm, phase='Scheduling', conditions=[{
            'type': 'PodScheduled', 'status': 'False',
            'reason': 'Unschedulable'}])
        starting = self.running(self.vm, phase='Scheduling')
        for vmi in starting, stuck, self.running(self.vm), None:
            self.see(self.vm, vmi)
        off = [record for record in self.emitted
               if record.key == 'ResourcePoweredOff']
        self.assertEqual(2, len({record.id for record in off}))


class BootTestCase(MachineEventsTestCase):

    def set_override_once(self):
        vm = copy.deepcopy(self.vm)
        boot_overrides.apply_once(
            vm, 'id-1', boot_overrides.boot_order.Target.PXE)
        vm['metadata']['generation'] = 2
        self.see(vm)
        self.assertEqual(['BootOverrideSet'], self.keys())
        return vm

    def without_override(self, vm):
        vm = copy.deepcopy(vm)
        boot_overrides.remove_overrides(vm)
        return vm

    def test_boot_override_consumed(self):
        vm = self.set_override_once()
        vmi = self.running(vm)
        self.see(vm, vmi)
        self.assertEqual(['BootOverrideConsumed', 'ResourcePoweredOn'],
                         sorted(self.keys()))
        self.see(self.without_override(vm), vmi)
        self.see(self.without_override(vm))
        self.events.report_removed_overrides()
        self.assertEqual(['ResourcePoweredOff'], self.keys())

    def test_vm_status_arrives_before_vmi(self):
        vm = self.set_override_once()
        vm['status']['observedGeneration'] = 2
        self.assertIs(boot.Enabled.DISABLED,
                      boot.settings(vm_state.VmState(vm)).enabled)
        self.see(vm)
        vmi = self.running(vm, phase='Scheduling')
        self.see(vm, vmi)
        self.assertEqual(['ResourcePoweringOn'], [
            key for key in self.keys()])
        self.see(vm, self.running(vm))
        self.assertEqual(['BootOverrideConsumed', 'ResourcePoweredOn'],
                         sorted(self.keys()))

    def test_consumed_by_unobserved_vmi(self):
        vm = self.set_override_once()
        vm['status']['observedGeneration'] = 2
        self.see(vm)
        self.see(self.without_override(vm))
        self.events.report_removed_overrides()
        self.assertEqual(['BootOverrideConsumed'], self.keys())

    def test_consumed_by_vmi_that_arrives_late(self):
        vm = self.set_override_once()
        self.see(self.without_override(vm))
        self.assertEqual([], self.keys())
        self.assertEqual([(self.events.report_removed_overrides, 0)],
                         self.later)
        self.see(self.without_override(vm), self.running(vm))
        self.assertIn('BootOverrideConsumed', self.keys())
        self.events.report_removed_overrides()
        self.assertEqual([], self.keys())

    def test_boot_override_removed(self):
        self.see(self.without_override(self.set_override_once()))
        self.events.report_removed_overrides()
        self.assertEqual(['BootOverrideRemoved'], self.keys())
        self.events.report_removed_overrides()
        self.assertEqual([], self.keys())

    def test_continuous_override(self):
        vm = copy.deepcopy(self.vm)
        boot_overrides.apply_continuous(vm, boot.Target.CD)
        self.see(vm)
        self.assertEqual(['BootOverrideSet'], self.keys())
        self.see(self.vm)
        self.assertEqual(['BootOverrideRemoved'], self.keys())


class MediaTestCase(MachineEventsTestCase):

    def medium(self, state=media.State.WAITING, url='http://x/a.iso',
               **more):
        return media.Medium(url, True, state, since='s', task='t',
                            data_volume='dv', **more)

    def change(self, old, new):
        self.cluster.media.callback(Machine(self.vm), 'Cd', old, new)
        return self.keys()

    def test_import_and_eject(self):
        waiting = self.medium()
        importing = self.medium(media.State.IMPORTING, progress=1.0)
        ready = self.medium(media.State.READY)
        self.assertEqual(['MediaInserted', 'TaskStarted'],
                         self.change(None, waiting))
        self.assertEqual([], self.change(waiting, importing))
        self.assertEqual(['MediaImported', 'TaskCompletedOK'],
                         self.change(importing, ready))
        self.assertEqual([], self.change(ready, ready))
        self.assertEqual(['MediaEjected'], self.change(ready, None))

    def test_medium_that_is_ready_at_once(self):
        self.assertEqual(
            ['MediaInserted', 'TaskStarted', 'MediaImported',
             'TaskCompletedOK'],
            self.change(None, self.medium(media.State.READY)))

    def test_replaced_medium(self):
        self.assertEqual(
            ['MediaEjected', 'MediaInserted', 'TaskStarted'],
            self.change(self.medium(media.State.READY),
                        self.medium(url='http://x/b.iso')))

    def test_failed_import(self):
        failed = self.medium(media.State.FAILED, reason='Error',
                             message='404')
        self.cluster.media.callback(Machine(self.vm), 'Cd', self.medium(),
                                    failed)
        [record, task] = self.emitted
        self.assertEqual('MediaImportFailed', record.key)
        self.assertIn('(Error): 404', record.text)
        self.assertEqual('TaskAborted', task.key)
        self.keys()
        again = self.medium(media.State.FAILED, reason='Error',
                            message='404 once more')
        self.assertEqual([], self.change(failed, again))

    def test_origin_and_url_without_query(self):
        medium = self.medium(url='http://x/a.iso?signature=s3cret')
        for device, end in (('Cd', '/VirtualMedia/Cd'), ('HttpBoot', '')):
            self.emitted.clear()
            self.cluster.media.callback(Machine(self.vm), device, None,
                                        medium)
            self.assertTrue(self.emitted[0].origin.endswith(
                self.emitted[0].origin.split('/')[4] + end))
            self.assertEqual('http://x/a.iso', self.emitted[0].args[1])

    def test_initial_media_cause_no_events(self):
        ready = self.medium(media.State.READY)
        self.assertEqual([], self.change(ready, ready))
