# SPDX-License-Identifier: Apache-2.0
"""Boot overrides, verified by the sandbox's record of the guests' boots."""

import itertools

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine import power_state
from tests.fixtures import boot_case
from tests.fixtures import lagging_controllers
from tests.fixtures import machine_case

R = power_state.ResetType
ON, OFF = power_state.PowerState.ON, power_state.PowerState.OFF
NONE, PXE, HDD, CD = (boot.Target.NONE, boot.Target.PXE, boot.Target.HDD,
                      boot.Target.CD)
DISABLED, ONCE, CONTINUOUS = (boot.Enabled.DISABLED, boot.Enabled.ONCE,
                              boot.Enabled.CONTINUOUS)
UEFI, LEGACY = boot.Mode.UEFI, boot.Mode.LEGACY

DEVICES = {'Pxe': 'interface:default', 'Hdd': 'disk:root', 'Cd': 'cdrom:cd'}


def empty(spec):
    """Take the medium out of the CD-ROM."""
    spec['volumes'] = [volume for volume in spec['volumes']
                       if volume['name'] != 'cd']


def numbered(spec):
    devices = spec['domain']['devices']
    devices['disks'][0]['bootOrder'] = 3
    devices['interfaces'][0]['bootOrder'] = 7


class OnceTestCase(boot_case.BootTestCase):

    def test_every_class_under_every_strategy(self):
        bmc = self.bmc()
        for strategy, target in itertools.product(
                ('Halted', 'RerunOnFailure', 'Manual', 'Always'),
                (PXE, CD, HDD)):
            machine = self.machine(strategy, bmc)
            if strategy == 'Always':
                machine.reset(R.ON)
                self.becomes(machine, ON)
            spec = self.spec(machine.name)
            machine.set_boot(target, ONCE)
            self.assertEqual(boot.BootState(target, ONCE, LEGACY),
                             machine.boot())
            self.stays(lambda: self.strategy(machine.name)
                       == spec['runStrategy'], 0.1)
            booted = self.start_over(
                machine, R.FORCE_RESTART if strategy == 'Always' else R.ON)
            self.assertEqual(target.value, booted['class'], strategy)
            after = {'Halted': 'RerunOnFailure'}.get(strategy)
            self.until('over', lambda: machine.boot().enabled is DISABLED)
            # The guest's own reboot ends up on the restored order.
            booted = self.guest_reboots(machine, True)
            self.assertEqual('Hdd', booted['class'])
            self.becomes(machine, ON)
            self.is_restored(machine.name, spec, after)
            # And a guest that shuts down stays off, as before.
            if strategy != 'Always':
                self.sandbox.guest_does(machine.name, 'shutdown')
                self.becomes(machine, OFF)
                self.stays(lambda: machine.power_state() is OFF, 0.3)

    def test_without_any_boot_order_before(self):
        machine = self.machine('Manual')
        machine.set_boot(CD, ONCE)
        self.start_over(machine, R.ON)
        self.until('over', lambda: machine.boot().enabled is DISABLED)
        devices = self.spec(machine.name)['template']['spec']['domain'][
            'devices']
        for device in devices['disks'] + devices['interfaces']:
            self.assertNotIn('bootOrder', device)

    def test_order_before_comes_back(self):
        machine = self.machine('Manual', change=numbered)
        spec = self.spec(machine.name)
        machine.set_boot(CD, ONCE)
        booted = self.start_over(machine, R.ON)
        self.assertEqual('Cd', booted['class'])
        booted = self.guest_reboots(machine, True)
        self.assertEqual('Hdd', booted['class'])
        self.is_restored(machine.name, spec)

    def test_there_is_something_to_fall_back_to(self):
        machine = self.machine('Manual', annotations={
            machine_case.UNBOOTABLE: 'default,cd'})
        for target in (PXE, CD):
            machine.set_boot(target, ONCE)
            booted = self.start_over(
                machine, R.ON if machine.power_state() is OFF
                else R.FORCE_RESTART)
            self.assertEqual('Hdd', booted['class'])
            self.assertEqual(DEVICES[target.value], booted['tried'][0])

    def test_volume_without_a_disk_is_one_to_fall_back_to(self):
        machine = self.machine('Manual', change=lambda spec: spec['domain'][
            'devices']['disks'].pop(0), annotations={
                machine_case.UNBOOTABLE: 'default,cd'})
        spec = self.spec(machine.name)
        self.assertIn(HDD, machine.boot_targets())
        machine.set_boot(PXE, ONCE)
        booted = self.start_over(machine, R.ON)
        self.assertEqual(('Hdd', DEVICES['Pxe']),
                         (booted['class'], booted['tried'][0]))
        self.guest_reboots(machine, True)
        self.is_restored(machine.name, spec)

    def test_empty_drive_is_a_target(self):
        machine = self.machine('Manual', change=empty)
        self.assertIn(CD, machine.boot_targets())
        machine.set_boot(CD, ONCE)
        booted = self.start_over(machine, R.ON)
        self.assertEqual(['cdrom:cd', 'disk:root'], booted['tried'])

    def test_whoever_starts_it(self):
        bmc = self.bmc()
        for strategy, action in (('Halted', 'virtctl start'),
                                 ('Manual', 'virtctl start'),
                                 ('RerunOnFailure', 'virtctl start'),
                                 ('Always', 'virtctl restart')):
            machine = self.machine(strategy, bmc)
            if strategy == 'Always':
                machine.reset(R.ON)
                self.becomes(machine, ON)
            spec = self.spec(machine.name)
            machine.set_boot(PXE, ONCE)
            self.assertEqual('Pxe', self.start_over(machine, action)['class'])
            self.until('over', lambda: machine.boot().enabled is DISABLED)
            self.assertEqual('Hdd',
                             self.guest_reboots(machine, True)['class'])
            after = {'Halted': 'Always'}.get(strategy)
            self.is_restored(machine.name, spec, after)

    def test_graceful_restart(self):
        machine = self.machine('RerunOnFailure', off=False)
        machine.set_boot(PXE, ONCE)
        self.assertEqual(
            'Pxe', self.start_over(machine, R.GRACEFUL_RESTART)['class'])

    def test_running_field(self):
        machine = self.machine(None, running=False)
        spec = self.spec(machine.name)
        machine.set_boot(PXE, ONCE)
        self.assertEqual('Pxe', self.start_over(machine, R.ON)['class'])
        self.assertEqual('Hdd', self.guest_reboots(machine, True)['class'])
        spec['running'] = True
        self.is_restored(machine.name, spec)

    def test_run_strategy_once(self):
        machine = self.machine('Once', off=False)
        spec = self.spec(machine.name)
        machine.set_boot(PXE, ONCE)
        self.boots_next(machine, 'Pxe')
        self.is_restored(machine.name, spec)

    def test_own_reboot_policy_comes_back(self):
        for policy in ('Terminate', 'Reboot'):
            machine = self.machine('Manual', change=lambda spec: spec[
                'domain'].update(rebootPolicy=policy))
            spec = self.spec(machine.name)
            machine.set_boot(PXE, ONCE)
            self.start_over(machine, R.ON)
            self.assertEqual('Hdd',
                             self.guest_reboots(machine, True)['class'])
            self.is_restored(machine.name, spec)

    def test_running_vmi_does_not_use_it_up(self):
        machine = self.machine('Always', off=False)
        machine.set_boot(PXE, ONCE)
        for _ in range(2):
            self.assertEqual('Hdd',
                             self.guest_reboots(machine, False)['class'])
        self.stays(lambda: machine.boot().enabled is ONCE, 0.3)
        self.boots_next(machine, 'Pxe')

    def test_start_that_hangs_does_not_use_it_up(self):
        bmc = self.bmc()
        for strategy in ('Manual', 'RerunOnFailure', 'Halted'):
            machine = self.machine(strategy, bmc)
            spec = self.spec(machine.name)
            self.sandbox.patch('virtualmachines', machine.name, [{
                'op': 'add', 'path': '/spec/template/spec/nodeSelector',
                'value': {'no': 'such-node'}}])
            boots = len(self.sandbox.boots(machine.name))
            machine.set_boot(PXE, ONCE)
            machine.reset(R.ON)
            self.assertTrue(machine.wait(
                lambda vm, vmi: power_state.problem(vm, vmi), 15))
            self.stays(lambda: machine.boot().enabled is ONCE, 0.3)
            machine.reset(R.FORCE_OFF)
            self.until('no VMI', lambda: self.uid(machine.name) is None)
            self.stays(lambda: machine.boot().enabled is ONCE, 0.3)
            self.sandbox.patch('virtualmachines', machine.name, [{
                'op': 'remove', 'path': '/spec/template/spec/nodeSelector'}])
            machine.reset(R.ON)
            self.assertEqual('Pxe', self.sandbox.wait_boot(
                machine.name, boots + 1)['class'])
            self.becomes(machine, ON)
            self.assertEqual('Hdd',
                             self.guest_reboots(machine, True)['class'])
            self.is_restored(machine.name, spec, {
                'Halted': 'RerunOnFailure'}.get(strategy))

    def test_machine_switched_off_in_that_boot(self):
        bmc = self.bmc()
        for strategy, off in itertools.product(
                ('RerunOnFailure', 'Manual', 'Always'),
                (R.FORCE_OFF, R.GRACEFUL_SHUTDOWN)):
            machine = self.machine(strategy, bmc)
            spec = self.spec(machine.name)
            machine.set_boot(PXE, ONCE)
            self.assertEqual('Pxe', self.start_over(machine, R.ON)['class'])
            machine.reset(off)
            self.becomes(machine, OFF)
            self.stays(lambda: machine.power_state() is OFF, 0.4)
            if strategy != 'Always':
                self.is_restored(machine.name, spec)
            self.assertEqual('Hdd', self.start_over(machine, R.ON)['class'])
            self.is_restored(machine.name, spec, strategy)

    def test_switched_off_before_its_guest_ran(self):
        machine = self.machine('Manual')
        spec = self.spec(machine.name)
        machine.set_boot(PXE, ONCE)
        machine.reset(R.ON)
        machine.reset(R.FORCE_OFF)
        self.becomes(machine, OFF)
        machine.set_boot(enabled=DISABLED)
        self.is_restored(machine.name, spec)

    def test_stopped_by_somebody_else_in_that_boot(self):
        machine = self.machine('RerunOnFailure')
        spec = self.spec(machine.name)
        machine.set_boot(PXE, ONCE)
        self.start_over(machine, R.ON)
        self.until('over', lambda: machine.boot().enabled is DISABLED)
        self.sandbox.do(machine.name, 'stop')
        self.sandbox.wait_stopped(machine.name)
        self.stays(lambda: machine.power_state() is OFF, 0.3)
        self.assertEqual('Hdd', self.start_over(machine, R.ON)['class'])
        self.is_restored(machine.name, spec)

    def test_guest_that_shuts_down_in_that_boot_comes_back(self):
        # The price, see `keeper`.
        machine = self.machine('RerunOnFailure')
        spec = self.spec(machine.name)
        machine.set_boot(PXE, ONCE)
        self.start_over(machine, R.ON)
        self.until('over', lambda: machine.boot().enabled is DISABLED)
        self.put_back(machine.name)
        self.sandbox.guest_does(machine.name, 'shutdown')
        self.assertEqual('Hdd',
                         self.sandbox.wait_boot(machine.name, 3)['class'])
        self.is_restored(machine.name, spec)

    def test_next_override_in_that_boot(self):
        machine = self.machine('Manual')
        spec = self.spec(machine.name)
        machine.set_boot(PXE, ONCE)
        self.start_over(machine, R.ON)
        machine.set_boot(CD, ONCE)
        self.assertEqual('Cd', self.guest_reboots(machine, True)['class'])
        self.assertEqual('Hdd', self.guest_reboots(machine, True)['class'])
        self.is_restored(machine.name, spec)


