# SPDX-License-Identifier: Apache-2.0

import copy
import itertools

from oslotest import base

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.machine import bios
from sushy_kubevirt.machine import bmc_annotations
from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine import boot_options
from sushy_kubevirt.machine import boot_order
from sushy_kubevirt.machine import boot_overrides
from sushy_kubevirt.machine import changes
from sushy_kubevirt.machine import firmware
from sushy_kubevirt.machine import one_time_boot
from sushy_kubevirt.machine import pod_interface
from sushy_kubevirt.machine import vm_state
from tests.unit.machine import fakes
from tests.unit.machine import test_boot_order

NONE, PXE, HDD, CD = (boot.Target.NONE, boot.Target.PXE, boot.Target.HDD,
                      boot.Target.CD)
DISABLED, ONCE, CONTINUOUS = (boot.Enabled.DISABLED, boot.Enabled.ONCE,
                              boot.Enabled.CONTINUOUS)
UEFI, LEGACY = boot.Mode.UEFI, boot.Mode.LEGACY


class BootTestCase(base.BaseTestCase):

    def machine(self, *args, **kwargs):
        return fakes.Machine(fakes.vm(*args, **kwargs))

    def order(self, machine):
        return test_boot_order.order(machine.vm['spec']['template'])

    def assert_state(self, machine, target, enabled, mode=LEGACY):
        self.assertEqual(boot.BootState(target, enabled, mode),
                         boot.settings(machine.state()))

    def start(self, machine, uid='u1', phase='Scheduled'):
        """Create a VMI from the VM as its controller would."""
        machine.vmi = fakes.vmi(phase, uid, of=machine.vm)
        machine.vm['status']['observedGeneration'] = machine.vm[
            'metadata']['generation']

    def reconcile(self, machine):
        edited = one_time_boot.desired_vm(machine.state())
        if edited is not None:
            machine.vm = edited
            machine.vm['metadata']['generation'] += 1
        return edited is not None

    def owner_settings(self, machine):
        """Return the VM's settings without the BMC's own annotations."""
        vm = copy.deepcopy(machine.vm)
        return vm['spec'], {
            key: value for key, value in vm['metadata']['annotations'].items()
            if key != stored_names.BOOTLOADERS}


class BootedFromTestCase(BootTestCase):

    def test_device_of_the_running_vmi(self):
        machine = self.machine()
        self.assertIsNone(boot.booted_from(None))
        self.start(machine, phase='Running')
        self.assertIs(boot.Target.HDD, boot.booted_from(machine.vmi))
        fakes.set_boot(machine, boot.Target.CD, boot.Enabled.CONTINUOUS)
        # The override is for the next VMI.
        self.assertIs(boot.Target.HDD, boot.booted_from(machine.vmi))
        for phase, target in (('Scheduled', None), ('Failed', None),
                              ('Running', boot.Target.CD),
                              ('Unknown', boot.Target.CD)):
            self.start(machine, phase=phase)
            self.assertIs(target, boot.booted_from(machine.vmi))


