# SPDX-License-Identifier: Apache-2.0

from oslotest import base

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import attributes
from sushy_kubevirt.machine import bios
from tests.unit.machine import fakes

KNOBS = {'BootMode': 'Legacy', 'SecureBoot': 'Disabled',
         'PersistentNvram': 'Disabled', 'Tpm': 'None'}


class BiosTestCase(base.BaseTestCase):

    def machine(self, vmi=None, **domain):
        return fakes.Machine(fakes.vm(domain=domain), vmi)

    def pending(self, machine):
        return bios.pending(*machine.objects())

    def current(self, machine):
        return bios.current(*machine.objects())

    def test_knobs(self):
        for domain, changed in (
                ({}, {}),
                ({'firmware': {'bootloader': {'efi': {}}}},
                 {'BootMode': 'UEFI', 'SecureBoot': 'Enabled'}),
                ({'firmware': {'bootloader': {'efi': {
                    'secureBoot': False, 'persistent': True}}}},
                 {'BootMode': 'UEFI', 'PersistentNvram': 'Enabled'})):
            machine = self.machine(**domain)
            self.assertEqual({**KNOBS, **changed}, self.pending(machine))
            self.assertEqual({**KNOBS, **changed}, self.current(machine))

    def test_tpm(self):
        for tpm, told in (({}, 'Volatile'), ({'persistent': True},
                                             'Persistent'),
                          ({'enabled': False}, 'None')):
            machine = self.machine()
            machine.vm['spec']['template']['spec']['domain']['devices'][
                'tpm'] = tpm
            self.assertEqual(told, self.pending(machine)['Tpm'])

    def test_a_change_is_for_the_next_boot(self):
        machine = self.machine()
        machine.vmi = fakes.vmi(of=machine.vm)
        bios.set(machine, {'BootMode': 'UEFI', 'Mine': 5})
        self.assertEqual(KNOBS, self.current(machine))
        after = {**KNOBS, 'BootMode': 'UEFI', 'Mine': 5}
        self.assertEqual(after, self.pending(machine))
        # Another change, before it booted.
        bios.set(machine, {'Mine': 6, 'Other': True})
        self.assertEqual(KNOBS, self.current(machine))
        after.update(Mine=6, Other=True)
        self.assertEqual(after, self.pending(machine))
        machine.vmi = fakes.vmi(uid='u1', of=machine.vm)
        self.assertEqual(after, self.current(machine))
        bios.reset(machine)
        self.assertEqual(after, self.current(machine))
        machine.vmi = None
        self.assertEqual({**KNOBS, 'BootMode': 'UEFI'},
                         self.current(machine))

    def test_what_is_taken_back_before_a_boot_leaves_nothing(self):
        machine = self.machine()
        machine.vmi = fakes.vmi(of=machine.vm)
        before = dict(machine.vm['metadata']['annotations'])
        bios.set(machine, {'Mine': 5})
        bios.set(machine, {'Mine': None})
        self.assertEqual(before, machine.vm['metadata']['annotations'])

    def test_the_same_again_writes_nothing(self):
        machine = self.machine()
        bios.set(machine, dict(KNOBS, Mine='x'))
        self.assertEqual(['patch'], machine.actions)
        bios.set(machine, dict(KNOBS, Mine='x'))
        self.assertEqual(['patch'], machine.actions)

    def test_secure_boot(self):
        machine = self.machine()
        bios.set(machine, {'SecureBoot': 'Enabled', 'BootMode': 'UEFI'})
        self.assertEqual('Enabled', self.pending(machine)['SecureBoot'])
        bios.set(machine, {'BootMode': 'Legacy'})
        self.assertEqual('Disabled', self.pending(machine)['SecureBoot'])

    def test_refused_as_a_whole(self):
        for values in ({'BootMode': 'Other'}, {'Tpm': 'Persistent'},
                       {'SecureBoot': 'Enabled'}, {'BootMode': None},
                       {'SecureBoot': True},
                       {'BootMode': 'Legacy', 'SecureBoot': 'Enabled'}):
            machine = self.machine()
            self.assertRaises(errors.InvalidValue, bios.set, machine,
                              dict(values, Mine=5))
            self.assertEqual([], machine.writes)

    def test_notes_of_the_wrong_kind(self):
        for text in ('x', '[]', '{"vmi":"u0"}', '{"vmi":"u0","values":[1]}'):
            vm = fakes.vm(annotations={attributes.BEFORE: text,
                                       attributes.ATTRIBUTES: '{"a":1}'})
            self.assertEqual({'a': 1}, attributes.current(vm, fakes.vmi()))


class AssetTagTestCase(base.BaseTestCase):

    def test_tag(self):
        machine = fakes.Machine(fakes.vm())
        self.assertEqual('', attributes.asset_tag(machine.vm))
        attributes.set_asset_tag(machine, 'rack 7')
        self.assertEqual('rack 7', attributes.asset_tag(machine.vm))
        attributes.set_asset_tag(machine, '')
        self.assertEqual({'other': 'kept'},
                         machine.vm['metadata']['annotations'])
        self.assertRaises(errors.InvalidValue, attributes.set_asset_tag,
                          machine, 'x' * 256)
