# SPDX-License-Identifier: Apache-2.0
"""Application of plans, with failures and kills."""

import base64
import json
import threading

import fixtures
from oslotest import base

from sushy_kubevirt.cluster import apply
from sushy_kubevirt.cluster import model
from sushy_kubevirt.cluster import plan
from sushy_kubevirt.cluster import readiness
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import stored_names
from tests.fixtures import steps
from tests.unit.cluster import memory
from tests.unit.cluster import nodes

LIMITS = apply.Limits(ready=60, gone=60, patience=0.1)
VMS, BMCS, SECRETS = 'virtualmachines', 'virtualmachinebmcs', 'secrets'
NETWORKS = 'network-attachment-definitions'
EPHEMERAL = (model.Volume('1G', ephemeral=True),)


class ApplyTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.api = memory.Memory()
        self.api.controller = nodes.ready
        self.progress = steps.Steps()

    def cluster(self, count=2, **more):
        more.setdefault('volumes', EPHEMERAL)
        return nodes.cluster(count, **more)

    def run_plan(self, made, limits=LIMITS, **more):
        return apply.run(self.api, made, self.progress, limits, **more)

    def apply(self, cluster, **more):
        return self.run_plan(plan.make(self.api, cluster, 'space'), **more)

    def teardown(self):
        return plan.make(self.api, model.Cluster('tenks'), 'space')

    def when(self, step, text, function):
        """Call a function when a step of a node is reported."""
        class Watching(steps.Steps):
            def step(self, *words):
                super().step(*words)
                if words[1] == step and words[2].startswith(text):
                    function()

        self.progress = Watching()

    def steps(self, subject):
        return [(step, text.partition(': ')[0])
                for name, step, text in self.progress if name == subject]

    def password(self, node):
        data = self.api.find(SECRETS, node + '-bmc')['data']
        return base64.b64decode(data['password']).decode()

    def test_create(self):
        result = self.apply(self.cluster())
        self.assertEqual(['tk0', 'tk1'], sorted(result.ready))
        self.assertEqual(['tk0', 'tk1'], self.api.names(VMS))
        self.assertEqual(['tk0', 'tk1'], self.api.names(BMCS))
        self.assertEqual(
            [('secret', 'started'), ('secret', 'done'), ('vm', 'started'),
             ('bmc', 'started'), ('vm', 'done'), ('volumes', 'done'),
             ('bmc', 'done')], self.steps('tk0'))
        self.assertNotIn(self.password('tk0'), repr(self.progress))

    def test_unchanged_cluster_is_only_read(self):
        self.apply(self.cluster())
        self.api.calls.clear()
        self.progress.clear()
        result = self.apply(self.cluster())
        self.assertEqual(['tk0', 'tk1'], sorted(result.ready))
        self.assertEqual([], self.api.writes)
        self.assertEqual([], self.progress)
        self.assertEqual({'list', 'watch'},
                         {one[0] for one in self.api.calls})

    def test_recreate_waits_until_the_vm_is_gone(self):
        self.apply(self.cluster(1))
        vm = self.api.find(VMS, 'tk0')
        vm['metadata']['finalizers'] = ['x']
        password = self.password('tk0')

        def finish():
            with self.api._lock:
                self.api._publish('DELETED', VMS, 'tk0')
                del self.api.objects[VMS, 'tk0']

        self.when('vm', 'started', lambda: threading.Timer(
            0.2, finish).start())
        result = self.apply(self.cluster(1, vcpus=2))
        self.assertEqual(['tk0'], result.ready)
        new = self.api.find(VMS, 'tk0')
        self.assertNotEqual(vm['metadata']['uid'], new['metadata']['uid'])
        self.assertEqual(password, self.password('tk0'))

    def test_vm_is_kept_if_it_must_not_be_removed(self):
        self.apply(self.cluster(2))
        result = self.apply(self.cluster(1), kept={
            'tk1': 'tk1 has an instance'})
        self.assertEqual({'tk1': 'tk1 has an instance'}, result.failed)
        self.assertEqual(['tk0', 'tk1'], self.api.names(VMS))

    def test_scale_down_and_rotate(self):
        self.apply(self.cluster(3))
        password = self.password('tk0')
        self.progress.clear()
        result = self.apply(self.cluster(1, more={'credentials': 7}))
        self.assertEqual(['tk1', 'tk2'], sorted(result.removed))
        self.assertEqual(['tk0'], result.ready)
        self.assertEqual(3, len(self.api.objects))
        self.assertNotEqual(password, self.password('tk0'))
        self.assertNotIn(self.password('tk0'), repr(self.progress))

    def test_bmc_is_deleted_before_its_vm(self):
        self.apply(self.cluster(1))
        self.api.calls.clear()
        result = self.run_plan(self.teardown())
        self.assertEqual([BMCS, VMS, SECRETS],
                         [one[1] for one in self.api.writes])
        self.assertEqual(['tk0'], result.removed)
        self.assertEqual({}, self.api.objects)

    def test_failing_node_does_not_stop_others(self):
        reason = 'exceeded quota: vms, requested: count=1, used: 1'
        self.api.refuse = lambda verb, plural, name: (
            errors.Rejected(reason) if (verb, plural, name)
            == ('create', VMS, 'tk0') else None)
        result = self.apply(self.cluster(3))
        self.assertEqual({'tk0': reason}, result.failed)
        self.assertEqual(['tk1', 'tk2'], sorted(result.ready))
        self.assertIn(('vm', 'failed'), self.steps('tk0'))

    def test_unschedulable_vm_is_reported_in_the_schedulers_words(self):
        reason = '0/3 nodes are available: 3 Insufficient memory.'

        def controller(obj):
            nodes.ready(obj)
            if obj['metadata']['name'] == 'tk0' and obj['kind'] == (
                    'VirtualMachine'):
                obj['status'] = {'printableStatus': 'ErrorUnschedulable',
                                 'conditions': [nodes.condition(
                                     'PodScheduled', 'False', 'Unschedulable',
                                     reason)]}

        self.api.controller = controller
        result = self.apply(self.cluster(2))
        self.assertEqual(['tk1'], result.ready)
        self.assertEqual(
            {'tk0': f'VirtualMachine tk0: Unschedulable: {reason}'},
            result.failed)
        self.assertIn(('vm', 'waiting'), self.steps('tk0'))

    def test_unschedulable_bmc_is_reported_in_the_schedulers_words(self):
        self.useFixture(fixtures.MockPatch(
            'sushy_kubevirt.cluster.apply.POD_SECONDS', 0.2))
        reason = '0/3 nodes are available: 3 Too many pods.'
        self.api.controller = lambda obj: nodes.ready(obj) if obj[
            'metadata']['name'] != 'tk0' or obj['kind'] == (
                'VirtualMachine') else None
        self.api.objects['pods', 'tk0-virtbmc-x'] = {
            'metadata': {'name': 'tk0-virtbmc-x', 'resourceVersion': '1',
                         'labels': {stored_names.BMC_NAME: 'tk0'}},
            'status': {'conditions': [nodes.condition(
                'PodScheduled', 'False', 'Unschedulable', reason)]}}
        result = self.apply(self.cluster(2))
        self.assertEqual(['tk1'], result.ready)
        self.assertEqual(
            {'tk0': f'Pod tk0-virtbmc-x: Unschedulable: {reason}'},
            result.failed)

    def test_problems_that_may_pass_are_waited_for(self):
        def controller(obj):
            nodes.ready(obj)
            if obj['kind'] == 'VirtualMachineBMC':
                obj['status'] = {'conditions': [nodes.condition(
                    'Ready', 'False', 'EmulatorStarting', 'starting')]}

        self.api.controller = controller
        self.when('bmc', 'waiting', lambda: self.api.change(
            BMCS, 'tk0', nodes.ready))
        result = self.apply(self.cluster(1))
        self.assertEqual(['tk0'], result.ready)
        self.assertIn(('bmc', 'waiting'), self.steps('tk0'))

    def test_changed_bmc_is_waited_for_even_if_the_watch_lags(self):
        self.apply(self.cluster(1))
        self.api.controller = None
        publish = self.api._publish

        def late(event, plural, name):
            if plural != BMCS:
                return publish(event, plural, name)
            threading.Timer(0.3, deliver, (event, plural, name)).start()

        def deliver(*event):
            publish(*event)
            threading.Timer(0.3, finish).start()

        def finish():
            self.api._publish = publish
            finished.append(True)
            self.api.change(BMCS, 'tk0', nodes.ready)

        self.api._publish = late
        # The old status, as of generation 1.
        self.api.controller = lambda obj: obj.update(
            status=old) if obj['kind'] == 'VirtualMachineBMC' else None
        old = self.api.find(BMCS, 'tk0')['status']
        finished = []
        result = self.apply(self.cluster(1, bmc={'ipmi': {}}))
        self.assertEqual(['tk0'], result.ready)
        self.assertEqual([True], finished)

    def test_node_that_is_never_ready(self):
        self.api.controller = None
        result = self.apply(self.cluster(1), limits=apply.Limits(
            ready=0.3, gone=0.3))
        self.assertEqual({
            'tk0': 'Step vm has not been done in 0.3 s. Check that '
            'virt-controller of KubeVirt runs'}, result.failed)

    def test_volumes_are_waited_for(self):
        self.api.objects['datavolumes', 'tk0vol0'] = {
            'kind': 'DataVolume', 'metadata': {
                'name': 'tk0vol0', 'resourceVersion': '1', 'uid': 'x',
                'labels': {**self.labels('tk0')}},
            'status': {'phase': 'ImportInProgress', 'conditions': [
                nodes.condition('Running', 'False', 'Error',
                                'server gave 404')]}}
        self.when('volumes', 'waiting', lambda: self.api.change(
            'datavolumes', 'tk0vol0', lambda one: one['status'].update(
                phase='Succeeded')))
        result = self.apply(self.cluster(1, volumes=(nodes.VOLUME,)))
        self.assertEqual(['tk0'], result.ready)
        self.assertIn(('tk0', 'volumes', 'waiting: DataVolume tk0vol0: Error: '
                       'server gave 404'), self.progress)

    def test_reason_of_a_failing_import(self):
        """It is the DataVolume's; KubeVirt's says no more than that."""
        volume = {
            'metadata': {'name': 'tk0vol0'},
            'status': {'phase': 'ImportInProgress', 'conditions': [
                nodes.condition('Running', 'False', 'Error',
                                'server gave 404')]}}
        vm = {'kind': 'VirtualMachine', 'metadata': {'name': 'tk0'},
              'spec': {'dataVolumeTemplates': [volume]},
              'status': {'printableStatus': 'DataVolumeError'}}
        for found, reason in (
                ({'tk0vol0': volume},
                 'DataVolume tk0vol0: Error: server gave 404'),
                ({}, 'VirtualMachine tk0: DataVolumeError')):
            state = readiness.of_node(vm, found, None)
            self.assertEqual(((readiness.Step.VM,), reason),
                             (state.done, state.problem))

    def labels(self, node):
        made = plan.make(self.api, self.cluster(1), 'space')
        return next(one.body['metadata']['labels'] for one in made.wanted
                    if one.node == node)

    def test_empty_drive_is_left_out_where_kubevirt_refuses_it(self):
        def refuse(verb, plural, name):
            if verb == 'create' and plural == VMS and not refused:
                refused.append(name)
                return errors.Rejected('cannot define an empty CD-ROM disk')

        refused = []
        self.api.refuse = refuse
        self.assertEqual(['tk0'], self.apply(self.cluster(1)).ready)
        self.assertNotIn('cdrom', json.dumps(self.api.find(VMS, 'tk0')))
        self.assertFalse(plan.make(self.api, self.cluster(1), 'space'))

    def test_lost_answer_to_a_write(self):
        create = self.api.create

        def lossy(resource, *args, **more):
            made = create(resource, *args, **more)
            if resource.plural not in lost:
                lost.add(resource.plural)
                raise errors.ConnectionLost('lost', maybe_done=True)
            return made

        lost = set()
        self.api.create = lossy
        self.assertEqual(['tk0'], self.apply(self.cluster(1)).ready)
        self.assertEqual(3, len(lost))

    def test_name_that_is_taken_meanwhile(self):
        made = plan.make(self.api, self.cluster(1), 'space')
        self.apply(self.cluster(1, name='other'))
        before = json.dumps(self.api.objects.get((VMS, 'tk0')))
        result = self.run_plan(made)
        self.assertIn('created by another client', result.failed['tk0'])
        self.assertEqual(before, json.dumps(self.api.find(VMS, 'tk0')))

    def test_conflicts(self):
        """One that passes is repeated; another object is left alone."""
        self.apply(self.cluster(1))
        made = plan.make(self.api, self.cluster(0), 'space')
        refused = []

        def refuse(verb, plural, name):
            if verb == 'delete' and plural not in refused:
                refused.append(plural)
                return errors.Conflict('busy')
        self.api.refuse = refuse
        self.api.change(VMS, 'tk0', lambda vm: vm['metadata'].update(
            uid='another'))
        result = self.run_plan(made)
        self.assertIn('run it again', result.failed['tk0'])
        self.assertEqual(['tk0'], self.api.names(VMS))
        self.assertEqual([], self.api.names('virtualmachinebmcs'))

    def test_nodes_of_a_network_that_cannot_be_created(self):
        """They are not made: their VMs could not start."""
        lan = model.Network('lan', 'tenks-lan', {'type': 'bridge'})

        def refuse(verb, plural, name):
            if verb == 'create' and name == 'tenks-lan':
                return errors.AccessDenied('no right')
        self.api.refuse = refuse
        result = self.apply(self.cluster(2, networks=(lan,)))
        self.assertEqual({'tenks-lan': 'no right', 'tk0': 'tenks-lan: no '
                          'right', 'tk1': 'tenks-lan: no right'},
                         result.failed)
        self.assertEqual([], self.api.names(VMS))

    def test_network_of_a_vm_that_remains(self):
        """It is not deleted before the VM."""
        lan = model.Network('lan', 'tenks-lan', {'type': 'bridge'})
        self.apply(self.cluster(1, networks=(lan,)))
        for wanted in (self.cluster(0, networks=()),
                       self.cluster(1, networks=())):
            self.apply(wanted, kept={'tk0': 'still in Ironic'})
            self.assertEqual(['tenks-lan'], self.api.names(NETWORKS))
        self.apply(self.cluster(0, networks=()))
        self.assertEqual({}, self.api.objects)

    def test_killed_at_each_write(self):
        """Every later run completes what the killed one has begun."""
        lan = model.Network('lan', 'tenks-lan', {'type': 'bridge'})
        start = self.cluster(3, networks=(lan,))
        change = self.cluster(2, networks=(nodes.POD,), vcpus=2,
                              more={'credentials': 1})
        for wanted in start, change, None:
            for writes in range(30):
                self.api.kill_after = len(self.api.writes) + writes
                try:
                    self._one(wanted)
                    killed = False
                except memory.Killed:
                    killed = True
                self.api.kill_after = None
                if not killed:
                    break
                if wanted is not None and writes % 2:
                    # Complete it, then begin again from before.
                    self._one(wanted)
                    self.assertFalse(plan.make(self.api, wanted, 'space'))
                    self._one(None)
                    if wanted is change:
                        self._one(start)
            else:
                self.fail('not one run was complete')
            if wanted is not None:
                self.assertFalse(plan.make(self.api, wanted, 'space'))
        self.assertEqual({}, self.api.objects)

    def _one(self, wanted):
        made = (self.teardown() if wanted is None
                else plan.make(self.api, wanted, 'space'))
        result = self.run_plan(made, workers=1)
        self.assertEqual({}, result.failed)
