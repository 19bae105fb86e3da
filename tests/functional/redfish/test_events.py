# SPDX-License-Identifier: Apache-2.0
"""Redfish events, from changes in KubeVirt to a subscriber's HTTP server."""

import ssl
import time

import fixtures
import sushy

from kubevirt_sandbox.testing import machines
from tests.fixtures import events_case
from tests.fixtures import file_servers
from tests.fixtures import redfish_case
from tests.fixtures import sandbox


class TestMachineEvents(events_case.EventsTestCase):
    """Events do not depend on the client that caused them."""

    def setUp(self):
        super().setUp()
        self.make()
        self.one = self.listen()

    def test_power_events(self):
        self.subscribe(self.one.url)
        self.emulator.reset(self.uuid, 'On')
        event = self.one.wait('ResourcePoweredOn')
        self.assertEqual([f'{sandbox.NAMESPACE}/{self.name}'],
                         event['MessageArgs'])
        self.assertEqual({'@odata.id': self.path},
                         event['OriginOfCondition'])
        # The same without the emulator.
        self.sandbox.do(self.name, 'stop', {'gracePeriod': 0})
        self.one.wait('ResourcePoweredOff')
        self.sandbox.do(self.name, 'start')
        self.one.wait('ResourcePoweredOn', count=2)
        self.sandbox.guest_does(self.name, 'shutdown')
        self.one.wait('ResourcePoweredOff', count=2)
        headers, body = self.one.posts[0]
        self.assertEqual('application/json', headers['Content-Type'])
        self.assertEqual('mine', body['Context'])
        self.assertEqual(len(body['Events']), body['Events@odata.count'])

    def test_boot_override_events(self):
        self.subscribe(self.one.url)
        self.emulator.patch_system(self.uuid, {'Boot': {
            'BootSourceOverrideTarget': 'Pxe',
            'BootSourceOverrideEnabled': 'Once'}})
        event = self.one.wait('BootOverrideSet')
        self.assertEqual([f'{sandbox.NAMESPACE}/{self.name}', 'Pxe', 'Once',
                          'Legacy'], event['MessageArgs'])
        self.emulator.patch_system(self.uuid, {'Boot': {
            'BootSourceOverrideEnabled': 'Disabled'}})
        self.one.wait('BootOverrideRemoved')
        self.emulator.patch_system(self.uuid, {'Boot': {
            'BootSourceOverrideTarget': 'Cd',
            'BootSourceOverrideEnabled': 'Once'}})
        self.emulator.reset(self.uuid, 'On')
        event = self.one.wait('BootOverrideConsumed')
        self.assertEqual([f'{sandbox.NAMESPACE}/{self.name}', 'Cd'],
                         event['MessageArgs'])
        self.one.wait('ResourcePoweredOn')
        self.submit()
        self.emulator.patch_system(self.uuid, {'Boot': {
            'BootSourceOverrideTarget': 'Hdd',
            'BootSourceOverrideEnabled': 'Continuous'}})
        self.one.wait('BootOverrideSet', count=3)
        keys = [key for key in self.one.keys() if key.startswith('Boot')]
        self.assertEqual(['BootOverrideSet', 'BootOverrideRemoved',
                          'BootOverrideSet', 'BootOverrideConsumed',
                          'BootOverrideSet'], keys)

    def test_created_and_removed_events(self):
        self.subscribe(self.one.url, own=False,
                       RegistryPrefixes=['ResourceEvent'])
        name = redfish_case.new_name()
        vm = self.sandbox.create('virtualmachines',
                                 machines.vm(name, 'Halted'))
        origin = f'{redfish_case.SYSTEMS}/{machines.uuid_of(vm)}'
        self.one.wait('ResourceCreated', origin=origin)
        self.sandbox.delete('virtualmachines', name)
        self.one.wait('ResourceRemoved', origin=origin)
        self.assertEqual(1, self.one.keys(origin).count('ResourceCreated'))

    def test_start_failure_event(self):
        self.subscribe(self.one.url)
        self.sandbox.patch('virtualmachines', self.name, [{
            'op': 'add', 'path': '/spec/template/spec/nodeSelector',
            'value': {'no-such': 'node'}}])
        self.emulator.reset(self.uuid, 'On')
        event = self.one.wait('SystemStartFailed')
        self.assertEqual('Critical', event['MessageSeverity'])
        self.assertEqual('ErrorUnschedulable', event['MessageArgs'][1])
        self.sandbox.patch('virtualmachines', self.name, [{
            'op': 'remove', 'path': '/spec/template/spec/nodeSelector'}])
        # The existing pod keeps its node selector.
        self.emulator.reset(self.uuid, 'ForceOff')
        self.emulator.reset(self.uuid, 'On')
        self.one.wait('ResourceStatusChangedOK')
        self.one.wait('ResourcePoweredOn')

    def test_no_duplicates_after_broken_watches(self):
        self.subscribe(self.one.url)
        self.emulator.reset(self.uuid, 'On')
        self.one.wait('ResourcePoweredOn')
        before = self.one.keys()
        # Watches break and have to start again with a list.
        for action in ('break', 'gone', 'break'):
            self.sandbox.fault(action, verb='WATCH', count=2)
        self.sandbox.outage(1)
        self.until(self.sandbox.is_available)
        self.sandbox.do(self.name, 'stop', {'gracePeriod': 0})
        self.one.wait('ResourcePoweredOff')
        after = self.one.keys()[len(before):]
        self.assertEqual(1, after.count('ResourcePoweredOff'))
        self.assertNotIn('ResourcePoweredOn', after)
        self.assertNotIn('ResourceCreated', after)


