# SPDX-License-Identifier: Apache-2.0
import dataclasses
import json
import unittest

from kubevirt_sandbox.qemu import command
from kubevirt_sandbox.qemu import drives
from kubevirt_sandbox.qemu import host
from tests.unit.kubevirt import objects

SETTINGS = host.Settings(
    '/bin/qemu', 'tcg', memory=512, cpus=2,
    efi=host.Firmware('code', 'vars'),
    secure=host.Firmware('secure', 'keys'))


def drive(name, bus='sata', cdrom=False, path='/x', **more):
    return drives.Drive(**{
        'name': name, 'bus': bus, 'cdrom': cdrom, 'boot': None,
        'medium': path and drives.Medium(name, path),
        'writable': not cdrom, **more})


class CommandTestCase(unittest.TestCase):

    def options(self, found=(), devices=None, start_strategy=None,
                settings=SETTINGS, **domain):
        domain.setdefault('memory', {'guest': '1Gi'})
        vmi = objects.vmi(domain={'devices': devices or {}, **domain})
        if start_strategy:
            vmi['spec']['startStrategy'] = start_strategy
        words = command.build(settings, vmi, list(found), '/v,ars', 7, 8,
                              '/run/vnc')
        self.assertEqual('/bin/qemu', words[0])
        return [(word, after) for word, after in zip(words, words[1:])
                if word.startswith('-') and not after.startswith('-')]

    def values(self, words, name):
        return [value for option, value in words if option == name]

    def devices(self, words):
        return {device['id']: device for device in map(
            json.loads, (value for value in self.values(words, '-device')
                         if value.startswith('{')))}

    def test_limits_memory_and_cpus(self):
        for guest, mebibytes in (('1Gi', 512), ('256Mi', 256), ('64Gi', 512),
                                 ('1k', 1)):
            words = self.options(memory={'guest': guest})
            self.assertEqual([f'{mebibytes}M'], self.values(words, '-m'))
        for cpu, text in (
                ({}, 'cpus=1,sockets=1,cores=1,threads=1'),
                ({'sockets': 2}, 'cpus=2,sockets=2,cores=1,threads=1'),
                ({'sockets': 64, 'cores': 2},
                 'cpus=2,sockets=1,cores=2,threads=1')):
            self.assertEqual([text], self.values(self.options(cpu=cpu),
                                                 '-smp'))

    def test_smbios_fields(self):
        words = self.options(firmware={'uuid': 'u', 'serial': 'a,b=c'},
                             chassis={'asset': 'x'})
        self.assertEqual(['u'], self.values(words, '-uuid'))
        self.assertEqual([
            'type=1,manufacturer=KubeVirt,product=None,family=KubeVirt,'
            'serial=a,,b=c,uuid=u', 'type=3,asset=x'],
            self.values(words, '-smbios'))

    def test_firmware_options(self):
        def machine(**firmware):
            words = self.options(firmware=firmware)
            return self.values(words, '-machine'), [
                value for value in self.values(words, '-drive')]

        self.assertEqual((['q35'], []), machine())
        self.assertEqual((['q35,graphics=off'], []), machine(
            bootloader={'bios': {'useSerial': True}}))
        machines, pflash = machine(bootloader={'efi': {'secureBoot': False}})
        self.assertEqual(['q35,smm=off'], machines)
        self.assertIn('file=code', pflash[0])
        self.assertIn('file=/v,,ars', pflash[1])
        machines, pflash = machine(bootloader={'efi': {}})
        self.assertEqual(['q35,smm=on'], machines)
        self.assertIn('file=secure', pflash[0])
        self.assertEqual(['q35,acpi=off'], self.values(self.options(
            features={'acpi': {'enabled': False}}), '-machine'))

    def test_action_of_reboot_policy(self):
        for policy, does in ((None, 'reset'), ('Reboot', 'reset'),
                             ('Terminate', 'shutdown')):
            self.assertEqual(
                [f'shutdown=pause,reboot={does}'],
                self.values(self.options(rebootPolicy=policy), '-action'))

    def test_paused_start_shows_boot_menu(self):
        self.assertEqual(['strict=on'], self.values(self.options(), '-boot'))
        self.assertEqual(
            ['strict=on,menu=on,splash-time=10000'],
            self.values(self.options(start_strategy='Paused'), '-boot'))

    def test_drive_options(self):
        words = self.options([
            drive('root', 'virtio', boot=1, serial='S'),
            drive('image', 'virtio', medium=drives.Medium(
                'image', '/a,b', 'qcow2', keep=False)),
            drive('cd', cdrom=True, path=None, boot=2),
            drive('scsi', 'scsi', shared=True), drive('stick', 'usb')])
        devices = self.devices(words)
        self.assertEqual({
            'id': 'ua-root', 'driver': 'virtio-blk-pci', 'drive': 'drive0',
            'bootindex': 1, 'serial': 'S'}, devices['ua-root'])
        self.assertEqual({'id': 'ua-cd', 'driver': 'ide-cd', 'bootindex': 2,
                          'bus': 'ide.0'}, devices['ua-cd'])
        self.assertEqual('scsi-hd', devices['ua-scsi']['driver'])
        self.assertTrue(devices['ua-scsi']['share-rw'])
        self.assertEqual('usb.0', devices['ua-stick']['bus'])
        self.assertEqual(
            ['if=none,id=drive1,snapshot=on,format=qcow2,file=/a,,b'],
            self.values(words, '-drive'))
        nodes = [json.loads(value)['node-name']
                 for value in self.values(words, '-blockdev')]
        self.assertEqual(['drive0', 'drive3', 'drive4'], nodes)

    def test_adds_second_sata_controller(self):
        devices = self.devices(self.options(
            [drive(f'd{number}') for number in range(8)]))
        self.assertEqual('ide.5', devices['ua-d5']['bus'])
        self.assertEqual('sata1.0', devices['ua-d6']['bus'])
        self.assertEqual('sata1.1', devices['ua-d7']['bus'])

    def test_network_cards(self):
        words = self.options(devices={'interfaces': [
            {'name': 'a', 'model': 'e1000', 'bootOrder': 3,
             'macAddress': '52-54-00-00-00-AA'},
            {'name': 'b'}, {'name': 'c', 'state': 'absent'}]})
        devices = self.devices(words)
        self.assertEqual({
            'driver': 'e1000', 'id': 'ua-a', 'netdev': 'net0',
            'mac': '52:54:00:00:00:aa', 'bootindex': 3}, devices['ua-a'])
        self.assertEqual('', devices['ua-b']['romfile'])
        self.assertEqual(2, len(devices))
        for card in self.values(words, '-netdev'):
            self.assertIn('restrict=on', card)
        settings = dataclasses.replace(SETTINGS, outbound=True)
        for card in self.values(self.options(settings=settings, devices={
                'interfaces': [{'name': 'a'}]}), '-netdev'):
            self.assertIn('restrict=off', card)

    def test_omits_console_and_graphics(self):
        words = self.options(devices={'autoattachSerialConsole': False,
                                      'autoattachGraphicsDevice': False})
        self.assertEqual([], self.values(words, '-vnc'))
        self.assertEqual(1, len(self.values(words, '-chardev')))