class SetTestCase(BootTestCase):

    def test_no_override_by_default(self):
        self.assert_state(self.machine(), NONE, DISABLED)
        self.assertEqual((PXE, HDD, CD), boot_order.classes(
            fakes.vm()['spec']['template']))

    def test_once_changes_order_and_keeps_strategy(self):
        machine = self.machine()
        fakes.set_boot(machine, PXE, ONCE)
        self.assertEqual(['patch'], machine.actions)
        self.assert_state(machine, PXE, ONCE)
        self.assertEqual(['default', 'root', 'cd'], self.order(machine))
        self.assertEqual('RerunOnFailure', machine.strategy)

    def test_target_alone_is_continuous(self):
        machine = self.machine()
        fakes.set_boot(machine, CD)
        self.assert_state(machine, CD, CONTINUOUS)
        self.assertEqual(['cd', 'root', 'default'], self.order(machine))

    def test_target_alone_replaces_pending_once(self):
        machine = self.machine()
        fakes.set_boot(machine, CD, ONCE)
        fakes.set_boot(machine, PXE)
        self.assert_state(machine, PXE, ONCE)
        self.start(machine)
        fakes.set_boot(machine, CD)
        self.assert_state(machine, CD, CONTINUOUS)

    def test_enabled_alone_applies_to_current_target(self):
        machine = self.machine()
        fakes.set_boot(machine, CD)
        fakes.set_boot(machine, enabled=ONCE)
        self.assert_state(machine, CD, ONCE)
        fakes.set_boot(machine, enabled=CONTINUOUS)
        self.assert_state(machine, CD, CONTINUOUS)
        fakes.set_boot(machine, enabled=DISABLED)
        self.assert_state(machine, NONE, DISABLED)

    def test_enabled_alone_without_target_writes_nothing(self):
        machine = self.machine()
        for enabled in boot.Enabled:
            fakes.set_boot(machine, enabled=enabled)
        self.assertEqual([], machine.writes)

    def test_target_without_device_is_refused(self):
        machine = self.machine(disks=[{'name': 'root', 'disk': {}}])
        for enabled in (None, ONCE, CONTINUOUS):
            e = self.assertRaises(errors.InvalidValue, fakes.set_boot,
                                  machine, CD, enabled)
            self.assertEqual(('None', 'Pxe', 'Hdd'), e.allowed)
            self.assertEqual('BootSourceOverrideTarget', e.property)
        self.assertEqual([], machine.writes)

    def test_disabling_restores_original_settings(self):
        steps = [dict(target=PXE, enabled=ONCE),
                 dict(target=CD, enabled=ONCE, mode=UEFI),
                 dict(target=HDD, enabled=CONTINUOUS),
                 dict(target=PXE, enabled=CONTINUOUS)]
        for first, second in itertools.product(steps, repeat=2):
            for end in (dict(target=NONE), dict(enabled=DISABLED)):
                machine = self.machine(disks=[
                    {'name': 'root', 'disk': {}, 'bootOrder': 2},
                    {'name': 'cd', 'cdrom': {}}])
                before = self.owner_settings(machine)
                fakes.set_boot(machine, **first)
                fakes.set_boot(machine, **second)
                mode = second.get('mode')
                if second['enabled'] is ONCE and mode is None:
                    mode = first.get('mode')    # unchanged
                self.assert_state(machine, second['target'],
                                  second['enabled'], mode or LEGACY)
                fakes.set_boot(machine, **end)
                self.assert_state(machine, NONE, DISABLED)
                self.assertEqual(before, self.owner_settings(machine))

    def test_once_replaces_continuous(self):
        machine = self.machine()
        before = copy.deepcopy(machine.vm['spec'])
        fakes.set_boot(machine, PXE, CONTINUOUS)
        fakes.set_boot(machine, CD, ONCE)
        self.assert_state(machine, CD, ONCE)
        self.assertEqual(['cd', 'root', 'default'], self.order(machine))
        self.start(machine)
        self.assert_state(machine, NONE, DISABLED)
        self.reconcile(machine)
        self.assert_state(machine, NONE, DISABLED)
        machine.vm['spec']['runStrategy'] = before['runStrategy']
        self.assertEqual(before, machine.vm['spec'])

    def test_once_keeps_target_of_continuous(self):
        machine = self.machine()
        fakes.set_boot(machine, PXE, CONTINUOUS)
        fakes.set_boot(machine, enabled=ONCE)
        self.assert_state(machine, PXE, ONCE)
        self.start(machine)
        self.assert_state(machine, NONE, DISABLED)

    def test_same_override_writes_nothing(self):
        machine = self.machine()
        fakes.set_boot(machine, PXE, ONCE)
        fakes.set_boot(machine, PXE, ONCE)
        fakes.set_boot(machine, PXE, ONCE)
        self.assertEqual(1, len(machine.writes))
        fakes.set_boot(machine, PXE, CONTINUOUS)
        fakes.set_boot(machine, PXE)
        self.assertEqual(2, len(machine.writes))

    def test_same_override_gets_new_id_when_vmi_has_it(self):
        machine = self.machine()
        fakes.set_boot(machine, PXE, ONCE)
        self.start(machine, phase='Scheduling')
        self.assert_state(machine, PXE, ONCE)
        fakes.set_boot(machine, PXE, ONCE)
        self.assertNotEqual(
            bmc_annotations.boot_once_id(machine.vmi),
            bmc_annotations.boot_once_id(machine.vm['spec']['template']))
        self.start(machine, 'u1')
        machine.vm['status']['observedGeneration'] -= 1

    def test_foreign_boot_order_ends_continuous_override(self):
        machine = self.machine()
        fakes.set_boot(machine, PXE)
        devices = machine.vm['spec']['template']['spec']['domain']['devices']
        devices['interfaces'][0]['bootOrder'] = 9
        self.assert_state(machine, NONE, DISABLED)
        fakes.set_boot(machine, target=NONE)
        self.assertEqual(['default'], self.order(machine))

    def test_lost_response_writes_once(self):
        machine = self.machine()
        machine.faults = [(errors.ConnectionLost('x', maybe_done=True), True)]
        fakes.set_boot(machine, PXE, ONCE)
        self.assertEqual(['patch'], machine.actions)
        self.assert_state(machine, PXE, ONCE)

    def test_transient_errors_are_retried(self):
        for fault in (errors.Conflict('x'), errors.TooManyRequests('x'),
                      errors.ServerError('x')):
            machine = self.machine()
            machine.faults = [fault, fault]
            fakes.set_boot(machine, PXE, ONCE)
            self.assertEqual(['patch'], machine.actions)

    def test_vm_that_changed_meanwhile_is_read(self):
        machine = self.machine()
        machine.cached = machine.state().copy_vm()
        fakes.set_boot(machine, CD, ONCE)
        machine.vm['metadata']['generation'] += 1
        machine.writes.clear()
        fakes.set_boot(machine, PXE, CONTINUOUS)
        self.assertEqual((['patch'], 1),
                         (machine.actions, machine.fetch_count))
        self.assert_state(machine, PXE, CONTINUOUS)
        # Nothing is left of the override that the cache lacked.
        machine.cached = None
        fakes.set_boot(machine, target=NONE)
        self.assertEqual([], self.order(machine))

    def test_nothing_to_do_and_refusals_are_confirmed(self):
        machine = self.machine()
        fakes.set_boot(machine, PXE, CONTINUOUS)
        machine.cached = self.machine().state()
        machine.cached.vm['metadata']['generation'] = 1
        fakes.set_boot(machine, target=NONE)
        self.assertEqual([], self.order(machine))
        machine.cached = self.machine(interfaces=[]).state()
        fakes.set_boot(machine, PXE, ONCE)
        self.assert_state(machine, PXE, ONCE)

    def test_pending_override_and_order_are_read(self):
        machine = self.machine()
        fakes.set_boot(machine, PXE, ONCE)
        self.assertEqual(0, machine.fetch_count)
        fakes.set_boot(machine, CD, ONCE)
        self.assertEqual(1, machine.fetch_count)

    def test_never_changes_power(self):
        for strategy in ('Always', 'RerunOnFailure', 'Manual', 'Halted',
                         'Once'):
            machine = self.machine(strategy)
            fakes.set_boot(machine, PXE, ONCE)
            fakes.set_boot(machine, CD, CONTINUOUS)
            fakes.set_boot(machine, target=NONE)
            self.assertEqual(strategy, machine.strategy)
            self.assertEqual({'patch'}, set(machine.actions))