class TestSubscriptions(events_case.EventsTestCase):
    """Which subscribers get events; unreachable subscribers."""

    def setUp(self):
        super().setUp()
        self.make()

    def test_subscription_filters(self):
        wanted, other, registry = (self.listen() for _ in range(3))
        self.subscribe(wanted.url, own=False, MessageIds=[
            'ResourceEvent.ResourcePoweredOn'])
        self.subscribe(other.url, own=False, ResourceTypes=['Task'])
        self.subscribe(registry.url, RegistryPrefixes=['SushyKubeVirt'])
        everything = self.listen()
        self.subscribe(everything.url, own=False, EventTypes=['Alert'])
        self.emulator.reset(self.uuid, 'On')
        wanted.wait('ResourcePoweredOn', origin=self.path)
        event = everything.wait('ResourcePoweredOn', origin=self.path)
        self.assertEqual('Alert', event['EventType'])
        self.assertEqual(['ResourcePoweredOn'], wanted.keys(self.path))
        self.assertEqual([], registry.keys())
        self.assertEqual([], other.keys())

    def test_sushy_subscribes(self):
        one = self.listen()
        self.subscribe(one.url, own=False, MessageIds=['Base.Success'])
        service = sushy.Sushy(
            self.emulator.url + '/redfish/v1/').get_event_service()
        self.assertEqual(3, service.delivery_retry_attempts)
        made = service.subscriptions.create({
            'Destination': one.url, 'Protocol': 'Redfish',
            'Context': 'by sushy', 'EventTypes': ['Alert'],
            'HttpHeaders': [{'X-Token': 'secret-of-mine'}]})
        self.assertEqual('by sushy', made.context)
        service.submit_test_event(
            'id-1', '2026-01-01T00:00:00Z', 'Alert', 'Hear, hear',
            ['an argument'], 'Base.1.0.Success', self.path, 'OK')
        one.wait('Success')
        self.until(lambda: 'secret-of-mine' in [
            headers.get('X-Token') for headers, _ in one.posts])
        text = self.emulator.request('GET', made.path).text
        self.assertNotIn('secret', text)
        self.assertNotIn('secret-of-mine', self.emulator.process.output)
        made.delete()
        self.assertRaises(sushy.exceptions.ResourceNotFoundError,
                          service.subscriptions.get_member, made.path)

    def test_delivery_is_repeated(self):
        one = self.listen((500, 503, 204))
        path = self.subscribe(one.url)
        self.emulator.reset(self.uuid, 'On')
        one.wait('ResourcePoweredOn')
        self.assertGreaterEqual(len(one.posts), 3)
        self.assertEqual(1, one.keys().count('ResourcePoweredOn'))
        self.until(lambda: self.emulator.request(
            'GET', path).json()['Status'] == {
                'State': 'Enabled', 'Health': 'OK'})

    def test_slow_subscribers_do_not_delay_others(self):
        slow = self.listen(delay=60)
        for _ in range(20):
            self.subscribe(slow.url)
        # Nothing listens there.
        self.subscribe('http://127.0.0.1:1/')
        one = self.listen()
        self.subscribe(one.url)
        begin = time.monotonic()
        for number in range(5):
            self.submit(OriginOfCondition=self.path,
                        MessageId=f'Base.1.18.Number{number}')
        one.wait('Number4')
        self.assertLess(time.monotonic() - begin, 9)

    def test_time_of_test_event(self):
        one = self.listen()
        self.subscribe(one.url)
        for time_ in ('None', '2026', '2026-13-01T00:00:00Z',
                      '2026-01-01T00:00:00', '0001-01-01T00:00:00+01:00'):
            self.submit(400, EventTimestamp=time_)
        self.submit(OriginOfCondition=self.path, MessageId='Base.1.18.Timed',
                    EventTimestamp='2026-01-01t00:00:00z')
        self.assertEqual('2026-01-01T00:00:00Z',
                         one.wait('Timed')['EventTimestamp'])
        self.assertNotIn('Traceback', self.emulator.process.output)

    def test_retry_policies(self):
        self.addCleanup(self.emulator.request, 'PATCH', events_case.SERVICE, {
            'DeliveryRetryAttempts': 3, 'DeliveryRetryIntervalSeconds': 10})
        self.emulator.request('PATCH', events_case.SERVICE, {
            'DeliveryRetryAttempts': 1, 'DeliveryRetryIntervalSeconds': 1},
            expect=204)
        found = self.emulator.request('GET', events_case.SERVICE).json()
        self.assertEqual((1, 1), (found['DeliveryRetryAttempts'],
                                  found['DeliveryRetryIntervalSeconds']))
        one = self.listen((500,))
        gone = self.subscribe(one.url,
                              DeliveryRetryPolicy='TerminateAfterRetries')
        suspended = self.subscribe(one.url,
                                   DeliveryRetryPolicy='SuspendRetries')
        self.emulator.reset(self.uuid, 'On')
        self.until(lambda: self.emulator.request(
            'GET', gone).status_code == 404)
        self.until(lambda: self.emulator.request('GET', suspended).json()[
            'Status']['State'] == 'Disabled')
        one.answer(204)
        self.emulator.request(
            'POST', suspended + '/Actions/EventDestination.'
            'ResumeSubscription', {}, expect=204)
        self.submit(OriginOfCondition=self.path)
        one.wait('TestMessage')

    def test_https_subscribers(self):
        certificate, key = file_servers.pair()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        folder = self.useFixture(fixtures.TempDir())
        with open(folder.join('pem'), 'w') as stream:
            stream.write(certificate + key)
        context.load_cert_chain(folder.join('pem'))
        one = self.listen(context=context)
        self.subscribe(one.url)
        strict = self.subscribe(one.url, VerifyCertificate=True)
        self.submit(OriginOfCondition=self.path)
        one.wait('TestMessage')
        self.until(lambda: self.emulator.request('GET', strict).json()[
            'Status']['Health'] == 'Warning')
        self.assertEqual(1, len(one.keys()))

    def test_invalid_subscriptions(self):
        for body, entry in (
                ({}, 'PropertyMissing'),
                ({'Protocol': 'Redfish'}, 'PropertyMissing'),
                ({'Destination': 'ftp://host/'}, 'PropertyValueIncorrect'),
                ({'Destination': 'http://169.254.169.254/'},
                 'PropertyValueIncorrect'),
                ({'Destination': 'http://a:b@192.0.2.1/'},
                 'PropertyValueIncorrect'),
                ({'Destination': 'http://192.0.2.1/', 'Protocol': 'FTP'},
                 'PropertyValueNotInList'),
                ({'Destination': 'http://192.0.2.1/',
                  'EventTypes': ['Nonsense']}, 'PropertyValueNotInList'),
                ({'Destination': 'http://192.0.2.1/',
                  'HttpHeaders': [{'Host': 'x'}]}, 'PropertyValueIncorrect'),
                ({'Destination': 'http://192.0.2.1/', 'HttpHeaders': [
                    {'X-A': 'very\r\nsecret'}]}, 'PropertyValueIncorrect'),
                ({'Destination': 'http://192.0.2.1/', 'MessageIds': ['x']},
                 'PropertyValueFormatError'),
                ({'Destination': 'http://192.0.2.1/', 'Nonsense': 1},
                 'PropertyUnknown')):
            found = self.refused('POST', events_case.SUBSCRIPTIONS, body, 400)
            self.assertEqual(entry, found[0][0], body)
            self.assertNotIn('secret', str(found))
        self.refused(
            'PATCH', events_case.SERVICE, {
                'DeliveryRetryAttempts': -1}, 400)
        self.refused('GET', events_case.SUBSCRIPTIONS + '/none', None, 404)
        self.refused('DELETE', events_case.SUBSCRIPTIONS + '/none', None, 404)

    def test_subscriptions_survive_kill(self):
        one = self.listen()
        path = self.subscribe(one.url, HttpHeaders=[{'X-Me': 'still'}])
        self.submit(OriginOfCondition=self.path)
        one.wait('TestMessage')
        before = self.emulator.request('GET', path).json()
        self.emulator.process.kill()
        self.emulator.cleanUp()
        self.emulator.setUp()
        self.assertEqual(before, self.emulator.request('GET', path).json())
        self.emulator.reset(self.uuid, 'On')
        one.wait('ResourcePoweredOn')
        self.assertEqual('still', one.posts[-1][0]['X-Me'])
        # Existing VMs cause no events after a start.
        self.assertNotIn('ResourceCreated', one.keys())
