# SPDX-License-Identifier: Apache-2.0
"""Boot overrides while BMC processes are killed and the API fails."""

from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine import power_state
from tests.fixtures import boot_case
from tests.fixtures import machine_case

R = power_state.ResetType
NONE, PXE = boot.Target.NONE, boot.Target.PXE
DISABLED, ONCE = boot.Enabled.DISABLED, boot.Enabled.ONCE
LEGACY = boot.Mode.LEGACY


class KilledTestCase(boot_case.BootTestCase):
    """BMC processes are killed or absent; the VM holds the state."""

    def bmc_without_reconciler(self):
        return self.bmc(reconcile=False)

    def test_override_survives_kill_after_it_was_set(self):
        name = self.machine('Manual').name
        spec = self.spec(name)
        self.assertFalse(self.run_bmc(name, 'boot', 'Pxe', 'Once', writes=1))
        machine = self.bmc().machine(name)
        self.assertEqual(boot.BootState(PXE, ONCE, LEGACY), machine.boot())
        self.assertEqual('Pxe', self.boot_new_vmi(machine, R.ON)['class'])
        self.assertEqual('Hdd', self.guest_reboots(machine, True)['class'])
        self.wait_restored(name, spec)

    def test_restores_after_start_without_bmc(self):
        for strategy, action in (('Halted', 'virtctl start'),
                                 ('Manual', 'virtctl start'),
                                 ('RerunOnFailure', 'virtctl start'),
                                 ('Halted', R.ON), ('Manual', R.ON),
                                 ('RerunOnFailure', R.ON)):
            machine = self.machine(strategy, self.bmc_without_reconciler())
            spec = self.spec(machine.name)
            machine.set_boot(PXE, ONCE)
            booted = self.boot_new_vmi(machine, action)
            self.assertEqual('Pxe', booted['class'])
            # The override reads as disabled before the spec is restored.
            self.until('override disabled',
                       lambda: machine.boot().enabled is DISABLED)
            if action is not R.ON:
                # A power-on that is repeated may restore it itself.
                self.assertNotEqual(spec['template'],
                                    self.spec(machine.name)['template'])
            bmc = self.bmc()
            machine = bmc.machine(machine.name)
            self.until('original template', lambda: self.spec(
                machine.name)['template'] == spec['template'])
            self.until('run strategy Always', lambda: self.strategy(
                machine.name) == 'Always')
            self.assertEqual('Hdd',
                             self.guest_reboots(machine, True)['class'])
            after = {('Halted', 'virtctl start'): 'Always',
                     ('Halted', R.ON): 'RerunOnFailure'}.get(
                         (strategy, action), strategy)
            self.wait_restored(machine.name, spec, after)
            bmc.close()

    def test_restores_after_start_and_stop_without_bmc(self):
        machine = self.machine('Manual', self.bmc_without_reconciler())
        spec = self.spec(machine.name)
        machine.set_boot(PXE, ONCE)
        self.sandbox.do(machine.name, 'start')
        self.sandbox.wait_boot(machine.name, 1)
        self.sandbox.do(machine.name, 'stop')
        self.sandbox.wait_stopped(machine.name)
        self.until('override disabled',
                   lambda: machine.boot().enabled is DISABLED)
        machine = self.bmc().machine(machine.name)
        self.wait_restored(machine.name, spec)
        self.assertEqual('Hdd', self.boot_new_vmi(machine, R.ON)['class'])

    def test_restores_after_kill_between_any_two_writes(self):
        for strategy, action, off in (
                ('Halted', R.ON, True), ('Manual', R.ON, True),
                ('RerunOnFailure', R.FORCE_RESTART, False),
                ('Manual', R.FORCE_RESTART, False)):
            for writes in (1, 2):
                machine = self.machine(
                    strategy, self.bmc_without_reconciler(), off=off)
                spec = self.spec(machine.name)
                boots = len(self.sandbox.boots(machine.name))
                machine.set_boot(PXE, ONCE)
                self.run_bmc(machine.name, 'reset', action.value,
                             writes=writes)
                self.assertEqual('Pxe', self.sandbox.wait_boot(
                    machine.name, boots + 1)['class'])
                # The process is killed after each write of the restore.
                for _ in range(2):
                    self.run_bmc(machine.name, 'keep', writes=1)
                bmc = self.bmc()
                machine = bmc.machine(machine.name)
                self.until('override disabled', lambda: machine.boot().enabled
                           is DISABLED)
                self.until('run strategy Always', lambda: self.strategy(
                    machine.name) == 'Always')
                self.assertEqual('Hdd',
                                 self.guest_reboots(machine, True)['class'])
                self.wait_restored(machine.name, spec, {
                    'Halted': 'RerunOnFailure'}.get(strategy))
                bmc.close()

    def test_restores_with_several_bmcs(self):
        bmcs = [self.bmc() for _ in range(4)]
        machine = self.machine('Manual', bmcs[0])
        spec = self.spec(machine.name)
        for number in range(3):
            # One BMC sets the override, another one starts the VM.
            machine = self.handle(bmcs[number], machine.name)
            machine.set_boot(PXE, ONCE)
            machine = self.handle(bmcs[number + 1], machine.name)
            self.assertTrue(machine.wait(
                lambda state: boot.settings(state).enabled is ONCE, 30))
            booted = self.boot_new_vmi(
                machine, R.FORCE_RESTART if number else R.ON)
            self.assertEqual('Pxe', booted['class'])
            self.assertEqual('Hdd',
                             self.guest_reboots(machine, True)['class'])
            self.wait_restored(machine.name, spec)