class MindTestCase(boot_case.BootTestCase):
    """Overrides that are replaced, taken away, and met by others' edits."""

    def test_replacing_does_not_forget_what_was_before(self):
        machine = self.machine('Manual', change=numbered)
        spec = self.spec(machine.name)
        machine.set_boot(PXE, ONCE)
        machine.set_boot(CD, ONCE, UEFI)
        machine.set_boot(PXE, CONTINUOUS, LEGACY)
        machine.set_boot(CD, ONCE)
        booted = self.start_over(machine, R.ON)
        self.assertEqual(('Cd', 'bios'),
                         (booted['class'], booted['firmware']))
        self.until('over', lambda: machine.boot()
                   == boot.BootState(PXE, CONTINUOUS, LEGACY))
        self.boots_next(machine, 'Pxe')
        machine.set_boot(NONE)
        self.assertEqual(spec, dict(self.spec(machine.name),
                                    runStrategy='Manual'))

    def test_continuous(self):
        machine = self.machine('Manual')
        spec = self.spec(machine.name)
        machine.set_boot(CD)
        self.assertEqual('Cd', self.start_over(machine, R.ON)['class'])
        self.boots_next(machine, 'Cd')
        self.assertEqual('Cd', self.guest_reboots(machine, False)['class'])
        self.assertEqual(boot.BootState(CD, CONTINUOUS, LEGACY),
                         machine.boot())
        machine.set_boot(enabled=DISABLED)
        self.boots_next(machine, 'Hdd')
        self.is_restored(machine.name, spec)

    def test_edits_of_others_stand(self):
        machine = self.machine('Manual')
        machine.set_boot(PXE, ONCE)
        self.sandbox.patch('virtualmachines', machine.name, [
            {'op': 'add', 'path': '/spec/template/spec/volumes/-',
             'value': {'name': 'more', 'emptyDisk': {'capacity': '1Gi'}}},
            {'op': 'add', 'value': {'name': 'more', 'bootOrder': 9,
                                    'disk': {'bus': 'virtio'}},
             'path': '/spec/template/spec/domain/devices/disks/-'},
            {'op': 'remove',
             'path': '/spec/template/spec/domain/devices/disks/1'},
            {'op': 'remove', 'path': '/spec/template/spec/volumes/1'}])
        self.assertEqual('Pxe', self.start_over(machine, R.ON)['class'])
        # It reads as over a moment before it is put back.
        self.until('over', lambda: [('root', None), ('more', 9)] == [
            (disk['name'], disk.get('bootOrder')) for disk in self.spec(
                machine.name)['template']['spec']['domain']['devices'][
                    'disks']])
        self.assertIs(DISABLED, machine.boot().enabled)

    def test_no_device(self):
        machine = self.machine('Manual', change=lambda spec: (
            spec['networks'].clear(),
            spec['domain']['devices']['interfaces'].clear(),
            spec['domain']['devices'].update(
                autoattachPodInterface=False)))
        # With CDI, a medium can be inserted to boot from.
        self.until('CDI', lambda: machine.cluster.media.cdi_available)
        e = self.assertRaises(errors.InvalidValue, machine.set_boot, PXE,
                              ONCE)
        self.assertEqual(('None', 'Hdd', 'Cd', 'UefiHttp'), e.allowed)

    def test_nothing_starts_stops_or_reboots_by_itself(self):
        bmc = self.bmc()
        for strategy in ('Always', 'RerunOnFailure', 'Manual', 'Halted'):
            machine = self.machine(strategy, bmc)
            before = self.uid(machine.name)
            for settings in ((PXE, ONCE), (CD, CONTINUOUS), (PXE, ONCE, UEFI),
                             (NONE,)):
                machine.set_boot(*settings)
                self.stays(lambda: self.uid(machine.name) == before, 0.2)
            if strategy == 'Halted':
                continue
            machine.reset(R.ON)
            self.becomes(machine, ON)
            before = self.uid(machine.name)
            for settings in ((PXE, ONCE), (CD, CONTINUOUS), (NONE,)):
                machine.set_boot(*settings)
                self.stays(lambda: self.uid(machine.name) == before, 0.2)


