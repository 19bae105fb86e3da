# SPDX-License-Identifier: Apache-2.0

import copy
from unittest import mock

from oslotest import base

from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import kinds
from kubevirt_sandbox.kubevirt.admission import kubevirt
from kubevirt_sandbox.kubevirt.admission import vm
from kubevirt_sandbox.kubevirt.admission import vmi
from kubevirt_sandbox.kubevirt import samples
from tests.unit.kubevirt import objects


class WebhookTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.config = objects.cluster_config()

    def ask(self, hook, new, old=None, user='someone', operation=None,
            subresource=''):
        """Ask a hook about a write; returns the request afterwards."""
        request = kinds.Admission(
            operation or ('UPDATE' if old else 'CREATE'), subresource, new,
            old, mock.Mock(), user)
        hook(request)
        return request

    def refused(self, code, *args, **more):
        """Ask a hook that must refuse; returns the Status."""
        error = self.assertRaises(errors.ApiError, self.ask, *args, **more)
        self.assertEqual(code, error.code, error)
        return error.status()


class VmTest(WebhookTestCase):

    def setUp(self):
        super().setUp()
        self.hooks = vm.Admission(self.config)
        self.vm = samples.sample_vm('one')
        self.spec = self.vm['spec']['template']['spec']

    def test_a_new_vm_is_completed(self):
        self.ask(self.hooks.mutate, self.vm)
        domain = self.vm['spec']['template']['spec']['domain']
        self.assertTrue(domain['firmware']['uuid'])
        self.assertTrue(domain['firmware']['serial'])
        self.assertEqual('q35', domain['machine']['type'])
        self.assertNotIn('features', domain)
        self.ask(self.hooks.validate, self.vm)

    def test_an_old_vm_gets_no_firmware(self):
        old = copy.deepcopy(self.vm)
        old['metadata']['generation'] = 1
        self.vm['metadata']['generation'] = 2
        self.ask(self.hooks.mutate, self.vm, old)
        domain = self.vm['spec']['template']['spec']['domain']
        self.assertNotIn('firmware', domain)

    def test_what_go_cannot_decode_is_a_bad_request(self):
        self.spec['domain']['devices']['disks'][0]['bootOrder'] = -1
        status = self.refused(400, self.hooks.mutate, self.vm)
        self.assertNotIn('reason', status)
        self.assertIn('cannot unmarshal number -1', status['message'])

    def test_what_has_no_shape_is_refused(self):
        for change in (lambda: self.spec.update(domain=3),
                       lambda: self.vm['spec'].update(template=[]),
                       lambda: self.vm.update(spec='none')):
            change()
            self.refused(422, self.hooks.mutate, self.vm)

    def test_causes_are_counted_and_the_first_ten_told(self):
        self.spec['domain']['devices']['disks'] = [
            {'name': 'root', 'disk': {'bus': 'ide'}}] * 9
        status = self.refused(422, self.hooks.validate, self.vm)
        self.assertEqual(10, len(status['details']['causes']))
        self.assertRegex(status['message'],
                         'and [0-9]+ more validation errors$')

    def test_strategies(self):
        for spec, words in (({'runStrategy': 'Never'}, 'Never'),
                            ({'running': True}, 'mutually exclusive'),
                            ({'runStrategy': None}, 'must be specified')):
            bad = copy.deepcopy(self.vm)
            bad['spec'].update(spec)
            self.assertIn(words, self.refused(
                422, self.hooks.validate, bad)['message'])
        del self.vm['spec']['runStrategy']
        self.vm['spec']['running'] = True
        request = self.ask(self.hooks.validate, self.vm)
        self.assertIn('deprecated', request.warnings[0])

    def test_memory_to_be_added_has_its_limits(self):
        for guest, most, words in (
                ('2Gi', '1Gi', 'greater than the configured maxGuest'),
                ('512Mi', '2Gi', 'at least 1Gi'),
                ('1025Mi', '4Gi', '2Mi aligned'), ('2Gi', '8Gi', None)):
            self.spec['domain']['memory'] = {'guest': guest,
                                             'maxGuest': most}
            if words is None:
                self.ask(self.hooks.validate, self.vm)
            else:
                self.assertIn(words, self.refused(
                    422, self.hooks.validate, self.vm)['message'])

    def test_the_dying_and_the_status_are_let_be(self):
        self.vm['spec'] = {}
        for hook in (self.hooks.mutate, self.hooks.validate):
            self.ask(hook, self.vm, self.vm, subresource='status')
            self.ask(hook, None, self.vm, operation='DELETE')
        self.vm['metadata']['deletionTimestamp'] = 'now'
        for hook in (self.hooks.mutate, self.hooks.validate):
            self.ask(hook, self.vm, self.vm)


