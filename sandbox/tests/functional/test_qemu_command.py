# SPDX-License-Identifier: Apache-2.0
"""QEMU processes of the sandbox: start, errors, end."""

import os
import pathlib
import select
import signal
import subprocess
import time
import urllib.parse

import fixtures
from testtools import content

from kubevirt_sandbox.testing import console
from kubevirt_sandbox.testing import process
from kubevirt_sandbox.testing import qemu
from kubevirt_sandbox.testing import sandbox


def command(pid):
    """Return QEMU's command line as a list.

    The process is ``setpriv`` first, and has no command line during exec.
    """
    deadline = time.monotonic() + 30
    while True:
        with open(f'/proc/{pid}/cmdline') as stream:
            words = stream.read().split('\0')
        if 'qemu' in words[0] or time.monotonic() > deadline:
            return words
        time.sleep(0.01)


class CommandTestCase(qemu.QemuTestCase):

    def test_qemu_ends_with_the_sandbox(self):
        """Also if the sandbox is killed."""
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

    def test_error_without_qemu(self):
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

    def test_reports_missing_image_and_unsupported_volume(self):
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
        synchronized, = (c for c in vmi['status']['conditions']
                         if c['type'] == 'Synchronized')
        self.assertEqual('False', synchronized['status'])
        self.assertIn('cloudInitNoCloud', synchronized['message'])

    def test_persistent_uefi_variables(self):
        """They belong to the VM; the firmware of each VMI writes to them."""
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
        # Other variables are in the folder that is removed with the VMI.
        self.make(efi=True)
        self.sandbox.wait_running(self.name, timeout=60)
        self.sandbox.wait_boot(self.name, 1)
        other = pathlib.Path(self.variables())
        self.assertEqual(['qemu.log', 'variables.fd'], sorted(
            file.name for file in other.parent.iterdir()
            if file.suffix))
        self.sandbox.do(self.name, 'stop', {'gracePeriod': 0})
        self.sandbox.wait_stopped(self.name)
        # The folder is removed a moment later.
        deadline = time.monotonic() + 30
        while other.parent.exists():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        self.assertTrue(os.path.exists(path))

    def variables(self):
        """Return the path of the variables of a running guest."""
        pid = self.sandbox.guest(self.name)['qemu']['pid']
        word, = (word for word in command(pid) if 'unit=1' in word)
        return word.partition('file=')[2]

    def test_outbound(self):
        """With the option, guests reach this host; without it, nothing."""
        cluster = self.useFixture(sandbox.Sandbox(
            0, arguments=(*self.SANDBOX_ARGUMENTS, '--qemu-outbound')))
        port = urllib.parse.urlsplit(self.web.url).port
        for one, expected in (self.sandbox, 1), (cluster, 0):
            guest = self.useFixture(console.Console(one, 'out'))
            self.addOnException(lambda _, guest=guest: self.addDetail(
                'console', content.text_content(guest.output[-5000:])))
            one.create('virtualmachines',
                       qemu.vm('out', self.web.url + 'disk'))
            self.addCleanup(one.delete, 'virtualmachines', 'out')
            guest.wait(qemu.DISK, timeout=400)
            for line, answer in (('cards', '52:54:00'), ('login', 'login: '),
                                 ('root', 'Password: '), ('console', '# ')):
                guest.send_line(line)
                guest.wait(answer)
            guest.send_line(
                'd=$(ls /sys/class/net | grep -v lo); ip link set $d up; '
                'ip addr add 10.0.2.15/24 dev $d; '
                'printf "HEAD / HTTP/1.0\\r\\n\\r\\n" | '
                f'nc -w 5 10.0.2.2 {port} | grep HTTP/; echo "status=$?"')
            found = guest.wait(r'status=(\d+)', timeout=120)
            self.assertEqual(expected, int(found[1]))
