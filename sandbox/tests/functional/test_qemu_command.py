# SPDX-License-Identifier: Apache-2.0
"""The sandbox as the parent of QEMU processes: beginnings, refusals, ends."""

import os
import pathlib
import select
import signal
import subprocess
import time

import fixtures

from kubevirt_sandbox.testing import process
from kubevirt_sandbox.testing import qemu
from kubevirt_sandbox.testing import sandbox


def command(pid):
    """The words of QEMU's command line.

    It is ``setpriv`` for a moment, and has none while one becomes the other.
    """
    deadline = time.monotonic() + 30
    while True:
        with open('/proc/%d/cmdline' % pid) as stream:
            words = stream.read().split('\0')
        if 'qemu' in words[0] or time.monotonic() > deadline:
            return words
        time.sleep(0.01)


class CommandTestCase(qemu.QemuTestCase):

    def test_they_end_with_the_sandbox(self):
        """Also when it can do nothing for it any more."""
        for signum in signal.SIGKILL, signal.SIGTERM:
            cluster = self.useFixture(sandbox.Sandbox(
                0, arguments=self.SANDBOX_ARGUMENTS))
            obj = qemu.vm('one', self.web.url + 'disk')
            cluster.create('virtualmachines', obj)
            cluster.wait_running('one', timeout=60)
            cluster.wait_boot('one', 1)
            pid = cluster.guest('one')['qemu']['pid']
            self.assertIn('guest=default_one', ' '.join(command(pid)))
            descriptor = os.pidfd_open(pid)
            self.addCleanup(os.close, descriptor)
            cluster.process.send(signum)
            self.assertEqual(0 if signum == signal.SIGTERM else -signum,
                             cluster.process.wait())
            self.assertTrue(select.select([descriptor], [], [], 60)[0])

    def test_there_is_no_qemu(self):
        home = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        done = subprocess.run(
            [process.BIN / 'kubevirt-sandbox', '--listen',
             '127.0.0.1:0', '--kubeconfig', home / 'kubeconfig', '--guests',
             'qemu'], env=process.environment(home, {'PATH': str(home)}),
            capture_output=True, text=True, timeout=60)
        self.assertEqual(1, done.returncode)
        self.assertIn('qemu-system-x86_64 is not installed', done.stderr)
        self.assertNotIn('Traceback', done.stderr)
        self.assertFalse((home / 'kubeconfig').exists())

    def test_what_cannot_be_run(self):
        self.make(cd='images.test/unknown:1')
        self.sandbox.wait(
            'virtualmachines', self.name, lambda vm: vm.get(
                'status', {}).get('printableStatus') in (
                    'ErrImagePull', 'ImagePullBackOff'))
        self.make()
        self.sandbox.delete('virtualmachines', self.name)
        obj = qemu.vm(self.name + '-b', self.web.url + 'disk')
        obj['spec']['template']['spec']['volumes'].append(
            {'name': 'cd', 'cloudInitNoCloud': {'userData': '#cloud-config'}})
        self.sandbox.create('virtualmachines', obj)
        self.addCleanup(self.sandbox.delete, 'virtualmachines',
                        obj['metadata']['name'])
        vmi = self.sandbox.wait(
            'virtualmachineinstances', obj['metadata']['name'],
            lambda vmi: vmi and [
                c for c in vmi['status'].get('conditions', ())
                if c['type'] == 'Synchronized'])
        self.assertEqual('Scheduled', vmi['status']['phase'])
        told, = (c for c in vmi['status']['conditions']
                 if c['type'] == 'Synchronized')
        self.assertEqual('False', told['status'])
        self.assertIn('cloudInitNoCloud', told['message'])

    def test_variables_of_uefi_that_persist(self):
        """They are the VM's; the firmware of each VMI writes to them."""
        self.make(efi={'persistent': True})
        vmi = self.sandbox.wait_running(self.name, timeout=60)
        self.console.wait('BdsDxe: starting')
        path = self.variables()
        with open(path, 'rb') as one, open(
                '/usr/share/OVMF/OVMF_VARS_4M.fd', 'rb') as other:
            self.assertNotEqual(other.read(), one.read())
        self.sandbox.do(self.name, 'restart', {'gracePeriodSeconds': 0})
        self.sandbox.wait_running(self.name,
                                  other_than=vmi['metadata']['uid'])
        self.sandbox.wait_boot(self.name, 2)
        self.assertEqual(path, self.variables())
        # Others have theirs where all of a VMI is that goes with it.
        self.make(efi=True)
        self.sandbox.wait_running(self.name, timeout=60)
        self.sandbox.wait_boot(self.name, 1)
        other = pathlib.Path(self.variables())
        self.assertEqual(['qemu.log', 'variables.fd'], sorted(
            file.name for file in other.parent.iterdir()
            if file.suffix))
        self.sandbox.do(self.name, 'stop', {'gracePeriod': 0})
        self.sandbox.wait_stopped(self.name)
        # Taken away a moment later.
        deadline = time.monotonic() + 30
        while other.parent.exists():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        self.assertTrue(os.path.exists(path))

    def variables(self):
        """The file with the variables of a running guest."""
        pid = self.sandbox.guest(self.name)['qemu']['pid']
        word, = (word for word in command(pid) if 'unit=1' in word)
        return word.partition('file=')[2]