class ModeTestCase(BootTestCase):

    def test_mode_alone_is_permanent(self):
        machine = self.machine()
        fakes.set_boot(machine, mode=UEFI)
        self.assert_state(machine, NONE, DISABLED, UEFI)
        fakes.set_boot(machine, mode=UEFI)
        self.assertEqual(1, len(machine.writes))

    def test_mode_with_continuous_is_permanent(self):
        machine = self.machine()
        fakes.set_boot(machine, PXE, CONTINUOUS, UEFI)
        self.assert_state(machine, PXE, CONTINUOUS, UEFI)
        fakes.set_boot(machine, target=NONE)
        self.assert_state(machine, NONE, DISABLED, UEFI)

    def test_mode_with_once_lasts_one_boot(self):
        efi = {'efi': {'secureBoot': False, 'persistent': True}}
        machine = self.machine(domain={'firmware': {'bootloader': efi}})
        fakes.set_boot(machine, PXE, ONCE, LEGACY)
        self.assert_state(machine, PXE, ONCE, LEGACY)
        self.start(machine)
        self.assertEqual({'bios': {}}, firmware.bootloader(machine.vmi))
        self.assert_state(machine, NONE, DISABLED, UEFI)
        self.reconcile(machine)
        self.assertEqual(efi, firmware.bootloader(
            machine.vm['spec']['template']))

    def test_mode_with_once_and_no_target(self):
        machine = self.machine()
        fakes.set_boot(machine, enabled=ONCE, mode=UEFI)
        self.assert_state(machine, NONE, ONCE, UEFI)
        self.start(machine)
        self.reconcile(machine)
        self.assert_state(machine, NONE, DISABLED, LEGACY)

    def test_mode_alone_while_once_is_pending(self):
        machine = self.machine()
        fakes.set_boot(machine, PXE, ONCE)
        fakes.set_boot(machine, mode=UEFI)
        self.assert_state(machine, PXE, ONCE, UEFI)
        self.start(machine)
        self.reconcile(machine)
        self.assert_state(machine, NONE, DISABLED, UEFI)

    def test_once_without_mode_keeps_pending_mode(self):
        machine = self.machine()
        fakes.set_boot(machine, PXE, ONCE, UEFI)
        fakes.set_boot(machine, CD, ONCE)
        self.assert_state(machine, CD, ONCE, UEFI)

    def test_secure_boot_while_once_changes_mode(self):
        machine = self.machine(domain={'firmware': {'bootloader': {
            'efi': {'secureBoot': False}}}})
        fakes.set_boot(machine, PXE, ONCE, LEGACY)
        changes.write(machine, (boot.secure_boot_change(True),))
        self.assert_state(machine, PXE, ONCE, LEGACY)
        self.start(machine)
        self.reconcile(machine)
        self.assertTrue(firmware.secure_boot(machine.vm))
        machine = self.machine()
        fakes.set_boot(machine, PXE, ONCE, UEFI)
        self.assertRaises(errors.WrongState, changes.write, machine,
                          (boot.secure_boot_change(True),))


