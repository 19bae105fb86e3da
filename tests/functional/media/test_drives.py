# SPDX-License-Identifier: Apache-2.0
"""Virtual media: the effect of insert and eject on a VM and its guest."""

import fixtures

from kubevirt_sandbox.testing import machines
from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine import power_state
from tests.fixtures import lagging_controllers
from tests.fixtures import machine_case
from tests.fixtures import media_case

R = power_state.ResetType
S = media_case.S
ON, OFF = machine_case.ON, machine_case.OFF


class DriveTestCase(media_case.MediaTestCase):

    def check_unchanged(self, machine, before):
        """Check that run strategy and boot order have not changed."""
        vm = self.sandbox.vm(machine.name)
        self.assertEqual(before['spec'].get('runStrategy'),
                         vm['spec'].get('runStrategy'))
        for kind in ('disks', 'interfaces'):
            self.assertFalse([
                device for device in vm['spec']['template']['spec']['domain'][
                    'devices'][kind] if 'bootOrder' in device])

    def test_insert_into_empty_drive_of_stopped_vm(self):
        machine = self.machine('Halted', change=media_case.drop_medium)
        before = self.sandbox.vm(machine.name)
        source = self.source()
        self.assertIsNone(machine.medium('Cd'))
        machine.insert_media('Cd', source)
        medium = self.wait_state(machine, S.READY)
        self.assertEqual(
            (source.url, source.url.rpartition('/')[2], 100.0, False, True),
            (medium.url, medium.image_name, medium.progress,
             medium.pending_restart, medium.write_protected))
        self.check_unchanged(machine, before)
        self.assertEqual(
            ({'name': 'cd', 'cdrom': {'bus': 'sata'}},
             {'name': 'cd', 'dataVolume': {
                 'name': medium.data_volume, 'hotpluggable': True}}),
            self.drive_of(machine))
        machine.reset(R.ON)
        self.becomes(machine, ON)
        self.assertEqual(S.READY, self.wait_state(machine, S.READY).state)
        vmi = self.uid(machine.name)
        machine.eject_media('Cd')
        self.assertIsNone(machine.medium('Cd'))
        self.wait_clean(machine)
        self.assertEqual(({'name': 'cd', 'cdrom': {'bus': 'sata'}}, None),
                         self.drive_of(machine))
        self.until('an empty drive', lambda: not media_case.find(
            self.sandbox.vmi(machine.name)['spec']['volumes'], 'cd'))
        self.assertEqual(vmi, self.uid(machine.name))
        machine.eject_media('Cd')

    def test_insert_into_empty_drive_of_running_vm(self):
        machine = self.machine('Always', change=media_case.drop_medium,
                               off=False)
        before = self.sandbox.vm(machine.name)
        vmi = self.uid(machine.name)
        for _ in range(2):  # insert, then replace
            machine.insert_media('Cd', self.source())
            medium = self.wait_state(machine, S.READY)
            self.assertFalse(medium.pending_restart)
            # The import may be done before KubeVirt has seen the change.
            self.sandbox.wait(
                'virtualmachineinstances', machine.name,
                lambda vmi: (media_case.find(vmi['spec']['volumes'], 'cd')
                             or {}).get('dataVolume', {}).get('name')
                == medium.data_volume)
        self.assertEqual(vmi, self.uid(machine.name))
        self.assertEqual([medium.data_volume], self.data_volumes(machine))
        self.check_unchanged(machine, before)
        machine.eject_media('Cd')
        self.wait_clean(machine)

    def test_insert_adds_missing_drive(self):
        machine = self.machine('Halted', change=media_case.drop_drive)
        before = self.sandbox.vm(machine.name)
        machine.insert_media('Cd', self.source())
        self.wait_state(machine, S.READY)
        self.check_unchanged(machine, before)
        disk, volume = self.drive_of(machine, 'bmc-cd')
        self.assertIn('cdrom', disk)
        self.assertTrue(volume)
        machine.set_boot(boot.Target.CD, boot.Enabled.ONCE)
        machine.reset(R.ON)
        self.assertEqual('cdrom:bmc-cd', self.sandbox.wait_boot(
            machine.name, 1)['device'])
        self.becomes(machine, ON)
        # After the one-time boot the medium stays until it is ejected.
        self.until('override disabled', lambda: machine.boot().enabled
                   is boot.Enabled.DISABLED)
        self.assertEqual(S.READY, machine.medium('Cd').state)
        machine.eject_media('Cd')
        self.wait_clean(machine)

    def test_one_time_boot_set_before_insert(self):
        bmc = self.bmc()
        self.until('CDI', lambda: bmc.media.cdi.served)
        for change in (media_case.drop_drive, media_case.drop_medium):
            machine = self.machine('Halted', bmc, change=change)
            machine.set_boot(boot.Target.CD, boot.Enabled.ONCE)
            self.assertEqual(boot.Target.CD, machine.boot().target)
            machine.insert_media('Cd', self.source())
            self.assertEqual(
                (boot.Target.CD, boot.Enabled.ONCE),
                (machine.boot().target, machine.boot().enabled))
            machine.reset(R.ON)
            self.assertEqual('Cd', self.sandbox.wait_boot(
                machine.name, 1)['class'])
            self.becomes(machine, ON)
            self.until('override disabled', lambda: machine.boot().enabled
                       is boot.Enabled.DISABLED)
            self.wait_override_removed(machine.name)
            self.sandbox.guest_does(machine.name, 'reboot')
            self.assertEqual('Hdd', self.sandbox.wait_boot(
                machine.name, 2)['class'])
            machine.eject_media('Cd')
            self.wait_clean(machine)

    def test_boots_the_inserted_medium_and_not_the_owners(self):
        def add_tools(spec):
            media_case.drop_medium(spec)
            spec['domain']['devices']['disks'].insert(
                1, {'name': 'tools', 'cdrom': {'bus': 'sata'}})
            spec['volumes'].append({'name': 'tools', 'containerDisk': {
                'image': machines.MEDIUM}})

        for insert_first in True, False:
            machine = self.machine('Halted', change=add_tools)
            spec = self.sandbox.vm(machine.name)['spec']
            actions = [lambda: machine.insert_media('Cd', self.source()),
                       lambda: machine.set_boot(boot.Target.CD,
                                                boot.Enabled.CONTINUOUS)]
            for action in actions if insert_first else reversed(actions):
                action()
            self.wait_state(machine, S.READY)
            machine.reset(R.ON)
            self.assertEqual('cdrom:cd', self.sandbox.wait_boot(
                machine.name, 1)['device'])
            self.becomes(machine, ON)
            machine.reset(R.FORCE_OFF)
            machine.eject_media('Cd')
            # In its owner's order when there is no medium.
            disks = self.sandbox.vm(machine.name)['spec']['template']['spec'][
                'domain']['devices']['disks']
            self.assertEqual({'tools': 1, 'cd': 2, 'root': 3}, {
                disk['name']: disk['bootOrder'] for disk in disks})
            machine.set_boot(enabled=boot.Enabled.DISABLED)
            self.wait_clean(machine)
            after = self.sandbox.vm(machine.name)['spec']
            self.assertEqual(spec['template'], after['template'])

    def test_boots_the_usb_stick_once(self):
        machine = self.machine('Halted')
        self.until('CDI', lambda: machine.cluster.media.cdi.served)
        self.assertIn(boot.Target.USB, machine.boot_targets())
        machine.set_boot(boot.Target.USB, boot.Enabled.ONCE)
        machine.insert_media('USBStick', self.source())
        self.wait_state(machine, S.READY, 'USBStick')
        machine.reset(R.ON)
        booted = self.sandbox.wait_boot(machine.name, 1)
        self.assertEqual(('disk:bmc-usb', 'Usb'),
                         (booted['device'], booted['class']))
        self.becomes(machine, ON)
        self.assertIs(boot.Target.USB, machine.booted_from())
        self.wait_override_removed(machine.name)
        # A hard disk is never the stick.
        machine.set_boot(boot.Target.HDD, boot.Enabled.ONCE)
        machine.reset(R.FORCE_RESTART)
        self.assertEqual('disk:root', self.sandbox.wait_boot(
            machine.name, 2)['device'])
        self.becomes(machine, ON)
        machine.reset(R.FORCE_OFF)
        machine.eject_media('USBStick')
        self.wait_clean(machine)

    def test_continuous_override_survives_eject(self):
        machine = self.machine('Halted', change=media_case.drop_drive)
        machine.insert_media('Cd', self.source())
        machine.set_boot(boot.Target.CD, boot.Enabled.CONTINUOUS)
        spec = None
        for _ in range(2):
            machine.eject_media('Cd')
            self.assertEqual(boot.Target.CD, machine.boot().target)
            machine.insert_media('Cd', self.source())
            self.assertEqual(
                (boot.Target.CD, boot.Enabled.CONTINUOUS),
                (machine.boot().target, machine.boot().enabled))
            spec = self.drive_of(machine, 'bmc-cd')[0]
            self.assertEqual(1, spec['bootOrder'])
        machine.set_boot(enabled=boot.Enabled.DISABLED)
        self.assertNotIn('bootOrder', self.drive_of(machine, 'bmc-cd')[0])

    def test_foreign_medium_stays(self):
        machine = self.machine('Halted')
        foreign = self.drive_of(machine)
        machine.insert_media('Cd', self.source())
        self.wait_state(machine, S.READY)
        self.assertEqual(foreign, self.drive_of(machine))
        self.assertTrue(self.drive_of(machine, 'bmc-cd')[1])
        machine.eject_media('Cd')
        self.assertEqual(foreign, self.drive_of(machine))
        self.wait_clean(machine)

    def test_added_drive_is_pending_until_restart(self):
        machine = self.machine('Always', change=media_case.drop_drive,
                               off=False)
        vmi = self.uid(machine.name)
        medium = machine.insert_media('Cd', self.source())
        self.assertTrue(medium.pending_restart)
        self.assertEqual(
            'The running guest has no empty CD-ROM drive, so the drive bmc-cd '
            'was added to the VM. A guest that starts with an empty drive '
            'gets media at once.',
            medium.restart_cause)
        self.sandbox.wait('virtualmachines', machine.name, lambda vm: any(
            c['type'] == 'RestartRequired' and c['status'] == 'True'
            for c in vm['status']['conditions']))
        self.wait_state(machine, S.READY)
        self.stays(lambda: self.uid(machine.name) == vmi, 0.2)
        machine.reset(R.FORCE_RESTART)
        self.sandbox.wait_running(machine.name, other_than=vmi)
        self.until('medium in the guest',
                   lambda: not machine.medium('Cd').pending_restart)
        machine.eject_media('Cd')
        # The DataVolume stays until the guest ends.
        self.stays(lambda: medium.data_volume in self.data_volumes(machine),
                   1)
        machine.reset(R.FORCE_OFF)
        self.wait_clean(machine)

    def test_insert_while_guest_keeps_ejected_medium(self):
        machine = self.machine('Halted', change=media_case.drop_medium)
        machine.insert_media('USBStick', self.source())
        self.wait_state(machine, S.READY, 'USBStick')
        machine.reset(R.ON)
        self.becomes(machine, ON)
        machine.eject_media('USBStick')
        for _ in range(2):
            machine.insert_media('Cd', self.source())
            self.wait_state(machine, S.READY)
        machine.eject_media('Cd')
        self.until('an empty drive', lambda: not media_case.find(
            self.sandbox.vmi(machine.name)['spec']['volumes'], 'cd'))
        self.assertEqual([], [
            condition for condition in self.sandbox.vmi(machine.name)[
                'status']['conditions']
            if condition['type'] == 'Synchronized'])
        for _ in range(4):
            machine.insert_media('USBStick', self.source())
            self.wait_state(machine, S.READY, 'USBStick')
        machine.eject_media('USBStick')
        machine.reset(R.FORCE_OFF)
        self.wait_clean(machine)

    def test_insert_without_hotplug_is_pending(self):
        def change(spec):
            media_case.drop_medium(spec)
            spec['domain']['devices']['disableHotplug'] = True

        machine = self.machine('Halted', change=change)
        machine.insert_media('Cd', self.source())
        self.wait_state(machine, S.READY)
        machine.reset(R.ON)
        self.becomes(machine, ON)
        self.assertFalse(machine.medium('Cd').pending_restart)
        self.assertTrue(machine.insert_media(
            'Cd', self.source()).pending_restart)
        machine.eject_media('Cd')
        machine.reset(R.FORCE_OFF)
        self.wait_clean(machine)

    def test_insert_does_not_migrate_volumes(self):
        machine = self.machine('Halted')
        for device in 'Cd', 'USBStick':
            machine.insert_media(device, self.source())
            self.wait_state(machine, S.READY, device)
        self.sandbox.patch('virtualmachines', machine.name, {
            'spec': {'updateVolumesStrategy': 'Migration'}})
        machine.reset(R.ON)
        self.becomes(machine, ON)
        for device in 'Cd', 'USBStick':
            for _ in range(2):
                self.assertTrue(machine.insert_media(
                    device, self.source()).pending_restart)
                self.wait_state(machine, S.READY, device)
                # KubeVirt would migrate a volume with another DataVolume.
                there = {each['name']: each.get('dataVolume') for each in
                         self.sandbox.vmi(machine.name)['spec']['volumes']}
                for each in self.sandbox.vm(machine.name)['spec'][
                        'template']['spec']['volumes']:
                    if each['name'] in there:
                        self.assertEqual(there[each['name']],
                                         each.get('dataVolume'))
            machine.eject_media(device)
        machine.reset(R.FORCE_OFF)
        self.wait_clean(machine)

    def test_locked_tray_is_shown_until_the_guest_lets_go(self):
        self.useFixture(fixtures.MonkeyPatch(
            'sushy_kubevirt.machine.media.eject.GUEST_SECONDS', 0.3))
        bmc = self.bmc()
        machine = self.machine('Always', bmc, change=media_case.drop_medium,
                               off=False)
        machine.insert_media('Cd', self.source())
        url = self.wait_state(machine, S.READY).url
        self.until('plugged', lambda: machine.medium('Cd').state is S.READY
                   and machine.state().vmi['spec']['volumes'][1:])
        self.sandbox.guest_does(machine.name, 'lock')
        changes = self.changes(bmc)
        machine.eject_media('Cd')
        for process in machine, self.bmc().machine(machine.name):
            self.until('a reason', lambda: process.medium('Cd').reason)
            medium = process.medium('Cd')
            self.assertEqual((S.EJECTING, url, 'SyncFailed'),
                             (medium.state, medium.url, medium.reason))
            self.assertIn('timed out waiting to open tray', medium.message)
        # Another medium waits, too.
        machine.insert_media('Cd', self.source())
        self.until('a reason', lambda: machine.medium('Cd').reason
                   == 'SyncFailed')
        self.assertEqual(S.IMPORTING, machine.medium('Cd').state)
        machine.eject_media('Cd')
        self.assertEqual((S.EJECTING, url), (machine.medium('Cd').state,
                                             machine.medium('Cd').url))
        self.sandbox.guest_does(machine.name, 'unlock')
        self.until('an empty drive', lambda: machine.medium('Cd') is None)
        # Subscribers are told in another thread.
        self.until('the last change', lambda: changes[-1][3] is None)
        self.wait_clean(machine)
        machine.insert_media('Cd', self.source())
        self.wait_state(machine, S.READY)
        machine.eject_media('Cd')
        self.assertIsNone(machine.medium('Cd'))

    def test_usb_stick_write_protection_and_restart(self):
        machine = self.machine('Halted')
        machine.insert_media('USBStick', self.source(write_protected=False))
        medium = self.wait_state(machine, S.READY, 'USBStick')
        self.assertFalse(medium.write_protected)
        disk, volume = self.drive_of(machine, 'bmc-usb')
        self.assertEqual('usb', disk['disk']['bus'])
        self.assertFalse(disk['disk'].get('readonly'))
        machine.insert_media('USBStick', self.source())
        self.wait_state(machine, S.READY, 'USBStick')
        self.assertTrue(
            self.drive_of(machine, 'bmc-usb')[0]['disk']['readonly'])
        machine.reset(R.ON)
        self.becomes(machine, ON)
        self.assertFalse(machine.medium('USBStick').pending_restart)
        machine.insert_media('USBStick', self.source())
        self.assertTrue(machine.medium('USBStick').pending_restart)
        machine.eject_media('USBStick')
        self.assertEqual((None, None), self.drive_of(machine, 'bmc-usb'))
        machine.reset(R.FORCE_OFF)
        self.wait_clean(machine)


