# SPDX-License-Identifier: Apache-2.0

import fixtures

from sushy_kubevirt.redfish.services.events import dispatcher
from tests.unit.redfish import base

STREAM = '/redfish/v1/EventService/SSE'


class EventStreamTestCase(base.RedfishTestCase):

    def test_opens_when_machines_are_observed(self):
        """A client may change a machine as soon as it is connected."""
        open_streams = []

        def wait_observing(events, seconds):
            open_streams.append(len(events.streams.all()))
            return True

        self.useFixture(fixtures.MonkeyPatch(
            f'{dispatcher.__name__}.EventDispatcher.wait_observing',
            wait_observing))
        answer = self.client.get(STREAM, environ_overrides={
            'wsgi.multithread': True})
        self.addCleanup(answer.close)
        self.assertEqual((200, b': welcome\n\n'),
                         (answer.status_code, next(answer.response)))
        self.assertEqual([0], open_streams)