class AddedInterfaceTestCase(BootTestCase):
    """VMs without interfaces, to which KubeVirt adds one."""

    def devices(self, machine):
        spec = machine.vm['spec']['template']['spec']
        return spec['domain']['devices'].get('interfaces'), spec.get(
            'networks')

    def without(self, **devices):
        machine = self.machine(interfaces=[])
        hardware = machine.vm['spec']['template']['spec']['domain']['devices']
        del hardware['interfaces']
        hardware.update(devices)
        return machine

    def test_pxe_is_offered(self):
        self.assertIn(PXE, boot_order.classes(
            self.without().vm['spec']['template']))
        for machine in (self.without(autoattachPodInterface=False),
                        self.machine(interfaces=[], domain={
                            'launchSecurity': {'sev': {}}})):
            self.assertNotIn(PXE, boot_order.classes(
                machine.vm['spec']['template']))
            self.assertRaises(errors.InvalidValue, fakes.set_boot, machine,
                              PXE)
            self.assertEqual([], machine.writes)

    def test_preference_excludes_it(self):
        excluded = {'devices': {'autoattachPodInterface': False}}
        for off in True, False:
            machine = self.without()
            machine.vm['spec']['preference'] = {'name': 'p'}
            before = copy.deepcopy(machine.vm)
            if off:
                machine.sizes = lambda vm: excluded
            else:
                self.start(machine, phase='Running')
                machine.vmi['spec']['domain'].update(copy.deepcopy(excluded))
            for refused in {'target': PXE}, {'order': ('Boot1001',)}:
                self.assertRaises(errors.InvalidValue, fakes.set_boot,
                                  machine, **refused)
            self.assertEqual(before, machine.vm)
            fakes.set_boot(machine, order=('Boot0001',))
            self.assertEqual((None, None), self.devices(machine))
            self.assertNotIn('autoattachPodInterface', str(machine.vm))
            # The owner's own choice counts more.
            machine.vm['spec']['template']['spec']['domain']['devices'][
                'autoattachPodInterface'] = True
            fakes.set_boot(machine, PXE)

    def test_preference_excludes_it_from_a_vm_without_devices(self):
        machine = self.without()
        template = machine.vm['spec']['template']['spec']
        template.update(domain={'devices': {}}, volumes=[])
        machine.vm['spec']['preference'] = {'name': 'p'}
        machine.sizes = lambda vm: {
            'devices': {'autoattachPodInterface': False}}
        shown = pod_interface.shown(machine, machine.state())
        self.assertEqual((), boot_order.classes(shown['spec']['template']))
        self.assertRaises(errors.InvalidValue, fakes.set_boot, machine, PXE)
        self.assertEqual({'devices': {}}, template['domain'])

    def test_is_written_while_it_is_needed(self):
        machine = self.without()
        before = self.owner_settings(machine)
        fakes.set_boot(machine, PXE, ONCE)
        self.assertEqual(
            ([{'name': 'default', 'masquerade': {}, 'bootOrder': 1}],
             [{'name': 'default', 'pod': {}}]), self.devices(machine))
        fakes.set_boot(machine, CD, ONCE)
        fakes.set_boot(machine, PXE, ONCE)
        self.start(machine)
        self.assertTrue(self.reconcile(machine))
        self.assertEqual((None, None), self.devices(machine))
        machine = self.without()
        fakes.set_boot(machine, PXE)
        fakes.set_boot(machine, enabled=DISABLED)
        self.assertEqual(before, self.owner_settings(machine))

    def test_has_the_binding_of_the_running_vmi(self):
        machine = self.without()
        self.start(machine, phase='Running')
        machine.vmi['spec']['domain']['devices']['interfaces'] = [
            {'name': 'default', 'bridge': {}}]
        fakes.set_boot(machine, PXE)
        self.assertEqual('bridge', list(self.devices(machine)[0][0])[1])

    def test_order(self):
        machine = self.without()
        before = self.owner_settings(machine)
        self.assertIn('Boot1001', [option.reference for option in
                                   boot_options.options(machine.vm)])
        fakes.set_boot(machine, order=('Boot1001', 'Boot0001'))
        self.assertEqual(('Boot1001', 'Boot0001'),
                         boot_options.order(machine.vm))
        fakes.set_boot(machine, CD, ONCE)
        boot.set_default_order(machine)
        fakes.set_boot(machine, enabled=DISABLED)
        self.assertEqual(before, self.owner_settings(machine))

    def test_changed_interface_stays(self):
        machine = self.without()
        fakes.set_boot(machine, PXE)
        devices = machine.vm['spec']['template']['spec']['domain']['devices']
        devices['interfaces'][0]['model'] = 'e1000e'
        fakes.set_boot(machine, enabled=DISABLED)
        self.assertEqual([{'name': 'default', 'masquerade': {},
                           'model': 'e1000e'}], self.devices(machine)[0])
        self.assertNotIn(stored_names.POD_INTERFACE,
                         machine.vm['metadata']['annotations'])


