# SPDX-License-Identifier: Apache-2.0
"""``console`` of ``sushy-kubevirt-cluster`` with a real guest (QEMU)."""

import os
import pathlib
import tempfile

import yaml

from kubevirt_sandbox.testing import process
from kubevirt_sandbox.testing import qemu
from tests.fixtures import operator
from tests.fixtures import terminal


class ConsoleTestCase(operator.OperatorTestCase):

    SANDBOX = '--guests', 'qemu', '--qemu-accel', qemu.ACCELERATOR

    @classmethod
    def setUpClass(cls):
        if missing := qemu.needed():
            raise AssertionError('real guests need these packages (see '
                                 'bindep.txt): ' + ' '.join(missing))
        super().setUpClass()
        cls.web = cls.share(qemu.WebServer())

    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name) / 'lab.yaml'
        self.file.write_text(yaml.safe_dump({
            'cluster': {'name': 'lab'},
            'node_types': {'small': {
                'vcpus': 1, 'memory_mb': 256, 'boot_mode': 'bios',
                'volumes': [{'capacity': '64MiB',
                             'image': self.web.url + 'disk'}],
                'vm': {'spec': {'template': {'spec': {'domain': {'firmware': {
                    'bootloader': {'bios': {'useSerial': True}}}}}}}}}},
            'specs': [{'type': 'small', 'count': 1}]}))

    def start(self, *words):
        """Run a command in a terminal, with the user's PATH."""
        return self.useFixture(terminal.Terminal(
            [process.BIN / 'sushy-kubevirt-cluster', *map(str, words),
             '--namespace', self.namespace],
            process.environment(process.NO_HOME, {
                'KUBECONFIG': self.sandbox.kubeconfig, 'TERM': 'dumb',
                'PATH': os.environ['PATH']})))

    def test_from_apply_to_login(self):
        applied = self.start('apply', self.file)
        self.assertEqual(0, applied.wait_end(300), applied.output)
        console = self.start('console', 'lab-0')
        mark = console.wait(rb'is off\. The console connects').end()

        power = self.start('power', 'lab-0', 'on')
        self.assertEqual(0, power.wait_end(120), power.output)
        mark = console.wait(rb'by BIOS', mark, 300).end()
        console.send(b'login\r')
        mark = console.wait(rb'login: ', mark, 120).end()
        console.send(b'root\r')
        mark = console.wait(rb'Password: ', mark, 120).end()
        console.send(b'\r~.')
        self.assertEqual(0, console.wait_end())
