# SPDX-License-Identifier: Apache-2.0

import copy

from oslotest import base

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine import boot_options
from sushy_kubevirt.machine import boot_order
from sushy_kubevirt.machine import boot_overrides
from sushy_kubevirt.machine import vm_state
from tests.unit.machine import fakes

ROOT, CD, EXTRA = 'Boot0001', 'Boot0002', 'Boot0003'
FIRST, SECOND = 'Boot1001', 'Boot1002'


def make_vm(orders=None, extra=True):
    """Return a VM with a disk, a CD-ROM, a volume without a disk and two NICs.

    :param orders: dict: device name: boot order number
    """
    vm = {
        'metadata': {'name': 'vm', 'namespace': 'default', 'generation': 3},
        'spec': {'template': {'spec': {
            'domain': {'devices': {
                'disks': [{'name': 'root', 'disk': {}},
                          {'name': 'cd', 'cdrom': {}}],
                'interfaces': [{'name': 'one'}, {'name': 'two'}]}},
            'volumes': [{'name': 'root', 'emptyDisk': {}},
                        {'name': 'cd', 'containerDisk': {}}]}}}}
    if extra:
        vm['spec']['template']['spec']['volumes'].append(
            {'name': 'extra', 'emptyDisk': {}})
    devices = vm['spec']['template']['spec']['domain']['devices']
    for item in devices['disks'] + devices['interfaces']:
        if item['name'] in (orders or {}):
            item['bootOrder'] = orders[item['name']]
    return vm


def numbers(vm):
    devices = vm['spec']['template']['spec']['domain']['devices']
    return {item['name']: item['bootOrder']
            for item in devices['disks'] + devices['interfaces']
            if 'bootOrder' in item}


class TestOptions(base.BaseTestCase):

    def test_each_bootable_device_has_an_option(self):
        self.assertEqual(
            [(ROOT, 'root', 'Hdd'), (CD, 'cd', 'Cd'), (EXTRA, 'extra', 'Hdd'),
             (FIRST, 'one', 'Pxe'), (SECOND, 'two', 'Pxe')],
            [(option.reference, option.name, option.class_.value)
             for option in boot_options.options(make_vm())])

    def test_default_order_without_numbers(self):
        self.assertEqual((ROOT,), boot_options.order(make_vm()))
        vm = make_vm(extra=False)
        del vm['spec']['template']['spec']['domain']['devices']['disks'][0]
        del vm['spec']['template']['spec']['volumes'][0]
        self.assertEqual((ROOT,), boot_options.order(vm))
        self.assertEqual('cd', boot_options.options(vm)[0].name)

    def test_order_by_boot_order_numbers(self):
        vm = make_vm({'two': 1, 'cd': 4})
        self.assertEqual((SECOND, CD), boot_options.order(vm))

    def test_vm_without_devices(self):
        vm = make_vm()
        vm['spec']['template']['spec'].update(volumes=[], domain={
            'devices': {'autoattachPodInterface': False}})
        self.assertEqual((), boot_options.options(vm))
        self.assertEqual((), boot_options.order(vm))