class ArchitectureTestCase(BootTestCase):

    def test_refuses_modes_that_it_lacks(self):
        for architecture, mode, allowed in (('arm64', LEGACY, 'UEFI'),
                                            ('s390x', UEFI, 'Legacy')):
            machine = self.machine()
            machine.vm['spec']['template']['spec'][
                'architecture'] = architecture
            for settings in (NONE, DISABLED), (PXE, ONCE), (None, None):
                e = self.assertRaises(errors.InvalidValue, fakes.set_boot,
                                      machine, *settings, mode)
                self.assertEqual((allowed,), e.allowed)
            self.assertRaises(errors.InvalidValue, bios.set, machine,
                              {'BootMode': mode.value, 'Mine': 1})
            self.assertRaises(errors.InvalidValue, bios.set, machine,
                              {'SecureBoot': 'Enabled', 'Mine': 1})
            self.assertEqual([], machine.writes)


class RebootPolicyTestCase(BootTestCase):

    def policy(self, machine):
        return machine.vm['spec']['template']['spec']['domain'].get(
            'rebootPolicy')

    def test_terminates_with_gate(self):
        for own in (None, 'Reboot', 'Terminate'):
            machine = self.machine(
                domain={'rebootPolicy': own} if own else {})
            fakes.set_boot(machine, PXE, ONCE)
            self.assertEqual('Terminate', self.policy(machine))
            fakes.set_boot(machine, enabled=DISABLED)
            self.assertEqual(own, self.policy(machine))

    def test_unchanged_without_gate(self):
        machine = self.machine()
        machine.gates.on.clear()
        fakes.set_boot(machine, PXE, ONCE)
        self.assertIsNone(self.policy(machine))

    def test_unchanged_if_option_is_off(self):
        machine = fakes.Machine(fakes.vm(), reboot_policy=False)
        fakes.set_boot(machine, PXE, ONCE)
        self.assertIsNone(self.policy(machine))

    def test_unchanged_by_continuous_override(self):
        machine = self.machine()
        fakes.set_boot(machine, PXE)
        self.assertIsNone(self.policy(machine))

    def test_unchanged_under_strategy_once(self):
        machine = self.machine('Once')
        fakes.set_boot(machine, PXE, ONCE)
        self.assertIsNone(self.policy(machine))

    def test_omitted_if_gate_was_just_disabled(self):
        machine = self.machine()
        machine.faults = [errors.Rejected(
            'RebootPolicy is specified but the RebootPolicy feature gate is '
            'not enabled')]
        fakes.set_boot(machine, PXE, ONCE)
        self.assertIsNone(self.policy(machine))
        self.assert_state(machine, PXE, ONCE)

    def test_other_refusals_are_raised(self):
        machine = self.machine()
        machine.faults = [errors.Rejected('SEV does not work along with '
                                          'bootable NICs')]
        self.assertRaises(errors.Rejected, fakes.set_boot, machine, PXE, ONCE)


