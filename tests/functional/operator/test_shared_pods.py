# SPDX-License-Identifier: Apache-2.0
"""Shared pods with their processes, used by clients."""

import json

from tests.fixtures import operator

BASE = 'sushy-kubevirt-shared-%d-virtbmc'


class SharedPodsTestCase(operator.OperatorTestCase):
    """Three BMCs in two pods."""

    ARGUMENTS = ('--bmcs-per-pod', '2')

    def shared(self, name, **spec):
        made = self.bmc(name, name, name + '-key', placement='Shared', **spec)
        return made

    def pods(self):
        """Return {name of a pod: number of restarts} of shared pods."""
        return {
            pod['metadata']['name']: sum(
                one['restartCount'] for one in pod['status'].get(
                    'containerStatuses') or ())
            for pod in self.kubectl.get(
                'pods', '-l', 'bmc.kubevirt.io/shared')['items']}

    def test_bmcs_of_a_pod_are_separate(self):
        bmcs = [self.shared(name) for name in 'abc']
        for bmc in bmcs:
            self.assertEqual('Off', bmc.ready().works())
        self.assertEqual(2, len(self.pods()))
        first, second, third = bmcs
        first.ipmi('power', 'on')
        self.until('first is on', first.works, 'On')
        self.assertEqual(['Off', 'Off'], [second.works(), third.works()])
        # The password of one BMC is no password of another one.
        self.assertEqual(401, second.curl(password=first.password).code)
        before = self.pods()
        # New credentials, by the same pods.
        password = second.password
        second.password = self.secret('b-key')
        self.until('new password', second.works, 'Off')
        self.assertEqual(401, second.curl(password=password).code)
        # Another BMC comes, in the room of one that goes.
        session = first.curl(
            '/redfish/v1/SessionService/Sessions', '-H',
            'Content-Type: application/json', '-d', json.dumps({
                'UserName': first.username, 'Password': first.password}))
        self.assertEqual(201, session.code, session.text)
        token = session.headers['x-auth-token']
        slot = second.status['placement']['slot']
        self.kubectl('delete', 'vmbmc', 'b')
        fourth = self.shared('d').ready()
        self.assertEqual('Off', fourth.works())
        self.assertNotEqual(slot, fourth.status['placement']['slot'])
        self.assertEqual(before, self.pods())
        found = operator.curl(
            first.url(), config=f'header = "X-Auth-Token: {token}"\n'
            f'cacert = "{first.ca_file()}"\n')
        self.assertEqual(200, found.code)
        self.assertEqual('On', found.json()['PowerState'])
        self.assert_no_warnings(pods=True)

    def test_placement_changes_both_ways(self):
        bmc = self.bmc('box').ready()
        self.shared('other').ready()
        bmc.ipmi('chassis', 'identify', '0')
        endpoints = bmc.status['endpoints']
        bmc.patch(placement='Shared')
        self.until('shared', lambda: bmc.status['placement']['type'],
                   'Shared')
        self.assertEqual('Off', bmc.ready().works())
        self.until('own pod gone', lambda: self.kubectl.names(
            'pods', '-l', operator.LABEL + 'box'), [])
        self.assertEqual('Off', bmc.works())
        self.assertEqual(endpoints, bmc.status['endpoints'])
        bmc.patch(placement='PerVM')
        self.until('own pod', lambda: bmc.status['placement']['type'],
                   'PerVM')
        self.assertEqual('Off', bmc.ready().works())
        self.assertEqual(endpoints, bmc.status['endpoints'])
        self.assertEqual(1, len(self.pods()))

    def test_deleted_vm_and_restarted_pod(self):
        bmc = self.shared('box')
        bmc.ready().works()
        uid = self.kubectl.get('pods', '-l', 'bmc.kubevirt.io/shared')[
            'items'][0]['metadata']['uid']
        self.kubectl('delete', 'pods', '-l', 'bmc.kubevirt.io/shared')
        self.until('another pod', lambda: [
            one for one in self.kubectl.get(
                'pods', '-l', 'bmc.kubevirt.io/shared')['items']
            if one['metadata']['uid'] == uid], [])
        self.assertEqual('Off', bmc.ready().works())
        self.kubectl('delete', 'virtualmachine', 'box')
        self.until('reported', bmc.condition,
                   ('False', 'VirtualMachineNotFound'))
        self.vm('box')
        self.assertEqual('Off', self.until('works', bmc.ready().works, 'Off'))
