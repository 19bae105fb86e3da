# SPDX-License-Identifier: Apache-2.0

import copy

from oslotest import base

from sushy_kubevirt.machine import boot_order
from sushy_kubevirt.machine import boot_overrides
from sushy_kubevirt.machine.media import drives
from sushy_kubevirt.machine.media import model
from sushy_kubevirt.machine import vm_state
from tests.unit.machine import fakes

CD, USB, HTTP = model.CD, model.USB_STICK, model.HTTP_BOOT
VmState = vm_state.VmState
ROOT = {'name': 'root', 'disk': {'bus': 'virtio'}}
EMPTY = {'name': 'cd', 'cdrom': {'bus': 'sata'}}


def vm_with(*disks):
    return fakes.vm(disks=copy.deepcopy(list(disks)))


def volume(name, of, hot=False):
    source = {'name': of}
    if hot:
        source['hotpluggable'] = True
    return {'name': name, 'dataVolume': source}


def disks(vm):
    return vm['spec']['template']['spec']['domain']['devices']['disks']


def volumes(vm):
    return vm['spec']['template']['spec']['volumes']


class IsHeldTestCase(base.BaseTestCase):

    def test_held_until_guest_ends(self):
        for hot, phase, held in (
                (False, 'Running', True), (False, 'Unknown', True),
                (False, 'Scheduling', True), (False, 'Pending', False),
                (False, '', False), (False, 'Succeeded', False),
                (False, 'Failed', False), (True, 'Running', False)):
            vmi = fakes.vmi(of=fakes.vm())
            vmi['spec']['volumes'].append(volume('cd', 'mine', hot))
            vmi['status']['phase'] = phase
            self.assertEqual(held, drives.is_held(vmi, 'mine'), (hot, phase))
            self.assertFalse(drives.is_held(vmi, 'other'))
        self.assertFalse(drives.is_held(None, 'mine'))


class ChooseTestCase(base.BaseTestCase):

    def test_first_empty_drive(self):
        self.assertEqual('cd', drives.choose(VmState(fakes.vm()), CD))

    def test_prefers_drive_that_guest_has(self):
        vm = vm_with(ROOT, EMPTY, dict(EMPTY, name='other'))
        vmi = fakes.vmi(of=vm_with(ROOT, dict(EMPTY, name='other')))
        self.assertEqual('other', drives.choose(VmState(vm, vmi), CD))
        vmi['status']['phase'] = 'Succeeded'
        self.assertEqual('cd', drives.choose(VmState(vm, vmi), CD))

    def test_skips_drives_with_foreign_media(self):
        vm = fakes.vm()
        volumes(vm).append({'name': 'cd', 'containerDisk': {}})
        self.assertEqual('bmc-cd', drives.choose(VmState(vm), CD))
        disks(vm).append({'name': 'bmc-cd', 'disk': {}})
        self.assertEqual('bmc-cd-2', drives.choose(VmState(vm), CD))

    def test_skips_drive_whose_change_would_migrate(self):
        vm = fakes.vm()
        vmi = fakes.vmi(of=vm)
        vmi['spec']['volumes'] = [volume('cd', 'before'),
                                  volume('bmc-usb', 'stick')]
        state = VmState(vm, vmi)
        self.assertEqual(('cd', 'bmc-usb'), (
            drives.choose(state, CD), drives.choose(state, USB)))
        vm['spec']['updateVolumesStrategy'] = 'Migration'
        self.assertTrue(drives.would_migrate(state, 'cd'))
        self.assertEqual(('bmc-cd', 'bmc-usb-2'), (
            drives.choose(state, CD), drives.choose(state, USB)))
        for other in None, dict(vmi, status={'phase': 'Failed'}):
            self.assertFalse(drives.would_migrate(VmState(vm, other), 'cd'))
            self.assertEqual('cd', drives.choose(VmState(vm, other), CD))

    def test_http_boot_has_own_drive(self):
        vm = fakes.vm()
        self.assertEqual('bmc-http', drives.choose(VmState(vm), HTTP))
        vm = vm_with(ROOT, dict(EMPTY, name='bmc-http'))
        self.assertEqual('bmc-cd', drives.choose(VmState(vm), CD))


def fill(vm, vmi, *args):
    state = VmState(vm, vmi)
    drives.edit(state, lambda: drives.fill(state, *args))


def empty(vm, vmi, *args):
    drives.edit(VmState(vm, vmi), lambda: drives.empty(vm, *args))