class TestEdit(base.BaseTestCase):

    def edit(self, vm, *references, vmi=None):
        edited = copy.deepcopy(vm)
        boot_options.edit(vm_state.VmState(edited, vmi), references)
        self.assertEqual(references, boot_options.order(edited))
        return edited

    def default(self, vm):
        edited = copy.deepcopy(vm)
        boot_options.edit(vm_state.VmState(edited), None)
        return edited

    def without_annotations(self, vm):
        self.assertFalse(vm['metadata'].get('annotations'))
        vm['metadata'].pop('annotations', None)
        self.assertFalse(vm['spec']['template'].pop('metadata', None))
        return vm

    def test_order_contains_only_given_references(self):
        before = make_vm({'root': 1, 'one': 2})
        vm = self.edit(before, SECOND, CD)
        self.assertEqual({'two': 1, 'cd': 2}, numbers(vm))
        self.assertEqual(before, self.without_annotations(self.default(vm)))

    def test_volume_without_disk_gets_a_number(self):
        before = make_vm()
        vm = self.edit(before, EXTRA, ROOT)
        self.assertEqual({'extra': 1, 'root': 2}, numbers(vm))
        vm = self.edit(vm, ROOT, EXTRA)
        self.assertEqual({'extra': 2, 'root': 1}, numbers(vm))
        self.assertEqual(before, self.without_annotations(self.default(vm)))

    def test_references_are_stable(self):
        before = make_vm()
        before['spec']['template']['spec']['volumes'].append(
            {'name': 'more', 'emptyDisk': {}})
        vm = self.edit(before, 'Boot0004')
        self.assertEqual({'more': 1}, numbers(vm))
        self.assertEqual(
            [option.reference for option in boot_options.options(before)],
            [option.reference for option in boot_options.options(vm)])
        self.assertEqual(before, self.without_annotations(self.default(vm)))

    def test_same_order_changes_nothing(self):
        vm = self.edit(make_vm({'root': 1}), FIRST, ROOT)
        self.assertEqual(vm, self.edit(vm, FIRST, ROOT))

    def test_invalid_references_are_refused(self):
        for references in ((), ('Boot0009',), (ROOT, ROOT), ('nonsense',),
                           (ROOT, 7)):
            self.assertRaises(errors.InvalidValue, boot_options.edit,
                              vm_state.VmState(make_vm()), references)

    def test_continuous_override_stays_on_top(self):
        before = make_vm()
        vm = copy.deepcopy(before)
        boot_overrides.apply_continuous(vm, boot_order.Target.PXE)
        vm = self.edit(vm, CD, ROOT)
        # The devices of the override are still first.
        self.assertEqual({'one': 1, 'two': 2, 'cd': 3, 'root': 4,
                          'extra': 5}, numbers(vm))
        self.assertIsNotNone(boot_overrides.active_continuous(vm))
        boot_overrides.remove_overrides(vm)
        self.assertEqual({'cd': 1, 'root': 2}, numbers(vm))
        self.assertEqual(before, self.without_annotations(self.default(vm)))

    def test_inactive_continuous_override_is_ignored(self):
        vm = make_vm()
        boot_overrides.apply_continuous(vm, boot_order.Target.PXE)
        for item in vm['spec']['template']['spec']['domain']['devices'][
                'interfaces']:
            del item['bootOrder']
        vm = self.edit(vm, CD)
        self.assertEqual({'cd': 1}, numbers(vm))

    def test_one_time_override_stays_on_top(self):
        before = make_vm({'root': 1})
        vm = copy.deepcopy(before)
        boot_overrides.apply_once(
            vm, 'mark', boot_order.Target.CD, terminate=True)
        vm = self.edit(vm, FIRST, ROOT)
        self.assertEqual({'cd': 1, 'one': 2, 'root': 3, 'extra': 4,
                          'two': 5}, numbers(vm))
        self.assertEqual('mark', boot_overrides.once(vm)['id'])
        self.assertTrue(boot_overrides.ends_at_reboot(vm))
        boot_overrides.remove(vm, 'once')
        self.assertEqual({'one': 1, 'root': 2}, numbers(vm))
        self.assertEqual(before, self.without_annotations(self.default(vm)))

    def test_started_one_time_override_is_removed(self):
        vm = make_vm({'root': 1})
        boot_overrides.apply_once(vm, 'mark', boot_order.Target.CD)
        vmi = {'metadata': {'name': 'vm', 'uid': 'u',
                            'annotations': copy.deepcopy(
                                vm['spec']['template']['metadata'][
                                    'annotations'])},
               'spec': {}, 'status': {'phase': 'Running', 'nodeName': 'n'}}
        vm = self.edit(vm, FIRST, vmi=vmi)
        self.assertIsNone(boot_overrides.once(vm))
        self.assertEqual({'one': 1}, numbers(vm))

    def with_http_boot(self):
        vm = make_vm({'root': 1}, extra=False)
        spec = vm['spec']['template']['spec']
        spec['domain']['devices']['disks'].append(
            {'name': boot_order.HTTP_DRIVE, 'cdrom': {}})
        spec['volumes'].append(
            {'name': boot_order.HTTP_DRIVE, 'dataVolume': {'name': 'x'}})
        vm['spec']['runStrategy'] = 'Manual'
        vm['status'] = {}
        vm['metadata'].update(uid='u', resourceVersion='1', annotations={})
        boot_overrides.apply_once(vm, 'mark', boot_order.Target.UEFI_HTTP)
        return vm

    def test_http_boot_stays_on_top(self):
        vm = self.edit(self.with_http_boot(), FIRST, ROOT)
        self.assertEqual(1, numbers(vm)[boot_order.HTTP_DRIVE])
        self.assertEqual([ROOT, CD, FIRST, SECOND], [
            option.reference for option in boot_options.options(vm)])

    def test_new_order_removes_http_drive_with_override(self):
        for change in (
                lambda machine: fakes.set_boot(machine, order=(FIRST,)),
                boot.set_default_order):
            machine = fakes.Machine(self.with_http_boot())
            machine.vmi = fakes.vmi(of=machine.vm)
            change(machine)
            self.assertIsNone(boot_overrides.once(machine.vm))
            self.assertNotIn(boot_order.HTTP_DRIVE, str(machine.vm))

    def test_later_edit_by_owner_is_kept(self):
        vm = self.edit(make_vm({'root': 1}), FIRST, CD)
        devices = vm['spec']['template']['spec']['domain']['devices']
        devices['interfaces'][1]['bootOrder'] = 9
        devices['disks'][1]['bootOrder'] = 5
        self.assertEqual((FIRST, CD, SECOND), boot_options.order(vm))
        # The owner's numbers stay.
        self.assertEqual({'root': 1, 'cd': 5, 'two': 9},
                         numbers(self.default(vm)))
