# SPDX-License-Identifier: Apache-2.0

import os
import socket

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

    def test_ends_with_its_connection(self):
        """Another connection may have the closed one's descriptor."""
        ends = [*socket.socketpair(), *socket.socketpair()]
        for end in ends:
            self.addCleanup(end.close)
        served, _client, another, _its_client = ends
        answer = self.client.get(STREAM, environ_overrides={
            'wsgi.multithread': True, 'sushy_kubevirt.socket': served})
        self.addCleanup(answer.close)
        next(answer.response)
        descriptor = served.fileno()
        served.close()
        os.dup2(another.fileno(), descriptor)
        self.addCleanup(os.close, descriptor)
        self.assertIsNone(next(answer.response, None))
