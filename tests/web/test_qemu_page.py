# SPDX-License-Identifier: Apache-2.0
"""The page shows the power state of a real guest (QEMU)."""

from kubevirt_sandbox.testing import qemu
from tests.web import case


class QemuTestCase(case.WebQemuTestCase):

    WATCH = True

    def test_power(self):
        self.log_in()
        state = self.page.locator('#power')
        self.expect(state).to_have_text('Off')
        self.pod.request(
            'POST', '/redfish/v1/Systems/1/Actions/ComputerSystem.Reset',
            {'ResetType': 'On'}, expect=204)
        self.expect(state).to_have_text('On')
        self.console.wait(qemu.DISK, timeout=150)
