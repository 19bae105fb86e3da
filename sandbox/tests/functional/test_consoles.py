# SPDX-License-Identifier: Apache-2.0
"""``console`` and ``vnc`` where nobody is at the other end.

With somebody they are in :mod:`tests.functional.test_qemu_guests`.
"""

import websocket

from kubevirt_sandbox.testing import case
from kubevirt_sandbox.testing import console
from kubevirt_sandbox.testing import machines


class ConsolesTestCase(case.SandboxTestCase):

    VMS = 0

    def refused(self, name, verb='console'):
        """How a connection is refused: code and message."""
        where = console.url(self.sandbox, name, verb)
        with self.assertRaises(websocket.WebSocketBadStatusException) as c:
            console.connect(self.sandbox, where)
        told = self.sandbox.request(
            'GET', '/apis/' + where.partition('/apis/')[2],
            expect=c.exception.status_code).json()
        return c.exception.status_code, told['message']

    def make(self, name, **devices):
        vm = machines.vm(name)
        vm['spec']['template']['spec']['domain']['devices'].update(devices)
        self.sandbox.create('virtualmachines', vm)
        self.addCleanup(self.sandbox.delete, 'virtualmachines', name)

    def test_there_is_no_machine(self):
        for verb in 'console', 'vnc':
            code, message = self.refused('none', verb)
            self.assertEqual(404, code)
            self.assertIn('"none" not found', message)

    def test_it_does_not_run(self):
        vm = machines.vm('waits')
        vm['spec']['template']['spec']['nodeSelector'] = {'no': 'node'}
        self.sandbox.create('virtualmachines', vm)
        self.addCleanup(self.sandbox.delete, 'virtualmachines', 'waits')
        self.sandbox.wait('virtualmachineinstances', 'waits', bool)
        for verb in 'console', 'vnc':
            self.assertEqual((400, 'VMI is not running'),
                             self.refused('waits', verb))

    def test_it_has_none(self):
        self.make('bare', autoattachSerialConsole=False,
                  autoattachGraphicsDevice=False)
        self.sandbox.wait_running('bare')
        self.assertEqual((400, 'No serial consoles are present.'),
                         self.refused('bare'))
        self.assertEqual((400, 'No graphics devices are present.'),
                         self.refused('bare', 'vnc'))

    def test_it_is_simulated(self):
        self.make('simulated')
        self.sandbox.wait_running('simulated')
        for verb, port in (('console', 'serial port'), ('vnc', 'display')):
            code, message = self.refused('simulated', verb)
            self.assertEqual(501, code)
            self.assertIn('have no ' + port, message)
        self.sandbox.request(
            'GET', '/sandbox/guests/default/simulated/console', expect=404)
