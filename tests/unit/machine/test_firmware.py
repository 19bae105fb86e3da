# SPDX-License-Identifier: Apache-2.0

import copy

from oslotest import base

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.machine import firmware
from tests.unit.machine import fakes

UEFI, LEGACY = firmware.Mode.UEFI, firmware.Mode.LEGACY


def vm(loader=None, **domain):
    domain['firmware'] = {'uuid': 'x'}
    if loader is not None:
        domain['firmware']['bootloader'] = loader
    return fakes.vm(domain=domain)


def loader_of(made):
    return firmware.bootloader(made['spec']['template'])


class ModeTestCase(base.BaseTestCase):

    def test_mode_of_bootloader(self):
        self.assertIs(LEGACY, firmware.mode(vm()))
        self.assertIs(LEGACY, firmware.mode(vm({'bios': {}})))
        self.assertIs(UEFI, firmware.mode(vm({'efi': {}})))

    def test_arm_is_uefi(self):
        made = vm()
        made['spec']['template']['spec']['architecture'] = 'arm64'
        self.assertIs(UEFI, firmware.mode(made))

    def test_mode_of_preference_is_read_from_vmi(self):
        made = vm()
        running = fakes.vmi()
        running['spec']['domain']['firmware'] = {'bootloader': {'efi': {}}}
        self.assertIs(LEGACY, firmware.mode(made, running))
        made['spec']['preference'] = {'name': 'windows'}
        running['spec'] = {'spec': running['spec']}['spec']
        self.assertIs(UEFI, firmware.mode(made, running))
        # A VMI created with an override does not show the preference.
        running['metadata']['annotations'] = {stored_names.BOOT_ONCE: 'x'}
        self.assertIs(LEGACY, firmware.mode(made, running))

    def test_restores_any_bootloader(self):
        for loader in (None, {'bios': {}}, {'bios': {'useSerial': True}},
                       {'efi': {'secureBoot': False}},
                       {'efi': {'secureBoot': False, 'persistent': True}}):
            for mode in (UEFI, LEGACY):
                made = vm(loader)
                before = copy.deepcopy(made['spec'])
                change = firmware.set_mode(made, mode)
                self.assertIs(mode, firmware.mode(made), (loader, mode))
                self.assertFalse(firmware.secure_boot(made))
                if change:
                    firmware.restore_mode(made, change)
                self.assertEqual(before, made['spec'])

    def test_switching_back_restores_bootloader_options(self):
        made = vm({'efi': {'persistent': True}},
                  features={'smm': {'enabled': True}})
        self.assertTrue(firmware.secure_boot(made))
        firmware.set_mode(made, LEGACY)
        self.assertEqual({'bios': {}}, loader_of(made))
        self.assertFalse(firmware.secure_boot(made))
        made['spec']['template']['spec']['domain']['features'].clear()
        firmware.set_mode(made, UEFI)
        self.assertEqual({'efi': {'persistent': True}}, loader_of(made))
        self.assertTrue(firmware.secure_boot(made))
        self.assertEqual({'smm': {'enabled': True}},
                         made['spec']['template']['spec']['domain'][
                             'features'])

    def test_mode_overrides_preference(self):
        made = vm()
        made['spec']['preference'] = {'name': 'windows'}
        firmware.set_mode(made, LEGACY)
        self.assertEqual({'bios': {}}, loader_of(made))

    def test_keeps_edit_made_meanwhile(self):
        made = vm({'bios': {}})
        change = firmware.set_mode(made, UEFI)
        firmware.set_mode(made, LEGACY)
        before = copy.deepcopy(made)
        firmware.restore_mode(made, change)
        self.assertEqual(before, made)


