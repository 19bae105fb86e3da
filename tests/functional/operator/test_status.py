# SPDX-License-Identifier: Apache-2.0
"""Status, printer columns and Events of a BMC."""

import re
import time

from tests.fixtures import operator

CONDITIONS = ['VirtualMachineAvailable', 'SecretAvailable',
              'BMCEmulatorReady', 'EndpointReady', 'Ready']


class StatusTestCase(operator.OperatorTestCase):

    def conditions(self, bmc):
        return bmc.status['conditions']

    def test_status_and_columns_of_ready_bmc(self):
        mark = self.operator.process.mark()
        box = self.bmc()
        box.ready()
        status = box.status
        address = self.kubectl.get('service', 'box-virtbmc')['spec'][
            'clusterIP']
        self.assertTrue(self.sandbox.external
                        or address.startswith('127.53.'))
        conditions = status.pop('conditions')
        self.assertEqual({
            'observedGeneration': 1, 'virtualMachine': 'box',
            'authSecret': 'box-bmc', 'serviceIP': address,
            'clusterIP': address, 'placement': {
                'type': 'PerVM', 'deployment': 'box-virtbmc'},
            'endpoints': {
                'redfish': {
                    'url': f'https://{address}/redfish/v1/Systems/1',
                    'certificateAuthority': {
                        'configMap': 'box-virtbmc-ca', 'key': 'ca.crt'}},
                'ipmi': {'address': address + ':623', 'host': address,
                         'port': 623}}}, status)
        self.assertEqual(CONDITIONS, [one['type'] for one in conditions])
        for one in conditions:
            self.assertEqual('True', one['status'])
            self.assertRegex(one['reason'], '^[A-Z][A-Za-z]+$')
            self.assertRegex(one['message'], r'^[A-Z].*\.$')
            self.assertEqual(1, one['observedGeneration'])
            self.assertRegex(one['lastTransitionTime'],
                             r'^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$')

        lines = self.kubectl('get', 'vmbmc').splitlines()
        self.assertEqual(['NAME', 'VIRTUALMACHINE', 'ENDPOINT', 'IPMI',
                          'REDFISH', 'ROUTE', 'READY', 'AGE'],
                         lines[0].split())
        self.assertEqual(
            ['box', 'box', address, address + ':623',
             f'https://{address}/redfish/v1/Systems/1', 'True'],
            lines[1].split()[:-1])
        self.assertEqual(lines[1].split()[0], self.kubectl(
            'get', 'vmbmcs', '--no-headers').split()[0])
        self.assertEqual('Off', box.works())
        self.assertEqual(404, box.curl('/redfish/v1/Systems/2').code)
        self.assert_no_warnings(mark)

        # At rest no API call is made. Background reads of the pod may still
        # be in progress at first.
        before = box.resource['metadata']['resourceVersion']
        self.until('rest', self.calls, {})
        self.assertEqual(before, box.resource['metadata']['resourceVersion'])

    def calls(self):
        """Return the counts of API calls of two seconds."""
        self.sandbox.reset_stats()
        time.sleep(2)
        calls = self.sandbox.stats()['calls']
        for resources in calls.values():
            # The operator renews its Lease.
            resources.pop('leases.coordination.k8s.io', None)
        return {verb: one for verb, one in calls.items() if one}

    def test_each_event_is_emitted_once(self):
        self.secret()
        self.kubectl.apply(operator.bmc_manifest('box', secret='box-bmc'))
        box = operator.Bmc(self.kubectl, 'box', 'admin', None)
        self.until('reason', box.condition,
                   ('False', 'VirtualMachineNotFound'))
        self.until('event', lambda: 'VirtualMachineNotFound' in self.kubectl(
            'describe', 'vmbmc', 'box'))
        self.vm()
        box.ready()
        self.until('event', lambda: self.described(r'Normal +ServiceReady '))
        text = self.kubectl('describe', 'vmbmc', 'box')
        self.assertRegex(text, r'Warning +VirtualMachineNotFound ')
        self.assertIn(operator.NAME, text)
        for password in self.passwords:
            self.assertNotIn(password, text)
        # Repeated reconciliations emit each Event once.
        self.kubectl('annotate', 'vmbmc', 'box', 'a=b')
        self.kubectl('delete', 'secret', 'box-bmc')
        self.until('event', lambda: self.described(
            r'Warning +SecretNotFound '))
        events = self.kubectl.get('events', '--field-selector',
                                  'involvedObject.kind=VirtualMachineBMC')[
            'items']
        reasons = [one['reason'] for one in events]
        self.assertEqual(len(set(reasons)), len(reasons), reasons)
        for one in events:
            self.assertEqual(box.resource['metadata']['uid'],
                             one['involvedObject']['uid'])

    def described(self, pattern):
        """Return whether ``kubectl describe`` has a line with a pattern."""
        return bool(re.search(pattern, self.kubectl(
            'describe', 'vmbmc', 'box')))

    def test_transition_times(self):
        box = self.bmc().ready()
        times = {one['type']: one['lastTransitionTime']
                 for one in self.conditions(box)}
        self.kubectl('delete', 'secret', 'box-bmc')
        self.until('reason', box.condition, ('False', 'SecretNotFound'))
        found = {one['type']: one for one in self.conditions(box)}
        self.assertEqual('False', found['SecretAvailable']['status'])
        self.assertEqual('True', found['BMCEmulatorReady']['status'])
        self.assertEqual(times['VirtualMachineAvailable'], found[
            'VirtualMachineAvailable']['lastTransitionTime'])
        self.assertEqual(found['SecretAvailable']['message'],
                         found['Ready']['message'])

    def test_generated_secret(self):
        box = self.bmc(secret=None).ready()
        self.assertEqual('box-virtbmc-auth', box.status['authSecret'])
        found = self.kubectl.get('secret', 'box-virtbmc-auth')
        self.assertEqual(['password', 'username'], sorted(found['data']))
        self.assertEqual('VirtualMachineBMC', found['metadata'][
            'ownerReferences'][0]['kind'])

    def test_long_and_dotted_names(self):
        for name in ('x' * 120, '0.node.example.test'):
            self.secret()
            if self.sandbox.vm('box', self.namespace) is None:
                self.vm()
            self.kubectl.apply(operator.bmc_manifest(
                name, 'box', 'box-bmc'))
            bmc = operator.Bmc(self.kubectl, name, 'admin', 'x')
            self.kubectl.wait('vmbmc/' + name, 'condition=Ready')
            self.assertIn('endpoints', bmc.status)
            self.kubectl('delete', 'vmbmc', name)
            self.until('nothing left', self.owned, [])

    def test_two_bmcs_of_one_vm(self):
        one, two = self.bmc('one'), self.bmc('two')
        two.password = one.password = self.secret()
        one.ready()
        two.ready()
        self.until('one', lambda: one.curl().code, 200)
        self.until('two', two.works, 'Off')
        one.ipmi('power', 'on')
        self.sandbox.wait_running('box', self.namespace)
        self.until('power', two.power, 'On')
        self.kubectl('delete', 'vmbmc', 'one')
        self.until('nothing left', lambda: self.owned('one'), [])
        self.assertEqual('On', two.works())

    def test_deleted_bmc_leaves_no_objects(self):
        box = self.bmc().ready()
        url, ca = box.url(), box.ca_file()
        self.kubectl('delete', 'vmbmc', 'box')
        self.until('nothing left', self.owned, [])
        self.assertEqual(
            ['virtualmachine.kubevirt.io/box'], self.kubectl.names('vm'))
        self.assertIn('secret/box-bmc', self.kubectl.names('secrets'))
        self.assertRaises(AssertionError, operator.curl, url,
                          config=f'cacert = "{ca}"\n')
        self.kubectl('delete', 'vm', 'box')
        self.until('no state', lambda: self.kubectl.names('secrets'),
                   ['secret/box-bmc'])