class BootStartedTestCase(BootTestCase):

    def pending(self, vmi=None):
        machine = self.machine('Always')
        machine.vmi = vmi
        fakes.set_boot(machine, PXE, ONCE)
        return machine

    def test_not_started_by_previous_vmi(self):
        for phase in ('', 'Pending', 'Scheduling', 'Scheduled', 'Running',
                      'Succeeded', 'Failed'):
            machine = self.pending(fakes.vmi(phase, of=fakes.vm()))
            self.assertFalse(boot_overrides.boot_started(machine.state()))
            self.assertFalse(self.reconcile(machine))
            self.assert_state(machine, PXE, ONCE)

    def test_started_when_new_vmi_is_scheduled(self):
        for phase in ('', 'Pending', 'Scheduling'):
            machine = self.pending()
            self.start(machine, phase=phase)
            self.assertFalse(self.reconcile(machine), phase)
            self.assert_state(machine, PXE, ONCE)
        for phase in ('Scheduled', 'Running', 'Succeeded', 'Failed',
                      'Unknown'):
            machine = self.pending()
            self.start(machine, phase=phase)
            machine.vmi['status']['nodeName'] = 'node-0'
            self.assert_state(machine, NONE, DISABLED)
            self.assertTrue(self.reconcile(machine))
            self.assert_state(machine, NONE, DISABLED)
            self.assertFalse(self.reconcile(machine))

    def test_started_by_vmi_without_node_name(self):
        for phase in ('Scheduled', 'Running', 'Succeeded', 'Unknown'):
            machine = self.pending()
            self.start(machine, phase=phase)
            machine.vmi['status'].pop('nodeName', None)
            self.assertTrue(self.reconcile(machine), phase)

    def test_not_started_by_vmi_that_failed_before_running(self):
        machine = self.pending()
        self.start(machine, phase='Failed')
        self.assertFalse(self.reconcile(machine))
        machine.vm['status']['startFailure'] = {'lastFailedVMIUID': 'u1'}
        machine.vmi = None
        self.assertFalse(self.reconcile(machine))
        self.assert_state(machine, PXE, ONCE)

    def test_not_started_by_vmi_stopped_before_running(self):
        machine = self.pending()
        self.start(machine, phase='Scheduling')
        boot_overrides.preserve_once(machine.vm, machine.vmi)
        machine.vm['metadata']['generation'] += 1
        machine.vmi = None
        self.assertFalse(self.reconcile(machine))
        self.assert_state(machine, PXE, ONCE)
        self.start(machine, uid='u2')
        before = copy.deepcopy(machine.vm)
        boot_overrides.preserve_once(machine.vm, machine.vmi)
        self.assertEqual(before, machine.vm)
        self.assertTrue(self.reconcile(machine))

    def test_started_by_vmi_that_is_already_gone(self):
        machine = self.pending()
        self.start(machine)
        machine.vmi = None
        self.assert_state(machine, NONE, DISABLED)
        self.assertTrue(self.reconcile(machine))
        self.assertEqual([], self.order(machine))

    def test_override_reverted_by_owner_is_removed(self):
        # kubectl replace of the template: KubeVirt finds the VMI up to date.
        machine = self.pending(fakes.vmi(of=fakes.vm()))
        machine.vm['spec']['template'] = fakes.vm()['spec']['template']
        machine.vm['metadata']['generation'] += 1
        machine.vm['status']['observedGeneration'] = machine.vm[
            'metadata']['generation']
        self.assert_state(machine, NONE, DISABLED)
        self.reconcile(machine)
        self.assertIsNone(boot_overrides.once(machine.vm))

    def test_invalid_annotation_is_ignored(self):
        for text in ('', 'x', '[]', '{"once": 1}', '1'):
            vm = fakes.vm(annotations={stored_names.BOOT: text})
            state = vm_state.VmState(vm)
            self.assertIs(DISABLED, boot.settings(state).enabled)
            self.assertIsNone(one_time_boot.desired_vm(state))
