# SPDX-License-Identifier: Apache-2.0
"""Serial over LAN with real guests (QEMU), from power-on to a login."""

import re

from testtools import content

from kubevirt_sandbox.testing import process
from kubevirt_sandbox.testing import qemu
from tests.fixtures import base
from tests.fixtures import terminal
from tests.fixtures import vbmcd


class ConsoleTestCase(qemu.QemuTestCase, base.SandboxTestCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.vbmcd = cls.share(vbmcd.Vbmcd(cls.sandbox.bmc_account()))

    def activate(self, **options):
        """Make a machine that is off, and connect to its console."""
        self.make(run_strategy='Halted', watch=False, **options)
        bmc = self.vbmcd.add(self.name)
        self.client = self.useFixture(terminal.Terminal(
            ['ipmitool', '-I', 'lanplus', '-H', bmc.address, '-p',
             str(bmc.port), '-U', bmc.username, '-E', 'sol', 'activate'],
            process.environment(process.NO_HOME, {
                'IPMI_PASSWORD': bmc.password, 'TERM': 'dumb'})))
        self.addOnException(lambda _exc_info: self.addDetail(
            'console', content.text_content(
                self.client.output[-20000:].decode(errors='replace'))))
        self.wait('is off. The console connects when it starts.')

    def wait(self, *texts, mark=0):
        """Wait for texts in this order, and return the position after."""
        for text in texts:
            mark = self.client.wait(re.escape(text.encode()), mark,
                                    timeout=150).end()
        return mark

    def power(self, action):
        self.vbmcd.ipmi(self.name, 'power', action)

    def test_bios_from_power_on_to_login(self):
        self.activate()
        self.power('on')
        banner = qemu.DISK + ' by BIOS'
        self.wait('is connected', 'SeaBIOS', banner)
        self.client.send(b'login\r')
        mark = self.wait('login: ')
        self.client.send(b'root\r')
        mark = self.wait('Password: ', mark=mark)
        self.client.send(b'console\r')
        mark = self.wait('# ', mark=mark)
        # Nothing is lost or doubled in either direction.
        self.client.send(b'echo %s | wc -c\r' % (b'0123456789' * 20))
        mark = self.wait('\r\n201\r\n', '# ', mark=mark)
        self.client.send(b'for i in $(seq 4000); do echo line $i; done\r')
        start = self.wait('done\r\n', mark=mark)
        mark = self.wait('line 4000\r\n', '# ', mark=start)
        self.assertEqual(
            b''.join(b'line %d\r\n' % n for n in range(1, 4001)),
            self.client.output[start:mark].rpartition(b'\n')[0] + b'\n')
        self.client.send(b'exit\r')
        mark = self.wait('logged out', mark=mark)
        # A reboot of the guest keeps the connection.
        self.client.send(b'reboot\r')
        begin, mark = mark, self.wait('SeaBIOS', banner, mark=mark)
        self.assertNotIn(b'connect', self.client.output[begin:mark])
        # A power cycle makes a new VMI.
        self.power('cycle')
        mark = self.wait('is connected', 'SeaBIOS', banner, mark=mark)
        self.power('soft')
        self.wait('power button', 'is off.', mark=mark)
        self.client.send(b'\r~.')
        self.assertEqual(0, self.client.wait_end())

    def test_uefi_messages(self):
        self.activate(efi=True)
        self.power('on')
        self.wait('is connected', 'BdsDxe: starting Boot',
                  qemu.DISK + ' by UEFI')
