# SPDX-License-Identifier: Apache-2.0
"""Events, from KubeVirt's own changes to somebody else's HTTP server."""

from tests.functional import base
from tests.functional import listener
from tests.functional import redfish

SERVICE = '/redfish/v1/EventService'
SUBSCRIPTIONS = SERVICE + '/Subscriptions'

#: The listeners of these tests are on this host.
SETTINGS = {'SUSHY_EMULATOR_KUBEVIRT_EVENT_ALLOW_LOOPBACK': True}


class EventsTestCase(redfish.RedfishTestCase):

    SETTINGS = SETTINGS

    def listen(self, *args, **kwargs):
        return self.useFixture(listener.Listener(*args, **kwargs))

    def subscribe(self, url, expect=201, **more):
        """Make a subscription, which goes with the test; its path."""
        answer = self.emulator.request(
            'POST', SUBSCRIPTIONS, {
                'Destination': url, 'Protocol': 'Redfish', 'Context': 'mine',
                **more}, expect=expect)
        path = answer.headers['Location']
        self.addCleanup(self.emulator.request, 'DELETE', path)
        return path


class TestPushed(EventsTestCase):

    def test_power(self):
        self.make()
        one = self.listen()
        self.subscribe(one.url)
        self.emulator.reset(self.uuid, 'On')
        event = one.wait('ResourcePoweredOn', origin=self.path)
        # Not through the emulator at all.
        self.sandbox.do(self.name, 'stop', {'gracePeriod': 0})
        one.wait('ResourcePoweredOff', origin=self.path)
        self.assertEqual(['default/' + self.name], event['MessageArgs'])
