# SPDX-License-Identifier: Apache-2.0
"""Status, printer columns and Events of a BMC."""

import json
import re
import time

from sushy_kubevirt.kube import stored_names
from tests.fixtures import operator

CONDITIONS = ['VirtualMachineAvailable', 'SecretAvailable',
              'BMCEmulatorReady', 'EndpointReady', 'ServiceReady', 'Ready']


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
        self.assertEqual(['NAME', 'VIRTUALMACHINE', 'SECRET', 'CLUSTERIP',
                          'SERVICEREADY', 'READY', 'AGE'], lines[0].split())
        self.assertEqual(['box', 'box', 'box-bmc', address, 'True', 'True'],
                         lines[1].split()[:-1])
        wide = self.kubectl('get', 'vmbmc', '-o', 'wide').splitlines()[1]
        self.assertEqual(
            ['box', 'box', 'box-bmc', address, 'True', address + ':623',
             f'https://{address}/redfish/v1/Systems/1', 'PerVM', 'True'],
            wide.split()[:-1])
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

    def test_scripts_for_kubevirtbmc(self):
        """Its manifest, ``kubectl wait`` for its conditions, its columns."""
        name = 'a-bmc-with-a-long-name'
        self.kubectl.apply({
            **operator.bmc_manifest(name), 'spec': {
                'virtualMachineRef': {'name': 'box'},
                'authSecretRef': {'name': 'a-secret-of-that-bmc'}}})
        bmc = operator.Bmc(self.kubectl, name, 'admin', None)
        for condition in ('VirtualMachineAvailable=False',
                          'SecretAvailable=False', 'ServiceReady=False'):
            self.wait_for(name, condition)
        self.assertEqual(('False', 'ServiceNotReady'),
                         bmc.condition('ServiceReady'))
        bmc.password = self.secret('a-secret-of-that-bmc')
        self.vm()
        for condition in ('ServiceReady', 'VirtualMachineAvailable',
                          'SecretAvailable'):
            self.wait_for(name, condition)
        # It waits for the pod, too.
        self.assertEqual('Off', bmc.works())
        for reason, type_ in (('ServiceReady', 'ServiceReady'),
                              ('VirtualMachineFound',
                               'VirtualMachineAvailable'),
                              ('SecretFound', 'SecretAvailable')):
            self.assertEqual(('True', reason), bmc.condition(type_))
        head, line = self.kubectl('get', 'vmbmcs').splitlines()
        self.assertEqual([name, 'box', 'a-secret-of-that-bmc',
                          bmc.status['clusterIP'], 'True'], line.split()[:5])
        self.assertLessEqual(max(len(head), len(line)), 120)

    def wait_for(self, bmc, condition):
        self.kubectl('wait', f'--for=condition={condition}', f'vmbmc/{bmc}',
                     '--timeout=60s', timeout=70)

    def test_boot_override(self):
        box = self.bmc().ready()
        mark = self.operator.process.mark()
        self.assertNotIn('bootOverride', box.status)
        box.ipmi('chassis', 'bootdev', 'pxe', 'options=efiboot')
        self.until('override', lambda: box.status.get('bootOverride'), {
            'mode': 'Oneshot', 'originalFirmware': 'Legacy',
            'bootOrders': self.numbers()})
        box.ipmi('chassis', 'bootdev', 'pxe', 'options=persistent')
        self.kubectl(
            'wait', '--for=jsonpath={.status.bootOverride.mode}=Persistent',
            'vmbmc/box', '--timeout=60s', timeout=70)
        self.assertEqual({'mode': 'Persistent'}, box.status['bootOverride'])
        box.ipmi('chassis', 'bootdev', 'none')
        self.until('none', lambda: 'bootOverride' in box.status, False)
        self.assert_no_warnings(mark)

    def numbers(self):
        """Return the boot order of the VM that its owner wrote, none."""
        devices = self.sandbox.vm('box', self.namespace)['spec']['template'][
            'spec']['domain']['devices']
        return dict.fromkeys((
            *(f"{'cdrom' if 'cdrom' in disk else 'disk'}:{disk['name']}"
              for disk in devices['disks']),
            *(f"interface:{one['name']}" for one in devices['interfaces'])), 0)

    def test_boot_override_until_the_boot(self):
        box = self.bmc().ready()
        box.ipmi('power', 'on')
        self.sandbox.wait_running('box', self.namespace)
        uid = self.sandbox.vmi('box', self.namespace)['metadata']['uid']
        self.assertEqual(204, box.curl(
            None, '-X', 'PATCH', '-H', 'Content-Type: application/json',
            '-d', '{"Boot": {"BootSourceOverrideTarget": "Cd", '
            '"BootSourceOverrideEnabled": "Once"}}').code)
        self.until('VMI', lambda: box.status.get('bootOverride', {}).get(
            'vmiUID'), uid)
        box.ipmi('power', 'cycle')
        self.until('none', lambda: 'bootOverride' in box.status, False)
        self.assertNotEqual(uid, self.sandbox.vmi('box', self.namespace)[
            'metadata']['uid'])

    def test_hostile_boot_override(self):
        """What a user of the VM writes there; its BMC does not run."""
        self.kubectl.apply(operator.bmc_manifest('box', secret='missing'))
        self.vm()
        box = operator.Bmc(self.kubectl, 'box', 'admin', None)
        self.until('reason', box.condition, ('False', 'SecretNotFound'))
        mark = self.operator.process.mark()
        once = {'id': 'x', 'generation': 1}
        for original, expected in (
                ({'bootOrders': {'disk:a': 10**30}}, {}),
                ({'bootOrders': {'x' * 100: 1}}, {}),
                ({'vmiUID': {'a': 1}, 'originalFirmware': 'EFI'}, {}),
                ({'vmiUID': 'u', 'conditions': []}, {'vmiUID': 'u'})):
            self.annotate({'once': {**once, 'original': original}})
            self.until('override', lambda expected=expected: box.status.get(
                'bootOverride'), {'mode': 'Oneshot', **expected})
            self.annotate({'once': {'generation': 'x'}})
            self.until('none', lambda: 'bootOverride' in box.status, False)
        self.annotate({'continuous': {'target': 'Pxe', 'changes': {}}})
        self.until('override', lambda: box.status.get('bootOverride'),
                   {'mode': 'Persistent'})
        self.assert_no_warnings(mark)

    def annotate(self, layers):
        self.kubectl('annotate', '--overwrite', 'vm', 'box',
                     f'{stored_names.BOOT}={json.dumps(layers)}')

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
