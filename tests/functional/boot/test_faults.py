# SPDX-License-Identifier: Apache-2.0
"""Boot overrides while BMC processes are killed and the API fails."""

from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine import power_state
from tests.fixtures import boot_case
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


class KilledTestCase(boot_case.BootTestCase):
    """BMC processes come and go; the VM remembers."""

    def away(self):
        """A BMC without its one-time boot reconciler."""
        return self.bmc(keeper=False)

    def test_killed_after_setting_it(self):
        name = self.machine('Manual').name
        spec = self.spec(name)
        self.assertFalse(self.drive(name, 'boot', 'Pxe', 'Once', writes=1))
        machine = self.bmc().machine(name)
        self.assertEqual(boot.BootState(PXE, ONCE, LEGACY), machine.boot())
        self.assertEqual('Pxe', self.start_over(machine, R.ON)['class'])
        self.assertEqual('Hdd', self.guest_reboots(machine, True)['class'])
        self.is_restored(name, spec)

    def test_no_bmc_when_it_starts(self):
        for strategy, action in (('Halted', 'virtctl start'),
                                 ('Manual', 'virtctl start'),
                                 ('RerunOnFailure', 'virtctl start'),
                                 ('Halted', R.ON), ('Manual', R.ON),
                                 ('RerunOnFailure', R.ON)):
            away = self.away()
            machine = self.machine(strategy, away)
            spec = self.spec(machine.name)
            machine.set_boot(PXE, ONCE)
            self.assertEqual('Pxe', self.start_over(machine, action)['class'])
            # What it reads is right, although it is not restored yet.
            self.until('over',
                       lambda: machine.boot().enabled is DISABLED)
            if action is not R.ON:
                # A power-on that is tried again may put it back itself.
                self.assertNotEqual(spec['template'],
                                    self.spec(machine.name)['template'])
            bmc = self.bmc()
            machine = bmc.machine(machine.name)
            self.until('put back', lambda: self.spec(machine.name)[
                'template'] == spec['template'])
            self.until('kept up', lambda: self.strategy(machine.name)
                       == 'Always')
            self.assertEqual('Hdd',
                             self.guest_reboots(machine, True)['class'])
            after = {('Halted', 'virtctl start'): 'Always',
                     ('Halted', R.ON): 'RerunOnFailure'}.get(
                         (strategy, action), strategy)
            self.is_restored(machine.name, spec, after)
            bmc.close()

    def test_no_bmc_while_it_came_and_went(self):
        machine = self.machine('Manual', self.away())
        spec = self.spec(machine.name)
        machine.set_boot(PXE, ONCE)
        self.sandbox.do(machine.name, 'start')
        self.sandbox.wait_boot(machine.name, 1)
        self.sandbox.do(machine.name, 'stop')
        self.sandbox.wait_stopped(machine.name)
        self.until('over', lambda: machine.boot().enabled is DISABLED)
        machine = self.bmc().machine(machine.name)
        self.is_restored(machine.name, spec)
        self.assertEqual('Hdd', self.start_over(machine, R.ON)['class'])

    def test_killed_between_any_two_writes(self):
        for strategy, action, off in (
                ('Halted', R.ON, True), ('Manual', R.ON, True),
                ('RerunOnFailure', R.FORCE_RESTART, False),
                ('Manual', R.FORCE_RESTART, False)):
            for writes in (1, 2):
                machine = self.machine(strategy, self.away(), off=off)
                spec = self.spec(machine.name)
                boots = len(self.sandbox.boots(machine.name))
                machine.set_boot(PXE, ONCE)
                self.drive(machine.name, 'reset', action.value,
                           writes=writes)
                self.assertEqual('Pxe', self.sandbox.wait_boot(
                    machine.name, boots + 1)['class'])
                # Each step of putting it back dies, and is taken up again.
                for _ in range(2):
                    self.drive(machine.name, 'keep', writes=1)
                bmc = self.bmc()
                machine = bmc.machine(machine.name)
                self.until('over', lambda: machine.boot().enabled
                           is DISABLED)
                self.until('kept up', lambda: self.strategy(machine.name)
                           == 'Always')
                self.assertEqual('Hdd',
                                 self.guest_reboots(machine, True)['class'])
                self.is_restored(machine.name, spec, {
                    'Halted': 'RerunOnFailure'}.get(strategy))
                bmc.close()

    def test_several_keepers(self):
        bmcs = [self.bmc() for _ in range(4)]
        machine = self.machine('Manual', bmcs[0])
        spec = self.spec(machine.name)
        for number in range(3):
            # One BMC sets it, another one runs it.
            machine = self.handle(bmcs[number], machine.name)
            machine.set_boot(PXE, ONCE)
            machine = self.handle(bmcs[number + 1], machine.name)
            self.assertTrue(machine.wait(
                lambda vm, vmi: boot.state(vm, vmi).enabled is ONCE, 30))
            booted = self.start_over(
                machine, R.FORCE_RESTART if number else R.ON)
            self.assertEqual('Pxe', booted['class'])
            self.assertEqual('Hdd',
                             self.guest_reboots(machine, True)['class'])
            self.is_restored(machine.name, spec)


class FaultTestCase(boot_case.BootTestCase):

    def test_each_write_of_setting_it(self):
        machine = self.machine('Manual')
        spec = self.spec(machine.name)
        for moment in machine_case.BAD_MOMENTS:
            self.sandbox.fault(moment, verb='PATCH',
                               where=f'virtualmachines/{machine.name}$')
            machine.set_boot(PXE, ONCE)
            self.assertEqual(boot.BootState(PXE, ONCE, LEGACY),
                             machine.boot())
            self.assertEqual([1], self.fault_hits())
            self.sandbox.clear_faults()
            machine.set_boot(NONE)
            self.assertEqual(spec, self.spec(machine.name))

    def test_each_write_of_the_keeper(self):
        bmc = self.bmc()
        for moment in machine_case.BAD_MOMENTS:
            machine = self.machine('Manual', bmc)
            spec = self.spec(machine.name)
            machine.set_boot(PXE, ONCE)
            # Its two patches: the order back, then the strategy.
            self.sandbox.do(machine.name, 'start')
            self.sandbox.fault(moment, verb='PATCH',
                               where=f'virtualmachines/{machine.name}$')
            self.assertEqual(
                'Pxe', self.sandbox.wait_boot(machine.name, 1)['class'])
            self.until('kept up', lambda: self.strategy(machine.name)
                       == 'Always')
            self.sandbox.clear_faults()
            self.sandbox.fault(moment, verb='PATCH',
                               where=f'virtualmachines/{machine.name}$')
            self.assertEqual('Hdd',
                             self.guest_reboots(machine, True)['class'])
            self.is_restored(machine.name, spec)

    def test_watches_that_break(self):
        machine = self.machine('Manual')
        spec = self.spec(machine.name)
        machine.set_boot(PXE, ONCE)
        self.sandbox.fault('break', verb='WATCH', count=2)
        self.assertEqual('Pxe', self.start_over(machine, R.ON)['class'])
        self.sandbox.fault('gone', verb='WATCH', count=2)
        self.until('kept up', lambda: self.strategy(machine.name)
                   == 'Always')
        self.assertEqual('Hdd', self.guest_reboots(machine, True)['class'])
        self.is_restored(machine.name, spec)
