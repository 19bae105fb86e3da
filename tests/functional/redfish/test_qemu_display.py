# SPDX-License-Identifier: Apache-2.0
"""The display of real guests (QEMU) as a WebSocket."""

from kubevirt_sandbox.testing import qemu
from tests.fixtures import base
from tests.fixtures import console_client
from tests.fixtures import emulator

#: The greeting of QEMU's VNC server (RFC 6143, section 7.1.1).
GREETING = b'RFB 003.008\n'


class DisplayTestCase(qemu.QemuTestCase, base.SandboxTestCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.emulator = cls.share(emulator.Emulator(
            cls.sandbox.bmc_account()))

    def connect(self):
        found = console_client.Client(
            self.emulator.url + self.path + '/GraphicalConsole')
        self.addCleanup(found.close)
        return found

    def greet(self, display):
        """Shake hands up to the list of security types: none is needed."""
        display.wait(b'^' + GREETING)
        display.send(GREETING)
        display.wait(b'\\x01\\x01$')

    def test_vnc_until_restart_and_other_client(self):
        self.make(run_strategy='Halted', watch=False)
        self.emulator.wait_system(self.name)
        self.path = '/redfish/v1/Systems/' + self.emulator.system(
            self.name)['UUID']
        one = self.connect()
        one.notice('is off. The display connects when it starts.')
        self.emulator.reset(self.name, 'On')
        one.notice('is connected.')
        self.greet(one)
        two = self.connect()
        self.greet(two)
        one.notice('another client has connected to it.')
        self.assertEqual(4000, one.end()[0])
        self.emulator.reset(self.name, 'ForceOff')
        self.assertEqual(1012, two.end()[0])