class VmiTest(WebhookTestCase):

    def setUp(self):
        super().setUp()
        self.hooks = vmi.Admission(self.config)
        self.vmi = objects.vmi()

    def test_a_new_vmi_is_completed(self):
        self.vmi['status'] = {'phase': 'Running', 'nodeName': 'mine'}
        drive = self.vmi['spec']['domain']['devices']['disks'][1]
        drive['cdrom'] = {}
        self.ask(self.hooks.mutate, self.vmi)
        self.assertEqual('Pending', self.vmi['status']['phase'])
        self.assertNotIn('nodeName', self.vmi['status'])
        domain = self.vmi['spec']['domain']
        self.assertEqual({'bus': 'sata', 'readonly': True, 'tray': 'closed'},
                         domain['devices']['disks'][1]['cdrom'])
        self.assertEqual((4, '8Gi'), (domain['cpu']['maxSockets'],
                                      domain['memory']['maxGuest']))
        self.assertEqual(['kubevirt.io/foregroundDeleteVirtualMachine'],
                         self.vmi['metadata']['finalizers'])
        self.ask(self.hooks.validate, self.vmi)

    def test_strangers_change_neither_spec_nor_status(self):
        new = copy.deepcopy(self.vmi)
        new['status']['phase'] = 'Failed'
        self.ask(self.hooks.mutate, new, self.vmi)
        self.assertEqual('Running', new['status']['phase'])
        new['spec']['terminationGracePeriodSeconds'] = 1
        self.assertIn('restricted', self.refused(
            422, self.hooks.validate, new, self.vmi)['message'])

    def test_its_own_labels_are_kubevirts(self):
        new = copy.deepcopy(self.vmi)
        new['metadata']['labels'] = {'kubevirt.io/nodeName': 'there'}
        self.refused(422, self.hooks.validate, new, self.vmi)
        self.ask(self.hooks.validate, new, self.vmi, user='')

    def test_kubevirt_itself_may(self):
        new = copy.deepcopy(self.vmi)
        new['status']['phase'] = 'Failed'
        new['spec']['terminationGracePeriodSeconds'] = 1
        new['spec']['volumes'].append({'name': 'cd', 'dataVolume': {
            'name': 'iso', 'hotpluggable': True}})
        self.vmi['status']['volumeStatus'] = [{'name': 'root'}]
        for hook in (self.hooks.mutate, self.hooks.validate):
            self.ask(hook, new, self.vmi, user='')
        self.assertEqual('Failed', new['status']['phase'])

    def test_memory_must_be_asked_for(self):
        del self.vmi['spec']['domain']['memory']
        self.ask(self.hooks.mutate, self.vmi)
        self.assertIn('no memory requested', self.refused(
            422, self.hooks.validate, self.vmi)['message'])


class KubeVirtTest(WebhookTestCase):

    def test_a_gate_is_on_or_off(self):
        new = {'spec': {'configuration': {'developerConfiguration': {
            'featureGates': ['A', 'B'], 'disabledFeatureGates': ['B']}}}}
        message = self.refused(422, kubevirt.validate, new, new)['message']
        self.assertIn('feature gate "B" exists on both', message)
