# SPDX-License-Identifier: Apache-2.0
"""Events that happen again are counted; see test_status for what is told."""

import asyncio

from oslotest import base

from sushy_kubevirt.operator import events
from tests.unit.operator import bodies
from tests.unit.operator import cluster


class TellTestCase(base.BaseTestCase):

    def test_what_happens_again_is_counted(self):
        there = cluster.Cluster()
        for now in 'one', 'two', 'three':
            asyncio.run(events.tell(there, events.event(
                bodies.bmc(), 'Normal', 'ServiceReady', 'It works.', now)))
        found, = there.of('Event')
        self.assertEqual((3, 'one', 'three'), (
            found['count'], found['firstTimestamp'],
            found['lastTimestamp']))
