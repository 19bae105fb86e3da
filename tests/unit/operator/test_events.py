# SPDX-License-Identifier: Apache-2.0
"""The status of a BMC, and the Events emitted when it changes."""

import asyncio

from oslotest import base

from sushy_kubevirt.operator import conditions
from sushy_kubevirt.operator import events
from sushy_kubevirt.operator import spec
from tests.unit.operator import bodies
from tests.unit.operator import cluster
from tests.unit.operator import test_conditions as worlds


class StatusTestCase(base.BaseTestCase):

    def test_document(self):
        made = conditions.status(bodies.bmc(), worlds.GOOD, {}, 'monday')
        self.assertEqual(
            ('vm', 'node-virtbmc-auth', '10.0.0.7', '10.0.0.7', 3),
            tuple(made[name] for name in (
                'virtualMachine', 'authSecret', 'serviceIP', 'clusterIP',
                'observedGeneration')))
        self.assertEqual('ServiceReady', conditions.ready_reason(made))

    def test_elsewhere(self):
        made = conditions.status(spec.read(bodies.elsewhere()), worlds.FAR, {},
                                 'monday')
        self.assertEqual('far/vm', made['virtualMachine'])
        # The copy: nothing in another namespace can be mounted.
        self.assertEqual('node-virtbmc-auth', made['authSecret'])

    def test_what_is_not_there_is_not_said(self):
        made = conditions.status(bodies.bmc(), worlds.but(
            secret=None, service=None), {}, 'monday')
        self.assertEqual({'observedGeneration', 'virtualMachine',
                          'conditions'}, set(made))


class EventsTestCase(base.BaseTestCase):

    def told(self, old, new, bmc=None):
        bmc = bmc or bodies.bmc()
        before = conditions.status(bmc, old, {}, 'now')[
            'conditions'] if old else None
        return [(kind, reason) for kind, reason, _ in events.of_change(
            before, conditions.status(bmc, new, {}, 'now')['conditions'])]

    def test_of(self):
        good, but = worlds.GOOD, worlds.but
        for old, new, wanted in (
                (None, good, [('Normal', 'SecretGenerated'),
                              ('Normal', 'ServiceReady')]),
                (good, good, []),
                # What passes is no event.
                (None, but(deployment=None, secret=None), []),
                # What it waits for is told of by the condition of that.
                (None, but(certificate=False, deployment=None),
                 [('Normal', 'SecretGenerated')]),
                (good, but(vm=None), [('Warning', 'VirtualMachineNotFound')]),
                (but(vm=None), good, [('Normal', 'ServiceReady')]),
                (good, but(waiting=True), [('Normal', 'RolloutWaiting')]),
                (good, but(taken=('Role x',)), [('Warning', 'NameTaken')])):
            with self.subTest(old=old, new=new):
                self.assertEqual(wanted, self.told(old, new))

    def test_the_same_has_the_same_name(self):
        def name(bmc, *what):
            return events.manifest(bmc, 'Normal', *what, 'now')[
                'metadata']['name']
        one = bodies.bmc()
        self.assertEqual(name(one, 'A', 'b'), name(one, 'A', 'b'))
        self.assertNotEqual(name(one, 'A', 'b'), name(one, 'A', 'c'))
        self.assertLess(len(name(bodies.bmc('a' * 253), 'A', 'b')), 254)


class RecordTestCase(base.BaseTestCase):

    def test_what_happens_again_is_counted(self):
        there = cluster.Cluster()
        for now in 'one', 'two', 'three':
            asyncio.run(events.record(there, events.manifest(
                bodies.bmc(), 'Normal', 'ServiceReady', 'It works.', now)))
        found, = there.of('Event')
        self.assertEqual((3, 'one', 'three'), (
            found['count'], found['firstTimestamp'],
            found['lastTimestamp']))