class FirmwareTestCase(boot_case.BootTestCase):

    def test_mode_for_once(self):
        machine = self.machine('Manual')
        spec = self.spec(machine.name)
        machine.set_boot(PXE, ONCE, UEFI)
        self.assertIs(UEFI, machine.boot().mode)
        booted = self.start_over(machine, R.ON)
        self.assertEqual(('Pxe', 'efi'),
                         (booted['class'], booted['firmware']))
        booted = self.guest_reboots(machine, True)
        self.assertEqual(('Hdd', 'bios'),
                         (booted['class'], booted['firmware']))
        self.is_restored(machine.name, spec)

    def test_mode_for_good_and_back(self):
        machine = self.machine('Manual', change=lambda spec: spec[
            'domain']['firmware'].update(bootloader={
                'efi': {'secureBoot': False, 'persistent': True}}))
        spec = self.spec(machine.name)
        machine.set_boot(mode=LEGACY)
        self.assertEqual('bios',
                         self.start_over(machine, R.ON)['firmware'])
        self.boots_next(machine, 'Hdd', 'bios')
        machine.set_boot(mode=UEFI)
        self.boots_next(machine, 'Hdd', 'efi')
        self.assertEqual(spec, self.spec(machine.name))

    def test_secure_boot(self):
        machine = self.machine('Manual')
        self.assertRaises(errors.WrongState, machine.set_secure_boot, True)
        machine.set_boot(mode=UEFI)
        self.assertFalse(machine.secure_boot())
        machine.set_secure_boot(True)
        self.assertTrue(machine.secure_boot())
        self.assertEqual('efi-secure',
                         self.start_over(machine, R.ON)['firmware'])
        machine.set_boot(PXE, ONCE, LEGACY)
        self.boots_next(machine, 'Pxe', 'bios')
        self.until('over', lambda: machine.secure_boot())
        self.assertEqual('efi-secure',
                         self.guest_reboots(machine, True)['firmware'])
        machine.set_secure_boot(False)
        self.boots_next(machine, 'Hdd', 'efi')


