# SPDX-License-Identifier: Apache-2.0

from oslotest import base

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.machine import attributes
from sushy_kubevirt.machine import bios
from sushy_kubevirt.machine import bmc_annotations
from sushy_kubevirt.machine import changes
from sushy_kubevirt.machine import vm_state
from tests.unit.machine import fakes

DEFAULTS = {'BootMode': 'Legacy', 'SecureBoot': 'Disabled',
            'PersistentNvram': 'Disabled', 'Tpm': 'None'}


class BiosTestCase(base.BaseTestCase):

    def machine(self, vmi=None, **domain):
        return fakes.Machine(fakes.vm(domain=domain), vmi)

    def pending(self, machine):
        return bios.pending(machine.state())

    def current(self, machine):
        return bios.current(machine.state())

    def test_attributes_of_bootloader(self):
        for domain, changed in (
                ({}, {}),
                ({'firmware': {'bootloader': {'efi': {}}}},
                 {'BootMode': 'UEFI', 'SecureBoot': 'Enabled'}),
                ({'firmware': {'bootloader': {'efi': {
                    'secureBoot': False, 'persistent': True}}}},
                 {'BootMode': 'UEFI', 'PersistentNvram': 'Enabled'})):
            machine = self.machine(**domain)
            self.assertEqual({**DEFAULTS, **changed}, self.pending(machine))
            self.assertEqual({**DEFAULTS, **changed}, self.current(machine))

    def test_tpm(self):
        for tpm, expected in (({}, 'Volatile'),
                              ({'persistent': True}, 'Persistent'),
                              ({'enabled': False}, 'None')):
            machine = self.machine()
            machine.vm['spec']['template']['spec']['domain']['devices'][
                'tpm'] = tpm
            self.assertEqual(expected, self.pending(machine)['Tpm'])

    def test_change_takes_effect_at_next_boot(self):
        machine = self.machine()
        machine.vmi = fakes.vmi(of=machine.vm)
        bios.set(machine, {'BootMode': 'UEFI', 'Mine': 5})
        self.assertEqual(DEFAULTS, self.current(machine))
        after = {**DEFAULTS, 'BootMode': 'UEFI', 'Mine': 5}
        self.assertEqual(after, self.pending(machine))
        # Another change before the next boot.
        bios.set(machine, {'Mine': 6, 'Other': True})
        self.assertEqual(DEFAULTS, self.current(machine))
        after.update(Mine=6, Other=True)
        self.assertEqual(after, self.pending(machine))
        machine.vmi = fakes.vmi(uid='u1', of=machine.vm)
        self.assertEqual(after, self.current(machine))
        bios.reset(machine)
        self.assertEqual(after, self.current(machine))
        machine.vmi = None
        self.assertEqual({**DEFAULTS, 'BootMode': 'UEFI'},
                         self.current(machine))

    def test_change_reverted_before_boot_leaves_no_annotation(self):
        machine = self.machine()
        machine.vmi = fakes.vmi(of=machine.vm)
        before = dict(machine.vm['metadata']['annotations'])
        bios.set(machine, {'Mine': 5})
        bios.set(machine, {'Mine': None})
        self.assertEqual(before, machine.vm['metadata']['annotations'])

    def test_same_values_write_nothing(self):
        machine = self.machine()
        bios.set(machine, dict(DEFAULTS, Mine='x'))
        self.assertEqual(['patch'], machine.actions)
        bios.set(machine, dict(DEFAULTS, Mine='x'))
        self.assertEqual(['patch'], machine.actions)

    def test_secure_boot(self):
        machine = self.machine()
        bios.set(machine, {'SecureBoot': 'Enabled', 'BootMode': 'UEFI'})
        self.assertEqual('Enabled', self.pending(machine)['SecureBoot'])
        bios.set(machine, {'BootMode': 'Legacy'})
        self.assertEqual('Disabled', self.pending(machine)['SecureBoot'])

    def test_invalid_value_refuses_whole_change(self):
        for values in ({'BootMode': 'Other'}, {'Tpm': 'Persistent'},
                       {'SecureBoot': 'Enabled'}, {'BootMode': None},
                       {'SecureBoot': True},
                       {'BootMode': 'Legacy', 'SecureBoot': 'Enabled'}):
            machine = self.machine()
            self.assertRaises(errors.InvalidValue, bios.set, machine,
                              dict(values, Mine=5))
            self.assertEqual([], machine.writes)

    def test_invalid_annotation_is_ignored(self):
        for text in ('x', '[]', '{"vmi":"u0"}', '{"vmi":"u0","values":[1]}'):
            vm = fakes.vm(annotations={stored_names.ATTRIBUTES_BEFORE: text,
                                       stored_names.ATTRIBUTES: '{"a":1}'})
            self.assertEqual(1, bios.current(
                vm_state.VmState(vm, fakes.vmi()))['a'])


class StoredAttributesTestCase(base.BaseTestCase):

    def get(self, text):
        return {
            name: value for name, value in bios.pending(vm_state.VmState(
                fakes.vm(annotations={stored_names.ATTRIBUTES: text}))).items()
            if name not in DEFAULTS}

    def test_returns_stored_values(self):
        self.assertEqual({'a': 'b', 'n': 5, 'f': 0.5, 't': True},
                         self.get('{"a":"b","n":5,"f":0.5,"t":true}'))

    def test_ignores_invalid_annotation(self):
        for text in ('', 'x', '[1]', '5', '[' * 100000,
                     '{"a":' + '9' * 5000 + '}'):
            self.assertEqual({}, self.get(text))

    def test_ignores_values_outside_json_or_redfish(self):
        self.assertEqual({'a': 'b'}, self.get(
            '{"a":"b","nan":NaN,"inf":-Infinity,"big":1e999,"null":null,'
            '"object":{},"list":[]}'))


class AssetTagTestCase(base.BaseTestCase):

    def test_tag(self):
        machine = fakes.Machine(fakes.vm())
        self.assertEqual('', bmc_annotations.text(
            machine.vm, stored_names.ASSET_TAG))
        changes.write(machine, (attributes.text_change(
            stored_names.ASSET_TAG, 'rack 7'),))
        self.assertEqual('rack 7', bmc_annotations.text(
            machine.vm, stored_names.ASSET_TAG))
        changes.write(machine, (attributes.text_change(
            stored_names.ASSET_TAG, ''),))
        self.assertEqual({'other': 'kept'},
                         machine.vm['metadata']['annotations'])
        self.assertRaises(errors.InvalidValue, attributes.text_change,
                          stored_names.ASSET_TAG, 'x' * 256)
