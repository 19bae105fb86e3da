# SPDX-License-Identifier: Apache-2.0
"""Changes are visible at once although responses are sent again."""

import requests

from sushy_kubevirt.kube import stored_names
from tests.fixtures import base
from tests.fixtures import redfish_pod

SYSTEM = '/redfish/v1/Systems/1'


class ResponseCacheTestCase(base.SandboxTestCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.pod = cls.share(redfish_pod.RedfishPod(cls.sandbox))

    def read(self):
        """Read the system twice; return the second response.

        It is a cached one, unless the machine changes at the moment.
        """
        self.pod.request('GET', SYSTEM, expect=200)
        return self.pod.request('GET', SYSTEM, expect=200).json()

    def test_changes_of_this_pod(self):
        before = self.read()
        for change in ({'IndicatorLED': 'Lit'}, {'AssetTag': 'x'},
                       {'IndicatorLED': 'Off'},
                       {'Boot': {'BootSourceOverrideTarget': 'Pxe',
                                 'BootSourceOverrideEnabled': 'Once'}},
                       {'Boot': {'BootSourceOverrideEnabled': 'Disabled'}}):
            before = self.read()
            self.pod.request('PATCH', SYSTEM, change, expect=204)
            # No retry: the next response has the change.
            after = self.pod.request('GET', SYSTEM, expect=200).json()
            self.assertNotEqual(before['@odata.etag'], after['@odata.etag'])
            for name, value in change.items():
                if isinstance(value, dict):
                    self.assertEqual(
                        value, {key: after[name][key] for key in value})
                else:
                    self.assertEqual(value, after[name])

    def test_power_and_vmi(self):
        self.assertEqual('Off', self.read()['PowerState'])
        reset = SYSTEM + '/Actions/ComputerSystem.Reset'
        for kind, state in ('On', 'On'), ('ForceOff', 'Off'):
            self.pod.request('POST', reset, {'ResetType': kind}, expect=204)
            self.until(lambda state=state: self.read()['PowerState'] == state)

    def test_action_that_the_watches_have_not_delivered(self):
        reset = SYSTEM + '/Actions/ComputerSystem.Reset'
        self.pod.request('POST', reset, {'ResetType': 'On'}, expect=204)
        self.until(lambda: self.read()['PowerState'] == 'On')
        # KubeVirt has nothing left to do with the VM.
        self.sandbox.wait('virtualmachines', 'vm-0', lambda vm: (
            vm['status']['printableStatus'] == 'Running'))
        self.addCleanup(self.sandbox.clear_faults)
        for action, count in ('hang', 2), ('break', 1):
            self.sandbox.fault(action, verb='WATCH', count=count,
                               where='/virtualmachine(instance)?s$')
        self.until(lambda: self.sandbox.faults()['faults'][0]['hits'] == 2)
        self.assertEqual('On', self.read()['PowerState'])
        self.pod.request('POST', reset, {'ResetType': 'ForceOff'}, expect=204)
        self.assertNotEqual('On', self.pod.request(
            'GET', SYSTEM, expect=200).json()['PowerState'])
        self.sandbox.clear_faults()
        self.until(lambda: self.read()['PowerState'] == 'Off')

    def test_changes_by_others(self):
        self.read()
        self.sandbox.patch('virtualmachines', 'vm-0', [{
            'op': 'add', 'path': '/metadata/annotations', 'value': {
                stored_names.ASSET_TAG: 'of another client'}}])
        self.until(lambda: self.pod.request('GET', SYSTEM).json()[
            'AssetTag'] == 'of another client')

    def test_broken_watch(self):
        """A change that no watch reports is read from the API."""
        self.read()
        self.sandbox.fault('break', verb='WATCH', where='kubevirt.io',
                           count=10 ** 6)
        self.addCleanup(self.sandbox.clear_faults)
        self.sandbox.patch('virtualmachines', 'vm-0', [{
            'op': 'add', 'path': '/metadata/annotations', 'value': {
                stored_names.ASSET_TAG: 'without a watch'}}])
        self.until(lambda: self.pod.request('GET', SYSTEM).json()[
            'AssetTag'] == 'without a watch')

    def test_password_and_session(self):
        session = self.pod.request(
            'POST', '/redfish/v1/SessionService/Sessions',
            {'UserName': redfish_pod.USER, 'Password': self.pod.password},
            expect=201)
        token = {'X-Auth-Token': session.headers['X-Auth-Token']}

        def code(**headers):
            return requests.get(self.pod.url + SYSTEM, headers=headers,
                                verify=str(self.pod.ca),
                                timeout=30).status_code

        self.read()
        self.assertEqual([200, 200, 401], [
            code(**token), code(**token), code()])
        self.pod.request('DELETE', session.headers['Location'], expect=204)
        self.assertEqual(401, code(**token))
        old = self.pod.password
        self.pod.set_password('another password')
        self.assertEqual(200, self.pod.request('GET', SYSTEM).status_code)
        self.assertEqual(401, self.pod.request(
            'GET', SYSTEM, password=old).status_code)

    def test_metrics_count_cached_responses(self):
        rule = ('virtbmc_redfish_requests_total{route="/redfish/v1/Systems/'
                '<identity>",method="GET",code="200"}')
        self.read()
        before = self.pod.metric(rule)
        for _ in range(5):
            self.read()
        self.assertEqual(before + 10, self.pod.metric(rule))