class ArchitectureTestCase(base.BaseTestCase):

    def vm(self, architecture, loader=None, **domain):
        made = vm(loader, **domain)
        made['spec']['template']['spec']['architecture'] = architecture
        return made

    def test_modes(self):
        for architecture, default, modes, secure in (
                ('amd64', LEGACY, (UEFI, LEGACY), True),
                ('arm64', UEFI, (UEFI,), False),
                ('s390x', LEGACY, (LEGACY,), False),
                # Of KubeVirt 1.6 and before.
                ('ppc64le', LEGACY, (LEGACY,), False),
                (None, LEGACY, (UEFI, LEGACY), True)):
            made = self.vm(architecture)
            self.assertEqual(
                (default, modes, secure),
                (firmware.mode(made), firmware.modes(made),
                 firmware.has_secure_boot(made)))

    def test_encrypted_guests(self):
        for type_, secure in (('sev', False), ('snp', False), ('tdx', True)):
            made = self.vm('amd64', {'efi': {'secureBoot': False}},
                           launchSecurity={type_: {}})
            self.assertEqual(((UEFI,), secure),
                             (firmware.modes(made),
                              firmware.has_secure_boot(made)))
            if not secure:
                error = self.assertRaises(
                    errors.WrongState, firmware.edit_secure_boot, made, True)
                self.assertIn(f'none for amd64 with {type_}', str(error))

    def test_secure_boot_needs_amd64(self):
        for architecture, loader in (
                ('arm64', None), ('s390x', None),
                ('arm64', {'efi': {'secureBoot': False}})):
            made = self.vm(architecture, loader)
            before = copy.deepcopy(made)
            error = self.assertRaises(errors.WrongState,
                                      firmware.edit_secure_boot, made, True)
            self.assertIn(architecture, str(error))
            self.assertEqual(before, made)

    def test_uefi_of_arm64_has_no_secure_boot(self):
        made = self.vm('arm64', {'efi': {}})
        self.assertFalse(firmware.secure_boot(made))
        firmware.edit_secure_boot(made, False)
        self.assertEqual({'efi': {}}, loader_of(made))

    def test_tdx_gets_no_smm(self):
        made = self.vm('amd64', {'efi': {'secureBoot': False}},
                       launchSecurity={'tdx': {}})
        firmware.edit_secure_boot(made, True)
        self.assertNotIn('features',
                         made['spec']['template']['spec']['domain'])


class SecureBootTestCase(base.BaseTestCase):

    def test_efi_has_secure_boot_by_default(self):
        self.assertTrue(firmware.secure_boot(vm({'efi': {}})))
        self.assertFalse(firmware.secure_boot(vm({'bios': {}})))
        self.assertFalse(firmware.secure_boot(vm()))

    def test_secure_boot_enables_smm(self):
        for features in (None, {}, {'smm': {'enabled': False}},
                         {'smm': {}}, {'acpi': {}}):
            made = vm({'efi': {'secureBoot': False, 'persistent': True}})
            if features is not None:
                made['spec']['template']['spec']['domain'][
                    'features'] = copy.deepcopy(features)
            firmware.edit_secure_boot(made, True)
            self.assertEqual(
                {'efi': {'secureBoot': True, 'persistent': True}},
                loader_of(made))
            smm = made['spec']['template']['spec']['domain']['features'][
                'smm']
            self.assertIn(smm, ({'enabled': True}, {}))

    def test_secure_boot_can_be_disabled(self):
        made = vm({'efi': {'persistent': True}})
        firmware.edit_secure_boot(made, False)
        self.assertEqual({'efi': {'secureBoot': False, 'persistent': True}},
                         loader_of(made))

    def test_disabling_under_legacy_changes_nothing(self):
        made = vm()
        before = copy.deepcopy(made)
        firmware.edit_secure_boot(made, False)
        self.assertEqual(before, made)

    def test_enabling_under_legacy_is_refused(self):
        for loader in (None, {'bios': {}}):
            e = self.assertRaises(errors.WrongState,
                                  firmware.edit_secure_boot, vm(loader),
                                  True)
            self.assertIn('UEFI', str(e))
