# SPDX-License-Identifier: Apache-2.0
"""Guests that QEMU runs in the sandbox: actions of KubeVirt on a VMI."""

import os
import re
import signal
import time

import websocket

from kubevirt_sandbox.testing import console
from kubevirt_sandbox.testing import qemu


class GuestsTestCase(qemu.QemuTestCase):

    def boot_causes(self):
        return [boot['cause'] for boot in self.sandbox.boots(self.name)]

    def call_subresource(self, name, expect=200):
        self.sandbox.request(
            'PUT', '/apis/subresources.kubevirt.io/v1/namespaces/default/'
            f'virtualmachineinstances/{self.name}/{name}', {},
            expect=expect)

    def test_boot_reset_pause_and_shutdown_with_bios(self):
        """From the start to a shutdown by the guest."""
        self.make()
        vmi = self.sandbox.wait_running(self.name, timeout=60)
        uid = vmi['spec']['domain']['firmware']['uuid']
        self.console.wait(
            f'{qemu.DISK} by BIOS on {uid} serial-of-{self.name}')
        # A console that connects late misses it, the log does not.
        log = self.sandbox.request(
            'GET', f'/sandbox/guests/default/{self.name}/console', expect=200)
        self.assertIn('SeaBIOS', log.text)
        record = self.sandbox.guest(self.name)
        self.assertEqual(
            {'device': None, 'class': None, 'firmware': 'bios',
             'vmi': vmi['metadata']['uid'], 'cause': 'start', 'tried': None},
            {key: value for key, value in record['boots'][0].items()
             if key != 'at'})
        self.assertEqual((qemu.ACCELERATOR, 256, 1), tuple(
            record['qemu'][key] for key in ('accelerator', 'memory', 'cpus')))
        self.console.send_line('cards')
        self.console.wait('52:54:00:12:34:56')
        self.console.send_line('size')
        self.console.wait(r'size 1 MemTotal:\s+2\d{5} kB')
        # A reboot by the guest
        mark = self.console.mark()
        self.console.send_line('reboot')
        self.console.wait(qemu.DISK, mark)
        self.assertEqual(['start', 'reboot'], self.boot_causes())
        # The reset button
        mark = self.console.mark()
        self.call_subresource('reset')
        self.console.wait(qemu.DISK, mark)
        self.assertEqual(['start', 'reboot', 'reset'], self.boot_causes())
        # A paused guest prints nothing.
        self.call_subresource('pause')
        self.sandbox.wait('virtualmachineinstances', self.name, lambda vmi: [
            c for c in vmi['status']['conditions'] if c['type'] == 'Paused'])
        mark = self.console.mark()
        self.console.send_line('echo I am here')
        time.sleep(0.5)
        self.assertNotIn('I am here', self.console.output[mark:])
        self.call_subresource('unpause')
        self.console.wait('I am here', mark)
        # ACPI, then a reset, as libvirt reboots a guest without agent.
        self.call_subresource('softreboot')
        self.console.wait('(?s)power button.*Power down.*' + qemu.DISK, mark)
        self.assertEqual('softreboot', self.boot_causes()[-1])
        self.assertEqual(vmi['metadata']['uid'],
                         self.sandbox.vmi(self.name)['metadata']['uid'])
        # A shutdown by the guest
        self.console.send_line('poweroff')
        self.sandbox.wait_stopped(self.name, timeout=90)
        self.assertFalse(self.sandbox.guest(self.name)['running'])

    def test_crash(self):
        self.make(cd='images.test/iso:1')
        first = self.sandbox.wait_running(self.name, timeout=60)
        self.sandbox.wait_boot(self.name, 1)
        os.kill(self.sandbox.guest(self.name)['qemu']['pid'],
                signal.SIGSEGV)
        self.sandbox.wait(
            'virtualmachineinstances', self.name, lambda vmi: vmi is None
            or vmi['status']['phase'] == 'Failed'
            or vmi['metadata']['uid'] != first['metadata']['uid'])
        # RerunOnFailure
        self.sandbox.wait_running(self.name,
                                  other_than=first['metadata']['uid'])
        self.sandbox.guest_does(self.name, 'crash')
        self.sandbox.wait_boot(self.name, 3)

    def test_reboot_policy_terminate(self):
        """A reboot ends the VMI; the new one boots the drive."""
        self.make(run_strategy='Always', cd='images.test/iso:1',
                  rebootPolicy='Terminate')
        vmi = self.sandbox.wait_running(self.name, timeout=60)
        self.console.wait(qemu.DISK)
        self.sandbox.patch('virtualmachines', self.name, [
            {'op': 'add', 'path': '/spec/template/spec/domain/devices/disks/'
             '1/bootOrder', 'value': 1}])
        mark = self.console.mark()
        self.console.send_line('reboot')
        other = self.sandbox.wait_running(
            self.name, other_than=vmi['metadata']['uid'])
        self.console.wait(qemu.ISO, mark)
        self.assertEqual(['start', 'start'], self.boot_causes())
        # The reset button ends the VMI as well.
        self.call_subresource('reset')
        self.sandbox.wait_running(
            self.name, other_than=other['metadata']['uid'])

    def test_secure_boot(self):
        """It does not boot an unsigned disk."""
        self.make(efi={'secureBoot': True}, features={'smm': {}})
        self.console.wait('BdsDxe: failed to load .*: Access Denied')
        self.assertEqual('efi-secure', self.sandbox.boots(self.name)[0][
            'firmware'])

    def test_plugs_and_unplugs_disk(self):
        self.make()
        self.sandbox.create('datavolumes', {
            'apiVersion': 'cdi.kubevirt.io/v1beta1', 'kind': 'DataVolume',
            'metadata': {'name': 'more', 'namespace': 'default'},
            'spec': {'source': {'http': {'url': self.web.url + 'iso'}},
                     'storage': {'resources': {
                         'requests': {'storage': '64Mi'}}}}})
        self.addCleanup(self.sandbox.delete, 'datavolumes', 'more')
        self.sandbox.wait_running(self.name, timeout=60)
        self.console.wait(qemu.DISK)
        self.assertFalse(self.has_disk())
        self.sandbox.do(self.name, 'addvolume', {
            'name': 'more', 'disk': {'disk': {'bus': 'scsi'}},
            'volumeSource': {'dataVolume': {'name': 'more'}}})
        self.wait_volume(lambda it: it and it.get('phase') == 'Ready')
        self.wait_disk(True)
        self.sandbox.do(self.name, 'removevolume', {'name': 'more'})
        self.wait_volume(lambda it: it is None)
        self.wait_disk(False)

    def has_disk(self):
        """Tell whether the guest has the disk now."""
        mark = self.console.mark()
        self.console.send_line('disks')
        self.console.wait('that was all', mark)
        return bool(re.search(r'disk sda \d+ SUSHY_ISO',
                              self.console.output[mark:]))

    def wait_disk(self, there):
        """Wait until the guest's kernel has noticed the change."""
        deadline = time.monotonic() + 60
        while self.has_disk() != there:
            self.assertLess(time.monotonic(), deadline)

    def wait_volume(self, condition):
        self.sandbox.wait(
            'virtualmachineinstances', self.name, lambda vmi: condition(next(
                (it for it in vmi['status'].get('volumeStatus', ())
                 if it['name'] == 'more'), None)), timeout=120)

    def test_console_and_vnc(self):
        """A new console connection replaces the old one."""
        self.make(efi=True)
        with self.assertRaises(websocket.WebSocketBadStatusException) as c:
            console.connect(self.sandbox, console.url(
                self.sandbox, self.name + '-no'))
        self.assertEqual(404, c.exception.status_code)
        self.sandbox.wait_running(self.name, timeout=60)
        self.console.wait('.')
        one = console.connect(self.sandbox,
                              console.url(self.sandbox, self.name))
        self.addCleanup(one.shutdown)
        self.assertEqual('plain.kubevirt.io',
                         one.headers['sec-websocket-protocol'])
        one.settimeout(60)
        self.assertTrue(one.recv())
        two = console.connect(self.sandbox,
                              console.url(self.sandbox, self.name))
        self.addCleanup(two.shutdown)
        two.settimeout(60)
        with self.assertRaises((websocket.WebSocketException, OSError)):
            while True:
                one.recv()
        received = b''
        while qemu.DISK.encode() not in received:
            received += two.recv()
        # The log contains the whole output.
        log = self.sandbox.request(
            'GET', f'/sandbox/guests/default/{self.name}/console',
            expect=200).text
        self.assertIn(qemu.DISK, log)
        # The display speaks VNC.
        display = console.connect(
            self.sandbox, console.url(self.sandbox, self.name, 'vnc'))
        self.addCleanup(display.shutdown)
        self.assertEqual(b'RFB 003.008\n', display.recv())
        with self.assertRaises(websocket.WebSocketBadStatusException) as c:
            console.connect(self.sandbox, console.url(
                self.sandbox, self.name, 'vnc?preserveSession=true'))
        self.assertEqual(500, c.exception.status_code)
        self.sandbox.do(self.name, 'stop', {'gracePeriod': 0})
        with self.assertRaises((websocket.WebSocketException, OSError)):
            while True:
                two.recv()
        self.sandbox.wait_stopped(self.name, timeout=90)
        for verb in 'console', 'vnc':
            with self.assertRaises(
                    websocket.WebSocketBadStatusException) as c:
                console.connect(self.sandbox, console.url(
                    self.sandbox, self.name, verb))
            self.assertEqual(404, c.exception.status_code)
