# SPDX-License-Identifier: Apache-2.0
"""``status.bootOverride``, from the annotation that BMCs write."""

import json

from oslotest import base

from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.machine import boot
from sushy_kubevirt.operator import boot_override
from tests.unit.machine import fakes

PXE, CD, NONE = boot.Target.PXE, boot.Target.CD, boot.Target.NONE
ONCE, CONTINUOUS = boot.Enabled.ONCE, boot.Enabled.CONTINUOUS
LEGACY, UEFI = boot.Mode.LEGACY, boot.Mode.UEFI

ORDERS = {'disk:root': 1, 'cdrom:cd': 0, 'interface:default': 0}
VALID = {'vmiUID': 'u0', 'bootOrders': ORDERS, 'originalFirmware': 'UEFI'}


def annotated(**layers):
    """Return what is reported of a VM with an annotation."""
    text = json.dumps(layers)
    return boot_override.of({'metadata': {
        'annotations': {stored_names.BOOT: text}}})


def once(**original):
    """Return what is reported beside the mode."""
    found = annotated(once={'id': 'x', 'generation': 6, 'target': 'Pxe',
                            'changes': {}, 'original': original})
    assert found.pop('mode') == 'Oneshot'
    return found


class RecordTestCase(base.BaseTestCase):
    """What a BMC writes, and the operator reports."""

    def machine(self, vmi=None, **fields):
        disks = [{'name': 'root', 'disk': {}, 'bootOrder': 1},
                 {'name': 'cd', 'cdrom': {}}]
        return fakes.Machine(fakes.vm(disks=disks, **fields), vmi)

    def test_none(self):
        machine = self.machine()
        self.assertIsNone(boot_override.of(machine.vm))
        fakes.set_boot(machine, PXE, ONCE)
        fakes.set_boot(machine, NONE)
        self.assertIsNone(boot_override.of(machine.vm))
        # A persistent order is no override.
        fakes.set_boot(machine, order=['Boot1001'])
        self.assertIn(stored_names.BOOT, machine.vm['metadata'][
            'annotations'])
        self.assertIsNone(boot_override.of(machine.vm))

    def test_oneshot(self):
        machine = self.machine()
        fakes.set_boot(machine, PXE, ONCE, UEFI)
        expected = {'mode': 'Oneshot', 'bootOrders': ORDERS,
                    'originalFirmware': 'Legacy'}
        self.assertEqual(expected, boot_override.of(machine.vm))
        # The next one before the boot, of the same target or another.
        for target in PXE, CD:
            fakes.set_boot(machine, target, ONCE)
            self.assertEqual(expected, boot_override.of(machine.vm))

    def test_vmi_of_a_oneshot(self):
        for fields in {}, {'interfaces': []}:
            # Read with the VM, or from the cache.
            machine = self.machine(fakes.vmi(uid='u7'), **fields)
            fakes.set_boot(machine, CD, ONCE)
            self.assertEqual('u7', boot_override.of(machine.vm)['vmiUID'])
            self.assertEqual(bool(fields), machine.fetch_count > 0)
            fakes.set_boot(machine, CD, ONCE)
            self.assertEqual('u7', boot_override.of(machine.vm)['vmiUID'])
            self.assertEqual(1, len(machine.writes))

    def test_persistent(self):
        machine = self.machine(fakes.vmi())
        fakes.set_boot(machine, PXE, CONTINUOUS)
        self.assertEqual({'mode': 'Persistent'},
                         boot_override.of(machine.vm))
        fakes.set_boot(machine, CD, ONCE)
        found = boot_override.of(machine.vm)
        self.assertEqual(('Oneshot', ORDERS),
                         (found['mode'], found['bootOrders']))


class HostileAnnotationTestCase(base.BaseTestCase):

    def test_what_is_valid_is_reported(self):
        self.assertEqual(VALID, once(**VALID))
        self.assertEqual({}, once())
        self.assertEqual({'mode': 'Persistent'}, annotated(
            continuous={'target': 'Pxe', 'changes': {}}))
        # A BMC of an earlier release wrote no record.
        self.assertEqual({'mode': 'Oneshot'}, annotated(once={
            'id': 'x', 'generation': 6, 'target': 'Pxe', 'changes': {}}))

    def test_what_kubevirtbmc_would_not_write_is_omitted(self):
        full = {f'disk:d{number}': 1 for number in range(257)}
        for name, values in {
                'vmiUID': (None, 5, '', 'x' * 65, 'a/b', 'a\n', '\ud800', []),
                'originalFirmware': (None, 5, 'uefi', ['UEFI'], {}),
                'bootOrders': (
                    None, 5, [], 'disk:a', {'a': 1}, {'floppy:a': 1},
                    {'disk:': 1}, {'disk:a b': 1}, {'disk:a\n': 1},
                    {'disk:\u00e4': 1}, {'disk:' + 'x' * 64: 1},
                    {'disk:a': -1}, {'disk:a': True}, {'disk:a': 1.5},
                    {'disk:a': '1'}, {'disk:a': None}, {'disk:a': 2**31},
                    {'disk:a': 10**4000}, full)}.items():
            for value in values:
                with self.subTest(name=name, value=repr(value)[:60]):
                    found = once(**{**VALID, name: value})
                    self.assertEqual(VALID.keys() - {name}, found.keys())
        self.assertEqual(VALID, once(**VALID, conditions=[], mode='Other'))

    def test_what_is_no_override_is_none(self):
        for text in ('', '[]', '5', '{"once": {}}', '{"once": {"id": 5}}',
                     '{"continuous": {"target": "None"}}', '[' * 100000,
                     '{"once":{"original":' * 20000):
            self.assertIsNone(boot_override.of({'metadata': {
                'annotations': {stored_names.BOOT: text}}}))
        for original in None, 5, [], 'x':
            self.assertEqual({'mode': 'Oneshot'}, annotated(once={
                'id': 'x', 'generation': 6, 'original': original}))
