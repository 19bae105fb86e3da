# SPDX-License-Identifier: Apache-2.0
"""Restarts of a starting machine with sushy (Redfish) and ipmitool (IPMI).

The guests take four seconds to start.
"""

import time

import sushy

from tests.fixtures import bmcs_case

REDFISH = (sushy.ResetType.FORCE_RESTART, sushy.ResetType.GRACEFUL_RESTART,
           sushy.ResetType.POWER_CYCLE)
IPMI = ('cycle', 'reset')

#: KubeVirt delays a start after a failed one for at least 10 s.
BACK_OFF = 10


class RestartTestCase(bmcs_case.BmcsTestCase):

    BOOT_SECONDS = 4

    def assert_boots(self, requested):
        """Check that the machine boots from the network, without back-off.

        :param requested: time of the restart, as of ``time.monotonic``
        """
        # The guest of the restarted VMI may boot first on a slow host.
        self.until(lambda: 'Pxe' in self.boots(), describe=self.boots)
        self.assertLess(time.monotonic() - requested,
                        BACK_OFF + self.BOOT_SECONDS)
        self.wait_power(sushy.PowerState.ON, 'on')
        self.assertEqual('Pxe', self.boots()[-1])

    def test_restart_with_new_boot_device(self):
        for restart in (*REDFISH, *IPMI):
            self.make()
            self.system().reset_system(sushy.ResetType.ON)
            self.sandbox.wait('virtualmachineinstances', self.name, bool)
            self.once()
            if restart in IPMI:
                self.ipmi('chassis', 'power', restart)
            else:
                self.system().reset_system(restart)
            self.assert_boots(time.monotonic())
            self.wait_restored()

    def test_restart_right_after_power_on(self):
        for restart in (REDFISH[0], IPMI[0]):
            self.make()
            if restart in IPMI:
                self.ipmi('chassis', 'power', 'on')
                self.once()
                self.ipmi('chassis', 'power', restart)
            else:
                system = self.system()
                system.reset_system(sushy.ResetType.ON)
                self.once()
                system.reset_system(restart)
            self.assert_boots(time.monotonic())

    def test_emulator_killed_after_restart(self):
        self.make()
        self.system().reset_system(sushy.ResetType.ON)
        self.sandbox.wait('virtualmachineinstances', self.name, bool)
        self.once()
        self.system().reset_system(sushy.ResetType.FORCE_RESTART)
        requested = time.monotonic()
        self.emulator.process.kill()
        self.restart_emulator()
        self.assert_boots(requested)

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
