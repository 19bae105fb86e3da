# SPDX-License-Identifier: Apache-2.0
"""The status of a BMC, and the Events emitted when it changes."""

import asyncio

from oslotest import base

from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import conditions
from sushy_kubevirt.operator import events
from tests.unit.operator import bodies
from tests.unit.operator import cases
from tests.unit.operator import cluster


def status(case, body=None):
    return conditions.status(
        *cases.judged(body or bodies.body(), case), {}, 'monday')


class StatusTestCase(base.BaseTestCase):

    def test_status_of_ready_bmc(self):
        made = status(cases.GOOD)
        self.assertEqual(
            ('vm', 'node-virtbmc-auth', '10.0.0.7', '10.0.0.7', 3),
            tuple(made[name] for name in (
                'virtualMachine', 'authSecret', 'serviceIP', 'clusterIP',
                'observedGeneration')))
        self.assertEqual('ServiceReady', conditions.ready_reason(made))

    def test_status_of_bmc_with_vm_in_other_namespace(self):
        made = status(cases.FAR, bodies.cross_namespace())
        self.assertEqual('far/vm', made['virtualMachine'])
        # The copy, because a pod mounts Secrets of its own namespace only.
        self.assertEqual('node-virtbmc-auth', made['authSecret'])

    def test_boot_override_of_a_vm_that_may_be_used(self):
        override = {'mode': 'Persistent'}
        good = cases.state(boot_override=override)
        self.assertEqual(override, status(good)['bootOverride'])
        self.assertNotIn('bootOverride', status(cases.GOOD))
        for body, vm in ((None, None),
                         (None, bodies.vm(deletionTimestamp='now')),
                         (bodies.cross_namespace(), bodies.vm('far'))):
            self.assertNotIn('bootOverride', status(
                cases.state(good, vm=vm), body))

    def test_missing_objects_have_no_fields(self):
        made = status(cases.state(secret=None, service=None))
        self.assertEqual({'observedGeneration', 'virtualMachine',
                          'placement', 'conditions'}, set(made))


class EventsTestCase(base.BaseTestCase):

    def events(self, old, new):
        before = status(old)['conditions'] if old else None
        return [(kind, reason) for kind, reason, _ in events.of_change(
            before, status(new)['conditions'])]

    def test_events_of_changed_conditions(self):
        good, state = cases.GOOD, cases.state
        for old, new, expected in (
                # Nothing was reported that is over now.
                (None, good, []),
                (good, good, []),
                (state(deployment=None), good, [('Normal', 'ServiceReady')]),
                # Transient conditions emit no event.
                (None, state(deployment=None, secret=None), []),
                # Conditions that wait for another one emit no event.
                (None, state(certificate=False, deployment=None), []),
                (good, state(vm=None),
                 [('Warning', 'VirtualMachineNotFound')]),
                (state(vm=None), good, [('Normal', 'ServiceReady')]),
                (good, state(waiting=True), [('Normal', 'RolloutWaiting')]),
                (good, state(foreign=('Role x',)),
                 [('Warning', 'NameTaken')])):
            with self.subTest(old=old, new=new):
                self.assertEqual(expected, self.events(old, new))

    def test_equal_events_have_equal_names(self):
        def name(bmc, *what):
            return events.manifest(
                bmc, events.Event('Normal', *what), 'now', bmc_resources.BMC)[
                    'metadata']['name']
        one = bodies.bmc()
        self.assertEqual(name(one, 'A', 'b'), name(one, 'A', 'b'))
        self.assertNotEqual(name(one, 'A', 'b'), name(one, 'A', 'c'))
        self.assertLess(len(name(bodies.bmc('a' * 253), 'A', 'b')), 254)


class RecordTestCase(base.BaseTestCase):

    def test_repeated_event_is_counted(self):
        kube = cluster.Cluster()
        for now in 'one', 'two', 'three':
            self.assertTrue(asyncio.run(events.record(
                kube, bodies.bmc(), events.Event(
                    'Normal', 'ServiceReady', 'It works.'), now)))
        found, = kube.list('Event')
        self.assertEqual((3, 'one', 'three'), (
            found['count'], found['firstTimestamp'],
            found['lastTimestamp']))
