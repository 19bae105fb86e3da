# SPDX-License-Identifier: Apache-2.0
"""Rejected connections to ``console`` and ``vnc``.

`tests.functional.test_qemu_guests` tests working consoles.
"""

import websocket

from kubevirt_sandbox.testing import case
from kubevirt_sandbox.testing import console
from kubevirt_sandbox.testing import machines


class ConsolesTestCase(case.SandboxTestCase):

    VMS = 0

    def rejection(self, name, verb='console'):
        """Return status code and message of a rejected connection."""
        where = console.url(self.sandbox, name, verb)
        with self.assertRaises(websocket.WebSocketBadStatusException) as c:
            console.connect(self.sandbox, where)
        status = self.sandbox.request(
            'GET', '/apis/' + where.partition('/apis/')[2],
            expect=c.exception.status_code).json()
        return c.exception.status_code, status['message']

    def make(self, name, **devices):
        vm = machines.vm(name)
        vm['spec']['template']['spec']['domain']['devices'].update(devices)
        self.sandbox.create('virtualmachines', vm)
        self.addCleanup(self.sandbox.delete, 'virtualmachines', name)

    def test_missing_vm_gets_404(self):
        for verb in 'console', 'vnc':
            code, message = self.rejection('none', verb)
            self.assertEqual(404, code)
            self.assertIn('"none" not found', message)

    def test_vmi_that_does_not_run_gets_400(self):
        vm = machines.vm('waits')
        vm['spec']['template']['spec']['nodeSelector'] = {'no': 'node'}
        self.sandbox.create('virtualmachines', vm)
        self.addCleanup(self.sandbox.delete, 'virtualmachines', 'waits')
        self.sandbox.wait('virtualmachineinstances', 'waits', bool)
        for verb in 'console', 'vnc':
            self.assertEqual((400, 'VMI is not running'),
                             self.rejection('waits', verb))

    def test_vmi_without_console_gets_400(self):
        self.make('bare', autoattachSerialConsole=False,
                  autoattachGraphicsDevice=False)
        self.sandbox.wait_running('bare')
        self.assertEqual((400, 'No serial consoles are present.'),
                         self.rejection('bare'))
        self.assertEqual((400, 'No graphics devices are present.'),
                         self.rejection('bare', 'vnc'))

    def test_simulated_guest_has_no_display(self):
        self.make('blind')
        self.sandbox.wait_running('blind')
        code, message = self.rejection('blind', 'vnc')
        self.assertEqual(501, code)
        self.assertIn('have no display', message)

    def connect(self, name):
        made = console.connect(self.sandbox, console.url(self.sandbox, name))
        self.addCleanup(made.shutdown)
        made.settimeout(30)
        return made

    def read(self, socket, end):
        """Read until the output ends with some bytes."""
        received = b''
        while not received.endswith(end):
            data = socket.recv()
            self.assertTrue(data, received)
            received += data
        return received

    def test_console_of_simulated_guest(self):
        self.make('simulated')
        self.sandbox.wait_running('simulated')
        self.sandbox.request(
            'GET', '/sandbox/guests/default/simulated/console', expect=404)
        one = self.connect('simulated')
        one.send_binary(b'print 130\r')
        self.assertEqual(
            b'print 130\r\n0000000000 ' + b'.' * 51 + b'\r\n0000000001 '
            + b'.' * 51 + b'\r\n00# ', self.read(one, b'# '))
        # A reboot of the guest keeps the connection.
        self.sandbox.guest_does('simulated', 'reboot')
        self.assertIn(b'simulated: bios firmware, booted from ',
                      self.read(one, b'# '))
        # A second connection replaces the first, without a close frame.
        two = self.connect('simulated')
        with self.assertRaises((websocket.WebSocketException, OSError)):
            one.recv()
        two.send_binary(b'poweroff\r')
        with self.assertRaises((websocket.WebSocketException, OSError)):
            while True:
                two.recv()
        self.sandbox.wait('virtualmachineinstances', 'simulated',
                          lambda vmi: vmi is None
                          or vmi['status']['phase'] != 'Running')