class FillAndEmptyTestCase(base.BaseTestCase):

    def test_fills_and_empties_existing_drive(self):
        vm = fakes.vm()
        before = copy.deepcopy(disks(vm))
        fill(vm, None, CD, 'cd', 'dv', True)
        self.assertEqual(volume('cd', 'dv', True), volumes(vm)[-1])
        self.assertEqual(before, disks(vm))
        self.assertTrue(drives.holds(vm, 'cd', 'dv'))
        fill(vm, None, CD, 'cd', 'other', False)
        self.assertEqual([volume('cd', 'other')], volumes(vm)[1:])
        empty(vm, None, CD, 'cd', 'dv', True)
        self.assertTrue(drives.holds(vm, 'cd', 'other'))
        empty(vm, None, CD, 'cd', 'other', True)
        self.assertEqual(1, len(volumes(vm)))
        self.assertEqual(before, disks(vm))

    def test_adds_drive(self):
        for keep in (True, False):
            vm = vm_with(ROOT)
            fill(vm, None, CD, 'bmc-cd', 'dv', True)
            self.assertEqual({'name': 'bmc-cd', 'cdrom': {}}, disks(vm)[-1])
            empty(vm, None, CD, 'bmc-cd', 'dv', keep)
            self.assertEqual(2 if keep else 1, len(disks(vm)))

    def test_added_drive_is_on_a_bus_that_kubevirt_accepts(self):
        for architecture, preference, cdrom in (
                ('amd64', None, {'bus': 'sata'}),
                ('arm64', None, {'bus': 'scsi'}),
                ('s390x', None, {'bus': 'scsi'}),
                ('arm64', {'name': 'fedora'}, {'bus': 'scsi'}),
                ('amd64', {'name': 'windows'}, {})):
            vm = vm_with(ROOT)
            vm['spec']['template']['spec']['architecture'] = architecture
            if preference:
                vm['spec']['preference'] = preference
            fill(vm, None, CD, 'bmc-cd', 'dv', True)
            self.assertEqual({'name': 'bmc-cd', 'cdrom': cdrom},
                             disks(vm)[-1])

    def test_drive_of_owner_stays(self):
        vm = fakes.vm()
        fill(vm, None, CD, 'cd', 'dv', False)
        empty(vm, None, CD, 'cd', 'dv', False)
        self.assertEqual([ROOT, EMPTY], disks(vm))

    def test_usb_stick_is_added_and_removed(self):
        for protected in (True, False):
            vm = fakes.vm()
            fill(vm, None, USB, 'bmc-usb', 'dv', True, protected)
            self.assertEqual('usb', disks(vm)[-1]['disk']['bus'])
            self.assertEqual(protected,
                             disks(vm)[-1]['disk'].get('readonly', False))
            self.assertEqual(volume('bmc-usb', 'dv'), volumes(vm)[-1])
            empty(vm, None, USB, 'bmc-usb', 'dv', True)
            self.assertEqual(fakes.vm()['spec'], vm['spec'])

    def test_does_not_hotplug_into_missing_drive(self):
        vm = vm_with(ROOT)
        vmi = fakes.vmi(of=vm)
        fill(vm, vmi, CD, 'bmc-cd', 'dv', True)
        self.assertEqual(volume('bmc-cd', 'dv'), volumes(vm)[-1])
        self.assertTrue(drives.waits_for_start(
            VmState(vm, vmi), 'bmc-cd', 'dv'))

    def test_order_of_override_and_drive_does_not_matter(self):
        for class_, continuous in (
                (boot_order.Target.CD, None),
                (boot_order.Target.PXE, boot_order.Target.CD),
                (boot_order.Target.CD, boot_order.Target.PXE)):
            first, second = vm_with(ROOT), vm_with(ROOT)

            def override(vm):
                if continuous:
                    boot_overrides.apply_continuous(vm, continuous)
                boot_overrides.apply_once(vm, 'id', class_, terminate=True)

            override(first)
            fill(first, None, CD, 'bmc-cd', 'dv', True)
            fill(second, None, CD, 'bmc-cd', 'dv', True)
            override(second)
            self.assertEqual(second, first)
            empty(first, None, CD, 'bmc-cd', 'dv', False)
            boot_overrides.remove_overrides(first)
            self.assertEqual(vm_with(ROOT), first)

    def test_used_override_is_not_restored(self):
        vm = vm_with(ROOT)
        boot_overrides.apply_once(vm, 'id', boot_order.Target.PXE)
        vmi = fakes.vmi(of=vm)
        fill(vm, vmi, CD, 'bmc-cd', 'dv', True)
        self.assertIsNone(boot_overrides.once(vm))
        self.assertFalse([disk for disk in disks(vm) if 'bootOrder' in disk])

    def test_override_of_starting_vmi_stays(self):
        vm = vm_with(ROOT)
        boot_overrides.apply_once(vm, 'id', boot_order.Target.CD)
        override_before = boot_overrides.once(vm)
        vmi = fakes.vmi('Pending', of=vm)
        fill(vm, vmi, CD, 'bmc-cd', 'dv', True)
        self.assertEqual(override_before['id'], boot_overrides.once(vm)['id'])
        self.assertEqual(1, disks(vm)[-1]['bootOrder'])


