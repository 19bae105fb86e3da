# SPDX-License-Identifier: Apache-2.0
"""Watches of VMs and VMIs that deliver the same moment at different times."""

import copy
import datetime
import queue
import types
from unittest import mock

from oslotest import base

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.machine import options
from sushy_kubevirt.machine import power_state
from sushy_kubevirt.machine import vm_cache
from tests.unit.machine import fakes

KEY = ('default', 'node')


class CacheTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.cache = vm_cache.VmCache(None, options.Options())

    def vm(self, created=True, **status):
        made = fakes.vm(**status)
        if not created:
            # KubeVirt omits the field.
            del made['status']['created']
        return made

    def vmi(self, phase='Running', **kwargs):
        made = fakes.vmi(phase, **kwargs)
        made['metadata']['ownerReferences'] = [
            {'kind': 'VirtualMachine', 'uid': 'vm-uid', 'controller': True}]
        return made

    def deliver(self, version, obj, kind='MODIFIED'):
        obj = copy.deepcopy(obj)
        obj['metadata']['resourceVersion'] = str(version)
        source = types.SimpleNamespace(
            resource=api_resources.VM if 'runStrategy' in obj['spec']
            else api_resources.VMI)
        self.cache.event(source, kind, obj)


class FailedStartTestCase(CacheTestCase):

    def test_notifies_when_a_failed_start_becomes_a_problem(self):
        self.cache._watchers = []
        self.cache.start()
        self.addCleanup(self.cache.close)
        self.cache.changed()
        problems = queue.SimpleQueue()
        failed = {**fakes.condition('PodScheduled', 'False', 'Unschedulable'),
                  'lastTransitionTime': datetime.datetime.now(
                      datetime.timezone.utc).isoformat()}
        with mock.patch.object(power_state, 'GRACE_SECONDS', 3):
            self.deliver(11, self.vm())
            self.deliver(12, self.vmi('Scheduling', conditions=[failed]))
            self.cache.subscribe(lambda key, state: problems.put(
                power_state.problem(state)))
            self.assertIsNone(problems.get(timeout=10))
            self.assertEqual('ErrorUnschedulable',
                             problems.get(timeout=10).reason)


class StoppedTestCase(CacheTestCase):
    """The VM's status ceases to count a VMI whose end is not delivered yet.
    """

    def setUp(self):
        super().setUp()
        self.deliver(11, self.vm())
        self.deliver(12, self.vmi())

    def state(self):
        return power_state.of(self.cache.state(KEY))

    def test_stop(self):
        self.assertIs(power_state.PowerState.ON, self.state())
        self.deliver(15, self.vm(created=False))
        for version, kind in ((13, 'MODIFIED'), (14, 'DELETED')):
            state = self.cache.state(KEY)
            self.assertIsNone(state.vmi)
            self.assertTrue(state.vmi_gone)
            self.assertIs(power_state.PowerState.OFF, self.state())
            self.deliver(version, self.vmi(deleting=True), kind)
        self.assertIs(power_state.PowerState.OFF, self.state())

    def test_next_vmi(self):
        self.deliver(15, self.vm(created=False))
        self.deliver(16, self.vmi(uid='u1'))
        self.assertEqual('u1', self.cache.state(KEY).vmi['metadata']['uid'])
        self.assertIs(power_state.PowerState.ON, self.state())

    def test_vmi_that_changes_after_that(self):
        self.deliver(15, self.vm(created=False))
        self.deliver(16, self.vmi())
        self.assertIs(power_state.PowerState.ON, self.state())

    def test_start_of_the_next_vmi_is_delivered_before_it(self):
        self.deliver(15, self.vm(created=False))
        self.deliver(16, self.vm(created=False, requests=[fakes.START]))
        for version, status in (17, 'Starting'), (18, 'Running'):
            self.deliver(version, self.vm(printableStatus=status))
            self.assertIsNone(self.cache.state(KEY).vmi)
            self.assertIs(power_state.PowerState.POWERING_ON, self.state())
        self.deliver(14, self.vmi(deleting=True), 'DELETED')
        self.assertIs(power_state.PowerState.POWERING_ON, self.state())
        self.deliver(19, self.vmi(uid='u1'))
        self.assertIs(power_state.PowerState.ON, self.state())

    def test_start_that_is_counted_after_an_update_of_the_vm(self):
        """virt-controller creates a VMI, writes the VM's status as it was
        before that, and counts the VMI in its next turn.
        """
        self.deliver(14, self.vmi(deleting=True), 'DELETED')
        self.deliver(15, self.vmi('', uid='u1'))
        self.deliver(16, self.vm(created=False, printableStatus='Starting'))
        self.assertEqual('u1', self.cache.state(KEY).vmi['metadata']['uid'])
        self.deliver(17, self.vm(printableStatus='Starting'))
        self.assertEqual('u1', self.cache.state(KEY).vmi['metadata']['uid'])
        self.deliver(18, self.vmi('Scheduled', uid='u1'))
        self.assertEqual('Scheduled',
                         self.cache.state(KEY).vmi['status']['phase'])

    def test_start_that_is_not_counted_yet(self):
        self.deliver(15, self.vm(created=False))
        self.deliver(16, self.vmi(uid='u1'))
        self.deliver(17, self.vm(created=False))
        self.assertIs(power_state.PowerState.ON, self.state())
