# SPDX-License-Identifier: Apache-2.0
"""Restarts of a starting machine with sushy (Redfish) and ipmitool (IPMI).

Whether the settings made before a restart are in effect is decided by the
record of the guest's boots: its device and firmware.
"""

import sushy

from kubevirt_sandbox.testing import machines
from sushy_kubevirt.machine import cluster
from sushy_kubevirt.machine import options
from sushy_kubevirt.machine import power_state
from tests.fixtures import bmcs_case
from tests.fixtures import power_history
from tests.fixtures import sandbox

REDFISH = (sushy.ResetType.FORCE_RESTART, sushy.ResetType.GRACEFUL_RESTART,
           sushy.ResetType.POWER_CYCLE)
IPMI = ('cycle', 'reset')


class StartingTestCase(bmcs_case.BmcsTestCase):

    def setUp(self):
        super().setUp()
        watching = cluster.Cluster(
            sandbox.connect(self.account),
            (sandbox.NAMESPACE,), options=options.Options(reconcile=False))
        self.addCleanup(watching.close)
        watching.wait_ready()
        self.history = power_history.History(watching)

    def assert_never_in_back_off(self):
        """Check that no VMI counted as a failed start, after which KubeVirt
        delays the next one.
        """
        self.assertNotIn('CrashLoopBackOff', self.history.statuses(self.name))


class RestartTestCase(StartingTestCase):

    BOOT_SECONDS = 4

    def assert_boots(self):
        """Check that the machine boots with its new settings, at once."""
        new = 'Pxe', 'efi'
        # The guest of the restarted VMI may boot first on a slow host.
        self.until(lambda: new in self.booted(), describe=self.booted)
        self.assert_never_in_back_off()
        self.wait_power(sushy.PowerState.ON, 'on')
        self.assertEqual(new, self.booted()[-1])

    def booted(self):
        """List the device class and the firmware of each boot."""
        return [(boot['class'], boot['firmware'])
                for boot in self.sandbox.boots(self.name)]

    def change_settings(self, restart):
        """Set device and firmware of the next boot, which are restored."""
        if restart in IPMI:
            self.ipmi('chassis', 'bootdev', 'pxe', 'options=efiboot')
        else:
            self.system().set_system_boot_options(
                sushy.BOOT_SOURCE_TARGET_PXE,
                enabled=sushy.BOOT_SOURCE_ENABLED_ONCE,
                mode=sushy.BOOT_SOURCE_MODE_UEFI)

    def test_restart_with_new_boot_device_and_firmware(self):
        for restart in (*REDFISH, *IPMI):
            self.make()
            self.system().reset_system(sushy.ResetType.ON)
            self.sandbox.wait('virtualmachineinstances', self.name, bool)
            self.change_settings(restart)
            if restart in IPMI:
                self.ipmi('chassis', 'power', restart)
            else:
                self.system().reset_system(restart)
            self.assert_boots()
            self.wait_restored()

    def test_restart_right_after_power_on(self):
        for restart in (REDFISH[0], IPMI[0]):
            self.make()
            if restart in IPMI:
                self.ipmi('chassis', 'power', 'on')
                self.change_settings(restart)
                self.ipmi('chassis', 'power', restart)
            else:
                system = self.system()
                system.reset_system(sushy.ResetType.ON)
                self.change_settings(restart)
                system.reset_system(restart)
            self.assert_boots()

    def test_emulator_killed_after_restart(self):
        self.make()
        self.system().reset_system(sushy.ResetType.ON)
        self.sandbox.wait('virtualmachineinstances', self.name, bool)
        self.change_settings(sushy.ResetType.FORCE_RESTART)
        self.system().reset_system(sushy.ResetType.FORCE_RESTART)
        self.emulator.process.kill()
        self.restart_emulator()
        self.assert_boots()

    def test_restart_of_machine_that_is_off(self):
        self.make()
        for restart in REDFISH:
            for command in IPMI:
                refused = self.vbmcd.ipmi(self.name, 'chassis', 'power',
                                          command, check=False)
                self.assertIn('not supported in present state', refused)
            self.system().reset_system(restart)
            self.wait_power(sushy.PowerState.ON, 'on')
            self.ipmi('chassis', 'power', 'off')
            self.wait_power(sushy.PowerState.OFF, 'off')


class SlowStartTestCase(StartingTestCase):
    """Guests that start more slowly than a BMC's request may take.

    Such a guest runs only after the answer, as on a cluster where a VM takes
    tens of seconds to start. A BMC that waited for it would answer with an
    error at its deadline.
    """

    DEADLINE = 4
    BOOT_SECONDS = 15
    SETTINGS = {'SUSHY_EMULATOR_KUBEVIRT_WRITE_DEADLINE': DEADLINE}
    CONFIG = {'kubevirt': {'write_deadline': DEADLINE}}

    def redfish(self, reset_type):
        """Request a reset, which is to succeed."""
        self.emulator.reset(machines.uuid_of(self.vm), reset_type, expect=204)

    def ipmi(self, *words):
        """Run a command of ipmitool, which is to succeed."""
        # A slow host needs longer than ipmitool waits by default.
        return self.vbmcd.ipmi(self.name, *words, options=('-N', '10'))

    def assert_starting(self):
        boots = self.sandbox.boots(self.name)
        if boots and self.sandbox.external:
            self.skipTest('needs a cluster whose VMs start more slowly')
        self.assertEqual([], boots)
        # The emulator's watch may be later than the answer of the daemon.
        self.until(lambda: self.emulator.system(machines.uuid_of(self.vm))[
            'PowerState'] in ('PoweringOn', 'PoweringOff'))

    def assert_boots_once(self, firmware):
        """Check that the machine boots once, with the latest firmware, and
        has neither been in back-off nor off since its start.
        """
        boot = self.sandbox.wait_boot(self.name, 1)
        self.assertEqual(firmware, boot['firmware'])
        self.wait_power(sushy.PowerState.ON, 'on')
        self.assertEqual(1, len(self.sandbox.boots(self.name)))
        self.assert_never_in_back_off()
        self.assertNotIn(power_state.PowerState.OFF,
                         self.history.since_power_on(self.name))
        self.sandbox.wait('virtualmachines', self.name, lambda vm: (
            vm['spec']['runStrategy'] == 'RerunOnFailure'
            and bmcs_case.ANNOTATION + 'restart'
            not in vm['metadata']['annotations']))

    def test_redfish(self):
        made = []
        for restart in ('ForceRestart', 'GracefulRestart', 'PowerCycle'):
            self.make()
            made.append((self.name, self.vm))
            self.redfish('On')
            self.sandbox.wait('virtualmachineinstances', self.name, bool)
            self.system().bios.set_attributes(
                {'BootMode': 'UEFI', 'SecureBoot': 'Enabled'},
                apply_time=sushy.APPLY_TIME_ON_RESET)
            self.redfish(restart)
            self.assert_starting()
            self.redfish('On')
            self.assert_starting()
        for self.name, self.vm in made:
            self.assert_boots_once('efi-secure')

    def test_ipmi(self):
        made = []
        for restart in IPMI:
            self.make()
            made.append((self.name, self.vm))
            self.ipmi('chassis', 'power', 'on')
            self.sandbox.wait('virtualmachineinstances', self.name, bool)
            self.ipmi('chassis', 'bootdev', 'disk',
                      'options=persistent,efiboot')
            self.ipmi('chassis', 'power', restart)
            self.assert_starting()
            self.ipmi('chassis', 'power', 'on')
            self.assert_starting()
        for self.name, self.vm in made:
            self.assert_boots_once('efi')
