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


def remove_medium(spec):
    """Remove the medium from the CD-ROM."""
    spec['volumes'] = [volume for volume in spec['volumes']
                       if volume['name'] != 'cd']


def set_boot_orders(spec):
    devices = spec['domain']['devices']
    devices['disks'][0]['bootOrder'] = 3
    devices['interfaces'][0]['bootOrder'] = 7


class OnceTestCase(boot_case.BootTestCase):

    def test_boots_every_class_once_under_every_strategy(self):
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
            booted = self.boot_new_vmi(
                machine, R.FORCE_RESTART if strategy == 'Always' else R.ON)
            self.assertEqual(target.value, booted['class'], strategy)
            after = {'Halted': 'RerunOnFailure'}.get(strategy)
            self.until('override disabled',
                       lambda: machine.boot().enabled is DISABLED)
            # A reboot by the guest uses the restored order.
            booted = self.guest_reboots(machine, True)
            self.assertEqual('Hdd', booted['class'])
            self.becomes(machine, ON)
            self.wait_restored(machine.name, spec, after)
            # A guest that shuts down stays off, as before the override.
            if strategy != 'Always':
                self.sandbox.guest_does(machine.name, 'shutdown')
                self.becomes(machine, OFF)
                self.stays(lambda: machine.power_state() is OFF, 0.3)

    def test_leaves_no_boot_order_where_there_was_none(self):
        machine = self.machine('Manual')
        machine.set_boot(CD, ONCE)
        self.boot_new_vmi(machine, R.ON)
        self.wait_override_removed(machine.name)
        self.assertIs(DISABLED, machine.boot().enabled)
        devices = self.spec(machine.name)['template']['spec']['domain'][
            'devices']
        for device in devices['disks'] + devices['interfaces']:
            self.assertNotIn('bootOrder', device)

    def test_restores_previous_boot_order(self):
        machine = self.machine('Manual', change=set_boot_orders)
        spec = self.spec(machine.name)
        machine.set_boot(CD, ONCE)
        booted = self.boot_new_vmi(machine, R.ON)
        self.assertEqual('Cd', booted['class'])
        booted = self.guest_reboots(machine, True)
        self.assertEqual('Hdd', booted['class'])
        self.wait_restored(machine.name, spec)

    def test_falls_back_to_disk_if_target_does_not_boot(self):
        machine = self.machine('Manual', annotations={
            machine_case.UNBOOTABLE: 'default,cd'})
        for target in (PXE, CD):
            machine.set_boot(target, ONCE)
            booted = self.boot_new_vmi(
                machine, R.ON if machine.power_state() is OFF
                else R.FORCE_RESTART)
            self.assertEqual('Hdd', booted['class'])
            self.assertEqual(DEVICES[target.value], booted['tried'][0])

    def test_falls_back_to_volume_without_disk(self):
        machine = self.machine('Manual', change=lambda spec: spec['domain'][
            'devices']['disks'].pop(0), annotations={
                machine_case.UNBOOTABLE: 'default,cd'})
        spec = self.spec(machine.name)
        self.assertIn(HDD, machine.boot_targets())
        machine.set_boot(PXE, ONCE)
        booted = self.boot_new_vmi(machine, R.ON)
        self.assertEqual(('Hdd', DEVICES['Pxe']),
                         (booted['class'], booted['tried'][0]))
        self.guest_reboots(machine, True)
        self.wait_restored(machine.name, spec)

    def test_boots_the_interface_that_kubevirt_adds(self):
        def drop(spec):
            del spec['networks'], spec['domain']['devices']['interfaces']

        for off in True, False:
            machine = self.machine('Manual', change=drop, off=off)
            spec = self.spec(machine.name)
            self.assertIn(PXE, machine.boot_targets())
            machine.set_boot(PXE, ONCE)
            booted = self.boot_new_vmi(
                machine, R.ON if off else R.FORCE_RESTART)
            self.assertEqual('interface:default', booted['device'])
            # With KubeVirt's default binding.
            [card] = self.sandbox.vmi(machine.name)['spec']['domain'][
                'devices']['interfaces']
            self.assertIn('bridge', card)
            self.assertEqual('Hdd', self.guest_reboots(machine, True)['class'])
            self.wait_restored(machine.name, spec)

    def prefer_no_interface(self):
        """Create a preference that excludes the pod interface.

        :returns: its name
        """
        plural, name = 'virtualmachinepreferences', 'no-pod-interface'
        if self.sandbox.get(plural, name) is None:
            self.sandbox.create(plural, {
                'apiVersion': 'instancetype.kubevirt.io/v1beta1',
                'kind': 'VirtualMachinePreference', 'metadata': {'name': name},
                'spec': {'devices': {
                    'preferredAutoattachPodInterface': False}}})
        return name

    def test_interface_that_a_preference_excludes(self):
        def drop(spec):
            del spec['networks'], spec['domain']['devices']['interfaces']

        for off in True, False:
            machine = self.machine(
                'Manual', change=drop, off=off, preference={
                    'kind': 'VirtualMachinePreference',
                    'name': self.prefer_no_interface()})
            spec = self.spec(machine.name)
            self.assertNotIn(PXE, machine.boot_targets())
            self.assertEqual((), machine.inventory().nics)
            self.assertEqual(['root', 'cd'], [
                option.name for option in machine.boot_options()])
            self.assertRaises(errors.InvalidValue, machine.set_boot, PXE, ONCE)
            self.assertRaises(errors.InvalidValue, machine.set_boot,
                              order=('Boot1001',))
            self.assertEqual(spec, self.spec(machine.name))
            machine.set_boot(order=('Boot0002', 'Boot0001'))
            booted = self.boot_new_vmi(
                machine, R.ON if off else R.FORCE_RESTART)
            self.assertEqual(['cdrom:cd'], booted['tried'])
            machine.set_default_boot_order()
            self.wait_restored(machine.name, spec)

    def test_empty_drive_is_boot_target(self):
        machine = self.machine('Manual', change=remove_medium)
        self.assertIn(CD, machine.boot_targets())
        machine.set_boot(CD, ONCE)
        booted = self.boot_new_vmi(machine, R.ON)
        self.assertEqual(['cdrom:cd', 'disk:root'], booted['tried'])

    def test_virtctl_start_boots_override_once(self):
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
            booted = self.boot_new_vmi(machine, action)
            self.assertEqual('Pxe', booted['class'])
            self.until('override disabled',
                       lambda: machine.boot().enabled is DISABLED)
            self.assertEqual('Hdd',
                             self.guest_reboots(machine, True)['class'])
            after = {'Halted': 'Always'}.get(strategy)
            self.wait_restored(machine.name, spec, after)

    def test_graceful_restart_boots_override(self):
        machine = self.machine('RerunOnFailure', off=False)
        machine.set_boot(PXE, ONCE)
        self.assertEqual(
            'Pxe', self.boot_new_vmi(machine, R.GRACEFUL_RESTART)['class'])

    def test_restores_vm_with_running_field(self):
        machine = self.machine(None, running=False)
        spec = self.spec(machine.name)
        machine.set_boot(PXE, ONCE)
        self.assertEqual('Pxe', self.boot_new_vmi(machine, R.ON)['class'])
        self.assertEqual('Hdd', self.guest_reboots(machine, True)['class'])
        spec['running'] = True
        self.wait_restored(machine.name, spec)

    def test_restores_vm_with_run_strategy_once(self):
        machine = self.machine('Once', off=False)
        spec = self.spec(machine.name)
        machine.set_boot(PXE, ONCE)
        self.assert_next_boot(machine, 'Pxe')
        self.wait_restored(machine.name, spec)

    def test_restores_reboot_policy(self):
        for policy in ('Terminate', 'Reboot'):
            machine = self.machine('Manual', change=lambda spec: spec[
                'domain'].update(rebootPolicy=policy))
            spec = self.spec(machine.name)
            machine.set_boot(PXE, ONCE)
            self.boot_new_vmi(machine, R.ON)
            self.assertEqual('Hdd',
                             self.guest_reboots(machine, True)['class'])
            self.wait_restored(machine.name, spec)

    def test_guest_reboot_does_not_consume_override(self):
        machine = self.machine('Always', off=False)
        machine.set_boot(PXE, ONCE)
        for _ in range(2):
            self.assertEqual('Hdd',
                             self.guest_reboots(machine, False)['class'])
        self.stays(lambda: machine.boot().enabled is ONCE, 0.3)
        self.assert_next_boot(machine, 'Pxe')

    def test_unschedulable_start_does_not_consume_override(self):
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
                power_state.problem, 15))
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
            self.wait_restored(machine.name, spec, {
                'Halted': 'RerunOnFailure'}.get(strategy))

    def test_restores_after_power_off_in_one_time_boot(self):
        bmc = self.bmc()
        for strategy, off in itertools.product(
                ('RerunOnFailure', 'Manual', 'Always'),
                (R.FORCE_OFF, R.GRACEFUL_SHUTDOWN)):
            machine = self.machine(strategy, bmc)
            spec = self.spec(machine.name)
            machine.set_boot(PXE, ONCE)
            self.assertEqual('Pxe', self.boot_new_vmi(machine, R.ON)['class'])
            machine.reset(off)
            self.becomes(machine, OFF)
            self.stays(lambda: machine.power_state() is OFF, 0.4)
            if strategy != 'Always':
                self.wait_restored(machine.name, spec)
            self.assertEqual('Hdd', self.boot_new_vmi(machine, R.ON)['class'])
            self.wait_restored(machine.name, spec, strategy)

    def test_disables_override_after_power_off_before_boot(self):
        machine = self.machine('Manual')
        spec = self.spec(machine.name)
        machine.set_boot(PXE, ONCE)
        machine.reset(R.ON)
        machine.reset(R.FORCE_OFF)
        self.becomes(machine, OFF)
        machine.set_boot(enabled=DISABLED)
        self.wait_restored(machine.name, spec)

    def test_restores_after_virtctl_stop_in_one_time_boot(self):
        machine = self.machine('RerunOnFailure')
        spec = self.spec(machine.name)
        machine.set_boot(PXE, ONCE)
        self.boot_new_vmi(machine, R.ON)
        self.until('override disabled',
                   lambda: machine.boot().enabled is DISABLED)
        self.sandbox.do(machine.name, 'stop')
        self.sandbox.wait_stopped(machine.name)
        self.becomes(machine, OFF)
        self.stays(lambda: machine.power_state() is OFF, 0.3)
        self.assertEqual('Hdd', self.boot_new_vmi(machine, R.ON)['class'])
        self.wait_restored(machine.name, spec)

    def test_guest_shutdown_in_one_time_boot_starts_it_again(self):
        # A known cost, see `one_time_boot`.
        machine = self.machine('RerunOnFailure')
        spec = self.spec(machine.name)
        machine.set_boot(PXE, ONCE)
        self.boot_new_vmi(machine, R.ON)
        self.until('override disabled',
                   lambda: machine.boot().enabled is DISABLED)
        self.wait_override_removed(machine.name)
        self.sandbox.guest_does(machine.name, 'shutdown')
        self.assertEqual('Hdd',
                         self.sandbox.wait_boot(machine.name, 3)['class'])
        self.wait_restored(machine.name, spec)

    def test_sets_next_override_in_one_time_boot(self):
        machine = self.machine('Manual')
        spec = self.spec(machine.name)
        machine.set_boot(PXE, ONCE)
        self.boot_new_vmi(machine, R.ON)
        machine.set_boot(CD, ONCE)
        self.assertEqual('Cd', self.guest_reboots(machine, True)['class'])
        self.assertEqual('Hdd', self.guest_reboots(machine, True)['class'])
        self.wait_restored(machine.name, spec)


