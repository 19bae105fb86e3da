# SPDX-License-Identifier: Apache-2.0
"""Boot override annotations that were written by a user, not by a BMC.

Every user who may edit a VM can write them.
"""

import json

from oslotest import base

from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine import boot_overrides
from sushy_kubevirt.machine import firmware
from sushy_kubevirt.machine import one_time_boot
from sushy_kubevirt.machine import power_state
from sushy_kubevirt.machine import reset
from tests.unit.machine import fakes

DEEP = '[' * 100000
VALID = {'id': 'x', 'generation': 6, 'target': 'Pxe', 'changes': {}}


def once(**members):
    return json.dumps({'once': {**VALID, **members}})


INVALID = (
    'x', '[]', '5', DEEP, '{"once":' * 20000,
    json.dumps({'once': {}}), json.dumps({'once': 5, 'continuous': [5]}),
    once(id=None), once(id={}), once(id=5),
    once(generation='6'), once(generation=None),
    '{"once":{"id":"x","target":"Pxe","generation":1e400}}',
    once(target='Floppy'), once(target=['Pxe']), once(mode='uefi'),
    once(changes=5), once(changes={'disks': 5}),
    once(changes={'disks': {'root': 1}}),
    once(changes={'disks': {'root': [1]}}),
    once(changes={'interfaces': {'default': ['1', {}]}}),
    once(changes={'added': 5}), once(changes={'added': [5]}),
    once(changes={'bootloader': 'x'}),
    once(changes={'bootloader': [5, {}]}),
    once(changes={'bootloader': [{'efi': 5}, {'bios': {}}]}),
    once(changes={'rebootPolicy': [1, 2]}),
    json.dumps({'continuous': {}}),
    json.dumps({'continuous': {'target': 'None'}}),
    json.dumps({'continuous': {'target': 'Pxe', 'changes': []}}),
)


class InvalidAnnotationTestCase(base.BaseTestCase):

    def machine(self, name, text, **kwargs):
        vm = fakes.vm('Manual', annotations={name: text}, **kwargs)
        return fakes.Machine(vm, gates=())

    def assert_bmc_works(self, machine):
        """Check that boot settings and power work despite the annotation."""
        state = machine.state()
        self.assertEqual(
            boot.BootState(boot.Target.NONE, boot.Enabled.DISABLED,
                           boot.Mode.LEGACY), boot.settings(state))
        one_time_boot.desired_vm(state)
        reset.reset(machine, power_state.ResetType.ON)
        machine.vmi = fakes.vmi(of=machine.vm)
        reset.reset(machine, power_state.ResetType.FORCE_OFF)
        self.assertEqual(['start', 'stop'],
                         [name for name, _ in machine.writes
                          if name != 'patch'])
        machine.vmi = None
        fakes.set_boot(machine, boot.Target.CD, boot.Enabled.ONCE,
                       boot.Mode.UEFI)
        self.assertEqual(
            boot.BootState(boot.Target.CD, boot.Enabled.ONCE,
                           boot.Mode.UEFI), boot.settings(machine.state()))
        fakes.set_boot(machine, enabled=boot.Enabled.DISABLED)
        self.assertEqual(fakes.vm('Manual')['spec'], machine.vm['spec'])

    def test_invalid_overrides_are_ignored(self):
        for text in INVALID:
            machine = self.machine(stored_names.BOOT, text)
            self.assertIsNone(boot_overrides.once(machine.vm), text[:80])
            self.assertIsNone(boot_overrides.continuous(machine.vm), text[:80])
            self.assert_bmc_works(machine)

    def test_valid_override_is_read(self):
        machine = self.machine(stored_names.BOOT, once())
        self.assertEqual(VALID, boot_overrides.once(machine.vm))

    def test_valid_override_beside_invalid_one_is_read(self):
        continuous = {'target': 'Hdd', 'changes': {}}
        machine = self.machine(stored_names.BOOT, json.dumps(
            {'once': {}, 'continuous': continuous}))
        self.assertIsNone(boot_overrides.once(machine.vm))
        self.assertEqual(continuous, boot_overrides.continuous(machine.vm))

    def test_invalid_run_strategy_is_ignored(self):
        for text in (DEEP, '[]', '{"runStrategy":[]}',
                     '{"runStrategy":{"a":1},"vmi":[1]}',
                     '{"runStrategy":"Halted"}'):
            self.assert_bmc_works(
                self.machine(stored_names.RUN_STRATEGY, text))

    def test_invalid_bootloaders_are_ignored(self):
        for text in (DEEP, '[]', '{"efi":5,"bios":"x"}', '{"efi":[]}'):
            machine = self.machine(stored_names.BOOTLOADERS, text)
            self.assert_bmc_works(machine)
            fakes.set_boot(machine, mode=boot.Mode.UEFI)
            self.assertEqual({'efi': {'secureBoot': False}},
                             firmware.bootloader(
                                 machine.vm['spec']['template']))
