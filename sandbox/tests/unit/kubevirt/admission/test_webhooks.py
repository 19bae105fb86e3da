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
        """Call a hook for a write; return the request afterwards."""
        request = kinds.Admission(
            operation or ('UPDATE' if old else 'CREATE'), subresource, new,
            old, mock.Mock(), user)
        hook(request)
        return request

    def rejection(self, code, *args, **more):
        """Call a hook that must reject; return the Status."""
        error = self.assertRaises(errors.ApiError, self.ask, *args, **more)
        self.assertEqual(code, error.code, error)
        return error.status()


class VmTest(WebhookTestCase):

    def setUp(self):
        super().setUp()
        self.hooks = vm.Admission(self.config)
        self.vm = samples.sample_vm('one')
        self.spec = self.vm['spec']['template']['spec']

    def test_fills_in_defaults_of_new_vm(self):
        self.ask(self.hooks.mutate, self.vm)
        domain = self.vm['spec']['template']['spec']['domain']
        self.assertTrue(domain['firmware']['uuid'])
        self.assertTrue(domain['firmware']['serial'])
        self.assertEqual('q35', domain['machine']['type'])
        self.assertNotIn('features', domain)
        self.ask(self.hooks.validate, self.vm)

    def test_existing_vm_gets_no_firmware_defaults(self):
        old = copy.deepcopy(self.vm)
        old['metadata']['generation'] = 1
        self.vm['metadata']['generation'] = 2
        self.ask(self.hooks.mutate, self.vm, old)
        domain = self.vm['spec']['template']['spec']['domain']
        self.assertNotIn('firmware', domain)

    def test_undecodable_value_gets_400(self):
        self.spec['domain']['devices']['disks'][0]['bootOrder'] = -1
        status = self.rejection(400, self.hooks.mutate, self.vm)
        self.assertNotIn('reason', status)
        self.assertIn('cannot unmarshal number -1', status['message'])

    def test_wrong_types_get_422(self):
        for change in (lambda: self.spec.update(domain=3),
                       lambda: self.vm['spec'].update(template=[]),
                       lambda: self.vm.update(spec='none')):
            change()
            self.rejection(422, self.hooks.mutate, self.vm)

    def test_reports_first_ten_causes_and_number_of_others(self):
        self.spec['domain']['devices']['disks'] = [
            {'name': 'root', 'disk': {'bus': 'ide'}}] * 9
        status = self.rejection(422, self.hooks.validate, self.vm)
        self.assertEqual(10, len(status['details']['causes']))
        self.assertRegex(status['message'],
                         'and [0-9]+ more validation errors$')

    def test_rejects_invalid_run_strategies(self):
        for spec, words in (({'runStrategy': 'Never'}, 'Never'),
                            ({'running': True}, 'mutually exclusive'),
                            ({'runStrategy': None}, 'must be specified')):
            bad = copy.deepcopy(self.vm)
            bad['spec'].update(spec)
            self.assertIn(words, self.rejection(
                422, self.hooks.validate, bad)['message'])
        del self.vm['spec']['runStrategy']
        self.vm['spec']['running'] = True
        request = self.ask(self.hooks.validate, self.vm)
        self.assertIn('deprecated', request.warnings[0])

    def test_rejects_invalid_max_guest_memory(self):
        for guest, most, words in (
                ('2Gi', '1Gi', 'greater than the configured maxGuest'),
                ('512Mi', '2Gi', 'at least 1Gi'),
                ('1025Mi', '4Gi', '2Mi aligned'), ('2Gi', '8Gi', None)):
            self.spec['domain']['memory'] = {'guest': guest,
                                             'maxGuest': most}
            if words is None:
                self.ask(self.hooks.validate, self.vm)
            else:
                self.assertIn(words, self.rejection(
                    422, self.hooks.validate, self.vm)['message'])

    def test_ignores_status_updates_and_deleted_vms(self):
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

    def test_fills_in_defaults_of_new_vmi(self):
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

    def architecture(self, name, change=None):
        """Admit a VMI of an architecture; return its spec."""
        made = objects.vmi()
        spec = made['spec']
        spec['architecture'] = name
        spec['domain'].pop('machine', None)
        spec['domain']['cpu'] = {'cores': 1}
        for disk in spec['domain']['devices']['disks']:
            for kind in disk.keys() & {'disk', 'cdrom'}:
                disk[kind] = {'bus': 'scsi'}
        if change:
            change(spec['domain'])
        self.ask(self.hooks.mutate, made)
        self.ask(self.hooks.validate, made)
        return made['spec']

    def test_defaults_of_architectures(self):
        def no_bus(domain):
            domain['firmware'] = {}
            domain['devices']['disks'][0]['disk'] = {}

        for name, bus, loader, acpi in (
                ('amd64', 'sata', None, True),
                ('s390x', 'virtio', None, False),
                ('arm64', 'virtio', {'efi': {'secureBoot': False}}, True)):
            domain = self.architecture(name, no_bus)['domain']
            self.assertEqual(
                (bus, loader, acpi),
                (domain['devices']['disks'][0]['disk']['bus'],
                 domain['firmware'].get('bootloader'),
                 domain['features']['acpi']['enabled']))
            self.assertEqual('host-passthrough' if name == 'arm64'
                             else 'host-model', domain['cpu']['model'])

    def test_settings_that_architectures_lack(self):
        def drive(bus):
            return lambda domain: domain['devices']['disks'][1].update(
                cdrom={'bus': bus} if bus else {})

        def device(**devices):
            return lambda domain: domain['devices'].update(devices)

        def loader(**kinds):
            return lambda domain: domain.update(
                firmware={'bootloader': kinds})

        for names, change, message in (
                ('arm64', loader(bios={}), 'does not support bios boot'),
                ('arm64', drive('sata'), 'disk bus type'),
                ('arm64', drive('usb'), 'disk bus type'),
                # The default is virtio, which is for disks.
                ('arm64 s390x', drive(None), 'invalid for CD-ROM'),
                ('arm64', device(watchdog={
                    'name': 'dog', 'i6300esb': {}}), 'Watchdog'),
                ('amd64', device(watchdog={
                    'name': 'dog', 'diag288': {}}), 'only supports'),
                ('s390x', device(watchdog={
                    'name': 'dog', 'i6300esb': {}}), 'only supports'),
                ('arm64 s390x', device(video={'type': 'vga'}), 'video model'),
                ('arm64', device(sound={'name': 'a'}), 'sound'),
                ('arm64', lambda domain: domain['cpu'].update(threads=2),
                 'threads must not'),
                ('arm64', lambda domain: domain['cpu'].update(
                    model='Haswell'), 'host-passthrough'),
                ('s390x', device(panicDevices=[{'model': 'isa'}]), 'panic'),
                ('riscv64', None, 'unsupported architecture')):
            for name in names.split():
                error = self.assertRaises(
                    errors.ApiError, self.architecture, name, change)
                self.assertIn(message, str(error))

    def test_users_cannot_change_spec_or_status_of_vmi(self):
        new = copy.deepcopy(self.vmi)
        new['status']['phase'] = 'Failed'
        self.ask(self.hooks.mutate, new, self.vmi)
        self.assertEqual('Running', new['status']['phase'])
        new['spec']['terminationGracePeriodSeconds'] = 1
        self.assertIn('restricted', self.rejection(
            422, self.hooks.validate, new, self.vmi)['message'])

    def test_only_kubevirt_changes_its_labels(self):
        new = copy.deepcopy(self.vmi)
        new['metadata']['labels'] = {'kubevirt.io/nodeName': 'there'}
        self.rejection(422, self.hooks.validate, new, self.vmi)
        self.ask(self.hooks.validate, new, self.vmi, user='')

    def test_components_of_kubevirt_change_status_of_vmi(self):
        prefix = 'system:serviceaccount:'
        for user, phase in (
                (prefix + 'kubevirt:kubevirt-controller', 'Failed'),
                (prefix + 'kubevirt:kubevirt-operator', 'Running'),
                (prefix + 'default:kubevirt-controller', 'Running')):
            new = copy.deepcopy(self.vmi)
            new['status']['phase'] = 'Failed'
            self.ask(self.hooks.mutate, new, self.vmi, user=user)
            self.assertEqual(phase, new['status']['phase'], user)

    def test_kubevirt_changes_spec_and_status_of_vmi(self):
        new = copy.deepcopy(self.vmi)
        new['status']['phase'] = 'Failed'
        new['spec']['terminationGracePeriodSeconds'] = 1
        new['spec']['volumes'].append({'name': 'cd', 'dataVolume': {
            'name': 'iso', 'hotpluggable': True}})
        self.vmi['status']['volumeStatus'] = [{'name': 'root'}]
        for hook in (self.hooks.mutate, self.hooks.validate):
            self.ask(hook, new, self.vmi, user='')
        self.assertEqual('Failed', new['status']['phase'])

    def test_rejects_vmi_without_memory(self):
        del self.vmi['spec']['domain']['memory']
        self.ask(self.hooks.mutate, self.vmi)
        self.assertIn('no memory requested', self.rejection(
            422, self.hooks.validate, self.vmi)['message'])


class KubeVirtTest(WebhookTestCase):

    def test_rejects_gate_that_is_both_enabled_and_disabled(self):
        new = {'spec': {'configuration': {'developerConfiguration': {
            'featureGates': ['A', 'B'], 'disabledFeatureGates': ['B']}}}}
        message = self.rejection(422, kubevirt.validate, new, new)['message']
        self.assertIn('feature gate "B" exists on both', message)