class FaultTestCase(boot_case.BootTestCase):

    def test_set_boot_survives_each_fault(self):
        machine = self.machine('Manual')
        spec = self.spec(machine.name)
        for moment in machine_case.WRITE_FAULTS:
            self.sandbox.fault(moment, verb='PATCH',
                               where=f'virtualmachines/{machine.name}$')
            machine.set_boot(PXE, ONCE)
            self.assertEqual(boot.BootState(PXE, ONCE, LEGACY),
                             machine.boot())
            self.assertEqual([1], self.fault_hits())
            self.sandbox.clear_faults()
            machine.set_boot(NONE)
            self.assertEqual(spec, self.spec(machine.name))

    def test_reconciler_survives_each_fault(self):
        bmc = self.bmc()
        for moment in machine_case.WRITE_FAULTS:
            machine = self.machine('Manual', bmc)
            spec = self.spec(machine.name)
            machine.set_boot(PXE, ONCE)
            # Each fault hits both patches of the reconciler: the one that
            # restores the boot order, then that of the run strategy.
            self.sandbox.fault(moment, verb='PATCH',
                               where=f'virtualmachines/{machine.name}$')
            self.sandbox.do(machine.name, 'start')
            self.assertEqual(
                'Pxe', self.sandbox.wait_boot(machine.name, 1)['class'])
            self.until('run strategy Always', lambda: self.strategy(
                machine.name) == 'Always')
            self.assertEqual([1], self.fault_hits())
            self.sandbox.clear_faults()
            self.sandbox.fault(moment, verb='PATCH',
                               where=f'virtualmachines/{machine.name}$')
            self.assertEqual('Hdd',
                             self.guest_reboots(machine, True)['class'])
            self.wait_restored(machine.name, spec)
            self.assertEqual([1], self.fault_hits())
            self.sandbox.clear_faults()

    def test_restores_while_watches_break(self):
        machine = self.machine('Manual')
        spec = self.spec(machine.name)
        machine.set_boot(PXE, ONCE)
        self.sandbox.fault('break', verb='WATCH', count=2)
        self.assertEqual('Pxe', self.boot_new_vmi(machine, R.ON)['class'])
        self.sandbox.fault('gone', verb='WATCH', count=2)
        self.until('run strategy Always', lambda: self.strategy(
            machine.name) == 'Always')
        self.assertEqual('Hdd', self.guest_reboots(machine, True)['class'])
        self.wait_restored(machine.name, spec)