class WithoutGateTestCase(media_case.MediaTestCase):

    GATE = False

    def test_eject_removes_drive(self):
        machine = self.machine('Halted', change=media_case.drop_drive)
        spec = self.sandbox.vm(machine.name)['spec']
        for _ in range(2):
            machine.insert_media('Cd', self.source())
            self.wait_state(machine, S.READY)
            self.assertNotIn('hotpluggable', self.drive_of(
                machine, 'bmc-cd')[1]['dataVolume'])
        machine.eject_media('Cd')
        self.assertEqual(spec, self.sandbox.vm(machine.name)['spec'])
        self.wait_clean(machine)

    def test_insert_is_pending_until_restart(self):
        machine = self.machine('Always', off=False)
        vmi = self.uid(machine.name)
        spec = self.sandbox.vm(machine.name)['spec']
        medium = machine.insert_media('Cd', self.source())
        self.assertTrue(medium.pending_restart)
        self.assertIn(
            'feature gate DeclarativeHotplugVolumes is off; switch it on in '
            'the KubeVirt object', medium.restart_cause)
        machine.reset(R.FORCE_RESTART)
        self.sandbox.wait_running(machine.name, other_than=vmi)
        self.until('medium in the guest',
                   lambda: not machine.medium('Cd').pending_restart)
        machine.eject_media('Cd')
        self.assertIsNone(machine.medium('Cd'))
        self.assertEqual(spec, self.sandbox.vm(machine.name)['spec'])
        machine.reset(R.FORCE_OFF)
        self.wait_clean(machine)

    def test_eject_after_gate_is_disabled(self):
        self.sandbox.set_gates(on=['DeclarativeHotplugVolumes'])
        machine = self.machine('Halted', self.bmc(gates_seconds=600),
                               change=media_case.drop_drive)
        machine.insert_media('Cd', self.source())
        self.sandbox.set_gates(off=['DeclarativeHotplugVolumes'])
        machine.eject_media('Cd')
        self.assertEqual((None, None), self.drive_of(machine, 'bmc-cd'))
        self.wait_clean(machine)


LateDriveTestCase = lagging_controllers.lagging(
    DriveTestCase,
    'test_insert_into_empty_drive_of_running_vm',
    'test_insert_adds_missing_drive')