class WaitsForStartTestCase(base.BaseTestCase):

    def test_waits_for_start(self):
        hot, cold = volume('cd', 'dv', True), volume('cd', 'dv')
        old_hot, old = volume('cd', 'old', True), volume('cd', 'old')
        for desired, present, has_drive, waits in (
                (hot, None, True, False),       # will be hotplugged
                (hot, None, False, True),
                (cold, None, True, True),
                (hot, hot, True, False),
                (cold, cold, True, False),
                (hot, old_hot, True, False),    # will be replaced
                (hot, old, True, True),
                (cold, old, True, True),
                (hot, {'name': 'cd', 'containerDisk': {}}, True, True)):
            vm = fakes.vm()
            volumes(vm).append(desired)
            running = vm_with(*[ROOT, EMPTY][:2 if has_drive else 1])
            if present:
                volumes(running).append(present)
            vmi = fakes.vmi(of=running)
            state = VmState(vm, vmi)
            self.assertIs(waits, drives.waits_for_start(state, 'cd', 'dv'),
                          (desired, present, has_drive))
            vmi['status']['phase'] = 'Failed'
            self.assertFalse(drives.waits_for_start(state, 'cd', 'dv'))
            self.assertFalse(drives.waits_for_start(VmState(vm), 'cd', 'dv'))

    def test_cause(self):
        off = 'the gate is off; switch it on'
        again = ('KubeVirt could not change media of running guests when it '
                 'was inserted, and now can: eject it and insert it again to '
                 'have it at once.')
        for device, has_drive, change, gates, cause in (
                (model.CD, False, {}, '', 'The running guest has no empty '
                 'CD-ROM drive, so the drive cd was added to the VM. A guest '
                 'that starts with an empty drive gets media at once.'),
                (model.CD, False, {}, off, 'The running guest has no empty '
                 'CD-ROM drive, so the drive cd was added to the VM. The gate '
                 'is off; switch it on.'),
                (model.CD, True, {}, off, 'The gate is off; switch it on, '
                 'then eject the medium and insert it again.'),
                (model.CD, True, {'medium': {}}, '', 'The guest keeps the '
                 'medium that it was started with until it ends.'),
                (model.CD, True, {'medium': {'hotpluggable': True}}, '',
                 again),
                (model.CD, True, {}, '', again),
                (model.CD, True, {'disableHotplug': True}, off,
                 "disableHotplug of the VM's devices is true; remove it to "
                 'insert media at once.'),
                (model.CD, True, {'strategy': 'Migration'}, off,
                 'The VM has updateVolumesStrategy Migration, with which '
                 'KubeVirt would migrate the guest for its medium; remove it '
                 'to insert media at once.'),
                (model.USB_STICK, False, {}, off, 'KubeVirt cannot plug a USB '
                 'disk into a running guest; the device Cd can be filled '
                 'while it runs.')):
            vm = fakes.vm()
            if change.get('disableHotplug'):
                vm['spec']['template']['spec']['domain']['devices'][
                    'disableHotplug'] = True
            if 'strategy' in change:
                vm['spec']['updateVolumesStrategy'] = change['strategy']
            running = vm_with(*[ROOT, EMPTY][:1 + has_drive])
            if 'medium' in change:
                volumes(running).append({'name': 'cd', 'dataVolume': {
                    'name': 'former', **change['medium']}})
            vmi = fakes.vmi(of=running)
            self.assertEqual(cause, drives.restart_cause(
                VmState(vm, vmi), device, 'cd', gates))
