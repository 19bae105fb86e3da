# SPDX-License-Identifier: Apache-2.0
from oslotest import base

from sushy_kubevirt.operator import conditions
from sushy_kubevirt.operator.metal3 import host_state
from tests.unit.operator.metal3 import test_fields

NOW, LATER = '2026-11-24T00:00:00Z', '2026-11-24T00:01:00Z'

CLUSTERCTL = 'clusterctl.cluster.x-k8s.io/delete-for-move'


def host(state=None, annotations=None, consumer=None, deleting=False, **more):
    metadata = {'name': 'n0', 'namespace': 'lab', 'uid': 'h0'}
    if annotations:
        metadata['annotations'] = dict.fromkeys(annotations, '')
    if deleting:
        metadata['deletionTimestamp'] = NOW
    spec = {'online': False}
    if consumer:
        spec['consumerRef'] = consumer
    return {'metadata': metadata, 'spec': spec, 'status': {
        **({'provisioning': {'state': state}} if state else {}), **more}}


class StateTestCase(base.BaseTestCase):

    def test_states(self):
        for one, status, reason, text in (
                (host(), True, 'HostCreated', 'has not looked at it yet'),
                (host('available'), True, 'HostCreated', 'is available'),
                (host('inspecting', operationalStatus='error',
                      errorMessage='no route'), False, 'HostFailed',
                 'no route'),
                (host('available', [host_state.PAUSED]), True, 'HostPaused',
                 'paused'),
                (host('available', [CLUSTERCTL], deleting=True), True,
                 'HostMoving', 'moved'),
                (host('deprovisioning', deleting=True), False, 'HostDeleting',
                 'bareMetalHost.enabled')):
            found = host_state.of(one).condition
            with self.subTest(reason=reason):
                self.assertEqual((conditions.HOST, status, reason), (
                    found.type, found.status, found.reason))
                self.assertIn(text, found.message)

    def test_summary(self):
        self.assertEqual(
            {'name': 'n0', 'uid': 'h0', 'state': 'provisioned',
             'consumer': 'HostClaim/team/c', 'paused': True},
            host_state.summary(host('provisioned', [CLUSTERCTL], {
                'kind': 'HostClaim', 'namespace': 'team', 'name': 'c'})))
        self.assertEqual({'name': 'n0', 'uid': 'h0'},
                         host_state.summary(host()))

    def test_waiting_for_host(self):
        one = test_fields.bmc()
        message = host_state.waiting_for_host(
            one, host('deprovisioning'), True).condition.message
        self.assertIn('(deprovisioning)', message)
        self.assertIn('virtualmachinebmc n0 --namespace lab '
                      'bmc.kubevirt.io/skip-host-deprovisioning=true', message)
        self.assertNotIn('paused', message)
        message = host_state.waiting_for_host(one, host(
            'deprovisioning', [host_state.PAUSED], operationalStatus='error',
            errorMessage='no route.'), False).condition.message
        for text in 'paused', 'not ready', 'reports: no route. To delete':
            self.assertIn(text, message)

    def test_needs_mac(self):
        message = host_state.needs_mac(test_fields.vm(
            interfaces=[{'name': 'a'}])).condition.message
        self.assertIn('kubectl patch virtualmachine n0 --namespace lab',
                      message)
        self.assertNotIn('kubectl', host_state.needs_mac(test_fields.vm(
            interfaces=[])).condition.message)

    def test_waiting_for_bmc(self):
        for more, ready, expected in (
                ({}, False, 'WaitingForBMC'),
                ({}, True, 'HostNeedsExternalAddress'),
                ({'service': {'type': 'LoadBalancer'}}, True,
                 'WaitingForBMC'),
                ({'redfish': {'enabled': False}}, True, 'HostNeedsProtocol'),
                ({'bareMetalHost': {'protocol': 'IPMI'},
                  'ipmi': {'enabled': False}}, True, 'HostNeedsProtocol')):
            self.assertEqual(expected, host_state.waiting_for_bmc(
                test_fields.bmc(**more), None, ready).condition.reason)

    def test_long_error(self):
        message = host_state.of(host(
            operationalStatus='error', errorMessage='x' * 5000)).condition
        self.assertLess(len(message.message), 1024)

    def test_host_without_a_spec(self):
        one = host()
        del one['spec']
        self.assertEqual({'name': 'n0', 'uid': 'h0'}, host_state.summary(one))


class MergedTestCase(base.BaseTestCase):

    OTHERS = [{'type': one, 'status': 'True', 'reason': 'R', 'message': '',
               'lastTransitionTime': NOW} for one in ('A', 'Ready')]

    def types(self, status):
        return [one['type'] for one in status['conditions']]

    def test_other_conditions_stay(self):
        old = {'serviceIP': '10.0.0.1', 'conditions': self.OTHERS}
        new = host_state.merged(old, host_state.of(host('available')), 1, NOW)
        self.assertEqual(['A', 'HostReady', 'Ready'], self.types(new))
        self.assertEqual('10.0.0.1', new['serviceIP'])
        self.assertEqual('available', new['bareMetalHost']['state'])
        # The time is that of the last transition.
        again = host_state.merged(new, host_state.of(host('available')), 1,
                                  LATER)
        self.assertEqual(new, again)
        failed = host_state.merged(new, host_state.MISSING, 1, LATER)
        self.assertEqual(LATER, failed['conditions'][1]['lastTransitionTime'])
        self.assertNotIn('bareMetalHost', failed)
        self.assertEqual(old, host_state.merged(failed, None, 1, LATER))

    def test_without_a_status(self):
        self.assertEqual({}, host_state.merged({}, None, 1, NOW))
        self.assertEqual(['HostReady'], self.types(host_state.merged(
            {}, host_state.MISSING, 1, NOW)))