class WithoutGateTestCase(boot_case.BootTestCase):

    GATE = False

    def test_once(self):
        bmc = self.bmc()
        for strategy in ('Halted', 'RerunOnFailure', 'Manual', 'Always'):
            machine = self.machine(strategy, bmc)
            if strategy == 'Always':
                machine.reset(R.ON)
                self.becomes(machine, ON)
            spec = self.spec(machine.name)
            machine.set_boot(PXE, ONCE)
            booted = self.start_over(
                machine, R.FORCE_RESTART if strategy == 'Always' else R.ON)
            self.assertEqual('Pxe', booted['class'], strategy)
            self.is_restored(machine.name, spec, {
                'Halted': 'RerunOnFailure'}.get(strategy))
            # The price: a reboot keeps its VMI, and so what it boots.
            self.assertEqual('Pxe',
                             self.guest_reboots(machine, False)['class'])
            self.boots_next(machine, 'Hdd')

    def test_guest_that_shuts_down_stays_off(self):
        machine = self.machine('Halted')
        machine.set_boot(PXE, ONCE)
        self.start_over(machine, R.ON)
        self.sandbox.guest_does(machine.name, 'shutdown')
        self.becomes(machine, OFF)
        self.stays(lambda: machine.power_state() is OFF)

    def test_gate_that_is_switched_off_while_it_waits(self):
        names = ['DeclarativeHotplugVolumes', 'RebootPolicy']
        self.sandbox.set_gates(on=names)
        machine = self.machine('Manual')
        spec = self.spec(machine.name)
        machine.set_boot(PXE, ONCE)
        self.sandbox.set_gates(on=names[:1], off=names[1:])
        # Taking it away is the way out that KubeVirt leaves.
        machine.set_boot(enabled=DISABLED)
        self.is_restored(machine.name, spec)


LateOnceTestCase = lagging_controllers.lagging(
    OnceTestCase,
    'test_order_before_comes_back',
    'test_machine_switched_off_in_that_boot',
    'test_next_override_in_that_boot')