class ChangedOverrideTestCase(boot_case.BootTestCase):
    """Overrides that are replaced, removed, or edited by other clients."""

    def test_replaced_override_restores_original_spec(self):
        machine = self.machine('Manual', change=set_boot_orders)
        spec = self.spec(machine.name)
        machine.set_boot(PXE, ONCE)
        machine.set_boot(CD, ONCE, UEFI)
        machine.set_boot(PXE, CONTINUOUS, LEGACY)
        machine.set_boot(CD, ONCE)
        booted = self.boot_new_vmi(machine, R.ON)
        self.assertEqual(('Cd', 'bios'),
                         (booted['class'], booted['firmware']))
        self.until('no override', lambda: machine.boot()
                   == boot.BootState(NONE, DISABLED, LEGACY))
        self.assert_next_boot(machine, 'Hdd')
        self.assertEqual(spec, dict(self.spec(machine.name),
                                    runStrategy='Manual'))

    def test_continuous_override_lasts_until_disabled(self):
        machine = self.machine('Manual')
        spec = self.spec(machine.name)
        machine.set_boot(CD)
        self.assertEqual('Cd', self.boot_new_vmi(machine, R.ON)['class'])
        self.assert_next_boot(machine, 'Cd')
        self.assertEqual('Cd', self.guest_reboots(machine, False)['class'])
        self.assertEqual(boot.BootState(CD, CONTINUOUS, LEGACY),
                         machine.boot())
        machine.set_boot(enabled=DISABLED)
        self.assert_next_boot(machine, 'Hdd')
        self.wait_restored(machine.name, spec)

    def test_keeps_edits_of_other_clients(self):
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
        self.assertEqual('Pxe', self.boot_new_vmi(machine, R.ON)['class'])
        # The override reads as disabled before the spec is restored.
        self.until('restored boot order', lambda: [
            ('root', None), ('more', 9)] == [
                (disk['name'], disk.get('bootOrder')) for disk in self.spec(
                    machine.name)['template']['spec']['domain']['devices'][
                        'disks']])
        self.assertIs(DISABLED, machine.boot().enabled)

    def test_refuses_target_without_device(self):
        machine = self.machine('Manual', change=lambda spec: (
            spec['networks'].clear(),
            spec['domain']['devices']['interfaces'].clear(),
            spec['domain']['devices'].update(
                autoattachPodInterface=False)))
        # With CDI, a medium can be inserted to boot from.
        self.until('CDI', lambda: machine.cluster.media.cdi.served)
        e = self.assertRaises(errors.InvalidValue, machine.set_boot, PXE,
                              ONCE)
        self.assertEqual(('None', 'Hdd', 'Cd', 'Usb', 'UefiHttp'), e.allowed)

    def test_set_boot_does_not_start_stop_or_reboot(self):
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

    def test_one_time_mode_is_restored(self):
        machine = self.machine('Manual')
        spec = self.spec(machine.name)
        machine.set_boot(PXE, ONCE, UEFI)
        self.assertIs(UEFI, machine.boot().mode)
        booted = self.boot_new_vmi(machine, R.ON)
        self.assertEqual(('Pxe', 'efi'),
                         (booted['class'], booted['firmware']))
        booted = self.guest_reboots(machine, True)
        self.assertEqual(('Hdd', 'bios'),
                         (booted['class'], booted['firmware']))
        self.wait_restored(machine.name, spec)

    def test_persistent_mode_change_and_back(self):
        machine = self.machine('Manual', change=lambda spec: spec[
            'domain']['firmware'].update(bootloader={
                'efi': {'secureBoot': False, 'persistent': True}}))
        spec = self.spec(machine.name)
        machine.set_boot(mode=LEGACY)
        self.assertEqual('bios',
                         self.boot_new_vmi(machine, R.ON)['firmware'])
        self.assert_next_boot(machine, 'Hdd', 'bios')
        machine.set_boot(mode=UEFI)
        self.assert_next_boot(machine, 'Hdd', 'efi')
        self.assertEqual(spec, self.spec(machine.name))

    def test_secure_boot(self):
        machine = self.machine('Manual')
        self.assertRaises(errors.WrongState, machine.set_secure_boot, True)
        machine.set_boot(mode=UEFI)
        self.assertFalse(machine.secure_boot())
        machine.set_secure_boot(True)
        self.assertTrue(machine.secure_boot())
        self.assertEqual('efi-secure',
                         self.boot_new_vmi(machine, R.ON)['firmware'])
        machine.set_boot(PXE, ONCE, LEGACY)
        self.assert_next_boot(machine, 'Pxe', 'bios')
        self.until('secure boot', lambda: machine.secure_boot())
        self.assertEqual('efi-secure',
                         self.guest_reboots(machine, True)['firmware'])
        machine.set_secure_boot(False)
        self.assert_next_boot(machine, 'Hdd', 'efi')


