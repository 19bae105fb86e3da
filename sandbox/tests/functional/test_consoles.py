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

    def test_simulated_guest_gets_501(self):
        self.make('simulated')
        self.sandbox.wait_running('simulated')
        for verb, port in (('console', 'serial port'), ('vnc', 'display')):
            code, message = self.rejection('simulated', verb)
            self.assertEqual(501, code)
            self.assertIn('have no ' + port, message)
        self.sandbox.request(
            'GET', '/sandbox/guests/default/simulated/console', expect=404)