class WithoutGateTestCase(boot_case.BootTestCase):

    GATE = False

    def test_boots_once_but_guest_reboot_repeats_override(self):
        bmc = self.bmc()
        for strategy in ('Halted', 'RerunOnFailure', 'Manual', 'Always'):
            machine = self.machine(strategy, bmc)
            if strategy == 'Always':
                machine.reset(R.ON)
                self.becomes(machine, ON)
            spec = self.spec(machine.name)
            machine.set_boot(PXE, ONCE)
            booted = self.boot_new_vmi(
                machine, R.FORCE_RESTART if strategy == 'Always' else R.ON)
            self.assertEqual('Pxe', booted['class'], strategy)
            self.wait_restored(machine.name, spec, {
                'Halted': 'RerunOnFailure'}.get(strategy))
            # A known cost: a reboot keeps the VMI and its override.
            self.assertEqual('Pxe',
                             self.guest_reboots(machine, False)['class'])
            self.assert_next_boot(machine, 'Hdd')

    def test_guest_shutdown_leaves_vm_off(self):
        machine = self.machine('Halted')
        machine.set_boot(PXE, ONCE)
        self.boot_new_vmi(machine, R.ON)
        self.sandbox.guest_does(machine.name, 'shutdown')
        self.becomes(machine, OFF)
        self.stays(lambda: machine.power_state() is OFF)

    def test_disables_override_after_gate_is_disabled(self):
        names = ['DeclarativeHotplugVolumes', 'RebootPolicy']
        self.sandbox.set_gates(on=names)
        machine = self.machine('Manual')
        spec = self.spec(machine.name)
        machine.set_boot(PXE, ONCE)
        self.sandbox.set_gates(on=names[:1], off=names[1:])
        # KubeVirt still accepts the removal of rebootPolicy.
        machine.set_boot(enabled=DISABLED)
        self.wait_restored(machine.name, spec)


LateOnceTestCase = lagging_controllers.lagging(
    OnceTestCase,
    'test_restores_previous_boot_order',
    'test_restores_after_power_off_in_one_time_boot',
    'test_sets_next_override_in_one_time_boot')


class DeployingTestCase(boot_case.BootTestCase):
    """KubeVirt runs VMs long before its operator calls it deployed."""

    SANDBOX_ARGUMENTS = ('--deploying',)

    def test_gates_that_are_on_by_default_count(self):
        # A given cluster may be deployed.
        self.sandbox.set_gates()
        machine = self.machine('RerunOnFailure')
        spec = self.spec(machine.name)
        machine.set_boot(PXE, ONCE)
        self.assertEqual('Pxe', self.boot_new_vmi(machine, R.ON)['class'])
        self.assertEqual('Hdd', self.guest_reboots(machine, True)['class'])
        self.wait_restored(machine.name, spec)
